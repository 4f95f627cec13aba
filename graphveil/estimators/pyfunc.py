"""Support for MLflow: load a release folder with ``mlflow.pyfunc.load_model(release)``.

MLflow reads ``MLmodel`` in the folder, and imports this module; nothing here imports MLflow.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphveil.errors import ConfigError
from graphveil.estimators.saved import load_model
from graphveil.publish.release_folder import NODE, predictions_table
from graphveil.publish.schemas import no_predictions_note

if TYPE_CHECKING:
    from graphveil.estimators.base import Estimator

_IDS = ("id", NODE)  # name of the id column, here and in `graphveil serve`


class ReleasedModel:
    """The stored predictions of a release. Returning them does not spend privacy budget.

    Ids that are not in the release would need a new release and are rejected. Under node-level units a
    release has no predictions.
    """

    def __init__(self, model: "Estimator") -> None:
        self.model = model

    def predict(self, model_input: Any = None, params: dict[str, Any] | None = None) -> Any:
        """Return the stored predictions of nodes.

        Args:
            model_input: Node ids, in a column or key ``id`` or ``node``, or a list; None for all.

        Raises:
            ConfigError: If an id is not in the release, or the input has no ids.
            ArtifactError: If the unit withholds predictions from the release.

        Privacy:
            Unit: that of the release. Reads: released values only. Charges: nothing.
        """
        if params:
            raise ConfigError(
                f"A released model takes no parameters, but {', '.join(sorted(params))} was given. Omit it."
            )
        model = self.model
        if model.proba_ is None:
            raise no_predictions_note(model.guarantee)
        table = predictions_table(model.outputs(None), model.named_classes, model.ids_)
        if model_input is not None:
            # A number and its digits are the same id.
            places = {str(node): place for place, node in enumerate(table.column(NODE).to_pylist())}
            requested = [str(one) for one in _ids(model_input)]
            if any(one not in places for one in requested):
                raise ConfigError(
                    "An id is not among the predictions of this release. To predict new nodes, make a new "
                    "release: graphveil predict RUN --nodes FILE --edges FILE."
                )
            table = table.take([places[one] for one in requested])
        return table.to_pandas()


def _ids(model_input: Any) -> list[Any]:
    columns = getattr(model_input, "columns", model_input if isinstance(model_input, dict) else None)
    if columns is not None:
        named = [name for name in _IDS if name in columns]
        if not named:
            raise ConfigError(
                f"The input has no column {_IDS[0]!r} or {_IDS[1]!r}. Put the ids of the nodes to predict "
                "in one of these columns."
            )
        model_input = model_input[named[0]]
    return list(np.asarray(model_input).reshape(-1).tolist())


def _load_pyfunc(path: str) -> ReleasedModel:
    """Return the model in a folder; called by MLflow."""
    return ReleasedModel(load_model(Path(path)))
