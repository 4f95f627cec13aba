"""Training on records as a query of a release: the groups that are charged, and the privacy cost."""

import math
from typing import Any

import pytest
import torch

from graphveil.core.accounting.accountant import privacy_curve
from graphveil.core.accounting.gaussian import mu_of
from graphveil.core.clipping.dpsgd import PrivateSchedule
from graphveil.core.unit import NodeRecord, Unit
from graphveil.data import Graph
from graphveil.errors import ConfigError, GraphError
from graphveil.estimators.private_training import DPSGDTraining
from graphveil.estimators.public_sizes import OTHER, TRAIN, VAL, check_members, members, record_groups

UNITS = pytest.mark.parametrize(
    "unit", [NodeRecord(), NodeRecord(replace_one=True)], ids=["add-or-remove", "replace-one"]
)


def training(**schedule: Any) -> DPSGDTraining:
    return DPSGDTraining(schedule=PrivateSchedule(**schedule), parameters=50, records=10_000)


class TestGroups:
    def split(self, labels: list[int]) -> Graph:
        graph = Graph.from_edges(torch.eye(4), labels, [0], [1], directed=False, num_classes=2)
        return graph.with_split(*torch.eye(4, dtype=torch.bool)[:3])

    def test_groups_follow_from_membership_and_not_from_labels(self):
        """The group of a record is public, so a record without its label stays in it."""
        for labels in ([0, 1, 0, 1], [-1, 1, 0, 1], [-1, -1, -1, -1]):
            assert record_groups(self.split(labels)).tolist() == [TRAIN, VAL, OTHER, OTHER]
            assert members(self.split(labels), "train").tolist() == [0]

    def test_a_missing_split_or_part_is_named(self):
        graph = self.split([0, 1, 0, 1])
        with pytest.raises(GraphError, match="no test nodes"):
            check_members(graph.with_split(graph.train_mask, graph.val_mask, torch.zeros(4).bool()), "test")
        with pytest.raises(GraphError, match="has no split"):
            members(graph.replace(train_mask=None, val_mask=None, test_mask=None), "train")


class TestPrivacyCost:
    @UNITS
    @pytest.mark.parametrize("schedule", [{"batch_size": None}, {"batch_size": 256}, {"batch_size": 4096}])
    def test_multiplier_and_mu_are_inverse(self, unit: Unit, schedule: dict[str, Any]):
        steps = training(**schedule)
        for mu in (0.01, 0.3, 2.0):
            assert steps.mu(steps.multiplier(mu, unit), unit) == pytest.approx(mu)

    @UNITS
    def test_full_batches_cost_exactly_the_mu(self, unit: Unit):
        steps = training(epochs=30, batch_size=None)
        (event,) = steps.query(steps.multiplier(0.4, unit)).event(unit).events[:1]
        assert event.mu == pytest.approx(0.4)

    def test_sampled_batches_cost_about_the_mu(self):
        """The central limit only shapes a plan, so a fifth is near enough."""
        steps, unit = training(epochs=10, batch_size=256), NodeRecord()
        for mu in (0.2, 0.5):
            event = steps.query(steps.multiplier(mu, unit)).event(unit)
            exact = mu_of(privacy_curve(event, interval=1e-3).epsilon(1e-5), 1e-5)
            assert exact == pytest.approx(mu, rel=0.2)

    def test_only_training_records_are_charged(self):
        query = training().query(1.5)
        assert query.pays == (True, False, False)
        assert (query.steps, query.sampling_rate) == (390, math.ceil(0.0256 * 2**32) / 2**32)

    def test_rejects_a_batch_larger_than_the_records(self):
        with pytest.raises(ConfigError, match="batch size 10001 is larger than the number of records, 10000"):
            training(batch_size=10_001)
