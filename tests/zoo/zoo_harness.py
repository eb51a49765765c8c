"""Run a case bare and instrumented, compare everything that can be seen, and check the account of the instrumented run.

Each run builds its subject anew from the same seed:

- bare, and instrumented with every module in all phases: the same bits;
- the same two with a user's hooks on every module: the same firings in the same order, the same objects, the same
  tensors alive after each step; and the gradients that the bare run's hooks saw are the referee of coverage;
- the same two under torch's memory profiler: the same allocations and releases in the same order;
- once more bare, with ``register_full_backward_hook`` on every module, for the table.
"""

import gc
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import getattr_static
from typing import Any, Final

import torch
from engine_laws import Watched, check_laws, count, everything
from torch import nn
from zoo_case import Case, Subject, seed_everything
from zoo_train import Record, allocations, train
from zoo_witness import Witness

from autoprof import Phase, StepFrame, Summary
from autoprof.devices import HostClock

ROOT: Final = "(root)"
EVERYTHING: Final = everything(targets=[{"match": "", "name": ROOT}, {"match": ".*"}])
"""Every module in all phases; the model itself, whose class a lazy or a scripted one changes, has a name of its own."""
_UNCALLED: Final = nn.Module.forward


@dataclass
class Verdict:
    """What became of a case; ``problems`` says in words what is not as it was bare, or not as the laws want it."""

    case: str
    modules: int = 0
    steps: int = 0
    trains: bool = False
    identical: bool = False
    witnessed: bool = False
    closes: bool = False
    lean: bool = False
    received: int = 0
    covered: int = 0
    leaves: int = 0
    blind: int = 0
    full_backward_hook: str = "not run"
    problems: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether nothing at all is wrong."""
        return not self.problems and self.identical and self.witnessed and self.closes and self.lean


def names_of(model: nn.Module) -> dict[nn.Module, str]:
    """Return what a session that records everything calls each module that can be called."""
    inner = model.module if isinstance(model, nn.DataParallel) else model  # a wrapper is no module of its own
    return {
        module: fqn.replace(".", "/") or ROOT
        for fqn, module in inner.named_modules()
        if getattr_static(module, "forward") is not _UNCALLED
    }


def fresh(case: Case) -> Subject:
    """Build the subject of a case; the same each time, with the generators at the same place."""
    seed_everything(3)
    subject = case.build()
    subject.model.train()
    seed_everything(4)
    return subject


@contextmanager
def quiet_machine() -> Iterator[None]:
    """One thread, so that sums have one order; no collection of garbage but where it is asked for."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # what is there already need not be walked again and again
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        torch.set_num_threads(threads)


def first_difference(bare: list[Any], found: list[Any]) -> str | None:
    """Say where two records part, or return None when they are equal."""
    for at, (one, other) in enumerate(zip(bare, found, strict=False)):
        if one != other:
            return f"entry {at}: bare {str(one)[:300]}, instrumented {str(other)[:300]}"
    return None if len(bare) == len(found) else f"bare has {len(bare)} entries, instrumented {len(found)}"


def run_case(case: Case) -> Verdict:
    """Run all there is to run of a case."""
    verdict = Verdict(str(case))
    with quiet_machine():
        train(fresh(case))  # scripted code is compiled anew at its second run, to other bits
        bare = train(fresh(case))
        frames, summary = _compare_bits(case, bare, verdict)
        witness = _compare_hooks(case, verdict)
        _check_account(frames, verdict)
        _check_coverage(frames, summary, witness, verdict)
        _compare_memory(case, verdict)
        verdict.full_backward_hook = _try_full_backward_hook(case, bare)
    return verdict


def _watch(subject: Subject, **more: Any) -> Watched:
    return Watched(subject.model, config=EVERYTHING, **more)


def _compare_bits(case: Case, bare: Record, verdict: Verdict) -> tuple[list[StepFrame], Summary]:
    subject = fresh(case)
    verdict.modules = len(names_of(subject.model))
    with _watch(subject) as watched:
        gc.collect()  # what set-up leaves is no step's
        found = train(subject, end_step=watched.step)
        ours = _our_garbage()
    if ours:
        verdict.problems.append(f"reference cycles of ours: {Counter(map(repr, ours)).most_common(3)}")
    summary = watched.sink.summary
    assert summary is not None
    difference = first_difference(bare, found)
    verdict.identical = difference is None
    verdict.trains = any(what.startswith("gradient of") and value is not None for what, value in bare)
    if difference is not None:
        verdict.problems.append(f"not the same bits: {difference}")
    return watched.sink.frames, summary


def _our_garbage() -> list[Any]:
    """Return what of autoprof's only the garbage collector can free."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return [found for found in gc.garbage if _is_ours(found)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def _is_ours(found: Any) -> bool:
    function = getattr(found, "__func__", found) if callable(found) else found
    modules = (type(found).__module__, getattr(function, "__module__", None))
    return any(isinstance(module, str) and module.split(".")[0] == "autoprof" for module in modules)


def _compare_hooks(case: Case, verdict: Verdict) -> Witness:
    witnesses = []
    for instrumented in (False, True):
        subject = fresh(case)
        witness = Witness(subject.model, names_of(subject.model))
        watched = _watch(subject, clock=HostClock()) if instrumented else None
        witness.later()

        def end_step(watched: Watched | None = watched, witness: Witness = witness) -> None:
            if watched is not None:
                watched.step()
            witness.end_step()

        try:
            train(subject, end_step=end_step)
        finally:
            if watched is not None:
                watched.session.close()
            witness.remove()
        witnesses.append(witness)
        if watched is not None:
            for frame in watched.sink.frames:
                check_laws(frame)
    bare, found = witnesses
    difference = first_difference(bare.events, found.events)
    verdict.witnessed = difference is None
    if difference is not None:
        verdict.problems.append(f"the user's hooks do not see the same: {difference}")
    return bare


def _check_account(frames: list[StepFrame], verdict: Verdict) -> None:
    verdict.steps = len(frames)
    try:
        for frame in frames:
            check_laws(frame)
            if frame.dropped:
                verdict.problems.append(f"{frame.dropped} marks dropped")
        verdict.closes = True
    except AssertionError as error:
        verdict.problems.append(f"the account does not close: {str(error)[:300]}")


def _check_coverage(frames: list[StepFrame], summary: Summary, witness: Witness, verdict: Verdict) -> None:
    verdict.blind = len(witness.blind)
    for frame, received, ran, leaves in zip(frames, witness.received, witness.ran, witness.leaves, strict=False):
        backward = count(frame, Phase.BACKWARD)
        wanted = Counter(name for name, _, _ in received & ran)  # a hook that raises may be all that ran
        allowed = Counter(name for name, _, _ in ran)
        verdict.leaves += len(leaves)
        verdict.received += wanted.total()
        verdict.covered += sum(min(number, backward[name]) for name, number in wanted.items())
        missing, invented = wanted - backward, backward - allowed
        if missing:
            verdict.problems.append(f"calls with a gradient but without a backward span: {dict(missing)}")
        if invented and not witness.blind:
            verdict.problems.append(f"backward spans of calls whose nodes never ran: {dict(invented)}")
        _check_parents(frame, witness, verdict)
    if summary.skipped:
        verdict.problems.append(f"skipped: {dict(summary.skipped)}")


def _check_parents(frame: StepFrame, witness: Witness, verdict: Verdict) -> None:
    """Every backward span lies in that of the call that its own call was made in."""
    spans = frame.spans
    for span in spans:
        if span.phase is not Phase.BACKWARD or span.calls == 0 or span.parent is None:
            continue
        around = spans[span.parent]
        if around.phase is Phase.BACKWARD and around.name != "(backward)" and around.lane == span.lane:
            pair = (span.name, around.name)
            if pair not in witness.callers:
                verdict.problems.append(f"the backward of {pair[0]} lies in that of {pair[1]}, which never called it")


def _compare_memory(case: Case, verdict: Verdict) -> None:
    bare = allocations(fresh(case))
    subject = fresh(case)
    with _watch(subject) as watched:
        found = allocations(subject, watched.step)
    difference = first_difference(bare, found)
    verdict.lean = difference is None
    if difference is not None:
        verdict.problems.append(f"memory is not taken and freed as it was: {difference}")


def _try_full_backward_hook(case: Case, bare: Record) -> str:
    subject = fresh(case)
    handles: list[Any] = []
    try:
        handles += [module.register_full_backward_hook(lambda *_: None) for module in subject.model.modules()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = train(subject)
    except Exception as error:
        return f"raises {type(error).__name__}"
    finally:
        for handle in handles:  # a module may be shared by all models of its kind
            handle.remove()
    return "identical" if found == bare else "differs"
