"""Damaged files and matrices are refused by name; none reaches compiled code that trusts it."""

import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

from graphveil.data import Graph, load_dataset, to_dense
from graphveil.data.dataset_readers import read_matlab, read_npz
from graphveil.errors import GraphError, GraphveilError
from tests.data.published import hostile


@pytest.mark.parametrize("form", hostile.FORMS)
def test_the_whole_files_are_read(form: str, tmp_path: Path) -> None:
    name = hostile.write(tmp_path, form, hostile.FORMS[form][2]())
    assert load_dataset(name, root=tmp_path, recipe=None).num_nodes == hostile.NODES


@pytest.mark.parametrize("form", hostile.FORMS)
@pytest.mark.parametrize("count", [150, pytest.param(3400, marks=pytest.mark.slow)])
def test_a_damaged_file_is_read_or_refused(form: str, count: int, tmp_path: Path) -> None:
    for content in hostile.mutants(form, seed=count, count=count):
        name = hostile.write(tmp_path, form, content)
        try:
            graph = load_dataset(name, root=tmp_path, recipe="lpgnn")
        except GraphveilError as error:
            assert len(str(error)) < 300  # names the file, quotes nothing of it
        else:
            assert to_dense(graph.x).isfinite().all()


def test_an_archive_of_pickles_is_refused(tmp_path: Path) -> None:
    pickled = hostile.archive() | {"y": np.array([{}] * hostile.NODES, dtype=object)}
    name = hostile.write(tmp_path, "archive", hostile.npz(pickled))
    with pytest.raises(GraphError, match="is damaged"):
        load_dataset(name, root=tmp_path, recipe=None)


@pytest.mark.parametrize(
    ("kind", "megabytes", "words"),
    [(zipfile.ZIP_DEFLATED, 128, "far more than it is"), (zipfile.ZIP_LZMA, 1, "another way")],
)
def test_an_archive_is_read_within_what_it_pays_for(
    kind: int, megabytes: int, words: str, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", kind) as archive, archive.open("y.npy", "w") as member:
        header = {"descr": "<f8", "fortran_order": False, "shape": (megabytes << 17,)}
        np.lib.format.write_array_header_1_0(member, header)
        for _ in range(megabytes):  # one part in a thousand when they are packed
            member.write(bytes(1 << 20))
    with pytest.raises(ValueError, match=words):
        read_npz(tmp_path / "a.npz", ["y"])


def test_a_school_is_read_within_what_it_pays_for(tmp_path: Path) -> None:
    packed = zlib.compress(bytes(1 << 27), 9)
    element = struct.pack("<II", 15, len(packed)) + packed
    hostile.write(tmp_path, "packed school", hostile.mat(packed=True)[:128] + element)
    with pytest.raises(ValueError, match="far more than it is"):
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


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_matrix_is_refused(what: str) -> None:
    with pytest.raises(GraphError):
        Graph.from_edges(DAMAGED[what](), [0, 1, 1], [0], [1], directed=False)


def test_a_csc_matrix_is_checked_by_its_own_columns() -> None:
    matrix = csr().tocsc()
    matrix.indices = np.array([0, 2, 2, 3])  # a row that is not there, and columns that are
    with pytest.raises(GraphError, match="outside its shape"):
        Graph.from_edges(matrix, [0, 1, 1], [0], [1], directed=False)


def test_a_matrix_that_lies_about_its_order_is_put_in_order() -> None:
    matrix = csr(indices=np.array([3, 0, 1, 1]))
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    graph = Graph.from_edges(matrix, [0, 1, 1], [0], [1], directed=False)
    assert graph.x.indices.tolist() == [0, 3, 1] and graph.x.data.tolist() == [1, 1, 2]
    assert matrix.indices.tolist() == [3, 0, 1, 1]  # the caller's own stays as it was


def test_classes_beyond_any_output_are_refused_without_a_label() -> None:
    with pytest.raises(GraphError, match="more than 16,384 classes") as refused:
        Graph.from_edges(np.eye(3), [0, 1, 2**40], [0], [1], directed=False)
    assert str(2**40) not in str(refused.value)
