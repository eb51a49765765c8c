"""Explain a saved run to a program: causes, places and experiments in at most 4 kB of JSON with a stable schema."""

from .build import explain_run
from .data import MAX_BYTES, Explanation, encode, json_schema

__all__ = ["MAX_BYTES", "Explanation", "encode", "explain_run", "json_schema"]
