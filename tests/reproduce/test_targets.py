"""Every declared target can be run, and its published values have lines."""

import pytest

from graphveil.errors import ConfigError, PrivacyError
from graphveil.papers.as_published.measures import MEASURES, experiment_of
from graphveil.papers.as_published.target import (
    MODES,
    Mode,
    ReproductionOptions,
    ReproductionTarget,
    cells_of,
    describe,
    overview,
)
from graphveil.papers.as_published.targets import TARGETS, target_named

REJECTED = {"SAGE-NDP"}  # in strict mode; paper mode tries everything


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> ReproductionTarget:
    return TARGETS[request.param]


def test_published_values_belong_to_lines_and_places(target: ReproductionTarget) -> None:
    known = {(line.panel, line.name): target.places(line, quick=False) for line in target.lines}
    for _, panel, line, x in target.published:
        assert (panel, line) in known, (panel, line)
        assert x in known[panel, line], (panel, line, x)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("quick", [True, False], ids=["quick", "whole"])
def test_every_line_is_an_experiment(target: ReproductionTarget, mode: Mode, quick: bool) -> None:
    seen = set()
    assert bool(cells_of(target, ReproductionOptions(mode=mode, runs=1, quick=quick))) == (
        mode in target.modes
    )
    for cell in cells_of(target, ReproductionOptions(mode=mode, runs=1, quick=quick)):
        assert cell.work.measure in MEASURES
        if (cell.panel, cell.line) in seen or cell.work.method == "-":
            continue
        seen.add((cell.panel, cell.line))
        try:
            one = experiment_of(cell.work, None)
        except (PrivacyError, ConfigError) as error:
            assert mode == "strict" and cell.line in REJECTED, error
            continue
        assert one.as_published == (mode == "paper")


def test_quick_is_a_part_of_the_target_and_facts_are_complete(target: ReproductionTarget) -> None:
    assert target.minutes[1] <= target.minutes[0]
    for line in target.lines:
        assert set(target.places(line, quick=True)) <= set(target.places(line, quick=False))
    facts = describe(target, None)
    assert facts[0] == ("content", target.title) and len(facts) > len(target.lines)
    assert overview(target, None)["cells"] > 0


def test_rejects_an_unknown_target_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="gap:table2"):
        target_named("gap:tabel2")
