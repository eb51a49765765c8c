"""The exchange of generated code: marks between the kernels of a file like inductor's."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from autoprof import Phase
from autoprof.capture.graphs.generated import GeneratedCode
from autoprof.capture.graphs.kernels import Kernel

SOURCE = """
ran = []
class extern_kernels:
    addmm = staticmethod(lambda: ran.append("addmm"))
class triton_poi_1:
    run = staticmethod(lambda stream: ran.append("triton"))
def cpp_fused_0():
    ran.append("fused")
class Guard:
    def __enter__(self): pass
    def __exit__(self, *error): pass
def partition_0(args):
    extern_kernels.addmm()
    return args
class Runner:
    def call(self, args):
        x, = args
        args.clear()
        with Guard():
            cpp_fused_0()
            triton_poi_1.run(stream=0)
            cpp_fused_0()
            del x
            triton_poi_1.run(stream=0)
        return (1, )
runner = Runner()
call = runner.call
"""


@pytest.fixture
def module(tmp_path: Path) -> Any:
    path = tmp_path / "generated.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("generated", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def kernel(call: str, owner: str) -> Kernel:
    return Kernel(call, ((owner,),), Phase.FORWARD)


KERNELS = [
    kernel("cpp_fused_0", "a"),
    kernel("triton_poi_1", "a"),
    kernel("cpp_fused_0", "b"),
    kernel("triton_poi_1", "b"),
    kernel("extern_kernels.addmm", "c"),
]


def code(kernel: Kernel | None) -> int:
    return 0 if kernel is None else ord(kernel.paths[0][0])


def marked(module: Any, kernels: list[Kernel]) -> tuple[GeneratedCode, list[Any]]:
    """Return the generated code with marks in place, and the list that the marks are appended to."""
    generated = GeneratedCode(module.call.__func__, kernels)
    assert generated.exchange(generated.with_marks(code), lambda mark: module.ran.append(chr(mark) if mark else "end"))
    return generated, module.ran


def test_a_mark_stands_where_the_owner_changes(module: Any) -> None:
    _, ran = marked(module, KERNELS)
    assert module.call([5]) == (1,)
    assert ran == ["a", "fused", "triton", "b", "fused", "triton", "end"]


def test_a_partition_is_marked_by_itself(module: Any) -> None:
    _, ran = marked(module, KERNELS)
    module.partition_0([])
    assert ran == ["c", "addmm", "end"]


def test_a_call_that_was_bound_before_is_served_and_the_original_comes_back(module: Any) -> None:
    before, bound = module.Runner.call.__code__, module.call
    generated, ran = marked(module, KERNELS)
    generated.put_back()
    assert bound([5]) == (1,)
    assert ran == ["fused", "triton", "fused", "triton"]
    assert module.Runner.call.__code__ is before


def test_a_second_session_leaves_the_code_of_the_first(module: Any) -> None:
    generated, _ = marked(module, KERNELS)
    other = GeneratedCode(module.call.__func__, KERNELS)
    marked_code = module.Runner.call.__code__
    assert not GeneratedCode.exchange(generated, other.with_marks(code), print)
    assert module.Runner.call.__code__ is marked_code


def test_calls_without_a_note_and_notes_without_a_call_are_known(module: Any) -> None:
    """A kernel without a note belongs to no module inside the graph."""
    generated = GeneratedCode(module.call.__func__, [*KERNELS[1:], kernel("cpp_fused_9", "z")])
    assert generated.unknown == ["cpp_fused_0"]
    assert generated.missing == 1
    assert [one.paths for one in generated.kernels].count(()) == 1
