"""Imported by Python at its start where ``autoprof run`` has put this folder on ``PYTHONPATH``."""

import sys
from contextlib import suppress
from os.path import abspath, dirname

_FOLDER = dirname(abspath(__file__))
_PACKAGES = dirname(dirname(dirname(dirname(_FOLDER))))

with suppress(Exception):  # a Python in which autoprof does not load, such as an older one, runs without it
    sys.path.insert(0, _PACKAGES)
    try:
        from autoprof.frontends.launch import startup
    finally:
        sys.path.remove(_PACKAGES)
    startup.begin(_FOLDER)
