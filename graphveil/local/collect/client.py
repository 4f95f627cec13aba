"""The side of the device: one record in, one LDP report out. It needs NumPy and the standard library only.

A survey is written by somebody else, so nothing in it is believed to be modest: what it asks for is compared
with a limit of the device's own before a record is looked at.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphveil._util.ldp_statements import exact_sum, exact_sum_text
from graphveil._util.typed import fitting
from graphveil.errors import BudgetError, ConfigError, GraphError
from graphveil.local.collect.client_randomness import ClientRandomness, checked_secret
from graphveil.local.collect.encoded_report import encode_all
from graphveil.local.collect.nodes import Node, chosen_features, label_hashes
from graphveil.local.collect.protocol import CollectionProtocol
from graphveil.mechanisms.claim import check_budget
from graphveil.mechanisms.features import LDPReports
from graphveil.mechanisms.labels import MISSING, LocalHashing
from graphveil.mechanisms.per_feature import MultiBit
from graphveil.mechanisms.sampling import Integers, Real, row_blocks

MAX_EPS = 8.0  # of a whole record: docs/decisions/015-hostile-surveys.md says why


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
    x = _single(law.matrix(features))
    records = [
        row.tobytes()  # as clipped, and without -0.0: what counts is what is randomized
        for part in row_blocks(len(x), law.dim)
        for row in law.bounds.unit(x[part]).astype("<f8") + 0.0
    ]
    words = ClientRandomness(secret, "features", protocol, nodes, records)
    if isinstance(law, MultiBit):
        return law.perturb_features(x, chosen_features(protocol, nodes), stream=words)
    return law.perturb(x, stream=words)


def _single(x: Real) -> Real:
    """Return features in 32 bits, as tables hold them: who has the same record in 64 is not asked twice."""
    if x.dtype == np.float32:
        return x
    most = np.finfo(np.float32).max
    return np.where(np.isfinite(x), np.clip(x, -most, most), x).astype(np.float32)


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
