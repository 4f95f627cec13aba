"""Links and recommendations: scores of pairs of nodes from sums over edges or over lists of users."""
