"""Source mutations of custom modules: their copies, their clipped sums, what is tried before a charge."""


_ISOLATED = (
    "tests/train/test_isolation.py::test_one_record_moves_each_sum_by_its_clip_and_no_other_prediction"
)
_NULL = "tests/train/test_isolation.py::test_a_record_on_which_a_module_raises_is_null"
_NORMS = "tests/train/test_stars.py::test_squares_beyond_float32_are_clipped_by_their_norm"
_REASONS = "tests/models/gnn/test_modules.py::test_other_modules_are_refused_for_the_true_reason"
_CODE = "test_an_interrupted_fit_is_not_resumed_with_other_code"

BUGS = [
    dict(
        name="deltas_of_affine_maps_stay_float32",
        edits=[
            (
                "graphveil.train.affine:AffineGradients.of",
                "_first(delta, count).to(torch.float64) for",
                "_first(delta, count) for",
            )
        ],
        test=f"{_NORMS}[1e+24-1e-24-1.0-0.001-ghost]",
    ),
    dict(
        name="norms_of_formed_gradients_are_float32",
        edits=[
            (
                "graphveil.train.clipped:square_norms",
                "part.to(torch.float64).square().sum(dim=1)",
                "part.square().sum(dim=1).double()",
            )
        ],
        test=f"{_NORMS}[1-1-1e-25-1e-28-vmap]",
    ),
    dict(
        name="noise_of_a_private_module_ignores_its_code",
        edits=[
            (
                "graphveil.models.own.private_module:ModuleOnRecords.fit",
                "bound = (x, labels, _fingerprint(module, sizes))",
                "bound = (x, labels)",
            )
        ],
        test=f"tests/models/own/test_private_module.py::{_CODE}",
    ),
    dict(
        name="noise_of_trees_ignores_the_code",
        edits=[
            (
                "graphveil.models.gnn.tree_method:TreeGnn._train",
                "(*inputs.tensors, nodes, labels, code),",
                "(*inputs.tensors, nodes, labels),",
            )
        ],
        test=f"tests/models/gnn/test_trees.py::{_CODE}",
    ),
    dict(
        name="noise_of_stars_ignores_the_code",
        edits=[
            (
                "graphveil.models.gnn.method:StarGnn._trained",
                "(*bound, *listed, labels, code),",
                "(*bound, *listed, labels),",
            )
        ],
        test="tests/models/gnn/test_private_gnn.py::"
        "test_an_interrupted_fit_resumes_to_the_same_bytes_and_not_with_other_code",
    ),
    dict(
        name="one_direction_of_poisson_roots_stands_for_both",
        edits=[
            (
                "graphveil.privacy.root_loss:step_loss",
                "PrivacyLossDistribution(forth, back.through(pair.added(back.points)))",
                "PrivacyLossDistribution(forth)",
            )
        ],
        test="tests/privacy/test_root_loss.py::test_both_directions_are_composed[event0]",
    ),
    dict(
        name="state_that_changes_is_accepted",
        edits=[
            (
                "graphveil.models.own.probing:_refuse_mixing",
                "    _check_state(name, before, state_of(probe.module))\n",
                "",
            )
        ],
        test=f"{_REASONS}[a moving buffer-stars]",
    ),
    dict(
        name="records_in_a_loop_share_one_module",
        edits=[
            (
                "graphveil.train.stars:StarSum._one_by_one",
                "with self._copies.run() as module:",
                "for module in (self._module,):",
            )
        ],
        test=f"{_ISOLATED}[RunningMax-sly]",
    ),
    dict(
        name="predictions_in_a_loop_share_one_module",
        edits=[
            (
                "graphveil.train.stars:star_logits",
                "with copies.run() as fresh:\n            return one(fresh, x, edges).to",
                "for fresh in (module,):\n            return one(fresh, x, edges).to",
            )
        ],
        test=f"{_ISOLATED}[RunningMax-sly]",
    ),
    dict(
        name="batches_share_one_module",
        edits=[
            (
                "graphveil.train.per_sample:PerSampleSum.__init__",
                "self._copies, self._fixed = FreshCopies(module),",
                "shared = type('S', (), {'run': lambda self: __import__('contextlib').nullcontext(module)})()\n"
                "        self._copies, self._fixed = shared,",
            )
        ],
        test="tests/train/test_isolation.py::test_records_of_one_step_reach_no_later_step[Kept]",
    ),
    dict(
        name="weights_are_not_copied_for_each_record",
        edits=[("graphveil.train.stars:_cloned", "tensor.clone()", "tensor")],
        test=f"{_ISOLATED}[InABuffer-sly]",
    ),
    dict(
        name="closures_are_shared",
        edits=[
            (
                "graphveil.train.copies:_Reach._search_function",
                'self._keep(cell, "cell_contents", f"variable {key} in the closure of {name}")',
                "pass",
            )
        ],
        test=f"{_ISOLATED}[InClosure-sly]",
    ),
    dict(
        name="class_attributes_are_shared",
        edits=[
            (
                "graphveil.train.copies:_Reach._search_class",
                'self.places.append(_Place(kind, name, f"class attribute {kind.__name__}.{name}"))',
                "pass",
            )
        ],
        test=f"{_ISOLATED}[OnTheClass-plain]",
    ),
    dict(
        name="global_variables_are_shared",
        edits=[
            (
                "graphveil.train.copies:_Reach._search_function",
                'self._keep(home, key, f"global variable {key}")',
                "pass",
            )
        ],
        test=f"{_ISOLATED}[InAGlobalDict-sly]",
    ),
    dict(
        name="caches_are_shared",
        edits=[("graphveil.train.copies:_copied", "for cached in reach.caches", "for cached in ()")],
        test=f"{_ISOLATED}[LruCached-sly]",
    ),
    dict(
        name="draws_of_one_record_move_the_next",
        edits=[
            (
                "graphveil.train.copies:_same_draws",
                "with torch.random.fork_rng(devices=[]):\n            yield",
                "yield",
            )
        ],
        test=f"{_ISOLATED}[DrawsWhenLoud-plain]",
    ),
    dict(
        name="an_exception_of_one_record_ends_the_fit",
        edits=[("graphveil.train.nulls:faults", "(Exception, SystemExit)", "(KeyError,)")],
        test=f"{_NULL}[Singular-vmap-dtype1]",
    ),
    dict(
        name="a_failing_record_has_another_ones_gradient",
        edits=[("graphveil.train.stars:StarSum._add_chunk", "if failed is not None:", "if False:")],
        test=f"{_NULL}[Singular-vmap-dtype1]",
    ),
    dict(
        name="a_failed_run_changes_the_records",
        edits=[
            ("graphveil.train.stars:StarSum._loss", "(x.clone(), edges.clone())", "(x, edges)"),
        ],
        test="tests/train/test_isolation.py::test_what_a_failed_run_changed_in_place_reaches_no_other_record",
    ),
    dict(
        name="trees_are_charged_for_one_level_less",
        edits=[
            (
                "graphveil.release.steps.tree_steps:Reach.of",
                "below = sum(slots**level for level in range(depth))",
                "below = sum(slots**level for level in range(depth - 1))",
            )
        ],
        test="tests/models/gnn/test_trees.py::"
        "test_a_fit_books_one_release_for_all_roots_that_a_record_reaches[changes1-event1]",
    ),
    dict(
        name="the_shapes_of_the_fit_are_not_tried",
        edits=[
            (
                "graphveil.models.gnn.route:check_trainable",
                "        _run_once(module, inputs, classes, parents, way, device)\n",
                "",
            )
        ],
        test="tests/models/gnn/test_modules.py::test_modules_are_tried_in_the_shapes_of_the_fit[stars]",
    ),
    dict(
        name="a_backward_pass_is_not_tried_in_gap",
        edits=[
            ("graphveil.models.gap.own:check_output", "_step(name, trained.train(), records(_LOUD))", "pass")
        ],
        test="tests/models/test_gap_own.py::"
        "test_a_module_that_fails_later_is_refused_before_anything_is_charged"
        "[InPlace-in place that its backward pass reads, the output of Sigmoid-encoder]",
    ),
    dict(
        name="one_of_two_tied_weights_is_not_trained",
        edits=[
            (
                "graphveil.train.copies:call",
                "if tensor is not None:",
                "if tensor is not None and id(tensor) not in first:",
            )
        ],
        test="tests/models/gnn/test_modules.py::test_shared_parts_have_the_sum_of_their_gradients[weight]",
    ),
]
