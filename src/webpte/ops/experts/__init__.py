"""Mixtures of experts: the feed-forward of each token is computed by the experts that its router chooses."""
