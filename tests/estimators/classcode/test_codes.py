"""Simplex codes: golden geometry."""

import pytest
import torch

from graphveil.estimators.classcode.codes import simplex_codes, soft_codes


@pytest.mark.parametrize("classes", [2, 3, 6, 10])
def test_codes_are_unit_vectors_equally_far_apart(classes: int) -> None:
    codes = simplex_codes(classes)
    expected = torch.full((classes, classes), -1 / (classes - 1), dtype=torch.float64)
    expected.fill_diagonal_(1.0)
    assert codes.shape == (classes, classes - 1)
    torch.testing.assert_close(codes @ codes.T, expected)


def test_three_codes_are_a_rotation_of_the_golden_triangle() -> None:
    golden = torch.tensor([[1.0, 0.0], [-0.5, 3**0.5 / 2], [-0.5, -(3**0.5) / 2]], dtype=torch.float64)
    codes = simplex_codes(3)
    rotation = torch.linalg.lstsq(codes, golden).solution
    torch.testing.assert_close(codes @ rotation, golden)
    torch.testing.assert_close(rotation @ rotation.T, torch.eye(2, dtype=torch.float64))


def test_soft_codes_never_leave_the_unit_ball() -> None:
    posteriors = torch.randn(1000, 5, generator=torch.Generator().manual_seed(0)).mul(4).log_softmax(dim=1)
    assert bool((soft_codes(posteriors, simplex_codes(5)).norm(dim=1) <= 1 + 1e-12).all())
