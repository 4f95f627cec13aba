"""ClassCode at edge level: public posteriors, one steered release, likelihood, heads and gate."""
