"""Note the modules of each kernel while inductor generates code, and keep them beside torch's cache.

Nothing that torch caches changes: the notes are a file of their own beside the generated one. A graph that torch takes
from its cache is the same under any hierarchy of modules, so the file's name has a hash of the hierarchy.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import torch
import wrapt

from ...base.failures import contain, describe, ignore
from ...base.frame import Phase
from ...base.process.replace import Attribute, InCompiler, Replacement
from ...base.storage.atomic import write_atomic
from ..handle import Handle
from .buffers import calls_of
from .kernels import Kernel, NodeModules, Path, module_of, outputs_of, without_calls
from .retrace import Retraced, retrace, text_of

FORMAT: Final = 5
"""The version of the files with notes."""
_KERNEL_NOTER: Final = "set_kernel_post_grad_provenance_tracing"
_KERNEL_NOTERS: Final = ("torch._inductor.debug", "torch._inductor.codegen.cpp", "torch._inductor.codegen.triton")
_HIERARCHY: Final = "autoprof_hierarchy"
"""The attribute of torch's ``TracingContext`` that carries the hierarchy to the backward's compilation."""
_CACHED: Final = "autoprof_cached"
"""The attribute of torch's ``TracingContext`` that has the graphs from torch's cache that no notes are known for."""


class CompiledGraph(NamedTuple):
    """A graph that torch has compiled or taken from its cache: its function, and its kernels in their order, or the
    reason why they are not known. ``roots`` has the modules that the kernels' paths begin at, by their own paths.
    """

    function: Any
    kernels: tuple[Kernel, ...] | None
    reason: str = ""
    roots: Mapping[Path, Root] = MappingProxyType({})


class _Cached:
    """The graphs of a compilation that torch took from its cache, and that no notes are known for.

    ``graphs`` has them by the texts of the graphs that they were generated from, ``waiting`` the functions that report
    them, once ``retraced`` has these graphs.
    """

    def __init__(self) -> None:
        self.graphs: dict[str, Any] = {}
        self.waiting: list[Callable[[], None]] = []
        self.retraced: dict[str, Retraced] | None = None


UNKNOWN_BACKEND: Final = "torch generated no Python for it"
FROM_CACHE: Final = (
    "torch took the graph from a cache that a run without autoprof has written, and autoprof could not trace it again; "
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 in the environment compiles it again"
)
OLD_TORCH: Final = "this version of torch does not say what the kernels that it generates compute"
CUDA_GRAPHS: Final = "CUDA graphs replay its kernels without Python"
UNREADABLE: Final = "autoprof could not read the graph ({})"

_listeners: list[Callable[[CompiledGraph], None]] = []
_notes: dict[tuple[str, str], tuple[Kernel, ...]] = {}
"""The kernels of the graphs of this process, by generated file and hash of the hierarchy."""
_retracing: list[None] = []
"""Has an element while a graph is traced again, which notes nothing."""


def follow_graphs(listener: Callable[[CompiledGraph], None]) -> Handle:
    """Call the listener with each graph that inductor compiles from now on, until the handle is removed."""
    handle = Handle()
    _listeners.append(listener)
    handle.add(lambda: _listeners.remove(listener) if listener in _listeners else None)
    for place in _PLACES:
        place.hold(handle)
        handle.add(partial(place.release, handle))
    return handle


def is_old_torch() -> bool:
    """Return whether inductor is imported, and does not say what its kernels compute, as before torch 2.11."""
    noter = sys.modules.get("torch._inductor.debug")
    return noter is not None and not hasattr(noter, _KERNEL_NOTER)


class _Place:
    """A function of inductor, and the function that is called in its place while a session holds it."""

    def __init__(self, module: str, owner: str, name: str, call: Callable[..., Any]) -> None:
        self.module, self._owner, self._name, self._call = module, owner, name, call
        self._holders: list[Handle] = []
        self._replacement: Replacement | None = None
        self._awaited = False

    def hold(self, holder: Handle) -> None:
        """Replace the function, once its module is imported."""
        self._holders.append(holder)
        if self._replacement is not None:
            self._replacement.hold(holder)
        elif self.module in sys.modules:  # perhaps since a detach, which removes the finder that waits for imports
            self._imported(sys.modules[self.module])
        elif not self._awaited:
            self._awaited = True
            wrapt.register_post_import_hook(self._imported, self.module)

    def _imported(self, module: Any) -> None:
        with contain(ignore):
            owner = getattr(module, self._owner) if self._owner else module
            if hasattr(owner, self._name) and self._replacement is None:
                made = Replacement(Attribute(owner, self._name), self._wrap, in_compiler=InCompiler.PRESENT)
                self._replacement = made
                for holder in self._holders:
                    made.hold(holder)

    def release(self, holder: Handle) -> None:
        """Put the function back once no session holds it."""
        if holder in self._holders:
            self._holders.remove(holder)
        if self._replacement is not None:
            self._replacement.release(holder)

    def _wrap(self, original: Any, _listeners: list[Any]) -> Any:
        def replaced(*args: Any, **kwargs: Any) -> Any:
            return self._call(original, *args, **kwargs)

        return replaced


class Root(NamedTuple):
    """A module that the paths of a graph begin at.

    Where ``is_called``, the graph is that of the module's own call, and may serve other modules of its class as well.
    """

    class_name: str
    module: weakref.ref[Any]
    is_called: bool


class _Hierarchy(NamedTuple):
    """The modules of a graph: its operations, each with the path of its module, and their hash; the modules that the
    paths begin at, by their own paths, and the modules in which each line of the program ran. ``failure`` is the error
    of reading them.
    """

    digest: str
    modules: list[tuple[str, Path]]
    roots: dict[Path, Root]
    lines: dict[str, set[Path]]
    failure: str = ""

    def joined(self, other: _Hierarchy) -> _Hierarchy:
        """Return both: DDP has the graph of a model split, and all backwards are compiled after the last forward."""
        lines = {line: self.lines.get(line, set()) | other.lines.get(line, set()) for line in self.lines | other.lines}
        modules = [*self.modules, *other.modules]
        failure = self.failure or other.failure
        return _Hierarchy(_digest(modules), modules, self.roots | other.roots, lines, failure)


_NO_MODULES: Final = _Hierarchy("", [], {}, {})


def _compile_fx(original: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
    """Note the hierarchy of a graph's modules for its compilation, and for that of its backward, which comes later."""
    cached = _Cached()
    with contain(ignore):
        from torch._guards import TracingContext

        context = None if _retracing else TracingContext.try_get()
        if context is not None:
            before = getattr(context, _HIERARCHY, _NO_MODULES)
            setattr(context, _CACHED, cached)
            with contain(lambda error: setattr(context, _HIERARCHY, before._replace(failure=describe(error)))):
                setattr(context, _HIERARCHY, before.joined(_hierarchy(model)))
    result = original(model, *args, **kwargs)
    if cached.waiting:
        cached.retraced = {}
        _retracing.append(None)
        with contain(ignore):
            cached.retraced = retrace(cached.graphs, original, model, *args, **kwargs)
        _retracing.pop()
        for report in cached.waiting:
            report()
        cached.waiting.clear()
        cached.graphs.clear()
    return result


def _hierarchy(model: Any) -> _Hierarchy:
    found = [(node, module_of(node)) for node in model.graph.nodes if node.op != "placeholder"]
    # The name of a node is that of a variable of the program, which the graph in torch's cache does not have.
    modules = [(getattr(node.target, "__name__", str(node.target)), path) for node, path in found if path is not None]
    lines: dict[str, set[Path]] = {}
    for node, path in found:
        if path is not None and "stack_trace" in node.meta:
            lines.setdefault(node.meta["stack_trace"], set()).add(without_calls(path))
    roots: dict[Path, Root] = {}
    for path in dict.fromkeys(without_calls(path) for _, path in modules if path != ("",)):
        if not any(path[: len(known)] == known for known in roots):
            at, root = _root(path)
            roots[at] = root
    return _Hierarchy(_digest(modules), modules, roots, lines)


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def _root(path: Path) -> tuple[Path, Root]:
    """Return the first module on a path, with the path to it.

    The path begins at a name such as ``L['self']``, of a local or a global of the frame that dynamo compiles. That may
    be a module, or another object that holds modules, as a trainer does.
    """
    from torch._dynamo.symbolic_convert import InstructionTranslator

    frame = InstructionTranslator.current_tx().output.root_tx
    scope, (variable, *indices) = path[0][0], re.findall(r"\w+", path[0][1:])
    module = (frame.f_locals if scope == "L" else frame.f_globals)[variable]
    for index in indices:
        module = module[int(index)]
    length = 1
    while not isinstance(module, torch.nn.Module):
        module = _member(module, path[length])
        length += 1
    # After a graph break the rest of a function is one of its own, whose name ends in that of the function.
    is_forward = "forward" in frame.f_code.co_name or frame.f_code is getattr(
        getattr(type(module), "forward", None), "__code__", None
    )
    is_called = is_forward and scope == "L" and not variable.startswith("___") and length == 1
    return path[:length], Root(type(module).__name__, weakref.ref(module), is_called)


def _member(holder: Any, name: str) -> Any:
    if isinstance(holder, (list, tuple)):
        return holder[int(name)]
    return holder[name] if isinstance(holder, dict) else getattr(holder, name)


def _current() -> _Hierarchy:
    found: _Hierarchy = _context_has(_HIERARCHY, _NO_MODULES)
    return found


def _context_has(name: str, default: Any) -> Any:
    from torch._guards import TracingContext

    return getattr(TracingContext.try_get(), name, default)


def _compile_to_module(original: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
    """Note the kernels of a graph while its code is generated, and keep the notes."""
    hierarchy = _current()
    if not hierarchy.roots:
        return original(graph, *args, **kwargs)
    nodes = NodeModules(graph.graph.nodes, hierarchy.lines, is_backward=bool(graph.is_backward))
    kernels: list[Kernel] = []
    with _noting(nodes, kernels):
        module = original(graph, *args, **kwargs)
    with contain(ignore):
        _keep(module.__file__, hierarchy, kernels)
    return module


@contextmanager
def _noting(nodes: NodeModules, kernels: list[Kernel]) -> Iterator[None]:
    """Note each kernel whose call inductor generates inside the block.

    Inductor calls a function for it, whatever its level of tracing, which the modules below have imported by name.
    """
    modules = [module for name in _KERNEL_NOTERS if (module := sys.modules.get(name)) is not None]
    before = [getattr(module, _KERNEL_NOTER) for module in modules]

    def note(scheduled: Any, name: Any = None, is_extern: bool = False) -> None:
        with contain(ignore):
            if name:
                buffers = [scheduled] if is_extern else outputs_of(scheduled)
                kernels.append(nodes.kernel(name, buffers))

    def noting(original: Any) -> Any:
        def replaced(scheduled: Any, name: Any = None, is_extern: bool = False, **kwargs: Any) -> Any:
            note(scheduled, name, is_extern)
            return original(scheduled, name, is_extern, **kwargs)

        return replaced

    try:
        for module, original in zip(modules, before, strict=True):
            setattr(module, _KERNEL_NOTER, noting(original))
        yield
    finally:
        for module, original in zip(modules, before, strict=True):
            setattr(module, _KERNEL_NOTER, original)


def _keep(path: str, hierarchy: _Hierarchy, kernels: list[Kernel]) -> None:
    _notes[path, hierarchy.digest] = tuple(kernels)
    rows = [[one.call, one.paths, str(one.phase), one.is_layout, one.is_unnamed] for one in kernels]
    kept = {"format": FORMAT, "modules": hierarchy.modules, "kernels": rows}
    with suppress(OSError):  # a cache that cannot be written
        write_atomic(_beside(path, hierarchy.digest), json.dumps(kept))


def _beside(path: str, digest: str) -> FilePath:
    return FilePath(path).with_suffix(f".{digest}.autoprof.json")


def _read_notes(path: str, hierarchy: _Hierarchy) -> tuple[Kernel, ...] | None:
    """Return the kernels of a generated file under this hierarchy, noted by this process or by an earlier one.

    The notes of another hierarchy serve as well, where each module of it stands for one of this one.
    """
    key = path, hierarchy.digest
    if key not in _notes:
        others = sorted(FilePath(path).parent.glob(f"{FilePath(path).stem}.*.autoprof.json"))
        for file in (_beside(path, hierarchy.digest), *others):
            with suppress(OSError, ValueError, KeyError, TypeError):
                found = json.loads(file.read_text())
                if found["format"] == FORMAT:
                    _notes[key] = _translate(found, hierarchy)
                    break
    return _notes.get(key)


def _translate(found: Any, hierarchy: _Hierarchy) -> tuple[Kernel, ...]:
    """Return the kernels of a file with the modules to which the same operations belong in this hierarchy.

    Raises ``KeyError`` where the operations are others, or those of one module belong to several here.
    """
    paths: dict[Path, Path] = {}
    for (name, path), (same, new_path) in zip(found["modules"], hierarchy.modules, strict=True):
        if name != same or paths.setdefault(tuple(path), new_path) != new_path:
            raise KeyError(name)
    return tuple(
        Kernel(call, tuple(paths[tuple(path)] for path in old), Phase(phase), is_layout, is_unnamed)
        for call, old, phase, is_layout, is_unnamed in found["kernels"]
    )


def _name_cached(path: str, text: str, hierarchy: _Hierarchy) -> tuple[Kernel, ...] | None:
    """Return the kernels of a file whose graph was traced again; keep them, so that no later process has to."""
    cached = _context_has(_CACHED, None)
    found = None if cached is None else (cached.retraced or {}).pop(text, None)
    if found is None:
        return None
    nodes = NodeModules(found.graph.nodes, hierarchy.lines, is_backward=found.is_backward)
    kernels = [nodes.kernel_of_nodes(call, computed) for call, computed in calls_of(path, found.graph)]
    _keep(path, hierarchy, kernels)
    return tuple(kernels)


def _post_compile(original: Any, graph: Any, inputs: Any, constants: Any, options: Any) -> Any:
    """Report a compiled graph; this runs for one from the cache as well, before its function is wrapped."""
    function = getattr(graph, "current_callable", None)
    result = original(graph, inputs, constants, options)
    _report(function, graph, options)
    return result


def _report(function: Any, graph: Any, options: Any) -> None:
    text = text_of(getattr(graph, "inductor_post_grad_graph_str", ""))
    for listener in _listeners[:]:
        with contain(partial(_fail, listener)):
            found = _describe(function, text)
            if found is not None and found.reason == FROM_CACHE and (cached := _waiting()) is not None:
                cached.graphs[text] = graph
                cached.waiting.append(partial(_report, function, graph, options))
                return
            if found is not None:
                is_replayed = found.kernels is not None and options["cudagraphs"]
                listener(found._replace(kernels=None, reason=CUDA_GRAPHS) if is_replayed else found)


def _waiting() -> _Cached | None:
    """Return the graphs of this compilation that will be reported again, while that is to come."""
    cached = _context_has(_CACHED, None)
    return cached if cached is not None and cached.retraced is None else None


def _fail(listener: Callable[[CompiledGraph], None], error: Exception) -> None:
    listener(CompiledGraph(None, None, UNREADABLE.format(describe(error))))


def _describe(call: Any, text: str) -> CompiledGraph | None:
    """Return a description of a generated function; None for a graph of no module, as that of an optimizer."""
    hierarchy = _current()
    if hierarchy.failure:
        return CompiledGraph(None, None, UNREADABLE.format(hierarchy.failure))
    if not hierarchy.roots:
        return None
    function = getattr(call, "__func__", call)
    path = getattr(function, "__globals__", {}).get("__file__")
    if path is None:
        return CompiledGraph(function, None, UNKNOWN_BACKEND)
    if is_old_torch():
        return CompiledGraph(function, None, OLD_TORCH)
    kernels = _read_notes(path, hierarchy)
    if kernels is None:
        with contain(ignore):
            kernels = _name_cached(path, text, hierarchy)
    if kernels is None:
        return CompiledGraph(function, None, FROM_CACHE)
    return CompiledGraph(function, kernels, roots=hierarchy.roots)


_PLACES: Final = (
    _Place("torch._inductor.compile_fx", "", "compile_fx", _compile_fx),
    _Place("torch._inductor.graph", "GraphLowering", "compile_to_module", _compile_to_module),
    _Place("torch._inductor.output_code", "CompiledFxGraph", "post_compile", _post_compile),
)
