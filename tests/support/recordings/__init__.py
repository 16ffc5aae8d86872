"""Requests that clients send, recorded from their packages by `record.py` and `record_programs.py`."""
