"""The privacy compliance report of a run, one dated page: facts, a summary in plain language, the details.

It is ``PRIVACY.md`` of the run's folder, which is rewritten whenever the run predicts another graph. The HTML
report shows the same facts. It contains totals of a ledger, so its readers must be authorized to see these.
The page in ``release/`` is public.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphveil._util.escape import render
from graphveil._util.figures import counted, format_delta, format_upper_bound, percent_up
from graphveil._util.files import write_atomic
from graphveil.artifacts.cards import all_deviations, invalid_mark, not_covered
from graphveil.artifacts.release_folder import read_guarantee, withheld_files
from graphveil.core.unit import NoUnit
from graphveil.ledger import unit_key
from graphveil.ledger.accounts import RunAccount, open_ledger_at
from graphveil.privacy import Guarantee
from graphveil.runs.charges import earlier_predictions, receipts_in
from graphveil.runs.preview import combined_guarantee
from graphveil.runs.run_folder import RunFolder, read_json

FILE = "PRIVACY.md"
_SHOWN = ("graphveil", "python", "torch", "numpy", "dp-accounting")


@dataclass(frozen=True)
class NoticeTotal:
    """A line of totals: epsilon, None for no bound; delta; and a mark where the guarantee is not valid."""

    what: str
    epsilon: float | None
    delta: float
    mark: str = ""

    @property
    def cells(self) -> tuple[str, str, str]:
        """The line as text."""
        bound = "no bound" if self.epsilon is None else format_upper_bound(self.epsilon)
        return self.what, f"{bound}{self.mark}", "-" if self.epsilon is None else format_delta(self.delta)


@dataclass(frozen=True)
class ComplianceReport:
    """The contents of the page, in its order.

    Args:
        about: Method and data.
        day: Date of the page.
        guarantee: Guarantee of one run.
        audience: Authorized readers of each output, a line each.
        totals: Privacy loss, from the one model to everything released of the data.
        record: Versions, fingerprint and receipts, a line each.
    """

    about: str
    day: str
    guarantee: Guarantee
    audience: tuple[str, ...]
    totals: tuple[NoticeTotal, ...]
    record: tuple[str, ...]

    @classmethod
    def from_folder(cls, folder: RunFolder, metrics: Mapping[str, Any], release: Path) -> "ComplianceReport":
        """Return the notice of a run, as of today.

        Args:
            folder: the run's.
            metrics: what ``train --json`` prints.
            release: the release, in its place or waiting for it.
        """
        guarantee = read_guarantee(release).guarantee
        return cls(
            f"{metrics['method']} on {metrics['dataset']}",
            datetime.now(UTC).strftime("%Y-%m-%d"),
            guarantee,
            tuple(_audience(guarantee, covered=bool(metrics["covered"]))),
            tuple(_totals(folder, metrics, guarantee)),
            tuple(_record(folder, metrics, release)),
        )

    @property
    def sections(self) -> Iterator[tuple[str, Sequence[str]]]:
        """Titles and lines between the summary and the totals."""
        if self.guarantee.all_valid:
            protected = "; ".join(one.covers for one in (self.guarantee, *self.guarantee.additional))
        else:
            protected = "nothing: the guarantee is not valid, because of the deviations below"
        yield "Protected", [protected]
        flaws = (f"deviation: {why}" for why in all_deviations(self.guarantee))
        yield "Not protected", [*not_covered(self.guarantee), *flaws]
        yield "Access to the outputs", self.audience

    @property
    def scope_table(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """Head and rows of the table of totals."""
        return ("scope", "ε", "δ"), [total.cells for total in self.totals]

    def markdown(self) -> str:
        """Return the page for the run's folder."""
        bound = _total("", self.guarantee)
        head, totals = self.scope_table
        return render(
            "privacy_notice.md",
            lede=f"{self.day}. Internal: it contains totals of a ledger.",
            facts=[
                ("Processing", f"training of {self.about}"),
                ("Privacy unit", self.guarantee.unit),
                ("Privacy guarantee of the model", f"ε = {bound.cells[1]}, δ = {bound.cells[2]}"),
                (
                    "Attack bound",
                    f"TPR at most {percent_up(self.guarantee.max_tpr())} % at 1 % FPR{bound.mark}",
                ),
                ("Mode", self.guarantee.mode),
            ],
            summary=self.guarantee.summary(),
            sections=list(self.sections),
            head=head,
            totals=totals,
            statement=self.guarantee.formal_statement(),
            record=self.record,
            signature="Name, role, date, signature: ______________________________",
        )


def write_compliance_report(folder: RunFolder, notice: ComplianceReport) -> None:
    """Write ``PRIVACY.md``, in one step."""
    write_atomic(folder.root / FILE, notice.markdown().encode())


def update_compliance_report(run: Path) -> None:
    """Rewrite the compliance report of a finished run; do nothing if there is only a release."""
    folder = RunFolder(run)
    if folder.complete:
        write_compliance_report(
            folder, ComplianceReport.from_folder(folder, read_json(folder.metrics), folder.release)
        )


def _audience(guarantee: Guarantee, *, covered: bool) -> Iterator[str]:
    """Yield the authorized readers of each part of a run's folder."""
    if guarantee.unit == NoUnit.name or not guarantee.all_valid:
        yield "All outputs: only people who are authorized to access the data."
        return
    if guarantee.edge_use == "lists":
        yield "`release/` (popularity of items, item model, and hit rate if there is one): public."
        yield (
            "Recommendations (`predict --top-k`): those for a user only for this user, and for people "
            "authorized to access the list of this user."
        )
        yield "`internal/` and this report: only people who are authorized to access the data."
        return
    own_rows = bool(withheld_files(guarantee.unit))
    outputs = "model and noisy aggregates" if own_rows else "model, noisy aggregates, predictions"
    yield f"`release/` ({outputs}): public."
    if own_rows:
        yield "`per_node/`: row v only for people who are authorized to access the record of node v."
    yield f"Accuracies: {'public' if covered else 'internal, because no guarantee covers exact accuracies'}."
    yield "`internal/` and this report: only people who are authorized to access the data."


def _totals(folder: RunFolder, metrics: Mapping[str, Any], guarantee: Guarantee) -> Iterator[NoticeTotal]:
    """Yield the totals, from the one model to everything that was ever released of the data."""
    if guarantee.unit == NoUnit.name:
        yield NoticeTotal("this run", None, 0.0)
        return
    lists = guarantee.edge_use == "lists"
    yield _total("released item model" if lists else "released model and its predictions", guarantee)
    runs, all_runs = metrics["runs"], metrics["guarantee_all_runs"]
    if runs > 1 or metrics["baseline_guarantee"] is not None:
        additional = " and their baselines" if metrics["baseline_guarantee"] is not None else ""
        words = f"all {runs} runs{additional}" if runs > 1 else "the run and its baseline"
        yield NoticeTotal(words, all_runs["epsilon"], all_runs["delta"], _mark(guarantee))
    prices = [one.privacy_cost for one in earlier_predictions(folder.root)]
    if prices:
        both = combined_guarantee(sorted([guarantee, *prices], key=lambda one: -one.delta))
        others = counted(len(prices), "prediction")
        yield _total(f"model and {others} of other graphs, if all share edges", both)
    receipts = receipts_in(folder.receipts)
    place = read_json(folder.receipts).get("place") if receipts else None
    if place is not None:  # the ledger's account of the data that the run was trained on
        ledger = open_ledger_at(place).data_set(receipts[0]["data_set"])
        spent = RunAccount(ledger, unit_key(guarantee.protected), guarantee.delta).as_plain()
        limit = "" if spent["limit"] is None else f", of {spent['limit']['epsilon']:g} allowed"
        count = f"{spent['releases']:,} release{'' if spent['releases'] == 1 else 's'}"
        words = f"all entries of data set {spent['data_set']} in its ledger ({count}{limit})"
        yield NoticeTotal(words, spent["epsilon"], spent["delta"])


def _total(what: str, guarantee: Guarantee) -> NoticeTotal:
    known = guarantee.as_dict()
    return NoticeTotal(what, known["epsilon"], guarantee.delta, _mark(guarantee))


def _mark(guarantee: Guarantee) -> str:
    return invalid_mark(valid=guarantee.valid, unit=guarantee.unit)


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
