"""Requests that clients send, recorded from their packages by the `record` modules."""
