"""The command trains SimGAT: similarity with its parameters is one flag, and mistakes in it are one line."""

import sys
from pathlib import Path

import pytest
from command import Files, Invoke

LOCAL = ["simgat", "--unit", "local-attributes", "--set", "eps_x=1", "--set", "eps_y=2", "--set", "epochs=3"]


@pytest.mark.parametrize(
    "similarity", ["multihop", "multihop(n=3, delta=0.1, transition=True)", "factorized(dim=8)"]
)
def test_a_similarity_is_one_flag(invoke: Invoke, files: Files, similarity: str) -> None:
    answer = invoke(
        "train", *LOCAL, "--set", f"similarity={similarity}", *files.flags, "--out", "run", "--json"
    )
    record = answer.json
    assert (record["method"], record["epsilon"], record["guarantee"]["valid"]) == ("simgat", 3.0, True)
    assert record["seconds"]["similarity"] > 0


def test_a_missing_package_is_said_before_the_plan(
    invoke: Invoke, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, planned in (("gensim", False), ("gensim.models", True)):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, module, None)
            answer = invoke("train", *LOCAL, "--set", "similarity=deepwalk", *files.flags, "--out", "run")
        assert (answer.code, "graphveil[simgat]" in answer.err) == (2, True)
        assert ("Plan" in answer.err) is planned
        assert not Path("run").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--set", "similarity=deepwalks"], "did you mean 'deepwalk'"),
        (["--set", "similarity=multihop(3)"], "write name=value pairs"),
        (["--set", "max_union_degree=10"], "is for combine='union'"),
    ],
)
def test_misuse_is_one_line(invoke: Invoke, files: Files, flags: list[str], message: str) -> None:
    answer = invoke("train", *LOCAL, *flags, *files.flags)
    assert answer.code == 2
    assert message in answer.err
    assert "Traceback" not in answer.err
