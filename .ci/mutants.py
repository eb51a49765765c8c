"""Change the engine in one place at a time and count the changes that no test notices: ``make mutants``.

mutmut works in a copy of the checkout, a module at a time, with the tests that are about this module. Arguments are
parts of the modules' names: ``make mutants MODULES=governor``. Exits with status 1 where less than 90 % are noticed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("autoprof", "tests", "benchmarks", "configs", "docs", "examples", "pyproject.toml", "setup.py", "README.md")
GOAL = 0.9
NOTICED = ("killed", "timeout", "segfault", "suspicious")

ENGINE = ["tests/engine/test_engine_plans.py", "tests/engine/test_engine_session.py"]
FAULTS = ["tests/faults/test_fault_limits.py"]
TESTS = {
    "autoprof/_session/governor.py": ["tests/test_governor_account.py", "tests/test_governor.py"],
    "autoprof/_session/sampling.py": ["tests/engine/test_engine_sampling.py", *ENGINE],
    "autoprof/_session/step_tracker.py": ["tests/engine/test_engine_step_ends.py", *ENGINE, *FAULTS],
    "autoprof/_session/pipeline.py": [*ENGINE, *FAULTS, "tests/faults/test_fault_processes.py"],
    "autoprof/_session/outputs.py": [*FAULTS, *ENGINE],
    "autoprof/_resolve/*.py": [
        *ENGINE,
        *FAULTS,
        "tests/engine/test_engine_backward.py",
        "tests/engine/test_engine_checkpointing.py",
        "tests/engine/test_engine_device.py",
        "tests/engine/test_engine_micro_steps.py",
    ],
}
"""The modules, each with the tests that are about it: a mutant then takes seconds."""

SETTINGS = """
[tool.mutmut]
source_paths = ["autoprof"]
only_mutate = [{module!r}]
also_copy = ["benchmarks", "configs", "docs", "examples", "setup.py", "README.md"]
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-q", "-p", "no:cacheprovider", "-W", "ignore"]
timeout_multiplier = 3.0
timeout_constant = 2.0
"""


def mutate(module: str, tests: list[str]) -> dict[str, str]:
    """Run mutmut over a module; return the result of each mutant."""
    place = ROOT / "build" / "mutants" / re.sub(r"\W+", "_", module)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, place / name)
    with (place / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(SETTINGS.format(module=module, tests=tests))
    mutmut = [sys.executable, "-m", "mutmut"]
    subprocess.run([*mutmut, "run"], cwd=place, check=True, stdout=subprocess.DEVNULL)
    found = subprocess.run([*mutmut, "results", "--all", "true"], cwd=place, check=True, capture_output=True, text=True)
    return dict(line.strip().split(": ") for line in found.stdout.splitlines() if ": " in line)


def main() -> int:
    """Mutate the modules that are asked for, or all; list the mutants that survive."""
    reached = True
    for module, tests in TESTS.items():
        if sys.argv[1:] and not any(part in module for part in sys.argv[1:]):
            continue
        results = mutate(module, tests)
        noticed = sum(result in NOTICED for result in results.values())
        print(f"{module}: {noticed} of {len(results)} noticed ({noticed / max(len(results), 1):.0%})")
        print("".join(f"  {name}: {result}\n" for name, result in results.items() if result not in NOTICED), flush=True)
        reached &= noticed >= GOAL * len(results) > 0
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
