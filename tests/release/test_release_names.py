"""``torch-autoprof`` beside the other project whose import name is ``autoprof``, in a folder as pip fills it."""

import subprocess
import sys
from pathlib import Path

import pytest

import autoprof

PACKAGE = Path(autoprof.__file__).parent
THEIR_INIT = "def run_from_terminal():\n    pass\n"


@pytest.fixture
def site_packages(tmp_path: Path) -> Path:
    """Return a folder of packages that has autoprof."""
    folder = tmp_path / "autoprof"
    folder.mkdir()
    for source in PACKAGE.iterdir():
        if source.name != "__pycache__":
            (folder / source.name).symlink_to(source)
    (tmp_path / "torch_autoprof-0.1.0.dist-info").mkdir()
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the folder, which is the first one of its path."""
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_alone_the_import_says_nothing(site_packages: Path) -> None:
    """Its own metadata is no other project's, and a warning would be an error here."""
    ended = run(site_packages, "-W", "error", "-c", "import autoprof; print(autoprof.__file__)")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert Path(ended.stdout.strip()) == site_packages / "autoprof" / "__init__.py"


@pytest.mark.parametrize("metadata", ["autoprof-1.3.4.dist-info", "AutoProf-0.9.egg-info"])
def test_the_import_says_that_the_other_project_is_there(site_packages: Path, metadata: str) -> None:
    """One sentence says at the program's line what to do; the program goes on."""
    (site_packages / metadata).mkdir()
    program = site_packages / "program.py"
    program.write_text("import os\nimport autoprof\nprint(autoprof.read_run.__name__)\n", encoding="utf-8")
    ended = run(site_packages, str(program))
    assert (ended.returncode, ended.stdout) == (0, "read_run\n")
    assert ended.stderr.count("pip uninstall autoprof torch-autoprof, then pip install torch-autoprof") == 1
    assert f"{program}:2: RuntimeWarning: the distribution 'autoprof' is another project" in ended.stderr


def test_the_command_says_that_the_other_project_took_its_place(site_packages: Path) -> None:
    """Installed later, the other project has replaced ``__init__.py``; what is left of the command refuses."""
    (site_packages / "autoprof-1.3.4.dist-info").mkdir()
    (site_packages / "autoprof" / "__init__.py").unlink()
    (site_packages / "autoprof" / "__init__.py").write_text(THEIR_INIT, encoding="utf-8")
    ended = run(site_packages, "-m", "autoprof", "doctor")
    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    assert line.startswith("autoprof: the distribution 'autoprof' is another project")
