"""Malicious clients: their choice, their LDP reports, and the accuracy of the server."""

from typing import get_args

import numpy as np
import pytest
import torch

import graphveil as gv
from graphveil.attacks import attack_collection
from graphveil.attacks.poisoning import (
    PoisonedCollection,
    PoisoningStrategy,
    drop_reports,
    malicious_clients,
    poison_reports,
    reports_of,
)
from graphveil.data.recipes import RECIPES
from graphveil.errors import ConfigError, NotImplementedGuaranteeError

TINY = gv.load_dataset("synthetic/tiny", recipe="lpgnn", by_id=True)
KEYWORDS = {
    "unit": "local-attributes",
    "eps_x": 3.0,
    "eps_y": 2.0,
    "labels": "rr",
    "seed": 0,
    "unsafe_noise_seed": 0,
    "epochs": 15,
}
MODEL = gv.LPGNN(**KEYWORDS)
SENT = reports_of(gv.LPGNN(**KEYWORDS).fit(TINY))
CLIENTS = malicious_clients(TINY, 0.1, hubs=False, seed=0)
LAW = MODEL.label_mechanism(3)
OTHERS = np.setdiff1d(np.arange(300), CLIENTS)


def test_malicious_clients_are_random_or_hubs() -> None:
    assert len(CLIENTS) == len(set(CLIENTS.tolist())) == 30
    degrees = TINY.adjacency.indptr.diff()
    hubs = malicious_clients(TINY, 0.1, hubs=True, seed=0)
    assert degrees[hubs].min() >= degrees[np.setdiff1d(np.arange(300), hubs)].max()


@pytest.mark.parametrize("strategy", get_args(PoisoningStrategy))
def test_only_malicious_clients_change_and_only_their_strategy(strategy: str) -> None:
    found = poison_reports(SENT, TINY, LAW, CLIENTS, strategy, np.random.default_rng(0))
    rows, own = found.features.dense().numpy(), SENT.features.dense().numpy()
    assert np.array_equal(rows[OTHERS], own[OTHERS])
    assert torch.equal(found.labels[OTHERS], SENT.labels[OTHERS])
    assert torch.equal(found.labels < 0, SENT.labels < 0)  # clients without a label report none
    unpoisoned = np.abs(own - 0.5).max()
    assert np.abs(rows - 0.5).max() <= unpoisoned * (100.01 if strategy == "unbounded" else 1.0001)
    if strategy == "feature":
        assert (rows[CLIENTS] >= 0.5).all() and (own[CLIENTS] < 0.5).any()
    reporting = CLIENTS[SENT.labels[CLIENTS] >= 0]
    if strategy == "deny":
        assert (found.labels[reporting] != TINY.y[reporting]).all() and np.array_equal(rows, own)
    if strategy in ("label", "same"):
        rarest, following = torch.bincount(TINY.y).argmin(), (TINY.y[reporting] + 1) % 3
        assert (found.labels[reporting] == (rarest if strategy == "same" else following)).all()
        assert np.array_equal(rows, own)


@pytest.mark.parametrize("strategy", ["random", "label", "same", "deny"])
def test_malicious_clients_report_groups_of_their_own_hash(strategy: str) -> None:
    graph = of_five_classes()
    fitted = gv.LPGNN(**KEYWORDS | {"labels": "hashing", "eps_y": 0.5, "epochs": 1}).fit(graph)
    law, sent = fitted.label_mechanism(5), reports_of(fitted)
    assert (law.groups, law.size) == (2, 3)
    found = poison_reports(sent, graph, law, CLIENTS, strategy, np.random.default_rng(0))
    assert torch.equal(found.labels[OTHERS], sent.labels[OTHERS])
    reporting = CLIENTS[sent.labels[CLIENTS, 0] >= 0]
    reported, own = found.labels[reporting].numpy(), graph.y[reporting].numpy()
    law.groups_of(law.hashes_of_rows(reporting.numpy()), reported)  # a group of its hash, or this is rejected
    inside, people = law.members(reported), np.arange(len(reporting))
    if strategy == "deny":
        assert not inside[people, own].any()
    if strategy == "label":
        assert inside[people, (own + 1) % 5].all() and inside[people, own].any()
    if strategy == "same":
        assert inside[:, int(torch.bincount(graph.y).argmin())].all()


def of_five_classes() -> gv.Graph:
    many = gv.Graph.from_edges(
        TINY.x, torch.arange(300) % 5, *TINY.adjacency.edge_index(), directed=False, num_classes=5
    )
    return RECIPES["gap"].split(many, seed=0)


def test_server_without_checks_loses_accuracy() -> None:
    little_noise = {"eps_x": 30.0, "eps_y": 30.0, "x_steps": 2, "y_steps": 0, "posterior_steps": 0}
    plenty = gv.LPGNN(**{**KEYWORDS, **little_noise, "epochs": 60})
    collection = PoisonedCollection.from_model(plenty, TINY)
    sent = poison_reports(collection.reports_sent, TINY, LAW, CLIENTS, "unbounded", np.random.default_rng(0))
    kept = drop_reports(sent, CLIENTS)
    assert (kept.labels[CLIENTS] == -1).all() and np.allclose(kept.features.dense().numpy()[CLIENTS], 0.5)
    assert collection.accuracy(kept) >= collection.accuracy(sent) + 0.2


def test_losses_are_relative_to_the_same_server() -> None:
    model = gv.LPGNN(**KEYWORDS | {"epochs": 2})
    report = attack_collection(model, TINY, strategy="same", share=0.3)
    found = report.as_dict()
    assert found["lost_poisoned"] == pytest.approx(report.unpoisoned - report.poisoned)
    assert found["lost_robust"] == pytest.approx(report.unpoisoned_robust - report.robust)
    none = attack_collection(model, TINY, strategy="random", share=0.0)
    assert none.unpoisoned == none.poisoned == none.checked
    assert none.robust == none.unpoisoned_robust and none.as_dict()["lost_robust"] == 0


def test_rejects_other_units_and_mechanisms_and_strategies() -> None:
    with pytest.raises(NotImplementedGuaranteeError, match="'hashing'"):
        attack_collection(gv.LPGNN(**KEYWORDS | {"labels": "subset", "eps_y": 0.5}), of_five_classes())
    with pytest.raises(ConfigError, match="local-attributes"):
        attack_collection(gv.LPGNN(unit="none"), TINY)
    with pytest.raises(ConfigError, match="strategy"):
        attack_collection(MODEL, TINY, strategy="loud")  # type: ignore[arg-type]
