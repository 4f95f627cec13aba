"""A server of predictions that are released already. Docs: ``docs/serve.md``.

It reads release folders and nothing else: no estimator, no graph, no ledger. So whatever it is asked, it
cannot make a release, and the same question has the same bytes. Needs the extra ``serve``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphveil.errors import MissingDependencyError
from graphveil.serve.keys import Keys
from graphveil.serve.limits import Limits
from graphveil.serve.runs import ServedRun, read_runs

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["Keys", "Limits", "ServedRun", "app_of", "read_runs", "serve"]


def app_of(runs: Sequence[ServedRun], keys: Keys | None = None, limits: Limits | None = None) -> "FastAPI":
    """Return the application that answers for some runs.

    Args:
        runs: what :func:`read_runs` read.
        keys: who may ask. Without it everybody may, which units of records do not allow: there row v is only
            for a key of subject v.
        limits: how much is taken on at once.

    Raises:
        ConfigError: a run of a unit of records without keys, or beside another one.
        MissingDependencyError: the extra ``serve`` is not installed.
    """
    try:
        from graphveil.serve.app import application
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    return application(tuple(runs), keys, limits or Limits())


def serve(app: "FastAPI", limits: Limits | None = None, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Answer until a signal asks to stop; what is under way is finished first.

    Port 0 takes any that is free; the first line of the log says which.

    Raises:
        OSError: the address cannot be used.
        MissingDependencyError: the extra ``serve`` is not installed.
    """
    try:
        from graphveil.serve.listen import listen
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    listen(app, limits or Limits(), host, port)


def _missing(error: ModuleNotFoundError) -> Exception:
    """Return which extra is missing; a part of ours that is missing stays what it is."""
    if (error.name or "").startswith("graphveil"):
        return error
    return MissingDependencyError(
        "the server needs FastAPI and uvicorn; install them with `pip install 'graphveil[serve]'`"
    )
