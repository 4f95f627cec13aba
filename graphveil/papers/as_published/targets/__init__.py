"""All targets by name."""

from collections.abc import Mapping

from graphveil._util import checks
from graphveil.papers.as_published.target import ReproductionTarget
from graphveil.papers.as_published.targets import gap, heterorr, lpgnn

TARGETS: Mapping[str, ReproductionTarget] = {
    target.name: target for target in (*gap.TARGETS, *lpgnn.TARGETS, *heterorr.TARGETS)
}


def target_named(name: str) -> ReproductionTarget:
    checks.one_of(tuple(TARGETS), TARGET=name)
    return TARGETS[name]
