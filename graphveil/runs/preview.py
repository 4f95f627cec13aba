"""The plan and the privacy cost of a run, from public sizes alone, before anything is computed or spent."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphveil._util.figures import counted
from graphveil.core.unit import LocalAttributes, NoUnit
from graphveil.errors import PrivacyError
from graphveil.privacy import Guarantee
from graphveil.publish.queries import QueryRow, stages_of
from graphveil.runs.experiment import Experiment

if TYPE_CHECKING:
    from graphveil.data import Graph
    from graphveil.estimators.base import Estimator
    from graphveil.estimators.method import PreparedFit

_BYTES_A_FEATURE = 12  # float32 features, their encoding, and a gradient's worth of scratch
_BYTES_AN_EDGE = 24  # the tables as they are read, sorted, and stored in compressed rows
_BASE_BYTES = 450 << 20  # the interpreter and its libraries
_SECONDS_A_FEATURE = 1.2e-6
_SECONDS_AN_EDGE = 1.5e-6
_BASE_SECONDS = 2.0


def _estimate(graph: "Graph", edges: int, runs: int) -> str:
    """Return rough memory and time from N, d and the given number of edges."""
    cells = graph.num_nodes * graph.num_features
    memory = _BASE_BYTES + cells * _BYTES_A_FEATURE + edges * _BYTES_AN_EDGE
    seconds = _BASE_SECONDS + runs * (cells * _SECONDS_A_FEATURE + edges * _SECONDS_AN_EDGE)
    return f"about {round(memory / 2**20) / 1000:.1f} GB and {seconds:.0f} s for this number of edges"


@dataclass(frozen=True, kw_only=True, eq=False)
class Preview:
    """The plan that is shown before anything is spent.

    ``baseline`` is the guarantee of the no-graph baseline, if that is a separate release. ``fits`` are the
    planned fits of the first run, of the method and of the baseline, which the first run executes.
    """

    experiment: Experiment
    graph: "Graph"
    guarantee: Guarantee
    baseline: Guarantee | None
    guarantee_all_runs: Guarantee
    releases: tuple[QueryRow, ...]
    stages: tuple[QueryRow, ...]
    noise_std: tuple[float, ...]
    delta_source: str
    estimate: str = ""  # memory and time
    sample: str = ""  # which nodes are learned from, if not all training nodes
    scaled: str = ""  # which feature columns are scaled, and how
    decision: str = ""  # what a fit decides by what, if it chooses a method
    public: str = ""  # number of public edges, if they are distinguished from private ones
    fits: "tuple[PreparedFit, PreparedFit | None] | None" = None

    @property
    def sizes(self) -> str:
        """Public sizes of the graph, as text."""
        return f"{counted(self.graph.num_nodes, 'node')}, {counted(self.graph.num_features, 'feature')}"


def preview(experiment: Experiment, graph: "Graph", *, expect_edges: int | None = None) -> Preview:
    """Check everything that can be checked, and return the plan; nothing is spent.

    Args:
        experiment: The configuration.
        graph: The prepared graph, not split yet.
        expect_edges: The caller's guess of the number of edges, for the estimate of memory and time.

    Raises:
        PrivacyError: The requested guarantee is not possible.
        GraphError: The data cannot be used.
    """
    model, baseline, split = experiment.model(0), experiment.baseline(0), experiment.split(graph, 0)
    prepared = model.prepare(split)
    prepared_baseline = None if baseline is None else baseline.prepare(split)
    plan, guarantee, rows = prepared.preview
    baseline_guarantee = (
        None if prepared_baseline is None else charged_guarantee(prepared_baseline.preview.guarantee)
    )
    a_run = [guarantee] if baseline_guarantee is None else [guarantee, baseline_guarantee]
    return Preview(
        experiment=experiment,
        graph=graph,
        guarantee=guarantee,
        baseline=baseline_guarantee,
        guarantee_all_runs=combined_guarantee(a_run * experiment.runs),
        releases=rows,
        stages=stages_of(plan),
        noise_std=() if plan is None else tuple(plan.noise_std),
        delta_source=_delta_source(model, guarantee, graph.num_nodes),
        sample=model.training_sample_note(split),
        scaled=prepared.scaling_summary,
        decision=prepared.method.decision,
        public=""
        if split.public is None
        else f"{split.public.num_edges:,} public edges; {split.public.num_private_nodes:,} of "
        f"{split.num_nodes:,} nodes may have private ones",
        estimate="" if expect_edges is None else _estimate(graph, expect_edges, experiment.runs),
        fits=(prepared, prepared_baseline),
    )


def charged_guarantee(baseline: Guarantee) -> Guarantee | None:
    """Return the guarantee of a baseline that is charged, as under node-level privacy units.

    Under ``local-attributes`` it learns from the method's own LDP reports.
    """
    return baseline if baseline.releases and baseline.unit != LocalAttributes.name else None


def combined_guarantee(guarantees: Sequence[Guarantee]) -> Guarantee:
    """Return the guarantee of several runs on the same data, everything printed about them included.

    Raises:
        PrivacyError: the noise's finite resolution alone would use up delta.
    """
    first, slack = guarantees[0], sum(guarantee.slack for guarantee in guarantees)
    if len(guarantees) == 1:
        return first
    if 0 < slack >= first.delta and first.releases:
        raise PrivacyError(
            f"The numerical resolution of the noise alone would use all of delta = {first.delta:g} in "
            f"{len(guarantees)} runs. Use fewer --runs."
        )
    return Guarantee.compose(guarantees)


def _delta_source(model: "Estimator", guarantee: Guarantee, nodes: int) -> str:
    """Return the origin of delta, and for ``auto`` the bound that determined it."""
    if guarantee.unit == NoUnit.name:
        return ""
    if guarantee.unit == LocalAttributes.name:
        return "eps_x + eps_y" if not guarantee.delta else "eps_x + eps_y, delta of the mechanism"
    if guarantee.graph:
        return "of the random walk" if guarantee.delta else "a released graph needs none"
    if model.delta != "auto":
        return "as given"
    return auto_delta_source(guarantee, model.max_units, counted(nodes, "node"))


def auto_delta_source(guarantee: Guarantee, max_units: int | None, sizes: str) -> str:
    """Return the bound that determined delta, if it is ``auto``: the given one, or public sizes in words."""
    bound = f"B = {max_units:,} (--max-units)" if max_units else f"B = {sizes}"
    if guarantee.delta == guarantee.protected.delta_cap:
        return f"auto: the default of {guarantee.unit}, below 1/(10 B) for {bound}"
    return f"auto: the largest power of ten up to 1/(10 B), {bound}"
