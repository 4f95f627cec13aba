"""Simplex codes: unit vectors that are equally far apart."""

import pytest
import torch

from graphveil.core.queries.out_edge_sums import simplex_codes, soft_codes


@pytest.mark.parametrize("classes", [2, 3, 6, 10])
def test_codes_are_unit_vectors_equally_far_apart(classes: int) -> None:
    codes = simplex_codes(classes)
    expected = torch.full((classes, classes), -1 / (classes - 1), dtype=torch.float64)
    expected.fill_diagonal_(1.0)
    assert codes.shape == (classes, classes - 1)
    torch.testing.assert_close(codes @ codes.T, expected)
    posteriors = torch.randn(1000, classes, generator=torch.Generator().manual_seed(0)).mul(4).log_softmax(1)
    assert bool((soft_codes(posteriors, codes).norm(dim=1) <= 1 + 1e-12).all())
