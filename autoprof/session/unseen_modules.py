"""Notes on modules that hooks do not see: compiled ones, those that work without being called, and new ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final
from weakref import WeakSet, ref

from ..base.frame import FrameRun, Layout
from ..base.names import enumerate_names, quoted
from ..base.notes import Notes
from ..capture.graphs.naming import OLD_TORCH, is_old_torch
from ..capture.marks.codes import ENTER, INDEX_MASK, KIND_BITS, KIND_MASK
from ..capture.recorder import Recorder
from ..resolve import RawStep
from ..resolve.observer import Observer
from ..targets import Target, find_unseen, unwrap
from .compiled_graphs import CompiledGraphs

COMPILED_BEFORE: Final = "torch compiled it before autoprof.instrument; call autoprof.instrument before the first step"
OTHER_BACKEND: Final = "torch compiled it with another backend than inductor, or where autoprof did not see it"


class UnseenModules(Observer):
    """Note what neither hooks nor names in compiled graphs show, and at the end the first targets without a call.

    A step in which torch compiled is excluded. Modules of torch's own classes are not named as uncalled: others use
    their weights without a call, as attention does.
    """

    provides = "notes on modules that hooks do not see"

    def __init__(
        self, recorder: Recorder, model: Any, targets: Iterable[Target], graphs: CompiledGraphs, notes: Notes
    ) -> None:
        self._recorder = recorder
        self._graphs = graphs
        self._notes = notes
        self._model = ref(model)
        self._old = WeakSet(model.modules())
        """The modules that were there at the start."""
        targets = tuple(targets)
        self._named = set(find_unseen(model, [target.module for target in targets]))
        """The fqns of modules without hooks that a note names already."""
        self._model_hidden = False
        """Whether torch compiled a function around the model, so that no module is seen: a note says so."""
        self._compiled = False
        self.is_idle = True
        self._fqns = [
            target.fqn for target in targets if not type(unwrap(target.module)).__module__.startswith("torch.nn.")
        ]
        self._steps = 0
        self._called: set[str] = set()
        self._layout: Layout | None = None

    def compiled(self) -> None:
        """Called when torch has compiled: the open step shows which modules hooks no longer see."""
        self._compiled, self.is_idle = True, False

    def found(self) -> None:
        """Called for each compiled module, which torch may have compiled before the session."""
        self.is_idle = False

    def step(self, raw: RawStep) -> RawStep:
        """Return the step, as a warm-up step where torch compiled in it."""
        self._name_unseen(raw)
        compiled, self._compiled, self.is_idle = self._compiled, False, True
        if raw.warmup or not compiled:
            return raw
        # The reason for an excluded step: compiling takes seconds that no other step takes.
        self._notes.skipped["steps in which torch compiled, excluded as warm-up"] += 1
        return raw._replace(warmup=True)

    def _name_unseen(self, raw: RawStep) -> None:
        seen = {code >> KIND_BITS & INDEX_MASK for code in raw.mark_batch.codes if code & KIND_MASK == ENTER}
        labels = [label for at, label in enumerate(self._recorder.labels) if at not in seen]
        expected = raw.instrumented - self._named
        unseen = {
            label.fqn: label.fqn or label.name
            for label in labels
            if label.fqn is not None and label.fqn in expected and not self._graphs.has_names(label.fqn)
        }
        self._named.update(unseen)
        if not unseen:
            return
        reason = "; ".join(self._graphs.reasons)
        if not any(self._recorder.labels[at].fqn is not None for at in seen):
            self._model_hidden = True
            names = enumerate_names(unseen.values())
            self._notes.warn_once(
                f"hooks do not fire inside graphs of torch.compile: step {raw.step} called no module of the model: "
                f"{names}. A function around the model is compiled, so that the model's forward is not measured: its "
                f"time is part of `other`{reason and f' ({reason})'}. To see it, compile the model itself: "
                "torch.compile(model)"
            )
        else:
            unknown = OLD_TORCH if is_old_torch() else OTHER_BACKEND if self._compiled else COMPILED_BEFORE
            reason = reason or unknown
            self._notes.warn_once(f"torch.compile: {_count_of(list(unseen.values()))} no rows: {reason}")

    def frames(self, run: FrameRun) -> None:
        """Remember the modules of the spans."""
        self._steps += len(run.steps)
        if run.layout is not self._layout:
            self._layout = run.layout
            self._called.update(fqn for fqn in run.layout.fqns if fqn is not None)

    def finish(self, *, complete: bool) -> Mapping[str, Any]:
        """Note the modules without a call, and those that came during the run."""
        self._note_new()
        # Steps after which a module without a call counts as uncalled.
        if self._steps < 3 or self._model_hidden:
            return {}
        if not self._called:
            self._notes.warn_once(
                "no call of the model was recorded: only calls such as model(x) on the training thread are, not "
                "model.forward(x), functions that use its parameters, or a compiled function around it"
            )
            return {}
        known = self._called | self._named
        missing = (fqn for fqn in self._fqns if fqn not in known and not self._graphs.has_names(fqn))
        names = enumerate_names(fqn or "the model itself" for fqn in missing)
        if names:
            self._notes.warn_once(
                f"model: never called in a recorded step: {names}. Their time, if "
                "they run, is in the module around them: .forward() called directly skips hooks, and calls on other "
                "threads are not recorded"
            )
        return {}

    def _note_new(self) -> None:
        model = self._model()
        new: list[str] = []
        for fqn, module in () if model is None else model.named_modules():
            if module not in self._old and not fqn.startswith(tuple(f"{one}." for one in new)):
                new.append(fqn)
        if new:
            self._notes.warn_once(
                f"model: modules added during the run have no rows: {enumerate_names(new)}. Their "
                "time is in the module around them; close the session and call autoprof.instrument again"
            )


def _count_of(names: Sequence[str]) -> str:
    """Return how many modules have something, with the module around them all, or else the first as an example."""
    first = quoted(names[0])
    if len(names) == 1:
        return f"module {first} has"
    parts = (name.split(".") for name in names)
    around = [column[0] for column in takewhile(lambda one: len(set(one)) == 1, zip(*parts, strict=False))]
    example = f"of {quoted('.'.join([*around, '*']))}" if around else f"({first}, …)"
    return f"{len(names)} modules {example} have"
