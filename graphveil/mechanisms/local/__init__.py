"""Mechanisms that randomize one person's features and label before anybody sees them.

Except for ``gaussian.py`` and ``noise.py``, which a device does not need, everything here needs NumPy only.
"""
