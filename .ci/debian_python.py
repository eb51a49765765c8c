"""Check the extension with a newer Python than the machine has, in a tree of Debian's unstable suite.

Makes the tree once by debootstrap, copies the checkout into it, compiles the extension there with each warning an
error, and runs its checks with -X dev, which needs no torch. ``--suite`` installs the newest torch and runs all tests
too. Needs root, debootstrap and Debian's packages; whatever is mounted in the tree goes with the process.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOUNTS = """
mount --make-rprivate /
mount -t proc proc "$1/proc"
mount -t devtmpfs dev "$1/dev" && mkdir -p "$1/dev/shm" "$1/dev/pts"
mount -t tmpfs shm "$1/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 pts "$1/dev/pts" && mount --bind "$1/dev/pts/ptmx" "$1/dev/ptmx"
exec chroot "$1" sh -ec "$2"
"""
EXTENSION = """
cd /checkout
python{version} tests/extension/build_extension.py build/extension/_c.so
python{version} -X dev tests/extension/extension_alone.py build/extension/_c.so
"""
SUITE = """
test -e /venv{version} || python{version} -m venv /venv{version}
. /venv{version}/bin/activate
pip install --quiet torch
python -c 'from importlib.metadata import version; print("torch==" + version("torch"))' > installed.txt
grep -v '^torch==' constraints.txt >> installed.txt
pip install --quiet --constraint installed.txt --editable '.[dev]'
python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile
"""


def make_tree(tree: Path, version: str) -> None:
    """Make the tree where there is none, and install the interpreter, its headers and a compiler."""
    if not (tree / "bin" / "sh").exists():
        subprocess.run(["debootstrap", "--variant=minbase", "sid", str(tree)], check=True)
    if not (tree / "usr" / "include" / f"python{version}" / "Python.h").exists():
        packages = (
            f"python{version} python{version}-dev python{version}-venv gcc g++ libc6-dev make git ca-certificates"
        )
        # A mirror may be a snapshot, whose lists have expired.
        run_in(tree, f"apt-get update -o Acquire::Check-Valid-Until=false && apt-get install -y -qq {packages}")


def copy_network(tree: Path) -> None:
    """Copy the names of hosts and the certificates of this machine: torchrun looks its own host up, pip the index's."""
    for name in ("hosts", "ssl/certs/ca-certificates.crt"):
        if (Path("/etc") / name).exists():
            shutil.copy2(Path("/etc") / name, tree / "etc" / name)


def copy_checkout(tree: Path) -> None:
    """Copy the files that git knows or does not ignore to ``/checkout`` in the tree."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    target = tree / "checkout"
    shutil.rmtree(target, ignore_errors=True)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():  # else it was deleted, and that is not committed
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def run_in(tree: Path, script: str) -> None:
    """Run a shell script in the tree. Raises ``CalledProcessError``."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.endswith("_proxy")}
    settings = {**kept, "HOME": "/root", "PATH": "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"}
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", MOUNTS, "sh", str(tree), script]
    subprocess.run(command, check=True, env={**settings, "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"})


def main() -> int:
    """Make the tree and run the checks in it; return their status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default="3.14", help="of Python (default: %(default)s)")
    parser.add_argument("--suite", action="store_true", help="install the newest torch and run all tests")
    parser.add_argument("--tree", type=Path, default=ROOT / "build" / "debian", help="default: build/debian")
    options = parser.parse_args()
    missing = [program for program in ("debootstrap", "unshare", "git") if shutil.which(program) is None]
    if os.geteuid() != 0 or missing:
        parser.exit(2, f"needs root on Debian{', and ' + ', '.join(missing) if missing else ''}\n")
    tree = options.tree.resolve()
    try:
        make_tree(tree, options.version)
        copy_network(tree)
        copy_checkout(tree)
        script = EXTENSION + SUITE if options.suite else EXTENSION
        run_in(tree, script.format(version=options.version))
    except subprocess.CalledProcessError as error:
        print(f"failed with status {error.returncode}: {shlex.join(error.cmd[:1])}", file=sys.stderr)
        return 1
    print(f"Python {options.version}: the extension is right{', the suite passes' if options.suite else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
