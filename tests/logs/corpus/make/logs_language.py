"""Logs of tools that train language models."""

# ruff: noqa: E501 (the lines of a log are long)

from __future__ import annotations

import json
import math

from writing import Log, bar, clock, hms, maker, ms


@maker
def nanogpt() -> Log:
    log = Log(
        "nanogpt/train",
        "karpathy/nanoGPT, train.py (2023)",
        note="iter: the step's time; step: the validation; mfu is a moving average, -100 before it is known; a time behind a validation includes it",
    )
    log.line(
        "tokens per iteration will be: 491,520",
        "number of parameters: 123.59M",
        "compiling the model... (takes a ~minute)",
    )
    for index in range(0, 110, 10):
        if index % 50 == 0:
            val = log.loss(index // 10, 4, 10)
            log.line(f"step {index}: train loss {val - 0.1:.4f}, val loss {val:.4f}")
            log.valid(index, val_loss=val)
        t, loss = log.around(2906.11, 2), log.loss(index // 10, 4, 10.9)
        mfu = -100.0 if index < 50 else log.around(38.2, 2)
        log.line(f"iter {index}: loss {loss:.4f}, time {t:.2f}ms, mfu {mfu:.2f}%")
        log.row(index, loss=loss, step_time_s=t / 1000 if index % 50 else None)
    return log


@maker
def mingpt() -> Log:
    log = Log(
        "mingpt/demo",
        "karpathy/minGPT, projects/chargpt/chargpt.py, batch_end_callback (2022)",
        note="iter_dt is the step's time",
    )
    for index in range(0, 120, 10):
        t, loss = log.around(41.2, 2), log.loss(index // 10, 5, 4.1)
        log.line(f"iter_dt {t:.2f}ms; iter {index}: train loss {loss:.5f}")
        log.row(index, loss=loss, step_time_s=t / 1000)
    return log


@maker
def modded_nanogpt() -> Log:
    log = Log(
        "modded_nanogpt/train",
        "KellerJordan/modded-nanogpt, train_gpt.py (2025)",
        note="train_time is the time since the start, step_avg their quotient: the step's time is the difference of two train_times",
    )
    total = 0.0
    log.line(
        "import os",
        "import sys",
        "with open(sys.argv[0]) as f:",
        "    code = f.read()",
        "=" * 40,
        "Running Python 3.12.7",
    )
    log.line("step:0/1770 val_loss:10.8258 train_time:0ms step_avg:nanms")
    log.valid(0, val_loss=10.8258)
    for step in range(1, 26):
        dt = log.around(92 if step > 10 else 180, 0)
        total += dt
        log.line(f"step:{step}/1770 train_time:{total:.0f}ms step_avg:{total / step:.2f}ms")
        log.row(step, step_time_s=dt / 1000)
    log.line(f"step:25/1770 val_loss:7.4512 train_time:{total:.0f}ms step_avg:{total / 25:.2f}ms")
    log.valid(25, val_loss=7.4512)
    log.derivable = {"step_time_s": 0.02}
    return log


@maker
def modded_nanogpt_2024() -> Log:
    log = Log(
        "modded_nanogpt/train_2024",
        "KellerJordan/modded-nanogpt, train_gpt2.py (October 2024)",
        note="train_loss of the step; step_avg is the mean since step 10",
    )
    total = 0.0
    for step in range(1, 16):
        dt, loss = log.around(140, 0), log.loss(step, 4, 10.9)
        total += dt
        log.line(f"step:{step}/5100 train_loss:{loss:.4f} train_time:{total:.0f}ms step_avg:{total / step:.2f}ms")
        log.row(step, loss=loss, step_time_s=dt / 1000)
        if step == 10:
            log.line(f"step:{step}/5100 val_loss:9.0121 train_time:{total:.0f}ms step_avg:{total / step:.2f}ms")
            log.valid(step, val_loss=9.0121)
    log.derivable = {"step_time_s": 0.02}
    return log


@maker
def build_nanogpt() -> Log:
    log = Log(
        "build_nanogpt/console",
        "karpathy/build-nanogpt, train_gpt2.py (2024)",
        note="dt is the step's time; norm is grad_norm",
    )
    for step in range(12):
        if step % 10 == 0:
            log.line(f"validation loss: {log.around(9.2):.4f}")
            log.valid(val_loss=float(log.text.splitlines()[-1].split()[-1]))
        loss, norm, t, lr, tok = (
            log.loss(step, 6, 10.9),
            log.around(8.1),
            log.around(338.4, 2),
            round(8.3e-7 * (step + 1), 11),
            log.around(1549321.2, 2),
        )
        log.line(
            f"step {step:5d} | loss: {loss:.6f} | lr {lr:.4e} | norm: {norm:.4f} | dt: {t:.2f}ms | tok/sec: {tok:.2f}"
        )
        log.row(step, loss=loss, lr=float(f"{lr:.4e}"), grad_norm=norm, step_time_s=t / 1000, tokens_per_s=tok)
    return log


@maker
def build_nanogpt_log() -> Log:
    log = Log(
        "build_nanogpt/log",
        "karpathy/build-nanogpt, train_gpt2.py, log_file (2024)",
        note="step, word, value; hella is an accuracy",
        suffix="txt",
    )
    for step in range(20):
        if step % 10 == 0:
            val = log.loss(step, 4, 10.9)
            log.line(f"{step} val {val:.4f}", f"{step} hella 0.2463")
            log.valid(step, val_loss=val)
        loss = log.loss(step, 6, 10.9)
        log.line(f"{step} train {loss:.6f}")
        log.row(step, loss=loss)
    return log


@maker
def llmc() -> Log:
    log = Log(
        "llmc/stdout",
        "karpathy/llm.c, train_gpt2.cu, main (2024)",
        note="ms of the step; the z of loss and norm in brackets; tok/s is a moving mean",
    )
    log.line(
        "+-----------------------+----------------------------------------------------+",
        "| Parameter             | Value                                              |",
        "| train data pattern    | dev/data/fineweb10B/fineweb_train_*.bin            |",
        "| learning rate (LR)    | 6.000000e-04                                       |",
        "| max_steps             | -1                                                 |",
        "+-----------------------+----------------------------------------------------+",
    )
    log.line("val loss 11.011284")
    log.valid(val_loss=11.011284)
    for step in range(1, 16):
        loss, norm, lr, t = log.loss(step, 6, 11), log.around(15.4), step * 8.57e-7, log.around(298.1, 2)
        z = "(+nanz)" if step < 5 else f"({log.around(0.4, 2):+.2f}z)"
        tok = round(524288 / t * 1000)
        log.line(
            f"step {step:4d}/19560 | loss {loss:7.6f} {z}| norm {norm:6.4f} {z}| lr {lr:.2e} | {t:.2f} ms | {log.around(55.1, 1):.1f}% bf16 MFU | {tok:.0f} tok/s"
        )
        log.row(
            step,
            loss=loss,
            grad_norm=norm,
            lr=float(f"{lr:.2e}"),
            step_time_s=t / 1000,
            mfu=float(log.text.splitlines()[-1].split("% bf16")[0].split()[-1]),
        )
    log.derivable = {"mfu": 1e-3}
    return log


@maker
def llmc_main_log() -> Log:
    log = Log(
        "llmc/main",
        "karpathy/llm.c, llmc/logger.h, logger_log_train and logger_log_val (2024)",
        note="s: step, tel: validation, eval: accuracy, trl: training",
    )
    log.line("s:0 tel:11.0113")
    log.valid(0, val_loss=11.0113)
    for step in range(1, 21):
        loss, lr, norm = log.loss(step, 4, 11), step * 8.6e-7, log.around(9.1, 2)
        log.line(f"s:{step} trl:{loss:.4f} lr:{lr:.6f} norm:{norm:.2f}")
        log.row(step, loss=loss, lr=round(lr, 6), grad_norm=norm)
    log.line("s:20 eval:0.2512", "s:20 tel:7.1201")
    log.valid(20, val_loss=7.1201)
    return log


@maker
def megatron() -> Log:
    log = Log(
        "megatron/train",
        "NVIDIA/Megatron-LM, megatron/training/training.py, training_log; megatron/core/timers.py (core 0.9)",
        note="elapsed time per iteration is the mean of the interval; the breakdown has parts, some of which end in a number in brackets",
    )
    now = clock()
    log.line(
        "using world size: 8, data-parallel size: 4, tensor-model-parallel size: 2",
        "------------------------ arguments ------------------------",
        "  lr .............................................. 0.00015",
        "  train_iters ..................................... 500000",
        "  micro_batch_size ................................ 4",
        "-------------------- end of arguments ---------------------",
    )
    for step in range(10, 101, 10):
        t, loss, norm, tf = (
            log.around(2345.6, 1),
            log.loss(step // 10, 6, 10.5),
            log.around(2.3, 3),
            log.around(123.4, 1),
        )
        lr = step * 4.7e-7
        log.line(
            f" [{now(t / 100):%Y-%m-%d %H:%M:%S}] iteration {step:8d}/  500000 | consumed samples: {step * 256:12d} | elapsed time per iteration (ms): {t:.1f} | throughput per GPU (TFLOP/s/GPU): {tf:.1f} | learning rate: {lr:.6E} | global batch size: {256:5d} | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {norm:.3f} | number of skipped iterations: {0:3d} | number of nan iterations: {0:3d} |",
            "(min, max) time across ranks (ms):",
            f"    forward-backward ...............................: ({t - 200:.2f}, {t - 190:.2f})",
            "    layernorm-grads-all-reduce .....................: (0.02, 0.03)",
            f"    optimizer-inner-step ...........................: ({log.around(9.1, 2):.2f}, {log.around(9.9, 2):.2f})",
            f"    optimizer ......................................: ({log.around(31.1, 2):.2f}, {log.around(32.1, 2):.2f})",
        )
        log.row(step, loss=float(f"{loss:.6E}"), step_time_s=t / 1000, lr=float(f"{lr:.6E}"), grad_norm=norm, tflops=tf)
    log.line(
        "-" * 50,
        " validation loss at iteration 100 | lm loss value: 8.123456E+00 | lm loss PPL: 3.372610E+03 | ",
        "-" * 50,
    )
    log.valid(100, val_loss=8.123456)
    log.batch_size = 256
    return log


@maker
def megatron_breakdown() -> Log:
    log = Log(
        "megatron/timers_max",
        "NVIDIA/Megatron-LM, megatron/core/timers.py, timing_log_option max; training.py report_memory (core 0.6)",
        note="max time across ranks; interval-time is the time of an interval of iterations, batch-generator that of the data; memory of rank 0",
    )
    for step in range(100, 601, 100):
        t, loss, d = log.around(812.4, 1), log.loss(step // 100, 6, 9), log.around(21.1, 2)
        log.line(
            f" iteration {step:8d}/  320000 | consumed samples: {step * 32:12d} | elapsed time per iteration (ms): {t:.1f} | learning rate: 1.500E-04 | global batch size:    32 | lm loss: {loss:.6E} | loss scale: 131072.0 | grad norm: 1.101 | number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
        if step == 100:
            log.line(
                "[Rank 0] (after 100 iterations) memory (MB) | allocated: 6174.88 | max allocated: 19113.06 | reserved: 21236.0 | max reserved: 21236.0"
            )
        log.line(
            "max time across ranks (ms):",
            f"    interval-time ..................................: {t * 100:.2f}",
            f"    forward-compute ................................: {t * 0.31:.2f}",
            f"    backward-compute ...............................: {t * 0.62:.2f}",
            f"    batch-generator ................................: {d:.2f}",
            f"    optimizer ......................................: {t * 0.05:.2f}",
        )
        log.row(
            step,
            loss=float(f"{loss:.6E}"),
            step_time_s=t / 1000,
            lr=1.5e-4,
            grad_norm=1.101,
            data_time=d / 1000,
            memory=19113.06 / 1024 if step == 100 else None,
        )
    log.derivable = {"data_time": 1e-4}
    log.batch_size = 32
    return log


@maker
def gpt_neox() -> Log:
    log = Log(
        "gpt_neox/train",
        "EleutherAI/gpt-neox, megatron/logging.py, training_log (2.0)",
        note="the lines of DeepSpeed's timers are parts of a step or totals of the interval; %comms is a share",
    )
    now = clock()
    for step in range(10, 71, 10):
        t, loss, rate = log.around(3456.7, 1), log.loss(step // 10, 6, 10.9), 0.0
        rate = round(256000 / t, 3)
        log.line(
            f"[{now(t / 100):%Y-%m-%d %H:%M:%S},112] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[1.2e-06, 1.2e-06], mom=[[0.9, 0.95], [0.9, 0.95]]",
            f"steps: {step} loss: {loss:.4f} iter time (s): {t / 1000:.3f} samples/sec: {rate:.3f}",
            f"[{now(0):%Y-%m-%d %H:%M:%S},113] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | forward: {t * 3:.2f} | backward: {t * 6:.2f} | optimizer_step: {log.around(121, 2):.2f} | batch_input: {log.around(12, 2):.2f}",
            f" samples/sec: {rate:.3f} | iteration {step:8d}/  320000 | elapsed time per iteration (ms): {t:.1f} | learning rate: 1.200E-06 | approx flops per GPU: 81.2TFLOPS | lm_loss: {loss:.6E} | loss scale: 4096.0 | number of skipped iterations:   0 | number of nan iterations:   0 |",
        )
        log.row(
            step,
            loss=[loss, float(f"{loss:.6E}"), round(loss, 4)],
            step_time_s=[t / 1000, round(t / 1000, 3)],
            lr=1.2e-6,
            throughput=rate,
            tflops=81.2,
        )
    log.derivable = {"tflops": 1e-3, "step_time_s": 1e-3, "throughput": 1e-3}
    return log


@maker
def deepspeed_timers() -> Log:
    log = Log(
        "deepspeed/wall_clock",
        "deepspeedai/DeepSpeed, deepspeed/utils/timer.py, ThroughputTimer.stop; runtime/engine.py, _write... wall_clock_breakdown (0.14)",
        note="RunningAvgSamplesPerSec is the mean since the start, CurrSamplesPerSec that of the step; optimizer_step and the others are parts of the step",
    )
    now = clock()
    for step in range(10, 71, 10):
        rate = log.around(12.11, 12)
        log.line(
            f"[{now(9):%Y-%m-%d %H:%M:%S},112] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[1.2e-05], mom=[(0.9, 0.999)]",
            f"[{now(0):%Y-%m-%d %H:%M:%S},113] [INFO] [timer.py:260:stop] epoch=0/micro_step={step * 2}/global_step={step}, RunningAvgSamplesPerSec={rate + 1.1}, CurrSamplesPerSec={rate}, MemAllocated=4.52GB, MaxMemAllocated=12.31GB",
            f"[{now(0):%Y-%m-%d %H:%M:%S},114] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | optimizer_allgather: {log.around(3.1, 2)} | optimizer_gradients: {log.around(8.1, 2)} | optimizer_step: {log.around(41.1, 2)}",
            f"[{now(0):%Y-%m-%d %H:%M:%S},114] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | fwd_microstep: {log.around(101.1, 2)} | bwd_microstep: {log.around(220.1, 2)} | bwd_inner_microstep: {log.around(160.1, 2)} | bwd_allreduce_microstep: {log.around(60.1, 2)} | step_microstep: {log.around(52.1, 2)}",
            f"[{now(0):%Y-%m-%d %H:%M:%S},115] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | fwd: {log.around(202.1, 2)} | bwd: {log.around(440.1, 2)} | bwd_inner: {log.around(320.1, 2)} | bwd_allreduce: {log.around(120.1, 2)} | step: {log.around(52.1, 2)}",
        )
        log.row(step, lr=1.2e-5, throughput=rate, memory=12.31)
    return log


@maker
def torchtitan() -> Log:
    log = Log(
        "torchtitan/console",
        "pytorch/torchtitan, torchtitan/components/metrics.py, MetricsProcessor.log (0.1)",
        note="colours; tps is of a device; memory with its share; no step's time",
    )
    red, green, yellow, cyan, blue, magenta, end = (f"\x1b[{code}m" for code in (31, 32, 33, 36, 34, 35, 39))
    now = clock()
    for step in (1, *range(10, 101, 10)):
        loss, norm, mem, tps, tf, mfu = (
            log.loss(step // 10, 5, 12.2),
            log.around(1.3),
            log.around(20.1, 2),
            round(log.around(7123, 0)),
            log.around(412.1, 2),
            log.around(41.2, 2),
        )
        log.line(
            f"[rank0]:[titan] {now(9):%Y-%m-%d %H:%M:%S},112 - root - INFO - {red}step: {step:2}  {green}loss: {loss:8.5f}  {magenta}grad_norm: {norm:7.4f}  {yellow}memory: {mem:5.2f}GiB({mem / 0.8:.2f}%)  {blue}tps: {tps:,}  {cyan}tflops: {tf:,.2f}  {magenta}mfu: {mfu:.2f}%{end}"
        )
        log.row(step, loss=loss, grad_norm=norm, memory=mem, tokens_per_s=tps, tflops=tf, mfu=mfu)
    log.line(
        f"[rank0]:[titan] {now(9):%Y-%m-%d %H:%M:%S},112 - root - INFO - {green}validate step: 100  {cyan}loss:  8.41010  {yellow}memory: 21.00GiB(26.25%)  {blue}tps: 14,121{end}"
    )
    log.valid(100, val_loss=8.4101)
    return log


@maker
def litgpt() -> Log:
    log = Log(
        "litgpt/pretrain",
        "Lightning-AI/litgpt, litgpt/pretrain.py, fit (0.5)",
        note="iter counts micro-batches, step optimizer steps; iter time is that of a micro-batch; val time is the whole validation's",
    )
    for index in range(4, 45, 4):
        t, loss = log.around(123.45, 2), log.loss(index // 4, 3, 11)
        log.line(
            f"Epoch 1 | iter {index} step {index // 4} | loss train: {loss:.3f}, val: n/a | iter time: {t:.2f} ms (step) remaining time: {hms(3000 - index)}"
        )
        log.row(index // 4, loss=loss)
    log.line("iter 44: val loss 8.1012, val time: 812.12 ms")
    log.valid(val_loss=8.1012)
    return log


@maker
def maxtext() -> Log:
    log = Log(
        "maxtext/train",
        "AI-Hypercomputer/maxtext, MaxText/metric_logger.py (2025)",
        note="seconds is the step's time; the eval has a loss of its own",
    )
    for step in range(12):
        t, loss, tf, tps = log.around(1.15, 3), log.loss(step, 3, 10.8), log.around(470.1, 3), log.around(57000.1, 3)
        log.line(
            f"completed step: {step}, seconds: {t:.3f}, TFLOP/s/device: {tf:.3f}, Tokens/s/device: {tps:.3f}, total_weights: 65536, loss: {loss:.3f}"
        )
        log.row(step, loss=loss, step_time_s=t, tflops=tf, tokens_per_s=tps)
    log.line("eval metrics after step: 11, loss=7.312, total_weights=524288.0")
    log.valid(11, val_loss=7.312)
    log.derivable = {"tokens_per_s": 1e-4, "tflops": 1e-4}
    return log


@maker
def nemo_2() -> Log:
    log = Log(
        "nemo/nemo2",
        "NVIDIA/NeMo, nemo/lightning/pytorch/callbacks/progress_printer.py (2.1)",
        note="train_step_timing in s: the key ends in a unit; memory in bytes; val_loss is repeated until the next validation",
    )
    for step in range(28, 42):
        t, loss, mem = log.around(0.189), log.loss(step - 28, 3, 2.9), 115792977920
        val = "" if step < 30 else " | val_loss: 2.861"
        log.line(
            f"Training epoch 0, iteration {step}/99 | lr: {step * 2e-7:.4g} | global_batch_size: 32 | global_step: {step} | max_memory_reserved: 127785762816 | max_memory_allocated: {mem} | reduced_train_loss: {loss:.4g} | train_step_timing in s: {t:.4g} | TFLOPS_per_GPU: 1.249e+03 | consumed_samples: {(step + 1) * 32}{val}"
        )
        log.row(
            step,
            loss=loss,
            lr=float(f"{step * 2e-7:.4g}"),
            step_time_s=float(f"{t:.4g}"),
            tflops=1249.0,
            memory=[mem / 2**30, 127785762816 / 2**30],
        )
        if val:
            log.valid(step, val_loss=2.861)
    log.derivable = {"tflops": 1e-3, "memory": 1e-3}
    log.batch_size = 32
    return log


@maker
def nemo_1() -> Log:
    log = Log(
        "nemo/nemo1",
        "NVIDIA/NeMo, nemo/utils/exp_manager.py, TimingCallback, and Lightning's progress bar (1.23)",
        note="a bar that is rewritten with \\r; train_step_timing in s is the step's time, the bar's s/it a smoothed one",
    )
    for step in range(1, 16):
        t, loss = log.around(1.12, 2), log.loss(step, 2, 11)
        log.raw(
            f"\rEpoch 0: :  {step}%|{bar(step, 100)}| {step}/100 [{ms(step * 1.15)}<{ms((100 - step) * 1.15)}, v_num=0, reduced_train_loss={loss:.3g}, global_step={step - 1:.1f}, consumed_samples={step * 8:.1f}, train_step_timing in s={t:.3g}]"
        )
        log.row(step - 1, loss=float(f"{loss:.3g}"), step_time_s=float(f"{t:.3g}"))
    log.raw("\n")
    log.counter = "relative"
    return log


@maker
def verl() -> Log:
    log = Log(
        "verl/console",
        "volcengine/verl, verl/utils/logger/aggregate_logger.py, concat_dict_to_str; trainer/ppo/metric_utils.py (0.5)",
        note="timing_s/step is the step's time, timing_s/gen and the others are parts of it; perf/throughput is tokens per second and GPU; pg_loss is not the loss",
    )
    log.line("(TaskRunner pid=1234) Training Progress:   0%|          | 0/435 [00:00<?, ?it/s]")
    for step in range(1, 9):
        parts = {
            name: log.around(middle, 10)
            for name, middle in (
                ("gen", 45.1),
                ("reward", 0.061),
                ("old_log_prob", 5.9),
                ("adv", 0.12),
                ("update_actor", 26.8),
            )
        }
        t = round(sum(parts.values()) + 0.5, 10)
        norm = log.around(0.41, 12)
        metrics = {
            "global_seqlen/min": 40611,
            "actor/entropy": log.around(0.31, 12),
            "actor/kl_loss": log.around(0.001, 12),
            "actor/pg_loss": log.around(0.012, 12),
            "actor/ppo_kl": 0.0002,
            "actor/grad_norm": norm,
            "perf/mfu/actor": 0.312,
            "perf/max_memory_allocated_gb": 53.869,
            "perf/max_memory_reserved_gb": 66.596,
            "actor/lr": 1e-06,
            "training/global_step": step,
            "training/epoch": 0,
            "critic/score/mean": log.around(0.4, 12),
            "response_length/mean": 287.4,
            **{f"timing_s/{name}": value for name, value in parts.items()},
            "timing_s/step": t,
            "timing_per_token_ms/gen": 0.487,
            "timing_per_token_ms/update_actor": 0.144,
            "perf/total_num_tokens": 326103,
            "perf/time_per_step": t,
            "perf/throughput": log.around(1021.4, 10),
        }
        log.line(
            f"(TaskRunner pid=1234) step:{step} - " + " - ".join(f"{name}:{value}" for name, value in metrics.items())
        )
        log.row(
            step,
            lr=1e-6,
            grad_norm=norm,
            step_time_s=t,
            tokens_per_s=metrics["perf/throughput"],
            memory=[53.869, 66.596],
            mfu=[31.2, 0.312],
        )
    log.derivable = {"tokens_per_s": 1e-4, "memory": 1e-3, "mfu": 1e-3}
    return log


@maker
def trl_console() -> Log:
    log = Log(
        "trl/sft_console",
        "huggingface/trl, SFTTrainer.log, printed by transformers' PrinterCallback and ProgressCallback (0.19)",
        note="dicts between bars; epoch only, no step in the dict; eval dicts; the last dict has totals of the run",
        counter="order",
    )
    for index in range(1, 13):
        loss, norm, lr = log.loss(index, 4, 2.4), log.around(1.4, 6), round(2e-5 * (1 - index / 20), 9)
        log.raw(
            f"\r {index * 10}%|{bar(index, 12)}| {index * 10}/120 [{ms(index * 12)}<{ms((12 - index) * 12)},  1.20s/it]"
        )
        log.line(
            "",
            str(
                {
                    "loss": loss,
                    "grad_norm": norm,
                    "learning_rate": lr,
                    "num_tokens": index * 41234.0,
                    "mean_token_accuracy": log.around(0.61, 10),
                    "epoch": round(index / 6, 2),
                }
            ),
        )
        log.row(loss=loss, grad_norm=norm, lr=lr)
        if index % 6 == 0:
            val = log.loss(index, 6, 2.3)
            log.line(
                str(
                    {
                        "eval_loss": val,
                        "eval_runtime": 12.3456,
                        "eval_samples_per_second": 40.51,
                        "eval_steps_per_second": 5.103,
                        "eval_num_tokens": index * 41234.0,
                        "epoch": round(index / 6, 2),
                    }
                )
            )
            log.valid(val_loss=val)
    log.line(
        str(
            {
                "train_runtime": 151.2034,
                "train_samples_per_second": 12.7,
                "train_steps_per_second": 0.794,
                "train_loss": 1.2345,
                "epoch": 2.0,
            }
        )
    )
    log.derivable = {"step_time_s": 0.01}
    for row in log.rows:
        row["step_time_s"] = 1.2
    return log


@maker
def trl_grpo() -> Log:
    log = Log(
        "trl/grpo",
        "huggingface/trl, GRPOTrainer.log, printed by transformers' PrinterCallback (0.19)",
        note="step_time is the step's time; values may be text (transformers 5); no val",
        counter="order",
    )
    for index in range(1, 11):
        loss, norm, lr, t = log.around(0.011, 4), log.around(0.31, 6), 1e-6, log.around(14.2, 6)
        log.line(
            str(
                {
                    "loss": f"{loss}",
                    "grad_norm": f"{norm}",
                    "learning_rate": f"{lr:.3e}",
                    "num_tokens": f"{index * 51234}",
                    "completions/mean_length": "211.4",
                    "rewards/accuracy_reward/mean": f"{log.around(0.4)}",
                    "reward": f"{log.around(0.9)}",
                    "kl": "0.0011",
                    "step_time": f"{t}",
                    "epoch": f"{index / 100}",
                }
            )
        )
        log.row(loss=loss, grad_norm=norm, lr=lr, step_time_s=t)
    return log


@maker
def olmo() -> Log:
    log = Log(
        "olmo/console",
        "allenai/OLMo, olmo/train.py, log_metrics_to_console (0.6)",
        note="records of several lines; numbers with thousands separators; the first step has no speed; tokens_per_second is of a device",
    )
    now = clock()
    for step in range(1, 8):
        loss, norm = log.loss(step, 3, 11), log.around(5.2, 3)
        tps, bps = round(log.around(45538, 0)), log.around(0.0869)
        log.line(
            f"[{now(12):%Y-%m-%d %H:%M:%S}] INFO     [olmo.train:816, rank=0] [step={step}/739328,epoch=0]",
            f"    optim/total_grad_norm={norm:.3f}",
            f"    train/CrossEntropyLoss={loss:.3f}",
            f"    train/Perplexity={round(math.exp(loss)):,}",
            f"    throughput/total_tokens={step * 4194304:,}",
        )
        if step > 1:
            log.line(
                f"    throughput/device/tokens_per_second={tps:,}",
                f"    throughput/device/batches_per_second={bps:.4f}",
            )
        log.line("    System/Peak GPU Memory (MB)=42,133")
        log.row(
            step,
            loss=loss,
            grad_norm=norm,
            tokens_per_s=tps if step > 1 else None,
            step_time_s=1 / bps if step > 1 else None,
            memory=42133 / 1024,
        )
    log.derivable = {"step_time_s": 1e-3, "tokens_per_s": 1e-3}
    return log


@maker
def olmo_eval() -> Log:
    log = Log(
        "olmo/eval",
        "allenai/OLMo, olmo/train.py, log_metrics_to_console and eval (0.6)",
        note="[eval_step=…] counts the batches of the evaluation; eval/…/CrossEntropyLoss is validation",
    )
    now = clock()
    for step in range(98, 104):
        loss = log.loss(step - 98, 3, 4)
        log.line(
            f"{now(3):%Y-%m-%d %H:%M:%S}.112\thost:0\tolmo.train:921\tINFO\t[step={step}/739328,epoch=0]",
            f"    train/CrossEntropyLoss={loss:.3f}",
            f"    train/Perplexity={math.exp(loss):.2f}",
        )
        log.row(step, loss=loss)
        if step == 100:
            log.line(
                f"{now(3):%Y-%m-%d %H:%M:%S}.112\thost:0\tolmo.train:1001\tINFO\tRunning evaluation for 'c4_en-validation'..."
            )
            for batch in (1, 2, 3):
                log.line(f"{now(1):%Y-%m-%d %H:%M:%S}.112\thost:0\tolmo.train:1011\tINFO\t[eval_step={batch}/10]")
            log.line("    eval/c4_en-validation/CrossEntropyLoss=3.912", "    eval/c4_en-validation/Perplexity=49.99")
            log.valid(val_loss=3.912)
    return log


@maker
def fairseq_simple() -> Log:
    log = Log(
        "fairseq/simple",
        "facebookresearch/fairseq, fairseq/logging/progress_bar.py, SimpleProgressBar.log (0.12)",
        note="train_wall is the time of the interval, wall since the start; lines of valid and of train (the epoch's mean) follow the epoch",
    )
    now = clock()
    for epoch in (1, 2):
        for index in range(100, 501, 100):
            step = (epoch - 1) * 500 + index
            loss, ups, norm = log.loss(step // 100, 3, 12), log.around(1.21, 2), log.around(1.9, 3)
            wps, lr = log.around(12345.6, 1), step * 1.25e-7
            log.line(
                f"{now(80):%Y-%m-%d %H:%M:%S} | INFO | train_inner | epoch {epoch:03d}: {index:6d} / 501 loss={loss:.3f}, nll_loss={loss - 0.4:.3f}, ppl={2 ** (loss - 0.4):.2f}, wps={wps:.1f}, ups={ups:.2f}, wpb=10202.1, bsz=412.3, num_updates={step}, lr={lr:.6g}, gnorm={norm:.3f}, loss_scale=128, train_wall=82, gb_free=9.8, wall={step}"
            )
            log.row(step, loss=loss, lr=float(f"{lr:.6g}"), grad_norm=norm, step_time_s=1 / ups, tokens_per_s=wps)
        val = log.loss(epoch * 4, 3, 11)
        log.line(
            f"{now(80):%Y-%m-%d %H:%M:%S} | INFO | valid | epoch {epoch:03d} | valid on 'valid' subset | loss {val:.3f} | nll_loss {val - 0.5:.3f} | ppl 512.1 | wps 41234.1 | wpb 8123.4 | bsz 301.2 | num_updates {epoch * 500}",
            f"{now(2):%Y-%m-%d %H:%M:%S} | INFO | fairseq_cli.train | end of epoch {epoch} (average epoch stats below)",
            f"{now(0):%Y-%m-%d %H:%M:%S} | INFO | train | epoch {epoch:03d} | loss 9.812 | nll_loss 9.412 | ppl 681.2 | wps 12101.1 | ups 1.19 | wpb 10202.1 | bsz 412.3 | num_updates {epoch * 500} | lr 6.25e-05 | gnorm 1.812 | loss_scale 128 | train_wall 410 | gb_free 9.8 | wall {epoch * 500}",
        )
        log.valid(epoch * 500, val_loss=val)
    log.derivable = {"step_time_s": 0.01}
    log.batch_size = 412.3
    return log


@maker
def fairseq_json() -> Log:
    log = Log(
        "fairseq/json",
        "facebookresearch/fairseq, fairseq/logging/progress_bar.py, JsonProgressBar.log (0.12)",
        note="numbers as text; update is in epochs; valid_ keys are validation; train_ keys without num_updates in the middle of an epoch",
    )
    for step in range(100, 901, 100):
        loss, ups = log.loss(step // 100, 3, 12), log.around(1.21, 2)
        record = {
            "epoch": 1,
            "update": round(step / 1001, 3),
            "loss": f"{loss:.3f}",
            "ppl": "812.1",
            "wps": "12345.6",
            "ups": f"{ups:.2f}",
            "wpb": "10202.1",
            "bsz": "412.3",
            "num_updates": str(step),
            "lr": "1.25e-05",
            "gnorm": "1.901",
            "loss_scale": "128",
            "train_wall": "82",
            "gb_free": "9.8",
            "wall": str(step),
        }
        log.line(f"2026-03-02 09:1{step // 100}:07 | INFO | train_inner | {json.dumps(record)}")
        log.row(step, loss=loss, lr=1.25e-5, grad_norm=1.901, step_time_s=1 / ups, tokens_per_s=12345.6)
    log.line(
        '2026-03-02 09:20:07 | INFO | valid | {"epoch": 1, "valid_loss": "10.211", "valid_nll_loss": "9.712", "valid_ppl": "838.7", "valid_wps": "41234.1", "valid_wpb": "8123.4", "valid_bsz": "301.2", "valid_num_updates": "1001"}'
    )
    log.valid(val_loss=10.211)
    log.derivable = {"step_time_s": 0.01}
    log.batch_size = 412.3
    return log


@maker
def marian() -> Log:
    log = Log(
        "marian/train",
        "marian-nmt/marian, src/training/scheduler.h, Scheduler::update (1.12)",
        note="Time is that of the interval of 500 updates; Up. is the step; [valid] lines are validation; words/s; gNorm is a moving average",
    )
    now = clock()
    for step in range(500, 4001, 500):
        cost, seconds, norm, wps = (
            log.loss(step // 500, 8, 9),
            log.around(112.34, 2),
            log.around(1.23),
            log.around(22004.23, 2),
        )
        lr = step * 1.875e-8
        log.line(
            f"[{now(seconds):%Y-%m-%d %H:%M:%S}] Ep. 1 : Up. {step} : Sen. {step * 128:,} : Cost {cost:.8f} * {step * 2470:,} @ 4,120 after {step * 2470:,} : Time {seconds:.2f}s : {wps:.2f} words/s : gNorm {norm:.4f} : L.r. {lr:.4e}"
        )
        log.row(step, loss=cost, step_time_s=seconds / 500, tokens_per_s=wps, lr=float(f"{lr:.4e}"))
        if step == 2000:
            log.line(
                f"[{now(20):%Y-%m-%d %H:%M:%S}] [valid] Ep. 1 : Up. 2000 : cross-entropy : 6.12345 : new best",
                f"[{now(1):%Y-%m-%d %H:%M:%S}] [valid] Ep. 1 : Up. 2000 : bleu : 2.1 : new best",
            )
            log.valid(2000, val_loss=6.12345)
    log.derivable = {"step_time_s": 0.03, "tokens_per_s": 1e-4}
    return log


@maker
def opennmt() -> Log:
    log = Log(
        "opennmt/train",
        "OpenNMT/OpenNMT-py, onmt/utils/statistics.py, Statistics.output (3.5)",
        note="the seconds at the end are since the start; tok/s of source and target; Validation lines",
    )
    now = clock()
    for step in range(50, 501, 50):
        xent = log.loss(step // 50, 1, 9)
        log.line(
            f"[{now(45):%Y-%m-%d %H:%M:%S},112 INFO] Step {step}/100000; acc: {log.around(12.3, 1)}; ppl: {math.exp(xent):.1f}; xent: {xent:.1f}; aux: 0.000; lr: {step * 2e-5:7.5f}; sents:   51231; bsz: 3456/3300/64; 12345/11234 tok/s; {step * 0.9:6.0f} sec;"
        )
        log.row(step, loss=xent, lr=round(step * 2e-5, 5), step_time_s=0.9, tokens_per_s=[12345, 11234])
    log.line(
        f"[{now(20):%Y-%m-%d %H:%M:%S},112 INFO] valid stats calculation\n                           took: 4.12 s.",
        f"[{now(1):%Y-%m-%d %H:%M:%S},112 INFO] Train perplexity: 812.3",
        f"[{now(1):%Y-%m-%d %H:%M:%S},112 INFO] Validation perplexity: 512.1",
        f"[{now(1):%Y-%m-%d %H:%M:%S},112 INFO] Validation accuracy: 21.2",
    )
    log.derivable = {"step_time_s": 0.02, "tokens_per_s": 1e-3, "loss": 1e-3}
    return log


@maker
def sockeye() -> Log:
    log = Log(
        "sockeye/train",
        "awslabs/sockeye, sockeye/training.py, Speedometer (2.0)",
        note="Speed has three rates of the interval; Epoch[] counts epochs, Batch [] all batches",
        counter="order",
    )
    now = clock()
    for batch in range(50, 601, 50):
        rate, tok, upd = log.around(1234.56, 2), log.around(23456.78, 2), log.around(4.56, 2)
        log.line(
            f"[{now(11):%Y-%m-%d:%H:%M:%S}:INFO:sockeye.training:__call__] Epoch[0] Batch [{batch}]\tSpeed: {rate:.2f} samples/sec {tok:.2f} tokens/sec {upd:.2f} updates/sec\tcross-entropy={log.loss(batch // 50, 6, 9):.6f}"
        )
        log.row(batch, throughput=rate, tokens_per_s=tok, step_time_s=1 / upd)
    log.counter = "exact"
    log.line(
        f"[{now(11):%Y-%m-%d:%H:%M:%S}:INFO:sockeye.training:_save_params] Checkpoint [1]\tUpdates=600 Epoch=0 Samples=164000 Time-cost=131.012 Updates/sec=4.580",
        f"[{now(11):%Y-%m-%d:%H:%M:%S}:INFO:root:_log] Checkpoint [1]\tValidation-perplexity=312.123456",
    )
    log.derivable = {"step_time_s": 0.01}
    return log


@maker
def sockeye_3() -> Log:
    log = Log(
        "sockeye/train_3",
        "awslabs/sockeye, sockeye/training.py, Speedometer (3.1)",
        note="E= and B= are epoch and batch; s/sec, tok/sec and u/sec are rates of the interval; s is no second here",
    )
    now = clock()
    for batch in range(50, 601, 50):
        rate, tok, upd = log.around(1234.56, 2), log.around(23456.78, 2), log.around(4.56, 2)
        log.line(
            f"[{now(11):%Y-%m-%d:%H:%M:%S}:INFO:sockeye.training:__call__] E=0 B={batch}\ts/sec={rate:.2f} tok/sec={tok:.2f} u/sec={upd:.2f}\tce={log.loss(batch // 50, 6, 9):f} ppl=812.121212 "
        )
        log.row(batch, throughput=rate, tokens_per_s=tok, step_time_s=1 / upd)
    log.derivable = {"step_time_s": 0.01}
    return log


@maker
def tensorflow_estimator() -> Log:
    log = Log(
        "tensor2tensor/estimator",
        "tensorflow/tensor2tensor by tensorflow/estimator, basic_session_run_hooks.py, LoggingTensorHook and StepCounterHook (1.15)",
        note="(12.3 sec) is the time of the 100 steps between two lines; global_step/sec is their rate",
    )
    for step in range(0, 901, 100):
        loss, seconds = log.loss(step // 100, 4, 9), log.around(12.345, 3)
        if step:
            log.line(
                f"INFO:tensorflow:global_step/sec: {100 / seconds:.5f}",
                f"INFO:tensorflow:loss = {loss}, step = {step} ({seconds:.3f} sec)",
            )
        else:
            log.line(f"INFO:tensorflow:loss = {loss}, step = 0")
        log.row(step, loss=loss, step_time_s=seconds / 100 if step else None)
    log.line(
        "INFO:tensorflow:Saving checkpoints for 1000 into /data/model.ckpt.",
        "INFO:tensorflow:Evaluation [10/100]",
        "INFO:tensorflow:Saving dict for global step 1000: global_step = 1000, loss = 4.1234, metrics-problem/accuracy = 0.3121",
    )
    log.valid(1000, val_loss=4.1234)
    log.derivable = {"step_time_s": 1e-3}
    return log


@maker
def llama_factory() -> Log:
    log = Log(
        "llamafactory/trainer_log",
        "hiyouga/LLaMA-Factory, src/llamafactory/train/callbacks.py, LogCallback (0.9)",
        note="elapsed_time since the start; eval_loss in lines without loss",
        suffix="jsonl",
    )
    elapsed = 0
    for index in range(1, 13):
        elapsed += 41
        loss, lr = log.loss(index, 4, 1.9), round(1e-4 * (1 - index / 14), 10)
        log.line(
            json.dumps(
                {
                    "current_steps": index * 10,
                    "total_steps": 120,
                    "loss": loss,
                    "lr": lr,
                    "epoch": round(index / 6, 4),
                    "percentage": round(index / 12 * 100, 2),
                    "elapsed_time": hms(elapsed),
                    "remaining_time": hms((12 - index) * 41),
                }
            )
        )
        log.row(index * 10, loss=loss, lr=lr, step_time_s=4.1)
        if index % 6 == 0:
            val = log.loss(index, 6, 1.9)
            log.line(
                json.dumps(
                    {
                        "current_steps": index * 10,
                        "total_steps": 120,
                        "eval_loss": val,
                        "epoch": round(index / 6, 4),
                        "percentage": round(index / 12 * 100, 2),
                        "elapsed_time": hms(elapsed + 9),
                        "remaining_time": hms((12 - index) * 41),
                    }
                )
            )
            elapsed += 9
            log.valid(index * 10, val_loss=val)
    log.derivable = {"step_time_s": 0.01}
    return log


@maker
def axolotl() -> Log:
    log = Log(
        "axolotl/console",
        "axolotl-ai-cloud/axolotl, src/axolotl/core/trainers/base.py, log, printed by transformers (0.12)",
        note="memory keys with a unit in brackets; ppl; tokens_per_second_per_gpu is of a device",
        counter="order",
    )
    for index in range(1, 11):
        loss, norm, lr, tps = (
            log.loss(index, 4, 1.8),
            log.around(0.41, 6),
            round(2e-5 * index / 10, 9),
            log.around(2411.2, 2),
        )
        log.line(
            str(
                {
                    "loss": loss,
                    "grad_norm": norm,
                    "learning_rate": lr,
                    "ppl": round(math.exp(loss), 5),
                    "memory/max_active (GiB)": 21.41,
                    "memory/max_allocated (GiB)": 21.3,
                    "memory/device_reserved (GiB)": 24.11,
                    "tokens_per_second_per_gpu": tps,
                    "epoch": index / 100,
                }
            )
        )
        log.row(loss=loss, grad_norm=norm, lr=lr, memory=[21.41, 21.3, 24.11], tokens_per_s=tps)
    log.derivable = {"memory": 1e-3, "tokens_per_s": 1e-4}
    return log


@maker
def torchtune() -> Log:
    log = Log(
        "torchtune/log",
        "pytorch/torchtune, torchtune/training/metric_logging.py, DiskLogger.log_dict (0.6)",
        note="Step N | name:value; tokens_per_second_per_gpu; memory in GiB",
        suffix="txt",
    )
    for step in range(1, 13):
        loss, norm, tps = log.loss(step, 12, 1.9), log.around(0.91, 12), log.around(1231.2, 9)
        log.line(
            f"Step {step} | loss:{loss} lr:2e-05 tokens_per_second_per_gpu:{tps} peak_memory_active:16.21 peak_memory_alloc:16.21 peak_memory_reserved:18.31 grad_norm:{norm} "
        )
        log.row(step, loss=loss, lr=2e-5, grad_norm=norm, tokens_per_s=tps, memory=[16.21, 18.31])
    log.derivable = {"memory": 1e-3, "tokens_per_s": 1e-4}
    return log


@maker
def composer() -> Log:
    log = Log(
        "composer/console",
        "mosaicml/composer, composer/loggers/console_logger.py, ConsoleLogger._log_hparams_to_console (0.28)",
        note="[batch=N/M]: records of several lines; throughput is of a window of batches; lines of Eval are validation",
    )
    for batch in range(10, 61, 10):
        loss, rate = log.loss(batch // 10, 4, 9), log.around(312.1, 4)
        log.line(
            f"[batch={batch}/1000]:",
            f"\t Train time/batch: {batch - 1}",
            f"\t Train time/sample: {(batch - 1) * 256}",
            "\t Train trainer/device_train_microbatch_size: 16",
            f"\t Train loss/train/total: {loss:.4f}",
            f"\t Train throughput/batches_per_sec: {rate / 256:.4f}",
            f"\t Train throughput/samples_per_sec: {rate:.4f}",
            "\t Train lr-DecoupledAdamW/group0: 0.0001",
        )
        log.row(batch, loss=loss, throughput=rate, step_time_s=256 / rate, lr=0.0001)
    log.line(
        "[Eval batch=1/20] Eval on eval data:",
        "[Eval batch=20/20] Eval on eval data:",
        "\t Eval metrics/eval/LanguageCrossEntropy: 7.1212",
        "\t Eval metrics/eval/LanguagePerplexity: 1237.9",
    )
    log.derivable = {"step_time_s": 1e-3, "lr": 1e-4}
    return log


@maker
def parlai() -> Log:
    log = Log(
        "parlai/train",
        "facebookresearch/ParlAI, parlai/scripts/train_model.py, TrainLoop.log; parlai/utils/misc.py, nice_report (1.7)",
        note="time is since the start; the table below has a header line and a line of values: ups is updates/s",
        counter="order",
    )
    for index in range(1, 7):
        loss, ups = log.loss(index, 3, 6), log.around(2.41, 3)
        log.line(
            f"09:1{index}:07 | time:{index * 10}s total_exs:{index * 1600} total_steps:{index * 100} epochs:{index / 50:.2f} time_left:{5000 - index * 10}s",
            "    clen  clip  ctpb  ctps  exps  exs  gnorm  loss    lr  ltpb  ltps   ppl  token_acc  total_train_updates   tpb   tps   ups",
            f"    61.2     1   979  2360 38.5 1600  1.812 {loss:.3f} 1e-05   212   511 {math.exp(loss):5.0f}      .1212   {index * 100:18d}  1191  2871 {ups:.3f}",
            "",
        )
        log.row(index * 100, loss=loss, step_time_s=1 / ups, lr=1e-5, grad_norm=1.812, tokens_per_s=2871.0)
    log.line(
        "09:17:01 | running eval: valid",
        "09:17:09 | eval completed in 8.12s",
        "09:17:09 | valid:",
        "    accuracy  clen  exs  gpu_mem  loss    lr  ppl  token_acc",
        "       .1212  61.2  500    .2121 4.912 1e-05 135.9      .2121",
    )
    log.valid(val_loss=4.912)
    log.counter = "exact"
    log.derivable = {"step_time_s": 0.01, "tokens_per_s": 1e-3}
    log.batch_size = 16
    return log


@maker
def spacy() -> Log:
    log = Log(
        "spacy/train",
        "explosion/spaCy, spacy/training/loggers.py, console_logger (3.7)",
        note="E is the epoch, # the step; losses are sums since the last line; SCORE is of the development set",
        suffix="txt",
    )
    log.line(
        "=========================== Initializing pipeline ===========================",
        "✔ Initialized pipeline",
        "",
        "============================= Training pipeline =============================",
        "ℹ Pipeline: ['tok2vec', 'ner']",
        "ℹ Initial learn rate: 0.001",
        "E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  ENTS_P  ENTS_R  SCORE ",
        "---  ------  ------------  --------  ------  ------  ------  ------",
    )
    for index in range(8):
        log.line(
            f"{index // 4:3d}  {index * 200:6d}  {log.around(45, 2):12.2f}  {log.loss(index, 2, 900):8.2f}  {index * 8.1:6.2f}  {index * 8.3:6.2f}  {index * 7.9:6.2f}  {index * 0.081:6.2f}"
        )
        log.row(index * 200)
    return log


@maker
def flair() -> Log:
    log = Log(
        "flair/train",
        "flairNLP/flair, flair/trainers/trainer.py, train_custom (0.13)",
        note="time (sec) is since the start of the epoch; samples/sec over the epoch so far; loss is its mean",
        counter="relative",
    )
    now = clock()
    for epoch in (1, 2):
        for index in range(1, 6):
            log.line(
                f"{now(3):%Y-%m-%d %H:%M:%S},112 epoch {epoch} - iter {index * 10}/52 - loss {log.loss(epoch + index, 8, 2):.8f} - time (sec): {index * 3.1:.2f} - samples/sec: {log.around(3121.1, 2):.2f} - lr: 0.100000 - momentum: 0.000000"
            )
            log.row(
                (epoch - 1) * 52 + index * 10,
                lr=0.1,
            )
        log.line(
            "-" * 60,
            f"{now(1):%Y-%m-%d %H:%M:%S},112 EPOCH {epoch} done: loss 0.9121 - lr: 0.100000",
            f"{now(5):%Y-%m-%d %H:%M:%S},112 DEV : loss 0.512{epoch} - f1-score (micro avg)  0.6121",
        )
        log.valid(val_loss=0.512 + epoch / 10000)
    return log
