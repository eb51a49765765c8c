"""A module is accused only against its like siblings, or against the arithmetic of the whole model."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from evidence_builders import MS, finding_of

from autoprof.base.frame import BACKWARD_NAME, Phase, Span
from autoprof.base.stats import Aggregate
from autoprof.base.summary import POSTPONED, MemoryRow, MetricStats, Summary, Work, WorkRow
from autoprof.capture.hooks.sizes import ModuleSize
from autoprof.diagnose import Environment, EvidenceCollector, RunFacts, StackTable, diagnose
from autoprof.diagnose._calls import CallSite
from autoprof.diagnose._evidence import is_within
from autoprof.testing import make_frame

MFLOP = 1_000_000
UNCOUNTED = Work(reason="a shape depends on values")


def run(
    modules: dict[str, float],
    *,
    spread: float = 0.01,
    bytes_of: dict[str, int] | None = None,
    work: Work | None = None,
    name: str | None = None,
    facts: RunFacts | None = None,
    derives: bool = False,
    metrics: dict[str, MetricStats] | None = None,
) -> Summary:
    """Diagnose steps in which modules take so many milliseconds one after the other; ``name`` is the row they share.

    Without ``work`` each of them has one operator. In one that ``derives`` a backward pass runs for a millisecond.
    """
    if work is None:
        rows = [WorkRow(fqn, {}, operators={"forward": 1}) for fqn in modules]
        shared = WorkRow(name or "", {}, operators={"forward": len(modules)})
        work = Work(rows=(shared, WorkRow("head", {})) if name else tuple(rows), members=tuple(rows))
    draw, aggregate, collector = random.Random(3), Aggregate(), EvidenceCollector()
    for number in range(1, 41):
        spans, at = [], 0
        for fqn, ms in modules.items():
            ns = round(ms * MS * draw.lognormvariate(0, spread))
            spans.append(Span(fqn if name is None else name, fqn, Phase.FORWARD, None, at, ns))
            if derives:
                spans.append(Span(BACKWARD_NAME, None, Phase.BACKWARD, len(spans) - 1, at, MS))
            at += ns
        if name is not None:
            spans.append(Span("head", "head", Phase.FORWARD, None, at, MS))
        frame = make_frame(spans, step=number, duration_ns=round(at * 1.05))
        aggregate.add(frame)
        collector.add(frame)
    held = tuple(MemoryRow(name, parameter_bytes=count) for name, count in (bytes_of or {}).items())
    summary = replace(aggregate.summary(), memory_table=held, work=work, metrics=metrics or {})
    return diagnose(collector.evidence(summary, facts or RunFacts()))


def work_of(**flops: int) -> Work:
    rows = tuple(WorkRow(name, {"forward": count}) for name, count in flops.items())
    return Work(flops={"forward": sum(flops.values())}, rows=rows)


def test_a_block_much_longer_than_its_siblings_is_found_with_its_excess() -> None:
    """Four times as long as three blocks of the same structure."""
    finding = finding_of(run({"h.0": 10, "h.1": 40, "h.2": 10, "h.3": 10}), "hot-module")
    assert (finding.severity, finding.name) == ("critical", "h.1")
    assert finding.evidence["times"] == pytest.approx(4, abs=0.2)
    assert finding.gain_ns == pytest.approx(30 * MS, rel=0.05)


def test_a_block_that_shares_its_row_is_compared_with_the_others_of_the_row() -> None:
    """Four times as long as the median of nineteen equal blocks, in a row that is the sum of all."""
    blocks = {f"h.{number}": 40 if number == 13 else 10 for number in range(20)}
    finding = finding_of(run(blocks, name="h.*"), "hot-module")
    assert (finding.severity, finding.name, finding.evidence["siblings"]) == ("warning", "h.*", 19)
    assert finding.evidence["module"] == "h.13"
    assert finding.why.startswith("h.13 takes 4.0 x as long")
    assert finding.gain_ns == pytest.approx(30 * MS, rel=0.05)


@pytest.mark.parametrize(("flops", "named"), [(5 * MFLOP, True), (200 * MFLOP, False)])
def test_a_block_is_compared_with_its_siblings_by_the_time_that_its_work_explains(flops: int, named: bool) -> None:
    """Attention over the whole sequence in one block of four, and over windows in the others, by design."""
    work = work_of(**{"h.0": 5 * MFLOP, "h.1": flops, "h.2": 5 * MFLOP, "h.3": 5 * MFLOP, "head": 400 * MFLOP})
    blocks = {"h.0": 10, "h.1": 90, "h.2": 10, "h.3": 10, "head": 100}
    assert (finding_of(run(blocks, work=work), "hot-module") is not None) is named


@pytest.mark.parametrize(("flops", "named"), [(5 * MFLOP, True), (200 * MFLOP, False)])
def test_a_block_that_shares_its_row_is_compared_by_its_own_work(flops: int, named: bool) -> None:
    work = work_of(**{"h.*": 15 * MFLOP + flops, "head": MFLOP})
    work = replace(work, members=(WorkRow("h.1", {"forward": flops}),))
    blocks = {"h.0": 10, "h.1": 90, "h.2": 10, "h.3": 10}
    finding = finding_of(run(blocks, work=work, name="h.*"), "hot-module")
    assert (finding is not None and "h.1 takes 9.0 x" in finding.why) is named


@pytest.mark.parametrize(("kind", "named"), [("train.Pool", True), ("torch.nn.modules.activation.ReLU", False)])
def test_a_layer_without_parameters_has_siblings_of_its_class_alone(kind: str, named: bool) -> None:
    """Twelve times as long as layers of the same FLOPs: a pool beside activations may be that."""
    names = [f"{number}" for number in range(5)]
    sizes = {name: ModuleSize("train.Pool" if name == "1" else kind, 100) for name in names}
    times = {name: 60.0 if name == "1" else 5.0 for name in names}
    summary = run(times, work=work_of(**dict.fromkeys(names, 84 * MFLOP)), facts=RunFacts(sizes=sizes))
    assert (finding_of(summary, "hot-module") is not None) is named


def test_a_block_whose_work_is_still_to_be_counted_is_not_accused_for_its_siblings() -> None:
    """The report says what is missing."""
    blocks = {"h.0": 10, "h.1": 90, "h.2": 10, "h.3": 10}
    finding = finding_of(run(blocks, work=Work(reason=POSTPONED)), "hot-module")
    assert finding.severity == "info"
    assert finding.why.startswith("missing: the FLOPs of h.1, which takes 9.0 x as long as its siblings")


def test_a_block_whose_work_cannot_be_counted_is_compared_by_the_sizes_of_its_tensors() -> None:
    """The finding says so: attention over windows passes the same tensors as attention over all."""
    blocks = {"h.0": 10, "h.1": 90, "h.2": 10, "h.3": 10}
    finding = finding_of(run(blocks, work=UNCOUNTED), "hot-module")
    assert "same structure, as far as their tensors show: their work cannot be counted" in finding.why
    sizes = {fqn: ModuleSize("train.Block", 400 if fqn == "h.1" else 100) for fqn in blocks}
    assert finding_of(run(blocks, work=UNCOUNTED, facts=RunFacts(sizes=sizes)), "hot-module") is None


def test_more_operators_do_not_explain_a_longer_block() -> None:
    """It goes through the tokens one by one: the same FLOPs in fifty times as many operators."""
    blocks = {"h.0": 10, "h.1": 40, "h.2": 10, "h.3": 10}
    rows = (WorkRow(name, {"forward": MFLOP}, operators={"forward": 500 if name == "h.1" else 10}) for name in blocks)
    finding = finding_of(run(blocks, work=Work(flops={"forward": 4 * MFLOP}, rows=tuple(rows))), "hot-module")
    assert (finding.name, finding.evidence["siblings"]) == ("h.1", 3)


@pytest.mark.parametrize(
    ("kind", "nodes", "named"),
    [("train.Readout", 2000, True), ("train.Readout", 60, False), ("torch.nn.modules.rnn.GRU", 2000, False)],
)
def test_a_loop_over_operators_is_found_where_the_work_is_not_counted(kind: str, nodes: int, named: bool) -> None:
    """A readout that selects the nodes of each graph by a mask has shapes that depend on values; a GRU loops in C."""
    facts = RunFacts(sizes={"readout": ModuleSize(kind, 100, nodes=nodes)})
    summary = run({"readout": 50, "layer": 50}, facts=facts, work=UNCOUNTED)
    finding = finding_of(summary, "hot-module")
    assert (finding is not None) is named
    if finding is not None:
        assert (finding.name, finding.gain_ns) == ("readout", pytest.approx(25 * MS, rel=0.02))
        assert "it launches at least 2000 small operators" in finding.why
        assert any(one.name == "readout" and one.state == "unexplained" for one in summary.ledger)


def test_the_graph_of_a_derivative_is_no_loop_over_operators() -> None:
    """A force is the gradient of an energy: autograd makes the nodes for the gradient's own gradient."""
    facts = RunFacts(sizes={"forces": ModuleSize("train.Forces", 100, nodes=2000)})
    summary = run({"forces": 50, "layer": 50}, facts=facts, work=UNCOUNTED, derives=True)
    assert finding_of(summary, "hot-module") is None


@pytest.mark.parametrize(("chained", "severity"), [(True, "note"), (False, "critical")])
def test_a_loop_in_which_each_call_needs_the_one_before_is_no_fault(chained: bool, severity: str) -> None:
    """A solver that goes on from its own result has to be called again and again."""
    facts = RunFacts(sizes={"cell": ModuleSize("train.Cell", 100, nodes=2000, chained=chained)})
    finding = finding_of(run({"cell": 50, "layer": 50}, facts=facts, work=UNCOUNTED), "hot-module")
    assert (finding.name, finding.severity) == ("cell", severity)
    assert ("each call works on what the one before it has returned" in finding.why) is chained


@pytest.mark.parametrize(("fqn", "inside"), [("", True), ("h", True), ("h.1", False), ("g", False)])
def test_a_shared_row_lies_in_a_module_that_holds_all_of_its_members(fqn: str, inside: bool) -> None:
    """The model holds every row."""
    (row,) = [row for row in run({"h.0": 10, "h.1": 10}, name="h/0-1").rows if row.name == "h/0-1"]
    assert is_within(row, fqn) is inside


def test_the_time_of_a_loop_is_shared_between_its_launches_and_its_arithmetic() -> None:
    """Both explain 60 ms: thirty of the loop's are no work of the model."""
    rows = (
        WorkRow("loop", {"forward": 240 * MFLOP}, operators={"forward": 3000}),
        WorkRow("layer", {"forward": 160 * MFLOP}, operators={"forward": 1}),
    )
    facts = RunFacts(sizes={"loop": ModuleSize("train.Loop", 100)})
    summary = run({"loop": 60, "layer": 40}, work=Work(flops={"forward": 400 * MFLOP}, rows=rows), facts=facts)
    finding = finding_of(summary, "hot-module")
    assert "it launches 3000 small operators" in finding.why
    assert finding.gain_ns == pytest.approx(15 * MS, rel=0.02)


@pytest.mark.parametrize(("operators", "named"), [(500, True), (20, False)])
def test_the_backward_of_a_loop_over_slices_is_the_loops(operators: int, named: bool) -> None:
    """For each slice that is read, it writes a gradient of the whole, which no operator on the whole does."""
    row = WorkRow(
        "attention",
        {},
        moved={"forward": MS, "backward": 400 * MS},
        operators={"forward": operators, "backward": 4 * operators},
    )
    aggregate, collector = Aggregate(), EvidenceCollector()
    for step in range(1, 41):
        times = (Phase.FORWARD, 10), (Phase.BACKWARD, 30)
        spans = [
            Span("attention", "attention", phase, None, at * 10 * MS, ms * MS) for at, (phase, ms) in enumerate(times)
        ]
        spans.append(Span("layer", "layer", Phase.FORWARD, None, 40 * MS, 10 * MS))
        frame = make_frame(spans, step=step, duration_ns=55 * MS)
        aggregate.add(frame)
        collector.add(frame)
    facts = RunFacts(sizes={"attention": ModuleSize("train.Attention", 100)})
    summary = replace(aggregate.summary(), work=Work(rows=(row, WorkRow("layer", {}))))
    finding = finding_of(diagnose(collector.evidence(summary, facts)), "hot-module")
    assert (finding is not None and "as a loop in Python does" in finding.why) is named
    assert not named or finding.gain_ns > 15 * MS


@pytest.mark.parametrize(("kind", "named"), [("train.Table", True), ("torch.nn.modules.rnn.LSTM", False)])
def test_code_that_runs_between_the_operators_of_a_module_is_found(kind: str, named: bool) -> None:
    """A table that a loop in Python makes: the bytes that its operators move could take as long, and hide it.

    In a module of torch's own no code of the program runs: there it was a pause of the machine.
    """
    table = WorkRow("table", {}, moved={"forward": 30_000_000}, operators={"forward": 5}, python={"forward": 25 * MS})
    rows = (table, WorkRow("layer", {"forward": 280 * MFLOP}, operators={"forward": 1}))
    facts = RunFacts(sizes={"table": ModuleSize(kind, 100)})
    summary = run({"table": 30, "layer": 70}, work=Work(flops={"forward": 280 * MFLOP}, rows=rows), facts=facts)
    finding = finding_of(summary, "hot-module")
    assert (finding is not None) is named
    if finding is None:
        return
    assert (finding.name, finding.gain_ns) == ("table", pytest.approx(25 * MS, rel=0.02))
    assert "25.0 ms of it is code of the program that runs between its operators" in finding.why


@pytest.mark.parametrize(("operators", "named"), [(2000, True), (99, False)])
def test_a_loop_is_found_beside_other_processes_by_its_launches(operators: int, named: bool) -> None:
    """They are counted: the wait for a processor adds no operator to a module."""
    metrics = {"host_cpu_cores": 0.6, "host_cpu_busy": 1.0, "host_cpu_waiting": 0.3}
    stats = {name: MetricStats(value, value, value, value, 5) for name, value in metrics.items()}
    rows = [WorkRow("loop", {}, operators={"forward": operators}), WorkRow("head", {"forward": 2000 * MFLOP})]
    facts = RunFacts(
        environment=Environment(machine_cores=2),
        sizes={"loop": ModuleSize("a.Loop", 1), "head": ModuleSize("a.Head", 1)},
    )
    summary = run({"loop": 20, "head": 80}, work=Work(rows=tuple(rows)), facts=facts, metrics=stats)
    assert summary.conditions
    finding = finding_of(summary, "hot-module")
    assert finding is not None
    assert (finding.severity == "warning") is named


@pytest.mark.parametrize(("members", "named"), [(100, False), (4, True)])
def test_the_operators_of_many_layers_are_no_loop(members: int, named: bool) -> None:
    """A hundred calls in one row, with thirty operators each: of as many layers, or of four experts token by token."""
    layers = {f"h.{at}": 1.0 for at in range(100)}
    facts = RunFacts(sizes={fqn: ModuleSize("train.Layer", 100, nodes=30) for fqn in [*layers][:members]})
    finding = finding_of(run(layers, name="h.*", facts=facts, work=UNCOUNTED), "hot-module")
    assert (finding is not None) is named
    assert not named or "at least 3000 small operators, in 25 calls" in finding.why


@pytest.mark.parametrize(("function", "gain_ms"), [("look", 32), ("forward", None)])
def test_the_time_of_hooks_is_that_of_their_lines(function: str, gain_ms: int | None) -> None:
    """Their operators may be explained by the arithmetic of their layers, and are no more needed for that."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for number in range(1, 41):
        spans = [
            Span(name, name, phase, None, (start + at * 20) * MS, 20 * MS)
            for phase, start in ((Phase.FORWARD, 0), (Phase.BACKWARD, 40))
            for at, name in enumerate("ab")
        ]
        frame = make_frame(spans, step=number, duration_ns=100 * MS)
        aggregate.add(frame)
        collector.add(frame)
    line = CallSite("train.py", 27, function, "", "", 80, 80 * MS)
    facts = RunFacts(
        sizes={name: ModuleSize("torch.nn.modules.conv.Conv2d", 100, hook="look (train.py:25)") for name in "ab"},
        stacks={f"forward {name}": StackTable(100, 100 * MS, (line,)) for name in "ab"},
    )
    finding = finding_of(diagnose(collector.evidence(aggregate.summary(), facts)), "hot-module")
    assert (None if finding is None else finding.gain_ns) == (None if gain_ms is None else gain_ms * MS)


@pytest.mark.parametrize(("hook", "named"), [("look (train.py:25)", True), ("", False)])
def test_hooks_that_take_little_time_in_each_of_many_modules_are_found(hook: str, named: bool) -> None:
    """Ten layers of torch take 10 ms forward and 2 backward each."""
    names = [*"abcdefghij"]
    aggregate, collector = Aggregate(), EvidenceCollector()
    for number in range(1, 41):
        spans = [
            Span(name, name, phase, None, (start + at * ms) * MS, ms * MS)
            for phase, start, ms in ((Phase.FORWARD, 0, 10), (Phase.BACKWARD, 100, 2))
            for at, name in enumerate(names)
        ]
        frame = make_frame(spans, step=number, duration_ns=120 * MS)
        aggregate.add(frame)
        collector.add(frame)
    facts = RunFacts(sizes={name: ModuleSize("torch.nn.modules.conv.Conv2d", 100, hook=hook) for name in names})
    finding = finding_of(diagnose(collector.evidence(aggregate.summary(), facts)), "hot-module")
    assert (finding is not None) is named
    if finding is not None:
        assert finding.gain_ns == 80 * MS
        assert finding.why.startswith(
            "the forward hooks of 10 modules, a first, take 80.0 ms (66.7 % of the step); such a hook is look"
        )
        assert "such a hook is look (train.py:25)" in finding.why


@pytest.mark.parametrize(("backward_ms", "named"), [(25, True), (35, False)])
def test_a_forward_of_twice_the_time_of_its_backward_is_found_where_its_work_is_not_counted(
    backward_ms: int, named: bool
) -> None:
    """Statistics in the program's own code. Less may be arithmetic, such as the exponential of a complex number."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for number in range(1, 41):
        spans = [
            Span("mix", "mix", Phase.FORWARD, None, 0, 60 * MS),
            Span("head", "head", Phase.FORWARD, None, 60 * MS, 5 * MS),
            Span("mix", "mix", Phase.BACKWARD, None, 65 * MS, backward_ms * MS),
        ]
        frame = make_frame(spans, step=number, duration_ns=(65 + backward_ms) * MS)
        aggregate.add(frame)
        collector.add(frame)
    facts = RunFacts(sizes={"mix": ModuleSize("train.Mix", 100)})
    finding = finding_of(diagnose(collector.evidence(aggregate.summary(), facts)), "hot-module")
    assert (finding is not None) is named
    assert finding is None or "its forward takes 35.0 ms longer than its backward" in finding.why


def test_a_long_container_is_not_accused() -> None:
    """A transformer beside its embedding and its head: a container is the sum of its blocks."""
    times = {"transformer": 87, "embedding": 3, "head": 10}
    assert finding_of(run(times, work=UNCOUNTED), "hot-module") is None


def test_a_block_with_more_parameters_than_its_siblings_is_not_accused() -> None:
    """The stages of a pyramid have other widths."""
    sizes = {"stage.0": 100, "stage.1": 4000, "stage.2": 100, "stage.3": 100}
    times = {"stage.0": 10, "stage.1": 40, "stage.2": 10, "stage.3": 10}
    work = work_of(**{name: ms * 4 * MFLOP for name, ms in times.items()})
    assert finding_of(run(times, bytes_of=sizes, work=work), "hot-module") is None


def test_siblings_that_vary_too_much_make_it_inconclusive() -> None:
    """Another run would differ."""
    finding = finding_of(run({"h.0": 10, "h.1": 33, "h.2": 10, "h.3": 10}, spread=0.4), "hot-module")
    assert finding.severity == "info"


def test_a_module_without_arithmetic_that_takes_most_of_the_step_is_found() -> None:
    """A loop in Python in one forward, beside a layer that has the FLOPs."""
    finding = finding_of(run({"loop": 60, "layer": 30}, work=work_of(loop=1, layer=1000)), "hot-module")
    assert (finding.severity, finding.name) == ("critical", "loop")
    assert "its work explains 0.03 ms of it: 1 FLOP" in finding.why


@pytest.mark.parametrize(("backward_ms", "severity"), [(10, "critical"), (60, None)])
def test_a_forward_longer_than_its_backward_is_code_that_is_no_arithmetic(
    backward_ms: int, severity: str | None
) -> None:
    """A mask built for 50 ms in a model whose layer takes 5 ms; a model with a backward as long is healthy."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for number in range(1, 41):
        spans = [
            Span("Model", "", Phase.FORWARD, None, 0, 55 * MS),
            Span("layer", "layer", Phase.FORWARD, 0, 50 * MS, 5 * MS),
            Span("Model", "", Phase.BACKWARD, None, 55 * MS, backward_ms * MS),
            Span("layer", "layer", Phase.BACKWARD, 2, 55 * MS, backward_ms * MS),
        ]
        frame = make_frame(spans, step=number, duration_ns=(60 + backward_ms) * MS)
        aggregate.add(frame)
        collector.add(frame)
    lines = (CallSite("train.py", 88, "forward", "make_mask", "", 40, 400 * MS, blocked_ns=300 * MS),)
    facts = RunFacts(stacks={"forward Model": StackTable(40, 400 * MS, lines)})
    finding = finding_of(diagnose(collector.evidence(aggregate.summary(), facts)), "hot-module")
    assert (finding and finding.severity) == severity
    if finding is not None:
        assert (finding.name, finding.gain_ns) == ("Model", 45 * MS)
        assert "train.py:88 make_mask" in finding.why
        assert "the training thread waits there" in finding.why


def test_a_block_with_a_row_of_its_own_is_compared_with_those_that_share_one() -> None:
    """``h.4`` takes 15 ms; each of the five blocks of ``h.*`` takes 2.4."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for number in range(1, 41):
        spans = [
            Span(name, fqn, Phase.FORWARD, None, round(start * MS), round(ms * MS))
            for name, fqn, start, ms in (
                *(("h.*", f"h.{at}", 2.4 * at, 2.4) for at in range(4)),
                ("h.4", "h.4", 10, 15),
                ("h.*", "h.5", 25, 2.4),
            )
        ]
        frame = make_frame(spans, step=number, duration_ns=30 * MS)
        aggregate.add(frame)
        collector.add(frame)
    work = work_of(**{"h.*": 50 * MFLOP, "h.4": 10 * MFLOP})
    evidence = collector.evidence(replace(aggregate.summary(), work=work), RunFacts())
    finding = finding_of(diagnose(evidence), "hot-module")
    assert (finding.name, finding.evidence["siblings"]) == ("h.4", 5)
    assert finding.evidence["times"] == pytest.approx(15 / 2.4, abs=0.1)
