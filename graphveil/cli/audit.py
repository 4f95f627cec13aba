"""``audit``: test the guarantee of a finished run with canaries and on neighboring graphs."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from graphveil.cli import options
from graphveil.cli.console import Screen

if TYPE_CHECKING:
    from graphveil.runs.run_audit import RunAudit

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
