"""Run release blocks on other processes and machines: sealed values, workers, and block scheduling."""
