"""All cases there are."""

import importlib
import os
from typing import Final

import zoo_nasties
import zoo_nasties_kinds  # noqa: F401 (adds its cases)
import zoo_nasties_run  # noqa: F401
from zoo_case import Case
from zoo_module_db import module_cases, quick_module_cases

PACKAGES: Final = ("torchvision", "timm", "transformers", "diffusers")
"""From the extra ``zoo``."""
NASTIES: Final = zoo_nasties.CASES


def quick_cases() -> list[Case]:
    """Return what runs wherever the tests run."""
    return [*NASTIES, *quick_module_cases()]


def all_cases() -> list[Case]:
    """Return every case. Raises ``ModuleNotFoundError`` where a package of the extra is missing."""
    packages = [importlib.import_module(f"zoo_{name}").CASES for name in PACKAGES]
    cases = [*(case for part in packages for case in part), *module_cases(), *NASTIES]
    names = [str(case) for case in cases]
    assert len(set(names)) == len(names), "two cases have one name"
    return cases


def chosen_cases() -> list[Case]:
    """Return every case where ``AUTOPROF_ZOO`` is set, else the quick ones."""
    return all_cases() if os.environ.get("AUTOPROF_ZOO") else quick_cases()
