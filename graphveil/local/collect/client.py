"""Client of a collection protocol: randomize one record into one LDP report, with NumPy only.

Another party writes the protocol, so it is compared with the client's own limit before a record is read.
Equal noise on two different records would reveal their difference, so the random words also depend on the
record. The same record and protocol give a bit-identical report, which reveals nothing new.
"""

import hashlib
import hmac
import math
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from graphveil._util.checks import fitting
from graphveil._util.figures import exact_sum, exact_sum_text
from graphveil.core.noise.sampling import Integers, Real, Words, row_blocks
from graphveil.errors import BudgetError, ConfigError, GraphError
from graphveil.local.collect.protocol import (
    CollectionProtocol,
    Node,
    chosen_features,
    encode_all,
    label_hashes,
    node_text,
)
from graphveil.mechanisms.feature_mechanisms import MultiBit
from graphveil.mechanisms.features import LDPReports, check_budget
from graphveil.mechanisms.labels import MISSING, LocalHashing

MAX_EPS = 8.0  # per record; see docs/decisions/015-untrusted-protocols.md
SECRET_BYTES = 32


def randomize_record(
    protocol: CollectionProtocol,
    *,
    node: Node,
    secret: bytes,
    features: npt.ArrayLike | None = None,
    label: int | None = None,
    max_eps: float = MAX_EPS,
    allow_unprotected_label: bool = False,
) -> bytes:
    """Randomize one record and return the LDP report to send.

    The same record gives the same LDP report in every call, so repeated calls use no further budget. A
    changed record gives another report, and the two together use twice the budget.

    Args:
        protocol: Public parameters. Read ``formal_statement`` and ``unprotected_parts`` before you report.
        node: Public id of the node in the protocol; the report is bound to it.
        secret: From ``client_secret``; never send it.
        features: Features of the record, shape (dim,); values outside the bounds are clipped.
        label: Class of the record, or -1 if it has none, which reports a random class.
        max_eps: Maximum budget of the whole record. A protocol with a larger budget is rejected.
        allow_unprotected_label: Whether a protocol may collect the label without protection.

    Returns:
        The encoded LDP report.

    Raises:
        BudgetError: The protocol exceeds ``max_eps``, or collects the label without protection.
        ConfigError: Features or label are missing, or the protocol does not collect them.
        GraphError: A value is NaN or infinite, the shape is wrong, or the label is not a class.

    Privacy:
        Unit: the node record (LDP). Reads: the record. Charges: the budgets of ``protocol``, with the
        guarantee ``protocol.formal_statement()``. The report is public. The record and the secret are
        private.
    """
    check_limits(protocol, max_eps=max_eps, allow_unprotected_label=allow_unprotected_label)
    _check_parts(protocol, features, label)
    record = None if protocol.features is None else _record(features, protocol.features.dim)
    if isinstance(label, list | tuple):
        raise GraphError("A label must be one integer.")
    one = None if protocol.label is None else np.asarray(label)
    if one is not None and one.ndim:
        raise GraphError("A label must be one integer.")
    labels = None if one is None else one[None]
    return randomize_records(
        protocol,
        nodes=[node],
        secret=secret,
        features=record,
        labels=labels,
        max_eps=max_eps,
        allow_unprotected_label=allow_unprotected_label,
    )[0]


def randomize_records(
    protocol: CollectionProtocol,
    *,
    nodes: Sequence[Node],
    secret: bytes,
    features: Real | None = None,
    labels: Integers | None = None,
    max_eps: float = MAX_EPS,
    allow_unprotected_label: bool = False,
) -> list[bytes]:
    """Randomize many records independently, and return their LDP reports in order.

    Use this if you hold the records of several people. Each record is randomized as in ``randomize_record``.

    Args:
        protocol: Public parameters.
        nodes: Public id of each record.
        secret: 32 bytes that only the holder of the records has.
        features: Features (records, dim); values outside the bounds are clipped.
        labels: Classes (records,), -1 for none.
        max_eps: Maximum budget of each record.
        allow_unprotected_label: Whether a protocol may collect labels without protection.

    Returns:
        The encoded LDP reports.

    Raises:
        BudgetError: The protocol exceeds ``max_eps``, or collects the label without protection.
        ConfigError: Features or labels are missing, or the protocol does not collect them.
        GraphError: A value is NaN or infinite, a shape is wrong, a label is not a class, or two records have
            the same id.

    Privacy:
        Unit: each node record (LDP). Reads: the records. Charges: the budgets of ``protocol`` per record.

    >>> from graphveil.mechanisms import MultiBit
    >>> protocol = CollectionProtocol(features=MultiBit(epsilon=1.0, dim=2))
    >>> x = np.array([[0.1, 0.9], [0.5, 0.0]])
    >>> [len(encoded_report) for encoded_report in randomize_records(protocol, nodes=["ann", "bob"],
    ...     secret=bytes(32), features=x)]
    [42, 42]
    """
    check_limits(protocol, max_eps=max_eps, allow_unprotected_label=allow_unprotected_label)
    _check_parts(protocol, features, labels)
    checked_secret(secret)
    for name, part in {"nodes": nodes, "features": features, "labels": labels}.items():
        if isinstance(part, str | bytes | dict | set) or not (part is None or hasattr(part, "__len__")):
            raise ConfigError(f"{name} must be a sequence, not a {type(part).__name__}.")
    if nodes is None:
        raise ConfigError("nodes must be a sequence of node ids.")
    if any(len(part) != len(nodes) for part in (features, labels) if part is not None):
        raise GraphError("ids, features and labels have different lengths. Pass one of each per record.")
    if len(set(map(str, nodes))) != len(nodes):
        raise GraphError(
            "Two records have the same id, but a node can report only once per collection protocol. "
            "Remove one of them."
        )
    reports = None if features is None else _reports(protocol, nodes, secret, features)
    return encode_all(
        protocol,
        nodes,
        reports,
        None if labels is None else _randomize_labels(protocol, nodes, secret, labels),
    )


def check_limits(
    protocol: CollectionProtocol, *, max_eps: float = MAX_EPS, allow_unprotected_label: bool = False
) -> None:
    """Reject a protocol that exceeds the client's limits.

    Args:
        protocol: Public parameters.
        max_eps: Maximum budget of a whole record.
        allow_unprotected_label: Whether the label may be sent without protection. Its infinite budget does
            not count then.

    Raises:
        BudgetError: The protocol exceeds a limit.

    >>> from graphveil.mechanisms import LabelRR
    >>> check_limits(CollectionProtocol(label=LabelRR(epsilon=9.0, classes=3)))
    Traceback (most recent call last):
    graphveil.errors.BudgetError: The protocol needs epsilon 9 per record, but this client allows at most 8. \
Nothing was sent. Request a protocol with a smaller epsilon, or raise max_eps= (--max-eps).
    """
    fitting("protocol", protocol, CollectionProtocol)
    check_budget(max_eps=max_eps)
    budgets = [claim.epsilon for claim in protocol.claims]
    if math.isinf(budgets[1]):
        if not allow_unprotected_label:
            raise BudgetError(
                "The protocol collects the label without randomization. Nothing was sent. Request a "
                "protocol that randomizes the label, or allow this with allow_unprotected_label=True "
                "(--allow-unprotected-label)."
            )
        budgets.pop()
    # As decimals 0.1 + 0.2 equals 0.3; a limit equal to the printed epsilon of a claim is also accepted.
    if exact_sum(budgets) > exact_sum([max_eps]) and sum(budgets) > max_eps:
        raise BudgetError(
            f"The protocol needs epsilon {exact_sum_text(*budgets)} per record, but this client "
            f"allows at most {exact_sum_text(max_eps)}. Nothing was sent. Request a protocol with a "
            "smaller epsilon, or raise max_eps= (--max-eps)."
        )


def _reports(
    protocol: CollectionProtocol, nodes: Sequence[Node], secret: bytes, features: Real
) -> LDPReports:
    law = protocol.features
    assert law is not None  # or there were no features
    x = law.matrix(features)
    if x.dtype != np.float32:  # as in tables: the same record in float64 gives the same report
        most = np.finfo(np.float32).max
        x = np.where(np.isfinite(x), np.clip(x, -most, most), x).astype(np.float32)
    records = [
        row.tobytes()  # clipped, and without -0.0: exactly the values that are randomized
        for part in row_blocks(len(x), law.dim)
        for row in law.bounds.unit(x[part]).astype("<f8") + 0.0
    ]
    words = ClientRandomness(secret, "features", protocol, nodes, records)
    if isinstance(law, MultiBit):
        return law.perturb_features(x, chosen_features(protocol, nodes), stream=words)
    return law.perturb(x, stream=words)


def _randomize_labels(
    protocol: CollectionProtocol, nodes: Sequence[Node], secret: bytes, labels: Integers
) -> Integers:
    law = protocol.label
    assert law is not None  # or there were no labels
    codes = law.checked(labels, missing=True)
    if math.isinf(law.epsilon) and (codes == MISSING).any():
        raise GraphError(
            "A label is missing, but the protocol collects labels without randomization. Remove this record."
        )
    records = [label.tobytes() for label in codes.astype("<i8")]
    words = ClientRandomness(secret, "label", protocol, nodes, records)
    hashes = label_hashes(protocol, nodes)
    if isinstance(law, LocalHashing) and hashes is not None:
        return law.perturb_with_hashes(codes, hashes, stream=words)
    return law.perturb(codes, stream=words)


def _check_parts(protocol: CollectionProtocol, features: object, label: object) -> None:
    if (features is None) != (protocol.features is None) or (label is None) != (protocol.label is None):
        raise ConfigError(
            "A record must have features if the protocol collects features, and a label if it "
            "collects labels. Pass exactly these parts."
        )


def _record(features: npt.ArrayLike | None, dim: int) -> Real:
    try:
        record = np.asarray(features)
    except ValueError as error:
        raise GraphError(f"Each record must have {dim} features, all of them numbers.") from error
    if record.dtype.kind not in "iufb" or record.ndim != 1:
        raise GraphError(f"Each record must have {dim} features, all of them numbers.")
    return record.astype(np.float64)[None]


# -- the client's secret and pseudorandom words ----


def client_secret(path: Path | None = None) -> bytes:
    """Return the secret of this client, 32 bytes from a file that is created at the first call.

    The secret never leaves the client. Given the secret and a node's record and LDP report, an attacker can
    test whether they match, and can test any guessed record. Keep the secret as long as its owner sends
    reports: without it, reports differ in every call, and each one uses further budget.

    Args:
        path: The default is ``graphveil/device-secret`` in the user's state folder (``XDG_STATE_HOME``).

    Raises:
        ConfigError: The file cannot be read or created, or is not a secret.

    Privacy:
        Charges: nothing. The secret is as private as the record itself, and is never part of a
        report.
    """
    try:
        if path is None:
            state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
            path = Path(state) / "graphveil" / "device-secret"
        if not path.exists():
            _make(path)
        secret = path.read_bytes()
    except (OSError, RuntimeError) as error:  # RuntimeError if there is no home directory
        why = error.strerror if isinstance(error, OSError) else "there is no home directory"
        raise ConfigError(
            f"The client secret cannot be stored ({why}). Choose a file that can be written (path=, "
            "--secret)."
        ) from None
    return checked_secret(secret)


def checked_secret(secret: bytes) -> bytes:
    if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
        raise ConfigError(
            f"A client secret must have {SECRET_BYTES} random bytes. Create one with client_secret()."
        )
    return secret


def _make(path: Path) -> None:
    """Write a new secret that only its owner can read, unless another process was first."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    own = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.link(own, path)  # atomic, and never replaces an existing file
    except FileExistsError:
        pass
    finally:
        own.unlink()


class ClientRandomness:
    """Derive pseudorandom words from a secret, a protocol, a node id and a record by HMAC and SHAKE-256.

    Without the secret they are computationally indistinguishable from random words.

    Args:
        part: What is randomized; features and label use different words.
    """

    def __init__(
        self,
        secret: bytes,
        part: str,
        protocol: CollectionProtocol,
        nodes: Sequence[Node],
        records: Sequence[bytes],
    ) -> None:
        begin = hmac.new(secret, f"graphveil-answer/1\0{part}\0".encode() + protocol.digest, "sha256")
        self._keys = [_key(begin, node, record) for node, record in zip(nodes, records, strict=True)]

    def reserve_rows(self, rows: Integers) -> None:
        """Accept every row: its words depend on its record, and may be drawn repeatedly."""

    def words(self, rows: Integers, *, words_per_row: int) -> Words:
        size = 8 * words_per_row
        drawn = [hashlib.shake_256(self._keys[row] + b"words").digest(size) for row in rows.tolist()]
        return _as_words(drawn).reshape(len(rows), words_per_row)

    def blocks(self, rows: Integers, offsets: Integers) -> Words:
        pairs = zip(rows.tolist(), offsets.tolist(), strict=True)
        drawn = [
            hashlib.shake_256(self._keys[row] + b"block" + offset.to_bytes(8, "big")).digest(16)
            for row, offset in pairs
        ]
        return _as_words(drawn).reshape(len(rows), 2)


def _key(begin: hmac.HMAC, node: Node, record: bytes) -> bytes:
    """Return the key of one report; the id is prefixed with its length."""
    text, code = node_text(node), begin.copy()
    code.update(len(text).to_bytes(8, "big") + text + record)
    return code.digest()


def _as_words(drawn: list[bytes]) -> Words:
    return np.frombuffer(b"".join(drawn), dtype="<u8")
