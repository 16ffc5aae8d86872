"""One result per element, of one expression: arithmetic, comparisons, logic, and programs of several steps.

Custom ops are registered with `elementwise`.
"""

from ...lowering.formulas import Formula, Number
from .elementwise import elementwise

__all__ = ["Formula", "Number", "elementwise"]
