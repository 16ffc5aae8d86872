"""The version and the address of the documentation, apart from everything else so that anyone may import them."""

__version__ = "0.2.0"
DOCUMENTATION = "https://webpte.readthedocs.io/en/latest"  # of a page: f"{DOCUMENTATION}/extending.html"
