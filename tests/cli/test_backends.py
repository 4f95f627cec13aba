"""``--backend`` of every command that spends budget: the same result, or an error before it is spent."""

from pathlib import Path

import pytest
from command import Files, Invoke
from pyarrow import parquet

import graphveil as gv

BUDGET = ("--unit", "undirected-edge", "--epsilon", "2", "--delta", "1e-5")
TRAIN = ("train", "gap", *BUDGET, "--unsafe-noise-seed", 1, "--no-baseline", "--set", "epochs=2")
SWEEP = ("sweep", "gap", *BUDGET, "--unsafe-noise-seed", 1, "--set", "epochs=2")
PERTURB = ("perturb", "edge-rand", *BUDGET[:4], "--unsafe-noise-seed", 1)


def without_label(files: Files) -> list[str]:
    return [*files.flags[:6], *files.flags[8:]]


def answers(invoke: Invoke, files: Files, folder: Path, *backend: object) -> list[object]:
    """Return what each command finds with a backend."""
    folder.mkdir()
    other = Files.written(_made(folder / "other"), seed=1)
    train = invoke(*TRAIN, *files.flags, *backend, "--out", folder / "run", "--json")
    assert train.code == 0, train.err
    request = ("--assume-disjoint-edges", *backend, "--out", folder / "predictions.csv")
    predict = invoke("predict", folder / "run", *without_label(other), *request)
    assert predict.code == 0, predict.err
    sweep = invoke(*SWEEP, *files.flags, *backend, "--out", folder / "sweep", "--json")
    assert sweep.code == 0, sweep.err
    perturb = invoke(*PERTURB, *without_label(files), *backend, "--out", folder / "noisy", "--json")
    assert perturb.code == 0, perturb.err
    return [
        gv.load_model(folder / "run").predict_proba().tolist(),
        (folder / "predictions.csv").read_text(),
        [cell["test_accuracy"] for cell in sweep.json["cells"]],
        parquet.read_table(folder / "noisy" / "edges.parquet").to_pydict(),  # the file names its release
    ]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_no_result_depends_on_the_backend(
    invoke: Invoke, files: Files, tmp_path: Path, ray_here: Path
) -> None:
    plain = answers(invoke, files, tmp_path / "plain")
    for backend in ("memory", "ray"):
        assert answers(invoke, files, tmp_path / backend, "--backend", backend) == plain, backend


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--backend", "dask"), "dask is not one of memory, disk, ray"),
        (("--backend", "disk"), "graphveil prepare"),
        (("--address", "here:1"), "Add --backend ray"),
        (("--backend", "memory", "--address", "here:1"), "Add --backend ray"),
        (("--backend", "ray", "--address", "ray://here:1"), "ray job submit"),
    ],
)
def test_an_unusable_backend_is_rejected_before_anything_is_spent(
    invoke: Invoke, trained: Path, files: Files, tmp_path: Path, given: tuple[str, ...], words: str
) -> None:
    commands = {
        "run": (*TRAIN, *files.flags),
        "sweep": (*SWEEP, *files.flags),
        "noisy": (*PERTURB, *without_label(files)),
    }
    for out, command in commands.items():
        done = invoke(*command, *given, "--out", tmp_path / out)
        assert done.code == 2 and words in " ".join(done.err.split()), (out, done.err)
        assert not (tmp_path / out).exists()
    other = Files.written(_made(tmp_path / "other"), seed=1)
    request = ("--assume-disjoint-edges", *given, "--out", tmp_path / "predictions.csv")
    done = invoke("predict", trained.absolute(), *without_label(other), *request)
    assert done.code == 2 and words in " ".join(done.err.split()), done.err
    assert not (tmp_path / "predictions.csv").exists()


def test_worker_processes_need_the_graph_in_memory(tmp_path: Path) -> None:
    graph, out = gv.load_dataset("synthetic/tiny", recipe=None), tmp_path / "sweep"
    budget = {"unit": "undirected-edge", "delta": 1e-5}
    with pytest.raises(gv.errors.ConfigError, match="copies the graph to each process"):
        gv.sweep(["gap"], graph, epsilon=[1], out=out, jobs=2, backend="disk", **budget)
    assert not out.exists()


def test_a_backend_is_not_a_setting_and_applies_to_another_graph(
    invoke: Invoke, files: Files, tmp_path: Path
) -> None:
    done = invoke(*TRAIN, "--set", "backend=memory", *files.flags, "--out", tmp_path / "run")
    assert done.code == 2 and "no such parameter" in done.err
    assert invoke(*TRAIN, *files.flags, "--out", tmp_path / "run").code == 0
    done = invoke("predict", tmp_path / "run", "--backend", "memory")
    assert done.code == 2 and "does not use --backend" in " ".join(done.err.split())
