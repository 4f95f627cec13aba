"""Where exact numbers about private data exist: declared places, listed in ``proofs/noise.md``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Site = TypeVar("Site", bound=Callable[..., Any])


@dataclass(frozen=True)
class PrivateSumSite:
    """A place where exact numbers about private data exist, and are returned only with noise."""

    queries: tuple[str, ...]
    place: str  # module:qualified name
    note: str


PRIVATE_SUM_SITES: list[PrivateSumSite] = []


def forms_private_sum(*queries: str, note: str = "") -> Callable[[Site], Site]:
    """Declare that a function or class forms the exact numbers of some queries, and adds their noise.

    ``docs/privacy/proofs/noise.md`` lists all of these places, and a test finds other code of this kind.

    Args:
        queries: Names of the queries.
        note: Remark for reviewers, in addition to the place.
    """

    def declare(site: Site) -> Site:
        PRIVATE_SUM_SITES.append(PrivateSumSite(queries, f"{site.__module__}:{site.__qualname__}", note))
        return site

    return declare
