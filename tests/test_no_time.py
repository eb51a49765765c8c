"""No test asserts a time: none sleeps, and none compares a reading of a real clock."""

import ast
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
MEASURED = ("acceptance", "gpu")
"""Folders whose programs need real time: ``make acceptance`` and ``make gpu`` run them, on a quiet machine."""
EXCEPTIONS = {
    "test_no_time.py": "the sources below, in which a time has to be found",
    "launchers/programs/workload.py": "a slow rank under a real launcher: `make launchers` looks at its place, no time",
    "extension/extension_alone.py": "the order of readings of one clock, and counts of references; no length of time",
}
"""Files that sleep or compare times, each with the reason."""
CLOCKS = frozenset(
    name + unit
    for name in ("time", "perf_counter", "monotonic", "thread_time", "process_time", "clock_gettime")
    for unit in ("", "_ns")
)
"""Functions of the module ``time`` that read a clock."""


def from_time(tree: ast.AST) -> dict[str, str]:
    """Return the functions of ``time`` by the names that a source has for them."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "time":
                    names |= {f"{alias.asname or 'time'}.{one}": one for one in (*CLOCKS, "sleep")}
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
    return names


def assigned(node: ast.AST) -> tuple[list[ast.expr], ast.expr | None]:
    """Return the targets and the value of an assignment; no value where the node is none."""
    if isinstance(node, ast.Assign):
        return node.targets, node.value
    if isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
        return [node.target], node.value
    return [], None


def pairs(targets: Iterable[ast.expr], value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target with its value; those of ``a, b = c, d`` separately."""
    for target in targets:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            yield from zip(target.elts, value.elts, strict=True)
        else:
            yield target, value


def text_of(node: ast.AST) -> str:
    """Return the text of a string, with 0 for each value that an f-string inserts."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "0" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def times_of(source: str) -> list[str]:
    """Return the sleeps, and the comparisons of clocks, of a source and of the programs in its strings.

    A name that was given a reading of a clock is one, too. Source that does not parse has none.
    """
    try:
        tree = ast.parse(textwrap.dedent(source))
    except (SyntaxError, ValueError):
        return []
    names, read = from_time(tree), set[str]()

    def is_reading(node: ast.AST) -> bool:
        called = isinstance(node, ast.Call) and names.get(ast.unparse(node.func)) in CLOCKS
        return called or (isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) in read)

    nodes, before = list(ast.walk(tree)), -1
    while len(read) > before:  # each round adds a name, until none is left
        before = len(read)
        for node in nodes:
            targets, value = assigned(node)
            for target, part in [] if value is None else pairs(targets, value):
                if any(map(is_reading, ast.walk(part))):
                    read |= {ast.unparse(one) for one in ast.walk(target) if isinstance(one, (ast.Name, ast.Attribute))}
    found = []
    for node in nodes:
        sleeps = isinstance(node, ast.Call) and names.get(ast.unparse(node.func)) == "sleep"
        if sleeps or (isinstance(node, ast.Compare) and any(map(is_reading, ast.walk(node)))):
            found.append(f"{node.lineno}: {ast.unparse(node)}")
        program = text_of(node)
        if "time" in program:
            found += [f"{node.lineno}: in a string, {one}" for one in times_of(program)]
    return found


def test_no_test_sleeps_or_compares_a_time() -> None:
    """Neither in its own code nor in a program that it has as a string."""
    found, unused = [], dict(EXCEPTIONS)
    for path in sorted(TESTS.rglob("*.py")):
        place = path.relative_to(TESTS)
        if place.parts[0] in MEASURED:
            continue
        times = times_of(path.read_text(encoding="utf-8"))
        if place.as_posix() in EXCEPTIONS:
            if times:
                del unused[place.as_posix()]
        else:
            found += [f"tests/{place}:{one}" for one in times]
    assert not found, "use the clock of autoprof.testing, an event, or wait_until of waiting.py:\n" + "\n".join(found)
    assert not unused, f"no exceptions any more: {list(unused)}"


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.sleep(0.1)",
        "from time import sleep as pause\npause(1)",
        "import time as t\nassert t.perf_counter() < 3",
        "from time import perf_counter_ns\nbegan = perf_counter_ns()\nassert perf_counter_ns() - began < 250",
        "from time import thread_time\ntook, n = thread_time() - 1, 2\nshare = took / n\nassert share < 0.5",
        "import time\nuntil = time.monotonic() + 60\nwhile time.monotonic() < until:\n    pass",
        "import time\nclass A:\n    def begin(self):\n        self.at = time.time()\n        assert self.at > 3",
        "PROGRAM = '''\n    import time\n    for _ in range(3):\n        time.sleep(1)\n    '''",
        "PROGRAM = f'import time; time.sleep({seconds})'",
    ],
)
def test_a_time_is_found(source: str) -> None:
    """A sleep, or a comparison of a reading, of a difference, or of a name that has one."""
    assert times_of(source)


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nasyncio.sleep(0)",
        "from time import perf_counter_ns\nread = perf_counter_ns\nsession.update(read=read)",
        "import time\nstart = time.time()\nlog(time.time() - start)",
        "device.sleep(3)\nassert device.now_ns() < 5",
        "TEXT = 'no time to sleep('",
    ],
)
def test_code_without_a_time_passes(source: str) -> None:
    """A clock may be handed on, and a device of a test may sleep."""
    assert not times_of(source)
