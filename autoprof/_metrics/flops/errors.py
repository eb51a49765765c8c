"""Why work cannot be counted."""

from __future__ import annotations


class Uncountable(Exception):
    """Stop a count; the message is the reason that is given in place of a figure. Never leaves this room."""
