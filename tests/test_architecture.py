"""The plan of the house: imports run one way, and the public names are a list."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import autoprof

HOUSE = Path(autoprof.__file__).parent
ROOMS = (
    "errors", "_plugins", "_options", "_process", "_notes", "_names", "_units", "frame", "summary", "_stats",
    "_storage", "devices", "config", "_targets", "_capture", "_resolve", "_observer",
    "_reports", "compare", "logs",
    "probes", "diagnose", "_metrics", "sinks", "deep", "_session",
    "compat",
    "testing", "demo", "diagnose.rules", "doctor", "cli", "__main__",
)  # fmt: skip
"""The rooms in order: a module, or a package with all that is in it but the rooms named for themselves.

``diagnose.rules`` comes late because the defects of rules train with ``testing`` and ``demo``. ``diagnose`` finds the
rules as parts and imports none of them.
"""
PUBLIC = [
    "AutoprofError", "Config", "ConfigError", "Finding", "MissingExtra", "OutputError", "Phase", "Row", "Run",
    "Session", "SessionError", "Sink", "Span", "StepFrame", "Summary", "TargetError",
    "deep_capture", "instrument", "log_timing", "read_run", "span", "timed",
]  # fmt: skip


def _module(path: Path) -> str:
    """The dotted name of a file below the package."""
    parts = path.relative_to(HOUSE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _room(module: str) -> str | None:
    """The room of a module: the longest name on the plan that it begins with."""
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in names if name in ROOMS), None)


def _imports(path: Path) -> list[tuple[int, str]]:
    """Every module of ours that a file imports, with the line."""
    package = path.relative_to(HOUSE).parts[:-1]
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
        found += [(node.lineno, ".".join((*base, alias.name))) for alias in node.names]
    return found


def test_every_room_is_on_the_plan() -> None:
    """A file that the plan does not name has no place in the house."""
    packages = {path.parent for path in HOUSE.rglob("*.py")}
    modules = {_module(path) for path in HOUSE.rglob("*.py") if path.name != "__init__.py"}
    assert not [module for module in modules if _room(module) is None]
    assert {_room(module) for module in modules | {_module(path / "__init__.py") for path in packages}} - {None} == set(
        ROOMS
    )


def test_imports_run_one_way() -> None:
    """A room imports only from the rooms before it on the plan."""
    back = []
    for path in sorted(HOUSE.rglob("*.py")):
        room = _room(_module(path))
        if room is None:
            continue
        for line, module in _imports(path):
            other = _room(module)
            if other is not None and ROOMS.index(other) > ROOMS.index(room):
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
