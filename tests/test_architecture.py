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
from autoprof.base.process.replace import Replacement
from autoprof.testing import ListSink
from docs.rooms import BESIDE, PAGE, imports, module_of, ordered, room_of, rooms, with_table

HOUSE = Path(autoprof.__file__).parent
MAX_ROOMS = 16
HOLDS = {
    "OpenSession": "LoaderProbe TrainingHooks TrainingSteps SessionProbes Pipeline UnseenModules "
    "CompiledGraphs Recorder Notes",
    "LoaderProbe": "TrainingHooks Prefetch FetchedBatches Recorder",
    "TrainingHooks": "TrainingSteps Recorder",
    "TrainingSteps": "StepDetector SessionProbes Controller ModuleRows Pipeline StageTimes Recorder Notes",
    "StepDetector": "",
    "Pipeline": "Resolver Aggregate Summarizer SinkGroup MemoryTable StageTimes Metrics Diagnosis "
    "UnseenModules Controller ModuleRows Notes",
    "SinkGroup": "Summarizer ListSink Notes",
    "Summarizer": "Resolver Aggregate MemoryTable StageTimes Metrics Diagnosis ModuleRows Recorder Notes",
    "MemoryTable": "Footprint",
    "Metrics": "FetchedBatches Recorder",
    "Diagnosis": "Footprint Recorder",
    "Controller": "ModuleRows",
    "ModuleRows": "SessionProbes Recorder",
    "SessionProbes": "CompiledGraphs Footprint Recorder Notes",
    "UnseenModules": "Recorder CompiledGraphs Notes",
    "CompiledGraphs": "Recorder",
    "Resolver": "",
    "Aggregate": "",
    "Footprint": "",
    "StageTimes": "Prefetch",
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


def _imports_by_name(path: Path) -> set[str]:
    """Every module of ours that a file names in a call of ``import_module``."""
    text = path.read_text(encoding="utf-8")
    if "import_module" not in text:
        return set()
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    names = (ast.unparse(node.args[0]) for node in calls if ast.unparse(node.func).endswith("import_module"))
    return {name[1:-1].removeprefix("autoprof.") for name in names if name[1:].startswith("autoprof.")}


def test_every_module_has_a_room() -> None:
    """The rooms are the folders of the package, at most sixteen; four modules stand beside them."""
    assert {path.stem for path in HOUSE.glob("*.py")} == set(BESIDE)
    assert len(rooms()) <= MAX_ROOMS


def test_imports_run_one_way() -> None:
    """The rooms have an order in which each imports only from those before it, as the page shows it."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page), "python -m docs.rooms renews the table"


def test_imports_by_name_run_one_way() -> None:
    """No room is reached around the plan."""
    order = ordered()
    for path in HOUSE.rglob("*.py"):
        room = path.relative_to(HOUSE).parts[0]
        later = order[order.index(room) + 1 :] if room in order else []
        assert not {name for name in _imports_by_name(path) if room_of(name) in later}


def test_an_underscore_is_imported_inside_its_room_alone() -> None:
    """A module whose name begins with an underscore belongs to its room."""
    private = {
        f"{one.importer}:{one.line}: {one.imported}"
        for one in imports()
        if room_of(one.importer) != room_of(one.imported)
        for part in one.imported.split(".")
        if part.startswith("_") and not part.startswith("__")
    }
    assert private == set()


def test_no_module_imports_one_that_imports_it() -> None:
    """Within a room too the imports run one way, those inside functions and for types included."""
    modules = {module_of(path) for path in HOUSE.rglob("*.py")}
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for one in imports():
        parts = one.imported.split(".")
        names = (".".join(parts[:at]) for at in range(len(parts), 0, -1))
        graph[one.importer].add(next((name for name in names if name in modules), ""))
    TopologicalSorter({module: found - {""} for module, found in graph.items()}).prepare()  # raises CycleError


def test_public_names_are_a_list() -> None:
    """``autoprof`` exports these names and each of them exists."""
    assert sorted(autoprof.__all__) == sorted(PUBLIC)
    assert all(getattr(autoprof, name) is not None for name in PUBLIC)


def test_import_stays_light() -> None:
    """``import autoprof`` loads none of the heavy packages that only some uses need."""
    code = (
        "import sys, torch; before = set(sys.modules); import autoprof; "
        "heavy = {'pydantic', 'matplotlib', 'rich', 'yaml', 'skimage', 'pandas', 'tensorboard', 'wandb', "
        "'prometheus_client', 'opentelemetry'}; "
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


TOOLS = ("compat", "frontends", "logs")
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
        "from autoprof.frontends.cli import make_parser; make_parser('run'); "
        "commands = (name for name in sys.modules if name.startswith('autoprof.frontends.cli.') and '._' not in name); "
        "print(sorted(commands), "
        "'inspect' in sys.modules and not had)"
    )
    found = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['autoprof.frontends.cli.run'] False"


def test_a_class_name_means_one_class() -> None:
    """No two classes of the package, private and nested ones included, have the same name."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(HOUSE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(HOUSE)}:{node.lineno}")
    shared = {name: found for name, found in places.items() if len(found) > 1}
    assert not shared, shared


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


def test_the_page_shows_which_object_holds_which() -> None:
    """``docs/architecture.md`` has the objects in their order."""
    page = PAGE.read_text(encoding="utf-8")
    held = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in _rows(page, "Which object holds which?")}
    assert held == {name: set(others.split()) for name, others in HOLDS.items()}
