"""Build the extension in C. pyproject.toml has the rest; setuptools calls its own way to declare one experimental."""

from glob import glob

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "autoprof._capture.marks._c",
            sources=sorted(glob("autoprof/_capture/marks/*.c")),
            depends=["autoprof/_capture/marks/native.h"],
            optional=True,  # without a compiler or the headers of Python, marks are recorded in Python
        )
    ]
)
