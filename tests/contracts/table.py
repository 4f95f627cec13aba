"""The table of seeded bugs: each breaks one thing, as a careless change might, and names who has to notice.

Bugs lie beside the checks that catch them, all over the tests; here they come together. ``kind`` is one of
the eleven that once got past the tests (:data:`KINDS`), or None for any other. ``reason`` is part of what the
check says then, where it could fail for several reasons.

A check takes nothing, or what fixtures of its name give; ``monkeypatch`` is one that ends with the check.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import test_cli_transcript
import test_sealed
import torch
from audit import test_planted
from collect import test_message, test_server
from dendrogram import test_chain, test_privacy
from experiment import test_sweep
from ledger import test_book, test_totals
from mechanisms import (
    test_discrete_laplace,
    test_edge_response,
    test_local,
    test_local_hashing,
    test_local_noise,
    test_multibit,
    test_noisy_cells,
    test_steps,
    test_subset_selection,
)
from mechanisms.sources import SHORT_KEYS, keys_are_fresh, keys_follow_the_system
from models import (
    test_heterorr,
    test_mlp_on_records,
    test_noisy_counts,
    test_perturbed,
    test_replay_defaults,
    test_replay_other_graphs,
    test_replay_records,
    test_replay_weights,
)
from models.lpgnn import test_mixture
from models.spectral import test_spectral
from models.training import test_sample
from perturb import test_budgets, test_edge_rr, test_flaws, test_mechanisms, test_paper
from privacy import test_root_loss
from release import (
    test_bounded_trees,
    test_disk_engine,
    test_edge_training,
    test_keys,
    test_neighbor_counts,
    test_one_process,
    test_ray_worker,
)
from release import test_edge_response as test_graph_release
from serve import test_entitled, test_releases
from torch import Tensor
from train import test_affine, test_dpsgd, test_stars

from contracts import bugs, steps, test_pairs
from graphveil.artifacts import cards
from graphveil.cli import train as train_command
from graphveil.cli.console import Screen
from graphveil.experiment.experiment import Experiment
from graphveil.mechanisms import (
    FeatureRR,
    LabelRR,
    LocalHashing,
    MultiBit,
    Split,
    StepNoise,
    SubsetSelection,
    Weights,
    public_rate,
)
from graphveil.mechanisms._draws import subsets
from graphveil.mechanisms.local import allocation
from graphveil.models.features import crossfit
from graphveil.models.training import clear, private
from graphveil.release import release
from graphveil.release.steps import training_steps
from graphveil.train import clipped, dpsgd

Patch = pytest.MonkeyPatch
Bug = Callable[[Patch], None]
Check = Callable[..., None]

KINDS = {
    1: "a decision of ClassCode's default fit reads exact degrees",
    2: "booked noisy counts are ignored",
    3: "what others contribute follows from a record",
    4: "weighted hops have less noise",
    5: "what is published follows from more than answers",
    6: "keys come from a bad source",
    7: "a method trains on test labels",
    8: "counts have less noise",
    9: "the plan is shown after the run",
    10: "a row may be a little over its bound",
    11: "a digest is compared in two bytes",
}

REASONS = {  # what a check says of such a bug
    1: "predictions know more than the answers|asks by what edges say",
    2: "not what counts say|another candidate",
    3: "sends another message|level follows from more|predicted otherwise",
    4: "variance|distribution",
    6: "pool of keys|the clock or a seed|too little entropy|decide a key",
    8: "variance|distribution",
    10: "longer than its bound was heard",
    11: "have one digest|DID NOT RAISE|a part of the tag",
}


@dataclass(frozen=True)
class Seeded:
    """One bug, and the check that fails with it and passes without."""

    bug: Bug
    check: Check
    kind: int | None = None
    reason: str | None = None
    slow: bool = False

    @property
    def said(self) -> str | None:
        """Return what the check says then, as a pattern."""
        return self.reason or REASONS.get(self.kind or 0)

    @property
    def name(self) -> str:
        """What the bug is called."""
        return self.bug.__name__

    def __str__(self) -> str:
        return f"{self.name}-{name_of(self.check)}"


def name_of(check: Check) -> str:
    """Return the name of a check and where it lies, also of a test with its case."""
    if isinstance(check, partial):
        case = (getattr(one, "__name__", str(one)) for one in check.keywords.values())
        return f"{name_of(check.func)}[{', '.join(case)}]"
    return f"{check.__module__.rpartition('.')[2]}.{check.__name__}"


def _all(pairs: Iterable[tuple[Bug, Check]], kinds: dict[str, int] | int | None = None) -> Iterator[Seeded]:
    for bug, check in pairs:
        yield Seeded(bug, check, kinds.get(bug.__name__) if isinstance(kinds, dict) else kinds)


OF_RELEASES = {
    "weighted_hops_have_four_percent_less_noise": 4,
    "the_noise_of_weighted_hops_forgets_the_bound_of_the_weights": 4,
    "counts_have_four_percent_less_noise": 8,
    "a_row_may_be_a_ten_thousandth_over_its_bound": 10,
    "a_digest_is_two_bytes_long": 11,
    "a_journal_compares_two_bytes_of_a_digest": 11,
    "data_are_recognised_by_two_bytes_of_their_fingerprint": 11,
    "a_graph_is_known_by_two_bytes_of_its_tag": 11,
    "data_are_known_by_two_bytes_of_their_digest": 11,
}
OF_RECORDS = {
    "messages_are_scaled_by_exact_in_degrees": 3,
    "levels_of_pushes_follow_exact_in_degrees": 3,
    "a_prediction_reads_who_is_linked_to": 3,
}


# -- private training --------------------------------------------------------------------------------------


def _step(name: str, wrong: steps.Step) -> Bug:
    def bug(patch: Patch) -> None:
        patch.setattr(dpsgd, "_noisy_mean", wrong)

    bug.__name__ = name
    return bug


def a_record_moves_a_step_by_its_clip() -> None:
    """Null every record of a step."""
    steps.bounds_every_record(
        dpsgd._noisy_mean, test_dpsgd.by_ghost, test_dpsgd.X, test_dpsgd.Y, test_dpsgd.CLIP
    )


def a_replacement_moves_a_step_by_two_clips() -> None:
    """Replace every record of a step."""
    step, data = dpsgd._noisy_mean, (test_dpsgd.by_ghost, test_dpsgd.X, test_dpsgd.Y, test_dpsgd.CLIP)
    steps.bounds_every_replacement(step, *data)


def a_step_is_divided_by_a_public_size() -> None:
    """A mean over q N, whoever is in the batch."""
    gradients = test_dpsgd.by_ghost(test_dpsgd.X, test_dpsgd.Y)
    steps.divides_by_the_expected_size(dpsgd._noisy_mean, gradients, test_dpsgd.CLIP)


def a_step_carries_its_noise() -> None:
    """Noise of its own in every step, of the law."""
    gradients = test_dpsgd.by_ghost(test_dpsgd.X, test_dpsgd.NOBODY)
    noise = steps.noise_of(gradients, 0.25)
    steps.carries_the_noise(dpsgd._noisy_mean, gradients, test_dpsgd.CLIP, noise)


def batches_are_poisson() -> None:
    """Sizes of batches vary as independent coins do."""
    schedule = dpsgd.PrivateSchedule(epochs=200, batch_size=6)
    sizes = test_dpsgd.batch_sizes(test_dpsgd.noise_of(schedule))
    steps.are_binomial(sizes, len(test_dpsgd.X), schedule.sampling_rate(len(test_dpsgd.X)))


def records_are_in_with_the_rate() -> None:
    """As often as is accounted for."""
    rate = public_rate(256, 20_000)
    test_steps.has_the_rate(test_steps.coins(rate, 400, 5_000), rate)


def training_noise_is_zero(patch: Patch) -> None:
    noise = StepNoise.noise
    patch.setattr(StepNoise, "noise", lambda self, step: 0 * noise(self, step))


def training_noise_is_three_percent_too_small(patch: Patch) -> None:
    noise = StepNoise.noise
    patch.setattr(StepNoise, "noise", lambda self, step: np.rint(0.97 * noise(self, step)).astype(np.int64))


def every_step_has_the_first_ones_noise(patch: Patch) -> None:
    noise = StepNoise.noise
    patch.setattr(StepNoise, "noise", lambda self, step: noise(self, 0))


def batches_have_a_fixed_size(patch: Patch) -> None:
    patch.setattr(StepNoise, "batch", test_dpsgd.FixedSize.batch)


def records_are_in_five_percent_more_often(patch: Patch) -> None:
    batch = StepNoise.batch

    def more(self: StepNoise, step: int, count: int) -> Tensor:
        extra = torch.from_numpy(np.random.default_rng(step).random(count) < 0.05 * self.sampling_rate)
        return torch.cat([batch(self, step, count), extra.nonzero()[:, 0]]).unique()

    patch.setattr(StepNoise, "batch", more)


def records_with_large_gradients_stay_unclipped(patch: Patch) -> None:
    shipped = clipped.clip_factors

    def gentle(squares: Tensor, clip: float) -> Any:
        factors, dropped = shipped(squares, clip)
        return torch.where(squares > 100 * clip**2, torch.ones_like(factors), factors), dropped

    patch.setattr(clipped, "clip_factors", gentle)


OF_TRAINING = (
    Seeded(
        _step("no_gradient_is_clipped", test_dpsgd.no_clipping),
        a_record_moves_a_step_by_its_clip,
        reason="moves",
    ),
    Seeded(
        _step("gradients_are_clipped_at_twice_the_norm", test_dpsgd.twice_the_clip),
        a_replacement_moves_a_step_by_two_clips,
        reason="moves",
    ),
    Seeded(
        _step("the_mean_is_clipped_and_no_record_is", test_dpsgd.clipping_the_mean),
        a_record_moves_a_step_by_its_clip,
    ),
    Seeded(
        _step("a_step_is_divided_by_who_came", test_dpsgd.by_realised_size),
        a_step_is_divided_by_a_public_size,
        reason="not the sum over q N",
    ),
    Seeded(training_noise_is_zero, a_step_carries_its_noise, reason="variance"),
    Seeded(training_noise_is_three_percent_too_small, a_step_carries_its_noise, reason="variance"),
    Seeded(every_step_has_the_first_ones_noise, a_step_carries_its_noise),
    Seeded(batches_have_a_fixed_size, batches_are_poisson, reason="not binomial"),
    Seeded(records_are_in_five_percent_more_often, records_are_in_with_the_rate, reason="rate is not"),
    Seeded(records_with_large_gradients_stay_unclipped, a_record_moves_a_step_by_its_clip, reason="moves"),
)


# -- keys and processes ------------------------------------------------------------------------------------


def _source(of: str, source: str) -> Bug:
    def bug(patch: Patch) -> None:
        patch.setattr("secrets.token_bytes", SHORT_KEYS[source])

    bug.__name__ = f"keys_of_{of}_come_from_{source.replace(' ', '_')}"
    return bug


def keys_of_releases_come_from_the_system(monkeypatch: Patch) -> None:
    """Fresh, and decided by 256 bits of the operating system's."""
    keys_are_fresh(test_keys.secret, monkeypatch)
    keys_follow_the_system(test_keys.secret, monkeypatch)


def keys_of_local_noise_come_from_the_system(monkeypatch: Patch) -> None:
    """Fresh, and decided by 256 bits of the operating system's."""
    keys_are_fresh(test_local_noise.words, monkeypatch)
    keys_follow_the_system(test_local_noise.words, monkeypatch)


def a_forked_copy_of_a_release_answers(patch: Patch) -> None:
    patch.setattr(release, "check_process", lambda opened: None)


def a_forked_copy_draws_training_noise(patch: Patch) -> None:
    patch.setattr(training_steps, "check_process", lambda opened: None)


OF_KEYS = (
    *(Seeded(_source("releases", source), keys_of_releases_come_from_the_system, 6) for source in SHORT_KEYS),
    *(
        Seeded(_source("local_noise", source), keys_of_local_noise_come_from_the_system, 6)
        for source in SHORT_KEYS
    ),
    Seeded(a_forked_copy_of_a_release_answers, test_one_process.test_a_forked_copy_of_a_release_is_refused),
    Seeded(
        a_forked_copy_draws_training_noise, test_one_process.test_forked_copies_of_training_noise_are_refused
    ),
)


# -- local laws and collected messages ---------------------------------------------------------------------


def a_record_keeps_its_budget() -> None:
    """However its features share it."""
    test_local.keeps_the_budget(FeatureRR(epsilon=1.0, dim=3))


def a_weighted_record_keeps_its_budget() -> None:
    """However weights share it."""
    theta = [0.5, 0.3, 0.2] if allocation._ROUNDING < 1 else [0.9, 0.5, 0.3]
    test_local.keeps_the_budget(FeatureRR(epsilon=1.0, dim=3, allocation=Weights(theta)))


def a_message_counts_once() -> None:
    """For the node that sent it."""
    test_server.refuses_copies(test_server.Collector(test_server.SURVEYS["multi-bit"], 5))


def every_feature_has_the_whole_budget(patch: Patch) -> None:
    patch.setattr(Split, "budgets", lambda self, epsilon, dim: np.full(dim, epsilon))


def weights_of_features_may_add_up_to_more_than_one(patch: Patch) -> None:
    patch.setattr(allocation, "_ROUNDING", np.inf)
    patch.setattr(Weights, "budgets", lambda self, epsilon, dim: epsilon * np.array(self.theta))


def floor_and_best_are_mixed_up(patch: Patch) -> None:
    proper, swapped = MultiBit.samples.fget, {"best": "floor", "floor": "best"}
    assert proper is not None

    def mixed_up(law: MultiBit) -> int:
        other = object.__new__(MultiBit)
        vars(other).update(vars(law) | {"m": swapped[str(law.m)]})
        return int(proper(other))

    patch.setattr(MultiBit, "samples", property(mixed_up))


def the_own_class_is_said_as_if_it_had_to_be_alone(patch: Patch) -> None:
    odds = property(lambda law: LabelRR(epsilon=law.epsilon * law.size, classes=law.classes).counts)
    patch.setattr(SubsetSelection, "counts", odds)


def other_classes_are_not_numbered_from_the_own_one(patch: Patch) -> None:
    patch.setattr(SubsetSelection, "_others", lambda law, _, words: subsets(words, law.classes - 1))


def a_group_is_said_at_twice_the_budget(patch: Patch) -> None:
    kept = property(lambda law: LabelRR(epsilon=2 * law.epsilon, classes=law.groups))
    patch.setattr(LocalHashing, "among_groups", kept)


def everybody_has_one_hash(patch: Patch) -> None:
    patch.setattr("graphveil.collect.nodes._bound", lambda use, survey, node: b"one")


def a_message_may_say_all_classes(patch: Patch) -> None:
    def label(survey: Any, node: Any, fields: Any) -> Any:
        classes = survey.label.classes
        return tuple(np.flatnonzero(fields[-classes:]).tolist()), fields[:-classes]

    patch.setattr("graphveil.collect.message._label", label)


def a_guess_hears_the_labels_that_weigh_it(patch: Patch) -> None:
    patch.setattr("graphveil.models.lpgnn.mixture.silenced", lambda noisy, nodes: noisy)


def a_message_belongs_to_nobody(patch: Patch) -> None:
    patch.setattr("graphveil.collect.message.node_tag", lambda survey, node: bytes(16))


OF_REPORTS = (
    Seeded(every_feature_has_the_whole_budget, a_record_keeps_its_budget, reason="spends 3"),
    Seeded(
        weights_of_features_may_add_up_to_more_than_one,
        a_weighted_record_keeps_its_budget,
        reason="spends 1.7",
    ),
    Seeded(floor_and_best_are_mixed_up, test_multibit.has_the_golden_choices, reason="takes 2"),
    Seeded(
        the_own_class_is_said_as_if_it_had_to_be_alone,
        partial(
            test_subset_selection.test_no_set_is_more_than_e_to_the_epsilon_times_as_likely,
            classes=6,
            epsilon=1.0,
        ),
    ),
    Seeded(
        other_classes_are_not_numbered_from_the_own_one,
        partial(test_subset_selection.test_sets_follow_the_law, label=3),
    ),
    Seeded(
        a_group_is_said_at_twice_the_budget,
        partial(
            test_local_hashing.test_for_every_fixed_hash_no_group_is_more_than_e_to_the_epsilon_times_as_likely,
            classes=7,
            epsilon=1.0,
        ),
    ),
    Seeded(everybody_has_one_hash, test_message.test_nobody_chooses_which_classes_stand_together),
    Seeded(
        a_message_may_say_all_classes,
        partial(
            test_message.test_another_number_of_classes_than_the_survey_asks_for_is_refused, said=(0, 1, 2)
        ),
        reason="DID NOT RAISE",
    ),
    Seeded(
        a_guess_hears_the_labels_that_weigh_it,
        test_mixture.test_what_a_node_said_is_not_heard_where_it_is_held_out,
    ),
    Seeded(a_message_belongs_to_nobody, a_message_counts_once),
)


# -- the command -------------------------------------------------------------------------------------------


def the_model_card_says_how_many_edges_there_are(patch: Patch) -> None:
    load, card, seen = Experiment.load, cards.model_card, list[Any]()

    def noted(self: Experiment) -> Any:
        seen.append(load(self))
        return seen[-1]

    patch.setattr(Experiment, "load", noted)
    patch.setattr(cards, "model_card", lambda *data: f"{card(*data)}\n{seen[-1].num_edges} edges\n")


def methods_on_edges_train_on_all_labels(patch: Patch) -> None:
    patch.setattr(clear, "nodes_of", lambda mask: torch.arange(len(mask)))


def classcode_learns_features_from_all_labels(patch: Patch) -> None:
    patch.setattr(crossfit, "nodes_of", lambda mask: torch.arange(len(mask)))


def methods_on_records_train_on_all_labels(patch: Patch) -> None:
    patch.setattr(private, "members", lambda graph, split: torch.arange(graph.num_nodes))


def the_plan_is_shown_after_the_run(patch: Patch) -> None:
    facts, show, late = Screen.facts, train_command.show_summary, list[Any]()

    def later(self: Screen, title: str, *data: Any) -> None:
        if title.startswith("Plan"):
            late.append((self, title, *data))
        else:
            facts(self, title, *data)

    def at_last(*data: Any) -> None:
        for said in late:
            facts(*said)
        show(*data)

    patch.setattr(Screen, "facts", later)
    patch.setattr(train_command, "show_summary", at_last)


PUBLISHED = partial(test_cli_transcript.test_an_edge_reaches_a_release_through_answers_alone, case="mlp")
OWN_LABELS = test_cli_transcript.test_no_method_learns_from_a_label_that_it_is_tested_on
SHOWN_FIRST = test_cli_transcript.test_what_a_command_will_spend_is_shown_before_it_is_spent
OF_THE_COMMAND = (
    Seeded(the_model_card_says_how_many_edges_there_are, PUBLISHED, 5),
    *(
        Seeded(methods_on_edges_train_on_all_labels, partial(OWN_LABELS, case=case), 7)
        for case in ("gap", "mlp")
    ),
    Seeded(classcode_learns_features_from_all_labels, partial(OWN_LABELS, case="classcode"), 7, slow=True),
    *(
        Seeded(methods_on_records_train_on_all_labels, partial(OWN_LABELS, case=case), 7)
        for case in ("gap owner", "mlp owner")
    ),
    Seeded(the_plan_is_shown_after_the_run, SHOWN_FIRST, 9),
)


def _of_compiled_noise() -> Iterable[tuple[Bug, Check]]:
    """Return bugs of a pass that only llvmlite compiles."""
    if find_spec("llvmlite") is None:
        return ()
    from mechanisms import test_exact_compiled

    return test_exact_compiled.BUGS


COMPILED = tuple(_of_compiled_noise())
TABLE: tuple[Seeded, ...] = (
    *_all(bugs.BUGS, OF_RELEASES),
    *_all(test_pairs.BUGS),
    *_all(test_edge_training.BUGS),
    *_all(test_edge_response.BUGS),
    *_all(test_graph_release.BUGS),
    *_all(test_discrete_laplace.BUGS),
    *_all(test_noisy_cells.BUGS),
    *_all(test_mechanisms.BUGS),
    *_all(test_budgets.BUGS),
    *_all(test_edge_rr.BUGS),
    *_all(test_perturbed.BUGS),
    *_all(test_spectral.BUGS),
    *_all(test_heterorr.BUGS),
    *_all(test_chain.BUGS),
    *_all(test_privacy.BUGS),
    *_all(test_neighbor_counts.BUGS),
    *_all(test_replay_weights.BUGS),
    *_all(test_replay_other_graphs.BUGS),
    *_all(test_replay_records.BUGS, OF_RECORDS),
    *_all(test_replay_defaults.BUGS, 1),
    *_all(test_noisy_counts.BUGS, 2),
    *_all(test_mlp_on_records.BUGS),
    *_all(test_planted.BUGS),
    *_all(test_entitled.BUGS),
    *(Seeded(bug, check, slow=bug not in test_releases.QUICK) for bug, check in test_releases.BUGS),
    *_all(test_flaws.BUGS),
    *_all(test_paper.BUGS),
    *_all(test_totals.BUGS),
    *_all(test_book.BUGS),
    *_all(test_sweep.BUGS),
    *_all(test_sealed.BUGS),
    *_all(test_ray_worker.BUGS),
    *_all(test_disk_engine.BUGS),
    *_all(COMPILED),
    *_all(test_stars.BUGS),
    *_all(test_affine.BUGS),
    *_all(test_sample.BUGS),
    *_all(test_bounded_trees.BUGS),
    *_all(test_root_loss.BUGS),
    *OF_TRAINING,
    *OF_KEYS,
    *OF_REPORTS,
    *OF_THE_COMMAND,
)
