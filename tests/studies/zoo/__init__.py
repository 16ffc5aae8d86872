"""Programs of every kind, through the real exporter, against eager PyTorch: `python -m tests.studies zoo`.

`programs/` says what there is, a function each. The rest exports them, runs them and writes the table in
docs/zoo.md. `python -m tests.studies zoo --networks` does the same with the networks of `networks/`, in every mode of
`modes.py`, static and dynamic.
"""
