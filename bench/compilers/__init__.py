"""What real GPU compilers make of webpte's kernels, without a GPU: `python -m bench.compilers --help`."""
