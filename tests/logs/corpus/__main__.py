"""``python -m tests.logs.corpus``: read every log, print wrong values, write docs/log-corpus.md."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # not this folder: those of the tools have the names of packages

from log_truth import EXPECTED_FAILURES, Verdict, judge, truths  # noqa: E402

LOOPS = {"chinese", "loops"}
"""Folders of loops that people write themselves: of no tool."""
PAGE = HERE.parents[2] / "docs" / "log-corpus.md"


def main(arguments: list[str] | None = None) -> int:
    """Read, print, write. Return 1 when a log has a wrong value that is not known."""
    parser = argparse.ArgumentParser(prog="python -m tests.logs.corpus", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="only logs whose path has this text; writes nothing")
    parser.add_argument(
        "--folder", type=Path, help="logs and truths of another folder, such as unseen ones; writes nothing"
    )
    parser.add_argument(
        "--list-failures", action="store_true", help="write the logs that fail to expected_failures.txt"
    )
    options = parser.parse_args(arguments)
    verdicts = [judge(truth) for truth in truths(options.folder) if options.only in str(truth)]
    for verdict in verdicts:
        if verdict.wrong or options.only or options.folder:
            print(f"{verdict.name}: {verdict.right} right, {verdict.absent} absent {verdict.missing or ''}")
            for line in verdict.wrong:
                print(f"    {line}")
    failures = [verdict.name for verdict in verdicts if verdict.wrong]
    right, absent = sum(verdict.right for verdict in verdicts), sum(verdict.absent for verdict in verdicts)
    print(f"{len(verdicts)} logs, {len(failures)} with wrong values; {right} values right, {absent} absent")
    if options.folder:
        return int(bool(failures))
    if options.list_failures:
        EXPECTED_FAILURES.write_text("".join(f"{name}\n" for name in failures), "utf-8")
    if not options.only:
        PAGE.write_text(page(verdicts), "utf-8")
    return int(bool(failures))


def page(verdicts: list[Verdict]) -> str:
    """Render the page: a row per tool."""
    tools: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        tools[verdict.log.parent.name].append(verdict)
    negative = tools.pop("none", [])
    failures = sum(bool(verdict.wrong) for verdict in verdicts)
    count = len(tools.keys() - LOOPS)
    lines = [
        "# Which values are read of the logs of other tools?",
        "",
        f"`python -m tests.logs.corpus` reads {len(verdicts)} small logs in the formats of {count} tools and",
        "writes this page. The numbers in the logs are made up; each log has a file with the true values",
        "([tests/logs/corpus](../tests/logs/corpus/README.md)). A value is *right* if the log prints it, for that",
        "step and in that meaning; *absent* if the log prints it and it is not read. A log is *wrong* if one value is",
        "claimed that is not in it: a mean as a step's time, a validation's time as training's, a part as the whole.",
        "",
        f"{len(verdicts) - failures} of {len(verdicts)} logs are read without a wrong value. Of {len(negative)} files",
        "without a training record (settings, package lists, stack traces, tables of data)",
        f"{sum(not verdict.wrong for verdict in negative)} are refused.",
        "",
        "| tool | logs | values right | absent | logs with wrong values | absent columns |",
        "|---|---|---|---|---|---|",
    ]
    for tool, group in sorted(tools.items()):
        missing = sorted({column for verdict in group for column in verdict.missing})
        lines.append(
            f"| {tool} | {len(group)} | {sum(v.right for v in group)} | {sum(v.absent for v in group)} | "
            f"{sum(bool(v.wrong) for v in group) or ''} | {', '.join(missing)} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
