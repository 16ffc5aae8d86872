"""Export torch modules with ExecuTorch, without its pitfalls, and checkpoints of any kind.

Language models and speech models are written by `webpte.builder`, without torch. The others need
`pip install 'webpte[export]'`.
"""

from ..builder import export_llm
from ..builder.options import ExportWarning
from ..builder.reranker import export_language_reranker
from ..builder.speech import export_speech, write_speech_files
from .dispatch import export_checkpoint
from .encoders import export_encoder, export_reranker
from .lowering import lower
from .vision import export_classifier, export_detector

__all__ = [
    "ExportWarning",
    "export_checkpoint",
    "export_classifier",
    "export_detector",
    "export_encoder",
    "export_language_reranker",
    "export_llm",
    "export_reranker",
    "export_speech",
    "lower",
    "write_speech_files",
]
