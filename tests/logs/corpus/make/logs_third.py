"""A third round of logs, written before any of them was read: mostly loops as people write them."""

# ruff: noqa: E501 (the lines of a log are long)

from __future__ import annotations

import json

from writing import Log, clock, hms, maker


@maker
def nested_json() -> Log:
    log = Log(
        "loops/nested_metrics",
        "a loop that writes nested JSON with units in keys",
        note="timing.total_ms is the step; timing.forward_ms a part; optim.lr a list per group; eval nested in the same record",
        suffix="jsonl",
    )
    for step in range(10, 130, 10):
        loss, t = log.loss(step / 10), log.around(231.1, 1)
        record = {
            "step": step,
            "losses": {"total": loss, "ce": loss * 0.9, "aux": loss * 0.1},
            "timing": {"data_ms": 3.1, "forward_ms": t * 0.3, "backward_ms": t * 0.6, "total_ms": t},
            "optim": {"lr": [1e-4, 1e-5], "grad_norm": log.around(1.2)},
            "gpu": {"mem_gb": 31.2},
        }
        log.line(json.dumps(record))
        log.row(
            step,
            loss=loss,
            step_time_s=t / 1000,
            data_time=0.0031,
            lr=1e-4,
            grad_norm=record["optim"]["grad_norm"],
            memory=31.2,
        )
    log.derivable = {"lr": 1e-4, "memory": 1e-3, "data_time": 1e-3, "loss": 1e-3, "step_time_s": 1e-3}
    return log


@maker
def events_jsonl() -> Log:
    log = Log(
        "loops/events",
        "a loop that writes events of several kinds into one file",
        note="type says train, eval, checkpoint; the duration of a checkpoint is no step time",
        suffix="jsonl",
    )
    for step in range(10, 130, 10):
        loss, t = log.loss(step / 10), log.around(0.231, 4)
        log.line(json.dumps({"type": "train", "step": step, "loss": loss, "duration": t}))
        log.row(step, loss=loss, step_time_s=t)
        if step % 40 == 0:
            val = round(loss + 0.2, 4)
            log.line(
                json.dumps({"type": "eval", "step": step, "loss": val, "duration": 12.3}),
                json.dumps({"type": "checkpoint", "step": step, "duration": 4.1, "path": f"ckpt-{step}"}),
            )
            log.valid(step, val_loss=val)
    log.derivable = {"step_time_s": 1e-4}
    return log


@maker
def csv_train_and_val_rows() -> Log:
    log = Log(
        "loops/split_column",
        "a table with a column split, rows of train and val",
        note="rows of val have a loss and a time too",
        suffix="csv",
    )
    log.line("epoch,split,loss,acc,time")
    for epoch in range(1, 9):
        loss, val = log.loss(epoch), log.loss(epoch, 4, 6.5)
        log.line(f"{epoch},train,{loss},0.41,31.2", f"{epoch},val,{val},0.43,4.1")
        log.row(epoch, loss=loss)
        log.valid(epoch, val_loss=val)
    return log


@maker
def csv_wall_and_iter() -> Log:
    log = Log(
        "loops/wall_table",
        "a table with the time since the start and the steps' time in milliseconds",
        note="wall is since the start; iter_ms the step's",
        suffix="csv",
    )
    log.line("iter,wall,iter_ms,train_loss,lr,ema_loss")
    wall = 0.0
    for it in range(0, 120, 10):
        loss, t = log.loss(it / 10), log.around(231.1, 2)
        wall += t / 100
        log.line(f"{it},{wall:.3f},{t},{loss},0.0001,{loss + 0.3:.4f}")
        log.row(it, loss=loss, step_time_s=t / 1000, lr=1e-4)
    log.derivable = {"step_time_s": 1e-4}
    return log


@maker
def loss_parts_sum() -> Log:
    log = Log(
        "loops/parts",
        "a loop that prints the parts of a loss in brackets behind the sum",
        note="(rec 1.2, kl 0.3) are parts, no means",
    )
    for step in range(100, 1300, 100):
        loss = log.loss(step / 100)
        log.line(
            f"step {step:6d}  loss {loss:.4f} (rec {loss * 0.8:.4f}, kl {loss * 0.2:.4f})  psnr 21.3  {log.around(5.21, 2):.2f} it/s  {hms(step)}<2:12:03"
        )
        rate = float(log.text.splitlines()[-1].split(" it/s")[0].split()[-1])
        log.row(step, loss=loss, steps_per_s=rate, step_time_s=1 / rate)
    log.derivable = {"steps_per_s": 1e-3, "step_time_s": 1e-2}
    return log


@maker
def per_100_steps() -> Log:
    log = Log(
        "loops/per_interval",
        "a loop that prints the time of an interval",
        note="23.1s is the time of 100 steps; 'last 100 steps' says so; loss is the interval's mean",
    )
    for step in range(100, 1300, 100):
        loss, t = log.loss(step / 100), log.around(23.1, 1)
        log.line(f"Step {step}: loss = {loss:.4f}, time for last 100 steps = {t:.1f}s, lr = 0.0001")
        log.row(step, loss=loss, lr=1e-4)
    log.derivable = {"step_time_s": 1e9}
    return log


@maker
def took_seconds() -> Log:
    log = Log(
        "loops/took",
        "a loop that prints sentences",
        note="took 31.2s is of the epoch; average loss of the epoch; Evaluation took 4.1s",
        counter="exact",
    )
    for epoch in range(1, 9):
        val = log.loss(epoch, 4, 2.0)
        log.line(
            f"Epoch {epoch} finished, took {log.around(31.2, 1):.1f}s, average loss: {log.loss(epoch, 4, 2.3):.4f}",
            f"Evaluation took 4.1s, validation loss: {val:.4f}, accuracy: 0.{60 + epoch}",
        )
        log.row(epoch)
        log.valid(epoch, val_loss=val)
    log.derivable = {"loss": 1e9}
    return log


@maker
def colon_padded() -> Log:
    log = Log("loops/padded", "a loop that pads its names", note="names and values padded; 'Time/batch' in ms")
    for step in range(10, 130, 10):
        loss, t = log.loss(step / 10), log.around(231.1, 1)
        log.line(
            f"Iter      :   {step:5d} | Loss      : {loss:10.4f} | LR        : 1.00e-04 | Time/batch: {t:8.1f} ms | GradNorm  : {loss / 3:8.3f}"
        )
        log.row(step, loss=loss, lr=1e-4, step_time_s=t / 1000, grad_norm=float(f"{loss / 3:.3f}"))
    return log


@maker
def python_logging_extra() -> Log:
    log = Log(
        "loops/logging_module",
        "logging with process, thread, file and line in front",
        note="numbers of process, thread and line stand before the text; duration is the step's",
    )
    now = clock()
    for step in range(10, 130, 10):
        loss, t = log.loss(step / 10), log.around(0.231, 3)
        log.line(
            f"{now(3):%Y-%m-%d %H:%M:%S},112 4121 140512331122496 INFO trainer.py:231 run_step() step=%d" % step
            + f" loss={loss:.4f} duration={t:.3f}s"
        )
        log.row(step, loss=loss, step_time_s=t)
    return log


@maker
def two_runs_in_one_file() -> Log:
    log = Log(
        "loops/two_runs",
        "two runs of different settings appended to one file",
        note="the second run starts at step 10 again; the later values count",
        counter="order",
    )
    rows = []
    for run in range(2):
        log.line(f"=== run {run} lr=0.{run + 1} batch=32 ===")
        rows = []
        for step in range(10, 90, 10):
            loss = log.loss(step / 10 + run)
            log.line(f"step {step} loss {loss:.4f}")
            rows.append((step, loss))
    for step, loss in rows:
        log.row(step, loss=loss)
    return log


@maker
def gan_with_times() -> Log:
    log = Log(
        "loops/gan_times",
        "a loop of a GAN that prints the times of both parts",
        note="d_time and g_time are parts; iter_time the step's; no single loss",
    )
    for step in range(100, 1300, 100):
        t = log.around(0.231, 3)
        log.line(
            f"[{step}/20000] d_loss: {log.around(0.7):.4f} g_loss: {log.around(1.7):.4f} d_time: {t * 0.4:.3f} g_time: {t * 0.6:.3f} iter_time: {t:.3f} fid: 31.2"
        )
        log.row(step, step_time_s=t)
    return log


@maker
def hours_minutes() -> Log:
    log = Log(
        "loops/hours",
        "a loop that prints days, hours and minutes",
        note="elapsed 1h02m and eta 3d 4h are no step times",
    )
    for step in range(1000, 13000, 1000):
        loss = log.loss(step / 1000)
        log.line(
            f"step {step}/1000000 | loss {loss:.4f} | elapsed {step // 3000}h{step // 50 % 60:02d}m | eta 3d 4h | {log.around(81.2, 1):.1f} steps/min"
        )
        log.row(step, loss=loss)
    log.derivable = {"step_time_s": 1e9, "steps_per_s": 1e9}
    return log


@maker
def samples_and_tokens() -> Log:
    log = Log(
        "loops/consumed",
        "a loop whose counter is tokens",
        note="tokens 1.31B is the position; no step",
        counter="order",
    )
    for index in range(1, 13):
        loss, rate = log.loss(index), log.around(412.1, 1)
        log.line(f"tokens {index * 0.131:.3f}B | loss {loss:.4f} | lr 3.00e-04 | {rate:.1f}K tok/s")
        log.row(loss=loss, lr=3e-4, tokens_per_s=rate * 1e3)
    log.derivable = {"tokens_per_s": 1e-3}
    return log


@maker
def negative_loss() -> Log:
    log = Log(
        "loops/negative",
        "a loop with a likelihood: negative losses, scientific numbers and infinities",
        note="-1.2e+03 is a loss; inf grad norm is printed",
    )
    for step in range(1, 13):
        loss = -round(1000 + log.around(212.1, 1), 1)
        log.line(f"it={step} nelbo={loss:.3e} loss={loss:.1f} gnorm={'inf' if step == 4 else '1.25e+00'} lr=5e-04")
        log.row(step, loss=loss, lr=5e-4, grad_norm=float("inf") if step == 4 else 1.25)
    log.derivable = {"grad_norm": 1e9}
    return log


@maker
def fold_and_epoch() -> Log:
    log = Log(
        "loops/folds",
        "a loop over folds of a cross-validation",
        note="every fold has the same epochs: 'Fold 1 Epoch 1'; a table that keeps the last fold only is not wrong",
        counter="order",
    )
    for fold in range(1, 4):
        for epoch in range(1, 6):
            loss, val = log.loss(epoch), log.loss(epoch, 4, 6.5)
            log.line(f"Fold {fold} Epoch {epoch}: train_loss={loss:.4f} val_loss={val:.4f} auc=0.81")
            log.row(epoch, loss=loss)
            log.valid(epoch, val_loss=val)
    return log


@maker
def isaac_skrl() -> Log:
    log = Log(
        "skrl/console",
        "Toni-SM/skrl, skrl/trainers/torch/sequential.py: tqdm of timesteps (1.4)",
        note="the bar counts the environment's steps; no loss",
        counter="order",
    )
    for step in range(1000, 9000, 1000):
        rate = log.around(81.2, 2)
        log.raw(f"\r  {step / 360:.0f}%|███       | {step}/36000 [00:{step // 200:02d}<05:12, {rate:.2f}it/s]")
        log.row(step, steps_per_s=rate, step_time_s=1 / rate)
    log.raw("\n")
    log.derivable = {"step_time_s": 1e9, "steps_per_s": 1e9}
    return log


@maker
def openai_baselines_log() -> Log:
    log = Log(
        "baselines/log",
        "openai/baselines, baselines/logger.py, HumanOutputFormat: ppo2 (2020)",
        note="misc/ and loss/ groups; fps is of the environment; nupdates is the counter of updates",
        counter="order",
        suffix="txt",
    )
    for update in range(1, 6):
        rows = {
            "eplenmean": "128",
            "eprewmean": "21.2",
            "fps": "1.31e+03",
            "loss/approxkl": "0.0012",
            "loss/policy_entropy": "1.21",
            "loss/value_loss": f"{log.around(0.31):.4f}",
            "misc/nupdates": str(update),
            "misc/serial_timesteps": str(update * 128),
            "misc/time_elapsed": f"{update * 1.2:.1f}",
            "misc/total_timesteps": str(update * 1024),
        }
        log.line("-" * 40, *(f"| {key:<22}| {value:<12}|" for key, value in rows.items()), "-" * 40)
        log.row()
    log.derivable = {"step_time_s": 1e9}
    return log


@maker
def vllm_like_service() -> Log:
    log = Log(
        "none/serving",
        "a server for inference: rates of prompts and of generation",
        note="no training",
        counter="order",
    )
    now = clock()
    for _ in range(8):
        log.line(
            f"INFO {now(10):%m-%d %H:%M:%S} [loggers.py:111] Engine 000: Avg prompt throughput: {log.around(412.1, 1)} tokens/s, Avg generation throughput: {log.around(81.2, 1)} tokens/s, Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.2%, Prefix cache hit rate: 31.2%"
        )
    return log


@maker
def evaluation_harness() -> Log:
    log = Log(
        "none/evaluation", "a table of results of an evaluation", note="no training", counter="order", suffix="md"
    )
    log.line(
        "|    Tasks    |Version|Filter|n-shot| Metric |   |Value |   |Stderr|",
        "|-------------|------:|------|-----:|--------|---|-----:|---|-----:|",
    )
    for name in ("arc_easy", "hellaswag", "piqa", "winogrande"):
        log.line(f"|{name:<13}|      1|none  |     0|acc     |↑  |{log.around(0.6, 4):.4f}|±  |0.0101|")
    return log


@maker
def hyperparameter_search() -> Log:
    log = Log(
        "none/optuna",
        "optuna/optuna, optuna/study/_optimize.py: trials of a search (4.0)",
        note="trials are no steps, their value is the best loss of a run",
        counter="order",
    )
    now = clock()
    for trial in range(8):
        log.line(
            f"[I {now(31):%Y-%m-%d %H:%M:%S},112] Trial {trial} finished with value: {log.around(0.6, 6)} and parameters: {{'lr': {log.around(0.001, 6)}, 'dropout': 0.1, 'n_layers': 3}}. Best is trial 0 with value: 0.512."
        )
    return log


@maker
def torch_profiler_table() -> Log:
    log = Log("none/profiler", "the table of torch.profiler", note="operators, no records", counter="order")
    log.line(
        "-" * 90,
        "                 Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls  ",
        "-" * 90,
    )
    for name in ("aten::conv2d", "aten::batch_norm", "aten::relu_", "aten::addmm", "Optimizer.step#SGD.step"):
        log.line(
            f"{name:>24}  {log.around(12.1, 2):9.2f}%  {log.around(3.1, 3):8.3f}ms  {log.around(31.2, 2):8.2f}%  {log.around(9.1, 3):8.3f}ms  {log.around(412.1, 3):9.3f}us  {20:8d}  "
        )
    log.line("-" * 90, "Self CPU time total: 31.212ms")
    return log
