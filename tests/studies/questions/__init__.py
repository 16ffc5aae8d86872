"""Questions with known answers, for small models: `python -m tests.studies questions REFERENCE.pte [PROGRAM.pte]`."""
