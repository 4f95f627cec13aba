"""Collect randomized records from clients: a public protocol, one LDP report per client, a checking server.

Everything here needs NumPy only. The format is documented in ``docs/methods/local-mechanisms.md``.

>>> import numpy as np
>>> from graphveil.local.collect import Collector, CollectionProtocol, randomize_record
>>> from graphveil.mechanisms import LabelRR, MultiBit
>>> protocol = CollectionProtocol(features=MultiBit(epsilon=1.0, dim=8), label=LabelRR(epsilon=1.0,
...     classes=3))
>>> secret = bytes(32)  # on a device: client_secret()
>>> encoded_report = randomize_record(protocol, node=1, secret=secret, features=np.full(8, 0.3), label=2)
>>> collector = Collector(protocol, nodes=4)
>>> collector.accept(encoded_report, node=1)
>>> collector.features().shape, int(collector.answered.sum())
((1, 8), 1)
"""

from graphveil.local.collect.client import (
    MAX_EPS,
    check_limits,
    client_secret,
    randomize_record,
    randomize_records,
)
from graphveil.local.collect.protocol import CollectionProtocol, Collector, LDPReport, decode, encode

__all__ = [
    "MAX_EPS",
    "CollectionProtocol",
    "Collector",
    "LDPReport",
    "check_limits",
    "client_secret",
    "decode",
    "encode",
    "randomize_record",
    "randomize_records",
]
