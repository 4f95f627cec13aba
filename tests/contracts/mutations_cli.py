"""Seeded faults of the command line and of checks at the public boundary."""

BUGS = [
    {
        "name": "text_is_a_sequence_of_budgets",
        "edits": [
            (
                "graphveil._typed:_is_sequence",
                "if isinstance(value, _NO_SEQUENCE):",
                "if isinstance(value, Mapping):",
            )
        ],
        "test": "tests/test_wrong_types.py::test_text_is_never_a_sequence_of_choices[settings-'48']",
    },
    {
        "name": "a_full_disk_after_the_charge_is_misuse",
        "edits": [
            (
                "graphveil.cli.failures:spending",
                'raise CommandError(FAILED, f"{failure}; {charged}", failure.kind) from None',
                "raise",
            )
        ],
        "test": "tests/test_cli_ends.py::test_a_disk_that_is_full_after_the_charge_is_a_failure[decode]",
    },
    {
        "name": "decode_writes_over_files",
        "edits": [
            (
                "graphveil.cli.collect:decode",
                'check_new(out, "decode writes a file of its own. Choose another --out")',
                "pass",
            )
        ],
        "test": "tests/test_cli_ends.py::test_a_file_that_is_there_is_never_written_over[decode]",
    },
    {
        "name": "graphs_are_released_at_any_budget",
        "edits": [
            (
                "graphveil.perturb.mechanism:GraphMechanism.__post_init__",
                "if self.epsilon > MAX_EPSILON:",
                "if self.epsilon > 1e308:",
            )
        ],
        "test": "tests/test_cli_ends.py::test_a_budget_that_does_not_protect_is_rejected[1e300-edge-rand]",
    },
    {
        "name": "the_fingerprint_of_the_graph_is_readable",
        "edits": [
            (
                "graphveil.artifacts.files:write_record",
                'write_atomic(path, (record.model_dump_json(indent=1) + "\\n").encode())',
                'path.write_text(record.model_dump_json(indent=1) + "\\n", encoding="utf-8")',
            )
        ],
        "test": "tests/test_cli_ends.py::test_internal_files_are_private_and_none_is_writable_for_others[0]",
    },
    {
        "name": "a_value_may_be_an_option",
        "edits": [
            (
                "graphveil.cli.command:Command._check_values",
                'if following is not None and (following.startswith("--") or following in names):',
                "if following is not None and following is ctx:",
            )
        ],
        "test": "tests/test_cli_ends.py::test_the_value_of_an_option_is_never_another_option[reason]",
    },
]
