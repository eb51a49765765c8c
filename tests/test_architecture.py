"""The plan of the house: imports run one way, and the public names are a list."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import autoprof

HOUSE = Path(autoprof.__file__).parent
ROOMS = (
    "errors", "signals", "collector", "names", "units", "span", "summary",
    "config", "clocks", "memory", "price", "governor", "aggregate",
    "targets", "marks", "recorder", "resolve",
    "flops", "devices",
    "render", "runs", "compare", "logs",
    "probes", "diagnose", "gauges", "calibrate", "sinks", "outputs",
    "sampling", "lifecycle", "delivery", "course", "stepping", "equipment", "session", "deep", "wiring",
    "compat",
    "testing", "demo", "doctor", "cli", "__main__",
)  # fmt: skip
PUBLIC = [
    "AutoprofError", "Config", "ConfigError", "Finding", "MissingExtra", "OutputError", "Phase", "Row", "Run",
    "Session", "SessionError", "Sink", "Span", "StepFrame", "Summary", "TargetError",
    "deep_capture", "instrument", "log_timing", "read_run", "span", "timed",
]  # fmt: skip


def _room(path: Path) -> str:
    return path.relative_to(HOUSE).parts[0].removesuffix(".py")


def _imports(path: Path) -> list[tuple[int, str]]:
    """Every room that a file imports from, with the line; the package itself is no room."""
    package = ("autoprof", *path.relative_to(HOUSE).parts[:-1])
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            parts = (*base, *(node.module.split(".") if node.module else ()))
            names = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
            found += [(node.lineno, name) for name in names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "autoprof":
            parts = tuple(node.module.split("."))
            found += [(node.lineno, name) for name in ([parts[1]] if len(parts) > 1 else [])]
    return found


def test_every_room_is_on_the_plan() -> None:
    """A file or folder that the plan does not name has no place in the house."""
    rooms = {_room(path) for path in HOUSE.rglob("*.py")} - {"__init__"}
    assert rooms == set(ROOMS)


def test_imports_run_one_way() -> None:
    """A room imports only from the rooms before it on the plan."""
    back = []
    for path in sorted(HOUSE.rglob("*.py")):
        room = _room(path)
        if room == "__init__":
            continue
        for line, other in _imports(path):
            if other in ROOMS and ROOMS.index(other) > ROOMS.index(room):
                back.append(f"{path.relative_to(HOUSE)}:{line}: {room} imports {other}, which comes later")
    assert not back, "\n".join(back)


def test_public_names_are_a_list() -> None:
    """``autoprof`` exports these names and each of them exists."""
    assert sorted(autoprof.__all__) == sorted(PUBLIC)
    assert all(getattr(autoprof, name) is not None for name in PUBLIC)


def test_import_stays_light() -> None:
    """``import autoprof`` loads none of the heavy packages that only some uses need."""
    code = (
        "import sys, torch; before = set(sys.modules); import autoprof; "
        "heavy = {'pydantic', 'matplotlib', 'rich', 'yaml', 'skimage', 'pandas', 'duckdb', 'tensorboard', 'wandb', "
        "'mlflow', 'prometheus_client', 'opentelemetry'}; "
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_no_room_is_crowded() -> None:
    """No file is longer than 300 lines and no function than 60."""
    crowded = []
    for path in sorted([*HOUSE.rglob("*.py"), *HOUSE.rglob("*.[ch]")]):
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > 300:
            crowded.append(f"{path.relative_to(HOUSE)}: {text.count(chr(10))} lines")
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno is not None:
                length = node.end_lineno - node.lineno + 1
                if length > 60:
                    crowded.append(f"{path.relative_to(HOUSE)}:{node.lineno}: {node.name} has {length} lines")
    assert not crowded, "\n".join(crowded)
