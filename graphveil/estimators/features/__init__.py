"""Public class posteriors from features alone: the no-graph baseline, and the input of ClassCode."""
