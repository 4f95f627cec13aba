"""Source mutations of the scaling of features, of columns by name, of units and of the baseline."""

BUGS = [
    dict(
        name="scaling_fitted_on_private_records",
        edits=[
            (
                "graphveil.models.base:Estimator._scaling",
                "FeatureScaling.public if on_records else FeatureScaling.fitted",
                "FeatureScaling.fitted",
            )
        ],
        test="tests/models/features/test_scaling.py::test_models_on_records_scale_by_public_constants_alone[node-owner]",
    ),
    dict(
        name="another_graph_is_not_scaled",
        edits=[
            (
                "graphveil.models.predictor:Predictor._as_graph",
                "return self.fitted.scaling.graph(aligned(found, self.fitted.encoding))",
                "return aligned(found, self.fitted.encoding)",
            )
        ],
        test="tests/models/features/test_scaling.py::test_another_graph_is_scaled_by_the_training_graph",
    ),
    dict(
        name="column_names_are_not_compared",
        edits=[
            (
                "graphveil.models.features.columns:_shape",
                "return rule.name, kind,",
                "return kind,",
            )
        ],
        test="tests/test_cli_release_columns.py::test_a_graph_in_python_is_aligned_by_name[swapped]",
    ),
    dict(
        name="baseline_on_records_by_default",
        edits=[
            (
                "graphveil.cli.train:compares",
                'unit not in ("node-owner", "node-promise") if baseline is None else baseline',
                "baseline is not False",
            )
        ],
        test="tests/test_cli_dry_run.py::test_a_dry_run_prints_the_total_and_writes_nothing[train on records]",
    ),
    dict(
        name="unit_none_is_suggested",
        edits=[
            (
                "graphveil._check:suggestion",
                "if choice not in HARMFUL",
                "if choice",
            )
        ],
        test="tests/privacy/test_unit.py::test_choices_without_a_guarantee_are_never_suggested[non-choices1]",
    ),
]
