"""Downloaded datasets, on small files as torch_geometric would have downloaded them."""

import hashlib
import io
import json
import urllib.request
import urllib.response
from email.message import Message

import numpy as np
import pytest
import torch
from scipy import sparse

from graphveil.data import dataset_info, load_dataset
from graphveil.data.conversion import load_pyg
from graphveil.data.datasets import download
from graphveil.errors import GraphError

EDGES = np.array([[0, 1], [1, 2], [2, 1]])
MUSAE = {
    "facebook_pages": "facebook_pages/raw/facebook.npz",
    "lastfm_asia": "lastfm_asia/raw/lastfm_asia.npz",
    "twitch/FR": "twitch/FR/raw/FR.npz",
    "wikipedia/squirrel": "wikipedia/squirrel/raw/squirrel.npz",
}


load_pyg("datasets")  # without the warnings that torch_geometric raises at import


def save(path, **arrays):
    path.parent.mkdir(parents=True)
    np.savez(path, **arrays)


@pytest.mark.parametrize("name", list(MUSAE))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_musae(tmp_path, name):
    x = np.arange(6.0).reshape(3, 2)
    save(tmp_path / MUSAE[name], features=x, target=np.array([0, 40, 90]) % 80, edges=EDGES)
    if name != "wikipedia/squirrel":
        save(tmp_path / "again" / MUSAE[name], features=x, target=np.array([1, 0, 1]), edges=EDGES)
        tmp_path /= "again"
    graph = load_dataset(name, tmp_path, recipe=None)
    assert graph.x.tolist() == x.tolist()
    assert graph.y.tolist() == ([0, 4, 2] if name == "wikipedia/squirrel" else [1, 0, 1])
    assert graph.adjacency.edge_index().tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    assert graph.edge_set.id == f"dataset:{name}" and not graph.has_split


def test_amazon(tmp_path):
    x, a = sparse.csr_array(np.eye(3)), sparse.csr_array((np.ones(2), ([0, 2], [1, 1])), shape=(3, 3))
    parts = {"attr": x, "adj": a}
    arrays = {
        f"{key}_{part}": getattr(matrix, part)
        for key, matrix in parts.items()
        for part in ("data", "indices", "indptr", "shape")
    }
    path = tmp_path / "amazon" / "Photo" / "raw" / "amazon_electronics_photo.npz"
    save(path, labels=np.array([0, 1, 1]), **arrays)
    graph = load_dataset("amazon/photo", tmp_path, recipe=None)
    assert graph.y.tolist() == [0, 1, 1] and graph.num_features == 3
    assert graph.adjacency.edge_index().tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]


def test_reddit(tmp_path):
    raw = tmp_path / "reddit" / "raw"
    save(
        raw / "reddit_data.npz", feature=np.eye(3), label=np.array([0, 1, 1]), node_types=np.array([1, 2, 3])
    )
    adjacency = sparse.coo_matrix((np.ones(2), ([0, 1], [1, 0])), shape=(3, 3))
    sparse.save_npz(raw / "reddit_graph.npz", adjacency)
    graph = load_dataset("reddit", tmp_path, recipe="planetoid")
    assert graph.labeled_in("val").tolist() == [False, True, False]
    assert graph.adjacency.edge_index().tolist() == [[1, 0], [0, 1]]


def test_ppi_is_one_graph_with_label_sets(tmp_path):
    raw = tmp_path / "ppi" / "raw"
    raw.mkdir(parents=True)
    for part, label in (("train", 0), ("valid", 1), ("test", 1)):
        links = [{"source": 0, "target": 1}]
        content = {"directed": False, "multigraph": False, "graph": {}, "links": links}
        content["nodes"] = [{"id": 0}, {"id": 1}]
        np.save(raw / f"{part}_feats.npy", np.eye(2))
        np.save(raw / f"{part}_labels.npy", np.array([[label, 1], [label, 0]]))
        np.save(raw / f"{part}_graph_id.npy", np.array([1, 1]))
        (raw / f"{part}_graph.json").write_text(json.dumps(content))
    graph = load_dataset("ppi", tmp_path, recipe="planetoid")
    assert graph.y.tolist() == [0, 0, 1, 1, 1, 1] and graph.num_features == 2
    assert graph.label_sets is not None
    assert graph.label_sets.int().tolist() == [[0, 1], [0, 0], [1, 1], [1, 0], [1, 1], [1, 0]]
    assert graph.labeled_in("test").tolist() == [False] * 4 + [True] * 2
    assert graph.adjacency.edge_index().tolist() == [[1, 0, 3, 2, 5, 4], [0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize(
    ("name", "title"), [("cora", "Cora"), ("citeseer", "CiteSeer"), ("pubmed", "PubMed")]
)
def test_planetoid(tmp_path, name, title):
    split = torch.eye(3, dtype=torch.bool)
    data = load_pyg("data").Data(
        x=torch.eye(3), y=torch.tensor([0, 1, 1]), edge_index=torch.from_numpy(EDGES.T)
    )
    data.train_mask, data.val_mask, data.test_mask = split

    for part in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"):
        raw = tmp_path / title / "raw" / f"ind.{name}.{part}"
        raw.parent.mkdir(parents=True, exist_ok=True)
        raw.touch()  # downloaded and processed already
    (tmp_path / title / "processed").mkdir()
    load_pyg("data").InMemoryDataset.save([data], str(tmp_path / title / "processed" / "data.pt"))
    graph = load_dataset(name, tmp_path, recipe="planetoid")
    assert graph.labeled_in("val").tolist() == [False, True, False]


def test_karate_differs_from_the_local_file_in_its_labels_alone(tmp_path, data_root):
    fetched, here = (load_dataset("karate", root, recipe=None) for root in (tmp_path, data_root))
    assert torch.equal(fetched.adjacency.indices, here.adjacency.indices)
    assert fetched.num_classes == here.num_classes == 4 and not fetched.has_split
    counts = [dataset_info("karate", root)["class_counts"] for root in (tmp_path, data_root)]
    assert counts == [[13, 12, 4, 5], [12, 5, 11, 6]]
    assert "four other communities" in dataset_info("karate", tmp_path)["where"]


def test_downloads_are_kept_only_with_the_right_checksum(tmp_path):
    (tmp_path / "host").write_bytes(b"whole")
    url, folder = (tmp_path / "host").as_uri(), tmp_path / "new"  # a URL that needs no network
    with pytest.raises(GraphError, match="does not have the expected SHA-256 checksum and was deleted"):
        download(url, folder / "file", sha256="0" * 64)
    assert list(folder.iterdir()) == []
    download(url, folder / "file", sha256=hashlib.sha256(b"whole").hexdigest())
    assert (folder / "file").read_bytes() == b"whole"
    assert [path.name for path in folder.iterdir()] == ["file"]


class LocalServer(urllib.request.HTTPSHandler):
    """Handler of HTTPS requests that answers with one file and lists the requested URLs."""

    def __init__(self, content):
        super().__init__()
        self.content, self.urls = content, []

    def https_open(self, request):
        self.urls.append(request.full_url)
        answer = urllib.response.addinfourl(io.BytesIO(self.content), Message(), request.full_url, 200)
        answer.msg = "OK"
        return answer


def test_schools_are_downloaded_once_from_a_pinned_commit(tmp_path, data_root):
    server = LocalServer((data_root / "facebook100" / "Reed98.mat").read_bytes())
    urllib.request.install_opener(urllib.request.build_opener(server))
    try:
        for _ in range(2):  # downloaded, and then read from the cache
            assert load_dataset("facebook100/Reed98", tmp_path).num_nodes == 800
    finally:
        urllib.request.install_opener(None)
    (url,) = server.urls
    assert url.startswith("https://raw.githubusercontent.com/sisaman/pyg-datasets/")
    assert url.endswith("/datasets/facebook100/Reed98.mat")


def test_heterophilous_graphs_are_compared_with_their_checksums(tmp_path, data_root):
    server = LocalServer((data_root / "heterophilous" / "minesweeper.npz").read_bytes())
    urllib.request.install_opener(urllib.request.build_opener(server))
    try:
        assert load_dataset("heterophilous/minesweeper", tmp_path, recipe=None).num_nodes == 10_000
        with pytest.raises(GraphError, match="does not have the expected SHA-256"):
            load_dataset("heterophilous/tolokers", tmp_path)  # the server answers with another file
    finally:
        urllib.request.install_opener(None)
    assert [url.rpartition("/")[2] for url in server.urls] == ["minesweeper.npz", "tolokers.npz"]
