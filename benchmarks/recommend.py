"""Measure recommendations for users whose lists were not fitted: hit rate and NDCG of the ten best items.

    python benchmarks/recommend.py --csv benchmarks/recommend.csv
        [--datasets twitch/DE,twitch/ES] [--splits 5] [--epsilons 0.5,1,4,8]
    python benchmarks/recommend.py --datasets movielens/1m --epsilons 1,4,8 --splits 3
        --lists --csv benchmarks/recommend-movielens.csv

Lists are the games of users of Twitch, and the films that users of MovieLens rated with five stars (1m) or
with four and five (100k). A fifth of the users is drawn for testing, and a model is fitted to the lists of
all others. Of each test user a fifth of the list (at least one item) is hidden, and ten items are recommended
from the rest. ``hit_rate`` is the share of test users with a hidden item among the ten, ``ndcg`` the
normalized discounted cumulative gain. ``hit_rate_of_one`` and ``ndcg_of_one`` hide one item.

Rows, at delta 1e-7:

* ``Recommender``: unit node-record, all values of epsilon.
* ``Recommender, replace-one``: the replace-one neighboring relation.
* ``Recommender, one entry``: unit directed-edge.
* ``Recommender, no privacy``: unit none.
* ``popularity``: the number of lists with each item, exact and not private.
* ``item cosine``: the cosine of columns of the table, exact and not private.
* ``EASE``: the closed-form linear model on exact counts, not private, with a ridge penalty of 100.
* ``ALS (implicit)``, ``BPR (implicit)``, ``WARP (LightFM)``: libraries without privacy, on MovieLens only,
  and only if they are installed: ``pip install implicit rectools-lightfm`` (LightFM 1.17, with wheels).
  ALS computes factors of test users from their lists. BPR and WARP cannot, so they are also fitted to the
  lists of the test users without the hidden items. Factors, penalties and epochs were chosen on split 99.

The table has means over the splits, and half the width of the 95 % t-interval.
"""

import argparse
import importlib
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse, stats

import graphveil as gv

DEFAULT_ROOT = Path(__file__).parents[2] / "shared" / "data"
DELTA, TOP, PENALTY = 1e-7, 10, 100.0
UNITS: dict[str, dict[str, Any]] = {
    "Recommender": {"unit": "node-record"},
    "Recommender, replace-one": {"unit": "node-record", "replace_one": True},
    "Recommender, one entry": {"unit": "directed-edge"},
}
FILMS = {  # files of MovieLens, and the least rating of a listed film
    "movielens/1m": ("movielens_1m_five_stars.npz", None),
    "movielens/100k": ("movielens_100k.npz", 4),
}
ALS: dict[str, Any] = {"factors": 16, "regularization": 0.01, "alpha": 5.0, "num_threads": 1}
BPR: dict[str, Any] = {"factors": 64, "learning_rate": 0.02, "iterations": 100, "num_threads": 1}
WARP: dict[str, Any] = {"no_components": 32}
WARP_EPOCHS = 15
Floats = npt.NDArray[np.float64]
Matrix = sparse.csr_matrix
Measured = tuple[str, float | None, str, float]  # row, epsilon, metric, value


def without(lists: Matrix, hidden: list[npt.NDArray[np.int64]]) -> tuple[Matrix, Matrix]:
    """Return lists without their hidden items, and the hidden items."""
    rows = np.repeat(np.arange(len(hidden)), [len(items) for items in hidden])
    columns = np.concatenate(hidden)
    held = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=lists.shape)
    rest = sparse.csr_matrix(lists - held)
    rest.eliminate_zeros()
    return rest, held


def best_of(scores: Floats, rest: Matrix) -> npt.NDArray[np.int64]:
    """Return the items with the largest scores that are not on the rest of a list."""
    scores = scores.copy()
    scores[rest.nonzero()] = -np.inf
    return np.argsort(-scores, axis=1, kind="stable")[:, :TOP]


def quality(best: npt.NDArray[np.int64], held: Matrix) -> tuple[float, float]:
    """Return the hit rate and the NDCG of recommended items."""
    found = np.take_along_axis(held.toarray(), best, axis=1)
    gains = 1 / np.log2(np.arange(2, TOP + 2))
    most = np.minimum(np.asarray(held.sum(axis=1)).ravel().astype(int), TOP)
    return float((found.sum(axis=1) > 0).mean()), float(((found @ gains) / np.cumsum(gains)[most - 1]).mean())


def exact_models(fitted: Matrix) -> dict[str, Floats]:
    """Return the item-item matrices of references without privacy; of popularity, one row for all."""
    counts = (fitted.T @ fitted).toarray()
    popularity = np.diag(counts)
    lengths = np.sqrt(np.maximum(popularity, 1))
    cosine = counts / np.outer(lengths, lengths)
    inverse = np.linalg.inv(counts + PENALTY * np.eye(len(counts)))
    ease = -inverse / np.diag(inverse)
    for matrix in (cosine, ease):
        np.fill_diagonal(matrix, 0.0)
    return {"item cosine": cosine, "EASE": ease}


def library_models(fitted: Matrix, rest: Matrix, seed: int) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Yield the best items for test lists by each library that is installed."""
    both, users = sparse.csr_matrix(sparse.vstack([fitted, rest])), np.arange(rest.shape[0])
    try:
        als = importlib.import_module("implicit.als").AlternatingLeastSquares(random_state=seed, **ALS)
        bpr = importlib.import_module("implicit.bpr").BayesianPersonalizedRanking(random_state=seed, **BPR)
    except ImportError:
        print("not measured: implicit is not installed", flush=True)
    else:
        als.fit(fitted, show_progress=False)
        yield "ALS (implicit)", als.recommend(users, rest, N=TOP, recalculate_user=True)[0]
        bpr.fit(both, show_progress=False)
        yield "BPR (implicit)", bpr.recommend(users + fitted.shape[0], rest, N=TOP)[0]
    try:
        warp = importlib.import_module("lightfm").LightFM(loss="warp", random_state=seed, **WARP)
    except ImportError:
        print("not measured: lightfm is not installed", flush=True)
    else:
        warp.fit(both, epochs=WARP_EPOCHS)
        own, items = warp.user_embeddings[fitted.shape[0] :], warp.item_embeddings
        yield "WARP (LightFM)", best_of(own @ items.T + warp.item_biases, rest)


def lists_of_dataset(name: str, root: Path) -> Matrix:
    """Return the lists of a dataset as rows of a matrix."""
    if name not in FILMS:
        return sparse.csr_matrix(gv.load_dataset(name, root=root).x != 0).astype(np.float64)
    file, least = FILMS[name]
    with np.load(root / "tables" / file) as table:
        user, film = table["user"], table["film"]
        if "user_id" in table:
            user, film = (np.searchsorted(table[f"{of}_id"], table[of]) for of in ("user", "film"))
        if least is not None:
            user, film = user[table["rating"] >= least], film[table["rating"] >= least]
        shape = len(table["gender"]), len(table["film_genres"])
    return sparse.csr_matrix((np.ones(len(user)), (user, film)), shape=shape)


def scores_of_split(
    lists: Matrix, epsilons: list[float], seed: int, *, libraries: bool, whole: bool
) -> Iterator[Measured]:
    """Yield row, epsilon, metric and value for one split; ``whole`` for whole lists alone."""
    rng = np.random.default_rng(seed)
    users = rng.permutation(lists.shape[0])
    test, fitted = lists[users[: len(users) // 5]], lists[users[len(users) // 5 :]]
    test = test[np.diff(test.indptr) > 1]
    shuffled = [rng.permutation(row) for row in np.split(test.indices, test.indptr[1:-1])]
    few = without(test, [row[: max(1, round(len(row) / 5))] for row in shuffled])
    one = without(test, [row[:1] for row in shuffled])

    hidden = {"": few} if whole else {"": few, "_of_one": one}

    def measured(row: str, epsilon: float | None, recommend: Any) -> Iterator[Measured]:
        for name, (rest, held) in hidden.items():
            values = quality(recommend(rest), held)
            yield row, epsilon, f"hit_rate{name}", values[0]
            yield row, epsilon, f"ndcg{name}", values[1]

    popularity = np.asarray(fitted.sum(axis=0), dtype=np.float64)
    yield from measured(
        "popularity", None, lambda rest: best_of(np.repeat(popularity, rest.shape[0], axis=0), rest)
    )
    for name, matrix in exact_models(fitted).items():
        yield from measured(name, None, lambda rest, matrix=matrix: best_of(rest @ matrix, rest))
    if libraries:
        for suffix, (rest, held) in hidden.items():
            for name, best in library_models(fitted, rest, seed):
                yield name, None, f"hit_rate{suffix}", quality(best, held)[0]
                yield name, None, f"ndcg{suffix}", quality(best, held)[1]
    table = gv.Interactions.from_matrix(fitted)
    model = gv.Recommender(unit="none").fit(table)
    yield from measured("Recommender, no privacy", None, lambda rest: model.recommend(rest, k=TOP).items)
    for row, given in list(UNITS.items())[: 1 if whole else None]:
        for epsilon in epsilons:
            table = gv.Interactions.from_matrix(fitted)
            private = gv.Recommender(epsilon=epsilon, delta=DELTA, unsafe_noise_seed=seed, **given).fit(table)
            yield from measured(
                row, epsilon, lambda rest, private=private: private.recommend(rest, k=TOP).items
            )


def main() -> None:
    """Measure all cells, and print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--csv", type=Path, help="CSV file to write")
    parser.add_argument("--datasets", default="twitch/DE,twitch/ES", help="names, separated by commas")
    parser.add_argument("--epsilons", default="0.5,1,4,8", help="values of epsilon")
    parser.add_argument(
        "--lists", action="store_true", help="measure unit node-record alone, and not single hidden items"
    )
    parser.add_argument("--splits", type=int, default=5, help="number of splits, at least 2")
    options = parser.parse_args()
    root = Path(os.environ.get("GRAPHVEIL_DATA", DEFAULT_ROOT))
    epsilons = [float(text) for text in options.epsilons.split(",")]
    lines = ["dataset,row,epsilon,metric,splits,mean,half_width"]
    for name in options.datasets.split(","):
        lists = lists_of_dataset(name, root)
        cells = defaultdict[tuple[str, float | None, str], list[float]](list)
        for seed in range(options.splits):
            for row, epsilon, metric, value in scores_of_split(
                lists, epsilons, seed, libraries=name in FILMS, whole=options.lists
            ):
                cells[row, epsilon, metric].append(value)
        for (row, epsilon, metric), values in cells.items():
            half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
            of = "" if epsilon is None else f"{epsilon:g}"
            lines.append(f'{name},"{row}",{of},{metric},{len(values)},{np.mean(values):.4f},{half:.4f}')
        print("\n".join(lines), flush=True)
    if options.csv:
        options.csv.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
