"""Damaged files and matrices are rejected by name; none reaches compiled code that trusts it."""

import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

from graphveil.core.features import to_dense
from graphveil.data import Graph, load_dataset
from graphveil.data.datasets import read_matlab, read_npz
from graphveil.errors import GraphError, GraphveilError
from tests.data.published import damaged


@pytest.mark.parametrize("kind", damaged.FORMS)
@pytest.mark.parametrize("count", [150, pytest.param(3400, marks=pytest.mark.slow)])
def test_damaged_files_are_read_or_rejected(kind: str, count: int, tmp_path: Path) -> None:
    form = damaged.FORMS[kind]
    form.write(tmp_path)
    assert load_dataset(form.name, root=tmp_path, recipe=None).num_nodes == damaged.NODES
    for content in form.damaged(seed=count, count=count):
        form.write(tmp_path, content)
        try:
            graph = load_dataset(form.name, root=tmp_path, recipe="lpgnn")
        except GraphveilError as error:
            assert len(str(error)) < 300  # without contents of the file
        else:
            assert to_dense(graph.x).isfinite().all()


@pytest.mark.parametrize(
    ("name", "path"),
    [("cora", "planetoid/cora"), ("karate", "karate/karate"), ("amazon/photo", "amazon/photo")],
)
def test_rejects_archives_of_pickled_objects(tmp_path: Path, name: str, path: str) -> None:
    (tmp_path / path).parent.mkdir()
    pickled = np.array([{}] * damaged.NODES, dtype=object)
    np.savez(tmp_path / f"{path}.npz", **(damaged.archive() | {"y": pickled, "class_names": pickled}))
    with pytest.raises(GraphError, match="is damaged"):
        load_dataset(name, root=tmp_path, recipe=None)


@pytest.mark.parametrize(
    ("kind", "megabytes", "message"),
    [
        (zipfile.ZIP_DEFLATED, 128, "much larger after decompression"),
        (zipfile.ZIP_LZMA, 1, "that NumPy does not write"),
    ],
)
def test_rejects_archives_that_unpack_to_far_more(
    kind: int, megabytes: int, message: str, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", kind) as archive, archive.open("y.npy", "w") as member:
        header = {"descr": "<f8", "fortran_order": False, "shape": (megabytes << 17,)}
        np.lib.format.write_array_header_1_0(member, header)
        for _ in range(megabytes):  # one part in a thousand when they are packed
            member.write(bytes(1 << 20))
    with pytest.raises(ValueError, match=message):
        read_npz(tmp_path / "a.npz", ["y"])


def test_rejects_matlab_files_that_unpack_to_far_more(tmp_path: Path) -> None:
    packed = zlib.compress(bytes(1 << 27), 9)
    element = struct.pack("<II", 15, len(packed)) + packed
    damaged.PACKED_SCHOOL.write(tmp_path, damaged.PACKED_SCHOOL.content[:128] + element)
    with pytest.raises(ValueError, match="much larger after decompression"):
        read_matlab(tmp_path / "facebook100/Reed98.mat")


def csr(**changes: object) -> sparse.csr_array:
    """Return a matrix of 3 rows and 4 columns, some arrays of which were replaced afterwards."""
    matrix = sparse.csr_array((np.ones(4), np.array([0, 3, 1, 2]), np.array([0, 2, 2, 4])), shape=(3, 4))
    for name, value in changes.items():
        object.__setattr__(matrix, name, value)
    return matrix


def coo(row: list[int]) -> sparse.coo_array:
    matrix = sparse.coo_array((np.ones(2), ([0, 1], [0, 1])), shape=(3, 4))
    matrix.coords = (np.array(row), np.array([0, 1]))
    return matrix


def lil() -> sparse.lil_array:
    matrix = csr().tolil()
    matrix.rows[0] = list(range(4))
    return matrix


DAMAGED = {
    "an index beyond the columns": lambda: csr(indices=np.array([0, 4, 1, 2])),
    "a negative index": lambda: csr(indices=np.array([0, -1, 1, 2])),
    "an index that 32 bits cut": lambda: csr(indices=np.array([0, 2**32, 1, 2])),
    "falling offsets": lambda: csr(indptr=np.array([0, 3, 2, 4])),
    "offsets from one on": lambda: csr(indptr=np.array([1, 2, 2, 4])),
    "offsets beyond the entries": lambda: csr(indptr=np.array([0, 2, 2, 400])),
    "too few offsets": lambda: csr(indptr=np.array([0, 2, 4])),
    "no offsets": lambda: csr(indptr=np.array([], dtype=np.int32)),
    "float indices": lambda: csr(indices=np.array([0.0, 3.0, 1.0, 2.0])),
    "a table of indices": lambda: csr(indices=np.array([[0, 3, 1, 2]])),
    "too few values": lambda: csr(data=np.ones(3)),
    "complex values": lambda: csr(data=np.ones(4) * 1j),
    "objects": lambda: csr(data=np.array([1, 2, 3, 4], dtype=object)),
    "not a number": lambda: csr(data=np.array([1, 2, np.nan, 4])),
    "a row that is not there": lambda: coo([0, 3]),
    "a row too many": lambda: coo([0, 1, 1]),
    "a list without values": lil,
    "a vector": lambda: sparse.coo_array(np.ones(3)),
    "a sparse tensor": lambda: torch.eye(3, 4).to_sparse(),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_rejects_damaged_matrices(kind: str) -> None:
    with pytest.raises(GraphError):
        Graph.from_edges(DAMAGED[kind](), [0, 1, 1], [0], [1], directed=False)


def test_csc_matrices_are_checked_by_their_rows() -> None:
    matrix = csr().tocsc()
    matrix.indices = np.array([0, 2, 2, 3])  # a row that is not there, and columns that are
    with pytest.raises(GraphError, match="outside its shape"):
        Graph.from_edges(matrix, [0, 1, 1], [0], [1], directed=False)


def test_matrices_with_wrong_flags_are_sorted_in_a_copy() -> None:
    matrix = csr(indices=np.array([3, 0, 1, 1]))
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    graph = Graph.from_edges(matrix, [0, 1, 1], [0], [1], directed=False)
    assert graph.x.indices.tolist() == [0, 3, 1] and graph.x.data.tolist() == [1, 1, 2]
    assert matrix.indices.tolist() == [3, 0, 1, 1]
