"""Methods as published: their names, their networks, and folders of earlier versions."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize, selu

import graphveil as gv
from graphveil.core.clipping.dpsgd import clipped_sum
from graphveil.errors import ConfigError
from graphveil.estimators import _PUBLISHED
from graphveil.nn.hops import FixedRows
from graphveil.papers import as_published
from graphveil.papers.as_published.gap import ActivatedEncoder, NormedEncoder, UnitHopClassifier

STYLE = {"activation": "selu", "batch_norm": True, "dropout": 0.0}
EDGES: dict[str, Any] = {"unit": "undirected-edge", "epsilon": 4.0, "delta": 1e-5, "seed": 0, "epochs": 2}


@pytest.mark.parametrize("name", _PUBLISHED)
def test_methods_are_found_by_name_and_not_listed(name: str) -> None:
    kind = gv.METHODS[name]
    assert kind.method == name and issubclass(kind, gv.METHODS[name.removesuffix("-paper")])
    assert name in gv.METHODS and name not in list(gv.METHODS)
    with pytest.raises(ConfigError, match="reserved"):
        gv.register(type("Own", (kind,), {}))


def test_guarantees_are_never_valid() -> None:
    graph = gv.load_dataset("synthetic/tiny")
    records = {"unit": "node-record", "epsilon": 8.0, "delta": 1e-5}
    local = {"unit": "local-attributes", "eps_x": 1.0, "eps_y": 1.0}
    pure = {"unit": "undirected-edge", "epsilon": 4.0}
    found = [
        as_published.GAP(**EDGES),
        as_published.GAP(**records, out_degree_bound=4, batch_size=20),
        as_published.MLP(**records, batch_size=20),
        as_published.SAGE(**records, out_degree_bound=4, batch_size=20),
        as_published.SAGE(**pure, perturb="arr"),
        as_published.GCN(**pure, perturb="lap-graph"),
        as_published.GAT(**pure, perturb="edge-rand"),
        as_published.LPGNN(**local),
        as_published.SimGAT(**local),
    ]
    for model in found:
        assert not model.preview(graph).guarantee.valid, model


def test_a_folder_of_an_earlier_version_is_loaded(tmp_path: Path) -> None:
    graph = gv.load_dataset("synthetic/tiny")
    for mode, kind in (("strict", gv.GAP), ("paper", as_published.GAP)):
        model, folder = kind(**EDGES).fit(graph), tmp_path / mode
        model.save(folder)
        path = folder / "model.json"
        stored = json.loads(path.read_text())
        stored["method"], stored["parameters"]["mode"] = "gap", mode
        path.write_text(json.dumps(stored))
        text = (folder / "privacy.json").read_text()
        assert text.count('"mode": "strict"') == 2
        (folder / "privacy.json").write_text(text.replace('"mode": "strict"', f'"mode": "{mode}"'))
        loaded = gv.load_model(folder)
        assert type(loaded) is kind and torch.equal(loaded.predict_proba(), model.predict_proba())


# -- networks ----------------------------------------------------------------------------------------------


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def correlated(rows: int, width: int) -> torch.Tensor:
    mix = torch.randn(width, width, generator=stream(8))
    return torch.randn(rows, width, generator=stream(9)) @ mix + 3


def assert_private_gradients_equal(network: nn.Module, inputs: object, logits: torch.Tensor) -> None:
    """Compare the unclipped sum of per-record gradients with the gradient of the summed loss."""
    labels = torch.arange(len(logits)) % 3
    sums = clipped_sum(network.ghost(), inputs, labels)
    sums.add(torch.arange(len(logits)), 1e9)
    cross_entropy(logits, labels, reduction="sum").backward()
    expected = {name: part.grad.clone() for name, part in network.named_parameters()}
    sums.weights.copy_(sums.sums)
    sums.store()  # the parameters are now the sums
    for name, part in network.named_parameters():
        torch.testing.assert_close(part.detach(), expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("head", [[3], [8, 3]])
def test_a_unit_classifier_reads_activations_of_vectors_of_norm_one(head):
    network = UnitHopClassifier(3, [5, 4], head, generator=stream(), activation="selu")
    views = [correlated(12, 5) * k for k in (1, 2, 3)]
    kept = [view.clone() for view in views]
    combined = torch.cat([b(view) for b, view in zip(network._branches, views, strict=True)], dim=1)
    logits = network([FixedRows(view) for view in views])
    torch.testing.assert_close(logits, network._head(selu(normalize(combined))))
    assert all(map(torch.equal, views, kept))
    assert_private_gradients_equal(network, views, logits)


def test_embeddings_have_norm_one_and_the_head_reads_them_after_batch_norm():
    encoder = NormedEncoder([5, 6, 4], 3, generator=stream(), **STYLE).eval()
    x = correlated(12, 5)
    rows = encoder.rows(x)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(12))
    assert isinstance(encoder._norm, nn.BatchNorm1d)
    torch.testing.assert_close(encoder(x), encoder._head(encoder._norm(rows)))


def test_an_activation_between_embeddings_and_head_is_trained_privately():
    style = {"generator": stream(), "activation": "selu", "batch_norm": False, "dropout": 0.0}
    encoder = ActivatedEncoder([5, 6, 4], 3, **style)
    x = correlated(12, 5)
    logits = encoder(x)
    torch.testing.assert_close(logits, encoder._head(selu(encoder.rows(x))))
    assert_private_gradients_equal(encoder, x, logits)
