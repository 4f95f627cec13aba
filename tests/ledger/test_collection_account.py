"""What answers to a survey cost: once as long as messages and records stay as they were."""

from pathlib import Path

import pytest
from collect.surveys import SURVEYS

from graphveil.ledger.accounts import CollectionAccount

SENT = [("ann", "first"), ("bob", "second")]
RECORDS = [b"1.0;2.0", b"3.0;4.0"]


@pytest.mark.parametrize(
    ("sent", "records", "bookings"),
    [
        (SENT, RECORDS, 1),
        (SENT, [RECORDS[0], b"3.0;4.5"], 2),  # the new value happened to be sent as the old one was
        ([SENT[0], ("bob", "third")], RECORDS, 2),
        ([("ann", "second"), ("bob", "first")], RECORDS, 2),
    ],
    ids=["nothing changed", "a record", "a message", "whose message"],
)
def test_answers_are_booked_by_messages_and_records(
    sent: list[tuple[object, str]],
    records: list[bytes],
    bookings: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRAPHVEIL_LEDGER", str(tmp_path / "ledger.sqlite"))
    protocol = SURVEYS["label"]
    for told, about in ((SENT, RECORDS), (sent, records)):
        known = CollectionAccount.from_records(["ann", "bob"], protocol.guarantee, protocol.digest, None)
        known.charge_reports(told, about)
    assert len(known.account.ledger.entries) == bookings
