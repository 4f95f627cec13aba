"""``explain``, ``calibrate`` and ``datasets``."""

import re
from pathlib import Path

import pytest
from command import PRIVATE, QUICK, Files, Invoke, assert_rejected, other_of


def test_explain_reads_a_release_folder(invoke: Invoke, trained: Path, tmp_path: Path) -> None:
    alone = tmp_path / "published"
    (trained / "release").rename(alone)
    answer = invoke("explain", alone)
    assert answer.code == 0
    for words in ("1.74 in 100", "at most 1.74 %", "noisy aggregates", "Not covered", "add up"):
        assert words in answer.out
    record = invoke("explain", alone, "--json").json
    assert record["guarantee"]["epsilon"] <= 1
    assert len(record["releases"]) == 2


def test_unequal_shares_of_releases_are_explained(invoke: Invoke, files: Files) -> None:
    sums = [*PRIVATE, "--set", "noise=gaussian"]  # sums over neighbors, and counts of edges
    texts = (
        invoke("calibrate classcode", *sums).out,
        invoke("train classcode --dry-run", *files.flags, *sums).err,
        invoke("calibrate gap", *PRIVATE).out,
    )
    assert ["o edge is charged the full cost of every stage" in text for text in texts] == [True, True, False]


def test_explain_rejects_other_folders(invoke: Invoke) -> None:
    assert_rejected(invoke("explain nowhere"), "does not contain a saved model")


def test_an_unspent_rest_of_the_budget_is_reported(invoke: Invoke, files: Files) -> None:
    flags = ["--unit", "undirected-edge", "--delta", 1e-5]
    planned = ["train", "classcode", *files.flags, *flags, "--expect-edges", 1, "--out", "r"]
    for epsilon, left in ((20, True), (8, False)):
        for call in (["calibrate", "classcode", *flags], planned):
            answer = invoke(*call, "--epsilon", epsilon)
            words = " ".join((answer.out + answer.err).split())
            assert ("he plan uses less than epsilon 20, because" in words) == left


@pytest.mark.parametrize(
    ("epsilon", "delta", "hops", "sigma"),
    [
        (1, 1e-5, 2, 5.2759),
        (1, 1e-7, 1, 4.6787),
        (4, 1e-7, 3, 2.2479),
        (8, 1e-6, 5, 1.4600),
        (0.5, 1e-5, 1, 7.0318),
    ],
)
def test_calibrate_prints_the_known_noise(
    invoke: Invoke, epsilon: float, delta: float, hops: int, sigma: float
) -> None:
    base = ["calibrate", "gap", "--epsilon", epsilon, "--delta", delta, "--set", f"hops={hops}", "--json"]
    directed = invoke(*base, "--unit", "directed-edge").json
    undirected = invoke(*base, "--unit", "undirected-edge").json
    assert directed["noise_std"] == pytest.approx([sigma] * hops, rel=1e-4)
    assert undirected["noise_std"] == pytest.approx([sigma * 2**0.5] * hops, rel=1e-4)
    assert directed["sensitivity"] == 1
    assert directed["epsilon"] <= epsilon
    printed = re.search(r"at most ([\d.]+) %", invoke(*base[:-1], "--unit", "directed-edge").out)
    assert printed is not None
    assert 0 <= float(printed[1]) - 100 * directed["max_tpr_at_1pct_fpr"] <= 0.01
    assert {"mu", "delta", "max_tpr_at_1pct_fpr", "releases"} <= set(directed)


def test_calibrate_computes_the_budget_of_a_noise(invoke: Invoke) -> None:
    base = ["calibrate", "gap", "--unit", "directed-edge", "--delta", 1e-5, "--set", "hops=2"]
    assert invoke(*base, "--noise-std", 5.2760, "--json").json["epsilon"] == pytest.approx(1, rel=1e-3)


def test_no_other_command_prints_an_epsilon_below_the_proved_one(invoke: Invoke, files: Files) -> None:
    base = ["calibrate", "gap", "--unit", "directed-edge", "--delta", 1e-5, "--set", "hops=2"]
    printed = invoke(*base, "--noise-std", 5.2760).out  # mu 0.26804654, epsilon 1.0000473
    assert "epsilon 1.001 at delta 1e-05, mu 0.268047" in printed
    flags = ["--unit", "undirected-edge", "--epsilon", 5.99241, "--delta", 1e-5, *QUICK]
    answer = invoke("train gap", *files.flags, *flags, "--out", "first")
    assert "epsilon 5.993 at delta" in answer.err
    assert re.search(r"^gap .* 5\.993 ", answer.out, re.MULTILINE)
    assert "epsilon 5.993, delta 1e-05" in invoke("explain first").out
    another = [*other_of(files)]
    assert "epsilon 5.993 at delta 1e-05" in invoke("predict first", *another).err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--epsilon", 1, "--delta", 1e-5], "--unit"),
        (["--unit", "undirected-edge", "--delta", 1e-5], "--noise-std"),
        (["--unit", "undirected-edge", "--epsilon", 1], "--max-units"),
        (["--unit", "none"], "no noise can be calibrated"),
        (["--unit", "undirected-edge", "--noise-std", 1e-9, "--delta", 1e-5], "Choose another noise"),
    ],
)
def test_calibrate_rejects_invalid_arguments(invoke: Invoke, flags: list[str], words: str) -> None:
    assert_rejected(invoke("calibrate gap", *flags), words)


def test_datasets_lists_and_describes(invoke: Invoke) -> None:
    listed = invoke("datasets --json").json["datasets"]
    assert {"name", "nodes", "features", "classes", "local"} <= set(listed[0])
    assert "synthetic/demo" in invoke("datasets").out
    assert invoke("datasets synthetic/tiny --json").json["nodes"] == 300
    assert_rejected(invoke("datasets synthetic/tony"), "did you mean")
