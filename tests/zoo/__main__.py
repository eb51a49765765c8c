"""``python -m tests.zoo``: run the cases, print the table, and write it to a page."""

import argparse
import os
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "engine")]


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write. Return 1 when anything is wrong with any case."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the cases that need no package of the extra 'zoo'")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name has this text")
    parser.add_argument("--each", type=int, default=1, metavar="N", help="only each Nth case (default: all of them)")
    parser.add_argument("--page", type=Path, help="write the page to this file; it is printed as well")
    options = parser.parse_args(arguments)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler says on stderr when it starts and stops
    warnings.simplefilter("ignore")
    from zoo_harness import run_case
    from zoo_registry import all_cases, quick_cases
    from zoo_table import render

    cases = [case for case in (quick_cases() if options.quick else all_cases()) if options.only in str(case)][
        :: options.each
    ]
    verdicts = []
    for number, case in enumerate(cases, 1):
        verdict = run_case(case)
        verdicts.append(verdict)
        print(f"{number}/{len(cases)} {'ok' if verdict.passed else 'WRONG'} {case}", file=sys.stderr, flush=True)
    page = render(verdicts)
    print(page)
    if options.page is not None:
        options.page.write_text(page, encoding="utf-8")
    return int(not all(verdict.passed for verdict in verdicts))


if __name__ == "__main__":
    raise SystemExit(main())
