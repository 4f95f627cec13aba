"""Attacks, fidelity, broken published mechanisms, and papers: the core never imports them."""
