"""Exporting with ExecuTorch, without its pitfalls. Needs `pip install 'webpte[export]'`.

ExecuTorch's exporter is the standard and stays the source of truth; these functions only call it the way that works.
"""

from ..builder.options import ExportWarning
from .dispatch import export_checkpoint
from .encoders import export_encoder
from .llm import export_llm
from .lowering import lower
from .speech import export_speech
from .vision import export_classifier, export_detector

__all__ = [
    "ExportWarning",
    "export_checkpoint",
    "export_classifier",
    "export_detector",
    "export_encoder",
    "export_llm",
    "export_speech",
    "lower",
]
