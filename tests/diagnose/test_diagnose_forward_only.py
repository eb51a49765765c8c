"""The rule ``forward-only``: calls of a module that have no backward pass, and the lines that make them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest
from evidence_builders import MS, finding_of

from autoprof.base.frame import FrameRun, Phase, Span
from autoprof.base.stats import Aggregate
from autoprof.base.summary import Finding, MemoryRow, Work
from autoprof.capture.hooks.sizes import ModuleSize
from autoprof.capture.recorder import Recorder
from autoprof.diagnose import EvidenceCollector, RunFacts, StackMonitor, StackTable, diagnose
from autoprof.diagnose._calls import CallSite
from autoprof.probes._call_table import Site
from autoprof.probes.stacks import StackProbe, StackSample
from autoprof.resolve import RawStep
from autoprof.testing import FakeClock, make_frame

MODEL = Site("model.py", 7, "forward", "linear")
MAIN = Site("train.py", 90, "<module>", "main")
TRAINED = Site("train.py", 40, "main", "forward")
SCORED = Site("train.py", 41, "main", "accuracy")
IN_SCORE = Site("train.py", 12, "accuracy", "forward")


def spans_of(forwards: int, backwards: int, ms: float = 10) -> list[Span]:
    """Return one call of ``net`` after the other, each of this length."""
    phases = [Phase.FORWARD] * forwards + [Phase.BACKWARD] * backwards
    return [Span("net", "net", phase, None, round(ms * MS) * at, round(ms * MS)) for at, phase in enumerate(phases)]


def found(
    spans: list[Span],
    sizes: Mapping[str, ModuleSize] = MappingProxyType({}),
    *,
    held: Mapping[str, int] = MappingProxyType({}),
    without_graph: tuple[tuple[str, int], ...] = (),
    alike: bool = False,
    **stacks: StackTable,
) -> Finding | None:
    """Return what the rule says of twenty such steps of 100 ms, of modules with ``held`` bytes of parameters."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for step in range(1, 21):
        frame = make_frame(spans, step=step, duration_ns=100 * MS)
        aggregate.add(frame)
        collector.add(frame)
    facts = RunFacts(sizes=sizes, stacks={kind.replace("_", " "): table for kind, table in stacks.items()})
    table = tuple(MemoryRow(name, parameter_bytes=held.get(name or "")) for name in (None, *held))
    summary = replace(aggregate.summary(), memory_table=table, work=Work(without_graph=without_graph, alike=alike))
    finding: Finding | None = finding_of(diagnose(collector.evidence(summary, facts)), "forward-only")
    return finding


def test_calls_without_a_backward_pass_are_a_note_with_their_lines() -> None:
    """A metric that runs the model again: three calls, one of which the loss uses."""
    lines = tuple(
        CallSite(f"{os.getcwd()}/train.py", 40 + at, "main", call, "", 30, 30 * MS)
        for at, call in enumerate(("forward", "accuracy", "confidence"))
    )
    finding = found(spans_of(3, 1, 20), calls_net=StackTable(90, 90 * MS, lines))
    assert finding is not None
    assert (finding.severity, finding.name, finding.gain_ns) == ("note", "net", None)
    assert finding.why.startswith(
        "net is called 3 times a step, and 1 of the calls has a backward pass. All its forwards take 60.0 ms (60.0 % "
        "of the step): train.py:40 forward, 20.0 %, train.py:41 accuracy, 20.0 %"
    )


@pytest.mark.parametrize(("forwards", "backwards", "ms"), [(2, 2, 10), (1, 0, 10), (2, 1, 0.5)])
def test_other_modules_are_not_noted(forwards: int, backwards: int, ms: float) -> None:
    """Those with a backward for each forward, without any gradient, or short."""
    assert found(spans_of(forwards, backwards, ms)) is None


@pytest.mark.parametrize(
    ("nodes", "why"), [(12, "none of the calls has a backward pass"), (0, "work without a gradient")]
)
def test_a_branch_whose_result_nothing_uses_or_trains_is_a_note(nodes: int, why: str) -> None:
    """It makes a graph, through which no backward pass goes; a frozen part under ``no_grad`` makes none."""
    phases = Phase.FORWARD, Phase.BACKWARD
    outer = [Span("net", "net", phase, None, at * 40 * MS, 40 * MS) for at, phase in enumerate(phases)]
    branch = Span("net/branch", "net.branch", Phase.FORWARD, 0, MS, 30 * MS)
    layer = Span("net/branch/0", "net.branch.0", Phase.FORWARD, 1, MS, 20 * MS)
    sizes = {fqn: ModuleSize("train.Branch", 8, nodes=nodes) for fqn in ("net.branch", "net.branch.0")}
    finding = found([*outer, branch, layer], sizes=sizes, held={"net/branch": 8})
    assert finding is not None
    assert finding.name == "net/branch"
    assert why in finding.why
    assert ("to a part that does not change, keep its results" in finding.next) is (nodes == 0)


def test_a_module_without_parameters_that_makes_no_graph_is_a_note() -> None:
    """The features of a batch, as a spectrogram: nothing in it is trained."""
    inputs = Span("net/mel", "net.mel", Phase.FORWARD, 0, MS, 30 * MS)
    finding = found([*spans_of(1, 1, 40), inputs], sizes={"net.mel": ModuleSize("train.Mel", 8)})
    assert finding is not None
    assert (finding.severity, finding.name, finding.gain_ns) == ("note", "net/mel", None)
    assert finding.why == (
        "30.0 ms (30.0 % of the step) in the forward are work without a gradient, most of it in net/mel"
    )


@pytest.mark.parametrize(("lines", "named"), [((20,), True), ((), False)])
def test_lines_of_a_forward_that_make_no_graph_are_a_note(lines: tuple[int, ...], named: bool) -> None:
    """A mask that is made in each step, beside the line of a product, in 30 and 10 of 40 ms."""
    file = f"{os.getcwd()}/model.py"
    sampled = tuple(CallSite(file, at, "forward", "", "", ms, ms * MS) for at, ms in ((20, 30), (21, 10)))
    table = StackTable(40, 40 * MS, sampled, sampled)
    without_graph = tuple((file, line) for line in lines)
    sizes = {"net": ModuleSize("train.Net", 8, nodes=3)}
    finding = found(spans_of(1, 1, 40), sizes, without_graph=without_graph, forward_net=table)
    assert (finding is not None) is named
    assert finding is None or finding.why == (
        "30.0 ms (30.0 % of the step) in the forward are work without a gradient, most of it in "
        "net: model.py:20 forward, 30.0 %"
    )


def test_short_calls_without_a_backward_pass_are_no_note() -> None:
    """A rollout on few samples: the backward shows that the one call with many takes nearly all of the time."""
    times = (Phase.FORWARD, 2), (Phase.FORWARD, 2), (Phase.FORWARD, 26), (Phase.BACKWARD, 52)
    spans, at = [], 0
    for phase, ms in times:
        spans.append(Span("net", "net", phase, None, at * MS, ms * MS))
        at += ms
    assert found(spans) is None


@pytest.mark.parametrize(("alike", "named"), [(True, True), (False, False)])
def test_calls_of_the_same_shapes_take_the_same_time(alike: bool, named: bool) -> None:
    """Two forwards of 13 ms, and a backward as long as both: it says little of either, unless the shapes are known."""
    times, spans, at = ((Phase.FORWARD, 13), (Phase.FORWARD, 13), (Phase.BACKWARD, 36)), list[Span](), 0
    for phase, ms in times:
        spans.append(Span("Net", "", phase, None, at * MS, ms * MS))
        at += ms
    assert (found(spans, alike=alike) is not None) is named


def test_the_outermost_of_the_modules_is_named() -> None:
    """A module in it is called as often, and has as few backward passes."""
    inner = [
        Span("net/body", "net.body", span.phase, at, span.start_ns, span.host_ns)
        for at, span in enumerate(spans_of(3, 1, 20))
    ]
    finding = found([*spans_of(3, 1, 20), *inner])
    assert finding is not None
    assert finding.name == "net"


@pytest.fixture
def probe() -> StackProbe:
    """A probe without a thread: the test gives the samples."""
    return StackProbe(Recorder(FakeClock()), None)


def observe(monitor: StackMonitor, spans: list[Span], length_ms: int = 100) -> None:
    monitor.step(RawStep(1, 0, 0, FakeClock(), 0, length_ms * MS, begun_ns=0, ended_ns=length_ms * MS))
    frames = [make_frame(spans, step=step, duration_ns=length_ms * MS) for step in (1, 2)]
    for frame in frames:
        monitor.frames(FrameRun.of(frame))


def test_samples_in_a_model_belong_to_the_line_that_calls_it(probe: StackProbe) -> None:
    """The line of the loop, not that of the function below it, nor those inside of the model."""
    monitor = StackMonitor(probe)
    stacks = [(MODEL, TRAINED, MAIN)] * 10 + [(MODEL, IN_SCORE, SCORED, MAIN)] * 20
    probe.samples = [StackSample(at * MS, MS, False, users, users[0]) for at, users in enumerate(stacks)]
    observe(monitor, spans_of(2, 1, 20))
    lines = monitor.statistics()["calls net"].lines
    assert [(line.location, line.count) for line in lines] == [("train.py:41", 20), ("train.py:40", 10)]
