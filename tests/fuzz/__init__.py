"""Fuzz harnesses: what a stranger's file may do to the process. See CONTRIBUTING.md for how to run them."""
