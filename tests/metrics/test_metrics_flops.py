"""The work of a run's steps: counted between steps, once for each shape, and never at the run's cost."""

from __future__ import annotations

import gc
from typing import Any
from weakref import ref

import pytest
import torch
import torch._dynamo  # counts need it; the first optimizer of torch.optim imports it
from engine_laws import pass_on_each_step
from flops_models import GPT, tokens
from torch import Tensor, nn

import autoprof
from autoprof.base.frame import Phase
from autoprof.base.summary import HIGHER_ORDER, Summary, Work
from autoprof.devices import Tf32Flags, find_peak
from autoprof.devices._cuda_peaks import PEAKS
from autoprof.probes.metrics import Metrics, flop_meter
from autoprof.probes.metrics.flop_meter import CHANGED, OUTSIDE, PASSES, DevicePeak, FlopMeter
from autoprof.probes.metrics.flops import Kind, describe
from autoprof.probes.metrics.model_calls import StepCalls
from autoprof.probes.metrics.utilization import peak_seconds
from autoprof.session import builder
from autoprof.session.account import Account, Part
from autoprof.testing import FakeClock, ListSink, open_session
from tests.accounts import FakeRun

MS = 1_000_000
STEP_NS = 1_000_000_000
CONFIG: dict[str, Any] = {
    "sinks": {}, "step": "manual", "targets": [{"match": ".*"}], "sample": {"warmup": 2, "budget": None},
}  # fmt: skip
LAYER = 2 * 8 * 4 * 4
"""The forward of a layer of 4 x 4 on 8 samples."""


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Note the calls that are really counted."""
    made: list[Any] = []
    count_call = flop_meter.count_call

    def noted(model: nn.Module, call: Any, *clocks: Any) -> Any:
        made.append(call)
        return count_call(model, call, *clocks)

    monkeypatch.setattr(flop_meter, "count_call", noted)
    return made


def batch(size: int) -> Any:
    """Return a step that calls the model once on a batch of this size."""
    return lambda model: model(torch.ones(size, 4)).sum().backward()


def trained(model: nn.Module, *steps: Any, how: str = "close", sink: ListSink | None = None, **config: Any) -> Summary:
    """Train one step of a second for each of ``steps``; return the summary."""
    clock = FakeClock(tick_ns=1000)
    session = open_session(model, {**CONFIG, **config}, clock=clock, sinks=[] if sink is None else [sink])
    for step in steps:
        step(model)
        clock.advance(STEP_NS - clock.now_ns % STEP_NS)
        session.step()
    if how != "close":
        session.end(how)
    session.close()
    return session.summary()


def work_of(summary: Summary) -> Work:
    """Return the work; it must have a figure."""
    assert summary.work is not None
    assert summary.work.reason is None, summary.work.reason
    return summary.work


def test_forward_and_backward_of_a_step_are_told_apart() -> None:
    """The first layer has no gradient of its input to compute."""
    work = work_of(trained(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), *[batch(8)] * 4))
    assert work.flops == {"forward": 2 * LAYER, "recompute": 0, "backward": 3 * LAYER}
    assert work.flops_per_s == pytest.approx(5 * LAYER, rel=0.02)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_inputs_without_a_shape_give_no_figure_and_no_failure() -> None:
    """Nested tensors."""

    class Padded(nn.Linear):
        """Pad its inputs to one length."""

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.to_padded_tensor(0.0))  # type: ignore[operator]

    def step(model: nn.Module) -> None:
        model(torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(5, 4)])).sum().backward()

    summary = trained(Padded(4, 4), *[step] * 4)
    assert summary.work is not None
    assert summary.work.reason is not None
    assert not summary.skipped


def test_every_name_has_the_work_of_what_is_inside() -> None:
    """Several modules under one name add up, and none is counted twice."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    rules = [{"match": "1|1.0", "name": "Inner"}, {"match": ".*"}]
    rows = {row.name: row.flops for row in work_of(trained(model, *[batch(8)] * 4, targets=rules)).rows}
    assert rows["Inner"] == {"forward": 2 * LAYER, "recompute": 0, "backward": 4 * LAYER}
    assert rows["1/1"] == {"forward": LAYER, "recompute": 0, "backward": 2 * LAYER}
    assert rows["Sequential"]["forward"] == 3 * LAYER


def test_a_name_without_the_times_of_its_work_has_no_rate() -> None:
    """Backward work over the time of the forward would be a lie."""
    rules = [{"match": "0", "phases": ["forward"]}]
    (row,) = work_of(trained(nn.Sequential(nn.Linear(4, 4)), *[batch(8)] * 4, targets=rules)).rows
    assert row.flops["backward"] == LAYER
    assert row.flops_per_s is None


def test_new_shapes_are_counted_when_they_come(counts: list[Any]) -> None:
    """The work is that of the mean step."""
    work = work_of(trained(nn.Linear(4, 4), batch(8), batch(8), batch(8), batch(16), batch(8)))
    assert len(counts) == 2
    assert work.flops["forward"] == LAYER * 4 // 3  # of the third step, the fourth and the fifth


def test_models_that_are_trained_together_are_counted_by_the_calls_of_each() -> None:
    """Their container is never called. One whose output a loss does not reach has no backward for that call."""

    def step(model: Any) -> None:
        score = model["scores"]["net"]
        score(model["make"](torch.ones(8, 4)).detach()).sum().backward()
        score(model["make"](torch.ones(8, 4))).sum().backward()

    model = nn.ModuleDict({"make": nn.Sequential(nn.Linear(4, 4)), "scores": nn.ModuleDict({"net": nn.Linear(4, 4)})})
    work = work_of(trained(model, *[step] * 4))
    assert {row.name: row.flops["forward"] for row in work.rows if row.name in ("make", "make/0")} == {
        "make": 2 * LAYER, "make/0": 2 * LAYER,
    }  # fmt: skip
    assert next(row.flops["backward"] for row in work.rows if row.name == "make") == LAYER
    assert work.flops["forward"] == 4 * LAYER


class Task(nn.Module):
    """A model whose loop calls the network in it, as ``training_step`` of Lightning does."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.net(x))  # type: ignore[no-any-return]


def test_modules_that_are_called_in_place_of_the_model_are_counted() -> None:
    """They are found by the marks of the first step."""
    work = work_of(trained(Task(), *[lambda model: model.head(model.net(torch.ones(8, 4))).sum().backward()] * 4))
    assert work.flops["forward"] == 3 * LAYER
    assert {row.name: row.flops["forward"] for row in work.rows}["net"] == 2 * LAYER


def test_a_module_inside_of_a_part_is_not_counted_twice() -> None:
    """It is called by the part, and by the loop as well: what that takes beside the part is not known."""

    def step(model: Any) -> None:
        (model.net(torch.ones(8, 4)).sum() + model.net[0](torch.ones(8, 4)).sum()).backward()

    work = trained(Task(), *[step] * 4).work
    assert work is not None
    assert work.reason == OUTSIDE


def test_a_part_is_counted_where_a_later_step_calls_the_whole_model() -> None:
    """It runs in the model, which has no figure of its own any more."""

    def part(model: Any) -> None:
        model.net(torch.ones(8, 4)).sum().backward()

    work = trained(Task(), *[part] * 4, *[batch(8)] * 3).work
    assert work is not None
    assert work.reason == OUTSIDE  # the head is called beside the part


def test_the_backward_of_a_part_is_that_of_the_passes_through_it() -> None:
    """Two losses go through a trunk twice; no loss reaches a teacher, though its calls make a graph."""

    def step(model: Any) -> None:
        x = model["trunk"](torch.ones(8, 4))
        target = model["teacher"](torch.ones(8, 4)).detach()
        (model["one"](x) - target).sum().backward(retain_graph=True)
        model["two"](x).sum().backward()

    names = ("trunk", "teacher", "one", "two")
    work = work_of(trained(nn.ModuleDict({name: nn.Linear(4, 4) for name in names}), *[step] * 4))
    backward = {row.name: row.flops["backward"] for row in work.rows}
    assert [backward[name] for name in names] == [2 * LAYER, 0, 2 * LAYER, 2 * LAYER]


def test_an_input_that_needs_a_gradient_is_another_call() -> None:
    """Of a critic, on real samples and on those of its generator."""

    def step(model: Any) -> None:
        score, x = model["score"], torch.ones(8, 4)
        (score(x).sum() + score(model["make"](x)).sum()).backward()

    work = work_of(trained(nn.ModuleDict({"make": nn.Linear(4, 4), "score": nn.Linear(4, 4)}), *[step] * 4))
    assert {row.name: row.flops["backward"] for row in work.rows}["score"] == 3 * LAYER


def test_a_cell_that_is_called_in_a_loop_in_place_of_the_model_is_not_counted() -> None:
    """A hook at each of its calls would cost more than the budget."""

    def step(model: Any) -> None:
        x = torch.ones(8, 4)
        for _ in range(17):
            x = model.head(x)
        x.sum().backward()

    work = trained(Task(), *[step] * 4).work
    assert work is not None
    assert work.reason == "no recorded step called the model as a whole"


def test_a_part_that_is_called_very_often_is_not_counted() -> None:
    """The first step, of two calls, has promised few."""

    def step(calls: int) -> Any:
        return lambda model: sum(model["cell"](torch.ones(8, 4)).sum() for _ in range(calls)).backward()

    model = nn.ModuleDict({"cell": nn.Linear(4, 4), "head": nn.Linear(4, 4)})
    work = trained(model, *[step(2)] * 4, *[step(65)] * 3).work
    assert work is not None
    assert work.reason == "no recorded step called the model as a whole"


def test_a_container_of_many_models_is_not_counted() -> None:
    """Each call would cost some microseconds."""

    def step(model: Any) -> None:
        sum(layer(torch.ones(8, 4)).sum() for layer in model).backward()

    work = trained(nn.ModuleList(nn.Linear(4, 4) for _ in range(17)), *[step] * 4).work
    assert work is not None
    assert work.reason == "no recorded step called the model as a whole"


def test_a_model_that_is_frozen_in_some_calls_is_counted_in_both_states() -> None:
    """The discriminator of a GAN, while its generator is trained: its backward computes the gradient of its input."""

    def step(model: Any) -> None:
        model["score"](model["make"](torch.ones(8, 4)).detach()).sum().backward()
        model["score"].requires_grad_(False)
        model["score"](model["make"](torch.ones(8, 4))).sum().backward()
        model["score"].requires_grad_(True)

    work = work_of(trained(nn.ModuleDict({"make": nn.Linear(4, 4), "score": nn.Linear(4, 4)}), *[step] * 4))
    backward = {row.name: row.flops["backward"] for row in work.rows}
    # A gradient of the weight in one call, that of the input in the other; what is counted there is for both.
    assert (backward["make"], backward["score"]) == (LAYER, 2 * LAYER)


def test_thawing_a_layer_leaves_no_figure() -> None:
    """The shapes are the same, the backward is not; the first and the last layer show if a whole model is thawed."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].requires_grad_(False)

    def thaw(model: Any) -> None:
        model[1].requires_grad_(True)
        batch(8)(model)

    work = trained(model, *[batch(8)] * 4, *[thaw] * 3).work
    assert work is not None
    assert work.reason == "parameters were frozen or unfrozen during the run"


def test_a_count_is_in_the_overhead_of_the_step_that_it_lengthens(
    counts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is autoprof's time."""
    pass_on_each_step(monkeypatch)
    sink, processor, count_call = ListSink(), FakeClock(), flop_meter.count_call

    def count_slowly(model: nn.Module, call: Any, *clocks: Any) -> Any:
        processor.advance(STEP_NS)
        return count_call(model, call, *clocks)

    monkeypatch.setattr(builder, "Account", lambda *_clock: Account(processor.read))
    monkeypatch.setattr(flop_meter, "count_call", count_slowly)
    trained(nn.Linear(4, 4), *[batch(8)] * 4, sink=sink, sample={"warmup": 0, "budget": None})
    assert len(counts) == 1
    assert sink.frames[1].overhead_ns == sink.frames[2].overhead_ns + STEP_NS


def meter_of(model: nn.Module, run: FakeRun) -> FlopMeter:
    """Return the meter of a run."""
    part = run.account.part
    return FlopMeter(model, {"": ref(model)}, [], part(Part.FLOPS), part(Part.END), torch.device("cpu"))


@pytest.mark.parametrize(("modules", "seconds", "expected"), [(360, 4, 1), (400, 4, 0), (400, 250, 1)])
def test_the_end_of_a_run_counts_what_is_short_or_within_the_budget(
    modules: int, seconds: int, expected: int, counts: list[Any]
) -> None:
    """Up to two seconds in any run; more in a run whose budget covers it."""
    model = nn.Sequential(nn.Linear(4, 4), *[nn.Identity() for _ in range(modules)])
    run = FakeRun()
    meter = meter_of(model, run)
    call = describe(model, (torch.ones(8, 4),))
    meter.add_steps(StepCalls((0,), False, 1), [call], warmup=False)
    assert counts == []
    run.now_ns = seconds * 10**9
    meter.finish()
    assert len(counts) == expected


class Held(nn.Sequential):
    """A model that may hold itself."""

    def __init__(self, *, cyclic: bool) -> None:
        super().__init__(nn.Linear(4, 4))
        self.save = self.float if cyclic else torch.nn.functional.relu


def dropped(run: FakeRun, *, cyclic: bool = False, freezes: bool = False) -> tuple[FlopMeter, Any, Any]:
    """Return the meter of a model that is gone, as after the main function of a program, and what was held of it."""
    model = Held(cyclic=cyclic)
    meter = meter_of(model, run)
    meter.add_steps(StepCalls((0,), False, 1), [describe(model, (torch.ones(8, 4),))], warmup=False)
    model[0].requires_grad_(not freezes)
    found = meter, ref(model), ref(model[0])
    del model
    gc.collect()
    return found


@pytest.mark.parametrize("freezes", [False, True])
def test_a_model_that_the_program_drops_is_counted_at_the_end(freezes: bool, counts: list[Any]) -> None:
    """Its layers are held until then, and no longer."""
    run = FakeRun()
    meter, model, layer = dropped(run, freezes=freezes)
    assert model() is None
    assert layer() is not None
    assert counts == []
    run.now_ns = 10**9
    meter.finish()
    assert layer() is None
    work = meter.work(trained(nn.Linear(4, 4), *[batch(8)] * 4, flops="off"))
    assert work is not None
    assert (work.reason, work.flops.get("forward")) == ((CHANGED, None) if freezes else (None, LAYER))


def test_a_model_whose_attributes_lead_back_to_it_is_not_held(counts: list[Any]) -> None:
    """It could never be dropped: a method of its own as an attribute, or a trainer that knows it."""
    run = FakeRun()
    meter, model, layer = dropped(run, cyclic=True)
    assert (model(), layer()) == (None, None)
    run.now_ns = 10**9
    meter.finish()
    assert counts == []


class Loops(nn.Module):
    """A loop over time: one module, and many operators."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(500):
            x = x + 1
        return x


def test_a_count_of_many_more_operators_than_the_modules_promise_is_stopped(counts: list[Any]) -> None:
    """It is repeated when the budget covers several times as much, and not before."""
    model, run = Loops(), FakeRun()
    run.account.processor_ns = lambda: next(processor)
    processor = iter(range(0, 10**15, MS))  # an operator asks once
    meter = meter_of(model, run)
    call = describe(model, (torch.ones(8, 4),))
    done = []
    for seconds in (30, 30, 10_000):
        run.now_ns = seconds * 10**9
        meter.add_steps(StepCalls((0,), False, 0), [call], warmup=False)
        done.append((len(counts), bool(meter.by_shapes())))
    assert done == [(1, False), (1, False), (2, True)]


class Decides(nn.Linear):
    """A forward whose work depends on values."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.sum() > 0 else x


def two_losses(model: nn.Module) -> None:
    """Make two backward passes of one call: which modules each of them reaches is unknown."""
    output = model(torch.ones(8, 4))
    output.sum().backward(retain_graph=True)
    output.sum().backward()


def penalty(model: nn.Module) -> None:
    """The loss is a gradient of the output, as a gradient penalty has it."""
    x = torch.ones(8, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    gradient.square().sum().backward()


@pytest.mark.parametrize(
    ("layer", "step", "reason"),
    [
        (nn.Linear, two_losses, PASSES),
        (nn.Linear, penalty, HIGHER_ORDER),
        (Decides, batch(8), "depends on values"),
        (nn.Linear, lambda model: (model(torch.ones(8, 4)) + model[0](torch.ones(8, 4))).sum().backward(), OUTSIDE),
    ],
    ids=["two losses", "gradient penalty", "depends on values", "parts called too"],
)
def test_work_that_cannot_be_counted_has_its_reason(layer: Any, step: Any, reason: str) -> None:
    """And everything else is there."""
    summary = trained(nn.Sequential(layer(4, 4)), *[step] * 4)
    assert summary.work is not None
    assert reason in (summary.work.reason or "")
    assert summary.rows


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_loss_inside_the_model_adds_no_backward_pass_to_the_next_step(counts: list[Any], made_anew: bool) -> None:
    """The count runs a copy of the loss: as a loss outside the model, its backward was one more of the next step."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.loss = nn.Linear(4, 4), nn.MSELoss()

        def forward(self, x: Tensor) -> Tensor:
            output = self.layer(x)
            loss: Tensor = (nn.MSELoss() if made_anew else self.loss)(output, torch.zeros_like(output))
            return loss

    def step(model: nn.Module) -> None:
        model(torch.ones(8, 4)).backward()

    work = work_of(trained(Model(), *[step] * 6))
    assert len(counts) == 1
    assert work.flops == {"forward": LAYER, "recompute": 0, "backward": LAYER}


def test_spans_in_a_forward_are_marked_in_real_steps_only() -> None:
    """The count runs the forward once more, between two steps, where nothing records."""

    class Spans(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            with autoprof.span("inside"):
                return super().forward(x)

    sink = ListSink()
    summary = trained(Spans(4, 4), *[batch(8)] * 4, sink=sink)
    assert work_of(summary).flops["forward"] == LAYER
    assert [sum(span.name == "inside" for span in frame.spans) for frame in sink.frames] == [1] * 4
    assert len({sum(span.phase is Phase.BACKWARD for span in frame.spans) for frame in sink.frames}) == 1


def test_a_processor_has_operations_per_second_but_no_peak() -> None:
    """No MFU, with the reason."""
    work = work_of(trained(nn.Linear(4, 4), *[batch(8)] * 4))
    assert work.flops_per_s is not None
    assert (work.mfu, work.hfu) == (None, None)
    assert work.no_peak == "no peak is known for a device of type 'cpu'"


def metered(peak: DevicePeak, model: nn.Module, step_ns: int) -> Work:
    """Return the work of a run of these steps, held against a peak."""
    summary = trained(model, *[batch(8)] * 4, flops="off")
    clock = FakeClock(tick_ns=1)
    session = open_session(model, CONFIG, clock=clock)
    meter = next(one for one in session._pipeline._observers if isinstance(one, Metrics))._flops
    assert meter is not None
    meter._peak = peak
    for _ in range(4):
        batch(8)(model)
        clock.advance(step_ns)
        session.step()
    session.close()
    assert summary.work is None
    return work_of(session.summary())


def test_a_known_device_gives_mfu_by_its_own_peak() -> None:
    """Here float32 at 67 TFLOP/s of an H100, without TF32."""
    name = "NVIDIA H100 80GB HBM3"
    peak = DevicePeak(name, find_peak(name, PEAKS)[0], None, Tf32Flags(matmul=False, conv=False))
    work = metered(peak, nn.Sequential(nn.Linear(4, 4)), STEP_NS)
    assert work.mfu == pytest.approx(2 * LAYER / 67e12, rel=1e-3)
    assert work.hfu == work.mfu
    assert work.peak == f"{name} (SXM5)"


def learned(make: Any, x: Tensor, config: dict[str, Any] | None) -> list[Tensor]:
    """Train a model for five steps; return its state, and the next draws of the random generators."""
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    session = None if config is None else autoprof.instrument(model, config, optimizer=optimizer)
    seen = []
    for _ in range(5):
        loss = torch.nn.functional.dropout(model(x), 0.1).square().mean()
        loss.backward()
        seen += [loss.detach(), *[p.grad.clone() for p in model.parameters() if p.grad is not None]]
        optimizer.step()
        optimizer.zero_grad()
        if session is not None:
            session.step()
    if session is not None:
        session.close()
        assert work_of(session.summary()).flops["backward"] > 0
    return [*seen, *model.state_dict().values(), torch.rand(8)]


@pytest.mark.parametrize("again", ["", "reentrant", "early stop"])
def test_a_run_with_a_count_in_its_middle_is_the_bare_run_to_the_last_bit_gpt(again: str) -> None:
    """Losses, gradients, parameters, the state of the generator."""
    words = tokens()
    bare, counted = (learned(lambda: GPT(again=again), words, config) for config in (None, {**CONFIG, "flops": "auto"}))
    assert all(torch.equal(one, other) for one, other in zip(bare, counted, strict=True))


def test_work_is_told_by_arithmetic_and_by_how_long_the_peak_takes_for_it() -> None:
    """In 32 bits on an A100 without TF32, and in 16; a convolution is a family of its own."""
    model = nn.Sequential(nn.Conv2d(2, 2, 3), nn.Flatten(), nn.Linear(32, 4))
    work = work_of(trained(model, *[lambda model: model(torch.ones(1, 2, 6, 6)).sum().backward()] * 4))
    assert {(kind.dtype, kind.family) for kind in work.kinds} == {("float32", "conv"), ("float32", "matmul")}
    assert sum(kind.flops for kind in work.kinds) == sum(work.flops.values())
    assert {kind.peak_ns for kind in work.kinds} == {None}
    peak, _ = find_peak("NVIDIA A100-SXM4-80GB", PEAKS)
    full, half = peak_seconds(Kind("float32", "matmul"), 10**12, peak, Tf32Flags(matmul=False, conv=False))
    assert full == pytest.approx(1 / 19.5)
    assert half == pytest.approx(1 / 312)
