"""Deliberately broken copies of the mechanism: each function breaks one thing, as a careless change might.

A bug lives for the length of one test, and names the check that has to catch it.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from drawn import draw_otherwise
from torch import Tensor

from contracts import checks
from graphveil import _random
from graphveil.experiment.inputs import data_fingerprint
from graphveil.graph.blocks import Edges
from graphveil.mechanisms import DiscreteGaussian, _exact
from graphveil.models.inference import own_graph
from graphveil.privacy import NodeOwner, NodePromise, UndirectedEdge, calibration, gaussian
from graphveil.privacy import accountant as accounting
from graphveil.propagation import normalize
from graphveil.release import (
    AccuracyCountQuery,
    EdgeCountQuery,
    FolderJournal,
    GroupWeights,
    InMemoryEngine,
    NeighborSumData,
    NeighborSumQuery,
    OutcomeCountQuery,
    PushQuery,
    Release,
    ReleaseKey,
    journal,
    release,
)
from graphveil.release.counts import accuracy_counts, edge_counts
from graphveil.release.keys import keyed_digest
from graphveil.release.private_edges import PrivateEdges
from graphveil.release.rows import neighbor_sums, private_sums, pushes
from graphveil.release.rows.compact import CompactRows

Patch = pytest.MonkeyPatch
Bug = Callable[[Patch], None]
BUGS: list[tuple[Bug, Callable[[], None]]] = []


def caught_by(check: Callable[[], None]) -> Callable[[Bug], Bug]:
    """Register a bug with the check that has to catch it."""

    def register(bug: Bug) -> Bug:
        BUGS.append((bug, check))
        return bug

    return register


def table(
    vectors: Tensor,
    groups: Tensor | None,
    query: NeighborSumQuery,
    *,
    to_grid: Callable[[Tensor], Tensor] = torch.trunc,
    checked: bool = True,
    tolerance: float = 1.0,
    weights: tuple[tuple[float, ...], ...] | None = None,
) -> Tensor:
    """Do what the shipped table of contributions does, more slowly, with parts that can be broken."""
    copies = []
    own = torch.zeros(len(vectors), dtype=torch.int64) if groups is None else groups
    for into in range(query.groups):
        column = [row[into] for row in weights or query.weights.table]
        bound = torch.tensor(column, dtype=torch.float64)[own, None] * query.steps
        grid = to_grid(vectors.double() * bound)
        fits = grid.square().sum(dim=1, keepdim=True) <= (tolerance * bound).square()
        copies.append(torch.where(fits, grid, 0.0) if checked else grid)
    return torch.cat(copies).float()


def _table(patch: Patch, **broken: Any) -> None:
    patch.setattr(
        neighbor_sums, "grid_table", lambda x, groups, query, memory: table(x, groups, query, **broken)
    )


def _noise(patch: Patch, broken: Callable[[DiscreteGaussian, np.ndarray], np.ndarray]) -> None:
    draw = DiscreteGaussian.draw
    draw_otherwise(patch, lambda law, *args: broken(law, draw(law, *args)))


# -- sensitivity -------------------------------------------------------------------------------------------


@caught_by(checks.a_long_row_counts_for_nothing)
def rows_are_not_checked_against_their_bound(patch: Patch) -> None:
    _table(patch, checked=False)


@caught_by(checks.a_row_one_step_over_its_bound_counts_for_nothing)
def a_row_may_be_a_ten_thousandth_over_its_bound(patch: Patch) -> None:
    _table(patch, tolerance=1.0001)


@caught_by(checks.hops_cost_what_they_are_booked_with)
def rows_are_rounded_to_the_nearest_step_unchecked(patch: Patch) -> None:
    _table(patch, to_grid=torch.round, checked=False)


@caught_by(checks.hops_cost_what_they_are_booked_with)
def an_undirected_edge_is_charged_for_one_row(patch: Patch) -> None:
    patch.setattr(UndirectedEdge, "pair_shift", lambda self, forward, backward: max(forward, backward))


@caught_by(checks.hops_cost_what_they_are_booked_with)
def three_hops_are_charged_as_one(patch: Patch) -> None:
    patch.setattr(accounting, "_worst_pair", lambda tables: max(table.worst for table in tables))


@caught_by(checks.steered_rows_and_counts_cost_what_they_are_booked_with)
def the_steered_table_is_completed(patch: Patch) -> None:
    whole = tuple(tuple(weight or 1.0 for weight in row) for row in GroupWeights.steered().table)
    _table(patch, weights=whole)


@caught_by(checks.steered_rows_and_counts_cost_what_they_are_booked_with)
def an_edge_is_counted_in_both_directions(patch: Patch) -> None:
    cells = edge_counts.noisy_cells

    def both_ways(private: PrivateEdges, *args: Any) -> Tensor:
        return cells(PrivateEdges(replace(private._adjacency, directed=True)), *args)

    patch.setattr(edge_counts, "noisy_cells", both_ways)


@caught_by(checks.steered_rows_and_counts_cost_what_they_are_booked_with)
def counts_are_not_charged(patch: Patch) -> None:
    event = EdgeCountQuery.event

    def free(query: EdgeCountQuery, unit: Any) -> Any:
        return replace(event(query, unit), mu_squared=((0.0,) * len(query.labelled),) * len(query.labelled))

    patch.setattr(EdgeCountQuery, "event", free)


@caught_by(checks.few_labels_cost_what_they_are_booked_with)
def the_weight_back_is_not_charged(patch: Patch) -> None:
    shifts = GroupWeights.shifts

    def one_way(self: GroupWeights, unit: Any, scale: tuple[float, ...] | None = None) -> Any:
        kept = tuple(tuple(w if w > 0.5 else 0.0 for w in row) for row in self.table)
        return shifts(replace(self, table=kept), unit, scale)

    patch.setattr(GroupWeights, "shifts", one_way)


@caught_by(checks.hops_cost_what_they_are_booked_with)
def contributions_are_divided_by_the_senders_degree(patch: Patch) -> None:
    answer = NeighborSumQuery.answer

    def by_degree(query: NeighborSumQuery, private: PrivateEdges, data: Any, key: bytes) -> Tensor:
        vectors, *tables = data.arrays
        degree = torch.bincount(private._adjacency.indices, minlength=len(vectors)).clamp_min(1)
        return answer(query, private, replace(data, arrays=(vectors / degree[:, None], *tables)), key)

    patch.setattr(NeighborSumQuery, "answer", by_degree)


@caught_by(checks.the_path_is_the_same_for_neighbours)
def isolated_nodes_are_dropped(patch: Patch) -> None:
    ask = Release.ask

    def connected_alone(self: Release, data: Any) -> Tensor:
        kept = self._private._adjacency.indptr.diff() > 0
        return ask(self, data)[kept] if isinstance(data, NeighborSumData) else ask(self, data)

    patch.setattr(Release, "ask", connected_alone)


@caught_by(checks.the_path_is_the_same_for_neighbours)
def isolated_nodes_get_no_noise(patch: Patch) -> None:
    noise = private_sums.noise_rows

    def connected_only(edges: Edges, laws: Any, stream: Any, dim: int) -> Tensor:
        out = noise(edges, laws, stream, dim)
        keep = np.flatnonzero(edges.degrees.numpy())
        laws.noise[0].draw(stream, keep + edges.start, dim)
        out[np.setdiff1d(np.arange(len(edges)), keep)] = 0
        return out

    patch.setattr(private_sums, "noise_rows", connected_only)


@caught_by(checks.inputs_are_never_longer_than_one)
def rows_are_normalised_without_a_margin_to_a_hair_above_one(patch: Patch) -> None:
    patch.setattr(normalize, "_MARGIN", 1 - 1e-6)


@caught_by(checks.inputs_are_never_longer_than_one)
def the_next_hop_takes_noisy_rows_as_they_are(patch: Patch) -> None:
    patch.setattr(checks, "shrink_unit", lambda noisy, std: noisy.double())


# -- records -----------------------------------------------------------------------------------------------


def _listed(patch: Patch, broken: Callable[[Any, np.ndarray], np.ndarray]) -> None:
    patch.setattr(pushes, "own_sums", broken)


@caught_by(checks.records_cost_what_they_are_booked_with)
def sources_have_no_budget(patch: Patch) -> None:
    _listed(patch, lambda private, weights: np.zeros(private.num_nodes, dtype=np.int64))


@caught_by(checks.records_cost_what_they_are_booked_with)
def a_sources_budget_is_divided_by_who_sends_to_it(patch: Patch) -> None:
    def in_sums(private: PrivateEdges, weights: np.ndarray) -> np.ndarray:
        graph = private._adjacency
        heard = np.broadcast_to(weights, graph.num_nodes)[graph.indices.numpy()]
        into = np.repeat(np.arange(graph.num_nodes), graph.indptr.diff().numpy())
        return np.bincount(into, weights=heard, minlength=graph.num_nodes).astype(np.int64)

    _listed(patch, in_sums)


@caught_by(checks.records_cost_what_they_are_booked_with)
def a_sources_budget_is_divided_without_the_levels(patch: Patch) -> None:
    sums = pushes.own_sums
    _listed(patch, lambda private, weights: sums(private, np.array([16])))


@caught_by(checks.records_cost_what_they_are_booked_with)
def every_group_may_send_what_the_largest_may(patch: Patch) -> None:
    caps = PushQuery.caps.fget
    assert caps is not None
    patch.setattr(PushQuery, "caps", property(lambda query: [max(caps(query))] * query.groups))


@caught_by(checks.records_cost_what_they_are_booked_with)
def long_vectors_are_pushed_as_they_are(patch: Patch) -> None:
    caps = PushQuery.caps.fget
    assert caps is not None
    patch.setattr(PushQuery, "caps", property(lambda query: [10_000 * cap for cap in caps(query)]))


@caught_by(checks.replaced_records_cost_what_they_are_booked_with)
def a_replaced_record_is_charged_as_a_nulled_one(patch: Patch) -> None:
    patch.setattr(NodeOwner, "change", property(lambda unit: 1.0))


@caught_by(checks.a_mutual_edge_moves_pushes_by_what_is_stated)
def short_lists_are_weighed_up(patch: Patch) -> None:
    contributions = pushes.push_table
    patch.setattr(
        pushes,
        "push_table",
        lambda x, groups, listed, query, used: contributions(
            x, groups, listed, replace(query, degree_budget=1), used
        ),
    )


@caught_by(checks.promised_nodes_cost_what_they_are_booked_with)
def a_promised_node_is_charged_for_one_row(patch: Patch) -> None:
    patch.setattr(NodePromise, "pair_shift", lambda unit, forward, backward: max(forward, backward))


@caught_by(checks.a_broken_promise_is_refused)
def only_degrees_of_one_direction_are_promised(patch: Patch) -> None:
    def longer(private: PrivateEdges, most: int) -> bool:
        return bool((private._adjacency.indptr.diff() > most).any())

    patch.setattr(release, "passes", longer)


@caught_by(checks.tallies_cost_what_they_are_booked_with)
def all_candidates_of_a_tally_are_charged_as_one(patch: Patch) -> None:
    patch.setattr(AccuracyCountQuery, "sensitivity", lambda query, unit: 1.0)


@caught_by(checks.outcomes_cost_what_they_are_booked_with)
def a_record_that_goes_from_wrong_to_right_is_charged_once(patch: Patch) -> None:
    patch.setattr(OutcomeCountQuery, "sensitivity", lambda query, unit: 1.0)


@caught_by(checks.every_pushed_row_has_its_noise)
def heavy_rows_get_the_noise_of_all(patch: Patch) -> None:
    noise = private_sums.noise_rows

    def alike(edges: Edges, laws: Any, *args: Any) -> Tensor:
        plain = next(law for law in laws.noise if law is not None)
        return noise(edges, replace(laws, noise=tuple(law and plain for law in laws.noise)), *args)

    patch.setattr(private_sums, "noise_rows", alike)


@caught_by(checks.rows_that_are_not_released_are_zeros)
def rows_of_no_weight_are_released(patch: Patch) -> None:
    patch.setattr(private_sums.RowNoise, "scale", lambda laws, rows, kinds: rows.mul_(max(laws.scales)))


@caught_by(checks.rows_that_are_not_released_are_zeros)
def rows_of_no_weight_keep_the_sign_of_their_sum(patch: Patch) -> None:
    patch.setattr(
        private_sums.RowNoise,
        "scale",
        lambda laws, rows, kinds: rows.mul_(torch.tensor(laws.scales)[torch.from_numpy(kinds), None]),
    )


@caught_by(checks.every_count_of_a_tally_has_noise)
def a_tally_is_exact(patch: Patch) -> None:
    patch.setattr(accuracy_counts, "noisy_counts", lambda exact, *_: torch.from_numpy(exact).double())


@caught_by(checks.pushes_share_no_noise_under_one_key)
def a_push_is_not_bound_to_its_levels(patch: Patch) -> None:
    commit = Release._commit
    patch.setattr(Release, "_commit", lambda self, data: commit(self, data[:1]))


@caught_by(checks.training_noise_is_bound_to_its_data)
def training_noise_is_a_function_of_the_key_alone(patch: Patch) -> None:
    commit = Release._commit
    patch.setattr(Release, "_commit", lambda self, data: commit(self, (torch.zeros(1),)))


@caught_by(checks.training_noise_is_bound_to_its_data)
def all_training_steps_of_a_release_share_their_noise(patch: Patch) -> None:
    describe = Release._descriptor
    patch.setattr(Release, "_descriptor", lambda self, index, data: describe(self, 0, data))


@caught_by(checks.pushes_depend_on_nothing_but_the_edges)
def pushed_vectors_stay_off_the_grid(patch: Patch) -> None:
    patch.setattr(np, "trunc", lambda x, out: np.copyto(out, x))


# -- noise -------------------------------------------------------------------------------------------------


@caught_by(checks.every_row_has_its_groups_noise)
def noise_is_zero(patch: Patch) -> None:
    _noise(patch, lambda law, drawn: np.zeros_like(drawn))


@caught_by(checks.every_row_has_its_groups_noise)
def noise_is_three_percent_too_small(patch: Patch) -> None:
    _noise(patch, lambda law, drawn: np.rint(0.97 * drawn).astype(drawn.dtype))


@caught_by(checks.every_row_has_its_groups_noise)
def noise_covers_one_end_only(patch: Patch) -> None:
    def every_second(law: DiscreteGaussian, drawn: np.ndarray) -> np.ndarray:
        drawn[1::2] = 0
        return drawn

    _noise(patch, every_second)


@caught_by(checks.every_row_has_its_groups_noise)
def noise_leaves_out_the_last_column(patch: Patch) -> None:
    def all_but_one(law: DiscreteGaussian, drawn: np.ndarray) -> np.ndarray:
        drawn[:, -1] = 0
        return drawn

    _noise(patch, all_but_one)


@caught_by(checks.every_row_has_its_groups_noise)
def every_group_gets_the_first_groups_noise(patch: Patch) -> None:
    noise = private_sums.noise_rows
    patch.setattr(
        private_sums,
        "noise_rows",
        lambda edges, laws, *args: noise(edges, replace(laws, noise=(laws.noise[-1],) * 3), *args),
    )


@caught_by(checks.every_row_has_its_groups_noise)
def noise_ends_at_three_sigma(patch: Patch) -> None:
    _noise(
        patch,
        lambda law, drawn: np.clip(drawn, -round(3 * law.sigma), round(3 * law.sigma)).astype(drawn.dtype),
    )


@caught_by(checks.every_row_has_its_groups_noise)
def noise_has_light_tails(patch: Patch) -> None:
    _noise(
        patch,
        lambda law, drawn: np.rint(law.sigma * 1.7320508 * np.tanh(drawn / law.sigma)).astype(drawn.dtype),
    )


@caught_by(checks.every_row_has_its_groups_noise)
def noise_is_addressed_by_the_place_in_its_block(patch: Patch) -> None:
    noise = private_sums.noise_rows
    patch.setattr(InMemoryEngine.__init__, "__defaults__", (1000,))

    def by_place(edges: Edges, laws: Any, *args: Any) -> Tensor:
        own = replace(laws, kinds=laws.kinds[edges.start : edges.stop])
        return noise(Edges(0, len(edges), edges.offsets, edges.sources), own, *args)

    patch.setattr(private_sums, "noise_rows", by_place)


@caught_by(checks.every_row_has_its_groups_noise)
def neighbouring_rows_share_words(patch: Patch) -> None:
    counters = _random._counters
    patch.setattr(_exact, "compiled_pass", lambda: None)  # which makes its own counters
    patch.setattr(_random, "_counters", lambda rows, offsets: counters(rows * 0, rows | offsets))
    patch.setattr(_random, "_is_run", lambda rows: False)


def _compact(patch: Patch, broken: Callable[..., bool]) -> None:
    pytest.importorskip("llvmlite", minversion="0.45")
    add = CompactRows.add_sums
    patch.setattr(CompactRows, "add_sums", lambda self, *args: broken(add, self, *args))


def _at_once(patch: Patch, broken: Callable[[Edges], Edges]) -> None:
    pytest.importorskip("llvmlite", minversion="0.45")
    at_once = private_sums.write_noisy_sums
    patch.setattr(
        private_sums, "write_noisy_sums", lambda rows, edges, *args: at_once(rows, broken(edges), *args)
    )


@caught_by(checks.sums_depend_on_nothing_but_the_edges)
def a_compact_sum_takes_the_next_edge(patch: Patch) -> None:
    _at_once(patch, lambda edges: replace(edges, sources=edges.sources.roll(1)))


@caught_by(checks.every_row_of_a_plain_hop_has_its_noise)
def noise_of_a_plain_hop_is_addressed_by_the_place_in_its_block(patch: Patch) -> None:
    patch.setattr(InMemoryEngine.__init__, "__defaults__", (1000,))
    _at_once(patch, lambda edges: replace(edges, start=0, stop=len(edges)))


@caught_by(checks.every_row_of_a_plain_hop_has_its_noise)
def compiled_sums_draw_four_percent_less_noise(patch: Patch) -> None:
    pytest.importorskip("llvmlite", minversion="0.45")
    drawing = DiscreteGaussian.drawing
    patch.setattr(
        DiscreteGaussian, "drawing", lambda law, *args: drawing(DiscreteGaussian(0.96 * law.sigma), *args)
    )


@caught_by(checks.every_row_has_its_groups_noise)
def a_compact_sum_is_written_over_its_noise(patch: Patch) -> None:
    def without_noise(
        add: Callable[..., bool], rows: CompactRows, edges: Edges, shift: Any, noise: Tensor, *args: Any
    ) -> bool:
        return add(rows, edges, shift, torch.zeros_like(noise), *args)

    _compact(patch, without_noise)


@caught_by(checks.a_long_row_counts_for_nothing)
def compact_rows_are_shortened_before_they_are_checked(patch: Patch) -> None:
    pytest.importorskip("llvmlite", minversion="0.45")
    fill = CompactRows.fill
    patch.setattr(CompactRows, "fill", lambda self, x, *args: fill(self, 0.99 * x, *args))


def _quieter(data: Any, share: float) -> Any:
    """Have a query's noise drawn with a share of its standard deviation."""
    sampler = data.public.sampler
    return replace(data, public=replace(data.public, sampler=lambda sigma: sampler(share * sigma)))


@caught_by(checks.every_weighted_row_has_its_noise)
def weighted_hops_have_four_percent_less_noise(patch: Patch) -> None:
    answer = NeighborSumQuery.answer

    def quieter(query: NeighborSumQuery, private: PrivateEdges, data: Any, key: bytes) -> Tensor:
        return answer(query, private, data if data.pairs is None else _quieter(data, 0.96), key)

    patch.setattr(NeighborSumQuery, "answer", quieter)


@caught_by(checks.every_weighted_row_has_its_noise)
def the_noise_of_weighted_hops_forgets_the_bound_of_the_weights(patch: Patch) -> None:
    answer = NeighborSumQuery.answer

    def forgetful(query: NeighborSumQuery, private: PrivateEdges, data: Any, key: bytes) -> Tensor:
        bound = 1.0 if query.similarity is None else query.similarity.bound
        return answer(query, private, _quieter(data, bound), key)

    patch.setattr(NeighborSumQuery, "answer", forgetful)


@caught_by(checks.every_cell_has_noise)
def counts_have_four_percent_less_noise(patch: Patch) -> None:
    answer = EdgeCountQuery.answer
    patch.setattr(
        EdgeCountQuery,
        "answer",
        lambda query, private, data, key: answer(query, private, _quieter(data, 0.96), key),
    )


@caught_by(checks.every_cell_has_noise)
def all_cells_share_one_noise(patch: Patch) -> None:
    cells = edge_counts.noisy_cells

    def shared(graph: Any, labels: Any, inside: Any, query: Any, noise: Any, stream: Any) -> Tensor:
        class First:
            def draw(self, stream: Any, rows: np.ndarray, dim: int) -> np.ndarray:
                return np.repeat(noise.draw(stream, rows[:1], dim), len(rows), axis=0)

        return cells(graph, labels, inside, query, First(), stream)

    patch.setattr(edge_counts, "noisy_cells", shared)


@caught_by(checks.every_cell_has_noise)
def counts_between_classes_go_without_noise(patch: Patch) -> None:
    cells = edge_counts.noisy_cells

    def diagonal(*args: Any) -> Tensor:
        noisy = cells(*args)
        return torch.where(torch.eye(len(noisy), dtype=torch.bool), noisy, noisy.round() * 0)

    patch.setattr(edge_counts, "noisy_cells", diagonal)


@caught_by(checks.hops_share_no_noise)
def every_hop_reuses_the_first_hops_noise(patch: Patch) -> None:
    describe = Release._descriptor
    patch.setattr(Release, "_descriptor", lambda self, index, data: describe(self, 0, data))


@caught_by(checks.releases_share_no_noise)
def every_release_has_the_same_key(patch: Patch) -> None:
    patch.setattr(ReleaseKey, "fresh", lambda: ReleaseKey("b" * 32, bytes(32), bytes(range(32))))


@caught_by(checks.neighbours_share_no_noise_under_one_key)
def a_descriptor_leaves_out_the_data(patch: Patch) -> None:
    patch.setattr(Release, "_digest", lambda self, *arrays: "")


@caught_by(checks.neighbours_share_no_noise_under_one_key)
def a_descriptor_leaves_out_the_edges(patch: Patch) -> None:
    patch.setattr(PrivateEdges, "digest", lambda self, key: "")


# -- exact sums --------------------------------------------------------------------------------------------


@caught_by(checks.sums_depend_on_nothing_but_the_edges)
def contributions_stay_off_the_grid(patch: Patch) -> None:
    _table(patch, to_grid=lambda x: x, checked=False)


@caught_by(checks.a_hub_is_summed_exactly)
def long_rows_are_summed_in_float32(patch: Patch) -> None:
    patch.setattr(neighbor_sums, "can_compact", lambda *_: False)  # those are summed in whole numbers
    patch.setattr(neighbor_sums, "FLOAT32_EXACT", 1 << 40)


# -- digests -----------------------------------------------------------------------------------------------


def _two_bytes(home: Any, patch: Patch) -> None:
    """Have digests of a module compared in their first two bytes."""
    hurried = SimpleNamespace(compare_digest=lambda one, other: one[:2] == other[:2])
    patch.setattr(home, "hmac", hurried)


@caught_by(checks.a_digest_tells_256_bits)
def a_digest_is_two_bytes_long(patch: Patch) -> None:
    digest = ReleaseKey.digest
    patch.setattr(ReleaseKey, "digest", lambda self, *arrays: digest(self, *arrays)[:4])


@caught_by(checks.a_digest_tells_256_bits)
def a_digest_of_edges_reads_where_rows_begin_alone(patch: Patch) -> None:
    patch.setattr(PrivateEdges, "digest", lambda self, key: keyed_digest(key, self._adjacency.indptr[:3]))


@caught_by(checks.a_journal_refuses_a_descriptor_that_is_one_character_off)
def a_journal_compares_two_bytes_of_a_digest(patch: Patch) -> None:
    same = journal._same

    def short(descriptor: bytes) -> bytes:
        record = json.loads(descriptor)
        return journal.canonical({k: v[:4] if isinstance(v, str) else v for k, v in record.items()})

    patch.setattr(journal, "_same", lambda known, descriptor: same(short(known), short(descriptor)))


@caught_by(checks.a_journal_recognises_data_by_every_character_of_their_fingerprint)
def data_are_recognised_by_two_bytes_of_their_fingerprint(patch: Patch) -> None:
    _two_bytes(journal, patch)


@caught_by(checks.a_known_graph_is_told_by_every_byte_of_its_tag)
def a_graph_is_known_by_two_bytes_of_its_tag(patch: Patch) -> None:
    _two_bytes(own_graph, patch)


@caught_by(checks.a_folder_knows_its_data_by_every_byte_of_their_digest)
def data_are_known_by_two_bytes_of_their_digest(patch: Patch) -> None:
    _two_bytes(data_fingerprint, patch)


# -- accounting and booking --------------------------------------------------------------------------------


@caught_by(checks.calibrated_plans_cost_at_most_their_target)
def calibration_rounds_mu_up(patch: Patch) -> None:
    exact = gaussian.mu_of
    patch.setattr(gaussian, "mu_of", lambda epsilon, delta: exact(epsilon, delta) * 1.001)
    patch.setattr(accounting.gaussian, "epsilon_of", lambda mu, delta: 0.0)


@caught_by(checks.calibrated_plans_cost_at_most_their_target)
def calibration_forgets_the_slack(patch: Patch) -> None:
    exact = calibration.gaussian.mu_of
    patch.setattr(gaussian, "mu_of", lambda epsilon, delta: exact(epsilon, 1.01 * delta))
    patch.setattr(accounting.gaussian, "epsilon_of", lambda mu, delta: 0.0)


@caught_by(checks.calibrated_plans_cost_at_most_their_target)
def five_hops_get_the_noise_of_one(patch: Patch) -> None:
    real = checks.hops
    patch.setattr(checks, "hops", lambda mu, count, dim, unit=None: real(mu, 1, dim, unit) * count)
    patch.setattr(accounting, "_worst_pair", lambda tables: max(table.worst for table in tables))


@caught_by(checks.a_release_is_booked_before_it_is_computed)
def a_release_is_booked_after_it_is_computed(patch: Patch) -> None:
    answer, book = Release._answer, Release._book
    late: dict[int, Any] = {}
    patch.setattr(Release, "_book", lambda self, *args: late.update({id(self): args}))

    def then_book(self: Release, *args: Any) -> Tensor:
        answered = answer(self, *args)
        book(self, *late[id(self)])
        return answered

    patch.setattr(Release, "_answer", then_book)


@caught_by(checks.a_release_is_booked_before_it_is_computed)
def one_hop_of_three_is_booked(patch: Patch) -> None:
    patch.setattr(release.ReleasePlan, "event", property(lambda plan: plan.queries[0].event(plan.unit)))


@caught_by(checks.a_refused_release_computes_nothing)
def a_refusal_is_ignored(patch: Patch) -> None:
    patch.setattr(checks.MemoryLedger, "_check_limit", lambda self, entry: None)


@caught_by(checks.two_splits_add_up)
def two_splits_share_a_partition(patch: Patch) -> None:
    patch.setattr(release, "within_partition", lambda event, groups: event)


# -- resuming ----------------------------------------------------------------------------------------------


@caught_by(checks.a_resume_finishes_the_same_release_only)
def a_resume_compares_nothing(patch: Patch) -> None:
    patch.setattr(journal, "_same", lambda known, record: None)


@caught_by(checks.a_resume_finishes_the_same_release_only)
def a_resume_forgets_the_later_hops(patch: Patch) -> None:
    promise = release._promise
    patch.setattr(
        release, "_promise", lambda plan, graph: promise(replace(plan, queries=plan.queries[:1]), graph)
    )


@caught_by(checks.a_resume_finishes_the_same_release_only)
def a_resume_draws_afresh(patch: Patch) -> None:
    patch.setattr(FolderJournal, "resume", lambda self, plan: None)


@caught_by(checks.a_closed_release_forgets_its_key)
def a_published_release_keeps_its_key(patch: Patch) -> None:
    patch.setattr(journal.KeyStore, "erase", lambda self, release_id: None)


@caught_by(checks.a_finished_release_answers_its_own_data_only)
def a_finished_release_recognises_nothing(patch: Patch) -> None:
    patch.setattr(FolderJournal, "recognise", lambda self, name, fingerprint: None)


@caught_by(checks.a_finished_release_answers_its_own_data_only)
def a_finished_release_recognises_its_edges_alone(patch: Patch) -> None:
    recognise = FolderJournal.recognise

    def edges_alone(self: FolderJournal, name: str, fingerprint: Any) -> None:
        if name == "edges":
            recognise(self, name, fingerprint)

    patch.setattr(FolderJournal, "recognise", edges_alone)


@caught_by(checks.a_seeded_release_says_so_after_a_resume)
def a_resume_forgets_the_seed(patch: Patch) -> None:
    resume = FolderJournal.resume

    def forgetful(self: FolderJournal, plan: Any) -> ReleaseKey | None:
        key = resume(self, plan)
        return None if key is None else replace(key, reproducible=False)

    patch.setattr(FolderJournal, "resume", forgetful)
