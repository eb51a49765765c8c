"""Check in about a minute whether profiling an installation and a model is safe. See ``docs/doctor.md``."""

from .examine import examine
from .report import CheckVerdict, Report, Result, render_report
from .subject import Subject, load_subject, reference_subject

__all__ = [
    "CheckVerdict",
    "Report",
    "Result",
    "Subject",
    "examine",
    "load_subject",
    "reference_subject",
    "render_report",
]
