"""``collect learn``: LDP reports and public edges to a model, and what is rejected."""

from pathlib import Path

import pytest
import torch
from command import NODES, SECRET, Answer, Files, Invoke, changed, read, rejected, write

import graphveil as gv
from graphveil.mechanisms import LabelRR
from graphveil.publish.results import SAME_REPORTS

pytestmark = pytest.mark.usefixtures("quick_networks")

FEATURES = "--eps-x 6 --columns age,height --low -10 --high 10,20"
LABEL = "--eps-y 2 --classes t0,t1,t2"
QUICK = ["--set", "epochs=3", "--set", "x_steps=2"]


def collected(invoke: Invoke, files: Files, protocol: str, name: str = "") -> None:
    """Write a protocol and the LDP reports of the files' nodes."""
    assert invoke(f"collect protocol {protocol} --out {name}s.json").code == 0
    randomize = f"collect randomize --protocol {name}s.json --id user --label team --out {name}m.csv"
    assert invoke(randomize, "--nodes", files.nodes).code == 0


@pytest.fixture
def learn(invoke: Invoke, files: Files) -> list[object]:
    """Write a protocol and LDP reports; the words that learn from them."""
    collected(invoke, files, f"{FEATURES} {LABEL}")
    ends = ["--edges", files.edges, "--source", "a", "--target", "b"]
    received = ["--protocol", "s.json", "--reports", "m.csv", "--id", "user"]
    return ["collect learn", *received, *ends, "--out", "model"]


@pytest.mark.parametrize("method", ["lpgnn", "simgat"])
def test_reports_and_edges_make_a_model_and_its_predictions(
    invoke: Invoke, files: Files, learn: list[object], method: str
) -> None:
    answer = invoke(*learn, *QUICK, "--method", method, "--json")
    assert answer.code == 0
    record = answer.json
    assert (record["nodes"], record["accepted"], record["rejected"]) == (NODES, NODES, 0)
    assert (record["method"], record["path"], record["rejected_rows"]) == (method, "model", [])
    guarantee = record["guarantee"]
    assert (guarantee["valid"], guarantee["unit"]) == (True, "local-attributes")
    assert (guarantee["epsilon"], guarantee["eps_x"], guarantee["eps_y"]) == (8, 6, 2)
    assert "saw only what had left the randomizer" in guarantee["statement"]
    assert guarantee["statement"] in answer.err and SAME_REPORTS in answer.err
    assert record["label_kept"] == LabelRR(epsilon=2.0, classes=3).keep
    for share in (record["val_agreement"], record["mlp_val_agreement"]):
        assert share * (NODES // 3) == pytest.approx(round(share * (NODES // 3)))  # of the validation nodes
    assert "mlp (no graph)" in answer.err
    model = gv.load_model("model")
    assert (model.method, model.class_names_, model.epochs) == (method, ("t0", "t1", "t2"), 3)
    assert model.report_config().mechanism(2).bounds.high == (10.0, 20.0)
    assert invoke("predict model --out p.csv").code == 0
    head, *rows = read(Path("p.csv"))
    assert head == ["node", "prediction", "p_t0", "p_t1", "p_t2"]
    assert [row[0] for row in rows] == [row[0] for row in read(Path("m.csv"))[1:]]
    assert "saw only what had left" in invoke("explain model").out
    other = ["--nodes", files.nodes, "--edges", files.edges]
    columns = "--id user --source a --target b --label team"
    failed = invoke(f"predict model {columns}", *other)
    rejected(failed, "Collect LDP reports of the nodes of the other graph")


def test_the_baseline_may_be_left_out(invoke: Invoke, learn: list[object]) -> None:
    answer = invoke(*learn, *QUICK, "--no-baseline", "--json")
    assert answer.json["mlp_val_agreement"] is None
    assert "mlp" not in answer.err


@pytest.mark.parametrize("method", ["lpgnn", "simgat"])
def test_the_same_seed_and_reports_make_the_same_model(
    invoke: Invoke, learn: list[object], method: str
) -> None:
    """Noise would differ: none is added to the reports."""
    for name, seed in (("model", 0), ("again", 0), ("other", 1)):
        options = [*QUICK, "--set", "posterior_steps=0", "--seed", seed, "--method", method]
        invoke(*learn[:-1], name, *options)
    first, again, other = (gv.load_model(name).predict_proba() for name in ("model", "again", "other"))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_a_node_that_only_edges_name_has_no_report(invoke: Invoke, files: Files, learn: list[object]) -> None:
    rows = read(Path("m.csv"))
    write(Path("m.csv"), [row for row in rows if row[0] not in ("u3", "u7")])
    write(files.edges, [*read(files.edges), ["u3", "guest", ""], ["u7", "u3", ""]])
    answer = invoke(*learn, *QUICK, "--json")
    assert (answer.json["nodes"], answer.json["accepted"]) == (NODES + 1, NODES - 2)
    assert "3 nodes without an LDP report" in answer.err
    model = gv.load_model("model")
    assert model.ids_ is not None
    assert set(model.ids_[NODES - 2 :]) == {"u3", "u7", "guest"}
    assert model.aggregates_["labels"][NODES - 2 :].tolist() == [-1, -1, -1]


def test_invalid_reports_are_rejected_or_skipped(invoke: Invoke, learn: list[object]) -> None:
    rows = read(Path("m.csv"))
    rows[5][1], rows[9][1] = SECRET, rows[1][1]
    write(Path("m.csv"), rows)
    answer = invoke(*learn, *QUICK, "--json")
    assert (answer.code, answer.json["error"]["kind"]) == (2, "LDPReportError")
    assert "2 LDP report(s) were rejected. The first is in row 5" in answer.json["error"]["message"]
    assert not Path("model").exists()
    answer = invoke(*learn, *QUICK, "--skip-bad", "--json")
    assert (answer.json["nodes"], answer.json["accepted"]) == (NODES, NODES - 2)
    assert answer.json["rejected_rows"] == [5, 9]
    assert SECRET not in answer.err + answer.out


MISUSE = {
    "--set eps_x=1": "differs from the protocol",
    "--set hiden=1": "lpgnn has no such parameter; did you mean 'hidden'",
    "--set seed=1": "Use --seed",
    "--method gap": "--method",
    "--source c": "no column 'c'",
    "--out .": "already exists",
    "--protocol none.json": "Cannot read a collection protocol",
}


@pytest.mark.parametrize("more", MISUSE)
def test_misuse_is_one_line_and_writes_nothing(invoke: Invoke, learn: list[object], more: str) -> None:
    answer = invoke(*changed([*learn, *QUICK], *more.split()))
    rejected(answer, MISUSE[more])
    assert not Path("model").exists()


@pytest.mark.parametrize(
    ("rows", "why"), [([["a", "b"]], "has no rows"), ([["a", "b"], ["1", ""]], "has missing values")]
)
def test_invalid_edges_are_rejected(
    invoke: Invoke, files: Files, learn: list[object], rows: list[list[str]], why: str
) -> None:
    write(files.edges, rows)
    rejected(invoke(*learn, *QUICK), why)
    assert not Path("model").exists()


def test_a_protocol_without_labels_has_nothing_to_learn_from(invoke: Invoke, learn: list[object]) -> None:
    invoke(f"collect protocol {FEATURES} --out x.json")
    rejected(invoke(*changed(learn, "--protocol", "x.json")), "collects no labels")


def test_a_protocol_of_labels_takes_public_features_by_id(
    invoke: Invoke, files: Files, learn: list[object]
) -> None:
    collected(invoke, files, LABEL, "y")
    head, *rows = read(files.nodes)
    labels = [*changed(learn, "--protocol", "ys.json", "--reports", "ym.csv"), *QUICK]
    ranges = ["--set", "low=-10", "--set", "high=20", "--set", "posterior_steps=0"]  # a network of features

    def learned(name: str, table: list[list[str]]) -> Answer:
        write(Path("public.csv"), [head[:3], *(row[:3] for row in table)])
        return invoke(*changed(labels, "--out", name), *ranges, "--nodes", "public.csv", "--json")

    rejected(invoke(*labels), "the method also needs features")
    write(Path("public.csv"), [row[:3] for row in [head, *rows]])
    rejected(invoke(*labels, "--nodes", "public.csv"), "would be clipped")
    answer = learned("model", rows[::-1])
    assert answer.code == 0, answer.err
    guarantee = answer.json["guarantee"]
    assert (guarantee["eps_x"], guarantee["eps_y"]) == (None, 2)
    assert answer.json["mlp_val_agreement"] is not None
    assert invoke("predict model --out p.csv").code == 0
    assert [row[0] for row in read(Path("p.csv"))[1:]] == sorted(row[0] for row in rows)
    learned("same", rows)  # in another order, and then with features of other nodes
    learned("other", [[row[0], *after[1:]] for row, after in zip(rows, [*rows[1:], rows[0]], strict=True)])
    own, same, other = (gv.load_model(name).predict_proba() for name in ("model", "same", "other"))
    assert torch.equal(own, same) and not torch.equal(own, other)
    assert "have no row in the table of public features" in learned("short", rows[1:]).err
    twice = invoke(*changed([*learn, *QUICK], "--nodes", "public.csv", "--out", "again"))
    rejected(twice, "Remove --nodes")


@pytest.mark.parametrize("mechanism", ["rr", "subset", "hashing"])
def test_labels_alone_and_edges_make_a_posterior(
    invoke: Invoke, files: Files, learn: list[object], mechanism: str
) -> None:
    names = ",".join(f"t{number}" for number in range(9))
    collected(invoke, files, f"--eps-y 0.5 --classes {names} --label-mechanism {mechanism}", "y")
    labels = changed(learn, "--protocol", "ys.json", "--reports", "ym.csv")
    answer = invoke(*labels, "--method", "label-posterior", "--json")
    assert answer.code == 0, answer.err
    guarantee = answer.json["guarantee"]
    assert (guarantee["eps_x"], guarantee["eps_y"]) == (0, 0.5)
    assert gv.load_model("model").predict_proba().shape == (NODES, 9)
    other = changed(labels, "--out", "other")
    nodes = ["--nodes", files.nodes]
    rejected(invoke(*other, "--method", "label-posterior", *nodes), "does not read features")
    rejected(invoke(*other), "public features of all nodes with --nodes")


def test_auto_chooses_between_methods_by_the_received_reports(invoke: Invoke, learn: list[object]) -> None:
    answer = invoke(*learn, "--method", "auto", "--json")
    assert answer.code == 0, answer.err
    record = answer.json
    assert record["method"] == "auto"
    assert set(record["choice"]["candidates"]) >= {"lpgnn", "simgat"}
    assert f"Chosen method: {record['choice']['chosen']}" in answer.err
    guarantee = record["guarantee"]
    assert (guarantee["epsilon"], guarantee["eps_x"], guarantee["eps_y"]) == (8, 6, 2)
    model = gv.load_model("model")
    assert (model.method, model.chosen_) == ("auto", record["choice"]["chosen"])
    assert invoke("predict model --out p.csv").code == 0


def test_auto_reads_labels_alone_or_public_features(
    invoke: Invoke, files: Files, learn: list[object]
) -> None:
    collected(invoke, files, LABEL, "y")
    labels = [*changed(learn, "--protocol", "ys.json", "--reports", "ym.csv"), "--method", "auto", "--json"]
    answer = invoke(*labels)
    assert answer.code == 0, answer.err
    assert (answer.json["guarantee"]["eps_x"], answer.json["guarantee"]["eps_y"]) == (0, 2)
    assert not {"lpgnn", "simgat"} & set(answer.json["choice"]["candidates"])
    write(Path("public.csv"), [row[:3] for row in read(files.nodes)])
    ranges = ["--set", "low=-10", "--set", "high=20", "--nodes", "public.csv"]
    answer = invoke(*changed(labels, "--out", "other"), *ranges)
    assert answer.code == 0, answer.err
    assert answer.json["guarantee"]["eps_x"] is None
    assert "lpgnn" in answer.json["choice"]["candidates"]
    rejected(invoke(*changed(labels, "--out", "third"), *ranges, "--set", "eps_x=0"), "Remove --nodes")
    rejected(
        invoke(*changed(learn, "--method", "auto", "--out", "third"), "--set", "eps_x=0"),
        "also collects features",
    )
