"""Exporting with ExecuTorch, without its pitfalls. Needs `pip install 'webpte[export]'`.

ExecuTorch's exporter is the standard and stays the source of truth; these functions only call it the way that works.
"""

from .llama import export_llama
from .lowering import lower

__all__ = ["export_llama", "lower"]
