"""Bugs that the tests must notice: each is planted in a copy of src, and the test named beside it must fail."""
