"""The table of seeded bugs: source mutations by qualified name, each with the test that must fail.

Each entry has the fields

* `name`: what is wrong, unique in this table;
* `edits`: a list of (`module:qualname`, old text, new text). The old text occurs exactly once there;
* `test`: one or several pytest node ids. Each must fail with the edits and pass without them;
* `reason` (optional): text that the failure must contain. Without it only failed assertions count;
* `paths` (optional): "torch" runs as if the loops in C were not built, "compiled" with them. A
  place in C is `graphveil.core.noise._native:`, and the old text occurs once in that file.

`python benchmarks/mutations.py` runs all entries.
"""

BUGS = [
    dict(
        name="numeric_targets_are_not_clipped_to_their_public_range",
        edits=[
            (
                "graphveil.training.heads:RegressionHead.labels",
                "targets = targets.clamp(*self.target_range)",
                "pass",
            ),
        ],
        test="tests/estimators/test_regression.py::test_targets_beyond_the_public_range_are_those_at_its_ends",
    ),
    dict(
        name="a_record_without_a_number_has_the_gradient_of_zero",
        edits=[
            (
                "graphveil.core.clipping.clipped_sums:_loss_gradient",
                ".masked_fill(~known, 0.0)",
                "",
            ),
        ],
        test="tests/training/test_clipped_sum_oracle.py::test_clipped_sum_equals_a_loop_over_records"
        "[closed form, numbers]",
    ),
    # -- Link prediction: sums over edges, held-out pairs, and lists of nodes
    dict(
        name="the_halves_of_an_undirected_product_are_added_up",
        edits=[
            (
                "graphveil.core.queries.pair_sums:EdgeProductQuery.unit_steps",
                "2 * self.grid_bits + self.symmetric",
                "2 * self.grid_bits",
            )
        ],
        test="tests/audit/test_query_neighbor_tests.py::test_query_keeps_its_privacy_cost_under_a_unit[edge products-undirected-edge]",
    ),
    dict(
        name="vectors_of_products_may_be_longer_than_one",
        edits=[
            (
                "graphveil.core.queries.row_sums:truncate_to_grid",
                "out[some][~fits] = 0",
                "pass",
            )
        ],
        test=[
            "tests/release/test_edge_products.py::test_vector_beyond_the_bound_counts_for_nothing",
            "tests/audit/test_query_neighbor_tests.py::test_query_keeps_its_privacy_cost_under_a_unit[edge products-directed-edge]",
        ],
    ),
    dict(
        name="entries_off_the_diagonal_have_half_of_the_noise",
        edits=[
            (
                "graphveil.core.queries.pair_sums:EdgeProductQuery._noise",
                "sampler(sigma / math.sqrt(2))",
                "sampler(sigma / math.sqrt(8))",
            )
        ],
        test="tests/release/test_edge_products.py::test_entries_have_the_charged_noise[undirected]",
    ),
    dict(
        name="products_of_a_hub_are_rounded",
        edits=[
            (
                "graphveil.core.queries.pair_sums:EdgeProductQuery.answer",
                "FLOAT32_EXACT >> self.grid_bits",
                "FLOAT32_EXACT",
            )
        ],
        test="tests/release/test_edge_products.py::test_hub_is_summed_exactly",
    ),
    dict(
        name="products_contain_held_out_edges",
        edits=[
            (
                "graphveil.core.queries.pair_sums:EdgeProductQuery.answer",
                "self.held_out.without(edges)",
                "edges",
            )
        ],
        test=[
            "tests/links/test_link_predictor.py::test_scores_do_not_depend_on_held_out_edges",
            "tests/release/test_edge_products.py::test_exact_sum_is_that_of_distinct_edges_that_are_not_held_out[undirected-0.4]",
        ],
    ),
    dict(
        name="sums_of_pair_features_contain_held_out_edges",
        edits=[
            (
                "graphveil.core.queries.pair_sums:PairSumQuery.answer",
                "self.held_out.without(edges)",
                "edges",
            )
        ],
        test=[
            "tests/links/test_link_predictor.py::test_scores_do_not_depend_on_held_out_edges",
            "tests/audit/test_query_neighbor_tests.py::test_query_keeps_its_privacy_cost_under_a_unit[pair sums-undirected-edge]",
        ],
    ),
    dict(
        name="degrees_contain_held_out_edges",
        edits=[
            (
                "graphveil.core.queries.edge_counts:NoisyCounts._counts",
                "kept &= ~self.held_out.contains(sources, targets)",
                "pass",
            )
        ],
        test=[
            "tests/audit/test_query_neighbor_tests.py::test_query_keeps_its_privacy_cost_under_a_unit[neighbor counts of some pairs-undirected-edge]",
            "tests/links/test_link_predictor.py::test_scores_do_not_depend_on_held_out_edges",
            "tests/release/test_pair_sums.py::test_neighbors_of_held_out_pairs_are_not_counted[undirected]",
        ],
    ),
    dict(
        name="the_histogram_counts_fitted_edges",
        edits=[
            (
                "graphveil.core.queries.pair_sums:PairHistogramQuery.answer",
                "held = self.held_out.contains(sources, targets)",
                "held = np.ones(len(sources), dtype=bool)",
            )
        ],
        test=[
            "tests/release/test_pair_sums.py::test_histogram_has_each_held_out_edge_once[undirected]",
            "tests/audit/test_query_neighbor_tests.py::test_query_keeps_its_privacy_cost_under_a_unit[both parts of the pairs-undirected-edge]",
        ],
    ),
    dict(
        name="both_directions_of_an_edge_are_in_pair_sums",
        edits=[
            (
                "graphveil.core.queries.pair_sums:edges_once",
                "first = sources < targets",
                "first = sources != targets",
            )
        ],
        test=[
            "tests/audit/test_query_neighbor_tests.py::test_query_keeps_its_privacy_cost_under_a_unit[pair sums-undirected-edge]",
            "tests/audit/test_query_neighbor_tests.py::test_query_keeps_its_privacy_cost_under_a_unit[pair histogram-undirected-edge]",
        ],
    ),
    dict(
        name="features_of_edges_are_not_clipped",
        edits=[
            (
                "graphveil.core.queries.pair_sums:PairSumQuery.answer",
                "clipped(terms(sources, targets))",
                "terms(sources, targets)",
            )
        ],
        test="tests/audit/test_query_neighbor_tests.py::test_query_keeps_its_privacy_cost_under_a_unit[pair sums-undirected-edge]",
    ),
    dict(
        name="products_of_features_are_added_without_a_bound",
        edits=[
            (
                "graphveil.core.queries.pair_sums:PairSumQuery.each",
                "// 3",
                "// 2",
            )
        ],
        test=[
            "tests/audit/test_query_neighbor_tests.py::test_query_keeps_its_privacy_cost_under_a_unit[pair sums-undirected-edge]",
            "tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[pair sums]",
        ],
    ),
    dict(
        name="clusters_depend_on_edges",
        edits=[
            (
                "graphveil.links.link_method:LinkMethod.fit",
                'rng = session.streams.numpy("clusters")',
                "rng = np.random.default_rng(int(view.adjacency.edge_index().sum()))",
            )
        ],
        test="tests/links/test_replay_links.py::"
        "test_a_differing_edge_moves_each_answer_by_at_most_one_and_nothing_else[undirected-edge-4.0]",
    ),
    dict(
        name="parts_of_different_choices_are_taken_for_the_same",
        edits=[
            (
                "graphveil.core.queries.held_out:HeldOutPairs.charged",
                'f"{PAIR_PARTS}/{self.share!r}/{self.key}"',
                "PAIR_PARTS",
            )
        ],
        test="tests/release/test_pair_sums.py::test_parts_of_different_choices_add_up[other0]",
    ),
    dict(
        name="parts_of_two_releases_are_taken_for_the_same",
        edits=[
            (
                "graphveil.core.release:Release._entry",
                "within_partition(self._plan.event, self.release_id, PAIR_PARTS), ",
                "self._plan.event, ",
            )
        ],
        test="tests/release/test_pair_sums.py::test_parts_of_two_releases_may_contain_one_edge",
    ),
    dict(
        name="held_out_edges_are_charged_to_fitted_pairs",
        edits=[
            (
                "graphveil.core.queries.held_out:HeldOutPairs.charged",
                "(Composed(()), event) if held else (event, Composed(()))",
                "(event, Composed(()))",
            )
        ],
        test="tests/audit/test_query_neighbor_tests.py::test_query_keeps_its_privacy_cost_under_a_unit[pair histogram-undirected-edge]",
    ),
    dict(
        name="pair_sums_have_half_of_the_noise",
        edits=[
            (
                "graphveil.core.queries.pair_sums:PairSumQuery.answer",
                "return self.noisy_table(exact[None], data, key)[0]",
                "return (self.noisy_table(exact[None], data, key)[0] + torch.from_numpy(exact) / self.unit_steps) / 2",
            )
        ],
        test=[
            "tests/release/test_pair_sums.py::test_every_number_has_the_charged_noise",
            "tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[pair sums]",
        ],
    ),
    dict(
        name="pair_features_are_not_exact",
        edits=[
            (
                "graphveil.core.queries.pair_sums:_is_whole",
                "(part == part.trunc()) & ",
                "",
            )
        ],
        test="tests/release/test_pair_sums.py::test_numbers_that_are_not_whole_are_rejected",
        reason="DID NOT RAISE",
    ),
    dict(
        name="a_pair_is_held_out_in_one_direction",
        edits=[
            (
                "graphveil.core.queries.held_out:HeldOutPairs.contains",
                "pair_hash(sources, targets) ^",
                "pair_hash(sources, 2 * targets) ^",
            )
        ],
        test="tests/release/test_pair_sums.py::test_membership_of_a_pair_is_public_and_symmetric",
    ),
    dict(
        name="products_are_charged_half",
        edits=[
            (
                "graphveil.core.query:GaussianQuery.event",
                "self.sensitivity(unit) / min(self.noise)",
                "self.sensitivity(unit) / min(self.noise) / 2",
            )
        ],
        test="tests/links/test_link_predictor.py::test_known_pair_is_found_no_better_than_the_guarantee_allows",
    ),
    dict(
        name="products_have_half_of_the_noise",
        edits=[
            (
                "graphveil.core.queries.pair_sums:EdgeProductQuery._noise",
                "self.dim, self.sigma[0] * self.unit_steps",
                "self.dim, self.sigma[0] * self.unit_steps / 2",
            )
        ],
        test=[
            "tests/attacks/test_link_predictor.py::test_products_reveal_an_edge_up_to_the_bound_and_a_broken_mechanism_more[undirected]",
            "tests/links/test_link_predictor.py::test_canaries_certify_most_of_a_claim_and_no_more[directed-edge-1.0]",
        ],
    ),
    dict(
        name="lists_of_nodes_leave_out_known_edges",
        edits=[
            (
                "graphveil.links.link_predictor:LinkPredictor.prepare",
                "return self.config.prepare(",
                "self._edges = graph; return self.config.prepare(",
            ),
            (
                "graphveil.links.link_predictor:LinkPredictor.top_k",
                "None if exclude is None else _edges_by_source(exclude, count)",
                "_edges_by_source(exclude or self._edges, count)",
            ),
        ],
        test="tests/links/test_link_predictor.py::test_top_k_has_the_highest_scores_and_known_edges",
    ),
    # -- Releases: sensitivity, noise, sums, digests, accounting, resuming
    dict(
        name="rows_are_not_checked_against_their_bound",
        edits=[
            ("graphveil.core.queries.row_sums:truncate_to_grid", "out[some][~fits] = 0", "pass"),
            ("graphveil.core.noise._native:", "fits ? grid[c] : 0.0", "grid[c]"),
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_long_row_counts_for_nothing]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="a_row_may_be_a_ten_thousandth_over_its_bound",
        edits=[
            (
                "graphveil.core.queries.neighbor_sums:grid_table",
                "np.square(bounds)",
                "np.square(1.0001 * bounds)",
            ),
            ("graphveil.core.noise._native:", "<= bound * bound", "<= 1.0002 * bound * bound"),
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_row_one_step_over_its_bound_counts_for_nothing]",
        reason="longer than its bound was received",
        paths=("torch", "compiled"),
    ),
    dict(
        name="rows_are_rounded_to_the_nearest_step_unchecked",
        edits=[
            ("graphveil.core.queries.row_sums:truncate_to_grid", "out[some][~fits] = 0", "pass"),
            ("graphveil.core.noise._native:", "fits ? grid[c] : 0.0", "grid[c]"),
            (
                "graphveil.core.queries.row_sums:truncate_to_grid",
                "np.trunc(grid, out=grid)",
                "np.rint(grid, out=grid)",
            ),
            ("graphveil.core.noise._native:", "grid[c] = trunc(", "grid[c] = rint("),
        ],
        test="tests/contracts/test_checks.py::test_a_release[hops_cost_what_they_are_charged]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="the_cheapest_alternative_is_charged",
        edits=[
            (
                "graphveil.core.accounting.accountant:adaptive_choice",
                "worst[group] = max(worst[group], mu)",
                "worst[group] = min(worst[group] or mu, mu)",
            )
        ],
        test="tests/release/test_alternatives.py::test_the_most_expensive_alternative_is_charged_whatever_is_chosen",
    ),
    dict(
        name="a_choice_among_sampled_steps_is_accepted",
        edits=[
            ("graphveil.core.accounting.accountant:adaptive_choice", "if mu is None:", "if False:"),
            (
                "graphveil.core.accounting.accountant:adaptive_choice",
                "max(worst[group], mu)",
                "max(worst[group], mu or 0.0)",
            ),
        ],
        test="tests/release/test_alternatives.py::test_alternatives_without_a_proof_are_rejected",
        reason="DID NOT RAISE",
    ),
    dict(
        name="a_resumed_release_may_choose_again",
        edits=[
            (
                "graphveil.core.release:Release.choose",
                "torch.tensor([alternative])",
                "torch.tensor([0])",
            )
        ],
        test="tests/release/test_alternatives.py::test_a_resumed_release_rejects_another_choice",
        reason="DID NOT RAISE",
    ),
    dict(
        name="out_degrees_are_not_clipped",
        edits=[
            (
                "graphveil.core.queries.out_edge_sums:OutDegreeSumQuery.answer",
                "np.minimum(out_degrees(private), self.bound)",
                "out_degrees(private)",
            )
        ],
        test="tests/audit/test_query_neighbor_tests.py::test_query_keeps_its_privacy_cost_under_a_unit[out-degrees-node-record]",
    ),
    dict(
        name="auto_chooses_by_the_exact_out_degree",
        edits=[
            (
                "graphveil.estimators.choice:OutDegreeChoice.fit",
                "total = float(release.answer(OutDegreeSumData()))",
                "release.answer(OutDegreeSumData()); total = float(len(view.adjacency._unwrap().indices))",
            )
        ],
        test="tests/estimators/test_replay_records.py::test_a_record_that_flips_the_choice_without_noise_does_not_flip_it_under_one_transcript",
    ),
    dict(
        name="auto_chooses_by_exact_labels_in_place_of_reports",
        edits=[
            (
                "graphveil.auto:EvidenceChoice.fit",
                "likelihood = noisy.likelihood[labeled]",
                "likelihood = torch.eye(view.num_classes)[view.y._unwrap()[labeled]]",
            ),
        ],
        test="tests/estimators/test_auto_local.py::test_nothing_but_reports_and_edges_is_read_after_the_collection",
    ),
    dict(
        name="auto_collects_again_for_its_choice",
        edits=[
            (
                "graphveil.auto:EvidenceChoice.fit",
                "noisy, labeled = self.noisy(view, labels), known(labels)",
                "labels = self.collected(view, session).records.labels; "
                "noisy, labeled = self.noisy(view, labels), known(labels)",
            )
        ],
        test="tests/estimators/test_auto_local.py::test_all_options_are_fitted_to_one_collection[1.0]",
    ),
    dict(
        name="each_averaged_network_collects_features_again",
        edits=[
            (
                "graphveil.auto:AveragedModels.collect",
                "model.predicted(view, collected.reports, session)",
                "model.collect(view, before, session).proba",
            )
        ],
        test="tests/estimators/test_auto_local.py::test_a_graph_that_has_grown_is_predicted_by_all_averaged_methods",
    ),
    dict(
        name="an_undirected_edge_is_charged_for_one_row",
        edits=[
            (
                "graphveil.core.unit:UndirectedEdge.pair_sensitivity",
                "math.hypot(forward, backward)",
                "max(forward, backward)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[hops_cost_what_they_are_charged]",
    ),
    dict(
        name="three_hops_are_charged_as_one",
        edits=[("graphveil.core.accounting.accountant:_worst_pair", "np.sum([table", "np.max([table")],
        test="tests/contracts/test_checks.py::test_a_release[hops_cost_what_they_are_charged]",
    ),
    dict(
        name="the_steered_table_is_completed",
        edits=[
            (
                "graphveil.core.queries.neighbor_sums:grid_table",
                "weights = np.array(query.weights.table) * query.vector_steps",
                "weights = np.where(np.array(query.weights.table) == 0, 1.0, query.weights.table) * query.vector_steps",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[steered_rows_and_counts_cost_what_they_are_charged]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="an_edge_is_counted_in_both_directions",
        edits=[
            (
                "graphveil.core.queries.edge_counts:EdgeCountQuery.answer",
                "np.where(np.eye(classes, dtype=bool), 4, 2)",
                "np.where(np.eye(classes, dtype=bool), 2, 1)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[steered_rows_and_counts_cost_what_they_are_charged]",
    ),
    dict(
        name="counts_are_not_charged",
        edits=[
            (
                "graphveil.core.queries.edge_counts:EdgeCountQuery.event",
                "cost = self.sigma[0] ** -2",
                "cost = 0.0",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[steered_rows_and_counts_cost_what_they_are_charged]",
    ),
    dict(
        name="the_weight_back_is_not_charged",
        edits=[
            (
                "graphveil.core.queries.neighbor_sums:GroupWeights.shifts",
                "unit.pair_sensitivity(self.table[g][h] * by[h], self.table[h][g] * by[g])",
                "unit.pair_sensitivity((self.table[g][h] > 0.5) * self.table[g][h] * by[h], (self.table[h][g] > 0.5) * self.table[h][g] * by[g])",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[few_labels_cost_what_they_are_charged]",
    ),
    dict(
        name="contributions_are_divided_by_the_senders_degree",
        edits=[
            (
                "graphveil.core.queries.neighbor_sums:NeighborSumQuery.answer",
                "vectors, public = data.arrays[0], data.public",
                "vectors, public = data.arrays[0], data.public\n        degrees = torch.bincount(private._adjacency.indices, minlength=len(vectors))\n        vectors = vectors / degrees.clamp_min(1)[:, None]",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[hops_cost_what_they_are_charged]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="isolated_nodes_are_dropped",
        edits=[
            (
                "graphveil.core.release:Release.answer",
                "return answer",
                'if query.kind == "rows":\n                answer = answer[self._private._adjacency.indptr.diff() > 0]\n            return answer',
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[the_path_is_the_same_for_neighbors]",
    ),
    dict(
        name="isolated_nodes_get_no_noise",
        edits=[
            (
                "graphveil.core.queries.row_sums:noise_rows",
                "np.array([kind == law for kind in noise.noise])[own]",
                "np.array([kind == law for kind in noise.noise])[own] & (edges.degrees.numpy() > 0)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[the_path_is_the_same_for_neighbors]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="rows_are_normalized_without_a_margin_to_a_hair_above_one",
        edits=[("graphveil.core.features:", "_MARGIN = 1 + 1e-6", "_MARGIN = 1 - 1e-6")],
        test="tests/contracts/test_checks.py::test_a_release[inputs_are_never_longer_than_one]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="the_next_hop_takes_noisy_rows_as_they_are",
        edits=[
            (
                "graphveil.core.features:shrink_unit",
                "return _rescaled(noisy, math.sqrt(noisy.shape[1]) * std, noisy.dtype)",
                "return noisy.clone()",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[inputs_are_never_longer_than_one]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="sources_have_no_budget",
        edits=[
            (
                "graphveil.core.queries.out_edge_sums:OutEdgeSumQuery.answer",
                "out_neighbor_sums(private, squared[levels.numpy()] if target_weighted else squared)",
                "np.zeros(len(vectors), dtype=np.int64)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[records_cost_what_they_are_charged]",
    ),
    dict(
        name="a_sources_budget_is_divided_by_who_sends_to_it",
        edits=[
            (
                "graphveil.core.queries.out_edge_sums:OutEdgeSumQuery.answer",
                "listed = out_neighbor_sums(private, squared[levels.numpy()] if target_weighted else squared)",
                "graph = private._adjacency\n        into = np.repeat(np.arange(len(vectors)), graph.indptr.diff().numpy())\n        heard = np.broadcast_to(squared[levels.numpy()], len(vectors))[graph.indices.numpy()]\n        listed = np.bincount(into, weights=heard, minlength=len(vectors)).astype(np.int64)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[records_cost_what_they_are_charged]",
    ),
    dict(
        name="a_sources_budget_is_divided_without_the_levels",
        edits=[
            (
                "graphveil.core.queries.out_edge_sums:OutEdgeSumQuery.answer",
                "out_neighbor_sums(private, squared[levels.numpy()] if target_weighted else squared)",
                "out_neighbor_sums(private, np.array([LEVEL]))",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[records_cost_what_they_are_charged]",
    ),
    dict(
        name="every_group_may_send_what_the_largest_may",
        edits=[
            (
                "graphveil.core.queries.out_edge_sums:OutEdgeSumQuery.caps",
                "Fraction(bound)",
                "Fraction(max(self.bounds))",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[records_cost_what_they_are_charged]",
    ),
    dict(
        name="long_vectors_are_pushed_as_they_are",
        edits=[
            (
                "graphveil.core.queries.out_edge_sums:OutEdgeSumQuery.caps",
                "math.floor(LEVEL *",
                "10_000 * math.floor(LEVEL *",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[records_cost_what_they_are_charged]",
    ),
    dict(
        name="a_replaced_record_is_charged_as_a_nulled_one",
        edits=[("graphveil.core.unit:NodeUnit.change", "2.0 if self.replace_one else 1.0", "1.0")],
        test="tests/contracts/test_checks.py::test_a_release[replaced_records_cost_what_they_are_charged]",
    ),
    dict(
        name="codes_are_checked_by_their_norm_alone",
        edits=[
            (
                "graphveil.core.queries.out_edge_sums:OutEdgeCodeSumQuery.squares",
                "gauge = self.dim * -(grid @ simplex_codes(self.dim + 1).numpy().T).min(axis=1)",
                "gauge = np.linalg.norm(grid, axis=1)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[replaced_codes_cost_what_they_are_charged]",
    ),
    dict(
        name="replaced_codes_are_charged_as_if_they_were_orthogonal",
        edits=[
            (
                "graphveil.core.queries.out_edge_sums:replaced_change",
                "2 * classes / (classes - 1)",
                "2.0",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[replaced_codes_cost_what_they_are_charged]",
    ),
    dict(
        name="short_lists_are_weighed_up",
        edits=[
            (
                "graphveil.core.queries.out_edge_sums:out_edge_table",
                "np.maximum(listed, LEVEL * query.out_degree_bound)",
                "np.maximum(listed, LEVEL)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_mutual_edge_moves_out_edge_sums_by_what_is_stated]",
    ),
    dict(
        name="a_promised_node_is_charged_for_one_row",
        edits=[
            (
                "graphveil.core.unit:NodeBoundedDegree.pair_sensitivity",
                "self.change * math.sqrt(self.max_degree) * max(forward, backward)",
                "max(forward, backward)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[nodes_of_bounded_degree_cost_what_they_are_charged]",
    ),
    dict(
        name="only_degrees_of_one_direction_are_promised",
        edits=[
            (
                "graphveil.core.queries.out_edge_sums:exceeds_degree",
                "np.maximum(sent, received)",
                "received",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_violated_assumption_is_rejected]",
    ),
    dict(
        name="all_candidates_of_a_tally_are_charged_as_one",
        edits=[
            (
                "graphveil.core.queries.record_counts:AccuracyCountQuery.sensitivity",
                "math.sqrt(self.candidates)",
                "1.0",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[tallies_cost_what_they_are_charged]",
    ),
    dict(
        name="a_record_that_changes_its_cell_is_charged_once",
        edits=[
            (
                "graphveil.core.queries.record_counts:RecordHistogramQuery.sensitivity",
                "math.sqrt(require_record_unit(unit).change)",
                "1.0",
            )
        ],
        test=[
            "tests/contracts/test_checks.py::test_a_release[histograms_cost_what_they_are_charged]",
            "tests/release/test_record_histograms.py::test_a_nulled_record_moves_one_count_and_a_replaced_one_two",
        ],
    ),
    dict(
        name="the_cells_of_a_histogram_get_half_of_the_noise",
        edits=[
            (
                "graphveil.core.queries.record_counts:RecordHistogramQuery.answer",
                "self.noisy_counts(exact, data, key)",
                "(self.noisy_counts(exact, data, key) + torch.from_numpy(exact)) / 2",
            )
        ],
        test="tests/release/test_record_histograms.py::test_every_count_has_the_charged_noise[0]",
    ),
    dict(
        name="released_metrics_follow_from_exact_cells",
        edits=[
            (
                "graphveil.estimators.private_training:release_histogram",
                "return release.answer(RecordHistogramData(cells)).reshape(classes, query.cells // classes)",
                "return torch.bincount(cells[cells >= 0], minlength=query.cells).double().reshape(classes, -1) + 0 * release.answer(RecordHistogramData(cells)).reshape(classes, query.cells // classes)",
            )
        ],
        test="tests/estimators/training/test_private_metrics.py::test_methods_release_metrics_within_their_budget[model0]",
        reason="protects node records",
    ),
    dict(
        name="a_record_that_goes_from_wrong_to_right_is_charged_once",
        edits=[
            (
                "graphveil.core.queries.record_counts:OutcomeCountQuery.sensitivity",
                "math.sqrt(require_record_unit(unit).change)",
                "1.0",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[outcomes_cost_what_they_are_charged]",
    ),
    dict(
        name="heavy_rows_get_the_noise_of_all",
        edits=[
            (
                "graphveil.core.queries.out_edge_sums:OutEdgeSumQuery.answer",
                "public.sampler(self.sigma * self.unit_steps / g)",
                "public.sampler(self.sigma * self.unit_steps)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_out_edge_sum_has_its_noise]",
    ),
    dict(
        name="rows_of_no_weight_are_released",
        edits=[
            (
                "graphveil.core.queries.out_edge_sums:OutEdgeSumQuery.answer",
                "tuple(g / self.unit_steps for g in self.weights)",
                "(max(self.weights) / self.unit_steps,) * len(self.weights)",
            ),
            (
                "graphveil.core.queries.row_sums:RowNoise.scale",
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
                "graphveil.core.queries.row_sums:RowNoise.scale",
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
                "graphveil.core.query:GaussianQuery.noisy_counts",
                "self.noisy_table(exact[:, None] * int(self.unit_steps), data, key)[:, 0]",
                "torch.from_numpy(exact * 1.0)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_count_of_a_tally_has_noise]",
    ),
    dict(
        name="a_push_is_not_bound_to_its_levels",
        edits=[
            (
                "graphveil.core.release:Release.answer",
                "self._path[self._position], prepared.arrays",
                "self._path[self._position], prepared.arrays[:1]",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[out_edge_sums_share_no_noise_under_one_key]",
    ),
    dict(
        name="training_noise_is_a_function_of_the_key_alone",
        edits=[
            (
                "graphveil.core.release:Release.answer",
                "self._path[self._position], prepared.arrays",
                "self._path[self._position], (torch.zeros(1),)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[training_noise_is_bound_to_its_data]",
    ),
    dict(
        name="all_training_steps_of_a_release_share_their_noise",
        edits=[
            (
                "graphveil.core.release:Release.answer",
                "self._descriptor(index, arrays)",
                "self._descriptor(0, arrays)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[training_noise_is_bound_to_its_data]",
    ),
    dict(
        name="pushed_vectors_stay_off_the_grid",
        edits=[("graphveil.core.queries.row_sums:truncate_to_grid", "np.trunc(grid, out=grid)", "pass")],
        test="tests/contracts/test_checks.py::test_a_release[out_edge_sums_depend_on_nothing_but_the_edges]",
    ),
    dict(
        name="noise_is_zero",
        edits=[
            (
                "graphveil.core.noise.discrete_gaussian:DiscreteGaussian.draw",
                "return exact_samples(stream, rows, dim, self._numerator)",
                "drawn = exact_samples(stream, rows, dim, self._numerator)\n        return np.zeros_like(drawn)",
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
                "graphveil.core.noise.discrete_gaussian:DiscreteGaussian.draw",
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
                "graphveil.core.noise.discrete_gaussian:DiscreteGaussian.draw",
                "return exact_samples(stream, rows, dim, self._numerator)",
                "drawn = exact_samples(stream, rows, dim, self._numerator)\n        drawn[1::2] = 0\n        return drawn",
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_row_has_its_groups_noise]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="noise_leaves_out_the_last_column",
        edits=[
            (
                "graphveil.core.noise.discrete_gaussian:DiscreteGaussian.draw",
                "return exact_samples(stream, rows, dim, self._numerator)",
                "drawn = exact_samples(stream, rows, dim, self._numerator)\n        drawn[:, -1] = 0\n        return drawn",
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
                "graphveil.core.queries.neighbor_sums:NeighborSumQuery.answer",
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
                "graphveil.core.noise.discrete_gaussian:DiscreteGaussian.draw",
                "return exact_samples(stream, rows, dim, self._numerator)",
                "drawn = exact_samples(stream, rows, dim, self._numerator)\n        return np.clip(drawn, -round(3 * self.sigma), round(3 * self.sigma)).astype(drawn.dtype)",
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
                "graphveil.core.noise.discrete_gaussian:DiscreteGaussian.draw",
                "return exact_samples(stream, rows, dim, self._numerator)",
                "drawn = exact_samples(stream, rows, dim, self._numerator)\n        return np.rint(self.sigma * 1.7320508 * np.tanh(drawn / self.sigma)).astype(drawn.dtype)",
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
                "graphveil.core.backends:InMemoryBackend",
                "block_rows: int = 1 << 21",
                "block_rows: int = 1000",
            ),
            (
                "graphveil.core.queries.row_sums:noise_rows",
                "rows, own = np.arange(edges.start, edges.stop), noise.of(edges)",
                "rows, own = np.arange(len(edges)), noise.of(edges)",
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_row_has_its_groups_noise]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="neighboring_rows_share_words",
        edits=[
            (
                "graphveil.core.noise.random:_counters",
                'counters["row"], counters["offset"] = rows, offsets',
                'counters["row"], counters["offset"] = 0, rows | offsets',
            ),
            (
                "graphveil.core.noise.random:RowStream.words",
                "_run(rows, blocks) if _is_run(rows) else _counters(rows[:, None], offsets)",
                "_counters(rows[:, None], offsets)",
            ),
            ("graphveil.core.noise._native:", "(uint64_t)rows[i] << 32 |", "(uint64_t)rows[i] |"),
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
                "graphveil.core.queries.row_sums:NoisyRows._fill",
                "piece.offsets, piece.sources, ",
                "piece.offsets, piece.sources.roll(1), ",
            ),
            (
                "graphveil.core.queries.row_sums:exact_sum",
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
                "graphveil.core.backends:InMemoryBackend",
                "block_rows: int = 1 << 21",
                "block_rows: int = 1000",
            ),
            (
                "graphveil.core.queries.row_sums:noise_rows",
                "rows, own = np.arange(edges.start, edges.stop), noise.of(edges)",
                "rows, own = np.arange(len(edges)), noise.of(edges)",
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_row_of_a_plain_hop_has_its_noise]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="compiled_sums_draw_four_percent_less_noise",
        edits=[
            (
                "graphveil.core.noise.discrete_gaussian:DiscreteGaussian.draw",
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
            ("graphveil.core.noise._native:", "(sum[c] + s->noise[place + c])", "sum[c]"),
            (
                "graphveil.core.queries.row_sums:NoisyRows._fill",
                "drawn.to(self.noise.real).add_(total)",
                "total.to(self.noise.real)",
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
                "graphveil.core.noise._kernels:truncate_rows",
                "vectors = vectors.to(",
                "vectors = (0.99 * vectors).to(",
            ),
            (
                "graphveil.core.queries.row_sums:truncate_to_grid",
                "np.multiply(exact, factors[some, None], out=grid)",
                "np.multiply(0.99 * exact, factors[some, None], out=grid)",
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_long_row_counts_for_nothing]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="weighted_hops_have_four_percent_less_noise",
        edits=[
            (
                "graphveil.core.queries.neighbor_sums:NeighborSumQuery.answer",
                "public.sampler(sigma * self.unit_steps)",
                "public.sampler((sigma if pairs is None else 0.96 * sigma) * self.unit_steps)",
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
                "graphveil.core.queries.neighbor_sums:NeighborSumQuery.answer",
                "public.sampler(sigma * self.unit_steps)",
                "public.sampler(sigma * self.unit_steps * (1.0 if self.similarity is None else self.similarity.bound))",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_weighted_row_has_its_noise]",
        reason="distribution is not",
        paths=("torch", "compiled"),
    ),
    dict(
        name="counts_have_four_percent_less_noise",
        edits=[
            (
                "graphveil.core.query:GaussianQuery.noisy_table",
                "sampler(self.noise[0]",
                "sampler(0.96 * self.noise[0]",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_cell_has_noise]",
        reason="variance",
    ),
    dict(
        name="all_cells_share_one_noise",
        edits=[
            (
                "graphveil.core.query:GaussianQuery.noisy_table",
                "np.arange(len(exact))",
                "np.zeros(len(exact), dtype=np.int64)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_cell_has_noise]",
    ),
    dict(
        name="counts_between_classes_go_without_noise",
        edits=[
            (
                "graphveil.core.queries.edge_counts:EdgeCountQuery.answer",
                "return noisy",
                "return torch.where(torch.eye(classes, dtype=torch.bool), noisy, torch.from_numpy(counts))",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[every_cell_has_noise]",
    ),
    dict(
        name="every_hop_reuses_the_first_hops_noise",
        edits=[
            (
                "graphveil.core.release:Release.answer",
                "self._descriptor(index, arrays)",
                "self._descriptor(0, arrays)",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[hops_share_no_noise]",
    ),
    dict(
        name="every_release_has_the_same_key",
        edits=[
            (
                "graphveil.core.keys:ReleaseKey.fresh",
                "secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES)",
                "bytes(KEY_BYTES), bytes(range(KEY_BYTES))",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[releases_share_no_noise]",
    ),
    dict(
        name="a_descriptor_leaves_out_the_data",
        edits=[("graphveil.core.release:Release._digest", "self._key.digest(*arrays)", '""')],
        test="tests/contracts/test_checks.py::test_a_release[neighbors_share_no_noise_under_one_key]",
    ),
    dict(
        name="a_descriptor_leaves_out_the_edges",
        edits=[
            (
                "graphveil.core.release:Release.open",
                "private.digest(release._key.master)",
                '""',
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[neighbors_share_no_noise_under_one_key]",
    ),
    dict(
        name="contributions_stay_off_the_grid",
        edits=[
            (
                "graphveil.core.queries.neighbor_sums:NeighborSumQuery.answer",
                "compact = pairs is None and can_compact(self.dim, self.grid_bits)",
                "compact = False",
            ),
            ("graphveil.core.queries.row_sums:truncate_to_grid", "out[some][~fits] = 0", "pass"),
            ("graphveil.core.queries.row_sums:truncate_to_grid", "np.trunc(grid, out=grid)", "pass"),
        ],
        test="tests/contracts/test_checks.py::test_a_release[sums_depend_on_nothing_but_the_edges]",
    ),
    dict(
        name="long_rows_are_summed_in_float32",
        edits=[
            (
                "graphveil.core.queries.neighbor_sums:NeighborSumQuery.answer",
                "compact = pairs is None and can_compact(self.dim, self.grid_bits)",
                "compact = False",
            ),
            (
                "graphveil.core.queries.neighbor_sums:NeighborSumQuery.answer",
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
                "graphveil.core.keys:ReleaseKey.digest",
                "keyed_digest(self.master, *arrays)",
                "keyed_digest(self.master, *arrays)[:4]",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_digest_distinguishes_256_bits]",
        reason="have one digest",
    ),
    dict(
        name="a_digest_of_edges_reads_where_rows_begin_alone",
        edits=[
            (
                "graphveil.core.private_edges:PrivateEdges.digest",
                "*self._adjacency.arrays",
                "self._adjacency.indptr[:3]",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_digest_distinguishes_256_bits]",
    ),
    dict(
        name="a_journal_compares_two_bytes_of_a_digest",
        edits=[
            (
                "graphveil.core.journal:_same",
                "if known != descriptor:",
                "if [\n        {name: part[:4] if isinstance(part, str) else part for name, part in json.loads(one).items()}\n        for one in (known,)\n    ] != [\n        {name: part[:4] if isinstance(part, str) else part for name, part in json.loads(one).items()}\n        for one in (descriptor,)\n    ]:",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_journal_rejects_a_descriptor_that_is_one_character_off]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="data_are_recognized_by_two_bytes_of_their_fingerprint",
        edits=[
            (
                "graphveil.core.journal:FolderJournal.check_fingerprint",
                "hmac.compare_digest(str(known), computed)",
                "hmac.compare_digest(str(known)[:2], computed[:2])",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_journal_recognizes_data_by_every_character_of_their_fingerprint]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="a_graph_is_known_by_two_bytes_of_its_tag",
        edits=[
            (
                "graphveil.data.fingerprint:GraphFingerprint.matches",
                "hmac.compare_digest(self.tag, _tag(self.key, graph))",
                "hmac.compare_digest(self.tag[:2], _tag(self.key, graph)[:2])",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_known_graph_is_identified_by_every_byte_of_its_tag]",
        reason="a part of the tag",
    ),
    dict(
        name="data_are_known_by_two_bytes_of_their_digest",
        edits=[
            (
                "graphveil.runs.run_folder:check_data",
                "hmac.compare_digest(key.digest(*graph_arrays(graph)), digest)",
                "hmac.compare_digest(key.digest(*graph_arrays(graph))[:2], digest[:2])",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_folder_knows_its_data_by_every_byte_of_their_digest]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="calibration_rounds_mu_up",
        edits=[
            (
                "graphveil.core.plan:calibrate_plan",
                "if not plan.epsilon <= epsilon * (1 + 1e-12):",
                "if False:",
            ),
            (
                "graphveil.core.accounting.gaussian:calibrate_mu",
                "return mu_of(epsilon, delta - slack)",
                "return mu_of(epsilon, delta - slack) * 1.001",
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[calibrated_plans_cost_at_most_their_target]",
    ),
    dict(
        name="calibration_forgets_the_slack",
        edits=[
            (
                "graphveil.core.plan:calibrate_plan",
                "if not plan.epsilon <= epsilon * (1 + 1e-12):",
                "if False:",
            ),
            ("graphveil.core.accounting.gaussian:calibrate_mu", "delta - slack)", "delta)"),
        ],
        test="tests/contracts/test_checks.py::test_a_release[calibrated_plans_cost_at_most_their_target]",
    ),
    dict(
        name="five_hops_get_the_noise_of_one",
        edits=[
            ("graphveil.core.plan:hops", "math.sqrt(count) * ", ""),
            ("graphveil.core.accounting.accountant:_worst_pair", "np.sum([table", "np.max([table"),
        ],
        test="tests/contracts/test_checks.py::test_a_release[calibrated_plans_cost_at_most_their_target]",
    ),
    dict(
        name="a_release_is_booked_after_it_is_computed",
        edits=[
            (
                "graphveil.core.release:Release.open",
                "charge(budget, entry, begin=lambda: memory.begin(release._key, commitment))",
                "memory.begin(release._key, commitment)\n            release._late = budget, entry",
            ),
            (
                "graphveil.core.release:Release.answer",
                "            return answer",
                '            if "_late" in vars(self):\n                ledger, entry = vars(self).pop("_late")\n                ledger.record(entry)\n            return answer',
            ),
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_release_is_charged_before_it_is_computed]",
    ),
    dict(
        name="one_hop_of_three_is_booked",
        edits=[
            (
                "graphveil.core.release:Release._entry",
                "within_partition(self._plan.event,",
                "within_partition(self._plan.queries[0].event(self._plan.unit),",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_release_is_charged_before_it_is_computed]",
    ),
    dict(
        name="a_rejection_is_ignored",
        edits=[
            (
                "graphveil.core.ledger:MemoryLedger.check",
                "if not after <= self._epsilon:",
                "if False:",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_rejected_release_computes_nothing]",
    ),
    dict(
        name="two_splits_share_a_partition",
        edits=[
            (
                "graphveil.core.release:Release._entry",
                "event = within_partition(event, hashlib.sha256(groups.numpy().tobytes()).hexdigest()[:16])",
                "pass",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[two_splits_add_up]",
    ),
    dict(
        name="a_resume_compares_nothing",
        edits=[("graphveil.core.journal:_same", "if known != descriptor:", "if False:")],
        test="tests/contracts/test_checks.py::test_a_release[a_resume_finishes_the_same_release_only]",
    ),
    dict(
        name="a_resume_forgets_the_later_hops",
        edits=[
            (
                "graphveil.core.release:_public_commitment",
                "for query in plan.queries]",
                "for query in plan.queries[:1]]",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_resume_finishes_the_same_release_only]",
    ),
    dict(
        name="a_resume_draws_afresh",
        edits=[("graphveil.core.journal:FolderJournal.resume", "if not self._path.exists():", "if True:")],
        test="tests/contracts/test_checks.py::test_a_release[a_resume_finishes_the_same_release_only]",
    ),
    dict(
        name="a_published_release_keeps_its_key",
        edits=[
            (
                "graphveil.core.keys:KeyStore.erase",
                "self._path(release_id).unlink(missing_ok=True)",
                "return",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_closed_release_forgets_its_key]",
    ),
    dict(
        name="a_finished_release_recognizes_nothing",
        edits=[
            (
                "graphveil.core.journal:FolderJournal.check_fingerprint",
                "record = self._read()",
                "return\n        record = self._read()",
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_finished_release_answers_its_own_data_only]",
    ),
    dict(
        name="a_finished_release_recognizes_its_edges_alone",
        edits=[
            (
                "graphveil.core.journal:FolderJournal.check_fingerprint",
                "record = self._read()",
                'if name != "edges":\n            return\n        record = self._read()',
            )
        ],
        test="tests/contracts/test_checks.py::test_a_release[a_finished_release_answers_its_own_data_only]",
    ),
    dict(
        name="a_resume_forgets_the_seed",
        edits=[("graphveil.core.journal:FolderJournal.resume", 'bool(record["reproducible"])', "False")],
        test="tests/contracts/test_checks.py::test_a_release[a_seeded_release_is_marked_after_a_resume]",
    ),
    # -- Weights of pairs
    dict(
        name="a_weight_that_reaches_more_than_one_is_booked_with_one",
        edits=[
            (
                "graphveil.release.weights:DotWeight.bound",
                "return float(self.values.max())",
                "return 1.0",
            ),
            (
                "graphveil.release.weights:quantize_weights",
                "if not (levels <= FULL).all():",
                "if False:",
            ),
            (
                "graphveil.core.queries.weights:DotProductWeights.is_valid",
                " and is_weight_table(self.levels, (CELLS,))",
                "",
            ),
        ],
        test="tests/contracts/test_pairs.py::test_the_shipped_weights_pass[a_user_cannot_misstate_a_bound]",
    ),
    dict(
        name="the_bound_is_the_largest_weight_of_an_edge_that_is_there",
        edits=[
            (
                "graphveil.core.queries.weights:DotProductWeights.of",
                "return self.levels.index_select(0, place.to(torch.int32))",
                "weight = self.levels.index_select(0, place.to(torch.int32))\n        return (weight / weight.max() * FULL).round()",
            )
        ],
        test="tests/contracts/test_pairs.py::test_the_shipped_weights_pass[one_edge_changes_no_other_edges_contribution]",
        paths=("torch",),
    ),
    dict(
        name="asymmetric_weights_are_charged_once",
        edits=[
            (
                "graphveil.core.unit:UndirectedEdge.pair_sensitivity",
                "math.hypot(forward, backward)",
                "max(forward, backward)",
            )
        ],
        test="tests/contracts/test_pairs.py::test_the_shipped_weights_pass[weights_that_differ_by_direction_are_charged_for_both]",
    ),
    dict(
        name="weights_are_divided_by_the_degree",
        edits=[
            (
                "graphveil.core.queries.weights:DotProductWeights.of",
                "return self.levels.index_select(0, place.to(torch.int32))",
                "weight = self.levels.index_select(0, place.to(torch.int32))\n        return (weight / edges.degrees.repeat_interleave(edges.degrees)).round()",
            )
        ],
        test="tests/contracts/test_pairs.py::test_the_shipped_weights_pass[one_edge_changes_no_other_edges_contribution]",
        paths=("torch",),
    ),
    dict(
        name="keys_are_exact_sums_over_neighbors",
        edits=[
            (
                "graphveil.core.release:Release.answer",
                "prepared = query.prepare(unwrapped_fields(data), self._public)",
                'if type(getattr(query, "similarity", None)).__name__ == "SigmoidCos":\n                graph, keys = self._private._adjacency, data.keys\n                into = torch.arange(len(keys)).repeat_interleave(graph.indptr.diff())\n                exact = torch.zeros_like(keys).index_add_(0, into, keys[graph.indices.long()])\n                data = type(data)(data.vectors, keys + exact)\n            prepared = query.prepare(data, self._public)',
            )
        ],
        test="tests/contracts/test_pairs.py::test_the_shipped_weights_pass[every_weight_costs_what_it_is_charged]",
    ),
    dict(
        name="weights_are_a_softmax_over_the_neighbors",
        edits=[
            (
                "graphveil.core.queries.weights:DotProductWeights.of",
                "return self.levels.index_select(0, place.to(torch.int32))",
                "weight = self.levels.index_select(0, place.to(torch.int32))\n        row = torch.arange(len(edges)).repeat_interleave(edges.degrees)\n        total = torch.zeros(len(edges)).index_add_(0, row, weight)\n        return (FULL * weight / total[row].clamp_min(1)).round()",
            )
        ],
        test="tests/contracts/test_pairs.py::test_the_shipped_weights_pass[every_weight_costs_what_it_is_charged]",
        paths=("torch",),
    ),
    dict(
        name="weights_depend_on_the_place_in_a_block",
        edits=[
            (
                "graphveil.core.queries.weights:DotProductWeights.of",
                "return self.levels.index_select(0, place.to(torch.int32))",
                "weight = self.levels.index_select(0, place.to(torch.int32))\n        return (weight - torch.arange(len(weight)) % 2).clamp_min(0)",
            )
        ],
        test="tests/contracts/test_pairs.py::test_the_shipped_weights_pass[sums_depend_on_nothing_but_the_edges]",
        paths=("torch",),
    ),
    dict(
        name="weights_stay_off_the_grid",
        edits=[
            (
                "graphveil.core.queries.weights:DotProductWeights.of",
                "return self.levels.index_select(0, place.to(torch.int32))",
                "weight = self.levels.index_select(0, place.to(torch.int32))\n        return weight * 0.987",
            )
        ],
        test="tests/contracts/test_pairs.py::test_the_shipped_weights_pass[sums_depend_on_nothing_but_the_edges]",
        paths=("torch",),
    ),
    dict(
        name="a_hop_is_not_bound_to_its_keys",
        edits=[
            (
                "graphveil.core.release:Release.answer",
                "self._path[self._position], prepared.arrays",
                "self._path[self._position], prepared.arrays[:1]",
            )
        ],
        test="tests/contracts/test_pairs.py::test_the_shipped_weights_pass[keys_are_bound_to_the_noise]",
    ),
    dict(
        name="weighted_long_rows_are_summed_in_float32",
        edits=[
            (
                "graphveil.core.queries.neighbor_sums:NeighborSumQuery.answer",
                "FLOAT32_EXACT >> self.contribution_bits",
                "(1 << 40) >> self.contribution_bits",
            )
        ],
        test="tests/contracts/test_pairs.py::test_the_shipped_weights_pass[a_hub_is_summed_exactly]",
        paths=("torch",),
    ),
    dict(
        name="weights_are_those_of_the_next_edge",
        edits=[
            (
                "graphveil.core.queries.weights:DotProductWeights.of",
                "return self.levels.index_select(0, place.to(torch.int32))",
                "weight = self.levels.index_select(0, place.to(torch.int32))\n        return weight.roll(1)",
            )
        ],
        test="tests/contracts/test_pairs.py::test_the_shipped_weights_pass[one_edge_changes_no_other_edges_contribution]",
        paths=("torch",),
    ),
    dict(
        name="a_weighted_sum_is_divided_by_the_degree",
        edits=[
            (
                "graphveil.core.queries.row_sums:exact_sum",
                "return parts",
                "return parts.div(degrees.clamp_min(1)[:, None], rounding_mode='floor')",
            )
        ],
        test="tests/contracts/test_pairs.py::test_the_shipped_weights_pass[one_edge_changes_no_other_edges_contribution]",
    ),
    dict(
        name="a_weighted_sum_takes_the_next_edge",
        edits=[
            (
                "graphveil.core.queries.row_sums:exact_sum",
                "    parts = embedding_bag(\n        sources,",
                "    parts = embedding_bag(\n        sources.roll(1),",
            )
        ],
        test="tests/contracts/test_pairs.py::test_the_shipped_weights_pass[sums_depend_on_nothing_but_the_edges]",
    ),
    # -- Training on edges, randomized response, discrete Laplace noise, graph mechanisms
    dict(
        name="half_the_change",
        edits=[
            (
                "graphveil.core.queries.edge_training:EdgeAttentionQuery.sensitivity",
                "2 * self.clip *",
                "self.clip *",
            )
        ],
        test="tests/release/test_edge_training.py::test_two_clips_are_declared_and_attained",
    ),
    dict(
        name="the_wrong_relation",
        edits=[
            ("graphveil.core.queries.edge_training:EdgeAttentionQuery.event", '"replace"', '"add_remove"')
        ],
        test="tests/release/test_edge_training.py::test_two_clips_are_declared_and_attained",
    ),
    dict(
        name="no_clipping",
        edits=[("graphveil.core.queries.edge_training:EdgeGradients.add_shown", "(clip / (", "(1e6 / (")],
        test="tests/release/test_edge_training.py::test_one_edge_moves_one_target_by_two_clips[directed]",
    ),
    dict(
        name="both_directions",
        edits=[
            (
                "graphveil.core.queries.edge_training:_in_edges",
                "used = counts_at_target(sources, nodes.numpy()[places], learns)",
                "used = np.ones(len(sources), dtype=bool)",
            )
        ],
        test="tests/release/test_edge_training.py::test_one_edge_moves_one_target_by_two_clips[undirected]",
    ),
    dict(
        name="towards_many_friends",
        edits=[
            (
                "graphveil.core.queries.edge_training:_in_edges",
                "used = counts_at_target(sources, nodes.numpy()[places], learns)",
                "degrees = examples.private._adjacency.indptr.diff().numpy()\n        targets = nodes.numpy()[places]\n        here, there = degrees[targets], degrees[sources]\n        used = (here > there) | ((here == there) & (targets > sources))",
            )
        ],
        test="tests/release/test_edge_training.py::test_one_edge_moves_one_target_by_two_clips[undirected]",
    ),
    dict(
        name="no_noise",
        edits=[
            (
                "graphveil.core.queries.training_steps:OneProcessNoise.noise",
                "super().noise(step)",
                "0 * super().noise(step)",
            )
        ],
        test="tests/release/test_edge_training.py::test_every_step_has_its_own_noise",
    ),
    dict(
        name="the_same_noise_in_every_step",
        edits=[
            (
                "graphveil.core.queries.training_steps:OneProcessNoise.noise",
                "super().noise(step)",
                "super().noise(0)",
            )
        ],
        test="tests/release/test_edge_training.py::test_every_step_has_its_own_noise",
    ),
    dict(
        name="probabilities_are_rounded_the_other_way",
        edits=[
            (
                "graphveil.core.noise.node_pair_noise:EdgeRandomizedResponse.keep",
                "ROUND_FLOOR",
                "ROUND_CEILING",
            )
        ],
        test="tests/mechanisms/test_edge_response.py::test_no_answer_loses_more_than_epsilon[20.0-1.0]",
    ),
    dict(
        name="added_edges_are_five_percent_rarer",
        edits=[
            (
                "graphveil.core.noise.node_pair_noise:EdgeRandomizedResponse.draw",
                "bernoulli_positions(stream, self.add, start, stop)",
                "bernoulli_positions(stream, int(0.95 * self.add), start, stop)",
            )
        ],
        test="tests/mechanisms/test_edge_response.py::test_every_graph_is_drawn_as_often_as_by_enumeration[1.0-1.0]",
    ),
    dict(
        name="no_edge_is_dropped",
        edits=[
            (
                "graphveil.core.noise.node_pair_noise:EdgeRandomizedResponse.keep",
                "return max(0, int(exact.to_integral_value(ROUND_FLOOR)))",
                "return TOTAL - 1",
            )
        ],
        test="tests/mechanisms/test_edge_response.py::test_no_answer_loses_more_than_epsilon[1.0-1.0]",
    ),
    dict(
        name="an_edge_shifts_the_noise_of_others",
        edits=[
            (
                "graphveil.core.noise.node_pair_noise:EdgeRandomizedResponse.draw",
                "stream.blocks(edges, np.array(_KEEP))",
                "stream.blocks(np.arange(len(edges)), np.array(_KEEP))",
            )
        ],
        test="tests/mechanisms/test_edge_response.py::test_one_edge_changes_its_own_node_pair_only",
    ),
    dict(
        name="a_friendship_is_flipped_in_both_of_its_rows",
        edits=[
            (
                "graphveil.core.edges.node_pairs:Domain.between",
                "return self.slots.number(source, target.astype(np.int64))",
                "own = self.slots.number(source, target.astype(np.int64))\n            return np.unique(np.concatenate([own, (own + 1) % self.slots.total]))",
            ),
            (
                "graphveil.core.edges.node_pairs:Domain.pairs_in_block",
                "return own, self.slots.start(first), self.slots.start(last)",
                "return own, 0, self.slots.total",
            ),
        ],
        test="tests/release/test_edge_response.py::test_one_edge_changes_at_most_one_node_pair[undirected]",
    ),
    dict(
        name="noise_of_counts_is_a_fifth_too_small",
        edits=[
            (
                "graphveil.core.noise.discrete_laplace:DiscreteLaplace.draw",
                "table = _boundaries(self.epsilon)",
                "table = _boundaries(1.25 * self.epsilon)",
            ),
            (
                "graphveil.core.noise.discrete_laplace:DiscreteLaplace._inverse",
                "Decimal(self.epsilon)",
                "Decimal(1.25 * self.epsilon)",
            ),
        ],
        test="tests/mechanisms/test_discrete_laplace.py::test_values_have_the_law[0.1]",
    ),
    dict(
        name="words_in_the_tail_are_cut_off",
        edits=[
            ("graphveil.core.noise.discrete_laplace:", "_REACH = 43", "_REACH = 2"),
            (
                "graphveil.core.noise.discrete_laplace:DiscreteLaplace.value_of",
                "bits, drawn = word, 1",
                "return 0\n        bits, drawn = word, 1",
            ),
        ],
        test="tests/mechanisms/test_discrete_laplace.py::test_values_have_the_law[0.5]",
    ),
    dict(
        name="the_noise_of_cells_is_a_fifth_too_small",
        edits=[
            (
                "graphveil.core.noise.node_pair_noise:NoisyCells._levels",
                "scaled = self.epsilon *",
                "scaled = 1.25 * self.epsilon *",
            ),
            (
                "graphveil.core.noise.node_pair_noise:NoisyCells._levels",
                "-np.expm1(-self.epsilon *",
                "-np.expm1(-1.25 * self.epsilon *",
            ),
        ],
        test="tests/mechanisms/test_noisy_cells.py::test_no_level_has_a_larger_loss_than_epsilon[1.0-1000-20]",
    ),
    dict(
        name="the_second_tier_forgets_the_first",
        edits=[
            (
                "graphveil.core.noise.node_pair_noise:NoisyCells.zeros",
                "[count * TOTAL // (TOTAL - first.total) for count",
                "[count for count",
            )
        ],
        test="tests/mechanisms/test_noisy_cells.py::test_two_tiers_have_the_law_of_one[4.0-3000-50]",
    ),
    dict(
        name="ties_go_to_the_first_cell",
        edits=[
            (
                "graphveil.core.noise.node_pair_noise:NoisyCells.draw",
                'return np.sort(np.concatenate([of_zeros, of_ones]), kind="stable")',
                'return np.sort(np.concatenate([of_zeros, of_ones]), kind="stable") | 127',
            )
        ],
        test="tests/mechanisms/test_noisy_cells.py::test_every_set_is_as_likely_as_by_enumeration[2.0-NoisyCells]",
    ),
    dict(
        name="the_number_of_edges_is_released_as_it_is",
        edits=[
            ("graphveil.core.noise.discrete_laplace:DiscreteLaplace.draw", "return drawn", "return 0 * drawn")
        ],
        test="tests/perturb/test_mechanisms.py::test_the_number_of_edges_has_its_noise",
    ),
    dict(
        name="edges_are_counted_for_nothing",
        edits=[
            (
                "graphveil.perturb.mechanism:ARR.queries",
                "EdgeResponseQuery(self.epsilon - first)",
                "EdgeResponseQuery(self.epsilon)",
            )
        ],
        test="tests/perturb/test_budgets.py::test_the_privacy_loss_of_arr_is_at_most_epsilon[1.0-5]",
    ),
    dict(
        name="an_edge_is_counted_in_every_block_above_it",
        edits=[
            (
                "graphveil.core.queries.dendrogram:DendrogramBlocks.counts",
                "return np.bincount(\n            self.owner[self.tree.lowest_common_ancestors(one, other)], minlength=len(self.node)\n        )",
                "found = np.bincount(self.owner[self.tree.lowest_common_ancestors(one, other)], minlength=len(self.node))\n        found[0] = len(one)\n        return found",
            )
        ],
        test="tests/perturb/test_edge_rr.py::test_one_private_edge_changes_one_count[100.0]",
    ),
    dict(
        name="a_network_is_trained_on_true_edges",
        edits=[
            (
                "graphveil.estimators.full_graph:GraphReleaseMethod.released",
                'return {"graph": slots}, view.replace(adjacency=adjacency, public=None)',
                'return {"graph": slots}, view',
            )
        ],
        test="tests/estimators/test_released_graph.py::test_predictions_depend_on_the_released_graph_only",
        reason="ProtectedDataError",
    ),
    dict(
        name="lists_are_read_from_true_edges",
        edits=[
            (
                "graphveil.estimators.full_graph:GraphReleaseMethod.released",
                'return {"graph": slots}, view.replace(adjacency=adjacency, public=None)',
                'return {"graph": slots}, view',
            )
        ],
        test="tests/estimators/spectral/test_spectral.py::test_predictions_depend_on_the_released_graph_only",
        reason="ProtectedDataError",
    ),
    dict(
        name="scores_are_half_of_what_they_are",
        edits=[
            (
                "graphveil.core.queries.dendrogram:walk",
                "public_y = score(pairs_new, public_new)",
                "public_y = 0.5 * score(pairs_new, public_new)",
            ),
            (
                "graphveil.core.noise._native:",
                "new_y[2] = {score(pairs_new",
                "new_y[2] = {0.5 * score(pairs_new",
            ),
        ],
        test="tests/dendrogram/test_chain.py::test_counts_and_likelihoods_are_those_of_the_tree_after_ten_thousand_moves[public]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="a_move_is_bounded_by_one_of_its_blocks_alone",
        edits=[
            (
                "graphveil.core.queries.dendrogram:walk",
                "max(was_y + new_x, was_x + new_y, was_x + new_x)",
                "min(was_y + new_x, was_x + new_y, was_x + new_x)",
            ),
            (
                "graphveil.core.noise._native:",
                "return second > first ?",
                "return second > 0.0 && second < first ?",
            ),
        ],
        test="tests/dendrogram/test_privacy.py::test_no_lazy_step_loses_more_than_kappa[0.4-561-0]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="private_steps_are_not_lazy",
        edits=[
            (
                "graphveil.core.queries.dendrogram:ChainSchedule.numbers",
                "int(self.kappa is not None)",
                "0",
            ),
            (
                "graphveil.core.queries.dendrogram:ChainSchedule.weights",
                "np.array([self.public, self.private, self.kappa or 0.0])",
                "np.array([1.0, (self.kappa or 0.0) / 2.0, 0.0])",
            ),
        ],
        test="tests/dendrogram/test_privacy.py::test_no_lazy_step_loses_more_than_kappa[0.4-561-0]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="a_step_is_met_by_one_node_alone",
        edits=[
            (
                "graphveil.core.queries.dendrogram:step_loss",
                "touched_steps(steps, leaves, delta)",
                "touched_steps(steps, 3 * leaves, delta)",
            ),
            (
                "graphveil.core.queries.dendrogram:step_loss",
                "touched_steps(steps, leaves, delta / 2)",
                "touched_steps(steps, 3 * leaves, delta / 2)",
            ),
        ],
        test="tests/dendrogram/test_privacy.py::test_a_walk_has_the_golden_quantile",
    ),
    dict(
        name="both_ends_of_an_edge_are_counted",
        edits=[
            (
                "graphveil.core.queries.edge_counts:NoisyCounts._counts",
                "kept &= counts_at_target(sources, targets, self.ranks)",
                "pass",
            )
        ],
        test="tests/release/test_neighbor_counts.py::test_an_edge_moves_one_count_by_one[one_end]",
    ),
    dict(
        name="the_direction_between_equals_follows_how_many_edges_there_are",
        edits=[
            (
                "graphveil.core.queries.held_out:counts_at_target",
                "is_chosen_direction(sources, targets)",
                "(sources < targets) == bool(len(sources) // 2 % 2)",
            )
        ],
        test="tests/release/test_neighbor_counts.py::test_an_edge_moves_one_count_by_one[one_end]",
    ),
    dict(
        name="counts_at_both_ends_are_booked_once",
        edits=[
            (
                "graphveil.core.queries.edge_counts:NeighborCountQuery.changed",
                "return 2 if self.ranks is None and isinstance(unit, UndirectedEdge) else 1",
                "return 1",
            )
        ],
        test="tests/release/test_neighbor_counts.py::test_an_edge_moves_one_count_by_one[both_ends]",
    ),
    dict(
        name="counts_of_neighbors_have_less_noise",
        edits=[
            (
                "graphveil.core.noise.discrete_laplace:DiscreteLaplace.draw",
                "table = _boundaries(self.epsilon)",
                "table = _boundaries(1.04 * self.epsilon)",
            ),
            (
                "graphveil.core.noise.discrete_laplace:DiscreteLaplace._inverse",
                "Decimal(self.epsilon)",
                "Decimal(1.04 * self.epsilon)",
            ),
        ],
        test=[
            "tests/release/test_neighbor_counts.py::test_counts_have_their_noise",
            "tests/mechanisms/test_discrete_laplace.py::test_values_have_the_law[0.5]",
        ],
    ),
    # -- Models: what follows from answers, counts and records
    dict(
        name="a_network_sees_true_features",
        edits=[
            (
                "graphveil.local.heterorr:HeteroMethod.released",
                "view.replace(x=self.estimates(view, reported))",
                "view.replace(x=view.x._unwrap())",
            )
        ],
        test="tests/estimators/test_heterorr.py::test_predictions_depend_on_released_values_only",
    ),
    dict(
        name="a_network_sees_true_edges",
        edits=[
            (
                "graphveil.estimators.full_graph:FullGraphMethod.fit",
                "published, view = self.released(view, session)",
                "published = self.released(view, session)[0]",
            )
        ],
        test="tests/estimators/test_heterorr.py::test_predictions_depend_on_released_values_only",
        reason="ProtectedDataError",
    ),
    dict(
        name="the_baseline_sees_true_features",
        edits=[
            (
                "graphveil.local.heterorr:HeteroRR.with_reported_features",
                "return graph.replace(x=method.estimates(method.view(graph), self.aggregates_))",
                "return graph",
            )
        ],
        test="tests/estimators/test_heterorr.py::test_predictions_depend_on_released_values_only",
    ),
    dict(
        name="features_are_not_booked",
        edits=[
            (
                "graphveil.local.heterorr:HeteroMethod.released",
                'collect(view, session, name, stored="features")',
                "randomize(None, session, None, view.x._unwrap())",
            )
        ],
        test="tests/estimators/test_heterorr.py::test_charges_and_states_both_guarantees",
    ),
    dict(
        name="features_are_left_out_of_the_guarantee",
        edits=[
            (
                "graphveil.local.heterorr:HeteroMethod.guarantee",
                ".with_additional(of_features)",
                "",
            )
        ],
        test="tests/estimators/test_heterorr.py::test_charges_and_states_both_guarantees",
    ),
    dict(
        name="features_are_told_at_twice_their_budget",
        edits=[
            (
                "graphveil.local.reports:",
                "from dataclasses import dataclass",
                "from dataclasses import dataclass, replace",
            ),
            (
                "graphveil.local.reports:Randomizer.randomize",
                "randomize_features(self.mechanism, scaled",
                "randomize_features(replace(self.mechanism, epsilon=2 * self.mechanism.epsilon), scaled",
            ),
        ],
        test="tests/estimators/test_heterorr.py::test_the_privacy_loss_of_features_is_eps_x",
    ),
    dict(
        name="a_weight_is_charged_at_nine_tenths",
        edits=[
            (
                "graphveil.core.queries.neighbor_sums:NeighborSumQuery._largest_similarity",
                "return self.similarity.bound",
                "return 0.9 * self.similarity.bound",
            ),
            (
                "graphveil.core.plan:calibrate_plan",
                "if total is None or not math.isclose(total, mu, rel_tol=1e-9):",
                "if total is None:",
            ),
        ],
        test=[
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[gap-sigmoid_cos-undirected-edge]",
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[gap-exp_cos(0.5)-undirected-edge]",
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[gap-half_cos-undirected-edge]",
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[gap-relu_cos-undirected-edge]",
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[gap-jaccard-undirected-edge]",
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[gap-class_agree(0.2)-undirected-edge]",
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[gap-given-undirected-edge]",
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[classcode-sigmoid_cos-undirected-edge]",
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[classcode-exp_cos(0.5)-undirected-edge]",
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[classcode-half_cos-undirected-edge]",
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[classcode-relu_cos-undirected-edge]",
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[classcode-jaccard-undirected-edge]",
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[classcode-class_agree(0.2)-undirected-edge]",
        ],
    ),
    dict(
        name="an_edge_is_charged_for_one_of_its_ends",
        edits=[
            (
                "graphveil.core.unit:UndirectedEdge.pair_sensitivity",
                "math.hypot(forward, backward)",
                "max(forward, backward)",
            )
        ],
        test=[
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[gap-half_cos-undirected-edge]",
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[classcode-half_cos-undirected-edge]",
            "tests/estimators/test_replay_other_graphs.py::test_an_edge_of_another_graph_changes_hops_by_at_most_its_cost[classcode-{'few_labels': True}-undirected-edge]",
            "tests/estimators/test_replay_other_graphs.py::test_a_new_edge_changes_hops_by_at_most_its_cost[classcode-{'few_labels': True}-undirected-edge]",
        ],
    ),
    dict(
        name="weights_read_what_neighbors_look_like",
        edits=[
            (
                "graphveil.estimators.classcode.edge:CodeSumRounds.aggregate",
                "self.rows.append(self._release.answer(NeighborSumData(codes, keys)))",
                "if keys is not None:\n            graph = self._release._private._adjacency\n            into = torch.arange(len(keys)).repeat_interleave(graph.indptr.diff())\n            keys = keys - 3 * torch.zeros_like(keys).index_add_(0, into, keys[graph.indices.long()])\n        self.rows.append(self._release.answer(NeighborSumData(codes, keys)))",
            ),
            (
                "graphveil.estimators.gap.method:Aggregation.aggregates",
                "return release.answer(NeighborSumData(vectors, keys))",
                "edges = release._private._adjacency\n                into = torch.arange(edges.num_nodes).repeat_interleave(edges.indptr.diff())\n                read = vectors if keys is None else keys\n                read = read - 3 * torch.zeros_like(read).index_add_(0, into, read[edges.indices.long()])\n                return release.answer(NeighborSumData(vectors, read))",
            ),
        ],
        test=[
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[gap-half_cos-undirected-edge]",
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[classcode-half_cos-undirected-edge]",
            "tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[classcode-learned_public-undirected-edge]",
        ],
    ),
    dict(
        name="a_row_is_expected_to_be_as_long_as_its_edges_weigh",
        edits=[
            (
                "graphveil.estimators.classcode.edge:CodeSumRounds.aggregate",
                "self._moments.append(self._weight_model.moments(keys, classes, generator)[:, self._receiving])",
                "found = self._weight_model.moments(keys, classes, generator)[:, self._receiving]\n            degree = self._view.adjacency._unwrap().indptr.diff()[:, None].double()\n            self._moments.append(torch.stack([found[0] * (1 + degree), found[1]]))",
            )
        ],
        test="tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[classcode-half_cos-undirected-edge]",
    ),
    dict(
        name="a_message_is_what_was_heard_without_noise",
        edits=[
            (
                "graphveil.estimators.gap.method:Aggregation.aggregates",
                "sent = self.method.hop_transform.next_input(self.encoder, rows, aggregates, std)",
                "exact = aggregates[-1] * (1 + view.adjacency._unwrap().indptr.diff()[:, None])\n            sent = self.method.hop_transform.next_input(self.encoder, rows, [*aggregates[:-1], exact], std)",
            ),
        ],
        test="tests/estimators/test_replay_weights.py::test_an_edge_changes_hops_by_at_most_its_cost[gap-half_cos-undirected-edge]",
    ),
    dict(
        name="numpy_keeps_its_threads",
        edits=[("graphveil._util.threads:_Threads.enter", ".limit(limits=1)", ".limit(limits=None)")],
        test="tests/test_threads.py::test_fits_of_pairs_do_not_depend_on_the_number_of_threads[4.0]",
    ),
    dict(
        name="feature_clusters_follow_exact_degrees",
        edits=[
            (
                "graphveil.estimators.classcode.edge:CountRounds.aggregate",
                "self._clusters.assign(self._view.x)",
                "(self._clusters.assign(self._view.x) + self._view.adjacency._unwrap().indptr.diff()) % 2",
            )
        ],
        test="tests/estimators/classcode/edge/test_clusters.py::test_an_edge_changes_one_count_of_a_cluster",
    ),
    dict(
        name="clusters_are_counted_at_both_ends_at_the_cost_of_one",
        edits=[
            (
                "graphveil.core.queries.edge_counts:NoisyCounts._counts",
                "if self.ranks is not None:",
                "if self.ranks is not None and self.count != 8:",
            )
        ],
        test="tests/estimators/classcode/edge/test_clusters.py::test_an_edge_changes_one_count_of_a_cluster",
    ),
    dict(
        name="lengths_follow_exact_degrees",
        edits=[
            (
                "graphveil.estimators.classcode.edge:TrainedEdgeLevelClassCode.answer",
                "proba = new.exp().to(torch.float32)",
                "proba = new.exp().to(torch.float32) * view.adjacency._unwrap().indptr.diff()[len(old) :, None]",
            )
        ],
        test=[
            "tests/estimators/test_replay_other_graphs.py::test_an_edge_of_another_graph_changes_hops_by_at_most_its_cost[classcode-{'few_labels': True}-undirected-edge]",
            "tests/estimators/test_replay_other_graphs.py::test_a_new_edge_changes_hops_by_at_most_its_cost[classcode-{'few_labels': True}-undirected-edge]",
        ],
    ),
    dict(
        name="codes_lean_towards_friends",
        edits=[
            (
                "graphveil.estimators.classcode.edge:TrainedEdgeLevelClassCode.prior",
                "return public.to(torch.float64)",
                "degree = view.adjacency._unwrap().indptr.diff()[:, None]\n        return (public.to(torch.float64) * (1 + degree)).log_softmax(dim=1)",
            )
        ],
        test=[
            "tests/estimators/test_replay_other_graphs.py::test_an_edge_of_another_graph_changes_hops_by_at_most_its_cost[classcode-{'few_labels': True}-undirected-edge]",
            "tests/estimators/test_replay_other_graphs.py::test_a_new_edge_changes_hops_by_at_most_its_cost[classcode-{'few_labels': True}-undirected-edge]",
        ],
    ),
    dict(
        name="a_message_reads_somebody_elses_record",
        edits=[
            (
                "graphveil.nn.hops:Encoder._exact",
                "start=rows.to(torch.float64)",
                "start=(rows.roll(1, dims=0) + rows).to(torch.float64)",
            )
        ],
        test="tests/estimators/test_replay_records.py::test_a_record_changes_sums_by_at_most_its_cost[gap]",
        reason="ProtectedDataError",
    ),
    dict(
        name="messages_are_scaled_by_exact_in_degrees",
        edits=[
            (
                "graphveil.estimators.gap.method:Aggregation.aggregates",
                "return release.answer(NeighborSumData(vectors, keys))",
                "degree = release._private._adjacency.indptr.diff()[:, None]\n                return release.answer(NeighborSumData(vectors * (1 - 0.1 * degree / len(degree)), keys))",
            ),
            (
                "graphveil.estimators.classcode.node:NodeLevelClassCode.fit",
                "return release.answer(OutEdgeSumData(vectors, levels))",
                "degree = view.adjacency._unwrap().indptr.diff()[:, None]\n            return release.answer(OutEdgeSumData(vectors * (1 - 0.1 * degree / len(degree)), levels))",
            ),
        ],
        test=[
            "tests/estimators/test_replay_records.py::test_a_record_changes_sums_by_at_most_its_cost[gap-bounded-degree]",
            "tests/estimators/test_replay_records.py::test_a_record_changes_sums_by_at_most_its_cost[classcode-S]",
            "tests/estimators/test_replay_records.py::test_a_record_changes_sums_by_at_most_its_cost[classcode-R]",
        ],
        reason="protects node records",
    ),
    dict(
        name="levels_of_pushes_follow_exact_in_degrees",
        edits=[
            (
                "graphveil.estimators.classcode.node:NodeLevelClassCode.fit",
                "return release.answer(OutEdgeSumData(vectors, levels))",
                "degree = view.adjacency._unwrap().indptr.diff()\n            lower = (levels > 1) & (degree > len(degree) // 3)\n            return release.answer(OutEdgeSumData(vectors, levels - lower.long()))",
            )
        ],
        test="tests/estimators/test_replay_records.py::test_a_record_changes_sums_by_at_most_its_cost[classcode-S]",
    ),
    dict(
        name="a_prediction_reads_who_is_linked_to",
        edits=[
            (
                "graphveil.estimators.classcode.node:NodeLevelClassCode.fit",
                "map_records(lambda log: log.exp().to(torch.float32), decided)",
                "map_records(lambda log, d: (log * (1 + 0.1 * d[:, None].double())).exp().to(torch.float32), decided, view.adjacency._unwrap().indptr.diff())",
            ),
        ],
        test="tests/estimators/test_replay_records.py::test_a_record_changes_sums_by_at_most_its_cost[classcode-S]",
    ),
    dict(
        name="stars_are_of_those_who_list_a_node",
        edits=[
            (
                "graphveil.estimators.gnn.one_hop:OneHopGNN.fit",
                "stars = own_ego_graphs(view.adjacency, self.leaves,",
                "source, target = view.adjacency._unwrap().edge_index()\n            turned = type(view.adjacency._unwrap()).from_edges(\n                target, source, num_nodes=view.num_nodes, directed=True\n            )\n            stars = own_ego_graphs(type(view.adjacency)(turned, 'node-record'), self.leaves,",
            )
        ],
        test="tests/estimators/test_replay_records.py::test_a_record_changes_sums_by_at_most_its_cost[gnn]",
    ),
    dict(
        name="a_decision_is_surer_where_friends_are_many",
        edits=[
            (
                "graphveil.estimators.classcode.edge:EdgeLevelClassCode.fit",
                "        release.close()\n",
                "        surer = decision.log * (1 + 0.1 * view.adjacency._unwrap().indptr.diff()[:, None])\n        decision = replace(decision, log=surer)\n        release.close()\n",
            )
        ],
        test=[
            "tests/estimators/test_replay_defaults.py::test_a_default_fit_depends_on_answers_and_public_data_only[self-training-undirected-edge]",
            "tests/estimators/test_replay_defaults.py::test_a_default_fit_depends_on_answers_and_public_data_only[many labels-undirected-edge]",
            "tests/estimators/test_replay_defaults.py::test_a_default_fit_depends_on_answers_and_public_data_only[both ends-undirected-edge]",
        ],
    ),
    dict(
        name="the_gate_trusts_features_where_a_node_has_no_friend",
        edits=[
            (
                "graphveil.estimators.classcode.edge:EdgeLevelClassCode.decide",
                "return PosteriorEstimate(",
                "degree = view.adjacency._unwrap().indptr.diff()[:, None]\n        decided = torch.where(degree > 0, decided, public.log.double())\n        return PosteriorEstimate(",
            )
        ],
        test="tests/estimators/test_replay_defaults.py::test_a_default_fit_depends_on_answers_and_public_data_only[self-training-undirected-edge]",
    ),
    dict(
        name="the_gate_weighs_validation_nodes_by_their_degrees",
        edits=[
            (
                "graphveil.estimators.classcode.edge:EdgeLevelClassCode.decide",
                "gate, decided = fit_gate(experts, targets, val_nodes, self.objective)",
                "degree = view.adjacency._unwrap().indptr.diff()[:, None]\n            gate, decided = fit_gate([part * (1 + 0.1 * degree) for part in experts], targets, val_nodes, self.objective)",
            )
        ],
        test="tests/estimators/test_replay_defaults.py::test_a_default_fit_depends_on_answers_and_public_data_only[many labels-undirected-edge]",
    ),
    dict(
        name="features_are_taught_what_degrees_say",
        edits=[
            (
                "graphveil.estimators.classcode.edge:EdgeLevelClassCode.fit",
                'public, decision.log, f"distilled',
                'public, decision.log * (1 + 0.1 * view.adjacency._unwrap().indptr.diff()[:, None]), f"distilled',
            )
        ],
        test=[
            "tests/estimators/test_replay_defaults.py::test_a_default_fit_depends_on_answers_and_public_data_only[self-training-undirected-edge]",
            "tests/estimators/test_replay_defaults.py::test_a_default_fit_depends_on_answers_and_public_data_only[few labels-undirected-edge]",
        ],
    ),
    dict(
        name="released_accuracies_are_exact",
        edits=[
            (
                "graphveil.estimators.private_training:release_accuracies",
                "found[split] = accuracy_from_counts(counts, len(nodes))",
                "found[split] = float(correct.double().mean())",
            )
        ],
        test=[
            "tests/estimators/test_noisy_counts.py::test_released_accuracies_follow_from_noisy_counts[mlp]",
            "tests/estimators/test_noisy_counts.py::test_released_accuracies_follow_from_noisy_counts[gap]",
            "tests/estimators/test_noisy_counts.py::test_released_accuracies_follow_from_noisy_counts[classcode]",
        ],
        reason="protects node records",
    ),
    dict(
        name="validation_records_teach_though_they_are_counted",
        edits=[
            (
                "graphveil.estimators.mlp:NodeLevelSoftmax.queries",
                "metrics=metrics",
                "metrics=False",
            )
        ],
        test="tests/estimators/test_mlp_node_level.py::test_every_record_is_charged_at_most_the_budget[True]",
    ),
    dict(
        name="everybody_teaches",
        edits=[
            (
                "graphveil.estimators.mlp:NodeLevelSoftmax.fit",
                "charged_members(view, query.pays)",
                "torch.ones(view.num_nodes, dtype=torch.bool)",
            )
        ],
        test="tests/estimators/test_mlp_node_level.py::test_labels_that_are_not_charged_are_not_read[False]",
    ),
    dict(
        name="the_step_size_follows_how_many_have_a_label",
        edits=[
            (
                "graphveil.estimators.mlp:NodeLevelSoftmax.fit",
                "len(nodes), view.num_features",
                "int((view.y[nodes] >= 0).sum()), view.num_features",
            )
        ],
        test="tests/estimators/test_mlp_node_level.py::test_settings_do_not_depend_on_the_number_of_labels",
        reason="ProtectedDataError",
    ),
    # -- Audits, server, papers, ledger, sweeps
    dict(
        name="noise_of_rows_is_a_fifth_too_small",
        edits=[
            (
                "graphveil.core.noise.discrete_gaussian:DiscreteGaussian.draw",
                "self._numerator",
                "round(0.8 * self._numerator)",
            ),
        ],
        test=[
            "tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[hops]",
            "tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[pushes]",
            "tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[cells]",
            "tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[tally]",
            "tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[outcomes]",
        ],
    ),
    dict(
        name="counts_have_half_of_their_noise",
        edits=[
            (
                "graphveil.core.noise.discrete_laplace:DiscreteLaplace.draw",
                "return drawn",
                "return drawn // 2",
            )
        ],
        test=[
            "tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[counts]",
            "tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[blocks]",
            "tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[total]",
        ],
    ),
    dict(
        name="steps_have_two_thirds_of_their_noise",
        edits=[
            (
                "graphveil.core.noise.steps:StepNoise.noise",
                "return self._noise(step, self.parameters)",
                "return self._noise(step, self.parameters) * 2 // 3",
            )
        ],
        test=[
            "tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[all records]",
            "tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[steps on edges]",
        ],
    ),
    dict(
        name="batches_hold_records_twice_as_often",
        edits=[
            (
                "graphveil.core.noise.steps:StepNoise.__init__",
                "self.sampling_rate = float(sampling_rate)",
                "self.sampling_rate = min(1.0, 2 * sampling_rate)",
            )
        ],
        test="tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[steps]",
    ),
    dict(
        name="slots_answer_at_one_and_a_half_epsilon",
        edits=[
            (
                "graphveil.core.noise.node_pair_noise:EdgeRandomizedResponse.draw",
                "added = bernoulli_positions(stream, self.add, start, stop)",
                "self = EdgeRandomizedResponse(1.5 * self.epsilon, self.share)\n        added = bernoulli_positions(stream, self.add, start, stop)",
            )
        ],
        test="tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[private node pairs]",
    ),
    dict(
        name="cells_are_drawn_at_one_and_a_half_epsilon",
        edits=[
            (
                "graphveil.core.queries.graph_queries:TopNodePairsQuery.answer",
                "NoisyCells(self.epsilon,",
                "NoisyCells(1.5 * self.epsilon,",
            )
        ],
        test="tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[top node pairs]",
    ),
    dict(
        name="plan_is_charged_half_of_its_mu",
        edits=[
            (
                "graphveil.core.accounting.accountant:total_mu",
                "return math.sqrt(worst)",
                "return math.sqrt(worst) / 2",
            )
        ],
        test="tests/audit/test_query_neighbor_tests.py::"
        "test_query_keeps_its_privacy_cost_under_a_unit[hops and counts-undirected-edge]",
    ),
    dict(
        name="features_have_more_than_their_share",
        edits=[
            (
                "graphveil.mechanisms.features:EvenAllocation.budgets",
                "epsilon / dim",
                "1.2 * epsilon / dim",
            )
        ],
        test="tests/audit/test_query_canaries.py::test_bounds_of_separate_features_add_up_to_the_budget",
    ),
    dict(
        name="a_key_reads_any_row",
        edits=[
            (
                "graphveil.serve.access:Key.authorizes",
                "return {str(one) for one in ids} <= set(self.subjects)",
                "return True",
            )
        ],
        test=[
            "tests/serve/test_keys.py::test_a_row_is_returned_to_its_subject_only[node-record]",
            "tests/serve/test_keys.py::test_a_row_is_returned_to_its_subject_only[node-bounded-degree]",
        ],
    ),
    dict(
        name="one_row_of_its_own_lets_a_key_read_the_rest",
        edits=[
            (
                "graphveil.serve.access:Key.authorizes",
                "return {str(one) for one in ids} <= set(self.subjects)",
                "return bool({str(one) for one in ids} & set(self.subjects))",
            )
        ],
        test=[
            "tests/serve/test_keys.py::test_a_row_is_returned_to_its_subject_only[node-record]",
            "tests/serve/test_keys.py::test_a_row_is_returned_to_its_subject_only[node-bounded-degree]",
        ],
    ),
    dict(
        name="any_key_is_a_key",
        edits=[
            (
                "graphveil.serve.access:Keys.find",
                "return self._by_hash.get(_hash(text))",
                "return next(iter(self._by_hash.values()))",
            )
        ],
        test=[
            "tests/serve/test_keys.py::test_a_row_is_returned_to_its_subject_only[node-record]",
            "tests/serve/test_keys.py::test_a_row_is_returned_to_its_subject_only[node-bounded-degree]",
        ],
    ),
    dict(
        name="scores_of_pairs_need_no_key",
        edits=[("graphveil.serve.app", '("/v1/predict", "/v1/pairs")', '("/v1/predict",)')],
        test="tests/serve/test_pairs.py::test_keys_are_required_if_there_are_any",
    ),
    dict(
        name="rows_of_records_are_served_to_everybody",
        edits=[
            ("graphveil.serve.app:_check", "if personal and admission.keys is None:", "if False:"),
            ("graphveil.serve.app:_check", "if len(personal) > 1:", "if False:"),
        ],
        test=[
            "tests/serve/test_keys.py::test_runs_of_records_need_keys[node-record]",
            "tests/serve/test_keys.py::test_each_run_of_records_needs_its_own_server[node-record]",
        ],
    ),
    dict(
        name="what_was_drawn_is_forgotten",
        edits=[
            ("graphveil.core.journal:FolderJournal.resume", "if not self._path.exists():", "if True:"),
            ("graphveil.core.journal:FolderJournal.load", "if not path.exists():", "if True:"),
        ],
        test="tests/serve/test_releases.py::test_a_request_that_failed_is_charged_and_drawn_once[FolderJournal-store]",
    ),
    dict(
        name="each_asking_is_booked_under_a_new_name",
        edits=[
            (
                "graphveil.serve.releases:ServerLedger.reference",
                'return self._data_set.fingerprints({"question": parts})["question"]',
                "import secrets\n\n        return secrets.token_hex(16)",
            )
        ],
        test="tests/serve/test_releases.py::test_a_request_that_failed_is_charged_and_drawn_once[FolderJournal-store]",
    ),
    dict(
        name="graphs_of_the_same_fit_are_one_question",
        edits=[
            (
                "graphveil.serve.releases:ServerLedger.reference",
                '{"question": parts}',
                '{"question": parts[:1]}',
            )
        ],
        test="tests/serve/test_releases.py::test_a_release_is_charged_once_and_its_answer_stays_identical",
    ),
    dict(
        name="what_the_operator_allowed_is_not_asked",
        edits=[
            (
                "graphveil.serve.releases:ServerLedger.__init__",
                "own.data_set(_OWN, limit=self._limit)",
                "own.data_set(_OWN)",
            )
        ],
        test="tests/serve/test_releases.py::test_a_release_above_the_budget_is_rejected_before_anything_is_drawn[1.4-9]",
    ),
    dict(
        name="the_server_asks_its_own_book_alone",
        edits=[
            (
                "graphveil.serve.releases:ServerLedger.for_request",
                "(self._data_set, *others, self._own)",
                "(self._own,)",
            ),
            (
                "graphveil.serve.releases:ServerLedger.is_recorded",
                "self._data_set.contains",
                "self._own.contains",
            ),
        ],
        test="tests/serve/test_releases.py::test_a_release_above_the_budget_is_rejected_before_anything_is_drawn[9-1.2]",
    ),
    dict(
        name="the_training_data_pay_nothing",
        edits=[
            (
                "graphveil.serve.releases:ReleaseService._other_charged_ledgers",
                "return also_charged_ledgers(self._folder, self._server_ledger.account.ledger, self._run.guarantee)",
                "return []",
            )
        ],
        test="tests/serve/test_releases.py::test_the_training_data_are_charged_because_graphs_may_share_edges",
    ),
    dict(
        name="any_key_spends",
        edits=[
            (
                "graphveil.serve.access:Keys.find",
                "return self._by_hash.get(_hash(text))",
                'found = self._by_hash.get(_hash(text))\n        return found and found.model_copy(update={"releases": True})',
            )
        ],
        test="tests/serve/test_releases.py::test_only_keys_with_that_permission_make_releases",
    ),
    dict(
        name="chunks_cost_what_they_are_sold_at",
        edits=[
            (
                "graphveil.papers.as_published.graph_queries:ChunkDensityQuery.event",
                "ApproximateDP(sum(self.nodes * self.epsilon / rows for rows in ends))",
                "ApproximateDP(self.epsilon)",
            )
        ],
        test="tests/perturb/test_flaws.py::test_15_a_density_for_every_chunk_costs_more_than_its_share[8]",
    ),
    dict(
        name="the_density_of_one_end_is_charged",
        edits=[
            (
                "graphveil.papers.as_published.graph_queries:ChunkDensityQuery.event",
                "2 if isinstance(unit, UndirectedEdge) else 1",
                "1",
            )
        ],
        test="tests/perturb/test_flaws.py::test_15_a_density_for_every_chunk_costs_more_than_its_share[8]",
    ),
    dict(
        name="a_friendship_that_answers_twice_is_charged_once",
        edits=[
            (
                "graphveil.papers.as_published.graph_queries:ChunkResponseQuery.event",
                "ApproximateDP(self.epsilon * (2 if isinstance(unit, UndirectedEdge) else 1))",
                "ApproximateDP(self.epsilon)",
            )
        ],
        test="tests/perturb/test_flaws.py::test_15_separate_directions_double_the_loss_of_an_edge",
    ),
    dict(
        name="noise_that_is_cut_is_charged_as_whole_noise",
        edits=[
            (
                "graphveil.papers.as_published.graph_queries:SeededTotalQuery.event",
                "self.epsilon + TRUNCATION",
                "self.epsilon",
            )
        ],
        test="tests/perturb/test_flaws.py::test_16_truncated_noise_adds_ln_2_to_the_loss",
    ),
    dict(
        name="published_code_is_given_a_guarantee",
        edits=[
            (
                "graphveil.papers.as_published.graph_mechanisms:PaperEdgeRand.deviations",
                "return _SHARED.format(seed=self.noise_seed), _ZEROS",
                "return ()",
            )
        ],
        test="tests/perturb/test_paper.py::test_paper_mode_has_no_valid_guarantee[edge-rand]",
    ),
    dict(
        name="what_is_kept_is_rounded_the_other_way",
        edits=[
            (
                "graphveil.ledger.costs:_rounded",
                "math.ceil(value / unit) if up else",
                "math.ceil(value / unit) if not up else",
            )
        ],
        test="tests/ledger/test_costs.py::test_cached_compositions_grant_as_much_as_exact_ones[1e-8]",
    ),
    dict(
        name="a_kept_composition_forgets_its_delta",
        edits=[
            (
                "graphveil.ledger.costs:_epsilon_of_larger",
                "return PrivacyCost(mu_squared, others=dict(counts))._composed(delta)",
                "known = _FOUND.setdefault((mu_squared, counts), PrivacyCost(mu_squared, others=dict(counts))._composed(delta))\n    return known",
            ),
            (
                "graphveil.ledger.costs:",
                "_HALVINGS = ",
                "_FOUND: dict[object, Fraction | float] = {}\n_HALVINGS = ",
            ),
        ],
        test="tests/ledger/test_costs.py::test_cached_compositions_grant_as_much_as_exact_ones[1e-8]",
    ),
    dict(
        name="a_kept_composition_forgets_how_often",
        edits=[
            (
                "graphveil.ledger.costs:_epsilon_of_larger",
                "return PrivacyCost(mu_squared, others=dict(counts))._composed(delta)",
                "asked = mu_squared, tuple(dict(counts)), delta\n    return _FOUND.setdefault(asked, PrivacyCost(mu_squared, others=dict(counts))._composed(delta))",
            ),
            (
                "graphveil.ledger.costs:",
                "_HALVINGS = ",
                "_FOUND: dict[object, Fraction | float] = {}\n_HALVINGS = ",
            ),
        ],
        test="tests/ledger/test_costs.py::test_cached_compositions_grant_as_much_as_exact_ones[1e-8]",
    ),
    dict(
        name="releases_of_a_kind_count_once",
        edits=[
            (
                "graphveil.ledger.costs:PrivacyCost.plus",
                "others[kind] = others.get(kind, 0) + copies * count",
                "others[kind] = 1",
            )
        ],
        test="tests/ledger/test_costs.py::test_decimal_budgets_are_compared_without_rounding[0.1-3-0.3]",
    ),
    dict(
        name="the_resolution_of_noise_is_forgotten",
        edits=[("graphveil.ledger.costs:PrivacyCost.from_entry", "exact(float(entry.slack))", "Fraction(0)")],
        test="tests/ledger/test_costs.py::test_limits_account_for_slack_and_delta[total1-limit1-False]",
    ),
    dict(
        name="all_of_a_kind_is_given_back_at_once",
        edits=[
            (
                "graphveil.ledger.costs:PrivacyCost.minus",
                "for kind, count in left.others.items() if count}",
                "for kind, count in left.others.items() if kind not in other.others}",
            )
        ],
        test="tests/ledger/test_costs.py::test_totals_agree_with_the_ledger_in_memory[pure]",
    ),
    dict(
        name="no_limit_is_asked",
        edits=[
            (
                "graphveil.ledger.costs:PrivacyCost.fits",
                "left = exact(limit.delta) - self.slack",
                "return True\n        left = exact(limit.delta) - self.slack",
            )
        ],
        test="tests/ledger/test_sql_ledger.py::test_a_budget_of_three_grants_three[sqlite]",
    ),
    dict(
        name="what_is_reserved_does_not_count",
        edits=[
            (
                "graphveil.ledger.reservations:DataSetLedger._attempt",
                "update_account(connection, name, unit, **changed)",
                "pass",
            )
        ],
        test="tests/ledger/test_sql_ledger.py::test_a_budget_of_three_grants_three[sqlite]",
    ),
    dict(
        name="a_release_is_booked_again_at_another_price",
        edits=[
            (
                "graphveil.ledger.reservations:_check_repeated",
                "if any(before[part] != value for part, value in json.loads(canonical(body)).items()):",
                "if False:",
            )
        ],
        test="tests/ledger/test_sql_ledger.py::test_a_repeated_release_is_charged_once[sqlite]",
    ),
    dict(
        name="what_was_drawn_is_given_back",
        edits=[
            (
                "graphveil.ledger.reservations:DataSetLedger.refund",
                "if COMMIT in states or RESERVE not in states:",
                "if RESERVE not in states:",
            )
        ],
        test="tests/ledger/test_sql_ledger.py::test_a_release_can_be_refunded_until_it_is_committed[sqlite]",
    ),
    dict(
        name="what_was_given_back_is_drawn",
        edits=[
            (
                "graphveil.ledger.reservations:DataSetLedger.commit",
                "if REFUND in states or RESERVE not in states:",
                "if RESERVE not in states:",
            )
        ],
        test="tests/ledger/test_sql_ledger.py::test_a_release_can_be_refunded_until_it_is_committed[sqlite]",
    ),
    dict(
        name="what_was_given_back_stands_as_booked",
        edits=[
            (
                "graphveil.ledger.reservations:DataSetLedger._attempt",
                "if REFUND in states:",
                "if False:",
            )
        ],
        test="tests/ledger/test_sql_ledger.py::test_a_release_can_be_refunded_until_it_is_committed[sqlite]",
    ),
    dict(
        name="nobody_notes_that_noise_is_drawn",
        edits=[
            ("graphveil.ledger.reservations:DataSetLedger.commit", "if COMMIT not in states:", "if False:")
        ],
        test="tests/ledger/test_sql_ledger.py::test_a_release_can_be_refunded_until_it_is_committed[sqlite]",
    ),
    dict(
        name="what_a_second_ledger_rejects_is_released",
        edits=[
            (
                "graphveil.core.ledger:JointLedger.record",
                "self.check(entry)\n            recorded",
                "recorded",
            ),
            (
                "graphveil.core.ledger:JointLedger.record",
                "                for ledger in recorded:\n                    self._refund(ledger, entry.release_id)\n                raise",
                "                if not recorded:\n                    raise",
            ),
        ],
        test="tests/ledger/test_sql_ledger.py::test_joint_ledgers_record_a_release_in_all_or_none[sqlite]",
    ),
    dict(
        name="a_sweep_costs_its_dearest_cell",
        edits=[
            (
                "graphveil.runs.sweep:total_of",
                "return combined_guarantee(sorted(single, key=lambda one: -one.delta)) if single else None",
                "return max(single, key=lambda one: one.epsilon) if single else None",
            )
        ],
        test="tests/runs/test_sweep.py::test_the_total_is_the_composition_of_all_runs_of_all_cells",
    ),
    dict(
        name="all_runs_of_a_cell_cost_one",
        edits=[
            (
                "graphveil.runs.sweep:total_of",
                "for one in requested for _ in range(one.experiment.runs)",
                "for one in requested",
            )
        ],
        test="tests/runs/test_sweep.py::test_the_total_is_the_composition_of_all_runs_of_all_cells",
    ),
    dict(
        name="workers_have_no_limit_of_a_ledger_in_memory",
        edits=[("graphveil.runs.sweep:_opened_by_workers", "for entry in charges:", "for entry in ():")],
        test="tests/runs/test_sweep.py::test_workers_show_their_progress_and_share_the_limit_of_a_ledger_in_memory",
    ),
    dict(
        name="entries_of_workers_are_lost_with_their_ledger",
        edits=[
            (
                "graphveil.runs.sweep:_opened_by_workers",
                "if not ledger.contains(entry.release_id)",
                "if False",
            )
        ],
        test="tests/runs/test_sweep.py::test_an_interrupted_sweep_in_workers_leaves_its_entries_and_charges_them_once",
    ),
    dict(
        name="nobody_asks_whether_a_grid_fits",
        edits=[
            (
                "graphveil.runs.charges:RunAccount.check_room",
                "for one in (guarantee, *guarantee.additional):",
                "for one in ():",
            )
        ],
        test="tests/runs/test_sweep.py::test_a_grid_that_does_not_fit_as_a_whole_spends_nothing",
    ),
    # -- Workers, disk, compiled noise, clipped sums, samples, trees, keys, local reports, the command
    dict(
        name="nonces_of_sealed_messages_repeat",
        edits=[
            ("graphveil.cluster.sealing:SecretBox.seal", "secrets.token_bytes(_NONCE)", "bytes(_NONCE)"),
        ],
        test="tests/cluster/test_sealing.py::test_a_value_opens_unchanged[1000]",
    ),
    dict(
        name="messages_are_sent_as_they_are",
        edits=[
            (
                "graphveil.cluster.sealing:SecretBox.seal",
                "AESGCM(self.key).encrypt(nonce, message, name.encode())",
                "bytes(message)",
            ),
            (
                "graphveil.cluster.sealing:SecretBox.open",
                "AESGCM(self.key).decrypt(bytes(sealed[:_NONCE]), sealed[_NONCE:], name.encode())",
                "bytes(sealed[_NONCE:])",
            ),
        ],
        test=[
            "tests/cluster/test_sealing.py::test_a_value_opens_unchanged[1000]",
            "tests/cluster/test_sealing.py::test_values_arrive_unchanged_and_parts_reveal_nothing[25]",
        ],
    ),
    dict(
        name="a_message_opens_under_any_name",
        edits=[
            ("graphveil.cluster.sealing:SecretBox.seal", "message, name.encode()", "message, None"),
            (
                "graphveil.cluster.sealing:SecretBox.open",
                "sealed[_NONCE:], name.encode()",
                "sealed[_NONCE:], None",
            ),
        ],
        test="tests/cluster/test_sealing.py::test_rejects_other_keys_names_and_changed_values",
    ),
    dict(
        name="a_changed_message_is_opened",
        edits=[
            (
                "graphveil.cluster.sealing:SecretBox.open",
                "AESGCM(self.key).decrypt(bytes(sealed[:_NONCE]), sealed[_NONCE:], name.encode())",
                "AESGCM(self.key).encrypt(bytes(sealed[:_NONCE]), bytes(sealed[_NONCE:-16]), None)[:-16]",
            ),
        ],
        test="tests/cluster/test_sealing.py::test_rejects_other_keys_names_and_changed_values",
    ),
    dict(
        name="a_key_is_sent_in_the_clear",
        edits=[
            (
                "graphveil.cluster.sealing:seal_to",
                "_EXCHANGE.encrypt(message, X25519PublicKey.from_public_bytes(public))",
                "message",
            ),
            (
                "graphveil.cluster.sealing:RecipientKey.open",
                "_EXCHANGE.decrypt(sealed, self._private)",
                "sealed",
            ),
        ],
        test="tests/cluster/test_sealing.py::test_only_the_recipient_opens_what_was_sealed_to_its_public_key",
    ),
    dict(
        name="the_key_of_an_exchange_is_public",
        edits=[
            (
                "graphveil.cluster.sealing:RecipientKey.__init__",
                "X25519PrivateKey.generate()",
                "X25519PrivateKey.from_private_bytes(bytes(32))",
            ),
        ],
        test="tests/cluster/test_sealing.py::test_only_the_recipient_opens_what_was_sealed_to_its_public_key",
    ),
    dict(
        name="a_failure_is_told_with_its_values",
        edits=[
            (
                "graphveil.cluster.backend:compute_block",
                'return f"a worker failed with {type(error).__name__}"',
                "return str(error)",
            ),
        ],
        test="tests/cluster/test_worker.py::test_error_texts_contain_no_value",
    ),
    dict(
        name="a_worker_without_the_key_is_given_up",
        edits=[
            (
                "graphveil.cluster.backend:RayBackend._answers",
                "if isinstance(answer, bytes):",
                "if answer is None:",
            ),
        ],
        test="tests/cluster/test_worker.py::test_every_block_is_returned_once_and_in_order[7-2]",
    ),
    dict(
        name="blocks_of_a_query_that_is_left_are_computed",
        edits=[
            ("graphveil.cluster.backend:RayBackend._answers", "ray.cancel(ticket)", "pass"),
        ],
        test="tests/cluster/test_worker.py::test_ray_repeats_a_block_and_the_query_fails_if_all_repetitions_are_lost",
    ),
    dict(
        name="values_are_as_long_as_they_are",
        edits=[
            (
                "graphveil.cluster.sealing:_coarse",
                "return max(MIN_BYTES, -(-size // step) * step)",
                "return size",
            ),
        ],
        test="tests/cluster/test_sealing.py::test_the_size_of_a_block_does_not_depend_on_its_degrees",
    ),
    dict(
        name="blocks_of_another_cluster_are_requested",
        edits=[
            (
                "graphveil.cluster.backend:_sent_graph",
                "if sent is None or sent.cluster != cluster:",
                "if sent is None:",
            ),
        ],
        test="tests/cluster/test_worker.py::test_a_graph_is_sent_to_each_cluster_under_its_own_key",
    ),
    dict(
        name="a_folder_that_has_changed_is_believed",
        edits=[
            (
                "graphveil.data.graph_files:",
                "check_block(self.folder, self.manifest, number, indptr, sources)",
                "pass",
            )
        ],
        test="tests/cluster/test_worker.py::test_a_worker_checks_the_files_of_a_stored_graph",
    ),
    dict(
        name="a_block_on_disk_is_numbered_from_zero",
        edits=[
            (
                "graphveil.core.backends:DiskBackend.blocks",
                "yield block",
                "yield EdgeBlock(0, len(block), block.offsets, block.sources)",
            )
        ],
        test="tests/release/test_disk_backend.py::test_every_query_answers_with_the_same_bytes[target_weighted]",
    ),
    dict(
        name="rows_have_the_noise_of_their_places",
        edits=[
            (
                "graphveil.core.noise._kernels:counters",
                "for part in (rows, blocks)",
                "for part in (np.arange(len(rows)), blocks)",
            )
        ],
        test="tests/mechanisms/test_exact_kernels.py::test_rows_of_any_number_and_order_are_the_same[rows1]",
    ),
    dict(
        name="every_chunk_repeats_the_first",
        edits=[
            (
                "graphveil.core.noise.discrete_gaussian:_first_attempts",
                "rows[first : first + count]",
                "rows[np.arange(first, min(first + count, len(rows))) % count]",
            )
        ],
        test="tests/mechanisms/test_exact_kernels.py::test_rows_of_several_chunks_draw_the_same_as_rows_of_one",
    ),
    dict(
        name="later_chunks_have_no_noise",
        edits=[
            (
                "graphveil.core.noise.discrete_gaussian:_first_attempts",
                "return np.concatenate(where)",
                "out[count:] = 0\n    return np.concatenate(where)",
            )
        ],
        test="tests/mechanisms/test_exact_kernels.py::test_rows_of_several_chunks_draw_the_same_as_rows_of_one",
    ),
    dict(
        name="all_noise_has_one_key",
        edits=[("graphveil.core.noise.random:RowStream._cipher", "self._key", "bytes(KEY_BYTES)")],
        test="tests/mechanisms/test_exact_kernels.py::test_another_key_is_another_noise",
    ),
    dict(
        name="ties_are_decided_by_floating_point",
        edits=[
            (
                "graphveil.core.noise._kernels:Strips.decide",
                "np.flatnonzero(decisions & 2)",
                "np.flatnonzero(decisions & 4)",
            )
        ],
        test="tests/mechanisms/test_exact_kernels.py::test_near_ties_are_decided_in_arbitrary_precision",
    ),
    dict(
        name="every_candidate_of_a_narrow_strip_is_taken",
        edits=[
            (
                "graphveil.core.noise.discrete_gaussian:_Strips._in_c",
                "self.sure[first]",
                "(self.sure[first] != 0) * np.uint32(2**32 - 1)",
            )
        ],
        test="tests/mechanisms/test_exact_kernels.py::test_every_sample_is_the_same[5-5121]",
    ),
    dict(
        name="norms_of_formed_gradients_miss_a_piece",
        edits=[
            (
                "graphveil.core.clipping.clipped_sums:square_norms",
                "return torch.cat([part.to(torch.float64).square().sum(dim=1) for part in _pieces(gradients)])",
                "found = torch.cat([part.to(torch.float64).square().sum(dim=1) for part in _pieces(gradients)])\n    found[2:4] = 0\n    return found",
            )
        ],
        test="tests/training/test_stars.py::test_pieces_change_no_sum[vmap]",
    ),
    dict(
        name="factors_are_those_of_the_first_piece",
        edits=[
            (
                "graphveil.core.clipping.clipped_sums:add_scaled",
                "part.to(torch.float64).t(), some)",
                "part.to(torch.float64).t(), factors[: len(part)])",
            )
        ],
        test="tests/training/test_stars.py::test_pieces_change_no_sum[vmap]",
    ),
    dict(
        name="rows_that_cancel_have_the_norm_of_their_rounding",
        edits=[
            (
                "graphveil.core.clipping.ego_graphs:",
                "_CANCELLATION_THRESHOLD = 2.0**-16",
                "_CANCELLATION_THRESHOLD = 0.0",
            )
        ],
        test="tests/training/test_stars.py::test_large_rows_that_cancel_are_clipped_all_the_same[dtype1-10000000000.0]",
    ),
    dict(
        name="norms_of_rows_that_cancel_are_float32",
        edits=[
            (
                "graphveil.core.clipping.ego_graphs:AffineGradients.square_norms",
                "(part @ part.transpose(1, 2) for part in (self.inputs, self.deltas))",
                "(\n            (part.float() @ part.float().transpose(1, 2)) for part in (self.inputs, self.deltas)\n        )",
            ),
            (
                "graphveil.core.clipping.ego_graphs:AffineGradients.square_norms",
                "return torch.maximum(one.mul_(other).sum(dim=(1, 2)), least)",
                "return torch.maximum(one.mul_(other).sum(dim=(1, 2)), least).double()",
            ),
        ],
        test="tests/training/test_stars.py::test_large_rows_that_cancel_are_clipped_all_the_same[dtype1-100.0]",
    ),
    dict(
        name="a_bias_is_left_out_of_the_norm",
        edits=[("graphveil.core.clipping.ego_graphs:AffineGradients.square_norms", "if bias:", "if False:")],
        test="tests/training/test_stars.py::test_no_record_adds_more_than_the_clipping_norm_in_float32[sage-ghost]",
    ),
    dict(
        name="a_record_without_finite_numbers_stays",
        edits=[
            (
                "graphveil.core.clipping.ego_graphs:AffineGradients.drop",
                "self.inputs, self.deltas = (\n            part.masked_fill(bad[:, None, None], 0) for part in (self.inputs, self.deltas)\n        )",
                "return",
            )
        ],
        test="tests/training/test_affine.py::test_a_record_without_finite_numbers_is_dropped_alone[Wide]",
    ),
    dict(
        name="dropping_writes_into_what_records_share",
        edits=[
            (
                "graphveil.core.clipping.ego_graphs:AffineGradients.drop",
                "self.inputs, self.deltas = (\n            part.masked_fill(bad[:, None, None], 0) for part in (self.inputs, self.deltas)\n        )",
                "for record in bad.nonzero()[:, 0].tolist():\n            self.inputs[record].zero_()\n            self.deltas[record].zero_()",
            )
        ],
        test="tests/training/test_affine.py::test_a_record_without_finite_numbers_is_dropped_alone[Alike]",
    ),
    dict(
        name="a_sample_is_the_first_rows_of_the_table",
        edits=[
            (
                "graphveil.estimators.objective:_hashes",
                'if ids.dtype.kind in "iu":',
                'return np.arange(len(ids)).astype(np.uint64)\n    if ids.dtype.kind in "iu":',
            )
        ],
        test="tests/estimators/training/test_sample.py::test_the_sample_depends_on_neither_order_nor_other_nodes[ids0]",
    ),
    dict(
        name="a_sample_follows_how_many_others_there_are",
        edits=[
            (
                "graphveil.estimators.objective:_hashes",
                'if ids.dtype.kind in "iu":',
                'places = np.random.default_rng(0).permutation(len(ids))[np.argsort(np.argsort(ids))]\n    return places.astype(np.uint64)\n    if ids.dtype.kind in "iu":',
            )
        ],
        test="tests/estimators/training/test_sample.py::test_the_sample_depends_on_neither_order_nor_other_nodes[ids0]",
    ),
    dict(
        name="features_are_learned_from_all_nodes",
        edits=[
            (
                "graphveil.estimators.features.crossfit:",
                'nodes = sample_training_nodes(view, nodes_of(view.labeled_in("train", "val")))',
                'nodes = nodes_of(view.labeled_in("train", "val"))',
            )
        ],
        test="tests/estimators/training/test_sample.py::test_features_outside_of_the_sample_are_not_read[ClassCode]",
    ),
    dict(
        name="receivers_choose_before_sources",
        edits=[
            (
                "graphveil.core.queries.bounded_lists:BoundedTrees._level",
                'source, target = self._kept(self._coins("slots", number, level))',
                'order = np.lexsort((self._owner, self._lists.numpy()))\n        target, source = self._lists.numpy()[order].astype(np.int64), self._owner[order]\n        cap = self._coins("cap", number, level)\n        heard = cut_lists(target, source, self._nodes, self._cap, cap).numpy()\n        target, source = np.nonzero(heard != NO_NODE)[0], heard[heard != NO_NODE].astype(np.int64)\n        order = np.lexsort((target, source))\n        slots = self._coins("slots", number, level)\n        kept = cut_lists(source[order], target[order], self._nodes, self._slots or self._nodes, slots).numpy()\n        source, target = np.nonzero(kept != NO_NODE)[0], kept[kept != NO_NODE].astype(np.int64)',
            )
        ],
        test="tests/release/test_bounded_trees.py::test_caps_before_list_bounds_would_let_a_hub_change_all_trees[20]",
    ),
    dict(
        name="coins_are_for_places_in_the_table",
        edits=[
            (
                "graphveil.core.queries.bounded_lists:cut_lists",
                "RowStream(key).blocks(owner[long], listed[long])",
                "RowStream(key).blocks(long, np.zeros(1, dtype=np.int64))",
            )
        ],
        test="tests/release/test_bounded_trees.py::test_hash_values_by_position_would_let_a_record_change_unrelated_trees[by_position]",
    ),
    dict(
        name="a_record_pays_for_its_own_root_alone",
        edits=[
            (
                "graphveil.core.queries.training_steps:Reach.from_unit",
                "return cls(kept, 1 + (2 if unit.replace_one else 1) * others)",
                "return cls(kept, 1)",
            )
        ],
        test="tests/release/test_bounded_trees.py::test_steps_are_charged_for_all_roots_that_a_record_reaches",
    ),
    dict(
        name="the_deepest_level_of_a_tree_is_not_paid_for",
        edits=[
            (
                "graphveil.core.queries.training_steps:Reach.from_unit",
                "others = slots * below",
                "others = slots * below - slots**depth",
            )
        ],
        test="tests/release/test_bounded_trees.py::test_the_bound_for_two_layers_is_attained",
    ),
    dict(
        name="a_replaced_record_is_paid_for_as_a_nulled_one",
        edits=[
            (
                "graphveil.core.queries.training_steps:Reach.from_unit",
                "(2 if unit.replace_one else 1) * others",
                "others",
            )
        ],
        test="tests/release/test_bounded_trees.py::test_a_replaced_record_changes_up_to_twice_as_many",
    ),
    dict(
        name="friends_who_fill_a_free_slot_are_not_paid_for",
        edits=[
            (
                "graphveil.core.queries.training_steps:Reach.from_unit",
                "others = (slots + unit.max_degree) * below",
                "others = slots * below",
            )
        ],
        test="tests/release/test_bounded_trees.py::test_a_node_that_loses_all_edges_changes_at_most_its_reach_of_trees[2-1-4]",
    ),
    dict(
        name="removals_are_charged_as_additions",
        edits=[
            (
                "graphveil.core.accounting.loss:RootPair.removed",
                "at = self._where(epsilons)",
                "return self.added(epsilons)\n        at = self._where(epsilons)",
            )
        ],
        test="tests/privacy/test_root_loss.py::test_golden_deltas_of_one_step[event1-forth1-back1]",
    ),
    dict(
        name="a_nulled_record_leaves_nothing_behind",
        edits=[
            (
                "graphveil.core.accounting.loss:RootPair.from_event",
                'others = most if event.relation == "replace" else most - 1',
                "others = 0",
            )
        ],
        test="tests/privacy/test_root_loss.py::test_golden_deltas_of_one_step[event1-forth1-back1]",
    ),
    dict(
        name="no_gradient_is_clipped",
        edits=[
            (
                "graphveil.core.queries.training_steps:noisy_mean",
                "gradients.add(noise.batch(step, gradients.count), clip)",
                "gradients.add(noise.batch(step, gradients.count), 1e9 * clip)",
            )
        ],
        test="tests/contracts/test_training_steps.py::test_a_record_moves_a_step_by_its_clip",
        reason="moves",
    ),
    dict(
        name="gradients_are_clipped_at_twice_the_norm",
        edits=[
            (
                "graphveil.core.queries.training_steps:noisy_mean",
                "gradients.add(noise.batch(step, gradients.count), clip)",
                "gradients.add(noise.batch(step, gradients.count), 2 * clip)",
            )
        ],
        test="tests/contracts/test_training_steps.py::test_a_replacement_moves_a_step_by_two_clips",
        reason="moves",
    ),
    dict(
        name="the_mean_is_clipped_and_no_record_is",
        edits=[
            (
                "graphveil.core.queries.training_steps:noisy_mean",
                "gradients.add(noise.batch(step, gradients.count), clip)",
                "gradients.add(noise.batch(step, gradients.count), 1e9 * clip)\n    sums.mul_(min(1.0, clip * gradients.count / max(1e-9, float(sums.norm()))))",
            )
        ],
        test="tests/contracts/test_training_steps.py::test_a_record_moves_a_step_by_its_clip",
    ),
    dict(
        name="a_step_is_divided_by_who_came",
        edits=[
            (
                "graphveil.core.queries.training_steps:noisy_mean",
                "noise.sampling_rate * gradients.count",
                "max(1, len(noise.batch(step, gradients.count)))",
            )
        ],
        test="tests/contracts/test_training_steps.py::test_a_step_is_divided_by_a_public_size",
        reason="not the sum over q N",
    ),
    dict(
        name="training_noise_is_zero",
        edits=[
            (
                "graphveil.core.noise.steps:StepNoise.noise",
                "return self._noise(step, self.parameters)",
                "return 0 * self._noise(step, self.parameters)",
            )
        ],
        test="tests/contracts/test_training_steps.py::test_a_step_carries_its_noise",
        reason="variance",
    ),
    dict(
        name="training_noise_is_three_percent_too_small",
        edits=[
            (
                "graphveil.core.noise.steps:StepNoise.noise",
                "return self._noise(step, self.parameters)",
                "return np.rint(0.97 * self._noise(step, self.parameters)).astype(np.int64)",
            )
        ],
        test="tests/contracts/test_training_steps.py::test_a_step_carries_its_noise",
        reason="variance",
    ),
    dict(
        name="every_step_has_the_first_ones_noise",
        edits=[
            (
                "graphveil.core.noise.steps:StepNoise.noise",
                "return self._noise(step, self.parameters)",
                "return self._noise(0, self.parameters)",
            )
        ],
        test="tests/contracts/test_training_steps.py::test_a_step_carries_its_noise",
    ),
    dict(
        name="batches_have_a_fixed_size",
        edits=[
            (
                "graphveil.core.noise.steps:StepNoise.batch",
                "if self.sampling_rate == 1:",
                "generator, size = np.random.default_rng(step), round(self.sampling_rate * count)\n        return torch.from_numpy(np.sort(generator.choice(count, size, replace=False)))\n        if self.sampling_rate == 1:",
            )
        ],
        test="tests/contracts/test_training_steps.py::test_batches_are_poisson",
        reason="not binomial",
    ),
    dict(
        name="records_are_in_five_percent_more_often",
        edits=[
            (
                "graphveil.core.noise.steps:StepNoise.batch",
                "return torch.from_numpy(chosen)",
                "more = np.flatnonzero(np.random.default_rng(step).random(count) < 0.05 * self.sampling_rate)\n        return torch.from_numpy(np.union1d(chosen, more))",
            )
        ],
        test="tests/contracts/test_training_steps.py::test_records_are_in_with_the_rate",
        reason="rate is not",
    ),
    dict(
        name="records_with_large_gradients_stay_unclipped",
        edits=[
            (
                "graphveil.core.clipping.clipped_sums:clip_factors",
                "        return factors, None",
                "        return torch.where(square_norms > 100 * clip**2, torch.ones_like(factors), factors), None",
            )
        ],
        test="tests/contracts/test_training_steps.py::test_a_record_moves_a_step_by_its_clip",
        reason="moves",
    ),
    dict(
        name="keys_of_releases_come_from_a_pool_that_a_forked_child_shares",
        edits=[
            (
                "graphveil.core.keys:ReleaseKey.fresh",
                "secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES)",
                "secrets.token_bytes(KEY_BYTES), _POOL.pop()",
            ),
            (
                "graphveil.core.keys:",
                "from graphveil.core.noise.random import KEY_BYTES\n",
                "from graphveil.core.noise.random import KEY_BYTES\n\n_POOL = [secrets.token_bytes(KEY_BYTES) for _ in range(6000)]\n",
            ),
        ],
        test="tests/release/test_keys.py::test_keys_come_from_the_operating_system_one_by_one[secret]",
    ),
    dict(
        name="keys_of_releases_come_from_the_clock",
        edits=[
            (
                "graphveil.core.keys:ReleaseKey.fresh",
                "secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES)",
                'secrets.token_bytes(KEY_BYTES), __import__("time").time_ns().to_bytes(KEY_BYTES, "little")',
            )
        ],
        test="tests/release/test_keys.py::test_keys_come_from_the_operating_system_one_by_one[secret]",
    ),
    dict(
        name="keys_of_releases_come_from_a_counter_of_time",
        edits=[
            (
                "graphveil.core.keys:ReleaseKey.fresh",
                "secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES)",
                'secrets.token_bytes(KEY_BYTES), __import__("time").perf_counter_ns().to_bytes(KEY_BYTES, "little")',
            )
        ],
        test="tests/release/test_keys.py::test_keys_come_from_the_operating_system_one_by_one[secret]",
    ),
    dict(
        name="keys_of_releases_come_from_16_bits",
        edits=[
            (
                "graphveil.core.keys:ReleaseKey.fresh",
                "secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES)",
                "secrets.token_bytes(KEY_BYTES), secrets.token_bytes(2) + bytes(KEY_BYTES - 2)",
            )
        ],
        test="tests/release/test_keys.py::test_keys_come_from_the_operating_system_one_by_one[secret]",
    ),
    dict(
        name="keys_of_releases_come_from_a_generator_with_a_seed",
        edits=[
            (
                "graphveil.core.keys:ReleaseKey.fresh",
                "secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES)",
                'secrets.token_bytes(KEY_BYTES), __import__("random").randbytes(KEY_BYTES)',
            )
        ],
        test="tests/release/test_keys.py::test_keys_come_from_the_operating_system_one_by_one[secret]",
    ),
    dict(
        name="keys_of_releases_come_from_48_bits",
        edits=[
            (
                "graphveil.core.keys:ReleaseKey.fresh",
                "secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES)",
                "secrets.token_bytes(KEY_BYTES), secrets.token_bytes(6) + bytes(KEY_BYTES - 6)",
            )
        ],
        test="tests/release/test_keys.py::test_keys_come_from_the_operating_system_one_by_one[secret]",
    ),
    dict(
        name="keys_of_local_noise_come_from_a_pool_that_a_forked_child_shares",
        edits=[
            (
                "graphveil.mechanisms.local_noise:LocalNoise.__init__",
                "secrets.token_bytes(KEY_BYTES)",
                "_POOL.pop()",
            ),
            (
                "graphveil.mechanisms.local_noise:",
                "from graphveil.core.noise.random import KEY_BYTES, RowStream\n",
                "from graphveil.core.noise.random import KEY_BYTES, RowStream\n\n_POOL = [secrets.token_bytes(KEY_BYTES) for _ in range(6000)]\n",
            ),
        ],
        test="tests/mechanisms/test_local_noise.py::test_keys_are_fresh",
    ),
    dict(
        name="keys_of_local_noise_come_from_the_clock",
        edits=[
            (
                "graphveil.mechanisms.local_noise:LocalNoise.__init__",
                "secrets.token_bytes(KEY_BYTES)",
                '__import__("time").time_ns().to_bytes(KEY_BYTES, "little")',
            )
        ],
        test="tests/mechanisms/test_local_noise.py::test_keys_are_fresh",
    ),
    dict(
        name="keys_of_local_noise_come_from_a_counter_of_time",
        edits=[
            (
                "graphveil.mechanisms.local_noise:LocalNoise.__init__",
                "secrets.token_bytes(KEY_BYTES)",
                '__import__("time").perf_counter_ns().to_bytes(KEY_BYTES, "little")',
            )
        ],
        test="tests/mechanisms/test_local_noise.py::test_keys_are_fresh",
    ),
    dict(
        name="keys_of_local_noise_come_from_16_bits",
        edits=[
            (
                "graphveil.mechanisms.local_noise:LocalNoise.__init__",
                "secrets.token_bytes(KEY_BYTES)",
                "secrets.token_bytes(2) + bytes(KEY_BYTES - 2)",
            )
        ],
        test="tests/mechanisms/test_local_noise.py::test_keys_are_fresh",
    ),
    dict(
        name="keys_of_local_noise_come_from_a_generator_with_a_seed",
        edits=[
            (
                "graphveil.mechanisms.local_noise:LocalNoise.__init__",
                "secrets.token_bytes(KEY_BYTES)",
                '__import__("random").randbytes(KEY_BYTES)',
            )
        ],
        test="tests/mechanisms/test_local_noise.py::test_keys_are_fresh",
    ),
    dict(
        name="keys_of_local_noise_come_from_48_bits",
        edits=[
            (
                "graphveil.mechanisms.local_noise:LocalNoise.__init__",
                "secrets.token_bytes(KEY_BYTES)",
                "secrets.token_bytes(6) + bytes(KEY_BYTES - 6)",
            )
        ],
        test="tests/mechanisms/test_local_noise.py::test_keys_are_fresh",
    ),
    dict(
        name="a_forked_copy_of_a_release_answers",
        edits=[("graphveil.core.release:Release.answer", "check_process(self._process)", "pass")],
        test="tests/release/test_one_process.py::test_a_forked_copy_of_a_release_is_rejected",
    ),
    dict(
        name="a_forked_copy_draws_training_noise",
        edits=[
            (
                "graphveil.core.queries.training_steps:OneProcessNoise.batch",
                "check_process(self._process)",
                "pass",
            ),
            (
                "graphveil.core.queries.training_steps:OneProcessNoise.noise",
                "check_process(self._process)",
                "pass",
            ),
        ],
        test="tests/release/test_one_process.py::test_forked_copies_of_training_noise_are_rejected",
    ),
    dict(
        name="every_feature_has_the_whole_budget",
        edits=[("graphveil.mechanisms.features:EvenAllocation.budgets", "epsilon / dim", "epsilon")],
        test="tests/mechanisms/test_local.py::test_the_whole_vector_keeps_the_budget[feature-rr]",
        reason="a record spends",
    ),
    dict(
        name="weights_of_features_may_add_up_to_more_than_one",
        edits=[
            (
                "graphveil.mechanisms.features:WeightedAllocation.__init__",
                "if abs(total - 1) > _ROUNDING:",
                "if False:",
            ),
            (
                "graphveil.mechanisms.features:WeightedAllocation.budgets",
                "(epsilon / max(1.0, math.fsum(self.theta)))",
                "epsilon",
            ),
        ],
        test="tests/mechanisms/test_local.py::test_weights_that_are_accepted_keep_the_budget",
        reason="spends 1.7",
    ),
    dict(
        name="floor_and_best_are_mixed_up",
        edits=[
            (
                "graphveil.mechanisms.feature_mechanisms:MultiBit.samples",
                'if self.m == "floor":',
                'if self.m == "best":',
            )
        ],
        test="tests/mechanisms/test_multibit.py::test_the_best_number_of_features",
        reason="takes 2",
    ),
    dict(
        name="a_sampled_allocation_reports_every_feature",
        edits=[
            (
                "graphveil.papers.per_feature:PerFeature.samples",
                "return self.allocation.size(self.epsilon, self.dim)",
                "return self.dim",
            )
        ],
        test="tests/mechanisms/test_multibit.py::test_golden_worst_variances_of_samples[50-3.0-wanted0]",
    ),
    dict(
        name="every_sampled_feature_has_the_whole_budget",
        edits=[
            (
                "graphveil.papers.per_feature:PerFeature.scalars",
                "self.epsilon / self.samples",
                "self.epsilon",
            )
        ],
        test="tests/mechanisms/test_local.py::test_the_whole_vector_keeps_the_budget[duchi, SampledAllocation]",
    ),
    dict(
        name="the_own_class_is_said_as_if_it_had_to_be_alone",
        edits=[
            (
                "graphveil.mechanisms.labels:SubsetSelection.counts",
                "left_out = math.floor(TOTAL * out * (1 + ROUNDING + uneven)) + 1",
                "odds = math.exp(-self.epsilon * self.size) * (self.classes - 1)\n        left_out = math.floor(TOTAL * odds / (1 + odds))",
            )
        ],
        test="tests/mechanisms/test_subset_selection.py::test_no_set_is_more_than_e_to_the_epsilon_times_as_likely[6-1.0]",
    ),
    dict(
        name="other_classes_are_not_numbered_from_the_own_one",
        edits=[
            (
                "graphveil.mechanisms.labels:SubsetSelection._others",
                "return (labels[:, None] + 1 + subsets(words, self.classes - 1)) % self.classes",
                "return subsets(words, self.classes - 1)",
            )
        ],
        test="tests/mechanisms/test_subset_selection.py::test_sets_follow_the_law[3]",
    ),
    dict(
        name="a_group_is_said_at_twice_the_budget",
        edits=[
            (
                "graphveil.mechanisms.labels:LocalHashing.among_groups",
                "epsilon=self.epsilon",
                "epsilon=2 * self.epsilon",
            )
        ],
        test="tests/mechanisms/test_local_hashing.py::test_for_every_fixed_hash_no_group_is_more_than_e_to_the_epsilon_times_as_likely[7-1.0]",
    ),
    dict(
        name="everybody_has_one_hash",
        edits=[
            (
                "graphveil.local.collect.protocol:_bound",
                'return f"graphveil-{use}/1\\0".encode() + protocol.digest + node_text(node)',
                'return b"one"',
            )
        ],
        test="tests/collect/test_encoding.py::test_protocol_and_node_choose_the_groups_of_classes",
    ),
    dict(
        name="a_message_may_say_all_classes",
        edits=[
            (
                "graphveil.mechanisms.labels:SubsetSelection.from_fields",
                "if (fields.sum(axis=1) != self.size).any():\n"
                '            raise LDPReportError(f"The LDP report does not have the {self.size} classes of the '
                'protocol.")\n        return np.nonzero(fields)[1].reshape(-1, self.size)',
                "return np.nonzero(fields)[1][None]",
            )
        ],
        test="tests/collect/test_encoding.py::test_rejects_another_number_of_classes[parts2]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="a_guess_hears_the_labels_that_weigh_it",
        edits=[
            (
                "graphveil.local.posterior_mixture:_held_out_posteriors",
                "left = without_labels(noisy, away)",
                "left = noisy",
            )
        ],
        test="tests/estimators/lpgnn/test_mixture.py::test_held_out_predictions_do_not_read_the_reports_of_their_fold",
    ),
    dict(
        name="a_message_belongs_to_nobody",
        edits=[
            (
                "graphveil.local.collect.protocol:_payload",
                "if encoded_report[_HEADER - TAG_BYTES : _HEADER] != node_tag(protocol, node):",
                "if False:",
            )
        ],
        test="tests/collect/test_collector.py::test_rejects_replayed_reports",
    ),
    dict(
        name="the_model_card_says_how_many_edges_there_are",
        edits=[
            (
                "graphveil.runs.run:_stage_release",
                "dataset=experiment.source.published_name,",
                'dataset=f"{experiment.source.published_name} ({len(experiment.source.load().adjacency.indices)} edges)",',
            )
        ],
        test="tests/contracts/test_transcript.py::test_a_fit_publishes_only_what_follows_from_noisy_answers[mlp-undirected-edge]",
    ),
    dict(
        name="a_release_can_be_refunded_until_its_last_answer",
        edits=[
            (
                "graphveil.core.release:Release.answer",
                "if self._position == 0:",
                "if self._position == len(self._path) - 1:",
            )
        ],
        test="tests/release/test_release.py::test_a_release_is_refunded_until_its_first_answer",
    ),
    dict(
        name="a_resume_may_have_other_groups",
        edits=[
            (
                "graphveil.core.release:Release.open",
                'memory.check_fingerprint("groups", lambda key: keyed_digest(key, *of_groups))',
                "pass",
            )
        ],
        test="tests/release/test_release.py::test_a_resume_with_other_groups_is_rejected",
        reason="DID NOT RAISE",
    ),
    dict(
        name="methods_receive_protected_edges_themselves",
        edits=[
            (
                "graphveil.estimators.method:Method.view",
                "protected_view(graph, self.privacy_config.unit)",
                "graph",
            )
        ],
        test="tests/estimators/test_protected_edges.py::test_a_method_that_reads_edges_is_stopped_before_anything_is_charged[mlp]",
    ),
    dict(
        name="links_receive_protected_edges_themselves",
        edits=[
            (
                "graphveil.estimators.lifecycle:Model._result",
                "ready.method.view(ready.scaled)",
                "ready.scaled",
            )
        ],
        test="tests/estimators/test_protected_edges.py::test_links_receive_a_handle_of_edges[fit]",
    ),
    dict(
        name="recommenders_receive_protected_edges_themselves",
        edits=[
            (
                "graphveil.links.recommender:Recommender._result",
                "method.view(ready.scaled)",
                "ready.scaled",
            )
        ],
        test="tests/estimators/test_protected_edges.py::test_recommenders_query_a_handle",
    ),
    dict(
        name="predictions_receive_protected_edges_themselves",
        edits=[
            (
                "graphveil.estimators.inference:GraphRequest.execute",
                "prediction_state.fitted.method.view(self.graph)",
                "self.graph",
            )
        ],
        test="tests/estimators/test_protected_edges.py::test_a_prediction_of_another_graph_receives_a_handle",
    ),
    dict(
        name="checks_and_plans_receive_records",
        edits=[
            (
                "graphveil.core.view:protected_view",
                "unit.protects_records",
                'unit.level == "local"',
            )
        ],
        test="tests/estimators/test_protected_edges.py::test_no_check_plan_or_guarantee_reads_records[labeled-check-mlp, records]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="functions_of_one_record_are_not_probed",
        edits=[("graphveil.core.view:RecordFunction.__call__", "if not self._probed:", "if False:")],
        test="tests/estimators/test_protected_edges.py::test_a_function_of_other_records_is_rejected[mean]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="functions_of_one_record_are_probed_alone_only",
        edits=[
            (
                "graphveil.core.view:RecordFunction._probe",
                "_close(a[:last], b[:last])",
                "True",
            ),
            ("graphveil.core.view:RecordFunction._probe", "_close(a[:1], b)", "len(a) >= len(b)"),
        ],
        test="tests/estimators/test_protected_edges.py::test_a_function_of_other_records_is_rejected[shift]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="clipped_sums_of_protected_records_are_readable",
        edits=[
            ("graphveil.core.clipping.clipped_sums:ClippedSum._readable", "if self._protected:", "if False:")
        ],
        test="tests/estimators/test_protected_edges.py"
        "::test_a_clipped_sum_of_protected_records_is_not_read[sums-labels]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="a_step_size_follows_exact_labels",
        edits=[
            (
                "graphveil.estimators.private_training:descend_softmax",
                "    settings = (weight, bias)",
                "    share = float(gradients.arrays[-1].double().mean())\n"
                "    schedule = __import__('dataclasses').replace(\n"
                "        schedule, learning_rate=schedule.learning_rate * (1 + 0.1 * share)\n"
                "    )\n    settings = (weight, bias)",
            )
        ],
        test="tests/estimators/test_mlp_node_level.py::test_settings_do_not_depend_on_the_number_of_labels",
        reason="gradients of protected records",
    ),
    dict(
        name="each_end_of_an_edge_reads_it",
        edits=[
            (
                "graphveil.core.view:own_rows",
                "if edges.unit not in (Node.name, NodeRecord.name, Person.name):",
                "if False:",
            )
        ],
        test="tests/estimators/test_protected_edges.py::test_only_a_node_record_reads_its_own_edges",
        reason="DID NOT RAISE",
    ),
    dict(
        name="stored_rows_of_records_are_no_handle",
        edits=[
            (
                "graphveil.core.view:kept_rows",
                "ProtectedRows(rows, like._unit) if isinstance(like, ProtectedRows) else rows",
                "rows",
            )
        ],
        test="tests/estimators/test_protected_edges.py::test_stored_rows_of_records_stay_a_handle",
    ),
    dict(
        name="local_methods_receive_records",
        edits=[
            (
                "graphveil.local.local_method:LocalMethod.view",
                "return protected_view(graph, self.privacy_config.unit, self.report_config.public_fields)",
                "return graph",
            )
        ],
        test="tests/estimators/test_protected_local.py::test_no_check_plan_or_guarantee_of_a_local_method_reads_records[check-lpgnn-x]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="features_that_are_not_reported_are_received",
        edits=[
            (
                "graphveil.local.reports:ReportConfig.public_fields",
                "public = self.features is not None and (",
                "public = self.features is None or (",
            )
        ],
        test="tests/estimators/test_protected_local.py::test_a_local_method_that_reads_records_is_stopped_before_anything_is_charged[label-posterior-x]",
    ),
    dict(
        name="all_labels_are_public_if_features_are",
        edits=[
            (
                "graphveil.local.reports:ReportConfig.public_fields",
                "return features if self.protects_labels else",
                "return features if self.protects_labels and not features else",
            )
        ],
        test="tests/estimators/test_protected_local.py::test_what_a_fit_sees[public features]",
    ),
    dict(
        name="heterorr_receives_features",
        edits=[
            (
                "graphveil.local.heterorr:HeteroMethod.view",
                "LocalAttributes(), self.report_config.public_fields)",
                'LocalAttributes(), ("x", *self.report_config.public_fields))',
            )
        ],
        test="tests/estimators/test_protected_local.py::test_a_local_method_that_reads_records_is_stopped_before_anything_is_charged[heterorr-x]",
    ),
    dict(
        name="collections_for_predictions_receive_records",
        edits=[
            (
                "graphveil.local.local_method:collection_requests",
                "view = method.view(graph)",
                "view = graph",
            )
        ],
        test="tests/estimators/test_protected_local.py::test_a_prediction_of_another_graph_receives_handles_of_records",
    ),
    dict(
        name="predictions_from_exact_records_of_clients_are_published",
        edits=[("graphveil.core.view:_opened", "if rows._unit == LocalAttributes.name:", "if False:")],
        test="tests/estimators/test_protected_local.py::test_no_prediction_depends_on_exact_records",
        reason="DID NOT RAISE",
    ),
    dict(
        name="clients_report_before_they_are_charged",
        edits=[
            (
                "graphveil.core.collection:collect",
                "store = partial",
                "found |= {} if 'reproducible' in found else randomize(*map(unwrapped, records))\n"
                "        store = partial",
            )
        ],
        test="tests/estimators/test_protected_local.py::test_records_are_opened_after_the_collection_is_charged[lpgnn]",
    ),
    dict(
        name="the_mlp_adds_exact_sums_over_private_edges",
        edits=[
            (
                "graphveil.estimators.mlp:TunedMLP.fit",
                "proba=public.log.exp().to(torch.float32)",
                'proba=(public.log + __import__("graphveil.core.exact_sums", fromlist=["_"]).neighbor_sums(view.adjacency, public.log.exp())).softmax(1).to(torch.float32)',
            )
        ],
        test="tests/contracts/test_transcript.py::test_a_fit_publishes_only_what_follows_from_noisy_answers[mlp-undirected-edge]",
    ),
    dict(
        name="lpgnet_adds_exact_sums_over_private_edges",
        edits=[
            (
                "graphveil.papers.lpgnet:LPGNetMethod.fit",
                "proba=logits.softmax(dim=1)",
                'proba=(logits + __import__("graphveil.core.exact_sums", fromlist=["_"]).neighbor_sums(view.adjacency, logits.softmax(dim=1).double())).softmax(dim=1)',
            )
        ],
        test="tests/contracts/test_transcript.py::test_a_fit_publishes_only_what_follows_from_noisy_answers[lpgnet-directed-edge]",
    ),
    dict(
        name="gap_releases_the_number_of_edges",
        edits=[
            (
                "graphveil.estimators.gap.method:",
                "proba=trained.proba(views), released=released)",
                'proba=trained.proba(views), released=released | {"edges": torch.tensor([len(view.adjacency._unwrap().indices)])})',
            ),
        ],
        test="tests/contracts/test_transcript.py::test_a_fit_publishes_only_what_follows_from_noisy_answers[gap-undirected-edge]",
    ),
    dict(
        name="spectral_adds_exact_degrees",
        edits=[
            (
                "graphveil.estimators.spectral:",
                "proba=log.exp().to(torch.float32), released=released_state",
                "proba=(log * (1 + view.adjacency._unwrap().indptr.diff())[:, None]).softmax(1).to(torch.float32), released=released_state",
            ),
        ],
        test="tests/contracts/test_transcript.py::test_a_fit_publishes_only_what_follows_from_noisy_answers[spectral-undirected-edge]",
    ),
    dict(
        name="the_number_of_epochs_depends_on_the_edges",
        edits=[
            (
                "graphveil.papers.lpgnet:LPGNetMethod._train",
                "self.stack.training_config.nonprivate_schedule(),",
                "__import__('dataclasses').replace(self.stack.training_config.nonprivate_schedule(), epochs=1 + 20 * (len(view.adjacency._unwrap().indices) % 2)),",
            ),
        ],
        test="tests/contracts/test_transcript.py::test_a_fit_publishes_only_what_follows_from_noisy_answers[lpgnet-directed-edge]",
    ),
    dict(
        name="auto_rejects_an_odd_number_of_edges",
        edits=[
            (
                "graphveil.estimators.choice:ValidationChoice.fit",
                'nodes = view.labeled_in("val").nonzero()[:, 0]',
                'nodes = view.labeled_in("val").nonzero()[:, 0]\n        if len(view.adjacency._unwrap().indices) // 2 % 2:\n            raise ArtifactError("odd")',
            ),
        ],
        test="tests/contracts/test_transcript.py::test_a_fit_publishes_only_what_follows_from_noisy_answers[auto-undirected-edge]",
    ),
    dict(
        name="the_network_predicts_on_the_true_graph",
        edits=[
            (
                "graphveil.estimators.full_graph:",
                "        published, view = self.released(",
                "        truth = view\n        published, view = self.released(",
            ),
            (
                "graphveil.estimators.full_graph:",
                "proba=trained.proba(view), released=published)",
                "proba=trained.proba(truth), released=published)",
            ),
        ],
        test="tests/contracts/test_transcript.py::test_a_fit_publishes_only_what_follows_from_noisy_answers[gcn-edge-subset]",
    ),
    dict(
        name="mlp_releases_exact_class_counts",
        edits=[
            (
                "graphveil.estimators.mlp:NodeLevelSoftmax.fit",
                "trained.proba(view), view, session",
                'trained.proba(view), view, session, {"classes": view.y._unwrap().add(1).bincount(minlength=4)}',
            ),
        ],
        test="tests/contracts/test_transcript.py::test_a_fit_publishes_only_what_follows_from_noisy_answers[mlp-node-record]",
    ),
    dict(
        name="gap_releases_which_nodes_have_a_label",
        edits=[
            (
                "graphveil.estimators.gap.method:",
                "released = named_aggregates(aggregates)\n",
                'released = named_aggregates(aggregates) | {"known": view.y._unwrap() >= 0}\n',
            ),
        ],
        test="tests/contracts/test_transcript.py::test_a_fit_publishes_only_what_follows_from_noisy_answers[gap-node-record]",
    ),
    dict(
        name="classcode_adds_exact_features_to_noisy_rows",
        edits=[
            (
                "graphveil.estimators.classcode.node:",
                'noisy = {"rows": aggregated.rows.to(torch.float32)}',
                'noisy = {"rows": aggregated.rows.to(torch.float32) + view.x._unwrap().sum()}',
            ),
        ],
        test="tests/contracts/test_transcript.py::test_a_fit_publishes_only_what_follows_from_noisy_answers[classcode-node-record]",
    ),
    dict(
        name="a_released_tensor_is_as_long_as_the_list_of_edges",
        edits=[
            (
                "graphveil.estimators.own.private_module:",
                "trained.proba(view), view, session",
                'trained.proba(view), view, session, {"padding": torch.zeros(len(view.adjacency._unwrap().indices))}',
            ),
        ],
        test="tests/contracts/test_transcript.py::test_a_fit_publishes_only_what_follows_from_noisy_answers[module-node-record/replace-one]",
    ),
    dict(
        name="lpgnn_releases_the_true_labels",
        edits=[
            (
                "graphveil.local.local_method:LocalMethod.collected",
                'found["labels"], clipped)',
                "view.y._unwrap(), clipped)",
            )
        ],
        test="tests/contracts/test_transcript.py::test_a_fit_publishes_only_what_follows_from_noisy_answers[lpgnn-local-attributes]",
    ),
    dict(
        name="simgat_predicts_from_true_features",
        edits=[
            (
                "graphveil.local.local_method:LocalMethod.collected",
                "RandomizedRecords(randomizer.estimates(found, view.x),",
                "RandomizedRecords(type(randomizer.estimates(found, view.x))(view.x._unwrap()),",
            )
        ],
        test="tests/contracts/test_transcript.py::test_a_fit_publishes_only_what_follows_from_noisy_answers[simgat-local-attributes]",
    ),
    dict(
        name="gnn_releases_exact_degrees",
        edits=[
            (
                "graphveil.estimators.gnn.one_hop:",
                '{"rows": noisy.to(torch.float32)}',
                '{"rows": noisy.to(torch.float32), "degrees": view.adjacency._unwrap().indptr.diff()}',
            ),
        ],
        test="tests/contracts/test_transcript.py::test_a_fit_publishes_only_what_follows_from_noisy_answers[gnn-node-record]",
    ),
    dict(
        name="methods_on_edges_train_on_all_labels",
        edits=[
            (
                "graphveil.estimators.objective:",
                "nodes_of(view.labeled_in(part))\n        if every\n        else sample_training_nodes(view, nodes_of(view.labeled_in(part)))",
                "torch.arange(view.num_nodes)",
            )
        ],
        test=[
            "tests/cli/test_transcript.py::test_no_method_reads_test_labels[gap]",
            "tests/cli/test_transcript.py::test_no_method_reads_test_labels[mlp]",
        ],
    ),
    dict(
        name="classcode_learns_features_from_all_labels",
        edits=[
            (
                "graphveil.estimators.features.crossfit:",
                'sample_training_nodes(view, nodes_of(view.labeled_in("train", "val")))',
                "torch.arange(view.num_nodes)",
            )
        ],
        test="tests/cli/test_transcript.py::test_no_method_reads_test_labels[classcode]",
    ),
    dict(
        name="methods_on_records_train_on_all_labels",
        edits=[
            (
                "graphveil.estimators.private_training:",
                'nodes = members(view, "train")\n    records = [',
                "nodes = torch.arange(view.num_nodes)\n    records = [",
            )
        ],
        test=[
            "tests/cli/test_transcript.py::test_no_method_reads_test_labels[gap owner]",
            "tests/cli/test_transcript.py::test_no_method_reads_test_labels[mlp owner]",
        ],
    ),
    dict(
        name="the_plan_is_shown_after_the_run",
        edits=[
            (
                "graphveil.cli.train:",
                "    screen.print_facts(title, plan_facts(plan, folder, account, resumed=resume))\n",
                "    facts = plan_facts(plan, folder, account, resumed=resume)\n",
            ),
            (
                "graphveil.cli.train:",
                "            show(metrics, folder, screen)\n",
                "            screen.print_facts(title, facts)\n            show(metrics, folder, screen)\n",
            ),
        ],
        test="tests/cli/test_transcript.py::test_the_privacy_cost_is_shown_before_it_is_spent",
    ),
    # -- the command line, and checks of arguments ----------
    dict(
        name="text_is_a_sequence_of_budgets",
        edits=[
            (
                "graphveil._util.checks:_fits",
                "if isinstance(value, _TEXTS) or",
                "if isinstance(value, Mapping) or",
            ),
        ],
        test="tests/test_wrong_types.py::test_text_is_not_a_sequence_of_choices[settings-'48']",
    ),
    dict(
        name="a_full_disk_after_the_charge_is_misuse",
        edits=[
            (
                "graphveil.cli.failures:report_charge_on_failure",
                'raise CommandError(FAILED, f"{sentence(failure)} {charged}", failure.kind) from None',
                "raise",
            ),
        ],
        test="tests/cli/test_endings.py::test_a_full_disk_after_the_charge_is_a_failure[decode]",
    ),
    dict(
        name="decode_writes_over_files",
        edits=[
            (
                "graphveil.cli.collect:decode",
                'check_not_existing(out, "Choose another --out.")',
                "pass",
            ),
        ],
        test="tests/cli/test_endings.py::test_existing_files_are_never_overwritten[decode]",
    ),
    dict(
        name="graphs_are_released_at_any_budget",
        edits=[
            (
                "graphveil.perturb.mechanism:GraphMechanism.__post_init__",
                "if self.epsilon > MAX_EPSILON:",
                "if self.epsilon > 1e308:",
            ),
        ],
        test="tests/cli/test_endings.py::test_a_budget_that_protects_nothing_is_rejected[1e300-edge-rand]",
    ),
    dict(
        name="the_fingerprint_of_the_graph_is_readable",
        edits=[
            (
                "graphveil.publish.schemas:write_schema",
                'write_atomic(path, (record.model_dump_json(indent=1) + "\\n").encode())',
                'path.write_text(record.model_dump_json(indent=1) + "\\n", encoding="utf-8")',
            ),
        ],
        test="tests/cli/test_endings.py::test_internal_files_are_private_and_no_file_is_writable_for_others[0]",
    ),
    dict(
        name="a_value_may_be_an_option",
        edits=[
            (
                "graphveil.cli.help:Command._check_values",
                'if following is not None and (following.startswith("--") or following in names):',
                "if following is not None and following is ctx:",
            ),
        ],
        test="tests/cli/test_endings.py::test_an_option_is_never_read_as_a_value[reason]",
    ),
    # -- the ledger ----------
    dict(
        name="room_is_that_of_a_gaussian_release",
        edits=[
            (
                "graphveil.ledger.costs:PrivacyCost.remaining_epsilon",
                "PrivacyCost.from_entry(like)",
                "_MU",
            ),
        ],
        test="tests/ledger/test_costs.py::test_remaining_epsilon_is_all_that_fits_and_no_more[hop-pure]",
    ),
    dict(
        name="room_is_not_one_sided",
        edits=[
            (
                "graphveil.ledger.costs:PrivacyCost.remaining_epsilon",
                "return _round_down(one._scaled(share)",
                "return 1.06 * _round_down(one._scaled(share)",
            ),
        ],
        test="tests/ledger/test_costs.py::test_remaining_epsilon_is_all_that_fits_and_no_more[hop-gaussian]",
    ),
    dict(
        name="reports_cost_nothing_beside_other_events",
        edits=[
            (
                "graphveil.ledger.costs:PrivacyCost.event",
                "parts.append(ApproximateDP(part.epsilon, part.delta))",
                "pass",
            ),
        ],
        test="tests/ledger/test_costs.py::test_ldp_reports_add_their_epsilon_to_other_events[gaussian]",
    ),
    dict(
        name="name_is_bound_by_a_check",
        edits=[
            (
                "graphveil.ledger.reservations:DataSetLedger.check",
                "if not new:",
                "self.bind_data()\n        if not new:",
            ),
        ],
        test="tests/ledger/test_sql_ledger.py::test_a_name_is_bound_with_the_first_release[sqlite]",
        reason="The data differ from those",
    ),
    dict(
        name="name_is_bound_before_a_rejection",
        edits=[
            (
                "graphveil.ledger.reservations:DataSetLedger.record",
                "receipt = self._attempt(",
                "self.bind_data()\n        receipt = self._attempt(",
            ),
        ],
        test="tests/ledger/test_sql_ledger.py::test_a_name_is_bound_with_the_first_release[sqlite]",
        reason="The data differ from those",
    ),
    dict(
        name="key_of_the_ledger_is_not_checked",
        edits=[
            (
                "graphveil.ledger.database:key_fault",
                "if state.checked != key_check(key):",
                "if False:",
            ),
        ],
        test="tests/ledger/test_ledger_files.py::test_a_lost_or_changed_key_is_detected[change_key-sqlite]",
    ),
    dict(
        name="fork_of_a_memory_ledger_records",
        edits=[
            (
                "graphveil.core.ledger:MemoryLedger._check_process",
                "if os.getpid() != self._process:",
                "if False:",
            ),
        ],
        test="tests/ledger/test_memory_ledger.py::test_rejects_calls_in_a_forked_process[record-unlimited]",
        reason="granted",
    ),
    dict(
        name="ledger_of_a_newer_version_is_opened",
        edits=[
            (
                "graphveil.ledger.database:Store._check_version",
                "if content != str(VERSION):",
                "if content is None:",
            ),
        ],
        test="tests/ledger/test_ledger_files.py::test_rejects_a_ledger_of_another_version[3-has version 3-sqlite]",
    ),
    dict(
        name="older_copy_of_a_ledger_is_continued",
        edits=[
            (
                "graphveil.ledger.locations:HighWaterMark.check",
                "seen[1] <= count",
                "seen[1] >= 0",
            ),
        ],
        test="tests/ledger/test_ledger_files.py::test_rejects_an_older_copy_that_was_put_back[renamed]",
    ),
    dict(
        name="entries_of_unknown_kinds_verify",
        edits=[
            (
                "graphveil.ledger.chain:_AccountReplay._follow",
                'return f"an entry is of the unknown kind {kind[:20]!r}"',
                "return None",
            ),
        ],
        test="tests/ledger/test_sql_ledger.py::test_verify_finds_impossible_entries_in_a_rewritten_chain[an unknown kind-sqlite]",
        reason="not enough values to unpack",
    ),
    dict(
        name="same_people_start_at_zero",
        edits=[
            (
                "graphveil.ledger.bindings:shared_with",
                "elif not apart and (equal or people.smaller):",
                "elif False:",
            ),
        ],
        test="tests/cli/test_ledger_accounts.py::test_changed_data_of_the_same_people_stay_in_their_account[edge and label]",
    ),
    dict(
        name="ledger_keeps_a_log_beside_its_file",
        edits=[
            (
                "graphveil.ledger.database:_engine",
                "journal_mode=TRUNCATE",
                "journal_mode=WAL",
            ),
        ],
        test="tests/ledger/test_ledger_files.py::test_a_plain_copy_of_the_file_has_every_release[killed]",
    ),
    dict(
        name="restore_ignores_receipts",
        edits=[
            (
                "graphveil.ledger.sql_ledger:_lacking",
                "if missing_receipts:",
                "if False:",
            ),
        ],
        test="tests/ledger/test_ledger_files.py::test_an_older_backup_is_restored_with_force_only[a receipt]",
    ),
    dict(
        name="data_set_with_releases_is_unbound",
        edits=[
            (
                "graphveil.ledger.sql_ledger:Ledger.unbind",
                "if kinds.count(RESERVE) > kinds.count(REFUND):",
                "if False:",
            ),
        ],
        test="tests/ledger/test_sql_ledger.py::test_a_name_without_releases_can_be_unbound[sqlite]",
    ),
    # -- custom modules ----------
    dict(
        name="deltas_of_affine_maps_stay_float32",
        edits=[
            (
                "graphveil.core.clipping.ego_graphs:AffineGradients.from_calls",
                "delta.to(torch.float64) for",
                "delta for",
            ),
        ],
        test="tests/training/test_stars.py::test_squares_beyond_float32_are_clipped_by_their_norm[1e+24-1e-24-1.0-0.001-ghost]",
    ),
    dict(
        name="norms_of_formed_gradients_are_float32",
        edits=[
            (
                "graphveil.core.clipping.clipped_sums:square_norms",
                "part.to(torch.float64).square().sum(dim=1)",
                "part.square().sum(dim=1).double()",
            ),
        ],
        test="tests/training/test_stars.py::test_squares_beyond_float32_are_clipped_by_their_norm[1-1-1e-25-1e-28-vmap]",
    ),
    dict(
        name="noise_of_a_private_module_ignores_its_code",
        edits=[
            (
                "graphveil.estimators.own.private_module:NodeLevelModule.fit",
                "fingerprint=(_fingerprint(module, sizes),)",
                "fingerprint=()",
            ),
        ],
        test="tests/estimators/own/test_private_module.py::test_an_interrupted_fit_is_not_resumed_with_other_code",
    ),
    dict(
        name="noise_of_trees_ignores_the_code",
        edits=[
            (
                "graphveil.estimators.gnn.module_training:EgoGraphMethod.fit_on_ego_graphs",
                "fingerprint=(code,)",
                "fingerprint=()",
            ),
        ],
        test="tests/estimators/gnn/test_multi_hop.py::test_an_interrupted_fit_is_not_resumed_with_other_data_or_code[code]",
    ),
    dict(
        name="noise_of_stars_ignores_the_code",
        edits=[
            (
                "graphveil.estimators.gnn.module_training:EgoGraphMethod.fit_on_ego_graphs",
                "fingerprint=(code,)",
                "fingerprint=()",
            ),
        ],
        test="tests/estimators/gnn/test_one_hop.py::test_an_interrupted_fit_is_resumed_with_the_same_bytes_and_not_with_other_code",
    ),
    dict(
        name="one_direction_of_poisson_roots_stands_for_both",
        edits=[
            (
                "graphveil.core.accounting.loss:step_loss",
                "PrivacyLossDistribution(forth, back.through(pair.added(back.points)))",
                "PrivacyLossDistribution(forth)",
            ),
        ],
        test="tests/privacy/test_root_loss.py::test_both_directions_are_composed[event0]",
    ),
    dict(
        name="state_that_changes_is_accepted",
        edits=[
            (
                "graphveil.estimators.own.module_checks:reject_mixing",
                "        _check_state(name, before, state_of(probed))\n",
                "",
            ),
        ],
        test="tests/estimators/gnn/test_modules.py::test_rejects_other_modules_with_the_reason[a moving buffer-stars]",
    ),
    dict(
        name="records_in_a_loop_share_one_module",
        edits=[
            (
                "graphveil.core.clipping.ego_graphs:EgoGraphClippedSum._looped_gradients",
                "with self._copies.run() as module:",
                "for module in (self._module,):",
            ),
        ],
        test="tests/training/test_isolation.py::test_one_record_moves_each_sum_by_its_clip_and_no_other_prediction[RunningMax-sly]",
    ),
    dict(
        name="predictions_in_a_loop_share_one_module",
        edits=[
            (
                "graphveil.core.clipping.ego_graphs:ego_graph_logits",
                "with copies.run() as fresh:\n            return one(fresh, x, edges).to",
                "for fresh in (module,):\n            return one(fresh, x, edges).to",
            ),
        ],
        test="tests/training/test_isolation.py::test_one_record_moves_each_sum_by_its_clip_and_no_other_prediction[RunningMax-sly]",
    ),
    dict(
        name="batches_share_one_module",
        edits=[
            (
                "graphveil.core.clipping.clipped_sums:PerSampleClippedSum.__init__",
                "self._copies, self._fixed = ModuleCopies(module),",
                "shared = type('S', (), {'run': lambda self: __import__('contextlib').nullcontext(module)})()\n        self._copies, self._fixed = shared,",
            ),
        ],
        test="tests/training/test_isolation.py::test_records_of_one_step_reach_no_later_step[Kept]",
        reason="escaped from inside a function being vmapped",
    ),
    dict(
        name="weights_are_not_copied_for_each_record",
        edits=[
            (
                "graphveil.core.clipping.isolation:call",
                "tensor.clone()",
                "tensor",
            ),
        ],
        test="tests/training/test_isolation.py::test_one_record_moves_each_sum_by_its_clip_and_no_other_prediction[InABuffer-sly]",
    ),
    dict(
        name="closures_are_shared",
        edits=[
            (
                "graphveil.core.clipping.isolation:ReachableState._search_function",
                'self._keep(cell, "cell_contents", f"variable {key} in the closure of {name}")',
                "pass",
            ),
        ],
        test="tests/training/test_isolation.py::test_one_record_moves_each_sum_by_its_clip_and_no_other_prediction[InClosure-sly]",
    ),
    dict(
        name="class_attributes_are_shared",
        edits=[
            (
                "graphveil.core.clipping.isolation:ReachableState._search_class",
                'self.places.append(_StateLocation(kind, name, f"class attribute {kind.__name__}.{name}"))',
                "pass",
            ),
        ],
        test="tests/training/test_isolation.py::test_one_record_moves_each_sum_by_its_clip_and_no_other_prediction[OnTheClass-plain]",
    ),
    dict(
        name="global_variables_are_shared",
        edits=[
            (
                "graphveil.core.clipping.isolation:ReachableState._search_function",
                'self._keep(home, key, f"global variable {key}")',
                "pass",
            ),
        ],
        test="tests/training/test_isolation.py::test_one_record_moves_each_sum_by_its_clip_and_no_other_prediction[InAGlobalDict-sly]",
    ),
    dict(
        name="caches_are_shared",
        edits=[
            (
                "graphveil.core.clipping.isolation:_copied",
                "for cached in reach.caches",
                "for cached in ()",
            ),
        ],
        test="tests/training/test_isolation.py::test_one_record_moves_each_sum_by_its_clip_and_no_other_prediction[LruCached-sly]",
    ),
    dict(
        name="draws_of_one_record_move_the_next",
        edits=[
            (
                "graphveil.core.clipping.isolation:_same_draws",
                "with torch.random.fork_rng(devices=[]):\n            yield",
                "yield",
            ),
        ],
        test="tests/training/test_isolation.py::test_one_record_moves_each_sum_by_its_clip_and_no_other_prediction[DrawsWhenLoud-plain]",
    ),
    dict(
        name="an_exception_of_one_record_ends_the_fit",
        edits=[
            (
                "graphveil.core.clipping.isolation:maskable_exceptions",
                "(Exception, SystemExit)",
                "(KeyError,)",
            ),
        ],
        test="tests/training/test_isolation.py::test_a_record_on_which_a_module_raises_is_null[Singular-vmap-dtype1]",
        reason="singular",
    ),
    dict(
        name="a_failing_record_has_another_ones_gradient",
        edits=[
            (
                "graphveil.core.clipping.clipped_sums:clip_factors",
                "if failed is not None:",
                "if False:",
            ),
        ],
        test="tests/training/test_isolation.py::test_a_record_on_which_a_module_raises_is_null[Singular-vmap-dtype1]",
    ),
    dict(
        name="a_failed_run_changes_the_records",
        edits=[
            (
                "graphveil.core.clipping.isolation:call",
                "tuple(part.clone() for part in inputs)",
                "inputs",
            ),
        ],
        test="tests/training/test_isolation.py::test_what_a_failed_run_changed_in_place_reaches_no_other_record",
    ),
    dict(
        name="trees_are_charged_for_one_level_less",
        edits=[
            (
                "graphveil.core.queries.training_steps:Reach.from_unit",
                "below = sum(slots**level for level in range(depth))",
                "below = sum(slots**level for level in range(depth - 1))",
            ),
        ],
        test="tests/estimators/gnn/test_multi_hop.py::test_a_fit_is_charged_for_all_roots_that_a_record_reaches[changes1-event1]",
    ),
    dict(
        name="the_shapes_of_the_fit_are_not_tried",
        edits=[
            (
                "graphveil.estimators.gnn.module_training:check_trainable",
                "x, edges = random_full_trees(parents,",
                "parents = parents[:1]\n        x, edges = random_full_trees(parents,",
            ),
        ],
        test="tests/estimators/gnn/test_modules.py::test_modules_are_run_in_the_shapes_of_the_fit_first[stars]",
        reason="too wide",
    ),
    dict(
        name="a_backward_pass_is_not_tried_in_gap",
        edits=[
            (
                "graphveil.estimators.gap.networks:check_output",
                "_step(name, trained.train(), records(_LOUD))",
                "pass",
            ),
        ],
        test="tests/estimators/test_gap_custom_modules.py::test_rejects_modules_that_would_fail_later_before_a_charge[InPlace-in place that its backward pass reads, the output of Sigmoid-encoder]",
        reason="modified by an inplace operation",
    ),
    dict(
        name="one_of_two_tied_weights_is_not_trained",
        edits=[
            (
                "graphveil.core.clipping.isolation:call",
                "if tensor is not None:",
                "if tensor is not None and id(tensor) not in first:",
            ),
        ],
        test="tests/estimators/gnn/test_modules.py::test_shared_parts_have_the_sum_of_their_gradients[weight]",
    ),
    # -- scaling, units and columns by name ----------
    dict(
        name="all_columns_of_feature_histograms_are_charged_as_one",
        edits=[
            (
                "graphveil.core.queries.record_counts:FeatureHistogramQuery.sensitivity",
                "math.sqrt(self.columns * require_record_unit(unit).change)",
                "math.sqrt(require_record_unit(unit).change)",
            ),
        ],
        test=[
            "tests/contracts/test_checks.py::test_a_release[feature_histograms_cost_what_they_are_charged]",
            "tests/release/test_record_histograms.py::test_a_record_is_charged_for_all_columns",
        ],
    ),
    dict(
        name="feature_histograms_get_half_of_the_noise",
        edits=[
            (
                "graphveil.core.queries.record_counts:FeatureHistogramQuery.answer",
                "return self.noisy_table(counts * int(self.unit_steps), data, key)",
                "return (self.noisy_table(counts * int(self.unit_steps), data, key) + torch.from_numpy(counts)) / 2",
            ),
        ],
        test="tests/release/test_record_histograms.py::test_every_count_of_a_column_has_the_charged_noise",
    ),
    dict(
        name="feature_histograms_of_all_columns_have_the_same_noise",
        edits=[
            (
                "graphveil.core.queries.record_counts:FeatureHistogramQuery.answer",
                "return self.noisy_table(counts * int(self.unit_steps), data, key)",
                "exact = torch.from_numpy(counts)\n        noisy = self.noisy_table(counts * int(self.unit_steps), data, key)\n        return exact + (noisy - exact)[:1]",
            ),
        ],
        test="tests/release/test_record_histograms.py::test_every_count_of_a_column_has_the_charged_noise",
    ),
    dict(
        name="ranges_count_a_record_twice",
        edits=[
            (
                "graphveil.estimators.method:PreparedFit.with_learned_ranges",
                "rows(self.method.view(self.graph).x, nodes)",
                "rows(self.method.view(self.graph).x, nodes.repeat(2))",
            ),
        ],
        test="tests/estimators/features/test_ranges.py"
        "::test_a_record_is_counted_once_in_each_column_and_test_records_are_not_read",
    ),
    dict(
        name="ranges_read_records_that_are_not_charged",
        edits=[
            (
                "graphveil.estimators.method:PreparedFit.with_learned_ranges",
                "nodes_of(charged_members(self.graph, query.pays))",
                "nodes_of(record_groups(self.graph) >= 0)",
            ),
        ],
        test="tests/estimators/features/test_ranges.py"
        "::test_a_record_is_counted_once_in_each_column_and_test_records_are_not_read",
    ),
    dict(
        name="ranges_follow_from_exact_values",
        edits=[
            (
                "graphveil.estimators.method:PreparedFit.with_learned_ranges",
                "scaling = self.scaling.with_ranges(ranges, dense",
                "scaling = self.scaling.with_ranges([(float(one.min()), float(one.max())) for one in self.graph.x[nodes][:, columns].T], dense",
            ),
        ],
        test="tests/estimators/features/test_ranges.py::test_the_scaling_follows_from_noisy_counts_alone",
    ),
    dict(
        name="a_loaded_model_forgets_that_ranges_were_charged",
        edits=[
            (
                "graphveil.estimators.saved:_fitted",
                "learned_columns=len(scaling.learned),",
                "",
            ),
        ],
        test="tests/estimators/features/test_ranges.py"
        "::test_stored_ranges_scale_other_graphs_and_are_never_queried_again",
    ),
    dict(
        name="the_scale_of_targets_reads_test_nodes",
        edits=[
            (
                "graphveil.training.heads:RegressionHead.fitted",
                'self.targets(view)[view.labeled_in("train")]',
                "self.targets(view)[self.targets(view).isfinite()]",
            ),
        ],
        test="tests/estimators/test_regression.py::test_the_scale_of_targets_is_that_of_training_nodes",
    ),
    dict(
        name="scaling_fitted_on_private_records",
        edits=[
            (
                "graphveil.estimators.base:Estimator._scaling",
                "FeatureScaling.from_public_ranges(ranges, dense=view.has_dense_features)",
                "FeatureScaling.from_public_features(graph.x, ranges)",
            ),
        ],
        test="tests/estimators/features/test_scaling.py::test_node_units_scale_by_public_constants_only[node-record]",
    ),
    dict(
        name="another_graph_is_not_scaled",
        edits=[
            (
                "graphveil.estimators.base:Estimator._as_graph",
                "return self.fitted.scaling.graph(aligned(found, self.fitted.encoding))",
                "return aligned(found, self.fitted.encoding)",
            ),
        ],
        test="tests/estimators/features/test_scaling.py::test_another_graph_is_scaled_by_the_training_graph",
    ),
    dict(
        name="column_names_are_not_compared",
        edits=[
            (
                "graphveil.estimators.features.scaling:_shape",
                "return rule.name, kind,",
                "return kind,",
            ),
        ],
        test="tests/cli/test_predict_columns.py::test_a_graph_in_python_is_aligned_by_name[swapped]",
    ),
    dict(
        name="baseline_on_records_by_default",
        edits=[
            (
                "graphveil.cli.train:trains_baseline",
                "not is_node_level(unit) if baseline is None else baseline",
                "baseline is not False",
            ),
        ],
        test="tests/cli/test_train.py::test_a_dry_run_prints_the_total_and_writes_nothing[train on node records]",
    ),
    dict(
        name="unit_none_is_suggested",
        edits=[
            (
                "graphveil._util.checks:suggestion",
                "if choice not in NEVER_SUGGESTED",
                "if choice",
            ),
        ],
        test="tests/privacy/test_unit.py::test_choices_without_a_guarantee_are_never_suggested[non-choices1]",
    ),
    # -- tables and released graphs ----------
    dict(
        name="released_rows_are_not_compared",
        edits=[
            (
                "graphveil.data.tables.files:released",
                "    if bound != found:",
                "    if not bound and not found:",
            ),
        ],
        test="tests/perturb/test_stored_releases.py::test_a_record_does_not_count_for_other_rows[true edges added]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="released_rows_are_compared_by_their_number_alone",
        edits=[
            (
                "graphveil.data.tables.files:released",
                'for name in ("rows", "sha256")}',
                'for name in ("rows",)} | {"sha256": _rows_of.digest}',
            ),
            (
                "graphveil.data.tables.files:_rows_of",
                'return {"rows": table.num_rows, "sha256": digest.hexdigest()}',
                '_rows_of.digest = digest.hexdigest()\n    return {"rows": table.num_rows, "sha256": digest.hexdigest()}',
            ),
        ],
        test="tests/perturb/test_stored_releases.py::test_a_record_does_not_count_for_other_rows[one edge replaced]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="ids_of_a_csv_are_typed_by_their_looks",
        edits=[
            (
                "graphveil.data.tables.inspect_tables:_inspect_nodes",
                "types = dict.fromkeys(written, AS_WRITTEN) if given.written else {}",
                "types = dict.fromkeys(written[:0], AS_WRITTEN) if given.written else {}",
            ),
        ],
        test="tests/tables/test_ids.py::test_ids_of_a_csv_keep_their_spelling[e.csv-zeros]",
    ),
    dict(
        name="words_for_a_missing_label_are_classes",
        edits=[
            (
                "graphveil.data.tables.encoding:class_codes",
                "files.without_words(_labels(files.column(table, name), name), words)",
                "files.without_words(_labels(files.column(table, name), name), words[:0])",
            ),
        ],
        test="tests/tables/test_inspection.py::test_null_values_are_missing_labels_and_features[.csv-NULL]",
        reason="class_names",
    ),
    dict(
        name="weights_of_a_data_are_dropped",
        edits=[
            (
                "graphveil.data.conversion:fields_from_pyg",
                "if max_weight is None and values is not None:",
                "if max_weight is None and values is not None and weighted is None:",
            ),
        ],
        test="tests/data/test_conversion.py::test_rejects_weights_and_features_of_edges_that_would_be_ignored[edge_weight]",
    ),
    dict(
        name="edges_of_ids_written_otherwise_are_to_be_dropped",
        edits=[
            (
                "graphveil.data.tables.ids:id_difference_hint",
                "    for name, step in steps:",
                "    for name, step in steps[:0]:",
            ),
            (
                "graphveil.data.tables.ids:id_difference_hint",
                'return f"{_BLANKS}, {_CASE}" if',
                'return "" if',
            ),
        ],
        test="tests/tables/test_ids.py::test_ids_of_another_spelling_are_reported_and_not_dropped[error-case]",
    ),
    dict(
        name="a_graph_whose_edges_were_all_dropped_is_accepted",
        edits=[
            (
                "graphveil.data.tables.ids:_matched",
                "if unknown == ERROR or (len(kept) and not kept.any()):",
                "if unknown == ERROR:",
            ),
        ],
        test="tests/tables/test_ids.py::test_ids_of_another_spelling_are_reported_and_not_dropped[drop-all others]",
        reason="DID NOT RAISE",
    ),
    # -- the server
    dict(
        name="server_forgets_releases",
        edits=[
            (
                "graphveil.serve.releases:ReleaseService._release",
                "if not self._server_ledger.is_recorded(reference):",
                "if False:",
            )
        ],
        test="tests/serve/test_releases.py::test_later_predictions_of_the_run_count_what_the_server_released",
        reason="not enough values to unpack",
    ),
    dict(
        name="a_stored_answer_is_for_every_caller",
        edits=[
            (
                "graphveil.serve.releases:ReleaseService._answer",
                "caller.sha256.encode(), ",
                "",
            )
        ],
        test="tests/serve/test_releases.py::test_other_callers_are_charged_for_the_same_request[question0]",
    ),
    dict(
        name="the_server_recognizes_the_training_graph",
        edits=[
            (
                "graphveil.serve.releases:ReleaseService._release",
                "load_model(find_release(self._folder))",
                "load_model(self._folder)",
            )
        ],
        test="tests/serve/test_releases.py::test_right_and_wrong_guesses_of_the_training_graph_are_charged_alike[unchanged]",
    ),
    dict(
        name="releases_need_no_keys",
        edits=[("graphveil.serve.__init__:Service.app", "if keys is None:", "if False:")],
        test="tests/serve/test_releases.py::test_rejects_budgets_that_cannot_be_used",
        reason="DID NOT RAISE",
    ),
    dict(
        name="the_budget_is_shown_to_any_key",
        edits=[
            (
                "graphveil.serve.app:application",
                "if key is not None and key.releases else None",
                "if key is not None else None",
            )
        ],
        test="tests/serve/test_releases.py::test_the_budget_is_shown_to_keys_that_may_spend_it",
    ),
    dict(
        name="a_request_keeps_its_place",
        edits=[
            (
                "graphveil.serve.app:RequestMiddleware._answer_prediction",
                "metrics.end_request()",
                "pass",
            )
        ],
        test="tests/serve/test_malformed_requests.py::test_a_malformed_request_keeps_no_place[malformed JSON]",
    ),
    dict(
        name="heads_have_no_bound",
        edits=[
            (
                "graphveil.serve.app:RequestMiddleware.__call__",
                "if head > _HEAD_BYTES:",
                "if False:",
            )
        ],
        test="tests/serve/test_malformed_requests.py::test_heads_above_16_kib_are_rejected[headers-17000]",
    ),
    dict(
        name="unknown_ids_are_not_named",
        edits=[("graphveil.serve.schemas:ids_not_found", "shown=_shown(positions)", 'shown=""')],
        test="tests/serve/test_predictions.py::test_unknown_ids_are_named_by_position",
    ),
    dict(
        name="heads_have_no_deadline",
        edits=[
            ("graphveil.serve.server:ConnectionLimits._check_later", "self._seconds", "1e6 + self._seconds")
        ],
        test="tests/serve/test_slow_clients.py::test_a_slow_client_is_disconnected[half of a second request]",
        reason="timed out",
    ),
    dict(
        name="silent_connections_keep_others_out",
        edits=[("graphveil.serve.server:ConnectionLimits.open", "silent[:excess]", "silent[:0]")],
        test="tests/serve/test_slow_clients.py::test_too_many_connections_close_the_oldest_idle_ones",
        reason="timed out",
    ),
    dict(
        name="answers_that_are_not_read_have_no_bound",
        edits=[
            (
                "graphveil.serve.app:RequestMiddleware._send_answer",
                "if self._unread + size > self._limits.held_bytes:",
                "if False:",
            )
        ],
        test="tests/serve/test_slow_clients.py::test_large_answers_that_are_not_read_are_bounded_in_bytes",
    ),
    dict(
        name="killed_workers_stay_under_way",
        edits=[("graphveil.serve.app:forget_dead_workers", "os.kill(process, 0)", "continue")],
        test="tests/serve/test_processes.py::test_counters_of_workers_are_summed_without_requests_of_killed_ones",
    ),
    # -- calibration of steps, and the range of delta
    dict(
        name="losses_on_a_fixed_grid",
        edits=[
            (
                "graphveil.core.accounting.accountant:_curve",
                "interval or _display_interval(total)",
                "interval or CERTIFY_INTERVAL",
            )
        ],
        test="tests/release/test_calibrate.py::test_small_epsilons_need_no_more_noise_than_dp_accounting_certifies[120-5880-0.02]",
    ),
    dict(
        name="losses_of_pure_releases_are_subtracted_from_a_gaussians",
        edits=[
            (
                "graphveil.core.accounting.accountant:PureGaussianCurve.delta",
                "self.pure.masses",
                "self.pure.masses[::-1]",
            )
        ],
        test="tests/privacy/test_pure.py::test_losses_add_up_with_those_of_a_gaussian",
    ),
    dict(
        name="coarse_search_for_small_losses",
        edits=[
            (
                "graphveil.core.accounting.accountant:search_interval",
                "return min(SEARCH_INTERVAL, _SEARCH_SHARE * mu / math.sqrt(max(1, count)))",
                "return SEARCH_INTERVAL",
            )
        ],
        test="tests/release/test_calibrate.py::test_small_epsilons_need_no_more_noise_than_dp_accounting_certifies[1200-98-0.003]",
    ),
    dict(
        name="edges_are_added_where_none_is_kept",
        edits=[
            (
                "graphveil.core.noise.node_pair_noise:EdgeRandomizedResponse.add",
                "min(self.keep, int(exact.to_integral_value(ROUND_CEILING)))",
                "int(exact.to_integral_value(ROUND_CEILING))",
            )
        ],
        test="tests/mechanisms/test_edge_response.py::test_no_share_lets_a_ratio_exceed_its_bound[1e-20-1.0]",
    ),
    dict(
        name="delta_without_a_proof",
        edits=[
            ("graphveil.core.accounting.gaussian:check_proved_delta", "DELTA_RANGE[0] <= delta", "0 <= delta")
        ],
        test="tests/test_delta_range.py::test_a_delta_outside_the_range_of_the_proofs_is_rejected[1e-50-plan]",
    ),
    # -- Faults that an independent review seeded and no test caught
    dict(
        name="coins_are_for_places_in_a_list",
        edits=[
            (
                "graphveil.core.queries.bounded_lists:cut_lists",
                "RowStream(key).blocks(owner[long], listed[long])",
                "RowStream(key).blocks(owner[long], _places(owner[long]))",
            )
        ],
        test="tests/release/test_bounded_trees.py::test_a_node_leaving_long_lists_changes_no_choice_among_other_nodes[1-5]",
    ),
    dict(
        name="a_second_tier_of_cells_has_the_noise_of_the_first",
        edits=[
            (
                "graphveil.core.queries.graph_queries:TopNodePairsQuery.answer",
                'hmac.new(key, b"second tier", "sha256").digest()',
                "key",
            )
        ],
        test="tests/release/test_edge_response.py::test_a_second_tier_has_noise_of_its_own[0]",
    ),
    dict(
        name="a_piece_has_the_noise_of_the_first_piece",
        edits=[
            (
                "graphveil.core.queries.row_sums:noise_rows",
                "np.arange(edges.start, edges.stop)",
                "np.arange(len(edges))",
            )
        ],
        test="tests/release/test_compact_rows.py::test_pieces_give_the_same_bytes_as_the_whole",
        paths=("compiled",),
    ),
    dict(
        name="a_piece_is_written_where_the_first_piece_is",
        edits=[
            (
                "graphveil.core.queries.row_sums:NoisyRows._fill",
                "out[piece.start - edges.start : piece.stop - edges.start]",
                "out[: len(piece)]",
            )
        ],
        test="tests/release/test_compact_rows.py::test_pieces_give_the_same_bytes_as_the_whole",
        paths=("compiled",),
    ),
    dict(
        name="a_record_at_the_rate_itself_is_in_the_batch",
        edits=[("graphveil.core.noise.steps:StepNoise.batch", ">= low", "> low")],
        test="tests/mechanisms/test_steps.py::test_a_record_is_sampled_iff_its_32_bits_are_below_the_rate[0]",
    ),
    dict(
        name="a_move_is_not_priced_for_edges_in_x_both_times",
        edits=[
            (
                "graphveil.core.queries.dendrogram:walk",
                "max(was_y + new_x, was_x + new_y, was_x + new_x)",
                "max(was_y + new_x, was_x + new_y)",
            ),
            (
                "graphveil.core.noise._native:",
                "larger(larger(was_y + then_x, was_x + then_y), was_x + then_x)",
                "larger(was_y + then_x, was_x + then_y)",
            ),
        ],
        test="tests/dendrogram/test_privacy.py::test_no_move_changes_by_more_than_kappa_where_the_public_part_makes_all_moves_rare",
        paths=("torch", "compiled"),
    ),
    dict(
        name="a_move_is_not_priced_for_edges_that_leave_y",
        edits=[
            (
                "graphveil.core.queries.dendrogram:walk",
                "max(was_y + new_x, was_x + new_y, was_x + new_x)",
                "max(was_x + new_y, was_x + new_x)",
            ),
            (
                "graphveil.core.noise._native:",
                "larger(larger(was_y + then_x, was_x + then_y), was_x + then_x)",
                "larger(was_x + then_y, was_x + then_x)",
            ),
        ],
        test="tests/dendrogram/test_privacy.py::test_the_weight_of_a_move_bounds_all_three_kinds_of_edges[sizes0-0]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="a_move_is_not_priced_for_edges_that_enter_y",
        edits=[
            (
                "graphveil.core.queries.dendrogram:walk",
                "max(was_y + new_x, was_x + new_y, was_x + new_x)",
                "max(was_y + new_x, was_x + new_x)",
            ),
            (
                "graphveil.core.noise._native:",
                "larger(larger(was_y + then_x, was_x + then_y), was_x + then_x)",
                "larger(was_y + then_x, was_x + then_x)",
            ),
        ],
        test="tests/dendrogram/test_privacy.py::test_the_weight_of_a_move_bounds_all_three_kinds_of_edges[sizes2-1]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="the_price_of_a_move_follows_its_private_edges",
        edits=[
            (
                "graphveil.core.queries.dendrogram:walk",
                "step_bound(pairs_y - counts[2 * y])",
                "step_bound(pairs_y - counts[2 * y] - counts[2 * y + 1])",
            ),
            ("graphveil.core.noise._native:", "s->size[j] - at_y[0])", "s->size[j] - at_y[0] - at_y[1])"),
        ],
        test="tests/dendrogram/test_privacy.py::test_the_weight_of_a_move_bounds_all_three_kinds_of_edges[sizes0-0]",
        paths=("torch", "compiled"),
    ),
    dict(
        name="lazy_steps_spend_delta_twice",
        edits=[
            (
                "graphveil.core.queries.dendrogram:step_loss",
                "math.log(2 / delta)",
                "math.log(1 / delta)",
            ),
            (
                "graphveil.core.queries.dendrogram:step_loss",
                "touched_steps(steps, leaves, delta / 2)",
                "touched_steps(steps, leaves, delta)",
            ),
        ],
        test="tests/dendrogram/test_privacy.py::test_either_composition_of_lazy_steps_meets_epsilon_and_delta[1.0-1000]",
    ),
    dict(
        name="plans_are_certified_on_the_coarse_grid",
        edits=[
            (
                "graphveil.core.plan:_largest_scale",
                "certified = cost(scale)",
                "certified = cost(scale, interval=interval)",
            )
        ],
        test="tests/release/test_calibrate.py::test_one_noise_multiplier_for_a_whole_pipeline[1-5.6202]",
    ),
    dict(
        name="the_coarse_grid_forgets_the_number_of_steps",
        edits=[
            (
                "graphveil.core.accounting.accountant:search_interval",
                "_SEARCH_SHARE * mu / math.sqrt(max(1, count))",
                "_SEARCH_SHARE * mu",
            )
        ],
        test="tests/release/test_calibrate.py::test_small_epsilons_need_no_more_noise_than_dp_accounting_certifies[120-5880-0.02]",
    ),
    dict(
        name="a_fingerprint_of_training_data_forgets_their_type",
        edits=[
            (
                "graphveil.core.noise.steps:StepNoise.fingerprint",
                'f"{flat.dtype}{flat.shape}"',
                'f"{flat.shape}"',
            )
        ],
        test="tests/mechanisms/test_steps.py::test_fingerprints_differ_by_key_and_data",
    ),
    dict(
        name="a_keyed_digest_forgets_the_types_of_arrays",
        edits=[
            ("graphveil.core.keys:keyed_digest", 'f"{flat.dtype}{flat.shape}"', 'f"{flat.shape}"'),
        ],
        test="tests/release/test_keys.py::test_digests_are_keyed_and_differ_by_shape_and_type",
    ),
    dict(
        name="predictions_of_a_network_for_loud_records_are_not_finite",
        edits=[
            (
                "graphveil.estimators.mlp:",
                "return self.head.proba(finite_rows(self.network(batch_of(x)))).cpu()",
                "return self.head.proba(self.network(batch_of(x))).cpu()",
            )
        ],
        test=[
            "tests/estimators/test_null_record.py::test_every_prediction_is_finite_for_any_record[sampled network-3e+38-none]",
            "tests/estimators/test_null_record.py::test_every_prediction_is_finite_for_any_record[network-3e+38-none]",
        ],
    ),
    # -- Steps: batches, noise, clipping, resuming
    dict(
        name="all_ties_of_a_batch_have_one_coin",
        edits=[
            ("graphveil.core.noise.steps:StepNoise.batch", "_OWN + records)", "np.full(records.size, _OWN))"),
        ],
        test="tests/mechanisms/test_steps.py::test_a_record_is_sampled_iff_its_32_bits_are_below_the_rate[0]",
    ),
    dict(
        name="ties_of_a_record_have_the_same_coin_in_every_step",
        edits=[
            (
                "graphveil.core.noise.steps:StepNoise.batch",
                "np.full(records.size, step)",
                "np.zeros(records.size, dtype=np.int64)",
            ),
        ],
        test="tests/mechanisms/test_steps.py::test_a_record_is_sampled_iff_its_32_bits_are_below_the_rate[0]",
    ),
    dict(
        name="ties_are_decided_by_the_coins_of_other_records",
        edits=[
            ("graphveil.core.noise.steps:", "_OWN = 1 << 31", "_OWN = 0"),
        ],
        test="tests/mechanisms/test_steps.py::test_a_record_is_sampled_iff_its_32_bits_are_below_the_rate[0]",
    ),
    dict(
        name="a_large_step_has_noise_of_the_step_before",
        edits=[
            (
                "graphveil.core.noise.steps:StepNoise._draw_noise",
                "steps[:, None] * self._rows + np.arange(self._rows)",
                "steps[:, None] + np.arange(self._rows)",
            ),
        ],
        test="tests/mechanisms/test_steps.py::test_no_row_of_a_step_is_one_of_another_step",
    ),
    dict(
        name="coins_drawn_ahead_are_for_fewer_records",
        edits=[
            ("graphveil.core.noise.steps:_Ahead.__call__", "if count != self._count or not", "if not"),
        ],
        test="tests/mechanisms/test_steps.py::test_sampling_of_a_record_does_not_depend_on_the_number_of_records",
    ),
    dict(
        name="truncation_of_one_sum_is_covered_and_that_of_its_neighbor_is_not",
        edits=[
            (
                "graphveil.core.noise.steps:StepNoise.__init__",
                "self.steps + 2 * math.sqrt(parameters)",
                "self.steps + math.sqrt(parameters)",
            ),
        ],
        test="tests/mechanisms/test_steps.py::test_the_noise_has_the_law_with_the_grid_s_share",
    ),
    dict(
        name="a_sampling_rate_is_rounded_down",
        edits=[
            (
                "graphveil.core.noise.steps:public_rate",
                "return -(-expected * RATE_STEPS // count) / RATE_STEPS",
                "return expected * RATE_STEPS // count / RATE_STEPS",
            ),
        ],
        test="tests/mechanisms/test_steps.py::test_a_public_rate_is_the_next_multiple_above",
    ),
    dict(
        name="a_checkpoint_resumes_on_other_data",
        edits=[
            (
                "graphveil.core.queries.training_steps:DPSGDQuery.answer",
                "(*(array.numpy() for array in data.arrays))",
                "()",
            ),
        ],
        test="tests/training/test_dpsgd.py::test_a_checkpoint_of_another_training_is_rejected[data]",
    ),
    dict(
        name="a_checkpoint_resumes_with_another_schedule",
        edits=[
            (
                "graphveil.core.queries.training_steps:DPSGDQuery.answer",
                "asdict(schedule)",
                "asdict(schedule) and {}",
            ),
        ],
        test="tests/training/test_dpsgd.py::test_a_checkpoint_of_another_training_is_rejected[schedule]",
    ),
    dict(
        name="a_checkpoint_resumes_with_less_noise",
        edits=[
            (
                "graphveil.core.queries.training_steps:DPSGDQuery.answer",
                "[noise.noise_multiplier, noise.sampling_rate, noise.steps]",
                "[noise.sampling_rate]",
            ),
        ],
        test="tests/training/test_dpsgd.py::test_a_checkpoint_of_another_training_is_rejected[multiplier]",
    ),
    dict(
        name="a_resumed_training_takes_its_last_step_twice",
        edits=[
            (
                "graphveil.core.clipping.dpsgd:_TrainingState.restore",
                'self.done, self._averaged = tensors.pop("counts").tolist()',
                'self.done, self._averaged = tensors.pop("counts").tolist()\n        self.done -= 1',
            ),
        ],
        test="tests/training/test_dpsgd.py::test_a_resumed_run_changes_no_bit[1-schedule0]",
    ),
    dict(
        name="a_training_takes_one_step_more_than_it_pays_for",
        edits=[
            (
                "graphveil.core.clipping.dpsgd:descend",
                "while state.done < steps:",
                "while state.done <= steps:",
            ),
        ],
        test="tests/training/test_dpsgd.py::test_batches_are_poisson_and_those_of_a_fixed_size_are_caught",
        reason="1000 planned steps",
    ),
    dict(
        name="clipping_leaves_no_margin_for_rounding",
        edits=[
            ("graphveil.core.clipping.clipped_sums:clip_factors", "(1 + MARGIN) / clip", "1 / clip"),
        ],
        test="tests/training/test_stars.py::test_no_record_adds_more_than_the_clipping_norm_in_float32[sage-ghost]",
    ),
    dict(
        name="replaced_records_of_sampled_steps_pay_as_removed_ones",
        edits=[
            (
                "graphveil.core.queries.training_steps:DPSGDQuery.event",
                "self.steps, protected.relation)",
                "self.steps)",
            ),
        ],
        test="tests/release/test_training_steps.py::test_replacing_a_record_moves_steps_twice_as_far_and_accuracy_counts_as_far_as_nulling",
    ),
    dict(
        name="replaced_records_of_full_steps_pay_as_removed_ones",
        edits=[
            (
                "graphveil.core.queries.training_steps:DPSGDQuery.event",
                "full = Gaussian(protected.change * math.sqrt",
                "full = Gaussian(math.sqrt",
            ),
        ],
        test="tests/release/test_training_steps.py::test_replacing_a_record_moves_steps_twice_as_far_and_accuracy_counts_as_far_as_nulling",
    ),
    dict(
        name="gradients_that_read_a_record_are_charged_for_one_clip_each",
        edits=[
            (
                "graphveil.core.queries.training_steps:DPSGDQuery.event",
                "(2 * self.reach + own) * whole",
                "(self.reach + own) * whole",
            ),
        ],
        test="tests/release/test_training_steps.py::test_a_record_is_charged_for_all_gradients_that_read_it",
    ),
    dict(
        name="the_sensitivity_of_a_reach_counts_one_clip_each",
        edits=[
            (
                "graphveil.core.queries.training_steps:DPSGDQuery.sensitivity",
                "(2 * self.reach + 1)",
                "(self.reach + 1)",
            ),
        ],
        test="tests/release/test_training_steps.py::test_a_record_is_charged_for_all_gradients_that_read_it",
    ),
    dict(
        name="the_slack_covers_one_step_of_many",
        edits=[
            (
                "graphveil.core.queries.training_steps:NoisyStepsQuery.changed",
                "self.parameters * self.steps",
                "self.parameters",
            ),
        ],
        test="tests/release/test_training_steps.py::test_the_coordinates_of_all_steps_count",
    ),
    dict(
        name="noise_of_steps_is_bound_to_records_alone",
        edits=[
            (
                "graphveil.core.queries.training_steps:DPSGDQuery.prepare",
                "(*gradients._arrays, *data.settings)",
                "tuple(gradients._arrays)",
            ),
        ],
        test="tests/release/test_training_steps.py::test_noise_is_bound_to_public_settings",
    ),
    dict(
        name="a_training_clips_at_another_norm_than_is_paid_for",
        edits=[
            (
                "graphveil.core.queries.training_steps:DPSGDQuery.prepare",
                "value != getattr(self, name),",
                'name != "clip" and value != getattr(self, name),',
            ),
        ],
        test="tests/release/test_training_steps.py::test_rejects_a_training_that_differs_from_the_plan[clip-other2]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="a_training_takes_more_steps_than_are_paid_for",
        edits=[
            (
                "graphveil.core.queries.training_steps:DPSGDQuery.prepare",
                "value != getattr(self, name),",
                'name != "steps" and value != getattr(self, name),',
            ),
        ],
        test="tests/release/test_training_steps.py::test_rejects_a_training_that_differs_from_the_plan[steps-other0]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="a_closed_training_draws_noise_of_a_known_key",
        edits=[
            (
                "graphveil.core.release:Release.answer",
                "if stored is None and not descriptor:",
                "descriptor = descriptor or bytes(32)\n            if stored is None and not descriptor:",
            ),
        ],
        test="tests/release/test_training_steps.py::test_a_closed_release_returns_its_weights_and_never_takes_a_step_again",
    ),
    dict(
        name="validation_records_teach_for_nothing",
        edits=[
            (
                "graphveil.estimators.gnn.one_hop:OneHopGNN.queries",
                "pays = training_groups(metrics=metrics)",
                "pays = (True, False, False)",
            ),
        ],
        test="tests/estimators/gnn/test_one_hop.py::test_exactly_the_records_that_are_charged_for_training_are_read[False]",
    ),
    # -- Trees of exact neighbors
    dict(
        name="trees_of_a_fit_use_whole_lists",
        edits=[
            (
                "graphveil.estimators.gnn.multi_hop:MultiHopGNN.fit",
                "slots=self.reach.slots",
                "slots=None",
            ),
        ],
        test="tests/estimators/gnn/test_multi_hop.py::test_a_node_is_in_no_more_trees_of_a_fit_than_it_is_charged_for[1]",
    ),
    dict(
        name="empty_places_of_trees_hold_the_record_of_node_0",
        edits=[
            (
                "graphveil.core.queries.bounded_lists:TreeRecords.take",
                "x.index_fill_(0, (places == NO_NODE).nonzero()[:, 0], 0)",
                "pass",
            ),
        ],
        test="tests/estimators/gnn/test_multi_hop.py::test_missing_nodes_of_a_tree_have_features_of_zero",
    ),
    dict(
        name="noise_of_trees_ignores_who_teaches",
        edits=[
            (
                "graphveil.core.queries.bounded_lists:TreeRecords.arrays",
                "*self.trees.tensors, self.nodes]",
                "*self.trees.tensors]",
            ),
        ],
        test="tests/estimators/gnn/test_multi_hop.py::test_an_interrupted_fit_is_not_resumed_with_other_data_or_code[training nodes]",
    ),
    dict(
        name="noise_of_trees_ignores_features",
        edits=[
            (
                "graphveil.core.queries.bounded_lists:TreeRecords.arrays",
                "[*tensors_of(self.x), *self.trees.tensors, self.nodes]",
                "[*self.trees.tensors, self.nodes]",
            ),
        ],
        test="tests/estimators/gnn/test_multi_hop.py::test_an_interrupted_fit_is_not_resumed_with_other_data_or_code[features]",
    ),
    dict(
        name="noise_of_trees_ignores_labels",
        edits=[
            (
                "graphveil.core.clipping.clipped_sums:ClippedSum.__init__",
                "self._arrays = (*arrays, self._labels)",
                "self._arrays = tuple(arrays)",
            ),
        ],
        test="tests/estimators/gnn/test_multi_hop.py::test_an_interrupted_fit_is_not_resumed_with_other_data_or_code[labels]",
    ),
    dict(
        name="noise_of_trees_ignores_whose_list_an_entry_is_on",
        edits=[
            (
                "graphveil.core.queries.bounded_lists:BoundedTrees.tensors",
                "return self._lists, torch.from_numpy(self._owner)",
                "return self._lists, torch.zeros(0)",
            ),
        ],
        test="tests/release/test_bounded_trees.py::test_noise_is_bound_to_the_owner_of_each_list_entry",
    ),
    dict(
        name="a_record_is_not_charged_for_its_own_slots_under_a_promise",
        edits=[
            (
                "graphveil.core.queries.training_steps:Reach.from_unit",
                "others = (slots + unit.max_degree) * below",
                "others = unit.max_degree * below",
            ),
        ],
        test="tests/release/test_bounded_trees.py::test_golden_reach[unit4-1-2-expected4]",
    ),
    dict(
        name="the_ball_of_a_promised_degree_leaves_out_friends_of_friends",
        edits=[
            (
                "graphveil.core.queries.training_steps:Reach.from_unit",
                "ball = unit.max_degree * sum((unit.max_degree - 1) ** level",
                "ball = unit.max_degree * sum((unit.max_degree - 2) ** level",
            ),
        ],
        test="tests/release/test_bounded_trees.py::test_a_node_that_loses_all_edges_changes_at_most_its_reach_of_trees[2-9-3]",
    ),
    dict(
        name="steps_on_trees_have_noise_without_a_proved_law",
        edits=[
            (
                "graphveil.core.queries.training_steps:TreeStepsQuery.event",
                "if event.change > MAX_SHIFT * self.noise_multiplier:",
                "if event.change > 2 * MAX_SHIFT * self.noise_multiplier:",
            ),
        ],
        test="tests/release/test_bounded_trees.py::test_rejects_invalid_tree_steps",
    ),
    dict(
        name="two_layers_of_trees_are_charged_as_one",
        edits=[
            ("graphveil.estimators.gnn.multi_hop:MultiHopGNN.plan", "depth=self.layers", "depth=1"),
        ],
        test="tests/estimators/gnn/test_multi_hop.py::test_a_fit_is_charged_for_all_roots_that_a_record_reaches[changes1-event1]",
    ),
    # -- Released graphs and dendrograms
    dict(
        name="noise_of_block_counts_ignores_the_tree",
        edits=[
            (
                "graphveil.core.queries.dendrogram:BlockCountQuery.prepare",
                "(*arrays, torch.from_numpy(tree.parents))",
                "arrays",
            ),
        ],
        test="tests/release/test_edge_response.py::test_noise_is_bound_to_the_node_pairs_the_number_and_the_tree",
    ),
    dict(
        name="noise_of_slots_ignores_public_edges",
        edits=[
            (
                "graphveil.core.edges.node_pairs:Domain.arrays",
                "torch.from_numpy(self.nodes), torch.from_numpy(self.public)",
                "(torch.from_numpy(self.nodes),)",
            ),
        ],
        test="tests/release/test_edge_response.py::test_noise_is_bound_to_the_node_pairs_the_number_and_the_tree",
    ),
    dict(
        name="noise_of_slots_ignores_the_share",
        edits=[
            (
                "graphveil.core.queries.graph_queries:BoundedQuery.prepare",
                "(*data.domain.arrays, number)",
                "data.domain.arrays",
            ),
        ],
        test="tests/release/test_edge_response.py::test_noise_is_bound_to_the_node_pairs_the_number_and_the_tree",
    ),
    dict(
        name="public_edges_are_drawn_by_randomized_response",
        edits=[
            (
                "graphveil.core.queries.graph_queries:PerturbedNodePairs._drawn",
                "return self.domain.keep_protected(found)",
                "return found",
            ),
        ],
        test="tests/release/test_edge_response.py::test_no_public_edge_is_drawn[EdgeResponseQuery]",
    ),
    dict(
        name="public_edges_are_among_the_largest_cells",
        edits=[
            (
                "graphveil.core.queries.graph_queries:LeveledNodePairs._drawn",
                "return found[self.domain.protects(found >> SHIFT)] if len(self.domain.public) else found",
                "return found",
            ),
        ],
        test="tests/release/test_edge_response.py::test_no_public_edge_is_drawn[TopNodePairsQuery]",
    ),
    dict(
        name="a_walk_takes_twice_the_private_steps_it_is_priced_for",
        edits=[
            (
                "graphveil.core.queries.dendrogram:TreeSearchQuery._take",
                "taken = self.steps // self.every",
                "taken = self.steps // (2 * self.every)",
            ),
        ],
        test="tests/perturb/test_edge_rr.py::test_the_walk_takes_the_charged_number_of_private_steps",
    ),
    dict(
        name="a_released_graph_keeps_the_mark_of_public_edges",
        edits=[
            (
                "graphveil.perturb.mechanism:release_graph",
                "graph.replace(adjacency=adjacency, public=None)",
                "graph.replace(adjacency=adjacency)",
            ),
        ],
        test="tests/perturb/test_edge_rr.py::test_a_released_graph_has_no_public_part",
    ),
    dict(
        name="the_share_of_arr_follows_the_whole_budget",
        edits=[
            (
                "graphveil.perturb.mechanism:ARR.keep_probability",
                "(1 - self.density_fraction) * self.epsilon",
                "self.epsilon",
            ),
        ],
        test="tests/perturb/test_mechanisms.py::test_golden_shares_of_arr",
    ),
    dict(
        name="the_number_of_edges_of_lapgraph_costs_extra",
        edits=[
            (
                "graphveil.perturb.mechanism:LapGraph.queries",
                "TopNodePairsQuery(self.epsilon - first)",
                "TopNodePairsQuery(self.epsilon)",
            ),
        ],
        test="tests/perturb/test_mechanisms.py::test_charges_queries_that_sum_to_epsilon[lap-graph]",
    ),
    dict(
        name="a_walk_over_trees_costs_no_delta",
        edits=[
            (
                "graphveil.core.queries.dendrogram:TreeSearchQuery.event",
                "ApproximateDP(self.epsilon, self.delta)",
                "ApproximateDP(self.epsilon)",
            ),
        ],
        test="tests/perturb/test_edge_rr.py::test_each_structure_has_its_guarantee[lazy_audited]",
    ),
    dict(
        name="the_limit_of_a_chain_counts_as_a_guarantee",
        edits=[
            (
                "graphveil.perturb.edge_rr:DendrogramRelease.deviations",
                "if self._searches(domain) and self.structure in _WHY else ()",
                'if self.structure == "paper" else ()',
            ),
        ],
        test="tests/perturb/test_edge_rr.py::test_each_structure_has_its_guarantee[joint_mh]",
    ),
    dict(
        name="the_largest_block_of_a_tree_is_counted_too_small",
        edits=[
            (
                "graphveil.core.queries.dendrogram:sensitivity",
                "(leaves // 2) * ((leaves + 1) // 2)",
                "(leaves // 2) * (leaves // 2)",
            ),
        ],
        test="tests/dendrogram/test_privacy.py::test_golden_sensitivities",
    ),
    # -- Collection on devices
    dict(
        name="further_words_of_an_answer_are_its_first_ones",
        edits=[
            (
                "graphveil.local.collect.client:ClientRandomness.blocks",
                'b"block" + offset.to_bytes(8, "big")',
                'b"words"',
            ),
        ],
        test="tests/collect/test_client.py::test_random_words_are_distinct",
    ),
    dict(
        name="all_further_words_of_an_answer_are_the_same",
        edits=[
            (
                "graphveil.local.collect.client:ClientRandomness.blocks",
                'offset.to_bytes(8, "big")',
                "bytes(8)",
            ),
        ],
        test="tests/collect/test_client.py::test_random_words_are_distinct",
    ),
    dict(
        name="a_message_of_another_survey_is_accepted_by_one_byte",
        edits=[
            (
                "graphveil.local.collect.protocol:_payload",
                "!= protocol.digest:",
                "[:1] != protocol.digest[:1]:",
            ),
        ],
        test="tests/collect/test_encoding.py::test_rejects_reports_of_other_protocols_or_nodes[20]",
    ),
    dict(
        name="features_and_label_each_have_the_whole_limit",
        edits=[
            (
                "graphveil.local.collect.client:check_limits",
                "if exact_sum(budgets) > exact_sum([max_eps]) and sum(budgets) > max_eps:",
                "if max(budgets) > max_eps:",
            ),
        ],
        test="tests/collect/test_client.py::test_rejects_protocols_above_the_limit_of_the_client[both]",
    ),
    dict(
        name="all_surveys_hear_the_same_noise",
        edits=[
            (
                "graphveil.local.collect.client:ClientRandomness.__init__",
                ' + protocol.digest, "sha256")',
                ', "sha256")',
            ),
        ],
        test="tests/collect/test_client.py::test_noise_depends_on_protocol_record_node_and_secret",
    ),
    dict(
        name="records_that_are_clipped_alike_answer_twice",
        edits=[
            (
                "graphveil.local.collect.client:_reports",
                'law.bounds.unit(x[part]).astype("<f8") + 0.0',
                'x[part].astype("<f8") + 0.0',
            ),
        ],
        test="tests/collect/test_client.py::test_equal_clipped_values_give_equal_reports",
    ),
    dict(
        name="a_record_in_64_bits_answers_again",
        edits=[
            (
                "graphveil.local.collect.client:_reports",
                "if x.dtype != np.float32:",
                "if False:",
            ),
        ],
        test="tests/collect/test_client.py::test_the_number_format_does_not_affect_reports[bounds0]",
    ),
    dict(
        name="a_number_and_its_digits_are_two_people",
        edits=[
            (
                "graphveil.local.collect.client:randomize_records",
                "if len(set(map(str, nodes))) != len(nodes):",
                "if len(set(nodes)) != len(nodes):",
            ),
        ],
        test="tests/collect/test_client.py::test_rejects_two_records_with_one_id",
    ),
    dict(
        name="a_second_answer_of_a_node_replaces_the_first",
        edits=[
            (
                "graphveil.local.collect.protocol:Collector.accept",
                "if int(node) in self._answers:",
                "if self._answers.get(int(node)) == answer:",
            ),
        ],
        test="tests/collect/test_collector.py::test_rejects_replayed_reports",
    ),
    dict(
        name="a_message_names_one_bin_too_many",
        edits=[
            (
                "graphveil.mechanisms.feature_mechanisms:FeatureRR.limits",
                "[law.k - 1 for law",
                "[law.k for law",
            ),
        ],
        test="tests/collect/test_encoding.py::test_rejects_bins_outside_the_range",
    ),
    dict(
        name="a_missing_label_answers_as_class_0",
        edits=[
            (
                "graphveil.local.collect.client:_randomize_labels",
                "law.checked(labels, missing=True)",
                "np.maximum(law.checked(labels, missing=True), 0)",
            ),
        ],
        test="tests/collect/test_client.py::test_a_record_without_a_label_reports_a_random_class",
    ),
    # -- Workers on a cluster
    dict(
        name="words_of_a_worker_are_taken_for_rows",
        edits=[
            (
                "graphveil.cluster.backend:RayBackend._answers",
                "elif isinstance(answer, str):",
                "elif answer is None:",
            ),
        ],
        test="tests/cluster/test_ray_backend.py::test_the_error_of_a_worker_ends_the_query",
        reason="'str' object has no attribute",
    ),
    dict(
        name="a_message_without_its_last_part_is_opened",
        edits=[
            ("graphveil.cluster.sealing:seal_value", "{name}/{number}/{len(starts)}", "{name}/{number}"),
            ("graphveil.cluster.sealing:open_value", "{name}/{number}/{len(parts)}", "{name}/{number}"),
        ],
        test="tests/cluster/test_sealing.py::test_rejects_parts_that_are_exchanged_or_missing",
        reason="cannot reshape",
    ),
    dict(
        name="small_blocks_tell_how_many_edges_they_have",
        edits=[
            (
                "graphveil.cluster.sealing:_coarse",
                "return max(MIN_BYTES, -(-size // step) * step)",
                "return -(-size // _ALIGN) * _ALIGN if size < MIN_BYTES else -(-size // step) * step",
            ),
        ],
        test="tests/cluster/test_sealing.py::test_the_size_of_a_block_does_not_depend_on_its_degrees",
    ),
    dict(
        name="one_worker_more_than_allowed_is_lost",
        edits=[
            (
                "graphveil.cluster.backend:RayBackend._answers",
                '.get("CPU", 0) + _LOSSES:',
                '.get("CPU", 0) + _LOSSES + 1:',
            ),
        ],
        test="tests/cluster/test_worker.py::test_too_many_new_processes_are_lost_ones",
    ),
    dict(
        name="one_block_is_tried_once_too_often",
        edits=[
            (
                "graphveil.cluster.backend:RayBackend._answers",
                "max_retries=_REPEATS",
                "max_retries=_REPEATS + 1",
            ),
        ],
        test="tests/cluster/test_worker.py::test_ray_repeats_a_block_and_the_query_fails_if_all_repetitions_are_lost",
    ),
    dict(
        name="a_block_that_a_new_worker_could_not_open_is_forgotten",
        edits=[
            ("graphveil.cluster.backend:RayBackend._answers", "queue.append(number)", "pass"),
        ],
        test="tests/cluster/test_worker.py::test_every_block_is_returned_once_and_in_order[7-2]",
    ),
    dict(
        name="blocks_are_handed_on_as_they_arrive",
        edits=[
            (
                "graphveil.cluster.backend:RayBackend._answers",
                "while place in done:\n                    yield done.pop(place)",
                "while done:\n                    yield done.pop(min(done))",
            ),
        ],
        test="tests/cluster/test_worker.py::test_every_block_is_returned_once_and_in_order[7-2]",
    ),
    dict(
        name="all_graphs_are_sealed_under_one_key",
        edits=[
            (
                "graphveil.cluster.backend:SentGraph",
                "field(default_factory=SecretBox)",
                "field(default_factory=lambda: SecretBox(bytes(32)))",
            ),
        ],
        test="tests/cluster/test_worker.py::test_a_graph_is_sent_to_each_cluster_under_its_own_key",
    ),
    dict(
        name="messages_of_loud_records_are_not_finite",
        edits=[
            (
                "graphveil.estimators.gap.networks:RecordTransform.unit",
                "super().unit(finite_rows(rows))",
                "super().unit(rows)",
            )
        ],
        test="tests/estimators/test_null_record.py::test_every_prediction_is_finite_for_any_record[gap-3e+38-none]",
        reason="NaN or infinite",
    ),
    # -- Products of lists and recommendations
    dict(
        name="long_lists_have_the_weight_of_short_ones",
        edits=[
            (
                "graphveil.core.queries.list_products:ListProductQuery.entries",
                "np.maximum(np.arange(self.columns + 1), self.out_degree_bound)",
                "np.full(self.columns + 1, self.out_degree_bound)",
            )
        ],
        test="tests/release/test_list_products.py::test_a_list_moves_the_sum_by_at_most_the_sensitivity[False]",
    ),
    dict(
        name="products_above_the_diagonal_have_twice_their_weight",
        edits=[
            (
                "graphveil.core.queries.list_products:ListProductQuery.entries",
                "math.isqrt(2 * steps**2",
                "math.isqrt(4 * steps**2",
            )
        ],
        test="tests/release/test_list_products.py::test_a_list_moves_the_sum_by_at_most_the_sensitivity[False]",
    ),
    dict(
        name="a_new_entry_of_a_list_is_charged_for_its_own_item_only",
        edits=[
            (
                "graphveil.core.queries.list_products:ListProductQuery._shift_of_one_edge",
                "+ n * above[n + 1] ** 2",
                "",
            )
        ],
        test="tests/release/test_list_products.py::test_one_edge_moves_the_sum_by_at_most_the_sensitivity_which_is_attained[3]",
    ),
    dict(
        name="a_replaced_list_is_charged_as_a_nulled_one",
        edits=[
            (
                "graphveil.core.queries.list_products:ListProductQuery.sensitivity",
                "math.sqrt(unit.change)",
                "1.0",
            )
        ],
        test=[
            "tests/release/test_list_products.py::test_a_list_moves_the_sum_by_at_most_the_sensitivity[True]",
            "tests/audit/test_query_neighbor_tests.py::test_query_keeps_its_privacy_cost_under_a_unit[list products-node-record, replaced]",
        ],
    ),
    dict(
        name="two_items_may_share_a_column_of_products",
        edits=[
            (
                "graphveil.core.queries.list_products:ListProductQuery.prepare",
                "int(torch.bincount(used).max()) > 1",
                "False",
            )
        ],
        test="tests/release/test_list_products.py::test_data_that_do_not_fit_are_rejected[columns0-counted0-share a column]",
    ),
    dict(
        name="products_get_half_of_the_noise",
        edits=[
            (
                "graphveil.core.queries.list_products:ListProductQuery.answer",
                "self.noisy_table(total, data, key)[",
                "((self.noisy_table(total, data, key) + torch.from_numpy(total) / self.unit_steps) / 2)[",
            )
        ],
        test=[
            "tests/release/test_list_products.py::test_every_number_has_the_charged_noise",
            "tests/links/test_recommender.py::test_canaries_certify_most_of_a_claim_and_no_more[given3-4.0]",
        ],
    ),
    dict(
        name="lists_that_do_not_count_are_in_the_products",
        edits=[
            ("graphveil.core.queries.list_products:_lists", " & np.repeat(counted[first:last], lengths)", "")
        ],
        test="tests/release/test_list_products.py::test_lists_that_do_not_count_and_items_without_a_column_are_left_out",
    ),
    dict(
        name="held_out_lists_are_fitted",
        edits=[("graphveil.links.recommender:RecommenderMethod.fit", "torch.from_numpy(~held_out)", "True")],
        test=[
            "tests/links/test_recommender.py::test_lists_of_held_out_users_move_the_hit_rate_only",
            "tests/links/test_recommender.py::test_a_hidden_item_is_not_among_the_fitted_lists",
        ],
    ),
    dict(
        name="modeled_items_follow_from_the_exact_popularity",
        edits=[
            (
                "graphveil.links.recommender:RecommenderMethod.fit",
                "self._modeled(popularity, first.noise[0])",
                "self._modeled(self._exact(view, users).popularity, 1.0)",
            )
        ],
        test="tests/links/test_recommender.py::test_everything_public_follows_from_the_answers[given0]",
        reason="protects the edges",
    ),
    dict(
        name="published_scores_include_exact_lists",
        edits=[
            (
                "graphveil.links.recommender:RecommenderMethod.fit",
                "item_model(ids, popularity, modeled",
                "item_model(ids, popularity + self._exact(view, users).popularity, modeled",
            )
        ],
        test="tests/links/test_recommender.py::test_everything_public_follows_from_the_answers[given0]",
        reason="protects the edges",
    ),
    dict(
        name="the_hit_rate_follows_from_exact_counts",
        edits=[
            (
                "graphveil.links.recommender:RecommenderMethod.fit",
                "hits, misses = release.answer(OutcomeCountData(correct, wrong)).tolist()",
                "release.answer(OutcomeCountData(correct, wrong)); hits, misses = float(correct.sum()), float(wrong.sum())",
            )
        ],
        test="tests/links/test_recommender.py::test_everything_public_follows_from_the_answers[given2]",
        reason="protects node records",
    ),
    dict(
        name="products_of_lists_are_left_out_of_the_bound_of_one_edge",
        edits=[("graphveil.estimators.privacy_config:plan_guarantee", " | ListProductQuery", "")],
        test="tests/links/test_recommender.py::test_the_bound_of_one_mutual_edge_counts_both_sums",
    ),
    dict(
        name="the_guarantee_does_not_mention_that_recommendations_read_exact_lists",
        edits=[
            (
                "graphveil.links.recommender:RecommenderMethod.edge_use",
                'return "lists"',
                'return "read"',
            )
        ],
        test="tests/links/test_recommender.py::test_the_guarantee_does_not_cover_recommendations[given3]",
    ),
    dict(
        name="scores_of_a_user_depend_on_the_longest_list_of_all_users",
        edits=[("graphveil.links.recommender:ItemModel.best", "/ len(self.ranking)", "/ len(candidates)")],
        test="tests/links/test_recommender.py::"
        "test_recommendations_for_a_user_depend_on_the_list_of_no_other_user",
    ),
    dict(
        name="features_of_items_move_scores_of_modeled_items",
        edits=[
            (
                "graphveil.links.recommender:ItemModel.best",
                "scores[:, :count] = modeled",
                "scores[:, :count] = modeled + (0.01 * self._regression[0][:, 0] if self._regression else 0.0)",
            )
        ],
        test="tests/links/test_new_items.py::test_features_move_no_modeled_item[given0]",
    ),
    dict(
        name="the_ridge_penalty_is_chosen_by_the_error_of_the_fitted_products",
        edits=[
            ("graphveil.links.recommender:_penalty", "products - noise / _SPLIT", "products + _SPLIT * noise")
        ],
        test="tests/links/test_new_items.py::"
        "test_the_penalty_is_small_for_clear_products_and_large_for_noise",
    ),
    # -- Forms of numbers, resumed runs, custom modules
    dict(
        name="a_whole_number_stays_whole_in_an_event",
        edits=[("graphveil.core.events:_store_numbers", "value = checks.real(value)", "pass")],
        test="tests/privacy/test_serialization.py::test_an_event_has_one_text_for_every_form_of_its_numbers",
    ),
    dict(
        name="totals_of_whole_numbers_are_kept_apart_from_those_of_floats",
        edits=[
            (
                "graphveil.ledger.costs:PrivacyCost.from_plain",
                "others[canonical] = others.get(canonical, 0) + count",
                "others[kind] = others.get(kind, 0) + count",
            )
        ],
        test="tests/ledger/test_costs.py::test_a_total_from_before_events_stored_floats_is_read",
    ),
    dict(
        name="a_seeded_fit_is_valid_after_a_resume",
        edits=[
            (
                "graphveil.estimators.fitted:FittedModel.from_result",
                "session.with_seed(ready.guarantee)",
                "ready.guarantee",
            )
        ],
        test=[
            f"tests/test_every_fit.py::test_a_seeded_fit_that_is_resumed_without_its_seed_is_not_valid[{kind}]"
            for kind in ("links", "recommender")
        ],
    ),
    dict(
        name="a_seeded_fit_of_a_method_is_valid_after_a_resume",
        edits=[
            (
                "graphveil.estimators.session:Session.with_seed",
                "guarantee.with_deviations_everywhere(SEEDED) if self.reproducible else guarantee",
                "guarantee",
            )
        ],
        test=[
            f"tests/test_every_fit.py::test_a_seeded_fit_that_is_resumed_without_its_seed_is_not_valid[{kind}]"
            for kind in ("gap", "gcn", "label-posterior")
        ],
    ),
    dict(
        name="an_index_beyond_the_table_of_a_record_reads_the_next_record",
        edits=[
            (
                "graphveil.core.clipping.isolation:IsolatedOperations.__torch_function__",
                "return _embedding(*args, **kwargs)",
                "return func(*args, **kwargs)",
            )
        ],
        test=[
            "tests/training/test_isolated_vmap.py::test_an_operation_reads_and_changes_its_own_record_only[embedding]",
            "tests/training/test_isolated_vmap.py::test_a_table_that_is_one_row_short_mixes_no_records[vmap]",
            "tests/training/test_isolated_vmap.py::test_a_table_that_is_one_row_short_mixes_no_records[records]",
        ],
    ),
    dict(
        name="a_function_may_mix_records_by_its_own_rule",
        edits=[
            (
                "graphveil.core.clipping.isolation:_isolated_function",
                "_raise_own_rule(function.__name__)",
                "return function",
            )
        ],
        test="tests/training/test_isolated_vmap.py::test_code_that_sees_a_whole_batch_is_rejected[inherited]",
    ),
    dict(
        name="predictions_run_under_the_vmap_of_torch",
        edits=[
            (
                "graphveil.core.clipping.isolation:separate_logits",
                "found: Tensor = vmap_records(",
                "found: Tensor = vmap(",
            )
        ],
        test="tests/training/test_isolated_vmap.py::"
        "test_a_table_that_is_one_row_short_mixes_no_records[ghost]",
    ),
    # -- Joint laws, offsets, intervals, several parts and runs, resumed and failed jobs
    dict(
        name="the_diagonal_of_products_has_the_noise_of_the_first_row",
        edits=[
            (
                "graphveil.core.queries.pair_sums:EdgeProductQuery._noise",
                "diagonal = sampler(sigma).draw(stream, np.array([width]), width)[0].astype(np.int64)",
                "diagonal = np.rint(off_diagonal[0] * math.sqrt(2)).astype(np.int64)",
            )
        ],
        test="tests/release/test_joint_noise.py::"
        "test_all_numbers_of_a_release_have_independent_noise[edge products-undirected-edge]",
    ),
    dict(
        name="gaps_of_different_signs_cancel_in_the_calibration_error",
        edits=[
            (
                "graphveil.training.metrics:calibration_error",
                "np.abs(gaps).sum()",
                "abs(gaps.sum())",
            )
        ],
        test="tests/training/test_metrics.py::"
        "test_the_calibration_error_is_the_mean_gap_of_bins_also_of_both_signs[0]",
    ),
    dict(
        name="intervals_of_links_ignore_the_order_within_a_cell",
        edits=[
            (
                "graphveil.links.pair_model:noisy_metrics",
                "metric(possible, shares, 0.0)",
                "metric(possible, shares, 0.5)",
            ),
            (
                "graphveil.links.pair_model:noisy_metrics",
                "metric(possible, shares, 1.0)",
                "metric(possible, shares, 0.5)",
            ),
        ],
        test="tests/contracts/test_intervals.py::test_intervals_of_links_contain_every_order_within_a_cell[0]",
    ),
    dict(
        name="intervals_of_links_have_half_of_the_noise",
        edits=[
            ("graphveil.links.pair_model:noisy_metrics", "sigma * rng", "sigma / 2 * rng"),
        ],
        test="tests/contracts/test_intervals.py::test_an_interval_covers_the_exact_value[links]",
    ),
    dict(
        name="the_offset_of_the_discriminant_is_that_of_all_pairs",
        edits=[
            ("graphveil.links.pair_model:discriminant", "(center + difference / 2)", "(center)"),
        ],
        test="tests/links/test_pair_model.py::test_the_discriminant_is_the_log_odds_of_normal_features[0-2]",
    ),
    dict(
        name="a_run_of_links_prints_the_guarantee_of_its_plan",
        edits=[
            (
                "graphveil.runs.run:_summarize",
                "records[0].guarantees[0], plan.graph",
                "plan.guarantee, plan.graph",
            )
        ],
        test="tests/cli/test_links.py::test_a_run_on_a_seeded_workspace_prints_no_valid_guarantee[links]",
    ),
    dict(
        name="pairs_of_a_table_are_scored_in_the_other_direction",
        edits=[
            (
                "graphveil.cli.links:pair_scores",
                "np.stack([first, second])",
                "np.stack([second, first])",
            )
        ],
        test="tests/cli/test_links.py::test_directed_pairs_are_scored_as_the_table_has_them",
    ),
    dict(
        name="the_place_of_a_removed_item_depends_on_other_users",
        edits=[
            (
                "graphveil.links.recommender:_outcomes",
                "(place.numpy()[users] * lengths[users])",
                "(place.numpy()[: len(users)] * lengths[users])",
            ),
        ],
        test="tests/links/test_recommender.py::"
        "test_what_a_query_reads_of_a_user_depends_on_the_list_of_this_user[given2]",
    ),
    dict(
        name="lists_of_some_nodes_exclude_the_edges_of_the_first_nodes",
        edits=[
            (
                "graphveil.links.link_method:PairScores.best",
                "ends[starts[node] : starts[node + 1]]",
                "ends[starts[first + row] : starts[first + row + 1]]",
            )
        ],
        test=[
            "tests/links/test_link_predictor.py::"
            "test_lists_of_some_nodes_exclude_the_edges_of_these_nodes[undirected]",
            "tests/links/test_link_predictor.py::"
            "test_lists_of_some_nodes_exclude_the_edges_of_these_nodes[directed]",
        ],
    ),
    dict(
        name="evidence_is_not_relative_to_the_shares_of_classes",
        edits=[
            (
                "graphveil.auto:EvidenceChoice.fit",
                "(evidence - shares.log()[:, None]).mean(dim=0)",
                "evidence.mean(dim=0)",
            )
        ],
        test="tests/estimators/test_auto_local.py::test_evidence_is_relative_to_the_shares_of_classes",
    ),
    dict(
        name="in_a_workspace_each_query_counts_the_classes_of_the_first_network",
        edits=[
            (
                "graphveil.papers.lpgnet:LPGNetMethod.fit",
                'load_or_compute(f"classes{k}"',
                'load_or_compute("classes" + f"{k}" * (session.workspace is None)',
            )
        ],
        test="tests/estimators/test_workspaces.py::"
        "test_a_fit_is_the_same_with_a_workspace_and_after_each_interruption[lpgnet]",
    ),
    dict(
        name="what_was_charged_is_not_stored_if_the_baseline_wins",
        edits=[
            (
                "graphveil.estimators.choice:ValidationChoice.fit",
                "released=dict(results[0].released),",
                "released=dict(results[best].released),",
            )
        ],
        test="tests/estimators/test_auto.py::"
        "test_what_was_charged_is_stored_whichever_candidate_is_chosen[1]",
    ),
    dict(
        name="one_part_that_is_apart_frees_the_whole_graph",
        edits=[
            (
                "graphveil.estimators.inference:PredictionComposition.charged_edge_sets",
                "if any(frozenset",
                "if all(frozenset",
            )
        ],
        test=[
            "tests/contracts/test_charges.py::"
            "test_a_job_is_charged_its_plan_before_any_noise_also_if_it_fails[predict a grown stranger-memory]",
        ],
    ),
    dict(
        name="a_refunded_release_counts_as_recorded",
        edits=[
            (
                "graphveil.ledger.reservations:DataSetLedger.contains",
                "recorded = RESERVE in states and REFUND not in states",
                "recorded = RESERVE in states",
            )
        ],
        test="tests/ledger/test_sql_ledger.py::"
        "test_all_views_of_an_account_agree_after_any_order_of_steps[0-sqlite]",
    ),
    dict(
        name="a_refunded_release_stays_among_those_of_this_process",
        edits=[
            (
                "graphveil.ledger.reservations:DataSetLedger.refund",
                "self._recorded.discard(release_id)",
                "pass",
            )
        ],
        test="tests/ledger/test_sql_ledger.py::"
        "test_all_views_of_an_account_agree_after_any_order_of_steps[0-sqlite]",
    ),
    dict(
        name="a_prediction_that_fails_after_its_charge_is_forgotten",
        edits=[
            (
                "graphveil.runs.charges:PredictionAccounts.recorded_in_folder",
                "if kept is not None and not self.charged[0].receipts:",
                "if kept is not None:",
            )
        ],
        test="tests/contracts/test_charges.py::"
        "test_predictions_that_fail_after_their_charge_are_charged_and_remembered[sqlite]",
    ),
    dict(
        name="a_server_does_not_charge_graphs_that_the_run_predicted_before",
        edits=[
            (
                "graphveil.runs.charges:also_charged_ledgers",
                "found += [ledger for _, ledger in earlier]",
                "pass",
            )
        ],
        test="tests/contracts/test_charges.py::"
        "test_a_server_charges_all_graphs_that_its_run_has_queried[postgresql]",
    ),
    dict(
        name="receipts_of_an_earlier_attempt_are_lost_on_resume",
        edits=[
            (
                "graphveil.runs.charges:add_receipts",
                'known = {receipt["release"]: receipt for receipt in receipts_in(path)}',
                "known = dict[str, dict[str, Any]]()",
            )
        ],
        test="tests/contracts/test_charges.py::"
        "test_a_command_is_charged_what_it_prints_and_resumes_with_all_receipts[two runs-sqlite]",
    ),
    dict(
        name="an_error_of_a_table_of_items_quotes_a_private_id",
        edits=[
            (
                "graphveil.data.tables.ids:_problem",
                'lacking = f"{end.title} holds ids that',
                'lacking = f"{end.title} holds {strangers.to_pylist()}, which are ids that',
            )
        ],
        test="tests/data/test_interactions.py::test_errors_quote_no_protected_id[unknown user]",
    ),
    dict(
        name="the_scale_of_targets_reads_all_nodes",
        edits=[
            (
                "graphveil.training.heads:RegressionHead.fitted",
                'self.targets(view)[view.labeled_in("train")]',
                "self.targets(view)[~self.targets(view).isnan()]",
            )
        ],
        test="tests/estimators/test_regression.py::test_targets_of_test_nodes_change_nothing[gap]",
    ),
    dict(
        name="bounds_of_several_laws_do_not_share_the_significance",
        edits=[
            (
                "graphveil.audit.canaries:_by_feature",
                "significance = (1 - confidence) / len(laws)",
                "significance = 1 - confidence",
            )
        ],
        test="tests/audit/test_query_canaries.py::test_bounds_of_several_laws_share_the_significance[law1-0.9]",
    ),
    dict(
        name="copies_of_a_module_share_a_singleton",
        edits=[
            (
                "graphveil.core.clipping.isolation:ModuleCopies.__init__",
                "if shared is not None:",
                "if False:",
            )
        ],
        test="tests/training/test_isolation.py::test_an_object_that_copies_share_is_rejected[self-attribute]",
    ),
    dict(
        name="a_copied_run_folder_answers_with_other_inputs",
        edits=[
            (
                "graphveil.core.keys:KeyStore.bind",
                "return path.read_bytes() == digest",
                "return True",
            )
        ],
        test="tests/release/test_journal.py::test_a_copied_folder_answers_no_query_with_other_inputs",
    ),
    # -- Unit node: h-index, projected sums, moments, and rows from own lists
    dict(
        name="the_effect_of_hubs_is_left_out_of_a_projected_sum",
        edits=[
            (
                "graphveil.core.queries.projected_sums:ProjectedSumQuery._moved",
                "own_messages + 0.5 + 2 * ROUNDING",
                "own_messages + 2 * ROUNDING",
            ),
        ],
        test="tests/release/test_projected_sums.py::test_no_graph_moves_projected_sums_by_more_than_the_bound[1-nulled]",
    ),
    dict(
        name="a_degree_bound_has_no_margin_for_its_noise",
        edits=[
            (
                "graphveil.core.queries.projected_sums:DegreeHIndexQuery.bound",
                "margin = 1 + float(norm.isf(self.failure)) * self.sigma + 1 / self.unit_steps",
                "margin = 0.0",
            ),
        ],
        test="tests/release/test_projected_sums.py::test_the_degree_bound_is_below_the_h_index_of_a_neighbor_as_often_as_stated[0.02]",
    ),
    dict(
        name="rows_of_projected_sums_are_not_projected",
        edits=[
            (
                "graphveil.core.queries.projected_sums:projected",
                "rows *= np.minimum(1.0, radius / np.maximum(lengths, radius)) * steps",
                "rows *= steps",
            ),
        ],
        test="tests/release/test_projected_sums.py::test_no_graph_moves_projected_sums_by_more_than_the_bound[1-nulled]",
    ),
    dict(
        name="products_of_weights_and_messages_are_truncated",
        edits=[
            (
                "graphveil.core.queries.projected_sums:ProjectedSumQuery.answer",
                "table = messages * weights[:, None]",
                "table = (messages * weights[:, None] * (self.unit_steps / 2.0 ** (weight_bits + message_bits))).astype(np.int64)",
            ),
            (
                "graphveil.core.queries.projected_sums:ProjectedSumQuery.answer",
                "ProjectedRows(table, weight_bits + message_bits,",
                "ProjectedRows(table, self.grid_bits,",
            ),
        ],
        test="tests/release/test_projected_sums.py::test_rounded_weights_of_many_hubs_stay_within_half",
    ),
    dict(
        name="a_query_reads_rows_from_own_lists",
        edits=[
            (
                "graphveil.core.features:ProtectedRows._unwrap_queried",
                "if self._from_own_list:",
                "if False:",
            ),
        ],
        test="tests/release/test_projected_sums.py::test_no_query_reads_rows_from_own_lists[sums-itself]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="mapped_rows_forget_that_they_are_from_own_lists",
        edits=[
            (
                "graphveil.core.view:RecordFunction.__call__",
                "own = any(each._from_own_list for each in handles)",
                "own = False",
            ),
        ],
        test="tests/release/test_projected_sums.py::test_no_query_reads_rows_from_own_lists[moments-mapped]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="chosen_rows_forget_that_they_are_from_own_lists",
        edits=[
            (
                "graphveil.core.features:ProtectedRows.at",
                "self._unit, from_own_list=self._from_own_list)",
                "self._unit)",
            ),
        ],
        test="tests/release/test_projected_sums.py::test_no_query_reads_rows_from_own_lists[sums-chosen]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="own_lists_are_no_shared_ones_under_unit_node",
        edits=[
            (
                "graphveil.core.view:own_rows",
                "shared = edges.unit == Node.name",
                "shared = False",
            ),
        ],
        test="tests/estimators/test_node_unit.py::test_training_steps_read_no_rows_from_own_lists",
        reason="DID NOT RAISE",
    ),
    dict(
        name="a_degree_bound_that_fails_costs_no_delta",
        edits=[
            (
                "graphveil.core.queries.projected_sums:DegreeHIndexQuery.event",
                "return compose(super().event(unit), ApproximateDP(0.0, self.failure))",
                "return super().event(unit)",
            ),
        ],
        test="tests/release/test_projected_sums.py::test_the_h_index_costs_its_noise_and_its_failure",
    ),
    dict(
        name="a_coalition_moves_the_own_row_by_one_radius",
        edits=[
            (
                "graphveil.core.queries.projected_sums:ProjectedSumQuery.coalition_sensitivity",
                "2 * self.radius",
                "self.radius",
            ),
        ],
        test="tests/release/test_projected_sums.py::test_a_coalition_costs_the_own_row_twice",
    ),
    dict(
        name="a_run_next_to_own_lists_has_the_bound_without_a_coalition",
        edits=[
            (
                "graphveil.estimators.privacy_config:coalition_mu",
                "if isinstance(query, ProjectedSumQuery)",
                "if False",
            ),
        ],
        test="tests/estimators/test_node_unit.py::test_a_run_without_own_lists_costs_more_next_to_one_with_them",
    ),
    dict(
        name="moments_are_shortened_to_twice_their_bound",
        edits=[
            (
                "graphveil.core.queries.projected_sums:ClassMomentsQuery.answer",
                "moments[:, :-1] *= self.radius / lengths.clamp_min(self.radius)",
                "moments[:, :-1] *= 2 * self.radius / lengths.clamp_min(2 * self.radius)",
            ),
            (
                "graphveil.core.queries.projected_sums:ClassMomentsQuery.answer",
                "> int(steps) ** 2",
                "> 4 * int(steps) ** 2",
            ),
        ],
        test="tests/release/test_projected_sums.py::test_no_record_moves_moments_by_more_than_the_bound[0.1-1-nulled]",
    ),
    dict(
        name="moments_of_rows_that_are_no_numbers_are_unbounded",
        edits=[
            (
                "graphveil.core.queries.projected_sums:ClassMomentsQuery.answer",
                "moments = moments.nan_to_num(0.0)",
                "moments = moments + 0.0",
            ),
        ],
        test="tests/release/test_projected_sums.py::test_no_record_moves_moments_by_more_than_the_bound[0.1-1-nulled]",
    ),
    dict(
        name="a_sum_is_answered_without_a_degree_query",
        edits=[
            (
                "graphveil.core.release:_check_unit",
                "not any(bounded[:k])",
                "False",
            ),
        ],
        test="tests/release/test_projected_sums.py::test_a_sum_without_a_degree_bound_before_it_is_rejected_before_the_charge[queries0-alternatives0]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="a_grid_may_be_too_coarse_for_its_rows",
        edits=[
            (
                "graphveil.core.queries.projected_sums:ProjectedSumQuery.prepare",
                "self.grid_bits < self.grid_for(public.num_nodes, self.dim),",
                "False,",
            ),
        ],
        test="tests/release/test_projected_sums.py::test_a_grid_that_is_too_coarse_for_the_number_of_rows_is_rejected",
        reason="DID NOT RAISE",
    ),
    dict(
        name="metrics_count_predictions_from_own_lists",
        edits=[
            (
                "graphveil.estimators.classcode.estimator:ClassCode._check_node",
                "if self.private_metrics and self.read_own_edges is not False:",
                "if False:",
            ),
        ],
        test="tests/estimators/test_node_unit.py::test_metrics_of_predictions_from_own_lists_are_rejected[None]",
        reason="DID NOT RAISE",
    ),
    # -- Several tables: counts of rows, and records of persons
    dict(
        name="a_row_counts_in_both_answers",
        edits=[
            (
                "graphveil.core.queries.row_counts:RowCountQuery.answer",
                "kept = paying[owners] & ",
                "kept = ",
            )
        ],
        test=[
            "tests/release/test_row_counts.py::test_rows_of_owners_outside_the_counted_groups_are_not_read[0]",
            "tests/estimators/relational/test_neighbors.py::test_a_row_moves_one_integer_of_one_answer_and_nothing_else[4]",
        ],
    ),
    dict(
        name="a_row_counts_in_the_group_of_its_far_end",
        edits=[("graphveil.core.queries.row_counts:RowCountQuery.answer", "paying[owners]", "paying[far]")],
        test="tests/release/test_row_counts.py::test_a_row_moves_one_integer_of_one_answer_by_one[0-row]",
    ),
    dict(
        name="a_row_counts_twice",
        edits=[
            (
                "graphveil.core.queries.row_counts:RowCountQuery.answer",
                "counts = private.count",
                "counts = 2 * private.count",
            )
        ],
        test=[
            "tests/release/test_row_counts.py::test_a_row_moves_one_integer_of_one_answer_by_one[0-row]",
            "tests/estimators/relational/test_neighbors.py::test_a_row_moves_one_integer_of_one_answer_and_nothing_else[4]",
        ],
    ),
    dict(
        name="a_row_also_counts_in_a_total",
        edits=[
            (
                "graphveil.core.queries.row_counts:RowCountQuery.answer",
                "return cells[cells < self.cells]",
                "return np.append(cells[cells < self.cells], np.zeros(kept.sum(), dtype=np.int64))",
            )
        ],
        test="tests/audit/test_query_neighbor_tests.py::test_query_keeps_its_privacy_cost_under_a_unit[row counts-row]",
    ),
    dict(
        name="both_answers_are_charged_to_one_group",
        edits=[
            (
                "graphveil.core.queries.row_counts:RowCountQuery.event",
                "by_group(self.partition, self.pays, ",
                "by_group(self.partition, sorted(self.pays, reverse=True), ",
            )
        ],
        test="tests/release/test_row_counts.py::test_disjoint_groups_of_owners_cost_no_more_together_than_one[row]",
    ),
    dict(
        name="rows_are_charged_half_of_their_epsilon",
        edits=[
            (
                "graphveil.core.queries.row_counts:RowCountQuery.event",
                "PureDP(self.epsilon)",
                "PureDP(self.epsilon / 2)",
            )
        ],
        test=[
            "tests/audit/test_query_neighbor_tests.py::test_query_keeps_its_privacy_cost_under_a_unit[row counts-row]",
            "tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[rows]",
        ],
    ),
    dict(
        name="counts_of_rows_have_no_noise",
        edits=[
            ("graphveil.core.queries.row_counts:RowCountQuery.answer", "= some + drawn", "= some + 0 * drawn")
        ],
        test=[
            "tests/release/test_row_counts.py::test_every_count_has_the_charged_noise[1.0]",
            "tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[rows]",
        ],
    ),
    dict(
        name="counts_of_rows_have_half_of_their_noise",
        edits=[
            (
                "graphveil.core.queries.edge_counts:PureCountQuery.law",
                "DiscreteLaplace(self.epsilon)",
                "DiscreteLaplace(2 * self.epsilon)",
            )
        ],
        test=[
            "tests/release/test_row_counts.py::test_every_count_has_the_charged_noise[0.3]",
            "tests/audit/test_query_canaries.py::test_canaries_certify_most_of_a_claim_and_no_more[rows]",
        ],
    ),
    dict(
        name="both_answers_have_the_same_noise",
        edits=[
            (
                "graphveil.core.queries.row_counts:RowCountQuery.answer",
                "RowStream(key)",
                "RowStream(bytes(32))",
            )
        ],
        test=[
            "tests/release/test_row_counts.py::test_every_count_has_the_charged_noise[1.0]",
            "tests/release/test_row_counts.py::test_a_release_resumes_with_the_noise_of_its_key",
        ],
    ),
    dict(
        name="pieces_of_an_answer_have_the_same_noise",
        edits=[
            ("graphveil.core.queries.row_counts:RowCountQuery.answer", "+ first // _WIDTH", "+ 0 * first")
        ],
        test="tests/release/test_row_counts.py::test_noise_of_long_answers_is_drawn_in_pieces",
    ),
    dict(
        name="small_integers_of_cells_overflow",
        edits=[
            (
                "graphveil.core.queries.row_counts:RowCountQuery.prepare",
                "ranks, *places = (array.long() for array in arrays)",
                "ranks, *places = arrays",
            )
        ],
        test="tests/release/test_row_counts.py::test_small_integers_do_not_overflow[kind2]",
        reason="from -1 to",
    ),
    dict(
        name="rows_of_undirected_edges_are_counted",
        edits=[
            ("graphveil.core.queries.row_counts:RowCountQuery.check_unit", "if not directed:", "if False:")
        ],
        test="tests/release/test_row_counts.py::test_rows_that_are_stored_in_both_directions_are_rejected_uncharged",
        reason="DID NOT RAISE",
    ),
    dict(
        name="counts_of_rows_are_charged_to_records",
        edits=[
            (
                "graphveil.core.queries.row_counts:RowCountQuery.event",
                "if not isinstance(unit, DirectedEdge):",
                "if False:",
            )
        ],
        test="tests/release/test_row_counts.py::test_other_units_are_rejected[person]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="the_second_answer_counts_all_rows",
        edits=[
            (
                "graphveil.estimators.relational.rows:RowMethod.plan",
                "((False, True), layout.owner_cells)",
                "((True, True), layout.owner_cells)",
            )
        ],
        test="tests/estimators/relational/test_units.py::test_a_plan_costs_at_most_the_target_and_little_less[0.5-row]",
    ),
    dict(
        name="codes_follow_from_exact_rows",
        edits=[
            (
                "graphveil.estimators.relational.rows:RowMethod.fit",
                "for relation, part, count in parts]",
                "for relation, part, count in parts]\n            codes = [(code + len(view.adjacency._unwrap().indices)) % most for code, most in zip(codes, layout.codes, strict=True)]",
            )
        ],
        test="tests/estimators/relational/test_neighbors.py::test_a_row_moves_one_integer_of_one_answer_and_nothing_else[4]",
    ),
    dict(
        name="persons_without_rows_keep_what_attributes_say",
        edits=[
            (
                "graphveil.estimators.relational.rows:RowMethod.fit",
                "= classifier.log_posteriors(inputs)",
                "= classifier.log_posteriors(inputs)\n            bare = np.bincount(view.adjacency._unwrap().indices.numpy(), minlength=places.nodes)[: layout.persons] == 0\n            decided[torch.from_numpy(bare)] = public[torch.from_numpy(bare)]",
            )
        ],
        test="tests/estimators/relational/test_neighbors.py::test_a_row_moves_one_integer_of_one_answer_and_nothing_else[5]",
    ),
    dict(
        name="cells_are_those_of_tables_with_rows",
        edits=[
            (
                "graphveil.estimators.relational.rows:RowMethod.sizes_of",
                "relations=view.relations)",
                "relations=tuple(each for each in view.relations if view.adjacency._unwrap().indptr[each.first] < view.adjacency._unwrap().indptr[each.stop]))",
            )
        ],
        test="tests/estimators/relational/test_units.py::test_cells_do_not_depend_on_rows",
    ),
    dict(
        name="rows_of_other_persons_are_read_as_own",
        edits=[
            (
                "graphveil.estimators.relational.persons:features_of",
                "lists = rows(own_lists(view.adjacency), persons)",
                "lists = rows(own_lists(view.adjacency), persons)\n    for each in view.relations:\n        if each.persons is not None:\n            width, n = lists.shape[1], view.num_nodes\n            received = lists[:, each.first : each.stop : each.values].T\n            parts = sparse.csr_array((n, each.first)), received, sparse.csr_array((n, width - each.first - n))\n            lists = sparse.csr_array(lists + sparse.hstack(parts))",
            )
        ],
        test="tests/estimators/relational/test_neighbors.py::test_features_of_a_person_follow_from_the_own_record[1-True]",
    ),
    dict(
        name="numbers_of_rows_are_shares_of_the_largest",
        edits=[
            (
                "graphveil.estimators.relational.persons:own_features",
                "_CAP) / _CAP",
                "_CAP)\n        counts = counts / max(counts.max(), 1.0)",
            )
        ],
        test="tests/estimators/relational/test_neighbors.py::test_features_of_a_person_follow_from_the_own_record[2-True]",
    ),
    dict(
        name="attributes_are_divided_by_the_largest",
        edits=[
            (
                "graphveil.estimators.relational.persons:own_features",
                "unit_rows(attributes)]",
                "attributes / max(abs(attributes).max(), 1.0)]",
            )
        ],
        test="tests/estimators/relational/test_neighbors.py::test_features_of_a_person_follow_from_the_own_record[2-True]",
    ),
    dict(
        name="a_batch_has_the_persons_with_rows",
        edits=[
            (
                "graphveil.estimators.relational.persons:PersonMethod.fit",
                "charged_members(view, query.pays))",
                "charged_members(view, query.pays))\n            nodes = nodes[torch.from_numpy(np.diff(own_lists(view.adjacency)._unwrap().indptr) > 0)[nodes]]",
            )
        ],
        test="tests/estimators/relational/test_neighbors.py::test_a_person_moves_each_gradient_sum_by_the_clipping_norm_and_no_other_prediction[0-False]",
    ),
    dict(
        name="persons_of_the_test_part_are_trained_on_uncharged",
        edits=[
            (
                "graphveil.estimators.relational.persons:PersonMethod.fit",
                "nodes_of(charged_members(view, query.pays))",
                "torch.arange(view.num_nodes)",
            )
        ],
        test="tests/estimators/relational/test_neighbors.py::test_a_person_moves_each_gradient_sum_by_the_clipping_norm_and_no_other_prediction[0-False]",
    ),
    dict(
        name="features_are_those_of_tables_with_rows",
        edits=[
            (
                "graphveil.estimators.relational.persons:PersonMethod.sizes_of",
                "relations=view.relations)",
                "relations=tuple(each for each in view.relations if view.adjacency._unwrap().indptr[each.first] < view.adjacency._unwrap().indptr[each.stop]))",
            )
        ],
        test="tests/estimators/relational/test_units.py::test_cells_do_not_depend_on_rows",
    ),
    dict(
        name="mutual_tables_are_read_under_unit_person",
        edits=[("graphveil.data.relational:check_tables", "if unit == Person.name and mutual:", "if False:")],
        test="tests/estimators/relational/test_neighbors.py::test_mutual_tables_are_rejected_uncharged_under_unit_person",
        reason="DID NOT RAISE",
    ),
    dict(
        name="one_table_has_two_owners",
        edits=[
            ("graphveil.data.relational:_check_rows", "if one.owner != other.owner and ", "if False and ")
        ],
        test=[
            "tests/data/test_relational.py::test_one_table_with_two_owners_is_rejected[None]",
            "tests/data/test_relational.py::test_one_file_with_two_owners_is_rejected",
        ],
        reason="DID NOT RAISE",
    ),
]
