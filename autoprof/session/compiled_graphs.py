"""Record modules inside compiled graphs: exchange the generated code of each graph in recorded steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from threading import get_ident
from types import CodeType
from typing import Final, NamedTuple

from torch import nn

from ..base.failures import contain
from ..base.frame import Phase
from ..base.names import clean_name
from ..capture.graphs.generated import GeneratedCode
from ..capture.graphs.kernels import Kernel, Path, without_calls
from ..capture.graphs.naming import CompiledGraph, Root, follow_graphs
from ..capture.handle import Handle
from ..capture.marks.codes import PART, Label, PartPath
from ..capture.recorder import Recorder
from ..targets import ModuleNode, Target, walk

RUNTIME: Final = "[compiled runtime]"
"""The row of a compiled module's time outside its kernels: guards, torch's wrappers, Python between two graphs."""
OWN: Final = "own"
"""In the name of a fused kernel, the operations of the module or function around, outside the modules in it."""
LAYOUT: Final = "[weight layout]"
"""The row of kernels that only copy weights into another layout."""
UNNAMED: Final = "[kernels without names]"
"""The row of kernels in a graph from torch's cache whose modules are not certain."""


@dataclass(eq=False, slots=True)
class _Graph:
    """A generated file, the calls in which it may run, and its code with marks for the present targets."""

    generated: GeneratedCode
    callers: tuple[_Caller, ...]
    marked: list[CodeType] = field(default_factory=list)
    exchanged: bool = False


class _Caller(NamedTuple):
    """The fqn of a module in whose call a graph may run, None for none; the module around all of the graph's modules.

    ``begins`` has the paths that lead to modules inside the root, by the beginnings that the graph has for them.
    """

    fqn: str | None
    root: ModuleNode
    begins: Mapping[Path, Path]

    def inside(self, path: Path) -> Path | None:
        """Return a graph's path as one from the root; None for a module outside, and for the compiled function."""
        for begin, inner in self.begins.items():
            if without_calls(path[: len(begin)]) == begin:
                return *inner, *path[len(begin) :]
        return None


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
        """The fqns of the modules at which the paths of graphs with names begin."""

    def follow(self) -> Handle:
        """Take the graphs that torch compiles from now on, until the handle is removed."""
        return follow_graphs(self._take)

    def _take(self, graph: CompiledGraph) -> None:
        if graph.kernels is None:
            self.reasons.setdefault(graph.reason)
            return
        callers = self._callers(graph.roots)
        if callers:
            taken = _Graph(GeneratedCode(graph.function, graph.kernels), callers)
            self._mark(taken)
            self._graphs.append(taken)
            begins = ((one.root.fqn, *inner) for one in callers for inner in one.begins.values())
            self.named.update(".".join(filter(None, names)) for names in begins)
            if self._attached:
                self.attach()

    def _callers(self, roots: Mapping[Path, Root]) -> tuple[_Caller, ...]:
        """Return the calls in which a graph may run.

        The graph of a module's own call runs in the call of any module of this class. That of another function, or of
        what is left of one after a graph break, runs in a call around its modules, or in none.
        """
        for path, root in roots.items():
            if root.is_called:
                nodes = (node for node in self._nodes if root.class_name in node.class_names)
                return tuple(_Caller(node.fqn, node, {path: ()}) for node in nodes)
        found = {path: node for path, root in roots.items() if (node := self._node(root.module())) is not None}
        names = {path: node.fqn.split(".") if node.fqn else [] for path, node in found.items()}
        shared = [column[0] for column in takewhile(lambda one: len(set(one)) == 1, zip(*names.values(), strict=False))]
        *_, around = self._nodes[0], *(node for node, _ in self._nodes[0].along(shared))
        begins = {path: tuple(inner[len(shared) :]) for path, inner in names.items()}
        calls = (None, *(".".join(shared[:at]) for at in range(len(shared) + 1))) if found else ()
        return tuple(_Caller(fqn, around, begins) for fqn in calls)

    def _node(self, module: nn.Module | None) -> ModuleNode | None:
        return next((node for node in self._nodes if module is not None and module in (node.module, node.inner)), None)

    def has_names(self, fqn: str) -> bool:
        """Return whether a module's time is known from a graph."""
        return any(not one or fqn == one or fqn.startswith(f"{one}.") for one in self.named)

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
        self._beside: dict[tuple[str | None, str], Label] = {}
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
        paths = [caller.inside(path) for path in kernel.paths] or [()]
        found = [() if path is None else self._way(caller, path) for path in paths]
        ways = list({tuple(label.fqn for label in way): way for way in found}.values())  # two calls are one module
        columns = zip(*ways, strict=False)
        shared = tuple(labels[0] for labels in takewhile(lambda labels: len({one.fqn for one in labels}) == 1, columns))
        around = shared[-1].fqn if shared else caller.fqn
        if len(ways) > 1:
            inner = dict.fromkeys(way[len(shared)] if len(way) > len(shared) else None for way in ways)
            return *shared, self._label_in(around, self._fused(around, inner))
        row = UNNAMED if kernel.is_unnamed else LAYOUT if kernel.is_layout and around is not None else None
        return shared if row is None else (*shared, self._label_in(around, row))

    def _way(self, caller: _Caller, path: Path) -> tuple[Label, ...]:
        """Return the labels of the targets inside the caller on the way to a module."""
        found = [*self._nodes[""].along(caller.root.fqn.split(".")), *caller.root.along(path)]
        if caller.fqn is None:
            found.insert(0, (self._nodes[""], 0))
        else:
            found = [one for one in found if one[0].fqn.startswith(f"{caller.fqn}." if caller.fqn else "")]
        targets = ((self._targets.get(node.fqn), earlier) for node, earlier in found)
        return tuple(target._replace(earlier=earlier) for target, earlier in targets if target is not None)

    def _fused(self, around: str | None, inner: Iterable[Label | None]) -> str:
        """Return the name of a kernel that computes parts of several modules."""
        outer = None if around is None else self._targets.get(around)
        names = [OWN if one is None else _relative(one.name, "" if outer is None else outer.name) for one in inner]
        return f"[fused: {' + '.join(dict.fromkeys(sorted(names)))}]"

    def _label_in(self, fqn: str | None, name: str) -> Label:
        """Return the label of a row that is no module, inside a module or, None, outside the model.

        It has no span where the module has none.
        """
        if (fqn, name) not in self._beside:
            outer = None if fqn is None else self._targets.get(fqn)
            if fqn is None:
                phases = frozenset(phase for target in self._targets.values() for phase in target.phases)
            else:
                phases = frozenset() if outer is None or not outer.shown else outer.phases
            name_in = name if outer is None else f"{outer.name}/{name}"
            self._beside[fqn, name] = Label(name_in, None, Phase.FORWARD, phases)
        return self._beside[fqn, name]


def _relative(name: str, around: str) -> str:
    """Return a row's name as it is written inside another row."""
    inner = name.removeprefix(around)
    return inner[1:] if inner != name and inner[:1] in ("/", ".") else name
