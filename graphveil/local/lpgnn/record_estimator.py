"""Estimators that learn from whole records: randomized features, and a randomized label."""

from dataclasses import dataclass
from typing import ClassVar

from graphveil.data.features import as_features
from graphveil.errors import ConfigError
from graphveil.local.collect import Collector
from graphveil.local.lpgnn.keywords import LocalKeywords
from graphveil.local.lpgnn.local_estimator import LocalEstimator
from graphveil.local.lpgnn.randomized_records import outside
from graphveil.local.lpgnn.report_config import ReportConfig
from graphveil.local.lpgnn.scaling import scaled
from graphveil.mechanisms import FeatureMechanism
from graphveil.nn.inputs import FeatureEstimates


@dataclass(kw_only=True, eq=False, repr=False)
class RecordEstimator(LocalKeywords, LocalEstimator):
    """Base of methods whose nodes randomize their features, too."""

    report_parameters: ClassVar[tuple[str, ...]] = (
        *("unit", "mode", "delta", "eps_x", "eps_y", "features", "m", "theta", "k", "rounding", "decode"),
        *("low", "high", "scaling", "data_dependent_bounds", "labels"),
    )

    def mechanism(self, dim: int) -> FeatureMechanism:
        """Return what randomizes a vector of so many features."""
        found = self._report_config().mechanism(dim)
        assert found is not None  # records have features
        return found

    def _report_config(self) -> ReportConfig:
        return ReportConfig.from_keywords(self, self.privacy_config, self.method)

    def _public(self, collector: Collector, given: object) -> FeatureEstimates | None:
        """Return public features in the place of estimates, where the survey asks for none."""
        if (given is None) != (collector.protocol.features is not None):
            raise ConfigError(
                "the survey asks for no features, so public ones are needed: public_features=, one row per "
                "node"
                if given is None
                else "the survey asks for features, and what was said is learned from; drop public_features"
            )
        if given is None:
            return None
        x = scaled(as_features(given), self.scaling)
        report_config = self._report_config().features
        assert report_config is not None
        if count := outside(report_config.bounds, x):
            raise ConfigError(
                f"{count:,} values of the public features lie outside low={self.low!r} and "
                f"high={self.high!r}, and would be cut; say their range (--set low=.. --set high=..), or "
                "scaling='row'"
            )
        return FeatureEstimates(x)
