"""How a cell is measured, by name. Importing this loads none of them."""

from collections.abc import Callable
from importlib import import_module

from graphveil.errors import ConfigError, PrivacyError
from graphveil.lab.papers.cells import Work
from graphveil.lab.papers.measures.measurement import Measurement, MeasurementPaths

Measure = Callable[[Work, MeasurementPaths], Measurement]

_MODULES = {
    "fit": "fit",
    "statistics": "graph_sizes",
    "depth_one": "depth_one",
    "membership": "membership",
    "plain_features": "plain_features",
    "private_share": "private_share",
    "scores": "scores",
    "links": "links",
    "records": "records",
}
MEASURES = tuple(_MODULES)


def measure(work: Work, paths: MeasurementPaths) -> Measurement:
    """Return what a cell finds out; a configuration that is refused is a finding, with its reason.

    Refusals come before anything is spent: of a guarantee that cannot be given, or of a graph that would be
    too large. Anything else that goes wrong is raised.
    """
    found: Measure = import_module(f"{__name__}.{_MODULES[work.measure]}").measure
    try:
        return found(work, paths)
    except (PrivacyError, ConfigError) as refused:
        return Measurement(values={}, refused=str(refused))
