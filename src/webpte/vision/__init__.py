"""Image classification and object detection, with images prepared as the model's processor prepares them."""

from .models import Classifier, Detection, Detector, Prediction

__all__ = ["Classifier", "Detection", "Detector", "Prediction"]
