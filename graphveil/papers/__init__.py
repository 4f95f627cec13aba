"""Systems of papers that are no part of the product; their methods are in ``METHODS`` like all others."""
