"""Saved models: what comes back is what was saved, and a hostile folder is rejected."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphveil as gv
from graphveil.core.ledger import ledger_of
from graphveil.core.plan import ReleasePlan
from graphveil.core.queries.neighbor_sums import NeighborSumQuery
from graphveil.core.unit import UndirectedEdge
from graphveil.data import RECIPES, Graph, synthetic
from graphveil.errors import ArtifactError, ConfigError
from graphveil.estimators.base import Estimator
from graphveil.estimators.saved import load_model
from graphveil.publish.queries import release_rows
from graphveil.publish.release_folder import FILES, find_release, read_guarantee

SMALL: dict[str, dict[str, Any]] = {
    "mlp": {"unit": "undirected-edge", "epochs": 2},
    "gap": {"unit": "undirected-edge", "epsilon": 1.0, "epochs": 2},
    "sage": {"unit": "none", "epochs": 2},
    "gcn": {"unit": "none", "epochs": 2},
    "gat": {"unit": "none", "epochs": 2},
    "classcode": {"unit": "undirected-edge", "epsilon": 1.0},
    "spectral": {"unit": "undirected-edge", "epsilon": 4.0},
    "lpgnn": {"unit": "local-attributes", "eps_x": 1.0, "eps_y": math.inf, "epochs": 2},
    "simgat": {"unit": "local-attributes", "eps_x": 1.0, "eps_y": math.inf, "epochs": 2},
    "label-posterior": {"unit": "local-attributes", "eps_y": 1.0, "labels": "subset"},
    "heterorr": {"unit": "edge-subset", "epsilon": 1.0, "eps_x": math.inf, "epochs": 2},
}


def state_of(model: Estimator) -> dict[str, torch.Tensor]:
    """Return the trained weights by name, which files do not store in the order of the fit."""
    return dict(sorted(model.fitted.trained.state().items()))


@pytest.fixture(scope="module")
def graph() -> Graph:
    graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    all_nodes = torch.ones(graph.num_nodes, dtype=torch.bool)
    return graph.with_public(graph.adjacency.subgraph(all_nodes), all_nodes)


@pytest.fixture(scope="module")
def saved(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> tuple[Estimator, Path]:
    """A fitted GAP and the folder that it was saved to."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    model = gv.GAP(seed=0, **SMALL["gap"]).fit(graph)
    model.save(folder)
    return model, folder


@pytest.fixture
def copy(saved: tuple[Estimator, Path], tmp_path: Path) -> Path:
    """A folder of its own to damage."""
    return Path(shutil.copytree(saved[1], tmp_path / "copy"))


@pytest.mark.parametrize("name", SMALL)  # gnn, whose predictions a release withholds, in tests of its own
def test_every_method_comes_back_as_it_was(name: str, graph: Graph, tmp_path: Path) -> None:
    model = gv.METHODS[name](seed=0, **SMALL[name]).fit(graph)
    model.save(tmp_path / "model")
    loaded = gv.load_model(tmp_path / "model")
    assert type(loaded) is type(model)
    assert loaded.get_params() == model.get_params()
    assert loaded.guarantee == model.guarantee
    assert loaded.guarantee.formal_statement() == model.guarantee.formal_statement()
    assert torch.equal(loaded.predict_proba(), model.predict_proba())
    assert torch.equal(loaded.predict(), model.predict())
    assert {k: v.tolist() for k, v in loaded.aggregates_.items()} == {
        k: v.tolist() for k, v in model.aggregates_.items()
    }
    assert all(
        torch.equal(a, b) for a, b in zip(state_of(loaded).values(), state_of(model).values(), strict=True)
    )


def test_a_loaded_mlp_predicts_a_graph_at_no_price(graph: Graph, tmp_path: Path) -> None:
    model = gv.MLP(seed=0, **SMALL["mlp"]).fit(graph)
    model.save(tmp_path / "model")
    assert torch.allclose(gv.load_model(tmp_path / "model").predict_proba(graph), model.predict_proba())


def test_a_loaded_gap_charges_another_graph(saved: tuple[Estimator, Path]) -> None:
    other = synthetic("tiny", seed=1)
    load_model(saved[1]).predict(other, allow_spend=True)
    assert len(ledger_of(other.edge_set).entries) == 1


def test_the_folder_is_complete_and_nothing_in_it_is_a_pickle(saved: tuple[Estimator, Path]) -> None:
    assert {path.name for path in saved[1].iterdir()} == set(FILES)
    for path in saved[1].iterdir():
        assert not path.read_bytes().startswith((b"\x80", b"PK"))


def test_text_ids_and_class_names_come_back(tmp_path: Path) -> None:
    graph = RECIPES["gap"].split(synthetic("tiny"), seed=0)
    named = graph.replace(ids=[f"id{i}" for i in range(300)], class_names=("a<b", "né", "p_x"))
    gv.MLP(seed=0, **SMALL["mlp"]).fit(named).save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.class_names_ == ("a<b", "né", "p_x")
    assert list(loaded.ids_[:2]) == ["id0", "id1"]


def test_saving_never_replaces_anything(saved: tuple[Estimator, Path], tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="Save to a new folder"):
        saved[0].save(tmp_path)
    assert (tmp_path / "letter.txt").read_text() == "dear"


def test_an_unfitted_model_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not fitted"):
        gv.MLP(unit="none").save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_failed_save_leaves_nothing(
    saved: tuple[Estimator, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphveil.publish.cards.model_card", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        saved[0].save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_the_release_part_of_a_run_is_found(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    copy.rename(tmp_path / "run" / "release")
    assert find_release(tmp_path / "run") == find_release(tmp_path / "run" / "release")


# -- hostile folders ---------------------------------------------------------------------------------------


def changed(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        change(content)
        (folder / name).write_text(json.dumps(content))

    return apply


def model(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return changed("model.json", change)


def parameters(**values: object) -> Callable[[Path], None]:
    return model(lambda content: content["parameters"].update(values))


def privacy(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return changed("privacy.json", change)


def linked(name: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        outside = folder.parent / "outside"
        (folder / name).rename(outside)
        (folder / name).symlink_to(outside)

    return apply


def replaced(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


HOSTILE: dict[str, Callable[[Path], None]] = {
    "unknown key": model(lambda content: content.update(hook="os.system")),
    "unknown parameter": parameters(callback="x"),
    "missing parameter": model(lambda content: content["parameters"].pop("hops")),
    "wrong type": parameters(hops="2"),
    "bool for number": parameters(hops=True),
    "out of range": parameters(hops=0),
    "invented method": model(lambda content: content.update(method="os.system")),
    "other method": model(lambda content: content.update(method="mlp")),
    "other version": model(lambda content: content.update(version=2)),
    "other format": model(lambda content: content.update(format="pickle")),
    "too few names": model(lambda content: content["class_names"].pop()),
    "names twice": model(lambda content: content.update(class_names=["a", "a", "b"])),
    "name as a path": model(lambda content: content.update(class_names=["../a", "b", "c"])),
    "huge width": parameters(hidden=10**6),
    "huge depth": parameters(head_layers=10**7),
    "beyond any width": parameters(hidden=10**12),
    "huge features": model(lambda content: content["shape"].update(features=10**7)),
    "negative features": model(lambda content: content["shape"].update(features=-1)),
    "smaller claim": privacy(lambda content: content["guarantee"].update(epsilon=0.1)),
    "valid claim": privacy(lambda content: content["guarantee"].update(valid=False)),
    "smaller event": privacy(lambda content: content["record"]["events"].pop()),
    "unknown event": privacy(lambda content: content["record"]["events"][0].update(kind="os.system")),
    "event field": privacy(lambda content: content["record"]["events"][0].update(extra=1)),
    "negative event": privacy(lambda content: content["record"]["events"][0].update(mu_squared=[[-1.0]])),
    "unknown unit": privacy(lambda content: content["record"].update(unit="everything")),
    "odd delta": privacy(lambda content: content["record"].update(delta=2.0)),
    "no weights": replaced("model.safetensors", b""),
    "pickled weights": replaced("model.safetensors", b"\x80\x04cos\nsystem\n."),
    "long header": replaced("model.safetensors", b"\xff" * 64),
    "no aggregates": lambda folder: (folder / "aggregates.safetensors").unlink(),
    "no predictions": replaced("predictions.parquet", b"PAR1"),
    "not JSON": replaced("model.json", b"{"),
    "deep JSON": replaced("model.json", b"[" * 100_000),
    "binary JSON": replaced("privacy.json", bytes(range(256))),
    "linked weights": linked("model.safetensors"),
    "linked page": linked("PRIVACY.md"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_folder_is_rejected(copy: Path, case: str) -> None:
    HOSTILE[case](copy)
    with pytest.raises(ArtifactError) as error:
        load_model(copy)
    assert "os.system" not in str(error.value)


def test_a_link_to_the_folder_is_rejected(saved: tuple[Estimator, Path], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "release").symlink_to(saved[1])
    with pytest.raises(ArtifactError, match="link"):
        load_model(tmp_path / "run")


def test_predictions_must_be_of_this_models_classes(copy: Path, graph: Graph, tmp_path: Path) -> None:
    two = graph.replace(y=graph.y.clamp(max=1), num_classes=2)
    gv.MLP(seed=0, **SMALL["mlp"]).fit(two).save(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "predictions.parquet", copy)
    with pytest.raises(ArtifactError, match="columns"):
        load_model(copy)


def test_ids_are_held_once_however_often_they_stand_in_the_file(copy: Path) -> None:
    path = copy / "predictions.parquet"
    table = pq.read_table(path)
    rows = np.zeros(100_000, dtype=np.int64)  # one long id in a kilobyte, which fixed widths make 400 MB
    repeated = table.set_column(0, "node", pa.array(["x" * 1000] * len(table))).take(rows)
    pq.write_table(repeated, path)
    ids = load_model(copy).ids_
    assert ids is not None and ids.tolist()[-1] == "x" * 1000 and ids.nbytes == 8 * len(rows)


@pytest.mark.parametrize(
    ("ids", "codec", "rejection"),
    [
        ("x" * 1001, "snappy", "1,000 bytes"),
        ("x", "zstd", "compression or encoding"),
        (None, "snappy", "node id"),
    ],
)
def test_predictions_cannot_grow_beyond_their_file(
    copy: Path, ids: str | None, codec: str, rejection: str
) -> None:
    path = copy / "predictions.parquet"
    table = pq.read_table(path)
    pq.write_table(
        table.set_column(0, "node", pa.array([ids] * len(table), pa.string())), path, compression=codec
    )
    with pytest.raises(ArtifactError, match=rejection):
        load_model(copy)


@settings(max_examples=60)
@given(name=st.sampled_from(FILES[:5]), data=st.data())
def test_damaged_bytes_are_rejected_or_harmless(
    saved: tuple[Estimator, Path], tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    folder = Path(shutil.copytree(saved[1], tmp_path_factory.mktemp("fuzz") / "copy"))
    content = bytearray((folder / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (folder / name).write_bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))])
    try:
        load_model(folder)
        read_guarantee(folder)
    except ArtifactError:
        pass
    shutil.rmtree(folder)


class MedianQuery(NeighborSumQuery):
    """A query of a kind that was never registered."""

    kind = "medians"


def test_a_query_of_an_unknown_kind_is_rejected_with_its_plan() -> None:
    query = gv.GAP(unit="undirected-edge", epsilon=1.0, hops=1).plan(num_nodes=40, num_classes=2).queries[0]  # type: ignore[union-attr]  # it has one
    assert isinstance(query, NeighborSumQuery)
    plan = ReleasePlan(UndirectedEdge(), (MedianQuery(**vars(query)),), delta=1e-5)
    with pytest.raises(ConfigError, match=r"kind='medians' .* QUERY_KINDS in graphveil/publish/queries\.py"):
        release_rows(plan)


def test_a_stored_query_of_an_unknown_kind_is_rejected_without_its_name(
    saved: tuple[Estimator, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(saved[1], tmp_path / "copy")
    path = find_release(folder) / "privacy.json"
    record = json.loads(path.read_text())
    record["releases"][0]["kind"] = "medians"
    path.write_text(json.dumps(record))
    with pytest.raises(ArtifactError, match=r"releases\.0\.kind: .*no kind of query") as caught:
        load_model(folder)
    assert "medians" not in str(caught.value)
