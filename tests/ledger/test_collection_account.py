"""LDP reports are charged once as long as reports and records stay the same."""

import pytest
from collect.protocols import SURVEYS

from graphveil.ledger.accounts import CollectionAccount

SENT = [("ann", "first"), ("bob", "second")]
RECORDS = [b"1.0;2.0", b"3.0;4.0"]


@pytest.mark.parametrize(
    ("sent", "records", "releases"),
    [
        (SENT, RECORDS, 1),
        (SENT, [RECORDS[0], b"3.0;4.5"], 2),  # a changed value happened to be reported like the old one
        ([SENT[0], ("bob", "third")], RECORDS, 2),
        ([("ann", "second"), ("bob", "first")], RECORDS, 2),
    ],
    ids=["unchanged", "another record", "another report", "exchanged reports"],
)
def test_changed_reports_or_records_are_charged_again(
    sent: list[tuple[object, str]], records: list[bytes], releases: int
) -> None:
    protocol = SURVEYS["label"]
    for reports, about in ((SENT, RECORDS), (sent, records)):
        account = CollectionAccount.from_records(["ann", "bob"], protocol.guarantee, protocol.digest, None)
        account.charge_reports(reports, about)
    assert len(account.account.ledger.entries) == releases
