"""Devices for clipped gradients: the CPU, or a GPU that is requested by name.

The proof needs three properties of a device. *Other records' gradients are bit-identical for neighboring
datasets*: no shape depends on a record (``clipped_sums.py``), so every number must be a function of its own
record and of public shapes. On a GPU this fails where several threads add to one number in arrival order.
Torch's deterministic algorithms are therefore enabled while gradients are computed; they raise an error for
operations without a deterministic version. *No record adds more than C*: norms, factors and sums are float64,
computed from the vector that is added, so float32 rounding before that is not part of the bound. Products of
float32 numbers do not use TF32. *Sums round within the margin of 10^-6*: they are float64, and their order
does not matter. The clipped sum is then copied to the host, where the exact noise is added.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from graphveil.errors import ConfigError

CPU = torch.device("cpu")
_WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # required for deterministic cuBLAS additions
_EMULATED = "CUBLAS_EMULATE_DOUBLE_PRECISION"


def private_device(name: str) -> torch.device:
    """Return the device for gradients of protected records: a GPU only if it is requested by name.

    ``auto`` is the CPU: results do not depend on the presence of a GPU.

    Raises:
        ConfigError: If cuBLAS is configured to emulate float64, which the bound's sums use.

    >>> private_device("auto")
    device(type='cpu')
    """
    if name != "cuda":
        return CPU
    if os.environ.get(_EMULATED, "0") != "0":
        raise ConfigError(f"{_EMULATED} makes sums on a GPU less exact than their proof requires; unset it")
    return torch.device("cuda")


@contextmanager
def deterministic_on(device: torch.device) -> Iterator[None]:
    """Enable deterministic algorithms on a GPU within the context, and disable TF32 for float32.

    On the CPU nothing is changed: its kernels are deterministic.

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

    Two devices round one gradient differently, and the same noise on both sums would reveal the difference. A
    run that began on one device is therefore not resumed on another.

    >>> device_tag(CPU)
    ()
    """
    if device == CPU:
        return ()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    return (torch.frombuffer(bytearray(f"{device.type}: {name}".encode()), dtype=torch.uint8),)
