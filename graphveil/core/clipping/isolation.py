"""A user's module on separate records: fresh copies, operations of ``vmap``, and records on which it raises.

*Copies.* A module may keep state in more places than its buffers: plain attributes, lists, counters, caches,
other objects, hooks. ``ModuleCopies`` copies all of these before each run. State of the *code* is restored
after each run: class attributes, closures, default arguments, global variables named in the code, and the
global generators of torch, NumPy and Python. Only the user's code is searched: not Python's library, torch,
or torch_geometric. An object that copies share, such as a singleton, is rejected.

Not isolated: files, other processes, ``os.environ``, ``builtins``, loggers and other state of Python's
library, memory of compiled extensions, globals reached by a computed name, and global variables that cannot
be copied or hold more than 65,536 numbers.

*Operations.* torch has a rule for each operation under ``vmap``. Most rules keep records apart, and reject an
index beyond a record's own rows. ``IsolatedOperations`` replaces or rejects the others.

*Null records.* An exception after the charge would be an exact answer about the record that caused it.
Records for which a module raises contribute nothing: a batch that raises is run again without them, in the
same shapes. The results of all other records are bit-identical.
"""

import copy
import functools
import gc
import logging
import random
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from enum import Enum
from threading import RLock
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch._functorch.autograd_function import custom_function_call
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from graphveil.errors import ConfigError

T = TypeVar("T")
_RAISES = ContextVar("raises", default=False)


@contextmanager
def synthetic_records() -> Iterator[None]:
    """Let exceptions of a module propagate within the context, where no protected record is read."""
    token = _RAISES.set(True)
    try:
        yield
    finally:
        _RAISES.reset(token)


def maskable_exceptions() -> tuple[type[BaseException], ...]:
    """Return the exception types that are masked for a protected record. A keyboard interrupt propagates."""
    return () if _RAISES.get() else (Exception, SystemExit)


def run_masking_failures(
    run: Callable[..., T], records: tuple[Tensor, ...]
) -> tuple[T | None, Tensor | None]:
    """Run a batch; records for which it raises are replaced by another record of the batch.

    A record fails if a batch of copies of it raises, which depends on that record alone.

    Args:
        run: Takes tensors (B, ..), and processes records separately.

    Returns:
        The result of ``run``, None if all records fail; and a mask (B) of failed records, None if none fails.

    >>> found, failed = run_masking_failures(torch.linalg.inv, (torch.tensor([[[2.0]], [[0.0]]]),))
    >>> found.flatten().tolist(), failed.tolist()
    ([0.5, 0.5], [False, True])
    """
    try:
        return run(*records), None
    except torch.OutOfMemoryError:
        raise
    except maskable_exceptions():
        pass
    everyone = torch.arange(len(records[0]))
    failed, suspects = torch.zeros(len(everyone), dtype=torch.bool), [everyone]
    while suspects:
        some = suspects.pop()
        if not _fails(run, records, some[everyone % len(some)]):
            continue
        if len(some) > 1:
            suspects += some.chunk(2)
        else:
            failed[some] = True
    if failed.all():
        return None, failed
    other = (~failed).nonzero()[0, 0]
    return run(*(part[torch.where(failed, other, everyone)] for part in records)), failed


def _fails(run: Callable[..., T], records: tuple[Tensor, ...], index: Tensor) -> bool:
    try:
        run(*(part[index] for part in records))
    except maskable_exceptions():
        return True
    return False


def finite_rows(rows: Tensor) -> Tensor:
    """Return the rows with zeros in place of those that are not finite, each by its own values.

    >>> finite_rows(torch.tensor([[1.0, torch.inf], [2.0, 3.0]])).tolist()
    [[0.0, 0.0], [2.0, 3.0]]
    """
    return torch.where(rows.isfinite().all(dim=-1, keepdim=True), rows, 0.0)


# Their rules return memory that holds whatever was computed before, or read beyond a record.
_REJECTED = {"ctc_loss", "_ctc_loss", "resize_", "resize_as_", "resize", "resize_as"}
_UNINITIALIZED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
_NAMESPACES = {"aten", "prim", "prims"}  # torch's own operations
_HOOKS = "hooks of saved tensors would read all records of a batch"


def vmap_records(function: Callable[..., Any], in_dims: Any = 0) -> Callable[..., Any]:
    """Return ``vmap`` of a function of one record that calls a custom module.

    >>> table, index = torch.arange(6.0).reshape(2, 3, 1), torch.tensor([[0], [3]])
    >>> vmap_records(lambda rows, i: functional.embedding(i, rows))(table, index)
    Traceback (most recent call last):
    RuntimeError: index 3 is out of bounds for dimension 1 with size 3
    """

    def called(*args: Any) -> Any:
        with IsolatedOperations(), torch.autograd.graph.disable_saved_tensors_hooks(_HOOKS):
            return vmap(function, in_dims=in_dims)(*args)

    return called


class IsolatedOperations(TorchFunctionMode):
    """Replace operations that read beyond a record under ``vmap``; reject what cannot be replaced."""

    def __torch_function__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is custom_function_call:
            return func(_isolated_function(args[0]), *args[1:], **kwargs)
        if isinstance(func, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            _reject_own_rule(func)
        name = getattr(func, "__name__", "").partition(".")[0]
        if func is functional.embedding:
            return _embedding(*args, **kwargs)
        if name == "embedding":  # the function in C takes the table first, and no padding as -1
            return _embedding_of_table(*args, **kwargs)
        if name in ("index_fill", "index_fill_"):
            return _index_fill(*args, in_place=name.endswith("_"), **kwargs)
        if name in _REJECTED:
            raise ConfigError(
                f"{name} can read the memory of other records under torch.func.vmap. Use an operation "
                "that returns a new tensor."
            )
        found = func(*args, **kwargs)
        return found.zero_() if name in _UNINITIALIZED else found


def _embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Return ``functional.embedding``, with each index checked against the record's own table."""
    if max_norm is not None or scale_grad_by_freq:
        raise ConfigError(
            "embedding with max_norm or scale_grad_by_freq depends on all indices of a batch. Drop both."
        )
    if padding_idx is not None:  # this row has no gradient
        padding = torch.arange(weight.size(0)) == padding_idx % weight.size(0)
        weight = torch.where(padding[:, None], weight.detach(), weight)
    return weight.index_select(0, input.reshape(-1)).reshape(*input.shape, weight.size(1))


def _embedding_of_table(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    padding = None if padding_idx < 0 else padding_idx
    return _embedding(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq)


def _index_fill(input: Tensor, dim: int, index: Tensor, value: Any, *, in_place: bool) -> Tensor:
    """Return ``Tensor.index_fill``, with each index checked against the record's own tensor."""
    size = input.size(dim)
    index = torch.where(index < 0, index + size, index).reshape(-1)
    filled = torch.zeros(size, dtype=torch.int8).index_copy(
        0, index, torch.ones(len(index), dtype=torch.int8)
    )
    shape = [1] * input.dim()
    shape[dim] = size
    given = value.to(input.dtype) if isinstance(value, Tensor) else torch.tensor(value, dtype=input.dtype)
    found = torch.where(filled.reshape(shape) > 0, given, input)
    return input.copy_(found) if in_place else found


def _reject_own_rule(operation: Any) -> None:
    """Reject a custom operation that was registered with a rule of its own for ``vmap``."""
    packet = getattr(operation, "overloadpacket", operation)
    name = packet._qualified_op_name
    if name.partition("::")[0] in _NAMESPACES:
        return
    for overload in packet.overloads():
        full = getattr(packet, overload).name()
        if torch._C._dispatch_has_kernel_for_dispatch_key(full, "FuncTorchBatched"):
            _raise_own_rule(name)


def _raise_own_rule(name: str) -> None:
    raise ConfigError(
        f"{name} has its own rule for torch.func.vmap, which may mix the records of a batch. Remove it. "
        "An autograd.Function can set generate_vmap_rule = True."
    )


def _isolated_function(function: Any) -> Any:
    """Return an ``autograd.Function`` whose passes run under ``IsolatedOperations`` as well."""
    if not function.generate_vmap_rule:
        _raise_own_rule(function.__name__)

    def isolated(name: str) -> Any:
        run = getattr(function, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            with IsolatedOperations():
                return run(*args, **kwargs)

        return staticmethod(called)

    passes = [name for name in ("forward", "backward", "jvp") if hasattr(function, name)]
    return type(function.__name__, (function,), {name: isolated(name) for name in passes})


CachedFunction = type(functools.lru_cache(lambda: None))
_OPAQUE = (
    *(ModuleType, CodeType, FrameType, GeneratorType, BuiltinFunctionType, str, bytes, int, float),
    logging.Logger,  # which reaches the handlers of all libraries
)
_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, staticmethod, classmethod, property)
COMPILED = (torch.jit.ScriptFunction, torch.jit.ScriptModule)
_HOLDS = (dict, list, set, bytearray, deque, np.ndarray, Tensor)
_SLOTS = (type(type.__dict__["__dict__"]), type(FunctionType.__code__))  # descriptors that store attributes
_LIBRARIES = {*sys.stdlib_module_names, "torch", "torch_geometric", "numpy", "scipy", "pandas", "graphveil"}
_DATA = ("graphveil", "torch_geometric", "scipy", "pandas")  # packages whose objects are data, not state
_MAX_COPIED_ELEMENTS = 1 << 16  # maximum numbers in the tensors of a global variable
_SWAPPED = RLock()  # while one thread has state of the code replaced, no other runs that code


class _Missing:
    """Placeholder for a name that does not exist."""


class ModuleCopies:
    """Copies of a module in its current state, independent of later changes to it.

    >>> class Counts(nn.Linear):
    ...     seen = 0
    ...     def forward(self, x):
    ...         self.seen += 1
    ...         return super().forward(x) + self.seen
    >>> copies, x, found = ModuleCopies(Counts(2, 2).requires_grad_(False)), torch.ones(1, 2), []
    >>> for _ in range(2):
    ...     with copies.run() as fresh:
    ...         found.append(fresh(x))
    >>> torch.equal(*found)
    True
    """

    def __init__(self, module: nn.Module) -> None:
        reach = ReachableState(module)
        self._places = [place for place in reach.places if place.is_copied()]
        self._names = [(owner, frozenset(vars(owner))) for owner in (*reach.classes, *reach.functions)]
        try:
            kept = _copied((module, [place.get() for place in self._places]), reach)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".removesuffix(".")
            raise ConfigError(
                f"{type(module).__name__} cannot be copied, and each record runs on a fresh copy: {reason}. "
                "Build open files, locks and iterators in forward()."
            ) from error
        shared = _shared_object((module, [place.get() for place in self._places]), kept)
        if shared is not None:
            raise ConfigError(
                f"{type(module).__name__} reaches an object of type {type(shared).__name__} that its copies "
                "share, and one record would reach the next through it. Remove __deepcopy__ of its class, or "
                "build the object in forward()."
            )
        self._kept, self._reach = kept, ReachableState(kept)

    @contextmanager
    def run(self) -> Iterator[nn.Module]:
        """Yield a fresh copy; when the block ends, the state of its code is restored."""
        module, state = _copied(self._kept, self._reach)
        with _SWAPPED if self._places else nullcontext(), _same_draws():
            before = [place.get() for place in self._places]
            for place, value in zip(self._places, state, strict=True):
                place.set(value)
            try:
                yield module
            finally:
                for place, value in zip(self._places, before, strict=True):
                    place.set(value)
                for owner, names in self._names:
                    for name in vars(owner).keys() - names:
                        delattr(owner, name)


@contextmanager
def _same_draws() -> Iterator[None]:
    """Restore all global generators at the end, so that no run affects another's draws."""
    pythons = random.getstate()
    numpys = np.random.get_state()  # noqa: NPY002 - the user's module may draw there
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        np.random.set_state(numpys)  # noqa: NPY002 - as above
        random.setstate(pythons)


def call(module: nn.Module, tensors: Mapping[str, Tensor], inputs: tuple[Tensor, ...]) -> Any:
    """Call a module with copies of other parameters and buffers, by the names used in ``named_parameters``.

    It may change the copies without an effect on other records. A tensor or a submodule with several names in
    the module has the same numbers under all of them.
    """
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    first, given = dict[int, str](), dict[str, Tensor]()
    for prefix, part in module.named_modules():
        for held in (part._parameters, part._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    place = f"{prefix}.{name}" if prefix else name
                    given[place] = tensors[first.setdefault(id(tensor), place)]
    return functional_call(module, given, tuple(part.clone() for part in inputs), tie_weights=False)


def untrained_tensors(
    module: nn.Module, trained: Collection[str] = (), dtype: torch.dtype = torch.float64
) -> dict[str, Tensor]:
    """Return parameters that are not trained, and buffers, with floats of one type."""
    return {
        name: value.detach().to(dtype) if value.is_floating_point() else value.detach()
        for name, value in (*module.named_parameters(), *module.named_buffers())
        if name not in trained
    }


def separate_logits(
    copies: ModuleCopies, one: Callable[..., Tensor], records: tuple[Tensor, ...], classes: int
) -> Tensor:
    """Return the logits (B, C) of a batch, with every record processed separately.

    They are zeros for a record for which the module raises or returns logits that are not finite.

    Args:
        one: Takes a copy of the module and one record, and returns its logits.
    """

    def together(*some: Tensor) -> Tensor:
        with copies.run() as fresh:
            found: Tensor = vmap_records(functools.partial(one, fresh))(*some)
            return found

    with torch.no_grad():
        found, failed = run_masking_failures(together, records)
    if found is None:
        return records[0].new_zeros(len(records[0]), classes)
    return finite_rows(found if failed is None else found.masked_fill(failed[:, None], 0.0))


class _StateLocation:
    """A name in a class, a function, or a dict of globals; or a cell of a closure."""

    def __init__(self, owner: Any, name: str, description: str) -> None:
        self._owner, self._name, self._words = owner, name, description

    def get(self) -> Any:
        if isinstance(self._owner, dict):
            return self._owner.get(self._name, _Missing)
        if isinstance(self._owner, type):
            return vars(self._owner).get(self._name, _Missing)
        try:
            return getattr(self._owner, self._name)
        except ValueError:  # an empty cell
            return _Missing

    def set(self, value: Any) -> None:
        if value is self.get():
            return
        if isinstance(self._owner, dict):
            self._owner.pop(self._name, None)
            self._owner |= {} if value is _Missing else {self._name: value}
        elif value is _Missing:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, value)

    def is_copied(self) -> bool:
        """Whether it is state that can be copied: not code, and not a large table."""
        value = self.get()
        if value is _Missing:
            return True
        if isinstance(value, _CODE) or type(value).__module__.partition(".")[0] in _DATA:
            return False
        reach = ReachableState(value)
        if reach.numbers > _MAX_COPIED_ELEMENTS:
            return False
        try:
            _copied(value, reach)
        except Exception:
            return False
        return True

    def __str__(self) -> str:
        return self._words


class ReachableState:
    """The state reachable from an object: caches, tensors, and the user's code with its state."""

    def __init__(self, root: Any) -> None:
        self.places: list[_StateLocation] = []
        self.caches: list[Any] = []
        self.tensors: list[Tensor] = []
        self.classes: list[type] = []
        self.functions: list[FunctionType] = []
        self.numbers = 0  # in tensors and arrays that are not parameters
        self._found: dict[int, Any] = {}
        self._next = [root]
        while self._next:
            part = self._next.pop()
            if id(part) not in self._found and not isinstance(part, _OPAQUE):
                self._found[id(part)] = part
                self._search(part)

    def found(self) -> list[Any]:
        return list(self._found.values())

    def _search(self, part: Any) -> None:
        if isinstance(part, type):
            self._search_class(part)
        elif isinstance(part, FunctionType):
            self._search_function(part)
        elif isinstance(part, staticmethod | classmethod | MethodType):
            self._next += [part.__func__, getattr(part, "__self__", None)]
        elif isinstance(part, property):
            self._next += [part.fget, part.fset]
        else:
            if isinstance(part, CachedFunction):
                self.caches.append(part)
            if isinstance(part, Tensor | np.ndarray) and not isinstance(part, nn.Parameter):
                self.numbers += part.numel() if isinstance(part, Tensor) else part.size
            if isinstance(part, Tensor):
                self.tensors.append(part)
            self._next += [type(part), *gc.get_referents(part)]

    def _search_class(self, kind: type) -> None:
        if _is_library(kind.__module__):
            return
        self.classes.append(kind)
        self._next += kind.__bases__
        for name, value in vars(kind).items():
            self._next.append(value)
            if not isinstance(value, (*_CODE, *_SLOTS)) and not name.startswith("__"):
                self.places.append(_StateLocation(kind, name, f"class attribute {kind.__name__}.{name}"))

    def _search_function(self, function: FunctionType) -> None:
        if _is_library(function.__module__):
            return
        self.functions.append(function)
        name = function.__qualname__
        for kind in ("__defaults__", "__kwdefaults__"):
            if getattr(function, kind):
                self._keep(function, kind, f"a default argument of {name}")
        for key in function.__dict__:
            self._keep(function.__dict__, key, f"attribute {key} of {name}")
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._keep(cell, "cell_contents", f"variable {key} in the closure of {name}")
        names = _names_in(function.__code__)
        homes = [function.__globals__]
        for key in names:  # attributes of the user's own modules that the function names
            home = function.__globals__.get(key)
            if isinstance(home, ModuleType) and not _is_library(home.__name__):
                homes.append(vars(home))
        for home in homes:
            for key in names & (home.keys() | _stored_in(function.__code__)):
                self._keep(home, key, f"global variable {key}")

    def _keep(self, owner: Any, name: str, description: str) -> None:
        place = _StateLocation(owner, name, description)
        value = place.get()
        if value is not _Missing:
            self._next.append(value)
        if value is _Missing or not isinstance(value, _CODE):
            self.places.append(place)


def _copied(value: Any, reach: ReachableState) -> Any:
    """Return a deep copy, with empty caches and tensors detached from their graph."""
    memo: dict[int, Any] = {
        id(cached): functools.lru_cache(**cached.cache_parameters())(cached.__wrapped__)
        for cached in reach.caches
    }
    for tensor in reach.tensors:
        plain = tensor.detach().clone()
        memo[id(tensor)] = (
            nn.Parameter(plain, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else plain
        )
    return copy.deepcopy(value, memo)


def _shared_object(original: Any, copied: Any) -> Any:
    """Return an object with state that a copy has in common with the original; None if there is none."""
    found = _held_objects(original)
    return next((part for key, part in _held_objects(copied).items() if key in found), None)


def _held_objects(root: Any) -> dict[int, Any]:
    """Return the mutable objects in containers, modules and the user's objects, by identity; no code."""
    found, seen, following = dict[int, Any](), dict[int, Any](), [root]
    while following:
        part = following.pop()
        part = part.__self__ if isinstance(part, MethodType) else part
        if id(part) in seen or isinstance(part, (*_OPAQUE, *_CODE, *COMPILED, CachedFunction)):
            continue
        seen[id(part)] = part
        users = not _is_library(type(part).__module__) and not isinstance(part, Enum)
        fixed = isinstance(part, tuple | frozenset | complex) and not hasattr(part, "__dict__")
        if (users or isinstance(part, _HOLDS)) and not fixed:
            found[id(part)] = part
        if users or isinstance(part, (tuple, frozenset, nn.Module, functools.partial, *_HOLDS)):
            following += [one for one in gc.get_referents(part) if one is not type(part)]
    return found


def _is_library(module: str | None) -> bool:
    return (module or "builtins").partition(".")[0] in _LIBRARIES


def _names_in(code: CodeType) -> set[str]:
    """Return the names that code reads or writes, including functions within it."""
    within = [const for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*map(_names_in, within))


def _stored_in(code: CodeType) -> set[str]:
    """Return the global names that code writes, which may not exist yet."""
    import dis

    within = [const for const in code.co_consts if isinstance(const, CodeType)]
    own = {line.argval for line in dis.get_instructions(code) if line.opname == "STORE_GLOBAL"}
    return own.union(*map(_stored_in, within))
