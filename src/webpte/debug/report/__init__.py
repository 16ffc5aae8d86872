"""The report of `webpte inspect --html`: how one method runs, as data and as one self-contained page."""

from .data import method_data, report_data
from .page import render_page

__all__ = ["method_data", "render_page", "report_data"]
