"""``python -m benchmarks.mend``: mend each defect of ``tests/defects``, and write ``benchmarks/results/mend.md``.

``python -m benchmarks.mend NAME…`` runs some of them and writes no page.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from autoprof.cli import main as run_command

from .mender import mend
from .page import page
from .programs import Program, programs

PAGE: Final = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "mend.md"
QUANTITIES: Final = {"step_ns": ("mean step", "step"), "sample_ns": ("throughput",), "wall_ns": ("wall time",)}
"""The lines of ``autoprof compare`` that show a quantity."""


class Result(NamedTuple):
    """One defect: the changed setting, the verdicts of ``compare`` and a second explanation, the healthy twin."""

    name: str
    rule: str
    cause: str
    change: str
    compared: str
    confirmed: bool
    gone: bool
    twin_changed: str

    @property
    def mended(self) -> bool:
        """Whether the change removed the cause, and the comparison proves that it helps."""
        return self.confirmed and self.gone


def main() -> int:
    """Fork a process for each program, because the trainings change the state of their process."""
    wanted, results = sys.argv[1:], []
    for one in programs():
        if wanted and one.name not in wanted:
            continue
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as child:
            result = child.submit(_try, one.name).result()
        results.append(result)
        mark = "mended" if result.mended else "not mended"
        twin = f"  TWIN CHANGED: {result.twin_changed}" if result.twin_changed else ""
        print(f"{mark:<11}{result.name:<34}{result.change:<34}{result.compared}{twin}", flush=True)
    print(f"{sum(one.mended for one in results)} of {len(results)} mended")
    if not wanted:
        PAGE.write_text(page(results), encoding="utf-8")
    return 0


def _try(name: str) -> Result:
    program = next(one for one in programs() if one.name == name)
    with tempfile.TemporaryDirectory() as folder:
        return _mend(program, Path(folder))


def _mend(program: Program, folder: Path) -> Result:
    settings = program.settings(broken=True)
    before = program.run(settings, folder / "broken", broken=True)
    mended = mend(_explain(before), settings)
    compared, confirmed, gone = "", False, False
    if mended.cause is not None:
        after = program.run(mended.settings, folder / "mended", broken=True)
        compared, confirmed = _compare(before, after, mended.cause)
        gone = mended.cause["rule"] not in [one["rule"] for one in _explain(after)["causes"]]
    healthy = program.settings(broken=False)
    twin = mend(_explain(program.run(healthy, folder / "healthy")), healthy)
    cause = "" if mended.cause is None else mended.cause["rule"]
    return Result(program.name, program.defect.rule, cause, mended.change, compared, confirmed, gone, twin.change)


def _explain(run: Path) -> dict[str, Any]:
    return dict(json.loads(_autoprof("explain", str(run), "--json")))


def _compare(before: Path, after: Path, cause: dict[str, Any]) -> tuple[str, bool]:
    """Return the line of ``autoprof compare`` for the expected quantity, and whether it proves that it fell."""
    found = json.loads(_autoprof("compare", str(before), str(after), "--json"))
    quantity = cause["experiment"]["expect"]["quantity"]
    lines = found["memory"] if quantity.endswith("_bytes") else found["whole"]
    names = QUANTITIES.get(quantity)  # the first one is shown where nothing is proven
    named = lines if names is None else [one for name in names for one in lines if one["name"] == name]
    proven = [one for one in named if one["verdict"] in ("faster", "less")]
    shown = (proven or named or [None])[0]
    if shown is None:
        return "not compared", False
    ratio = "?" if shown["ratio"] is None else f"{100 * (shown['ratio'] - 1):+.0f} %"
    return f"{shown['name'].removesuffix('_bytes').replace('_', ' ')} {ratio}, {shown['verdict']}", bool(proven)


def _autoprof(*arguments: str) -> str:
    """Run the command in this process, and return its output."""
    written = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(written):
        status = run_command(arguments)
    if status:
        raise RuntimeError(f"autoprof {' '.join(arguments)}: exit status {status}")
    return written.buffer.getvalue().decode()


if __name__ == "__main__":
    raise SystemExit(main())
