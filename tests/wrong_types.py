"""Valid arguments of public functions, and the wrong values that each of them is given in turn."""

import inspect
import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import graphveil as gv
from graphveil import audit
from graphveil.audit.noise import NoiseRecorder
from graphveil.errors import ConfigError, GraphveilError
from graphveil.lab import attacks
from graphveil.mechanisms import LabelRR, MultiBit
from graphveil.privacy import UndirectedEdge

Given = dict[str, Any]

WRONG: dict[str, object] = {
    "none": None,
    "five": 5,
    "minus": -1,
    "zero": 0,
    "text": "x",
    "bytes": b"x",
    "empty_text": "",
    "list": [],
    "mixed_list": ["a", 1],
    "nested_list": [[1], [2, 3]],
    "dict": {},
    "object": object(),
    "nan": math.nan,
    "infinite": math.inf,
    "huge": 10**400,
    "bool": True,
    "class": int,
    "frame": pd.DataFrame({"a": [1, 2]}),
    "vector": np.arange(3.0),
    "integers": np.arange(3),
    "matrix": np.zeros((2, 2)),
    "objects": np.array([None, "a"], dtype=object),
    "cube": np.zeros((2, 2, 2)),
    "empty_matrix": np.zeros((0, 0)),
    "set": {1},
    "pair": (0, 10**6),
}


@cache
def graph() -> gv.Graph:
    return gv.load_dataset("synthetic/tiny")


@cache
def fitted() -> gv.GCN:
    return gv.GCN(unit="none", seed=0, epochs=1).fit(graph())


@cache
def pairs() -> attacks.Pairs:
    return attacks.draw_pairs(edges(), count=40)


def edges() -> attacks.SecretEdges:
    return attacks.SecretEdges.from_adjacency(graph().adjacency)


def _network() -> Any:
    import torch

    return torch.nn.Linear(graph().num_features, 2)


def _predict(x: Any) -> Any:
    return np.zeros((len(x), 2))


def attacks_cases() -> dict[str, tuple[Callable[..., Any], Given]]:
    """Return each public function of ``gv.attacks`` with arguments that it takes."""
    rng = np.random.default_rng(0)
    scores, there = rng.random(40), rng.random(40) < 0.5
    ranking = attacks.RocCurve.from_scores(scores, there)
    knowledge = attacks.AdversaryKnowledge({"rows": rng.random((len(pairs().nodes), 2))})
    found = np.zeros((len(pairs().nodes),) * 2)
    ensemble = attacks.Ensemble(rng.random((6, 30)) < 0.5, rng.random((6, 30)))
    held = edges()
    answers = attacks.serve_model(fitted(), graph())
    records = rng.random((12, 49))
    lpgnn = gv.LPGNN(unit="local-attributes", eps_x=1.0, eps_y=1.0, seed=0, epochs=1)
    ceiling = attacks.theoretical_bound_of(fitted().guarantee)
    nodes = pairs().nodes
    x = graph().x
    slots = {"score": lambda graph, seed: 0.5, "graph": graph(), "pair": (0, 1)}
    a = attacks
    return {
        "Discriminator": (
            a.Discriminator,
            {
                "network": a.fit_discriminator(rng.random((40, 2)), there, epochs=1).network,
                "mean": np.zeros(2),
                "scale": np.ones(2),
            },
        ),
        "Ensemble": (a.Ensemble, {"members": ensemble.members, "confidences": ensemble.confidences}),
        "Ensemble.without": (ensemble.without, {"number": 0}),
        "AdversaryKnowledge": (a.AdversaryKnowledge, {"rows": {"a": records}, "influence": None}),
        "AdversaryKnowledge.columns": (knowledge.columns, {"one": np.array([0]), "other": np.array([1])}),
        "LinkReport": (
            a.LinkReport,
            {"pairs": pairs(), "attackers": {}, "theoretical_bound": ceiling, "edge_source": ""},
        ),
        "LinkSettings": (a.LinkSettings, a.LinkSettings().__dict__),
        "MembershipReport": (
            a.MembershipReport,
            {"attackers": {"a": ranking}, "theoretical_bound": ceiling, "unit": "none", "judged": 3},
        ),
        "MembershipSettings": (a.MembershipSettings, a.MembershipSettings().__dict__),
        "Pairs": (a.Pairs, pairs().__dict__),
        "PoisoningReport": (
            a.PoisoningReport,
            {
                "strategy": "random",
                **dict.fromkeys(
                    ("share", "unpoisoned", "poisoned", "checked", "robust", "unpoisoned_robust"), 0.1
                ),
            },
        ),
        "RocCurve": (a.RocCurve, ranking.__dict__),
        "RocCurve.from_scores": (a.RocCurve.from_scores, {"scores": scores, "labels": there}),
        "RocCurve.tpr": (ranking.tpr, {"fpr": 0.1}),
        "RocCurve.at_top": (ranking.at_top, {"most": 3.0}),
        "RocCurve.curve": (ranking.curve, {"points": 9}),
        "ReconstructionReport": (
            a.ReconstructionReport,
            {"qualities": {}, "drawn": {}, "epsilon": 1.0},
        ),
        "SecretEdges": (a.SecretEdges, {"matrix": held.matrix}),
        "SecretEdges.from_adjacency": (a.SecretEdges.from_adjacency, {"adjacency": graph().adjacency}),
        "SecretEdges.joined": (held.joined, {"one": np.array([0]), "other": np.array([1])}),
        "ServedModel": (a.ServedModel, answers.__dict__),
        "PairTest": (a.PairTest, {"threshold": 0.5, "tp": 3, "fp": 1, "repeats": 9}),
        "PairTest.from_scores": (a.PairTest.from_scores, {"joined": scores, "apart": scores + 0.1}),
        "MeanInterval": (a.MeanInterval, {"mean": 0.5, "error": 0.1, "low": 0.4, "high": 0.6, "runs": 3}),
        "MeanInterval.from_values": (a.MeanInterval.from_values, {"values": [0.5, 0.6]}),
        "attack_collection": (
            a.attack_collection,
            {"model": lpgnn, "graph": graph(), "strategy": "random", "share": 0.05, "hubs": False, "seed": 0},
        ),
        "attack_links": (
            a.attack_links,
            {"model": fitted(), "graph": graph(), "settings": a.LinkSettings(nodes=60)},
        ),
        "attack_membership": (
            a.attack_membership,
            {"model": fitted(), "graph": graph(), "settings": a.MembershipSettings(per_class=5)},
        ),
        "attack_predict": (
            a.attack_predict,
            {"predict": _predict, "x": x, "pairs": pairs(), "settings": a.LinkSettings(nodes=40)},
        ),
        "attack_records": (
            a.attack_records,
            {
                "public": records,
                "secret": records + 0.1,
                "mechanism": MultiBit(epsilon=1.0, dim=49),
                "embed": lambda rows: rows,
                "side": 7,
                "seed": 0,
            },
        ),
        "roc_auc": (a.roc_auc, {"scores": scores, "labels": there}),
        "bayes_scores": (
            a.bayes_scores,
            {
                "ensemble": a.Ensemble(rng.random((6, 300)) < 0.5, rng.random((6, 300))),
                "confidences": rng.random(300),
                "edges": held,
                "nodes": np.arange(30),
            },
        ),
        "theoretical_bound_of": (
            a.theoretical_bound_of,
            {"guarantee": fitted().guarantee, "attacked_object": "edge"},
        ),
        "correlations": (a.correlations, {"rows": rng.random((300, 4)), "pairs": pairs()}),
        "draw_pairs": (
            a.draw_pairs,
            {"edges": held, "count": 40, "sampling": "unbalanced", "cutoff": None, "seed": 0},
        ),
        "exact_influences": (
            a.exact_influences,
            {
                "network": fitted().fitted.trained.network
                if hasattr(fitted().fitted.trained, "network")
                else _network(),
                "x": x,
                "adjacency": graph().adjacency,
                "nodes": nodes[:2],
            },
        ),
        "fit_discriminator": (
            a.fit_discriminator,
            {
                "x": rng.random((40, 2)),
                "kind": there,
                "seed": 0,
                "validation": 0.2,
                "hidden": 4,
                "epochs": 1,
                "weight_decay": 0.0,
            },
        ),
        "fit_ensemble": (
            a.fit_ensemble,
            {"model": gv.MLP(unit="none", seed=0, epochs=1), "graph": graph(), "count": 4, "seed": 0},
        ),
        "full_knowledge": (
            a.full_knowledge,
            {
                "public": a.public_knowledge(graph(), pairs()),
                "answers": answers,
                "pairs": pairs(),
                "influence": None,
            },
        ),
        "influences": (
            a.influences,
            {"predict": _predict, "x": x, "nodes": nodes[:3], "step": 1e-4, "nudge": "either"},
        ),
        "largest_advantage": (a.largest_advantage, {"roc": ranking}),
        "link_scores": (a.link_scores, {"found": found, "pairs": pairs(), "direction": "max"}),
        "lira_scores": (a.lira_scores, {"ensemble": ensemble, "confidences": rng.random(30)}),
        "network_predict": (a.network_predict, {"network": _network(), "adjacency": graph().adjacency}),
        "public_knowledge": (a.public_knowledge, {"graph": graph(), "pairs": pairs()}),
        "pure_advantage": (a.pure_advantage, {"epsilon": 1.0}),
        "pure_auc": (a.pure_auc, {"epsilon": 1.0}),
        "quality": (a.quality, {"found": records, "true": records + 0.1, "side": 7}),
        "serve_model": (a.serve_model, {"model": fitted(), "graph": graph()}),
        "shadow_graph": (a.shadow_graph, {"graph": graph(), "per_class": 5, "seed": 0}),
        "single_pair": (a.single_pair, {**slots, "repeats": 4}),
        "pair_scores": (a.pair_scores, {**slots, "repeats": 4}),
        "supervised_scores": (
            a.supervised_scores,
            {"known": knowledge, "pairs": pairs(), "folds": 2, "seed": 0},
        ),
        "toggle_edge": (a.toggle_edge, {"graph": graph(), "pair": (0, 1)}),
    }


def audit_cases() -> dict[str, tuple[Callable[..., Any], Given]]:
    """Return each public function of ``gv.audit`` with arguments that it takes."""
    a, rng = audit, np.random.default_rng(0)
    small = a.SmallGraph.from_edges(4, [(0, 1)], directed=False, rng=rng)
    bound = a.one_run(40, 20, 15)
    query = _query()
    plan = gv.GAP(unit="undirected-edge", epsilon=1.0, hops=1).plan(num_nodes=40, num_classes=2)
    report = a.neighbor_test_query(query, UndirectedEdge(), pairs=2)
    scores = rng.random(40)
    runs = {"tp": 30, "with_canary": 40, "fp": 4, "without_canary": 40, "confidence": 0.99}
    noise = NoiseRecorder(rng)
    return {
        "PrivacyClaim": (a.PrivacyClaim, {"epsilon": 1.0, "delta": 0.0, "mu": None}),
        "Finding": (
            a.Finding,
            {"kind": "a", "epsilon": 1.0, "mu": 1.0, "first": small, "second": small},
        ),
        "LowerBound": (a.LowerBound, bound.__dict__),
        "NoiseRecorder": (a.NoiseRecorder, {"rng": rng, "hidden": None, "given": None, "zero_noise": False}),
        "NoiseRecorder.gaussian": (noise.gaussian, {"value": 0.0, "sigma": 1.0}),
        "NoiseRecorder.laplace": (noise.laplace, {"value": 0.0, "scale": 1.0}),
        "NoiseRecorder.flip": (noise.flip, {"bits": np.array([0, 1]), "epsilon": 1.0}),
        "NoiseRecorder.choose": (noise.choose, {"probabilities": np.array([0.5, 0.5])}),
        "PlanAudit": (
            a.PlanAudit,
            {
                "epsilon": 1.0,
                "claimed": 1.0,
                "delta": 0.0,
                "confidence": 0.9,
                "planted": (),
                "without_canaries": {},
            },
        ),
        "NeighborTestResult": (a.NeighborTestResult, {} if report is None else report.__dict__),
        "SmallGraph": (a.SmallGraph, small.__dict__),
        "SmallGraph.from_edges": (
            a.SmallGraph.from_edges,
            {"nodes": 4, "edges": [(0, 1)], "directed": False, "rng": rng},
        ),
        "SmallGraph.with_edges": (small.with_edges, {"edges": {(0, 1)}}),
        "SmallGraph.toggle_edge": (small.toggle_edge, {"pair": (0, 1)}),
        "SmallGraph.with_record": (small.with_record, {"node": 0, "x": small.x[0], "y": 0}),
        "clopper_pearson_lower": (
            a.clopper_pearson_lower,
            {"successes": 3, "trials": 9, "significance": 0.1},
        ),
        "clopper_pearson_upper": (
            a.clopper_pearson_upper,
            {"successes": 3, "trials": 9, "significance": 0.1},
        ),
        "audit_plan": (
            a.audit_plan,
            {"plan": plan, "confidence": 0.99, "seed": 0, "unsafe_noise_seed": None},
        ),
        "audit_training": (
            a.audit_training,
            {
                "model": gv.MLP(unit="undirected-edge", seed=0, epochs=1),
                "graph": graph(),
                "split": lambda one: one,
                "canaries": 10,
                "score": None,
                "seed": 0,
                "confidence": 0.9,
            },
        ),
        "odds_of_runs": (a.odds_of_runs, runs),
        "one_run": (
            a.one_run,
            {"canaries": 40, "guesses": 20, "correct": 15, "delta": 0.0, "confidence": 0.99},
        ),
        "one_run_gaussian": (
            a.one_run_gaussian,
            {"canaries": 40, "guesses": 20, "correct": 15, "delta": 1e-5, "confidence": 0.99},
        ),
        "audit_feature_mechanism": (
            a.audit_feature_mechanism,
            {"mechanism": MultiBit(epsilon=1.0, dim=4), "num_records": 64, "confidence": 0.99, "noise": None},
        ),
        "audit_label_mechanism": (
            a.audit_label_mechanism,
            {
                "mechanism": LabelRR(epsilon=1.0, classes=3),
                "num_records": 64,
                "confidence": 0.99,
                "noise": None,
            },
        ),
        "repeated_runs": (a.repeated_runs, {**runs, "delta": 0.0}),
        "neighbor_test": (
            a.neighbor_test,
            {
                "function": lambda small, noise: noise.laplace(len(small.edges), 1.0),
                "unit": "undirected-edge",
                "epsilon": 1.0,
                "delta": 0.0,
                "mu": None,
                "sensitivity": None,
                "neighbors": None,
                "seconds": 0.2,
                "pairs": 1,
                "nodes": 4,
                "runs": 4,
                "seed": 0,
            },
        ),
        "neighbor_test_mutual_edges": (
            a.neighbor_test_mutual_edges,
            {"query": _push(), "pairs": 2, "seed": 0},
        ),
        "neighbor_test_plan": (
            a.neighbor_test_plan,
            {"unit": UndirectedEdge(), "queries": (query,), "pairs": 2, "seed": 0},
        ),
        "neighbor_test_query": (
            a.neighbor_test_query,
            {"query": query, "unit": UndirectedEdge(), "pairs": 2, "seed": 0},
        ),
        "sampled_training": (
            a.sampled_training,
            {
                "scores": scores,
                "without_canary": scores - 1,
                "noise_multiplier": 1.0,
                "sampling_rate": 0.5,
                "steps": 2,
                "delta": 1e-5,
                "confidence": 0.9,
            },
        ),
        "summed_gaussian": (
            a.summed_gaussian,
            {"with_canary": scores, "without_canary": scores - 1, "delta": 1e-5, "confidence": 0.9},
        ),
    }


def sweep_cases(out: Path) -> dict[str, tuple[Callable[..., Any], Given]]:
    """Return ``gv.sweep`` with arguments that it takes, up to its plan: nothing is trained or spent."""

    def planned(**given: Any) -> None:
        def stop(plan: object) -> None:
            raise ConfigError("planned")

        gv.sweep(**{"on_plan": stop, **given, "out": out / "sweep"} | ({} if "out" not in given else given))

    planned.__signature__ = inspect.signature(gv.sweep)  # type: ignore[attr-defined]
    given = {
        "methods": ["gap"],
        "graph": gv.load_dataset("synthetic/tiny", recipe=None),
        "epsilon": [1.0],
        "settings": {"epochs": [1]},
        "recipe": None,
        "runs": 1,
        "seed": 0,
        "include_nonprivate": False,
        "resume": False,
        "jobs": 1,
        "backend": None,
        "on_progress": lambda stage, done, total: None,
        "unit": "undirected-edge",
        "delta": 1e-7,
        "mode": "strict",
    }
    return {"sweep": (planned, given)}


def _query() -> Any:
    plan = gv.GAP(unit="undirected-edge", epsilon=1.0, hops=1).plan(num_nodes=40, num_classes=2)
    assert plan is not None
    return plan.queries[0]


def _push() -> Any:
    model = gv.ClassCode(unit="node-record", epsilon=1.0, delta=1e-5, out_degree_bound=4)
    plan = model.plan(num_nodes=40, num_classes=2, num_features=3, num_training=20)
    assert plan is not None
    return next(one for one in plan.queries if type(one).__name__ == "OutEdgeSumQuery")


_CALLED = ("score", "neighbors", "on_plan", "on_progress")


def wrongly(function: Callable[..., Any], given: Given) -> Iterator[tuple[str, Given]]:
    """Yield arguments of which one is wrong, and which."""
    for name in inspect.signature(function).parameters:
        if name in given:
            for kind, value in WRONG.items():
                if kind == "pair" and name == "scores":
                    continue  # valid, and slow
                if callable(value) and (callable(given[name]) or name in _CALLED):
                    continue  # what the caller's function raises is the caller's
                yield f"{name}={kind}", {**given, name: value}


def top_cases(out: Path) -> dict[str, tuple[Callable[..., Any], Given]]:
    """Return functions of ``graphveil`` and methods of estimators with arguments that they take."""
    from graphveil import perturb
    from graphveil.lab import fidelity

    local: Given = {"unit": "local-attributes", "eps_x": 1.0, "eps_y": 1.0}
    edge: Given = {"unit": "undirected-edge", "epsilon": 1.0}
    own: dict[str, Given] = {"LPGNN": local, "SimGAT": local, "LabelPosterior": {**local, "eps_x": None}}
    cases: dict[str, tuple[Callable[..., Any], Given]] = {}
    for name in (
        "ClassCode",
        "GAP",
        "GAT",
        "GCN",
        "HeteroRR",
        "LPGNN",
        "LabelPosterior",
        "MLP",
        "PrivateGNN",
    ):
        kind = getattr(gv, name)
        try:
            whole = kind(**own.get(name, {"unit": "none"} if name in ("GCN", "GAT") else edge))
        except GraphveilError:
            continue
        cases[name] = (kind, whole.get_params())
    model, other = fitted(), graph().replace(y=graph().y.clone())
    saved = out / "saved"
    model.save(saved)
    noisy = perturb.edge_rand(graph(), epsilon=1.0, unit="undirected-edge")
    noisy.save(out / "noisy", source="a", target="b")
    public = {"unit": "undirected-edge", "public_edges": None, "private_nodes": None}
    cases |= {
        "fit": (
            gv.GCN(unit="none", seed=0, epochs=1).fit,
            {
                "graph": graph(),
                "on_progress": lambda stage, done, total: None,
                "workspace": None,
                "backend": None,
                "cache": None,
            },
        ),
        "preview": (gv.GAP(**edge).preview, {"graph": graph()}),
        "plan": (
            gv.GAP(**edge).plan,
            {
                "num_nodes": 40,
                "num_classes": 2,
                "num_features": 3,
                "num_training": 20,
                "num_labeled": 30,
            },
        ),
        "predict": (model.predict, {"graph": graph()}),
        "predict_proba": (
            model.predict_proba,
            {
                "graph": other,
                "assume_disjoint_edges": False,
                "assume_disjoint_nodes": False,
                "allow_spend": True,
                "workspace": None,
            },
        ),
        "privacy_cost": (model.privacy_cost, {"graph": other, "assume_disjoint_edges": False}),
        "is_fitted_graph": (model.is_fitted_graph, {"graph": other}),
        "guarantee_after": (model.guarantee_after, {"graph": other, "assume_disjoint_edges": False}),
        "score": (model.score, {"graph": graph(), "split": "test"}),
        "save": (model.save, {"folder": out / "again", "per_node": None}),
        "set_params": (model.set_params, {"epochs": 1}),
        "load_model": (gv.load_model, {"path": saved, "folder": saved}),
        "calibrate": (gv.calibrate, {"method": "gap", **edge, "delta": 1e-5, "hops": 1}),
        "compare": (gv.compare, {"graph": graph(), "released": graph(), "seed": 0, "sources": 4}),
        "fidelity.compare": (fidelity.compare, {"graph": graph(), "released": graph()}),
        "split": (gv.split, {"graph": graph(), "seed": 0}),
        "register": (gv.register, {"code": lambda graph: None, "name": None}),
        "private_hops": (
            gv.private_hops,
            {"graph": graph(), **edge, "hops": 1, "delta": 1e-7, "unsafe_noise_seed": 1},
        ),
        "ledger_of": (gv.ledger_of, {"edge_set": graph().edge_set}),
        "MemoryLedger": (gv.MemoryLedger, {"epsilon": 1.0, "delta": 1e-7, "entries": ()}),
        "list_datasets": (gv.list_datasets, {"root": None}),
        **{
            name: (getattr(perturb, name), {"graph": graph(), "epsilon": 1.0, **public})
            for name in ("edge_rand", "lap_graph", "arr", "priv_hrg")
        },
        "perturb.load": (
            perturb.load,
            {"folder": out / "noisy", "nodes": graph(), "source": "a", "target": "b"},
        ),
    }
    return {name: (call, _known(call, given)) for name, (call, given) in cases.items()}


def _known(call: Callable[..., Any], given: Given) -> Given:
    """Return the arguments that a function names, or takes by keyword."""
    names = inspect.signature(call).parameters
    return (
        given
        if any(one.kind is one.VAR_KEYWORD for one in names.values())
        else {k: v for k, v in given.items() if k in names}
    )


def privacy_cases() -> dict[str, tuple[Callable[..., Any], Given]]:
    """Return functions and events of ``gv.privacy`` with arguments that they take."""
    from graphveil import privacy as p
    from graphveil.ledger import Entry, joint_ledger

    event, unit = p.Gaussian(0.5), p.UndirectedEdge()
    guarantee = p.Guarantee.from_event(unit, event, delta=1e-7, releases=1)
    steps = {"noise_multiplier": 1.0, "sampling_rate": 0.1, "steps": 3}
    return {
        "Gaussian": (p.Gaussian, {"mu": 0.5}),
        "PureDP": (p.PureDP, {"epsilon": 0.5}),
        "ApproximateDP": (p.ApproximateDP, {"epsilon": 0.5, "delta": 1e-7}),
        "LocalReport": (p.LocalReport, {"part": "label", "epsilon": 0.5, "delta": 0.0}),
        "PoissonGaussian": (p.PoissonGaussian, {**steps, "relation": "replace"}),
        "PoissonRoots": (p.PoissonRoots, {**steps, "roots": 2, "relation": "replace"}),
        "Entry": (Entry, {"release_id": "a", "label": "b", "event": event, "unit": unit}),
        "Guarantee.from_event": (
            p.Guarantee.from_event,
            {"unit": unit, "event": event, "delta": 1e-7, "releases": 1},
        ),
        "max_tpr": (guarantee.max_tpr, {"fpr": 0.01}),
        "group_epsilon": (guarantee.group_epsilon, {"num_edges": 2}),
        "repeated": (guarantee.repeated, {"runs": 2}),
        "auto_delta": (p.auto_delta, {"unit": unit, "bound": 10}),
        "check_delta": (p.check_delta, {"unit": unit, "delta": 1e-7, "bound": 10}),
        "calibrate_mu": (p.calibrate_mu, {"epsilon": 1.0, "delta": 1e-7, "slack": 0.0}),
        "parse_unit": (p.parse_unit, {"name": "node-bounded-degree", "replace_one": False, "max_degree": 3}),
        "privacy_curve": (p.privacy_curve, {"event": event}),
        "joint_ledger": (joint_ledger, {"edge_sets": [graph().edge_set]}),
        "NodeRecord": (p.NodeRecord, {"replace_one": False}),
        "NodeBoundedDegree": (p.NodeBoundedDegree, {"max_degree": 3, "replace_one": False}),
    }


def collect_cases() -> dict[str, tuple[Callable[..., Any], Given]]:
    """Return functions of ``gv.collect`` and mechanisms on records with arguments that they take."""
    from graphveil import mechanisms
    from graphveil.local import collect

    protocol = collect.CollectionProtocol(
        features=MultiBit(epsilon=1.0, dim=2), label=LabelRR(epsilon=1.0, classes=3)
    )
    secret = b"s" * 32
    message = collect.randomize_record(protocol, node="a", secret=secret, features=[0.5, 0.5], label=1)
    answers: Given = {
        "protocol": protocol,
        "secret": secret,
        "max_eps": 8.0,
        "allow_unprotected_label": False,
    }
    law: Given = {"epsilon": 1.0, "dim": 2, "bounds": mechanisms.Bounds()}
    return {
        "CollectionProtocol": (
            collect.CollectionProtocol,
            {
                "features": protocol.features,
                "label": protocol.label,
                "columns": (),
                "class_names": (),
                "purpose": "",
            },
        ),
        "randomize_record": (
            collect.randomize_record,
            {**answers, "node": "a", "features": [0.5, 0.5], "label": 1},
        ),
        "randomize_records": (
            collect.randomize_records,
            {**answers, "nodes": ["a"], "features": np.zeros((1, 2)), "labels": np.array([1])},
        ),
        "check_limits": (
            collect.check_limits,
            {"protocol": protocol, "max_eps": 8.0, "allow_unprotected_label": False},
        ),
        "decode": (collect.decode, {"protocol": protocol, "node": "a", "encoded_report": message}),
        "Collector": (collect.Collector, {"protocol": protocol, "nodes": 1, "ids": ["a"]}),
        "Collector.accept": (
            collect.Collector(protocol, 1, ids=["a"]).accept,
            {"encoded_report": message, "node": 0},
        ),
        "Bounds": (mechanisms.Bounds, {"low": 0.0, "high": 1.0, "from_data": False}),
        "MultiBit": (MultiBit, {**law, "m": 1}),
        "FeatureRR": (mechanisms.FeatureRR, {**law, "k": 4, "mode": "stochastic", "decode": "unbiased"}),
        "AnalyticGaussian": (mechanisms.AnalyticGaussian, {**law, "delta": 1e-7}),
        "LabelRR": (LabelRR, {"epsilon": 1.0, "classes": 3}),
        "SubsetSelection": (mechanisms.SubsetSelection, {"epsilon": 1.0, "classes": 3}),
        "LocalHashing": (mechanisms.LocalHashing, {"epsilon": 1.0, "classes": 3}),
        "Laplace": (mechanisms.Laplace, {"epsilon": 1.0}),
        "LocalDPClaim": (mechanisms.LocalDPClaim, {"epsilon": 1.0, "delta": 0.0, "deviations": ()}),
        "LocalNoise": (mechanisms.LocalNoise, {"unsafe_noise_seed": 1}),
        "WeightedAllocation": (mechanisms.WeightedAllocation, {"theta": [0.5, 0.5]}),
        "analytic_sigma": (mechanisms.analytic_sigma, {"epsilon": 1.0, "delta": 1e-7, "sensitivity": 1.0}),
    }
