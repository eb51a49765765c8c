"""What an installation from source says where autoprof cannot record."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PRETENDED = {
    "free-threaded": "import sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1",
    "Windows": "import sys, sysconfig, setuptools; sysconfig.get_config_vars(); sys.platform = 'win32'",
}


@pytest.mark.parametrize(("name", "pretend"), PRETENDED.items(), ids=PRETENDED)
def test_an_unsupported_system_is_refused_in_one_line(name: str, pretend: str) -> None:
    """The build ends with a sentence that names the system and what to use instead; pip prints it."""
    program = f"{pretend}\nimport runpy, sys\nsys.argv = ['setup.py', '--version']\nrunpy.run_path('setup.py')"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    assert name in line
    assert ": use " in line


def test_a_supported_system_is_built_for() -> None:
    """The same command without the pretence answers with the version."""
    command = [sys.executable, "setup.py", "--version"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (0, "0.1.0")
