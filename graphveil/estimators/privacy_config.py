"""What is protected, at which budget, by whose accounting: the configuration that all methods have."""

from dataclasses import dataclass

from graphveil.errors import ConfigError
from graphveil.privacy import NodeUnit, NoUnit, Unit, check_delta
from graphveil.privacy.guarantee import Mode


@dataclass(frozen=True, kw_only=True)
class PrivacyConfig:
    """The terms that a method works under; see :class:`~graphveil.estimators.base.Estimator` for each.

    >>> from graphveil.privacy import UndirectedEdge
    >>> terms = PrivacyConfig(unit=UndirectedEdge(), epsilon=1.0)
    >>> terms.on_records, terms.budget, terms.delta_for(10_000)
    (False, 1.0, 1e-07)
    """

    unit: Unit
    mode: Mode = "strict"
    epsilon: float | None = None
    delta: float | str = "auto"
    max_units: int | None = None
    seed: int | None = None
    unsafe_noise_seed: int | None = None
    private_metrics: bool = False
    paper_deviations: tuple[str, ...] = ()

    @property
    def on_records(self) -> bool:
        """Whether the unit protects the records that networks learn from."""
        return isinstance(self.unit, NodeUnit)

    @property
    def protects(self) -> bool:
        """Whether the unit protects anything."""
        return not isinstance(self.unit, NoUnit)

    @property
    def paper(self) -> bool:
        """Whether a paper is reproduced, its own accounting included."""
        return self.mode == "paper"

    @property
    def budget(self) -> float:
        """Epsilon, which every unit but ``none`` was checked to have."""
        if self.epsilon is None:
            raise ConfigError(f"unit {self.unit.name!r} needs a budget: pass epsilon= (or --epsilon)")
        return self.epsilon

    def delta_for(self, nodes: int) -> float:
        """Return delta: as given, or from the public bound on the number of units."""
        return check_delta(self.unit, self.delta, self.max_units or nodes)
