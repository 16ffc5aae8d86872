"""Read checkpoints for the builder."""

from ..export.checkpoint import read_checkpoint
from ..export.family import Checkpoint as ArrayCheckpoint

__all__ = ["ArrayCheckpoint", "read_checkpoint"]
