"""The privacy compliance report of a run, one dated page: facts, a summary in plain language, the details.

It is ``PRIVACY.md`` of the run's folder, which is rewritten whenever the run predicts another graph. The HTML
report shows the same facts. It contains totals of a ledger, so its readers must be authorized to see these.
The page in ``release/`` is public.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphveil._util.figures import counted
from graphveil._util.files import write_atomic
from graphveil.core.unit import NoUnit
from graphveil.ledger import unit_key
from graphveil.privacy import Guarantee
from graphveil.publish.release_folder import read_guarantee
from graphveil.publish.reports import ComplianceReport, mark_of, total_cells, total_of
from graphveil.runs.charges import RunAccount, earlier_predictions, open_ledger_at, receipts_in
from graphveil.runs.experiment import combined_guarantee
from graphveil.runs.run_folder import RunFolder, read_json, write_json

FILE = "PRIVACY.md"
_SHOWN = ("graphveil", "python", "torch", "numpy", "dp-accounting")


def write_reports(
    folder: RunFolder,
    metrics: dict[str, Any],
    release: Path,
    page: Callable[[ComplianceReport], str],
    account: RunAccount | None,
) -> None:
    """Write the reports of a run and its metrics, before the release is published.

    Args:
        metrics: what ``train --json`` prints; the places of folder and ledger are added.
    """
    metrics["out"] = str(folder.root)
    if account is not None:
        known = {"words": account.after(), **account.as_plain()}
        metrics["ledger"] = known | {"receipts": receipts_in(folder.receipts)}
    notice = _compliance_report(folder, metrics, release)
    write_atomic(folder.root / FILE, notice.markdown().encode())
    write_atomic(folder.internal / "report.html", page(notice).encode())
    write_json(folder.metrics, metrics)


def update_compliance_report(run: Path) -> None:
    """Rewrite the compliance report of a finished run; do nothing if there is only a release."""
    folder = RunFolder(run)
    if folder.complete:
        notice = _compliance_report(folder, read_json(folder.metrics), folder.release)
        write_atomic(folder.root / FILE, notice.markdown().encode())


def _compliance_report(folder: RunFolder, metrics: Mapping[str, Any], release: Path) -> ComplianceReport:
    guarantee = read_guarantee(release).guarantee
    return ComplianceReport(
        f"{metrics['method']} on {metrics['dataset']}",
        datetime.now(UTC).strftime("%Y-%m-%d"),
        guarantee,
        bool(metrics["covered"]),
        tuple(_totals(folder, metrics, guarantee)),
        tuple(_record(folder, metrics, release)),
    )


def _totals(
    folder: RunFolder, metrics: Mapping[str, Any], guarantee: Guarantee
) -> Iterator[tuple[str, str, str]]:
    """Yield the totals, from the one model to everything that was ever released of the data."""
    if guarantee.unit == NoUnit.name:
        yield total_cells("this run", None, 0.0)
        return
    lists = guarantee.edge_use == "lists"
    outputs = "its predictions" if guarantee.covers_predictions else "noisy aggregates"
    yield total_of("released item model" if lists else f"released model and {outputs}", guarantee)
    if not guarantee.covers_predictions:
        words = "the same, for people who know some nodes' lists of edges and see their predictions"
        yield total_cells(words, guarantee.coalition_epsilon, guarantee.delta, mark_of(guarantee))
    runs, all_runs = metrics["runs"], metrics["guarantee_all_runs"]
    if runs > 1 or metrics["baseline_guarantee"] is not None:
        additional = " and their baselines" if metrics["baseline_guarantee"] is not None else ""
        words = f"all {runs} runs{additional}" if runs > 1 else "the run and its baseline"
        yield total_cells(words, all_runs["epsilon"], all_runs["delta"], mark_of(guarantee))
    prices = [one.privacy_cost for one in earlier_predictions(folder.root)]
    if prices:
        both = combined_guarantee(sorted([guarantee, *prices], key=lambda one: -one.delta))
        others = counted(len(prices), "prediction")
        yield total_of(f"model and {others} of other graphs, if all share edges", both)
    receipts = receipts_in(folder.receipts)
    place = read_json(folder.receipts).get("place") if receipts else None
    if place is not None:  # the ledger's account of the data that the run was trained on
        ledger = open_ledger_at(place).data_set(receipts[0]["data_set"])
        spent = RunAccount(ledger, unit_key(guarantee.protected), guarantee.delta).as_plain()
        limit = "" if spent["limit"] is None else f", of {spent['limit']['epsilon']:g} allowed"
        count = counted(spent["releases"], "release")
        words = f"all entries of data set {spent['data_set']} in its ledger ({count}{limit})"
        yield total_cells(words, spent["epsilon"], spent["delta"])


def unrecorded(metrics: Mapping[str, Any]) -> str:
    """Return that a run has no entry in a privacy ledger, and why.

    >>> unrecorded({"dataset": "cora", "guarantee": {"releases": 0, "unit": "directed-edge"}, "releases": []})
    'no entry in a privacy ledger, because no protected data were read'
    """
    if metrics["guarantee"]["unit"] == NoUnit.name:
        why = "unit 'none' protects nothing"
    elif not metrics["guarantee"]["releases"]:
        why = "no protected data were read"
    elif not metrics["releases"]:
        why = "the edges come from a released graph, and the entry is that of its release"
    elif metrics["dataset"].startswith("synthetic/"):
        why = "the data are synthetic (--ledger NAME records them all the same)"
    else:
        why = "the run was given none"
    return f"no entry in a privacy ledger, because {why}"


def _record(folder: RunFolder, metrics: Mapping[str, Any], release: Path) -> Iterator[str]:
    versions = read_json(folder.lock)["versions"]
    known = ", ".join(f"{name} {versions[name]}" for name in _SHOWN if name in versions)
    yield f"Software: {known}."
    digest = fingerprint(release)
    yield f"Fingerprint of release/: {digest} (SHA-256 of what `LC_ALL=C sha256sum *` prints there)."
    receipts = sorted(receipts_in(folder.receipts), key=lambda receipt: int(receipt["entry"]))
    if receipts:
        entries = ", ".join(str(receipt["entry"]) for receipt in receipts)
        head = receipts[-1]["head"][:16]
        yield (
            f"Privacy ledger: {counted(len(receipts), 'release')} of {receipts[0]['data_set']}, entries "
            f"{entries}; head of the chain after the last entry: {head}."
        )
    else:
        yield f"Privacy ledger: {unrecorded(metrics)}."


def fingerprint(release: Path) -> str:
    """Return the digest of what ``LC_ALL=C sha256sum *`` prints in a release."""
    files = sorted(release.iterdir(), key=lambda file: file.name.encode())
    listed = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    return hashlib.sha256("".join(listed).encode()).hexdigest()
