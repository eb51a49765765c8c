"""Packages that only one sink needs, loaded when that sink is made."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import MissingExtra


def load_extra(module: str, extra: str) -> Any:
    """Import a module of an optional package. Raises ``MissingExtra``, which says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtra(
            f"sinks.{extra}: needs the package {package}, which cannot be imported ({error}); "
            f"install it with: pip install 'torch-autoprof[{extra}]', or take the key {extra} out of sinks"
        ) from error
