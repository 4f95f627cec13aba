"""From a data set to a run folder: train, measure, summarize, write."""
