"""Hand-written wgpu programs, one set of variants per job: what the engine can do with nothing in between.

The set is frozen: it is the bar that webpte's own kernels are measured against, and does not move with them.
"""
