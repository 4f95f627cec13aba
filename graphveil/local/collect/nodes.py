"""What a survey and a node's public id decide: the tag on its LDP report, and what it tells about."""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphveil.errors import ConfigError
from graphveil.local.collect.protocol import CollectionProtocol
from graphveil.mechanisms.labels import LocalHashing
from graphveil.mechanisms.per_feature import MultiBit
from graphveil.mechanisms.sampling import Integers, row_blocks, subsets

TAG_BYTES = 16

Node = int | str


def node_tag(protocol: CollectionProtocol, node: Node) -> bytes:
    """Return the tag of an LDP report: 16 bytes of a hash of the survey and the node's public id.

    A number and its digits are the same id, as tables of LDP reports may turn one into the other.

    >>> from graphveil.mechanisms import LabelRR
    >>> protocol = CollectionProtocol(label=LabelRR(epsilon=1.0, classes=3))
    >>> node_tag(protocol, 7) == node_tag(protocol, "7") != node_tag(protocol, "seven")
    True
    """
    return hashlib.sha256(_bound("node", protocol, node)).digest()[:TAG_BYTES]


def chosen_features(protocol: CollectionProtocol, nodes: Sequence[Node]) -> npt.NDArray[np.int32] | None:
    """Return the features that nodes tell a bit about, (nodes, m) ascending; None if all features are told.

    They follow from a hash of the survey and the node's id, so that a device cannot choose them, nor has to
    say them. What the record holds has no part in the choice, which is all that the guarantee needs; over
    ids the choice is uniform, which makes estimates unbiased.

    >>> chosen_features(CollectionProtocol(features=MultiBit(epsilon=1.0, dim=8)), ["a", "b"]).shape
    (2, 1)
    """
    law = protocol.features
    if not isinstance(law, MultiBit) or law.samples == law.dim:
        return None
    drawn = [hashlib.shake_256(_bound("features", protocol, node)).digest(8 * law.samples) for node in nodes]
    words = np.frombuffer(b"".join(drawn), dtype="<u8").reshape(len(nodes), law.samples)
    parts = [subsets(words[part], law.dim).astype(np.int32) for part in row_blocks(len(nodes), law.dim)]
    return np.concatenate([np.empty((0, law.samples), dtype=np.int32), *parts])


def label_hashes(protocol: CollectionProtocol, nodes: Sequence[Node]) -> Integers:
    """Return the group of every class for each node, (nodes, classes), of a survey with local hashing.

    They follow from the survey and the node's id: a device cannot choose which classes stand together.

    >>> law = LocalHashing(epsilon=1.0, classes=7)
    >>> label_hashes(CollectionProtocol(label=law), ["a", "b"]).shape
    (2, 7)
    """
    assert isinstance(protocol.label, LocalHashing)
    return protocol.label.hashes([_bound("label", protocol, node) for node in nodes])


def node_text(node: Node) -> bytes:
    """Return a node's id as bytes.

    Raises:
        ConfigError: it is neither text nor a whole number.
    """
    if isinstance(node, bool) or not isinstance(node, int | str | np.integer):
        raise ConfigError("a node's id is text or a whole number, the one by which the survey knows the node")
    try:
        return str(node).encode()
    except UnicodeEncodeError:
        raise ConfigError("a node's id is not text in Unicode") from None


def _bound(use: str, protocol: CollectionProtocol, node: Node) -> bytes:
    """Return what is hashed; no two uses, surveys or nodes share it."""
    return f"graphveil-{use}/1\0".encode() + protocol.digest + node_text(node)
