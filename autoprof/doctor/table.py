"""The report as text: one line a check, then the unseen modules by reason."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .._reports.text import UNICODE, glyphs_for, safe
from .._targets import Coverage
from .result import SAFE, UNSAFE, CheckVerdict, Report

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES: Final = {
    CheckVerdict.OK: "green",
    CheckVerdict.WARNING: "yellow",
    CheckVerdict.PROBLEM: "bold red",
    CheckVerdict.UNKNOWN: "magenta",
}
NAMED: Final = 8
"""Modules listed for one reason; ``--json`` has all."""


def render_report(report: Report, *, width: int, color: bool, encoding: str = "utf-8") -> str:
    """Return the report as text, at most ``width`` columns wide, with colours only if asked for."""
    unicode = glyphs_for(encoding) is UNICODE
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        highlight=False,
        emoji=False,
        markup=False,
    )
    with console.capture() as capture:
        console.print(Text(f"autoprof doctor: {report.subject}", style="bold"))
        console.print(_checks(report, "→" if unicode else "->"))
        if hidden := [one for one in report.modules if one.reason is not None]:
            console.print(Text("\nmodules that are not seen, or not always", style="bold"))
            console.print(_modules(hidden))
        console.print()
        console.print(_verdict(report))
    lines = (line.rstrip() for line in capture.get().splitlines())
    text = "\n".join(line.encode(encoding, "replace").decode(encoding) if not color else line for line in lines)
    return text + "\n"


def _checks(report: Report, arrow: str) -> RenderableType:
    table = Table.grid(padding=(0, 2), expand=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for result in report.results:
        text = Text(safe(result.message))
        if result.next:
            text.append(f"\n{arrow} {safe(result.next)}", style="dim" if result.verdict is CheckVerdict.OK else "")
        table.add_row(Text(str(result.verdict), style=_STYLES[result.verdict]), Text(result.check), text)
    return Padding(table, (1, 0, 0, 0))


def _modules(hidden: list[Coverage]) -> RenderableType:
    groups: dict[str, list[Coverage]] = {}
    for one in hidden:
        groups.setdefault(f"{one.why}", []).append(one)
    table = Table.grid(padding=(0, 2), expand=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(ratio=2, overflow="fold")
    table.add_column(ratio=3, overflow="fold")
    for why, members in groups.items():
        names = ", ".join(_name(one) for one in members[:NAMED])
        rest = len(members) - NAMED
        table.add_row(str(len(members)), safe(why), safe(f"{names}, and {rest} more" if rest > 0 else names))
    return Padding(table, (1, 0, 0, 0))


def _name(one: Coverage) -> str:
    name = f"{one.fqn or 'the model'} ({one.class_name})"
    return f"{name}, {one.missed} of {one.calls + one.missed} runs" if one.missed and one.calls else name


def _verdict(report: Report) -> Text:
    status = report.exit_status
    counted = {verdict: sum(result.verdict is verdict for result in report.results) for verdict in CheckVerdict}
    warnings = counted[CheckVerdict.WARNING]
    behind = f", {warnings} warning{'' if warnings == 1 else 's'}" if warnings else ""
    if status == SAFE:
        return Text(f"safe: autoprof changes nothing here{behind}", style="green")
    if status == UNSAFE:
        return Text(f"not safe: problems found: {counted[CheckVerdict.PROBLEM]}{behind}", style="bold red")
    return Text(
        f"not known to be safe: checks that could not run: {counted[CheckVerdict.UNKNOWN]}{behind}", style="magenta"
    )
