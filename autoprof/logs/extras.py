"""The optional packages behind ``autoprof.logs``: pandas and DuckDB."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import MissingExtra


def import_pandas() -> Any:
    """Return the module ``pandas``. Raises ``MissingExtra`` if it is not installed."""
    return _import("pandas")


def import_duckdb() -> Any:
    """Return the module ``duckdb``. Raises ``MissingExtra`` if it is not installed."""
    return _import("duckdb")


def _import(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtra(f"autoprof.logs: needs {package}; pip install 'torch-autoprof[logs]'") from error
