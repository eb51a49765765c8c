"""Build wheel and sdist and try each in a clean environment: with a compiler, without one, and the wheel as built.

Leaves the two files in dist/. Needs Python 3.10 or newer and a package index; torch is installed once, for all three.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def pip(python: Path, *arguments: str, **environment: str) -> None:
    """Run an environment's pip. Raises ``CalledProcessError``."""
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, env={**os.environ, **environment})


def environment(folder: Path) -> Path:
    """Make a clean environment; return its Python."""
    venv.create(folder, with_pip=True)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def try_out(python: Path, expected: str) -> None:
    """Train a few steps with the installed package, away from the checkout, and compare the way marks are made."""
    with tempfile.TemporaryDirectory() as elsewhere:
        for command in (["-W", "error", str(ROOT / ".ci" / "try_install.py"), expected], ["-m", "autoprof", "--help"]):
            subprocess.run([str(python), *command], cwd=elsewhere, check=True, stdout=subprocess.DEVNULL)
    print(f"  records a training; marks in {expected}", flush=True)


def check_without_tests(sdist: Path) -> None:
    """Assert that no test is in the sdist: without their helpers, data and pages tests cannot be collected."""
    with tarfile.open(sdist) as archive:
        tests = [name for name in archive.getnames() if "tests" in Path(name).parts]
    assert not tests, f"{sdist.name} has {len(tests)} files of tests, such as {tests[0]}; MANIFEST.in leaves them out"


def main() -> None:
    """Build both distributions, then install and try each."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        python = environment(work / "env")
        pip(python, "install", "build", "twine")
        subprocess.run([str(python), "-m", "build", "--outdir", str(ROOT / "dist"), str(ROOT)], check=True)
        wheel, sdist = next((ROOT / "dist").glob("*.whl")), next((ROOT / "dist").glob("*.tar.gz"))
        check_without_tests(sdist)
        subprocess.run([str(python), "-m", "twine", "check", "--strict", str(wheel), str(sdist)], check=True)
        pip(python, "install", "--constraint", str(ROOT / "constraints.txt"), str(wheel))
        trials = (
            (wheel.name, wheel, {}, "C"),
            (f"{sdist.name}, with a compiler", sdist, {}, "C"),
            (f"{sdist.name}, without a compiler", sdist, {"CC": "false", "CXX": "false"}, "Python"),
        )
        for title, file, settings, expected in trials:
            print(title, flush=True)
            pip(python, "install", "--force-reinstall", "--no-deps", "--no-cache-dir", str(file), **settings)
            try_out(python, expected)


if __name__ == "__main__":
    main()
