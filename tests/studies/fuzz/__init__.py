"""Fuzz harnesses: what an untrusted file may do to the process. See docs/testing.md for how to run them."""
