"""Systems of papers that are no part of the product."""
