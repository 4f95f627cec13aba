"""Where clipped gradients are formed: the CPU, or a GPU that is asked for by name.

What the proof asks of a device. *Others' gradients are the same bits in both worlds*: no shape follows what a
record holds (``clipped.py``), so it is enough that every number is a function of its own record's numbers and
of public shapes. On a GPU that fails where several threads add to one number in the order in which they come;
so torch's deterministic algorithms are on while gradients are formed, which refuse an operation that has
none. *No record adds more than C*: norms, factors and sums are float64 there as here, of the very vector that
is added, so what float32 rounds on the way to it is no part of the bound. Products of float32 numbers are not
cut to TF32 all the same. *Sums round within the margin of 10^-6*: they are float64, and their order does not
matter. A clipped sum then comes to the host, where the exact noise is added as ever.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from graphveil.errors import ConfigError

CPU = torch.device("cpu")
_WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without one cuBLAS may add in any order, says NVIDIA
_EMULATED = "CUBLAS_EMULATE_DOUBLE_PRECISION"


def private_device(name: str) -> torch.device:
    """Return where gradients of protected records are formed: a GPU only if it is asked for by name.

    ``auto`` is the CPU: a fit gives the same bytes with and without a GPU beside it.

    Raises:
        ConfigError: cuBLAS was told to emulate float64, in which the bound's sums are.

    >>> private_device("auto")
    device(type='cpu')
    """
    if name != "cuda":
        return CPU
    if os.environ.get(_EMULATED, "0") != "0":
        raise ConfigError(f"{_EMULATED} makes sums on a GPU less exact than their proof asks; unset it")
    return torch.device("cuda")


@contextmanager
def deterministic_on(device: torch.device) -> Iterator[None]:
    """While it is entered, a GPU gives the same bits for the same numbers, and rounds no float32 to TF32.

    On the CPU nothing is changed: its kernels do so anyway.

    >>> with deterministic_on(CPU):
    ...     torch.are_deterministic_algorithms_enabled()
    False
    """
    if device.type == "cpu":
        yield
        return
    os.environ.setdefault(*_WORKSPACE)
    on, warns = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    precision = torch.get_float32_matmul_precision()
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(on, warn_only=warns)
        torch.set_float32_matmul_precision(precision)


def device_tag(device: torch.device) -> tuple[Tensor, ...]:
    """Return the device as bytes that noise is bound to; nothing for the CPU.

    Two devices round one gradient differently, and the same noise on both sums would tell the difference. So
    a run that began on one is not resumed on another.

    >>> device_tag(CPU)
    ()
    """
    if device == CPU:
        return ()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    return (torch.frombuffer(bytearray(f"{device.type}: {name}".encode()), dtype=torch.uint8),)
