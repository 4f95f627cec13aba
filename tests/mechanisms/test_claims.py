"""Claims and the words for unit local-attributes."""

import math

import pytest

from graphveil.errors import ConfigError
from graphveil.mechanisms import NOT_COLLECTED, NOT_RANDOMIZED, LocalDPClaim, node_features_statement
from graphveil.papers.scalar_mechanisms import LaplaceDistribution, StepDistribution, scalar

# docs/privacy/proofs/statements.md.
TEXT = (
    "Each node's features are randomized on their own at eps_x = {} and its label at eps_y = {} (total {}; "
    "inf = not protected). Edges, identities and test labels (used in the clear for the test score) are not "
    "protected. "
    "This process held the raw data; the guarantee covers the output of the randomizer."
)


@pytest.mark.parametrize(
    ("x", "y", "figures"),
    [
        (LocalDPClaim(1.0), LocalDPClaim(0.5), ("1", "0.5", "1.5")),
        (LocalDPClaim(0.1), LocalDPClaim(0.2), ("0.1", "0.2", "0.3")),
        (LocalDPClaim(1.0), NOT_RANDOMIZED, ("1", "inf", "inf")),
        (NOT_COLLECTED, LocalDPClaim(3.0), ("0", "3", "3")),
        (LocalDPClaim(1.00000049), LocalDPClaim(1000.0), ("1.00000049", "1000", "1001.00000049")),
        (LocalDPClaim(1e-7), LocalDPClaim(1e-7), ("1e-7", "1e-7", "2e-7")),
    ],
)
def test_the_statement_is_the_documented_one(
    x: LocalDPClaim, y: LocalDPClaim, figures: tuple[str, ...]
) -> None:
    assert node_features_statement(x, y) == TEXT.format(*figures)


def test_a_delta_is_named() -> None:
    text = node_features_statement(LocalDPClaim(1.0, 1e-10), LocalDPClaim(1.0))
    assert "with delta = 1e-10, which is weaker" in text
    assert text.startswith(TEXT.format("1", "1", "2"))


def test_deviations_come_first() -> None:
    text = node_features_statement(LocalDPClaim(1.0, 0.0, ("real-valued sampler",)), NOT_COLLECTED)
    assert text.startswith("No valid guarantee. Known deviations: real-valued sampler. It would read: Each")


def test_the_statement_for_clients_claims_no_raw_data_elsewhere() -> None:
    text = node_features_statement(LocalDPClaim(1.0), LocalDPClaim(1.0), on_clients=True)
    assert "held the raw data" not in text
    assert text.endswith("Each node's own device ran the randomizer; the guarantee covers its output.")


def test_claims_add_up() -> None:
    both = LocalDPClaim(1.0, 1e-5, ("a",)) + LocalDPClaim(math.inf, 1e-6, ("b", "a"))
    assert both == LocalDPClaim(math.inf, 1e-5 + 1e-6, ("a", "b"))
    assert not both.certified
    assert LocalDPClaim(1.0).certified


def test_laws_of_different_kinds_are_infinitely_far_apart() -> None:
    one, other = scalar("duchi", 1.0).distribution(0.0), LaplaceDistribution(0.0, 1.0)
    assert one.log_ratio(other) == other.log_ratio(one) == math.inf
    assert LaplaceDistribution(0.0, 1.0).log_ratio(LaplaceDistribution(0.0, 2.0)) == math.inf
    with pytest.raises(ConfigError, match="single values"):
        assert isinstance(one, StepDistribution)
        one.mixed(scalar("piecewise", 1.0).distribution(0.0), 0.5)
