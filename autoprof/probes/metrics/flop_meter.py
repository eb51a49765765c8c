"""FLOPs of the steps: each sequence of input shapes is counted once, and divided by the time of its steps."""

from __future__ import annotations

import gc
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from types import FunctionType, ModuleType
from typing import Any, Final, NamedTuple
from weakref import ref

import torch
from torch import nn

from ...base.allowance import Allowance
from ...base.frame import MODULE_PHASES, Phase
from ...base.stats.name_lines import Line, name_lines, walk
from ...base.summary import HIGHER_ORDER, POSTPONED, Summary, UnfusedAttention, Work, WorkKind, WorkRow
from ...base.units import NS_PER_S
from ...capture import recorder
from ...devices import Peak, Tf32Flags, device_of
from .flops import TOO_LONG, FlopCount, FlopKey, ModelCall, count_call, trained_parameters, weighted_sum
from .model_calls import MAX_SHAPES, StepCalls
from .utilization import Utilization, peak_seconds, utilization

MODULE_NS: Final = 5_000_000
"""Estimated time of a count for each module: some 30 operators, forward and backward, at 0.15 ms."""

FIRST_NS: Final = 200_000_000
"""Extra time of a process's first count, in which torch imports its formulas."""
MORE: Final = 4
"""Times as long as a count that was stopped the next one may take."""
MAX_OBJECTS: Final = 20_000
"""Objects that are looked at behind a model's attributes, in some ten milliseconds: five hundred modules."""
OUTSIDE: Final = "modules of the model are called outside of a call of the model itself"
PASSES: Final = "the step runs more backward passes than its calls of the model explain"
CHANGED: Final = "parameters were frozen or unfrozen during the run"
DROPPED: Final = "the program dropped the model before its FLOPs were counted"
TOO_MANY: Final = f"the shapes of the inputs differ in more than {MAX_SHAPES} ways"


class DevicePeak(NamedTuple):
    """The peak FLOP/s of the model's device and its settings; without ``peak`` there is a ``reason``."""

    name: str | None = None
    peak: Peak | None = None
    reason: str | None = None
    flags: Tf32Flags = Tf32Flags(matmul=False, conv=False)


class CountedCall(NamedTuple):
    """A call of the model that is counted once: its shape's number, and whether a backward follows."""

    shape: int
    backward: bool


Parts = dict[str, tuple[FlopCount, Mapping[str, int]]]
"""The FLOPs of the modules of each name that was asked for, and the same by phase."""


class FlopMeter:
    """Count the FLOPs of each sequence of model calls in a step, and divide them by the steps' time.

    A count takes some milliseconds of the training thread for each module. It is postponed until ``during`` affords it;
    a run that ends before is counted when it is closed, if ``at_end`` affords that. The program may have dropped the
    model by then, as at the end of its ``main``: until it is counted its attributes are held, unless they lead back to
    it, so that it could never be dropped. The device's peak is found at the first count, because a model may move to
    its device after set-up; ``place`` is that of a model without parameters. ``parts`` are the modules whose calls are
    counted, by fqn: the model itself, or those that are called in its place, as far as they are known.
    """

    def __init__(
        self,
        model: nn.Module,
        parts: Mapping[str, ref[nn.Module]],
        targets: Iterable[tuple[str, str]],
        during: Allowance,
        at_end: Allowance,
        place: torch.device,
    ) -> None:
        self._names: dict[str, set[str]] = defaultdict(set)
        """The names of each fqn."""
        for name, fqn in targets:
            self._names[fqn].add(name)
        self._during, self._at_end = during, at_end
        self._models = parts
        self._held: dict[str, tuple[type[nn.Module], dict[str, Any]]] = {}
        """The class and the attributes of each part, while a call is still to be counted."""
        self._may_hold: bool | None = None
        self._stopped = False
        """Whether a count took too long."""
        self._modules = sum(1 for _ in model.modules())
        self._place = place
        self._peak: DevicePeak | None = None
        self._next_ns = FIRST_NS + MODULE_NS * self._modules
        """The estimated time of the next count; after the first one, by the one before."""
        self._steps: Tally[tuple[CountedCall, ...]] = Tally()
        """The recorded steps with each sequence of calls."""
        self._reasons: set[str] = set()
        """Why there is no figure."""
        self._shapes: list[ModelCall] = []
        self._counts: dict[CountedCall, FlopCount] = {}
        self._forwards: dict[CountedCall, FlopCount] = {}
        """Of the counts that were stopped in the backward."""
        self._mean: tuple[Any, FlopCount, Parts] | None = None
        """The FLOPs of a mean step; first, the steps of which it is the mean and the shares of their backward."""

    def add_steps(self, calls: StepCalls, shapes: list[ModelCall], *, warmup: bool, steps: int = 1) -> None:
        """Add equal steps with these calls of the model; count their FLOPs if due."""
        self._shapes = shapes
        if calls.is_unknown:
            return
        backward = [shapes[number].backward and calls.passes != 0 for number in calls.shapes if number >= 0]
        reason = _reason(calls, backward)
        sequence = tuple(CountedCall(*one) for one in zip(calls.shapes, backward, strict=False))
        if sequence not in self._steps and len(self._steps) >= MAX_SHAPES:
            reason = reason or TOO_MANY
        if reason:
            if not warmup or calls.outside:  # only the first step with a shape shows calls outside
                self._reasons.add(reason)
        else:
            if not warmup:
                self._steps[sequence] += steps
            for call in sequence:
                known = self._models.get(shapes[call.shape].part)
                model = None if known is None else known()
                if model is not None and call not in self._counts and self._during.affords(self._next_ns):
                    self._count(model, call, self._during)
        self._hold()

    def _living(self) -> dict[str, nn.Module]:
        """Return the parts that the program has not dropped."""
        return {part: model for part, known in self._models.items() if (model := known()) is not None}

    def _hold(self) -> None:
        """Hold the attributes of a model that is not counted yet, and let go of those of one that is."""
        models = self._living()
        if not models:
            return
        if self._reasons or self._stopped or self._is_counted():
            self._held = {}
            return
        if self._may_hold is None:
            with self._during.work():  # an end would be called a second time
                self._may_hold = not any(
                    hasattr(type(model), "__del__") or _leads_to(vars(model), model) for model in models.values()
                )
        if self._may_hold:
            self._held |= {part: (type(model), vars(model)) for part, model in models.items()}

    def _count(self, model: nn.Module, call: CountedCall, allowance: Allowance) -> None:
        active, recorder.active = recorder.active, None  # spans of this forward belong to no step
        try:
            with allowance.work():
                spent_ns = allowance.spent_ns
                wanted = replace(self._shapes[call.shape], backward=call.backward)
                count = count_call(model, wanted, lambda: allowance.affords(0), allowance.processor_ns)
                count = count.within(wanted.part)
        finally:
            recorder.active = active
        took_ns = allowance.spent_ns - spent_ns
        if count.reason == TOO_LONG:
            self._stopped = True
            self._next_ns = MORE * took_ns
            if count.operators:
                self._forwards[call] = replace(count, reason=None)
            return
        self._counts[call] = count
        self._next_ns = took_ns
        if self._peak is None:
            self._peak = peak_of(model, self._place)

    def finish(self) -> None:
        """Count the calls that are not counted yet, those of most steps first, unless that takes too long."""
        held, self._held = self._held, {}
        models = self._living()
        for part, (kind, attributes) in held.items() if not self._reasons else ():
            with suppress(Exception):  # a class may be written in C, and have attributes of its own
                if part not in models:
                    made = object.__new__(kind)
                    object.__setattr__(made, "__dict__", attributes)
                    models[part] = made
        self._compare_trained(models)
        self._count_rest(models)

    def _is_counted(self) -> bool:
        return all(call in self._counts for sequence in self._steps for call in sequence)

    def _compare_trained(self, models: Mapping[str, nn.Module]) -> None:
        for part, model in models.items():
            known = {call.trained for call in self._shapes if call.part == part}
            if known and trained_parameters(model) not in known:
                self._reasons.add(CHANGED)

    def _count_rest(self, models: Mapping[str, nn.Module]) -> None:
        for call in [call for sequence, _ in self._steps.most_common() for call in sequence]:
            model = models.get(self._shapes[call.shape].part)
            if model is not None and call not in self._counts and self._at_end.affords(self._next_ns):
                self._count(model, call, self._at_end)

    def by_shapes(self) -> dict[tuple[int, ...], int]:
        """Return the operations of each sequence of shapes that is counted."""
        found = {}
        for sequence in self._steps:
            counts = [self._counts[call].flops() for call in sequence if call in self._counts]
            if len(counts) == len(sequence) and None not in counts:
                found[tuple(call.shape for call in sequence)] = sum(one or 0 for one in counts)
        return found

    def work(self, summary: Summary) -> Work | None:
        """Return the FLOPs of a mean step and the utilization of the device; None without a recorded step."""
        if not summary.steps or not (self._steps or self._reasons):
            return None
        models = self._living()
        self._compare_trained(models)
        if self._reasons:
            return Work(reason="; ".join(sorted(self._reasons)))
        if not self._is_counted():
            return Work(reason=POSTPONED if models else DROPPED, rows=tuple(self._forward_rows()))
        return self._work(summary)

    def _forward_rows(self) -> Iterator[WorkRow]:
        """Yield the work of the forward, where that is known of each call."""
        counts, whole = {**self._forwards, **self._counts}, sum(self._steps.values())
        if all(call in counts for sequence in self._steps for call in sequence):
            mean = weighted_sum((counts[call], n / whole) for sequence, n in self._steps.items() for call in sequence)
            for name, part in _parts(mean, self._names).items() if mean.reason is None else ():
                one = _row(name, part)
                known = one.flops, one.moved, one.operators, one.python
                flops, moved, operators, python = ({"forward": by.get("forward", 0)} for by in known)
                yield WorkRow(name, flops, moved=moved, operators=operators, python=python)

    def _work(self, summary: Summary) -> Work:
        mean, parts = self._mean_step(self._used(summary))
        if mean.reason is not None:
            return Work(reason=mean.reason, notes=mean.notes)
        # With one sequence of shapes the median is the time of a step; else the mean time belongs to the mean FLOPs.
        step_ns = summary.step_p50_ns if len(self._steps) == 1 else summary.step_mean_ns
        device = self._peak or DevicePeak(reason="the device is not known yet")
        found = utilization(mean, step_ns, device.peak, device.flags)
        form = "" if device.peak is None else f" ({device.peak.form_factor})"
        return Work(
            flops=_by_phase(mean),
            flops_per_s=found.model_flops_per_s,
            mfu=found.mfu,
            hfu=found.hfu,
            no_peak=found.reason or device.reason,
            peak=None if device.peak is None else f"{device.name}{form}",
            notes=mean.notes,
            rows=tuple(_rows(summary, parts, device)),
            members=tuple(_members(summary, mean)),
            kinds=tuple(_kinds(mean, device)),
            attention=tuple(_attention(mean)),
            alike=all(len({self._shapes[call.shape].leaves for call in sequence}) == 1 for sequence in self._steps),
            without_graph=tuple(sorted(line for line, makes_graph in mean.lines.items() if not makes_graph)),
            one_hot=tuple(sorted(mean.one_hot)),
        )

    def _used(self, summary: Summary) -> dict[str, float]:
        """Return the backwards of each part's calls with a graph, as their rows count them, where that is not one each.

        Where several models are called in turns, each makes graphs that some of the losses do not reach: of a generator
        whose output is detached, of a teacher; and two losses go through one graph twice.
        """
        counted, called = Tally[str](), Tally[str]()
        for sequence, steps in self._steps.items():
            for call in sequence:
                part = self._shapes[call.shape].part
                counted[part] += steps * call.backward
                called[part] += steps
        calls = {(row.fqn, row.phase): row.calls for row in summary.rows if row.fqn is not None}
        if len(self._models) < 2 or not any(phase is Phase.BACKWARD for _, phase in calls):
            return {}
        found: dict[str, float] = {}
        for part in self._models:
            forward, backward = (calls.get((part, phase), 0) for phase in (Phase.FORWARD, Phase.BACKWARD))
            within = (fqn for fqn, phase in calls if phase is Phase.BACKWARD)
            if forward and (backward or not any(f"{fqn}.".startswith(f"{part}.") for fqn in within)):
                share = round(backward / forward * called[part] / max(counted[part], 1), 2)
                found |= {part: share} if share != 1 else {}
        return found

    def _mean_step(self, used: Mapping[str, float]) -> tuple[FlopCount, Parts]:
        """Return the FLOPs of a mean step, and of each name; computed anew where steps of several kinds have come."""
        steps = dict(self._steps) if len(self._steps) > 1 else dict.fromkeys(self._steps, 1)
        if self._mean is None or self._mean[0] != (steps, used):
            whole = sum(steps.values())
            mean = weighted_sum((self._counts[call], n / whole) for sequence, n in steps.items() for call in sequence)
            mean = mean.with_backward(used)
            parts: Parts = {name: (work, _by_phase(work)) for name, work in _parts(mean, self._names).items()}
            self._mean = (steps, used), mean, parts
        return self._mean[1], self._mean[2]


def _leads_to(start: object, target: object) -> bool:
    """Return whether an object leads to another one, or to more than ``MAX_OBJECTS``."""
    seen, waiting = {id(start)}, [start]
    while waiting and len(seen) <= MAX_OBJECTS:
        one = waiting.pop()
        if one is target:
            return True
        # What a function finds by its module is there as long as the module.
        inside = (one.__closure__, one.__defaults__, vars(one)) if isinstance(one, FunctionType) else (one,)
        for found in gc.get_referents(*inside):
            if id(found) not in seen and not isinstance(found, (type, ModuleType)):
                seen.add(id(found))
                waiting.append(found)
    return bool(waiting)


def _rows(
    summary: Summary,
    parts: Parts,
    device: DevicePeak,
) -> Iterable[WorkRow]:
    lines = {line.name: line for line, _, _ in walk(name_lines(summary)[0])}
    for name, (work, flops) in parts.items():
        line = lines.get(name)
        if line is None:
            continue
        found = _rates(work, line, summary.steps, device)
        double = sum(count for kind, count in work.kinds().items() if kind.dtype == "float64")
        yield replace(
            _row(name, work),
            flops=flops,
            flops_per_s=found.model_flops_per_s,
            mfu=found.mfu,
            hfu=found.hfu,
            double_flops=double,
        )


def _row(name: str, work: FlopCount) -> WorkRow:
    moved, operators, python = map(_counts_by_phase, (work.moved, work.operators, work.python))
    return WorkRow(name, _by_phase(work), moved=moved, operators=operators, python=python)


def _members(summary: Summary, work: FlopCount) -> Iterable[WorkRow]:
    """Yield the work of the slowest module of each shared row, with all inside it."""
    slowest = {row.slowest.fqn for row in summary.rows if row.slowest is not None}
    for fqn, part in _parts(work, {fqn: (fqn,) for fqn in sorted(slowest)}).items():
        yield _row(fqn, part)


def _kinds(work: FlopCount, device: DevicePeak) -> Iterable[WorkKind]:
    for kind, flops in sorted(work.kinds().items()):
        seconds = peak_seconds(kind, flops, device.peak, device.flags)
        now, half = (None if one is None else one * NS_PER_S for one in seconds)
        yield WorkKind(kind.dtype, kind.family, flops, now, half)


def _attention(work: FlopCount) -> Iterable[UnfusedAttention]:
    for by_sdpa in (False, True):
        found = {fqn: flops for (fqn, by), flops in work.attention.items() if by is by_sdpa}
        if found:
            yield UnfusedAttention(sum(found.values()), len(found), next(iter(found)), by_sdpa)


def _reason(calls: StepCalls, backward: list[bool]) -> str:
    """Return the reason where the FLOPs of a step cannot be known, or an empty string."""
    if calls.differentiable:
        return HIGHER_ORDER
    if not calls.shapes:
        return "no recorded step called the model as a whole"
    if calls.outside:
        return OUTSIDE
    if len(backward) < len(calls.shapes):
        return TOO_MANY
    return PASSES if calls.passes is not None and calls.passes > max(sum(backward), 1) else ""


def _by_phase(work: FlopCount) -> dict[str, int]:
    return {str(phase): work.flops(phases=phase) or 0 for phase in MODULE_PHASES}


def _counts_by_phase(counts: Mapping[tuple[str, Phase], int]) -> dict[str, int]:
    found = Tally[str]()
    for (_, phase), count in counts.items():
        found[str(phase)] += count
    return dict(found)


def _parts(work: FlopCount, names: Mapping[str, Iterable[str]]) -> dict[str, FlopCount]:
    """Return for each name the FLOPs of its modules (``names`` has those of each fqn) and all inside them."""
    found: dict[str, dict[FlopKey, int]] = defaultdict(dict)
    for key, flops in work.rows.items():
        for name in _names_around(key.fqn, names):
            found[name][key] = flops
    moved, operators, python = (_of_names(counts, names) for counts in (work.moved, work.operators, work.python))
    every = {name: None for several in names.values() for name in several}
    return {name: FlopCount(found[name], moved[name], operators[name], python[name]) for name in every}


def _of_names(
    counts: Mapping[tuple[str, Phase], int], names: Mapping[str, Iterable[str]]
) -> dict[str, dict[tuple[str, Phase], int]]:
    found: dict[str, dict[tuple[str, Phase], int]] = defaultdict(dict)
    for part, count in counts.items():
        for name in _names_around(part[0], names):
            found[name][part] = count
    return found


def _names_around(fqn: str, names: Mapping[str, Iterable[str]]) -> set[str]:
    return {name for around in _enclosing(fqn) for name in names.get(around, ())}


def _enclosing(fqn: str) -> Iterable[str]:
    """Yield this module and all around it, up to the model itself."""
    while fqn:
        yield fqn
        fqn = fqn.rpartition(".")[0]
    yield ""


def _rates(work: FlopCount, line: Line, steps: int, device: DevicePeak) -> Utilization:
    """Return the utilization of a line over the time of its phases; empty where one of them was not timed."""
    timed = dict(zip(MODULE_PHASES, line.parts, strict=True))
    if any(work.flops(phases=phase) and not ns for phase, ns in timed.items()):
        return Utilization()
    return utilization(work, sum(timed.values()) / steps, device.peak, device.flags)


def peak_of(model: nn.Module, place: torch.device) -> DevicePeak:
    """Return the peak of the model's device; without parameters, of the device at ``place``."""
    places: set[Any] = {parameter.device for parameter in model.parameters()} or {place}
    if len(places) > 1:
        return DevicePeak(reason="the model lies on several devices")
    place = places.pop()
    device = device_of(place)
    peak, reason = device.peak(place)
    return DevicePeak(device.name(place), peak, reason, device.tf32())
