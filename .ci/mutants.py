"""Change the engine in one place at a time and count the changes that no test notices: ``make mutants``.

mutmut works in a copy of the checkout below ``build/mutants``, a module at a time, with the tests that are about this
module. Arguments are parts of the modules' names, and ``--sample N`` takes N random mutants of each module, always the
same ones: ``make mutants MODULES="sampler pipeline --sample 150"``. What was noticed once is not run again until the
module changes, so a run that was interrupted continues. Survivors are run again when the tests have changed. Their
differences are in ``build/mutants/<module>/survivors.diff``. Exits with status 1 where less than 90 % are noticed.
"""

from __future__ import annotations

import argparse
import filecmp
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("autoprof", "tests", "benchmarks", "configs", "docs", "examples", "pyproject.toml", "setup.py", "README.md")
GOAL = 0.9
SEED = 17
NOTICED = ("killed", "timeout", "segfault")

E = "tests/engine/test_engine_"
STEPS = [f"{E}step_ends.py", f"{E}excluded.py"]
TESTS = {
    "autoprof/_resolve/resolver.py": [f"{E}plans.py", f"{E}resolver.py"],
    "autoprof/_resolve/planner.py": [f"{E}planner.py"],
    "autoprof/_session/sampler.py": ["tests/test_sampler.py"],
    "autoprof/_session/zoom.py": [f"{E}zoom.py"],
    "autoprof/_session/step_detector.py": [f"{E}step_detector.py", *STEPS],
    "autoprof/_session/optimizer_cycle.py": [f"{E}optimizer_cycle.py"],
}
"""The modules, each with the tests that are about it: a mutant then takes seconds."""

# Each mutant is a process that has imported torch and the tests but run none of them: torch's threads do not fork.
# Tests of torch.compile take seconds.
SETTINGS = """
[tool.mutmut]
source_paths = ["autoprof"]
only_mutate = [{module!r}]
also_copy = ["benchmarks", "configs", "docs", "examples", "setup.py", "README.md"]
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "-k", "not compil"]
process_isolation = "forkserver"
timeout_multiplier = 4.0
timeout_constant = 3.0
"""


def prepare(module: str, tests: list[str]) -> Path:
    """Bring the copy of the checkout up to date, leaving unchanged files alone; return its folder."""
    place = ROOT / "build" / "mutants" / re.sub(r"\W+", "_", module)
    shutil.rmtree(place / "mutants" / "tests", ignore_errors=True)
    for name in COPIED:
        source = ROOT / name
        files = [source] if source.is_file() else [path for path in source.rglob("*") if path.is_file()]
        wanted = {path.relative_to(ROOT) for path in files if "__pycache__" not in path.parts}
        for path in {path.relative_to(place) for path in (place / name).rglob("*") if path.is_file()} - wanted:
            (place / path).unlink()
        for path in wanted:
            copy = place / path
            if name != "pyproject.toml" and not (copy.exists() and filecmp.cmp(ROOT / path, copy, shallow=False)):
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, copy)
    settings = SETTINGS.format(module=module, tests=tests)
    (place / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text("utf-8") + settings, "utf-8")
    return place


def names_of(place: Path, module: str) -> list[str]:
    """Return the names of the module's mutants; mutmut itself names them only while it runs them."""
    from mutmut.mutation.file_mutation import mutate_file_contents
    from mutmut.utils.format_utils import get_mutant_name

    os.chdir(place)  # there mutmut reads its settings
    mutated = mutate_file_contents(module, Path(module).read_text("utf-8"))
    return [get_mutant_name(Path(module), name) for name in mutated.mutant_names]


def mutmut(place: Path, *arguments: str) -> str:
    """Run a command of mutmut in the copy; return its output."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    found = subprocess.run(command, cwd=place, capture_output=True, text=True, env=env)
    if found.returncode:
        sys.exit(f"mutmut {arguments[0]} failed in {place}:\n{found.stdout[-3000:]}{found.stderr[-3000:]}")
    return found.stdout


def digest(paths: Iterable[Path]) -> str:
    """Return a hash of these files."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(paths))).hexdigest()


class Record:
    """The results of one module by the names of its mutants, kept in a file beside the copy.

    mutmut forgets its own results where a setting has changed.
    """

    def __init__(self, place: Path, module: str) -> None:
        self._place = place
        self._mutated = place / "mutants" / module
        self._file = place / "results.json"
        self._source = digest([place / module])
        self._tests = digest((place / "tests").rglob("*.py"))
        self.results: dict[str, str] = {}
        found = json.loads(self._file.read_text("utf-8")) if self._file.exists() else {}
        if found.get("source") == self._source:
            self.results = found["results"]
            self.take()  # those of a run that was interrupted
        if (found.get("source"), found.get("tests")) != (self._source, self._tests):
            self.results = {name: result for name, result in self.results.items() if result in NOTICED}
            self._forget()
        self.save()

    def _forget(self) -> None:
        """Have mutmut forget its results: an interrupted run would leave those of before among its own."""
        for path in (self._mutated, self._mutated.with_name(f"{self._mutated.name}.meta")):
            path.unlink(missing_ok=True)

    def take(self) -> None:
        """Add the results that mutmut has."""
        for line in mutmut(self._place, "results", "--all", "true").splitlines():
            name, _, result = line.strip().partition(": ")
            if result and result != "not checked":
                self.results[name] = result

    def save(self) -> None:
        """Write the file."""
        found = {"source": self._source, "tests": self._tests, "results": self.results}
        self._file.write_text(json.dumps(found, indent=1), "utf-8")


def mutate(module: str, tests: list[str], sample: int | None, workers: int) -> dict[str, str]:
    """Run mutmut over a module; return the result of each mutant that was asked for."""
    place = prepare(module, tests)
    names = names_of(place, module)
    if sample is not None and sample < len(names):
        names = sorted(random.Random(SEED).sample(names, sample))
    record = Record(place, module)
    left = [name for name in names if name not in record.results]
    if left:
        mutmut(place, "run", "--max-children", str(workers), *left)
        record.take()
        record.save()
    results = {name: record.results.get(name, "not checked") for name in names}
    survivors = [name for name, result in results.items() if result not in NOTICED]
    (place / "survivors.diff").write_text("\n".join(mutmut(place, "show", name) for name in survivors), "utf-8")
    return results


def main() -> int:
    """Mutate the modules that are asked for, or all; print a table and the mutants that survive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="parts of the modules' names; without any, all modules")
    parser.add_argument("--sample", type=int, help="random mutants of each module; without it, all mutants")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="mutants tried at once")
    asked = parser.parse_args()
    chosen = [one for one in TESTS if not asked.modules or any(part in one for part in asked.modules)]
    if not chosen:
        parser.error(f"no module has {' or '.join(asked.modules)} in its name; there are {', '.join(TESTS)}")
    reached, rows = True, []
    for module in chosen:
        results = mutate(module, TESTS[module], asked.sample, asked.workers)
        count = Counter(results.values())
        noticed = sum(count[result] for result in NOTICED)
        reached &= noticed >= GOAL * len(results) > 0
        rows.append(
            f"| `{module}` | {len(results)} | {noticed} ({noticed / max(len(results), 1):.0%}) | {count['timeout']} |"
        )
        print(rows[-1])
        print("".join(f"  {name}: {result}\n" for name, result in results.items() if result not in NOTICED), flush=True)
    print("\n".join(("| module | mutants | noticed | of these by the time limit |", "|---|---|---|---|", *rows)))
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
