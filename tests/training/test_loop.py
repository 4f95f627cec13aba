"""The training loop: selection, patience, rates, batches, and a resume that changes no bit."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphveil.errors import ConfigError
from graphveil.nn.layers import FeedForward
from graphveil.training import EpochRecord, TrainingSchedule, _batches, _rate, train

X = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] + 0.5 * X[:, 1] > 0).long()
TRAIN, VAL = torch.arange(40), torch.arange(40, 60)


class StopError(Exception):
    pass


def fresh(**options: Any) -> tuple[FeedForward, torch.Generator]:
    generator = torch.Generator().manual_seed(1)
    return FeedForward([5, 8, 2], generator=generator, **options), generator


def run(
    schedule: TrainingSchedule,
    *,
    val: Tensor = VAL,
    checkpoint: Path | None = None,
    on_epoch: Callable[[int], None] = lambda epoch: None,
    **options: Any,
) -> tuple[FeedForward, list[EpochRecord]]:
    network, generator = fresh(**options)
    history = train(
        network,
        lambda index: network(X[index]),
        Y,
        TRAIN,
        val,
        schedule,
        generator=generator,
        checkpoint=checkpoint,
        checkpoint_every=3,
        on_epoch=on_epoch,
    )
    return network, history


def bits(network: FeedForward) -> list[Tensor]:
    return list(network.state_dict().values())


def equal(left: FeedForward, right: FeedForward) -> bool:
    return all(torch.equal(a, b) for a, b in zip(bits(left), bits(right), strict=True))


def test_learns_and_ends_in_evaluation_mode():
    network, history = run(TrainingSchedule(epochs=60, learning_rate=0.05))
    assert [row.epoch for row in history] == list(range(60))
    assert history[-1].train_loss < 0.3 * history[0].train_loss
    assert max(row.val_accuracy for row in history) > 0.9
    assert not network.training


@pytest.mark.parametrize("select", ["accuracy", "likelihood", "last"])
def test_keeps_the_selected_epoch(select):
    kept: dict[int, list[Tensor]] = {}
    network, generator = fresh(batch_norm=True)
    history = train(
        network,
        lambda index: network(X[index]),
        Y,
        TRAIN,
        VAL,
        TrainingSchedule(epochs=20, learning_rate=0.1, select=select),
        generator=generator,
        on_epoch=lambda epoch: kept.update({epoch - 1: [t.clone() for t in bits(network)]}),
    )
    best = {
        "accuracy": max(history, key=lambda row: row.val_accuracy),
        "likelihood": min(history, key=lambda row: row.val_loss),
        "last": history[-1],
    }[select]
    assert all(torch.equal(a, b) for a, b in zip(bits(network), kept[best.epoch], strict=True))


def test_without_validation_nodes_the_last_epoch_stays():
    with_none, history = run(TrainingSchedule(epochs=5), val=VAL[:0])
    last, _ = run(TrainingSchedule(epochs=5, select="last"))
    assert equal(with_none, last)
    assert math.isnan(history[-1].val_loss)


def test_patience_stops_after_so_many_epochs_without_a_better_score():
    _, history = run(TrainingSchedule(epochs=500, learning_rate=0.05, patience=7))
    best = max(range(len(history)), key=lambda i: history[i].val_accuracy)
    assert len(history) == best + 1 + 7


def test_cosine_goes_from_the_rate_to_zero():
    schedule = TrainingSchedule(learning_rate=0.2, decay="cosine")
    assert [_rate(schedule, share) for share in (0, 0.5, 1)] == pytest.approx([0.2, 0.1, 0])
    assert _rate(TrainingSchedule(learning_rate=0.2), 0.7) == 0.2


def test_batches_cover_every_node_once_and_drop_a_lonely_last_one():
    generator = torch.Generator().manual_seed(0)
    assert sorted(torch.cat(_batches(TRAIN, 16, generator)).tolist()) == TRAIN.tolist()
    assert [len(batch) for batch in _batches(TRAIN, 13, generator)] == [13, 13, 13]
    assert _batches(TRAIN, None, generator)[0] is TRAIN
    assert _batches(TRAIN, 40, generator)[0] is TRAIN


def test_batches_learn():
    _, history = run(TrainingSchedule(epochs=30, learning_rate=0.02, batch_size=8), batch_norm=True)
    assert max(row.val_accuracy for row in history) > 0.85


RESUMED = [
    TrainingSchedule(epochs=14, learning_rate=0.05),
    TrainingSchedule(epochs=14, learning_rate=0.05, batch_size=7, decay="cosine", weight_decay=0.01),
    TrainingSchedule(epochs=60, learning_rate=0.05, patience=3),
]


@pytest.mark.parametrize("schedule", RESUMED)
@pytest.mark.parametrize("stop_after", [1, 3, 8])
def test_a_resumed_run_changes_no_bit(schedule, stop_after, tmp_path):
    options = {"batch_norm": True, "dropout": 0.3}
    whole, history = run(schedule, **options)

    def stop(epoch: int) -> None:
        if epoch == min(stop_after, len(history)):
            raise StopError

    path = tmp_path / "state.safetensors"
    with pytest.raises(StopError):
        run(schedule, checkpoint=path, on_epoch=stop, **options)
    resumed, again = run(schedule, checkpoint=path, **options)
    assert equal(whole, resumed)
    assert again == history


def test_a_finished_checkpoint_is_returned_at_once(tmp_path):
    path = tmp_path / "state.safetensors"
    schedule = TrainingSchedule(epochs=5)
    network, history = run(schedule, checkpoint=path)

    def never(epoch: int) -> None:
        raise AssertionError("a finished run trains no more")

    again, same = run(schedule, checkpoint=path, on_epoch=never)
    assert equal(network, again)
    assert same == history


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs=0 must be a whole number of at least 1"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be a finite number above 0"),
        ({"weight_decay": -1.0}, "weight_decay=-1.0 must be a finite number of at least 0"),
        ({"decay": "cosin"}, "decay='cosin' is not one of constant, cosine; did you mean 'cosine'"),
        ({"select": "best"}, "select='best' is not one of accuracy, balanced_accuracy, "),
        ({"batch_size": 1}, "batch_size=1 must be a whole number of at least 2"),  # all were dropped
        ({"patience": 0}, "patience=0 must be a whole number of at least 1"),
    ],
)
def test_schedule_rejects(wrong, message):
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        TrainingSchedule(**wrong)
