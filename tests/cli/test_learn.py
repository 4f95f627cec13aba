"""``collect learn``: messages and public edges to a model on the command line, and what is refused."""

from pathlib import Path

import pytest
import torch
from command import NODES, SECRET, Files, Invoke, changed, read, write

import graphveil as gv
from graphveil.mechanisms import LabelRR, LocalNoise
from graphveil.runs.results import SAME_REPORTS

FEATURES = ["--eps-x", 6, "--columns", "age,height", "--low", -10, "--high", "10,20"]
LABEL = ["--eps-y", 2, "--classes", "t0,t1,t2"]
QUICK = ["--set", "epochs=3", "--set", "x_steps=2"]


@pytest.fixture
def flags(invoke: Invoke, files: Files) -> list[object]:
    """Write a survey and messages; the flags that learn from them."""
    invoke("collect", "protocol", *FEATURES, *LABEL, "--out", "s.json")
    nodes = ["--nodes", files.nodes, "--id", "user", "--label", "team"]
    invoke("collect", "randomize", "--protocol", "s.json", *nodes, "--out", "m.csv")
    ends = ["--edges", files.edges, "--source", "a", "--target", "b"]
    return ["--protocol", "s.json", "--reports", "m.csv", "--id", "user", *ends, "--out", "model"]


@pytest.mark.parametrize("method", ["lpgnn", "simgat"])
def test_messages_and_edges_to_a_model_and_its_predictions(
    invoke: Invoke, files: Files, flags: list[object], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noise(*given: object) -> None:
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(LocalNoise, "__init__", noise)
    answer = invoke("collect", "learn", *flags, *QUICK, "--method", method, "--json")
    assert answer.code == 0
    record = answer.json
    assert (record["nodes"], record["accepted"], record["refused"]) == (NODES, NODES, 0)
    assert (record["method"], record["path"], record["refused_rows"]) == (method, "model", [])
    guarantee = record["guarantee"]
    assert (guarantee["valid"], guarantee["unit"]) == (True, "local-attributes")
    assert (guarantee["epsilon"], guarantee["eps_x"], guarantee["eps_y"]) == (8, 6, 2)
    assert "saw only what had left the randomizer" in guarantee["statement"]
    assert guarantee["statement"] in answer.err
    assert SAME_REPORTS in answer.err
    assert record["label_kept"] == LabelRR(epsilon=2.0, classes=3).keep
    request = NODES // 3  # are validation nodes
    for share in (record["val_agreement"], record["mlp_val_agreement"]):
        assert share * request == pytest.approx(round(share * request))
    assert "mlp (no graph)" in answer.err
    model = gv.load_model("model")
    assert (model.method, model.class_names_, model.epochs) == (method, ("t0", "t1", "t2"), 3)
    assert model.mechanism(2).bounds.high == (10.0, 20.0)
    assert invoke("predict", "model", "--out", "p.csv").code == 0
    head, *rows = read(Path("p.csv"))
    assert head == ["node", "prediction", "p_t0", "p_t1", "p_t2"]
    assert [row[0] for row in rows] == [row[0] for row in read(Path("m.csv"))[1:]]
    assert "saw only what had left" in invoke("explain", "model").out
    other = ["--nodes", files.nodes, "--edges", files.edges, "--id", "user", "--source", "a", "--target", "b"]
    refused = invoke("predict", "model", *other, "--label", "team")
    assert (refused.code, "have the nodes of the other graph answer the survey" in refused.err) == (2, True)


def test_the_baseline_may_be_left_out(invoke: Invoke, flags: list[object]) -> None:
    answer = invoke("collect", "learn", *flags, *QUICK, "--no-baseline", "--json")
    assert answer.json["mlp_val_agreement"] is None
    assert "mlp" not in answer.err


def test_the_seed_makes_the_same_model_of_the_same_messages(invoke: Invoke, flags: list[object]) -> None:
    invoke("collect", "learn", *flags, *QUICK)
    invoke("collect", "learn", *flags[:-1], "again", *QUICK)
    invoke("collect", "learn", *flags[:-1], "other", *QUICK, "--seed", 1)
    first, again, other = (gv.load_model(name).predict_proba() for name in ("model", "again", "other"))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_a_node_that_only_edges_name_has_not_answered(
    invoke: Invoke, files: Files, flags: list[object]
) -> None:
    rows = read(Path("m.csv"))
    write(Path("m.csv"), [row for row in rows if row[0] not in ("u3", "u7")])
    write(files.edges, [*read(files.edges), ["u3", "guest", ""], ["u7", "u3", ""]])
    answer = invoke("collect", "learn", *flags, *QUICK, "--json")
    assert (answer.json["nodes"], answer.json["accepted"]) == (NODES + 1, NODES - 2)
    assert "3 of them have no LDP report" in answer.err
    model = gv.load_model("model")
    assert model.ids_ is not None
    assert set(model.ids_[NODES - 2 :]) == {"u3", "u7", "guest"}
    assert model.aggregates_["labels"][NODES - 2 :].tolist() == [-1, -1, -1]


def test_messages_that_are_refused(invoke: Invoke, flags: list[object]) -> None:
    rows = read(Path("m.csv"))
    rows[5][1], rows[9][1] = SECRET, rows[1][1]
    write(Path("m.csv"), rows)
    answer = invoke("collect", "learn", *flags, *QUICK, "--json")
    assert (answer.code, answer.json["error"]["kind"]) == (2, "LDPReportError")
    assert "LDP reports refused: 2, the first in row 5" in answer.json["error"]["message"]
    assert not Path("model").exists()
    answer = invoke("collect", "learn", *flags, *QUICK, "--skip-bad", "--json")
    assert (answer.json["nodes"], answer.json["accepted"]) == (NODES, NODES - 2)
    assert answer.json["refused_rows"] == [5, 9]
    assert SECRET not in answer.err + answer.out


MISUSE: dict[str, tuple[list[object], str]] = {
    "a budget of its own": (["--set", "eps_x=1"], "eps_x=1.0 contradicts the survey"),
    "no such parameter": (["--set", "hiden=1"], "lpgnn has no such parameter; did you mean 'hidden'"),
    "a seed by --set": (["--set", "seed=1"], "use --seed"),
    "another method": (["--method", "gap"], "--method"),
    "no such column": (["--source", "c"], "no column 'c'"),
    "a folder that is there": (["--out", "."], "is there already"),
    "no survey": (["--protocol", "none.json"], "cannot read a collection protocol"),
}


@pytest.mark.parametrize("case", MISUSE)
def test_misuse_is_one_line_and_writes_nothing(invoke: Invoke, flags: list[object], case: str) -> None:
    more, why = MISUSE[case]
    answer = invoke("collect", "learn", *changed([*flags, *QUICK], *more))
    assert answer.code in (1, 2)
    assert why in answer.err
    assert not Path("model").exists()


def test_a_survey_without_labels_has_nothing_to_learn_from(
    invoke: Invoke, files: Files, flags: list[object]
) -> None:
    invoke("collect", "protocol", *FEATURES, "--out", "x.json")
    answer = invoke("collect", "learn", *changed(flags, "--protocol", "x.json"))
    assert (answer.code, "collects no labels" in answer.err) == (2, True)


def test_labels_alone_are_learned_from_with_public_features(
    invoke: Invoke, files: Files, flags: list[object]
) -> None:
    invoke("collect", "protocol", *LABEL, "--out", "y.json")
    who = ["--nodes", files.nodes, "--id", "user", "--label", "team"]
    invoke("collect", "randomize", "--protocol", "y.json", *who, "--out", "y.csv")
    head, *rows = read(files.nodes)
    write(Path("public.csv"), [head[:3], *(row[:3] for row in reversed(rows))])  # in another order
    from_label_keywords = [*changed(flags, "--protocol", "y.json", "--reports", "y.csv"), *QUICK]
    refused = invoke("collect", "learn", *from_label_keywords)
    assert (refused.code, "nothing to learn them from" in refused.err) == (2, True)
    narrow = invoke("collect", "learn", *from_label_keywords, "--nodes", "public.csv")
    assert (narrow.code, "would be clipped" in narrow.err) == (2, True)
    ranges = ["--set", "low=-10", "--set", "high=20"]
    answer = invoke("collect", "learn", *from_label_keywords, "--nodes", "public.csv", *ranges, "--json")
    assert answer.code == 0, answer.err
    guarantee = answer.json["guarantee"]
    assert (guarantee["eps_x"], guarantee["eps_y"]) == (None, 2)
    assert answer.json["mlp_val_agreement"] is not None
    assert invoke("predict", "model", "--out", "p.csv").code == 0
    assert [row[0] for row in read(Path("p.csv"))[1:]] == sorted(row[0] for row in rows)
    twice = invoke("collect", "learn", *changed(flags, *QUICK, "--nodes", "public.csv", "--out", "again"))
    assert (twice.code, "drop --nodes" in twice.err) == (2, True)


def test_public_features_go_to_the_nodes_with_their_ids(
    invoke: Invoke, files: Files, flags: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    invoke("collect", "protocol", *LABEL, "--out", "y.json")
    who = ["--nodes", files.nodes, "--id", "user", "--label", "team"]
    invoke("collect", "randomize", "--protocol", "y.json", *who, "--out", "y.csv")
    head, *rows = read(files.nodes)
    write(Path("public.csv"), [head[:3], *(row[:3] for row in reversed(rows))])
    seen, whole = list[object](), gv.LPGNN.fit_from_collector

    def watched(self, collector, adjacency, **given):
        seen.append((given["public_features"], given["ids"]))
        return whole(self, collector, adjacency, **given)

    monkeypatch.setattr(gv.LPGNN, "fit_from_collector", watched)
    ranges = ["--set", "low=-10", "--set", "high=20", "--nodes", "public.csv"]
    from_label_keywords = changed(flags, "--protocol", "y.json", "--reports", "y.csv")
    learn = ["collect", "learn", *from_label_keywords, *QUICK, *ranges]
    invoke(*learn)
    features, ids = seen[0]
    own = {row[0]: [float(cell) for cell in row[1:3]] for row in rows}
    assert features.tolist() == [pytest.approx(own[name], abs=1e-5) for name in ids]
    write(Path("public.csv"), [head[:3], *(row[:3] for row in rows[1:])])
    short = invoke(*changed(learn, "--out", "b"))
    assert (short.code, "have no row in the table of public features" in short.err) == (2, True)


@pytest.mark.parametrize(
    ("rows", "why"),
    [([["a", "b"]], "has no rows"), ([["a", "b"], ["1", ""]], "has missing values")],
)
def test_edges_that_cannot_be_used(
    invoke: Invoke, files: Files, flags: list[object], rows: list[list[str]], why: str
) -> None:
    write(files.edges, rows)
    answer = invoke("collect", "learn", *flags, *QUICK)
    assert (answer.code, why in answer.err) == (2, True)
    assert not Path("model").exists()


@pytest.mark.parametrize("mechanism", ["rr", "subset", "hashing"])
def test_labels_alone_and_edges_to_a_posterior(invoke: Invoke, files: Files, mechanism: str) -> None:
    names = ",".join(f"t{number}" for number in range(9))
    request = ["--eps-y", 0.5, "--classes", names, "--label-mechanism", mechanism]
    invoke("collect", "protocol", *request, "--out", "s.json")
    nodes = ["--nodes", files.nodes, "--id", "user", "--label", "team"]
    invoke("collect", "randomize", "--protocol", "s.json", *nodes, "--out", "m.csv")
    ends = ["--edges", files.edges, "--source", "a", "--target", "b"]
    flags = ["--protocol", "s.json", "--reports", "m.csv", "--id", "user", *ends]
    learn = [*flags, "--method", "label-posterior"]
    answer = invoke("collect", "learn", *learn, "--out", "model", "--json")
    assert answer.code == 0, answer.err
    guarantee = answer.json["guarantee"]
    assert (guarantee["eps_x"], guarantee["eps_y"]) == (0, 0.5)
    assert gv.load_model("model").predict_proba().shape == (NODES, 9)
    refused = invoke("collect", "learn", *learn, "--nodes", files.nodes, "--out", "other")
    assert (refused.code, "reads no features" in refused.err) == (2, True)
    needs = invoke("collect", "learn", *flags, "--out", "other")
    assert (needs.code, "public features (--nodes)" in needs.err) == (2, True)
