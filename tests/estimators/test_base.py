"""The behavior that all estimators share."""

import errno
import os
import re
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

import graphveil as gv
from graphveil._util.figures import format_upper_bound
from graphveil.core.accounting.gaussian import epsilon_of
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.ledger import MemoryLedger, attach_ledger, ledger_of
from graphveil.data.recipes import ISOLATED_DROPPED, NO_CROSSING
from graphveil.errors import ConfigError, GraphError, NotImplementedGuaranteeError, UnitError
from graphveil.estimators import METHODS
from graphveil.estimators.base import Estimator
from graphveil.estimators.gap import GAP

ALL: dict[str, dict[str, Any]] = {
    "mlp": {"unit": "undirected-edge", "epochs": 3},
    "gap": {"unit": "undirected-edge", "epsilon": 2.0, "epochs": 3},
    "sage": {"unit": "none", "epochs": 3},
    "gcn": {"unit": "none", "epochs": 3},
    "gat": {"unit": "none", "epochs": 3},
}
PRIVATE = {"gap": ALL["gap"]}


def build(method: str, **changes: Any) -> Estimator:
    return METHODS[method](**{"seed": 0, **ALL[method.removesuffix("-paper")], **changes})


@pytest.fixture(params=ALL)
def method(request) -> str:
    return request.param


class TestConfiguration:
    def test_get_params_returns_the_constructor_keywords(self, method):
        model = build(method, epochs=7)
        again = type(model)(**model.get_params())
        assert again.get_params() == model.get_params()
        assert again.get_params()["epochs"] == 7

    def test_parameters_are_configuration_only(self, method, graph):
        model = build(method).fit(graph)
        assert not [name for name in model.get_params() if name.endswith("_") or name.startswith("_")]
        assert all(
            isinstance(value, int | float | str | bool | None) for value in model.get_params().values()
        )

    def test_the_unit_has_no_default(self, method):
        with pytest.raises(
            UnitError, match=r"no default privacy unit.*directed-edge, row, node, node-record, person"
        ):
            METHODS[method]()

    @pytest.mark.parametrize("name", ["replace_one", "private_metrics"])
    def test_rejects_truthy_values_that_are_not_bool(self, method, name):
        with pytest.raises(ConfigError, match=f"{name}=0.5 must be True or False"):
            build(method, **{name: 0.5})

    def test_rejects_edge_weights_that_are_not_text(self):
        with pytest.raises(ConfigError, match="weights=1 must be text"):
            build("gap", weights=1)

    def test_set_params_suggests_the_closest_name(self, method):
        with pytest.raises(ConfigError, match=r"'epoch' is not a parameter of .*; did you mean 'epochs'\?"):
            build(method).set_params(epoch=5)

    def test_set_params_checks_values_and_is_atomic(self, method):
        model = build(method)
        assert model.set_params(epochs=4).get_params()["epochs"] == 4
        with pytest.raises(ConfigError, match=r"activation='rellu' is not one of .*did you mean 'relu'"):
            model.set_params(epochs=9, activation="rellu")
        assert (model.get_params()["epochs"], model.get_params()["activation"]) == (4, "selu")

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"seed": -1}, "seed=-1 must be a whole number of at least 0"),
            ({"hidden": 0}, "hidden=0 must be a whole number of at least 1"),
            ({"hidden": 10**12}, "hidden=1000000000000 must be at most 16,384"),
            ({"dropout": 1.0}, "dropout=1.0 must lie between 0 and 0.99"),
            ({"epochs": 0}, "epochs=0 must be a whole number of at least 1"),
            ({"max_units": 0}, "max_units=0 must be a whole number of at least 1"),
        ],
    )
    def test_rejects_values_outside_their_range(self, method, wrong, message):
        with pytest.raises(ConfigError, match=message):
            build(method, **wrong)

    def test_numpy_numbers_become_python_numbers(self, method):
        given = {
            "seed": np.int64(3),
            "epochs": np.uint8(3),
            "delta": np.float32(2**-20),
            "dropout": np.float16(0),
        }
        given |= {"epsilon": np.longdouble(2)} if method in PRIVATE else {}
        model = build(method, **given)
        assert not any(isinstance(value, np.generic) for value in model.get_params().values())
        plain = build(method, **{name: value.item() for name, value in given.items()} | {"delta": 2**-20})
        assert model.get_params() == plain.get_params()
        model.set_params(seed=np.int32(7))
        model.epochs = np.int16(9)
        assert (type(model.seed), type(model.epochs)) == (int, int)

    def test_edge_subset_needs_a_released_graph(self, method):
        if method == "mlp":  # which reads no edge
            build(method, unit="edge-subset")
            return
        with pytest.raises(
            NotImplementedGuaranteeError,
            match="does not support unit 'edge-subset'",
        ):
            build(method, unit="edge-subset")

    def test_rejects_the_local_unit(self, method):
        with pytest.raises(UnitError, match="Use method 'auto', 'lpgnn' or 'simgat'"):
            build(method, unit="local-attributes")

    @pytest.mark.parametrize("method", PRIVATE)
    def test_a_private_unit_needs_a_budget(self, method):
        with pytest.raises(ConfigError, match="needs a privacy budget"):
            build(method, epsilon=None)

    @pytest.mark.parametrize("method", PRIVATE)
    @pytest.mark.parametrize("epsilon", [0, -1, float("inf"), float("nan")])
    def test_the_budget_is_a_positive_number(self, method, epsilon):
        with pytest.raises(ConfigError, match=r"epsilon=.* must be a finite number above 0"):
            build(method, epsilon=epsilon)


class TestPlan:
    @pytest.mark.parametrize("method", sorted(set(ALL) - set(PRIVATE)))
    def test_plan_is_none_if_nothing_is_queried(self, method):
        assert build(method).plan(num_nodes=1000, num_classes=4) is None

    @pytest.mark.parametrize("method", PRIVATE)
    def test_delta_is_below_one_over_the_number_of_units(self, method, graph):
        with pytest.raises(ConfigError, match=r"delta=0\.01 is outside the range of the proofs"):
            build(method, delta=0.01).fit(graph)
        build(method, delta=1e-4).fit(graph)
        with pytest.raises(ConfigError, match=r"delta=0\.0001 must be below 1/B = 1e-05"):
            build(method, delta=1e-4, max_units=100_000).fit(graph)


class TestFit:
    def test_results(self, method, graph):
        model = build(method).fit(graph)
        proba = model.predict_proba()
        assert proba.shape == (graph.num_nodes, graph.num_classes)
        torch.testing.assert_close(proba.sum(1), torch.ones(graph.num_nodes))
        assert torch.equal(model.predict(), proba.argmax(1))
        expected = float((model.predict() == graph.y)[graph.labeled_in("test")].float().mean())
        assert model.score(graph) == pytest.approx(expected)
        assert model.seconds_["total"] > 0
        assert len([row for stage, row in model.history_ if stage == "classifier"]) == 3

    def test_one_seed_one_model(self, method, make_graph):
        results = [
            build(method, unsafe_noise_seed=1, **changes).fit(make_graph()).predict_proba()
            for changes in ({}, {}, {"seed": 1})
        ]
        assert torch.equal(results[0], results[1])
        assert not torch.equal(results[0], results[2])

    def test_progress_is_reported(self, method, graph):
        seen: list[tuple[str, int, int]] = []
        build(method).fit(graph, on_progress=lambda *report: seen.append(report))
        assert ("classifier", 2, 3) in seen
        assert all(0 <= done <= total for _, done, total in seen)

    def test_sparse_and_dense_features_agree(self, method, make_graph):
        dense, sparse = (
            build(method, unsafe_noise_seed=1).fit(make_graph(as_sparse=kind)).predict_proba()
            for kind in (False, True)
        )
        torch.testing.assert_close(dense, sparse, atol=1e-5, rtol=1e-5)

    def test_a_split_is_needed(self, method, graph):
        bare = graph.replace(train_mask=None, val_mask=None, test_mask=None)
        with pytest.raises(GraphError, match="has no split"):
            build(method).fit(bare)
        none = torch.zeros(graph.num_nodes, dtype=torch.bool)
        for train, val, part in ((none, graph.val_mask, "train"), (graph.train_mask, none, "val")):
            with pytest.raises(GraphError, match=f"no labeled {part} nodes"):
                build(method).fit(graph.with_split(train, val, none))
        lone = torch.arange(graph.num_nodes) == 7
        with pytest.raises(GraphError, match=r"one labeled train node, .* which takes two; label more"):
            build(method).fit(graph.with_split(lone, graph.val_mask, none))
        assert ledger_of(graph.edge_set).entries == ()

    def test_rejects_labels_of_one_class(self, method, graph):
        for label in (-1, 1):
            same = graph.replace(y=torch.full_like(graph.y, label))
            with pytest.raises(GraphError, match="fewer than two classes"):
                build(method).fit(same)
        assert ledger_of(graph.edge_set).entries == ()

    def test_predictions_need_no_labels(self, method, graph, make_graph):
        model = build(method, unsafe_noise_seed=1).fit(graph)
        other = make_graph(seed=1)
        bare = other.replace(y=torch.full_like(other.y, -1), train_mask=None, val_mask=None, test_mask=None)
        assert torch.equal(model.predict_proba(bare), model.predict_proba(other))

    def test_a_failed_fit_leaves_no_old_predictions(self, method, graph, make_graph):
        model = build(method).fit(graph)

        def stop(stage: str, done: int, total: int) -> None:
            if stage == "classifier":
                raise RuntimeError

        with pytest.raises(RuntimeError):
            model.fit(make_graph(seed=1), on_progress=stop)
        with pytest.raises(ConfigError, match="not fitted"):
            model.predict()

    def test_another_graph_needs_the_same_columns(self, method, graph, make_graph):
        model = build(method).fit(graph)
        other = make_graph(seed=1)
        narrow = other.replace(x=other.x[:, :5])
        for call in (model.predict_proba, model.privacy_cost):
            with pytest.raises(GraphError, match="has 5 features, but the model was trained on 8"):
                call(narrow)
        assert ledger_of(narrow.edge_set).entries == ()

    @pytest.mark.parametrize("as_sparse", [False, True])
    def test_rejects_features_whose_squares_overflow(self, method, make_graph, as_sparse):
        other = make_graph(seed=1)

        def with_column_five(scale: float) -> gv.Graph:
            x = other.x.numpy() * np.where(np.arange(8) == 5, -scale, 1).astype(np.float32)
            return other.replace(x=sparse.csr_array(x) if as_sparse else x)

        plain = build(method, feature_scaling="none")
        loud, model = with_column_five(3e38), plain.fit(make_graph(as_sparse=as_sparse))
        again = build(method, feature_scaling="none")
        for call in (model.predict_proba, model.privacy_cost, again.fit, again.preview):
            with pytest.raises(GraphError, match=r"above 2\^63 in column 5 \(index from 0\)"):
                call(loud)
        assert ledger_of(loud.edge_set).entries == ()
        assert build(method).fit(with_column_five(2.0**63)).predict_proba().isfinite().all()

    def test_errors_name_the_table_column_that_overflows(self, method):
        nodes = {"user": [0, 1, 2, 3], "team": [*"abab"], "far": [[1.0, 3e38]] * 4, "age": [1, 2, 3, 4]}
        nodes |= {"fold": ["train", "train", "val", "test"]}
        roles = {"id": "user", "label": "team", "split": "fold", "source": "a", "target": "b"}
        graph = gv.Graph.from_frames(nodes, {"a": [0], "b": [1]}, **roles)
        with pytest.raises(GraphError, match=r"above 2\^63 in column 'far',") as rejection:
            build(method, feature_scaling="none").fit(graph)
        assert "e38" not in str(rejection.value)

    def test_another_graph_is_predicted(self, method, graph, make_graph):
        little_noise = {"epsilon": 50.0, "unsafe_noise_seed": 0} if method in PRIVATE else {}
        model = build(method, epochs=30, **little_noise).fit(graph)
        other = make_graph(seed=1, nodes=90)
        unsplit = other.replace(train_mask=None, val_mask=None, test_mask=None)
        assert model.predict_proba(unsplit).shape == (90, 3)
        assert model.score(other) > 0.4


class TestFolders:
    def places(self, tmp_path) -> list[str]:
        """Return folders that cannot be made, and one on a disk without room."""
        (tmp_path / "file").write_text("taken")
        return [str(tmp_path / "file" / "below"), str(tmp_path / ("a" * 256)), "nul\0", None, 5, b"bytes"]

    def test_saves_atomically_or_raises(self, method, graph, tmp_path, monkeypatch):
        model = build(method).fit(graph)
        for place in [*self.places(tmp_path), "", "."]:
            with pytest.raises(ConfigError, match=r"cannot write to|folder (must|is too long|needs)"):
                model.save(place)
        with pytest.raises(ConfigError, match="folder must be a path"):
            gv.load_model(None)

        def full(handle: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch, pytest.raises(ConfigError, match="make room"):
            patch.setattr(os, "fsync", full)
            model.save(tmp_path / "new")
        assert [path.name for path in tmp_path.iterdir()] == ["file"]  # nothing is left of any
        model.save(tmp_path / "new")
        assert torch.equal(gv.load_model(tmp_path / "new").predict_proba(), model.predict_proba())

    @pytest.mark.parametrize("name", ["workspace", "cache"])
    def test_rejects_unusable_folders_before_a_charge(self, method, graph, tmp_path, name):
        for place in filter(None, self.places(tmp_path)):
            with pytest.raises(ConfigError, match=rf"[Cc]annot write to|{name} (must|is)"):
                build(method).fit(graph, **{name: place})
        assert ledger_of(graph.edge_set).entries == ()


class TestGuarantee:
    def test_rejects_units_that_do_not_fit_the_graph(self, make_graph):
        with pytest.raises(UnitError, match="needs an undirected graph"):
            build("gap").fit(make_graph(directed=True))
        assert build("gap", unit="directed-edge").fit(make_graph(directed=True)).guarantee.valid

    @pytest.mark.parametrize(
        ("epsilon", "delta", "actual"),
        [(4, 1e-7, 5.893), (1, 1e-7, 1.448), (8, 1e-7, 12.01), (4, 1e-5, 5.993), (0.1, 1e-5, 0.1461)],  # up
    )
    def test_rejects_the_directed_unit_for_an_undirected_graph(self, graph, epsilon, delta, actual):
        model = build("gap", unit="directed-edge", epsilon=epsilon, delta=delta)
        with pytest.raises(
            UnitError, match=r"use unit='undirected-edge' \(--unit undirected-edge\)"
        ) as rejection:
            model.fit(graph)
        assert f"epsilon {actual:g} (delta {delta:g})" in str(rejection.value)
        assert ledger_of(graph.edge_set).entries == ()

    def test_a_method_as_published_lists_deviations(self, graph):
        model = build("gap-paper", unit="directed-edge", epsilon=4.0, delta=1e-7).fit(graph)
        assert not model.guarantee.valid
        undirected = epsilon_of(2**0.5 * model.plan_.mu, 1e-7 - model.plan_.slack)
        listed = " ".join(model.guarantee.deviations)
        assert "Renyi accounting" in listed
        assert f"an undirected edge is protected at eps = {format_upper_bound(undirected)} only" in listed
        assert (
            f"is protected at eps = {format_upper_bound(undirected)}." in model.guarantee.formal_statement()
        )
        assert model.guarantee.formal_statement().startswith("No valid guarantee. Known")

    def test_undirected_edges_have_one_epsilon_with_edge_weights(self, graph):
        found = build("gap-paper", unit="directed-edge", epsilon=4.0, weights="sigmoid_cos")
        guarantee = found.preview(graph).guarantee
        words = re.findall(r"is protected at eps = ([\d.]+\d)", guarantee.formal_statement())
        assert words == [format_upper_bound(guarantee.mutual_epsilon)] * 2

    @pytest.mark.parametrize("other", [None, np.eye(3), "graph"])
    def test_rejects_other_types_than_graphs(self, method, other):
        with pytest.raises(GraphError, match=f"got a {type(other).__name__}. Create one with load_dataset"):
            build(method).fit(other)

    def test_deviations_belong_to_the_method(self, graph):
        class Exact(METHODS["gap"]):
            deviations = ("another flaw",)

        keywords = {"unit": "undirected-edge", "epsilon": 2.0}
        assert "Renyi" in METHODS["gap-paper"](**keywords).preview(graph).guarantee.formal_statement()
        assert Exact(**keywords).preview(graph).guarantee.deviations == ("another flaw",)
        assert "Renyi" not in METHODS["mlp-paper"](**keywords).preview(graph).guarantee.formal_statement()

    @pytest.mark.parametrize("method", ["gap", "mlp", "classcode"])
    def test_paper_preparation_of_a_graph_invalidates_a_strict_guarantee(self, method):
        graph = gv.load_dataset("synthetic/tiny", mode="paper")
        model = METHODS[method](unit="undirected-edge", epsilon=2.0, seed=0)
        for guarantee in (model.preview(graph).guarantee, model.fit(graph).guarantee):
            assert not guarantee.valid
            assert guarantee.deviations == (ISOLATED_DROPPED,)
            assert "isolated nodes were dropped" in guarantee.formal_statement()
        assert model.preview(gv.load_dataset("synthetic/tiny")).guarantee.valid

    def test_notes_of_a_recipe_are_listed_once(self, graph):
        plain = build("gap").preview(graph).guarantee
        weighted = gv.load_dataset("synthetic/tiny", recipe="weighted")
        found = build("gap").preview(weighted).guarantee
        assert (plain.notes, found.notes) == ((), (NO_CROSSING,))  # the summary always lists public labels
        assert found.valid and build("gap", unit="none").preview(weighted).guarantee.notes == ()

    def test_a_noise_seed_invalidates_the_guarantee(self, graph):
        assert build("gap").fit(graph).guarantee.valid
        seeded = build("gap", unsafe_noise_seed=3).fit(graph).guarantee
        assert not seeded.valid
        assert "the noise is reproducible from a seed" in seeded.deviations

    @pytest.mark.parametrize("at", [("encoder", 0), ("classifier", 0)])
    def test_a_fit_resumed_without_its_noise_seed_stays_invalid(self, graph, tmp_path, at):
        def stop(stage: str, done: int, total: int) -> None:
            if (stage, done) == at:
                raise RuntimeError

        with pytest.raises(RuntimeError):
            build("gap", unsafe_noise_seed=3).fit(graph, on_progress=stop, workspace=tmp_path / "fit")
        resumed = build("gap").fit(graph, workspace=tmp_path / "fit")
        seeded = build("gap", unsafe_noise_seed=3).fit(graph)
        assert torch.equal(resumed.aggregates_["hop1"], seeded.aggregates_["hop1"])
        assert resumed.guarantee.deviations == seeded.guarantee.deviations
        assert not resumed.guarantee.valid

    def test_unit_none_has_no_guarantee(self, method, graph):
        guarantee = build(method, unit="none", epsilon=None).fit(graph).guarantee
        assert (guarantee.valid, guarantee.epsilon, guarantee.releases) == (False, float("inf"), 0)
        assert guarantee.formal_statement().startswith("No privacy")


class TestBudget:
    @pytest.mark.parametrize("method", PRIVATE)
    def test_every_fit_charges_one_release(self, method, graph):
        model = build(method)
        for fits in (1, 2):
            model.fit(graph)
            entries = ledger_of(graph.edge_set).entries
            assert len(entries) == fits
            assert all(entry.event == model.guarantee.event for entry in entries)
            assert entries[-1].label == method and len(entries[-1].event.events) == 2  # hops
            assert len({entry.release_id for entry in entries}) == fits

    @pytest.mark.parametrize("method", PRIVATE)
    def test_charges_before_any_work(self, method, graph):
        def stop(stage: str, done: int, total: int) -> None:
            if stage == "encoder":
                raise RuntimeError

        with pytest.raises(RuntimeError):
            build(method).fit(graph, on_progress=stop)
        assert len(ledger_of(graph.edge_set).entries) == 1

    @pytest.mark.parametrize("method", PRIVATE)
    def test_rejects_a_spent_budget_before_any_work(self, method, graph):
        attach_ledger(graph.edge_set, MemoryLedger(epsilon=2.5, delta=1e-7))
        build(method, delta=1e-7).fit(graph)
        stages: list[str] = []
        with pytest.raises(gv.errors.BudgetError, match="would bring the total to epsilon"):
            build(method, delta=1e-7).fit(graph, on_progress=lambda stage, *_: stages.append(stage))
        assert set(stages) == {"calibrate"}

    @pytest.mark.parametrize(
        ("changes", "deviation"),
        [
            ({}, None),
            ({"unsafe_noise_seed": 3}, "reproducible from a seed"),
            ({"method": "gap-paper"}, "Renyi accounting"),
            ({"method": "gap-paper", "unit": "directed-edge"}, "stored twice"),
        ],
    )
    def test_privacy_cost_is_that_of_the_release(self, graph, make_graph, changes, deviation):
        model, other = build(**{"method": "gap", **changes}).fit(graph), make_graph(seed=1, nodes=90)
        privacy_cost = model.privacy_cost(other)
        assert ledger_of(other.edge_set).entries == ()
        model.predict(other)
        (entry,) = ledger_of(other.edge_set).entries
        assert (entry.event, entry.slack) == (privacy_cost.event, privacy_cost.slack)
        assert privacy_cost.valid is (deviation is None)
        assert deviation is None or deviation in privacy_cost.formal_statement()

    def test_privacy_cost_lists_deviations_of_model_and_graph(self, graph, make_graph):
        model = build("gap").fit(graph.replace(deviations=("a flaw of the first",)))
        assert not model.privacy_cost(make_graph(seed=1)).valid
        other = make_graph(seed=1).replace(deviations=("a flaw of the second",))
        assert set(model.privacy_cost(other).deviations) == {"a flaw of the first", "a flaw of the second"}

    @pytest.mark.parametrize(
        ("unit", "more"), [("undirected-edge", {}), ("node-record", {"out_degree_bound": 3}), ("none", {})]
    )
    def test_rejects_edge_weights_that_would_be_ignored(self, graph, unit, more):
        source, target = graph.adjacency.edge_index()
        adjacency = Adjacency.from_edges(
            source,
            target,
            num_nodes=150,
            directed=False,
            weight=torch.ones(len(source)),
            max_weight=1.0,
        )
        weighted = graph.replace(adjacency=adjacency)
        with pytest.raises((ConfigError, NotImplementedGuaranteeError), match=r"[Rr]emove them"):
            GAP(unit=unit, epsilon=None if unit == "none" else 2.0, **more).fit(weighted)
        assert ledger_of(adjacency.edge_set).entries == ()

    @pytest.mark.parametrize("method", PRIVATE)
    def test_rejects_another_graph_of_the_wrong_kind_before_a_charge(self, method, graph, make_graph):
        model = build(method).fit(graph)
        other = make_graph(seed=1, directed=True)
        with pytest.raises(UnitError, match="this graph is directed"):
            model.predict(other)
        assert ledger_of(other.edge_set).entries == ()
