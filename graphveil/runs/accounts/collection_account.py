"""The account of a survey's answers: what each of some people has told about its record, over all surveys.

Randomizing a table of records is recorded under unit ``local-attributes``, before the LDP reports are
written. The same LDP reports again cost nothing more, and a record that has changed since is told about a
second time, so an entry is known by the LDP reports and the records that they are about. Whoever receives
them holds no
record: that a survey was answered is booked only for people who are named, once a survey however many
LDP reports come in later.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphveil.ledger import Ledger, split_name
from graphveil.privacy import Entry, Guarantee, LocalAttributes, LocalReport, compose
from graphveil.runs.accounts.graph_tags import id_fingerprint_parts
from graphveil.runs.accounts.ledger_account import RunAccount

if TYPE_CHECKING:
    from graphveil.local.collect import CollectionProtocol


@dataclass(frozen=True)
class CollectionAccount:
    """Some people's account, and the survey that they answer.

    Args:
        account: of the people.
        protocol: what they are asked.
    """

    account: RunAccount
    protocol: "CollectionProtocol"

    @classmethod
    def from_records(
        cls, protocol: "CollectionProtocol", ids: Iterable[object], named: str | None
    ) -> "CollectionAccount":
        """Return the account of the people in a table of records.

        Args:
            protocol: what they are asked.
            ids: theirs.
            named: what ``--ledger`` says; None for the user's own ledger, which recognizes the people.

        Raises:
            ConfigError: no such data set is registered, or it is of other people.
        """
        return cls(
            RunAccount.from_parts(id_fingerprint_parts(ids), protocol_guarantee(protocol), named), protocol
        )

    @classmethod
    def from_name(cls, protocol: "CollectionProtocol", named: str) -> "CollectionAccount":
        """Return the account of people who are named, and of whom only LDP reports are here."""
        url, name = split_name(named)
        return cls(
            RunAccount.from_name(Ledger(url, create=False), name, protocol_guarantee(protocol)), protocol
        )

    def check(self) -> None:
        """Refuse a survey that the people have no room for, before anybody is asked.

        Raises:
            BudgetError: it does not fit.
        """
        self.account.ledger.check(self._entry("planned"))

    def charge_reports(self, encoded_reports: Iterable[tuple[object, str]], records: Iterable[bytes]) -> None:
        """Book LDP reports before they leave this process; ones that were booked before cost nothing.

        Args:
            encoded_reports: ids and texts.
            records: what each of them is about. A fingerprint of both under the ledger's key names the
                booking: a record that has changed may happen to send the same few bits, and has told twice.

        Raises:
            BudgetError: there is no room for them.
        """
        report_lines = (
            f"{node}\0{text}\n".encode("utf-8", "surrogatepass") for node, text in encoded_reports
        )
        parts = {"messages": report_lines, "records": records}
        tags = self.account.ledger.fingerprints(parts).values()
        self._charge(f"answers-{''.join(tag[:20] for tag in tags)}")

    def charge_received(self) -> None:
        """Book that a survey was answered, unless answers to it are booked already.

        Raises:
            BudgetError: there is no room for it.
        """
        if not any(entry.label == self._label for entry in self.account.ledger.entries):
            self._charge(f"received-{self.protocol.digest.hex()}")

    def _charge(self, reference: str) -> None:
        self.account.ledger.record(self._entry(reference))
        self.account.ledger.commit(reference)

    @property
    def _label(self) -> str:
        return f"survey {self.protocol.digest.hex()[:16]}"

    def _entry(self, reference: str) -> Entry:
        return Entry(reference, self._label, protocol_guarantee(self.protocol).event, unit=LocalAttributes())


def protocol_guarantee(protocol: "CollectionProtocol") -> Guarantee:
    """Return the guarantee of one answer.

    >>> from graphveil.local.collect import CollectionProtocol
    >>> from graphveil.mechanisms import LabelRR
    >>> protocol_guarantee(CollectionProtocol(label=LabelRR(epsilon=1.0, classes=3))).epsilon
    1.0
    """
    features, label = protocol.claims
    parts = []
    if protocol.features is not None:
        parts.append(LocalReport("features", features.epsilon, features.delta))
    if protocol.label is not None:
        parts.append(LocalReport("label", label.epsilon, label.delta))
    delta = features.delta + label.delta
    return Guarantee.from_event(LocalAttributes(), compose(*parts), delta=delta, releases=1)
