"""``attack``: measure what an attacker infers from a finished run. All results are internal.

Args:
    run (RUN): Run folder with release/ and internal/.

Attack:
    seed: Random seed of the sampling.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from annotated_types import Ge, Interval

from graphveil.cli import options
from graphveil.cli.console import Screen
from graphveil.cli.options import MovedData

if TYPE_CHECKING:
    from graphveil.attacks import LinkSettings
    from graphveil.runs.run_audit import AttackTarget, RunAudit


_HEAD = ("attacker", "AUC", "AP", "TPR@0.1%FPR", "TPR@1%FPR", "F1@k")
_RIGHT = (1, 2, 3, 4, 5)
_BOUND_NOTE = (
    "The attack bound is for one edge and an attacker who knows all other data. Over many pairs, public "
    "features may reveal more."
)
_NO_BOUND_NOTE = "There is no valid guarantee for {things}, and therefore no attack bound."


def linkteller(
    run: Path,
    *,
    data: MovedData,
    count: Annotated[int, Ge(2)] = 500,
    sampling: Literal["unbalanced", "balanced", "lo", "hi"] = "unbalanced",
    cutoff: int | None = None,
    step: float = 0.0001,
    nudge: Literal["scale", "add", "either"] = "either",
    direction: Literal["max", "later", "earlier", "mean"] = "max",
    supervised: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Infer edges from a run's predictions with LinkTeller and baselines.

    Attack:
        count: Number of sampled nodes.
        sampling: Node pairs to attack: unbalanced (all pairs of the sampled nodes), balanced (as many
            non-edges as edges), lo or hi (all pairs of sampled nodes with low or high degree).
        cutoff: Degree cutoff of lo and hi. Default: 5 and 10.
        step: Relative size of the feature perturbation.
        nudge: Perturbation of a node's features: scaling, addition, or addition for zero rows only.
        direction: Influence score of a pair. The paper's code uses `later`.
        supervised: Also run attackers that know half of the pairs.

    Examples:
        graphveil attack linkteller runs/first
        graphveil attack linkteller runs/first --count 200 --sampling balanced
    """
    from graphveil.attacks import LinkSettings

    settings = LinkSettings(
        nodes=count,
        sampling=sampling,
        cutoff=cutoff,
        step=step,
        nudge=nudge,
        direction=direction,
        supervised=supervised,
        seed=seed,
    )
    _attack_links("linkteller", *_load_target(run, data, as_json=json), settings)


def topology(run: Path, *, data: MovedData, seed: int = 0, json: bool = False) -> None:
    """Infer all edges of a run's graph, also with half of the pairs known.

    Examples:
        graphveil attack topology runs/first
        graphveil attack topology runs/first --seed 1
    """
    from graphveil.attacks import LinkSettings

    screen, attack_target = _load_target(run, data, as_json=json)
    settings = LinkSettings(nodes=attack_target.graph.num_nodes, supervised=True, seed=seed)
    _attack_links("topology", screen, attack_target, settings)


def membership(
    run: Path,
    *,
    data: MovedData,
    per_class: Annotated[int, Ge(5)] | None = None,
    evaluate_on: Literal["target", "shadow"] = "target",
    overlap: bool = False,
    shadows: int = 0,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Infer training membership with shadow models and LiRA.

    Attack:
        per_class: Number of nodes per class in the shadow graph. Default: 1000, or half of the second
            largest class if that is less.
        evaluate_on: Model to evaluate: the run, or the shadow model as in the paper's code.
        overlap: Also evaluate nodes of the shadow graph, as in the paper's code.
        shadows: Number of shadow models of the whole graph for LiRA and the Bayes posterior, at least 4.

    Examples:
        graphveil attack membership runs/first
        graphveil attack membership runs/first --shadows 8
    """
    from graphveil._util.figures import counted
    from graphveil.attacks import MembershipSettings, attack_membership
    from graphveil.runs.run_audit import INTERNAL_ATTACK

    settings = MembershipSettings(
        per_class=per_class, evaluate_on=evaluate_on, disjoint=not overlap, shadows=shadows, seed=seed
    )
    screen, attack_target = _load_target(run, data, as_json=json)
    with screen.spinner("attacking"):
        report = attack_membership(attack_target.estimator, attack_target.graph, settings)
    screen.print_line(INTERNAL_ATTACK, style="bold")
    screen.print_line(f"Evaluated: {counted(report.judged, 'node')}; privacy unit: {report.unit}")
    record = report.as_dict()
    rows = [(one["attacker"], *_cells(one)) for one in record["attackers"]]
    screen.table(_HEAD[:-1], [*rows, _bound_row(report.theoretical_bound, "record")[:-1]], right=_RIGHT[:-1])
    if not report.theoretical_bound["valid"]:
        screen.print_line(_NO_BOUND_NOTE.format(things="records"))
    _finish("membership", record, attack_target, screen)


def reconstruction(run: Path, *, data: MovedData, seed: int = 0, json: bool = False) -> None:
    """Reconstruct features from the LDP reports of a run.

    Examples:
        graphveil attack reconstruction runs/local
        graphveil attack reconstruction runs/local --seed 1
    """
    from graphveil.attacks.reconstruction import attack_features
    from graphveil.runs.run_audit import INTERNAL_ATTACK

    screen, attack_target = _load_target(run, data, as_json=json)
    with screen.spinner("attacking"):
        record = attack_features(attack_target.estimator, attack_target.graph, seed).as_dict()
    screen.print_line(INTERNAL_ATTACK, style="bold")
    head = ("attacker", "MSE", "PSNR", "R2", "identified")
    names = ("psnr", "r2", "identified")
    rows = [
        (
            one["attacker"],
            f"{one['mse']:.4g}",
            *("" if one[name] is None else f"{one[name]:.3f}" for name in names),
        )
        for one in record["attackers"]
    ]
    screen.table(head, rows, right=(1, 2, 3, 4))
    _finish("reconstruction", record, attack_target, screen)


def poisoning(
    run: Path,
    *,
    data: MovedData,
    strategy: Literal["random", "label", "same", "deny", "feature", "unbounded"] = "random",
    share: Annotated[float, Interval(ge=0, le=0.5)] = 0.05,
    hubs: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Fit an lpgnn run again with malicious clients (poisoning).

    Attack:
        strategy: Strategy of malicious clients.
        share: Fraction of malicious nodes.
        hubs: Make the nodes with the most neighbors malicious.

    Examples:
        graphveil attack poisoning runs/local --share 0.05
        graphveil attack poisoning runs/local --share 0.05 --hubs
    """
    from graphveil.attacks import attack_collection
    from graphveil.errors import ConfigError
    from graphveil.local.lpgnn import LPGNN
    from graphveil.runs.run_audit import INTERNAL_ATTACK

    screen, attack_target = _load_target(run, data, as_json=json)
    model = attack_target.estimator
    if not isinstance(model, LPGNN):
        raise ConfigError(f"`attack poisoning` needs a run of lpgnn, and this is a run of {model.method}.")
    with screen.spinner("fitting with malicious clients"):
        report = attack_collection(
            model, attack_target.graph, strategy=strategy, share=share, hubs=hubs, seed=seed
        )
    screen.print_line(INTERNAL_ATTACK, style="bold")
    servers = {
        "unpoisoned": "no malicious clients",
        "poisoned": "poisoned",
        "checked": "checked",
        "robust": "robust",
        "unpoisoned_robust": "robust, no malicious clients",
    }
    rows = [(words, f"{100 * getattr(report, name):.1f}") for name, words in servers.items()]
    screen.table(("server", "test accuracy"), rows, right=(1,))
    _finish("poisoning", report.as_dict(), attack_target, screen)


def _attack_links(name: str, screen: Screen, attack_target: "AttackTarget", settings: "LinkSettings") -> None:
    from graphveil._util.figures import counted
    from graphveil.attacks import attack_links
    from graphveil.runs.run_audit import INTERNAL_ATTACK

    with screen.spinner("attacking"):
        report = attack_links(attack_target.model, attack_target.graph, settings)
    screen.print_line(INTERNAL_ATTACK, style="bold")
    size = f"{counted(len(report.pairs.nodes), 'node')}, {counted(len(report.pairs.joined), 'pair')}"
    screen.print_line(f"{size}; predictions read {report.edge_source}")
    figures = [one.as_dict(report.pairs) for one in report.attackers.values()]
    rows = [(one["attacker"], *_cells(one), f"{one['beliefs']['1k']['f1']:.3f}") for one in figures]
    screen.table(_HEAD, [*rows, _bound_row(report.theoretical_bound)], right=_RIGHT)
    for one in figures:
        if one["note"]:
            screen.print_paragraph(f"{one['attacker']}: {one['note']}")
    screen.print_paragraph(
        _BOUND_NOTE if report.theoretical_bound["valid"] else _NO_BOUND_NOTE.format(things="edges")
    )
    _finish(name, report.as_dict() | {"attack": name}, attack_target, screen)


def _load_target(run: Path, data: MovedData, *, as_json: bool) -> "tuple[Screen, AttackTarget]":
    from graphveil.runs.run_audit import load_attack_target

    screen = Screen(as_json=as_json)
    with screen.spinner(f"reading {run}"):
        moved = {"root": data.root, "nodes": data.nodes, "edges": data.edges}
        return screen, load_attack_target(run, moved)


def _finish(name: str, record: dict[str, Any], attack_target: "AttackTarget", screen: Screen) -> None:
    """Write results under the run's ``internal/``, and print the JSON object."""
    screen.print_line(f"Results: {attack_target.write(name, record)}")
    screen.emit_json(record)


def _cells(figures: dict[str, Any]) -> tuple[str, ...]:
    names = ("auc", "average_precision", "tpr_at_01pct_fpr", "max_tpr_at_1pct_fpr")
    return tuple(f"{figures[name]:.3f}" for name in names)


def _bound_row(theoretical_bound: Mapping[str, Any], what: str = "edge") -> tuple[str, ...]:
    rates = (f"{theoretical_bound[name]:.3f}" for name in ("tpr_at_01pct_fpr", "max_tpr_at_1pct_fpr"))
    return (f"attack bound for one {what}", f"{theoretical_bound['auc']:.3f}", "", *rates, "")


_ANY = 100.0  # a certifiable epsilon above it is not printed


def audit(run: Path, *, pairs: options.OneOrMore = 200, seed: int = 0, json: bool = False) -> None:
    """Certify a lower bound on a run's epsilon and test neighboring graphs.

    Args:
        run (RUN): Run folder with release/ and internal/.
        pairs: Number of pairs of neighboring datasets per query.
        seed: Random seed of pairs and canaries, never of the noise.

    Examples:
        graphveil audit runs/first
        graphveil audit runs/first --pairs 20
    """
    from graphveil.runs.run_audit import audit_run

    screen = Screen(as_json=json)
    with screen.spinner("auditing"):
        found = audit_run(run, pairs=pairs, seed=seed)
    _show(found, screen)
    screen.print_line(f"Results: {run / 'internal' / 'audit.json'} (chart: audit.html in the same folder)")
    screen.emit_json(found.as_dict())
    if found.faults:
        raise typer.Exit(1)


def _show(found: "RunAudit", screen: Screen) -> None:
    from graphveil._util.figures import counted
    from graphveil.runs.run_audit import INTERNAL

    screen.print_line(INTERNAL, style="bold")
    screen.print_line(f"{found.method}, unit {found.unit}, claimed epsilon {found.claimed:.4g}")
    if found.canaries is not None:
        plan = found.canaries
        screen.print_line(
            f"Canaries: epsilon is at least {plan.epsilon:.4g} at delta {plan.delta:g}, with "
            f"{100 * plan.confidence:g} % confidence ({100 * plan.share:.0f} % of the claim)"
        )
        rows = [
            (
                found.stage_text(one.stage),
                f"{one.canaries:,}",
                f"{one.bound.epsilon:.4g}",
                f"{one.claimed:.4g}",
                "any" if one.bound.max_certifiable == float("inf") else f"{one.bound.max_certifiable:.4g}",
                one.bound.method,
            )
            for one in plan.planted
        ]
        head = ("stage", "canaries", "lower bound", "claim", "max. certifiable", "bound")
        screen.table(head, rows, right=(1, 2, 3, 4))
    for one in found.reports:
        most = f", max. certifiable {one['max_certifiable_epsilon']:.4g}"
        screen.print_line(
            f"LDP reports of the {one['part']}: epsilon is at least {one['epsilon_at_least']:.4g} (claim "
            f"{one['claimed']:.4g}{most if one['max_certifiable_epsilon'] < _ANY else ''})"
        )
    for stage, report in found.replays:
        words = "VIOLATED" if report.broken else "passed"
        screen.print_line(
            f"Neighbor test of {found.stage_text(stage)}: {words} on {counted(report.pairs, 'pair')}"
        )
    screen.print_line("Not examined", style="bold")
    for line in found.unseen:
        screen.print_paragraph(f"  {line}")
    screen.print_line(
        "No violation was found." if not found.faults else f"VIOLATIONS: {'; '.join(found.faults)}",
        style="bold",
    )
