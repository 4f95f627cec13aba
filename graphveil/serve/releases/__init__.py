"""New releases, for which an operator allowed a budget: charged before they are computed, and stored."""
