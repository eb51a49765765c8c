"""The document of training-step fixes: its code samples, before and after, run word for word and compared with proof.

The samples are pieces of a training loop. Here they run inside one, on a clock that each expensive thing advances, and
``autoprof compare`` measures the gain of the fixes.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

import autoprof
from autoprof.compare import Comparison, compare_runs
from autoprof.testing import FakeClock, open_session

MS = 1_000_000

MEASURE_BEFORE = """
should_measure_flops = (
    not flops_profiled or  # 第一次测量
    (effective_step > 0 and effective_step % 50 == 0)  # 每50个有效步骤重新测量
)
"""
MEASURE_AFTER = """
should_measure_flops = (
    not flops_profiled or  # 仅第一次测量
    (effective_step > 0 and effective_step % 500 == 0)  # 每500个有效步骤重新测量
)
"""
ONCE = """
# 进一步降低FLOPs测量频率
should_measure_flops = (
    not flops_profiled  # 仅首次测量，不重复测量
)

# 进一步降低WandB记录频率
should_log_detailed = (step % 100 == 0)  # 每100步

# 完全禁用数据集指标（如果不需要）
self.enable_dataset_metrics = False
"""
SYNC_BEFORE = """
if should_measure_flops and self.dist_ctx.world_size > 1:
    # 多次广播操作
    dist.broadcast(flops_tensor, src=0)
    dist.broadcast(seq_tensor, src=0)
"""
SYNC_AFTER = """
if should_measure_flops and real_time_flops is not None and self.dist_ctx.world_size > 1 and not flops_profiled:
    try:
        dist.broadcast(flops_tensor, src=0)
        dist.broadcast(seq_tensor, src=0)
    except Exception as e:
        print(f"⚠️  FLOPs同步失败: {e}")
"""
METRICS_BEFORE = """
# 每个训练步骤都更新
self._update_dataset_metrics(batch, outputs, aggregated_loss)
"""
INSIDE_BEFORE = """
# 内部进行大量tensor操作
predictions = torch.argmax(logits, dim=-1)
for i, dataset_name in enumerate(dataset_names):
    label = labels[i].item()
    pred = predictions[i].item()
"""
INSIDE_AFTER = """
# 延迟计算，批量处理
predictions = None  # 延迟计算
avg_loss_per_sample = aggregated_loss / dataset_count  # 批量计算
"""
METRICS_AFTER = """
# 每10步更新一次
if self.enable_dataset_metrics and (self.current_step % 10 == 0):
    self._update_dataset_metrics(batch, outputs, aggregated_loss)
"""
WANDB_BEFORE = """
# 详细指标每10步记录
should_log_detailed = (step % 10 == 0)

# 每步记录所有指标
wandb_data = {
    "training/loss": float(loss),
    "training/lr": float(learning_rate),
    "training/grad_norm": float(grad_norm),  # 每步记录
    "training/epoch": float(epoch),
    "global_step": int(step)
}
"""
WANDB_AFTER = """
# 详细指标每50步记录
should_log_detailed = (step % 50 == 0)

# 基础指标轻量级记录
wandb_data = {
    "training/loss": float(loss),
    "training/lr": float(learning_rate),
    "training/epoch": float(epoch),
    "global_step": int(step)
}

# 详细指标降频记录
if should_log_detailed:
    wandb_data.update({
        "training/grad_norm": float(grad_norm),  # 仅在详细记录时
        "perf/step_time": float(step_time),
    })
"""
LOGS_BEFORE = """
# 每100步保存本地日志
if step % 100 == 0:
    self.save_logs()
"""
LOGS_AFTER = """
# 每200步保存本地日志
if step % 200 == 0:
    self.save_logs()
"""
BEFORE = (MEASURE_BEFORE, SYNC_BEFORE, METRICS_BEFORE, WANDB_BEFORE, LOGS_BEFORE, INSIDE_BEFORE)
AFTER = (MEASURE_AFTER, SYNC_AFTER, METRICS_AFTER, WANDB_AFTER, LOGS_AFTER, INSIDE_AFTER)


class Trainer:
    """The trainer that the samples belong to. What they call costs time on the test's clock, in a span of its name."""

    enable_dataset_metrics = True
    dist_ctx = SimpleNamespace(world_size=8)

    def __init__(self, clock: FakeClock, seed: int, inside: Any) -> None:
        self.clock, self.current_step = clock, 0
        self._inside = inside
        self._draws = np.random.default_rng(seed)

    def spend(self, ms: float) -> None:
        self.clock.advance(round(ms * MS * float(np.exp(0.01 * self._draws.standard_normal()))))

    def profile_flops(self) -> None:
        with autoprof.span("FLOPs profile"):
            self.spend(400)

    def broadcast(self, tensor: Any, src: int) -> None:
        with autoprof.span("FLOPs broadcast"):
            self.spend(3)

    def _update_dataset_metrics(self, batch: Any, outputs: Any, loss: Any) -> None:
        wait = SimpleNamespace(item=lambda: self.spend(1))  # each value that is asked for waits for the device
        space = {"torch": torch, "logits": torch.zeros(12, 3), "labels": [wait] * 12, "dataset_names": ["a"] * 12}
        with autoprof.span("dataset metrics"):
            self.spend(1)
            exec(self._inside, {**space, "aggregated_loss": loss, "dataset_count": 12})

    def log_to_wandb(self, data: dict[str, float]) -> None:
        with autoprof.span("wandb"):
            self.spend(len(data))

    def save_logs(self) -> None:
        with autoprof.span("save logs"):
            self.spend(30)


def run_samples(output: Path, samples: tuple[str, ...], *, seed: int, steps: int = 1003) -> Path:
    """Train with these samples in the loop; return the folder of the recorded run."""
    measure, sync, metrics, wandb, logs, inside = (compile(sample, "seed", "exec") for sample in samples)
    clock = FakeClock(tick_ns=100)
    trainer = Trainer(clock, seed, inside)
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    model.register_forward_hook(lambda *_: trainer.spend(80))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    config = {"sample": {"budget": None}, "output": str(output), "sinks": {"jsonl": {}}}
    space: dict[str, Any] = {"self": trainer, "dist": trainer, "flops_profiled": False, "real_time_flops": 1.0}
    space.update(flops_tensor=None, seq_tensor=None, batch=None, outputs=None, aggregated_loss=0.0)
    space.update(loss=0.0, learning_rate=0.01, grad_norm=1.0, epoch=0, step_time=0.1)
    with open_session(model, config, clock=clock, optimizer=optimizer) as session:
        for step in range(steps):
            trainer.current_step = step
            space.update(step=step, effective_step=step)
            exec(measure, space)
            if space["should_measure_flops"]:
                trainer.profile_flops()
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            exec(sync, space)
            space["flops_profiled"] = True
            exec(metrics, space)
            exec(wandb, space)
            trainer.log_to_wandb(space["wandb_data"])
            exec(logs, space)
            session.step()
        folder = session.folder
    assert folder is not None
    return folder


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """The samples before against those after."""
    output = tmp_path_factory.mktemp("runs")
    before, after = run_samples(output, BEFORE, seed=1), run_samples(output, AFTER, seed=2)
    return compare_runs(before, after, min_share=0)


def _row(comparison: Comparison, name: str) -> Any:
    return next(one for one in comparison.rows if one.name == name)


def test_the_fixes_are_proven(comparison: Comparison) -> None:
    """The step is faster, and each measure that the fixes make rarer costs less; the model's own work is the same."""
    assert {one.name: one.verdict for one in comparison.whole}["mean step"] == "faster"
    assert _row(comparison, "dataset metrics").verdict == "faster"
    assert _row(comparison, "dataset metrics").ratio == pytest.approx(1 / 130, rel=0.05)
    assert _row(comparison, "FLOPs profile").a > 5 * _row(comparison, "FLOPs profile").b
    assert _row(comparison, "wandb").verdict == "faster"
    forward = next(one for one in comparison.phases if one.phase == "forward")
    assert forward.verdict == "same"


def test_the_promised_gain_is_measured_not_promised(comparison: Comparison) -> None:
    """The document promises 30 to 60 % of the step; the comparison measures it here, with a confidence interval."""
    mean = next(one for one in comparison.whole if one.name == "mean step")
    assert mean.low is not None
    assert mean.high is not None
    assert mean.low < mean.ratio < mean.high < 0.9


# What autoprof itself does of all this.


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Any]:
    """A process group of one, which counts its collectives."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "all_to_all_single",
    "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list", "gather", "gather_object", "irecv", "isend",
    "monitored_barrier", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter",
    "scatter_object_list", "send",
)  # fmt: skip


@contextlib.contextmanager
def _counted_collectives(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Note each collective of ``torch.distributed`` that is called, and from where."""
    called: list[str] = []

    def watch(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            called.append(f"{name} from {inspect.stack()[1].filename}")
            return original(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in COLLECTIVES:
            patch.setattr(dist, name, watch(name, getattr(dist, name)))
        yield called


def _train(session: Any, model: nn.Module, optimizer: Any, steps: int) -> None:
    for _ in range(steps):
        loss = model(torch.ones(2, 4)).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        session.log(loss=loss.detach(), samples=2)
        session.step()


def test_autoprof_never_communicates(group: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No broadcast per measurement, and no other collective: not at the start, in a step, in a summary or at the end.

    Both the calls from Python and the group's own count, which includes those from C++. Every sink is on.
    """
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    config = {
        "output": str(tmp_path / "runs"),
        "sample": {"budget": None},
        "targets": [{"match": ".+", "memory": True}],
    }
    with _counted_collectives(monkeypatch) as called:
        before = group._get_sequence_number_for_group()
        with autoprof.instrument(model, config, optimizer=optimizer) as session:
            _train(session, model, optimizer, 40)
            session.summary()
        assert called == []
        assert group._get_sequence_number_for_group() == before
        dist.broadcast(torch.ones(1), src=0)  # both counters do see one
        assert len(called) == 1
        assert group._get_sequence_number_for_group() == before + 1
