"""The decoder of aggregates against a plain reference, and on rows drawn from the model that it fits."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from graphveil.core.queries.out_edge_sums import simplex_codes
from graphveil.estimators.classcode import likelihoods
from graphveil.estimators.classcode.likelihoods import decode

CODES = simplex_codes(3)


def drawn(count: int = 600, sigma: float = 0.5, seed: int = 0):
    """Return rows, classes and strengths."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.randint(3, (count,), generator=generator)
    strengths = 4 * torch.randn(count, generator=generator).double().mul(0.5).exp()
    profiles = 0.5 * CODES[classes] + 0.1 * torch.randn(count, 2, generator=generator).double()
    noise = sigma * torch.randn(count, 2, generator=generator).double()
    return strengths[:, None] * profiles + noise, classes, strengths


def reference(rows: torch.Tensor, sigma: float, iterations: int):
    """Decode node by node and component by component, as the specification's section 3 reads."""
    count, dim = rows.shape
    eye = torch.eye(dim).double()
    rms = max(float(rows.square().sum(1).mean()) - dim * sigma**2, 0.05 * dim * sigma**2) ** 0.5
    strengths = rms / 0.5 * torch.linspace(-2.2, 1.4, 10).double().exp()
    h, S = [0.5 * code for code in CODES], [0.03 * eye for _ in CODES]
    by_strength, by_class = torch.full((10,), 0.1).double(), torch.full((3,), 1 / 3).double()

    def densities() -> torch.Tensor:
        return torch.stack(
            [
                torch.stack(
                    [
                        MultivariateNormal(s * h[k], sigma**2 * eye + s**2 * S[k]).log_prob(rows)
                        for k in range(3)
                    ]
                )
                for s in strengths
            ]
        )  # (10, 3, n)

    for _ in range(iterations):
        joint = densities() + by_strength.log()[:, None, None] + by_class.log()[:, None]
        r = joint.flatten(0, 1).softmax(dim=0).unflatten(0, (10, 3))
        new_h, new_S = [], []
        for k in range(3):
            sums, weight, latent = torch.zeros(dim).double(), 0.0, []
            for j, s in enumerate(strengths):
                gain = s * S[k] @ (s**2 * S[k] + sigma**2 * eye).inverse()
                means = h[k] + (rows - s * h[k]) @ gain.T
                latent.append((r[j, k], means, S[k] - s * gain @ S[k]))
                sums, weight = sums + r[j, k] @ means, weight + r[j, k].sum()
            center = (sums + 50 * 0.5 * CODES[k]) / (weight + 50)
            scatter = 50 * 0.03 * eye
            for share, means, covariance in latent:
                off = means - center
                scatter = scatter + (share[:, None] * off).T @ off + share.sum() * covariance
            new_h.append(center)
            new_S.append(scatter / (weight + 50))
        h, S = new_h, new_S
        by_strength = (r.sum(dim=(1, 2)) + 1) / (count + 10)
        by_class = (r.sum(dim=(0, 2)) + 50) / (count + 150)
    likely = (densities() + by_strength.log()[:, None, None]).logsumexp(dim=0).T
    r = (
        (densities() + by_strength.log()[:, None, None] + by_class.log()[:, None])
        .flatten(0, 1)
        .softmax(dim=0)
    )
    strength = r.unflatten(0, (10, 3)).sum(dim=1).T @ strengths
    posterior = (likely + by_class.log()).softmax(dim=1)
    return (
        likely - likely.mean(1, keepdim=True),
        strength,
        -(posterior * posterior.log()).sum(1) / math.log(3),
    )


@pytest.mark.parametrize(("count", "iterations"), [(80, 0), (80, 1), (80, 4), (17_000, 1)])  # two blocks
def test_agrees_with_the_reference(count: int, iterations: int) -> None:
    rows, _, _ = drawn(count)
    found = decode(rows, 0.5, CODES, iterations)
    likely, strengths, uncertainties = reference(rows, 0.5, iterations)
    torch.testing.assert_close(found.log_likelihoods, likely)
    torch.testing.assert_close(found.strengths, strengths)
    torch.testing.assert_close(found.uncertainties, uncertainties)


def test_recovers_classes_strengths_and_uncertainties_of_drawn_rows() -> None:
    rows, classes, strengths = drawn()
    found = decode(rows, 0.5, CODES)
    right = found.log_likelihoods.argmax(dim=1) == classes
    assert right.float().mean() > 0.85
    assert torch.corrcoef(torch.stack([found.strengths.log(), strengths.log()]))[0, 1] > 0.7
    assert found.uncertainties[~right].mean() > 2 * found.uncertainties[right].mean()
    assert (found.uncertainties >= 0).all() and (found.uncertainties <= 1).all()


def test_noise_alone_is_not_informative() -> None:
    rows = torch.randn(500, 2, generator=torch.Generator().manual_seed(1)).double()
    found = decode(rows, 1.0, CODES)
    assert found.log_likelihoods.abs().max() < 2.5
    assert found.uncertainties.mean() > 0.75


def test_moments_that_are_too_large_to_store_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _, _ = drawn(600)
    stored = decode(rows, 0.5, CODES)
    monkeypatch.setattr(likelihoods, "_MAX_STORED_BYTES", 0)  # and blocks are as small as possible
    computed = decode(rows, 0.5, CODES)
    for name in ("log_likelihoods", "strengths", "uncertainties"):
        torch.testing.assert_close(getattr(computed, name), getattr(stored, name))


@pytest.mark.parametrize("classes", [2, 5, 60])  # of 60 classes, 15 are computed at a time
def test_any_number_of_classes(classes: int) -> None:
    codes = simplex_codes(classes)
    rows = 3 * codes.repeat(2 if classes == 60 else 20, 1)
    found = decode(rows, 0.3, codes, 2 if classes == 60 else 12)
    assert (found.log_likelihoods.argmax(1) == torch.arange(len(rows)) % classes).all()


def test_no_rows_give_nothing() -> None:
    found = decode(torch.zeros(0, 2), 0.5, CODES)
    assert found.log_likelihoods.shape == (0, 3) and found.strengths.shape == (0,)
