"""The rules on evidence made by hand: bounds, intervals, abstentions, the order of findings."""

from dataclasses import replace
from typing import Any

import pytest
from evidence_builders import MS, evidence_of, finding_of, found

from autoprof.base.frame import BACKWARD_NAME, Phase, Span
from autoprof.base.stats import Aggregate
from autoprof.base.summary import HIGHER_ORDER, MemoryRow, MetricStats, Stage, Summary, Work, WorkRow
from autoprof.capture.hooks.sizes import ModuleSize
from autoprof.diagnose import (
    MIN_STEPS,
    Evidence,
    EvidenceCollector,
    OptimizerInfo,
    RunFacts,
    StackTable,
    diagnose,
    find_rules,
    judge,
)
from autoprof.diagnose._calls import CallSite, CompileStatistics
from autoprof.diagnose._environment import Environment
from autoprof.diagnose.rules import overhead
from autoprof.diagnose.rules.logging import LOGGING_NAME
from autoprof.probes.compilations import CompiledFunction
from autoprof.session.account import Part
from autoprof.session.controller import Controller
from autoprof.testing import make_frame
from tests.accounts import FakeRun

STEP = {"data": 1, "forward": 30, "backward": 60, "optimizer": 4}
GIB = 2**30


def test_a_run_without_a_step_has_no_findings() -> None:
    """Nothing recorded, nothing said."""
    assert judge(Evidence(Summary.empty())) == ()


def test_too_few_steps_abstain_and_say_how_many_are_needed() -> None:
    """Every rule abstains; none judges by two steps."""
    summary = diagnose(evidence_of({"data": 90}, repeat=2))
    assert [finding.rule for finding in summary.findings] == list(find_rules())
    assert {finding.severity for finding in summary.findings} == {"info"}
    assert {finding.evidence["missing"] for finding in summary.findings} == {
        f"recorded steps ({MIN_STEPS} needed, 2 so far)"
    }


def test_an_abstention_names_the_missing_signal() -> None:
    """The evidence of every abstention names the missing signal."""
    summary = diagnose(evidence_of(STEP, repeat=20))
    abstained = [finding for finding in summary.findings if finding.severity == "info"]
    assert {finding.rule for finding in abstained} >= {"h2d-copy", "comm-exposed", "sync-call", "launch-bound"}
    assert all(finding.evidence["missing"] and finding.next for finding in abstained)


@pytest.mark.parametrize(
    ("word", "rule"), [("h2d", "h2d-copy"), ("comm", "comm-exposed"), ("data", "data-wait"), ("recompute", "recompute")]
)
def test_a_phase_far_above_its_bound_is_found_with_its_time(word: str, rule: str) -> None:
    """The gain is the mean time of the phase, in each step."""
    summary = diagnose(evidence_of({**STEP, word: 60, "step": 200}, repeat=20))
    finding = summary.findings[0]
    assert (finding.rule, finding.gain_ns) == (rule, 60 * MS)
    assert "60.0 ms (30.0 % of the step)" in finding.why
    assert finding.evidence["share_low"] <= 0.3 <= finding.evidence["share_high"]


def test_one_stall_is_no_slow_loader() -> None:
    """One batch in thirty that takes a second raises the mean, not the median."""
    steps = [STEP] * 29 + [{**STEP, "data": 1000, "step": 1100}]
    summary = diagnose(evidence_of(*steps))
    assert "data-wait" not in found(summary)


def test_findings_are_sorted_by_gain() -> None:
    """Findings with a gain first, then those without, abstentions last."""
    summary = diagnose(evidence_of({**STEP, "data": 50, "recompute": 80, "user": 1, "step": 230}, repeat=20))
    gains = [finding.gain_ns or 0 for finding in summary.findings if finding.severity != "info"]
    assert found(summary)[:2] == ["recompute", "data-wait"]
    assert gains == sorted(gains, reverse=True)
    severities = [finding.severity == "info" for finding in summary.findings]
    assert severities == sorted(severities)


def test_the_saved_memory_is_compared_with_the_free_memory() -> None:
    """The saved memory is compared with the memory that was free at the peak."""
    seen = evidence_of(
        {**STEP, "recompute": 30, "step": 130},
        repeat=20,
        facts=RunFacts(memory_capacity_bytes=40 * GIB),
        clock="device",
    )
    rows = tuple(replace(row, memory_growth_bytes=3 * GIB) for row in seen.summary.rows)
    for peak, word in ((20 * GIB, "enough to do without it"), (39 * GIB, "too little to do without all of it")):
        summary = replace(seen.summary, rows=rows, memory={"peak_bytes": peak})
        finding = judge(replace(seen, summary=summary))[0]
        assert finding.rule == "recompute"
        assert "it saves at most 3.00 GiB" in finding.why
        assert word in finding.why


def test_the_memory_of_a_module_that_checkpoints_its_children_is_theirs() -> None:
    """The recompute of the module around them is theirs, and its own memory was not measured."""
    inner = (Span("A", "a", Phase.RECOMPUTE, 0, 1 * MS, 20 * MS), Span("B", "b", Phase.RECOMPUTE, 0, 21 * MS, 30 * MS))
    aggregate = Aggregate()
    for step in range(20):
        spans = [Span("Net", "", Phase.RECOMPUTE, None, 0, 52 * MS), *inner]
        aggregate.add(make_frame(spans, step=step, duration_ns=56 * MS))
    grown = {"A": 1 * GIB, "B": 8 * GIB, "Net": None}
    summary = aggregate.summary()
    rows = tuple(replace(row, memory_growth_bytes=grown[row.name]) for row in summary.rows)
    facts = RunFacts(memory_capacity_bytes=60 * GIB)
    finding = judge(Evidence(replace(summary, rows=rows, memory={"peak_bytes": 37 * GIB}), facts, longest=()))[0]
    assert "it saves at most 9.00 GiB" in finding.why
    assert finding.gain_ns == 52 * MS


def test_counted_recompute_that_was_not_timed_is_stated() -> None:
    """The FLOPs show checkpointing that no span shows: a contradiction, not a healthy run."""
    seen = evidence_of(STEP, repeat=20)
    for flops, stated in ((3 * 10**9, True), (0, False)):
        work = Work(flops={"forward": 10**10, "recompute": flops, "backward": 2 * 10**10})
        findings = judge(replace(seen, summary=replace(seen.summary, work=work)))
        why = [finding.why for finding in findings if finding.rule == "recompute"]
        assert bool(why) is stated
        assert all("3.00 GFLOP of recompute a step, but none was timed" in one for one in why)


@pytest.mark.parametrize(("steps", "often"), [(1, "once"), (0, "before the first step")])
def test_what_is_excluded_once_may_never_recur(steps: int, often: str) -> None:
    """The validation at the end of a short run, or Lightning's check before it, says nothing of a longer one."""
    stages = (Stage("validation", 4, 2_000 * MS, steps), Stage("torch.save", 5, 300 * MS, 5))
    judged = judge(evidence_of({"forward": 90}, repeat=80, stages=stages))
    (finding,) = [one for one in judged if one.rule == "excluded"]
    assert finding.severity == "info"
    assert finding.why.startswith(f"inconclusive: validation took 19.4 % of the wall time, {often}: ")


def test_what_is_excluded_twice_is_found() -> None:
    """Beside what happened once, which is no part of the gain."""
    stages = (Stage("validation", 2, 2_000 * MS, 2), Stage("torch.save", 1, 3_000 * MS, 1))
    judged = judge(evidence_of({"forward": 90}, repeat=50, stages=stages))
    (finding,) = [one for one in judged if one.rule == "excluded"]
    assert (finding.severity, finding.name, finding.gain_ns) == ("warning", "validation", 40 * MS)
    assert finding.why == (
        "validation takes 20.0 % of the wall time: 2 times, about every 25 steps, 1.0 s each, torch.save 30.0 %"
    )


def test_a_rollout_before_each_round_of_updates_is_part_of_the_work() -> None:
    """It is never advised to collect less experience: the finding is a note."""
    stages = (Stage("validation", 11, 11_000 * MS, 10, 1_000 * MS),)
    judged = judge(evidence_of({"forward": 90}, repeat=40, stages=stages))
    (finding,) = [one for one in judged if one.rule == "excluded"]
    assert (finding.severity, finding.name) == ("note", "rollout or validation")
    assert finding.why.startswith("rollout or validation takes")
    assert "part of the work" in finding.next


@pytest.mark.parametrize("before", [0, 50], ids=["none", "a sanity check"])
def test_validation_after_each_round_is_no_rollout(before: int) -> None:
    """It did not come before the first step, or was much shorter there."""
    stages = (Stage("validation", 11, 10_000 * MS + before * MS, 10, before * MS),)
    judged = judge(evidence_of({"forward": 90}, repeat=40, stages=stages))
    (finding,) = [one for one in judged if one.rule == "excluded"]
    assert (finding.severity, finding.name) == ("critical", "validation")
    assert "validate less often" in finding.next


def state_of(kind: str = "AdamW", **changes: object) -> OptimizerInfo:
    fact = OptimizerInfo(kind, None, None, 12 * GIB, can_fuse=True, device="cuda")
    return replace(fact, **changes)  # type: ignore[arg-type]


def test_only_existing_faster_versions_are_advised() -> None:
    """No fused form is promised where torch has none."""
    slow = {**STEP, "optimizer": 60, "step": 160}

    def advice(fact: OptimizerInfo) -> str:
        return diagnose(evidence_of(slow, repeat=20, facts=RunFacts(optimizers=(fact,)))).findings[0].next

    assert advice(state_of("SGD")).startswith("fused=True updates all parameters of SGD at once")
    assert advice(state_of("RMSprop", can_fuse=False)).startswith("RMSprop has no fused version")
    assert advice(state_of("RMSprop", can_fuse=False, foreach=False)).startswith("foreach=False updates parameter")
    assert advice(state_of("FusedLAMB", origin="apex", can_fuse=False)).startswith("FusedLAMB is not part of torch")
    assert "on the CPU torch uses neither fused nor foreach by default" in advice(state_of(device="cpu"))
    sparse = advice(state_of("SparseAdam", can_fuse=False, can_foreach=False, device="cpu"))
    assert sparse.startswith("SparseAdam has no fused version; a larger batch")
    groups = advice(state_of("Adam", groups=40, tensors=40))
    assert groups.startswith("Adam has 40 groups for 40 parameters, and updates each group on its own")


@pytest.mark.parametrize(
    ("fact", "severity"),
    [
        (state_of(), "note"),
        (state_of("Muon", origin="__main__", can_fuse=False, device="cpu"), "note"),
        (state_of(foreach=False, device="cpu"), "note"),  # as torch does it there
        (state_of(foreach=False), "warning"),
        (state_of(groups=40, tensors=40), "warning"),
    ],
)
def test_an_optimizer_is_accused_only_of_settings_that_slow_it(fact: OptimizerInfo, severity: str) -> None:
    """Else its time is that of its parameters, whatever the model's is: a cost that is told, with a way to save it."""
    run = evidence_of({**STEP, "optimizer": 60, "step": 160}, repeat=20, facts=RunFacts(optimizers=(fact,)))
    finding = finding_of(diagnose(run), "optimizer")
    assert (finding.severity, finding.gain_ns is None) == (severity, severity == "note")


@pytest.mark.parametrize(("read_bytes", "advised"), [(GIB // 100, True), (GIB, False)])
def test_the_optimizer_of_a_large_table_is_advised_to_update_the_rows_read(read_bytes: int, advised: bool) -> None:
    """Where a step reads few of its rows; where it reads all, sparse gradients would cost more."""
    table = ModuleSize("torch.nn.modules.sparse.Embedding", read_bytes)
    memory = tuple(MemoryRow(name, parameter_bytes=GIB) for name in (None, "block"))
    seen = evidence_of({**STEP, "optimizer": 60, "step": 160}, repeat=20, memory_table=memory)
    finding = diagnose(replace(seen, facts=RunFacts(sizes={"block": table}))).findings[0]
    assert finding.rule == "optimizer"
    assert ("sparse=True" in finding.next) is advised


@pytest.mark.parametrize(
    ("backward_ms", "read_bytes", "advised"), [(60, GIB // 100, True), (30, GIB // 100, True), (60, GIB, False)]
)
def test_the_backward_of_a_large_table_is_that_of_its_dense_gradient(
    backward_ms: int, read_bytes: int, advised: bool
) -> None:
    """It writes all rows, whichever a step reads; a fifth of the step beyond its forward is enough."""
    table = ModuleSize("torch.nn.modules.sparse.Embedding", read_bytes)
    memory = tuple(MemoryRow(name, parameter_bytes=GIB) for name in (None, "block"))
    seen = evidence_of({"forward": 5, "backward": backward_ms, "step": 100}, repeat=20, memory_table=memory)
    finding = finding_of(diagnose(replace(seen, facts=RunFacts(sizes={"block": table}))), "backward-ratio")
    assert ("the gradient of its 1.00 GiB, of which a step reads few rows" in finding.why) is advised
    assert ("sparse=True" in finding.next) is advised


@pytest.mark.parametrize(("is_filled", "gain_ms"), [(True, 18), (False, None)])
def test_an_output_that_is_written_slice_by_slice_has_a_long_backward(is_filled: bool, gain_ms: int | None) -> None:
    """Its gradient is copied for each write, also in the backward of the modules inside; 18 % of the step are no ratio
    that accuses any other module."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for step in range(1, 21):
        spans = [
            Span("path", "path", Phase.FORWARD, None, 0, 12 * MS),
            Span("path/cell", "path.cell", Phase.FORWARD, 0, 0, 10 * MS),
            Span("path", "path", Phase.BACKWARD, None, 12 * MS, 42 * MS),
            Span("path/cell", "path.cell", Phase.BACKWARD, 2, 12 * MS, 32 * MS),
        ]
        frame = make_frame(spans, step=step, duration_ns=100 * MS)
        aggregate.add(frame)
        collector.add(frame)
    facts = RunFacts(sizes={"path": ModuleSize("train.Path", 100, is_filled=is_filled)})
    finding = finding_of(diagnose(collector.evidence(aggregate.summary(), facts)), "backward-ratio")
    assert (None if finding is None else finding.gain_ns) == (None if gain_ms is None else gain_ms * MS)
    if gain_ms is not None:
        assert (finding.name, finding.severity) == ("path", "warning")
        assert "torch.stack" in finding.next


@pytest.mark.parametrize(("kind", "read"), [("torch.nn.modules.linear.Linear", {}), ("train.Head", {"block": GIB})])
def test_a_table_that_a_product_shares_is_read_as_a_whole(kind: str, read: dict[str, int]) -> None:
    """The weight of the last layer of a language model is often that of its first one."""
    table, head = ModuleSize("torch.nn.modules.sparse.Embedding", GIB // 100), ModuleSize(kind, GIB // 100)
    aggregate, collector = Aggregate(), EvidenceCollector()
    for step in range(1, 21):
        spans = [Span(name, name, Phase.FORWARD, None, at * MS, MS) for at, name in enumerate(("block", "head"))]
        frame = make_frame(spans, step=step, duration_ns=3 * MS)
        aggregate.add(frame)
        collector.add(frame)
    memory = tuple(MemoryRow(name, parameter_bytes=GIB) for name in (None, "block", "head"))
    facts = RunFacts(sizes={"block": table, "head": head})
    assert collector.evidence(replace(aggregate.summary(), memory_table=memory), facts).sparsely_read() == read


def test_a_table_with_sparse_gradients_is_no_longer_advised_to_have_them() -> None:
    """``SparseAdam`` takes no others."""
    memory = tuple(MemoryRow(name, parameter_bytes=GIB) for name in (None, "block"))
    sizes = {"block": ModuleSize("torch.nn.modules.sparse.Embedding", GIB // 100)}
    seen = evidence_of({**STEP, "optimizer": 60, "step": 160}, repeat=20, memory_table=memory)
    facts = RunFacts(sizes=sizes, optimizers=(state_of("SparseAdam", can_fuse=False, has_sparse=True),))
    finding = finding_of(diagnose(replace(seen, facts=facts)), "optimizer")
    assert finding.severity == "note"
    assert "sparse=True" not in finding.next


def test_the_update_of_a_programs_own_optimizer_is_named_by_its_lines() -> None:
    """A decomposition in each step; that of torch's optimizers has no line of the program."""
    lines = (CallSite("kron.py", 43, "step", "inverse_root", "", 90, 90 * MS),)
    stacks = {"optimizer optimizer": StackTable(100, 100 * MS, lines)}

    def why(**changes: object) -> str:
        facts = RunFacts(optimizers=(state_of("Kron", can_fuse=False, **changes),), stacks=stacks)
        run = evidence_of({**STEP, "optimizer": 60, "step": 160}, repeat=20, facts=facts)
        return str(finding_of(diagnose(run), "optimizer").why)

    assert "kron.py:43 inverse_root, 33.8 %" in why(origin="__main__")
    assert "kron.py" not in why()


def test_several_large_tables_are_judged_together() -> None:
    """Neither has nearly all parameters; both have."""
    table = ModuleSize("torch.nn.modules.sparse.Embedding", GIB // 100)
    whole = MemoryRow(None, parameter_bytes=2 * GIB)
    aggregate, collector = Aggregate(), EvidenceCollector()
    for step in range(1, 21):
        spans = [Span(name, name, Phase.FORWARD, None, at * 20 * MS, 20 * MS) for at, name in enumerate(("a", "b"))]
        spans.append(Span("Optimizer", None, Phase.OPTIMIZER, None, 40 * MS, 60 * MS))
        frame = make_frame(spans, step=step, duration_ns=100 * MS)
        aggregate.add(frame)
        collector.add(frame)
    held = (whole, *(MemoryRow(name, parameter_bytes=GIB) for name in ("a", "b")))
    facts = RunFacts(sizes={"a": table, "b": table})
    run = collector.evidence(replace(aggregate.summary(), memory_table=held), facts)
    assert finding_of(diagnose(run), "optimizer").next.startswith("nearly all parameters are rows of a, b, of which")


def test_retries_of_the_allocator_are_pressure_unless_pieces_explain_them() -> None:
    """Each one waits for the device; of memory in pieces they are the pieces' doing."""
    memory = {"allocated_bytes": GIB, "reserved_bytes": 8 * GIB, "peak_bytes": 7 * GIB, "alloc_retries": 5}
    facts = RunFacts(memory_capacity_bytes=10 * GIB)
    pressed = diagnose(evidence_of(STEP, repeat=20, memory=memory, facts=facts))
    pieces = diagnose(evidence_of(STEP, repeat=20, memory={**memory, "peak_bytes": 3 * GIB}, facts=facts))
    few = diagnose(evidence_of(STEP, repeat=20, memory={**memory, "alloc_retries": 2}, facts=facts))
    assert found(pressed) == ["memory-pressure"]
    assert "the allocator released its cache and tried again 5 times" in pressed.findings[0].why
    assert found(pieces) == ["fragmentation"]
    assert pieces.findings[0].severity == "critical"
    assert found(few) == []


def test_the_cost_of_the_first_steps_is_no_finding() -> None:
    """50 recorded steps at 5 % of 120 in all: those after the first ones keep to 3 %, and 200 steps cover all."""
    changes = {"overhead": 0.05, "warmup_steps": 0, "unsampled_steps": 70, "facts": RunFacts(budget=0.03)}
    finding = finding_of(diagnose(evidence_of(STEP, repeat=50, **changes)), "overhead")
    missing = "steps: 200 needed for the budget to cover the first recorded ones, 120 so far"
    assert (finding.severity, finding.evidence["missing"]) == ("info", missing)


@pytest.mark.parametrize(("cost_ms", "first_ms"), [(0.5, 400), (5, 5), (40, 1)])
def test_a_run_that_keeps_its_budget_gets_no_finding(cost_ms: float, first_ms: float) -> None:
    """Whatever a step costs, and the first one, wherever the run is asked: after each recorded step of 4000."""
    run = FakeRun()
    controller, base = Controller(run.account), evidence_of(STEP, repeat=50, facts=RunFacts(budget=0.01))
    step, recorded, spent = 1, 0, 0
    while step <= 4000:
        own = round((cost_ms if recorded else first_ms) * MS)
        recorded, spent = recorded + 1, spent + own
        changes = {"steps": recorded, "unsampled_steps": step - recorded, "overhead": spent / (step * 100 * MS + spent)}
        said = overhead.judge(replace(base, summary=replace(base.summary, **changes)))
        assert said is None or said.severity == "info", (recorded, step)
        run.now_ns = step * 100 * MS
        run.work(Part.STEPS, own)
        controller.close(own, 100 * MS, 100 * MS)
        step = controller.next_recorded(step + 1)


def test_overhead_above_the_budget_is_found_after_any_number_of_unsampled_steps() -> None:
    """Of 1,000 recorded steps the first ones are few: the others alone cost more than is allowed."""
    changes = {"overhead": 0.05, "unsampled_steps": 10_000, "facts": RunFacts(budget=0.03)}
    assert found(diagnose(evidence_of(STEP, repeat=1000, **changes))) == ["overhead"]


@pytest.mark.parametrize(
    ("name", "is_logging"),
    [
        *((word, True) for word in ("Logging", "log/metrics", "log_scalars", "wandb", "print")),
        *((word, False) for word in ("log_prob", "LogSoftmax", "Catalog", "Loss/VGG", "ClipGradient")),
    ],
)
def test_logging_is_known_by_its_name(name: str, is_logging: bool) -> None:
    """A separate word, and no logarithm."""
    assert bool(LOGGING_NAME.search(name)) is is_logging


def test_recompilations_are_found_where_every_step_compiles() -> None:
    """No step is recorded then, because a step that compiles counts as warm-up."""
    function = CompiledFunction("forward", "model.py", 3, 20, "tensor 'x' size mismatch", False)
    facts = RunFacts(compiled=CompileStatistics(24, 2_000 * MS, 24, 1_800 * MS, (function,)))
    summary = diagnose(Evidence(Summary.empty(), facts))
    assert [(finding.rule, finding.severity) for finding in summary.findings] == [("recompile", "warning")]


def small_modules(
    *times_ms: float,
    calls: int = 1,
    leaves: int = 15,
    passes: int = 0,
    waiting: float = 0.0,
    work: Work | None = None,
    **changes: Any,
) -> Any:
    """Return what ``small-batch`` says of steps whose model is called so often, and takes these times in all calls.

    So many of the calls have a backward ``passes`` of their own, each as long as a call.
    """
    aggregate, collector = Aggregate(), EvidenceCollector()
    for number, ms in enumerate(times_ms, 1):
        each_ns = round(ms * MS / (calls + passes))
        phases = [Phase.FORWARD] * calls + [Phase.BACKWARD] * passes
        spans = [Span("Model", "", phase, None, at * each_ns, each_ns) for at, phase in enumerate(phases)]
        frame = make_frame(spans, step=number, duration_ns=round(ms * MS / 0.96))
        aggregate.add(frame)
        collector.add(frame)
    values = {
        "host_cpu_cores": 1.0 - waiting,
        "host_cpu_busy": 0.5 if not waiting else 1.0,
        "host_cpu_waiting": waiting,
    }
    metrics = {name: MetricStats(value, value, value, value, 5) for name, value in values.items()}
    facts = RunFacts(leaf_modules=leaves, environment=Environment("cpu", machine_cores=2))
    summary = replace(aggregate.summary(), metrics=metrics, work=work, **changes)
    return finding_of(diagnose(collector.evidence(summary, facts)), "small-batch")


@pytest.mark.parametrize(("calls", "named"), [(32, True), (1, False)])
def test_a_model_called_for_each_sample_is_a_batch_in_pieces(calls: int, named: bool) -> None:
    """15 modules called 32 times a step take 40 µs each; called once they take 1.3 ms, which is arithmetic."""
    finding = small_modules(*[19.2] * 20, calls=calls)
    assert (finding is not None and "the whole model is called 32 times" in finding.why) is named


def test_calls_without_a_backward_pass_are_no_batch_in_pieces() -> None:
    """A rollout calls the policy for each step of the environment; its update calls it once."""
    assert small_modules(*[19.2] * 20, calls=32, passes=32) is not None
    assert small_modules(*[19.2] * 20, calls=32, passes=1) is None


@pytest.mark.parametrize(
    ("operators", "moved", "named"), [(600, 4_000_000, True), (600, 40_000_000, False), (60, 0, False)]
)
def test_micro_batches_so_small_that_launching_takes_most_of_their_time_are_named(
    operators: int, moved: int, named: bool
) -> None:
    """Eight for one update, of 15 modules that take 160 µs each; not where their arithmetic may take longer."""
    row = WorkRow("Model", {}, moved={"forward": moved}, operators={"forward": operators})
    work = Work(flops={"forward": 10**6}, flops_per_s=1e8, rows=(row,))
    finding = small_modules(*[19.2] * 20, calls=8, micro_steps=8.0, work=work)
    assert (finding is not None) is named
    assert not named or ("called 8 times a step, for 8 micro-batches" in finding.why)
    assert not named or finding.next.startswith("fewer, larger micro-batches")


@pytest.mark.parametrize(("usual_ms", "shortest_ms", "named"), [(4.8, 2.0, True), (4.8, 4.0, False), (8.0, 2.0, False)])
def test_the_shortest_step_shows_how_long_a_call_takes(usual_ms: float, shortest_ms: float, named: bool) -> None:
    """Other programs make most steps longer, up to twice; a step that is shorter still had less to do."""
    finding = small_modules(shortest_ms, *[usual_ms] * 19, leaves=100)
    assert (finding is not None) is named


@pytest.mark.parametrize(("run_ms", "named"), [(5.0, False), (2.5, True)])
def test_the_cost_of_recording_a_step_does_not_count_as_that_of_its_calls(run_ms: float, named: bool) -> None:
    """100 modules take 48 µs each in a recorded step, and half of it in the steps that are not recorded."""
    finding = small_modules(*[4.8] * 20, leaves=100, run_steps=1000, run_ns=round(1000 * run_ms * MS))
    assert (finding is not None) is named


def test_exposed_communication_is_told_with_its_bytes() -> None:
    """Of all rows: a call that returns at once has the bytes, and its wait the time."""
    seen = evidence_of({"forward": 80, "comm": 20}, repeat=20)
    rows = tuple(
        replace(row, communicated_bytes=2**21) if row.phase is Phase.COMM else row for row in seen.summary.rows
    )
    finding = finding_of(diagnose(replace(seen, summary=replace(seen.summary, rows=rows))), "comm-exposed")
    assert finding.why.endswith("a step communicates 2.0 MiB in comm")
    assert finding.evidence["bytes"] == {"comm": 2**21}


@pytest.mark.parametrize(("reductions", "advised"), [(4, True), (1, False)])
def test_gradients_that_are_reduced_for_each_micro_batch_are_named(reductions: int, advised: bool) -> None:
    """DDP reduces where the forward is not under ``no_sync``; once for an update is what it is for."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for step in range(1, 21):
        spans = [Span("net", "net", Phase.FORWARD, None, 0, 40 * MS)]
        spans += [Span("Comm/DDP", None, Phase.COMM, None, (50 + 10 * at) * MS, 10 * MS) for at in range(reductions)]
        frame = make_frame(spans, step=step, duration_ns=(50 + 10 * reductions) * MS)
        aggregate.add(frame)
        collector.add(frame)
    summary = replace(aggregate.summary(), micro_steps=4.0)
    finding = finding_of(diagnose(collector.evidence(summary, RunFacts())), "comm-exposed")
    assert ("reduced 4 times for one update" in finding.why) is advised
    assert ("under model.no_sync()" in finding.next) is advised


@pytest.mark.parametrize(("times", "passes", "named"), [(7, 1, True), (1, 1, False), (3, 3, False)])
def test_a_backward_through_the_graphs_of_earlier_steps_is_found(times: int, passes: int, named: bool) -> None:
    """State that is carried from step to step with its graph: one forward of a cell, and seven backwards in one pass.

    A gradient penalty goes through the graph of a step in each of its passes, and through no other one.
    """
    aggregate, collector = Aggregate(), EvidenceCollector()
    for number in range(1, 41):
        spans = [Span("cell", "cell", Phase.FORWARD, None, 0, 10 * MS)]
        spans += [Span("cell", "cell", Phase.BACKWARD, None, (10 + 12 * at) * MS, 12 * MS) for at in range(times)]
        ended_ms = 10 + 12 * times
        spans += [Span(BACKWARD_NAME, None, Phase.BACKWARD, None, (ended_ms + at) * MS, MS) for at in range(passes)]
        frame = make_frame(spans, step=number, duration_ns=(ended_ms + passes) * MS)
        aggregate.add(frame)
        collector.add(frame)
    finding = finding_of(diagnose(collector.evidence(aggregate.summary(), RunFacts())), "repeated-backward")
    assert (finding is not None) is named
    if finding is not None:
        assert (finding.name, finding.gain_ns) == ("cell", 72 * MS)
        assert finding.why.startswith("the backward of cell runs 7 times for each of its forwards")


@pytest.mark.parametrize("reason", ["several passes", HIGHER_ORDER])
def test_several_passes_through_one_forward_are_found(reason: str) -> None:
    """Each of three losses calls ``backward``. A penalty's pass, which records a graph, has its price, as a note.

    The lines show where its passes begin; the nodes that differentiate the gradient lie in no module.
    """
    aggregate, collector = Aggregate(), EvidenceCollector()
    for number in range(1, 41):
        spans = [Span("trunk", "trunk", Phase.FORWARD, None, 0, 10 * MS)]
        spans += [Span("trunk", "trunk", Phase.BACKWARD, None, (10 + 12 * at) * MS, 12 * MS) for at in range(3)]
        spans += [Span(BACKWARD_NAME, None, Phase.BACKWARD, None, (46 + at) * MS, MS) for at in range(3)]
        frame = make_frame(spans, step=number, duration_ns=49 * MS)
        aggregate.add(frame)
        collector.add(frame)
    summary = replace(aggregate.summary(), work=Work(reason=reason))
    begins = CallSite("gan.py", 37, "penalty", "backward", "", 20, 20 * MS)
    facts = RunFacts(stacks={"backward trunk": StackTable(20, 20 * MS, (begins,))})
    finding = finding_of(diagnose(collector.evidence(summary, facts)), "repeated-backward")
    assert finding is not None
    assert finding.name == "trunk"
    if reason != HIGHER_ORDER:
        assert finding.gain_ns == 24 * MS
        assert finding.why.startswith("3 backward passes of a step go through one forward of trunk")
        return
    assert (finding.severity, finding.gain_ns) == ("note", None)
    assert "they take 27.0 ms (55.1 % of the step); those of trunk begin at gan.py:37 in penalty" in finding.why
    assert "compute it in every Nth step with N times the weight" in finding.next


@pytest.mark.parametrize(("passes", "at_once"), [(24, True), (4, False)])
def test_derivatives_that_are_asked_for_one_by_one_are_found(passes: int, at_once: bool) -> None:
    """The gradient at each of 24 points, each with a graph; an equation needs its few derivatives."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for number in range(1, 41):
        spans = [Span("net", "net", Phase.FORWARD, None, 0, 2 * MS)]
        spans += [Span("net", "net", Phase.BACKWARD, None, (2 + at) * MS, MS) for at in range(passes)]
        spans += [Span(BACKWARD_NAME, None, Phase.BACKWARD, None, (27 + at) * MS, MS) for at in range(passes)]
        frame = make_frame(spans, step=number, duration_ns=60 * MS)
        aggregate.add(frame)
        collector.add(frame)
    summary = replace(aggregate.summary(), work=Work(reason=HIGHER_ORDER))
    finding = finding_of(diagnose(collector.evidence(summary, RunFacts())), "repeated-backward")
    assert finding is not None
    assert finding.severity == "note"
    assert finding.why.startswith(f"the {passes} backward passes of a step go {passes} times through each forward of")
    assert ("one torch.autograd.grad of the sum of the outputs" in finding.next) is at_once


@pytest.mark.parametrize(("passes", "named"), [((3, 2, 1), True), ((1, 1, 1), False)])
def test_windows_whose_state_is_passed_on_with_its_graph_are_found(passes: tuple[int, ...], named: bool) -> None:
    """Three windows of one step, and a backward pass for each, which goes through all windows before it as well."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for number in range(1, 41):
        spans = [Span("cell", "cell", Phase.FORWARD, None, at * 10 * MS, 10 * MS) for at in range(3)]
        spans += [Span("cell", "cell", Phase.BACKWARD, None, (30 + 12 * at) * MS, 12 * MS) for at in range(sum(passes))]
        ended_ms = 30 + 12 * sum(passes)
        spans += [Span(BACKWARD_NAME, None, Phase.BACKWARD, None, (ended_ms + at) * MS, MS) for at in range(3)]
        frame = make_frame(spans, step=number, duration_ns=(ended_ms + 3) * MS)
        aggregate.add(frame)
        collector.add(frame)
    summary = replace(aggregate.summary(), work=Work())
    finding = finding_of(diagnose(collector.evidence(summary, RunFacts())), "repeated-backward")
    assert (finding is not None) is named
    if finding is not None:
        assert (finding.name, finding.gain_ns) == ("cell", 36 * MS)
        assert finding.why.startswith("the 3 backward passes of a step go 2 times through each forward of cell")
        assert "detach the state" in finding.next


@pytest.mark.parametrize(("untrained", "named"), [(("block",), True), (("blocks",), False), ((), False)])
def test_a_backward_for_gradients_that_nothing_uses_is_found(untrained: tuple[str, ...], named: bool) -> None:
    """The gain is half of it: the gradients of the inputs may be needed."""
    finding = finding_of(
        diagnose(evidence_of({"forward": 30, "backward": 60}, repeat=20, facts=RunFacts(untrained=untrained))),
        "unused-gradients",
    )
    assert (finding is not None) is named
    if finding is not None:
        assert (finding.name, finding.gain_ns) == ("block", 30 * MS)
        assert finding.next.startswith("model.get_submodule('block').requires_grad_(False)")


def test_a_loss_whose_gradients_nothing_uses_is_found_by_its_span() -> None:
    """It is no part of the model."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    spans = [
        Span("Loss/Style", None, phase, None, start * MS, ms * MS)
        for phase, start, ms in ((Phase.FORWARD, 0, 20), (Phase.BACKWARD, 20, 40))
    ]
    for number in range(1, 41):
        frame = make_frame(spans, step=number, duration_ns=80 * MS)
        aggregate.add(frame)
        collector.add(frame)
    run = collector.evidence(aggregate.summary(), RunFacts(untrained=("Loss/Style",)))
    finding = finding_of(diagnose(run), "unused-gradients")
    assert (finding.name, finding.gain_ns) == ("Loss/Style", 20 * MS)
    assert finding.next.startswith("requires_grad_(False) of the Style, before")


def test_a_row_that_trained_modules_share_is_not_one_of_unused_gradients() -> None:
    """Only the first two of four layers are left out of the optimizer, and all have one row."""
    aggregate, collector = Aggregate(), EvidenceCollector()
    for number in range(1, 41):
        spans = [
            Span("layers.*", f"layers.{at}", phase, None, (20 * at + start) * MS, 10 * MS)
            for phase, start in ((Phase.FORWARD, 0), (Phase.BACKWARD, 10))
            for at in range(4)
        ]
        frame = make_frame(spans, step=number, duration_ns=80 * MS)
        aggregate.add(frame)
        collector.add(frame)
    facts = RunFacts(untrained=("layers.0", "layers.1"))
    assert finding_of(diagnose(collector.evidence(aggregate.summary(), facts)), "unused-gradients") is None


@pytest.mark.parametrize(("used_mib", "named"), [(10, False), (40, True), (130, True), (None, True)])
def test_memory_that_the_c_library_keeps_is_no_growth(used_mib: int | None, named: bool) -> None:
    """Batches of other sizes in each step: what is freed does not fit, and the resident set grows by 132 MiB.

    It also grows by more than what is kept, since that lies between the blocks that were freed.
    """
    steps = range(1, 46)
    levels = [(400 + 3 * step) * 2**20 for step in steps]
    readings = tuple(zip(steps, levels, strict=True))
    facts = RunFacts(heap_growth_bytes=None if used_mib is None else used_mib * 2**20)
    run = evidence_of(STEP, repeat=45, facts=facts)
    finding = finding_of(
        diagnose(replace(run, memory=readings, memory_kind="rss_bytes", memory_peaks=tuple(levels))), "memory-growth"
    )
    assert (finding.severity != "info") is named
    assert named or "the memory in use by 10.0 MiB" in finding.why


@pytest.mark.parametrize("collects", [True, False])
def test_growth_without_garbage_collection_has_advice_on_cycles(collects: bool) -> None:
    """A function of autograd that keeps its output refers to itself."""
    levels = [(400 + 3 * step) * 2**20 for step in range(1, 46)]
    run = evidence_of(STEP, repeat=45, facts=RunFacts(collects=collects))
    finding = finding_of(
        diagnose(replace(run, memory=tuple(enumerate(levels, 1)), memory_kind="allocated_bytes")), "memory-growth"
    )
    assert ("gc.disable()" in finding.next) is not collects


@pytest.mark.parametrize(("late_mib", "named"), [(0.7, False), (3.0, True)])
def test_resident_memory_that_rises_at_first_is_no_growth(late_mib: float, named: bool) -> None:
    """Allocators fill in the first steps: the last third alone has to rise as much as counts."""
    steps = range(1, 46)
    levels = [round((400 + 1.2 * min(step, 16) + late_mib * max(step - 16, 0)) * 2**20) for step in steps]
    readings = tuple(zip(steps, levels, strict=True))
    run = replace(evidence_of(STEP, repeat=45), memory=readings, memory_kind="rss_bytes", memory_peaks=tuple(levels))
    finding = finding_of(diagnose(run), "memory-growth")
    assert (finding is not None and finding.severity != "info") is named
    assert named or "most of it in the first readings" in finding.why
