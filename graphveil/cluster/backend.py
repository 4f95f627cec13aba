"""Aggregation backend that computes blocks on the workers of a Ray cluster.

Each block is a Ray task. Ray places the tasks, transports their sealed values, and repeats a task whose
worker process or machine is lost. For each task, Ray logs a function name, row numbers and random names.

A result depends only on the block and the work, which has the noise of each row, so a repeated task returns
the same bytes. A process creates one key pair when it starts. It forgets keys, edges and tables at the end of
each task.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from secrets import token_hex
from typing import Any
from weakref import WeakKeyDictionary

import numpy.typing as npt
import torch
from cryptography.exceptions import InvalidTag
from torch import Tensor

import graphveil
from graphveil import __version__
from graphveil._util import checks
from graphveil.cluster.sealing import RecipientKey, SecretBox, open_value, seal_to, seal_value
from graphveil.core.backends import AggregationBackend, BlockWork
from graphveil.core.edges.adjacency import Adjacency
from graphveil.core.edges.blocks import EdgeBlock, block_of, blocks, ranges
from graphveil.data.graph_files import StoredEdges, manifest_of
from graphveil.errors import ConfigError, GraphveilError, MissingDependencyError, ReleaseError

Rows = tuple[int, int]
SealedValue = tuple[str, tuple[Any, ...]]  # name of a value, and references to its sealed parts
# One task: rows, their edges or the folder of the graph, and the work of a query; None only opens the graph.
Block = tuple[Rows, SealedValue | None, SealedValue | None]
Result = npt.NDArray[Any] | str | bytes  # noisy values, an error text, or a public key without a sealed key

recipient_key = cache(RecipientKey)  # of this process


def compute_block(version: str, sealed_keys: dict[bytes, bytes], block: Block, threads: int) -> Result:
    """Return the noisy result of a block.

    Errors are returned as text without data values, because Ray would log a raised exception with its whole
    context.

    Args:
        sealed_keys: The key of all values, sealed to the public key of each process that is known.
    """
    from ray import get

    rows, *sealed = block
    if version != graphveil.__version__:
        return (
            f"the Ray cluster has graphveil {graphveil.__version__}, but this process has {version}. Install "
            "the same version on both."
        )
    public = recipient_key().public
    if public not in sealed_keys:
        return public
    try:
        torch.set_num_threads(threads)
        box = SecretBox(recipient_key().open(sealed_keys[public]))
        edges, work = (None if one is None else open_value(*one, box, get) for one in sealed)
        if isinstance(edges, StoredEdges):
            edges = edges.rows(*rows)
        values: Tensor = torch.empty(0) if work is None else work(edges)
        return values.numpy()
    except InvalidTag:
        return "a message between processes is damaged, or was sealed by another"
    except GraphveilError as error:
        return str(error)
    except Exception as error:
        return f"a worker failed with {type(error).__name__}"


_MOST, _LEAST = 1 << 22, 1 << 10  # rows of a block: each block takes milliseconds
_AHEAD = 2  # pending blocks per worker, so that it need not wait for the next one
_START_SECONDS = 300  # until a worker must have started
_LOSSES = 16  # workers that may be lost in one query
_REPEATS = 3  # of a block: after so many lost workers, the block is the cause
_QUIET = {  # read by Ray when it is imported or started
    "RAY_USAGE_STATS_ENABLED": "0",  # no usage reports
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_task_oom_retries": str(_REPEATS),  # without a limit otherwise
}


class UnansweredError(Exception):
    """A task has no answer, because workers failed, were lost, or did not start; with the reason."""


@dataclass(eq=False)
class SentGraph:
    """A graph on a cluster: what it is sealed under, and its sealed folder or blocks."""

    cluster: tuple[str, str]  # this process in it, and its node
    box: SecretBox = field(default_factory=SecretBox)
    stored: SealedValue | None = None
    blocks: dict[Rows, SealedValue] = field(default_factory=dict)

    def put(self, ray: Any, value: object) -> SealedValue:
        """Seal a value and store it where every worker can fetch it."""
        name = token_hex(8)
        return name, tuple(map(ray.put, seal_value(name, value, self.box)))


_sent: WeakKeyDictionary[Adjacency, SentGraph] = WeakKeyDictionary()


def _sent_graph(ray: Any, adjacency: Adjacency) -> SentGraph:
    """Return what a graph is sealed under on this cluster; of a prepared graph, its sealed folder."""
    context, sent = ray.get_runtime_context(), _sent.get(adjacency)
    cluster = context.get_worker_id(), context.get_node_id()  # process numbers are reused in each cluster
    if sent is None or sent.cluster != cluster:
        sent = _sent[adjacency] = SentGraph(cluster)
        if adjacency.folder is not None:
            sent.stored = sent.put(ray, StoredEdges(adjacency.folder.resolve(), manifest_of(adjacency)))
    return sent


@dataclass(frozen=True)
class RayBackend(AggregationBackend):
    """Compute noisy aggregates on the workers of a `Ray <https://ray.io>`_ cluster (extra ``ray``).

    Workers read the blocks of a graph of ``graphveil.open_graph`` from a folder. Every machine needs this
    folder under the same path. Blocks of other graphs are sent once. Everything that is sent is encrypted,
    under a key that only this process and the workers have. No parameter affects the results.

    Args:
        address: Address of a running cluster. The default is the cluster that this process or ``RAY_ADDRESS``
            names. Without one, a cluster is started on this machine.
        workers: Maximum number of blocks that are computed at the same time. The default is as many as the
            cluster has processors for.
        threads: Threads of each worker. Each worker holds a table of contributions. On large graphs, use one
            worker per machine, with all its processors.
        block_rows: Maximum number of rows per block. The default gives every worker the same number of rows,
            in blocks of at most four million.

    Privacy:
        Reads: the edges of the graph, on the workers. Charges: nothing; the release is charged by its caller.
        Exact values never leave a worker. This process runs the queries that count with noise over the whole
        graph, and reads records.
    """

    address: str | None = None
    workers: int | None = None
    threads: int = 1
    block_rows: int | None = None

    def __post_init__(self) -> None:
        given = {"threads": self.threads, "workers": self.workers, "block_rows": self.block_rows}
        checks.integer_at_least(1, **{name: value for name, value in given.items() if value is not None})
        if self.address is not None and self.address.startswith("ray://"):
            raise ConfigError(
                "address='ray://...' sends the data of workers through a proxy. Run graphveil on a "
                "machine of the cluster (ray job submit) with address='auto' instead."
            )

    def check(self, adjacency: Adjacency) -> None:
        """Let a worker on every machine open the graph, before any budget is spent.

        Args:
            adjacency: Graph of later queries.

        Raises:
            ConfigError: If the cluster cannot be joined, or its workers cannot read the graph.
            MissingDependencyError: If Ray is not installed.
        """
        ray = connect(self.address)
        sent = _sent_graph(ray, adjacency)
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        opening: Block = ((0, 0), sent.stored, None)
        tasks = [(opening, affinity(machine, soft=True)) for machine in self._room(ray)]
        try:
            if not list(self._answers(ray, sent, tasks)):
                raise UnansweredError("no machine has enough processors. Request fewer threads (threads=)")
        except UnansweredError as error:
            raise ConfigError(
                f"The workers of the Ray cluster cannot be used: {error}. Check the free resources with `ray "
                "status`. Store a prepared graph where every machine can read it under the same path."
            ) from None

    def blocks(self, adjacency: Adjacency, first: int = 0) -> Iterator[EdgeBlock]:
        """Yield views of the edges, for computations in this process.

        Args:
            adjacency: Graph of the computation.
            first: First row.

        Returns:
            Iterator over blocks.

        Privacy:
            The blocks contain exact edges and stay in this process.
        """
        return blocks(adjacency, _MOST, first)

    def run(self, work: BlockWork, adjacency: Adjacency, first: int = 0) -> Iterator[Tensor]:
        """Yield noisy aggregates as they arrive, in their order.

        Args:
            work: Work of the query, with its noise key.
            adjacency: Graph of the query.
            first: First row.

        Returns:
            Iterator over noisy aggregates.

        Raises:
            ReleaseError: If workers failed, or too many were lost. The release stays charged.

        Privacy:
            Workers add the noise, so exact aggregates never leave them. Charges: nothing.
        """
        ray = connect(self.address)
        sent = _sent_graph(ray, adjacency)
        workers = self.workers or max(1, sum(self._room(ray).values()))
        step = self.block_rows or self._step(adjacency.num_nodes - first, workers)
        rows = list(ranges(adjacency, step, first))
        for each in set(rows) - sent.blocks.keys() if sent.stored is None else ():
            sent.blocks[each] = sent.put(ray, block_of(adjacency, *each))
        sealed = sent.put(ray, work)
        tasks = [((each, sent.stored or sent.blocks[each], sealed), "SPREAD") for each in rows]
        try:
            for answer in self._answers(ray, sent, tasks):
                yield torch.from_numpy(answer.copy())  # Ray's memory is read-only
        except UnansweredError as error:
            raise ReleaseError(
                f"The query was not answered: {error}. It stays charged. Resume the run if it has a folder: "
                "it uses the same noise."
            ) from None

    def _answers(
        self, ray: Any, sent: SentGraph, tasks: Sequence[tuple[Block, Any]]
    ) -> Iterator[npt.NDArray[Any]]:
        """Yield the answer of each task, in order. A task has a place, as Ray describes it.

        A process that does not have the key returns its public key, and the task is repeated. More new
        processes than the cluster has processors for replace lost ones.
        """
        most = self.workers or _AHEAD * max(1, sum(self._room(ray).values()))
        queue, keys = list(range(len(tasks)))[::-1], dict[bytes, bytes]()
        pending, done, place = dict[Any, int](), dict[int, npt.NDArray[Any]](), 0
        task = ray.remote(num_cpus=self.threads, max_retries=_REPEATS)(compute_block)
        try:
            while place < len(tasks):
                while queue and len(pending) < most:
                    block, where = tasks[queue[-1]]
                    submit = task.options(scheduling_strategy=where).remote
                    pending[submit(__version__, keys, block, self.threads)] = queue.pop()
                ready, _ = ray.wait(list(pending), num_returns=1, timeout=_START_SECONDS, fetch_local=False)
                if not ready and keys and self._room(ray):
                    continue  # workers compute, or wait for other users of the cluster
                if not ready:
                    raise UnansweredError(f"no worker started within {_START_SECONDS} seconds")
                number, answer = pending.pop(ready[0]), _fetch(ray, ready[0])
                if isinstance(answer, bytes):
                    keys = {**keys, answer: seal_to(answer, sent.box.key)}
                    queue.append(number)
                    if len(keys) > ray.cluster_resources().get("CPU", 0) + _LOSSES:
                        raise UnansweredError(_LOST)
                elif isinstance(answer, str):
                    raise UnansweredError(answer.removesuffix("."))
                else:
                    done[number] = answer
                while place in done:
                    yield done.pop(place)
                    place += 1
        finally:
            for ticket in pending if ray.is_initialized() else ():
                ray.cancel(ticket)

    def _room(self, ray: Any) -> dict[str, int]:
        """Return how many workers each machine of the cluster has processors for, if any."""
        nodes = {node["NodeID"]: node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]}
        return {name: int(count) // self.threads for name, count in nodes.items() if count >= self.threads}

    def _step(self, count: int, workers: int) -> int:
        """Return the number of rows per block, such that every worker gets equally many blocks."""
        blocks_each = max(1, -(-count // (workers * _MOST)))
        return max(_LEAST, -(-count // (workers * blocks_each)))


# -- the cluster -------------------------------------------------------------------------------------------

_LOST = "too many workers were lost, perhaps because memory ran out; use smaller blocks (block_rows=)"


def _fetch(ray: Any, ticket: Any) -> Any:
    try:
        return ray.get(ticket)
    except ray.exceptions.RayError as error:
        if not isinstance(getattr(error, "cause", None), TypeError | AttributeError | ImportError):
            raise UnansweredError(_LOST) from None
        raise ConfigError(
            "The code of graphveil on the cluster differs from this process, although both have "
            f"version {__version__}. Install the same package on every machine, and check that this "
            "process does not import another copy."
        ) from None


def connect(address: str | None) -> Any:
    """Return Ray, joined to the cluster at the address.

    Without an address, use the cluster that this process or ``RAY_ADDRESS`` names. If there is none, start a
    cluster on this machine, without a dashboard.
    """
    ray = import_ray()
    if ray.is_initialized():
        # Another cluster than the one that this process is joined to would receive the edges.
        here, own = str(ray.get_runtime_context().gcs_address), ray.util.get_node_ip_address()
        if address and address != "auto" and _numeric(address, own) != _numeric(here, own):
            raise ConfigError(
                f"This process is connected to the Ray cluster at {here}, but address={address!r} "
                "(--address) names another one. Remove the address, or disconnect first with "
                "ray.shutdown()."
            )
        return ray
    dashboard = False if address is None and "RAY_ADDRESS" not in os.environ else None  # of another cluster
    try:
        ray.init(address, include_dashboard=dashboard, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"Cannot connect to a Ray cluster at address={address!r} (--address) "
            f"({type(error).__name__}). Start one with `ray start --head`, or remove the address."
        ) from None
    return ray


def _numeric(address: str, own: str) -> tuple[str, str]:
    """Return an address with its host name resolved; ``own`` is the address of this machine."""
    host, _, port = address.rpartition(":")
    with suppress(OSError, UnicodeError):
        host = socket.gethostbyname(host)
    return own if host.startswith("127.") else host, port


def import_ray() -> Any:
    """Import Ray with its usage reports disabled."""
    os.environ.update(_QUIET | os.environ)
    try:
        import ray
    except ImportError:
        raise MissingDependencyError(
            "backend='ray' (--backend ray) needs Ray, which is not installed. Install it: pip "
            "install 'graphveil[ray]'"
        ) from None
    return ray
