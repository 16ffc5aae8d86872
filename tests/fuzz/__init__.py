"""Fuzz harnesses: what an untrusted file may do to the process. See CONTRIBUTING.md for how to run them."""
