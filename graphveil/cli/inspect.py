"""``datasets``, ``calibrate``, ``explain`` and ``report``: commands that read and spend no budget."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.errors import ArtifactError, ConfigError

if TYPE_CHECKING:
    from graphveil.runs.calibration import Calibration

_CALIBRATED = ("unit", "delta", "max_units", "out_degree_bound", "max_degree", "theta")
CalibratedPrivacy = Annotated[
    options.PrivacyOptions, frozenset((*_CALIBRATED, "replace_one", "private_metrics"))
]
_SIZES = {
    "nodes": ("nodes", "--nodes-count"),
    "classes": ("classes", "--classes-count"),
    "features": ("features", "--features-count"),
    "train_records": ("training nodes", "--training-count"),
}


def datasets(name: str | None = None, *, root: Path | None = None, json: bool = False) -> None:
    """List the datasets, or show the statistics of one.

    Args:
        name (NAME): Dataset to describe. Default: list all.

    Examples:
        graphveil datasets
        graphveil datasets synthetic/demo
    """
    from graphveil.data import dataset_info, list_datasets

    screen = Screen(as_json=json)
    if name is not None:
        info = dataset_info(name, root)
        statistics = [(key.replace("_", " "), _statistic(value)) for key, value in info.items()]
        screen.table(("statistic", "value"), statistics)
        screen.emit_json(info)
        return
    rows, sizes = list_datasets(root), ("nodes", "features", "classes")
    cells = [
        (
            row["name"],
            *("?" if row[key] is None else f"{row[key]:,}" for key in sizes),
            "yes" if row["local"] else "-",
        )
        for row in rows
    ]
    screen.table(("name", "nodes", "features", "classes", "downloaded"), cells, right=(1, 2, 3))
    screen.print_line(
        "Sizes are before preprocessing. Other datasets are read from --root, or downloaded at first use."
    )
    screen.emit_json({"datasets": rows})


def _statistic(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (
        f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)
    )


def calibrate(
    method: options.AnyMethod,
    *,
    privacy: CalibratedPrivacy,
    epsilon: float | None = None,
    noise_std: float | None = None,
    nodes_count: options.OneOrMore | None = None,
    classes_count: Annotated[int, Ge(2)] | None = None,
    features_count: options.OneOrMore | None = None,
    training_count: options.OneOrMore | None = None,
    labeled_count: options.OneOrMore | None = None,
    module: str | None = None,
    set: list[str] | None = None,
    json: bool = False,
) -> None:
    """Compute the noise for a privacy budget, or the budget for a noise.

    Privacy:
        noise_std: Noise standard deviation, instead of --epsilon.

    Data:
        nodes_count: Number of nodes, or of users.
        classes_count: Number of classes.
        features_count: Number of features.
        training_count: Number of training nodes, for node-level units. Default: three quarters of all
            nodes.
        labeled_count: Number of labeled nodes, for edge-level units. A small number changes the plan.

    Examples:
        graphveil calibrate gap --unit undirected-edge --epsilon 1 --delta 1e-6
        graphveil calibrate gap --unit undirected-edge --noise-std 4 --delta 1e-6
    """
    from graphveil.core.unit import parse_unit
    from graphveil.runs import calibration
    from graphveil.runs.parameters import load_custom_module, parse_parameters

    parse_unit(privacy.unit, max_degree=privacy.max_degree)
    own = None if module is None else load_custom_module(module)
    flags = {"epsilon": epsilon, "module": own, **privacy.keywords()}
    config = parse_parameters(method, flags, set or (), privacy.theta)
    found = calibration.calibrate(
        method,
        noise_std=noise_std,
        nodes=nodes_count,
        classes=classes_count,
        dim=features_count,
        training=training_count,
        labeled=labeled_count,
        **config,
    )
    _show_calibration(found, epsilon, Screen(as_json=json))


def _show_calibration(found: "Calibration", given: float | None, screen: Screen) -> None:
    from graphveil._util.figures import format_epsilon_delta, format_upper_bound, percent_up
    from graphveil.publish.queries import unequal_shares_note, unspent_budget_note

    mu = "" if found.mu is None else f", mu {format_upper_bound(found.mu, 6)}"
    screen.print_line(
        f"{found.method}, unit {found.unit}: {format_epsilon_delta(found.epsilon, found.delta)}{mu}"
    )
    if left := unspent_budget_note(given, found.epsilon):
        screen.print_line(f"{left[0].upper()}{left[1:]}")
    for words in found.reports:
        screen.print_line(words)
    if found.stages:
        head = ("stage", "noise", "steps", "charged to", "share", "epsilon")
        lines = [
            (
                stage.name,
                stage.noise,
                stage.batches or "-",
                stage.charged_groups or "edges",
                f"{100 * stage.share:.0f} %",
                format_upper_bound(stage.epsilon),
            )
            for stage in found.stages
        ]
        screen.table(head, lines, right=(4, 5))
        if words := unequal_shares_note(found.stages):
            screen.print_line(f"{words[0].upper()}{words[1:]}")
        screen.print_line(f"Largest sensitivity: {found.sensitivity:.6g}")
    elif not found.reports:
        screen.print_line("Noise: none, because the edges are never read")
    rate = percent_up(found.max_tpr_at_1pct_fpr)
    screen.print_line(f"Attack bound: true-positive rate at 1 % false positives: at most {rate} %")
    if found.assumed:
        sizes = ", ".join(f"{count:,} {_SIZES[name][0]}" for name, count in found.assumed.items())
        flags = ", ".join(_SIZES[name][1] for name in found.assumed)
        screen.print_line(f"Assumed sizes: {sizes}. The noise depends on them; set {flags}.")
    screen.emit_json(found.as_dict())


def explain(run: Path, *, json: bool = False) -> None:
    """Explain the guarantee of a run.

    Examples:
        graphveil explain runs/first
        graphveil explain runs/first --json
    """
    from graphveil._util.figures import format_delta, format_upper_bound
    from graphveil.publish import cards
    from graphveil.publish.queries import event_rows, event_table
    from graphveil.publish.release_folder import read_guarantee
    from graphveil.runs.charges import earlier_predictions, receipts_in
    from graphveil.runs.run_folder import RunFolder

    privacy_file = read_guarantee(run)
    guarantee, screen = privacy_file.guarantee, Screen(as_json=json)
    lines = event_rows(guarantee, privacy_file.releases)
    screen.print_line("Summary", style="bold")
    screen.print_paragraph(guarantee.summary() + "\n")
    screen.print_line("Formal guarantee", style="bold")
    screen.print_paragraph(guarantee.formal_statement() + "\n")
    if lines:
        screen.print_line(f"Queries of the {cards.release_subject(guarantee)}", style="bold")
        screen.table(*event_table(lines))
        for one in (guarantee, *guarantee.additional):
            unit = f"unit {one.unit}: " if guarantee.additional else ""
            bound = f"epsilon {format_upper_bound(one.epsilon)}, delta {format_delta(one.delta)}"
            screen.print_line(f"{unit}{bound}; {cards.attack_bound_text(one)}")
        screen.print_line("")
    for deviation in cards.all_deviations(guarantee):
        screen.print_paragraph(f"Deviation: {deviation}.")
    screen.print_line("Not covered", style="bold")
    for line in cards.not_covered(guarantee):
        screen.print_line(f"  {line}")
    screen.print_line(
        f"  other runs on the same {cards.release_subject(guarantee)}: their privacy losses add up"
    )
    receipts = receipts_in(RunFolder(run).receipts)
    prediction_receipts = [receipt for one in earlier_predictions(run) for receipt in one.receipts]
    of_predictions = "Ledger receipts of predictions for other graphs"
    for title, some in (("Ledger receipts", receipts), (of_predictions, prediction_receipts)):
        if some:
            screen.print_line(f"\n{title}", style="bold")
        for receipt in some:
            screen.print_line(
                f"  {receipt['data_set']}, {receipt['unit']}: entry {receipt['entry']}, release "
                f"{receipt['release']}, chain head {receipt['head'][:16]}..."
            )
    screen.emit_json(
        {
            "run": str(run),
            "statement": guarantee.formal_statement(),
            "summary": guarantee.summary(),
            "guarantee": guarantee.as_dict(),
            "releases": [line.as_event() for line in lines],
            "deviations": list(cards.all_deviations(guarantee)),
            "not_covered": list(cards.not_covered(guarantee)),
            "receipts": receipts,
            "prediction_receipts": prediction_receipts,
        }
    )


def report(runs: list[Path], *, out: Path = Path("report.html"), json: bool = False) -> None:
    """Write an HTML report about several runs.

    This does not spend privacy budget. The page has no scripts and no external resources. It is internal.

    Args:
        runs (RUN): Run folders.

    Run:
        out (FILE): HTML file to write.

    Examples:
        graphveil report runs/first runs/second
        graphveil report runs/first --out first.html
    """
    from datetime import UTC, datetime

    from graphveil._util.figures import counted
    from graphveil._util.files import write_atomic
    from graphveil.publish.reports import compared_page
    from graphveil.runs.run_folder import read_finished_run

    if out.is_dir():
        raise ConfigError(f"--out {out} is a folder. Name a file, for example {out / 'report.html'}.")
    if out.is_file() and not out.read_bytes()[:15].lower().startswith(b"<!doctype html"):
        raise ConfigError(f"--out {out} exists and is not a report. Choose another file, or remove this one.")
    found = [read_finished_run(run) for run in {run.resolve(): run for run in runs}.values()]
    screen = Screen(as_json=json)
    try:
        page = compared_page(found, today=datetime.now(UTC).date())
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise ArtifactError(
            f"The metrics of a run cannot be read ({type(error).__name__}), because its folder is damaged. "
            "No report was written. `graphveil explain` and `graphveil predict` read its release."
        ) from None
    write_atomic(out, page.encode())
    screen.print_line(f"Report on {counted(len(found), 'run')}: {out}. It is internal: do not publish it.")
    screen.emit_json({"page": str(out), "runs": [run.name for run in found]})
