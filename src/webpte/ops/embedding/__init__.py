"""Rows of tables, in floats and in quantised codes."""
