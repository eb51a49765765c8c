"""The extension in C. All else is in pyproject.toml, whose own way to declare one setuptools calls experimental."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "autoprof._capture.marks._c",
            sources=[f"autoprof/_capture/marks/{name}.c" for name in ("tape", "paths", "look", "module")],
            depends=["autoprof/_capture/marks/marks.h"],
            optional=True,  # without a compiler or the headers of Python, marks are made in Python
        )
    ]
)
