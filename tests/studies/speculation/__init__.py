"""Answers with and without drafts: the same tokens, and how much sooner."""
