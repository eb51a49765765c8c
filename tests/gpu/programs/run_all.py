"""Run all programs, bare and under autoprof, one after the other, then check them.

    python run_all.py FOLDER [--only NAME,…] [--total 560] [--limit 40]

FOLDER/NAME has profiled.out, .err, .json (the program's truth), bare1.…, runs/ (autoprof's), explain.json, status.json.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from check import LOOPS, check, kit, page, table

BEGIN = time.monotonic()
LAST = ("13_compile", "14a_reduce_overhead")  # the slow ones come last


def run(name, folder, way, limit, environment):
    """Run a program once; return its exit status, or why it has none."""
    autoprof = [] if way.startswith("bare") else ["-m", "autoprof", "run", "--output", str(folder / "runs")]
    truth = folder / f"{way}.json"
    truth.unlink(missing_ok=True)
    try:
        with open(folder / f"{way}.out", "w") as out, open(folder / f"{way}.err", "w") as err:
            return subprocess.run(
                [sys.executable, *autoprof, str(LOOPS), name],
                cwd=folder,
                env={**os.environ, "COLUMNS": "110", **environment, "TRUTH_SAVE": str(truth)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                timeout=limit,
            ).returncode
    except subprocess.TimeoutExpired:
        return f"TIMEOUT (over {limit:.0f} s)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--only", default="", help="names or beginnings of names, by commas")
    parser.add_argument("--total", type=float, default=560.0, help="seconds for everything")
    parser.add_argument("--limit", type=float, default=40.0, help="seconds for a program")
    parser.add_argument("--page", type=Path, help="write the table to this file as a page")
    options = parser.parse_args()
    base = Path(options.folder).resolve()
    names = [name for name in kit.PROGRAMS if name.startswith(tuple(options.only.split(",")))]
    names.sort(key=lambda name: (name in LAST, name))
    for name in names:
        expected = kit.PROGRAMS[name].expected
        folder = base / name
        folder.mkdir(parents=True, exist_ok=True)
        states = {}
        for way in [*(f"bare{i + 1}" for i in range(expected.get("bare", 0))), "profiled"]:
            left = options.total - (time.monotonic() - BEGIN)
            limit = min(expected.get("limit_s", options.limit), left)
            states[way] = "not run: no time left"
            if left > 3:
                states[way] = run(name, folder, way, limit, expected.get("env", {}))
            print(f"{time.monotonic() - BEGIN:6.1f} s  {name} {way}: {states[way]}", flush=True)
        (folder / "status.json").write_text(json.dumps(states))
    lines = check(base, names)
    text = table(lines)
    if options.page:
        options.page.write_text(page(lines))
    (base / "table.txt").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
