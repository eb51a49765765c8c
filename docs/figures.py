"""Draw the figures of ``docs/figures.md`` from real runs, in about a minute. ``make figures`` runs it."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import torch
from torch import nn

import autoprof
from autoprof.compat.global_timer import MyTimer
from autoprof.compat.timer_logs import load_timer_logs, plot_timeline
from autoprof.compat.timing_logger import TimingLogger
from autoprof.frontends.cli import main as run_autoprof
from autoprof.logs import load_logs, plot_metrics

FOLDER = Path(__file__).with_name("figures")
STEPS = 100
"""Steps of each run that is compared."""
COLORS = 40
"""Colours of a picture; more only smooth the letters' edges further."""
MAX_KB = 100


def main() -> None:
    """Draw every figure."""
    torch.set_num_threads(1)  # the threads of two operators wait for each other on a busy machine
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        run = train_encoder(work / "run", widths=[512, 512, 2048, 512])
        autoprof_command("show", run, "--memory-plot", FOLDER / "memory.png")
        log = train_classifier(work)
        autoprof_command("inspect", log, "-o", FOLDER / "inspect.png")
        autoprof_command("inspect", log, "--plot", "loss", "-o", FOLDER / "inspect_loss.png")
        plot_timeline(load_timer_logs(work / "timers"), FOLDER / "timeline.png")
    for picture in FOLDER.glob("*.png"):
        reduce_colors(picture)


def autoprof_command(*arguments: object) -> None:
    """Run the command ``autoprof``; an error ends the program."""
    if run_autoprof([str(argument) for argument in arguments]):
        raise SystemExit(1)


class Encoder(nn.Module):
    """Transformer layers of the given widths."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        layers = [nn.TransformerEncoderLayer(256, 4, width, batch_first=True, dropout=0.0) for width in widths]
        self.layers = nn.Sequential(*layers)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.layers(batch)  # type: ignore[no-any-return]


CONFIG = {
    "targets": [
        {"match": r"layers\.(\d)", "name": r"Layer\1"},
        {"match": r"layers\.(\d)\.self_attn", "name": r"Layer\1/attention"},
        {"match": r"layers\.(\d)\.linear([12])", "name": r"Layer\1/linear\2"},
    ],
}


def train_encoder(output: Path, widths: Sequence[int]) -> Path:
    """Train layers of these widths on noise; return the folder of the run."""
    torch.manual_seed(0)
    model = Encoder(widths)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(4, 64, 256)
    config = {**CONFIG, "output": str(output), "sinks": {"jsonl": {}}, "sample": {"budget": None}}
    with autoprof.instrument(model, config, optimizer=optimizer) as session:
        for _ in range(STEPS):
            (model(batch) - batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            session.step()
    (run,) = output.iterdir()
    return run


def train_classifier(work: Path, steps: int = 600) -> Path:
    """Train a classifier of spirals, with validation every ten steps; return its log. Two older timers log as well."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    timings, timer = TimingLogger(work / "timings", enable_console=False), MyTimer(work / "timers")
    held_out, log = spirals(512), work / "train.jsonl"
    with log.open("w", encoding="utf-8") as file:
        for step in range(1, steps + 1):
            record: dict[str, float] = {"step": step, "lr": schedule.get_last_lr()[0], "batch_size": 64}
            ms: dict[str, float] = {}

            @contextmanager
            def timed(name: str, ms: dict[str, float] = ms, traced: bool = step > steps - 8) -> Iterator[None]:
                start = time.perf_counter()
                if traced:
                    timer.start(name)
                yield
                if traced:
                    timer.stop(name)
                ms[name] = 1e3 * (time.perf_counter() - start)

            with timed("data"):
                points, classes = spirals(64)
            with timed("forward"):
                loss = nn.functional.cross_entropy(model(points), classes)
            with timed("backward"):
                loss.backward()
            with timed("clipping"):
                record["grad_norm"] = nn.utils.clip_grad_norm_(model.parameters(), 10.0).item()
            with timed("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            schedule.step()
            for name, duration in ms.items():
                timings.log_timing(name, duration)
            timings.step()
            seconds = sum(ms.values()) / 1e3
            record |= {"loss": loss.item(), "step_time_s": seconds, "data_time": ms["data"] / 1e3}
            record["throughput"] = 64 / seconds
            if step % 10 == 0:
                with torch.no_grad():
                    record["val_loss"] = nn.functional.cross_entropy(model(held_out[0]), held_out[1]).item()
            file.write(json.dumps(record) + "\n")
    timer.dump()
    timings.close()
    assert timings.log_file is not None
    plot_metrics(load_logs(timings.log_file), FOLDER / "timing.png")
    return log


def spirals(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points of three spirals, and the spiral of each."""
    classes = torch.randint(3, (count,))
    along = torch.rand(count)
    angle = 4 * along + classes * 2.1 + 0.2 * torch.randn(count)
    return torch.stack([along * angle.sin(), along * angle.cos()], 1), classes


def reduce_colors(path: Path) -> None:
    """Write the picture again with few colours. Raises ``SystemExit`` if it is still too large."""
    from PIL import Image

    buffer = BytesIO()
    Image.open(path).convert("RGB").quantize(COLORS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        buffer, format="png", optimize=True
    )
    path.write_bytes(buffer.getvalue())
    if len(buffer.getvalue()) > MAX_KB * 1000:
        raise SystemExit(f"{path}: larger than {MAX_KB} kB")


if __name__ == "__main__":
    main()
