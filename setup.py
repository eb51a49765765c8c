"""Build the extension in C, and list the packages. pyproject.toml has the rest."""

import runpy
import sys
import sysconfig
from glob import glob
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_py import build_py

MARKS = "autoprof/capture/marks"
source_hash = runpy.run_path(f"{MARKS}/source_hash.py")["source_hash"](Path(MARKS))

# The extension is optional, and pip hides its errors: an installation that could record nothing ends here instead.
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    sys.exit("autoprof does not support free-threaded Python: use the ordinary build, which has the GIL")
if sys.platform == "win32":
    sys.exit("autoprof does not support Windows: use it on Linux (WSL 2 on Windows) or macOS")


class BuildWithListener(build_py):
    """Put the line beside the package that starts the listener of ``autoprof attach`` where the environment asks."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self.copy_file("autoprof_listener.pth", f"{self.build_lib}/autoprof_listener.pth")


setup(
    cmdclass={"build_py": BuildWithListener},
    # ``autoprof demo`` works from a wheel too: the example is a package of it there.
    packages=[*find_packages(include=["autoprof*"]), "autoprof.demo"],
    package_dir={"autoprof.demo": "examples/demo"},
    ext_modules=[
        Extension(
            "autoprof.capture.marks._c",
            sources=sorted(glob(f"{MARKS}/*.c")),
            depends=[f"{MARKS}/native.h"],
            define_macros=[("SOURCE_HASH", f'"{source_hash}"')],
            optional=True,  # without a compiler or the headers of Python, saved runs can still be read
        )
    ],
)
