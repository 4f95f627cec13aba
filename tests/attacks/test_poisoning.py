"""False clients: whom they are, what they send, and what the server makes of it."""

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.data.recipes import RECIPES
from graphveil.errors import ConfigError, NotImplementedGuaranteeError
from graphveil.lab.attacks import attack_collection
from graphveil.lab.attacks.poisoning import (
    POISONING_STRATEGIES,
    PoisonedCollection,
    drop_reports,
    malicious_clients,
    poison_reports,
    reports_of,
)

TINY = gv.load_dataset("synthetic/tiny", recipe="lpgnn", on_clients=True)
KEYWORDS = {
    "unit": "local-attributes",
    "eps_x": 3.0,
    "eps_y": 2.0,
    "seed": 0,
    "unsafe_noise_seed": 0,
    "epochs": 15,
}
MODEL = gv.LPGNN(**KEYWORDS)
TOLD = reports_of(gv.LPGNN(**KEYWORDS).fit(TINY))
WHO = malicious_clients(TINY, 0.1, hubs=False, seed=0)
LAW = MODEL.label_mechanism(3)
OTHERS = np.setdiff1d(np.arange(300), WHO)


def test_who_lies() -> None:
    assert len(WHO) == len(set(WHO.tolist())) == 30
    degrees = TINY.adjacency.indptr.diff()
    hubs = malicious_clients(TINY, 0.1, hubs=True, seed=0)
    assert degrees[hubs].min() >= degrees[np.setdiff1d(np.arange(300), hubs)].max()


@pytest.mark.parametrize("strategy", POISONING_STRATEGIES)
def test_only_liars_change_and_only_what_they_may(strategy: str) -> None:
    found = poison_reports(TOLD, TINY, LAW, WHO, strategy, np.random.default_rng(0))
    rows, own = found.features.dense().numpy(), TOLD.features.dense().numpy()
    assert np.array_equal(rows[OTHERS], own[OTHERS])
    assert torch.equal(found.labels[OTHERS], TOLD.labels[OTHERS])
    assert torch.equal(found.labels < 0, TOLD.labels < 0)  # nobody speaks who was not asked
    unpoisoned = np.abs(own - 0.5).max()
    assert np.abs(rows - 0.5).max() <= unpoisoned * (100.01 if strategy == "unbounded" else 1.0001)
    if strategy == "feature":
        assert (rows[WHO] >= 0.5).all() and (own[WHO] < 0.5).any()
    saying = WHO[TOLD.labels[WHO] >= 0]
    if strategy == "deny":
        assert (found.labels[saying] != TINY.y[saying]).all() and np.array_equal(rows, own)
    if strategy in ("label", "same"):
        rarest = torch.bincount(TINY.y).argmin().expand(len(saying))
        assert torch.equal(found.labels[saying], rarest if strategy == "same" else (TINY.y[saying] + 1) % 3)
        assert np.array_equal(rows, own)


@pytest.mark.parametrize("strategy", ["random", "label", "same", "deny"])
def test_liars_say_groups_of_hashes_that_they_did_not_choose(strategy: str) -> None:
    graph = _of_five_classes()
    fitted = gv.LPGNN(**KEYWORDS | {"labels": "hashing", "eps_y": 0.5, "epochs": 1}).fit(graph)
    law, told = fitted.label_mechanism(5), reports_of(fitted)
    assert (law.groups, law.size) == (2, 3)
    found = poison_reports(told, graph, law, WHO, strategy, np.random.default_rng(0))
    assert torch.equal(found.labels[OTHERS], told.labels[OTHERS])
    saying = WHO[told.labels[WHO, 0] >= 0]
    said, own = found.labels[saying].numpy(), graph.y[saying].numpy()
    law.groups_of(law.hashes_of_rows(saying.numpy()), said)  # a group of its hash, or this is refused
    inside, people = law.members(said), np.arange(len(saying))
    if strategy == "deny":
        assert not inside[people, own].any()
    if strategy == "label":
        assert inside[people, (own + 1) % 5].all() and inside[people, own].any()
    if strategy == "same":
        assert inside[:, int(torch.bincount(graph.y).argmin())].all()


def _of_five_classes() -> gv.Graph:
    many = gv.Graph.from_edges(
        TINY.x, torch.arange(300) % 5, *TINY.adjacency.edge_index(), directed=False, num_classes=5
    )
    return RECIPES["gap"].split(many, seed=0)


def test_who_says_several_classes_is_not_measured() -> None:
    with pytest.raises(NotImplementedGuaranteeError, match="'hashing'"):
        attack_collection(gv.LPGNN(**KEYWORDS | {"labels": "subset", "eps_y": 0.5}), _of_five_classes())


def test_who_is_refused_says_nothing() -> None:
    found = drop_reports(TOLD, WHO)
    assert (found.labels[WHO] == -1).all()
    assert np.allclose(found.features.dense().numpy()[WHO], 0.5)


def test_a_server_without_checks_pays_for_it() -> None:
    little_noise = {"eps_x": 30.0, "eps_y": 30.0, "x_steps": 2, "y_steps": 0, "select": "likelihood"}
    plenty = gv.LPGNN(**{**KEYWORDS, **little_noise, "epochs": 60})
    collection = PoisonedCollection.from_model(plenty, TINY)
    sent = poison_reports(collection.reports_sent, TINY, LAW, WHO, "unbounded", np.random.default_rng(0))
    assert collection.accuracy(drop_reports(sent, WHO)) >= collection.accuracy(sent) + 0.2


def test_each_server_is_compared_with_itself() -> None:
    report = attack_collection(MODEL, TINY, strategy="same", share=0.3)
    found = report.as_dict()
    assert found["lost_poisoned"] == pytest.approx(report.unpoisoned - report.poisoned)
    assert found["lost_robust"] == pytest.approx(report.unpoisoned_robust - report.robust)
    nobody = attack_collection(MODEL, TINY, strategy="random", share=0.0)
    assert nobody.unpoisoned == nobody.poisoned == nobody.checked
    assert nobody.robust == nobody.unpoisoned_robust and nobody.as_dict()["lost_robust"] == 0


def test_other_units_and_lies_are_refused() -> None:
    with pytest.raises(ConfigError, match="local-attributes"):
        attack_collection(gv.LPGNN(unit="none"), TINY)
    with pytest.raises(ConfigError, match="strategy"):
        attack_collection(MODEL, TINY, strategy="loud")  # type: ignore[arg-type]
