"""The table of seeded bugs: source mutations by qualified name, each with the test that must fail.

Each entry has the fields

* `name`: what is wrong, unique in this table;
* `edits`: a list of (`module:qualname`, old text, new text). The old text occurs exactly once in the named object;
* `test`: one or several pytest node ids. Each must fail with the edits and pass without them;
* `reason` (optional): text that the failure must contain. Without it only failed assertions count;
* `paths` (optional): "torch" runs as if llvmlite were missing, "compiled" with it.

`python benchmarks/mutations.py` runs all entries.
"""

BUGS = [
    # -- Releases: sensitivity, noise, sums, digests, accounting, resuming
    dict(
        name="rows_are_not_checked_against_their_bound",
        edits=[
            ("graphveil.release.rows.neighbor_sums:grid_table", "out[~fits] = 0.0", "pass"),
            (
                "graphveil.release.rows.compact:_fill_program",
                'kept = code(f"select i1 {fits}, {real} {grid}, {real} zeroinitializer")',
                "kept = grid",
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_long_row_counts_for_nothing]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="a_row_may_be_a_ten_thousandth_over_its_bound",
        edits=[
            (
                "graphveil.release.rows.neighbor_sums:grid_table",
                "np.square(bound)[:, 0]",
                "np.square(1.0001 * bound)[:, 0]",
            ),
            (
                "graphveil.release.rows.compact:_fill_program",
                'norm = code.total(code(f"fmul {real} {grid}, {grid}"), width)',
                "norm = code(f\"fmul double {code.total(code(f'fmul {real} {grid}, {grid}'), width)}, 0.9998\")",
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_row_one_step_over_its_bound_counts_for_nothing]",
        reason="longer than its bound was heard",
        paths=("torch", "compiled"),
    ),
    dict(
        name="rows_are_rounded_to_the_nearest_step_unchecked",
        edits=[
            ("graphveil.release.rows.neighbor_sums:grid_table", "out[~fits] = 0.0", "pass"),
            (
                "graphveil.release.rows.compact:_fill_program",
                'kept = code(f"select i1 {fits}, {real} {grid}, {real} zeroinitializer")',
                "kept = grid",
            ),
            (
                "graphveil.release.rows.neighbor_sums:grid_table",
                "np.trunc(grid, out=grid)",
                "np.rint(grid, out=grid)",
            ),
            ("graphveil.release.rows.compact:_fill_program", 'f"trunc.v{width}f64"', 'f"rint.v{width}f64"'),
        ],
        test="tests/contracts/test_checks.py::test_a_release[hops_cost_what_they_are_booked_with]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="an_undirected_edge_is_charged_for_one_row",
        edits=[
            (
                "graphveil.privacy.unit:UndirectedEdge.pair_shift",
                "math.hypot(forward, backward)",
                "max(forward, backward)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[hops_cost_what_they_are_booked_with]",
    ),
    dict(
        name="three_hops_are_charged_as_one",
        edits=[("graphveil.privacy.accountant:_worst_pair", "np.sum([table", "np.max([table")],
        test="tests/contracts/test_checks.py::test_a_release[hops_cost_what_they_are_booked_with]",
    ),
    dict(
        name="the_steered_table_is_completed",
        edits=[
            (
                "graphveil.release.rows.neighbor_sums:grid_table",
                "weights = np.array(query.weights.table) * query.vector_steps",
                "weights = np.where(np.array(query.weights.table) == 0, 1.0, query.weights.table) * query.vector_steps",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[steered_rows_and_counts_cost_what_they_are_booked_with]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="an_edge_is_counted_in_both_directions",
        edits=[
            (
                "graphveil.release.counts.edge_counts:noisy_cells",
                "np.where(np.eye(classes, dtype=bool), 4, 2)",
                "np.where(np.eye(classes, dtype=bool), 2, 1)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[steered_rows_and_counts_cost_what_they_are_booked_with]",
    ),
    dict(
        name="counts_are_not_charged",
        edits=[
            (
                "graphveil.release.counts.edge_counts:EdgeCountQuery.event",
                "cost = self.sigma[0] ** -2",
                "cost = 0.0",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[steered_rows_and_counts_cost_what_they_are_booked_with]",
    ),
    dict(
        name="the_weight_back_is_not_charged",
        edits=[
            (
                "graphveil.release.rows.group_weights:GroupWeights.shifts",
                "unit.pair_shift(self.table[g][h] * by[h], self.table[h][g] * by[g])",
                "unit.pair_shift((self.table[g][h] > 0.5) * self.table[g][h] * by[h], (self.table[h][g] > 0.5) * self.table[h][g] * by[g])",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[few_labels_cost_what_they_are_booked_with]",
    ),
    dict(
        name="contributions_are_divided_by_the_senders_degree",
        edits=[
            (
                "graphveil.release.rows.neighbor_sums:NeighborSumQuery.answer",
                "vectors, public = data.arrays[0], data.public",
                "vectors, public = data.arrays[0], data.public\n        degrees = torch.bincount(private._adjacency.indices, minlength=len(vectors))\n        vectors = vectors / degrees.clamp_min(1)[:, None]",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[hops_cost_what_they_are_booked_with]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="isolated_nodes_are_dropped",
        edits=[
            (
                "graphveil.release.release:Release.ask",
                "return answer",
                'if query.kind == "rows":\n                answer = answer[self._private._adjacency.indptr.diff() > 0]\n            return answer',
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[the_path_is_the_same_for_neighbours]",
    ),
    dict(
        name="isolated_nodes_get_no_noise",
        edits=[
            (
                "graphveil.release.rows.row_noise:noise_rows",
                "np.array([kind == law for kind in noise.noise])[own]",
                "np.array([kind == law for kind in noise.noise])[own] & (edges.degrees.numpy() > 0)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[the_path_is_the_same_for_neighbours]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="rows_are_normalised_without_a_margin_to_a_hair_above_one",
        edits=[("graphveil.propagation.normalize:", "_MARGIN = 1 + 1e-6", "_MARGIN = 1 - 1e-6")],
        test="tests/contracts/test_checks.py::test_a_release[inputs_are_never_longer_than_one]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="the_next_hop_takes_noisy_rows_as_they_are",
        edits=[
            (
                "graphveil.propagation.normalize:shrink_unit",
                "noise = math.sqrt(noisy.shape[1]) * std",
                "return noisy.double()\n    noise = math.sqrt(noisy.shape[1]) * std",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[inputs_are_never_longer_than_one]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="sources_have_no_budget",
        edits=[
            (
                "graphveil.release.rows.pushes:PushQuery.answer",
                "own_sums(private, squared[levels.numpy()] if steered else squared)",
                "np.zeros(len(vectors), dtype=np.int64)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[records_cost_what_they_are_booked_with]",
    ),
    dict(
        name="a_sources_budget_is_divided_by_who_sends_to_it",
        edits=[
            (
                "graphveil.release.rows.pushes:PushQuery.answer",
                "listed = own_sums(private, squared[levels.numpy()] if steered else squared)",
                "graph = private._adjacency\n        into = np.repeat(np.arange(len(vectors)), graph.indptr.diff().numpy())\n        heard = np.broadcast_to(squared[levels.numpy()], len(vectors))[graph.indices.numpy()]\n        listed = np.bincount(into, weights=heard, minlength=len(vectors)).astype(np.int64)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[records_cost_what_they_are_booked_with]",
    ),
    dict(
        name="a_sources_budget_is_divided_without_the_levels",
        edits=[
            (
                "graphveil.release.rows.pushes:PushQuery.answer",
                "own_sums(private, squared[levels.numpy()] if steered else squared)",
                "own_sums(private, np.array([LEVEL]))",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[records_cost_what_they_are_booked_with]",
    ),
    dict(
        name="every_group_may_send_what_the_largest_may",
        edits=[
            ("graphveil.release.rows.pushes:PushQuery.caps", "Fraction(bound)", "Fraction(max(self.bounds))")
        ],
        test="tests/contracts/test_checks.py::test_a_release[records_cost_what_they_are_booked_with]",
    ),
    dict(
        name="long_vectors_are_pushed_as_they_are",
        edits=[
            (
                "graphveil.release.rows.pushes:PushQuery.caps",
                "math.floor(LEVEL *",
                "10_000 * math.floor(LEVEL *",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[records_cost_what_they_are_booked_with]",
    ),
    dict(
        name="a_replaced_record_is_charged_as_a_nulled_one",
        edits=[("graphveil.privacy.unit:NodeUnit.change", "2.0 if self.replace_one else 1.0", "1.0")],
        test="tests/contracts/test_checks.py::test_a_release[replaced_records_cost_what_they_are_booked_with]",
    ),
    dict(
        name="short_lists_are_weighed_up",
        edits=[
            (
                "graphveil.release.rows.pushes:push_table",
                "np.maximum(listed, LEVEL * query.degree_budget)",
                "np.maximum(listed, LEVEL)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_mutual_edge_moves_pushes_by_what_is_stated]",
    ),
    dict(
        name="a_promised_node_is_charged_for_one_row",
        edits=[
            (
                "graphveil.privacy.unit:NodePromise.pair_shift",
                "self.change * math.sqrt(self.max_degree) * max(forward, backward)",
                "max(forward, backward)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[promised_nodes_cost_what_they_are_booked_with]",
    ),
    dict(
        name="only_degrees_of_one_direction_are_promised",
        edits=[
            ("graphveil.release.rows.own_lists:passes", " or bool((out_degrees(private) > most).any())", "")
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_broken_promise_is_refused]",
    ),
    dict(
        name="all_candidates_of_a_tally_are_charged_as_one",
        edits=[
            (
                "graphveil.release.counts.accuracy_counts:AccuracyCountQuery.sensitivity",
                "math.sqrt(self.candidates)",
                "1.0",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[tallies_cost_what_they_are_booked_with]",
    ),
    dict(
        name="a_record_that_goes_from_wrong_to_right_is_charged_once",
        edits=[
            (
                "graphveil.release.counts.outcome_counts:OutcomeCountQuery.sensitivity",
                "math.sqrt(of_records(unit).change)",
                "1.0",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[outcomes_cost_what_they_are_booked_with]",
    ),
    dict(
        name="heavy_rows_get_the_noise_of_all",
        edits=[
            (
                "graphveil.release.rows.pushes:PushQuery.answer",
                "public.sampler(self.sigma * self.steps / g)",
                "public.sampler(self.sigma * self.steps)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_pushed_row_has_its_noise]",
    ),
    dict(
        name="rows_of_no_weight_are_released",
        edits=[
            (
                "graphveil.release.rows.pushes:PushQuery.answer",
                "tuple(g / self.steps for g in self.weights)",
                "(max(self.weights) / self.steps,) * len(self.weights)",
            ),
            (
                "graphveil.release.rows.row_noise:RowNoise.scale",
                "if kinds is not None and None in self.noise:",
                "if False:",
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[rows_that_are_not_released_are_zeros]",
    ),
    dict(
        name="rows_of_no_weight_keep_the_sign_of_their_sum",
        edits=[
            (
                "graphveil.release.rows.row_noise:RowNoise.scale",
                "if kinds is not None and None in self.noise:",
                "if False:",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[rows_that_are_not_released_are_zeros]",
    ),
    dict(
        name="a_tally_is_exact",
        edits=[
            (
                "graphveil.release.counts.record_counts:noisy_counts",
                "(exact * int(steps) + drawn) / steps",
                "exact * 1.0",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_count_of_a_tally_has_noise]",
    ),
    dict(
        name="a_push_is_not_bound_to_its_levels",
        edits=[
            (
                "graphveil.release.release:Release.ask",
                "self._commit(prepared.arrays)",
                "self._commit(prepared.arrays[:1])",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[pushes_share_no_noise_under_one_key]",
    ),
    dict(
        name="training_noise_is_a_function_of_the_key_alone",
        edits=[
            (
                "graphveil.release.release:Release.ask",
                "self._commit(prepared.arrays)",
                "self._commit((torch.zeros(1),))",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[training_noise_is_bound_to_its_data]",
    ),
    dict(
        name="all_training_steps_of_a_release_share_their_noise",
        edits=[
            (
                "graphveil.release.release:Release._commit",
                "self._descriptor(index, data)",
                "self._descriptor(0, data)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[training_noise_is_bound_to_its_data]",
    ),
    dict(
        name="pushed_vectors_stay_off_the_grid",
        edits=[("graphveil.release.rows.pushes:push_table", "np.trunc(grid, out=grid)", "pass")],
        test="tests/contracts/test_checks.py::test_a_release[pushes_depend_on_nothing_but_the_edges]",
    ),
    dict(
        name="noise_is_zero",
        edits=[
            (
                "graphveil.mechanisms.additive:DiscreteGaussian.draw",
                "return _exact.discrete_gaussian(stream, rows, dim, self._numerator)",
                "drawn = _exact.discrete_gaussian(stream, rows, dim, self._numerator)\n        return np.zeros_like(drawn)",
            ),
            (
                "graphveil.mechanisms.additive:DiscreteGaussian.drawing",
                "return _exact.compiled_drawing(stream, dim, self._numerator, most)",
                "return None",
            ),
        ],
        test=[
            "tests/contracts/test_checks.py::test_a_release[every_row_has_its_groups_noise]",
            "tests/contracts/test_checks.py::test_a_release[every_row_of_a_plain_hop_has_its_noise]",
        ],
        paths=("torch", "compiled"),
    ),
    dict(
        name="noise_is_three_percent_too_small",
        edits=[
            (
                "graphveil.mechanisms.additive:DiscreteGaussian.draw",
                "self._numerator",
                "round(0.97 * self._numerator)",
            ),
            (
                "graphveil.mechanisms.additive:DiscreteGaussian.drawing",
                "self._numerator",
                "round(0.97 * self._numerator)",
            ),
        ],
        test=[
            "tests/contracts/test_checks.py::test_a_release[every_row_has_its_groups_noise]",
            "tests/contracts/test_checks.py::test_a_release[every_row_of_a_plain_hop_has_its_noise]",
        ],
        paths=("torch", "compiled"),
    ),
    dict(
        name="noise_covers_one_end_only",
        edits=[
            (
                "graphveil.mechanisms.additive:DiscreteGaussian.draw",
                "return _exact.discrete_gaussian(stream, rows, dim, self._numerator)",
                "drawn = _exact.discrete_gaussian(stream, rows, dim, self._numerator)\n        drawn[1::2] = 0\n        return drawn",
            ),
            (
                "graphveil.mechanisms.additive:DiscreteGaussian.drawing",
                "return _exact.compiled_drawing(stream, dim, self._numerator, most)",
                "return None",
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_row_has_its_groups_noise]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="noise_leaves_out_the_last_column",
        edits=[
            (
                "graphveil.mechanisms.additive:DiscreteGaussian.draw",
                "return _exact.discrete_gaussian(stream, rows, dim, self._numerator)",
                "drawn = _exact.discrete_gaussian(stream, rows, dim, self._numerator)\n        drawn[:, -1] = 0\n        return drawn",
            ),
            (
                "graphveil.mechanisms.additive:DiscreteGaussian.drawing",
                "return _exact.compiled_drawing(stream, dim, self._numerator, most)",
                "return None",
            ),
        ],
        test=[
            "tests/contracts/test_checks.py::test_a_release[every_row_has_its_groups_noise]",
            "tests/contracts/test_checks.py::test_a_release[every_row_of_a_plain_hop_has_its_noise]",
        ],
        paths=("torch", "compiled"),
    ),
    dict(
        name="every_group_gets_the_first_groups_noise",
        edits=[
            (
                "graphveil.release.rows.neighbor_sums:NeighborSumQuery.answer",
                "for sigma in self.sigma)",
                "for sigma in self.sigma[-1:] * self.groups)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_row_has_its_groups_noise]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="noise_ends_at_three_sigma",
        edits=[
            (
                "graphveil.mechanisms.additive:DiscreteGaussian.draw",
                "return _exact.discrete_gaussian(stream, rows, dim, self._numerator)",
                "drawn = _exact.discrete_gaussian(stream, rows, dim, self._numerator)\n        return np.clip(drawn, -round(3 * self.sigma), round(3 * self.sigma)).astype(drawn.dtype)",
            ),
            (
                "graphveil.mechanisms.additive:DiscreteGaussian.drawing",
                "return _exact.compiled_drawing(stream, dim, self._numerator, most)",
                "return None",
            ),
        ],
        test=[
            "tests/contracts/test_checks.py::test_a_release[every_row_has_its_groups_noise]",
            "tests/contracts/test_checks.py::test_a_release[every_row_of_a_plain_hop_has_its_noise]",
        ],
        paths=("torch", "compiled"),
    ),
    dict(
        name="noise_has_light_tails",
        edits=[
            (
                "graphveil.mechanisms.additive:DiscreteGaussian.draw",
                "return _exact.discrete_gaussian(stream, rows, dim, self._numerator)",
                "drawn = _exact.discrete_gaussian(stream, rows, dim, self._numerator)\n        return np.rint(self.sigma * 1.7320508 * np.tanh(drawn / self.sigma)).astype(drawn.dtype)",
            ),
            (
                "graphveil.mechanisms.additive:DiscreteGaussian.drawing",
                "return _exact.compiled_drawing(stream, dim, self._numerator, most)",
                "return None",
            ),
        ],
        test=[
            "tests/contracts/test_checks.py::test_a_release[every_row_has_its_groups_noise]",
            "tests/contracts/test_checks.py::test_a_release[every_row_of_a_plain_hop_has_its_noise]",
        ],
        paths=("torch", "compiled"),
    ),
    dict(
        name="noise_is_addressed_by_the_place_in_its_block",
        edits=[
            (
                "graphveil.release.engines.in_memory:InMemoryEngine",
                "block_rows: int = 1 << 21",
                "block_rows: int = 1000",
            ),
            (
                "graphveil.release.rows.row_noise:noise_rows",
                "rows, own = np.arange(edges.start, edges.stop), noise.of(edges)",
                "rows, own = np.arange(len(edges)), noise.of(edges)",
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_row_has_its_groups_noise]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="neighbouring_rows_share_words",
        edits=[
            (
                "graphveil._random:_counters",
                'counters["row"], counters["offset"] = rows, offsets',
                'counters["row"], counters["offset"] = 0, rows | offsets',
            ),
            (
                "graphveil._random:RowStream.words",
                "_run(rows, blocks) if _is_run(rows) else _counters(rows[:, None], offsets)",
                "_counters(rows[:, None], offsets)",
            ),
            ("graphveil.mechanisms._exact_compiled:_halves", "shl i64 {row}, 32", "shl i64 {row}, 0"),
        ],
        test=[
            "tests/contracts/test_checks.py::test_a_release[every_row_has_its_groups_noise]",
            "tests/contracts/test_checks.py::test_a_release[every_row_of_a_plain_hop_has_its_noise]",
        ],
        paths=("torch", "compiled"),
    ),
    dict(
        name="a_compact_sum_takes_the_next_edge",
        edits=[
            (
                "graphveil.release.rows.private_sums:_at_once",
                "write_noisy_sums(sums.rows, edges, shift,",
                "write_noisy_sums(sums.rows, replace(edges, sources=edges.sources.roll(1)), shift,",
            ),
            (
                "graphveil.release.rows.private_sums:exact_sum",
                "edges.degrees, edges.sources, sums.table",
                "edges.degrees, edges.sources.roll(1), sums.table",
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[sums_depend_on_nothing_but_the_edges]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="noise_of_a_plain_hop_is_addressed_by_the_place_in_its_block",
        edits=[
            (
                "graphveil.release.engines.in_memory:InMemoryEngine",
                "block_rows: int = 1 << 21",
                "block_rows: int = 1000",
            ),
            (
                "graphveil.release.rows.row_noise:noise_rows",
                "rows, own = np.arange(edges.start, edges.stop), noise.of(edges)",
                "rows, own = np.arange(len(edges)), noise.of(edges)",
            ),
            (
                "graphveil.release.rows.private_sums:_at_once",
                "write_noisy_sums(sums.rows, edges, shift,",
                "write_noisy_sums(sums.rows, replace(edges, start=0, stop=len(edges)), shift,",
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_row_of_a_plain_hop_has_its_noise]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="compiled_sums_draw_four_percent_less_noise",
        edits=[
            (
                "graphveil.mechanisms.additive:DiscreteGaussian.draw",
                "self._numerator",
                "round(0.96 * self._numerator)",
            ),
            (
                "graphveil.mechanisms.additive:DiscreteGaussian.drawing",
                "self._numerator",
                "round(0.96 * self._numerator)",
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_row_of_a_plain_hop_has_its_noise]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="a_compact_sum_is_written_over_its_noise",
        edits=[
            (
                "graphveil.release.rows.compact:_Plain.finish",
                "{code(f'add {kind} {noise}, {total}')}",
                "{total}",
            ),
            (
                "graphveil.release.rows.private_sums:NoisyRows._fill",
                "drawn.to(total.device, self.noise.real).add_(total).cpu()",
                "total.to(self.noise.real).cpu()",
            ),
        ],
        test=[
            "tests/contracts/test_checks.py::test_a_release[every_row_has_its_groups_noise]",
            "tests/contracts/test_checks.py::test_a_release[every_row_of_a_plain_hop_has_its_noise]",
        ],
        paths=("torch", "compiled"),
    ),
    dict(
        name="compact_rows_are_shortened_before_they_are_checked",
        edits=[
            (
                "graphveil.release.rows.compact:CompactRows.fill",
                "vectors = vectors.to(",
                "vectors = (0.99 * vectors).to(",
            ),
            (
                "graphveil.release.rows.neighbor_sums:grid_table",
                "np.multiply(exact, bound, out=grid)",
                "np.multiply(0.99 * exact, bound, out=grid)",
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_long_row_counts_for_nothing]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="weighted_hops_have_four_percent_less_noise",
        edits=[
            (
                "graphveil.release.rows.neighbor_sums:NeighborSumQuery.answer",
                "public.sampler(sigma * self.steps)",
                "public.sampler((sigma if data.pairs is None else 0.96 * sigma) * self.steps)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_weighted_row_has_its_noise]",
        reason="variance",
        paths=("torch", "compiled"),
    ),
    dict(
        name="the_noise_of_weighted_hops_forgets_the_bound_of_the_weights",
        edits=[
            (
                "graphveil.release.rows.neighbor_sums:NeighborSumQuery.answer",
                "public.sampler(sigma * self.steps)",
                "public.sampler(sigma * self.steps * (1.0 if self.similarity is None else self.similarity.bound))",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_weighted_row_has_its_noise]",
        reason="variance",
        paths=("torch", "compiled"),
    ),
    dict(
        name="counts_have_four_percent_less_noise",
        edits=[
            (
                "graphveil.release.counts.edge_counts:EdgeCountQuery.answer",
                "sampler(self.sigma[0]",
                "sampler(0.96 * self.sigma[0]",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_cell_has_noise]",
        reason="variance",
    ),
    dict(
        name="all_cells_share_one_noise",
        edits=[
            (
                "graphveil.release.counts.edge_counts:noisy_cells",
                "np.arange(len(cells[0]))",
                "np.zeros(len(cells[0]), dtype=np.int64)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_cell_has_noise]",
    ),
    dict(
        name="counts_between_classes_go_without_noise",
        edits=[
            (
                "graphveil.release.counts.edge_counts:noisy_cells",
                "return torch.from_numpy(noisy)",
                "return torch.from_numpy(np.where(np.eye(classes, dtype=bool), noisy, counts))",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_cell_has_noise]",
    ),
    dict(
        name="every_hop_reuses_the_first_hops_noise",
        edits=[
            (
                "graphveil.release.release:Release._commit",
                "self._descriptor(index, data)",
                "self._descriptor(0, data)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[hops_share_no_noise]",
    ),
    dict(
        name="every_release_has_the_same_key",
        edits=[
            (
                "graphveil.release.keys:ReleaseKey.fresh",
                "secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES)",
                "bytes(KEY_BYTES), bytes(range(KEY_BYTES))",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[releases_share_no_noise]",
    ),
    dict(
        name="a_descriptor_leaves_out_the_data",
        edits=[("graphveil.release.release:Release._digest", "self._key.digest(*arrays)", '""')],
        test="tests/contracts/test_checks.py::test_a_release[neighbours_share_no_noise_under_one_key]",
    ),
    dict(
        name="a_descriptor_leaves_out_the_edges",
        edits=[
            (
                "graphveil.release.release:Release._digest_of_edges",
                "self._private.digest(self._key.master)",
                '""',
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[neighbours_share_no_noise_under_one_key]",
    ),
    dict(
        name="contributions_stay_off_the_grid",
        edits=[
            (
                "graphveil.release.rows.neighbor_sums:NeighborSumQuery.answer",
                "compact = data.pairs is None and can_compact(self.dim, self.grid_bits)",
                "compact = False",
            ),
            ("graphveil.release.rows.neighbor_sums:grid_table", "out[~fits] = 0.0", "pass"),
            ("graphveil.release.rows.neighbor_sums:grid_table", "np.trunc(grid, out=grid)", "pass"),
        ],
        test="tests/contracts/test_checks.py::test_a_release[sums_depend_on_nothing_but_the_edges]",
    ),
    dict(
        name="long_rows_are_summed_in_float32",
        edits=[
            (
                "graphveil.release.rows.neighbor_sums:NeighborSumQuery.answer",
                "compact = data.pairs is None and can_compact(self.dim, self.grid_bits)",
                "compact = False",
            ),
            (
                "graphveil.release.rows.neighbor_sums:NeighborSumQuery.answer",
                "FLOAT32_EXACT >> self.contribution_bits",
                "(1 << 40) >> self.contribution_bits",
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_hub_is_summed_exactly]",
    ),
    dict(
        name="a_digest_is_two_bytes_long",
        edits=[
            (
                "graphveil.release.keys:ReleaseKey.digest",
                "keyed_digest(self.master, *arrays)",
                "keyed_digest(self.master, *arrays)[:4]",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_digest_tells_256_bits]",
        reason="have one digest",
    ),
    dict(
        name="a_digest_of_edges_reads_where_rows_begin_alone",
        edits=[
            (
                "graphveil.release.private_edges:PrivateEdges.digest",
                "*self._adjacency.arrays",
                "self._adjacency.indptr[:3]",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_digest_tells_256_bits]",
    ),
    dict(
        name="a_journal_compares_two_bytes_of_a_digest",
        edits=[
            (
                "graphveil.release.journal:_same",
                "if known != descriptor:",
                "if [\n        {name: part[:4] if isinstance(part, str) else part for name, part in json.loads(one).items()}\n        for one in (known,)\n    ] != [\n        {name: part[:4] if isinstance(part, str) else part for name, part in json.loads(one).items()}\n        for one in (descriptor,)\n    ]:",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_journal_refuses_a_descriptor_that_is_one_character_off]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="data_are_recognised_by_two_bytes_of_their_fingerprint",
        edits=[
            (
                "graphveil.release.journal:FolderJournal.recognise",
                "hmac.compare_digest(str(known), said)",
                "hmac.compare_digest(str(known)[:2], said[:2])",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_journal_recognises_data_by_every_character_of_their_fingerprint]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="a_graph_is_known_by_two_bytes_of_its_tag",
        edits=[
            (
                "graphveil.models.inference.own_graph:OwnGraph.is_of",
                "hmac.compare_digest(self.tag, _tag(self.key, graph))",
                "hmac.compare_digest(self.tag[:2], _tag(self.key, graph)[:2])",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_known_graph_is_told_by_every_byte_of_its_tag]",
        reason="a part of the tag",
    ),
    dict(
        name="data_are_known_by_two_bytes_of_their_digest",
        edits=[
            (
                "graphveil.experiment.inputs.data_fingerprint:check_data",
                "hmac.compare_digest(key.digest(*_arrays(graph)), known.digest)",
                "hmac.compare_digest(key.digest(*_arrays(graph))[:2], known.digest[:2])",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_folder_knows_its_data_by_every_byte_of_their_digest]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="calibration_rounds_mu_up",
        edits=[
            (
                "graphveil.release.calibrate:calibrate_plan",
                "if not plan.epsilon <= epsilon * (1 + 1e-12):",
                "if False:",
            ),
            (
                "graphveil.privacy.calibration:calibrate_mu",
                "return gaussian.mu_of(epsilon, delta - slack)",
                "return gaussian.mu_of(epsilon, delta - slack) * 1.001",
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[calibrated_plans_cost_at_most_their_target]",
    ),
    dict(
        name="calibration_forgets_the_slack",
        edits=[
            (
                "graphveil.release.calibrate:calibrate_plan",
                "if not plan.epsilon <= epsilon * (1 + 1e-12):",
                "if False:",
            ),
            ("graphveil.privacy.calibration:calibrate_mu", "delta - slack)", "delta)"),
        ],
        test="tests/contracts/test_checks.py::test_a_release[calibrated_plans_cost_at_most_their_target]",
    ),
    dict(
        name="five_hops_get_the_noise_of_one",
        edits=[
            ("graphveil.release.plan:hops", "math.sqrt(count) * ", ""),
            ("graphveil.privacy.accountant:_worst_pair", "np.sum([table", "np.max([table"),
        ],
        test="tests/contracts/test_checks.py::test_a_release[calibrated_plans_cost_at_most_their_target]",
    ),
    dict(
        name="a_release_is_booked_after_it_is_computed",
        edits=[
            (
                "graphveil.release.release:Release.__init__",
                "self._book(label, promise)",
                "self._late = label, promise",
            ),
            (
                "graphveil.release.release:Release._answer",
                "        return answer",
                '        if "_late" in vars(self):\n            self._book(*vars(self).pop("_late"))\n        return answer',
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_release_is_booked_before_it_is_computed]",
    ),
    dict(
        name="one_hop_of_three_is_booked",
        edits=[
            (
                "graphveil.release.release:Release._entry",
                "event = self._plan.event",
                "event = self._plan.queries[0].event(self._plan.unit)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_release_is_booked_before_it_is_computed]",
    ),
    dict(
        name="a_refusal_is_ignored",
        edits=[
            (
                "graphveil.privacy.ledger:MemoryLedger._check_limit",
                "if not after <= self._epsilon:",
                "if False:",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_refused_release_computes_nothing]",
    ),
    dict(
        name="two_splits_share_a_partition",
        edits=[
            (
                "graphveil.release.release:Release._entry",
                "event = within_partition(event, hashlib.sha256(groups.numpy().tobytes()).hexdigest()[:16])",
                "pass",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[two_splits_add_up]",
    ),
    dict(
        name="a_resume_compares_nothing",
        edits=[("graphveil.release.journal:_same", "if known != descriptor:", "if False:")],
        test="tests/contracts/test_checks.py::test_a_release[a_resume_finishes_the_same_release_only]",
    ),
    dict(
        name="a_resume_forgets_the_later_hops",
        edits=[
            (
                "graphveil.release.release:_promise",
                "for query in plan.queries]",
                "for query in plan.queries[:1]]",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_resume_finishes_the_same_release_only]",
    ),
    dict(
        name="a_resume_draws_afresh",
        edits=[("graphveil.release.journal:FolderJournal.resume", "if not self._path.exists():", "if True:")],
        test="tests/contracts/test_checks.py::test_a_release[a_resume_finishes_the_same_release_only]",
    ),
    dict(
        name="a_published_release_keeps_its_key",
        edits=[
            (
                "graphveil.release.keys:KeyStore.erase",
                "self._path(release_id).unlink(missing_ok=True)",
                "return",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_closed_release_forgets_its_key]",
    ),
    dict(
        name="a_finished_release_recognises_nothing",
        edits=[
            (
                "graphveil.release.journal:FolderJournal.recognise",
                "record = self._read()",
                "return\n        record = self._read()",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_finished_release_answers_its_own_data_only]",
    ),
    dict(
        name="a_finished_release_recognises_its_edges_alone",
        edits=[
            (
                "graphveil.release.journal:FolderJournal.recognise",
                "record = self._read()",
                'if name != "edges":\n            return\n        record = self._read()',
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_finished_release_answers_its_own_data_only]",
    ),
    dict(
        name="a_resume_forgets_the_seed",
        edits=[("graphveil.release.journal:FolderJournal.resume", 'bool(record["reproducible"])', "False")],
        test="tests/contracts/test_checks.py::test_a_release[a_seeded_release_says_so_after_a_resume]",
    ),
]
