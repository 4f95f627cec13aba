"""A finished run under attack: the published model on its training data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphveil._util.escape import render
from graphveil._util.files import write_atomic
from graphveil.data.tables.encoding import REGRESSION
from graphveil.errors import ArtifactError, ConfigError
from graphveil.links import RECOMMENDER, load_any
from graphveil.publish.charts import MIN_RATE, PlotLine, inline_svg, line_chart
from graphveil.runs.experiment import Experiment
from graphveil.runs.run_folder import RunFolder, read_json, write_json
from graphveil.runs.source import Source

if TYPE_CHECKING:
    from graphveil.data import Graph
    from graphveil.estimators.base import Estimator

INTERNAL = "Internal: an attack is scored by the secrets that it infers. Do not publish its results."
_DATA = "data."


@dataclass(frozen=True, eq=False)
class AttackTarget:
    """A run with its model and its data.

    Args:
        graph: Training graph, split by the run's first seed for a model of nodes.
    """

    folder: RunFolder
    model: Any
    graph: "Graph"
    source: Source

    @property
    def estimator(self) -> "Estimator":
        from graphveil.estimators.base import Estimator

        if not isinstance(self.model, Estimator):
            raise ConfigError(
                "This attack needs a model of nodes, but this run predicts links. Use `graphveil attack "
                "linkteller` or `graphveil attack topology`."
            )
        return self.model

    def write(self, attack: str, figures: Mapping[str, Any], curves: Sequence[PlotLine] = ()) -> Path:
        """Write an attack's results under ``internal/``, and a page with its ROC curves if there are any."""
        folder = self.folder.internal / "attacks"
        path = folder / f"{attack}.json"
        write_json(path, figures)
        if curves:
            title = f"{attack}: {self.model.method} on {self.source.name}"
            chart = inline_svg(
                lambda: line_chart(
                    curves,
                    x_label="false-positive rate",
                    y_label="true-positive rate",
                    limits=(MIN_RATE, 1.0),
                    log=True,
                ),
                f"ROC of {title}",
            )
            page = render(
                "chart_page.html", title=title, lede=INTERNAL, chart=chart, caption="", not_examined=()
            )
            write_atomic(folder / f"{attack}.html", page.encode())
        return path


def load_attack_target(place: Path, overrides: Mapping[str, Any]) -> AttackTarget:
    """Load a run and its data again, from their original location or from the overrides."""
    folder = RunFolder(place)
    if not folder.lock.is_file():
        raise ArtifactError(
            f"{place} has no internal/ folder, which records the training data. An attack needs them. "
            "Pass the complete run folder."
        )
    locked = read_json(folder.lock)["configuration"]
    data = {name.removeprefix(_DATA): value for name, value in locked.items() if name.startswith(_DATA)}
    data |= {name: value for name, value in overrides.items() if value is not None}
    model = load_any(place)
    if model.method == RECOMMENDER:
        raise ConfigError(
            "No attack is implemented for a recommender, which publishes one item-item matrix for all users. "
            f"Run `graphveil audit {folder.root}`."
        )
    if model.get_params().get("task") == REGRESSION:
        raise ConfigError(
            "Attacks need class probabilities, but this run predicts numbers. Attack a run that "
            "predicts classes."
        )
    parameters = {name: value for name, value in model.recorded_params().items() if name != "seed"}
    source = Source.from_dict(data)
    experiment = Experiment(
        model.method, source, parameters, locked.get("recipe"), seed=int(locked["seed"]), compare=False
    )
    graph, sizes = experiment.split(experiment.load(), 0), model.fitted.sizes
    if graph.num_nodes != sizes.nodes or (not experiment.pairs and graph.num_features != sizes.features):
        raise ConfigError(
            "The data differ in size from the training data of the run. Pass the data that the run "
            "was trained on (--root, --nodes, --edges)."
        )
    return AttackTarget(folder, model, graph, source)
