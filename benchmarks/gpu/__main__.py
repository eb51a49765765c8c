"""``python -m benchmarks.gpu``: the tests, the promises and the cost on a machine with CUDA."""

from __future__ import annotations

import faulthandler
import sys
import warnings
from typing import Any

NO_DEVICE = 2
"""The exit status where there is no such device."""
GRACE_S = 40
"""After the limit of time a part may still end; then the process is ended, with the stacks of all threads."""


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write. Return 1 when something does not hold, 2 where there is no such device."""
    from ..table import parser, write, write_raw
    from .run import PARTS, Options, run
    from .table import page, passed
    from .target import NAMES, NoDeviceError, find_target

    made = parser("benchmarks.gpu", __doc__)
    made.add_argument("--device", choices=NAMES, default="cuda", help="sim: try the run on the simulated accelerator")
    made.add_argument("--parts", default=",".join(PARTS), help="which parts, by comma (default: %(default)s)")
    made.add_argument("--models", default="layers,reference,gpt", help="which models, by comma (default: %(default)s)")
    made.add_argument("--size", choices=("tiny", "small", "large"), help="of the reference workload (default: large)")
    made.add_argument("--rounds", type=int, help="turns of each variant (default: 20; quick: 1)")
    made.add_argument("--minutes", type=float, default=9, help="limit of the whole run (default: %(default)s)")
    given = made.parse_args(arguments)
    try:
        target = find_target(given.device)
    except NoDeviceError as error:
        print(f"benchmarks.gpu: {error}", file=sys.stderr)
        return NO_DEVICE
    options = Options(
        parts=tuple(given.parts.split(",")),
        models=tuple(given.models.split(",")),
        size=given.size or ("tiny" if given.quick else "large"),
        rounds=given.rounds or (1 if given.quick else 20),
        quick=given.quick,
        seconds=60 * given.minutes,
    )

    def save(results: dict[str, Any]) -> None:
        write_raw(given, results)

    warnings.filterwarnings("ignore", message="Full backward hook is firing|For backward hooks to be called")
    faulthandler.dump_traceback_later(options.seconds + GRACE_S, exit=True)
    try:
        results = run(target, options, save)
    finally:
        faulthandler.cancel_dump_traceback_later()
    write(given, page(results))
    for part, text in results["failed"].items():
        print(f"\n{part}:\n{text}")
    if not results.get("tests", {"passed": True})["passed"]:
        print(f"\n{results['tests']['output']}")
    return 0 if passed(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
