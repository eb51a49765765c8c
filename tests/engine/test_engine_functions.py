"""``span``, ``timed``, ``log_timing`` and functions named in the configuration: they time, and change nothing else."""

import asyncio
import copy
import inspect
import pickle
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import timed_target
from attached import is_marked
from engine_laws import Watched, check_laws, everything, tree
from torch import nn

import autoprof
from autoprof import Phase, log_timing, span, timed
from autoprof.errors import TargetError
from autoprof.testing import FakeClock


def record(*steps: Any, clock: Any = None, **changes: Any) -> Watched:
    """Run each callable as a step of a session."""
    with Watched(nn.Linear(1, 1), clock=clock, config=everything(**changes)) as watched:
        for step in steps:
            step()
            watched.step()
    for frame in watched.frames:
        check_laws(frame)
    return watched


def shape(watched: Watched) -> list[str]:
    """Return the spans of the first step."""
    return tree(watched.frames[0])


@timed("f")
def function(x: int, /, y: int = 2, *rest: int, z: str = "z", **more: int) -> tuple[Any, ...]:
    """Say what it does."""
    return x, y, rest, z, more


class Thing:
    """Methods of every kind, timed from outside and from inside."""

    @timed("method")
    def method(self, x: int) -> tuple[Any, int]:
        """Bind to the instance."""
        return self, x

    @timed("outer class")
    @classmethod
    def outer_class(cls, x: int) -> tuple[Any, int]:
        return cls, x

    @classmethod
    @timed("inner class")
    def inner_class(cls, x: int) -> tuple[Any, int]:
        return cls, x

    @timed("outer static")
    @staticmethod
    def outer_static(x: int) -> int:
        return x

    @staticmethod
    @timed("inner static")
    def inner_static(x: int) -> int:
        return x


class SubThing(Thing):
    """Call ``super``."""

    def method(self, x: int) -> tuple[Any, int]:
        return super().method(x + 1)


def test_a_timed_function_gives_what_it_gave() -> None:
    """Arguments and results pass through, with a session and without."""
    expected = (1, 5, (6,), "q", {"w": 3})
    assert function(1, 5, 6, z="q", w=3) == expected
    watched = record(lambda: function(1, 5, 6, z="q", w=3) == expected or pytest.fail("changed"))
    assert shape(watched) == ["f user"]


def test_a_timed_function_keeps_its_signature_and_introspection() -> None:
    """Name, docstring, signature, module, source."""
    assert function.__name__ == "function"
    assert function.__doc__ == "Say what it does."
    assert str(inspect.signature(function)).startswith("(x: int, /, y: int = 2, *rest")
    assert inspect.isfunction(function)
    assert function.__module__ == __name__
    assert "return x, y" in inspect.getsource(function)


def test_methods_of_every_kind_bind_as_they_did() -> None:
    """Method, class method and static method, whichever decorator is outside; through instance, class and ``super``."""

    def use() -> None:
        thing, sub = Thing(), SubThing()
        assert thing.method(1) == (thing, 1)
        assert Thing.method(thing, 2) == (thing, 2)
        assert sub.method(1) == (sub, 2)
        assert thing.outer_class(1) == (Thing, 1)
        assert SubThing.outer_class(1) == (SubThing, 1)
        assert SubThing.inner_class(1) == (SubThing, 1)
        assert thing.outer_static(3) == Thing.outer_static(3) == 3
        assert thing.inner_static(3) == Thing.inner_static(3) == 3

    use()
    assert shape(record(use)) == [
        "method user",
        "method user",
        "method user",
        "outer class user",
        "outer class user",
        "inner class user",
        "outer static user",
        "outer static user",
        "inner static user",
        "inner static user",
    ]


class Boom(Exception):
    """An error of the user's."""


def test_an_exception_passes_unchanged_and_ends_the_span() -> None:
    """The same object, with the user's frame in its traceback."""
    boom = Boom()

    @timed("fails")
    def fails() -> None:
        raise boom

    def use() -> None:
        with pytest.raises(Boom) as caught:
            fails()
        assert caught.value is boom
        with pytest.raises(Boom) as caught, span("block"):
            raise boom
        assert caught.value is boom
        with span("after"):
            pass

    use()
    assert shape(record(use)) == ["fails user", "block user", "after user"]


def generator(log: list[Any]) -> Iterator[Any]:
    """Yield, take what is sent, survive what is thrown, return a value."""
    try:
        got = yield 1
        log.append(got)
        try:
            yield 2
        except Boom as error:
            log.append(error)
            yield 3
        return "end"
    finally:
        log.append("closed")


def test_a_timed_generator_passes_send_throw_and_the_value_through() -> None:
    """As the plain one does, step by step."""
    boom = Boom()

    def use(make: Any) -> list[Any]:
        log: list[Any] = []
        made = make(log)
        seen = [next(made), made.send("sent"), made.throw(boom)]
        try:
            next(made)
        except StopIteration as stop:
            seen.append(stop.value)
        return [*seen, *log]

    wrapped = timed("gen")(generator)
    expected = use(generator)
    assert expected == [1, 2, 3, "end", "sent", boom, "closed"]
    assert use(wrapped) == expected
    results = []
    watched = record(lambda: results.append(use(wrapped)))
    assert results == [expected]
    assert shape(watched) == ["gen user"] * 4
    (row,) = watched.session.summary().rows
    assert row.calls == 1


def test_the_time_a_generator_is_suspended_is_not_its_own() -> None:
    """Only the slices count."""
    clock = FakeClock()

    @timed("gen")
    def slow() -> Iterator[int]:
        for i in range(3):
            clock.advance(10)
            yield i

    def use() -> None:
        for _ in slow():
            clock.advance(1_000)

    watched = record(use, clock=clock)
    (row,) = watched.session.summary().rows
    assert (row.total_ns, row.calls) == (30, 1)


async def coroutine(name: str, clock: FakeClock, steps: int) -> str:
    """Work, and let others work."""
    for _ in range(steps):
        clock.advance(10)
        await asyncio.sleep(0)
    clock.advance(1)
    return name


def test_interleaved_tasks_keep_their_nesting() -> None:
    """Each slice is a span of its own; no task is inside another task's span."""
    clock = FakeClock()
    wrapped = timed("task")(coroutine)
    outer = timed("outer")(coroutine)
    results = []

    async def both() -> None:
        results.append(await asyncio.gather(wrapped("a", clock, 3), outer("b", clock, 2), wrapped("c", clock, 1)))

    watched = record(lambda: asyncio.run(both()), clock=clock)
    assert results == [["a", "b", "c"]]
    assert all(s.parent is None for s in watched.frames[0].spans)
    rows = {row.name: (row.total_ns, row.calls) for row in watched.session.summary().rows}
    assert rows == {"task": (31 + 11, 2), "outer": (21, 1)}


def test_a_coroutine_function_stays_one_and_is_cancelled_as_one() -> None:
    """Frameworks ask, and cancellation reaches the function."""
    seen = []

    @timed("x")
    async def waits() -> None:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def use() -> None:
        task = asyncio.ensure_future(waits())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert inspect.iscoroutinefunction(waits)
    record(lambda: asyncio.run(use()))
    assert seen == ["cancelled"]


async def async_generator() -> AsyncIterator[int]:
    """Yield once."""
    yield 1


def test_an_asynchronous_generator_is_refused() -> None:
    """Its time would be that of its making."""
    with pytest.raises(TargetError, match=r"async_generator .* cannot be timed"):
        timed("agen")(async_generator)


def test_a_span_may_be_entered_inside_itself() -> None:
    """Re-entrant: the same object nests, and outer and inner both end."""
    block = span("again")

    def use() -> None:
        with block, block:
            pass
        with span("after"):
            pass

    assert shape(record(use)) == ["again user", "  again user", "after user"]


def test_a_span_open_across_a_step_ends_with_the_step() -> None:
    """What is left of it in the next step is a mark without a counterpart, which is counted."""
    with Watched(nn.Linear(1, 1)) as watched:
        with span("x"):
            watched.step()
        watched.step()
        summary = watched.session.summary()
    assert tree(watched.frames[0]) == ["x user"]
    assert tree(watched.frames[1]) == []
    assert summary.skipped == {"marks without a counterpart": 1}


def test_a_logged_duration_is_a_row_and_no_part_of_the_account() -> None:
    """It was measured elsewhere, and may overlap anything."""
    clock = FakeClock()

    def use() -> None:
        log_timing("NCCL", 12.5)
        log_timing("NCCL", 2.5)
        with span("x"):
            clock.advance(100)
            log_timing("inside", 1)

    watched = record(use, clock=clock)
    (frame,) = watched.frames
    assert frame.phase_ns() == {Phase.USER: 100, Phase.OTHER: 0}
    rows = {row.name: row for row in watched.session.summary().rows}
    assert (rows["NCCL"].total_ns, rows["NCCL"].calls, rows["NCCL"].lane) == (15_000_000, 2, -1)
    assert all(s.parent is None for s in frame.spans if s.lane < 0)


@pytest.mark.parametrize("bad", ["text", None, float("nan"), float("inf"), 1e300, -1.0, object()])
def test_a_bad_duration_does_not_end_the_run(bad: Any) -> None:
    """Inside a training step autoprof never raises."""
    watched = record(lambda: log_timing("x", bad))
    assert watched.frames[0].spans == ()
    assert watched.session.summary().skipped == {"failures in log_timing: not a duration": 1}


def functions(*paths: str) -> dict[str, Any]:
    """Return a configuration that names functions."""
    return everything(functions=[{"path": f"timed_target:{path}", "name": path} for path in paths])


@pytest.mark.parametrize("path", ["plain", "Base.method", "Base.of_class", "Base.static"])
def test_a_named_function_is_wrapped_and_put_back_exactly(path: str) -> None:
    """The very object that was there, in the very place."""
    *outer, name = path.split(".")
    owner: Any = getattr(timed_target, outer[0]) if outer else timed_target
    original = vars(owner)[name]
    with Watched(nn.Linear(1, 1), config=functions(path)):
        assert vars(owner)[name] is not original
    assert vars(owner)[name] is original


@pytest.mark.parametrize("path", ["Child.method", "Child.of_class", "Child.static"])
def test_an_inherited_method_is_wrapped_for_the_child_alone(path: str) -> None:
    """The parent's calls are not timed, and nothing is left in the child."""
    name = path.split(".")[1]
    child = timed_target.Child()
    with Watched(nn.Linear(1, 1), config=functions(path)) as watched:
        getattr(child, name)(1)
        getattr(timed_target.Base(), name)(1)
        if name == "of_class":
            assert timed_target.Child.of_class(1) == (timed_target.Child, 1)
            assert child.of_class(2) == (timed_target.Child, 2)
        watched.step()
    assert name not in vars(timed_target.Child)
    assert watched.frames[0].spans[0].name == path
    assert all(s.name == path for s in watched.frames[0].spans)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("timed_target:plian", "plain"),
        ("timed_target:Base.metod", "method"),
        ("timed_target:not_callable", "not callable"),
        ("no_such_module_anywhere:f", "cannot import"),
    ],
)
def test_a_wrong_path_fails_at_set_up_and_leaves_nothing(path: str, message: str) -> None:
    """Names the nearest right word; the functions before it are put back."""
    original = timed_target.plain
    config = everything(functions=[{"path": "timed_target:plain", "name": "a"}, {"path": path, "name": "b"}])
    model = nn.Linear(1, 1)
    with pytest.raises(TargetError, match=message):
        autoprof.instrument(model, config)
    assert timed_target.plain is original
    assert not is_marked(model)


class Owner:
    """Hold on to timed functions, as a model or a loader does."""

    def __init__(self) -> None:
        self.function = function
        self.size = 3

    @timed("owner")
    def method(self) -> int:
        """Return the size."""
        return self.size


def test_a_timed_function_is_copied_and_pickled_by_reference() -> None:
    """As every function is: a model that holds one can be deep-copied and saved, a loader's worker can be sent one."""
    assert copy.copy(function) is function
    assert copy.deepcopy(function) is function
    assert pickle.loads(pickle.dumps(function)) is function
    copied = copy.deepcopy(Owner())
    assert copied.function is function
    assert pickle.loads(pickle.dumps(Owner())).function is function
