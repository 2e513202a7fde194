"""Showing: one self-contained page from a comparison's JSON, with no dataset, policy or network."""

from bcrl.report.page import write_report

__all__ = ["write_report"]
