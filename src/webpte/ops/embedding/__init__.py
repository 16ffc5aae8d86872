"""Rows of tables, in floats and in quantized codes."""
