"""Build the extension in C. pyproject.toml has the rest; setuptools calls its own way to declare one experimental."""

import runpy
from glob import glob
from pathlib import Path

from setuptools import Extension, setup

MARKS = "autoprof/_capture/marks"
source_hash = runpy.run_path(f"{MARKS}/source_hash.py")["source_hash"](Path(MARKS))

setup(
    ext_modules=[
        Extension(
            "autoprof._capture.marks._c",
            sources=sorted(glob(f"{MARKS}/*.c")),
            depends=[f"{MARKS}/native.h"],
            define_macros=[("SOURCE_HASH", f'"{source_hash}"')],
            optional=True,  # without a compiler or the headers of Python, saved runs can still be read
        )
    ]
)
