"""Clipped sums of a message-passing module on 1-hop ego graphs: a record is the root of exactly one.

Ego graph i is a graph of public size: the root, ``leaves`` places for its leaves, and one padding node with
the edges of empty places. Every shape is public (``core/clipping/clipped_sums.py``). No record affects
another's gradient:

* The module is called with one ego graph, in a loop, or under ``vmap``. There torch separates a batch's
  records, except in operations that ``isolation.py`` replaces or rejects: isolation relies on torch.
* Each call of a module in a loop, and of a batch under ``vmap``, uses a new copy of the module in its state
  before training. ``isolation.py`` lists what a copy does not isolate.
* A record for which the module raises has gradient zero, like one whose gradient is not finite
  (``isolation.py``).

A module may run in float32. A record's gradient is then the vector computed in float32. For an affine map it
is the sum of delta_j h_j^T over the computed deltas and inputs. Both are functions of that record alone. From
there on norms, factors and sums are float64, and the norm is that of the vector that is added. Float32
rounding is part of the gradient, not of the bound.

*Affine maps.* The gradient of a map y = W h + b on one record is the sum over its rows j of delta_j h_j^T,
with delta_j the gradient of the loss with respect to y_j. Its norm follows from both (Goodfellow: Efficient
per-example gradient computations, 2015), and so does a weighted sum over records. If large rows cancel, the
computed norm consists of rounding errors only, and clipping by it would have no effect. A squared norm is
therefore at least 2^-16 (sum_j |h_j| |delta_j|)^2. Rows that cancel to less than a 256th of their lengths are
clipped by this bound. All others have their norm to a relative error of 10^-7.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.func import grad

from graphveil.core.clipping.clipped_sums import (
    ClippedSum,
    add_scaled,
    chunks,
    clip_factors,
    labels_with,
    record_loss,
    square_norms,
    zero_masked_records,
)
from graphveil.core.clipping.isolation import (
    ModuleCopies,
    call,
    finite_rows,
    maskable_exceptions,
    run_masking_failures,
    separate_logits,
    untrained_tensors,
    vmap_records,
)
from graphveil.core.features import ProtectedRows
from graphveil.core.view import unwrapped

_CANCELLATION_THRESHOLD = 2.0**-16  # relative to squared row lengths; float64 error < 10^-11
_COUNTS = (32 << 20) - (1 << 16)  # bytes; a larger block does not change glibc's threshold
_OF_PYG = ("torch_geometric.nn.dense.linear", "Linear")


def affine_parts(module: nn.Module, rows: int) -> dict[str, nn.Module]:
    """Return the affine maps of a module, by name, whose gradients are larger than their factors.

    Their parameters are trainable and not shared with another module.

    >>> list(affine_parts(nn.Sequential(nn.Linear(90, 30), nn.ReLU(), nn.Linear(30, 1)), 4))
    ['0']
    """
    owners: dict[int, int] = {}
    for part in module.modules():
        for weight in part.parameters(recurse=False):
            owners[id(weight)] = owners.get(id(weight), 0) + 1
    return {
        name: part
        for name, part in module.named_modules()
        if _is_affine(part)
        and is_large(part, rows)
        and all(w.requires_grad and owners[id(w)] == 1 for w in part.parameters(recurse=False))
    }


def _is_affine(part: nn.Module) -> bool:
    kind = type(part)
    return kind is nn.Linear or (kind.__module__, kind.__name__) == _OF_PYG


def inputs_of(part: nn.Module) -> int:
    return int(_weight_of(part).shape[1])


def is_large(part: nn.Module, rows: int) -> bool:
    """Return whether the gradient of an affine map is larger than its factors for this number of rows."""
    outputs, inputs = _weight_of(part).shape
    return inputs * outputs > rows * (inputs + outputs)


def _weight_of(part: nn.Module) -> Tensor:
    weight = part.weight
    assert isinstance(weight, Tensor)
    return weight


@contextmanager
def record_affine_calls(
    parts: Sequence[nn.Module], output_offsets: Sequence[Tensor] | None, recorded: list[Any]
) -> Iterator[None]:
    """Record the input of each call of a part, and add a move to its output, to get the gradient of y.

    Without moves, the number of the part and the shape of its output are recorded.
    """

    def hook(number: int) -> Any:
        def after(part: nn.Module, given: tuple[Tensor, ...], found: Tensor) -> Tensor:
            if output_offsets is None:
                recorded.append((number, tuple(found.shape)))
                return found
            recorded.append(given[0])
            return found + output_offsets[len(recorded) - 1]

        return after

    handles = [part.register_forward_hook(hook(number)) for number, part in enumerate(parts)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass(eq=False)
class AffineGradients:
    """The gradients of one affine map for a chunk of records.

    Args:
        inputs: h, (B, n, d), float64.
        deltas: Gradients with respect to outputs, (B, n, e), float64.
    """

    inputs: Tensor
    deltas: Tensor

    @classmethod
    def from_calls(cls, calls: Sequence[tuple[Tensor, Tensor]], memory: "ScratchBuffer") -> "AffineGradients":
        """Return the gradients of a map, from h and delta of each call, (B, .., d) and (B, .., e).

        Copies of h are in ``memory``, and valid until the next call.
        """
        wide, deltas = (
            [part.reshape(len(part), -1, part.shape[-1]) for part in parts]
            for parts in zip(*calls, strict=True)
        )
        inputs = memory.copy(wide[0]) if len(wide) == 1 else _joined([h.to(torch.float64) for h in wide])
        return cls(inputs, _joined([delta.to(torch.float64) for delta in deltas]))

    def square_norms(self, *, bias: bool) -> Tensor:
        """Return each record's squared norm, (B), or its lower limit if its rows cancel.

        It is sum_jk <h_j, h_k> <delta_j, delta_k> for the weight, and the same with ones for h for the bias.
        """
        one, other = (part @ part.transpose(1, 2) for part in (self.inputs, self.deltas))
        if bias:
            one += 1.0
        lengths = one.diagonal(dim1=1, dim2=2) * other.diagonal(dim1=1, dim2=2)
        least = lengths.sqrt().sum(dim=1).square().mul_(_CANCELLATION_THRESHOLD)
        return torch.maximum(one.mul_(other).sum(dim=(1, 2)), least)

    def sums(self, factors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sums over records of factor times gradient: of W (e, d), and of b (e)."""
        scaled = self.deltas * factors[:, None, None]
        weight = scaled.flatten(end_dim=1).t() @ self.inputs.flatten(end_dim=1)
        return weight, scaled.sum(dim=(0, 1))

    def drop(self, bad: Tensor) -> None:
        """Remove records with factors of zero that have NaN or infinite numbers.

        Nothing is written in place: a row that is the same for all records may be one row in memory.
        """
        self.inputs, self.deltas = (
            part.masked_fill(bad[:, None, None], 0) for part in (self.inputs, self.deltas)
        )


class ScratchBuffer:
    """Reusable memory for float64 copies: allocating new memory takes longer than the copy.

    >>> memory = ScratchBuffer()
    >>> one = memory.copy(torch.ones(2, 3, dtype=torch.float32))
    >>> one.dtype, memory.copy(torch.zeros(1, 3)).data_ptr() == one.data_ptr()
    (torch.float64, True)
    """

    def __init__(self) -> None:
        self._kept = torch.empty(0, dtype=torch.float64)

    def copy(self, part: Tensor) -> Tensor:
        """Return a part in float64; the next call may overwrite it."""
        if part.dtype == torch.float64:
            return part
        if self._kept.numel() < part.numel():
            self._kept = torch.empty(part.numel(), dtype=torch.float64)
        return self._kept[: part.numel()].view(part.shape).copy_(part)


def keep_freed_memory() -> None:
    """Let the C library keep the memory that a chunk frees for the next chunk.

    glibc requests memory from the kernel for every block larger than the largest freed block. It returns free
    memory at the end of its heap beyond twice that size (``mallopt(3)``, M_MMAP_THRESHOLD). A new page costs
    more time than the computation on it. The largest block that counts is therefore allocated and freed here,
    untouched, as in any program that frees an array of that size. No option is set: existing settings stay
    valid, and other C libraries are not affected.
    """
    torch.empty(_COUNTS, dtype=torch.uint8)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=1)


Route = Literal["ghost", "vmap", "loop"]
_STARS, _SEED, _MISSING = 8, 5, 0.3  # number, seed and missing share of random trees
Parameters = dict[str, Tensor]
T = TypeVar("T")
# Gradients for moves and parameters, and inputs.
_GradientParts = tuple[tuple[list[Tensor], Parameters], list[Tensor]]


class EgoGraphRecords(Protocol):
    """Ego graphs or trees of public shape, one per record, created on demand, as tensors or as handles."""

    @property
    def arrays(self) -> Sequence[Any]:
        """All arrays that they are computed from."""

    @property
    def width(self) -> int:
        """W, the public number of nodes of each."""

    @property
    def parents(self) -> Tensor:
        """The parent place of each place but the root's, (W - 2)."""

    def begin(self, step: int) -> None:
        """Sample the public values that change from step to step."""

    def take(self, index: Tensor) -> tuple[Any, Any]:
        """Return some records' rows (B, W, d) and edges (B, 2, W - 2); the next call may overwrite them."""


@dataclass(frozen=True, eq=False, repr=False)
class StoredEgoGraphs:
    """Ego graphs stored in full: rows (N, W, d) and edges (N, 2, W - 2); trees with ``parents``."""

    x: Tensor
    edges: Tensor
    above: Tensor | None = None

    @property
    def arrays(self) -> tuple[Tensor, ...]:
        return self.x, self.edges

    @property
    def width(self) -> int:
        return self.x.shape[1]

    @property
    def parents(self) -> Tensor:
        return torch.zeros(self.width - 2, dtype=torch.int64) if self.above is None else self.above

    def begin(self, step: int) -> None:
        """Do nothing: nothing is sampled."""

    def take(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return self.x[index], self.edges[index]


def random_full_trees(parents: Tensor, columns: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return random full trees, and trees with missing edges: rows (8, W, columns), edges (8, 2, W - 2).

    >>> x, edges = random_full_trees(torch.tensor([0, 0, 1]), 4, torch.float64)
    >>> tuple(x.shape), edges[0].tolist()
    ((8, 5, 4), [[1, 2, 3], [0, 0, 1]])
    """
    generator, width = torch.Generator().manual_seed(_SEED), len(parents) + 2
    x = torch.randn(_STARS, width, columns, generator=generator, dtype=torch.float64).to(dtype)
    missing = torch.rand(_STARS, len(parents), generator=generator) < _MISSING
    missing[0] = False
    edges = torch.stack([torch.arange(1, width - 1), parents]).expand(_STARS, 2, -1)
    return x, torch.where(missing[:, None], width - 1, edges)


class EgoGraphClippedSum(ClippedSum):
    """The clipped sum of a module on 1-hop ego graphs, with each ego graph processed separately.

    The module takes rows (W, d) and edges (2, W - 2), and returns a row of logits for every node; the first
    is the root's.

    Args:
        labels: Classes or numbers, (N); a value that is not a class, or NaN, excludes the record.
        route: ``"ghost"`` runs the ego graphs of a chunk together and does not form gradients of affine maps
            that are larger than their rows (``ego_graphs.py``); this requires that only the map reads
            its parameters. ``"vmap"`` forms all gradients. ``"loop"`` runs one ego graph after the other, for
            modules that do not support batching.
        dtype: Data type of the module's computation; norms and sums are always float64.

    >>> class Own(nn.Linear):
    ...     def forward(self, x, edge_index): return super().forward(x)
    >>> stars = StoredEgoGraphs(torch.ones(5, 3, 2), torch.tensor([[[1], [0]]]).expand(5, 2, 1))
    >>> gradients = EgoGraphClippedSum(Own(2, 2), stars, torch.zeros(5, dtype=torch.int64))
    >>> gradients.add(torch.tensor([1, 4]), clip=0.01)
    >>> round(float(gradients.sums.norm()), 4)
    0.02
    """

    def __init__(
        self,
        module: nn.Module,
        records: EgoGraphRecords,
        labels: Any,
        *,
        route: Route = "ghost",
        dtype: torch.dtype = torch.float64,
    ) -> None:
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        arrays = records.arrays
        labels = labels_with(arrays, labels)
        super().__init__(list(named.values()), unwrapped(arrays), labels, len(labels))
        self._records, self._width = records, records.width
        self._module, self._fixed, self._dtype = module, untrained_tensors(module, named, dtype), dtype
        self._copies = ModuleCopies(module)
        self._sums = dict(zip(named, self._views(self._total), strict=True))
        self._wide = dict(zip(named, self._views(self.weights), strict=True))
        self._parameters: Parameters = {}
        self._route = route
        self._calls: list[_Call] | None = None
        self._memory: dict[str, ScratchBuffer] = {}
        keep_freed_memory()

    def begin(self, step: int) -> None:
        self._records.begin(step)

    def add(self, index: Tensor, clip: float) -> None:
        """Add them chunk by chunk; chunk sizes follow from public numbers."""
        self._parameters = {name: part.to(self._dtype) for name, part in self._wide.items()}
        if len(index) and self._calls is None:
            self._calls = self._plan_calls(self._records.take(index[:1])[0].shape[2])
        for part in chunks(index, self._numbers if len(index) else 0):
            self._add_chunk(part, clip)

    def _add_chunk(self, index: Tensor, clip: float) -> None:
        x, edges = map(unwrapped, self._records.take(index))
        x = x.to(self._dtype)
        output_offsets = [x.new_zeros(call.shape) for call in self._calls or ()]
        formed = {name: self._parameters[name] for name in self._formed}
        run = partial(self._gradients, output_offsets, formed)
        with torch.enable_grad():
            found, failed = run_masking_failures(run, (x, edges, self._labels[index]))
        if found is None:
            return  # all records of the chunk are null
        (deltas, gradients), inputs = found
        maps = self._maps(inputs, deltas)
        squares = [square_norms(part) for part in gradients.values()]
        squares += [part.square_norms(bias=self._bias(name) in self._sums) for name, part in maps.items()]
        factors, bad = clip_factors(torch.stack(squares).sum(dim=0), clip, failed)
        for name, part in gradients.items():
            add_scaled(self._sums[name], zero_masked_records(part, bad), factors)
        for name, called in maps.items():
            if bad is not None:
                called.drop(bad)
            weight, bias = called.sums(factors)
            self._sums[self._weight(name)].add_(weight)
            if self._bias(name) in self._sums:
                self._sums[self._bias(name)].add_(bias)

    def _loss(
        self,
        module: nn.Module,
        output_offsets: list[Tensor],
        formed: Parameters,
        x: Tensor,
        edges: Tensor,
        label: Tensor,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the loss of one ego graph's root, and the inputs of each affine map."""
        inputs: list[Tensor] = []
        with record_affine_calls(self._parts(module), output_offsets, inputs):
            logits: Tensor = call(module, {**self._fixed, **self._parameters, **formed}, (x, edges))[0]
        return record_loss(logits, label), inputs

    def _plan_calls(self, columns: int) -> list["_Call"]:
        """Choose the maps whose gradients are not formed, by public sizes; return their calls in order."""
        self._choose(affine_parts(self._module, 1) if self._route == "ghost" else {})
        calls, names = self._trace_calls(columns), list(self._affine)
        rows = dict.fromkeys(names, 0)
        for traced in calls:
            rows[names[traced.number]] += math.prod(traced.shape[:-1])
        kept = {name: part for name, part in self._affine.items() if is_large(part, rows[name])}
        self._choose(kept)
        widest = max((inputs_of(part) for part in kept.values()), default=_HIDDEN)
        formed = sum(self._parameters[name].numel() for name in self._formed)
        numbers = max(formed, self._width * widest, self._width * _HIDDEN)  # per ego graph
        self._numbers = -(-numbers * self._dtype.itemsize // _BYTES)
        places = {name: place for place, name in enumerate(kept)}
        return [
            traced._replace(number=places[names[traced.number]])
            for traced in calls
            if names[traced.number] in kept
        ]

    def _choose(self, parts: dict[str, nn.Module]) -> None:
        self._affine = parts
        within = {name for part in parts for name in (self._weight(part), self._bias(part))}
        self._formed = [name for name in self._wide if name not in within]
        self._gradients = self._looped_gradients if self._route == "loop" else self._batched_gradients

    def _batched_gradients(
        self, output_offsets: list[Tensor], formed: Parameters, *stars: Tensor
    ) -> _GradientParts:
        """Return all records' gradients for moves and parameters, and the inputs of affine maps.

        Under ``vmap`` a record's loss cannot read another record, and every record has its own moves and
        parameters here. The gradient of the sum of all losses with respect to these is therefore each
        record's gradient. A gradient inside ``vmap`` is the same, and takes twice the overhead.
        """
        count = len(stars[0])
        given = [
            part.detach().expand(count, *part.shape).requires_grad_()
            for part in (*output_offsets, *formed.values())
        ]
        calls = len(output_offsets)
        own, weights = given[:calls], dict(zip(formed, given[calls:], strict=True))
        with self._copies.run() as module:
            losses, inputs = vmap_records(partial(self._loss, module))(own, weights, *stars)
            if losses.requires_grad:
                ones = torch.ones_like(losses)
                found = torch.autograd.grad(losses, given, ones, materialize_grads=True)
            else:  # a module whose output does not depend on its parameters
                found = tuple(torch.zeros_like(part) for part in given)
        gradients = dict(zip(formed, found[calls:], strict=True))
        return (list(found[:calls]), gradients), [part.detach() for part in inputs]

    def _looped_gradients(
        self, output_offsets: list[Tensor], formed: Parameters, *stars: Tensor
    ) -> _GradientParts:
        """Return the same, one ego graph after the other, without moves."""

        def one(*star: Tensor) -> Parameters:
            with self._copies.run() as module:
                gradients = grad(partial(self._loss, module), argnums=(0, 1), has_aux=True)
                found: Parameters = gradients(output_offsets, formed, *star)[0][1]
                return found

        null = {name: torch.zeros_like(part) for name, part in formed.items()}
        found = [_or_null(null, one, *star) for star in zip(*stars, strict=True)]
        return ([], {name: torch.stack([each[name] for each in found]) for name in formed}), []

    def _parts(self, module: nn.Module) -> list[nn.Module]:
        return [module.get_submodule(name) for name in self._affine]

    def _trace_calls(self, columns: int) -> list["_Call"]:
        """Return the calls of affine maps with the shapes of their outputs, from a placeholder tree."""
        recorded = list[Any]()
        if not self._affine:
            return []
        x, edges = random_full_trees(self._records.parents, columns, self._dtype)
        with (
            torch.no_grad(),
            self._copies.run() as module,
            record_affine_calls(self._parts(module), None, recorded),
        ):
            call(module, {**self._fixed, **self._parameters}, (x[0], edges[0]))
        return [_Call(number, shape) for number, shape in recorded]

    def _maps(self, inputs: list[Tensor], deltas: list[Tensor]) -> dict[str, AffineGradients]:
        calls = list(zip(self._calls or (), inputs, deltas, strict=True))
        found = {}
        for number, name in enumerate(self._affine):
            own = [(h, delta) for call, h, delta in calls if call.number == number]
            if own:
                found[name] = AffineGradients.from_calls(own, self._memory.setdefault(name, ScratchBuffer()))
        return found

    def _weight(self, name: str) -> str:
        return f"{name}.weight" if name else "weight"

    def _bias(self, name: str) -> str:
        return f"{name}.bias" if name else "bias"


class _Call(NamedTuple):
    """A call of an affine map: its number, and the shape of its output for one record."""

    number: int
    shape: tuple[int, ...]


_HIDDEN = 16  # assumed temporary numbers per node
_BYTES = 36  # bytes per number: three tables of a chunk fit into the memory that the C library keeps


def ego_graph_logits(
    module: nn.Module, records: EgoGraphRecords, count: int, classes: int, *, route: Route = "ghost"
) -> Any:
    """Return the logits of every root (N, C), float64, with separate ego graphs as in training.

    They are a handle if the ego graphs are handles.

    They are zeros for an ego graph for which the module raises or returns logits that are not finite.
    """
    tensors, copies = untrained_tensors(module), ModuleCopies(module)

    def one(fresh: nn.Module, x: Tensor, edges: Tensor) -> Tensor:
        logits: Tensor = call(fresh, tensors, (x, edges))[0]
        return logits

    def alone(x: Tensor, edges: Tensor) -> Tensor:
        with copies.run() as fresh:
            return one(fresh, x, edges).to(x).reshape(classes)

    def rows_of(x: Tensor, edges: Tensor) -> Tensor:
        if route != "loop":
            return separate_logits(copies, one, (x, edges), classes)
        null = x.new_zeros(classes)
        return finite_rows(torch.stack([_or_null(null, alone, *star) for star in zip(x, edges, strict=True)]))

    found = list[Tensor]()
    with torch.no_grad():
        for part in chunks(torch.arange(count), records.width * _HIDDEN):
            x, edges = records.take(part)
            found.append(rows_of(unwrapped(x).to(torch.float64), unwrapped(edges)))
    logits = torch.cat(found)
    return ProtectedRows(logits, x._unit) if isinstance(x, ProtectedRows) else logits


def _or_null(null: T, run: Callable[..., T], *star: Tensor) -> T:
    """Return the result for an ego graph, or that of a null record if the module raises."""
    try:
        return run(*star)
    except maskable_exceptions():
        return null
