"""Exercise the extension in C without torch: loaded by its path, with fakes of tensors and autograd nodes.

A sanitizer and a debug build of Python run this file as a script (``make asan``, ``make debug-python``); pytest runs
the same functions in ``test_extension.py``. Only the standard library is imported.
"""

import contextlib
import ctypes
import gc
import importlib.util
import itertools
import os
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

NAME = "autoprof.capture.marks._c"
STRIDE = 1 << 24
PY_TP_CLEAR = 51
"""The number of the slot in CPython's typeslots.h."""


class Node:
    """An autograd node: a number, and the prehooks registered on it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.prehooks: list[Any] = []
        self.dicts: list[Any] = []

    def _sequence_nr(self) -> int:
        return self.number

    def register_prehook(self, hook: Any) -> Any:
        """Keep a prehook and return a handle."""
        self.prehooks.append(hook)
        return SimpleNamespace()

    def _register_hook_dict(self, carrier: Any) -> None:
        """Keep the dict of a carrier, as a node of torch does, and its hook."""
        self.dicts.append(carrier.hooks)
        self.prehooks.append(carrier.hooks[0])


class Tensor:
    """A tensor: the attributes that hooks read. ``raises`` maps names of attributes to exceptions."""

    def __init__(self, node: Node | None = None, **raises: BaseException) -> None:
        self.values = {"grad_fn": node, "requires_grad": node is not None, "shape": (1, 2), "dtype": "float"}
        self.raises = raises

    def __getattr__(self, name: str) -> Any:
        if name in ("values", "raises"):
            raise AttributeError(name)
        if name in self.raises:
            raise self.raises[name]
        return self.values[name]


class Module:
    """A module: its call and its forward."""

    def __init__(self) -> None:
        self.inside: Callable[[], None] | None = None
        self.output: Any = None

    def _wrapped_call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    __call__ = _wrapped_call_impl

    def forward(self, *_inputs: Any, **_named: Any) -> Any:
        """Run what is inside, and return the output."""
        inside, output = self.inside, self.output
        if inside is not None:
            inside()
        return output() if callable(output) else output


class Torch:
    """The functions of torch that hooks call."""

    def __init__(self) -> None:
        self.task = -1
        self.numbers = itertools.count()
        self.made = 0

    def node(self) -> Node:
        """Return a new node."""
        self.made += 1
        return Node(self.made - 1)


def load(path: Path) -> tuple[Any, Torch]:
    """Load the extension anew from its file, with its own module state, and configure it."""
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module, torch = importlib.util.module_from_spec(spec), Torch()
    spec.loader.exec_module(module)
    module.configure(
        tensor_type=Tensor,
        graph_task_id=lambda: torch.task,
        sequence_nr=lambda: torch.made,
        traced_mark=lambda *_: None,
        graph_task_id_at=0,
        sequence_nr_at=0,
    )
    return module, torch


class Session:
    """The marks of one module and of nodes, with fallbacks that count their calls."""

    def __init__(self, module: Any, torch: Torch, *, tracked: bool = True, limit: int = 1000) -> None:
        self.torch = torch
        self.serial = 1000
        self.buffer = module.MarkBuffer(self.serial, limit)
        self.errors: list[BaseException] = []
        self.fallbacks = 0
        self.gaps: list[tuple[int, int]] = []
        self.owner = SimpleNamespace(module=None)
        self.time = itertools.count()
        node_context = module.HookContext(self.buffer, fallback=self.fallback, on_error=self.on_error)
        self.node_context = node_context
        self.nodes = module.NodeMarks(node_context, lambda hooks: SimpleNamespace(hooks=hooks))
        tracking = {"nodes": self.nodes, "gaps": self.gaps} if tracked else {}
        self.context = module.HookContext(self.buffer, **tracking)
        self.contexts = [self.context, node_context]
        self.update()
        self.table = module.CallTable()
        self.table.intercept(Module._wrapped_call_impl)
        self.module = Module()
        self.entry = self.make_entry(module)
        self.table.site(self.module).entries = (self.entry,)

    def make_entry(self, module: Any, context: Any = None, on_error: Any = None) -> Any:
        """Return an entry of a label with the index 5."""
        own = (self.owner, self.fallback, self.fallback, context or self.context, on_error or self.on_error)
        return module.CallEntry(*own, 5 << 4)

    def fallback(self, *_args: Any, **_kwargs: Any) -> None:
        """Count a call that was no usual one."""
        self.fallbacks += 1

    def on_error(self, _owner: Any, _module: Any, error: Exception) -> None:
        """Keep an exception of a hook."""
        self.errors.append(error)

    def update(self, *, enabled: bool = True, read: Callable[[], Any] | None = None) -> None:
        """Renew the contexts."""
        for context in self.contexts:
            context.update(
                enabled=enabled,
                training_thread=threading.get_ident(),
                read_clock=read or (lambda: next(self.time)),
            )

    def call(self, *inputs: Any, output: Any = None, inside: Callable[[], None] | None = None) -> None:
        """Call the module."""
        self.module.inside, self.module.output = inside, output
        self.module(*inputs)

    def run_backward(self, nodes: list[Node], task: int = 1) -> None:
        """Run the prehooks of nodes, the newest first."""
        self.torch.task = self.buffer.running = task
        for node in sorted(nodes, key=lambda one: -one.number):
            for hook in node.prehooks:
                hook("gradients")
        self.torch.task = -1

    def codes(self) -> list[int]:
        """Return the codes in the buffer."""
        return [self.buffer[at] for at in range(0, len(self.buffer), 2)]

    def take(self) -> tuple[Any, Any]:
        """Start a new step."""
        self.serial += 1
        self.nodes.clear()
        self.gaps.clear()
        taken: tuple[Any, Any] = self.buffer.take(self.serial)
        return taken


def check_buffer(module: Any, torch: Torch) -> None:
    """Integers are bytes, other readings a list; indices are checked; a long step frees its memory."""
    buffer = module.MarkBuffer(7, 100_000)
    assert buffer.take(8) == (b"", b"")
    buffer.extend((1, 10, 2, -20))
    assert (len(buffer), buffer[0], buffer[3], buffer[-1]) == (4, 1, -20, -20)
    assert buffer.take(9)[0] == (1).to_bytes(8, "little") + (2).to_bytes(8, "little")
    for wrong in ([1, 2], (1,), ("a", 1), (1 << 80, 1)):
        with contextlib.suppress(TypeError, OverflowError, ValueError):
            buffer.extend(wrong)
            raise AssertionError(wrong)
    with contextlib.suppress(IndexError):
        buffer[99]
        raise AssertionError
    for count in (300, 70_000):
        for at in range(count):
            buffer.extend((at, at if at % 1000 else object()))
        codes, readings = buffer.take(10)
        assert len(codes) == 8 * count
        assert len(readings) == count
    buffer.extend((1, 1 << 70))
    buffer.extend((2, 3))
    assert buffer.take(11)[1] == [1 << 70, 3]
    assert [buffer.next_ordinal(), buffer.next_ordinal()] == [STRIDE, 2 * STRIDE]
    buffer.take(12)
    assert buffer.next_ordinal() == STRIDE

    class Marks:
        """A reading whose end makes a mark."""

        def __del__(self) -> None:
            buffer.extend((77, 7))

    for _ in range(3):
        buffer.extend((1, Marks()))
    buffer.clear()
    assert [buffer[at] for at in range(0, len(buffer), 2)] == [77] * 3


def check_plain_hooks(module: Any, torch: Torch) -> None:
    """Two marks a call; a recomputed call has another code; every other case goes to the fallback."""
    session = Session(module, torch, tracked=False)
    session.call()
    torch.task = 3
    session.call()
    torch.task = -1
    assert session.codes() == [80, 83, 81, 83]
    session.update(enabled=False)
    session.call()
    assert session.fallbacks == 2
    session.buffer.idle = True
    session.call()
    assert (session.fallbacks, len(session.codes())) == (2, 4)
    session.buffer.idle = False
    session.update()
    thread = threading.Thread(target=session.call)
    thread.start()
    thread.join()
    assert (session.fallbacks, session.buffer.skipped, len(session.codes())) == (2, 2, 4)
    assert not session.errors


def check_call_sites(module: Any, torch: Torch) -> None:
    """A site marks the calls of its module, of its replicas and of wrappers around it, and of no other."""
    session, marked = Session(module, torch, tracked=False), 0
    site, one = session.table.find(session.module), session.module
    session.call()
    marked += 1
    type(one)()()  # a module without a site
    assert session.table.intercepts
    session.table.intercept(None)
    session.call()
    assert not session.table.intercepts
    session.table.intercept(Module._wrapped_call_impl)
    replica = type(one)()
    wrapper = type(one)()
    wrapper.inside = session.call
    session.table.alias(replica, site, wraps=False)
    session.table.alias(wrapper, site, wraps=True)
    replica()
    marked += 1
    on_thread = threading.Thread(target=replica)
    on_thread.start()
    on_thread.join()
    assert (session.fallbacks, session.buffer.skipped) == (2, 0)  # a call of another module is passed over there
    one.inside = None
    wrapper()  # the module inside is not marked again
    marked += 1
    assert len(session.codes()) == 2 * marked
    seen: list[Any] = []
    site.before = (seen.append,)
    one()
    site.before = ()
    one()
    assert seen == [one]
    one.inside = lambda: setattr(site, "entries", ())
    one()
    assert len(session.codes()) == 2 * (marked + 2) + 1  # removed inside the call: it does not end
    assert len(session.table) == 3
    del replica, wrapper
    gc.collect()
    assert len(session.table) == 1
    many = [type(one)() for _ in range(500)]
    for each in many:
        session.table.site(each)
    random.Random(0).shuffle(many)
    while many:
        session.table.drop(many.pop())
        assert all(session.table.find(each) is not None for each in many[:3])
    assert len(session.table) == 1


def check_carriers(module: Any, torch: Torch) -> None:
    """A carrier serves the next step once its graph is gone; a graph that lives on keeps its own."""
    session = Session(module, torch)
    made = [0]

    def make(hooks: Any) -> Any:
        made[0] += 1
        return SimpleNamespace(hooks=hooks)

    session.nodes = module.NodeMarks(session.node_context, make)
    context = module.HookContext(session.buffer, nodes=session.nodes, gaps=session.gaps)
    session.contexts.append(context)
    session.update()
    site = session.table.site(session.module)
    site.entries = (session.make_entry(module, context),)
    kept: list[Node] = []
    for step in range(6):
        nodes = [torch.node(), torch.node()]
        session.call(Tensor(nodes[0]), output=Tensor(nodes[1]))
        session.module.output = None
        if step == 2:
            kept = nodes
        session.take()
        if step == 3:
            assert made[0] == 4
        del nodes
    assert made[0] == 4
    assert [len(node.prehooks) for node in kept] == [1, 1]
    session.run_backward(kept)
    assert session.fallbacks == 2  # those of an earlier step, with the codes of that step
    assert not session.errors


def check_blocks(module: Any, torch: Torch) -> None:
    """Readings stay as they were taken, whatever comes later; the memory of steps that are gone serves again."""
    buffer, marks = module.MarkBuffer(0, 1 << 20), 10_000

    def step(number: int) -> Any:
        for at in range(marks):
            buffer.extend((at, number * marks + at))
        return buffer.take(number + 1)[1]

    kept = {number: readings for number in range(60) if (readings := step(number)) and number % 7 == 0}
    for number, readings in kept.items():
        assert list(readings.cast("q")) == list(range(number * marks, (number + 1) * marks))
    kept.clear()
    del readings
    blocks = {id(step(number).obj) for number in range(200)}
    assert len(blocks) <= 16
    buffer.suspended = True
    buffer.extend((1, 1))
    assert len(buffer) == 0


def check_tracking(module: Any, torch: Torch) -> None:
    """Nodes of inputs and outputs mark the backward of a call, once each."""
    session = Session(module, torch)
    nodes = [torch.node()]

    def new_output() -> Tensor:
        nodes.append(torch.node())
        return Tensor(nodes[-1])

    given = Tensor(nodes[0])
    session.call(given, None, output=new_output, inside=lambda: session.call(given, output=new_output))
    session.call(Tensor(nodes[-1]), output=Tensor(nodes[-1]))
    assert (session.fallbacks, session.errors) == (0, [])
    assert [len(node.prehooks) for node in nodes] == [1, 1, 1]
    session.run_backward(nodes)
    assert session.fallbacks == 0
    session.take()
    session.run_backward(nodes)
    assert session.fallbacks == 3  # nodes of an earlier step are for Python
    session.call(given, output=new_output)  # older than other nodes: a gap, which the call around it would close
    assert len(session.gaps) == 1
    session.call(Tensor(torch.node()), output=Tensor(torch.node()))
    session.run_backward([])


def check_backward_on_another_thread(module: Any, torch: Torch) -> None:
    """A device has a thread for its backward, as long as the training thread waits: its marks are named in C."""
    session = Session(module, torch)
    nodes = [torch.node(), torch.node()]
    session.call(Tensor(nodes[0]), output=Tensor(nodes[1]))
    assert not session.buffer.multithreaded
    found = list[int]()
    for read in (lambda: next(session.time), perf_counter_ns, object):
        session.update(read=read)
        thread = threading.Thread(target=lambda: (found.append(threading.get_ident()), session.run_backward(nodes)))
        thread.start()
        thread.join()
    assert session.buffer.multithreaded
    assert session.codes()[2:] == [13, STRIDE | 4, 13, STRIDE | 5] * 3
    assert [session.buffer[at] for at in range(5, len(session.buffer), 4)] == [one for one in found for _ in range(2)]
    assert session.fallbacks == 0


def check_marks(module: Any, torch: Torch) -> None:
    """A mark is appended with a reading of now, of any thread; without room it is for Python, in no step it is none."""
    session = Session(module, torch, tracked=False, limit=3)
    mark = session.node_context.mark
    mark(5)
    thread = threading.Thread(target=lambda: mark(7))
    thread.start()
    thread.join()
    assert session.codes() == [5, 13, 7]
    mark(9)
    assert (session.codes(), session.fallbacks, session.errors) == ([5, 13, 7], 1, [])
    session.buffer.suspended = True
    mark(11)
    assert session.fallbacks == 1
    session.buffer.suspended = False
    session.take()

    def fail() -> int:
        raise ValueError

    session.update(read=fail)
    mark(1)
    mark("no code")
    assert [type(error) for error in session.errors] == [ValueError, TypeError]
    session.context.mark(1)  # without a fallback it has no marks of its own
    assert session.codes() == []


def check_clock_of_the_host(module: Any, torch: Torch) -> None:
    """The clock that C reads is that of ``perf_counter_ns``: a mark lies between readings in Python around it."""
    session = Session(module, torch, tracked=False)
    session.update(read=perf_counter_ns)
    inside = list[int]()
    before = perf_counter_ns()
    session.call(inside=lambda: inside.append(perf_counter_ns()))
    after = perf_counter_ns()
    enter, leave = (session.buffer[at] for at in range(1, len(session.buffer), 2))
    in_order = [before, enter, *inside, leave, after]
    assert in_order == sorted(in_order)
    assert session.fallbacks == 0


def check_no_call_of_python_reads_the_clock(module: Any, torch: Torch) -> None:
    """On Linux and macOS C reads the clock itself: a function in the place of ``perf_counter_ns`` is not called."""
    calls = list[int]()

    def counted() -> int:
        calls.append(perf_counter_ns())
        return calls[-1]

    time.perf_counter_ns = counted
    try:
        module, torch = load(Path(module.__file__))
    finally:
        time.perf_counter_ns = perf_counter_ns
    session = Session(module, torch, tracked=False)
    session.update(read=counted)
    session.call()
    assert len(session.codes()) == 2
    assert len(calls) == (0 if sys.platform in ("linux", "darwin") else 2)


class Stamp:
    """A reading whose event keeps where it was recorded."""

    def __init__(self) -> None:
        self.event = list[Any]()
        self.host_ns, self.place = 0, None


class Device:
    """A device with streams, the stamps of its clock, and counts of what a reading asks for."""

    def __init__(self, module: Any) -> None:
        self.current, self.stream, self.captured = 0, 7, False
        self.asked = self.slow = 0
        self.pools = {0: [Stamp() for _ in range(3)]}
        self.module = module

    def reader(self, device: int | None = None, **changes: Any) -> Any:
        """Return a reading of a device."""
        functions = {
            "record": self.record,
            "streams": {(0, 7): "seventh", (0, 8): "eighth"},
            "current_device": lambda: self.current,
            "current_stream": lambda device: self.stream + device,
            "is_capturing": lambda: self.captured,
        }
        return self.module.EventReader(self.read, self.here, device, self.pools, **functions | changes)

    def here(self, device: int | None) -> tuple[int, int] | None:
        self.asked += 1
        return None if self.captured else (self.current if device is None else device, self.stream)

    def record(self, event: list[Any], where: Any) -> None:
        event.append(where)

    def read(self) -> Any:
        """Read as the clock in Python does, for every thread and stream."""
        self.slow += 1
        return "slow"


def check_event_reader(module: Any, torch: Torch) -> None:
    """The place is asked for once a stream; no free stamp, another device and a capture are Python's."""
    device = Device(module)
    read = device.reader()
    stamp = read()
    assert (stamp.place, stamp.event, stamp.host_ns > 0) == ((0, 7), ["seventh"], True)
    assert (read().event, device.asked) == (["seventh"], 1)
    device.stream = 8
    assert (read().event, device.asked) == (["eighth"], 2)
    assert (read(), len(device.pools[0])) == ("slow", 0)
    device.pools[0].append(stamp)
    device.captured = True
    assert read() == "slow"
    device.captured = False
    assert device.reader(1)() == "slow"
    assert device.reader(streams={})() == "slow"  # a place without a stream
    assert read() is stamp


def check_event_reader_that_fails(module: Any, torch: Torch) -> None:
    """An exception of any part is the reading's, and takes no stamp along that was not taken."""
    device = Device(module)

    def fail(*_args: Any) -> Any:
        raise LookupError

    for name in ("current_device", "current_stream", "is_capturing"):
        with raises(LookupError):
            device.reader(**{name: fail})()
    device.here = fail  # type: ignore[method-assign]
    with raises(LookupError):
        device.reader()()
    assert len(device.pools[0]) == 3
    with raises(TypeError):
        device.reader(pools=[])


@contextlib.contextmanager
def raises(kind: type[BaseException]) -> Iterator[None]:
    """Expect an exception."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def check_handover(module: Any, torch: Torch) -> None:
    """The end of a wait asks the main thread for the GIL, beside operations that release it for a moment."""
    timer, ended = module.GilTimer(), []

    def wait() -> None:
        while not timer.wait(0.001):
            ended.append(None)

    waiting = threading.Thread(target=wait)
    waiting.start()
    with open(os.devnull, "wb", buffering=0) as file:
        for _ in range(100_000):  # the thread has the processor long before, on any machine
            sum(number for number in range(2_000))
            file.write(b"0")  # releases the GIL, and has it back before the other thread is awake
            if ended and (timer.handover_ns > 0 or sys.platform != "linux"):
                break
    timer.wake()
    waiting.join()
    assert ended
    assert sys.platform != "linux" or timer.handover_ns > 0
    timer.wake()
    assert timer.wait(60.0)  # a wake ends the next wait
    assert not timer.wait(0.0)
    with raises(TypeError):
        timer.wait("long")


def check_limit(module: Any, torch: Torch) -> None:
    """A full buffer, and as many nodes, go to the fallback or are left out."""
    session = Session(module, torch, limit=3)
    for _ in range(5):
        session.call(Tensor(torch.node()), output=Tensor(torch.node()))
        session.buffer.extend((1, 1))
    assert len(session.codes()) == 3
    assert session.buffer.dropped == 4
    assert len(session.nodes) <= 3
    assert session.fallbacks > 0


def check_exceptions(module: Any, torch: Torch) -> None:
    """An Exception is reported, with the exception that was handled as its context; an interrupt goes on."""
    for error in (ValueError("ours"), KeyboardInterrupt(), SystemExit(1)):
        for where in ("input", "output"):
            session = Session(module, torch)
            wrong = Tensor(None, grad_fn=error)
            inputs, output = ((wrong,), None) if where == "input" else ((), wrong)
            reached = None
            try:
                session.call(*inputs, output=output)
            except BaseException as raised:
                reached = raised
            assert reached is (None if isinstance(error, ValueError) else error)
            assert session.errors == ([error] if isinstance(error, ValueError) else [])
            if where == "output":
                assert [code & 15 for code in session.codes()] == [0, 3]

    def fail() -> Any:
        raise OSError("no clock")

    session = Session(module, torch)
    session.update(read=fail)
    session.call(Tensor(torch.node()), output=Tensor(torch.node()))
    assert [type(error) for error in session.errors] == [OSError, OSError]
    with contextlib.suppress(KeyError):
        session.call(output=Tensor(None, grad_fn=KeyError()))


def check_cleared(module: Any, torch: Torch) -> None:
    """What the garbage collector has cleared, or Python code deleted, hands over to Python and reads no NULL."""
    session = Session(module, torch)
    clear = ctypes.pythonapi.PyType_GetSlot
    clear.restype, clear.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_int)
    known = torch.node()
    session.call(Tensor(known))
    for cleared in [*session.contexts, session.nodes]:
        slot = clear(type(cleared), PY_TP_CLEAR)
        ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)(slot)(cleared)
    session.update()
    session.call(Tensor(torch.node()), output=Tensor(torch.node()))
    session.nodes.track_input(1, torch.node(), STRIDE)
    assert [hook("gradients") for hook in known.prehooks] == [None]
    assert session.fallbacks == 2


def check_reentrance(module: Any, torch: Torch) -> None:
    """A clock in Python may renew the context, take the step and drop the hooks while it is read."""
    session = Session(module, torch)

    def read() -> Any:
        session.update(read=read)
        session.take()
        gc.collect()
        return object()

    session.update(read=read)
    for _ in range(10):
        session.call(Tensor(torch.node()), output=Tensor(torch.node()))
    assert not session.errors


def check_collection(module: Any, torch: Torch) -> None:
    """A session is collected with its hooks, and a hook that outlives it does nothing."""
    for _ in range(20):
        session = Session(module, torch)
        session.owner.session = session
        session.call(Tensor(torch.node()), output=Tensor(torch.node()))
        gone = weakref.ref(session)
        del session
        gc.collect()
        assert gone() is None


def check_call_tokens(module: Any, torch: Torch) -> None:
    """A function after a call gets what the one before it returned; a call that C began has its ordinal."""
    session, seen = Session(module, torch), list[Any]()
    site = session.table.site(session.module)
    site.entries += (module.CallEntry("a", lambda *_: "token", lambda *given: seen.append(given[-1])),)
    session.call(Tensor(torch.node()), output=[], inside=lambda: session.call(object()))
    assert session.fallbacks == 2  # the output of the one, and the input of the other
    assert seen == ["token", "token"]
    site.entries = site.entries[1:]
    functions = lambda *_: 7 * STRIDE, lambda *given: seen.append(given[-1])
    site.entries += (module.CallEntry(session.owner, *functions, session.context),)
    session.call(Tensor(torch.node()), output=[])
    session.call(object())
    assert seen[2:] == [2 * STRIDE, "token", "token"]
    assert session.codes()[-1] == 7 * STRIDE | 3


def check_random_calls(module: Any, torch: Torch, seed: int = 0, steps: int = 300) -> None:
    """Nests of calls with random inputs, outputs, threads, exceptions and steps."""
    draw = random.Random(seed)
    session = Session(module, torch, limit=500)
    nodes = [torch.node()]

    def value() -> Any:
        kind = draw.randrange(8)
        if kind < 4:
            nodes.append(torch.node())
            return Tensor(nodes[-1])
        if kind == 4:
            return Tensor(draw.choice(nodes))
        if kind == 5:
            return Tensor(None, grad_fn=draw.choice((ValueError(), KeyboardInterrupt())))
        return None if kind == 6 else Tensor()

    def nest(depth: int) -> None:
        inner = (lambda: [nest(depth - 1) for _ in range(draw.randrange(3))]) if depth else None
        with contextlib.suppress(KeyboardInterrupt):
            session.call(*(value() for _ in range(draw.randrange(3))), output=value(), inside=inner)

    for _ in range(steps):
        nest(3)
        if draw.random() < 0.5:
            session.run_backward(draw.sample(nodes, min(len(nodes), 20)), draw.randrange(3))
        if draw.random() < 0.3:
            session.take()
            del nodes[:-1]
        if draw.random() < 0.1:
            session.update(read=object if draw.random() < 0.5 else perf_counter_ns)
    assert all(isinstance(error, ValueError) for error in session.errors)


CHECKS = [check for name, check in sorted(globals().items()) if name.startswith("check_")]


def run_all(path: Path) -> None:
    """Run each check on a module of its own, which is collected after it."""
    for check in CHECKS:
        module, torch = load(path)
        check(module, torch)
        gone = weakref.ref(module)
        del module
        gc.collect()
        assert gone() is None, f"{check.__name__} keeps the module"


def main() -> int:
    """Run the checks of the extension at the path given; in a debug build of Python, see that no references leak."""
    path, counts = Path(sys.argv[1]), []
    for _ in range(6):  # the first ones fill caches
        run_all(path)
        gc.collect()
        counts.append(sys.gettotalrefcount() if hasattr(sys, "gettotalrefcount") else 0)
    leaks = min(after - before for before, after in itertools.pairwise(counts)) - 1  # one: the count in the list
    counted = f"{leaks} references leaked" if counts[0] else "references not counted, for this is no debug build"
    print(f"{len(CHECKS)} checks of {path}, {len(counts)} times: {counted}")
    return int(leaks > 0)


if __name__ == "__main__":
    raise SystemExit(main())
