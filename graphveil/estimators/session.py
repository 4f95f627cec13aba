"""Resources of a fit other than the data: plan, ledger, seeds, progress, and workspace."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from graphveil._util.files import load_checked, save_checked
from graphveil.core.backends import AggregationBackend
from graphveil.core.journal import FolderJournal, MemoryJournal
from graphveil.core.keys import NAMES_IN_KEYS, ReleaseKey
from graphveil.core.ledger import PrivacyLedger, ledger_of
from graphveil.core.noise.random import PublicStreams
from graphveil.core.plan import ReleasePlan
from graphveil.core.query import Query
from graphveil.core.release import Release
from graphveil.data import Graph
from graphveil.errors import ConfigError
from graphveil.estimators.privacy_config import SEEDED
from graphveil.privacy import Guarantee
from graphveil.training import EpochRecord

Q = TypeVar("Q", bound=Query)
OnProgress = Callable[[str, int, int], None]
# Left out of the text unless they are set, since noise is bound to it.
_ADDED_PARAMETERS = ("metric", "class_weight", "positive", "target_range")
_PARAMETERS_IN_KEYS = {  # seeds have these names of parameters
    "max_degree": "assured_max_degree",
    "max_union_degree": "max_degree",
    "out_degree_bound": "degree_budget",
    "target_to_labeled_weight": "back",
    "self_training": "distil",
    "unlabeled_send": "unlabelled_send",
    "prior": "around",
    "allow_high_noise": "accept_noise",
    "max_out_edges": "out_slots",
    "neighborhood": "reads",
}
_VALUES_IN_KEYS = NAMES_IN_KEYS | {
    "unlabeled": "unlabelled",
    "neighbors": "neighbours",
    "factorized": "factorised",
}
_FORMER_DEFAULTS = {"read_own_edges": False}  # of parameters that are None by default now


def no_progress(stage: str, done: int, total: int) -> None:
    """Show no progress."""


@dataclass(kw_only=True)
class Session:
    """One fit in progress, or one prediction of another graph.

    Args:
        guarantee: Guarantee of the plan, computed before anything is queried; None without a plan.
        noise_seed: Makes the noise reproducible, so that the guarantee is invalid; None for a fresh key.
        ledger: Ledger of the release; by default that of the queried edges.
        workspace: Folder of checkpoints; a second fit there resumes the first.
        cache: Folder of tensors that depend on public data only, shared by fits.
        configuration: Public parameters as text. Private training binds its noise to them.
        collection_index: Number of this prediction of another graph. No two predictions have the same noise,
            for any seed. None in a fit.
    """

    streams: PublicStreams
    plan: ReleasePlan | None = None
    guarantee: Guarantee | None = None
    label: str = "rows"
    noise_seed: int | None = None
    ledger: PrivacyLedger | None = None
    backend: AggregationBackend | None = None
    on_recorded: Callable[[], None] = lambda: None
    on_progress: OnProgress = no_progress
    workspace: Path | None = None
    cache: Path | None = None
    configuration: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    history: list[tuple[str, EpochRecord]] = field(default_factory=list)
    finished: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    collection_index: int | None = None
    release: Release | None = None  # an open release whose next queries are the plan's
    reproducible: bool = (
        False  # whether noise was drawn from a seed, in this run or in the one that it resumes
    )

    @property
    def planned(self) -> ReleasePlan:
        if self.plan is None:
            raise ConfigError("this session has no query plan, so it cannot query the graph")
        return self.plan

    def query(self, number: int, kind: type[Q]) -> Q:
        found = self.planned.queries[number]
        if not isinstance(found, kind):
            raise ConfigError(
                f"query {number} of this session's plan is a {type(found).__name__}, not a {kind.__name__}"
            )
        return found

    def open(self, view: Graph, groups: Tensor | None = None, *, first: int = 0) -> Release:
        """Open the plan's release on a graph. It is recorded here, before the edges are read.

        Aggregates before ``first`` are known, and not queried. A session that was given an open release
        returns it, so a method can execute one alternative of a larger plan. A release that was started with
        a seed stays reproducible in a fit that resumes it without one.
        """
        plan = self.planned
        if self.release is not None:
            return self.release
        seeded = None if self.noise_seed is None else ReleaseKey.from_seed(self.noise_seed, self.label)
        release = Release.open(
            plan,
            view.adjacency,
            groups,
            budget=self.ledger or ledger_of(view.edge_set),
            key=seeded,
            backend=self.backend,
            first_row=first,
            journal=MemoryJournal() if self.workspace is None else FolderJournal(self.workspace / "release"),
            label=self.label,
        )
        self.on_recorded()
        self.reproducible |= release.reproducible
        return release

    def with_seed(self, guarantee: Guarantee) -> Guarantee:
        """Return a guarantee, invalid if noise was drawn from a seed, here or before a resume."""
        return guarantee.with_deviations_everywhere(SEEDED) if self.reproducible else guarantee

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the time of a stage; times of equal names add up."""
        start = time.perf_counter()
        self.on_progress(name, 0, 1)
        yield
        self.on_progress(name, 1, 1)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def checkpoint(self, name: str) -> Path | None:
        return None if self.workspace is None else self.workspace / f"{name}.checkpoint.safetensors"

    def load_or_compute(self, name: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        """Return a finished stage's tensors from the workspace, or compute and store them.

        Without a workspace they are kept in this session, for methods that share a stage.
        """
        if self.workspace is None:
            if name not in self.finished:
                self.finished[name] = compute()
            return self.finished[name]
        path = self.workspace / f"{name}.safetensors"
        if not path.exists():
            save_checked(path, compute())
        return load_checked(path)[0]

    def epochs(self, stage: str, total: int) -> Callable[[int], None]:
        return lambda epoch: self.on_progress(stage, epoch, total)

    def record(self, stage: str, epochs: list[EpochRecord]) -> None:
        self.history += [(stage, row) for row in epochs]


_CLASSIFICATION = ("task", "classification")


def configuration_text(parameters: Mapping[str, Any]) -> str:
    """Return the configuration that a resumed fit has to share with the first one, as text."""
    named = {}
    for name, value in parameters.items():
        # Unset keywords and the task of classification are left out: the text is older than they are.
        unset = (name in _ADDED_PARAMETERS and value is None) or (name, value) == _CLASSIFICATION
        if name != "unsafe_noise_seed" and not unset:
            value = _FORMER_DEFAULTS.get(name) if value is None else value
            text = getattr(
                value, "__name__", value
            )  # a function or class, whose text may contain a memory address
            text = _VALUES_IN_KEYS.get(text, text) if isinstance(text, str) else text
            named[_PARAMETERS_IN_KEYS.get(name, name)] = text
    return repr(sorted(named.items()))
