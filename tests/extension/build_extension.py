"""Compile the extension for the Python that runs this file: ``build_extension.py FILE [FLAG ...]``.

For sanitizers and debug builds of Python, which need no setuptools; every warning is an error.
"""

import os
import runpy
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "autoprof" / "capture" / "marks"
FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-fno-omit-frame-pointer", "-fPIC", "-shared")


def build(target: Path, flags: list[str]) -> None:
    """Compile all sources into one shared library. Raises ``CalledProcessError`` with the compiler's messages."""
    target.parent.mkdir(parents=True, exist_ok=True)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    folders = sorted({sysconfig.get_path("include"), sysconfig.get_path("platinclude")})
    includes = [f"-I{folder}" for folder in folders]
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    digest = runpy.run_path(str(SOURCES / "source_hash.py"))["source_hash"](SOURCES)
    flags = [*flags, f'-DSOURCE_HASH="{digest}"']
    subprocess.run([*compiler, *FLAGS, *flags, *includes, *sources, "-o", str(target)], check=True)


if __name__ == "__main__":
    build(Path(sys.argv[1]), sys.argv[2:])
