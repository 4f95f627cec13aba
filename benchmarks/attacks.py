"""Run attacks on edges, membership and records, and poisoning by malicious clients.

    python benchmarks/attacks.py PART --out attacks.jsonl [--only KEY=VALUE ...] [--max-seconds SECONDS]
    python benchmarks/attacks.py table --out attacks.jsonl

PART is one of link, linkteller, pair, membership, lira, reconstruction, poisoning, posterior. The output file
has one JSON line per cell. Existing cells are not repeated, so an interrupted command resumes. With
``--max-seconds`` no cell starts after that CPU time. ``--only epsilon=2.0 method=gap,mlp`` selects cells. The
most informative cells come first. Noise and splits follow the seed, so this noise has no privacy guarantee.
"""

import argparse
import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from scipy.stats import norm, t

import graphveil as gv
from graphveil.attacks import (
    Ensemble,
    LinkSettings,
    MembershipSettings,
    RocCurve,
    SecretEdges,
    attack_links,
    attack_membership,
    attack_records,
    bayes_scores,
    fit_ensemble,
    lira_scores,
    pair_scores,
    roc_auc,
)
from graphveil.attacks.influence import as_float64, influences, network_predict
from graphveil.attacks.linkteller import (
    BY_FEATURES,
    BY_POSTERIOR,
    CONTROL,
    LINKTELLER,
    SUPERVISED,
    SUPERVISED_PUBLIC,
)
from graphveil.attacks.membership import (
    BAYES,
    CONFIDENCE,
    LIRA,
    SHADOW_MLP,
    confidence,
    select_evaluated_nodes,
    standardized,
)
from graphveil.attacks.poisoning import (
    PoisonedCollection,
    PoisoningStrategy,
    drop_reports,
    malicious_clients,
    poison_reports,
    reports_of,
)
from graphveil.attacks.reconstruction import (
    ridge,
)
from graphveil.audit.bounds import clopper_pearson_lower, clopper_pearson_upper
from graphveil.core.features import safe_unit
from graphveil.core.ledger import ledger_of
from graphveil.core.noise.random import PublicStreams
from graphveil.core.queries.neighbor_sums import NeighborSumData
from graphveil.core.release import Release
from graphveil.data import synthetic
from graphveil.estimators.classcode.edge import build_rounds, groups_of, public_labels
from graphveil.estimators.features.crossfit import public_posteriors
from graphveil.estimators.session import Session
from graphveil.mechanisms import FeatureRR, MultiBit
from graphveil.papers.as_published.image_networks import (
    image_encoder,
    in_unit_range,
    principal_axes,
    random_map,
    up_convolution,
)

Record = dict[str, Any]
EDGE = {"unit": "undirected-edge"}
RELEASED = ("edge-rand", "edge-rr", "lap-graph")


def main() -> None:
    """Run the missing cells, or print the tables."""
    options = _options()
    torch.set_num_threads(1)
    if options.part == "table":
        print("\n".join(line for part in PARTS for line in table(part, read(options.out))))
        return
    began = time.process_time()
    cells, run = PARTS[options.part]
    known = {key(cell) for cell in read(options.out)}
    for cell in ({"part": options.part, **cell} for cell in cells()):
        if (
            not wanted(cell, options.only)
            or key(cell) in known
            or (options.max_seconds and time.process_time() - began > options.max_seconds)
        ):
            continue
        started = time.process_time()
        found = cell | run(cell) | {"cpu_seconds": round(time.process_time() - started, 1)}
        with options.out.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(found) + "\n")


# -- edges -------------------------------------------------------------------------------------------------


def link_cells() -> Iterator[Record]:
    """Yield the cells of attacks on edges: epsilon 1 first, then the others."""
    for seed in range(5):
        for data in ("facebook_pages", "cora", "facebook100/Reed98"):
            yield {"data": data, "method": "gcn", "epsilon": None, "seed": seed}
        for data in ("cora", "facebook100/Reed98"):
            for method in ("gap", "classcode", *RELEASED):
                if (data, method) != ("cora", "edge-rand"):  # a million edges: minutes
                    yield {"data": data, "method": method, "epsilon": 1.0, "seed": seed}
        if seed < 3:
            for method in ("gap", "classcode"):
                yield {"data": "facebook_pages", "method": method, "epsilon": 1.0, "seed": seed}
    for seed in range(3):
        for epsilon in (8.0, 4.0, 2.0):
            for method in ("gap", "classcode", *RELEASED):
                yield {"data": "facebook100/Reed98", "method": method, "epsilon": epsilon, "seed": seed}


def link(cell: Record) -> Record:
    """Fit a model and attack its edges."""
    graph = gv.load_dataset(cell["data"], seed=cell["seed"])
    model = _model(cell).fit(graph)
    settings = LinkSettings(nodes=500, supervised=True, seed=cell["seed"])
    report = attack_links(model, graph, settings)
    attackers = {
        name: {**one.roc.figures(), **one.as_dict(report.pairs)["beliefs"]["1k"]}
        for name, one in report.attackers.items()
    }
    guarantee = model.guarantee.epsilon
    return {
        "accuracy": model.score(graph),
        "attackers": attackers,
        "edges": int(report.pairs.joined.sum()),
        "claimed": guarantee if guarantee < 1e9 else None,
    }


def linkteller_cells() -> Iterator[Record]:
    """Yield the cells of LinkTeller by epsilon on Reed98: three seeds of each first."""
    for seeds in (range(3), range(3, 5)):
        for epsilon in (1.0, 0.5, 8.0, 2.0, 4.0):
            for seed in seeds:
                for method in ("gap", "classcode", "edge-rand", "edge-rr"):
                    yield {"data": "facebook100/Reed98", "method": method, "epsilon": epsilon, "seed": seed}


def linkteller(cell: Record) -> Record:
    """Fit a model and attack it with LinkTeller, and with comparisons of features and of posteriors."""
    graph = gv.load_dataset(cell["data"], seed=cell["seed"])
    model = _model(cell).fit(graph)
    report = attack_links(model, graph, LinkSettings(nodes=300, seed=cell["seed"]))
    aucs = {name: one.roc.auc for name, one in report.attackers.items()}
    return {
        "accuracy": model.score(graph),
        "aucs": aucs,
        "theoretical_bound": report.theoretical_bound["auc"],
    }


def _model(cell: Record) -> gv.Estimator:
    method, seed = cell["method"], cell["seed"]
    if cell["epsilon"] is None:
        return gv.METHODS[method](unit="none", seed=seed)
    budget = {**EDGE, "epsilon": cell["epsilon"], "seed": seed, "unsafe_noise_seed": seed}
    if method in RELEASED:
        return gv.GCN(**budget, perturb=method)
    return gv.METHODS[method](**budget)


# -- one node pair -----------------------------------------------------------------------------------------


def pair_cells() -> Iterator[Record]:
    """Yield the cells of one node pair: LinkTeller on a released graph, and a score of noisy aggregates."""
    for epsilon in (1.0, 2.0, 0.5):
        for method in ("edge-rand", "edge-rr", "classcode", "gap"):
            yield {"method": method, "epsilon": epsilon, "repeats": 2000}


def pair(cell: Record) -> Record:
    """Release a small graph 2,000 times with and without one edge, and score the node pair.

    A threshold is chosen on the first half and evaluated on the second, with 99 % confidence.
    """
    graph = gv.data.RECIPES["gap"].split(synthetic("tiny").subgraph(torch.arange(300) < 60), 0)
    ends, epsilon, gap = (2, 7), cell["epsilon"], cell["method"] == "gap"
    scores = {"gap": _row_score, "classcode": _count_score}
    joined, apart = pair_scores(
        scores.get(cell["method"], _linkteller_score)(graph, cell, ends),
        graph,
        ends,
        repeats=cell["repeats"],
    )
    tp, fp, counted = test_of_pair(joined, apart)
    least = clopper_pearson_lower(tp, counted, 0.005) - clopper_pearson_upper(fp, counted, 0.005)
    everything = RocCurve.from_scores(np.append(joined, apart), np.arange(2 * len(joined)) < len(joined))
    exact = gv.GAP(**EDGE, epsilon=epsilon, hops=1, use_encoder=False).plan(num_nodes=60, num_classes=3)
    return {
        "auc": everything.auc,
        "auc_error": auc_error(joined, apart),
        "largest": float((everything.rates[1] - everything.rates[0]).max()),
        "tp": tp,
        "fp": fp,
        "counted": counted,
        "least": least,
        "bound_auc": float(norm.cdf(exact.mu / 2**0.5)) if gap else gv.attacks.pure_auc(epsilon),
        "bound_advantage": float(2 * norm.cdf(exact.mu / 2) - 1)
        if gap
        else gv.attacks.pure_advantage(epsilon),
    }


def test_of_pair(joined: Any, apart: Any) -> tuple[int, int, int]:
    """Return true and false positives among so many scores of either kind: the second half.

    The largest TPR - FPR over thresholds is biased upwards. The first half of the releases therefore selects
    the threshold. The counts are binomial.
    """
    half = min(len(joined), len(apart)) // 2
    first, other = np.sort(joined[:half]), np.sort(apart[:half])
    values = np.unique(np.append(first, other))
    cuts = np.append(values[0] - 1, (values[1:] + values[:-1]) / 2)
    threshold = cuts[(np.searchsorted(other, cuts) - np.searchsorted(first, cuts)).argmax()]
    return (*(int((one[half : 2 * half] > threshold).sum()) for one in (joined, apart)), half)


def auc_error(joined: Any, apart: Any) -> float:
    """Return the standard error of an AUC of independent scores (DeLong, DeLong and Clarke-Pearson 1988)."""

    def share_below(these: Any, those: Any) -> Any:
        order = np.sort(those)
        return (np.searchsorted(order, these) + np.searchsorted(order, these, "right")) / (2 * len(order))

    parts = (share_below(joined, apart), share_below(apart, joined))
    return math.sqrt(sum(part.var(ddof=1) / len(part) for part in parts))


def _linkteller_score(
    graph: gv.Graph, cell: Record, pair: tuple[int, int]
) -> Callable[[gv.Graph, int], float]:
    network = gv.GCN(unit="none", seed=0, epochs=30).fit(graph).fitted.trained.network
    x, nodes = as_float64(graph.x), torch.tensor(pair).numpy()
    release = {"edge-rand": gv.perturb.edge_rand, "edge-rr": gv.perturb.edge_rr}[cell["method"]]

    def score(one: gv.Graph, number: int) -> float:
        released = release(one, **EDGE, epsilon=cell["epsilon"])
        return float(influences(network_predict(network, released.graph.adjacency), x, nodes)[0, 1])

    return score


def _count_score(graph: gv.Graph, cell: Record, pair: tuple[int, int]) -> Callable[[gv.Graph, int], float]:
    """Return the noisy count of the second node's neighbors with the class of the first node.

    The public posteriors of ClassCode are computed once for all releases.
    """
    model = gv.ClassCode(**EDGE, epsilon=cell["epsilon"], seed=0)
    plan = model.plan(num_nodes=graph.num_nodes, num_classes=graph.num_classes)
    public, groups = public_posteriors(graph, Session(streams=PublicStreams(0))), groups_of(graph)
    assert graph.labeled_in("train")[pair[0]] and not (graph.labeled_in("train", "val"))[pair[1]]

    def score(one: gv.Graph, number: int) -> float:
        release = Release.open(plan, one.adjacency, groups, budget=ledger_of(one.edge_set))
        rounds = build_rounds(plan.queries, one, groups, public_labels(one, groups), release)
        rounds.aggregate(public.log, public.log, torch.Generator())
        release.close()
        return float(rounds.rows[0][pair[1], graph.y[pair[0]]])

    return score


def _row_score(graph: gv.Graph, cell: Record, pair: tuple[int, int]) -> Callable[[gv.Graph, int], float]:
    """Return the dot products of both ends' noisy aggregates with the row of the other end.

    GAP without an encoder aggregates L2-normalized rows; this runs its plan.
    """
    model = gv.GAP(**EDGE, epsilon=cell["epsilon"], hops=1, use_encoder=False)
    plan = model.plan(
        num_nodes=graph.num_nodes, num_classes=graph.num_classes, num_features=graph.num_features
    )
    sent = safe_unit(graph.x)

    def score(one: gv.Graph, number: int) -> float:
        release = Release.open(plan, one.adjacency, budget=ledger_of(one.edge_set))
        rows = release.answer(NeighborSumData(sent)).double()
        release.close()
        return float(rows[pair[1]] @ sent[pair[0]].double() + rows[pair[0]] @ sent[pair[1]].double())

    return score


# -- membership --------------------------------------------------------------------------------------------

BERKELEY = "facebook100/Berkeley13"


def membership_cells() -> Iterator[Record]:
    """Yield Table 3 of GAP: three seeds of each cell, then eight, and sixteen of one cell."""
    for seeds in (range(3), range(3, 8)):
        for epsilon in (None, 16.0, 8.0, 4.0, 2.0, 1.0):
            for seed in seeds:
                for method in ("gap", "mlp", "sage"):
                    yield {"method": method, "mode": "paper", "epsilon": epsilon, "seed": seed}
                for method in ("gap", "mlp") if epsilon else ():
                    yield {"method": method, "mode": "strict", "epsilon": epsilon, "seed": seed}
    for seed in range(8, 16):
        yield {"method": "mlp", "mode": "strict", "epsilon": 16.0, "seed": seed}


def membership(cell: Record) -> Record:
    """Fit a model and attack its training nodes with all variants of the protocol."""
    strict, epsilon, seed = cell["mode"] == "strict", cell["epsilon"], cell["seed"]
    graph = gv.load_dataset(BERKELEY, seed=seed, mode=cell["mode"], by_id=strict)
    model = _on_records(cell["method"], cell["mode"], epsilon, seed).fit(graph)
    found: Record = {"accuracy": model.score(graph), "train_accuracy": model.score(graph, "train")}
    for evaluate_on in ("target", "shadow"):
        for disjoint in (True, False):
            settings = MembershipSettings(evaluate_on=evaluate_on, disjoint=disjoint, seed=seed)
            if evaluate_on == "target" or disjoint:
                report = attack_membership(model, graph, settings)
                name = evaluate_on if disjoint else f"{evaluate_on}, overlapping"
                found[name] = report.attackers[SHADOW_MLP].figures()
                found[CONFIDENCE] = report.attackers[CONFIDENCE].figures()
    return found


def _on_records(method: str, mode: str, epsilon: float | None, seed: int) -> gv.Estimator:
    keywords: Record = {"seed": seed}
    if epsilon is None:
        keywords["unit"] = "none"
        published = method == "gap"
        if method == "mlp":
            keywords["tuned"] = False
    else:
        keywords |= {"unit": "node-record", "epsilon": epsilon, "delta": 1e-5}
        published = mode == "paper"
        if method != "mlp":
            keywords["out_degree_bound"] = 100 if mode == "paper" else 20
    return gv.METHODS[f"{method}-paper" if published else method](**keywords)


def lira_cells() -> Iterator[Record]:
    """Yield models without privacy, and two private ones; the attacker knows the whole graph."""
    for data in ("cora", BERKELEY):
        for seed in range(3 if data == "cora" else 5):
            for method in ("gap", "mlp", "gcn"):
                yield {"data": data, "method": method, "epsilon": None, "seed": seed}
    for seed in range(3):
        for method in ("gap", "mlp"):
            yield {"data": "cora", "method": method, "epsilon": 16.0, "seed": seed}


def lira(cell: Record) -> Record:
    """Fit a model and sixteen shadow models of the whole graph."""
    seed, epsilon = cell["seed"], cell["epsilon"]
    graph = gv.load_dataset(cell["data"], seed=seed, by_id=epsilon is not None)
    if cell["method"] == "gcn":
        model: gv.Estimator = gv.GCN(unit="none", seed=seed)
    else:
        model = _on_records(cell["method"], "strict", epsilon, seed)
    model.fit(graph)
    ensemble = fit_ensemble(model, graph, 16, seed=100 * (seed + 1))
    nodes, members = select_evaluated_nodes(graph)
    confidences = standardized(confidence(model, graph))
    edges = SecretEdges.from_adjacency(graph.adjacency)
    bayes = bayes_scores(ensemble, confidences, edges, nodes)
    scores = {CONFIDENCE: confidences[nodes], LIRA: lira_scores(ensemble, confidences)[nodes], BAYES: bayes}
    found: Record = {name: RocCurve.from_scores(values, members).figures() for name, values in scores.items()}
    return found | {"gains": [_gain(ensemble, number, edges, nodes) for number in range(16)]}


def _gain(ensemble: Ensemble, number: int, edges: SecretEdges, nodes: Any) -> float:
    """Return the AUC of the Bayes posterior minus that of LiRA on one shadow model, scored by the others."""
    rest, confidences, members = (
        ensemble.without(number),
        ensemble.confidences[number],
        ensemble.members[number],
    )
    bayes, ratio = bayes_scores(rest, confidences, edges, nodes), lira_scores(rest, confidences)[nodes]
    return roc_auc(bayes, members[nodes]) - roc_auc(ratio, members[nodes])


# -- records -----------------------------------------------------------------------------------------------


def reconstruction_cells() -> Iterator[Record]:
    """Yield image patches, digits and records of Cora, by epsilon and mechanism."""
    for kind in ("patches", "digits", "cora"):
        for seed in range(3):
            for epsilon in (None, 1.0, 10.0, 100.0, 1000.0):
                for method in ("multi-bit", "feature-rr") if kind == "digits" else ("multi-bit",):
                    yield {"kind": kind, "method": method, "epsilon": epsilon, "seed": seed}
    for seed, epsilon in ((0, None), (0, 1.0), (0, 100.0), (0, 1000.0), (1, None), (2, None)):
        yield {"kind": "network patches", "method": "multi-bit", "epsilon": epsilon, "seed": seed}


def reconstruction(cell: Record) -> Record:
    """Attack one half of the records with a decoder that is trained on the other half."""
    seed, epsilon = cell["seed"], math.inf if cell["epsilon"] is None else cell["epsilon"]
    records, side = _records(cell["kind"])
    order = np.random.default_rng(seed).permutation(len(records))
    public, secret = records[order[: len(order) // 2]], records[order[len(order) // 2 :]]
    dim, learn, copies = 64, ridge, 4
    if side is None:
        embed = in_unit_range(random_map(records.shape[1], dim), public)
    elif side == 32:  # few large images: a linear decoder is better than a network
        embed = in_unit_range(principal_axes(public, dim), public)
        if cell["kind"] == "network patches":
            learn, copies = up_convolution(side, seed=seed, epochs=300), 1
    else:
        dim, learn = 32, up_convolution(side, seed=seed, epochs=20)
        embed = in_unit_range(image_encoder(public, side, dim, seed=seed, epochs=30), public)
    law = (
        FeatureRR(epsilon=epsilon, dim=dim)
        if cell["method"] == "feature-rr"
        else MultiBit(epsilon=epsilon, dim=dim)
    )
    report = attack_records(
        public, secret, law, embed=embed, learn=learn, side=side, copies=copies, seed=seed
    )
    return {"qualities": dict(report.qualities), "records": len(secret)}


def _records(kind: str) -> tuple[Any, int | None]:
    if kind == "cora":
        return gv.load_dataset("cora").x.toarray().astype(float)[:, :200], None
    from sklearn import datasets  # extra `dev`

    if kind == "digits":
        return datasets.load_digits().data / 16, 8
    photographs = datasets.load_sample_images().images
    patches = []
    for picture in photographs:
        grey = picture.mean(axis=2) / 255
        for row in range(0, grey.shape[0] - 31, 32):  # disjoint patches, so that halves share no pixel
            patches += [grey[row : row + 32, left : left + 32] for left in range(0, grey.shape[1] - 31, 32)]
    return np.array(patches).reshape(len(patches), -1), 32


# -- collections -------------------------------------------------------------------------------------------


def poisoning_cells() -> Iterator[Record]:
    """Yield malicious clients at (1, 1) on Cora, grouped by collection.

    The groups of local hashing were chosen on seeds 0 to 9, robust decoding on 100 to 109 and 200 to 209.
    Seeds from 300 on were not used for choices.
    """
    any_nodes = {"method": "lpgnn", "attack": "any nodes"}
    labels = ("label", "same", "deny")
    main_cells = [(strategy, 0.05) for strategy in (*labels, "random", "feature")]
    other_shares = [(strategy, share) for share in (0.01, 0.1) for strategy in ("label", "same")]
    for strategies in (main_cells, other_shares):
        for seed in range(300, 310):
            for strategy, share in strategies:
                yield {**any_nodes, "mode": "hashing", "kind": strategy, "share": share, "seed": seed}
    for seed in range(10):
        for strategy in (*labels, "random", "feature"):
            yield {**any_nodes, "mode": "rr", "kind": strategy, "share": 0.05, "seed": seed}
    for seed in range(3):
        for strategy in get_args(PoisoningStrategy):
            yield {
                **any_nodes,
                "mode": "hashing",
                "kind": strategy,
                "share": 0.05,
                "attack": "hubs",
                "seed": seed,
            }
        yield {**any_nodes, "mode": "hashing", "kind": "unbounded", "share": 0.05, "seed": seed}


def poisoning(cell: Record) -> Record:
    """Poison one collection with malicious clients."""
    report = _collection(cell["mode"], cell["seed"]).with_malicious_clients(
        cell["kind"], share=cell["share"], hubs=cell["attack"] == "hubs", seed=cell["seed"]
    )
    return {name: value for name, value in vars(report).items() if name not in ("strategy", "share")}


@lru_cache(maxsize=1)
def _collection(labels: str, seed: int) -> PoisonedCollection:
    graph = gv.load_dataset("cora", recipe="lpgnn", by_id=True, seed=seed)
    settings = {"x_steps": 16, "y_steps": 8, "learning_rate": 0.01, "weight_decay": 0.001, "dropout": 0.5}
    settings |= {"posterior_steps": 0, "select": "paper"}
    budget = {"eps_x": 1.0, "eps_y": 1.0, "seed": seed, "unsafe_noise_seed": seed}
    model = gv.LPGNN(unit="local-attributes", labels=labels, **budget, **settings, epochs=150)
    return PoisonedCollection.from_model(model, graph)


def posterior_cells() -> Iterator[Record]:
    """Yield 5 % malicious clients against the label posterior only, which robust decoding chooses on Cora."""
    kinds = ("none", "absent", "label", "same", "deny", "random")
    for mode in ("robust", "mixture"):
        for seed in range(300, 310):
            for kind in kinds:
                yield {"method": "label-posterior", "mode": mode, "kind": kind, "share": 0.05, "seed": seed}


def posterior(cell: Record) -> Record:
    """Return the accuracy of the posterior of one collection with malicious or absent clients."""
    fitted, graph = _label_collection(cell["seed"])
    reports = reports_of(fitted)
    clients = malicious_clients(graph, cell["share"], hubs=False, seed=cell["seed"])
    if cell["kind"] == "absent":
        reports = drop_reports(reports, clients)
    elif cell["kind"] != "none":
        law, rng = fitted.label_mechanism(graph.num_classes), PublicStreams(cell["seed"]).numpy("lies")
        reports = poison_reports(reports, graph, law, clients, cell["kind"], rng)
    model = gv.LabelPosterior(**{**fitted.get_params(), "prior": cell["mode"], "posterior_steps": 16})
    received = dataclasses.replace(reports, guarantee=fitted.guarantee)
    return {"accuracy": model.fit_from_reports(graph, received).score(graph)}


@lru_cache(maxsize=1)
def _label_collection(seed: int) -> tuple[gv.LabelPosterior, gv.Graph]:
    graph = gv.load_dataset("cora", recipe="lpgnn", by_id=True, seed=seed)
    budget = {"eps_y": 1.0, "labels": "hashing", "seed": seed, "unsafe_noise_seed": seed}
    own = gv.LabelPosterior(unit="local-attributes", prior="nothing", **budget)
    return own.fit(graph), graph


# -- files and tables --------------------------------------------------------------------------------------

PARTS: dict[str, tuple[Callable[[], Iterator[Record]], Callable[[Record], Record]]] = {
    "link": (link_cells, link),
    "linkteller": (linkteller_cells, linkteller),
    "pair": (pair_cells, pair),
    "membership": (membership_cells, membership),
    "lira": (lira_cells, lira),
    "reconstruction": (reconstruction_cells, reconstruction),
    "poisoning": (poisoning_cells, poisoning),
    "posterior": (posterior_cells, posterior),
}
KEYS = ("part", "data", "method", "mode", "epsilon", "attack", "share", "seed", "repeats", "kind")


def key(cell: Record) -> tuple[Any, ...]:
    """Return the key of a cell."""
    return tuple(cell.get(name) for name in KEYS)


def wanted(cell: Record, only: list[str]) -> bool:
    """Return whether a cell matches all filters ``KEY=VALUE``; ``KEY=1,2`` matches either value."""
    filters = (one.partition("=") for one in only)
    return all(str(cell.get(name)) in value.split(",") for name, _, value in filters)


def read(path: Path) -> list[Record]:
    """Return the cells in a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def grouped(part: str, cells: list[Record]) -> dict[tuple[Any, ...], list[Record]]:
    """Return the runs of each table row, by their key without the seed."""
    found: dict[tuple[Any, ...], list[Record]] = {}
    for cell in cells:
        if cell["part"] == part:
            found.setdefault(tuple(cell.get(name) for name in KEYS if name != "seed"), []).append(cell)
    return found


class MeanInterval(NamedTuple):
    """Mean over runs, with its standard error and its 99 % interval by Student's t."""

    mean: float
    error: float
    low: float
    high: float

    @classmethod
    def from_values(cls, values: Sequence[float]) -> "MeanInterval":
        """Summarize one value per run; the interval of a single run is unbounded."""
        mean = float(np.mean(values))
        if len(values) < 2:
            return cls(mean, math.inf, -math.inf, math.inf)
        error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
        reach = float(t.ppf(0.995, len(values) - 1)) * error
        return cls(mean, error, mean - reach, mean + reach)


def format_mean(values: list[float], digits: int = 3) -> str:
    """Return a mean and its standard error."""
    spread = MeanInterval.from_values(values)
    error = f" ± {spread.error:.{digits}f}" if len(values) > 1 else ""
    return f"{spread.mean:.{digits}f}{error}"


def table(part: str, cells: list[Record]) -> Iterator[str]:
    """Yield the lines of a part's table."""
    groups = grouped(part, cells)
    if groups:
        yield from ("", f"### {part}", "", *TABLES[part](groups))


def link_table(groups: dict[tuple[Any, ...], list[Record]]) -> Iterator[str]:
    """Yield AUCs, and the paired gain of the supervised attacker with predictions over the one without."""
    names = (LINKTELLER, BY_FEATURES, SUPERVISED_PUBLIC, SUPERVISED)
    yield (
        "| data | model | epsilon | accuracy | "
        + " | ".join(names)
        + " | control | gain, paired, 99 % | runs |"
    )
    yield "|" + "---|" * 11
    for runs in groups.values():
        aucs = {name: [run["attackers"][name]["auc"] for run in runs] for name in names}
        gain = MeanInterval.from_values(
            [one - other for one, other in zip(aucs[SUPERVISED], aucs[SUPERVISED_PUBLIC], strict=True)]
        )
        first = runs[0]
        cells = [
            first["data"],
            first["method"],
            "none" if first["epsilon"] is None else f"{first['epsilon']:g}",
        ]
        cells += [
            format_mean([run["accuracy"] for run in runs]),
            *(format_mean(aucs[name]) for name in names),
        ]
        control = [run["attackers"][CONTROL]["auc"] for run in runs if CONTROL in run["attackers"]]
        cells.append(format_mean(control) if control else "")
        between = f" ({gain.low:+.3f} to {gain.high:+.3f})" if len(runs) > 1 else ""
        yield f"| {' | '.join(cells)} | {gain.mean:+.3f}{between} | {len(runs)} |"


def linkteller_table(groups: dict[tuple[Any, ...], list[Record]]) -> Iterator[str]:
    """Yield LinkTeller minus the attacker that compares public features, paired, by epsilon."""
    names = (LINKTELLER, BY_FEATURES, BY_POSTERIOR)
    heads = f"data | model | epsilon | accuracy | {' | '.join(names)} | LinkTeller minus public, 99 %"
    yield f"| {heads} | runs |"
    yield "|" + "---|" * 9
    for runs in sorted(groups.values(), key=lambda runs: (runs[0]["method"], runs[0]["epsilon"])):
        first, aucs = runs[0], [run["aucs"] for run in runs]
        less = MeanInterval.from_values([one[LINKTELLER] - one[BY_FEATURES] for one in aucs])
        cells = [first["data"], first["method"], f"{first['epsilon']:g}"]
        cells += [format_mean([run["accuracy"] for run in runs])]
        cells += [format_mean([one[name] for one in aucs]) for name in names]
        between = f" ({less.low:+.3f} to {less.high:+.3f})" if len(runs) > 1 else ""
        cells += [f"{less.mean:+.3f}{between}", str(len(runs))]
        yield f"| {' | '.join(cells)} |"


def pair_table(groups: dict[tuple[Any, ...], list[Record]]) -> Iterator[str]:
    """Yield attacks on one node pair, and their theoretical bounds from the guarantee."""
    yield (
        "| release | epsilon | AUC | AUC bound | TPR | FPR | TPR - FPR | lower bound, 99 % | upper bound | "
        "maximum over thresholds |"
    )
    yield "|" + "---|" * 10
    for (run,) in groups.values():
        cells = [run["method"], f"{run['epsilon']:g}", f"{run['auc']:.3f} ± {run['auc_error']:.3f}"]
        true, false = (run[name] / run["counted"] for name in ("tp", "fp"))
        values = (run["bound_auc"], true, false, true - false)
        values += (run["least"], run["bound_advantage"], run["largest"])
        yield f"| {' | '.join(cells + [f'{value:.3f}' for value in values])} |"


def membership_table(groups: dict[tuple[Any, ...], list[Record]]) -> Iterator[str]:
    """Yield AUCs by protocol."""
    names = ("target", "target, overlapping", "shadow", CONFIDENCE)
    yield (
        "| model | mode | epsilon | test accuracy | " + " | ".join(names) + " | TPR at 1 % (target) | runs |"
    )
    yield "|" + "---|" * 10
    for runs in groups.values():
        first = runs[0]
        epsilon = "none" if first["epsilon"] is None else f"{first['epsilon']:g}"
        cells = [first["method"], first["mode"], epsilon, format_mean([run["accuracy"] for run in runs])]
        cells += [format_mean([run[name]["auc"] for run in runs]) for name in names]
        cells.append(format_mean([run["target"]["max_tpr_at_1pct_fpr"] for run in runs]))
        yield f"| {' | '.join(cells)} | {len(runs)} |"


def lira_table(groups: dict[tuple[Any, ...], list[Record]]) -> Iterator[str]:
    """Yield AUCs and true-positive rates of attackers that know the whole graph."""
    names = (CONFIDENCE, LIRA, BAYES)
    gain = "minus LiRA on targets, 99 % | on shadow models, 99 %"
    yield f"| data | model | epsilon | attacker | AUC | TPR at 0.1 % FPR | at 1 % FPR | {gain} | runs |"
    yield "|" + "---|" * 10
    for runs in groups.values():
        first = runs[0]
        epsilon = "none" if first["epsilon"] is None else f"{first['epsilon']:g}"
        for name in names:
            figures = ("auc", "tpr_at_01pct_fpr", "max_tpr_at_1pct_fpr")
            cells = [first["data"], first["method"], epsilon, name]
            cells += [format_mean([run[name][figure] for run in runs]) for figure in figures]
            if name == BAYES:
                cells.append(paired([run[BAYES]["auc"] - run[LIRA]["auc"] for run in runs]))
                cells.append(paired([gain for run in runs for gain in run.get("gains", ())]))
            else:
                cells += ["", ""]
            yield f"| {' | '.join(cells)} | {len(runs)} |"


def paired(gains: list[float]) -> str:
    """Return a mean and its interval, by Student's t."""
    if not gains:
        return ""
    spread = MeanInterval.from_values(gains)
    between = f" ({spread.low:+.4f} to {spread.high:+.4f})" if len(gains) > 1 else ""
    return f"{spread.mean:+.4f}{between}"


def reconstruction_table(groups: dict[tuple[Any, ...], list[Record]]) -> Iterator[str]:
    """Yield the reconstruction quality of attackers and controls."""
    yield "| records | mechanism | epsilon | attacker | MSE | PSNR | SSIM | R2 | identified, % | runs |"
    yield "|" + "---|" * 10
    for runs in groups.values():
        first = runs[0]
        epsilon = "inf" if first["epsilon"] is None else f"{first['epsilon']:g}"
        for name in first["qualities"]:
            found = [run["qualities"][name] for run in runs]
            cells = [first["kind"], first["method"], epsilon, name.partition(" (")[0]]
            for figure, scale in (("mse", 1), ("psnr", 1), ("ssim", 1), ("r2", 1), ("identified", 100)):
                values = [scale * one[figure] for one in found if one[figure] is not None]
                cells.append(f"{MeanInterval.from_values(values).mean:.3g}" if values else "")
            yield f"| {' | '.join(cells)} | {len(runs)} |"


def poisoning_table(groups: dict[tuple[Any, ...], list[Record]]) -> Iterator[str]:
    """Yield the loss in points by malicious clients, each server compared with itself without them."""
    servers = "no malicious clients | unchecked | checked | robust, none malicious | robust | 95 %"
    yield f"| label mechanism | clients | share | strategy | {servers} | runs |"
    yield "|" + "---|" * 11
    for runs in groups.values():
        first = runs[0]
        cells = [first["mode"], first["attack"], f"{first['share']:g}", first["kind"]]
        for own, poisoned in (("unpoisoned", ("poisoned", "checked")), ("unpoisoned_robust", ("robust",))):
            cells.append(format_mean([100 * run[own] for run in runs], 1))
            cells += [format_mean([100 * (run[name] - run[own]) for run in runs], 1) for name in poisoned]
        lost = [100 * (run["robust"] - run["unpoisoned_robust"]) for run in runs]
        reach = float(t.ppf(0.975, max(1, len(lost) - 1)))
        spread = MeanInterval.from_values(lost)
        ends = (spread.mean + sign * reach * spread.error for sign in (-1, 1))
        cells.append(" to ".join(f"{end:+.1f}" for end in ends) if len(lost) > 1 else "")
        yield f"| {' | '.join(cells)} | {len(runs)} |"


def posterior_table(groups: dict[tuple[Any, ...], list[Record]]) -> Iterator[str]:
    """Yield the loss of the label posterior by malicious clients, paired by seed."""
    yield "| decoding | strategy | accuracy | change | 95 % | worst | runs |"
    yield "|" + "---|" * 7
    found = {
        (runs[0]["mode"], runs[0]["kind"]): {run["seed"]: 100 * run["accuracy"] for run in runs}
        for runs in groups.values()
    }
    for (mode, kind), runs in found.items():
        reference = found.get((mode, "none"), {})
        lost = [runs[seed] - reference[seed] for seed in runs if seed in reference]
        change, reach, worst = "", "", ""
        if kind != "none" and len(lost) > 1:
            spread, width = MeanInterval.from_values(lost), float(t.ppf(0.975, len(lost) - 1))
            ends = (spread.mean + sign * width * spread.error for sign in (-1, 1))
            change, reach = format_mean(lost, 1), " to ".join(f"{end:+.1f}" for end in ends)
            worst = f"{min(lost):.1f}"
        own = format_mean([*runs.values()], 1)
        yield f"| {mode} | {kind} | {own} | {change} | {reach} | {worst} | {len(runs)} |"


TABLES: dict[str, Callable[[dict[tuple[Any, ...], list[Record]]], Iterator[str]]] = {
    "link": link_table,
    "linkteller": linkteller_table,
    "pair": pair_table,
    "membership": membership_table,
    "lira": lira_table,
    "reconstruction": reconstruction_table,
    "poisoning": poisoning_table,
    "posterior": posterior_table,
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "part", choices=(*PARTS, "table"), help="attack to run, or `table` to print the results"
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON lines file of results; is continued")
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="KEY=VALUE", help="run cells with these values only"
    )
    parser.add_argument("--max-seconds", type=float, help="CPU seconds after which no cell starts")
    return parser.parse_args()


if __name__ == "__main__":
    main()
