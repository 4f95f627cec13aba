"""ClassCode for unit ``node-owner``: labelled codes pushed along the sources' own edges."""

from graphveil.models.classcode.owner.fit import OwnerFit, fit_owner, released_rows
from graphveil.models.classcode.owner.options import check_options
from graphveil.models.classcode.owner.plan import OwnerPlan

__all__ = ["OwnerFit", "OwnerPlan", "check_options", "fit_owner", "released_rows"]
