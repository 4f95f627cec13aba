"""Source mutations of the ledger, each with the test that fails with it."""

from typing import Any

BUGS: list[dict[str, Any]] = [
    {
        "name": "room_is_that_of_a_gaussian_release",
        "edits": [
            (
                "graphveil.ledger.totals:Total.room",
                "one = Total.of(like) if like is not None else",
                "one = _MU if like is not None else",
            )
        ],
        "test": "tests/ledger/test_totals.py::test_room_is_all_that_fits_and_no_more[hop-pure]",
    },
    {
        "name": "room_is_not_one_sided",
        "edits": [
            (
                "graphveil.ledger.totals:Total.room",
                "return _down(one._scaled(share)",
                "return 1.06 * _down(one._scaled(share)",
            )
        ],
        "test": "tests/ledger/test_totals.py::test_room_is_all_that_fits_and_no_more[hop-gaussian]",
    },
    {
        "name": "reports_cost_nothing_beside_other_events",
        "edits": [
            (
                "graphveil.ledger.totals:Total.event",
                "[_bounded(part) if isinstance(part, LocalReport) else part for part in parts]",
                "[part for part in parts if not isinstance(part, LocalReport)]",
            )
        ],
        "test": "tests/ledger/test_totals.py::test_reports_mix_with_every_other_event",
    },
    {
        "name": "name_is_bound_by_a_check",
        "edits": [
            (
                "graphveil.ledger.bookings:DataSetLedger.check",
                "if not self._new:",
                "self.settle()\n        if not self._new:",
            )
        ],
        "test": "tests/ledger/test_states.py::test_a_name_is_bound_with_the_first_release[sqlite]",
    },
    {
        "name": "name_is_bound_before_a_refusal",
        "edits": [
            (
                "graphveil.ledger.bookings:DataSetLedger.record",
                "receipt = reserve(",
                "self.settle()\n        receipt = reserve(",
            )
        ],
        "test": "tests/ledger/test_states.py::test_a_name_is_bound_with_the_first_release[sqlite]",
    },
    {
        "name": "key_of_the_ledger_is_not_checked",
        "edits": [("graphveil.ledger.store:key_fault", "if state.checked != key_check(key):", "if False:")],
        "test": "tests/ledger/test_states.py::"
        "test_a_key_that_was_lost_or_changed_is_found[change_key-sqlite]",
    },
    {
        "name": "fork_of_a_memory_ledger_records",
        "edits": [
            (
                "graphveil.privacy.ledger:MemoryLedger._check_process",
                "if os.getpid() != self._process:",
                "if False:",
            )
        ],
        "test": "tests/ledger/test_states.py::test_a_fork_of_a_ledger_in_memory_is_refused[record-without]",
        "reason": "granted",
    },
    {
        "name": "ledger_of_a_newer_version_is_opened",
        "edits": [
            ("graphveil.ledger.store:Store._check_version", "if said != str(VERSION):", "if said is None:")
        ],
        "test": "tests/ledger/test_states.py::"
        "test_a_ledger_of_another_version_is_refused[3-of version 3-sqlite]",
    },
    {
        "name": "older_copy_of_a_ledger_is_continued",
        "edits": [("graphveil.ledger.mark:Mark.check", "seen[1] <= count", "seen[1] >= 0")],
        "test": "tests/ledger/test_states.py::test_an_older_copy_that_is_put_back_is_noticed[renamed]",
    },
    {
        "name": "entries_of_unknown_kinds_verify",
        "edits": [
            (
                "graphveil.ledger.verify:_Recount._follow",
                'return f"an entry is of the unknown kind {kind[:20]!r}"',
                "return None",
            )
        ],
        "test": "tests/ledger/test_states.py::test_an_entry_of_an_unknown_kind_does_not_verify[sqlite]",
    },
    {
        "name": "same_people_start_at_zero",
        "edits": [("graphveil.ledger.rows:shared_with", "elif not apart:", "elif False:")],
        "test": "tests/test_cli_ledger_accounts.py::"
        "test_changed_data_of_the_same_people_stay_in_their_account[edge and label]",
    },
    {
        "name": "ledger_keeps_a_log_beside_its_file",
        "edits": [("graphveil.ledger.store:_engine", "journal_mode=TRUNCATE", "journal_mode=WAL")],
        "test": "tests/ledger/test_states.py::test_a_plain_copy_of_the_file_has_every_release[killed]",
    },
    {
        "name": "restore_ignores_receipts",
        "edits": [("graphveil.ledger.book:_older", "if lacking:", "if False:")],
        "test": "tests/ledger/test_states.py::test_an_older_backup_is_restored_by_force_alone[a receipt]",
    },
    {
        "name": "data_set_with_releases_is_unbound",
        "edits": [
            (
                "graphveil.ledger.book:Ledger.unbind",
                "if kinds.count(RESERVE) > kinds.count(WITHDRAW):",
                "if False:",
            )
        ],
        "test": "tests/ledger/test_states.py::test_a_name_without_releases_can_be_unbound[sqlite]",
    },
]
