"""Log finished runs to MLflow: only the results that the guarantee covers.

Logged values may leave the machine, so they are selected by an allowlist of public values: configuration,
privacy cost, noise, and the accuracies of the model card. Losses, times, sizes, names of files and any new
metric are not logged until they are added here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

from graphveil.core.unit import NodeUnit
from graphveil.errors import ConfigError, MissingDependencyError
from graphveil.privacy import Guarantee
from graphveil.runs.experiment import Experiment

_SHARED = ("method", "recipe", "unit", "mode", "runs", "seed", "hops", "delta_source")
_FIGURES = ("epsilon", "delta", "max_tpr_at_1pct_fpr", "max_tpr_at_1pct_fpr_all_runs")
_ACCURACIES = ("test_accuracy", "mlp_test_accuracy")  # what a model card states
_EXPERIMENT = "graphveil"  # MLflow's folder of runs


@dataclass(frozen=True)
class PublicRecord:
    """The values to log of a run.

    Args:
        figures: Numbers by name; accuracies of several runs also by run, from 0.
    """

    name: str
    parameters: Mapping[str, str]
    figures: Mapping[str, float]
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @classmethod
    def from_experiment(
        cls, experiment: Experiment, metrics: Mapping[str, Any], guarantee: Guarantee
    ) -> "PublicRecord":
        """Select the public values of a finished experiment.

        Args:
            metrics: Its results, public and private, as in ``internal/metrics.json``.
        """
        given = {f"set.{name}": value for name, value in experiment.parameters.items()}
        shared = {name: metrics.get(name) for name in _SHARED} | {"dataset": experiment.source.published_name}
        parameters = {
            name: str(value)
            for name, value in (shared | given).items()
            if isinstance(value, str | int | float | bool)
        }
        all_runs = metrics["guarantee_all_runs"]
        numbers: dict[str, Any] = {name: metrics.get(name) for name in _FIGURES}
        numbers |= {f"all_runs_{name}": all_runs.get(name) for name in ("epsilon", "delta", "releases")}
        numbers |= {f"noise_std_{place}": value for place, value in enumerate(metrics["noise_std"])}
        series = {name: values for name, values in _accuracies(metrics, guarantee).items() if values}
        numbers |= {name: sum(values) / len(values) for name, values in series.items()}
        figures = {
            name: float(value)
            for name, value in numbers.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        }
        return cls(f"{metrics['method']} {guarantee.unit}", parameters, figures, series)


def log_to_mlflow(record: PublicRecord, uri: str | None = None) -> None:
    """Write one run to MLflow; its client adds no name of a user, a script or a machine.

    Args:
        uri: Tracking server or store, by default where MLflow itself looks (``MLFLOW_TRACKING_URI``).
    """
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    known = client.get_experiment_by_name(_EXPERIMENT)
    place = client.create_experiment(_EXPERIMENT) if known is None else known.experiment_id
    run = client.create_run(place, run_name=record.name).info.run_id
    for name, value in record.parameters.items():
        client.log_param(run, name, value)
    for name, number in record.figures.items():
        client.log_metric(run, name, number)
    for name, values in record.series.items():
        for step, number in enumerate(values):
            client.log_metric(run, f"by_run.{name}", number, step=step)
    client.set_terminated(run)


def tracker_of(text: str) -> Callable[[PublicRecord], None]:
    """Return the tracker that a flag names: ``mlflow`` or ``mlflow:URI``; its package must be installed.

    >>> tracker_of("wandb")
    Traceback (most recent call last):
    graphveil.errors.ConfigError: --track 'wandb' is not supported. Use mlflow or mlflow:URI.
    """
    kind, _, place = text.partition(":")
    if kind != "mlflow":
        raise ConfigError(f"--track {text!r} is not supported. Use mlflow or mlflow:URI.")
    if find_spec("mlflow") is None:
        raise MissingDependencyError(
            "--track mlflow needs MLflow. Install it with `pip install 'graphveil[mlflow]'`."
        )
    return partial(log_to_mlflow, uri=place or None)


def _accuracies(metrics: Mapping[str, Any], guarantee: Guarantee) -> dict[str, list[float]]:
    if isinstance(guarantee.protected, NodeUnit):
        noisy = {f"noisy_{part}_accuracy": of for part, of in (metrics["private_accuracy"] or {}).items()}
        return {name: list(of["values"]) for name, of in noisy.items() if isinstance(of, dict)}
    stated = {name: metrics.get(name) for name in _ACCURACIES}
    return {name: [one for one in of["values"] if one is not None] for name, of in stated.items() if of}
