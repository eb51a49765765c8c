"""Logs of further tools, written before any of them was read."""

# ruff: noqa: E501 (the lines of a log are long)

from __future__ import annotations

import json
from datetime import timedelta

from writing import Log, bar, clock, maker, ms


@maker
def nanochat() -> Log:
    log = Log(
        "nanochat/base_train",
        "karpathy/nanochat, scripts/base_train.py (late 2025)",
        note="the loss is a debiased moving average; lrm is a multiplier, no rate; total time is cumulative; bpb is no loss",
    )
    log.line("Total batch size 524,288 => gradient accumulation steps: 8", "Step 00000 | Validation bpb: 3.3001")
    total = 0.0
    for step in range(0, 60, 5):
        dt, tps, mfu = log.around(512.3, 2), int(log.around(1023456, 0)), log.around(48.1, 2)
        total += dt * 5 / 60000
        eta = f" | eta: {410 - total:.1f}m" if step > 10 else ""
        log.line(
            f"step {step:05d}/21400 ({100 * step / 21400:.2f}%) | loss: {log.loss(step / 5, 6, 10.4):.6f} | lrm: 1.00 | dt: {dt:.2f}ms | "
            f"tok/sec: {tps:,} | bf16_mfu: {mfu:.2f} | epoch: 1 | total time: {total:.2f}m{eta}"
        )
        log.row(step, step_time_s=dt / 1000, tokens_per_s=tps, mfu=mfu)
    log.line("Step 00060 | Validation bpb: 1.2210", "Step 00060 | CORE metric: 0.0312")
    return log


@maker
def llama2_c() -> Log:
    log = Log(
        "llama2_c/train",
        "karpathy/llama2.c, train.py (2023)",
        note="the counter has no name; mfu is a moving average; the estimate at 'step N' is of both sets",
    )
    log.line("tokens per iteration will be: 131,072", "num decayed parameter tensors: 43, with 7,151,616 parameters")
    first, val = log.around(10.41, 4, 0.01), log.around(10.42, 4, 0.01)
    log.line(f"step 0: train loss {first:.4f}, val loss {val:.4f}")
    log.valid(0, val_loss=val)
    for step in range(0, 100, 10):
        loss, dt, lr = log.loss(step / 10, 4, 10.4), log.around(123.4, 2), 5e-7 * step
        mfu = -100.0 if step < 50 else log.around(12.3, 2, 0.02)
        log.line(f"{step} | loss {loss:.4f} | lr {lr:e} | {dt:.2f}ms | mfu {mfu:.2f}%")
        log.row(step, loss=[loss, first] if step == 0 else loss, lr=float(f"{lr:e}"), step_time_s=dt / 1000)
    return log


@maker
def mlx_lm() -> Log:
    log = Log(
        "mlx_lm/lora",
        "ml-explore/mlx-lm, mlx_lm/tuner/trainer.py, train (2025)",
        note="the loss is the interval's mean; the line of the validation has the same counter",
    )
    log.line(
        "Loading pretrained model",
        "Trainable parameters: 0.041% (3.408M/8030.261M)",
        "Starting training..., iters: 100",
    )
    tokens = 0
    for step in range(0, 101, 10):
        if step in (0, 50, 100):
            val = log.loss(step / 10, 3, 2.9)
            log.line(f"Iter {max(step, 1)}: Val loss {val:.3f}, Val took {log.around(12.3, 3):.3f}s")
            log.valid(max(step, 1), val_loss=val)
        if not step:
            continue
        loss, rate, tps, mem = (
            log.loss(step / 10, 3, 2.8),
            log.around(0.512, 3),
            log.around(243.1, 3),
            log.around(12.3, 3, 0.01),
        )
        tokens += 2411
        log.line(
            f"Iter {step}: Train loss {loss:.3f}, Learning Rate 1.000e-05, It/sec {rate:.3f}, Tokens/sec {tps:.3f}, "
            f"Trained Tokens {tokens}, Peak mem {mem:.3f} GB"
        )
        log.row(step, loss=loss, lr=1e-5, steps_per_s=rate, step_time_s=1 / rate, tokens_per_s=tps, memory=mem)
        if step == 100:
            log.line(
                "Iter 100: Saved adapter weights to adapters/adapters.safetensors and adapters/0000100_adapters.safetensors."
            )
    log.derivable = {"step_time_s": 1e-3, "steps_per_s": 1e-3}
    return log


@maker
def lingua() -> Log:
    log = Log(
        "lingua/train",
        "facebookresearch/lingua, apps/main/train.py (2024)",
        note="acc is the accumulation step; mem is a share of the device; data is rounded to 0.0",
    )
    now = clock()
    for step in range(10, 130, 10):
        loss, grad, wps = (
            log.loss(step / 10, 4, 10.9),
            float(f"{log.around(1.3):.2e}"),
            float(f"{log.around(41000):.2e}"),
        )
        it, data, lr = log.around(0.5213, 4), log.around(0.0122, 4), float(f"{3e-6 * step:.2e}")
        log.line(
            f"0: INFO    {now(5):%y-%m-%d %H:%M:%S},112000 - 0:{step // 60:02d}:{step % 60:02d} - step: {step}  acc: 0  loss: {loss:>7}  grad: {grad:.2e}  "
            f"flops: {log.around(3.1e14):.2e}  wps: {wps:.2e}  iter: {it:>7}  data: {data:>5}  lr: {lr:.2e}  mem: 45%  pow: 650.12 W"
        )
        log.row(step, loss=loss, grad_norm=grad, tokens_per_s=wps, step_time_s=it, data_time=data, lr=lr)
    return log


@maker
def nanotron() -> Log:
    log = Log(
        "nanotron/train",
        "huggingface/nanotron, src/nanotron/trainer.py, train_step_logs (2025)",
        note="numbers in a human form: 421, 4.87K, 1.23M; tokens of the job and of one GPU",
    )
    now = clock()
    for step in range(1, 13):
        loss, ms_, lr, grad = (
            log.loss(step, 2, 11.0),
            int(log.around(421, 0)),
            float(f"{2.5e-5 * step:.3g}"),
            log.around(1.2, 2),
        )
        total = round(log.around(487, 0))
        flops, hard = log.around(112.3, 0), log.around(118.2, 0)
        log.line(
            f"{now(1):%m/%d/%Y %H:%M:%S} [INFO|DP=0|PP=0|TP=0|ip-26-0-160-225]: iteration: {step} / 2000 | consumed_tokens: {step * 0.262:.3g}M | "
            f"elapsed_time_per_iteration_ms: {ms_} | tokens_per_sec: {total}K | tokens_per_sec_per_gpu: {total / 8:.3g}K | global_batch_size: 128 | "
            f"lm_loss: {loss:.3g} | lr: {lr:.3g} | model_tflops_per_gpu: {flops:.0f} | hardware_tflops_per_gpu: {hard:.0f} | grad_norm: {grad:.3g} | "
            f"cuda_memory_allocated: 1.59G | cuda_max_memory_reserved: 5.94G | hd_total_memory_tb: 312G"
        )
        log.row(
            step, loss=float(f"{loss:.3g}"), step_time_s=ms_ / 1000, lr=float(f"{lr:.3g}"), grad_norm=float(f"{grad:.3g}"),
            tokens_per_s=[total * 1e3, float(f"{total / 8:.3g}") * 1e3], tflops=[float(f"{flops:.0f}"), float(f"{hard:.0f}")],
            memory=[1.59, 5.94],
        )  # fmt: skip
    log.batch_size = 128
    log.derivable = {"memory": 0.1, "tflops": 1e-4}
    return log


@maker
def picotron() -> Log:
    log = Log(
        "picotron/train",
        "huggingface/picotron, train.py, to_readable_format (2024)",
        note="tokens with K, M, B; the global batch size is in tokens",
    )
    for step in range(1, 13):
        loss, tps, mfu, mem = (
            log.loss(step, 4, 11.0),
            log.around(65.4, 1),
            log.around(31.2, 2),
            log.around(5.67, 2, 0.01),
        )
        log.line(
            f"[rank 0] Step: {step:<5d} | Loss: {loss:6.4f} | Global batch size: {'32.8K':>7s} | Tokens/s: {f'{tps}K':>7s} | Tokens/s/GPU: {f'{tps / 8:.2f}K':>7s} | "
            f"Tokens: {f'{step * 32.8:.2f}K':>7s} | MFU: {mfu:5.2f}% | Memory usage: {mem:6.2f}GB"
        )
        log.row(step, rank=0, loss=loss, tokens_per_s=[tps * 1e3, float(f"{tps / 8:.2f}") * 1e3], mfu=mfu, memory=mem)
    return log


@maker
def prime_rl() -> Log:
    log = Log(
        "prime_rl/trainer",
        "PrimeIntellect-ai/prime-rl, src/prime_rl/trainer/rl/train.py (2025)",
        note="the micro-steps' losses are parts of a step's; Peak Mem. after the throughput",
    )
    now = clock()
    for step in range(10):
        for micro in range(2):
            log.line(
                f"\x1b[32m{now(3):%H:%M:%S}\x1b[0m \x1b[34m\x1b[1m  DEBUG\x1b[0m Micro Step {micro}/2 | Loss: {log.around(0.002, 4):.4f} | "
                f"Entropy: {log.around(0.6, 4):.4f} | Mismatch KL: 0.0007"
            )
        time, loss, grad = log.around(45.2, 2), log.around(0.0123, 4), log.around(0.12, 4)
        tps, mfu, mem = log.around(12345, 0), log.around(34.1, 1), log.around(61.2, 1, 0.01)
        log.line(
            f"\x1b[32m{now(3):%H:%M:%S}\x1b[0m \x1b[32m\x1b[1mSUCCESS\x1b[0m Step {step} | Time: {time:.2f}s | Loss: {loss:.4f} | Entropy: {log.around(0.6, 4):.4f} | "
            f"Mismatch KL: 0.0007 | Grad. Norm: {grad:.4f} | LR: 1.00e-06 | Throughput: {tps:.0f} tokens/s | MFU: {mfu:.1f}% | Peak Mem.: {mem:.1f} GiB"
        )
        log.row(step, step_time_s=time, loss=loss, grad_norm=grad, lr=1e-6, tokens_per_s=tps, mfu=mfu, memory=mem)
    return log


@maker
def tinygrad() -> Log:
    log = Log(
        "tinygrad/resnet",
        "tinygrad/tinygrad, examples/mlperf/model_train.py, train_resnet (2025)",
        note="the unit and the name stand behind the number; python, fetch and device are parts of the step; 'run' is the step",
    )
    for step in range(12):
        run, loss, lr, mem = log.around(1234.5, 2), log.loss(step, 2), 0.0001 * step, log.around(12.3, 2, 0.01)
        log.line(
            f"{step:5} {run:7.2f} ms run, {log.around(23.1, 2):7.2f} ms python, {log.around(3.1, 2):6.2f} ms fetch data, {log.around(1200, 2):7.2f} ms NV * 6, "
            f"{loss:5.2f} loss, 0.01 acc, {lr:.6f} LR, {mem:.2f} GB used, {log.around(612345.1, 2):9.2f} GFLOPS"
        )
        log.row(step, step_time_s=run / 1000, loss=loss, lr=lr, memory=mem)
    return log


@maker
def ms_swift() -> Log:
    log = Log(
        "ms_swift/logging",
        "modelscope/ms-swift, swift/trainers/mixin.py, _maybe_log_save_evaluate (3.x)",
        note="train_speed is the mean since the start of the run; the step stands in 'global_step/max_steps'",
        suffix="jsonl",
    )
    elapsed = 0.0
    for step in range(5, 65, 5):
        elapsed += log.around(16.4, 1)
        loss, grad, lr, mem = (
            log.loss(step / 5, 8, 1.9),
            log.around(1.1, 8),
            float(f"{1e-4 * (1 - step / 100):.2e}"),
            17.03,
        )
        record = {
            "loss": loss, "token_acc": log.around(0.64, 8), "grad_norm": grad, "learning_rate": lr, "memory(GiB)": mem,
            "train_speed(iter/s)": round(step / elapsed, 6), "epoch": step / 100, "global_step/max_steps": f"{step}/100",
            "percentage": f"{step}.00%", "elapsed_time": f"{int(elapsed // 60)}m {int(elapsed % 60)}s", "remaining_time": "5m 12s",
        }  # fmt: skip
        log.line(json.dumps(record))
        log.row(step, loss=loss, grad_norm=grad, lr=lr, memory=mem)
        if step == 50:
            log.line(
                json.dumps(
                    {
                        "eval_loss": 1.2345,
                        "eval_runtime": 3.2,
                        "eval_samples_per_second": 31.2,
                        "eval_steps_per_second": 7.8,
                        "epoch": 0.5,
                        "global_step/max_steps": "50/100",
                    }
                )
            )
            log.valid(50, val_loss=1.2345)
    return log


@maker
def internevo() -> Log:
    log = Log(
        "internlm/train",
        "InternLM/InternLM, internlm/train/training_internlm.py, record_current_batch_training_metrics (2023)",
        note="fwd_bwd_time is a part; grad_norm is a dict per group; tgs is of this step",
    )
    now = clock()
    for step in range(12):
        flops, loss, tgs, lr = (
            log.around(189.8, 6),
            log.loss(step, 6, 11.6),
            log.around(4274.4, 2),
            float(f"{4e-7 + 2e-7 * step:.3g}"),
        )
        grad = log.around(63.2, 4)
        log.line(
            f"{now(4):%Y-%m-%d %H:%M:%S},147\tINFO train.py:323 in record_current_batch_training_metrics -- tflops={flops},step={step},loss={loss},"
            f"tgs (tokens/gpu/second)={tgs},lr={lr},loss_scale=65536.0,grad_norm={grad},micro_num=4,num_consumed_tokens={131072 * (step + 1)},"
            f"inf_nan_skip_batches=0,num_samples_in_batch=19,largest_length=2048,largest_batch=5,smallest_batch=4,adam_beta2=0.95,fwd_bwd_time={log.around(3.6, 2)}"
        )
        log.row(step, tflops=flops, loss=loss, tokens_per_s=tgs, lr=lr, grad_norm=grad)
    return log


@maker
def internevo_new() -> Log:
    log = Log(
        "internlm/train_2024",
        "InternLM/InternLM, internlm/train/training_internlm.py (2024), separated by blanks",
        note="tgs/tgs_all, tgs_avg and tgs_SMA are means since the start and over windows; grad_norm is a dict per group; loss_from_metric, loss/en are of parts",
    )
    now = clock()
    for step in range(12):
        flops, loss, tgs = log.around(180.4, 6), log.loss(step, 6, 11.6), log.around(3345.7, 2)
        log.line(
            f"{now(4):%Y-%m-%d %H:%M:%S},047 INFO training_internlm.py:599 in record_current_batch_training_metrics -- tflops={flops} step={step} loss={loss} "
            f"tgs (tokens/gpu/second)={tgs} tgs/last_tgs_1={tgs + 0.02:.2f} tgs/tgs_all={tgs - 300:.2f} tgs/tgs_avg={tgs - 200:.2f} tgs/tgs_SMA={tgs - 310:.2f} tgs/last_tgs_10=0 tgs/last_tgs_50=0 "
            f"lr=1e-05 loss_scale=65536.0 grad_norm={{'0_default': {log.around(0.19, 6)}, '1_fp32': 0.0}} micro_num=4 num_consumed_tokens={524288 * (step + 1)} inf_nan_skip_batches=0 "
            f"num_samples_in_batch=12 largest_length=2672 largest_batch=4 smallest_batch=2 adam_beta2=0.95 fwd_bwd_time=4.13 acc=0.4 perplexity=9.1 acc/en=0.4 acc/cn=0.0 "
            f"tokens/en=489165 tokens/cn=0 loss_from_metric={loss + 0.01:.4f} loss/en={loss + 0.01:.4f} loss/cn=nan"
        )
        log.row(step, tflops=flops, loss=loss, tokens_per_s=tgs, lr=1e-5)
    return log


@maker
def mindformers() -> Log:
    log = Log(
        "mindformers/train",
        "mindspore-lab/mindformers, mindformers/core/callback/callback.py, MFLossMonitor (1.2)",
        note="loss: [this step / mean of the interval]; the throughput of one NPU in TFLOP/s; the bar line has samples/s/p",
        counter="relative",
    )
    now = clock()
    for step in range(1, 13):
        loss, t, lr, norm, flops = (
            log.loss(step, 3),
            int(log.around(512, 0)),
            1e-5,
            log.around(1.2),
            log.around(123.4, 3),
        )
        log.line(
            f"{now(1):%Y-%m-%d %H:%M:%S},123 - mindformers[mindformers/core/callback/callback.py:314] - INFO - {{ Epoch:[  1/  2], step:[{step:5d}/ 1000], "
            f"loss:[{loss:5.3f}/{loss + 0.2:5.3f}], per_step_time: {t}ms, lr: {lr}, overflow cond: False, loss_scale: 65536.0, global_norm: [{norm}], train_throughput_per_npu: {flops:.3f}T"
        )
        samples = round(8000 / t, 5)
        log.line(
            f"{now(0):%Y-%m-%d %H:%M:%S},124 - mindformers[mindformers/core/callback/callback.py:328] - INFO -    {step / 20:.1f}% |{'█' * 0:50}| {samples:.5f} samples/s/p  0:08:31 }}"
        )
        log.row(step, loss=loss, step_time_s=t / 1000, lr=lr, grad_norm=norm, tflops=flops, throughput=samples)
    log.derivable = {"grad_norm": 1e-4, "tflops": 1e-4, "throughput": 1e-3}
    return log


@maker
def mindspore() -> Log:
    log = Log(
        "mindspore/lenet",
        "mindspore-ai/mindspore, mindspore/train/callback: LossMonitor and TimeMonitor (2.2)",
        note="the step counts within the epoch; 'per step time' is the epoch's mean, 'Train epoch time' the epoch's",
        counter="relative",
    )
    for epoch in (1, 2):
        for step in (375, 750, 1125, 1500, 1875):
            loss = log.loss(epoch * 5 + step / 375, 6, 2.3)
            log.line(f"epoch: {epoch} step: {step}, loss is {loss}")
            log.row((epoch - 1) * 1875 + step, loss=loss)
        log.line(f"Train epoch time: {log.around(12345.6, 3):.3f} ms, per step time: {log.around(6.58, 3):.3f} ms")
    return log


@maker
def paddlerec() -> Log:
    log = Log(
        "paddlerec/train",
        "PaddlePaddle/PaddleRec, tools/trainer.py (2022)",
        note="avg_reader_cost and avg_batch_cost are means of the interval; ips is samples per second; the epoch's length is not printed",
        counter="order",
    )
    now = clock()
    for epoch in range(2):
        for batch in range(0, 50, 10):
            loss, reader, cost, ips = (
                log.loss(batch / 10, 6, 0.69),
                log.around(0.0012, 5),
                log.around(0.0121, 5),
                log.around(42123.1, 5),
            )
            log.line(
                f"{now(3):%Y-%m-%d %H:%M:%S},123 - INFO - epoch: {epoch}, batch_id: {batch}, auc:0.512345,loss:{loss}, avg_reader_cost: {reader:.5f} sec, "
                f"avg_batch_cost: {cost:.5f} sec, avg_samples: 512.00000, ips: {ips:.5f} ins/s"
            )
            log.row(epoch * 50 + batch, loss=loss, data_time=reader, step_time_s=cost, throughput=ips)
        log.line(f"{now(3):%Y-%m-%d %H:%M:%S},123 - INFO - epoch: {epoch} done, auc: 0.55,epoch time: 12.34 s")
    log.derivable = {"data_time": 1e-4, "step_time_s": 1e-4}
    return log


@maker
def detectron1() -> Log:
    log = Log(
        "detectron/train",
        "facebookresearch/Detectron, detectron/utils/training_stats.py and logging.py, json_stats (2018)",
        note="numbers are strings; time is the mean since the start; loss is the median of 20 steps",
        counter="exact",
    )
    for step in range(0, 240, 20):
        loss, lr = f"{log.loss(step / 20, 6, 2.6):.6f}", f"{0.0033 + step * 1e-5:.6f}"
        record = {
            "accuracy_cls": "0.961231", "eta": "2:14:11", "iter": step, "loss": loss, "loss_bbox": "0.101231", "loss_cls": "0.412311",
            "loss_rpn_bbox_fpn2": "0.012311", "lr": lr, "mb_qsize": 64, "mem": 6123, "time": f"{0.61 - step / 5000:.6f}",
        }  # fmt: skip
        log.line("json_stats: " + json.dumps(record, sort_keys=True))
        log.row(step, loss=float(loss), lr=float(lr), memory=6123 / 1024)
    return log


@maker
def maskrcnn_benchmark() -> Log:
    log = Log(
        "maskrcnn_benchmark/train",
        "facebookresearch/maskrcnn-benchmark, maskrcnn_benchmark/engine/trainer.py and utils/metric_logger.py (2019)",
        note="median of 20 steps (mean since the start); the unit of max mem is MiB",
    )
    now = clock()
    for step in range(20, 260, 20):
        loss, t, d, lr = (
            log.loss(step / 20, 4, 1.6),
            log.around(0.6123, 4),
            log.around(0.0121, 4),
            round(0.00667 + step * 1e-5, 6),
        )
        log.line(
            f"{now(12):%Y-%m-%d %H:%M:%S},441 maskrcnn_benchmark.trainer INFO: eta: 15:12:31  iter: {step}  loss: {loss:.4f} ({loss + 0.3:.4f})  loss_classifier: 0.6112 (1.4123)  "
            f"loss_box_reg: 0.0512 (0.0432)  time: {t:.4f} ({t + 0.1:.4f})  data: {d:.4f} ({d + 0.03:.4f})  lr: {lr:.6f}  max mem: 3581"
        )
        log.row(step, loss=loss, step_time_s=t, data_time=d, lr=lr, memory=3581 / 1024)
    return log


@maker
def openpcdet() -> Log:
    log = Log(
        "openpcdet/train",
        "open-mmlab/OpenPCDet, tools/train_utils/train_utils.py, train_one_epoch (2023)",
        note="value (mean); 'Time cost: a/b [c/d]' is elapsed and estimated; Forward time is a part; Batch time is the step's",
        counter="relative",
    )
    now = clock()
    for epoch in (1, 2):
        for it in range(0, 250, 50):
            loss, d, f, b = (
                log.loss(epoch * 5 + it / 50, 4),
                log.around(0.01, 2),
                log.around(0.21, 2),
                log.around(0.25, 2),
            )
            log.line(
                f"{now(12):%Y-%m-%d %H:%M:%S},441   INFO  Train:    {epoch}/80 ({epoch / 0.8:3.0f}%) [{it:4d}/250 ({it / 2.5:3.0f}%)]  Loss: {loss:.4g} ({loss + 0.2:.3g})  "
                f"LR: 3.001e-04  Time cost: 00:{it // 5:02d}/03:20 [00:25/4:30:01]  Acc_iter {(epoch - 1) * 250 + it:<10d}  Data time: {d:.2f}({d + 0.01:.2f})  "
                f"Forward time: {f:.2f}({f + 0.02:.2f})  Batch time: {b:.2f}({b + 0.03:.2f})"
            )
            log.row((epoch - 1) * 250 + it, loss=float(f"{loss:.4g}"), lr=3.001e-4, data_time=d, step_time_s=b)
    return log


@maker
def gaussian_splatting() -> Log:
    log = Log(
        "gaussian_splatting/train",
        "graphdeco-inria/gaussian-splatting, train.py, training (2024)",
        note="Loss of the bar is a moving average (0.4 new, 0.6 old); the line in brackets is of the evaluation",
    )
    elapsed = 0.0
    for step in range(10, 130, 10):
        rate = log.around(34.5, 2)
        elapsed += 10 / rate
        log.raw(
            f"\rTraining progress: {step / 300:3.0f}%|{bar(step, 30000)}| {step}/30000 [{ms(elapsed)}<14:22, {rate:.2f}it/s, Loss={log.loss(step / 10, 7, 0.3):.7f}, Depth Loss=0.0000000]"
        )
        log.row(step, steps_per_s=rate, step_time_s=1 / rate)
    log.line(
        "",
        "[ITER 7000] Evaluating test: L1 0.0212345 PSNR 27.1234 [02/03 09:14:07]",
        "[ITER 7000] Saving Gaussians [02/03 09:14:09]",
    )
    log.derivable = {"step_time_s": 1e-2, "steps_per_s": 1e-2}
    return log


@maker
def nerf_pytorch() -> Log:
    log = Log(
        "nerf_pytorch/train",
        "yenchenlin/nerf-pytorch, run_nerf.py, train (2022)",
        note="tqdm bar and a line per 100 steps",
    )
    for step in range(100, 1300, 100):
        loss = log.loss(step / 100, 6, 0.3)
        log.line(f"[TRAIN] Iter: {step} Loss: {loss}  PSNR: {log.around(21.2, 6)}")
        log.row(step, loss=loss)
    return log


@maker
def yolov8_console() -> Log:
    log = Log(
        "ultralytics/console",
        "ultralytics/ultralytics, ultralytics/engine/trainer.py, _do_train, progress_string (8.3)",
        note="columns without separators; the losses are means of the epoch, none is the sum; the first number is the epoch; all 128 0.5 is of the validation",
        counter="order",
    )
    log.line("Starting training for 3 epochs...")
    for epoch in (1, 2, 3):
        log.line("", "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size")
        for it in (1, 4, 8):
            rate = log.around(2.4, 2)
            log.row(memory=2.35, steps_per_s=rate, step_time_s=1 / rate)
            log.raw(
                f"\r{f'{epoch}/3':>11}{'2.35G':>11}{log.around(1.2):>11.4g}{log.around(3.4):>11.4g}{log.around(1.7):>11.4g}{47:>11}{640:>11}: {it * 100 // 8:3d}%|{bar(it, 8)}| {it}/8 [00:0{it // 3}<00:02, {rate:.2f}it/s]"
            )
        log.line(
            "",
            "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100%|██████████| 4/4 [00:01<00:00,  3.11it/s]",
        )
        log.line("                   all        128        929      0.642      0.531      0.602      0.446")
    log.derivable = {"memory": 1e-3, "step_time_s": 0.01, "steps_per_s": 0.01}
    return log


@maker
def stable_diffusion_bar() -> Log:
    log = Log(
        "stable_diffusion/bar",
        "CompVis/latent-diffusion, ldm/models/diffusion/ddpm.py in the bar of pytorch_lightning 1.4",
        note="loss is the bar's mean of 20 steps; train/loss_step is the step's; global_step counts within the run; train/loss_epoch is the last epoch's",
    )
    text, seconds = "", 0.0
    for step in range(12):
        t, loss, lr = log.around(1.41, 2), log.around(0.123, 3), 4.5e-6
        seconds += t
        text += (
            f"\rEpoch 0:   0%|          | {step + 1}/6250 [{ms(seconds)}<2:27:12,  {t:.2f}s/it, loss={loss + 0.05:.3g}, v_num=0, train/loss_simple_step={loss:.3f}, train/loss_vlb_step=0.0004, "
            f"train/loss_step={loss:.3f}, global_step={step}.0, lr_abs={lr:.1e}]"
        )
        log.row(step, loss=loss, step_time_s=t, lr=lr)
    log.raw(text + "\n")
    log.derivable = {"step_time_s": 1e-2}
    return log


@maker
def rwkv() -> Log:
    log = Log(
        "rwkv/train",
        "BlinkDL/RWKV-LM, RWKV-v5/src/trainer.py, train_callback (2024)",
        note="loss is the mean of the epoch so far; REAL it/s is the step's rate; Kt/s thousands of tokens",
    )
    text, seconds = "", 0.0
    for step in range(1, 13):
        real, kts = log.around(3.21, 3), log.around(105.1, 3)
        seconds += 1 / real
        text += f"\rEpoch 0:   {step * 100 // 400}%|{bar(step, 400)}| {step}/400 [{ms(seconds)}<02:04,  {step / seconds:.2f}it/s, loss={log.loss(step, 3, 10.2):.3f}, lr=0.0006, REAL it/s={real:.3f}, Kt/s={kts:.3f}]"
        log.row(
            step,
            lr=6e-4,
            steps_per_s=[real, float(f"{step / seconds:.2f}")],
            step_time_s=[1 / real, 1 / float(f"{step / seconds:.2f}")],
            tokens_per_s=kts * 1000,
        )
    log.raw(text + "\n")
    log.derivable = {"step_time_s": 1e-2, "steps_per_s": 1e-2, "tokens_per_s": 1e-3}
    return log


@maker
def ai_toolkit() -> Log:
    log = Log(
        "ai_toolkit/train",
        "ostris/ai-toolkit, jobs/process/BaseSDTrainProcess.py, the bar's postfix (2025)",
        note="the postfix has a colon and blanks; the counter is the bar's",
    )
    seconds = 0.0
    for step in range(1, 13):
        t, loss = log.around(1.77, 2), float(f"{log.around(0.345):.3e}")
        seconds += t
        log.raw(
            f"\rmy_lora:   {step * 100 // 2000}%|{bar(step, 2000)}| {step}/2000 [{ms(seconds)}<58:21,  {t:.2f}s/it, lr: 1.0e-04 loss: {loss:.3e}]"
        )
        log.row(step, loss=loss, lr=1e-4, step_time_s=t)
    log.raw("\n")
    log.derivable = {"step_time_s": 1e-2}
    return log


@maker
def denoising_diffusion() -> Log:
    log = Log(
        "denoising_diffusion/train",
        "lucidrains/denoising-diffusion-pytorch, denoising_diffusion_pytorch.py, Trainer.train (2024)",
        note="the loss is the bar's description",
    )
    seconds = 0.0
    for step in range(1, 13):
        rate, loss = log.around(2.31, 2), log.loss(step, 4, 1.0)
        seconds += 1 / rate
        log.raw(
            f"\rloss: {loss:.4f}:   0%|{bar(step, 700000)}| {step}/700000 [{ms(seconds)}<84:11:02,  {rate:.2f}it/s]"
        )
        log.row(step, loss=loss, steps_per_s=rate, step_time_s=1 / rate)
    log.raw("\n")
    log.derivable = {"step_time_s": 1e-2, "steps_per_s": 1e-2}
    return log


@maker
def tf2_keras_bar() -> Log:
    log = Log(
        "keras/bar_tf2",
        "keras-team/keras 2.x, keras/utils/generic_utils.py, Progbar (TensorFlow 2.10)",
        note="the bar on its way has means over the epoch so far; the last line of an epoch its mean, and ms/step with the validation in it; s without digits",
        counter="order",
    )
    for epoch in (1, 2, 3):
        log.line(f"Epoch {epoch}/3")
        final, val = log.loss(epoch, 4, 2.1), log.loss(epoch, 4, 1.9)
        text = "".join(
            f"\r{it:4d}/1563 [{'=' * (it // 55)}>{'.' * (29 - it // 55)}] - ETA: {9 - it // 200}s - loss: {final + 0.2 - it / 9000:.4f} - accuracy: 0.4123"
            for it in (1, 401, 782, 1201)
        )
        log.raw(text)
        log.line(
            f"\r1563/1563 [==============================] - 10s 6ms/step - loss: {final:.4f} - accuracy: 0.4512 - val_loss: {val:.4f} - val_accuracy: 0.5601"
        )
        log.row(epoch, loss=final)
        log.valid(epoch, val_loss=val)
    return log


@maker
def chainer_report() -> Log:
    log = Log(
        "chainer/report",
        "chainer/chainer, chainer/training/extensions/print_report.py, PrintReport (7.8)",
        note="a table with a column per name; main/loss is the interval's mean; elapsed_time is cumulative",
        counter="exact",
    )
    log.line("epoch       iteration   main/loss   validation/main/loss  elapsed_time")
    seconds = 0.0
    for epoch in range(1, 9):
        loss, val = log.loss(epoch, 6, 2.1), log.loss(epoch, 6, 1.9)
        seconds += log.around(12.4, 3)
        log.line(f"{epoch:<10d}  {epoch * 600:<10d}  {loss:<10.6g}  {val:<20.6g}  {seconds:<.4f}")
        log.row(epoch * 600, loss=float(f"{loss:.6g}"))
        log.valid(epoch * 600, val_loss=float(f"{val:.6g}"))
    log.derivable = {"step_time_s": 1e9}
    return log


@maker
def sample_factory() -> Log:
    log = Log(
        "sample_factory/train",
        "alex-petrenko/sample-factory, sample_factory/algo/runners/runner.py, _print_fps (2.0)",
        note="frames per second over windows of 10, 60 and 300 s; frames are of the environment: neither steps nor samples of training; no loss",
        counter="order",
    )
    now = clock()
    for index in range(1, 10):
        log.line(
            f"[{now(5):%Y-%m-%d %H:%M:%S},112][04121] Fps is (10 sec: {log.around(3276.8, 1)}, 60 sec: {log.around(3276.8, 1)}, 300 sec: {log.around(3100, 1)}). "
            f"Total num frames: {16384 * index}. Throughput: 0: {log.around(812.2, 1)}. Samples: {4000 * index}. Policy #0 lag: (min: 0.0, avg: 0.6, max: 2.0)",
            f"[{now(0):%Y-%m-%d %H:%M:%S},113][04121] Avg episode reward: [(0, '4.390')]",
        )
        log.row()
    return log


@maker
def d3rlpy() -> Log:
    log = Log(
        "d3rlpy/train",
        "takuseno/d3rlpy, d3rlpy/logging/logger.py and algos/qlearning/base.py, fit (2.x)",
        note="a record per epoch of 1000 steps; time_step is the epoch's mean of a step, time_sample_batch a part; two losses",
    )
    now = clock()
    for epoch in range(1, 9):
        t = log.around(0.01234, 8)
        log.line(
            f"{now(12):%Y-%m-%d %H:%M:%S} [info     ] CQL_20260302091407: epoch={epoch} step={epoch * 1000} epoch={epoch} metrics={{'time_sample_batch': 0.00031, "
            f"'time_algorithm_update': {t - 0.001:.8f}, 'critic_loss': {log.around(12.3)}, 'actor_loss': {log.around(-3.1)}, 'time_step': {t}}} step={epoch * 1000}"
        )
        log.row(epoch * 1000, step_time_s=t)
    log.derivable = {"step_time_s": 1e-4}
    return log


@maker
def opennmt_tf() -> Log:
    log = Log(
        "opennmt/tf",
        "OpenNMT/OpenNMT-tf, opennmt/training.py, _log_training_status (2.x)",
        note="rates with their names before '='; words of the source and of the target",
    )
    now = clock()
    for step in range(100, 1300, 100):
        rate, src, tgt, loss = (
            log.around(3.21, 2),
            int(log.around(12341, 0)),
            int(log.around(12512, 0)),
            log.loss(step / 100, 6),
        )
        lr = round(step * 1.2e-6, 6)
        log.line(
            f"{now(31):%Y-%m-%d %H:%M:%S}.112000: I training.py:176] Step = {step} ; steps/s = {rate:.2f}, source words/s = {src}, target words/s = {tgt} ; Learning rate = {lr:f} ; Loss = {loss:f}"
        )
        log.row(step, steps_per_s=rate, step_time_s=1 / rate, tokens_per_s=[src, tgt, src + tgt], lr=lr, loss=loss)
    log.derivable = {"step_time_s": 1e-2, "tokens_per_s": 1e-4}
    return log


@maker
def joeynmt() -> Log:
    log = Log(
        "joeynmt/train",
        "joeynmt/joeynmt, joeynmt/training.py, train_and_validate (2.x)",
        note="the line of the validation has a loss; 'Evaluation result' follows the step",
    )
    now = clock()
    for step in range(100, 1000, 100):
        loss, tps, lr = log.loss(step / 100, 6), int(log.around(8421, 0)), 0.0002
        log.line(
            f"{now(20):%Y-%m-%d %H:%M:%S},112 - INFO - joeynmt.training - Epoch   1, Step: {step:8d}, Batch Loss: {loss:12.6f}, Batch Acc: 0.121231, Tokens per Sec: {tps:8.0f}, Lr: {lr:.6f}"
        )
        log.row(step, loss=loss, tokens_per_s=tps, lr=lr)
        if step % 300 == 0:
            log.line(
                f"{now(1):%Y-%m-%d %H:%M:%S},112 - INFO - joeynmt.prediction - Predicting 1000 example(s)... (Greedy decoding with min_output_length=1)",
                f"{now(9):%Y-%m-%d %H:%M:%S},112 - INFO - joeynmt.prediction - Evaluation result (greedy): bleu: 12.31, loss: {loss - 0.2:.2f}, ppl:  24.12, acc:   0.31, generation: 7.1231[sec], evaluation: 1.2312[sec]",
            )
            log.valid(step, val_loss=round(loss - 0.2, 2))
    return log


@maker
def xlm() -> Log:
    log = Log(
        "xlm/train",
        "facebookresearch/XLM, src/trainer.py, print_stats (2020)",
        note="the counter has no name; sent/s and words/s; losses by language, no sum",
        counter="relative",
    )
    now = clock()
    for step in range(5, 65, 5):
        sent, words = log.around(279.6, 2), log.around(27615.9, 2)
        log.line(
            f"INFO - {now(3):%m/%d/%y %H:%M:%S} - 0:00:{step % 60:02d} - {step:7d} - {sent:.2f} sent/s - {words:8.2f} words/s - MLM-en: {log.loss(step / 5, 4):.4f} || MLM-fr: {log.loss(step / 5, 4):.4f} -  - model LR = 1.0000e-04"
        )
        log.row(step, throughput=sent, tokens_per_s=words, lr=1e-4)
    return log


@maker
def allennlp_bar() -> Log:
    log = Log(
        "allennlp/bar",
        "allenai/allennlp, allennlp/training/gradient_descent_trainer.py and util.py, description_from_metrics (2.x)",
        note="batch_loss is the step's, loss the mean of the epoch so far; the metrics stand before ||: in the bar's description",
        counter="relative",
    )
    seconds = 0.0
    for step in range(1, 13):
        rate, loss = log.around(4.31, 2), log.loss(step, 4, 0.69)
        seconds += 1 / rate
        log.raw(
            f"\raccuracy: 0.4512, batch_loss: {loss:.4f}, loss: {loss + 0.05:.4f} ||: {step * 100 // 100:3d}%|{'#' * (step // 10)}{step % 10} | {step}/100 [{ms(seconds)}<00:21, {rate:.2f}it/s]"
        )
        log.row(step, loss=loss, steps_per_s=rate, step_time_s=1 / rate)
    log.raw("\n")
    log.derivable = {"step_time_s": 1e-2, "steps_per_s": 1e-2}
    return log


@maker
def stanza() -> Log:
    log = Log(
        "stanza/parser",
        "stanfordnlp/stanza, stanza/models/parser.py (1.8)",
        note="the value and its unit in parentheses: the batch's time, no mean; 'step N' of the dev line",
    )
    now = clock()
    for step in range(20, 240, 20):
        t, loss = log.around(0.123, 3), log.loss(step / 20, 6)
        log.line(
            f"{now(3):%Y-%m-%d %H:%M:%S} INFO: Finished STEP {step}/50000, loss = {loss:.6f} ({t:.3f} sec/batch), lr: 0.003000"
        )
        log.row(step, loss=loss, step_time_s=t, lr=0.003)
        if step % 100 == 0:
            log.line(f"{now(3):%Y-%m-%d %H:%M:%S} INFO: step {step}: train_loss = {loss + 1:.6f}, dev_score = 0.7123")
    return log


@maker
def skorch() -> Log:
    log = Log(
        "skorch/table",
        "skorch-dev/skorch, skorch/callbacks/logging.py, PrintLog (1.0)",
        note="a table with coloured best values; dur is the epoch's time",
        counter="order",
    )
    log.line(
        "  epoch    train_loss    valid_acc    valid_loss     dur",
        "-------  ------------  -----------  ------------  ------",
    )
    for epoch in range(1, 9):
        loss, val = log.loss(epoch, 4, 0.7), log.loss(epoch, 4, 0.68)
        log.line(
            f"{epoch:7d}        \x1b[36m{loss:.4f}\x1b[0m       \x1b[32m0.{5500 + epoch * 31}\x1b[0m        \x1b[35m{val:.4f}\x1b[0m  {log.around(0.21, 4):.4f}"
        )
        log.row(epoch, loss=loss)
        log.valid(epoch, val_loss=val)
    return log


@maker
def sklearn_mlp() -> Log:
    log = Log(
        "sklearn/mlp",
        "scikit-learn/scikit-learn, sklearn/neural_network/_multilayer_perceptron.py, verbose=True (1.5)",
        note="an iteration is an epoch; the validation score is no loss",
    )
    for step in range(1, 13):
        loss = log.loss(step, 8, 2.3)
        log.line(f"Iteration {step}, loss = {loss:.8f}", f"Validation score: {0.5 + step / 40:f}")
        log.row(step, loss=loss)
    return log


@maker
def tabnet() -> Log:
    log = Log(
        "tabnet/train",
        "dreamquark-ai/tabnet, pytorch_tabnet/callbacks.py, History.on_epoch_end (4.1)",
        note="the time at the end is the time since the start; a record per epoch",
        counter="order",
    )
    seconds = 0
    for epoch in range(12):
        seconds += 3
        loss = round(log.loss(epoch, 5, 0.7), 5)
        log.line(
            f"epoch {epoch:<3}| loss: {loss:<8}| val_0_auc: {log.around(0.71, 5):<8}|  {timedelta(seconds=seconds)}s"
        )
        log.row(epoch, loss=loss)
    log.line("", "Early stopping occurred at epoch 11 with best_epoch = 9 and best_val_0_auc = 0.7812")
    return log


@maker
def dllogger_console() -> Log:
    log = Log(
        "dllogger/console",
        "NVIDIA/dllogger, dllogger/logger.py, StdOutBackend; lines as in DeepLearningExamples, ResNet-50 (2022)",
        note="Epoch and Iteration; data_time and compute_time are parts; Summary lines are of the epoch; val.loss is the validation's; the epoch's length is not printed",
        counter="order",
    )
    now = clock()
    log.line(f"DLL {now(1):%Y-%m-%d %H:%M:%S}.112345 - PARAMETER data : /imagenet  epochs : 90  batch_size : 256 ")
    for epoch in range(2):
        for it in range(1, 61, 10):
            loss, ips, lr = log.loss(it / 10, 5), log.around(2812.3, 2), 0.256
            log.line(
                f"DLL {now(1):%Y-%m-%d %H:%M:%S}.112345 - Epoch: {epoch} Iteration: {it}  train.loss : {loss:.5f} loss train.total_ips : {ips:.2f} img/s train.lr : {lr} "
            )
            log.row(epoch * 60 + it, loss=loss, throughput=ips, lr=lr)
        log.line(
            f"DLL {now(1):%Y-%m-%d %H:%M:%S}.112345 - Summary: Epoch: {epoch}  train.loss : 6.31231 loss val.loss : 5.91231 loss val.total_ips : 4123.11 img/s "
        )
        log.valid(val_loss=5.91231)
    log.derivable = {"lr": 1e-4}
    return log


@maker
def dllogger_json() -> Log:
    log = Log(
        "dllogger/json",
        "NVIDIA/dllogger, dllogger/logger.py, JSONStreamBackend (2022)",
        note="each line begins with DLLL; step is [epoch, iteration], [epoch] in a summary, [] at the end; elapsedtime is cumulative",
        counter="order",
        suffix="json",
    )
    now, elapsed = clock(), 0.0

    def write(kind: str, step: list[int], data: dict[str, object]) -> None:
        at = now(1)
        record = {
            "timestamp": f"{at.timestamp():.6f}",
            "elapsedtime": f"{elapsed:.6f}",
            "datetime": f"{at:%Y-%m-%d %H:%M:%S}.112345",
            "type": "LOG",
            "step": step,
            "data": data,
        }
        log.line(f"DLLL {json.dumps(record)}")

    for epoch in range(2):
        for it in range(1, 61, 10):
            elapsed += log.around(1.3, 6)
            loss, ips = log.loss(it / 10, 6), log.around(2812.3, 4)
            write(
                "LOG",
                [epoch, it],
                {"train.loss": loss, "train.total_ips": ips, "train.data_time": 0.0021, "train.compute_time": 0.0881},
            )
            log.row(epoch * 60 + it, loss=loss, throughput=ips)
        write("LOG", [epoch], {"val.loss": 5.91231, "val.total_ips": 4123.11})
        log.valid(val_loss=5.91231)
    log.derivable = {"data_time": 1e9, "throughput": 1e-4}
    return log


@maker
def mlperf() -> Log:
    log = Log(
        "mlperf/bert",
        "mlcommons/logging, mlperf_logging/mllog/mllog.py; lines as in the BERT reference (v3.1)",
        note="time_ms is the time of day; the value belongs to the key; the step stands in the metadata",
        counter="order",
    )
    log.line(
        ':::MLLOG {"namespace": "", "time_ms": 1772442847000, "event_type": "POINT_IN_TIME", "key": "global_batch_size", "value": 448, "metadata": {"file": "run_pretraining.py", "lineno": 998}}'
    )
    for step in range(1, 9):
        loss = log.loss(step, 6, 4.2)
        log.line(
            f':::MLLOG {{"namespace": "", "time_ms": {1772442847123 + step * 31000}, "event_type": "POINT_IN_TIME", "key": "train_loss", "value": {loss}, '
            f'"metadata": {{"file": "run_pretraining.py", "lineno": 1123, "step_num": {step * 100}}}}}'
        )
        log.line(
            f':::MLLOG {{"namespace": "", "time_ms": {1772442847223 + step * 31000}, "event_type": "POINT_IN_TIME", "key": "eval_accuracy", "value": {0.3 + step / 30:.6f}, '
            f'"metadata": {{"file": "run_pretraining.py", "lineno": 1130, "epoch_num": {step * 44800}}}}}'
        )
        log.row(step * 100, loss=loss)
    return log


@maker
def kubernetes_json() -> Log:
    log = Log(
        "loops/kubernetes.log".removesuffix(".log"),
        "a loop's JSON lines as kubectl logs --timestamps prints them from the CRI format",
        note="the time, the stream and F stand before each object",
    )
    now = clock()
    for step in range(10, 130, 10):
        loss, t = log.loss(step / 10), log.around(0.231, 4)
        log.line(
            f"{now(3):%Y-%m-%dT%H:%M:%S}.112345678Z stdout F {json.dumps({'step': step, 'loss': loss, 'step_time_s': t, 'lr': 1e-4})}"
        )
        log.row(step, loss=loss, step_time_s=t, lr=1e-4)
    return log


@maker
def docker_json() -> Log:
    log = Log(
        "loops/docker_json",
        "docker's json-file driver: the line of a loop in the field log",
        note="the numbers stand in a text inside the object",
        suffix="json",
    )
    now = clock()
    for step in range(10, 130, 10):
        loss, t = log.loss(step / 10), log.around(231.0, 1)
        log.line(
            json.dumps(
                {
                    "log": f"step {step}/1000 | loss {loss:.4f} | {t:.1f} ms/step\n",
                    "stream": "stdout",
                    "time": f"{now(3):%Y-%m-%dT%H:%M:%S}.112345678Z",
                }
            )
        )
        log.row(step, loss=loss, step_time_s=t / 1000)
    return log


@maker
def docker_compose() -> Log:
    log = Log(
        "loops/docker_compose",
        "a loop's lines as docker compose logs prints them",
        note="the container's name and | stand before each line; its number is no rank",
    )
    for step in range(10, 130, 10):
        loss, t = log.loss(step / 10), log.around(231.0, 1)
        log.line(f"trainer-1  | step={step} loss={loss:.4f} lr=1.0e-04 step_time={t:.1f}ms grad_norm={loss / 3:.3f}")
        log.row(step, loss=loss, lr=1e-4, step_time_s=t / 1000, grad_norm=round(loss / 3, 3))
    return log


@maker
def journald() -> Log:
    log = Log(
        "loops/journald",
        "a loop's lines as journalctl -u train prints them",
        note="the month, the host with a number and the process number stand before each line",
    )
    now = clock()
    for step in range(10, 130, 10):
        loss, t = log.loss(step / 10), log.around(231.0, 1)
        log.line(
            f"{now(3):%b %d %H:%M:%S} gpu-node-3 python[41212]: step {step}/1000 | loss {loss:.4f} | {t:.1f} ms/step"
        )
        log.row(step, loss=loss, step_time_s=t / 1000)
    return log


@maker
def srun_labels() -> Log:
    log = Log(
        "loops/srun",
        "a loop's lines of two tasks as srun --label prints them",
        note="the task's number and a colon stand before each line: the rank",
    )
    for step in range(10, 90, 10):
        for rank in (0, 1):
            loss, t = log.loss(step / 10), log.around(0.231, 3)
            log.line(f"{rank}: step {step} loss {loss:.4f} time {t:.3f}s")
            log.row(step, rank=rank, loss=loss, step_time_s=t)
    return log


@maker
def ray_train() -> Log:
    log = Log(
        "ray/train",
        "ray-project/ray: the driver's console with the output of two workers (2.9)",
        note="worker's process and address before each line; both workers print the same step",
        counter="order",
    )
    for step in range(10, 90, 10):
        for pid, ip in ((4121, ""), (2233, ", ip=10.0.0.3")):
            loss = log.loss(step / 10)
            log.line(f"\x1b[36m(RayTrainWorker pid={pid}{ip})\x1b[0m step {step} loss {loss:.4f} lr 0.0001")
            log.row(step, loss=loss, lr=1e-4)
    return log


@maker
def logfmt() -> Log:
    log = Log("loops/logfmt", "a loop that writes logfmt", note="time is the time of day; elapsed is cumulative")
    now, elapsed = clock(), 0.0
    for step in range(10, 130, 10):
        elapsed += log.around(2.31, 2)
        loss, t = log.loss(step / 10), log.around(231.0, 1)
        log.line(
            f'time={now(3):%Y-%m-%dT%H:%M:%SZ} level=info msg="train step" step={step} loss={loss:.4f} lr=1e-4 step_ms={t:.1f} elapsed={elapsed:.1f}s'
        )
        log.row(step, loss=loss, lr=1e-4, step_time_s=t / 1000)
    return log


@maker
def cloud_json() -> Log:
    log = Log(
        "loops/cloud_json",
        "a loop whose lines a cloud's agent puts into the field message",
        note="severity, an insert id and a process number beside a text with the numbers",
        suffix="jsonl",
    )
    now = clock()
    for step in range(10, 130, 10):
        loss = log.loss(step / 10)
        log.line(
            json.dumps(
                {
                    "severity": "INFO",
                    "pid": 4121,
                    "line": 231,
                    "timestamp": f"{now(3):%Y-%m-%dT%H:%M:%S}Z",
                    "message": f"step: {step}, loss: {loss:.4f}, lr: 0.0001",
                }
            )
        )
        log.row(step, loss=loss, lr=1e-4)
    return log


@maker
def wandb_history() -> Log:
    log = Log(
        "loops/wandb_history",
        "wandb/wandb: run.scan_history() written as JSON lines",
        note="_step counts calls of log, _runtime and _timestamp are times; system keys; validation rows between",
        suffix="jsonl",
    )
    for index in range(12):
        step = index * 10
        loss, t = log.loss(index), log.around(0.231, 4)
        log.line(
            json.dumps(
                {
                    "_step": step,
                    "_runtime": 3.1 + index * 2.3,
                    "_timestamp": 1772442847.1 + index * 2.3,
                    "train/loss": loss,
                    "train/lr": 1e-4,
                    "train/step_time": t,
                    "train/grad_norm": loss / 4,
                }
            )
        )
        log.row(step, loss=loss, lr=1e-4, step_time_s=t, grad_norm=loss / 4)
        if index % 4 == 3:
            log.line(
                json.dumps(
                    {
                        "_step": step,
                        "_runtime": 3.2 + index * 2.3,
                        "_timestamp": 1772442847.2 + index * 2.3,
                        "val/loss": loss + 0.2,
                        "val/time": 3.2,
                    }
                )
            )
            log.valid(step, val_loss=loss + 0.2)
    return log


@maker
def levanter() -> Log:
    log = Log(
        "levanter/train",
        "tqdm_loggable/tqdm_logging.py as levanter and openpi print it (marin-community/levanter, src/levanter/callbacks, pbar_logger, 2025)",
        note="the counter has a unit and k: 1.23kit; rounded; remaining and elapsed are times",
        counter="order",
    )
    now = clock()
    for index in range(1, 11):
        loss, rate = log.loss(index, 3), log.around(3.2, 1)
        log.line(
            f"{now(31):%Y-%m-%dT%H:%M:%S} - 0 - tqdm_loggable.tqdm_logging - tqdm_logging.py:145 - INFO :: Progress on:train {index * 100}it/10.0kit rate:{rate}it/s remaining:{50 - index}:12 elapsed:0{index // 2}:{31:02d} postfix:loss={loss}"
        )
        log.row(index * 100, loss=loss, steps_per_s=rate, step_time_s=1 / rate)
    log.derivable = {"step_time_s": 0.03, "steps_per_s": 1e-2}
    return log


@maker
def nemo_rl() -> Log:
    log = Log(
        "nemo_rl/grpo",
        "NVIDIA-NeMo/RL, nemo_rl/algorithms/grpo.py, grpo_train (0.3)",
        note="a record of several lines; parts of the time with their shares; the total is the step's",
    )
    for step in range(1, 7):
        loss, total = log.around(0.012, 4), log.around(102.3, 2)
        gen, train = round(total * 0.5, 2), round(total * 0.3, 2)
        log.line(
            f"\n========================= Step {step}/100 =========================",
            "▶ Preparing batch...", "▶ Generating responses for batch of size 128...", "▶ Training policy...", "",
            "📊 Training Results:", f"  • Loss: {loss:.4f}", f"  • Avg Reward: {log.around(0.51, 4):.4f}", "  • Mean Generation Length: 512.1231", "",
            "⏱️  Timing:", f"  • Total step time: {total:.2f}s", f"  • generation: {gen:.2f}s ({gen / total * 100:.1f}%)", f"  • policy_training: {train:.2f}s ({train / total * 100:.1f}%)",
        )  # fmt: skip
        log.row(step, loss=loss, step_time_s=total)
    return log


@maker
def slime() -> Log:
    log = Log(
        "slime/train",
        "THUDM/slime, slime/backends/megatron_utils/model.py and slime/ray/rollout.py (2025)",
        note="train N: and rollout N: have counters of their own; perf/* are times of parts; perf N: has step_time",
        counter="relative",
    )
    for step in range(10):
        loss, grad, t = log.around(0.0123, 6), log.around(0.21, 6), log.around(88.1, 4)
        log.line(
            f"(RolloutManager pid=4121) [2026-03-02 09:14:07] rollout.py:312 - rollout {step}: {{'rollout/raw_reward': 0.41, 'rollout/response_lengths': 812.1, 'rollout/log_probs': -0.31}}",
            f"(MegatronTrainRayActor pid=2233) [2026-03-02 09:14:17] model.py:412 - step {step}: {{'train/loss': {loss}, 'train/pg_loss': 0.0012, 'train/entropy_loss': 0.31, 'train/grad_norm': {grad}, 'train/lr-pg_0': 1e-06, 'train/step': {step}}}",
            f"(MegatronTrainRayActor pid=2233) [2026-03-02 09:14:17] timer.py:88 - perf {step}: {{'perf/actor_train_time': {t / 2:.4f}, 'perf/train_wait_time': {t / 3:.4f}, 'perf/step_time': {t}}}",
        )
        log.row(step, loss=loss, grad_norm=grad, lr=1e-6, step_time_s=t)
    log.derivable = {"lr": 1e-4, "step_time_s": 1e-4, "grad_norm": 1e-4}
    return log


@maker
def orbit() -> Log:
    log = Log(
        "tf_models/orbit",
        "tensorflow/models, orbit/controller.py, train and evaluate (2.12)",
        note="the metrics stand in a dictionary on the next line; eval has the training's step",
    )
    for step in range(1000, 7000, 1000):
        rate, loss, lr = log.around(3.2, 1), log.loss(step / 1000, 4), 0.01
        log.line(
            f"train | step: {step:6d} | steps/sec: {rate:6.1f} | output: ",
            f"    {{'accuracy': 0.1212, 'learning_rate': {lr}, 'training_loss': {loss}}}",
        )
        log.row(step, steps_per_s=rate, step_time_s=1 / rate, loss=loss, lr=lr)
        if step % 2000 == 0:
            log.line(
                f" eval | step: {step:6d} | running 50 steps of evaluation...",
                f" eval | step: {step:6d} | eval time:   12.3 sec | output: ",
                f"    {{'accuracy': 0.1512, 'validation_loss': {loss + 0.1:.4f}}}",
            )
            log.valid(step, val_loss=round(loss + 0.1, 4))
    log.derivable = {"step_time_s": 0.03, "steps_per_s": 1e-3}
    return log


@maker
def vissl() -> Log:
    log = Log(
        "vissl/train",
        "facebookresearch/vissl, vissl/hooks/log_hooks.py, LogLossLrEtaHook (0.1.6)",
        note="btime(ms) is the mean of the epoch so far; rank 0 logs",
        counter="exact",
    )
    for it in range(5, 65, 5):
        loss, lr = log.loss(it / 5, 5), round(0.0012 * it, 5)
        log.line(
            f"INFO 2026-03-02 09:14:{it % 60:02d},112 log_hooks.py: 277: Rank: 0; [ep: 0] iter: {it}; lr: {lr}; loss: {loss}; btime(ms): {812 - it}; eta: 1:02:03; peak_mem(M): 5012;"
        )
        log.row(it, rank=0, loss=loss, lr=lr, memory=5012 / 1024)
    log.derivable = {"memory": 1e-4}
    return log


@maker
def deepspeed_chat() -> Log:
    log = Log(
        "deepspeed/chat_sft",
        "microsoft/DeepSpeedExamples, training/DeepSpeed-Chat, step1 main.py and dschat/utils/perf.py, print_throughput (2024)",
        note="Latency is the step's time, rounded; two lines a step; ppl of the evaluation",
        counter="exact",
    )
    for step in range(10):
        latency, tflops, loss = log.around(0.57, 4), log.around(101.2, 2), log.loss(step, 6)
        samples = round(16 / latency, 2)
        log.line(
            f"Epoch: 0, Step: {step}, Rank: 0, loss = {loss}",
            f"Model Parameters: 1.429 B, Latency: {latency:.2f}s, TFLOPs: {tflops:.2f}, Samples/sec: {samples:.2f}, Time/seq {1 / samples:.2f}s, Batch Size: 16, Sequence Length: 512",
        )
        log.row(step, rank=0, loss=loss, step_time_s=latency, throughput=samples, tflops=tflops)
    log.derivable = {"step_time_s": 0.02, "throughput": 1e-4, "tflops": 1e-4}
    log.line("***** Evaluating perplexity, Epoch 1/1 *****", "ppl: 7.123, loss: 1.963")
    log.valid(val_loss=1.963)
    return log


@maker
def horovod_synthetic() -> Log:
    log = Log(
        "horovod/synthetic",
        "horovod/horovod, examples/pytorch/pytorch_synthetic_benchmark.py (0.28)",
        note="an iteration is ten batches; a rate per GPU; the last lines are means",
        counter="order",
    )
    log.line("Model: resnet50", "Batch size: 32", "Number of GPUs: 1", "Running warmup...", "Running benchmark...")
    for index in range(10):
        rate = log.around(231.2, 1)
        log.line(f"Iter #{index}: {rate:.1f} img/sec per GPU")
        log.row(index, throughput=rate)
    log.line("Img/sec per GPU: 231.9 +-3.1", "Total img/sec on 1 GPU(s): 231.9 +-3.1")
    log.batch_size = 32
    log.derivable = {"throughput": 1e-4}
    return log


@maker
def pix2pix_hd() -> Log:
    log = Log(
        "pix2pix_hd/loss_log",
        "NVIDIA/pix2pixHD, util/visualizer.py, print_current_errors (2019)",
        note="iters counts images of the epoch; time is of one image; losses of several networks",
        counter="order",
        suffix="txt",
    )
    log.line("================ Training Loss (Mon Mar  2 09:14:07 2026) ================")
    for epoch in (1, 2):
        for it in range(100, 700, 100):
            log.line(
                f"(epoch: {epoch}, iters: {it}, time: {log.around(0.231, 3):.3f}) G_GAN: {log.around(0.9, 3):.3f} G_GAN_Feat: {log.around(9.1, 3):.3f} G_VGG: {log.around(7.1, 3):.3f} D_real: {log.around(0.6, 3):.3f} D_fake: {log.around(0.5, 3):.3f} "
            )
            log.row()
    return log


@maker
def chinese_bracketed() -> Log:
    log = Log(
        "chinese/brackets",
        "a loop that prints Chinese with full-width brackets, commas and colons",
        note="每步耗时 is the step's time, 已用时 cumulative, 剩余 an estimate",
    )
    for step in range(10, 130, 10):
        loss, t, lr = log.loss(step / 10), log.around(0.231, 3), 1e-4
        log.line(
            f"【训练】轮次：1/10，步数：{step}/1000，损失：{loss:.4f}，学习率：{lr}，每步耗时：{t:.3f}秒，显存：12.5GB，已用时：{step * 0.23:.1f}秒，剩余：{(1000 - step) * 0.23:.0f}秒"
        )
        log.row(step, loss=loss, step_time_s=t, lr=lr, memory=12.5)
    log.derivable = {"step_time_s": 1e-4, "memory": 1e-4}
    return log


@maker
def japanese() -> Log:
    log = Log("loops/japanese", "a loop that prints Japanese", note="検証損失 is the validation's loss")
    for step in range(10, 130, 10):
        loss = log.loss(step / 10)
        log.line(f"エポック 1/10 ステップ {step}/1000 損失: {loss:.4f} 学習率: 1.0e-04")
        log.row(step, loss=loss, lr=1e-4)
        if step == 60:
            log.line(f"検証 ステップ {step} 検証損失: {loss + 0.2:.4f}")
            log.valid(step, val_loss=round(loss + 0.2, 4))
    log.derivable = {"lr": 1e-4}
    return log


@maker
def two_lines_per_step() -> Log:
    log = Log(
        "loops/two_lines",
        "a loop that prints a step in two lines, the second without a counter",
        note="the second line belongs to the step before; ETA and elapsed are no step times",
    )
    for step in range(1, 13):
        loss, fwd, bwd = log.loss(step), log.around(81.0, 1), log.around(140.0, 1)
        log.line(
            f"[step {step}/1000] loss={loss:.4f} lr=3.0e-04",
            f"    fwd {fwd:.1f}ms  bwd {bwd:.1f}ms  total {fwd + bwd + 12:.1f}ms  (ETA 3m21s)",
        )
        log.row(step, loss=loss, lr=3e-4, step_time_s=(round(fwd + bwd + 12, 1)) / 1000)
    log.derivable = {"step_time_s": 1e-4}
    return log


@maker
def smoothed_and_raw() -> Log:
    log = Log(
        "loops/smoothed",
        "a loop that prints a smoothed loss beside the loss, and minimum and maximum of the interval",
        note="ema_loss, loss_ema, smooth loss, max_loss are not the step's; time/iter is, avg time/iter is not",
    )
    for step in range(100, 1300, 100):
        loss, t = log.loss(step / 100), log.around(0.231, 3)
        log.line(
            f"iter {step:5d} | smooth loss {loss + 0.3:.4f} | loss {loss:.4f} | max_loss {loss + 1:.4f} | avg time/iter {t + 0.1:.3f}s | time/iter {t:.3f}s | best val loss 2.1234"
        )
        log.row(step, loss=loss, step_time_s=t)
    log.derivable = {"step_time_s": 1e-4}
    return log


@maker
def percent_and_bits() -> Log:
    log = Log(
        "loops/bits",
        "a loop that prints bits per character, perplexity and a loss per part",
        note="train loss is the sum; nll, aux and z losses are parts; samples seen counts samples; GB/s is no rate of training",
        suffix="txt",
    )
    for step in range(10, 130, 10):
        nll = log.loss(step / 10)
        loss, mem = round(nll + 0.05, 4), log.around(31.2, 1)
        log.line(
            f"[{step:>6}] nll_loss: {nll:.4f}, aux_loss: 0.0400, z_loss: 0.0100, loss: {loss:.4f}, bpc: {nll / 0.693:.3f}, seen: {step * 64:,} samples, io: 1.3 GB/s, peak mem: {mem} GiB, gpu util: 97%"
        )
        log.row(step, loss=loss, memory=mem, gpu_util=97)
    log.derivable = {"memory": 1e-4, "gpu_util": 1e-4}
    return log
