"""Run a model over many rows: a callable over columns, and resumable jobs over files."""

from .job import BatchReport, run
from .predictor import Predictor

__all__ = ["BatchReport", "Predictor", "run"]
