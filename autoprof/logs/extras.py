"""The package of the extra ``logs``: pandas."""

from __future__ import annotations

from typing import Any

from ..errors import import_extra


def import_pandas(caller: str = "autoprof.logs") -> Any:
    """Return the module ``pandas``. Raises ``MissingExtra``, which names the ``caller``, if it is not installed."""
    return import_extra("pandas", "logs", caller)
