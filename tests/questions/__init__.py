"""Questions with known answers, for small models: `python -m tests.questions REFERENCE.pte [PROGRAM.pte]`."""
