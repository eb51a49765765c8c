"""The plan of the house: imports run one way, and the public names are a list."""

import ast
import re
import subprocess
import sys
from collections import defaultdict, deque
from collections.abc import Iterator
from functools import partial
from graphlib import TopologicalSorter
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn

import autoprof
from autoprof._process.replace import Replacement
from autoprof.testing import ListSink

HOUSE = Path(autoprof.__file__).parent
ROOMS = {
    "core": "errors _core frame summary",
    "process": "_process",
    "stats": "_stats",
    "storage": "_storage",
    "ranks": "_ranks",
    "devices": "devices",
    "config": "config",
    "targets": "_targets",
    "capture": "_capture",
    "resolve": "_resolve",
    "probes": "probes",
    "diagnose": "diagnose",
    "reports": "_reports",
    "flight": "_flight",
    "metrics": "_metrics",
    "sinks": "sinks",
    "session": "_session",
    "tools": "compare logs testing doctor",
    "frontends": "_launch integrations compat",
    "cli": "cli __main__",
}
"""The rooms in order, each with its modules and packages."""
MAX_ROOMS = 20
ROOM_OF = {name: room for room, names in ROOMS.items() for name in names.split()}
ORDER = list(ROOMS)
HOLDS = {
    "OpenSession": "LoaderProbe TrainingHooks TrainingSteps SessionProbes Pipeline UnseenModules "
    "CompiledGraphs Recorder Notes",
    "LoaderProbe": "TrainingHooks Prefetch FetchedBatches Recorder",
    "TrainingHooks": "TrainingSteps Recorder",
    "TrainingSteps": "StepDetector SessionProbes Sampler Zoom Pipeline ExcludedTime Recorder Notes",
    "StepDetector": "",
    "Pipeline": "Resolver Aggregate Summarizer SinkGroup MemoryTable ExcludedTime Metrics Diagnosis "
    "UnseenModules Sampler Zoom Notes",
    "SinkGroup": "Summarizer ListSink Notes",
    "Summarizer": "Resolver Aggregate MemoryTable ExcludedTime Metrics Diagnosis Zoom Recorder Notes",
    "MemoryTable": "Footprint",
    "Metrics": "FetchedBatches Recorder",
    "Diagnosis": "Footprint Recorder",
    "Sampler": "Zoom",
    "Zoom": "SessionProbes Recorder",
    "SessionProbes": "CompiledGraphs Footprint Recorder Notes",
    "UnseenModules": "Recorder CompiledGraphs Notes",
    "CompiledGraphs": "Recorder",
    "Resolver": "",
    "Aggregate": "",
    "Footprint": "",
    "ExcludedTime": "Prefetch",
    "Prefetch": "",
    "FetchedBatches": "",
    "Recorder": "",
    "Notes": "",
    "ListSink": "",
}
"""The objects of a session, and which of the others each one holds: an object holds only those further down.

Hooks and replaced functions are not followed: they lie in torch's tables, as the session's callers do.
"""
PUBLIC = [
    "AutoprofError", "Config", "ConfigError", "Finding", "MissingExtra", "OutputError", "Phase", "Row", "Run",
    "Session", "SessionError", "Sink", "Span", "StepFrame", "Summary", "TargetError",
    "deep_capture", "instrument", "log_timing", "read_run", "span", "suggest_targets", "timed",
]  # fmt: skip


def _module(path: Path) -> str:
    """The dotted name of a file below the package."""
    parts = path.relative_to(HOUSE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _room(module: str) -> str | None:
    """The room of a module; None for the package's own ``__init__``."""
    return ROOM_OF.get(module.split(".")[0])


def _imports(path: Path) -> list[tuple[int, str]]:
    """Every module of ours that a file imports, with the line.

    A public name counts as the module that has it; ``import autoprof`` as the session, the last room with such a name.
    """
    package = path.relative_to(HOUSE).parts[:-1]
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "autoprof"]
            found += [(node.lineno, name.removeprefix("autoprof").strip(".") or "_session") for name in names]
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            base = package[: len(package) - node.level + 1]
        elif node.module and node.module.split(".")[0] == "autoprof":
            base = ()
        else:
            continue
        names = (node.module or "").removeprefix("autoprof").strip(".") if not node.level else node.module or ""
        base = (*base, *(part for part in names.split(".") if part))
        modules = [".".join((*base, alias.name)) for alias in node.names]
        found += [(node.lineno, autoprof._LAZY.get(module, module)) for module in modules]
    return found


def _imports_by_name(path: Path) -> set[str]:
    """Every module of ours that a file names in a call of ``import_module``."""
    calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    names = (ast.unparse(node.args[0]) for node in calls if ast.unparse(node.func).endswith("import_module"))
    return {name[1:-1].removeprefix("autoprof.") for name in names if name[1:].startswith("autoprof.")}


def test_every_module_has_a_room() -> None:
    """A file that the plan does not name has no place in the house, which has at most twenty rooms."""
    names = {path.relative_to(HOUSE).parts[0].removesuffix(".py") for path in HOUSE.rglob("*.py")} - {"__init__"}
    assert names == set(ROOM_OF)
    assert len(ROOMS) <= MAX_ROOMS


def test_imports_run_one_way() -> None:
    """A room imports only from the rooms before it on the plan."""
    back = []
    for path in sorted(HOUSE.rglob("*.py")):
        room = _room(_module(path))
        if room is None:
            continue
        for line, module in _imports(path):
            other = _room(module)
            if other is not None and ORDER.index(other) > ORDER.index(room):
                back.append(f"{path.relative_to(HOUSE)}:{line}: {room} imports {other}, which comes later")
    assert not back, "\n".join(back)


def test_imports_by_name_run_one_way() -> None:
    """No room is reached around the plan."""
    pairs = {(_room(_module(path)), _room(name)) for path in HOUSE.rglob("*.py") for name in _imports_by_name(path)}
    assert not {(room, other) for room, other in pairs if room and ORDER.index(other) > ORDER.index(room)}


def test_no_module_imports_one_that_imports_it() -> None:
    """Within a room too the imports run one way, those inside functions and for types included."""
    modules = {_module(path) or "(root)" for path in HOUSE.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for path in HOUSE.rglob("*.py"):
        names = [name.split(".") for _, name in _imports(path)]
        found = {
            next((one for at in range(len(parts), 0, -1) if (one := ".".join(parts[:at])) in modules), "")
            for parts in names
        }
        graph[_module(path) or "(root)"] = found - {""}
    TopologicalSorter(graph).prepare()  # raises CycleError with the modules of a circle


def test_public_names_are_a_list() -> None:
    """``autoprof`` exports these names and each of them exists."""
    assert sorted(autoprof.__all__) == sorted(PUBLIC)
    assert all(getattr(autoprof, name) is not None for name in PUBLIC)


def test_import_stays_light() -> None:
    """``import autoprof`` loads none of the heavy packages that only some uses need."""
    code = (
        "import sys, torch; before = set(sys.modules); import autoprof; "
        "heavy = {'pydantic', 'matplotlib', 'rich', 'yaml', 'skimage', 'pandas', 'tensorboard', 'wandb', "
        "'prometheus_client'}; "
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_session_without_a_written_configuration_loads_no_parser(tmp_path: Path) -> None:
    """``instrument(model)`` loads no module that only YAML files, notebooks or masked arrays need."""
    code = (
        "import sys, torch; before = set(sys.modules); import autoprof; autoprof.instrument(torch.nn.Linear(1, 1)); "
        "unused = {'yaml', 'numpy.ma', 'numpy.polynomial', 'autoprof.config.read'}; "
        "print(sorted(unused & (set(sys.modules) - before)), file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stderr.strip() == "[]"


TOOLS = ("cli", "compare", "compat", "doctor", "logs")
"""Rooms that no step of a training runs."""
IMPORTS_MASKED_ARRAYS = {"median", "percentile", "quantile", "nanmedian", "nanpercentile", "nanquantile", "unique"}


def test_no_step_calls_a_function_of_numpy_that_imports_masked_arrays() -> None:
    """``numpy.ma`` takes milliseconds of the step that calls the first of them. ``unique`` with indices does not."""
    found = []
    for path in sorted(HOUSE.rglob("*.py")):
        place = path.relative_to(HOUSE)
        if place.parts[0] in TOOLS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called.startswith("np.") and called[3:] in IMPORTS_MASKED_ARRAYS and "return_" not in ast.unparse(node):
                found.append(f"{place}:{node.lineno}: {called}")
    assert found == []


def test_a_command_loads_no_other_command() -> None:
    """``autoprof run`` starts with its own module: those of the other commands and ``inspect`` are not imported.

    From Python 3.14 on ``argparse`` imports ``inspect`` itself where it makes a parser.
    """
    code = (
        "import sys, argparse; argparse.ArgumentParser(); had = 'inspect' in sys.modules; "
        "from autoprof.cli import make_parser; make_parser('run'); "
        "print(sorted(name for name in sys.modules if name.startswith('autoprof.cli.') and '._' not in name), "
        "'inspect' in sys.modules and not had)"
    )
    found = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['autoprof.cli.run'] False"


def test_functions_are_short() -> None:
    """No function is longer than 80 lines; a file is as long as its one concept."""
    long = []
    for path in sorted(HOUSE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno is not None:
                length = node.end_lineno - node.lineno + 1
                if length > 80:
                    long.append(f"{path.relative_to(HOUSE)}:{node.lineno}: {node.name} has {length} lines")
    assert not long, "\n".join(long)


def _held(value: Any) -> Iterator[Any]:
    """Yield what a value refers to: attributes of our objects, members of containers, objects bound to functions."""
    if isinstance(value, MethodType):
        yield value.__self__
    elif isinstance(value, FunctionType):
        yield from (cell.cell_contents for cell in value.__closure__ or () if cell != type(cell)())
    elif isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, dict):
        yield from (*value, *value.values())
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        yield from value
    elif type(value).__module__.startswith("autoprof") and not isinstance(value, (type, Replacement, nn.Module)):
        slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        yield from [*getattr(value, "__dict__", {}).values(), *(getattr(value, name, None) for name in slots)]


def _object_graph(root: Any) -> dict[str, set[str]]:
    """Return by class which objects of ``HOLDS`` each of them holds, directly or through other objects."""
    graph, seen, waiting = defaultdict[str, set[str]](set), {id(root): root}, [root]
    while waiting:
        owner = waiting.pop()
        graph[type(owner).__name__] |= set()
        found, inner = [*_held(owner)], {id(owner): owner}
        while found:
            value = found.pop()
            if id(value) in inner:
                continue
            inner[id(value)] = value
            if type(value).__name__ not in HOLDS:
                found += _held(value)
                continue
            graph[type(owner).__name__].add(type(value).__name__)
            if id(value) not in seen:
                seen[id(value)] = value
                waiting.append(value)
    return graph


def test_objects_of_a_session_hold_only_those_further_down(tmp_path: Path) -> None:
    """No cycle: an event goes from the program down to the sinks, and no object calls one above it."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = {"sinks": {}, "output": str(tmp_path)}
    with autoprof.instrument(model, config, optimizer=optimizer, sinks=[ListSink()]) as session:
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        with torch.no_grad():
            model.eval()(torch.ones(1, 2))  # validation: the session watches backward passes
        graph = _object_graph(session)
    names = list(HOLDS)
    assert {name: set(graph[name]) for name in names} == {name: set(held.split()) for name, held in HOLDS.items()}
    assert set(graph) == set(names)
    back = [(name, held) for name in names for held in graph[name] if names.index(held) <= names.index(name)]
    assert not back


def _rows(page: str, heading: str) -> list[list[str]]:
    """The rows of the table below a heading, without its head."""
    section = page.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_page_draws_both_graphs() -> None:
    """``docs/architecture.md`` has the rooms in their order, and which object holds which."""
    page = (HOUSE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {row[0]: " ".join(re.findall(r"`(\w+)`", row[1])) for row in _rows(page, "Which module imports which?")}
    assert (list(rooms), rooms) == (ORDER, ROOMS)
    held = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in _rows(page, "Which object holds which?")}
    assert held == {name: set(others.split()) for name, others in HOLDS.items()}
