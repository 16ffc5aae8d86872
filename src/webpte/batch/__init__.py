"""Many rows: one callable that turns columns into columns, and jobs over files that may be killed and go on."""

from .job import Report, run
from .predictor import Predictor

__all__ = ["Predictor", "Report", "run"]
