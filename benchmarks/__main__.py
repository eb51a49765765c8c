"""``python -m benchmarks``: measure the figures of README and docs anew, part after part, and write their pages."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from . import pages
from .digest import ROOT, digest
from .machine import describe
from .parts import BUILD, BY_NAME, PARTS, RESULTS, Part

LIMIT: Final = 5
"""A part is ended after so many times its usual minutes."""
INTERRUPTED: Final = 130


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="which parts (default: all but a GPU's)")
    parser.add_argument("--quick", action="store_true", help="only show that the parts run, into build/evidence/quick")
    parser.add_argument("--output", type=Path, help="the folder of the pages (default: benchmarks/results)")
    parser.add_argument("--list", action="store_true", help="print the parts, and measure nothing")
    parser.add_argument("--refresh", action="store_true", help="only bring ages and tables of the docs up to date")
    parser.add_argument("--strict", action="store_true", help="only check: fail where a page is older than the code")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.parts if name not in BY_NAME]:
        parser.error(f"no such part: {', '.join(unknown)}; --list prints all of them")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says. Return 1 where a part failed, was left out by name, or a page is old."""
    options = parse(arguments)
    if options.list:
        print("\n".join(_described(part) for part in PARTS))
        return 0
    if options.strict:
        return check()
    if options.refresh:
        print("\n".join(f"changed {path.relative_to(ROOT)}" for path in pages.refresh()) or "all is up to date")
        return 0
    chosen = [BY_NAME[name] for name in options.parts] or [part for part in PARTS if part.is_for_any_computer]
    output = options.output or (BUILD / "quick" if options.quick else RESULTS)
    return run(chosen, output, quick=options.quick, is_named=bool(options.parts))


def _described(part: Part) -> str:
    lacks = part.missing()
    needs = f"  needs {part.needs or 'the packages ' + ', '.join(part.packages)}" if part.needs or part.packages else ""
    return (
        f"{part.name}: {part.question}\n  {part.minutes} minutes; python -m {part.command or '-'}\n"
        f"  page benchmarks/results/{part.name}.md, about {', '.join(part.code) or 'no code of today'}\n"
        + (f"{needs}{': not here' if lacks else ''}\n" if needs else "")
    )


def check() -> int:
    """Print each page that is missing or older than the code; return 1 where it can be measured without a GPU."""
    old = 0
    for part in PARTS:
        changed = pages.changed_since(pages.read(part)) if part.page.exists() else ["no page"]
        if changed:
            old += part.is_for_any_computer
            print(f"{part.name}: {', '.join(changed)}" + ("" if part.is_for_any_computer else f" (needs {part.needs})"))
    print(f"{old} pages are older than the code" if old else "no page that this needs is older than the code")
    return int(old > 0)


def run(parts: list[Part], output: Path, *, quick: bool, is_named: bool) -> int:
    """Measure the parts one after the other; a failure stops no other, Ctrl-C and SIGTERM keep what is done."""
    states: dict[str, str] = {}
    status = 0
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for number, part in enumerate(parts, 1):
            lacks = "" if quick and "--device sim" in part.quick else part.missing()
            print(f"\n== {number} of {len(parts)}: {part.name}: {part.question} {part.minutes} minutes", flush=True)
            states[part.name] = f"left out: it needs {lacks}" if lacks else "interrupted"
            if not lacks:
                states[part.name] = measure(part, output, quick=quick)
            status |= states[part.name].startswith("FAILED") or bool(lacks and is_named)
            print(f"== {part.name}: {states[part.name]}", flush=True)
    except KeyboardInterrupt:
        status = INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    print("", *(f"{name:16} {state}" for name, state in states.items()), sep="\n")
    return int(status)


def measure(part: Part, output: Path, *, quick: bool) -> str:
    """Run a part's command and put its page into the folder; return how it went."""
    folder = BUILD / "quick" if quick else BUILD
    folder.mkdir(parents=True, exist_ok=True)
    output.mkdir(parents=True, exist_ok=True)
    body, raw = folder / f"{part.name}.body.md", folder / f"{part.name}.json"
    body.unlink(missing_ok=True)
    machine, commit = describe(), pages.commit()
    digests = {path: digest(path) for path in part.code}
    words = f"{part.command} {part.quick if quick else ''}".split()
    program = [] if words[0].endswith(".py") else ["-m"]
    command = [sys.executable, *program, *(word.format(page=body, raw=raw) for word in words)]
    print(f"   {shlex.join(command)}", flush=True)
    began = time.monotonic()
    status = _run(command, part.minutes * 60 * LIMIT)
    took = f"{(time.monotonic() - began) / 60:.1f} minutes"
    if not body.exists():
        return f"FAILED after {took}: exit status {status} and no page"
    page = pages.with_header(body.read_text(encoding="utf-8"), pages.header(part, machine, commit, digests))
    (output / part.page.name).write_text(page, encoding="utf-8")
    if output == RESULTS:
        pages.refresh()
    return f"measured in {took}: {pages.Page(page).result}"


def _run(command: list[str], limit_s: float) -> int:
    """Run a command in a group of processes of its own; end all of the group after the limit, or at Ctrl-C."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    child = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        print(f"   ended after {limit_s / 60:.0f} minutes", flush=True)
        return -signal.SIGKILL
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


if __name__ == "__main__":
    sys.exit(main())
