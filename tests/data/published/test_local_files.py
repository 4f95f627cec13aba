"""Readers of local files, on a few nodes in the format of the published files."""

import gzip
import json

import numpy as np
import pytest
import torch
from scipy import io, sparse

from graphveil.core.features import to_dense
from graphveil.data import load_dataset
from graphveil.errors import GraphError


def write(folder, **texts):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        path = folder / name.replace("__", ".")
        path.write_text(text if isinstance(text, str) else json.dumps(text))


def load(name, root):
    return load_dataset(name, root, recipe=None)


def test_facebook100(tmp_path):
    # Columns: status, gender, major, second major, dorm, year, high school; 0 is missing.
    people = np.array(
        [
            [1, 2, 9, 0, 70, 2004, 5],
            [2, 1, 0, 0, 80, 2009, 6],
            [1, 2, 8, 4, 0, 0, 7],
            [0, 0, 0, 0, 0, 1990, 8],
        ],
        dtype=np.uint16,
    )
    friends = sparse.csc_array(
        np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]], dtype=float)
    )
    (tmp_path / "facebook100").mkdir()
    io.savemat(tmp_path / "facebook100" / "Tiny1.mat", {"A": friends, "local_info": people})
    graph = load("facebook100/Tiny1", tmp_path)
    assert graph.y.tolist() == [0, 5, -1, -1] and graph.class_names[0] == "2004"
    # status 1, 2; gender 1, 2; major 8, 9; second major 4; dorm 70, 80
    assert to_dense(graph.x).tolist() == [
        [1, 0, 0, 1, 0, 1, 0, 1, 0],
        [0, 1, 1, 0, 0, 0, 0, 0, 1],
        [1, 0, 0, 1, 1, 0, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert graph.adjacency.edge_index().tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
    assert graph.edge_set.id == "dataset:facebook100/Tiny1"


def test_facebook_pages(tmp_path):
    pages = '0,9,"a, b",tvshow\n1,8,c,company\n2,7,ü,tvshow\n'
    write(
        tmp_path / "facebook_pages",
        facebook_edges__csv="id_1,id_2\n0,1\n2,2\n2,1\n",
        facebook__json={"0": [3, 1], "1": [], "2": [0, 3]},
        facebook_target__csv="id,facebook_id,page_name,page_type\n" + pages,
    )
    graph = load("facebook_pages", tmp_path)
    assert graph.class_names == ("company", "tvshow") and graph.y.tolist() == [1, 0, 1]
    assert to_dense(graph.x).tolist() == [[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 1]]
    assert graph.adjacency.edge_index().tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]


def test_twitch_labels_are_sorted_by_new_id(tmp_path):
    people = "7,1,True,2,False,2\n8,1,False,2,False,0\n9,1,True,2,False,1\n"
    write(
        tmp_path / "twitch" / "RU",
        RU_edges__csv="from,to\n0,1\n1,2\n",
        RU__json={"0": [5, 5, 1], "1": [3169], "2": []},
        RU_target__csv="id,days,mature,views,partner,new_id\n" + people,
    )
    graph = load("twitch/RU", tmp_path)
    assert graph.y.tolist() == [0, 1, 1] and graph.class_names == ("False", "True")
    assert graph.num_features == 3170
    assert [row.nonzero().flatten().tolist() for row in to_dense(graph.x)] == [[1, 5], [3169], []]


def test_wikipedia_labels_are_fifths(tmp_path):
    traffic = "".join(f"{node},{10 * (9 - node)}\n" for node in range(10))
    write(
        tmp_path / "wikipedia" / "squirrel",
        squirrel_edges__csv="id1,id2\n0,1\n1,0\n3,3\n",
        squirrel__json={str(node): [node] for node in range(10)},
        squirrel_target__csv="id,target\n" + traffic,
    )
    graph = load("wikipedia/squirrel", tmp_path)
    assert graph.y.tolist() == [4, 4, 3, 3, 2, 2, 1, 1, 0, 0]
    assert graph.adjacency.edge_index().tolist() == [[1, 0], [0, 1]]


def test_lastfm_has_one_constant_feature(tmp_path):
    write(
        tmp_path / "lastfm_asia_structure",
        lastfm_asia_edges__csv="node_1,node_2\n0,2\n",
        lastfm_asia_target__csv="id,target\n1,4\n0,3\n2,3\n",
    )
    graph = load("lastfm_asia", tmp_path)
    assert graph.y.tolist() == [3, 4, 3] and graph.x.tolist() == [[1], [1], [1]]


def arrays(**more):
    """Three nodes of which 0 has features 0 and 2, and 2 has feature 1."""
    pattern = {
        "x_indptr": np.int32([0, 2, 2, 3]),
        "x_indices": np.int16([0, 2, 1]),
        "x_shape": np.int32([3, 3]),
    }
    return pattern | {"y": np.int16([0, 1, 1]), "edges": np.int32([[0, 1], [1, 2]])} | more


def test_amazon(tmp_path):
    (tmp_path / "amazon").mkdir()
    np.savez(tmp_path / "amazon" / "photo.npz", **arrays(class_names=np.array(["Film", "Flash"])))
    graph = load("amazon/photo", tmp_path)
    assert graph.class_names == ("Film", "Flash")
    assert isinstance(graph.x, torch.Tensor) and graph.x.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("columns", [3, 2000])
def test_planetoid_has_values_and_a_public_split_and_wide_features_stay_sparse(tmp_path, columns):
    (tmp_path / "planetoid").mkdir()
    split = {f"{part}_idx": np.int32([node]) for node, part in enumerate(("train", "val", "test"))}
    values = {"x_data": np.float32([0.5, 2, 3]), "y": np.int16([0, 1, -1]), "x_shape": np.int32([3, columns])}
    np.savez(tmp_path / "planetoid" / "pubmed.npz", **arrays(**values, **split))
    graph = load("pubmed", tmp_path)
    assert isinstance(graph.x, torch.Tensor if columns == 3 else sparse.csr_array)
    assert to_dense(graph.x)[:, :3].tolist() == [[0.5, 0, 2], [0, 0, 0], [0, 3, 0]]
    assert graph.y.tolist() == [0, 1, -1]
    assert torch.stack([graph.train_mask, graph.val_mask, graph.test_mask]).equal(torch.eye(3).bool())


def heterophilous(path, width=2):
    """Write three nodes on a path with an additional array, as the published files have."""
    path.parent.mkdir(parents=True)
    x = np.zeros((3, width), dtype=np.float32)
    x[[0, 2], [1, 0]] = 0.5, 1
    edges, split = np.array([[0, 1], [2, 1]]), np.ones((10, 3), dtype=bool)
    np.savez(path, node_features=x, node_labels=np.array([1, 0, 1]), edges=edges, train_masks=split)


@pytest.mark.parametrize("width", [2, 1000])
def test_heterophilous_graphs_have_no_split_and_wide_features_are_sparse(tmp_path, width):
    heterophilous(tmp_path / "heterophilous" / "tolokers.npz", width)
    graph = load("heterophilous/tolokers", tmp_path)
    assert isinstance(graph.x, torch.Tensor if width == 2 else sparse.csr_array)
    assert to_dense(graph.x)[:, :2].tolist() == [[0, 0.5], [0, 0], [1, 0]]
    assert graph.y.tolist() == [1, 0, 1] and not graph.has_split
    assert graph.adjacency.edge_index().tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]


@pytest.mark.parametrize("changed", [{"edges": np.eye(3)}, {"edges": np.array([0, 1])}, {"node_labels": 0.5}])
def test_damaged_heterophilous_files_are_rejected(tmp_path, changed):
    path = tmp_path / "heterophilous" / "minesweeper.npz"
    heterophilous(path)
    np.savez(path, **(dict(np.load(path)) | changed))
    with pytest.raises(GraphError, match=r"Download the file again|is damaged|two vectors of integers"):
        load("heterophilous/minesweeper", tmp_path)


def test_karate_features_are_one_hot_ids(tmp_path):
    (tmp_path / "karate").mkdir()
    np.savez(tmp_path / "karate" / "karate.npz", y=np.int16([0, 1]), edges=np.int32([[0], [1]]))
    assert load("karate", tmp_path).x.equal(torch.eye(2))


def test_ogbn_products(tmp_path):
    content = {
        "raw/edge": "0,1\n2,1\n",
        "raw/node-label": "3\n0\n3\n",
        "raw/node-feat": "0.5,1\n2,3\n4,5\n",
        "split/sales_ranking/train": "0\n",
        "split/sales_ranking/valid": "2\n",
        "split/sales_ranking/test": "1\n",
    }
    for name, text in content.items():
        path = tmp_path / "ogbn_products" / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()))
    graph = load("ogbn_products", tmp_path)
    assert graph.y.tolist() == [3, 0, 3] and graph.x.tolist() == [[0.5, 1], [2, 3], [4, 5]]
    assert graph.val_mask.tolist() == [False, False, True]
    assert graph.adjacency.edge_index().tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]
