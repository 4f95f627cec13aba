"""Audit every method under every privacy unit: lower bounds on epsilon from canaries at 99 % confidence.

    python benchmarks/audit.py [--only WORD] [--out audit.csv] [--table]

Plans are for 5,000 nodes, 100 features, 6 classes and 3,000 training nodes at delta 1e-5. The noise is
random. Methods with a custom module have a linear one, and a custom method is registered. Rows in the CSV
file are not run again. Exits with 1 if a lower bound is above the claim. ``--table`` prints the rows of the
CSV file only.
"""

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch

from graphveil import GAP, METHODS, register
from graphveil.audit import audit_feature_mechanism, audit_label_mechanism, audit_plan
from graphveil.core.plan import ReleasePlan
from graphveil.core.unit import parse_unit
from graphveil.errors import PrivacyError
from graphveil.estimators.privacy_config import PrivacyConfig
from graphveil.estimators.private_hops import plan_hops
from graphveil.mechanisms import FeatureRR, LabelRR, LocalHashing, MultiBit, SubsetSelection

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
MANY = 1 << 32  # samples of each side for features with small budgets: two minutes at epsilon 0.5
UNITS: dict[str, dict[str, Any]] = {
    "undirected-edge": {},
    "directed-edge": {},
    "node-record": {"out_degree_bound": 20},
    "node-bounded-degree": {"max_degree": 20},
}
SIZES = {"num_nodes": 5000, "num_classes": 6, "num_features": 100, "num_training": 3000}
MECHANISMS = ("edge-rand", "lap-graph", "arr", "edge-rr")
EDGES = ("undirected-edge", "directed-edge")
HEAD = ("method", "unit", "claim", "certified", "share", "bounds", "without canaries", "seconds")


class RootModule(torch.nn.Linear):
    """A module for ``gnn`` that reads the row of the root only: its plan depends on its size."""

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        return super().forward(x)


MODULES: dict[str, dict[str, Any]] = {"gnn": {"module": RootModule}, "module": {"module": torch.nn.Linear}}


@register
@dataclass(kw_only=True, eq=False)
class OneHop(GAP):
    """The registered method of ``docs/how-to/custom-model.md``."""

    method: ClassVar[str] = "one-hop"

    hops: int = 1


def plans(epsilon: float) -> list[tuple[str, str, ReleasePlan]]:
    """Return the plans of every method under every unit that it supports."""
    found = []
    for name, method in METHODS.items():
        for unit, flags in UNITS.items():
            try:
                own = MODULES.get(name, {})
                plan = method(unit=unit, epsilon=epsilon, delta=1e-5, **flags, **own).plan(**SIZES)
            except PrivacyError:
                continue
            if plan is not None:
                found.append((name, unit, plan))
    return [*found, *_trees(epsilon), *_hops(epsilon), *_graphs(epsilon)]


def _trees(epsilon: float) -> Iterator[tuple[str, str, ReleasePlan]]:
    """Yield plans of a module on exact neighbors with full batches, as sampled batches have no canaries."""
    own = {"module": RootModule, "neighborhood": "neighbors", "batch_size": SIZES["num_training"]}
    for unit, flags in (("node-record", {}), ("node-bounded-degree", UNITS["node-bounded-degree"])):
        plan = METHODS["gnn"](unit=unit, epsilon=epsilon, delta=1e-5, **own, **flags).plan(**SIZES)
        assert plan is not None
        yield "gnn (neighbors)", unit, plan


def _hops(epsilon: float) -> Iterator[tuple[str, str, ReleasePlan]]:
    """Yield plans of two private hops."""
    for unit in EDGES:
        privacy_config = PrivacyConfig(unit=parse_unit(unit), epsilon=epsilon, delta=1e-5)
        yield "private_hops", unit, plan_hops(privacy_config, SIZES["num_nodes"], 2, SIZES["num_classes"])


def _graphs(epsilon: float) -> Iterator[tuple[str, str, ReleasePlan]]:
    """Yield plans of released graphs, for all node pairs and for private ones."""
    for name in MECHANISMS:
        for unit in ("undirected-edge", "edge-subset"):
            plan = METHODS["sage"](unit=unit, epsilon=epsilon, perturb=name).plan(**SIZES)
            assert plan is not None
            yield name, unit, plan
    plan = METHODS["heterorr"](unit="edge-subset", epsilon=epsilon, eps_x=1.0).plan(**SIZES)
    assert plan is not None
    yield "heterorr", "edge-subset", plan


def of_plan(name: str, unit: str, plan: ReleasePlan) -> dict[str, object]:
    """Return the row of a plan."""
    found = audit_plan(plan)
    bounds = ", ".join(dict.fromkeys(one.bound.method for one in found.planted))
    without_canaries = ", ".join(found.without_canaries) or "-"
    return _row(name, unit, found.claimed, found.epsilon, bounds, without_canaries)


def of_local_mechanism(name: str, epsilon: float) -> dict[str, object]:
    """Return the row of a local mechanism."""
    bound = {
        "label response": lambda: audit_label_mechanism(LabelRR(epsilon=epsilon, classes=7)),
        "subset selection": lambda: audit_label_mechanism(SubsetSelection(epsilon=epsilon, classes=7)),
        "local hashing": lambda: audit_label_mechanism(LocalHashing(epsilon=epsilon, classes=7)),
        "multi-bit": lambda: audit_feature_mechanism(MultiBit(epsilon=epsilon, dim=16)),
        "FeatureRR": lambda: audit_feature_mechanism(FeatureRR(epsilon=epsilon, dim=16)),
        "FeatureRR, 1,433 features": lambda: audit_feature_mechanism(
            FeatureRR(epsilon=epsilon, dim=1433), most=MANY
        ),
    }[name]()
    assert bound is not None
    return _row(name, "local-attributes", epsilon, bound.epsilon, bound.method, "-")


def _row(
    name: str, unit: str, claim: float, bound: float, method: str, without_canaries: str
) -> dict[str, object]:
    return {
        "method": name,
        "unit": unit,
        "claim": f"{claim:.4f}",
        "certified": f"{bound:.4f}",
        "share": f"{bound / claim:.3f}",
        "bounds": method,
        "without canaries": without_canaries,
    }


def cases(epsilon: float) -> list[tuple[str, str, Callable[[], dict[str, object]]]]:
    """Return the audits at one epsilon."""
    found = [(name, unit, partial(of_plan, name, unit, plan)) for name, unit, plan in plans(epsilon)]
    local = (
        "label response",
        "subset selection",
        "local hashing",
        "multi-bit",
        "FeatureRR",
        "FeatureRR, 1,433 features",
    )
    return [
        *found,
        *((name, "local-attributes", partial(of_local_mechanism, name, epsilon)) for name in local),
    ]


def main() -> None:
    """Print the table, and append it to the CSV file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="run rows with this text in their method or unit")
    parser.add_argument("--out", type=Path, default=Path("audit.csv"), help="CSV file; is continued")
    parser.add_argument("--table", action="store_true", help="print the rows of the CSV file only")
    args = parser.parse_args()
    if args.table:
        print("\n".join(table(_rows(args.out))))
        return
    done, above = _known(args.out), 0
    for epsilon in EPSILONS:
        for name, unit, audit in cases(epsilon):
            if (name, unit, epsilon) in done or args.only not in f"{name} {unit}":
                continue
            started = time.perf_counter()
            row = {**audit(), "seconds": f"{time.perf_counter() - started:.1f}"}
            above += float(str(row["certified"])) > float(str(row["claim"]))
            _append(args.out, row)
            print(" | ".join(str(row[column]) for column in HEAD), flush=True)
    sys.exit(1 if above else 0)


def table(rows: list[dict[str, str]]) -> Iterator[str]:
    """Yield the certified share of each claim in percent, by method and unit."""
    found = {(row["method"], row["unit"], round(float(row["claim"]), 2)): row for row in rows}
    yield f"| method | unit | {' | '.join(f'{epsilon:g}' for epsilon in EPSILONS)} | bounds |"
    yield "|" + "---|" * (3 + len(EPSILONS))
    for name, unit in sorted({place[:2] for place in found}):
        own = [found.get((name, unit, epsilon)) for epsilon in EPSILONS]
        shares = [f"{100 * float(row['share']):.0f}" if row else "" for row in own]
        bounds = dict.fromkeys(method for row in own if row for method in row["bounds"].split(", "))
        yield f"| {name} | {unit} | {' | '.join(shares)} | {', '.join(bounds)} |"


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _known(path: Path) -> set[tuple[str, str, float]]:
    return {(row["method"], row["unit"], round(float(row["claim"]), 2)) for row in _rows(path)}


def _append(path: Path, row: dict[str, object]) -> None:
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, HEAD)
        if fresh:
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    main()
