"""Samples of the training thread's stack: which line they name, when they are taken, and what they cost."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from evidence_builders import MS, evidence_of, finding_of
from torch import nn

import autoprof
from autoprof.base.frame import BACKWARD_NAME, FrameRun, Phase, Span
from autoprof.base.stats import Aggregate
from autoprof.base.summary import Finding, Stage
from autoprof.capture.hooks.sizes import ModuleSize
from autoprof.capture.recorder import Recorder
from autoprof.devices import DeviceClock, HostClock
from autoprof.diagnose import EvidenceCollector, RunFacts, StackMonitor, StackTable, diagnose
from autoprof.diagnose._calls import CallSite, call_site
from autoprof.diagnose._diagnosis import NodeTracker
from autoprof.diagnose._stacks import EXCLUDED, UNATTRIBUTED
from autoprof.probes import stacks
from autoprof.probes._call_table import Site
from autoprof.probes.stacks import (
    StackProbe,
    StackSample,
    sites_of,
)
from autoprof.resolve import RawStep
from autoprof.session.account import Part
from autoprof.testing import FakeClock, FakeDevice, make_frame
from tests.accounts import FakeRun, unlimited
from tests.waiting import wait_until

HERE = os.path.basename(__file__)


def frame_of_the_test() -> dict[int, FrameType]:
    """Return a frame of the training thread, as another thread would see it."""
    return {threading.get_ident(): sys._getframe(0)}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_000 * MS)


@pytest.fixture
def probe(clock: FakeClock) -> StackProbe:
    """A probe whose samples the test takes itself: nothing pays for a thread of its own."""
    return StackProbe(Recorder(clock), None, frame_of_the_test)


def sample_at(probe: StackProbe, clock: FakeClock, ms: float) -> None:
    clock.now_ns = round(ms * MS)
    probe.sample(10 * MS)


def raw_step(step: int, clock: FakeClock, begun_ns: int, ended_ns: int) -> RawStep:
    return RawStep(step, 0, 0, clock, begun_ns, ended_ns, begun_ns=begun_ns, ended_ns=ended_ns)


def observed(monitor: StackMonitor, clock: FakeClock, begun_ms: int, spans: list[Span], length_ms: int) -> None:
    """Close a step that began at ``begun_ms``, and pass its frame on."""
    raw = raw_step(1, clock, begun_ms * MS, (begun_ms + length_ms) * MS)
    monitor.step(raw)
    monitor.frames(FrameRun.of(make_frame(spans, step=1, duration_ns=length_ms * MS)))


def test_a_sample_belongs_to_the_span_that_covers_it_or_to_none(probe: StackProbe, clock: FakeClock) -> None:
    """Two samples in the forward, three after it."""
    monitor = StackMonitor(probe)
    for ms in (1010, 1030, 1060, 1070, 1080):
        sample_at(probe, clock, ms)
    observed(monitor, clock, 1000, [Span("net", "net", Phase.FORWARD, None, 0, 50 * MS)], 100)
    tables = monitor.statistics()
    counts = {kind: table.samples for kind, table in tables.items()}
    assert counts == {"forward net": 2, "calls net": 2, UNATTRIBUTED: 3}
    assert tables[UNATTRIBUTED].ns == 30 * MS


def test_the_innermost_lines_of_a_forward_have_their_own_times(probe: StackProbe, clock: FakeClock) -> None:
    """A mask that two lines of the forward ask for: its line has the time of both."""
    monitor = StackMonitor(probe)
    mask, lines = Site("model.py", 9, "mask", "tril"), [Site("model.py", at, "forward", "mask") for at in (20, 21)]
    for ms, users in ((1010, (mask, lines[0])), (1020, (mask, lines[1])), (1030, (lines[1],))):
        probe.samples.append(StackSample(ms * MS, 10 * MS, False, users, users[0]))
    observed(monitor, clock, 1000, [Span("net", "net", Phase.FORWARD, None, 0, 50 * MS)], 100)
    table = monitor.statistics()["forward net"]
    assert [(line.location, line.count, table.share(line)) for line in table.innermost] == [
        ("model.py:9", 2, 2 / 3), ("model.py:21", 1, 1 / 3)
    ]  # fmt: skip


def test_a_sample_of_excluded_time_is_no_part_of_the_step(probe: StackProbe, clock: FakeClock) -> None:
    """It was taken while the session was paused."""
    monitor = StackMonitor(probe)
    probe._excluded = True
    sample_at(probe, clock, 1020)
    observed(monitor, clock, 1000, [], 100)
    assert {kind: table.samples for kind, table in monitor.statistics().items()} == {EXCLUDED: 1}


def test_excluded_time_is_named_by_the_line_around_all_of_it(probe: StackProbe, clock: FakeClock) -> None:
    """A function that samples a text, and not the lines of the model that it calls."""
    monitor = StackMonitor(probe)
    main, sample = Site("train.py", 8, "main", "write"), Site("train.py", 20, "write", "forward")
    for ms, line in ((10, 40), (20, 41), (30, 42), (40, 43)):
        users = Site("model.py", line, "forward", "linear"), sample, main
        probe.samples.append(StackSample(ms * MS, 10 * MS, True, users, users[0]))
    observed(monitor, clock, 1000, [Span("net", "net", Phase.FORWARD, None, 0, 50 * MS)], 100)
    (line,) = monitor.statistics()[EXCLUDED].lines
    assert (line.location, line.count) == ("train.py:20", 4)


def test_the_line_is_the_innermost_one_of_the_user() -> None:
    """Not that of torch below it, but with the name of the function that it calls."""
    found: list[stacks.Sites] = []

    class Seen(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found.append(sites_of(sys._getframe(0)))
            return x

    Seen()(torch.ones(1))
    torch.ones(1).apply_(lambda value: found.append(sites_of(sys._getframe(0))) or value)  # type: ignore[func-returns-value]
    ((user, caller, *_), inner), _ = found
    assert (os.path.basename(user.file), user.function, inner) == (HERE, "forward", user)
    assert caller.call == "forward"  # and not that of torch's function around it


def test_a_line_inside_of_a_custom_function_of_autograd_is_told_from_others() -> None:
    """By its first argument: a layer has a forward, too, and ``apply`` is the name of many functions."""
    found: list[stacks.Sites] = []

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            found.append(sites_of(sys._getframe(0)))
            return x * 2

    Twice.apply(torch.ones(1))  # type: ignore[no-untyped-call]
    (((forward, line, *_), inner),) = found
    assert (forward.function, inner) == ("forward of an autograd function", forward)
    assert line.function == sys._getframe().f_code.co_name


@pytest.mark.parametrize(
    "differentiate",
    [
        lambda function, x: function(x).backward(),
        lambda function, x: torch.autograd.grad(function(x), x),
        lambda function, x: torch.func.grad(function)(x),
    ],
    ids=["backward", "autograd.grad", "func.grad"],
)
def test_a_line_that_begins_a_backward_pass_calls_it(differentiate: Callable[[Any, torch.Tensor], Any]) -> None:
    """Whichever function of torch the line names: a transform calls a wrapper of its own."""
    found: list[stacks.Sites] = []

    def hooked(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook(lambda _grad: found.append(sites_of(sys._getframe(0))))
        return y

    differentiate(hooked, torch.ones((), requires_grad=True))
    (((hook, begin, *_), _),) = found
    assert (hook.function, hook.call, begin.call) == ("<lambda>", "", stacks.BACKWARD)


def test_the_line_of_a_loop_over_a_loader_is_that_of_the_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """No code of the program runs there: torch draws the next index."""
    found: list[stacks.Sites] = []
    draw = torch.randperm

    def noted(*args: Any, **kwargs: Any) -> torch.Tensor:
        found.append(sites_of(sys._getframe(1)))
        return draw(*args, **kwargs)

    monkeypatch.setattr(torch, "randperm", noted)
    for _ in torch.utils.data.DataLoader([0, 1], shuffle=True):
        pass
    ((user, *_), inner), *_ = found
    assert inner is not None
    assert (os.path.basename(user.file), os.path.basename(inner.file)) == (HERE, "sampler.py")
    assert inner.function == "__iter__ of the sampler"


@pytest.mark.parametrize("file", ["session/pipeline.py", "base/stats/median.py"])
def test_a_library_that_autoprof_calls_is_no_line_of_the_program(file: str) -> None:
    """numpy, which sorts the times of the last steps; what the program calls itself is its own line."""
    own = os.path.join(os.path.dirname(autoprof.__file__), *file.split("/"))
    names: dict[str, Any] = {"sys": sys}
    for name, path, body in (
        ("sort", np.__file__, "return sys._getframe()"),
        ("make_pass", own, "return sort()"),
    ):
        exec(compile(f"def {name}(): {body}", path, "exec"), names)
    assert sites_of(names["make_pass"]()) == ((), None)
    users, inner = sites_of(names["sort"]())
    assert os.path.basename(users[0].file) == HERE
    assert inner is not None
    assert inner.file == np.__file__


class ByLength(torch.utils.data.Sampler[int]):
    """A sampler of a program, which draws in a function of its own."""

    def __init__(self, found: list[stacks.Sites]) -> None:
        self.found = found

    def draw(self) -> int:
        """Note the stack."""
        self.found.append(sites_of(sys._getframe(0)))
        return 0

    def __iter__(self) -> Iterator[int]:
        yield self.draw()


@pytest.mark.parametrize("workers", [0, 1])
def test_the_functions_of_a_sampler_are_called_so(workers: int) -> None:
    """Also where workers load the batches: it runs in the main process."""
    found: list[stacks.Sites] = []
    for _ in torch.utils.data.DataLoader([0, 1], sampler=ByLength(found), num_workers=workers):
        pass
    ((users, inner),) = found
    functions = [user.function for user in users[:3]]
    assert functions[:2] == ["draw of the sampler", "__iter__ of the sampler"]
    assert functions[2] == "test_the_functions_of_a_sampler_are_called_so"
    assert inner == users[0]


def table_of(*counts: int) -> StackTable:
    lines = tuple(
        CallSite(f"{os.getcwd()}/train.py", 88 + at, "main", call, "", count, count * MS)
        for at, (call, count) in enumerate(zip(("save_image", "update_ema", "log"), counts, strict=False))
    )
    return StackTable(sum(counts), sum(counts) * MS, lines)


def test_the_finding_names_the_line_with_its_share_of_the_step() -> None:
    """``train.py:88 save_image, 61 % of the step``."""
    facts = RunFacts(stacks={UNATTRIBUTED: table_of(90, 10)})
    summary = diagnose(evidence_of({"forward": 32, "step": 100}, repeat=20, facts=facts))
    finding = finding_of(summary, "unattributed")
    assert finding.name == "train.py:88 save_image"
    assert "train.py:88 save_image, 61.2 %" in finding.why
    assert "update_ema" not in finding.why


@pytest.mark.parametrize(
    ("blocked", "on_device", "waits"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_a_line_in_which_the_training_thread_waits_is_no_work(
    clock: FakeClock, blocked: bool, on_device: bool, waits: bool
) -> None:
    """The advice is to wait less. Beside a device's clock the thread may wait for the device."""
    asked = []

    def is_blocked(native_id: int) -> bool:
        asked.append(native_id)
        return blocked

    recorder = Recorder(DeviceClock(FakeDevice(clock), now=clock.read) if on_device else clock)
    probe = StackProbe(recorder, None, frame_of_the_test, is_blocked)
    monitor = StackMonitor(probe)
    for ms in range(1010, 1090, 10):
        sample_at(probe, clock, ms)
    observed(monitor, clock, 1000, [], 100)
    facts = RunFacts(stacks=monitor.statistics())
    finding = finding_of(diagnose(evidence_of({"forward": 32, "step": 100}, repeat=20, facts=facts)), "unattributed")
    assert set(asked) <= {threading.get_native_id()}
    assert ("the training thread waits there: for another thread" in finding.why) is waits
    assert ("leave out sleeps" in finding.next, "look for copies" in finding.next) == (waits, not waits)


def test_of_several_lines_those_that_wait_are_named() -> None:
    """The first computes, so the advice is on its work; runs of before know nothing of waits."""
    work, wait = table_of(60, 40).lines
    table = StackTable(100, 100 * MS, (work, replace(wait, blocked_ns=30 * MS)))
    assert table.described_waits.startswith("; the training thread waits in train.py:89: for another thread")
    facts = RunFacts(stacks={UNATTRIBUTED: table}).to_dict()
    summary = diagnose(evidence_of({"forward": 32, "step": 100}, repeat=20, facts=RunFacts.from_dict(facts)))
    finding = finding_of(summary, "unattributed")
    assert table.described_waits in finding.why
    assert finding.next.startswith("look for copies")
    for line in facts["stacks"][UNATTRIBUTED]["lines"]:
        del line["blocked_ns"]
    assert RunFacts.from_dict(facts).stacks[UNATTRIBUTED].described_waits == ""


def test_excluded_time_that_waits_says_so() -> None:
    """Validation that reads a slow file."""
    (line,) = table_of(90).lines
    table = StackTable(90, 90 * MS, (replace(line, blocked_ns=80 * MS),))
    facts = RunFacts(stacks={EXCLUDED: table})
    stages = (Stage("validation", 9, 9_000 * MS, 9),)
    excluded = finding_of(diagnose(evidence_of({"forward": 90}, repeat=50, stages=stages, facts=facts)), "excluded")
    assert excluded.why.endswith(f"of the wall time{table.described_waits}")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux: the state of a thread")
def test_a_thread_is_blocked_while_it_waits() -> None:
    """One that runs is not."""
    lock = threading.Lock()
    with lock:
        thread = threading.Thread(target=lock.acquire, daemon=True)
        thread.start()
        wait_until(lambda: stacks.is_blocked(thread.native_id or 0), "a thread that waits for a lock")
    thread.join()
    assert not stacks.is_blocked(threading.get_native_id())


def test_layers_outside_of_the_model_are_a_cost_and_no_fault(probe: StackProbe, clock: FakeClock) -> None:
    """A frozen teacher: the line that calls it is a note, a loop in Python of the program's own is a warning."""

    def finding(inner: str) -> Finding:
        monitor = StackMonitor(probe)
        for at in range(20):
            user, innermost = Site("train.py", 41, "train", "forward"), Site("model.py", 7, "forward", inner)
            probe.samples.append(StackSample(at, MS, True, (user,), innermost))
        observed(monitor, clock, 100, [], 20)
        lines = monitor.statistics()[EXCLUDED]
        facts = RunFacts(stacks={UNATTRIBUTED: lines})
        return finding_of(diagnose(evidence_of({"forward": 32, "step": 100}, repeat=20, facts=facts)), "unattributed")

    layers, loop = finding("forward"), finding("")
    assert (layers.severity, layers.name, layers.gain_ns) == ("note", "train.py:41 forward", None)
    assert "layers that are not part of the model" in layers.why
    assert finding("step").severity == "note"  # an optimizer that was not given
    assert (loop.severity, loop.name) == ("critical", "train.py:41 forward")


@pytest.mark.parametrize(
    ("lines", "trains_copy", "named"), [((90, 10), False, True), ((), False, False), ((90, 10), True, False)]
)
def test_backward_in_no_module_is_named_by_its_lines(lines: tuple[int, ...], trains_copy: bool, named: bool) -> None:
    """An autograd function of the loss. Without such lines it is the loss's arithmetic, or a copy of the model."""
    span = Span(BACKWARD_NAME, None, Phase.BACKWARD, None, 50 * MS, 40 * MS)
    aggregate, collector = Aggregate(), EvidenceCollector()
    for step in range(1, 21):
        frame = make_frame([Span("net", "net", Phase.FORWARD, None, 0, 50 * MS), span], step=step, duration_ns=91 * MS)
        aggregate.add(frame)
        collector.add(frame)
    facts = RunFacts(stacks={f"backward {BACKWARD_NAME}": table_of(*lines)}, trains_copy=trains_copy)
    finding = finding_of(diagnose(collector.evidence(aggregate.summary(), facts)), "unattributed")
    assert (finding is not None and finding.severity != "info") is named
    if named:
        assert "40.0 ms (44.0 % of the step) are in the backward pass, but in no module: train.py:88" in finding.why


@pytest.mark.parametrize(
    ("backward_ms", "nodes", "severity"),
    [(40, None, "warning"), (40, 4000, "warning"), (40, 4, "note")],
)
def test_backward_outside_of_the_model_is_no_hook(backward_ms: int, nodes: float | None, severity: str) -> None:
    """Only the line that begins the pass runs then: it is the backward of a loss, whose own lines are known.

    That of a few large operators, as a decomposition of a matrix, is what the loss costs.
    """
    span = Span(BACKWARD_NAME, None, Phase.BACKWARD, None, 50 * MS, backward_ms * MS)
    aggregate, collector = Aggregate(), EvidenceCollector()
    for step in range(1, 21):
        frame = make_frame(
            [Span("net", "net", Phase.FORWARD, None, 0, 50 * MS), span], step=step, duration_ns=(55 + backward_ms) * MS
        )
        aggregate.add(frame)
        collector.add(frame)
    begin = CallSite("train.py", 30, "train", "backward", "", 90, 90 * MS)
    stacks = {f"backward {BACKWARD_NAME}": StackTable(90, 90 * MS, (begin,)), UNATTRIBUTED: table_of(90, 10)}
    facts = RunFacts(stacks=stacks, nodes=nodes, sizes={"net": ModuleSize("train.Net", 100)})
    finding = finding_of(diagnose(collector.evidence(aggregate.summary(), facts)), "unattributed")
    assert finding.severity.replace("critical", "warning") == severity
    assert ("(4000 in each step)" in finding.why) is (nodes == 4000)
    assert "no code of the program runs there" in finding.why
    assert "as of train.py:88 save_image" in finding.why
    assert "hook" not in finding.next


@pytest.mark.parametrize(
    ("backward_ms", "nodes", "named"), [(12, 60.0, True), (12, 20.0, False), (4, 60.0, False), (0, 60.0, False)]
)
def test_a_loss_and_its_backward_are_a_note_where_they_take_much_together(
    backward_ms: int, nodes: float, named: bool
) -> None:
    """Neither 9 of 91 ms in no span nor the backward of as many is a finding alone. Without a node outside of the
    model there is no such operator."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for step in range(1, 21):
        spans = [
            Span("net", "net", Phase.FORWARD, None, 0, 70 * MS),
            Span(BACKWARD_NAME, None, Phase.BACKWARD, None, 70 * MS, backward_ms * MS),
        ]
        frame = make_frame(spans, step=step, duration_ns=(79 + backward_ms) * MS)
        aggregate.add(frame)
        collector.add(frame)
    facts = RunFacts(
        stacks={UNATTRIBUTED: table_of(90, 10)}, nodes=nodes, sizes={"net": ModuleSize("train.Net", 8, nodes=20)}
    )
    finding = finding_of(diagnose(collector.evidence(aggregate.summary(), facts)), "unattributed")
    assert (finding is not None) is named
    if named:
        assert (finding.severity, finding.gain_ns) == ("note", None)
        assert "21.0 ms (23.1 % of the step) are in operators outside of the model and in their backward" in finding.why
        assert "train.py:88 save_image" in finding.why


def test_a_sample_in_which_garbage_is_collected_uses_up_no_budget() -> None:
    """It takes as long as hundreds of others, and any allocation may begin it."""
    run = FakeRun()
    allowance = run.account.part(Part.LINES)

    def collected() -> dict[int, FrameType]:
        run.processor_ns += 14 * MS
        return frame_of_the_test()

    recorder = Recorder(FakeClock())
    probe = StackProbe(recorder, allowance, collected)
    probe._excluded = True
    probe._look_or_wait(allowance)
    assert len(probe.samples) == 1
    assert allowance.spent_ns < MS


def test_of_two_lines_that_share_the_time_inside_of_a_line_both_are_quoted(probe: StackProbe, clock: FakeClock) -> None:
    """A function that fetches and decodes, beside a little else."""
    inner = ["main after fetch"] * 2 + ["main after decode"] * 2 + ["main after rest"]
    samples = [(1060 + 5 * at, functions) for at, functions in enumerate(inner)]
    monitor = stacks_of(probe, clock, *((1030 + ms, "main step") for ms in range(0, 30, 5)), *samples)
    (line,) = monitor.statistics()[UNATTRIBUTED].lines
    assert (line.location, line.path) == ("train.py:6", " in after, at train.py:2 and train.py:3")


@pytest.mark.parametrize(("call", "named"), [("", True), ("backward", False)])
def test_a_loop_in_the_backward_of_a_module_is_named(call: str, named: bool) -> None:
    """A custom autograd function: its backward takes six times its forward, and lines of the program run in it."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    spans = [
        Span("net", "net", Phase.FORWARD, None, 0, 5 * MS),
        Span("net", "net", Phase.BACKWARD, None, 5 * MS, 30 * MS),
    ]
    for step in range(1, 21):
        frame = make_frame(spans, step=step, duration_ns=100 * MS)
        aggregate.add(frame)
        collector.add(frame)
    line = CallSite("segment.py", 31, "backward", call, "", 90, 90 * MS)
    facts = RunFacts(stacks={"backward net": StackTable(90, 90 * MS, (line,))})
    finding = finding_of(diagnose(collector.evidence(aggregate.summary(), facts)), "backward-ratio")
    assert (finding is not None and finding.gain_ns == 20 * MS) is named
    assert not named or "code of the program runs there: segment.py:31 backward, 30.0 %" in finding.why


def test_lines_in_a_backward_are_those_inside_of_the_pass(probe: StackProbe, clock: FakeClock) -> None:
    """Not ``loss.backward()``, though nothing else of the step was sampled there."""
    monitor = StackMonitor(probe)
    begin, loop = Site("train.py", 8, "main", "backward"), Site("segment.py", 31, "backward", "nonzero")
    for at, users in enumerate([(begin,)] * 5 + [(loop, begin)] * 15):
        probe.samples.append(StackSample((1000 + at) * MS, MS, False, users, users[0]))
    observed(monitor, clock, 1000, [Span("net", "net", Phase.BACKWARD, None, 0, 50 * MS)], 100)
    table = monitor.statistics()["backward net"]
    assert [(line.line, line.count) for line in table.code_in_backward.lines] == [(31, 15)]


@pytest.mark.parametrize(("counts", "severity"), [((36, 33, 31), "note"), ((60, 25, 15), "warning")])
def test_lines_that_each_take_less_than_a_tenth_of_the_run_are_a_note(counts: tuple[int, ...], severity: str) -> None:
    """A loop that does what it has to do, line by line, in 27 % of the step."""
    lines = tuple(CallSite("train.py", 40 + at, "step", "", "", n, n * MS) for at, n in enumerate(counts))
    facts = RunFacts(stacks={UNATTRIBUTED: StackTable(100, 100 * MS, lines)})
    finding = finding_of(diagnose(evidence_of({"forward": 73}, repeat=20, facts=facts)), "unattributed")
    assert (finding.severity, finding.gain_ns is None) == (severity, severity == "note")


@pytest.mark.parametrize(
    ("backward_ms", "nodes", "said", "severity"),
    [(30, None, True, "critical"), (30, 3000, True, "critical"), (30, 40, True, "note"), (2, 40, False, "critical")],
)
def test_the_backward_of_code_in_no_span_is_told_beside_it(
    backward_ms: int, nodes: float | None, said: bool, severity: str
) -> None:
    """A loss that loops over pairs makes a graph of as many pieces; one of a few large operators computes."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    spans = [
        Span("net", "net", Phase.FORWARD, None, 0, 20 * MS),
        Span(BACKWARD_NAME, None, Phase.BACKWARD, None, 60 * MS, backward_ms * MS),
    ]
    for step in range(1, 21):
        frame = make_frame(spans, step=step, duration_ns=100 * MS)
        aggregate.add(frame)
        collector.add(frame)
    sizes = {"net": ModuleSize("train.Net", 100, nodes=10)}
    facts = RunFacts(stacks={UNATTRIBUTED: table_of(90, 10)}, nodes=nodes, sizes=sizes)
    finding = finding_of(diagnose(collector.evidence(aggregate.summary(), facts)), "unattributed")
    clause = "the backward of operators outside of the model takes 30.0 ms more"
    assert finding.why.endswith(clause) is said
    assert finding.severity == severity


@pytest.mark.parametrize(("whose", "severity"), [(stacks.OF_FUNCTION, "note"), ("", "warning")])
def test_a_custom_function_of_autograd_outside_of_the_model_may_be_its_loss(whose: str, severity: str) -> None:
    """Its backward is code of the program as well: nothing shows that it computes what a loss costs."""
    lines = (CallSite("train.py", 58, "main", "apply", "", 90, 90 * MS),)
    inside = (CallSite("train.py", 17, f"forward{whose}", "", "", 90, 90 * MS),)
    facts = RunFacts(stacks={UNATTRIBUTED: StackTable(90, 90 * MS, lines, inside)})
    finding = finding_of(diagnose(evidence_of({"forward": 60, "step": 100}, repeat=20, facts=facts)), "unattributed")
    assert (finding.name, finding.severity) == ("train.py:58 apply", severity)


def test_a_thread_that_cannot_be_started_leaves_the_training_alone(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    """A limit of the system: there are no samples, and the next steps do not wait for one."""

    def refuse(*_args: Any) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(stacks, "start_new_thread", refuse)
    probe = StackProbe(Recorder(clock), unlimited(), frame_of_the_test)
    probe.enable()
    for _ in range(3):
        probe.attach()
        probe.detach()
    probe.remove()
    assert probe.take() == []


def test_the_nodes_of_a_step_are_counted_between_two_steps_in_a_row() -> None:
    """Those of steps that are not recorded belong to none."""
    tracker, x = NodeTracker(), torch.ones(1, requires_grad=True)
    tracker.step(1)
    assert tracker.mean is None
    for step, nodes in ((2, 3), (3, 5), (9, 70), (10, 4)):
        for _ in range(nodes):
            x * 2
        tracker.step(step)
    assert tracker.mean == 4


def test_few_samples_name_no_line() -> None:
    """Three samples of four are no majority."""
    facts = RunFacts(stacks={UNATTRIBUTED: table_of(3, 1)})
    finding = finding_of(diagnose(evidence_of({"forward": 32}, repeat=20, facts=facts)), "unattributed")
    assert finding.name is None
    assert "4 samples, too few to name the lines" in finding.why


def test_many_lines_that_each_take_a_little_are_no_cause() -> None:
    """What a loop consists of, as an actor's environment and the targets of its critics: the verdict is unclear."""
    facts = RunFacts(stacks={UNATTRIBUTED: table_of(*[2] * 12)})
    summary = diagnose(evidence_of({"forward": 60, "step": 100}, repeat=20, facts=facts))
    finding = finding_of(summary, "unattributed")
    assert (finding.severity, finding.gain_ns) == ("info", None)
    assert finding.why.endswith("24 samples of the stack are of many")


def test_a_lambda_is_named_by_the_line_in_it(probe: StackProbe, clock: FakeClock) -> None:
    """``after(step)`` calls a lambda, which has no name; the line of the lambda calls ``save_image``."""
    loop = stacks.Site("train.py", 9, "main", "step")
    trained = stacks.Site("train.py", 11, "step", "forward")
    called = stacks.Site("train.py", 12, "step", "<lambda>")
    inside = stacks.Site("train.py", 40, "<lambda>", "save_image")
    sleeps = stacks.Site("image.py", 3, "save_image", "")
    monitor = StackMonitor(probe)
    chains = [(trained, loop)] * 20 + [(sleeps, inside, called, loop)] * 20
    for at, chain in enumerate(chains):
        probe.samples.append(stacks.StackSample((1001 + at) * MS, MS, False, chain, chain[0]))
    observed(monitor, clock, 1000, [Span("model", "model", Phase.FORWARD, None, 0, round(20.5 * MS))], 100)
    (line,) = monitor.statistics()[UNATTRIBUTED].lines
    assert (line.line, line.call) == (40, "save_image")


def test_sampling_leaves_the_switch_interval() -> None:
    """It is shorter in the last moment before a sample. The acceptance program ``interpreter_held`` has the lines."""
    probe = StackProbe(Recorder(HostClock()), unlimited())
    interval_s = sys.getswitchinterval()
    probe.attach()
    probe.enable()
    for _ in range(100):
        sum(index for index in range(20_000))
        torch.ones(8).sum()
    probe.remove()
    assert sys.getswitchinterval() == interval_s


def test_excluded_time_is_named_below_the_lines_that_call_the_training_too(probe: StackProbe, clock: FakeClock) -> None:
    """Validation and saving have ``main()`` in common, below which training runs as well."""
    monitor = StackMonitor(probe)
    run = FrameRun.of(make_frame([Span("net", "net", Phase.FORWARD, None, 0, 90 * MS)], duration_ns=100 * MS))
    main, _ = sites_of(sys._getframe())[0], monitor.frames(run)
    validate, save = Site("train.py", 30, "main", "validate"), Site("train.py", 31, "main", "save")
    for ms, site in ((10, validate), (20, validate), (30, save)):
        probe.samples.append(StackSample(ms * MS, 10 * MS, True, (site, *main), site))
    monitor.step(raw_step(1, clock, 0, 100 * MS))
    assert [line.call for line in monitor.statistics()[EXCLUDED].lines] == ["validate", "save"]


def test_a_wait_for_data_names_the_line_of_the_dataset() -> None:
    """The finding has the lines that ran while the step waited for its batch."""
    lines = (CallSite("data.py", 12, "__getitem__", "augment", "", 40, 400 * MS),)
    facts = RunFacts(stacks={"data data": StackTable(40, 400 * MS, lines)})
    finding = finding_of(diagnose(evidence_of({"data": 60, "forward": 30}, repeat=20, facts=facts)), "data-wait")
    assert "data.py:12 augment, 60.0 %" in finding.why


def advice_of(*lines: CallSite, **loader: int) -> str:
    """Return the advice on a wait for data with these lines."""
    count, ns = sum(line.count for line in lines), sum(line.ns for line in lines)
    facts = RunFacts(stacks={"data data": StackTable(count, ns, lines)})
    step: dict[str, float] = {"data": 60, "forward": 30}
    finding = finding_of(diagnose(evidence_of(step, repeat=20, facts=facts, loader=loader)), "data-wait")
    return str(finding.next)


def test_a_sampler_is_not_made_faster_by_workers() -> None:
    """It runs in the main process; four tenths of the wait are enough."""
    lines = (
        CallSite("data.py", 20, "pad", "pad_sequence", "", 60, 600 * MS),
        CallSite("data.py", 12, "__iter__ of the sampler", "", "", 40, 400 * MS),
    )
    assert advice_of(*lines).startswith("the sampler draws in the main process")


@pytest.mark.parametrize(
    ("call", "advice"), [("deform", "this code runs in the main process"), ("__next__", "let the loader work ahead")]
)
def test_code_of_the_main_process_is_not_made_faster_by_more_workers(call: str, advice: str) -> None:
    """A generator around the loader, and the wait for the workers."""
    line = CallSite("data.py", 12, "deformed", call, "", 40, 400 * MS)
    assert advice_of(line, workers=2, fetches=20, unready=20).startswith(advice)


def test_the_line_of_the_loop_is_not_named_for_its_data(probe: StackProbe, clock: FakeClock) -> None:
    """The loop's function is on the stack of every sample; below it is the dataset's line."""
    loop, fetch = Site("train.py", 8, "train", "__next__"), Site("data.py", 12, "__getitem__", "augment")
    monitor = StackMonitor(probe)
    step = Site("train.py", 9, "train", "forward")
    for ms, users in ((1010, (fetch, loop)), (1020, (fetch, loop)), (1060, (step,))):
        probe.samples.append(StackSample(ms * MS, 10 * MS, False, users, users[0]))
    spans = [
        Span("Data", None, Phase.DATA, None, 0, 50 * MS),
        Span("net", "net", Phase.FORWARD, None, 50 * MS, 50 * MS),
    ]
    observed(monitor, clock, 1000, spans, 100)
    assert [line.function for line in monitor.statistics()["data Data"].lines] == ["__getitem__"]


def test_samples_are_taken_from_the_end_of_the_warm_up_on(clock: FakeClock) -> None:
    """A line is named wherever the time goes, also where the work explains it."""
    probe = StackProbe(Recorder(clock), unlimited(), frame_of_the_test)
    monitor = StackMonitor(probe)
    span = Span("layer", "layer", Phase.FORWARD, None, 0, 10 * MS)
    for step, warmup in ((1, True), (2, False)):
        monitor.frames(FrameRun.of(make_frame([span], step=step, duration_ns=10 * MS, warmup=warmup)))
        assert probe.enabled is not warmup
    probe.remove()


def test_samples_of_steps_that_are_completed_together_belong_each_to_its_own(
    probe: StackProbe, clock: FakeClock
) -> None:
    """Three steps end before the first is completed: a sample waits for its step, one between them is dropped."""
    monitor = StackMonitor(probe)
    for ms in (1010, 1110, 1130, 1205, 1250):
        sample_at(probe, clock, ms)
    for step, (begun_ms, ended_ms) in enumerate([(1000, 1100), (1100, 1200), (1210, 1300)], 1):
        monitor.step(raw_step(step, clock, begun_ms * MS, ended_ms * MS))
    for step in (1, 2, 3):
        span = Span(f"net{step}", "net", Phase.FORWARD, None, 0, 90 * MS)
        monitor.frames(FrameRun.of(make_frame([span], step=step, duration_ns=100 * MS)))
    counts = {kind: table.samples for kind, table in monitor.statistics().items() if kind.startswith("forward")}
    assert counts == {"forward net1": 1, "forward net2": 2, "forward net3": 1}


LINES = ["", "main", "fetch", "decode", "rest", "step", "after", "draw"]
"""The functions of a program by the only line of each that is seen."""


def stacks_of(probe: StackProbe, clock: FakeClock, *samples: tuple[int, str]) -> StackMonitor:
    """Return a monitor of these samples: the millisecond, and the functions from the outermost one inwards."""
    monitor = StackMonitor(probe)
    for ms, functions in samples:
        names = functions.split()
        sites = [
            Site(f"{os.getcwd()}/train.py", LINES.index(name), name, call)
            for name, call in zip(names, [*names[1:], ""], strict=True)
        ]
        probe.samples.append(StackSample(ms * MS, 10 * MS, False, tuple(reversed(sites)), sites[-1]))
    spans = [
        Span("Data", None, Phase.DATA, None, 0, 30 * MS),
        Span("net", "net", Phase.FORWARD, None, 30 * MS, 30 * MS),
    ]
    observed(monitor, clock, 1000, spans, 100)
    return monitor


def test_a_line_is_named_with_the_calls_inside_it_or_around_it(probe: StackProbe, clock: FakeClock) -> None:
    """The loop's own line says which function is slow below it; a helper's line says who called it."""
    monitor = stacks_of(
        probe,
        clock,
        *((1000 + ms, "main fetch decode rest") for ms in range(0, 30, 5)),
        *((1030 + ms, "main step") for ms in range(0, 30, 5)),
        *((1060 + ms, "main after draw rest") for ms in range(0, 30, 5)),
    )
    tables = monitor.statistics()
    assert (
        tables[UNATTRIBUTED].describe(0.5) == "train.py:6 draw, at train.py:7 → rest, at train.py:4, 50.0 % (6 samples)"
    )
    assert tables["data Data"].describe(0.3) == "train.py:4 rest, called in decode (train.py:3), 30.0 % (6 samples)"


def test_the_function_of_the_line_stands_before_the_place_in_the_function_that_it_calls(
    probe: StackProbe, clock: FakeClock
) -> None:
    """``main`` calls ``after``, whose line calls ``draw``, whose own line takes the time: it is not in ``after``."""
    samples = [(1060 + ms, "main after draw") for ms in range(0, 30, 5)]
    monitor = stacks_of(probe, clock, *((1030 + ms, "main step") for ms in range(0, 30, 5)), *samples)
    found = monitor.statistics()[UNATTRIBUTED].describe(0.5)
    assert found == "train.py:6 draw in after, at train.py:7, 50.0 % (6 samples)"


def test_the_place_inside_of_a_line_is_the_innermost_that_has_most_of_its_time(
    probe: StackProbe, clock: FakeClock
) -> None:
    """Four samples of six lie in one function that ``draw`` calls, and not all of them in one that this calls."""
    inner = ["main after draw decode", "main after draw decode rest"] * 2 + ["main after draw fetch"] * 2
    samples = [(1060 + 5 * at, functions) for at, functions in enumerate(inner)]
    monitor = stacks_of(probe, clock, *((1030 + ms, "main step") for ms in range(0, 30, 5)), *samples)
    found = monitor.statistics()[UNATTRIBUTED].describe(0.5)
    assert found == "train.py:6 draw, at train.py:7 → decode, at train.py:3, 50.0 % (6 samples)"


def test_of_a_long_source_line_the_call_is_shown(tmp_path: Path) -> None:
    """The function's name alone may be as short as ``run``."""
    source = tmp_path / "train.py"
    source.write_text(f"trainer.fit({'x' * 60}, after=lambda step: asyncio.run(ask(step, 2)))\n", encoding="utf-8")
    assert call_site(stacks.Site(str(source), 1, "<lambda>", "run"), 1, 1).source == "asyncio.run(ask(step, 2))"


def test_of_a_long_source_line_without_a_call_the_begin_is_shown(tmp_path: Path) -> None:
    """A place without its source says little in a log that is read elsewhere."""
    source = tmp_path / "train.py"
    source.write_text(f"mixed = {{{'x' * 90}}}\n", encoding="utf-8")
    assert call_site(stacks.Site(str(source), 1, "update", ""), 1, 1).source == f"mixed = {{{'x' * 70}…"
