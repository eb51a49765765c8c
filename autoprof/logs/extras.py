"""The packages of the extra ``logs``: pandas and DuckDB."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import MissingExtra


def import_pandas(caller: str = "autoprof.logs") -> Any:
    """Return the module ``pandas``. Raises ``MissingExtra``, which names the ``caller``, if it is not installed."""
    return _import("pandas", caller)


def import_duckdb() -> Any:
    """Return the module ``duckdb``. Raises ``MissingExtra`` if it is not installed."""
    return _import("duckdb", "autoprof.logs")


def _import(package: str, caller: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtra(f"{caller}: needs {package}; pip install 'torch-autoprof[logs]'") from error
