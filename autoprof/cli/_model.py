"""The argument MODEL: a function that returns a model, in an importable module or in a file."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from torch import nn

from ..doctor import load_subject


def add_model(parser: Any) -> None:
    """Add the argument MODEL."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help=(
            "a function or class that returns a model when it is called without arguments, as package.module:name or "
            "path/to/file.py:name; a tuple that begins with a model is allowed"
        ),
    )


def load_model(path: str) -> nn.Module:
    """Make the model. Raises ``AutoprofError`` where that fails."""
    with contextlib.redirect_stdout(sys.stderr):  # prints of the user's own code are no part of the output
        return load_subject(path, option="MODEL").model
