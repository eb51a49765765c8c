"""Render the results as one page of tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

INTRO: Final = """\
# Rows inside compiled graphs

`python -m benchmarks.compiled` compares the rows with a referee that was written without knowledge of autoprof's
source. Every module is a target. Each model runs in a process of its own.
"""
BOUNDS: Final = {"transformer": 0.05, "convolution": 0.10}
"""The largest share of the model's time in rows of several blocks."""
_COSTS: Final = (
    ("recorded", "recorded step / bare step", "≤ 1.01"),
    ("unrecorded", "unrecorded step / bare step", "1.00"),
)
Results = Mapping[str, Mapping[str, Any]]


def render(results: Mapping[str, Any]) -> str:
    """Return the page."""
    parts: Mapping[str, Results] = {part: results.get(part) or {} for part in ("truth", "growth", "models", "cost")}
    lines = [INTRO]
    if machine := results.get("machine"):
        lines.append(
            f"{machine['cpu']}, {machine['usable_cores']} cores, torch {machine['torch']}, {machine['date'][:10]}."
        )
        lines.append("")
    lines += ["| figure | wanted | measured |", "|---|---|---|"]
    lines += [_line(*figures) for figures in _figures(parts)]
    lines += ["", *(f"- {remark}" for remark in results.get("remarks", ()))]
    for part, render_part in (("truth", _truth), ("growth", _growth), ("models", _models), ("cost", _cost)):
        if parts[part]:
            lines += ["", *render_part(parts[part])]
            lines += ["", *_problems(parts[part])]
    return "\n".join(lines).rstrip() + "\n"


def _line(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _counted(results: Results, *verdicts: str) -> int:
    return sum(one["verdict"] in verdicts for one in results.values())


def _judged(results: Results) -> int:
    return _counted(results, "right", "wrong", "whole", "failed")


def _figures(parts: Mapping[str, Results]) -> Iterator[tuple[Any, ...]]:
    """Yield each figure with its bound and its measured value."""
    models = [one for one in parts["models"].values() if "again" in one]
    sites = {key: sum(one["sites"][key] for one in models) for key in (models[0]["sites"] if models else ())}
    if models:
        calls = sites["joined"] + sites["unknown"] + sites["missing"]
        yield f"kernel call sites joined, of {calls} in {len(models)} models", "100 %", f"{sites['joined'] / calls:.2%}"
        yield "kernels with an owner", "≥ 99 %", f"{sites['owned'] / sites['joined']:.2%}"
        yield "bytes of kernels without an owner", "≤ 1 %", f"{sites['bytes_unowned'] / max(1, sites['bytes']):.2%}"
    for part, name in (("truth", "row against truth, 2 % or 0.4 ms, 0.1 ms more for each further operation: models"),
                       ("growth", "the row of the longer module grows, no other: pairs")):  # fmt: skip
        if parts[part]:
            whole = _counted(parts[part], "whole")
            more = f", {whole} timed whole with the reason" if whole else ""
            yield name, "all", f"{_counted(parts[part], 'right')} of {_judged(parts[part])}{more}"
    for family, bound in BOUNDS.items():
        shares = [_across(one) for one in models if one["family"] == family and one["shares"]]
        if shares:
            kept = sum(share <= bound for share in shares)
            most = f"{kept} of {len(shares)} models, at most {max(shares):.1%}"
            yield f"time in rows of several blocks, {family} nets", f"≤ {bound:.0%}", most
    if models:
        extra = sum(
            abs(one[run]["graphs"] - one["bare"]["compile"]["graphs"])
            for one in (_runs(model) for model in models)
            for run in ("first", "again")
        )
        yield "extra graphs, among them recompilations", 0, extra
        misses = sum(one["bare"]["compile"]["misses"] + one["again"]["compile"]["misses"] for one in models)
        yield "cache misses in a second process, bare or observed", 0, misses
        equal = sum(
            one["bits"] == one["bare"]["bits"] == one["again"]["bits"]
            and not any("bits" in wrong for former in one.get("former", ()) for wrong in former.get("wrong", ()))
            for one in models
        )
        yield (
            "bits of outputs, gradients, parameters against the bare model",
            "equal",
            f"{equal} of {len(models)} equal",
        )
    cost = [one for one in parts["cost"].values() if "unrecorded" in one]
    for kind, title, wanted in _COSTS:
        if cost:
            yield title, wanted, ", ".join(f"{one[kind]['ratio']:.3f}" for one in cost)


def _across(model: Mapping[str, Any]) -> float:
    """Return the share of rows of several blocks, in that of both processes in which other programs took less time."""
    return float(min(run["shares"].get("across", 0.0) for run in (model, model["again"])))


def _runs(model: Mapping[str, Any]) -> dict[str, Any]:
    return {"first": model["compile"], "again": model["again"]["compile"], "bare": model["bare"]}


def _problems(results: Results) -> Iterator[str]:
    for name, one in results.items():
        for former in one.get("former", ()):
            why = "; ".join(former.get("wrong", ())) or former.get("error", "").splitlines()[-1:]
            yield f"- {name}: measured again; before: {former['verdict']}: `{why}`"
        for wrong in one.get("wrong", ()) if one["verdict"] == "wrong" else ():
            yield f"- {name}: `{wrong}`"
        if one["verdict"] in ("failed", "not run"):
            yield f"- {name}: {one['verdict']}: `{one['error'].splitlines()[-1]}`"
        if one["verdict"] == "whole":
            yield f"- {name}: timed whole: {one['reasons'][0].rpartition('around them: ')[2]}"


def _truth(results: Results) -> Iterator[str]:
    yield f"## Operations of known length: {_counted(results, 'right')} of {_judged(results)} models right"
    yield ""
    yield (
        "A row is compared with the operations' own clock, step by step; the largest difference of a row's median is "
        "given as a share of the allowed one: 2 % or 0.4 ms, and 0.1 ms for each further operation in the row."
    )
    yield ""
    yield "| model | rows | largest difference | verdict | |"
    yield "|---|---|---|---|---|"
    for name, one in results.items():
        yield _line(name, one.get("rows", "-"), _share(one.get("worst")), one["verdict"], one.get("note", ""))


def _growth(results: Results) -> Iterator[str]:
    yield f"## One module does ten times the work: {_counted(results, 'right')} of {_judged(results)} pairs right"
    yield ""
    yield (
        "Milliseconds by which the phase, the module's row, and the rows of kernels that compute parts of it and of "
        "another module grew. A phase that grew by less than 2 ms is not judged."
    )
    yield ""
    yield "| pair | module | forward: step, row + fused rows | backward: step, row + fused rows | verdict | |"
    yield "|---|---|---|---|---|"
    for name, one in results.items():
        phases = one.get("phases", {})
        cells = [
            f"{phases[phase]['step']:.1f}, {phases[phase]['row']:.1f} + {phases[phase]['fused']:.1f}"
            if phase in phases
            else "-"
            for phase in ("forward", "backward")
        ]
        yield _line(name, f"`{one.get('path', '')}`", *cells, one["verdict"], one.get("note", ""))


def _models(results: Results) -> Iterator[str]:
    done = _counted(results, "right", "wrong")
    yield f"## Families of models: {_counted(results, 'right')} of {done} right"
    yield ""
    yield "| model | family | graphs | call sites: joined, owned | bytes unowned | several blocks | runtime | verdict |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, one in results.items():
        if "again" not in one:
            yield _line(name, *["-"] * 6, one["verdict"])
            continue
        sites, shares = one["sites"], one["shares"]
        calls = sites["joined"] + sites["unknown"] + sites["missing"]
        unowned = f"{sites['bytes_unowned'] / max(1, sites['bytes']):.1%}"
        yield _line(
            name, one["family"], one["compile"]["graphs"], f"{sites['joined']} of {calls}, {sites['owned']}", unowned,
            _share(_across(one)), _share(shares.get("runtime")),
            one["verdict"] + "; bits differ in the bare model itself" * one.get("bits_vary", False),
        )  # fmt: skip


def _cost(results: Results) -> Iterator[str]:
    yield "## Cost of a step"
    yield ""
    yield (
        "Blocks of bare, recorded and unrecorded steps train the same model in one process, with the default's rows. "
        "Ratios are medians over adjacent blocks, with their 95 % interval."
    )
    yield ""
    yield "| model | bare step | spans in a step | " + " | ".join(title for _, title, _ in _COSTS) + " |"
    yield "|---|---|---|---|---|"
    for name, one in results.items():
        if "unrecorded" in one:
            cells = [
                f"{one[kind]['ratio']:.3f} [{one[kind]['low']:.3f}, {one[kind]['high']:.3f}]" for kind, *_ in _COSTS
            ]
            yield _line(name, f"{one['bare_ms']:.1f} ms", one["spans"], *cells)


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
