"""Record modules inside compiled graphs: exchange the generated code of each graph in recorded steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from threading import get_ident
from types import CodeType
from typing import Final, NamedTuple

from torch import nn

from .._capture.graphs.generated import GeneratedCode
from .._capture.graphs.kernels import Kernel, Path
from .._capture.graphs.naming import CompiledGraph, Root, compile_again, follow_graphs
from .._capture.handle import Handle
from .._capture.marks.codes import PART, Label, PartPath
from .._capture.recorder import Recorder
from .._core.failures import contain
from .._core.names import clean_name
from .._targets import ModuleNode, Target, walk
from ..frame import Phase

RUNTIME: Final = "[compiled runtime]"
"""The row of a compiled module's time outside its kernels: guards, torch's wrappers, Python between two graphs."""
OWN: Final = "own"
"""In the name of a fused kernel, the operations of the module around, outside the modules in it."""
LAYOUT: Final = "[weight layout]"
"""The row of kernels that only copy weights into another layout."""


@dataclass(eq=False, slots=True)
class _Graph:
    """A generated file, the calls in which it may run, and its code with marks for the present targets."""

    generated: GeneratedCode
    callers: tuple[_Caller, ...]
    marked: list[CodeType] = field(default_factory=list)
    exchanged: bool = False


class _Caller(NamedTuple):
    """The fqn of a module in whose call a graph may run, None for none, and the module where its paths begin."""

    fqn: str | None
    root: ModuleNode


class CompiledGraphs:
    """The graphs that torch compiles for the modules of one model. A ``Probe``, attached in recorded steps.

    A mark stands where the kernels of another target begin. One graph may serve several modules of one class, as the
    blocks of a model compiled one by one: which of them runs it is known by the call around it.
    """

    def __init__(self, model: nn.Module, recorder: Recorder) -> None:
        self._recorder = recorder
        self._nodes = walk(model)
        self._graphs: list[_Graph] = []
        self._targets: tuple[Target, ...] = ()
        self._attached = False
        self.reasons: dict[str, None] = {}
        """Why graphs of this process have no names, each reason once."""
        self.named: set[str] = set()
        """The fqns of the modules that run a graph with names."""

    def follow(self, *, again: bool) -> Handle:
        """Take the graphs that torch compiles from now on, each ``again``, until the handle is removed."""
        handle = follow_graphs(self._take)
        if again:
            handle.add(compile_again().remove)
        return handle

    def _take(self, graph: CompiledGraph) -> None:
        if graph.notes is None or graph.root is None:
            self.reasons.setdefault(graph.reason)
            return
        callers = self._callers(graph.root)
        if callers:
            taken = _Graph(GeneratedCode(graph.function, graph.notes.kernels), callers)
            self._mark(taken)
            self._graphs.append(taken)
            self.named.update(caller.root.fqn for caller in callers)
            if self._attached:
                self.attach()

    def _callers(self, root: Root) -> tuple[_Caller, ...]:
        """Return the calls in which a graph may run.

        The graph of a module's own call runs in the call of any module of this class. That of another function, or of
        what is left of one after a graph break, runs in a call around the module, or in none.
        """
        if root.is_called:
            return tuple(_Caller(node.fqn, node) for node in self._nodes if root.class_name in node.class_names)
        module = root.module()
        found = next((node for node in self._nodes if module in (node.module, node.inner)), None)
        if found is None:
            return ()
        names = found.fqn.split(".") if found.fqn else []
        around = [".".join(names[:at]) for at in range(len(names) + 1)]
        return tuple(_Caller(fqn, found) for fqn in (None, *around))

    def has_names(self, fqn: str) -> bool:
        """Return whether a module's time is known from the graph of a module around it."""
        return any(fqn.startswith(f"{around}." if around else "") for around in self.named)

    def use(self, targets: Sequence[Target]) -> None:
        """Make the code with marks for these targets, which are recorded from the next step on."""
        self._targets = tuple(targets)
        for graph in self._graphs:
            self._mark(graph)

    def _mark(self, graph: _Graph) -> None:
        with contain(self._fail):
            labels = _GraphLabels(self._recorder, self._targets, self._nodes, graph.callers)
            graph.marked = graph.generated.with_marks(labels.code)

    def _fail(self, _error: Exception) -> None:
        self._recorder.count_failure("compiled graphs")

    def attach(self) -> None:
        """Put the code with marks in place."""
        self._attached = True
        if self._graphs:
            mark = _marker(self._recorder)
            for graph in self._graphs:
                if graph.marked and not graph.exchanged:
                    graph.exchanged = graph.generated.exchange(graph.marked, mark)

    def detach(self) -> None:
        """Put the generated code back."""
        self._attached = False
        for graph in self._graphs:
            if graph.exchanged:
                graph.generated.put_back()
                graph.exchanged = False

    def remove(self) -> None:
        """Put the generated code back, and know the graphs no longer."""
        self.detach()
        self._graphs.clear()


def _marker(recorder: Recorder) -> Callable[[int], None]:
    append, read = recorder.append, recorder.read

    def mark(code: int) -> None:
        try:
            append(code, read(), get_ident())
        except Exception:
            recorder.handle_failure("compiled graphs")

    return mark


class _GraphLabels:
    """The labels of a graph's parts for one set of targets, made as they are needed."""

    def __init__(
        self, recorder: Recorder, targets: Iterable[Target], nodes: Iterable[ModuleNode], callers: Sequence[_Caller]
    ) -> None:
        self._recorder = recorder
        self._callers = callers
        self._nodes = {node.fqn: node for node in nodes}
        self._targets = {
            target.fqn: Label(clean_name(target.name), target.fqn, Phase.FORWARD, target.phases, target.shown)
            for target in targets
        }
        self._beside: dict[tuple[str, str], Label] = {}
        self._codes: dict[object, int] = {}

    def code(self, kernel: Kernel | None) -> int:
        """Return the code of the mark at the begin of a kernel, or of the one after the last."""
        inside = {caller.fqn: self._path(caller, kernel) for caller in self._callers}
        phase = Phase.FORWARD if kernel is None else kernel.phase
        key = phase, tuple(inside.values())
        if key not in self._codes:
            label = Label("", None, phase, frozenset(), shown=False, inside=inside)
            self._codes[key] = self._recorder.add_label(label) | PART
        return self._codes[key]

    def _path(self, caller: _Caller, kernel: Kernel | None) -> PartPath:
        rest = self._label_in(caller.root.fqn if caller.fqn is None else caller.fqn, RUNTIME)
        return PartPath((rest,) if kernel is None else self._labels(caller, kernel), rest)

    def _labels(self, caller: _Caller, kernel: Kernel) -> tuple[Label, ...]:
        """Return the labels that all outputs of the kernel belong to, and one more where they do not agree on the next.

        A kernel of two modules is credited to neither: it has a row of its own in the module around both.
        """
        found = [self._way(caller, path) for path in kernel.paths or [()]]
        ways = list({tuple(label.fqn for label in way): way for way in found}.values())  # two calls are one module
        columns = zip(*ways, strict=False)
        shared = tuple(labels[0] for labels in takewhile(lambda labels: len({one.fqn for one in labels}) == 1, columns))
        around = shared[-1].fqn or "" if shared else caller.fqn or ""
        if len(ways) > 1:
            inner = dict.fromkeys(way[len(shared)] if len(way) > len(shared) else None for way in ways)
            return *shared, self._label_in(around, self._fused(around, inner))
        return (*shared, self._label_in(around, LAYOUT)) if kernel.is_layout else shared

    def _way(self, caller: _Caller, path: Path) -> tuple[Label, ...]:
        """Return the labels of the targets inside the caller on the way to a module."""
        found = [*self._nodes[""].along(caller.root.fqn.split(".")), *caller.root.along(path)]
        if caller.fqn is None:
            found.insert(0, (self._nodes[""], 0))
        else:
            found = [one for one in found if one[0].fqn.startswith(f"{caller.fqn}." if caller.fqn else "")]
        targets = ((self._targets.get(node.fqn), earlier) for node, earlier in found)
        return tuple(target._replace(earlier=earlier) for target, earlier in targets if target is not None)

    def _fused(self, around: str, inner: Iterable[Label | None]) -> str:
        """Return the name of a kernel that computes parts of several modules."""
        outer = self._targets.get(around)
        names = [OWN if one is None else _relative(one.name, "" if outer is None else outer.name) for one in inner]
        return f"[fused: {' + '.join(dict.fromkeys(sorted(names)))}]"

    def _label_in(self, fqn: str, name: str) -> Label:
        """Return the label of a row inside a module that is no module; it has no span where the module has none."""
        if (fqn, name) not in self._beside:
            outer = self._targets.get(fqn)
            phases = frozenset[Phase]() if outer is None or not outer.shown else outer.phases
            name_in = name if outer is None else f"{outer.name}/{name}"
            self._beside[fqn, name] = Label(name_in, None, Phase.FORWARD, phases)
        return self._beside[fqn, name]


def _relative(name: str, around: str) -> str:
    """Return a row's name as it is written inside another row."""
    inner = name.removeprefix(around)
    return inner[1:] if inner != name and inner[:1] in ("/", ".") else name
