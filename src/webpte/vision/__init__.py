"""Pictures to classes, or to boxes around what is in them, prepared as the model's own processor prepares them."""

from .classifier import Classifier, Prediction
from .detector import Detection, Detector

__all__ = ["Classifier", "Detection", "Detector", "Prediction"]
