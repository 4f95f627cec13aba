"""Check that results do not change for a given seed: digests of every method, unit and command.

This fits every method with fixed seeds on small graphs, saves and loads it, predicts the training graph,
another graph and a grown graph, and digests the outputs. It uses the public interface only, so the same file
runs before and after an internal change.

    python benchmarks/digests.py --write digests.json    # before the change
    python benchmarks/digests.py --check digests.json    # after it: lists what differs, exits 1

Digests are valid for one type of processor and one version of torch and NumPy, because floating-point
rounding differs. Therefore none are stored in the repository, and no test compares them. Digests of fits
contain numbers and the names of parameters and files, no texts, versions or times. ``command_digests.py``
adds what commands print and write; ``--only "command "`` selects these cases. Their digests of keys and text
change with names and wording; those of numbers must not.
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from command_digests import command_digests
from safetensors.torch import load_file

import graphveil as gv
from graphveil.local.lpgnn import PAPER_SETTINGS
from graphveil.publish.release_folder import OTHER_FRAMEWORK_FILES

NODES, CLASSES, FAILED = 240, 3, "failed:"
Parts = dict[str, str]


# -- digests -----------------------------------------------------------------------------------------------


def digest(value: object) -> str:
    """Return a digest of tensors, arrays, numbers and text, however they are nested."""
    hashed = hashlib.blake2b(digest_size=10)
    for piece in pieces(value):
        hashed.update(len(piece).to_bytes(8, "little") + piece)
    return hashed.hexdigest()


def pieces(value: object) -> Iterator[bytes]:
    """Yield the contents of a value in a fixed order: types and shapes first, numbers as bytes."""
    if isinstance(value, torch.Tensor):
        yield from pieces(value.detach().cpu().numpy())
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype.str}{value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, Mapping):
        for name in sorted(value):
            yield str(name).encode()
            yield from pieces(value[name])
    elif isinstance(value, list | tuple):
        yield f"list{len(value)}".encode()
        for entry in value:
            yield from pieces(entry)
    else:
        yield repr(value).encode()


# -- graphs ------------------------------------------------------------------------------------------------


def community(seed: int, *, directed: bool = False, weighted: bool = False, nodes: int = NODES) -> Any:
    """Return a small graph of three communities with a split."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, nodes)
    x = rng.random((nodes, 8), dtype=np.float32) * 0.6 + 0.4 * (y[:, None] == np.arange(8) % CLASSES)
    source, target = rng.integers(0, nodes, (2, 5 * nodes))
    kept = (y[source] == y[target]) | (rng.random(5 * nodes) < 0.3)
    kept &= source != target
    source, target = source[kept], target[kept]
    if weighted:  # one weight per edge: no undirected edge is listed twice
        both = np.unique(np.stack([np.minimum(source, target), np.maximum(source, target)]), axis=1)
        source, target = both
        extra = {"weight": rng.random(len(source)) * 3, "max_weight": 2.0}
    else:
        extra = {}
    part = rng.permutation(nodes) / nodes
    masks = {
        "train_mask": torch.from_numpy(part < 0.6),
        "val_mask": torch.from_numpy((part >= 0.6) & (part < 0.8)),
        "test_mask": torch.from_numpy(part >= 0.8),
    }
    return gv.Graph.from_edges(x, y, source, target, directed=directed, num_classes=CLASSES, **extra, **masks)


def sparse_labels() -> Any:
    """Return a graph in which a fifth of the nodes has a label."""
    graph = community(4)
    keep = graph.train_mask & (torch.arange(NODES) % 3 == 0)
    rest = ~keep & ~graph.val_mask
    return graph.with_split(keep, graph.val_mask, rest)


def sparse_features() -> Any:
    """Return a graph whose features are a sparse matrix of zeros and ones."""
    from scipy import sparse

    graph = community(5)
    return graph.replace(x=sparse.csr_array((graph.x.numpy() > 0.6).astype(np.float32)))


def half_public(graph: Any) -> Any:
    """Return the graph with half of its edges public, and all nodes private."""
    public = gv.perturb.sample_public_edges(graph, 0.5, seed=0)
    return graph.with_public(public, torch.ones(graph.num_nodes, dtype=torch.bool))


GRAPHS: dict[str, Callable[[], Any]] = {
    "undirected": lambda: community(1),
    "directed": lambda: community(2, directed=True),
    "weighted": lambda: community(3, weighted=True),
    "few": sparse_labels,
    "sparse": sparse_features,
    "tiny": lambda: gv.load_dataset("synthetic/tiny"),
    "half public": lambda: half_public(community(1)),
    "tiny by id": lambda: gv.load_dataset("synthetic/tiny", by_id=True),
}


def another(graph: Any) -> Any:
    """Return a graph with the same features that no model was fitted on."""
    if graph.num_features != 8:
        return graph.subgraph(torch.arange(graph.num_nodes) < 200)
    return community(77, directed=graph.directed, weighted=graph.adjacency.weights is not None, nodes=150)


def grown(graph: Any) -> Any:
    """Return the graph with four new nodes, each with two edges to existing nodes."""
    rng = np.random.default_rng(99)
    count, old = 4, graph.num_nodes
    source = np.repeat(np.arange(old, old + count), 2)
    x = rng.random((count, graph.num_features), dtype=np.float32).round()
    weight = {} if graph.adjacency.weights is None else {"weight": np.full(len(source), 1.5)}
    ids = {} if graph.ids is None else {"ids": np.arange(10_000, 10_000 + count).astype(graph.ids.dtype)}
    target = rng.choice(old, len(source), replace=False)
    return graph.grow(x, None, source, target, **weight, **ids)


# -- cases -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One fit: the method, its configuration, its graph, and the other graphs to predict."""

    method: str
    unit: str
    options: Mapping[str, Any] = field(default_factory=dict)
    graph: str = "undirected"
    other: bool = False
    supports_growing_graphs: bool = False

    @property
    def name(self) -> str:
        """Return the name of the case: method, unit, options and graph."""
        said = " ".join(f"{name}={value}" for name, value in self.options.items())
        return " ".join(part for part in (self.method, self.unit, said, f"on {self.graph}") if part)

    def fit(self) -> tuple[Any, Any]:
        """Return the fitted estimator and its graph."""
        graph = GRAPHS[self.graph]()
        budget = {} if self.unit in ("none", "local-attributes") else {"epsilon": 4.0, "delta": 1e-4}
        if self.unit == "edge-subset":
            budget = {"epsilon": 4.0}  # delta is a setting of the mechanism
        noise = {} if self.unit == "none" else {"unsafe_noise_seed": 11}
        # The settings that the digests were first written with.
        settings = {} if self.method not in ("lpgnn", "lpgnn-paper", "simgat") else dict(PAPER_SETTINGS)
        if self.method == "simgat":
            settings["x_steps"] = 1
        given = {"seed": 7, **noise, **budget, **settings, **self.options}
        return gv.METHODS[self.method](unit=self.unit, **given).fit(graph), graph


QUICK = {"epochs": 6}
OWNER = {"out_degree_bound": 4}
DEGREE = {"max_degree": 40}
LOCAL = {"eps_x": 2.0, "eps_y": 1.5, "epochs": 6}
STEPS = {"epochs": 3, "batch_size": 32}


def edge_cases() -> Iterator[Case]:
    """Yield methods under edge-level units, and without privacy."""
    for unit in ("undirected-edge", "none", "node-record"):
        yield Case("mlp", unit, STEPS if unit == "node-record" else QUICK, other=True)
    yield Case("mlp", "undirected-edge", QUICK, graph="sparse", other=True)
    yield Case("mlp", "directed-edge", QUICK | {"layers": 2, "batch_norm": True, "dropout": 0.2}, "directed")
    for method in ("gcn", "gat", "sage"):
        yield Case(method, "none", QUICK, other=True, supports_growing_graphs=True)
        yield Case(method, "none", QUICK | {"dropout": 0.3, "hidden": 8}, graph="directed")
    yield Case("gap", "none", QUICK, other=True, supports_growing_graphs=True)
    yield Case("gap", "undirected-edge", QUICK, other=True, supports_growing_graphs=True)
    yield Case("gap", "undirected-edge", QUICK, graph="tiny", other=True)
    yield Case("gap", "undirected-edge", QUICK, graph="sparse", other=True, supports_growing_graphs=True)
    yield Case("gap-paper", "undirected-edge", QUICK, other=True, supports_growing_graphs=True)
    yield Case("gap", "directed-edge", QUICK, graph="directed", other=True, supports_growing_graphs=True)
    yield Case("gap-paper", "directed-edge", QUICK, other=True)
    yield Case("gap", "undirected-edge", QUICK | {"use_encoder": False})
    yield Case("gap", "undirected-edge", QUICK | {"encoder_layers": 1, "base_layers": 2, "head_layers": 2})
    yield Case("gap", "undirected-edge", QUICK | {"batch_norm": True, "dropout": 0.2, "batch_size": 40})
    yield from weighted_gap()


def weighted_gap() -> Iterator[Case]:
    """Yield GAP with each aggregation weight."""
    weights = ("sigmoid_cos", "exp_cos(0.5)", "half_cos", "relu_cos", "class_agree(0.2)", "posterior_dot")
    for weight in (*weights, "jaccard", "half_cos@16", "learned_public"):
        on = "sparse" if weight == "jaccard" else "undirected"
        yield Case(
            "gap",
            "undirected-edge",
            QUICK | {"weights": weight},
            on,
            other=True,
            supports_growing_graphs=True,
        )
    yield Case("gap-paper", "undirected-edge", QUICK | {"weights": "sigmoid_cos"}, other=True)
    yield Case("gap", "none", QUICK | {"weights": "sigmoid_cos"}, other=True)
    yield Case(
        "gap", "directed-edge", QUICK | {"weights": "half_cos"}, "directed", supports_growing_graphs=True
    )
    yield Case(
        "gap",
        "undirected-edge",
        QUICK | {"weights": "given"},
        "weighted",
        other=True,
        supports_growing_graphs=True,
    )
    learned = QUICK | {"weights": "attention", "attention_steps": 4}
    for unit, on in (("undirected-edge", "undirected"), ("directed-edge", "directed")):
        yield Case("gap", unit, learned, on, other=True, supports_growing_graphs=True)
    yield Case("gap-paper", "undirected-edge", learned | {"epsilon": 12.0})


def record_cases() -> Iterator[Case]:
    """Yield methods under node-level units."""
    for unit, bound in (("node-record", OWNER), ("node-bounded-degree", DEGREE)):
        yield Case("gap", unit, STEPS | bound, other=True)
        yield Case("gap-paper", unit, STEPS | bound)
        yield Case("gap", unit, STEPS | bound | {"private_metrics": True, "replace_one": True})
        yield Case("gap", unit, STEPS | bound | {"use_encoder": False, "hops": 1})
        own = {} if unit == "node-record" else bound
        yield Case("mlp", unit, STEPS | own | {"private_metrics": True}, other=True)
        yield Case("mlp-paper", unit, STEPS | own)
        yield Case("mlp", unit, STEPS | own | {"replace_one": True, "weight_decay": 0.01}, graph="sparse")
    yield Case("gap", "node-record", STEPS | OWNER, graph="directed")
    yield Case("gap", "node-record", STEPS | OWNER | {"private_metrics": True}, graph="tiny by id")
    for per in ("row", "root"):
        yield Case("sage-paper", "node-record", STEPS | OWNER | {"clip_per": per})
    yield from owner_codes()


def edge_codes() -> Iterator[Case]:
    """Yield ClassCode under edge-level units."""
    yield Case("classcode", "undirected-edge", {}, other=True, supports_growing_graphs=True)
    yield Case("classcode", "undirected-edge", {}, graph="tiny", other=True)
    yield Case("classcode", "undirected-edge", {}, graph="few", other=True, supports_growing_graphs=True)
    yield Case("classcode", "undirected-edge", {}, graph="sparse", other=True)
    yield Case("classcode", "directed-edge", {}, graph="directed", other=True, supports_growing_graphs=True)
    yield Case("classcode", "undirected-edge", {"few_labels": True, "self_training": False})
    yield Case("classcode", "undirected-edge", {"few_labels": False, "self_training": True})
    yield Case(
        "classcode",
        "undirected-edge",
        {"few_labels": True, "target_to_labeled_weight": 0.1, "count_share": 0.2},
    )
    yield Case("classcode", "undirected-edge", {"self_training": False}, graph="few")
    for weight in ("half_cos", "class_agree(0.2)", "posterior_dot", "jaccard", "half_cos@8"):
        on = "sparse" if weight == "jaccard" else "undirected"
        yield Case(
            "classcode", "undirected-edge", {"weights": weight}, on, other=True, supports_growing_graphs=True
        )
    yield Case("classcode", "directed-edge", {"weights": "sigmoid_cos"}, "directed", other=True)


def owner_codes() -> Iterator[Case]:
    """Yield ClassCode under node-level units, with and without reading own edges."""
    yield Case("classcode", "node-record", {})
    yield Case("classcode", "node-record", {}, graph="directed")
    yield Case("classcode", "node-record", {}, graph="tiny by id")
    yield Case("classcode", "node-record", {"read_own_edges": True})
    yield Case("classcode", "node-record", {"read_own_edges": True, "replace_one": True}, graph="few")
    yield Case("classcode", "node-record", {"targets": "unlabeled", "unlabeled_send": False})
    yield Case("classcode", "node-record", {"targets": "test", "out_degree_bound": 6})
    yield Case("classcode", "node-record", {"targets": (1, 5, 8, 100)}, graph="tiny by id")
    yield Case("classcode", "node-record", {"private_metrics": True, "encoder_share": 0.3})


def local_cases() -> Iterator[Case]:
    """Yield methods on locally randomized records, with each mechanism, backbone and propagation."""
    yield Case("lpgnn", "none", QUICK, other=True, supports_growing_graphs=True)
    yield Case("lpgnn", "local-attributes", LOCAL, other=True, supports_growing_graphs=True)
    yield Case("lpgnn", "local-attributes", LOCAL, graph="directed", other=True)
    yield Case("lpgnn", "local-attributes", LOCAL, graph="sparse", other=True)
    named = ("1bm", "lpm", "agm", "duchi", "piecewise", "pm-sub", "hybrid", "three-outputs", "feature-rr")
    for features in (*named, "feature-rr-naive"):
        yield Case("lpgnn", "local-attributes", LOCAL | {"features": features})
    rounding = {"features": "feature-rr", "k": 5, "rounding": "ceil", "decode": "naive"}
    yield Case("lpgnn", "local-attributes", LOCAL | rounding)
    theta = (0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05)
    yield Case("lpgnn", "local-attributes", LOCAL | {"features": "feature-rr", "theta": theta})
    yield Case("lpgnn", "local-attributes", LOCAL | {"m": 3, "low": -0.5, "high": 1.5})
    yield Case("lpgnn-paper", "local-attributes", LOCAL | {"m": "floor", "scaling": "row"})
    columns = {"scaling": "columns", "data_dependent_bounds": True}
    yield Case("lpgnn", "local-attributes", LOCAL | columns, other=True)
    for backbone in ("gcn", "gat", "mlp"):
        yield Case("lpgnn", "local-attributes", LOCAL | {"backbone": backbone, "dropout": 0.3}, other=True)
    spread = {"aggregator": "mean", "self_loops": True, "isolated": "keep", "x_steps": 2, "y_steps": 0}
    yield Case("lpgnn", "local-attributes", LOCAL | spread)
    yield Case("lpgnn", "local-attributes", LOCAL | {"forward_correction": False, "select": "likelihood"})
    yield Case("lpgnn", "local-attributes", LOCAL | {"posterior_steps": 4, "eps_x": float("inf")}, other=True)
    yield Case("lpgnn", "local-attributes", LOCAL | {"eps_y": float("inf")})
    for combine in ("post", "union"):
        yield Case(
            "simgat",
            "local-attributes",
            LOCAL | {"combine": combine},
            other=True,
            supports_growing_graphs=True,
        )
    yield Case("simgat", "local-attributes", LOCAL | {"weight": "similarity"})
    yield Case("simgat", "local-attributes", LOCAL | {"similarity": "multihop(n=3, delta=0.1)"})
    yield Case("simgat", "local-attributes", LOCAL | {"similarity": "factorized"})
    yield Case("simgat", "local-attributes", LOCAL | {"combine": "union", "max_union_degree": 12})
    yield Case("simgat", "none", QUICK, other=True)


def slot_cases() -> Iterator[Case]:
    """Yield methods on released graphs with public edges."""
    given = {**QUICK, "eps_x": 8.0, "perturb": "edge-rr(rounds=5)"}
    for method, options in (
        ("heterorr", {}),
        ("heterorr", {"features": "multi-bit"}),
        ("heterorr-paper", {}),
    ):
        yield Case(method, "edge-subset", {**given, **options}, graph="half public")
    for mechanism in ("arr", "edge-rr(structure=lazy_audited, rounds=5)"):
        yield Case("gcn", "edge-subset", {**QUICK, "perturb": mechanism}, graph="half public")


def cases() -> list[Case]:
    """Return all fits."""
    return [*edge_cases(), *edge_codes(), *record_cases(), *local_cases(), *slot_cases()]


# -- outputs of a fit --------------------------------------------------------------------------------------


def run(case: Case) -> Parts:
    """Return the digests of one fit, of its files, of the loaded model, and of other predictions."""
    model, graph = case.fit()
    return {
        **fitted(model, graph),
        **tried("files", lambda: saved(model)),
        **tried("elsewhere", lambda: elsewhere(case, model, graph)),
    }


def tried(what: str, digests: Callable[[], Parts]) -> Parts:
    """Return digests, or the type of the error, so that one error does not prevent other comparisons."""
    try:
        return digests()
    except Exception as error:
        print(f"{what}: {type(error).__name__}: {error}", file=sys.stderr)
        return {what: f"{FAILED} {type(error).__name__}"}


def fitted(model: Any, graph: Any) -> Parts:
    """Return digests of the results of a fit on its own graph."""
    parts = {
        "proba": digest(model.predict_proba()),
        "predict": digest(model.predict()),
        "score": digest(model.score(graph)),
        "aggregates": digest(model.aggregates_),
        "guarantee": digest(figures(model.guarantee)),
    }
    if model.private_accuracy_:
        parts["private accuracy"] = digest(model.private_accuracy_)
    return parts


def figures(guarantee: Any) -> list[Any]:
    """Return the numbers of a guarantee."""
    plain = guarantee.as_dict()
    return [(name, plain[name]) for name in sorted(plain) if isinstance(plain[name], bool | int | float)]


def saved(model: Any) -> Parts:
    """Return digests of the numbers in the files of a saved model, and of predictions after loading."""
    with tempfile.TemporaryDirectory() as folder:
        release, rows = Path(folder) / "release", Path(folder) / "rows"
        withheld_files = (
            {"per_node": rows} if model.guarantee.unit in ("node-record", "node-bounded-degree") else {}
        )
        model.save(release, **withheld_files)
        found = (path for path in Path(folder).rglob("*") if path.is_file())
        paths = sorted(
            path for path in found if path.parent != release or path.name not in OTHER_FRAMEWORK_FILES
        )
        loaded = gv.load_model(release, **withheld_files)
        privacy = json.loads((release / "privacy.json").read_text())
        return {
            **{
                path.name: digest(content(path))
                for path in paths
                if path.suffix in (".safetensors", ".parquet")
            },
            "names of files": digest([str(path.relative_to(folder)) for path in paths]),
            "releases": digest([numbers(row) for row in privacy["releases"]]),
            "loaded": digest([loaded.predict_proba(), figures(loaded.guarantee)]),
        }


def content(path: Path) -> Mapping[str, Any]:
    """Return the columns or tensors of a file."""
    if path.suffix == ".safetensors":
        return load_file(path)
    columns: dict[str, Any] = pq.read_table(path).to_pydict()
    return columns


def numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numeric entries of one row of a table of releases."""
    return {name: value for name, value in row.items() if not isinstance(value, str)}


def elsewhere(case: Case, model: Any, graph: Any) -> Parts:
    """Return digests of predictions for another graph and a grown graph, and of their privacy cost."""
    parts = dict[str, str]()
    if case.other:
        parts["another graph"] = digest(model.predict_proba(another(graph)))
    if case.supports_growing_graphs:
        parts["grown graph"] = digest(model.predict_proba(grown(graph)))
    if case.other or case.supports_growing_graphs:
        parts["with predictions"] = digest(figures(model.guarantee_with_predictions))
    return parts


# -- cases without a fit -----------------------------------------------------------------------------------


def calibrations() -> dict[str, Parts]:
    """Return digests of calibrations: noise for a budget, and the budget for a noise."""
    sizes = {"nodes": 5000, "classes": 4, "dim": 30, "training": 3000}
    wanted = [
        ("gap", "undirected-edge", {}),
        ("gap", "directed-edge", {"hops": 3}),
        ("gap", "undirected-edge", {"weights": "exp_cos(0.5)"}),
        ("gap", "undirected-edge", {"weights": "attention", "attention_steps": 20}),
        ("gap-paper", "undirected-edge", {}),
        ("gap", "node-record", {"out_degree_bound": 10, "private_metrics": True}),
        ("gap", "node-record", {"out_degree_bound": 10, "batch_size": 100, "epochs": 5}),
        ("gap", "node-bounded-degree", {"max_degree": 10}),
        ("mlp", "node-record", {}),
        ("mlp", "node-bounded-degree", {"max_degree": 10, "replace_one": True}),
        ("mlp", "undirected-edge", {}),
        ("sage-paper", "node-record", {"out_degree_bound": 10}),
        ("classcode", "undirected-edge", {}),
        ("classcode", "directed-edge", {"few_labels": True}),
        ("classcode", "undirected-edge", {"weights": "half_cos"}),
        ("classcode", "node-record", {}),
        ("classcode", "node-record", {"read_own_edges": True, "replace_one": True}),
    ]
    found = dict[str, Parts]()
    for method, unit, options in wanted:
        name = " ".join(["calibrate", method, unit, *(f"{key}={value}" for key, value in options.items())])
        for epsilon in (0.5, 4.0):
            found[f"{name} at {epsilon:g}"] = calibrated(method, unit, epsilon, 1e-5, **sizes, **options)
    for method, unit in (("gap", "undirected-edge"), ("classcode", "node-record")):
        extra = {"out_degree_bound": 5} if unit == "node-record" else {}
        found[f"calibrate {method} {unit} of a noise"] = calibrated(
            method, unit, None, 1e-5, noise_std=12.0, **sizes, **extra
        )
    for features in ("multi-bit", "feature-rr", "piecewise", "agm"):
        local = {"eps_x": 1.0, "eps_y": 2.0, "features": features, "dim": 30, "classes": 4}
        found[f"calibrate lpgnn {features}"] = calibrated("lpgnn", "local-attributes", **local)
    return found


def calibrated(*where: Any, **options: Any) -> Parts:
    """Return the digest of one calibration's numbers."""
    plain = gv.calibrate(*where, **options).as_dict()
    plain.pop("assumed", None)  # names of assumed sizes, which are no results
    stages = [numbers(stage) for stage in plain.pop("stages")]
    return {"figures": digest([*sorted(numbers(plain | {"reports": ()}).items()), stages])}


def randomized() -> dict[str, Parts]:
    """Return digests of the LDP reports and estimates of each local mechanism, and of a collection."""
    from graphveil.local.collect import CollectionProtocol, Collector, randomize_records

    local, count, dim = gv.mechanisms, 40, 6
    records, labels = np.random.default_rng(5).random((count, dim)), np.arange(count) % 3
    from_label_keywords = local.LabelRR(epsilon=1.0, classes=3)
    said = from_label_keywords.perturb(labels, stream=local.LocalNoise(3).stream("label"))
    found = {"mechanism LabelRR": {"said": digest(said)}}
    for name, law in feature_laws(local, dim).items():
        reports = law.perturb(records, stream=local.LocalNoise(3).stream("features"))
        found[f"mechanism {name}"] = {
            "reports": digest(vars_of(reports)),
            "rows": digest(law.estimate(reports)),
        }
        if name not in ("multi-bit", "feature-rr"):  # only these can be collected
            continue
        protocol = CollectionProtocol(features=law, label=from_label_keywords)
        server = Collector(protocol, nodes=count)
        messages = randomize_records(
            protocol, nodes=range(count), secret=bytes(32), features=records, labels=labels
        )
        assert server.accept_all(dict(enumerate(messages))) == {}
        found[f"collect {name}"] = {"last": digest(list(messages[-1])), "rows": digest(server.features())}
    return found


def feature_laws(local: Any, dim: int) -> dict[str, Any]:
    """Return one mechanism of each kind."""
    laws = {
        "multi-bit": local.MultiBit(epsilon=3.0, dim=dim),
        "one bit each": local.MultiBit(epsilon=2.0, dim=dim, m="all"),
        "feature-rr": local.FeatureRR(epsilon=4.0, dim=dim, k=7),
        "gaussian": local.AnalyticGaussian(epsilon=1.0, dim=dim, delta=1e-6),
    }
    for scalar in ("laplace", "duchi", "piecewise", "pm-sub", "hybrid", "three-outputs"):
        for name, allocation in (("Sample", local.SampledAllocation()), ("Split", local.EvenAllocation())):
            law = local.PerFeature(epsilon=2.0, dim=dim, scalar=scalar, allocation=allocation)
            laws[f"{scalar} {name}"] = law
    return laws


def vars_of(reports: Any) -> list[Any]:
    """Return the values of a report, and the indices of its features if it does not contain all."""
    return [getattr(reports, "values", reports), getattr(reports, "indices", None)]


def data() -> dict[str, Parts]:
    """Return digests of synthetic graphs and of their splits."""
    found = dict[str, Parts]()
    for recipe in ("gap", "lpgnn", "weighted"):
        for by_id in (False, True) if recipe == "gap" else (False,):
            graph = gv.load_dataset("synthetic/tiny", recipe=recipe, seed=3, by_id=by_id)
            masks = [graph.train_mask, graph.val_mask, graph.test_mask]
            found[f"data tiny {recipe} by_id={by_id}"] = {
                "graph": digest([graph.x, graph.y, graph.to_pyg().edge_index]),
                "split": digest(masks),
            }
    return found


# -- the command -------------------------------------------------------------------------------------------


def everything(wanted: str, *, times: bool) -> dict[str, Parts]:
    """Return all digests whose names contain a text."""
    found = dict[str, Parts]()
    for case in cases():
        if wanted in case.name:
            start = time.perf_counter()
            assert case.name not in found, f"two cases are called {case.name}"
            found[case.name] = tried("fit", partial(run, case))
            if times:
                print(f"{time.perf_counter() - start:6.2f} s  {case.name}", file=sys.stderr)
    for part in (calibrations, randomized, data):
        found |= {name: parts for name, parts in part().items() if wanted in name}
    return found | command_digests(wanted, times=times)


def machine() -> dict[str, str]:
    """Return the processor and the versions that digests are valid for."""
    versions = {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
    return {"processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}", **versions}


def commit() -> str:
    """Return the commit of the package."""
    folder = Path(str(gv.__file__)).parent
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def differences(before: Mapping[str, Parts], after: Mapping[str, Parts]) -> Iterator[str]:
    """Yield a line for each digest that changed, is missing or is new."""
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            yield f"{'missing' if new is None else 'new'}: {name}"
            continue
        changed = [part for part in sorted(old.keys() | new.keys()) if old.get(part) != new.get(part)]
        if changed:
            yield f"differs: {name}: {', '.join(changed)}"


def main() -> int:
    """Write digests, or compare them with those in a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--check", type=Path, metavar="FILE")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds this")
    parser.add_argument("--times", action="store_true", help="what each case takes, on standard error")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = everything(options.only, times=options.times)
    failed = [name for name, parts in found.items() if any(one.startswith(FAILED) for one in parts.values())]
    if options.write is not None and not failed:
        written = {"commit": commit(), "machine": machine(), "digests": found}
        options.write.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    if options.check is None:
        print(f"{len(found)} cases, {sum(map(len, found.values()))} digests, in all {digest(found)}")
        print(*(f"failed: {name}" for name in failed), sep="\n")
        return 1 if failed else 0
    file = json.loads(options.check.read_text())
    if file["machine"] != machine():
        print(f"the file is of {file['machine']}, this is {machine()}: digests may differ for that alone")
    known = {name: parts for name, parts in file["digests"].items() if options.only in name}
    lines = list(differences(known, found))
    print(
        *lines, f"{len(lines)} of {len(known)} cases differ from those of commit {file['commit']}", sep="\n"
    )
    return 1 if lines else 0


if __name__ == "__main__":
    if os.environ.get("OMP_NUM_THREADS") != "1":  # read when libraries are loaded, and sums depend on it
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": "1"})
    sys.exit(main())
