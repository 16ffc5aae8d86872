"""Requests that clients send, recorded from their packages. `record.py` makes the recordings."""
