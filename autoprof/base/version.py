"""The version of the package; pyproject.toml has the same."""

from typing import Final

VERSION: Final = "0.1.0"
