"""Local privacy: each node randomizes its own record."""
