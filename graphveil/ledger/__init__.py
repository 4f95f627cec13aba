"""The privacy ledger: the releases of each dataset, the remaining budget, and the charged accounts.

Start with ``core/ledger.py``: ``charge`` records every release in a ``PrivacyLedger``. ``MemoryLedger`` lives
in one process; ``Ledger`` is a database of datasets, each of them a ``DataSetLedger``. Docs:
``docs/how-to/budgets.md``.

Which data this is, in the ledger:

* in a process, the edge set of a graph, which its copies share. A grown graph has several, all charged;
* in a database, a named dataset. It is bound to versions of data by keyed fingerprints (``bindings.py``).
  Equal edges, records or features are the same dataset, and so are data that share half of their people;
* in a dataset, an account for each privacy unit, because costs under different units do not add up;
* in an account, a release id, which is charged once (``reservations.py``).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphveil.core.ledger import Entry as Entry
    from graphveil.core.ledger import JointLedger as JointLedger
    from graphveil.core.ledger import MemoryLedger as MemoryLedger
    from graphveil.core.ledger import PrivacyLedger as PrivacyLedger
    from graphveil.core.ledger import attach_ledger as attach_ledger
    from graphveil.core.ledger import joint_ledger as joint_ledger
    from graphveil.core.ledger import ledger_of as ledger_of
    from graphveil.core.ledger import own_releases as own_releases
    from graphveil.data.fingerprint import NODE_IDS as NODE_IDS
    from graphveil.ledger.chain import Account as Account
    from graphveil.ledger.chain import IntegrityViolation as IntegrityViolation
    from graphveil.ledger.chain import unit_key as unit_key
    from graphveil.ledger.costs import Limit as Limit
    from graphveil.ledger.costs import PrivacyCost as PrivacyCost
    from graphveil.ledger.costs import exact as exact
    from graphveil.ledger.locations import default_location as default_location
    from graphveil.ledger.locations import split_name as split_name
    from graphveil.ledger.reservations import DataSetLedger as DataSetLedger
    from graphveil.ledger.reservations import Receipt as Receipt
    from graphveil.ledger.sql_ledger import Ledger as Ledger
    from graphveil.ledger.sql_ledger import restore as restore

_HOMES = {  # a fit needs no database, and SQLAlchemy takes a while to import
    "core.ledger": (
        *("Entry", "JointLedger", "MemoryLedger", "PrivacyLedger"),
        *("attach_ledger", "joint_ledger", "ledger_of", "own_releases"),
    ),
    "ledger.bindings": ("NODE_IDS",),
    "ledger.chain": ("Account", "IntegrityViolation", "unit_key"),
    "ledger.costs": ("Limit", "PrivacyCost", "exact"),
    "ledger.locations": ("default_location", "split_name"),
    "ledger.reservations": ("DataSetLedger", "Receipt"),
    "ledger.sql_ledger": ("Ledger", "restore"),
}
__all__ = [name for names in _HOMES.values() for name in names]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            globals()[name] = found = getattr(import_module(f"graphveil.{module}"), name)
            return found
    raise AttributeError(f"module 'graphveil.ledger' has no attribute {name!r}")
