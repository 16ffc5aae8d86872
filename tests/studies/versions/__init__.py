"""Programs that releases of ExecuTorch export, run here against eager PyTorch: `python -m tests.studies versions`.

Each release has an environment of its own under the cache, in which `export_programs.py` writes programs and results.
`samples` has some of these files, which the gate runs without the releases.
"""
