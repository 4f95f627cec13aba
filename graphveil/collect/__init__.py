"""Randomised records from people's own devices: a public survey, an LDP report each, a server that checks.

Everything here needs NumPy only. The format is documented in ``docs/local.md``.

>>> import numpy as np
>>> from graphveil.collect import Collector, Survey, answer
>>> from graphveil.mechanisms import LabelRR, MultiBit
>>> survey = Survey(features=MultiBit(epsilon=1.0, dim=8), label=LabelRR(epsilon=1.0, classes=3))
>>> secret = bytes(32)  # on a device: device_secret()
>>> message = answer(survey, node=1, secret=secret, features=np.full(8, 0.3), label=2)
>>> collector = Collector(survey, nodes=4)
>>> collector.accept(message, node=1)
>>> collector.features().shape, int(collector.answered.sum())
((1, 8), 1)
"""

from graphveil.collect.client import MAX_EPS, answer, answer_all, check_limits
from graphveil.collect.device import device_secret
from graphveil.collect.message import Answer, decode, encode
from graphveil.collect.server import Collector
from graphveil.collect.survey import Survey

__all__ = [
    "MAX_EPS",
    "Answer",
    "Collector",
    "Survey",
    "answer",
    "answer_all",
    "check_limits",
    "decode",
    "device_secret",
    "encode",
]
