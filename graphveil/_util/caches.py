"""What the system says of the processor's caches."""

from functools import cache
from pathlib import Path

_SYSTEM = Path("/sys/devices/system/cpu/cpu0/cache")  # of Linux
_COMMON = 1 << 20  # bytes, where it does not say
_UNITS = {"K": 1 << 10, "M": 1 << 20}


@cache
def second_level() -> int:
    """Return the bytes of the second level of the cache; a common figure where the system does not say."""
    try:
        sizes = {_read_text(place / "level"): _read_text(place / "size") for place in _SYSTEM.glob("index*")}
        return int(sizes["2"][:-1]) * _UNITS[sizes["2"][-1:]]
    except (OSError, ValueError, KeyError):
        return _COMMON


def _read_text(file: Path) -> str:
    return file.read_text(encoding="ascii").strip()
