"""Recipe S: adaptive levels, rows by precision, targets, and the replay test of the guarantee."""

import math

import numpy as np
import pytest
import torch

from graphveil.estimators.classcode.codes import simplex_codes
from graphveil.estimators.classcode.node_decoder import DecodedRows
from graphveil.estimators.classcode.node_method import (
    NodeMessages,
    aggregate_and_decode,
    allocate_levels,
    level_of,
)
from graphveil.estimators.classcode.node_plan import LEVELS
from tests.estimators.classcode.owner.exact import ExactPush

CLASSES = 3
NOBODY = torch.zeros(90, dtype=torch.bool)


def setting(num_nodes: int = 90, degree: int = 12, seed: int = 0):
    """Return lists of mostly like-minded nodes, labels, and who has one."""
    rng = np.random.default_rng(seed)
    y = np.arange(num_nodes) % CLASSES
    lists = {}
    for u in range(num_nodes):
        liking = np.where(y == y[u], 8.0, 1.0) * (np.arange(num_nodes) != u)
        count = int(rng.integers(0, degree + 1))
        lists[u] = rng.choice(num_nodes, size=count, replace=False, p=liking / liking.sum()).tolist()
    return lists, torch.from_numpy(y), torch.from_numpy(rng.random(num_nodes) < 0.7)


def test_levels_are_whole_sixteenths_in_steps_of_root_two() -> None:
    assert LEVELS[:3] == (0, 16, 23) and len(LEVELS) == 21
    ratios = np.array(LEVELS[2:]) / np.array(LEVELS[1:-1])
    np.testing.assert_allclose(ratios, math.sqrt(2), rtol=0.02)


def test_squared_weights_go_to_the_nearest_level() -> None:
    squared = torch.tensor(LEVELS[1:]).double() / 16
    assert level_of(squared).tolist() == list(range(1, 21))
    assert level_of(squared * 2**0.2).tolist() == list(range(1, 21))
    assert level_of(torch.tensor([1e9])).item() == 20


def test_weak_and_doubtful_rows_are_raised_and_the_smallest_weight_is_one() -> None:
    decoded = DecodedRows(torch.zeros(3, 3), torch.tensor([8.0, 2.0, 8.0]), torch.tensor([0.0, 0.0, 0.35]))
    assert allocate_levels(decoded, NOBODY[:3]).tolist() == [1, 5, 7]  # strength over 4; (H + .05) times 8
    prioritized = torch.tensor([False, False, True])
    assert allocate_levels(decoded, prioritized).tolist() == [1, 5, 19]  # and times 64


def test_rows_add_up_by_precision_and_say_the_classes() -> None:
    lists, y, labeled = setting()
    push = ExactPush(lists, 90)
    heard = aggregate_and_decode(
        push, (1.0, 0.5), NodeMessages(y, labeled, CLASSES, 1.1), torch.zeros(90, 3), labeled >= 0, NOBODY
    )
    rows = [push.mean(*asked) for asked in push.asked]
    torch.testing.assert_close(heard.rows, (rows[0] + 4 * rows[1]) / 5, rtol=1e-5, atol=1e-5)
    assert heard.sigma == pytest.approx(5**-0.5)


def test_targets_alone_are_released_and_decoded() -> None:
    lists, y, labeled = setting()
    push = ExactPush(lists, 90, noise=0.1)
    messages = NodeMessages(y, labeled, CLASSES, 1.1)
    heard = aggregate_and_decode(push, (0.1, 0.1), messages, torch.zeros(90, 3), ~labeled, NOBODY)
    for _, levels in push.asked:
        assert (levels[labeled] == 0).all() and (levels[~labeled] > 0).all()
    assert (heard.log_likelihoods[labeled] == 0).all() and (heard.rows[labeled] == 0).all()
    everyone = torch.ones(90, dtype=torch.bool)
    every = aggregate_and_decode(
        ExactPush(lists, 90, noise=0.1), (0.1, 0.1), messages, torch.zeros(90, 3), everyone, NOBODY
    )
    strength = [rows.rows[~labeled].norm(dim=1).mean() for rows in (heard, every)]
    assert strength[0] > 1.3 * strength[1]  # fewer rows share each source's weight


def test_favored_rows_get_four_times_the_weight_of_others() -> None:
    lists, y, labeled = setting()
    push, everyone = ExactPush(lists, 90), torch.ones(90, dtype=torch.bool)
    messages = NodeMessages(y, labeled, CLASSES, 1.1)
    alike = aggregate_and_decode(ExactPush(lists, 90), (1.0,), messages, torch.zeros(90, 3), everyone, NOBODY)
    heard = aggregate_and_decode(push, (1.0, 1.0), messages, torch.zeros(90, 3), everyone, ~labeled)
    (_, first), (_, later) = push.asked
    assert first[~labeled].unique().tolist() == [9] and first[labeled].unique().tolist() == [1]
    assert LEVELS[9] == 16 * LEVELS[1]
    assert later[~labeled].double().mean() > later[labeled].double().mean() + 3
    strength = [rows.rows[~labeled].norm(dim=1).mean() for rows in (heard, alike)]
    assert strength[0] > 1.2 * strength[1]


def test_it_hears_the_classes_of_a_graph_of_friends() -> None:
    lists, y, labeled = setting(300, 20)
    push = ExactPush(lists, 300, noise=0.2)
    heard = aggregate_and_decode(
        push,
        (0.2, 0.2, 0.2),
        NodeMessages(y, labeled, 3, 1.1),
        torch.zeros(300, 3),
        labeled >= 0,
        NOBODY.repeat(4)[:300],
    )
    right = heard.log_likelihoods.argmax(dim=1) == y
    assert right.float().mean() > 0.75
    # Later guesses of unlabeled sources speak at full voice, about what the rows said.
    later = push.asked[-1][0][~labeled]
    torch.testing.assert_close(later.norm(dim=1), torch.full((len(later),), 1.1).double(), rtol=1e-5, atol=0)
    assert ((later @ simplex_codes(3).T).argmax(dim=1) == y[~labeled]).float().mean() > 0.7


@pytest.mark.parametrize("seed", range(6))
def test_replay_nulling_any_record_moves_no_push_beyond_its_bound(seed: int) -> None:
    """Run once, keep the transcript, null each record, and recompute every release given that transcript."""
    num_nodes = 12
    lists, y, labeled = setting(num_nodes, 8, seed)
    released = torch.from_numpy(np.random.default_rng(seed).random(num_nodes) < 0.8)
    log = torch.randn(num_nodes, CLASSES, generator=torch.Generator().manual_seed(seed)).log_softmax(dim=1)
    transcript = _Transcript(ExactPush(lists, num_nodes, noise=0.5, seed=seed))
    bound = 1.3
    aggregate_and_decode(
        transcript, (0.5, 0.6, 0.6), NodeMessages(y, labeled, CLASSES, bound), log, released, ~labeled
    )
    assert len(transcript.rows) == 3
    largest = 0.0
    for q in range(num_nodes):
        null = torch.where(torch.arange(num_nodes) == q, -1, y)
        replay = _Transcript(ExactPush({**lists, q: []}, num_nodes), transcript.rows)
        # The null record sends whatever it likes: it has nobody to send to.
        aggregate_and_decode(
            replay, (0.5, 0.6, 0.6), NodeMessages(null, labeled, CLASSES, bound), log, released, ~labeled
        )
        for before, after in zip(transcript.means, replay.means, strict=True):
            moved = float((before - after).norm())
            assert moved <= (1.0 if labeled[q] else bound)
            largest = max(largest, moved)
    assert largest > 0.999


class _Transcript:
    """Answers from a kept transcript if there is one, and notes the means behind the answers."""

    def __init__(self, push: ExactPush, rows: list[torch.Tensor] | None = None) -> None:
        self._push, self._given = push, rows
        self.rows: list[torch.Tensor] = []
        self.means: list[torch.Tensor] = []

    def __call__(self, vectors: torch.Tensor, levels: torch.Tensor) -> torch.Tensor:
        answer = self._push(vectors, levels) if self._given is None else self._given[len(self.rows)]
        self.rows.append(answer)
        self.means.append(self._push.mean(vectors, levels))
        return answer
