"""A program as static files for a web page: plans for the devices it may find, kernels, weights, player and page."""

from .bench import bundle_bench
from .check import bundle_checks
from .write import bundle

__all__ = ["bundle", "bundle_bench", "bundle_checks"]
