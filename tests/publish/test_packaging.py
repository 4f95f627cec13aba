"""A release elsewhere: a card that Hugging Face's library reads, and a model that MLflow loads."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest

import graphveil as gv
from graphveil.core.events import NonPrivate
from graphveil.errors import ArtifactError, ConfigError
from graphveil.estimators.fitted import snapshot_of
from graphveil.estimators.pyfunc import ReleasedModel, _load_pyfunc
from graphveil.publish.cards import Card, hub_card, mlmodel

ESCAPE = 'a"\n---\nprivacy: {"epsilon": 0}\n# '


@pytest.fixture(scope="module")
def model() -> gv.GAP:
    graph = gv.load_dataset("synthetic/tiny", recipe="gap", seed=1)
    return gv.GAP(unit="undirected-edge", epsilon=1.0, delta=1e-7, seed=0, epochs=1).fit(graph)


@pytest.fixture(scope="module")
def release(model: gv.GAP, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packaged") / "release"
    model.save(folder)
    return folder


@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_mlflow_answers_the_bytes_of_the_release(release: Path) -> None:
    pyfunc = pytest.importorskip("mlflow.pyfunc")
    pandas = pytest.importorskip("pandas")
    before = sorted(path.name for path in release.iterdir())
    loaded, stored = pyfunc.load_model(str(release)), parquet.read_table(release / "predictions.parquet")
    everything = loaded.predict(None)
    for name in stored.column_names:
        assert everything[name].to_numpy().tobytes() == stored[name].to_pandas().to_numpy().tobytes() or (
            list(everything[name]) == stored[name].to_pylist()
        )
    some = loaded.predict(pandas.DataFrame({"node": [7, 3]}))
    assert some.equals(everything.iloc[[7, 3]].reset_index(drop=True))
    assert loaded.metadata.metadata["unit"] == "undirected-edge"
    assert sorted(path.name for path in release.iterdir()) == before


@pytest.mark.parametrize("given", [[7, 3], ["7", "3"], {"id": [7, 3]}, np.array([7, 3])], ids=type)
def test_ids_may_come_in_any_shape(release: Path, given: object) -> None:
    pytest.importorskip("pandas")
    assert list(_load_pyfunc(str(release)).predict(given)["node"]) == [7, 3]


def test_questions_that_would_need_a_release_are_rejected(release: Path, model: gv.GAP) -> None:
    loaded = _load_pyfunc(str(release))
    for given, words in (([99_999], "not among the predictions"), ({"x": [1]}, "no column 'id' or 'node'")):
        with pytest.raises(ConfigError, match=words):
            loaded.predict(given)
    with pytest.raises(ConfigError, match="takes no parameters"):
        loaded.predict([1], {"epsilon": 9})
    withheld_files = gv.GAP(unit="undirected-edge", epsilon=1.0)
    withheld_files._set_fit(replace(model.fitted, proba=None))
    with pytest.raises(ArtifactError, match="contains no predictions"):
        ReleasedModel(withheld_files).predict([1])


def test_the_card_is_read_by_the_hub(model: gv.GAP, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    card = Card(dataset=ESCAPE, accuracies={"test accuracy": 0.7125})
    (tmp_path / "README.md").write_text(hub_card(snapshot_of(model.fitted), card), encoding="utf-8")
    read = hub.ModelCard.load(tmp_path / "README.md").data
    assert (read.library_name, read.pipeline_tag) == ("graphveil", "graph-ml")
    assert read.privacy["epsilon"] == pytest.approx(1.0)
    assert isinstance(read.privacy["delta"], float)
    (result,) = read.eval_results
    assert (result.dataset_name, result.metric_value) == (ESCAPE, 0.7125)
    assert {"differential-privacy", "gap", "undirected-edge"} <= set(read.tags)


def test_cards_of_models_of_pairs_are_read_by_the_hub(tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    graph = gv.load_dataset("synthetic/tiny")
    links = gv.LinkPredictor(unit="undirected-edge", epsilon=2.0, seed=0).fit(graph)
    lists = gv.Interactions.from_matrix([[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1]] * 20)
    recommender = gv.Recommender(epsilon=2.0).fit(lists)
    for model, task in ((links, "link-prediction"), (recommender, "recommendation")):
        read = hub.ModelCard.load(model.save(tmp_path / task, dataset=ESCAPE) / "README.md").data
        assert task in read.tags and read.privacy["valid"]
        if task == "link-prediction":
            assert {one.metric_type for one in read.eval_results} == {"roc_auc", "average_precision"}
            assert read.eval_results[0].dataset_name == ESCAPE


def test_descriptions_of_any_figures_are_yaml(model: gv.GAP) -> None:
    yaml = pytest.importorskip("yaml")
    for delta in (0.0, 1e-07, 2.5e-12, 0.25):
        guarantee = replace(model.guarantee, delta=delta, event=NonPrivate())
        reported = yaml.safe_load(mlmodel(replace(snapshot_of(model.fitted), guarantee=guarantee)))
        figures = {"unit": "undirected-edge", "valid": guarantee.valid, "epsilon": None, "delta": delta}
        assert reported["metadata"] == figures | {"method": "gap"}
        assert reported["flavors"]["python_function"]["loader_module"] == ReleasedModel.__module__
