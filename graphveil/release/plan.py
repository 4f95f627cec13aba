"""Plans of releases for users; the core has the rest."""

from graphveil.core.plan import hops as hops
