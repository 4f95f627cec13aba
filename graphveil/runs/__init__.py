"""From a dataset to a run folder: train, measure, summarize, write."""
