"""``audit``: certified lower bounds and violations of a finished run, written to ``internal/``."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import SECRET, Files, Invoke
from drawn import draw_otherwise

from cli.conftest import Prepare, inside
from graphveil.core.noise.discrete_gaussian import DiscreteGaussian

pytestmark = pytest.mark.usefixtures("fewer_canaries")


def trained(invoke: Invoke, files: Files, out: Path, *flags: object) -> Path:
    done = invoke("train", *flags, *files.flags, "--no-baseline", "--out", out)
    assert done.code == 0, done.err
    return out


@pytest.fixture
def run(invoke: Invoke, prepare: Prepare) -> Iterator[Path]:
    budget = ["--unit", "undirected-edge", "--epsilon", 2, "--delta", 1e-6]
    flags = [*budget, "--set", "epochs=5", "--no-baseline", "--out", "run"]
    folder = prepare("audited", lambda files: [["train", "gap", *files.flags, *flags]])
    with inside(folder):
        yield folder / "here" / "run"


@pytest.mark.drawn_charts
def test_a_valid_run_is_certified_without_violations(invoke: Invoke, run: Path) -> None:
    done = invoke("audit", run, "--pairs", 40)
    assert done.code == 0, done.err
    assert done.out.startswith("Internal:")
    assert "Canaries: epsilon is at least 1." in done.out
    assert "Not examined" in done.out and "No violation was found." in done.out
    assert SECRET not in done.out + done.err
    found = invoke("audit", run, "--pairs", 40, "--json").json
    assert found["internal"] is True and found["faults"] == []
    assert 0.8 < found["canaries"]["share"] <= 1
    assert all(not one["broken"] for one in found["replays"])
    assert json.loads((run / "internal" / "audit.json").read_text()) == found
    assert not list((run / "release").glob("*audit*"))
    page = (run / "internal" / "audit.html").read_text().partition("<main>")[2]
    bars, ticks = "fill: var(--c0)", "stroke: var(--ink); stroke-width: 2"
    assert page.count(bars) == page.count(ticks) == 2  # all together, and hops
    assert "var(--warn)" not in page


def test_a_run_with_unit_edge_subset_is_audited(invoke: Invoke, files: Files, tmp_path: Path) -> None:
    budget = ["--unit", "edge-subset", "--epsilon", 2, "--private-nodes", "all"]
    features = ["--private-fraction", 0.3, "--set", "eps_x=4", "--set", "epochs=2"]
    found = invoke(
        "audit --pairs 40 --json", trained(invoke, files, tmp_path / "run", "heterorr", *budget, *features)
    ).json
    assert found["faults"] == []
    (stage,) = found["canaries"]["stages"]
    assert stage["stage"] == "counts of blocks" and 0.8 < found["canaries"]["share"] <= 1
    (report,) = found["replays"]
    assert report["unit"] == "edge-subset" and report["attained"]["0-0"] > 0.99
    (reported,) = found["reports"]
    assert reported["part"] == "features" and 0.5 < reported["epsilon_at_least"] / reported["claimed"] <= 1


@pytest.mark.parametrize(
    "method", ["classcode", *(pytest.param(one, marks=pytest.mark.slow) for one in ("gap", "auto"))]
)
def test_a_run_under_unit_node_is_certified_by_nodes_of_hubs(
    invoke: Invoke, files: Files, method: str, tmp_path: Path
) -> None:
    """At least half of the claim, and never more than all of it."""
    budget = ["--unit", "node", "--epsilon", 4, "--delta", 1e-5, "--classes", "t0,t1,t2"]
    run = trained(invoke, files, tmp_path / "run", method, *budget)
    found = invoke("audit", run, "--pairs", 30, "--json").json
    assert found["faults"] == []
    assert 0.5 < found["canaries"]["share"] <= 1
    assert {stage["stage"] for stage in found["canaries"]["stages"]} >= {"degrees", "aggregation"}
    assert {one["stage"] for one in found["replays"]} >= {"degrees", "aggregation"}


@pytest.mark.drawn_charts
def test_a_bound_above_its_claim_is_drawn_as_such() -> None:
    from graphveil.publish.charts import Bar, audit_chart, inline_svg

    bars = [Bar("a <stage>", 1.5, 1.0), Bar("below", 0.5, 1.0), Bar("free", 0.0, float("inf"))]
    chart = inline_svg(lambda: audit_chart(bars), "certified and claimed epsilon")
    assert chart.count("var(--warn)") == 1 and chart.count("stroke: var(--ink); stroke-width: 2") == 2
    assert "a &lt;stage&gt;" in chart and "1.5 of 1" in chart and "0 of inf" in chart


def test_a_run_with_too_little_noise_fails(
    invoke: Invoke, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = DiscreteGaussian.draw
    draw_otherwise(monkeypatch, lambda self, *args: draw(self, *args) // 2)
    done = invoke("audit", run, "--pairs", 5)
    assert done.code == 1
    assert "VIOLATIONS" in done.out and "above the claim" in done.out


def test_a_claim_that_contradicts_the_configuration_is_a_violation(invoke: Invoke, run: Path) -> None:
    from graphveil.runs import run_audit

    found = run_audit.audit_run(run, pairs=5)
    lying = run_audit.RunAudit(**{**vars(found), "claimed": found.claimed / 2})
    assert any("stored configuration" in fault for fault in lying.faults)


def test_ldp_reports_are_audited(invoke: Invoke, files: Files, tmp_path: Path) -> None:
    budget = ["--unit", "local-attributes", "--set", "eps_x=1.0", "--set", "eps_y=1.0", "--set", "epochs=3"]
    found = invoke("audit", trained(invoke, files, tmp_path / "run", "lpgnn", *budget), "--json").json
    parts = {one["part"]: one for one in found["reports"]}
    assert set(parts) == {"label", "features"}
    assert all(
        0.8 < one["epsilon_at_least"] <= 1.0 < one["max_certifiable_epsilon"] for one in parts.values()
    )


def test_a_run_without_a_guarantee_is_rejected(
    invoke: Invoke, files: Files, run: Path, tmp_path: Path
) -> None:
    plain = trained(invoke, files, tmp_path / "plain", "gcn", "--unit", "none", "--set", "epochs=3")
    done = invoke("audit", plain)
    assert done.code == 2 and "has no privacy guarantee to audit" in done.err
    assert invoke("audit", run / "release").code == 2
    assert invoke("audit", tmp_path / "nowhere").code == 2
