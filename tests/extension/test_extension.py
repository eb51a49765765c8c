"""The extension in C without torch: the checks that a sanitizer and a debug build of Python run, and warnings."""

import gc
import re
import shlex
import shutil
import sys
import sysconfig
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import build_extension
import extension_alone
import pytest

from autoprof.capture.marks import codes

_c = pytest.importorskip("autoprof.capture.marks._c", reason="needs the extension in C")


@pytest.mark.parametrize("check", extension_alone.CHECKS, ids=lambda check: check.__name__)
def test_extension(check: Callable[[Any, Any], None]) -> None:
    """The check holds, and the module is collected after it: no type, hook or state keeps it."""
    module, torch = extension_alone.load(Path(_c.__file__))
    check(module, torch)
    gone = weakref.ref(module)
    del module
    gc.collect()
    assert gone() is None


def test_two_modules_share_nothing() -> None:
    """The module's state is its own: types and configuration of a second one are others."""
    first, _ = extension_alone.load(Path(_c.__file__))
    second, torch = extension_alone.load(Path(_c.__file__))
    assert first.MarkBuffer is not second.MarkBuffer
    extension_alone.check_plain_hooks(second, torch)
    with pytest.raises(TypeError):
        first.HookContext(second.MarkBuffer(0, 1))


def test_the_extension_compiles_without_a_warning(tmp_path: Path) -> None:
    """With -Wall -Wextra, for the Python that runs the tests."""
    compiler = shlex.split(str(sysconfig.get_config_var("CC") or "cc"))[0]
    if sys.platform != "linux" or shutil.which(compiler) is None or shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    build_extension.build(tmp_path / "_c.so", [])
    extension_alone.load(tmp_path / "_c.so")


def test_the_codes_of_marks_are_those_of_python() -> None:
    """The extension has copies of the numbers."""
    header = (build_extension.SOURCES / "native.h").read_text(encoding="utf-8")
    found = {name: int(value) for name, value in re.findall(r"\bMARK_(\w+) = (\d+)", header)}
    assert found == {name: getattr(codes, name) for name in found}
    for name in ("ORDINAL_SHIFT", "KIND_MASK"):
        assert f"#define {name} {getattr(codes, name)}\n" in header
