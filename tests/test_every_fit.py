"""What every kind of fit has in common: all methods, links, the recommender, noisy graphs and noisy sums."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

import graphveil as gv
from tests.fits import FITS, METHODS, RESUMED

SLOW = {
    "auto",
    "auto of persons",
    "gnn",
    "gnn, neighbors",
    "mlp of records",
    "mlp of persons",
}  # to calibrate
WITHOUT_NOISE = {"mlp", "gcn without privacy"}


def slow_last(names: list[str]) -> list[object]:
    """Return the names as parameters, with the slow ones marked."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in names]


def test_the_table_of_fits_has_every_method() -> None:
    assert {method for method, _ in METHODS.values()} == set(gv.METHODS)


@pytest.mark.parametrize("name", slow_last([name for name in RESUMED if name not in WITHOUT_NOISE]))
def test_a_seeded_fit_that_is_resumed_without_its_seed_is_not_valid(name: str, tmp_path: Path) -> None:
    make, fit = RESUMED[name]
    data = make()
    seeded = fit(data, workspace=tmp_path / "fit", unsafe_noise_seed=5)
    resumed = fit(data, workspace=tmp_path / "fit")
    for guarantee in (seeded.guarantee, resumed.guarantee):
        assert guarantee is not None and not guarantee.valid
        assert "the noise is reproducible from a seed" in guarantee.deviations
        assert not any(one.valid for one in guarantee.additional)
    assert all(map(np.array_equal, seeded.numbers, resumed.numbers))
    fresh = fit(data, workspace=tmp_path / "new").guarantee
    assert fresh is not None and fresh.valid


@contextmanager
def odd_settings() -> Iterator[None]:
    """Numbers of 64 bits by default, no gradients, and errors of NumPy where it would warn."""
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), torch.inference_mode(), np.errstate(all="raise"):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def settings_of_the_process() -> tuple[object, ...]:
    return (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        np.geterr(),
    )


@pytest.mark.parametrize("name", slow_last(list(FITS)))
def test_settings_of_the_process_do_not_affect_a_fit(name: str) -> None:
    """Fits and predictions are bit-identical, and the caller's settings are restored."""
    make, fit = FITS[name]
    seeded = {} if name == "gcn without privacy" else {"unsafe_noise_seed": 5}
    plain = fit(make(), **seeded).numbers
    data = make()
    with odd_settings():
        before = settings_of_the_process()
        found = fit(data, **seeded).numbers
        assert settings_of_the_process() == before
    for one, other in zip(plain, found, strict=True):
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes()
