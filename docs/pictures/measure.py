"""Measure what the tutorials plot: `python docs/pictures/measure.py` writes tutorials.json in a minute."""

import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import graphveil as gv
from graphveil.attacks import LinkSettings, attack_links

STUDENT = 4.303  # 97.5 % quantile for three runs


def main() -> None:
    """Write the numbers."""
    rows = sweep(("classcode", "gap", "mlp"), (0.25, 0.5, 1.0, 2.0))
    found = {
        "classification": [row for row in rows if row["method"] != "gap"],
        "sweep": [row for row in rows if row["epsilon"] != 0.25],
        "audit": curves(),
    }
    Path(__file__).with_name("tutorials.json").write_text(
        json.dumps(found, indent=1) + "\n", encoding="utf-8"
    )


def sweep(methods: tuple[str, ...], epsilons: tuple[float, ...]) -> list[dict[str, Any]]:
    """Return mean and interval of three splits of synthetic/demo."""
    classes: dict[str, Any] = {"classcode": gv.ClassCode, "gap": gv.GAP, "mlp": gv.MLP}
    rows = []
    for method in methods:
        for epsilon in epsilons if method != "mlp" else (None,):
            budget = {} if epsilon is None else {"epsilon": epsilon, "delta": 1e-7}
            values = []
            for seed in range(3):
                graph = gv.load_dataset("synthetic/demo", recipe="gap", seed=seed)
                model = classes[method](unit="undirected-edge", seed=seed, **budget).fit(graph)
                values.append(model.score(graph))
            half = STUDENT * stdev(values) / 3**0.5
            middle = mean(values)
            rows.append(
                {
                    "method": method,
                    "epsilon": epsilon,
                    "mean": round(middle, 4),
                    "low": round(middle - half, 4),
                    "high": round(middle + half, 4),
                }
            )
    return rows


def curves() -> dict[str, list[tuple[float, float]]]:
    """Return ROC curves of LinkTeller against two models."""
    graph = gv.load_dataset("synthetic/tiny")
    models = {
        "GCN without privacy": gv.GCN(unit="none", seed=0, epochs=20).fit(graph),
        "ClassCode, epsilon 1": gv.ClassCode(unit="undirected-edge", epsilon=1.0, delta=1e-7, seed=0).fit(
            graph
        ),
    }
    found = {}
    for name, model in models.items():
        roc = attack_links(model, graph, LinkSettings(nodes=100))["LinkTeller"].roc
        points = [
            (float(x) / float(roc.fp[-1]), float(y) / float(roc.tp[-1]))
            for x, y in zip(roc.fp, roc.tp, strict=True)
        ]
        found[name] = [(round(x, 4), round(y, 4)) for x, y in points[:: max(1, len(points) // 100)]] + [
            (1.0, 1.0)
        ]
    return found


if __name__ == "__main__":
    main()
