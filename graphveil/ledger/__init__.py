"""The durable privacy ledger: everything released of a data set, with limits, in a database.

It knows events and limits, no graph and no torch; releases charge it through :class:`DataSetLedger`, which is
a ``PrivacyLedger`` of :mod:`graphveil.privacy`. Docs: ``docs/ledger.md``.
"""

from graphveil.ledger.costs import Limit, PrivacyCost, exact
from graphveil.ledger.locations import default_location, split_name
from graphveil.ledger.reservations import DataSetLedger, Receipt
from graphveil.ledger.rows import NODE_IDS, Account, unit_key
from graphveil.ledger.sql_ledger import Ledger, restore
from graphveil.ledger.verify import IntegrityViolation

__all__ = [
    "NODE_IDS",
    "Account",
    "DataSetLedger",
    "IntegrityViolation",
    "Ledger",
    "Limit",
    "PrivacyCost",
    "Receipt",
    "default_location",
    "exact",
    "restore",
    "split_name",
    "unit_key",
]
