"""The durable privacy ledger: everything released of a data set, with limits, in a database.

It knows events and limits, no graph and no torch; releases charge it through :class:`DataSetLedger`, which is
a ``PrivacyLedger`` of :mod:`graphveil.privacy`. Docs: ``docs/ledger.md``.
"""

from graphveil.ledger.book import Ledger, restore
from graphveil.ledger.bookings import DataSetLedger, Receipt
from graphveil.ledger.places import default_place, split_name
from graphveil.ledger.rows import PEOPLE, Account, unit_key
from graphveil.ledger.totals import Limit, Total, exact
from graphveil.ledger.verify import Break

__all__ = [
    "PEOPLE",
    "Account",
    "Break",
    "DataSetLedger",
    "Ledger",
    "Limit",
    "Receipt",
    "Total",
    "default_place",
    "exact",
    "restore",
    "split_name",
    "unit_key",
]
