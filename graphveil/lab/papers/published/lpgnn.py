"""LPGNN (Sajadmanesh, Gatica-Perez, CCS 2021): the authors' notebooks, and what was read off their plots.

Tables of the notebooks have intervals. Curves were read off with an error of 0.2 points (features) or 0.3
(labels, backbones), and 0.5 where a marker hides another; hidden entries are left out.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

from graphveil.lab.papers.target import CellPlace, PublishedTable, PublishedValue, table_of

CORA, PUBMED, FACEBOOK, LASTFM = "cora", "pubmed", "facebook_pages", "lastfm_asia"
DATASETS = (CORA, PUBMED, FACEBOOK, LASTFM)
BUDGETS = (0.01, 0.1, 1.0, 2.0)
LABEL_BUDGETS = (0.5, 1.0, 2.0)
STEPS = (0, 2, 4, 8, 16)
BACKBONE_BUDGETS = (0.01, 0.1, 1.0, 2.0, 3.0, float("inf"))
FEATURE_BUDGETS = (0.01, 0.1, 1.0, float("inf"))
_NO_INTERVAL = 0.05  # of figures that the notebook prints without one
Pairs = tuple[tuple[float, float], ...]

_MECHANISMS: Mapping[str, tuple[Pairs, ...]] = {  # cora, pubmed, facebook, lastfm
    "multi-bit": (
        ((68.0, 2.9), (64.6, 3.2), (83.9, 0.4), (84.0, 0.3)),
        ((78.9, 0.7), (82.7, 0.2), (82.9, 0.2), (82.9, 0.1)),
        ((85.8, 0.4), (91.0, 0.4), (92.7, 0.1), (92.9, 0.1)),
        ((75.6, 1.6), (85.3, 0.4), (84.9, 0.8), (85.9, 1.1)),
    ),
    "1bm": (
        ((45.8, 3.3), (62.3, 1.5), (59.9, 2.7), (58.5, 2.9)),
        ((76.2, 0.6), (74.8, 0.7), (81.8, 0.4), (82.5, 0.2)),
        ((57.0, 3.4), (76.3, 1.6), (86.1, 0.6), (84.0, 1.3)),
        ((40.5, 7.4), (56.2, 2.1), (75.5, 2.5), (68.1, 4.1)),
    ),
    "lpm": (
        ((43.2, 3.1), (57.8, 2.3), (61.9, 3.1), (58.1, 2.1)),
        ((76.6, 0.5), (75.2, 1.0), (81.9, 0.4), (82.4, 0.2)),
        ((54.2, 2.9), (72.5, 2.1), (85.4, 0.4), (84.8, 1.6)),
        ((43.4, 5.7), (50.5, 2.7), (73.1, 2.9), (67.2, 6.7)),
    ),
    "agm": (
        ((59.7, 2.3), (62.7, 2.8), (67.5, 3.0), (77.2, 1.9)),
        ((76.4, 0.6), (81.5, 0.3), (82.9, 0.2), (83.1, 0.2)),
        ((78.2, 1.4), (85.6, 0.7), (92.0, 0.1), (92.4, 0.2)),
        ((63.6, 2.4), (75.1, 1.9), (67.7, 4.2), (63.5, 4.6)),
    ),
}
_LABELS: Mapping[str, tuple[Pairs, ...]] = {
    "cross entropy": (
        ((18.6, 0), (25.5, 0), (52.9, 0)),
        ((37.1, 0), (65.4, 0), (80.5, 0)),
        ((50.9, 0), (55.2, 0), (81.6, 0)),
        ((21.1, 0), (28.4, 0), (56.8, 0)),
    ),
    "forward correction": (
        ((18.6, 0), (37.1, 0), (75.1, 0)),
        ((38.7, 0), (68.8, 0), (81.0, 0)),
        ((68.9, 0), (73.8, 0), (88.9, 0)),
        ((44.9, 0), (58.5, 0), (79.2, 0)),
    ),
    "Drop": (
        ((42.9, 1.5), (69.3, 1.2), (78.4, 0.7)),
        ((69.8, 0.7), (74.9, 0.3), (81.0, 0.2)),
        ((75.1, 0.6), (84.9, 0.2), (90.7, 0.1)),
        ((70.0, 3.0), (82.1, 1.0), (85.7, 0.7)),
    ),
}
_FEATURE_STEPS = {  # by eps_x, at eps_y = 1
    0.01: (
        (43.8, 56.7, 58.5, 63.0, 60.5),
        (58.0, 69.6, 74.3, 76.9, 78.9),
        (79.5, 84.1, 84.9, 85.5, 85.0),
        (66.0, 73.7, 76.8, 72.2, 67.9),
    ),
    0.1: (
        (55.3, 62.4, 63.1, 66.6, 66.7),
        (67.2, 73.7, 75.2, 76.5, 78.0),
        (84.3, 85.1, 84.9, 85.2, 84.7),
        (75.1, 81.2, 81.7, 82.2, 78.8),
    ),
    1.0: (
        (67.2, 69.2, 69.3, 69.4, 70.0),
        (72.1, 74.3, 75.0, 76.1, 77.8),
        (84.75, 84.9, 85.0, 84.9, 84.0),
        (80.55, 81.7, 82.0, 82.4, 83.6),
    ),
}
_LABEL_STEPS = {  # by eps_y, at eps_x = 1
    0.5: (
        (18.4, 30.1, 37.1, 42.7, 44.4),
        (38.6, 58.9, 69.7, 73.5, 72.6),
        (68.8, 74.1, 75.0, 74.4, 70.0),
        (44.8, 59.3, 68.0, 69.9, 68.9),
    ),
    1.0: (
        (36.9, 52.4, 63.3, 69.2, 67.7),
        (68.6, 74.7, 78.4, 78.9, 76.4),
        (73.8, 83.9, 84.9, 82.5, 77.4),
        (58.4, 77.5, 82.1, 83.2, 75.5),
    ),
    2.0: (
        (75.0, 77.2, 78.4, 78.9, 73.8),
        (80.8, 81.7, 81.9, 80.6, 77.7),
        (88.9, 90.7, 89.6, 85.2, 80.3),
        (79.1, 85.0, 85.7, 84.8, 78.9),
    ),
}
Curve = tuple[float | None, ...]
_BACKBONES: Mapping[tuple[str, str], tuple[Curve, ...]] = {
    ("eps_y = 1", "GCN"): (
        (65.0, 61.5, 68.5, 70.1, 70.1, 74.0),
        (79.0, 77.2, 76.2, 76.2, 76.2, 86.0),
        (84.9, 84.9, 84.9, 84.6, 84.9, 88.7),
        (None, 79.8, 82.5, 82.0, 81.7, 75.9),
    ),
    ("eps_y = inf", "GCN"): (
        (72.1, 78.2, 84.6, 84.6, 84.6, 87.5),
        (82.0, 83.0, 82.7, 82.4, 82.4, 88.8),
        (87.8, 92.6, 93.0, 93.0, 93.0, 93.6),
        (77.9, 84.0, 86.5, 87.2, 87.2, 89.7),
    ),
    ("eps_y = 1", "GAT"): (
        (51.9, 52.2, 66.0, 67.6, 69.2, 73.0),
        (None, 76.4, 75.9, 75.6, 75.9, 83.5),
        (68.0, None, 84.6, 84.6, 84.6, 88.3),
        (None, None, 75.5, 76.2, 76.0, 79.1),
    ),
    ("eps_y = inf", "GAT"): (
        (62.8, 71.4, 84.0, 84.0, 83.6, 87.2),
        (76.6, 83.0, 82.7, 82.3, 82.0, 87.5),
        (62.8, 73.0, 92.9, 93.3, 92.9, 93.6),
        (60.5, 72.1, 80.1, 86.8, 85.6, 88.1),
    ),
    ("eps_y = inf", "SAGE"): (
        (67.8, 64.5, 83.8, 83.8, 84.2, 87.7),
        (78.7, 82.5, 82.9, 82.9, 82.5, 89.0),
        (85.8, 90.9, 92.5, 92.8, 92.8, 93.8),
        (75.5, 85.1, 84.8, 85.8, 85.4, 89.3),
    ),
}
_RAW: tuple[Pairs, ...] = (  # 0.01, 0.1, 1, inf
    ((63.0, 4.1), (62.4, 2.0), (69.3, 1.2), (74.9, 1.5)),
    ((78.9, 0.2), (76.5, 0.4), (74.9, 0.3), (82.3, 0.6)),
    ((85.0, 0.4), (85.1, 0.2), (84.9, 0.2), (88.2, 0.4)),
    ((76.9, 4.3), (81.2, 1.3), (82.1, 1.0), (78.1, 2.3)),
)
_PLAIN: Mapping[str, Pairs] = {  # cora, pubmed, facebook, lastfm
    "degree, one-hot": ((44.4, 3.5), (52.5, 5.7), (77.2, 0.3), (66.4, 1.6)),
    "ones": ((22.6, 5.0), (38.9, 0.4), (29.0, 1.4), (19.6, 1.8)),
    "random": ((26.4, 3.0), (56.0, 1.3), (35.2, 5.6), (32.3, 6.3)),
}


def _table(
    lines: Mapping[str, tuple[Pairs, ...]], xs: tuple[float, ...], panel: str = ""
) -> Iterator[tuple[CellPlace, PublishedValue]]:
    """Yield a notebook's tables."""
    for line, rows in lines.items():
        for dataset, row in zip(DATASETS, rows, strict=True):
            errors = [error or _NO_INTERVAL for _, error in row]
            yield from table_of(dataset, panel, line, xs, [value for value, _ in row], errors, "notebook")


def _curves(
    panel: str, line: str, rows: tuple[Curve, ...], xs: tuple[float, ...], error: float
) -> Iterator[tuple[CellPlace, PublishedValue]]:
    """Yield curves that were read off a plot, one for each data set."""
    source: Literal["read off"] = "read off"
    for dataset, row in zip(DATASETS, rows, strict=True):
        yield from table_of(dataset, panel, line, xs, row, error, source)


MECHANISMS: PublishedTable = dict(_table(_MECHANISMS, BUDGETS))
LABELS: PublishedTable = dict(_table(_LABELS, LABEL_BUDGETS))
_PARTS = (("features, eps_x", _FEATURE_STEPS, 0.2), ("labels, eps_y", _LABEL_STEPS, 0.3))
KPROP: PublishedTable = {
    place: one
    for what, curves, error in _PARTS
    for budget, rows in curves.items()
    for place, one in _curves(what.split(",")[0], f"{what.split()[-1]} = {budget:g}", rows, STEPS, error)
}
BACKBONES: PublishedTable = {
    place: one
    for (panel, line), rows in _BACKBONES.items()
    for place, one in _curves(panel, line, rows, BACKBONE_BUDGETS, 0.3)
}
FEATURES: PublishedTable = {
    **dict(_table({"raw": _RAW}, FEATURE_BUDGETS)),
    **{
        (dataset, "", line, None): PublishedValue(*figure, "notebook")
        for line, row in _PLAIN.items()
        for dataset, figure in zip(DATASETS, row, strict=True)
    },
}
