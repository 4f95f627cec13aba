"""The catalog of data sets: one record each, saying how large it is and how it is read or fetched."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from graphveil._util.checks import suggestion
from graphveil.data.published import local, remote
from graphveil.data.published.local import Fields
from graphveil.data.synthetic_graphs import PRESETS
from graphveil.errors import ConfigError

Reader: TypeAlias = Callable[[Path, str], Fields]

_SCHOOL = re.compile(r"facebook100/([A-Za-z]+\d+)")  # the publishers number every school


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One data set.

    Args:
        name: what ``load_dataset`` is given.
        nodes, features, classes: the sizes before any recipe, as read from local files where there are such.
        where: one line on where the data come from.
        files: what has to lie under the root to be read from there.
        read: reads those files; none if there is no local layout.
        fetch: gets the public copy; none if there is nothing to download.
        preset: of the synthetic graph that this is.
        remedy: what to do when it is not here, if not to put ``files`` under the root.
    """

    name: str
    nodes: int | None = None
    features: int | None = None
    classes: int | None = None
    where: str
    files: tuple[str, ...] = ()
    read: Reader | None = None
    fetch: Reader | None = None
    preset: str = ""
    remedy: str = ""

    def lies_under(self, root: Path) -> bool:
        """Return whether the data can be had without a download."""
        if self.read is None:
            return bool(self.preset)
        return all((root / file).is_file() for file in self.files)


def entry_of(name: str) -> Dataset:
    """Return the record of a name; every school of Facebook100 has one.

    >>> entry_of("cora").nodes
    2708
    >>> entry_of("coara")
    Traceback (most recent call last):
    graphveil.errors.ConfigError: name='coara' is not the name of a data set; did you mean 'cora'?
    """
    if name in CATALOG:
        return CATALOG[name]
    school = _SCHOOL.fullmatch(name)
    if school is None:
        near = suggestion(name, CATALOG) or "; `graphveil datasets` lists them"
        raise ConfigError(f"name={name!r} is not the name of a data set{near}")
    return _facebook100(school[1])


def _facebook100(school: str, nodes: int | None = None, features: int | None = None) -> Dataset:
    return Dataset(
        name=f"facebook100/{school}",
        nodes=nodes,
        features=features,
        classes=6,
        where="Facebook100 (Traud et al. 2011), class years 2004 to 2009",
        files=(f"facebook100/{school}.mat",),
        read=local.facebook100,
        fetch=remote.facebook100,
    )


def _amazon(name: str, nodes: int, features: int, classes: int) -> Dataset:
    return Dataset(
        name=f"amazon/{name}",
        nodes=nodes,
        features=features,
        classes=classes,
        where="Amazon co-purchases (Shchur et al. 2018)",
        files=(f"amazon/{name}.npz",),
        read=local.amazon,
        fetch=remote.amazon,
    )


def _planetoid(name: str, nodes: int, features: int, classes: int) -> Dataset:
    return Dataset(
        name=name,
        nodes=nodes,
        features=features,
        classes=classes,
        where="Planetoid citations (Yang et al. 2016), with the public split",
        files=(f"planetoid/{name}.npz",),
        read=local.planetoid,
        fetch=remote.planetoid,
    )


def _musae(folder: str, stem: str) -> tuple[str, ...]:
    return f"{folder}/{stem}_edges.csv", f"{folder}/{stem}.json", f"{folder}/{stem}_target.csv"


def _twitch(country: str, nodes: int) -> Dataset:
    return Dataset(
        name=f"twitch/{country}",
        nodes=nodes,
        features=3_170,
        classes=2,
        where="MUSAE Twitch friendships (Rozemberczki et al. 2021); the download has 128 dense features",
        files=_musae(f"twitch/{country}", country),
        read=local.twitch,
        fetch=remote.twitch,
    )


def _wikipedia(topic: str, nodes: int, features: int) -> Dataset:
    return Dataset(
        name=f"wikipedia/{topic}",
        nodes=nodes,
        features=features,
        classes=5,
        where="MUSAE Wikipedia links (Rozemberczki et al. 2021); label: fifth of the traffic",
        files=_musae(f"wikipedia/{topic}", topic),
        read=local.wikipedia,
        fetch=remote.wikipedia,
    )


def _synthetic(preset: str) -> Dataset:
    shape = PRESETS[preset]
    return Dataset(
        name=f"synthetic/{preset}",
        nodes=shape.nodes,
        features=shape.features,
        classes=shape.classes,
        where="generated here: degree-corrected block model",
        preset=preset,
    )


_OTHERS = (
    Dataset(
        name="facebook_pages",
        nodes=22_470,
        features=4_714,
        classes=4,
        where="MUSAE page-page links (Rozemberczki et al. 2021); the download has 128 dense features",
        files=_musae("facebook_pages", "facebook"),
        read=local.facebook_pages,
        fetch=remote.facebook_pages,
    ),
    Dataset(
        name="lastfm_asia",
        nodes=7_624,
        features=1,
        classes=18,
        where="LastFM Asia (Rozemberczki and Sarkar 2020); no features locally, 128 in the download",
        files=(
            "lastfm_asia_structure/lastfm_asia_edges.csv",
            "lastfm_asia_structure/lastfm_asia_target.csv",
        ),
        read=local.lastfm_asia,
        fetch=remote.lastfm_asia,
    ),
    Dataset(
        name="reddit",
        nodes=232_965,
        features=602,
        classes=41,
        where="GraphSAGE Reddit (Hamilton et al. 2017), by download only",
        fetch=remote.reddit,
    ),
    Dataset(
        name="ogbn_products",
        nodes=2_449_029,
        features=100,
        classes=47,
        where="Open Graph Benchmark (Hu et al. 2020)",
        files=tuple(f"ogbn_products/{file}" for file in local.OGB_FILES),
        read=local.ogbn_products,
        remedy="unpack https://snap.stanford.edu/ogb/data/nodeproppred/products.zip as ROOT/ogbn_products",
    ),
    Dataset(
        name="ppi",
        nodes=56_944,
        features=50,
        classes=2,
        where="GraphSAGE PPI (Hamilton et al. 2017), 121 labels a node, the first of which is its class; by "
        "download only",
        fetch=remote.ppi,
    ),
    Dataset(
        name="flickr_mir",
        where="images from the MIR Flickr collection, whose features were never published as a graph",
        remedy="make a table of nodes and one of edges, and read them with read_graph (--nodes, --edges)",
    ),
    Dataset(
        name="karate",
        nodes=34,
        features=34,
        classes=4,
        where="Zachary's karate club (1977), one feature per member; where the file is not, the copy in "
        "torch_geometric, whose labels are four other communities",
        files=("karate/karate.npz",),
        read=local.karate,
        fetch=remote.karate,
    ),
)

CATALOG: Mapping[str, Dataset] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            _facebook100("Berkeley13", 22_937, 437),
            _facebook100("Wisconsin87", 23_842, 613),
            _facebook100("Rutgers89", 24_580, 376),
            _facebook100("Reed98", 962, 117),
            _facebook100("UIllinois20"),
            _amazon("computers", 13_752, 767, 10),
            _amazon("photo", 7_650, 745, 8),
            _planetoid("cora", 2_708, 1_433, 7),
            _planetoid("citeseer", 3_327, 3_703, 6),
            _planetoid("pubmed", 19_717, 500, 3),
            _twitch("DE", 9_498),
            _twitch("EN", 7_126),
            _twitch("ES", 4_648),
            _twitch("FR", 6_551),
            _twitch("PT", 1_912),
            _twitch("RU", 4_385),
            _wikipedia("chameleon", 2_277, 3_132),
            _wikipedia("squirrel", 5_201, 3_148),
            *_OTHERS,
            *map(_synthetic, PRESETS),
        )
    }
)
