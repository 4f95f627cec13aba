"""The networks around noisy hops."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize, selu

from graphveil.nn.hops import Branch, Encoder, FixedRows, HopClassifier, NormedLinear, UnitHopClassifier
from graphveil.nn.layers import COMBINATIONS, Linear
from graphveil.training import clipped_sum

STYLE = {"activation": "selu", "batch_norm": True, "dropout": 0.0}


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def correlated(rows: int, width: int) -> torch.Tensor:
    mix = torch.randn(width, width, generator=stream(8))
    return torch.randn(rows, width, generator=stream(9)) @ mix + 3


class TestNormedLinear:
    """It is a linear map followed by batch norm, bit for bit but rounding."""

    @pytest.fixture
    def pair(self) -> tuple[NormedLinear, nn.Sequential]:
        layer = NormedLinear(5, 4, generator=stream())
        plain = nn.Sequential(Linear(5, 4, generator=stream()), nn.BatchNorm1d(4))
        for normed in (layer._norm, plain[1]):
            nn.init.uniform_(normed.weight, 0.5, 2, generator=stream(1))
            nn.init.normal_(normed.bias, generator=stream(2))
        return layer, plain

    def test_output_gradients_and_running_moments(self, pair):
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

    def test_evaluation_uses_the_running_moments(self, pair):
        layer, plain = pair
        for _ in range(60):
            layer(FixedRows(correlated(40, 5)))
            plain(correlated(40, 5))
        x = torch.randn(1, 5, generator=stream(4))
        expected = plain.eval()(x)
        torch.testing.assert_close(layer.eval()(FixedRows(x)), expected, rtol=1e-2, atol=1e-2)

    def test_a_constant_column_does_no_harm(self):
        layer = NormedLinear(2, 3, generator=stream())
        assert bool(layer(FixedRows(torch.ones(10, 2))).isfinite().all())


class TestBranch:
    @pytest.mark.parametrize("batch_norm", [False, True])
    @pytest.mark.parametrize("widths", [[5, 4], [5, 4, 3], [5, 4, 4, 2]])
    def test_shapes(self, widths, batch_norm):
        branch = Branch(widths, generator=stream(), activation="selu", batch_norm=batch_norm, dropout=0.1)
        assert branch(FixedRows(correlated(12, 5))).shape == (12, widths[-1])


class TestHopClassifier:
    @pytest.mark.parametrize("combine", COMBINATIONS)
    @pytest.mark.parametrize("head", [[3], [8, 3]])
    def test_shapes(self, combine, head):
        network = HopClassifier(3, [5, 4], head, combine, generator=stream(), **STYLE)
        views = [FixedRows(correlated(12, 5)) for _ in range(3)]
        assert network(views).shape == (12, 3)
        assert all(p.grad is None for p in network.parameters())
        network(views).square().sum().backward()
        assert all(p.grad is not None for p in network.parameters())

    def test_views_are_left_as_they_are(self):
        view = correlated(12, 5)
        before = view.clone()
        HopClassifier(2, [5, 4], [3], "sum", generator=stream(), **STYLE)([FixedRows(view)] * 2)
        assert torch.equal(view, before)


class TestUnitHopClassifier:
    def network(self, head: list[int]) -> UnitHopClassifier:
        return UnitHopClassifier(3, [5, 4], head, generator=stream(), activation="selu")

    def test_the_head_reads_activations_of_rows_of_norm_one(self):
        network, views = self.network([3]), [correlated(12, 5) * k for k in (1, 2, 3)]
        kept = [view.clone() for view in views]
        combined = torch.cat([b(view) for b, view in zip(network._branches, views, strict=True)], dim=1)
        expected = network._head(selu(normalize(combined)))
        torch.testing.assert_close(network([FixedRows(view) for view in views]), expected)
        assert all(map(torch.equal, views, kept))

    @pytest.mark.parametrize("head", [[3], [8, 3]])
    def test_private_training_sums_its_own_gradients(self, head):
        network, views = self.network(head), [correlated(12, 5) for _ in range(3)]
        labels = torch.arange(12) % 3
        sums = clipped_sum(network.ghost(), views, labels)
        sums.add(torch.arange(12), 1e9)
        sums.weights.copy_(sums.sums)
        cross_entropy(network([FixedRows(view) for view in views]), labels, reduction="sum").backward()
        expected = {name: part.grad.clone() for name, part in network.named_parameters()}
        sums.store()  # the weights are now the sums
        for name, part in network.named_parameters():
            torch.testing.assert_close(part.detach(), expected[name], rtol=1e-4, atol=1e-5)


class TestEncoder:
    def test_activated_rows_come_before_the_head(self):
        style = {"generator": stream(), "activation": "selu", "batch_norm": False, "dropout": 0.0}
        encoder = Encoder([5, 6, 4], 3, plain_head=False, activated=True, **style)
        x, labels = correlated(12, 5), torch.arange(12) % 3
        torch.testing.assert_close(encoder(x), encoder._head(selu(encoder.rows(x))))
        sums = clipped_sum(encoder.ghost(), x, labels)
        sums.add(torch.arange(12), 1e9)
        cross_entropy(encoder(x), labels, reduction="sum").backward()
        total = torch.stack([part.grad.double().square().sum() for part in encoder.parameters()]).sum()
        assert float(sums.sums.square().sum()) == pytest.approx(float(total), rel=1e-4)

    @pytest.mark.parametrize("plain_head", [False, True])
    def test_rows_have_norm_one_and_the_head_reads_them(self, plain_head):
        encoder = Encoder([5, 6, 4], 3, plain_head=plain_head, generator=stream(), **STYLE).eval()
        x = correlated(12, 5)
        rows = encoder.rows(x)
        torch.testing.assert_close(rows.norm(dim=1), torch.ones(12))
        torch.testing.assert_close(encoder(x), encoder._head(encoder._norm(rows)))
        assert isinstance(encoder._norm, nn.Identity) is plain_head
