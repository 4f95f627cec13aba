"""The same data sets from where they are published, when they do not lie on disk.

torch_geometric's own data-set classes do most of it. They check no certificate, and some unpickle what they
get, so a local copy with known checksums is the better choice. Facebook100 has no such class: its schools are
fetched over verified TLS from one pinned commit and compared with known SHA-256 sums.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import torch

from graphveil._util.checks import suggestion
from graphveil.data import _pyg
from graphveil.data.published import local
from graphveil.data.published.local import Fields
from graphveil.errors import GraphError

_FACEBOOK100 = (
    "https://raw.githubusercontent.com/sisaman/pyg-datasets/"
    "9a92bf1e84f73b7b24dd745eb14f13e4d1979769/datasets/facebook100"
)
_SHA256 = {
    "Berkeley13": "e8bcf00096b9cc18d95d1401ead634c0f5c4303511dc48b5e8056732387ce291",
    "Reed98": "d12ec74dc8c6e237385975b976c3709555a83629a1260be693fb688e3446070e",
    "Rutgers89": "40a138fda9324a24e2c14c409909d29f766383a50f370b525cd103da374b4760",
    "Wisconsin87": "9e1bc77dd1486cf1b41a1aa38c80a41510c944085d8b8b84ac50f724f9c84e86",
}
_TIMEOUT = 60  # seconds without an answer


def facebook100(root: Path, name: str) -> Fields:
    """Download one school to the place where the local reader looks, and read it."""
    school = name.rpartition("/")[2]
    if school not in _SHA256:
        near = suggestion(school, _SHA256)
        raise GraphError(
            f"{name} is not here, and without a known checksum it is not downloaded{near}; "
            f"put {school}.mat into a folder facebook100 and give the folder above it with --root"
        )
    download(f"{_FACEBOOK100}/{school}.mat", root / f"{name}.mat", sha256=_SHA256[school])
    return local.facebook100(root, name)


def download(url: str, path: Path, *, sha256: str) -> None:
    """Write what the URL returns to ``path``, whole and with the right checksum or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        digest = hashlib.sha256()
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer, os.fdopen(handle, "wb") as file:
            while block := answer.read(1 << 20):
                digest.update(block)
                file.write(block)
        if digest.hexdigest() != sha256:
            raise GraphError(f"{url} does not have the expected SHA-256; nothing was kept")
        Path(part).replace(path)
    finally:
        Path(part).unlink(missing_ok=True)


def planetoid(root: Path, name: str) -> Fields:
    """Fetch Cora, CiteSeer or PubMed with the public split."""
    title = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}[name]
    return _pyg.fields_of(_datasets().Planetoid(str(root), title)[0])


def amazon(root: Path, name: str) -> Fields:
    """Fetch Amazon Computers or Photo."""
    return _pyg.fields_of(_datasets().Amazon(str(root / "amazon"), name.rpartition("/")[2])[0])


def twitch(root: Path, name: str) -> Fields:
    """Fetch a Twitch graph, with 128 dense features in place of the published 3,170 binary ones."""
    return _pyg.fields_of(_datasets().Twitch(str(root / "twitch"), name.rpartition("/")[2])[0])


def facebook_pages(root: Path, name: str) -> Fields:
    """Fetch the page-page graph, with 128 dense features in place of the published 4,714 binary ones."""
    return _pyg.fields_of(_datasets().FacebookPagePage(str(root / name))[0])


def lastfm_asia(root: Path, name: str) -> Fields:
    """Fetch LastFM Asia, with 128 dense features in place of the published 7,842 binary ones."""
    return _pyg.fields_of(_datasets().LastFMAsia(str(root / name))[0])


def wikipedia(root: Path, name: str) -> Fields:
    """Fetch a Wikipedia graph, with 128 dense features; the traffic is cut into fifths as for local files."""
    topic = name.rpartition("/")[2]
    data = _datasets().WikipediaNetwork(str(root / "wikipedia"), topic, geom_gcn_preprocess=False)[0]
    fields = {key: value for key, value in _pyg.fields_of(data).items() if not key.endswith("mask")}
    return fields | {"y": local.fifths(data.y.double().numpy())}


def reddit(root: Path, name: str) -> Fields:
    """Fetch the GraphSAGE Reddit graph (114.6 million stored edges) with its split."""
    return _pyg.fields_of(_datasets().Reddit(str(root / name))[0])


def karate(root: Path, name: str) -> Fields:
    """Return the karate club that torch_geometric contains: the same edges, four other communities."""
    fields = _pyg.fields_of(_datasets().KarateClub()[0])
    return {key: value for key, value in fields.items() if not key.endswith("mask")}


def ppi(root: Path, name: str) -> Fields:
    """Fetch the 24 PPI graphs as one, split by graph.

    A node has any of 121 labels: they are the label sets, and the first of them is the class.
    """
    parts = {part: _disjoint(_datasets().PPI(str(root / name), part)) for part in ("train", "val", "test")}
    whole = _disjoint(parts.values())
    sizes = [part.num_nodes for part in parts.values()]
    place = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))
    masks = {f"{part}_mask": place == number for number, part in enumerate(parts)}
    source, target = whole.edge_index
    labels = {"y": whole.y[:, 0].long(), "label_sets": whole.y > 0}
    return {"x": whole.x, **labels, "source": source, "target": target, **masks}


def _disjoint(graphs: Any) -> Any:
    """Return one ``Data`` in which the given ones lie side by side."""
    data = _pyg.load("data")
    plain = [data.Data(x=graph.x, y=graph.y, edge_index=graph.edge_index) for graph in graphs]
    return data.Batch.from_data_list(plain)


def _datasets() -> Any:
    return _pyg.load("datasets")
