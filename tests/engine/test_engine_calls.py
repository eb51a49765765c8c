"""Calls that wait for the device, and calls that log: seen by site, harmless, and gone with the session."""

import builtins
import gc
import io
import logging
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from attached import diagnosis_of
from torch import Tensor, nn

from autoprof.base.process import replace
from autoprof.capture.recorder import Recorder
from autoprof.diagnose import Diagnosis
from autoprof.probes import sync_calls
from autoprof.probes._call_table import MAX_SITES, CallTable, Site
from autoprof.testing import FakeClock, FakeDevice, open_session
from tests.fake_memory import value_on

pytestmark = pytest.mark.usefixtures("nothing_compiled")
MS = 1_000_000
CONFIG: dict[str, Any] = {"targets": [{"match": ".*"}], "step": "manual", "sample": {"warmup": 0}, "sinks": {}}


class Bench:
    """A session on a fake device, or on the host, and what it has seen."""

    def __init__(self, *, on_device: bool = True, config: dict[str, Any] = CONFIG) -> None:
        self.clock = FakeClock()
        self.device = FakeDevice(self.clock)
        reads = self.device.device_clock() if on_device else self.clock
        self.model = nn.Linear(2, 2)
        self.session = open_session(self.model, config, clock=reads)

    def value(self, number: float = 1.0) -> Tensor:
        """Return a value on the device."""
        return value_on(self.device, torch.tensor(number))

    def step(self, steps: int = 1) -> None:
        """End the step, and more of them."""
        for _ in range(steps):
            self.session.step()

    def waits(self) -> Any:
        """Close, and return the facts of the calls that waited."""
        return self._close().facts().waits

    def logs(self) -> Any:
        """Close, and return the facts of the calls that logged."""
        return self._close().facts().logs

    def _close(self) -> Diagnosis:
        found = diagnosis_of(self.session)
        self.session.close()
        return found


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Open a session on a fake device."""
    made = Bench()
    yield made
    made.session.close()


READS: dict[str, Any] = {
    "item": lambda t: t.item(),
    "tolist": lambda t: t.tolist(),
    "cpu": lambda t: t.cpu(),
    "numpy": lambda t: t.numpy(),
    "nonzero": lambda t: t.nonzero(),
    "is_nonzero": lambda t: t.is_nonzero(),
    "masked_select": lambda t: t.masked_select(torch.tensor(True)),
    "__bool__": bool,
    "__float__": float,
    "__int__": int,
    "__complex__": complex,
    "__repr__": repr,
}


@pytest.mark.parametrize("name", READS)
def test_a_call_that_waits_is_charged_to_the_line_that_makes_it(bench: Bench, name: str) -> None:
    """Where, in which function, how often, and for how long the host stood still."""
    value = bench.value()
    for _ in range(3):
        bench.device.work(5 * MS)
        READS[name](value)
        bench.step()
    facts = bench.waits()
    (site,) = facts.sites
    assert (site.call, site.count, site.ns) == (name, 3, 15 * MS)
    assert site.file == __file__
    assert facts.mean_ns == 5 * MS


def test_what_it_returns_is_what_the_call_returns(bench: Bench) -> None:
    """The same values and kinds as without a session."""
    value, bare = bench.value(2.0), torch.tensor(2.0)
    for name, read in READS.items():
        seen, expected = read(value), read(bare)
        assert torch.equal(seen, expected) if isinstance(expected, Tensor) else name == "__repr__" or seen == expected


def test_on_the_host_nothing_is_replaced() -> None:
    """There is nothing to wait for, so no attribute is touched and nothing is said."""
    before = dict(vars(torch.Tensor))
    bench = Bench(on_device=False)
    assert dict(vars(torch.Tensor)) == before
    torch.tensor(1.0).item()
    bench.step()
    assert bench.waits() is None


def test_the_class_has_its_own_methods_while_a_session_is_open(bench: Bench) -> None:
    """Tables keyed by ``torch.Tensor.item`` (``__torch_function__``) find it."""
    assert torch.Tensor.item is torch._C.TensorBase.item
    assert torch.Tensor.__float__ is torch._C.TensorBase.__float__


def test_everything_is_undone_at_the_end_whatever_the_order() -> None:
    """Two sessions share the descriptors; the last one takes them away, and the first one not."""
    owners = (torch.Tensor, torch.cuda.Event, torch.cuda.Stream)
    before = [list(vars(owner).items()) for owner in owners]
    plain, handlers, wait = print, logging.Logger.callHandlers, torch.cuda.synchronize
    first, second = Bench(), Bench()
    first.session.close()
    assert "item" in vars(torch.Tensor)
    value = second.value()
    second.device.work(MS)
    value.item()
    second.step()
    assert second.waits().mean_ns == MS
    assert [list(vars(owner).items()) for owner in owners] == before
    assert builtins.print is plain
    assert logging.Logger.callHandlers is handlers
    assert torch.cuda.synchronize is wait
    assert not replace.held
    assert sync_calls.listeners == []


def test_an_exception_passes_as_it_is(bench: Bench) -> None:
    """Its traceback has no frame of ours, and the call is counted."""
    value = value_on(bench.device, torch.ones(2))
    with pytest.raises(RuntimeError) as caught:
        value.item()
    frames = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert not [name for name in frames if "autoprof/probes" in name or "capture" in name]
    bench.step()
    assert [site.call for site in bench.waits().sites] == ["item"]


def test_a_ctrl_c_during_the_wait_reaches_the_program(bench: Bench) -> None:
    """It is raised where the user's code is, not in a destructor of ours where it would be lost."""
    value = bench.value()

    def interrupt() -> None:
        raise KeyboardInterrupt

    bench.device.wait_here = interrupt
    with pytest.raises(KeyboardInterrupt):
        value.item()
    bench.step()


def test_the_warmup_and_what_is_not_recorded_do_not_count() -> None:
    """Steps of the warm-up, a pause and steps that are not sampled."""
    bench = Bench(config={**CONFIG, "sample": {"warmup": 1, "every": 2}})
    value = bench.value()

    def read() -> None:
        bench.device.work(MS)
        value.item()

    for _ in range(4):  # steps 1 (warm-up), 2 (not sampled), 3, 4 (not sampled)
        read()
        bench.step()
    with bench.session.pause():
        read()
    facts = bench.waits()
    assert (facts.steps, facts.sites[0].count) == (1, 1)


def test_sites_are_bounded() -> None:
    """Beyond the limit they share one, and no call is lost."""
    table = CallTable(Recorder(FakeClock()))
    for line in range(MAX_SITES + 50):
        table.add(Site("a.py", line, "f", "item"), 0, 1)
    table.close_step(1, table.count(table.take()))
    assert len(table.sites) == MAX_SITES + 1
    assert sum(count for count, _ in table.sites.values()) == MAX_SITES + 50


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace the builtin:UserWarning")  # of ``print``, once
def test_a_session_compiles_nothing_anew_around_a_graph_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value read between two graphs: as many compilations as without a session, and none of our functions."""
    from torch._dynamo.utils import clear_compilation_metrics, get_compilation_metrics

    def graphs(open_one: bool) -> list[str]:
        torch._dynamo.reset()
        clear_compilation_metrics()
        monkeypatch.setattr(replace, "_compiled", False)
        bench = Bench() if open_one else None

        stream = io.StringIO()  # made inside, torch 2.6 warns of it

        def block(x: Tensor) -> Tensor:
            x = x * 2
            if x.sum().item() > 100:
                x = x / 2
            print("said", file=stream)
            gc.collect()
            return x + 1

        compiled: Any = torch.compile(block, backend="eager")
        for _ in range(4):
            compiled(torch.ones(3))
            if bench is not None:
                bench.step()
        if bench is not None:
            assert "item" in vars(torch.Tensor)
            bench.session.close()
        notes = [note.co_name or "" for note in get_compilation_metrics()]
        return sorted(name for name in notes if "block" in name)

    assert graphs(True) == graphs(False)


# Calls that log.


class Slow(io.StringIO):
    """A stream that takes its time."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock

    def write(self, text: str) -> int:
        self.clock.advance(MS)
        return super().write(text)


@pytest.mark.parametrize("on_device", [True, False])
def test_printing_and_logging_are_charged_to_their_lines(on_device: bool) -> None:
    """On the host's clock and on a device's; what a handler prints is part of the logging."""
    bench = Bench(on_device=on_device)
    stream = Slow(bench.clock)
    logger = logging.getLogger("tests.calls")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    try:
        print("one line", file=stream)  # two writes: the text and the newline
        logger.info("another %s", "line")
        logger.debug("not enabled")
        bench.step()
    finally:
        logger.removeHandler(handler)
    facts = bench.logs()
    assert stream.getvalue() == "one line\nanother line\n"
    assert [(site.call, site.count, site.ns) for site in facts.sites] == [("print", 1, 2 * MS), ("logging", 1, MS)]
    assert {site.file for site in facts.sites} == {__file__}


def test_the_lines_of_autoprof_itself_are_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """What a sink prints belongs to autoprof's own cost."""
    bench = Bench(config={**CONFIG, "sinks": {"console": {"every": 1}}})
    bench.step(5)
    assert bench.logs().sites == ()
    assert capsys.readouterr().out


def test_a_writer_of_metrics_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class of that name and place, imported before the session begins."""
    import types

    class SummaryWriter:
        """What TensorBoard's is like."""

        def __init__(self, clock: FakeClock) -> None:
            self.clock = clock

        def add_scalar(self, _tag: str, _value: float) -> str:
            self.clock.advance(3 * MS)
            return "written"

    module = types.ModuleType("torch.utils.tensorboard.writer")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", module)
    bare = vars(SummaryWriter)["add_scalar"]
    bench = Bench()
    assert SummaryWriter(bench.clock).add_scalar("loss", 0.1) == "written"
    bench.step()
    (site,) = bench.logs().sites
    assert (site.call, site.ns) == ("SummaryWriter.add_scalar", 3 * MS)
    assert vars(SummaryWriter)["add_scalar"] is bare
