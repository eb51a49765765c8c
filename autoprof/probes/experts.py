"""Count the tokens of each expert of a mixture of experts, and time it where it is a module of its own.

Found are: modules in a ``ModuleList`` whose name ends in ``experts``, whose first argument has the expert's tokens; and
modules that hold the tokens of their last call themselves, in an attribute ``autoprof_expert_tokens`` (a sequence, one
number an expert).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter_ns, thread_time_ns
from typing import Any, Final

import torch
from torch import Tensor, nn

from .._capture.hooks.call_sites import CallEntry
from .._capture.hooks.entry_probe import EntryProbe
from .._capture.recorder import Recorder
from ._base import ProbeContext, ProbeFactory

TOKENS: Final = "autoprof_expert_tokens"
"""The attribute in which a module holds its tokens by expert."""

_compiling = torch.compiler.is_dynamo_compiling
_task = torch._C._current_graph_task_id


class ExpertCounts:
    """The experts of one block in the open step: tokens, and nanoseconds where each expert is a module."""

    def __init__(self, name: str, experts: int, *, timed: bool) -> None:
        self.name = name
        self.tokens = [0] * experts
        self.ns: list[int] | None = [0] * experts if timed else None
        self.calls = 0

    def take(self) -> ExpertCounts:
        """Return the counts so far, and begin anew."""
        taken = ExpertCounts(self.name, len(self.tokens), timed=self.ns is not None)
        taken.tokens, taken.calls, self.calls = self.tokens, self.calls, 0
        self.tokens = [0] * len(self.tokens)
        if self.ns is not None:
            taken.ns, self.ns = self.ns, [0] * len(self.ns)
        return taken


class ExpertCalls(EntryProbe):
    """The entry of one expert, or on a module that has several (``expert`` None)."""

    where = "experts"

    def __init__(self, recorder: Recorder, module: nn.Module, counts: ExpertCounts, expert: int | None) -> None:
        super().__init__(recorder, module)
        self._counts = counts
        self._expert = expert
        self._entries = [CallEntry(self, None if expert is None else ExpertCalls.begin, ExpertCalls.count)]

    def begin(self, module: nn.Module, args: Any, kwargs: Any) -> int:
        """Return the time at which a call begins."""
        return 0 if _compiling() else perf_counter_ns()

    def count(self, module: nn.Module, args: Any, kwargs: Any, output: Any, begun_ns: Any) -> None:
        """Add the tokens of a call, and its time."""
        now_ns, began_ns = perf_counter_ns(), thread_time_ns()
        if _compiling() or _task() != -1:  # recomputed inside a backward pass
            return
        if output is None:  # the call raised
            return
        try:
            counts = self._counts
            counts.calls += 1
            if self._expert is None:
                held = getattr(module, TOKENS)
                if not isinstance(held, Tensor) or held.is_cpu:  # reading a tensor on a device would wait
                    counts.tokens = [before + int(tokens) for before, tokens in zip(counts.tokens, held, strict=False)]
            else:
                x = args[0] if args else next(iter(kwargs.values()))
                counts.tokens[self._expert] += x.numel() // max(x.shape[-1], 1)
                if counts.ns is not None:
                    counts.ns[self._expert] += now_ns - begun_ns
            self.recorder.detail_ns += thread_time_ns() - began_ns
        except Exception:
            self.fail(module)


def find_experts(model: nn.Module, recorder: Recorder) -> Iterator[tuple[ExpertCounts, list[ExpertCalls]]]:
    """Yield the blocks of experts of a model, each with the hooks that count its tokens."""
    room = 4096
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList):
            found = len(module) if len(module) > 1 and name.rpartition(".")[2].endswith("experts") else 0
            if 0 < found <= room:
                counts = ExpertCounts(name, found, timed=not recorder.on_device)
                yield counts, [ExpertCalls(recorder, one, counts, at) for at, one in enumerate(module)]
                room -= found
            continue
        held = getattr(module, TOKENS, None)
        experts = len(held) if isinstance(held, Sequence | Tensor) else 0
        if 0 < experts <= room:
            counts = ExpertCounts(name, experts, timed=False)
            yield counts, [ExpertCalls(recorder, module, counts, None)]
            room -= experts


class ExpertProbe:
    """Follow the experts of a session's model; a model without experts has no hook."""

    def __init__(self, recorder: Recorder, model: nn.Module) -> None:
        found = list(find_experts(model, recorder))
        self.blocks = [counts for counts, _ in found]
        self._hooks = [hook for _, hooks in found for hook in hooks]

    def attach(self) -> None:
        """Count from now on."""
        for hook in self._hooks:
            hook.attach()

    def detach(self) -> None:
        """Count no more."""
        for hook in self._hooks:
            hook.detach()

    remove = detach


def _make(context: ProbeContext) -> ExpertProbe:
    return ExpertProbe(context.recorder, context.model)


PROBE = ProbeFactory(_make)
