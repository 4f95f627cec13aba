"""The networks around noisy hops: encoders before them, classifiers after them."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from graphveil.core.clipping.dpsgd import clipped_sum
from graphveil.nn.hops import Branch, Encoder, FixedRows, HopClassifier, NormedLinear
from graphveil.nn.layers import Linear

STYLE = {"activation": "selu", "batch_norm": True, "dropout": 0.0}


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


# -- linear map and batch norm in one ----------------------------------------------------------------------


@pytest.fixture
def pair() -> tuple[NormedLinear, nn.Sequential]:
    layer = NormedLinear(5, 4, generator=stream())
    plain = nn.Sequential(Linear(5, 4, generator=stream()), nn.BatchNorm1d(4))
    for normed in (layer._norm, plain[1]):
        nn.init.uniform_(normed.weight, 0.5, 2, generator=stream(1))
        nn.init.normal_(normed.bias, generator=stream(2))
    return layer, plain


def test_a_normed_linear_layer_equals_a_linear_map_and_batch_norm(pair):
    layer, plain = pair
    x, grad = correlated(40, 5), torch.randn(40, 4, generator=stream(3))
    for _ in range(3):
        ours, theirs = layer(FixedRows(x)), plain(x)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    ours.backward(grad)
    theirs.backward(grad)
    for left, right in (
        (layer.weight, plain[0].weight),
        (layer._norm.weight, plain[1].weight),
        (layer._norm.bias, plain[1].bias),
    ):
        torch.testing.assert_close(left.grad, right.grad, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(layer._norm.running_var, plain[1].running_var)
    shift = 1 - 0.9**3  # plain's running mean holds its bias as well
    expected = plain[1].running_mean - shift * plain[0].bias.detach()
    torch.testing.assert_close(layer._norm.running_mean, expected, rtol=1e-4, atol=1e-4)


def test_evaluation_uses_the_running_moments(pair):
    layer, plain = pair
    for _ in range(60):
        layer(FixedRows(correlated(40, 5)))
        plain(correlated(40, 5))
    x = torch.randn(1, 5, generator=stream(4))
    torch.testing.assert_close(layer.eval()(FixedRows(x)), plain.eval()(x), rtol=1e-2, atol=1e-2)


def test_a_constant_column_gives_finite_outputs():
    layer = NormedLinear(2, 3, generator=stream())
    assert bool(layer(FixedRows(torch.ones(10, 2))).isfinite().all())


# -- classifiers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("widths", [[5, 4], [5, 4, 3], [5, 4, 4, 2]])
def test_a_branch_has_the_output_width(widths, batch_norm):
    branch = Branch(widths, generator=stream(), activation="selu", batch_norm=batch_norm, dropout=0.1)
    assert branch(FixedRows(correlated(12, 5))).shape == (12, widths[-1])


@pytest.mark.parametrize("head", [[3], [8, 3]])
def test_a_hop_classifier_trains_all_parameters_and_leaves_its_inputs(head):
    network, view = HopClassifier(3, [5, 4], head, generator=stream(), **STYLE), correlated(12, 5)
    before = view.clone()
    logits = network([FixedRows(view)] * 3)
    assert logits.shape == (12, 3) and torch.equal(view, before)
    logits.square().sum().backward()
    assert all(p.grad is not None for p in network.parameters())


# -- encoders ----------------------------------------------------------------------------------------------


def test_embeddings_have_norm_one_and_the_head_reads_them():
    encoder = Encoder([5, 6, 4], 3, generator=stream(), **STYLE).eval()
    x = correlated(12, 5)
    rows = encoder.rows(x)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(12))
    torch.testing.assert_close(encoder(x), encoder._head(rows))
