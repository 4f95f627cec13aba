"""How a model shows itself: in one line, in three, and to scikit-learn."""

import dataclasses
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from graphveil.errors import ConfigError, MissingDependencyError
from graphveil.estimators.predictor import Predictor
from graphveil.privacy import NoUnit
from graphveil.privacy.formatting import counted, format_epsilon_delta


class DisplayMixin(Predictor):
    """The part of an estimator that other tools look at."""

    def __repr__(self) -> str:
        """Show the keywords that differ from their defaults."""
        chosen = (
            f"{part.name}={getattr(self, part.name)!r}"
            for part in dataclasses.fields(self)
            if part.init and getattr(self, part.name) != part.default
        )
        return f"{type(self).__name__}({', '.join(chosen)})"

    def __str__(self) -> str:
        """Show three lines: the keywords, what it was fitted on, and the guarantee."""
        return "\n".join([repr(self), *self._summary_rows()])

    def _summary_rows(self) -> list[str]:
        """Return what is public of the fit, and its guarantee in a line."""
        if self._fit is None:
            return ["not fitted yet; fit(graph) trains it", "no guarantee before a fit"]
        sizes, guarantee = self._fit.sizes, self.guarantee_with_predictions
        size = f"fitted on {sizes.nodes:,} nodes, {sizes.classes} classes"
        if guarantee.unit == NoUnit.name:
            return [size, "no guarantee: nothing is protected"]
        releases = counted(guarantee.releases, "release")
        void = "" if guarantee.valid else "; void, for its known deviations"
        figure = format_epsilon_delta(guarantee.epsilon, guarantee.delta)
        return [size, f"{guarantee.unit}: {figure}, {releases}{void}"]

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The labels in class order: names as text, or numbers; empty before a fit."""
        if self._fit is None:
            return np.array([])
        names = self._fit.class_names
        return np.array(names) if names else np.arange(self._fit.sizes.classes)

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn asks of a classifier, where that is installed.

        Raises:
            MissingDependencyError: it is not.
        """
        try:
            from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags
        except ImportError:
            raise MissingDependencyError("tags are scikit-learn's own; pip install scikit-learn") from None
        inputs = InputTags(two_d_array=False)
        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=False),
            classifier_tags=ClassifierTags(),
            input_tags=inputs,
            non_deterministic=True,
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle a model that is not fitted; a fitted one has an open ledger, which no copy may have."""
        if self._fit is not None:
            _refuse_pickling()
        return super().__reduce_ex__(protocol)


def _refuse_pickling() -> NoReturn:
    raise ConfigError(
        "a fitted model cannot be pickled, copied or sent to another process, since the ledger of what it "
        "was asked would not go with it: save it (model.save(folder)), load it there (load_model(folder)); "
        "one that is not fitted can be sent"
    )
