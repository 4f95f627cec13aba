"""Names of the core for users who plan releases of their own."""

from graphveil.core.plan import ReleasePlan as ReleasePlan
