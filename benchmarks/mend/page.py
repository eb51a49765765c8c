"""The page of results, ``benchmarks/results/mend.md``."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .__main__ import Result

HEAD: Final = """# Can a program mend programs with `autoprof explain`?

{mended} of {all} defects of `tests/defects` are mended by a program that reads only `autoprof explain --json`.
{twins} of {all} healthy twins are left as they are.

<!-- Made by `python -m benchmarks.mend`. -->

```
python -m benchmarks.mend
```

For each defect the command

1. trains the program with its defect, and saves the run;
2. gives `explain.json` and the program's settings to `benchmarks/mend/mender.py`, which changes one setting;
3. trains again, and asks `autoprof compare` whether the quantity that was expected to fall has fallen;
4. explains the second run: the cause must be gone;
5. does the same with the healthy twin: no setting may change.

All programs have the same {settings} settings, such as `num_workers`, `batch_size`, `every[torch.save]` and the code of
each module. The defect is the value of one of them, and the mender does not know which. It applies the first cause
whose experiment fits a setting.

The trainings are those of `tests/defects`: most run on a fake clock, which the operators advance. So this page
shows that the advice leads to the right setting. What that gains on a machine, `autoprof compare` says there.

| defect | cause that was applied | change | `autoprof compare` | mended | healthy twin |
|---|---|---|---|---|---|
"""


def page(results: Sequence[Result]) -> str:
    """Return the page as Markdown."""
    from .programs import SETTINGS

    settings = sum(len(value) if isinstance(value, dict) else 1 for value in SETTINGS.values())
    twins = sum(not one.twin_changed for one in results)
    head = HEAD.format(mended=sum(one.mended for one in results), all=len(results), twins=twins, settings=settings)
    rows = [
        f"| {one.name} | {one.cause or '-'} | {f'`{one.change}`' if one.change else 'none'} | {one.compared or '-'} "
        f"| {'yes' if one.mended else 'no'} | {one.twin_changed or 'unchanged'} |"
        for one in results
    ]
    return head + "\n".join(rows) + "\n" + _why(results)


def _why(results: Sequence[Result]) -> str:
    """Return the paragraphs on the defects that are not mended."""
    left = [one.name for one in results if not one.cause]
    unproven = [one.name for one in results if one.cause and not one.mended]
    if not left and not unproven:
        return ""
    parts = ["## Why are some not mended?"]
    if left:
        parts.append(
            "Without a change: the explanation names no cause that a setting changes, because the machine, "
            "another rank or the profiler itself has to change, or because other processes made the run uncertain: "
            f"{'; '.join(left)}."
        )
    if unproven:
        parts.append(
            "Changed, but not proven. Time outside of steps does not pass on the fake clock; of memory there is one "
            "largest reading a run, which proves nothing between two runs; and these programs do not use each setting "
            "of memory. On a busy machine programs on the real clock vary too much, too: "
            f"{'; '.join(unproven)}."
        )
    return "\n" + "\n\n".join(fill(part, 120, break_on_hyphens=False) for part in parts) + "\n"
