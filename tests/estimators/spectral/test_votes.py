"""Votes: what a loop over voters adds up to, and a rule that features cannot lose by."""

import torch

from graphveil.estimators import spectral_embedding as spectral_votes
from graphveil.estimators.spectral_embedding import DOUBLINGS, HALVINGS, VotingRule, best_rule, count_votes

NODES, CLASSES = 40, 3


def world(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return rows, classes that they follow, and the nodes that vote."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(NODES) % CLASSES
    rows = torch.eye(CLASSES)[y] + 0.4 * torch.randn(NODES, CLASSES, generator=generator)
    return rows / rows.norm(dim=1, keepdim=True), y, torch.randperm(NODES, generator=generator)[:25]


def test_votes_are_what_a_loop_adds_up(monkeypatch) -> None:
    monkeypatch.setattr(spectral_votes, "_PAIRS", 60)  # several blocks
    rows, y, voters = world()
    found = count_votes(rows, voters, y[voters], CLASSES)
    for level, doublings in enumerate(DOUBLINGS):
        expected = torch.zeros(NODES, CLASSES)
        for node in range(NODES):
            for voter in voters.tolist():
                if voter != node:
                    expected[node, y[voter]] += max(0.0, float(rows[node] @ rows[voter])) ** 2**doublings
        assert torch.allclose(found[level], expected, atol=1e-4)


def test_a_rule_hears_voters_who_know_and_leaves_features_where_they_do_not() -> None:
    rows, y, voters = world()
    flat = torch.full((NODES, CLASSES), 1 / CLASSES).log()
    sure = torch.eye(CLASSES)[y].mul(5).log_softmax(dim=1)
    heard, decided = best_rule(flat, rows, voters, y[voters])
    assert heard.share == 1.0 and float((decided.argmax(dim=1) == y).float().mean()) > 0.9
    again = heard.decided(flat, heard.votes(rows, voters, y[voters], CLASSES))
    assert torch.equal(decided, again)
    lies = torch.eye(CLASSES)[(y + torch.arange(NODES) // 3) % CLASSES]
    assert torch.allclose(best_rule(sure, lies, voters, y[voters])[1].exp(), sure.exp().double(), atol=0.05)


def test_few_directions_count_where_all_of_them_tell_nothing_apart() -> None:
    _, y, voters = world()
    kinds = 3 * torch.eye(CLASSES)[y]
    everything = torch.cat([kinds, 9 * torch.eye(NODES)], dim=1)  # most of a row is its node's own
    flat = torch.full((NODES, CLASSES), 1 / CLASSES).log()
    rule, decided = best_rule(flat, everything, voters, y[voters])
    assert rule.halvings == max(HALVINGS) and bool((decided.argmax(dim=1) == y).all())


def test_a_node_nobody_is_like_keeps_its_features() -> None:
    features = torch.tensor([[0.7, 0.2, 0.1]]).log()
    decided = VotingRule(0, 1, 0.003, 1.0).decided(features, torch.zeros(1, 3))
    assert torch.allclose(decided, features.double(), atol=1e-6)
