"""Errors of the command line name its own options, and errors in Python name parameters."""

import re
from pathlib import Path

import pytest
from command import Files, Invoke

from graphveil.errors import ConfigError
from graphveil.links.link_predictor import LinkPredictor

DATA = "--dataset synthetic/tiny"
EDGE = f"{DATA} --unit undirected-edge --epsilon 1"
NODE = f"{DATA} --unit node-record --epsilon 4"
LOCAL = f"{DATA} --unit local-attributes --set eps_x=1 --set eps_y=1"
OWN = "--eps-x 1 --columns age"
WRONG = {
    f"train gap {DATA} --unit undirected-edge": "--epsilon",
    f"train gap {DATA} --unit undirected-edge --epsilon 0": "--epsilon 0.0 must be",
    f"train gap {EDGE} --delta 0.5": "--delta 0.5 is outside",
    f"train gap {EDGE} --runs 0": "--runs 0 must be",
    f"train gap {EDGE} --seed -1": "--seed -1 must be",
    f"train gap {EDGE} --recipe nosuch": "--recipe nosuch is not one of",
    f"train gap {EDGE} --max-degree 5": "--max-degree 5 is an assumption",
    f"train gap {EDGE} --out-degree-bound 5": "--out-degree-bound",
    f"train gap {EDGE} --replace-one": "--replace-one applies to node records",
    f"train gap {EDGE} --private-metrics": "--private-metrics",
    f"train gap {EDGE} --target-range 0 1": "--task regression",
    f"train gap {EDGE} --metric nosuch": "--metric nosuch",
    f"train gap {EDGE} --set hops=0": "--set hops=0 must be",
    f"train gap {EDGE} --set hops=two": "--set hops=two",
    f"train gap {EDGE} --set weights=given": "--set weights=given",
    f"train gap {EDGE} --address a:1": "--backend ray",
    f"train gap {EDGE} --unsafe-noise-seed -1": "--unsafe-noise-seed",
    f"train gapp {EDGE}": "METHOD gapp is not one of",
    f"train gap {DATA} --unit edge --epsilon 1": "undirected-edge",
    f"train gap {NODE} --class-weight balanced --out-degree-bound 3": "--class-weight fraud=5",
    f"train gap {NODE} --metric accuracy --out-degree-bound 3": "--private-metrics",
    f"train classcode {EDGE} --mode paper": "gap-paper for gap",
    f"train gnn {NODE}": "--module sage",
    f"train gcn {EDGE}": "--perturb edge-rr",
    f"train gcn {EDGE} --perturb nosuch": "--perturb nosuch",
    f"train lpgnn {DATA} --unit local-attributes --epsilon 3": "--set eps_x",
    f"train lpgnn {LOCAL} --delta 1e-7": "--delta 1e-07 is only for",
    f"train links {EDGE} --set held_out=2": "--set held_out=2",
    f"train links {EDGE} --set dim=0": "--set dim=0",
    f"sweep gap {EDGE} --out o --runs 0": "--runs 0",
    f"sweep gap {EDGE} --out o --jobs 0": "--jobs 0 must be",
    f"sweep gap,gap {EDGE} --out o": "gap",
    f"sweep gap {DATA} --unit undirected-edge --epsilon 0 --out o": "--epsilon 0",
    "calibrate gap --unit undirected-edge": "--epsilon",
    "calibrate gap --unit undirected-edge --epsilon 1 --noise-std 1": "--noise-std",
    "calibrate gap --unit undirected-edge --epsilon 1 --delta 0.1": "--delta 0.1 is outside",
    "calibrate gap --unit node-record --epsilon 4": "Pass --delta, --nodes-count or --max-units",
    "calibrate lpgnn --unit local-attributes --set eps_x=1 --set eps_y=1": "--features-count",
    "calibrate recommender --unit directed-edge --epsilon 1": "--delta",
    f"perturb edge-rand {DATA} --unit undirected-edge --epsilon 0 --out o": "--epsilon 0.0 must be",
    f"perturb nosuch {DATA} --unit undirected-edge --epsilon 1 --out o": "MECHANISM nosuch is not one of",
    f"perturb edge-rand {DATA} --unit node-record --epsilon 1 --out o": "unit",
    f"perturb edge-rr {DATA} --unit undirected-edge --epsilon 1 --out o --set rounds=0": "rounds",
    "compare synthetic/tiny noisy --sources 0": "--sources",
    f"collect protocol {OWN} --eps-x 0 --out p.json": "--eps-x",
    "collect protocol --eps-x 0 --columns age --out p.json": "epsilon 0.0 must be",
    f"collect protocol {OWN} --high 0 --out p.json": "high",
    f"collect protocol {OWN} --set m=9 --out p.json": "--set m=9",
    "collect protocol --eps-y 1 --classes 1 --out p.json": "1",
    "ledger init users --unit undirected-edge --epsilon 1 --delta 2": "delta",
    "ledger init users --unit nosuch": "nosuch",
    "reproduce nosuch": "nosuch",
    "predict nowhere --top-k 3": "nowhere",
    "explain nowhere": "nowhere",
    "report nowhere": "nowhere",
    "audit nowhere": "nowhere",
    "attack linkteller nowhere --step 0": "0",
    "serve nowhere": "nowhere",
    "serve nowhere --rate -1": "rate must be above 0",
    "datasets nosuch": "nosuch",
}
_OWN = re.compile(  # its own name=value
    r"--[\w-]+[ =]('[^']*'|\S+)|`graphveil[^`]*`|[\w-]+\([^()]*\)|column=|constant=|COLUMN=VALUE"
)


def python_spelling(message: str) -> list[str]:
    """Return the Python keywords that an error message names."""
    return re.findall(r"(?<![\w'-])[A-Za-z_]\w*=\S*", _OWN.sub("", message))


@pytest.mark.parametrize("line", WRONG)
def test_an_error_names_options(line: str, invoke: Invoke) -> None:
    answer = invoke(line)
    assert answer.code in (1, 2), answer.err
    assert "Unexpected error" not in answer.err and WRONG[line] in answer.err, answer.err
    assert not python_spelling(answer.err), answer.err


TABLES = {
    "--max-weight 2": "--weight and --max-weight",
    "--unknown-ids nosuch": "--unknown-ids nosuch",
    "--unknown-ids add": "--unknown-ids add",
    "--missing nosuch": "nosuch",
    "--delimiter ab": "--delimiter",
    "--split team": "team",
    "--features nosuch": "nosuch",
    "--task regression --classes a,b": "--classes",
    "--classes a": "--classes",
}


@pytest.mark.parametrize("more", TABLES)
@pytest.mark.parametrize("command", ["train gap", "sweep gap --out o"])
def test_an_error_about_tables_names_options(command: str, more: str, files: Files, invoke: Invoke) -> None:
    answer = invoke(command, *files.flags, "--unit", "undirected-edge", "--epsilon", "1", *more.split())
    assert answer.code == 2 and "Unexpected error" not in answer.err, answer.err
    assert not python_spelling(answer.err), answer.err


def test_an_error_in_python_names_the_parameter() -> None:
    with pytest.raises(ConfigError, match=r"^dim=0 must be a whole number of at least 1") as caught:
        LinkPredictor(unit="undirected-edge", epsilon=1.0, dim=0)
    assert caught.value.parameters == ("dim",)


def test_top_k_is_not_called_k(files: Files, invoke: Invoke) -> None:
    train = ["train", "links", *files.flags, "--unit", "undirected-edge", "--epsilon", "1", "--out", "run"]
    assert invoke(*train).code == 0
    answer = invoke("predict", "run", "--top-k", "5900")
    assert answer.code == 2 and "--top-k 5900 must lie between" in answer.err
    assert not Path("best.csv").exists()
