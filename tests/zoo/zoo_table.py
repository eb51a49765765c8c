"""The zoo's verdicts as a page."""

import platform
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby

from zoo_harness import Verdict

HEAD = """\
# The zoo

**Result**: {identical} of {count} cases identical; full backward hooks change {differs} models and raise on {raises}

{count} cases, {models} of them architectures of torchvision, timm, transformers and diffusers with random weights; the
others are every sample of torch's own `module_db` ({db} modules) and models made to trip a profiler. Each is trained
for two steps bare and instrumented (every module, all phases) from the same seed. `make zoo` makes this page;
`make test-zoo` runs the same cases as tests.

- **identical**: outputs, losses, gradients, parameters, buffers and the generators of torch, Python and numpy are the
  same to the last bit; the user's own hooks fire in the same order with the same objects; the same tensors are alive
  after each step, and a step takes and frees the same memory in the same order.
- **backward**: calls with a backward span, of those whose output received a gradient and whose node ran, as hooks on
  the tensors of the bare run saw it; **leaf**: calls that returned nothing but a leaf of the graph, which no node
  made: the summary counts them as skipped.
- **closes**: spans nest, children + self = parent, phases + other = step, to the nanosecond, on every step.
- **full backward hook**: what becomes of the bare model with `register_full_backward_hook` on every module.

{where}

## Totals

| of | cases | modules | identical | backward | closes | leaf | full backward hook: identical | differs | raises |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def _totals(name: str, verdicts: Sequence[Verdict]) -> str:
    hooks = Counter(verdict.full_backward_hook.split()[0] for verdict in verdicts)
    cells = [
        name,
        len(verdicts),
        sum(verdict.modules for verdict in verdicts),
        sum(one.identical and one.witnessed and one.lean for one in verdicts),
        f"{sum(verdict.covered for verdict in verdicts)} / {sum(verdict.received for verdict in verdicts)}",
        sum(verdict.closes for verdict in verdicts),
        sum(verdict.leaves for verdict in verdicts),
        hooks["identical"],
        hooks["differs"],
        hooks["raises"],
    ]
    return f"| {' | '.join(map(str, cells))} |\n"


def where() -> str:
    """Say which versions these are."""
    parts = [f"Python {platform.python_version()}"]
    for name in ("torch", "torchvision", "timm", "transformers", "diffusers"):
        try:
            parts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(parts) + ", CPU, one thread."


def render(verdicts: Sequence[Verdict]) -> str:
    """Return the page."""
    families = {name: list(group) for name, group in groupby(verdicts, key=lambda one: one.case.split("/")[0])}
    models = sum(len(group) for name, group in families.items() if name not in ("nasty", "torch.nn"))
    modules = len({verdict.case.rsplit(" ", 1)[0] for verdict in families.get("torch.nn", [])})
    hooks = Counter(verdict.full_backward_hook.split()[0] for verdict in verdicts)
    identical = sum(one.identical and one.witnessed and one.lean for one in verdicts)
    text = HEAD.format(
        count=len(verdicts), models=models, db=modules, where=where(), identical=identical, differs=hooks["differs"],
        raises=hooks["raises"],
    )  # fmt: skip
    text += "".join(_totals(name, group) for name, group in families.items())
    text += _totals("all", verdicts)
    for name, group in families.items():
        if name != "torch.nn":
            text += f"\n{name}: {', '.join(verdict.case.split('/', 1)[1] for verdict in group)}.\n"
    failures = [(verdict.case, problem) for verdict in verdicts for problem in verdict.problems]
    if failures:
        text += "\n## What is wrong\n\n" + "".join(f"- {case}: {problem}\n" for case, problem in failures)
    return text
