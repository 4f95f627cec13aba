"""Ray, joined to a cluster: one that runs, or one of this process's own on this machine.

Ray joins one cluster a process. Of a cluster that this process started for itself, processors are not
reserved: nobody else is there whom that would keep off them, and two backends that want different crews would
wait for each other.
"""

import os
import socket
from typing import Any

from graphveil.errors import ConfigError, MissingDependencyError

_QUIET = {  # read by Ray when it is imported or started
    "RAY_USAGE_STATS_ENABLED": "0",  # it would report to its makers
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}

_own: set[str] = set()  # what joined_as says of clusters that were started here


def connect(address: str | None) -> Any:
    """Return Ray, joined to the cluster at the address; without one, to where this process or RAY_ADDRESS is.

    Where there is none a cluster of this machine alone is started, without a dashboard.

    Raises:
        MissingDependencyError: Ray is not installed.
        ConfigError: there is no cluster at the address, or this process is joined to another one.
    """
    ray = import_ray()
    if ray.is_initialized():
        _check_address(ray, address)
        return ray
    local = address is None and "RAY_ADDRESS" not in os.environ
    given: dict[str, Any] = {"include_dashboard": False} if local else {"address": address}
    try:
        ray.init(**given, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"there is no cluster of Ray at address={address!r} (--address) that this process can join "
            f"({type(error).__name__}); start one with ray start --head, or leave the address out"
        ) from None
    if local:
        _own.add(process_identity(ray))
    return ray


def process_identity(ray: Any) -> str:
    """Return who this process is on which cluster: Ray numbers the processes of each new cluster alike."""
    context = ray.get_runtime_context()
    return f"{context.get_worker_id()} beside {context.get_node_id()}"


def is_own_cluster(ray: Any) -> bool:
    """Whether this process started the cluster for itself."""
    return process_identity(ray) in _own


def _check_address(ray: Any, address: str | None) -> None:
    """Refuse another cluster than the one that this process is joined to: edges would go to the wrong one."""
    here, own = str(ray.get_runtime_context().gcs_address), ray.util.get_node_ip_address()
    if address not in (None, "auto") and _numeric_address(str(address), own) != _numeric_address(here, own):
        raise ConfigError(
            f"this process is joined to the cluster of Ray at {here}, and address={address!r} (--address) is "
            "another one; leave the address out, or leave that cluster first (ray.shutdown())"
        )


def _numeric_address(address: str, own: str) -> tuple[str, str]:
    """Return an address by number, where its name has one; ``own`` is the number of this machine."""
    host, _, port = address.rpartition(":")
    try:
        number = socket.gethostbyname(host)
    except (OSError, UnicodeError):
        return host, port
    return own if number.startswith("127.") else number, port


def import_ray() -> Any:
    """Import Ray, which is told to report to nobody."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise MissingDependencyError(
            "backend='ray' (--backend ray) needs Ray; install the extra: pip install 'graphveil[ray]'"
        ) from None
    return ray
