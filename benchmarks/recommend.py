"""Measure recommendations for users whose lists were not fitted: hit rate and NDCG of the ten best items.

    python benchmarks/recommend.py --csv benchmarks/recommend.csv
        [--datasets twitch/DE,twitch/ES] [--splits 5] [--epsilons 0.5,1,4,8]
    python benchmarks/recommend.py --datasets movielens/1m --epsilons 1,4,8 --splits 3
        --lists --csv benchmarks/recommend-movielens.csv
    python benchmarks/recommend.py --by-time --epsilons 1,4,8 --csv benchmarks/recommend-by-time.csv

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

``--by-time`` is another protocol, on MovieLens 100k with default settings (delta "auto"). The last fifth of
each user's likes (four and five stars) is hidden, at least one, and the model is fitted to the earlier ones.
Likes of the same second are in random order, so splits differ by this order and by noise. ``EASE, tuned``,
``item cosine, tuned`` (nearest items) and ``ALS (implicit), tuned`` have the settings of a small grid that
find most of the last fifth of the fitted likes. ``new item`` rows measure items without any fitted row: a
seventh of the items is drawn, their fitted rows are removed, and ten of them are recommended with ``items=``.
Features are genres and the period of the release.

The table has means over the splits, and half the width of the 95 % t-interval.
"""

import argparse
import importlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
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
EASE_PENALTIES, NEIGHBORS = (50, 100, 200, 400, 800), (20, 50, 100, 200, 400)
ALS_GRID = [(factors, alpha) for factors in (8, 16, 32, 64) for alpha in (1.0, 5.0, 20.0)]
PERIODS = (1970, 1985, 1994, 1995, 1996, 1997, 1998)  # first years after the first period
NEW_ITEMS = 1 / 7
BY_TIME = "movielens/100k by time"
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


def ease(fitted: Matrix, penalty: float = PENALTY) -> Floats:
    """Return the item-item matrix of EASE."""
    counts = (fitted.T @ fitted).toarray()
    inverse = np.linalg.inv(counts + penalty * np.eye(len(counts)))
    matrix: Floats = -inverse / np.diag(inverse)
    np.fill_diagonal(matrix, 0.0)
    return matrix


def cosine(fitted: Matrix, neighbors: int | None = None) -> Floats:
    """Return the cosine of items, of the nearest items of each item only."""
    counts = (fitted.T @ fitted).toarray()
    lengths = np.sqrt(np.maximum(np.diag(counts), 1))
    matrix: Floats = counts / np.outer(lengths, lengths)
    np.fill_diagonal(matrix, 0.0)
    if neighbors is not None:
        matrix[matrix < -np.sort(-matrix, axis=0)[neighbors - 1]] = 0.0
    return matrix


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
    for name, matrix in {"item cosine": cosine(fitted), "EASE": ease(fitted)}.items():
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


def likes_by_time(root: Path, seed: int) -> tuple[Matrix, Floats]:
    """Return the place of each like of a user in time, from 1 up, (U, I), and public features of films."""
    rng = np.random.default_rng(seed)
    with np.load(root / "tables" / "movielens_100k.npz") as table:
        user, film = (np.searchsorted(table[f"{of}_id"], table[of]) for of in ("user", "film"))
        liked = np.flatnonzero(table["rating"] >= 4)
        user, film, time = user[liked], film[liked], table["time"][liked]
        shape = len(table["user_id"]), len(table["film_id"])
        genres = table["film_genres"].astype(np.float64)
        years = [re.search(r"\((\d{4})\)", title) for title in table["title"]]
    order = np.lexsort((rng.random(len(user)), time, user))
    user, film = user[order], film[order]
    places = np.arange(len(user)) - np.searchsorted(user, user) + 1.0
    period = np.digitize([1995 if year is None else int(year[1]) for year in years], PERIODS)
    features = np.column_stack([genres, np.eye(len(PERIODS) + 1)[period]])
    return sparse.csr_matrix((places, (user, film)), shape=shape), features


def last_fifth(places: Matrix) -> tuple[Matrix, Matrix]:
    """Return the places without the last fifth of each user, and this fifth as ones."""
    lengths = np.diff(places.indptr)
    hidden = np.where(lengths > 1, np.maximum(1, np.round(lengths / 5)), 0)
    late = places.data > np.repeat(lengths - hidden, lengths)
    parts = []
    for chosen, values in ((~late, places.data), (late, np.ones(places.nnz))):
        part = places.copy()
        part.data = np.where(chosen, values, 0.0)
        part.eliminate_zeros()
        parts.append(part)
    return parts[0], parts[1]


def measured_by_time(best: npt.NDArray[np.int64], held: Matrix) -> tuple[float, float]:
    """Return hit rate and NDCG over users with hidden items."""
    tested = np.diff(held.indptr) > 0
    return quality(best[tested], held[tested])


def tuned(
    recommend: Callable[[Matrix, Any], npt.NDArray[np.int64]], grid: Any, places: Matrix
) -> npt.NDArray[np.int64]:
    """Return the best items with the setting that has the best NDCG on the last fifth of the fitted likes."""
    inner, held = last_fifth(places)
    found = [measured_by_time(recommend(inner.sign(), setting), held)[1] for setting in grid]
    return recommend(places.sign(), grid[int(np.argmax(found))])


def als(fitted: Matrix, setting: tuple[int, float]) -> npt.NDArray[np.int64]:
    """Return the best items by ALS of implicit."""
    given = ALS | {"factors": setting[0], "alpha": setting[1], "random_state": 0}
    model = importlib.import_module("implicit.als").AlternatingLeastSquares(**given)
    model.fit(fitted, show_progress=False)
    best: npt.NDArray[np.int64] = model.recommend(np.arange(fitted.shape[0]), fitted, N=TOP)[0]
    return best


def scores_by_time(root: Path, epsilons: list[float], seed: int) -> Iterator[Measured]:
    """Yield row, epsilon, metric and value of the protocol by time."""
    likes, features = likes_by_time(root, seed)
    places, held = last_fifth(likes)
    fitted = places.sign()
    popularity = np.asarray(fitted.sum(axis=0), dtype=np.float64)
    best = {
        "popularity": best_of(np.repeat(popularity, fitted.shape[0], axis=0), fitted),
        "item cosine, tuned": tuned(
            lambda own, near: best_of(own @ cosine(own, near), own), NEIGHBORS, places
        ),
        "EASE, tuned": tuned(lambda own, ridge: best_of(own @ ease(own, ridge), own), EASE_PENALTIES, places),
    }
    try:
        best["ALS (implicit), tuned"] = tuned(als, ALS_GRID, places)
    except ImportError:
        print("not measured: implicit is not installed", flush=True)
    table = gv.Interactions.from_matrix(fitted)
    best["Recommender, no privacy"] = gv.Recommender(unit="none").fit(table).recommend(fitted, k=TOP).items
    for row, found in best.items():
        hit_rate, ndcg = measured_by_time(found, held)
        yield row, None, "hit_rate", hit_rate
        yield row, None, "ndcg", ndcg
    is_new = np.random.default_rng(seed).random(fitted.shape[1]) < NEW_ITEMS
    old = sparse.diags_array((~is_new).astype(np.float64))
    old_rows, new_held = sparse.csr_matrix(fitted @ old), sparse.csr_matrix(held - held @ old)
    for given in (fitted, old_rows, new_held):
        given.eliminate_zeros()
    for row, unit in (("Recommender", "node-record"), ("Recommender, one entry", "directed-edge")):
        for epsilon in epsilons:
            model = gv.Recommender(unit=unit, epsilon=epsilon, unsafe_noise_seed=seed)
            found = model.fit(gv.Interactions.from_matrix(fitted)).recommend(fitted, k=TOP).items
            hit_rate, ndcg = measured_by_time(found, held)
            yield row, epsilon, "hit_rate", hit_rate
            yield row, epsilon, "ndcg", ndcg
            for known, how in ((None, "popularity"), (features, "features")):
                model.fit(gv.Interactions.from_matrix(old_rows, item_features=known))
                found = model.recommend(old_rows, k=TOP, items=np.flatnonzero(is_new)).items
                hit_rate, ndcg = measured_by_time(found, new_held)
                yield f"{row}, new items by {how}", epsilon, "hit_rate", hit_rate
                yield f"{row}, new items by {how}", epsilon, "ndcg", ndcg


def scores_of_dataset(
    name: str, root: Path, epsilons: list[float], seeds: int, *, whole: bool
) -> Iterator[Measured]:
    """Yield row, epsilon, metric and value for all splits of a dataset."""
    if name == BY_TIME:
        for seed in range(seeds):
            yield from scores_by_time(root, epsilons, seed)
        return
    lists = lists_of_dataset(name, root)
    for seed in range(seeds):
        yield from scores_of_split(lists, epsilons, seed, libraries=name in FILMS, whole=whole)


def main() -> None:
    """Measure all cells, and print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--csv", type=Path, help="CSV file to write")
    parser.add_argument("--datasets", default="twitch/DE,twitch/ES", help="names, separated by commas")
    parser.add_argument("--epsilons", default="0.5,1,4,8", help="values of epsilon")
    parser.add_argument(
        "--lists", action="store_true", help="measure unit node-record alone, and not single hidden items"
    )
    parser.add_argument("--by-time", action="store_true", help="split MovieLens 100k by time")
    parser.add_argument("--splits", type=int, default=5, help="number of splits, at least 2")
    options = parser.parse_args()
    root = Path(os.environ.get("GRAPHVEIL_DATA", DEFAULT_ROOT))
    epsilons = [float(text) for text in options.epsilons.split(",")]
    lines = ["dataset,row,epsilon,metric,splits,mean,half_width"]
    for name in [BY_TIME] if options.by_time else options.datasets.split(","):
        cells = defaultdict[tuple[str, float | None, str], list[float]](list)
        for row, epsilon, metric, value in scores_of_dataset(
            name, root, epsilons, options.splits, whole=options.lists
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
