"""Exact noise, the random words that it is made of, and the optional extension in C."""
