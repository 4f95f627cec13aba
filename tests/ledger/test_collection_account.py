"""LDP reports are charged once as long as reports and records stay the same."""

import pytest
from collect.protocols import SURVEYS

from graphveil.data.fingerprint import id_fingerprint_parts
from graphveil.runs.charges import RunAccount, charge_reports

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
        account = RunAccount.from_parts(id_fingerprint_parts(["ann", "bob"]), protocol.guarantee, None)
        charge_reports(account, protocol, reports, about)
    assert len(account.ledger.entries) == releases
