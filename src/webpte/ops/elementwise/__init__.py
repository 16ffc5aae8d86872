"""One result per element, of one expression: arithmetic, comparisons, logic, and programs of several steps."""
