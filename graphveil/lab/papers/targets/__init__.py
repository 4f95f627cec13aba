"""All targets by name. Importing this loads none of them."""

from collections.abc import Iterator, Mapping
from importlib import import_module

from graphveil._util import checks
from graphveil.lab.papers.target import ReproductionTarget

_MODULES = {
    "gap": (
        "gap:table1",
        "gap:table2",
        "gap:figure6",
        "gap:figure7",
        "gap:figure8",
        "gap:figure9",
    ),
    "gap_membership": ("gap:table3",),
    "frontier": ("graphveil:frontier",),
    "weighted": ("weighted:figure3",),
    "lpgnn": ("lpgnn:mechanisms", "lpgnn:labels", "lpgnn:kprop", "lpgnn:backbones", "lpgnn:features"),
    "simgat": ("simgat:results",),
    "heterorr": (
        "heterorr:features",
        "heterorr:edges",
        "heterorr:ppi",
        "heterorr:flickr-mir",
        "heterorr:linkteller",
        "heterorr:reconstruction",
    ),
}


class _Targets(Mapping[str, ReproductionTarget]):
    """The closed table of targets: names are known at once, a module is imported when asked for."""

    def __getitem__(self, name: str) -> ReproductionTarget:
        for module, names in _MODULES.items():
            if name in names:
                found: Mapping[str, ReproductionTarget] = import_module(f"{__name__}.{module}").TARGETS
                return found[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for names in _MODULES.values() for name in names)

    def __len__(self) -> int:
        return sum(map(len, _MODULES.values()))


TARGETS: Mapping[str, ReproductionTarget] = _Targets()


def target_named(name: str) -> ReproductionTarget:
    """Return a target; an unknown name is an error that suggests the nearest."""
    checks.one_of(tuple(TARGETS), TARGET=name)
    return TARGETS[name]
