"""A line of a library is not taken for the user's, wherever the library is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ASK = "import sys; from autoprof.probes._call_table import file_owner; print(file_owner(sys.argv[1]))"


def owner(file: Path, **environment: str) -> str:
    """Return whose file it is, as a new process says."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(file)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def user_site(tmp_path: Path) -> Path:
    """The folder of the user's own packages, under ``PYTHONUSERBASE``."""
    ask = "import site; print(site.getusersitepackages())"
    environment = {**os.environ, "PYTHONUSERBASE": str(tmp_path / "base")}
    done = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, text=True, check=True)
    folder = Path(done.stdout.strip())
    folder.mkdir(parents=True)
    return folder


def test_a_package_of_a_system_or_a_user_is_a_library(tmp_path: Path) -> None:
    """Debian's ``dist-packages``, the user's site, and those of another environment."""
    for folder in ("usr/lib/python3/dist-packages", "home/.local/lib/python3.12/site-packages"):
        assert owner(tmp_path / folder / "scatter" / "plot.py") == "library"


def test_a_folder_that_a_pth_file_adds_is_a_library(tmp_path: Path, user_site: Path) -> None:
    """Beside lines that are code, and folders that are not there."""
    (tmp_path / "libs").mkdir()
    (user_site / "more.pth").write_text(f"import os\n\n{tmp_path / 'libs'}\n{tmp_path / 'gone'}\n")
    base = {"PYTHONUSERBASE": str(tmp_path / "base")}
    assert owner(tmp_path / "libs" / "scatter.py", **base) == "library"
    assert owner(tmp_path / "train.py", **base) == "user"


def test_an_editable_package_is_the_users_own(tmp_path: Path, user_site: Path) -> None:
    """Its folder is in a ``.pth`` file as well, and ``direct_url.json`` says what it is."""
    (tmp_path / "project" / "src").mkdir(parents=True)
    (user_site / "project.pth").write_text(f"{tmp_path / 'project' / 'src'}\n")
    record = user_site / "project-1.dist-info" / "direct_url.json"
    record.parent.mkdir()
    record.write_text(json.dumps({"url": (tmp_path / "project").as_uri(), "dir_info": {"editable": True}}))
    assert owner(tmp_path / "project" / "src" / "train.py", PYTHONUSERBASE=str(tmp_path / "base")) == "user"


def test_packages_installed_into_a_folder_of_the_path_are_libraries(tmp_path: Path) -> None:
    """As ``pip install --target`` does."""
    (tmp_path / "target" / "scatter-1.dist-info").mkdir(parents=True)
    path = os.pathsep.join([str(tmp_path / "target"), *filter(None, [os.environ.get("PYTHONPATH")])])
    assert owner(tmp_path / "target" / "scatter.py", PYTHONPATH=path) == "library"
