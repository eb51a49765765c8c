"""Find the other project called ``autoprof`` on the package index: it brings a package of the same import name."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from typing import Final

ADVICE: Final = (
    "the distribution 'autoprof' is another project, and replaces files of 'torch-autoprof' in the same environment: "
    "run pip uninstall autoprof torch-autoprof, then pip install torch-autoprof"
)


def has_other_project(folder: str) -> bool:
    """Return whether the other project is installed in a folder of packages, by the name of its metadata."""
    with suppress(OSError):  # an archive, or no right to list the folder
        for name in os.listdir(folder):
            if name.startswith(("autoprof-", "AutoProf-")) and name.endswith((".dist-info", ".egg-info")):
                return True
    return False


def warn_of_other_project(package_file: str) -> None:
    """Warn where the other project is installed beside the package whose ``__init__.py`` is given."""
    if has_other_project(os.path.dirname(os.path.dirname(package_file))):
        warnings.warn(ADVICE, RuntimeWarning, stacklevel=3)
