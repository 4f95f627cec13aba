"""The command trains SimGAT: similarity with its parameters is one flag, and mistakes in it are one line."""

import pytest
from command import Files, Invoke

LOCAL = ["simgat", "--unit", "node-features", "--set", "eps_x=1", "--set", "eps_y=2", "--set", "epochs=3"]


@pytest.mark.parametrize(
    "similarity", ["multihop", "multihop(n=3, delta=0.1, transition=True)", "factorised(dim=8)"]
)
def test_a_similarity_is_one_flag(invoke: Invoke, files: Files, similarity: str) -> None:
    answer = invoke(
        "train", *LOCAL, "--set", f"similarity={similarity}", *files.flags, "--out", "run", "--json"
    )
    record = answer.json
    assert (record["method"], record["epsilon"], record["guarantee"]["valid"]) == ("simgat", 3.0, True)
    assert record["seconds"]["similarity"] > 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--set", "similarity=deepwalks"], "did you mean 'deepwalk'"),
        (["--set", "similarity=multihop(3)"], "write name=value pairs"),
        (["--set", "max_degree=10"], "is for combine='union'"),
    ],
)
def test_misuse_is_one_line(invoke: Invoke, files: Files, flags: list[str], message: str) -> None:
    answer = invoke("train", *LOCAL, *flags, *files.flags)
    assert answer.code == 2
    assert message in answer.err
    assert "Traceback" not in answer.err
