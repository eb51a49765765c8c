"""Build the sdist, and a wheel from it for each interpreter; try each in a clean environment: ``make dist``.

Where no interpreter is named, python3.10 to python3.15 are looked for. Each wheel has to record a training with the
extension in C; an installation without a compiler has to refuse that in one sentence, and read the run. torch is that
of constraints.txt, or, where it has no wheel for the interpreter, the newest one that has. Needs a package index, and
up to 8 GB for torch with CUDA, one interpreter after the other. Leaves the files in dist/.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMES = [f"python3.{minor}" for minor in range(10, 16)]
FREE_THREADED = "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
TRIAL = str(ROOT / ".ci" / "try_install.py")


class Environment:
    """A virtual environment of one interpreter."""

    def __init__(self, interpreter: str, folder: Path) -> None:
        subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
        self.python = str(folder / "bin" / "python")

    def pip(self, *arguments: str, check: bool = True, **environment: str) -> bool:
        """Run pip; return whether it succeeded. Raises ``CalledProcessError`` unless ``check`` is false."""
        command = [self.python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
        settings = {**os.environ, **environment}
        ended = subprocess.run(command, check=check, env=settings, stderr=None if check else subprocess.DEVNULL)
        return ended.returncode == 0

    def run(self, *arguments: str, folder: Path) -> None:
        """Run Python in a folder; its output is not shown. Raises ``CalledProcessError``."""
        subprocess.run([self.python, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def missing_because(interpreter: str) -> str | None:
    """Return why an interpreter cannot be used, None where it can."""
    path = shutil.which(interpreter)
    if path is None:
        return "not found"
    ended = subprocess.run([path, "-c", FREE_THREADED], capture_output=True, text=True, check=False)
    if ended.returncode != 0:  # pyenv answers for interpreters that are not active
        return f"does not start (status {ended.returncode})"
    return "free-threaded, which autoprof does not support" if ended.stdout.strip() != "0" else None


def torch_requirement(environment: Environment) -> str | None:
    """Return the requirement of the pinned torch, or of the newest one; None where the interpreter has no wheel."""
    pinned = next(
        line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if line.startswith("torch==")
    )
    ask = ("install", "--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:")
    return next((one for one in (pinned, "torch>=2.4") if environment.pip(*ask, one, check=False)), None)


def build_sdist(environment: Environment) -> Path:
    """Build the sdist into dist/; return it. Tests must not be in it: without helpers, data and pages none can run."""
    environment.pip("install", "build", "twine")
    dist = ROOT / "dist"
    environment.run("-m", "build", "--sdist", "--outdir", str(dist), str(ROOT), folder=ROOT)
    sdist = next(dist.glob("*.tar.gz"))
    with tarfile.open(sdist) as archive:
        tests = [name for name in archive.getnames() if "tests" in Path(name).parts]
    assert not tests, f"{sdist.name} has {len(tests)} files of tests, such as {tests[0]}; MANIFEST.in leaves them out"
    return sdist


def try_out(environment: Environment, sdist: Path, torch: str, work: Path) -> Path:
    """Build, install and try the wheel of an interpreter, and the sdist without a compiler; return the wheel."""
    built, run = work / "wheel", work / "run"
    environment.pip("wheel", "--no-deps", "--no-cache-dir", "--wheel-dir", str(built), str(sdist))
    wheel = next(built.iterdir())
    environment.pip("install", torch)
    environment.pip("install", str(wheel))
    environment.run("-W", "error", TRIAL, "records", str(run), folder=work)
    environment.run("-m", "autoprof", "--help", folder=work)
    print(f"  {wheel.name}: records a training", flush=True)
    again = ("install", "--force-reinstall", "--no-deps", "--no-cache-dir", str(sdist))
    environment.pip(*again, CC="false", CXX="false")
    environment.run("-W", "error", TRIAL, "reads", str(run), folder=work)
    print(f"  {sdist.name} without a compiler: refuses to record, reads the run", flush=True)
    return Path(shutil.copy(wheel, ROOT / "dist"))


def main() -> int:
    """Build and try for each interpreter. Return 1 where one that was named is missing, or none could be tried."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "interpreters", nargs="*", metavar="PYTHON", help="names or paths (default: all that are found)"
    )
    named = parser.parse_args().interpreters
    files = list[Path]()
    failed = False
    for interpreter in named or NAMES:
        missing = missing_because(interpreter)
        if missing is not None:
            failed = failed or bool(named)
            print(f"{interpreter}: {missing}", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            environment = Environment(interpreter, work / "env")
            torch = torch_requirement(environment)
            if torch is None:
                failed = failed or bool(named)
                print(f"{interpreter}: the index has no wheel of torch for it", flush=True)
                continue
            print(f"{interpreter}, {torch}", flush=True)
            if not files:
                builder = Environment(interpreter, work / "build")
                files.append(build_sdist(builder))
            files.append(try_out(environment, files[0], torch, work))
            if len(files) == 2:  # with the first wheel: the text on the index is the same for all
                builder.run("-m", "twine", "check", "--strict", *map(str, files), folder=work)
    print(f"tried {len(files[1:])} wheels", flush=True)
    return int(failed or not files)


if __name__ == "__main__":
    sys.exit(main())
