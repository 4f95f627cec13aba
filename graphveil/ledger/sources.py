"""Where the ledger takes its clock and its key from: the only two values that differ from run to run."""

import secrets
from datetime import UTC, datetime


def now() -> str:
    """Return the time of an entry, which is shown only: the order of entries is the chain's."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def new_key() -> str:
    """Return a new key of fingerprints, as hexadecimal digits."""
    return secrets.token_hex(32)
