"""Regular expressions and name templates: compiled, or rejected with an explanation."""

from __future__ import annotations

import re
import warnings
from typing import Final

from .._names import quoted

ANY_FQN: Final = "(?s:.*)"
"""The pattern of a rule without ``match``, so that ``\\g<0>`` is the fqn there too."""


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern, ignoring warnings about future syntax; raise a ``ValueError`` with the position."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(pattern)
    except re.error as error:
        at = "" if error.pos is None else f" at character {error.pos + 1}"
        problem = f"{quoted(pattern)} is not a regular expression: {error.msg}{at}; allowed: the syntax of Python's re"
    except (RecursionError, OverflowError) as error:
        problem = f"{quoted(pattern)} is too large for a regular expression: {error}; allowed: a smaller one"
    raise ValueError(problem)


def check_template(template: str, pattern: re.Pattern[str]) -> None:
    """Raise a ``ValueError`` when the template refers to a group that the pattern does not have."""
    try:
        pattern.sub(template, "")  # parses the template whether or not anything matches
    except (re.error, IndexError) as error:
        groups = ["\\g<0>", *(f"\\{index}" for index in range(1, pattern.groups + 1))]
        groups += [f"\\g<{word}>" for word in pattern.groupindex]
        problem = f"{quoted(template)} does not fit 'match': {error}; allowed: text with {', '.join(groups)}"
    else:
        return
    raise ValueError(problem)
