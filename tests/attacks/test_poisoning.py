"""False clients: whom they are, what they send, and what the server makes of it."""

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.attacks import attack_collection
from graphveil.attacks.poisoning import LIES, Collection, _false_clients, _lying, _refused, _reports_of
from graphveil.errors import ConfigError

TINY = gv.load_dataset("synthetic/tiny", recipe="lpgnn", on_devices=True)
KEYWORDS = {
    "unit": "node-features",
    "eps_x": 3.0,
    "eps_y": 2.0,
    "seed": 0,
    "unsafe_noise_seed": 0,
    "epochs": 15,
}
MODEL = gv.LPGNN(**KEYWORDS)
TOLD = _reports_of(gv.LPGNN(**KEYWORDS).fit(TINY))
WHO = _false_clients(TINY, 0.1, hubs=False, seed=0)
OTHERS = np.setdiff1d(np.arange(300), WHO)


def test_who_lies() -> None:
    assert len(WHO) == len(set(WHO.tolist())) == 30
    degrees = TINY.adjacency.indptr.diff()
    hubs = _false_clients(TINY, 0.1, hubs=True, seed=0)
    assert degrees[hubs].min() >= degrees[np.setdiff1d(np.arange(300), hubs)].max()


@pytest.mark.parametrize("lie", LIES)
def test_only_liars_change_and_only_what_they_may(lie: str) -> None:
    found = _lying(TOLD, TINY, WHO, lie, np.random.default_rng(0))
    rows, own = found.features.dense().numpy(), TOLD.features.dense().numpy()
    assert np.array_equal(rows[OTHERS], own[OTHERS])
    assert torch.equal(found.labels[OTHERS], TOLD.labels[OTHERS])
    assert torch.equal(found.labels < 0, TOLD.labels < 0)  # nobody speaks who was not asked
    honest = np.abs(own - 0.5).max()
    assert np.abs(rows - 0.5).max() <= honest * (100.01 if lie == "unbounded" else 1.0001)
    if lie == "feature":
        assert (rows[WHO] >= 0.5).all() and (own[WHO] < 0.5).any()
    if lie in ("label", "same"):
        saying = WHO[TOLD.labels[WHO] >= 0]
        rarest = torch.bincount(TINY.y).argmin().expand(len(saying))
        assert torch.equal(found.labels[saying], rarest if lie == "same" else (TINY.y[saying] + 1) % 3)
        assert np.array_equal(rows, own)


def test_who_is_refused_says_nothing() -> None:
    found = _refused(TOLD, WHO)
    assert (found.labels[WHO] == -1).all()
    assert np.allclose(found.features.dense().numpy()[WHO], 0.5)


def test_a_server_without_checks_pays_for_it() -> None:
    little_noise = {"eps_x": 30.0, "eps_y": 30.0, "x_steps": 2, "y_steps": 0, "select": "likelihood"}
    plenty = gv.LPGNN(**{**KEYWORDS, **little_noise, "epochs": 60})
    collection = Collection.of(plenty, TINY)
    sent = _lying(collection.told, TINY, WHO, "unbounded", np.random.default_rng(0))
    assert collection.accuracy(_refused(sent, WHO)) >= collection.accuracy(sent) + 0.2


def test_each_server_is_compared_with_itself() -> None:
    report = attack_collection(MODEL, TINY, lie="same", share=0.3)
    found = report.as_dict()
    assert found["lost_poisoned"] == pytest.approx(report.honest - report.poisoned)
    assert found["lost_robust"] == pytest.approx(report.honest_robust - report.robust)
    nobody = attack_collection(MODEL, TINY, lie="random", share=0.0)
    assert nobody.honest == nobody.poisoned == nobody.checked
    assert nobody.robust == nobody.honest_robust and nobody.as_dict()["lost_robust"] == 0


def test_other_units_and_lies_are_refused() -> None:
    with pytest.raises(ConfigError, match="node-features"):
        attack_collection(gv.LPGNN(unit="none"), TINY)
    with pytest.raises(ConfigError, match="lie"):
        attack_collection(MODEL, TINY, lie="loud")  # type: ignore[arg-type]
