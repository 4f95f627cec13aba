"""Valid calls of public functions, and the wrong values that replace one argument of each in turn."""

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

import graphveil as gv
from graphveil import attacks, perturb
from graphveil import audit as a
from graphveil import mechanisms as m
from graphveil import privacy as p
from graphveil.audit import fidelity
from graphveil.audit.noise import NoiseRecorder
from graphveil.core.ledger import Entry, joint_ledger
from graphveil.data.conversion import load_pyg
from graphveil.errors import ConfigError
from graphveil.local import collect

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
CALLBACKS = ("score", "neighbors", "on_plan", "on_progress")
SLOW = {("scores", "pair")}  # valid


class Call(NamedTuple):
    """A function and arguments that it accepts, among them the default values."""

    function: Callable[..., Any]
    arguments: dict[str, Any]

    @property
    def name(self) -> str:
        """The qualified name of the function."""
        return self.function.__qualname__

    def run(self) -> Any:
        """Call the function with its valid arguments."""
        return self.function(**self.arguments)

    def with_one_wrong_argument(self) -> Iterator[tuple[str, "Call"]]:
        """Yield the call with each argument replaced by each wrong value, and a description of that."""
        for name, valid in self.arguments.items():
            for kind, value in WRONG.items():
                # An error of the caller's own function is not ours.
                callback = callable(value) and (callable(valid) or name in CALLBACKS)
                if not callback and (name, kind) not in SLOW:
                    changed = Call(self.function, {**self.arguments, name: value})
                    yield f"{self.name}: {name}={kind}", changed


def call(function: Callable[..., Any], /, **given: Any) -> Call:
    """Return the call of a function with these arguments and the default values of all others."""
    parameters = inspect.signature(function).parameters.values()
    hidden = (inspect.Parameter.empty, getattr(dataclasses, "_HAS_DEFAULT_FACTORY"))  # noqa: B009
    defaults = {one.name: one.default for one in parameters if one.default not in hidden}
    return Call(function, defaults | given)


@cache
def graph() -> gv.Graph:
    return gv.load_dataset("synthetic/tiny")


@cache
def fitted() -> gv.GCN:
    return gv.GCN(unit="none", seed=0, epochs=1).fit(graph())


def predict_zeros(x: Any) -> Any:
    return np.zeros((len(x), 2))


def attack_calls() -> list[Call]:
    """Return calls of the public names of ``gv.attacks``."""
    rng = np.random.default_rng(0)
    held = attacks.SecretEdges.from_adjacency(graph().adjacency)
    pairs = attacks.draw_pairs(held, count=40)
    scores, labels, records = rng.random(40), rng.random(40) < 0.5, rng.random((12, 49))
    roc = attacks.RocCurve.from_scores(scores, labels)
    knowledge = attacks.AdversaryKnowledge({"rows": rng.random((len(pairs.nodes), 2))})
    ensemble = attacks.Ensemble(rng.random((6, 30)) < 0.5, rng.random((6, 30)))
    many = attacks.Ensemble(rng.random((6, 300)) < 0.5, rng.random((6, 300)))
    answers = attacks.serve_model(fitted(), graph())
    predictor = gv.LinkPredictor(unit="undirected-edge", epsilon=1.0, seed=0).fit(graph())
    lpgnn = gv.LPGNN(unit="local-attributes", eps_x=1.0, eps_y=1.0, labels="rr", seed=0, epochs=1)
    bound, network = (
        attacks.theoretical_bound_of(fitted().guarantee),
        torch.nn.Linear(graph().num_features, 2),
    )
    one, other = np.array([0]), np.array([1])
    discriminator = attacks.fit_discriminator(rng.random((40, 2)), labels)
    shares = dict.fromkeys(("share", "unpoisoned", "poisoned", "checked", "robust", "unpoisoned_robust"), 0.1)
    single = {"score": lambda graph, seed: 0.5, "graph": graph(), "pair": (0, 1), "repeats": 4}
    return [
        call(attacks.Discriminator, network=discriminator.network, mean=np.zeros(2), scale=np.ones(2)),
        call(attacks.Ensemble, members=ensemble.members, confidences=ensemble.confidences),
        call(ensemble.without, number=0),
        call(attacks.AdversaryKnowledge, rows={"a": records}),
        call(knowledge.columns, one=one, other=other),
        call(attacks.LinkReport, pairs=pairs, attackers={}, theoretical_bound=bound, edge_source=""),
        call(attacks.LinkSettings),
        call(attacks.MembershipReport, attackers={"a": roc}, theoretical_bound=bound, unit="none", judged=3),
        call(attacks.MembershipSettings),
        call(attacks.Pairs, **vars(pairs)),
        call(attacks.PoisoningReport, strategy="random", **shares),
        call(attacks.RocCurve, **vars(roc)),
        call(attacks.RocCurve.from_scores, scores=scores, labels=labels),
        call(roc.tpr, fpr=0.1),
        call(roc.at_top, most=3.0),
        call(attacks.ReconstructionReport, qualities={}, drawn={}, epsilon=1.0),
        call(attacks.SecretEdges, matrix=held.matrix),
        call(attacks.SecretEdges.from_adjacency, adjacency=graph().adjacency),
        call(held.joined, one=one, other=other),
        call(attacks.ServedModel, **vars(answers)),
        call(attacks.attack_collection, model=lpgnn, graph=graph(), strategy="random", share=0.05),
        call(attacks.attack_links, model=fitted(), graph=graph(), settings=attacks.LinkSettings(nodes=60)),
        call(
            attacks.attack_membership,
            model=fitted(),
            graph=graph(),
            settings=attacks.MembershipSettings(per_class=5),
        ),
        call(
            attacks.attack_predict,
            predict=predict_zeros,
            x=graph().x,
            pairs=pairs,
            settings=attacks.LinkSettings(nodes=40),
        ),
        call(
            attacks.attack_records,
            public=records,
            secret=records + 0.1,
            mechanism=m.MultiBit(epsilon=1.0, dim=49),
            embed=lambda rows: rows,
            side=7,
        ),
        call(attacks.roc_auc, scores=scores, labels=labels),
        call(
            attacks.bayes_scores, ensemble=many, confidences=rng.random(300), edges=held, nodes=np.arange(30)
        ),
        call(attacks.theoretical_bound_of, guarantee=fitted().guarantee),
        call(attacks.correlations, rows=rng.random((300, 4)), pairs=pairs),
        call(attacks.draw_pairs, edges=held, count=40),
        call(
            attacks.exact_influences,
            network=getattr(fitted().fitted.trained, "network", network),
            x=graph().x,
            adjacency=graph().adjacency,
            nodes=pairs.nodes[:2],
        ),
        call(attacks.fit_discriminator, x=rng.random((40, 2)), kind=labels),
        call(attacks.fit_ensemble, model=gv.MLP(unit="none", seed=0, epochs=1), graph=graph(), count=4),
        call(
            attacks.full_knowledge,
            public=attacks.public_knowledge(graph(), pairs),
            answers=answers,
            pairs=pairs,
            influence=None,
        ),
        call(attacks.influences, predict=predict_zeros, x=graph().x, nodes=pairs.nodes[:3]),
        call(attacks.link_scores, found=np.zeros((len(pairs.nodes),) * 2), pairs=pairs),
        call(attacks.lira_scores, ensemble=ensemble, confidences=rng.random(30)),
        call(attacks.network_predict, network=network, adjacency=graph().adjacency),
        call(attacks.product_scores, model=predictor, graph=graph(), pairs=pairs),
        call(attacks.public_knowledge, graph=graph(), pairs=pairs),
        call(attacks.pure_advantage, epsilon=1.0),
        call(attacks.pure_auc, epsilon=1.0),
        call(attacks.quality, found=records, true=records + 0.1, side=7),
        call(attacks.serve_model, model=fitted(), graph=graph()),
        call(attacks.shadow_graph, graph=graph(), per_class=5, seed=0),
        call(attacks.pair_scores, **single),
        call(attacks.supervised_scores, known=knowledge, pairs=pairs),
        call(attacks.toggle_edge, graph=graph(), pair=(0, 1)),
    ]


def audit_calls() -> list[Call]:
    """Return calls of the public names of ``gv.audit``."""
    rng = np.random.default_rng(0)
    small = a.SmallGraph.from_edges(4, [(0, 1)], directed=False, rng=rng)
    plan = gv.GAP(unit="undirected-edge", epsilon=1.0, hops=1).plan(num_nodes=40, num_classes=2)
    model = gv.ClassCode(unit="node-record", epsilon=1.0, delta=1e-5, out_degree_bound=4)
    others = model.plan(num_nodes=40, num_classes=2, num_features=3, num_training=20)
    assert plan is not None and others is not None
    query = plan.queries[0]
    push = next(one for one in others.queries if type(one).__name__ == "OutEdgeSumQuery")
    tested = a.neighbor_test_plan(p.UndirectedEdge(), (query,), pairs=2)
    scores, noise = rng.random(40), NoiseRecorder(rng)
    guesses = {"canaries": 40, "guesses": 20, "correct": 15}
    runs = {"tp": 30, "with_canary": 40, "fp": 4, "without_canary": 40}
    rate = {"successes": 3, "trials": 9, "significance": 0.1}
    return [
        call(a.PrivacyClaim, epsilon=1.0, delta=0.0),
        call(a.Finding, kind="a", epsilon=1.0, mu=1.0, first=small, second=small),
        call(a.LowerBound, **vars(a.one_run(**guesses))),
        call(a.NoiseRecorder, rng=rng),
        call(noise.gaussian, value=0.0, sigma=1.0),
        call(noise.laplace, value=0.0, scale=1.0),
        call(noise.flip, bits=np.array([0, 1]), epsilon=1.0),
        call(noise.choose, probabilities=np.array([0.5, 0.5])),
        call(
            a.PlanAudit,
            epsilon=1.0,
            claimed=1.0,
            delta=0.0,
            confidence=0.9,
            planted=(),
            without_canaries={},
        ),
        call(a.NeighborTestResult, **({} if tested is None else vars(tested))),
        call(a.SmallGraph, **vars(small)),
        call(a.SmallGraph.from_edges, nodes=4, edges=[(0, 1)], directed=False, rng=rng),
        call(small.with_edges, edges={(0, 1)}),
        call(small.toggle_edge, pair=(0, 1)),
        call(small.with_record, node=0, x=small.x[0], y=0),
        call(a.clopper_pearson_lower, **rate),
        call(a.clopper_pearson_upper, **rate),
        call(a.audit_plan, plan=plan),
        call(
            a.audit_training,
            model=gv.MLP(unit="undirected-edge", seed=0, epochs=1),
            graph=graph(),
            split=lambda one: one,
            canaries=10,
        ),
        call(a.odds_of_runs, **runs),
        call(a.one_run, **guesses),
        call(a.one_run_gaussian, **guesses, delta=1e-5),
        call(a.audit_feature_mechanism, mechanism=m.MultiBit(epsilon=1.0, dim=4), num_records=64),
        call(a.audit_label_mechanism, mechanism=m.LabelRR(epsilon=1.0, classes=3), num_records=64),
        call(a.repeated_runs, **runs, delta=0.0),
        call(
            a.neighbor_test,
            function=lambda small, noise: noise.laplace(len(small.edges), 1.0),
            unit="undirected-edge",
            epsilon=1.0,
            seconds=0.2,
            pairs=1,
            nodes=4,
            runs=4,
        ),
        call(a.neighbor_test_mutual_edges, query=push, pairs=2),
        call(a.neighbor_test_plan, unit=p.UndirectedEdge(), queries=(query,), pairs=2),
        call(
            a.sampled_training,
            scores=scores,
            without_canary=scores - 1,
            noise_multiplier=1.0,
            sampling_rate=0.5,
            steps=2,
            delta=1e-5,
        ),
        call(a.summed_gaussian, with_canary=scores, without_canary=scores - 1, delta=1e-5),
    ]


def privacy_calls() -> list[Call]:
    """Return calls of functions and events of ``gv.privacy``."""
    event, unit = p.Gaussian(0.5), p.UndirectedEdge()
    guarantee = p.Guarantee.from_event(unit, event, delta=1e-7, releases=1)
    steps = {"noise_multiplier": 1.0, "sampling_rate": 0.1, "steps": 3}
    return [
        call(p.Gaussian, mu=0.5),
        call(p.PureDP, epsilon=0.5),
        call(p.ApproximateDP, epsilon=0.5, delta=1e-7),
        call(p.LocalReport, part="label", epsilon=0.5),
        call(p.PoissonGaussian, **steps, relation="replace"),
        call(p.PoissonRoots, **steps, roots=2, relation="replace"),
        call(Entry, release_id="a", label="b", event=event, unit=unit),
        call(p.Guarantee.from_event, unit=unit, event=event, delta=1e-7, releases=1),
        call(guarantee.max_tpr, fpr=0.01),
        call(guarantee.group_epsilon, num_edges=2),
        call(guarantee.repeated, runs=2),
        call(p.auto_delta, unit=unit, bound=10),
        call(p.check_delta, unit=unit, delta=1e-7, bound=10),
        call(p.calibrate_mu, epsilon=1.0, delta=1e-7),
        call(p.parse_unit, name="node-bounded-degree", max_degree=3),
        call(p.privacy_curve, event=event),
        call(joint_ledger, edge_sets=[graph().edge_set]),
        call(p.NodeRecord),
        call(p.NodeBoundedDegree, max_degree=3),
    ]


def collection_calls() -> list[Call]:
    """Return calls of functions of ``gv.collect`` and of mechanisms on records."""
    protocol = collect.CollectionProtocol(
        features=m.MultiBit(epsilon=1.0, dim=2), label=m.LabelRR(epsilon=1.0, classes=3)
    )
    secret = {"protocol": protocol, "secret": b"s" * 32}
    report = collect.randomize_record(**secret, node="a", features=[0.5, 0.5], label=1)
    collector = collect.Collector(protocol, 1, ids=["a"])
    law, label = {"epsilon": 1.0, "dim": 2}, {"epsilon": 1.0, "classes": 3}
    return [
        call(collect.CollectionProtocol, features=protocol.features, label=protocol.label),
        call(collect.randomize_record, **secret, node="a", features=[0.5, 0.5], label=1),
        call(
            collect.randomize_records,
            **secret,
            nodes=["a"],
            features=np.zeros((1, 2)),
            labels=np.array([1]),
        ),
        call(collect.check_limits, protocol=protocol),
        call(collect.decode, protocol=protocol, node="a", encoded_report=report),
        call(collect.Collector, protocol=protocol, nodes=1, ids=["a"]),
        call(collector.accept, encoded_report=report, node=0),
        call(m.Bounds),
        call(m.MultiBit, **law, m=1),
        call(m.FeatureRR, **law, k=4),
        call(m.AnalyticGaussian, **law, delta=1e-7),
        call(m.LabelRR, **label),
        call(m.SubsetSelection, **label),
        call(m.LocalHashing, **label),
        call(m.Laplace, epsilon=1.0),
        call(m.LocalDPClaim, epsilon=1.0, delta=0.0),
        call(m.LocalNoise, unsafe_noise_seed=1),
        call(m.WeightedAllocation, theta=[0.5, 0.5]),
        call(m.analytic_sigma, epsilon=1.0, delta=1e-7, sensitivity=1.0),
    ]


def estimator_calls(out: Path) -> list[Call]:
    """Return calls of functions of ``graphveil`` and of estimators and their methods."""
    edge: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 1.0}
    local: dict[str, Any] = {"unit": "local-attributes", "eps_x": 1.0, "eps_y": 1.0}
    models = [
        gv.ClassCode(**edge),
        gv.GAP(**edge),
        gv.MLP(**edge),
        gv.LPGNN(**local),
        gv.LabelPosterior(unit="local-attributes", eps_y=1.0),
    ]
    models += [gv.GAT(unit="none"), gv.GCN(unit="none")]
    model, other = fitted(), graph().replace(y=graph().y.clone())
    model.save(out / "saved")
    noisy = perturb.edge_rand(graph(), epsilon=1.0, unit="undirected-edge")
    noisy.save(out / "noisy", source="a", target="b")
    return [
        *(call(type(one), **one.get_params()) for one in models),
        call(gv.GCN(unit="none", seed=0, epochs=1).fit, graph=graph()),
        call(gv.GAP(**edge).preview, graph=graph()),
        call(gv.GAP(**edge).plan, num_nodes=40, num_classes=2, num_features=3, num_training=20),
        call(model.predict, graph=graph()),
        call(model.predict_proba, graph=other, allow_spend=True),
        call(model.privacy_cost, graph=other),
        call(model.is_fitted_graph, graph=other),
        call(model.guarantee_after, graph=other),
        call(model.score, graph=graph()),
        call(model.save, folder=out / "again"),
        call(model.set_params, epochs=1),
        call(gv.load_model, folder=out / "saved"),
        call(gv.calibrate, method="gap", **edge, delta=1e-5, hops=1),
        call(gv.compare, graph=graph(), released=graph(), sources=4),
        call(fidelity.compare, graph=graph(), released=graph()),
        call(gv.split, graph=graph()),
        call(gv.register, code=lambda graph: None),
        call(gv.private_hops, graph=graph(), **edge, hops=1, delta=1e-7, unsafe_noise_seed=1),
        call(gv.ledger_of, edge_set=graph().edge_set),
        call(gv.MemoryLedger, epsilon=1.0, delta=1e-7),
        call(gv.list_datasets),
        *(
            call(
                mechanism,
                graph=graph(),
                epsilon=1.0,
                unit="undirected-edge",
                public_edges=None,
                private_nodes=None,
                unsafe_noise_seed=1,
            )
            for mechanism in (perturb.edge_rand, perturb.lap_graph, perturb.arr, perturb.priv_hrg)
        ),
        call(perturb.load, folder=out / "noisy", nodes=graph(), source="a", target="b"),
    ]


def link_calls() -> list[Call]:
    """Return calls of the link predictor and its methods."""
    keywords: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 1.0}
    whole = graph()
    model = gv.LinkPredictor(**keywords, seed=0).fit(whole)
    pairs = np.array([[0, 1], [2, 3]])
    return [
        call(
            gv.LinkPredictor,
            **keywords,
            delta=1e-7,
            held_out=0.1,
            dim=2,
            seed=0,
            unsafe_noise_seed=1,
            max_units=100,
        ),
        call(gv.LinkPredictor(**keywords).fit, graph=whole),
        call(model.preview, graph=whole),
        call(model.predict_proba, pairs=pairs),
        call(model.decision_function, pairs=pairs),
        call(model.is_held_out, pairs=pairs),
        call(model.score, pairs=pairs, labels=np.array([0, 1]), metric="roc_auc"),
        call(model.top_k, nodes=np.array([0, 1]), k=2, exclude=whole),
    ]


def recommendation_calls() -> list[Call]:
    """Return calls of the recommender and its tables, which write to the current folder."""
    table = gv.Interactions.from_matrix(np.eye(4))
    purchases = load_pyg("data").HeteroData()
    purchases["user"].num_nodes = purchases["item"].num_nodes = 2
    purchases["user", "buys", "item"].edge_index = torch.zeros(2, 1, dtype=torch.int64)
    model = gv.Recommender(epsilon=1.0, unsafe_noise_seed=1).fit(table)
    model.save("items")
    return [
        call(gv.Interactions.from_matrix, matrix=np.eye(4)),
        call(gv.Interactions.from_columns, users=[1], items=[2], user_ids=[1], item_ids=[2]),
        call(gv.Interactions.from_pyg, data=purchases),
        call(gv.Recommender, epsilon=1.0),
        call(gv.Recommender(epsilon=1.0).preview, table=table),
        call(gv.Recommender(epsilon=1.0).fit, table=table),
        call(model.recommend, lists=[[0, 1]], k=2),
        call(model.save, folder="items again"),
        call(gv.Recommender.load, folder="items"),
    ]


def sweep_call(out: Path) -> Call:
    """Return a call of ``gv.sweep`` that stops at its plan: nothing is trained or charged."""

    def stop(plan: object) -> None:
        raise ConfigError("planned")

    def planned(**given: Any) -> None:
        gv.sweep(**{"on_plan": stop, "out": out / "sweep", **given})

    given: dict[str, Any] = {"methods": ["gap"], "epsilon": [1.0], "settings": {"epochs": [1], "hops": [1]}}
    given |= {"unit": "undirected-edge", "max_units": None, "unsafe_noise_seed": None}
    planned.__signature__ = inspect.signature(gv.sweep)  # type: ignore[attr-defined]
    arguments = call(gv.sweep, **given, graph=gv.load_dataset("synthetic/tiny", recipe=None)).arguments
    arguments |= {
        "delta": 1e-7,
        "private_metrics": False,
        "on_plan": stop,
        "out": out / "sweep",
    }
    return Call(planned, arguments)
