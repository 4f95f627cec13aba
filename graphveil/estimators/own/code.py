"""What a user's own module is called, and how it is built: a factory, called with public sizes alone.

A saved model holds the name of such a factory and never code. Whoever loads it and wants the module to run
says which code the name means, by registering it (:func:`graphveil.register`): a file cannot.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from graphveil.errors import ArtifactError, ConfigError

Factory = Callable[[int, int], nn.Module]

_REGISTERED: dict[str, Factory] = {}


def register_factory(factory: Factory, name: str | None = None) -> str:
    """Let a name stand for a factory in this process, and return the name."""
    check_factory(factory)
    known = name or factory_name(factory)
    _REGISTERED[known] = factory
    return known


def check_factory(module: object, keyword: str = "module") -> None:
    """Refuse what is neither a class or function that builds modules nor the name of one.

    Raises:
        ConfigError: something else, such as a module that is built already.

    >>> check_factory(nn.Linear(2, 2))
    Traceback (most recent call last):
    graphveil.errors.ConfigError: module=Linear(...) is built already, and could carry the graph's own ...
    """
    if isinstance(module, nn.Module):
        raise ConfigError(
            f"{keyword}={type(module).__name__}(...) is built already, and could carry the graph's own sizes "
            "or numbers in it; pass the class, or a function of two public sizes: "
            f"{keyword}={type(module).__name__}"
        )
    if not callable(module) and not (isinstance(module, str) and module):
        raise ConfigError(
            f"{keyword}={module!r} is no class of modules, no function that builds one, and not the name of "
            "one that was registered"
        )


def factory_name(module: Factory | str) -> str:
    """Return what a factory is called in files."""
    return module if isinstance(module, str) else str(getattr(module, "__name__", type(module).__name__))


def is_registered(module: Factory | str) -> bool:
    """Whether there is code here for what a factory or a name stands for."""
    return not isinstance(module, str) or module in _REGISTERED


def get_factory(module: Factory | str) -> Factory:
    """Return the factory, or the one that a name stands for in this process.

    Raises:
        ConfigError: the name stands for nothing here.
    """
    if not isinstance(module, str):
        return module
    if module not in _REGISTERED:
        raise ConfigError(_unknown(module))
    return _REGISTERED[module]


def check_registered(*modules: Factory | str | None) -> None:
    """Refuse names in a file that stand for nothing here.

    Raises:
        ArtifactError: with the way to say what one means.
    """
    for module in modules:
        if module is not None and not is_registered(module):
            raise ArtifactError(_unknown(factory_name(module)))


def _unknown(name: str) -> str:
    return (
        f"the model names a module of your own, {name!r}, and files hold no code: import it and say "
        f"graphveil.register({name}) (on the command line, --module FILE.py:NAME)"
    )


def build_module(module: Factory | str, inputs: int, outputs: int, generator: torch.Generator) -> nn.Module:
    """Return a new module for public sizes, its initial weights drawn from a public generator.

    Raises:
        ConfigError: the name stands for nothing here, or the factory builds no module of these sizes.
    """
    factory, name = get_factory(module), factory_name(module)
    try:
        with _using_global_generator(generator):
            found = factory(inputs, outputs)
    except Exception as error:
        raise ConfigError(
            f"{name}({inputs}, {outputs}) failed: {type(error).__name__}: {error}; a module is built by a "
            "class or function of two sizes, its inputs and its outputs"
        ) from error
    if isinstance(found, nn.Module) and _contains_itself(found, ()):
        raise ConfigError(
            f"{name}({inputs}, {outputs}) holds itself as a submodule, which has no list of weights. Keep "
            'the reference out of torch\'s sight: self.__dict__["parent"] = parent.'
        )
    if not isinstance(found, nn.Module):
        raise ConfigError(f"{name}({inputs}, {outputs}) is a {type(found).__name__} and no torch module")
    return found


def _contains_itself(module: nn.Module, above: tuple[nn.Module, ...]) -> bool:
    return any(part is module for part in above) or any(
        _contains_itself(part, (*above, module)) for part in module.children()
    )


@contextmanager
def _using_global_generator(generator: torch.Generator) -> Iterator[None]:
    """Let torch's own generator, which modules draw their weights from, stand where another one does."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(generator.get_state())
        yield
