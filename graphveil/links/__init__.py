"""Links and recommendations: scores of pairs of nodes from released sums over edges or over lists of users."""
