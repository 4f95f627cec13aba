"""Persons with rows in several tables: RelationalClassifier next to the no-graph baseline and references.

    python benchmarks/tables.py                    writes benchmarks/tables.csv
    python benchmarks/tables.py --summarize        prints the table of the documentation
    python benchmarks/tables.py --large            prints CPU seconds and memory for five million rows

The sets are NumPy archives in ``$GRAPHVEIL_DATA/tables``. Every fit uses default settings. Half of the
labeled persons are train and val under unit ``row``, and four fifths under ``person``, in five random splits.
The references are logistic regressions without privacy on attributes and exact rows.
"""

import argparse
import csv
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from _measure import peak_rss_mb
from scipy import sparse
from scipy.special import stdtrit
from sklearn.linear_model import LogisticRegressionCV
from sklearn.preprocessing import normalize

import graphveil as gv
from graphveil.core.features import to_dense
from graphveil.training.metrics import metric_value

RESULTS = Path(__file__).with_name("tables.csv")
DEFAULT_ROOT = Path(__file__).parents[2] / "shared" / "data"
DATA = Path(os.environ.get("GRAPHVEIL_DATA", DEFAULT_ROOT)) / "tables"
HEAD = ("set", "unit", "method", "epsilon", "seed", "metric", "value")
SEEDS, SHARES, VALIDATION = range(5), {"row": 0.5, "person": 0.8}, 0.15
PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)  # inverse


def movielens() -> gv.Tables:
    """Return users with their gender, age and occupation, and the films that they rated with five stars."""
    found = np.load(DATA / "movielens_1m_five_stars.npz")
    columns = {f"a{k}": column for k, column in enumerate(found["attributes"].T)}
    genres = {f"g{k}": column for k, column in enumerate(found["film_genres"].T)}
    users, films = np.arange(len(found["gender"])), np.arange(len(found["film_genres"]))
    return gv.Tables(
        {"user": users, "gender": np.where(found["gender"] == 1, "f", "m"), **columns},
        id="user",
        label="gender",
        classes=["m", "f"],
        rows={"liked": gv.Rows({"user": found["user"], "film": found["film"]}, owner="user", far="film")},
        public={"film": {"film": films, **genres}},
    )


def bitcoin(bins: list[float] | None) -> gv.Tables:
    """Return members, few of them labeled as trusted or not, and ratings of members by members."""
    found = np.load(DATA / "bitcoin_otc.npz")
    members = int(max(found["rater"].max(), found["rated"].max())) + 1
    labels: list[str | None] = [None] * members
    for member, trusted in zip(found["labeled"], found["trusted"], strict=True):
        labels[member] = "yes" if trusted else "no"
    ratings = {"rater": found["rater"], "rated": found["rated"], "stars": found["rating"]}
    value = {} if bins is None else {"value": "stars", "bins": bins}
    return gv.Tables(
        {"member": np.arange(members), "trusted": labels},
        id="member",
        label="trusted",
        classes=["no", "yes"],
        rows={"ratings": gv.Rows(ratings, owner="rater", far="rated", persons="mutual", **value)},
    )


def acm() -> gv.Tables:
    """Return papers with words and a field, and their authors and subjects."""
    found = np.load(DATA / "acm.npz")
    return gv.Tables(
        {
            "paper": np.arange(len(found["words"])),
            "field": list(map(str, found["label"])),
            "words": list(found["words"].astype(np.float32)),
        },
        id="paper",
        label="field",
        classes=["0", "1", "2"],
        rows={
            name: gv.Rows({"paper": found[f"{name}_t"], name: found[f"{name}_u"]}, owner="paper", far=name)
            for name in ("author", "subject")
        },
        public={name: np.arange(int(found[f"{name}_u"].max()) + 1) for name in ("author", "subject")},
    )


Case = tuple[str, Callable[[], gv.Tables], str, str, tuple[float, ...]]
CASES: tuple[Case, ...] = (  # name, tables, unit, metric, values of epsilon
    ("movielens-1m", movielens, "row", "roc_auc", (0.5, 1.0, 4.0)),
    ("movielens-1m", movielens, "person", "roc_auc", (1.0, 4.0)),
    ("bitcoin-otc, no value", lambda: bitcoin(None), "row", "roc_auc", (1.0,)),
    ("bitcoin-otc, sign", lambda: bitcoin([0]), "row", "roc_auc", (1.0,)),
    ("bitcoin-otc, bins", lambda: bitcoin([-3, 0, 2]), "row", "roc_auc", (1.0,)),
    ("acm", acm, "row", "accuracy", (1.0, 4.0)),
)


def split(tables: gv.Tables, share: float, seed: int) -> gv.Tables:
    """Return the tables with a share of the labeled persons in train and val, and the others in test."""
    order = np.random.default_rng(1000 + seed).permutation(tables.graph.num_nodes)
    order = order[tables.graph.labeled.numpy()[order]]
    known = int(share * len(order))
    val = int(VALIDATION * known)
    masks = torch.zeros(3, tables.graph.num_nodes, dtype=torch.bool)
    for mask, part in zip(masks, np.split(order, [known - val, known]), strict=True):
        mask[part] = True
    return tables.with_split(*masks)


def models(unit: str, epsilons: tuple[float, ...], seed: int) -> Iterator[gv.Estimator]:
    """Yield the models of one seed: attributes are public under unit ``row``."""
    if unit == "row":
        yield gv.MLP(unit=unit, seed=seed)
    for epsilon in epsilons:
        if unit == "person":
            yield gv.MLP(unit=unit, epsilon=epsilon, seed=seed)
        yield gv.RelationalClassifier(unit=unit, epsilon=epsilon, seed=seed)


def reference(tables: gv.Tables, metric: str) -> float:
    """Return the test metric of a logistic regression without privacy on attributes and exact rows."""
    graph = tables.graph
    persons = graph.num_nodes
    owners, far = (end.numpy() for end in graph.adjacency.edge_index())
    sides = [(owners, far - persons, graph.num_far_ends)]
    for each in graph.relations:
        if each.persons is not None:  # rows in which a person is the far end
            some = (far >= each.first) & (far < each.stop)
            entity, value = np.divmod(far[some] - each.first, each.values)
            sides.append((entity, owners[some] * each.values + value, persons * each.values))
    blocks = [
        sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(persons, width))
        for rows, columns, width in sides
    ]
    total = [np.log1p(block.sum(axis=1))[:, None] for block in blocks]
    x = sparse.csr_array(sparse.hstack([normalize(to_dense(graph.x).numpy()), *total, *blocks]))
    known, test = (mask.numpy() for mask in (graph.train_mask | graph.val_mask, graph.test_mask))
    y = graph.y.numpy()
    model = LogisticRegressionCV(
        Cs=PENALTIES,
        cv=5,
        scoring="neg_log_loss",
        max_iter=300,
        l1_ratios=(0.0,),
        use_legacy_attributes=False,
    ).fit(x[known], y[known])
    proba = torch.from_numpy(model.predict_proba(x[test]))
    return 100 * metric_value(metric, torch.from_numpy(y[test]), proba)


def measure() -> None:
    """Fit all models, and write their metrics on test persons."""
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEAD)
        for name, read, unit, metric, epsilons in CASES:
            tables = read()
            for seed in SEEDS:
                parts = split(tables, SHARES[unit], seed)
                found = [("reference", "", reference(parts, metric))]
                for model in models(unit, epsilons, seed):
                    value = 100 * model.fit(parts).score(parts, metric=metric)
                    found.append((model.method, model.epsilon or "", value))
                for method, epsilon, value in found:
                    writer.writerow([name, unit, method, epsilon, seed, metric, f"{value:.2f}"])
                file.flush()


def summarize() -> None:
    """Print means over splits with 95 % intervals of Student's distribution."""
    groups = defaultdict(list)
    with RESULTS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            groups[row["set"], row["unit"], row["method"], row["epsilon"]].append(float(row["value"]))
    for key, values in groups.items():
        half = stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / np.sqrt(len(values))
        print("| " + " | ".join([*key, f"{np.mean(values):.1f} ± {half:.1f}"]) + " |")


# -- large tables ------------------------------------------------------------------------------------------

PERSONS, ENTITIES = 100_000, 50_000


def large(unit: str, number: int) -> None:
    """Print CPU seconds and memory of reading and fitting a large random table in this process."""
    rng = np.random.default_rng(0)
    kind, owner = rng.integers(2, size=PERSONS), rng.integers(PERSONS, size=number)
    favorite = rng.random(number) < 0.2
    item = rng.integers(ENTITIES // 2, size=number) * 2 + np.where(
        favorite, kind[owner], rng.integers(2, size=number)
    )
    rows = {"user": owner, "item": item, "stars": rng.integers(1, 6, size=number)}
    base, start = peak_rss_mb(), time.process_time()
    tables = gv.Tables(
        {"user": np.arange(PERSONS), "kind": np.where(kind == 1, "b", "a")},
        id="user",
        label="kind",
        classes=["a", "b"],
        rows={"seen": gv.Rows(rows, owner="user", far="item", value="stars", bins=[4])},
        public={"item": np.arange(ENTITIES)},
    )
    read = time.process_time() - start
    tables = split(tables, SHARES[unit], 0)
    model = gv.RelationalClassifier(unit=unit, epsilon=1.0, seed=0).fit(tables)
    total = time.process_time() - start
    found = f"{unit}: {read:.0f} s to read, {total - read:.0f} s to fit, peak {peak_rss_mb():.0f} MB"
    print(f"{found} ({base:.0f} MB before), accuracy {model.score(tables):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--summarize", action="store_true")
    parser.add_argument("--large", nargs="?", const="both", choices=("both", "row", "person"))
    parser.add_argument("--rows", type=int, default=5_000_000)
    options = parser.parse_args()
    if options.large == "both":  # a process each, because of the peak of the memory
        for each in ("row", "person"):
            command = [sys.executable, __file__, "--large", each, "--rows", str(options.rows)]
            subprocess.run(command, check=True)
    elif options.large:
        large(options.large, options.rows)
    else:
        summarize() if options.summarize else measure()
