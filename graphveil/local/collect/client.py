"""The client: one record in, one LDP report out. It needs NumPy and the standard library only.

Another party writes the protocol, so it is compared with the client's own limit before a record is read.
Equal noise on two different records would reveal their difference, so the record is part of what the random
words depend on. A protocol that is answered again gets the same report, to the bit, and nothing new.
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
from graphveil._util.ldp_statements import exact_sum, exact_sum_text
from graphveil.errors import BudgetError, ConfigError, GraphError
from graphveil.local.collect.encoded_report import Node, chosen_features, encode_all, label_hashes, node_text
from graphveil.local.collect.protocol import CollectionProtocol
from graphveil.mechanisms.claim import check_budget
from graphveil.mechanisms.features import LDPReports
from graphveil.mechanisms.labels import MISSING, LocalHashing
from graphveil.mechanisms.per_feature import MultiBit
from graphveil.mechanisms.sampling import Integers, Real, Words, row_blocks

MAX_EPS = 8.0  # of a whole record: docs/decisions/015-untrusted-protocols.md says why
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

    The guarantee of the LDP report is what ``protocol.statement()`` says, whatever becomes of it. Called
    again with the same record it is the same LDP report, and tells nothing more. A changed record gives
    another one, and the two together tell twice as much.

    Args:
        protocol: the public parameters; look at them before you answer (``statement``,
            ``unprotected_parts``).
        node: the public id by which the survey knows whose LDP report this is; it is bound to it.
        secret: from :func:`~graphveil.local.collect.client_secret`, and never sent.
        features: the record's features, shape (dim,); values outside the bounds are clipped.
        label: the record's class, or -1 if it has none, which says a class at random.
        max_eps: how much the whole record may tell. A survey that asks for more is not answered.
        allow_unprotected_label: send the label as it is, if the survey asks for that: nothing protects it
            then.

    Raises:
        BudgetError: the survey asks for more than ``max_eps``, or for the label as it is.
        ConfigError: features or label are missing, or the survey does not ask for them.
        GraphError: a value is NaN or infinite, the shape is wrong, or the label is none of the classes.
    """
    fitting("protocol", protocol, CollectionProtocol)
    check_limits(protocol, max_eps=max_eps, allow_unprotected_label=allow_unprotected_label)
    _check_parts(protocol, features, label)
    record = None if protocol.features is None else _record(features, protocol.features.dim)
    if isinstance(label, list | tuple):
        raise GraphError("a label is one whole number")
    one = None if protocol.label is None else np.asarray(label)
    if one is not None and one.ndim:
        raise GraphError("a label is one whole number")
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
    """Randomize many records, each on its own, and return the LDP reports in order.

    For whoever holds several people's records: what :func:`randomize_record` says of one holds of each.

    Args:
        protocol: the public parameters.
        nodes: each record's public id.
        secret: 32 bytes that only the holder of the records has.
        features: numbers (records, dim); values outside the bounds are clipped.
        labels: classes (records,), -1 for none.
        max_eps: how much each record may tell.
        allow_unprotected_label: send labels as they are, if the survey asks for that.

    Raises:
        BudgetError: the survey asks for more than ``max_eps``, or for the label as it is.
        ConfigError: features or labels are missing, or the survey does not ask for them.
        GraphError: a value is NaN or infinite, a shape is wrong, a label is none of the classes, or two
            records have one id.

    >>> from graphveil.mechanisms import MultiBit
    >>> protocol = CollectionProtocol(features=MultiBit(epsilon=1.0, dim=2))
    >>> x = np.array([[0.1, 0.9], [0.5, 0.0]])
    >>> [len(encoded_report) for encoded_report in randomize_records(protocol, nodes=["ann", "bob"],
    ...     secret=bytes(32), features=x)]
    [42, 42]
    """
    fitting("protocol", protocol, CollectionProtocol)
    check_limits(protocol, max_eps=max_eps, allow_unprotected_label=allow_unprotected_label)
    _check_parts(protocol, features, labels)
    checked_secret(secret)
    for name, part in {"nodes": nodes, "features": features, "labels": labels}.items():
        if isinstance(part, str | bytes | dict | set) or not (part is None or hasattr(part, "__len__")):
            raise ConfigError(f"{name} must be a sequence, and is of type {type(part).__name__}")
    if nodes is None:
        raise ConfigError("nodes must be a sequence of ids")
    if any(len(part) != len(nodes) for part in (features, labels) if part is not None):
        raise GraphError("ids, features and labels must be of the same records")
    if len(set(map(str, nodes))) != len(nodes):
        raise GraphError("two records have one id; a node answers a survey once")
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
    """Refuse a survey that asks for more than a person is willing to tell.

    Args:
        protocol: the public parameters.
        max_eps: how much a whole record may tell.
        allow_unprotected_label: whether the label may leave as it is; its budget, infinite, does not count
            then.

    Raises:
        BudgetError: it asks for more.

    >>> from graphveil.mechanisms import LabelRR
    >>> check_limits(CollectionProtocol(label=LabelRR(epsilon=9.0, classes=3)))
    Traceback (most recent call last):
    graphveil.errors.BudgetError: the survey asks for epsilon 9 of a record, and this device tells up to 8: \
nothing was sent; ask for a survey of less, or raise max_eps= (--max-eps)
    """
    fitting("protocol", protocol, CollectionProtocol)
    check_budget(max_eps=max_eps)
    budgets = [claim.epsilon for claim in protocol.claims]
    if math.isinf(budgets[1]):
        if not allow_unprotected_label:
            raise BudgetError(
                "the survey asks for the label as it is, which nothing protects: nothing was sent; ask for a "
                "survey that randomizes it, or agree by allow_unprotected_label=True "
                "(--allow-unprotected-label)"
            )
        budgets.pop()
    # As decimals, as they are written, 0.1 and 0.2 are 0.3; and what a claim says is allowed by naming it.
    if exact_sum(budgets) > exact_sum([max_eps]) and sum(budgets) > max_eps:
        raise BudgetError(
            f"the survey asks for epsilon {exact_sum_text(*budgets)} of a record, and this device tells up "
            "to "
            f"{exact_sum_text(max_eps)}: nothing was sent; ask for a survey of less, or raise max_eps= "
            "(--max-eps)"
        )


def _reports(
    protocol: CollectionProtocol, nodes: Sequence[Node], secret: bytes, features: Real
) -> LDPReports:
    law = protocol.features
    assert law is not None  # or there were no features
    x = law.matrix(features)
    if x.dtype != np.float32:  # as tables hold them: who has the same record in 64 bits is not asked twice
        most = np.finfo(np.float32).max
        x = np.where(np.isfinite(x), np.clip(x, -most, most), x).astype(np.float32)
    records = [
        row.tobytes()  # as clipped, and without -0.0: what counts is what is randomized
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
        raise GraphError("a label is missing, and the survey asks for labels as they are; drop that record")
    records = [label.tobytes() for label in codes.astype("<i8")]
    words = ClientRandomness(secret, "label", protocol, nodes, records)
    if isinstance(law, LocalHashing):
        return law.perturb_with_hashes(codes, label_hashes(protocol, nodes), stream=words)
    return law.perturb(codes, stream=words)


def _check_parts(protocol: CollectionProtocol, features: object, label: object) -> None:
    if (features is None) != (protocol.features is None) or (label is None) != (protocol.label is None):
        raise ConfigError("an answer has features and label exactly where the survey asks for them")


def _record(features: npt.ArrayLike | None, dim: int) -> Real:
    """Return one record's features as a matrix of one row."""
    try:
        record = np.asarray(features)
    except ValueError as error:
        raise GraphError(f"features must be {dim} numbers") from error
    if record.dtype.kind not in "iufb" or record.ndim != 1:
        raise GraphError(f"features must be {dim} numbers")
    return record.astype(np.float64)[None]


# -- the client's secret, and its random words ----


def client_secret(path: Path | None = None) -> bytes:
    """Return the device's secret, 32 bytes from a file that is made the first time.

    Whoever has it, a node's record and its LDP report can tell whether they belong together, and test every
    record that they think of: it never leaves the device. Without it answers differ at every call, and each
    one tells more; so it is kept as long as its owner answers surveys.

    Args:
        path: by default ``graphveil/device-secret`` in the user's state folder (``XDG_STATE_HOME``).

    Raises:
        ConfigError: the file cannot be read or made, or it is no secret.
    """
    try:
        if path is None:
            state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
            path = Path(state) / "graphveil" / "device-secret"
        if not path.exists():
            _make(path)
        secret = path.read_bytes()
    except (OSError, RuntimeError) as error:  # the latter where there is no home
        why = error.strerror if isinstance(error, OSError) else "there is no home directory"
        raise ConfigError(
            f"cannot keep the device's secret ({why}); name a file of your own (path=, --secret)"
        ) from None
    return checked_secret(secret)


def checked_secret(secret: bytes) -> bytes:
    """Return a secret.

    Raises:
        ConfigError: it has another size, so it is none that was drawn for this.
    """
    if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
        raise ConfigError(f"a device's secret is {SECRET_BYTES} random bytes; take one from client_secret()")
    return secret


def _make(path: Path) -> None:
    """Write a fresh secret that only its owner reads, unless another process was first."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    own = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.link(own, path)  # whole, and never over one that is there
    except FileExistsError:
        pass
    finally:
        own.unlink()


class ClientRandomness:
    """Words that follow from a secret, a survey, and a node's id and record: HMAC-SHA-256, then SHAKE-256.

    Whoever lacks the secret cannot tell them from random ones.

    Args:
        secret: 32 bytes.
        part: what is randomized; features and label share no words.
        protocol: the public parameters.
        nodes: ids, one for each row.
        records: the bytes of each record.
    """

    def __init__(
        self,
        secret: bytes,
        part: str,
        protocol: CollectionProtocol,
        nodes: Sequence[Node],
        records: Sequence[bytes],
    ) -> None:
        """Derive a key for each row."""
        begin = hmac.new(secret, f"graphveil-answer/1\0{part}\0".encode() + protocol.digest, "sha256")
        self._keys = [_key(begin, node, record) for node, record in zip(nodes, records, strict=True)]

    def reserve_rows(self, rows: Integers) -> None:
        """Serve every row: its words are those of its record, however often it is asked for."""

    def words(self, rows: Integers, *, words_per_row: int) -> Words:
        """Return the first words of each row, shape (rows, words_per_row)."""
        size = 8 * words_per_row
        drawn = [hashlib.shake_256(self._keys[row] + b"words").digest(size) for row in rows.tolist()]
        return _as_words(drawn).reshape(len(rows), words_per_row)

    def blocks(self, rows: Integers, offsets: Integers) -> Words:
        """Return the two words of a block of each row, shape (rows, 2)."""
        pairs = zip(rows.tolist(), offsets.tolist(), strict=True)
        drawn = [
            hashlib.shake_256(self._keys[row] + b"block" + offset.to_bytes(8, "big")).digest(16)
            for row, offset in pairs
        ]
        return _as_words(drawn).reshape(len(rows), 2)


def _key(begin: hmac.HMAC, node: Node, record: bytes) -> bytes:
    """Return the key of one answer; the length of the id says where it ends."""
    text, code = node_text(node), begin.copy()
    code.update(len(text).to_bytes(8, "big") + text + record)
    return code.digest()


def _as_words(drawn: list[bytes]) -> Words:
    return np.frombuffer(b"".join(drawn), dtype="<u8")
