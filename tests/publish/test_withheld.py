"""Saved models under units of records: what is withheld, where it goes, and how it comes back."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.core.ledger import ledger_of
from graphveil.core.unit import UNITS, NodeUnit
from graphveil.data import RECIPES, Graph, synthetic
from graphveil.errors import ArtifactError, ConfigError
from graphveil.estimators.base import Estimator
from graphveil.estimators.saved import load_model
from graphveil.publish.release_folder import FILES, PER_NODE, ROWS_PAGE, read_guarantee, withheld_files

OWNER = {"unit": "node-record", "epsilon": 1.0, "delta": 1e-5, "out_degree_bound": 5}
BOUNDED = {"unit": "node-bounded-degree", "epsilon": 1.0, "delta": 1e-5, "max_degree": 299}
BY_UNIT = pytest.mark.parametrize(
    "configuration", [OWNER, BOUNDED], ids=["node-record", "node-bounded-degree"]
)
KEPT_BACK = {
    "node-record": {"predictions.parquet"},
    "node-bounded-degree": {"predictions.parquet", "aggregates.safetensors"},
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return RECIPES["gap"].on_clients().split(synthetic("tiny"), seed=0)


@pytest.fixture
def run(double: type[Estimator], graph: Graph, tmp_path: Path, configuration: dict[str, Any]) -> Path:
    """A folder laid out as a run's, and the model that it was saved from."""
    model = double(seed=0, **configuration).fit(graph)
    model.save(tmp_path / "run" / "release", per_node=tmp_path / "run" / PER_NODE)
    np.save(tmp_path / "expected.npy", model.predict_proba().numpy())
    return tmp_path / "run"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_every_unit_of_records_withholds_predictions() -> None:
    for name, unit in UNITS.items():
        assert ("predictions.parquet" in withheld_files(name)) is issubclass(unit, NodeUnit)


@BY_UNIT
def test_rows_that_depend_on_their_own_record_are_no_part_of_the_release(
    run: Path, configuration: dict[str, Any]
) -> None:
    kept_back = KEPT_BACK[configuration["unit"]]
    assert names(run / "release") == set(FILES) - kept_back
    assert names(run / PER_NODE) == {*kept_back, ROWS_PAGE}
    page = (run / PER_NODE / ROWS_PAGE).read_text()
    assert "row v only for people authorized to access the record of v" in page
    assert all(name in page for name in kept_back)


@BY_UNIT
def test_a_run_folder_comes_back_with_its_rows(
    run: Path, tmp_path: Path, configuration: dict[str, Any]
) -> None:
    loaded = load_model(run)
    assert loaded.get_params().items() >= configuration.items()
    assert np.array_equal(loaded.predict_proba().numpy(), np.load(tmp_path / "expected.npy"))
    assert set(loaded.aggregates_) == {"hop1"}


@BY_UNIT
def test_a_release_alone_states_that_it_has_no_predictions(
    run: Path, tmp_path: Path, configuration: dict[str, Any]
) -> None:
    for alone in (run / "release", run):
        loaded = load_model(alone)
        request = (
            loaded.predict,
            loaded.predict_proba,
            partial(loaded.save, tmp_path / "again", per_node=tmp_path / "rows"),
        )
        for query in request:
            with pytest.raises(
                ArtifactError, match=r"no predictions.*authorized to access the record of a node.*per_node"
            ):
                query()
        assert loaded.guarantee.valid
        assert loaded.guarantee.formal_statement()
        assert set(loaded.aggregates_) == ({"hop1"} if configuration is OWNER else set())
        shutil.rmtree(run / PER_NODE, ignore_errors=True)


@BY_UNIT
def test_a_release_alone_still_predicts_another_graph(run: Path, configuration: dict[str, Any]) -> None:
    other = synthetic("tiny", seed=1)
    assert load_model(run / "release").predict_proba(other).shape == (other.num_nodes, other.num_classes)
    assert ledger_of(other.edge_set).entries == ()


@pytest.mark.parametrize("configuration", [OWNER])
def test_the_folder_of_rows_may_be_named(run: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    (run / PER_NODE).rename(moved)
    assert len(load_model(run, per_node=moved).predict()) == 300
    assert len(load_model(run / "release", per_node=moved).predict()) == 300
    with pytest.raises(ArtifactError, match=r"predictions\.parquet is missing"):
        load_model(run, per_node=tmp_path)


@BY_UNIT
def test_pages_and_guarantee_need_the_release_alone(run: Path, configuration: dict[str, Any]) -> None:
    shutil.rmtree(run / PER_NODE)
    found_guarantee = read_guarantee(run)
    assert found_guarantee.guarantee.unit == configuration["unit"]
    card = (run / "release" / "MODEL_CARD.md").read_text()
    assert "This release contains no predictions" in card
    assert "model.predict()" not in card
    page = (run / "release" / "PRIVACY.md").read_text()
    assert "Queries of the records" in page
    assert "a particular person's record" in page
    assert ("relies on the data owner" in page) is (configuration is BOUNDED)


# -- misuse and hostile folders ----------------------------------------------------------------------------


def test_a_unit_that_withholds_nothing_needs_no_second_folder(graph: Graph, tmp_path: Path) -> None:
    model = gv.MLP(unit="undirected-edge", seed=0, epochs=1).fit(graph)
    with pytest.raises(ConfigError, match="already part of the release"):
        model.save(tmp_path / "model", per_node=tmp_path / PER_NODE)
    assert names(tmp_path) == set()


@pytest.mark.parametrize("used", ["model", PER_NODE])
def test_saving_never_replaces_anything(
    double: type[Estimator], graph: Graph, tmp_path: Path, used: str
) -> None:
    model = double(seed=0, **OWNER).fit(graph)
    (tmp_path / used).mkdir()
    (tmp_path / used / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="Save to a new folder"):
        model.save(tmp_path / "model", per_node=tmp_path / PER_NODE)
    assert names(tmp_path) == {used}


@pytest.mark.parametrize(
    ("configuration", "name"),
    [(unit, name) for unit in (OWNER, BOUNDED) for name in sorted(KEPT_BACK[unit["unit"]])],
)
def test_a_release_with_what_its_unit_withholds_is_rejected(run: Path, name: str) -> None:
    shutil.copy(run / PER_NODE / name, run / "release")
    for read in (load_model, read_guarantee):
        with pytest.raises(ArtifactError, match=f"contains {name}.*Move it to per_node/"):
            read(run)


@pytest.mark.parametrize("configuration", [BOUNDED])
def test_hostile_rows_are_rejected(run: Path, tmp_path: Path) -> None:
    def linked() -> None:
        (run / PER_NODE / "predictions.parquet").rename(tmp_path / "outside")
        (run / PER_NODE / "predictions.parquet").symlink_to(tmp_path / "outside")

    def linked_folder() -> None:
        (run / PER_NODE).rename(tmp_path / "rows")
        (run / PER_NODE).symlink_to(tmp_path / "rows")

    damage = {
        "linked file": linked,
        "linked folder": linked_folder,
        "no predictions": lambda: (run / PER_NODE / "predictions.parquet").unlink(),
        "no aggregates": lambda: (run / PER_NODE / "aggregates.safetensors").unlink(),
        "damaged": lambda: (run / PER_NODE / "predictions.parquet").write_bytes(b"PAR1"),
        "pickled": lambda: (run / PER_NODE / "aggregates.safetensors").write_bytes(b"\x80\x04cos\nsystem\n."),
    }
    whole = Path(shutil.copytree(run, tmp_path / "whole"))
    for case, act in damage.items():
        act()
        with pytest.raises(ArtifactError):
            load_model(run)
        assert read_guarantee(run).guarantee.valid, case
        for old in (run, tmp_path / "rows"):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(whole, run)


@pytest.mark.parametrize(
    ("configuration", "changes"),
    [
        (OWNER, {"unit": "node-bounded-degree", "max_degree": 299, "out_degree_bound": None}),
        (OWNER, {"replace_one": True}),
        (BOUNDED, {"max_degree": 298}),
    ],
)
def test_a_folder_with_files_of_two_units_is_rejected(run: Path, changes: dict[str, Any]) -> None:
    path = run / "release" / "model.json"
    content = json.loads(path.read_text())
    content["parameters"].update(changes)
    path.write_text(json.dumps(content))
    with pytest.raises(ArtifactError, match="name different privacy units"):
        load_model(run)


@pytest.mark.parametrize(
    ("configuration", "part", "change"),
    [
        (OWNER, "guarantee", {"replace_one": True}),
        (OWNER, "guarantee", {"edge_epsilon": 1e-9}),
        (OWNER, "record", {"edge_mu": 1e-9}),
        (OWNER, "record", {"edge_mu": -1.0}),
        (OWNER, "record", {"edge_use": "sometimes"}),
        (BOUNDED, "guarantee", {"max_degree": 1}),
        (BOUNDED, "record", {"max_degree": 1}),
        (BOUNDED, "record", {"max_degree": None}),
        (BOUNDED, "record", {"edge_use": "read"}),
        (BOUNDED, "record", {"edge_use": "lists"}),
    ],
)
def test_a_record_that_was_changed_is_rejected(
    run: Path, configuration: dict[str, Any], part: str, change: dict[str, Any]
) -> None:
    path = run / "release" / "privacy.json"
    content = json.loads(path.read_text())
    assert set(change) <= set(content[part])
    content[part].update(change)
    path.write_text(json.dumps(content))
    for read in (load_model, read_guarantee):
        with pytest.raises(ArtifactError):
            read(run)


def test_an_unfitted_model_predicts_nothing(double: type[Estimator], graph: Graph) -> None:
    with pytest.raises(ConfigError, match="not fitted"):
        double(**OWNER).predict()
    with pytest.raises(ConfigError, match="not fitted"):
        double(**OWNER).predict(graph)


def test_predictions_agree_with_their_probabilities(double: type[Estimator], graph: Graph) -> None:
    model = double(seed=0, **OWNER).fit(graph)
    assert torch.equal(model.predict(), model.predict_proba().argmax(dim=1))
