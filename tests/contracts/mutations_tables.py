"""Seeded faults of tables: each is a change of the source that one test must notice."""



BUGS = [
    dict(
        name="released_rows_are_not_compared",
        edits=[
            (
                "graphveil.tables.files:released",
                "    if _bound_to(record) != found:",
                "    if not _bound_to(record) and not found:",
            )
        ],
        test="tests/perturb/test_released_rows.py::test_a_record_does_not_count_for_other_rows[true edges added]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="released_rows_are_compared_by_their_number_alone",
        edits=[
            (
                "graphveil.tables.files:_bound_to",
                '("rows", "sha256")}',
                '("rows",)} | {"sha256": _rows_of.digest}',
            ),
            (
                "graphveil.tables.files:_rows_of",
                'return {"rows": table.num_rows, "sha256": digest.hexdigest()}',
                "_rows_of.digest = digest.hexdigest()\n"
                '    return {"rows": table.num_rows, "sha256": digest.hexdigest()}',
            ),
        ],
        test="tests/perturb/test_released_rows.py::test_a_record_does_not_count_for_other_rows[one edge replaced]",
        reason="DID NOT RAISE",
    ),
    dict(
        name="ids_of_a_csv_are_typed_by_their_looks",
        edits=[
            (
                "graphveil.tables.look:_look_at_nodes",
                "types = dict.fromkeys(written, labels.AS_WRITTEN) if given.written else {}",
                "types = dict.fromkeys(written[:0], labels.AS_WRITTEN) if given.written else {}",
            )
        ],
        test="tests/tables/test_ids_and_words.py::test_ids_of_a_csv_keep_their_spelling[e.csv-zeros]",
    ),
    dict(
        name="words_for_a_missing_label_are_classes",
        edits=[
            (
                "graphveil.tables.labels:class_codes",
                "files.without_words(_labels(files.column(table, name), name), words)",
                "files.without_words(_labels(files.column(table, name), name), words[:0])",
            )
        ],
        test="tests/tables/test_ids_and_words.py::test_a_missing_word_is_no_class_and_leaves_numbers_numbers[.csv-NULL]",
        reason="class_names",
    ),
    dict(
        name="weights_of_a_data_are_dropped",
        edits=[
            (
                "graphveil.graph._pyg:fields_of",
                "if max_weight is None and values is not None:",
                "if max_weight is None and values is not None and weighted is None:",
            )
        ],
        test="tests/graph/test_data_fields.py::test_weights_and_features_of_edges_are_not_ignored[edge_weight]",
    ),
    dict(
        name="edges_of_ids_written_otherwise_are_to_be_dropped",
        edits=[
            (
                "graphveil.tables.edges:differs_in",
                "    for name, step in steps:",
                "    for name, step in steps[:0]:",
            ),
            (
                "graphveil.tables.edges:differs_in",
                'return f"{_BLANKS}, {_CASE}" if',
                'return "" if',
            ),
        ],
        test="tests/tables/test_ids_and_words.py::test_ids_that_differ_in_writing_are_not_to_be_dropped[refuse-case]",
    ),
    dict(
        name="a_graph_whose_edges_were_all_dropped_is_accepted",
        edits=[
            (
                "graphveil.tables.edges:read_ends",
                "if unknown == REFUSE or (table.num_rows and not kept.any()):",
                "if unknown == REFUSE:",
            )
        ],
        test="tests/tables/test_ids_and_words.py::test_ids_that_differ_in_writing_are_not_to_be_dropped[drop-all others]",
        reason="DID NOT RAISE",
    ),
]
