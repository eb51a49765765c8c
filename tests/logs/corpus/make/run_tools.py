"""Logs that the tools themselves write, in small runs on a CPU.

    KERAS_BACKEND=torch python tests/logs/corpus/make/run_tools.py KIND

in an environment with the tool of that kind: keras, sb3, ignite, lightgbm, transformers, lightning, loops. The truth is taken
from the tool's own history or from the numbers given to it, in the digits that it prints.
"""

# ruff: noqa: E501 (the lines of a log are long)

from __future__ import annotations

import contextlib
import csv
import io
import logging
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from writing import Log


@contextlib.contextmanager
def _captured():
    """Standard output and error in one stream."""
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        yield stream


def _ran(name: str, source: str, command: str, **keywords) -> Log:
    log = Log(name, source, **keywords)
    log.written = f"by running it ({command})"
    return log


def keras() -> None:
    """Two bars, the lines of verbose=2, and CSVLogger."""
    import keras
    import numpy as np

    version = f"keras {keras.__version__}"
    x, y = np.random.default_rng(1).normal(size=(320, 8)), np.random.default_rng(2).normal(size=(320, 1))
    for name, verbose, validated in (
        ("bar", 1, False),
        ("bar_validated", 1, True),
        ("lines", 2, False),
        ("lines_validated", 2, True),
    ):
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
        model.compile(optimizer="adam", loss="mse", metrics=["mae"])
        log = _ran(
            f"keras/{name}", f"{version}, model.fit(verbose={verbose})", "make/run_tools.py keras", counter="order"
        )
        log.note = "the line of an epoch: its mean loss; ms/step is the epoch's mean"
        if validated:
            log.note += ", with the validation's time in it; val_loss is the validation's"
        with _captured() as out:
            fit = model.fit(x, y, epochs=3, batch_size=32, verbose=verbose, validation_split=0.2 if validated else 0.0)
        log.raw(out.getvalue())
        times = re.findall(r"(?:━ |- )\d+s (?:- )?(\d+)(ms|us)/step", out.getvalue())
        ends = times[-3:] if verbose == 2 else []
        for epoch, loss in enumerate(fit.history["loss"]):
            values = {"loss": float(f"{loss:.4f}") if abs(loss) > 1e-3 else loss}
            if ends and not validated:
                values["step_time_s"] = int(ends[epoch][0]) / (1000 if ends[epoch][1] == "ms" else 1e6)
            log.row(**values)
            if validated:
                log.valid(val_loss=float(f"{fit.history['val_loss'][epoch]:.4f}"))
        if verbose == 1:  # the loss is the epoch's mean so far, whatever the bar's state
            states = re.findall(r"(\d+)/10.*? (\d+)ms/step - loss: ([\d.]+)", log.text.replace("\x08", ""))
            log.rows = [{"step": None, "loss": float(loss)} for loss in re.findall(r" - loss: ([\d.]+)", log.text)]
            if not validated:
                ends = [
                    {"step_time_s": int(time) / 1000, "loss": float(loss)}
                    for done, time, loss in states
                    if done == "10"
                ]
                log.rows = [row | next((end for end in ends if end["loss"] == row["loss"]), {}) for row in log.rows]
            log.note += "; the bar on its way prints means over the epoch so far"
        log.save()
    path = Path(tempfile.mkdtemp()) / "training.csv"
    fit = model.fit(
        x, y, epochs=8, batch_size=32, verbose=0, validation_split=0.2, callbacks=[keras.callbacks.CSVLogger(str(path))]
    )
    log = _ran(
        "keras/csv_logger",
        f"{version}, keras.callbacks.CSVLogger",
        "make/run_tools.py keras",
        counter="order",
        suffix="csv",
    )
    log.raw(path.read_text())
    for epoch in range(8):
        log.row(epoch, loss=fit.history["loss"][epoch])
        log.valid(epoch, val_loss=fit.history["val_loss"][epoch])
    log.save()


def sb3() -> None:
    """The console and the CSV of PPO on CartPole."""
    import gymnasium
    import stable_baselines3
    from stable_baselines3.common.logger import configure

    folder = tempfile.mkdtemp()
    with _captured() as out:
        model = stable_baselines3.PPO(
            "MlpPolicy", gymnasium.make("CartPole-v1"), n_steps=256, batch_size=64, seed=1, verbose=1, device="cpu"
        )
        model.set_logger(configure(folder, ["stdout", "csv"]))
        model.learn(1536)
    source = f"stable_baselines3 {stable_baselines3.__version__}, PPO.learn"
    console = re.sub(r"Logging to .*\n", "", out.getvalue())
    rows = list(csv.DictReader((Path(folder) / "progress.csv").open()))
    for name, suffix, text, digits in (
        ("ran_console", "log", console, 3),
        ("ran_progress", "csv", (Path(folder) / "progress.csv").read_text(), 17),
    ):
        log = _ran(f"stable_baselines3/{name}", source, "make/run_tools.py sb3", counter="order", suffix=suffix)
        log.note = "time/fps is the mean since the start, of the environment's steps"
        log.raw(text)
        for row in rows:
            if row["train/loss"]:
                log.row(loss=float(f"{float(row['train/loss']):.{digits}g}"), lr=float(row["train/learning_rate"]))
        log.save()


def ignite() -> None:
    """The engine's logger and the bar."""
    import ignite
    from ignite.contrib.handlers import ProgressBar
    from ignite.engine import Engine, Events
    from ignite.utils import setup_logger

    with _captured() as out:
        losses = [round(2.0 / (1 + index / 5), 4) for index in range(20)]
        trainer = Engine(lambda engine, batch: losses[engine.state.iteration - 1])
        trainer.logger = setup_logger("trainer", stream=out)
        trainer.add_event_handler(
            Events.ITERATION_COMPLETED(every=2),
            lambda e: print(f"Epoch[{e.state.epoch}] Iteration[{e.state.iteration}/20] Loss: {e.state.output:.4f}"),
        )
        trainer.run(range(10), max_epochs=2)
    log = _ran(
        "ignite/engine",
        f"pytorch-ignite {ignite.__version__}, Engine.run, and the print of its examples",
        "make/run_tools.py ignite",
    )
    log.note = "Time taken of an epoch and of the whole; two counters, of which Iteration counts on"
    log.raw(out.getvalue())
    for index in range(2, 21, 2):
        log.row(index, loss=losses[index - 1])
    log.save()
    with _captured() as out:
        trainer = Engine(lambda engine, batch: time.sleep(0.02) or {"loss": losses[engine.state.iteration - 1]})
        ProgressBar(persist=True, file=out).attach(trainer, output_transform=lambda output: output)
        trainer.run(range(10), max_epochs=2)
    log = _ran(
        "ignite/bar", f"pytorch-ignite {ignite.__version__}, ProgressBar", "make/run_tools.py ignite", counter="order"
    )
    log.note = "[step/steps] before the share; the rate in it/s is smoothed"
    log.raw(out.getvalue())
    for index in range(20):
        log.row(loss=float(f"{losses[index]:.3g}"), step_time_s=0.0204)
    log.derivable = {"step_time_s": 0.3, "loss": 1e-3}
    log.save()


def lightgbm() -> None:
    """Rounds of boosting: no step of a neural network, no time."""
    import lightgbm
    import numpy as np

    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(400, 5)), rng.normal(size=400)
    record: dict = {}
    train = lightgbm.Dataset(x[:300], y[:300])
    with _captured() as out:
        lightgbm.register_logger(_Prints())
        lightgbm.train(
            {"objective": "regression", "num_threads": 1},
            train,
            20,
            valid_sets=[train, train.create_valid(x[300:], y[300:])],
            valid_names=["training", "valid_1"],
            callbacks=[lightgbm.log_evaluation(2), lightgbm.record_evaluation(record)],
        )
    log = _ran(
        "lightgbm/console",
        f"lightgbm {lightgbm.__version__}, log_evaluation",
        "make/run_tools.py lightgbm",
        counter="order",
    )
    log.note = "[round] and the metrics of two data sets, of which valid_1 is the validation"
    log.raw("".join(line for line in out.getvalue().splitlines(True) if "No further splits" not in line))
    for index in range(1, 20, 2):
        log.row(index + 1)
    log.save()


class _Prints:
    def info(self, message: str) -> None:
        print(message)

    warning = info


def transformers() -> None:
    """The Trainer's console and trainer_state.json, with an evaluation."""
    import torch
    import transformers
    from transformers import Trainer, TrainingArguments

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x, labels=None):
            y = self.layer(x)
            return {"loss": ((y - labels) ** 2).mean(), "logits": y}

    torch.manual_seed(1)
    data = [{"x": torch.randn(4), "labels": torch.randn(1)} for _ in range(96)]
    for name, suffix in (("console", "log"), ("trainer_state", "json")):
        folder = tempfile.mkdtemp()
        arguments = TrainingArguments(
            folder,
            max_steps=24,
            logging_steps=2,
            eval_strategy="steps",
            eval_steps=8,
            save_steps=24,
            per_device_train_batch_size=8,
            report_to=[],
            use_cpu=True,
            disable_tqdm=False,
        )
        with _captured() as out:
            trainer = Trainer(Net(), arguments, train_dataset=data, eval_dataset=data[:16])
            trainer.train()
        log = _ran(
            f"transformers/{name}",
            f"transformers {transformers.__version__}, Trainer",
            "make/run_tools.py transformers",
            counter="order" if name == "console" else "exact",
            suffix=suffix,
        )
        log.note = (
            "eval_ keys are the evaluation's; the last dict has the run's means; eval_steps_per_second is no step's"
        )
        state = trainer.state.log_history
        log.raw(out.getvalue() if name == "console" else next(Path(folder).glob("*/trainer_state.json")).read_text())
        for record in state:
            if name == "console":
                record = {key: float(f"{value:.4g}") for key, value in record.items()}
            step = record["step"] if name == "trainer_state" else None
            if "loss" in record:
                values = {"loss": record["loss"], "lr": record["learning_rate"], "grad_norm": record["grad_norm"]}
                log.row(step, **values, step_time_s=0.005 if name == "console" else None)
            elif "eval_loss" in record:
                log.valid(step, val_loss=record["eval_loss"])
        if name == "console":
            log.derivable = {"step_time_s": 1.0}  # the bar's rate is smoothed
        log.save()


def lightning() -> None:
    """CSVLogger and the bar, with a validation."""
    import warnings

    import pytorch_lightning as pl
    import torch
    from pytorch_lightning.loggers import CSVLogger

    warnings.simplefilter("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    class Net(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
            self.seen, self.judged = [], []

        def training_step(self, batch, _):
            loss = (self.layer(batch) ** 2).mean()
            self.log("train_loss", loss, prog_bar=True)
            self.seen.append(loss.item())
            return loss

        def validation_step(self, batch, _):
            self.judged.append((self.layer(batch) ** 2).mean().item())
            self.log("val_loss", self.judged[-1], prog_bar=True)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    torch.manual_seed(1)
    net, folder = Net(), tempfile.mkdtemp()
    train, valid = (torch.utils.data.DataLoader(torch.randn(count, 4), 8) for count in (96, 8))
    with _captured() as out:
        trainer = pl.Trainer(
            max_epochs=3,
            logger=CSVLogger(folder),
            log_every_n_steps=4,
            enable_model_summary=False,
            accelerator="cpu",
            num_sanity_val_steps=0,
            enable_checkpointing=False,
            callbacks=[pl.callbacks.TQDMProgressBar(4)],
        )
        trainer.fit(net, train, valid)
    source = f"pytorch_lightning {pl.__version__}"
    log = _ran("lightning/metrics", f"{source}, CSVLogger", "make/run_tools.py lightning", suffix="csv")
    log.note = "rows of training and of the validation, each half empty; step counts from 0"
    log.raw(next(Path(folder).rglob("metrics.csv")).read_text())
    for step in range(3, 36, 4):
        log.row(step, loss=net.seen[step])
    for epoch in range(3):
        log.valid(epoch * 12 + 11, val_loss=net.judged[epoch])
    log.derivable = {"loss": 1e-4}
    log.save()
    log = _ran("lightning/bar", f"{source}, TQDMProgressBar", "make/run_tools.py lightning", counter="order")
    log.note = (
        "bars rewritten with \\r, of the validation too; the loss of three digits; the rate in it/s is the epoch's mean"
    )
    log.raw(re.sub(r"[^\r\n]*/[^\r\n]*site-packages[^\r\n]*", "", out.getvalue()))
    shown = re.findall(r"Epoch \d+: [^\r\n]*?(\d+)/12 \[[^\r\n]*?([\d.]+)it/s[^\r\n]*?train_loss=([\d.e+-]+)", log.text)
    for _, rate, loss in shown:
        log.row(loss=float(loss), step_time_s=1 / float(rate))
    for epoch in range(3):
        log.valid(val_loss=float(f"{net.judged[epoch]:.3g}"))
    log.derivable = {"loss": 1e-3, "step_time_s": 0.01}
    log.save()


def loops() -> None:
    """Loops as people write them: tqdm, rich, loguru."""
    import rich.console
    import rich.table
    import tqdm

    log = _ran("tqdm/postfix", f"tqdm {tqdm.__version__}, set_postfix", "make/run_tools.py loops", counter="order")
    log.note = "a bar rewritten with \\r per epoch; a bar of the validation; the rate is smoothed"
    with _captured() as out:
        for epoch in range(2):
            bar = tqdm.tqdm(range(12), desc=f"Epoch {epoch + 1}/2", file=out, mininterval=0, ncols=100)
            for index in bar:
                time.sleep(0.01)
                loss = log.loss(epoch * 12 + index, 3, 2.0)
                bar.set_postfix(loss=loss, refresh=True)
                log.row(loss=float(f"{loss:.3g}"), step_time_s=0.0104)
            for _ in tqdm.tqdm(range(4), desc="Validation", file=out, mininterval=0, ncols=100):
                time.sleep(0.03)
    log.raw(out.getvalue())
    log.derivable = {"step_time_s": 0.5, "loss": 1e-3}
    log.save()

    log = _ran(
        "rich/table",
        "rich, Table printed at the end of training",
        "make/run_tools.py loops",
        counter="order",
        suffix="txt",
    )
    log.note = "a table with lines of boxes, a row per epoch; time is the epoch's"
    table = rich.table.Table("Epoch", "Train loss", "Val loss", "Time (s)", title="Training")
    for epoch in range(1, 7):
        loss, val = log.loss(epoch, 4, 2), log.loss(epoch, 4, 2.1)
        table.add_row(str(epoch), f"{loss:.4f}", f"{val:.4f}", f"{log.around(41.2, 1)}")
        log.row(epoch, loss=loss)
        log.valid(epoch, val_loss=val)
    stream = io.StringIO()
    rich.console.Console(file=stream, width=80).print(table)
    log.raw(stream.getvalue())
    log.save()


def loguru() -> None:
    """A loop with loguru's lines."""
    from loguru import logger

    log = _ran("loguru/loop", "loguru, logger.info", "make/run_tools.py loguru")
    log.note = "the time of the line is that of writing; step_time in ms; lines of eval"
    stream = io.StringIO()
    logger.remove()
    logger.add(stream, colorize=True)
    for step in range(10, 121, 10):
        loss, t = log.loss(step // 10, 4, 3), log.around(182.1, 1)
        logger.info(f"step {step}/500 | loss={loss:.4f} | lr=3.00e-04 | step_time={t:.1f}ms")
        log.row(step, loss=loss, lr=3e-4, step_time_s=t / 1000)
        if step % 60 == 0:
            logger.success(f"eval @ step {step} | loss={loss + 0.1:.4f} | time=4.21s")
            log.valid(step, val_loss=round(loss + 0.1, 4))
    log.raw(stream.getvalue())
    log.save()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
