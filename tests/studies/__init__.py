"""Programs that people run by hand or by night; see README.md."""
