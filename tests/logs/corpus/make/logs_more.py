"""Logs of further tools, each with a trap that the others lack."""

# ruff: noqa: E501 (the lines of a log are long)

from __future__ import annotations

import json

from writing import Log, bar, clock, hms, maker, ms


@maker
def paddlenlp() -> Log:
    log = Log(
        "paddlenlp/trainer",
        "PaddlePaddle/PaddleNLP, paddlenlp/trainer/trainer_callback.py and trainer.py, speed_metrics (2.8)",
        note="interval_runtime is the time of the interval of 10 steps; interval_steps_per_second its rate; memory in GB",
    )
    now = clock()
    for step in range(10, 121, 10):
        loss, lr, seconds = log.loss(step // 10, 8, 12), round(3e-5 * step / 120, 10), log.around(5.43, 4)
        rate, samples, tokens = round(10 / seconds, 4), round(320 / seconds, 4), log.around(8890.4, 4)
        log.line(
            f"[{now(seconds):%Y-%m-%d %H:%M:%S},112] [    INFO] - loss: {loss}, learning_rate: {lr:.7g}, global_step: {step}, current_memory_allocated: 7.549170255661011, current_memory_reserved: 12.48, max_memory_allocated: 12.307440280914307, max_memory_reserved: 12.48, interval_runtime: {seconds}, interval_samples_per_second: {samples}, interval_tokens_per_second_per_device: {tokens}, interval_steps_per_second: {rate}, progress_or_epoch: {step / 1200:.4f}"
        )
        log.row(
            step,
            loss=loss,
            lr=float(f"{lr:.7g}"),
            step_time_s=seconds / 10,
            throughput=samples,
            tokens_per_s=tokens,
            memory=[12.307440280914307, 12.48],
        )
    log.derivable = {"step_time_s": 1e-3, "throughput": 1e-3, "tokens_per_s": 1e-4, "memory": 1e-3}
    return log


@maker
def dino() -> Log:
    log = Log(
        "dino/log",
        "facebookresearch/dino, main_dino.py, log_stats (2021)",
        note="a line per epoch",
        counter="order",
        suffix="txt",
    )
    for epoch in range(8):
        loss, lr = log.loss(epoch, 14, 10), round(5e-5 * (epoch + 1), 10)
        log.line(json.dumps({"train_loss": loss, "train_lr": lr, "train_wd": 0.0400012, "epoch": epoch}))
        log.row(epoch, loss=loss, lr=lr)
    return log


@maker
def megatron_deepspeed() -> Log:
    log = Log(
        "megatron_deepspeed/train",
        "bigscience-workshop/Megatron-DeepSpeed, megatron/training.py, training_log (2022)",
        note="elapsed time per iteration in seconds; samples per second and TFLOPs after it",
    )
    for step in range(1, 13):
        loss, t, norm = log.loss(step, 6, 12), log.around(21.2, 2), log.around(4.1, 3)
        rate, tf = log.around(96.6, 3), log.around(151.2, 2)
        log.line(
            f" iteration {step:8d}/  115311 | consumed samples: {step * 2048:12d} | consumed tokens: {step * 2048 * 2048:14d} | elapsed time per iteration (s): {t:.2f} | learning rate: 6.000E-05 | global batch size:  2048 | lm loss: {loss:.6E} | grad norm: {norm:.3f} | num zeros: 0.0 | number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: {rate:.3f} | TFLOPs: {tf:.2f} |"
        )
        log.row(step, loss=float(f"{loss:.6E}"), step_time_s=t, lr=6e-5, grad_norm=norm, throughput=rate, tflops=tf)
    return log


@maker
def colossalai() -> Log:
    log = Log(
        "colossalai/llama",
        "hpcaitech/ColossalAI, examples/language/llama/benchmark.py and train.py, tqdm with set_postfix (0.4)",
        note="a bar rewritten with \\r, Epoch in front; the rate is smoothed",
        counter="relative",
    )
    for step in range(1, 16):
        loss = log.loss(step, 3, 10)
        log.raw(
            f"\rEpoch 0: {step * 100 // 200:3d}%|{bar(step, 200)}| {step}/200 [{ms(step * 2)}<{ms((200 - step) * 2)},  2.00s/it, Loss={loss:.3g}]"
        )
        log.row(step, loss=float(f"{loss:.3g}"), step_time_s=2.0)
    log.raw("\n")
    log.derivable = {"step_time_s": 0.02}
    return log


@maker
def openrlhf() -> Log:
    log = Log(
        "openrlhf/sft",
        "OpenRLHF/OpenRLHF, openrlhf/trainer/sft_trainer.py, step_bar.set_postfix (0.5)",
        note="two bars; gpt_loss is the micro-batch's, loss_mean the optimizer step's mean of them (a moving mean in older versions)",
        counter="relative",
    )
    log.raw("\rTrain epoch:   0%|          | 0/1 [00:00<?, ?it/s]\n")
    for step in range(1, 13):
        loss = log.loss(step, 3, 2)
        log.raw(
            f"\rTrain step of epoch 0: {step * 2:3d}%|{bar(step, 50)}| {step}/50 [{ms(step * 4)}<{ms((50 - step) * 4)},  4.00s/it, gpt_loss={loss:.3g}, lr=5e-6, loss_mean={loss + 0.2:.3g}]"
        )
        log.row(step, lr=5e-6, step_time_s=4.0, loss=[float(f"{loss:.3g}"), float(f"{loss + 0.2:.3g}")])
    log.raw("\n")
    log.derivable = {"step_time_s": 0.02, "loss": 1e-4}
    return log


@maker
def rl_games() -> Log:
    log = Log(
        "rl_games/console",
        "Denys88/rl_games, rl_games/common/a2c_common.py, print_statistics (1.6)",
        note="three rates of the environment's frames; epoch: 1/500 counts iterations; no loss, no time",
        counter="order",
    )
    for epoch in range(1, 11):
        log.line(
            f"fps step: {log.around(91212, 0):.0f} fps step and policy inference: {log.around(81212, 0):.0f} fps total: {log.around(61212, 0):.0f} epoch: {epoch:.0f}/500 frames: {epoch * 65536:.0f}"
        )
        log.row(epoch)
    return log


@maker
def dreamerv3() -> Log:
    log = Log(
        "dreamerv3/metrics",
        "danijar/dreamerv3, embodied/core/logger.py, JSONLOutput (2024)",
        note="step counts the environment's frames; train/loss/… are many losses; fps/train a rate of frames",
        suffix="jsonl",
    )
    for index in range(1, 9):
        log.line(
            json.dumps(
                {
                    "step": index * 4096,
                    "train/loss/dyn": log.around(1.2, 6),
                    "train/loss/policy": log.around(0.02, 6),
                    "train/loss/value": log.around(0.7, 6),
                    "train/opt/lr": 4e-5,
                    "train/opt/grad_norm": log.around(1.4, 6),
                    "fps/policy": log.around(212.1, 4),
                    "fps/train": log.around(6612.1, 3),
                    "usage/psutil/proc_ram_gb": 4.1,
                    "timer/duration": 121.2,
                }
            )
        )
        log.row(index * 4096, lr=4e-5, grad_norm=None)
    log.derivable = {"lr": 1e-4, "grad_norm": 1e9}
    for index, row in enumerate(log.rows):
        row["grad_norm"] = json.loads(log.text.splitlines()[index])["train/opt/grad_norm"]
    return log


@maker
def wenet() -> Log:
    log = Log(
        "wenet/train",
        "wenet-e2e/wenet, wenet/utils/train_utils.py, log_per_step (2023)",
        note="TRAIN Batch epoch/batch; CV Batch is validation; history loss its mean so far",
        counter="order",
    )
    for epoch in range(2):
        for batch in range(0, 401, 100):
            loss = log.loss(epoch * 4 + batch // 100, 6, 80)
            log.line(
                f"2026-03-02 09:1{epoch}:{batch // 10:02d},112 DEBUG TRAIN Batch {epoch}/{batch} loss {loss:.6f} loss_att {loss * 0.9:.6f} loss_ctc {loss * 1.2:.6f} lr 0.00001200 rank 0"
            )
            log.row(loss=loss, lr=1.2e-5)
        for batch in (0, 100):
            log.line(
                f"2026-03-02 09:1{epoch}:51,112 DEBUG CV Batch {epoch}/{batch} loss {log.around(60, 6):.6f} loss_att 55.000000 loss_ctc 71.000000 history loss 58.{epoch}21212 rank 0"
            )
    return log


@maker
def slowfast() -> Log:
    log = Log(
        "slowfast/stdout",
        "facebookresearch/SlowFast, slowfast/utils/logging.py, log_json_stats, and meters.py (2022)",
        note="_type tells train_iter from val_iter; dt is the step's time, dt_data the waiting, dt_net the rest; numbers may be text; iter is iter/steps",
        counter="relative",
    )
    for epoch in (1, 2):
        for index in range(10, 51, 10):
            t, d, loss = log.around(0.512, 5), log.around(0.021, 5), log.loss(epoch * 5 + index // 10, 5, 6)
            stats = {
                "RAM": "31.21/1006.61G",
                "_type": "train_iter",
                "dt": t,
                "dt_data": d,
                "dt_net": round(t - d, 5),
                "epoch": f"{epoch}/196",
                "eta": "1 day, 3:04:05",
                "gpu_mem": "9.21G",
                "grad_norm": "1.21212",
                "iter": f"{index}/60",
                "loss": loss,
                "lr": 0.0125,
                "top1_err": 98.4375,
            }
            log.line(
                f"[03/02 09:1{epoch}:{index:02d}][INFO] logging.py:  98: json_stats: {json.dumps(stats, sort_keys=True)}"
            )
            log.row(
                (epoch - 1) * 60 + index,
                loss=loss,
                lr=0.0125,
                step_time_s=t,
                data_time=d,
                memory=9.21,
                grad_norm=1.21212,
            )
        for index in (10, 20):
            log.line(
                f'[03/02 09:1{epoch}:5{index // 10}][INFO] logging.py:  98: json_stats: {{"_type": "val_iter", "epoch": "{epoch}/196", "eta": "0:00:12", "gpu_mem": "9.21G", "iter": "{index}/20", "time_diff": 0.41212, "top1_err": 97.5}}'
            )
        log.line(
            f'[03/02 09:1{epoch}:54][INFO] logging.py:  98: json_stats: {{"RAM": "31.21/1006.61G", "_type": "val_epoch", "epoch": "{epoch}/196", "gpu_mem": "9.21G", "min_top1_err": 97.1, "time_diff": 0.42121, "top1_err": 97.1}}'
        )
    log.counter = "order"
    log.derivable = {"memory": 1e-3}
    return log


@maker
def hrnet() -> Log:
    log = Log(
        "hrnet/pose",
        "leoxiaobin/deep-high-resolution-net.pytorch, lib/core/function.py, train and validate (2019)",
        note="value with a unit (average with a unit); Speed; Test: [i/n] is validation",
        counter="relative",
    )
    for epoch in range(2):
        for index in range(0, 500, 100):
            t, d, loss = log.around(0.512, 3), log.around(0.021, 3), log.loss(epoch * 5 + index // 100, 5, 0.002)
            rate = round(96 / t, 1)
            log.line(
                f"2026-03-02 09:1{epoch}:{index // 10:02d},112 Epoch: [{epoch}][{index}/500]\tTime {t:.3f}s ({t + 0.3:.3f}s)\tSpeed {rate:.1f} samples/s\tData {d:.3f}s ({d + 0.2:.3f}s)\tLoss {loss:.5f} ({loss + 0.0002:.5f})\tAccuracy 0.512 (0.412)"
            )
            log.row(epoch * 500 + index, loss=loss, step_time_s=t, data_time=d, throughput=rate)
        for index in (0, 100):
            log.line(
                f"2026-03-02 09:1{epoch}:5{index // 100},112 Test: [{index}/120]\tTime {log.around(0.9, 3):.3f} (0.912)\tLoss 0.0012 (0.0013)\tAccuracy 0.612 (0.512)"
            )
    return log


@maker
def sam2() -> Log:
    log = Log(
        "sam2/train",
        "facebookresearch/sam2, training/utils/train_utils.py, ProgressMeter, and trainer.py (2024)",
        note="Batch Time and Data Time: value (average); Mem: value (average/maximum); Time Elapsed since the start; Val Epoch is validation",
        counter="relative",
    )
    for epoch in range(2):
        for index in range(0, 41, 10):
            t, d, loss = log.around(1.12, 2), log.around(0.21, 2), log.loss(epoch * 5 + index // 10, 2, 30)
            log.line(
                f"INFO 2026-03-02 09:1{epoch}:{index:02d},112 train_utils.py: 271: Train Epoch: [{epoch}][{index:2d}/50] | Batch Time: {t:.2f} ({t + 0.5:.2f}) | Data Time: {d:.2f} ({d + 0.3:.2f}) | Mem (GB): 21.00 (20.10/22.00) | Time Elapsed: 00d 00h 0{epoch + 1}m | Losses/train_all_loss: {loss:.2e} ({loss + 2:.2e})"
            )
            log.row(epoch * 50 + index, loss=float(f"{loss:.2e}"), step_time_s=t, data_time=d, memory=[21.0, 22.0])
        log.line(
            f"INFO 2026-03-02 09:1{epoch}:51,112 train_utils.py: 271: Val Epoch: [{epoch}][ 0/10] | Batch Time: 0.91 (0.91) | Data Time: 0.11 (0.11) | Mem (GB): 9.00 (9.00/22.00) | Time Elapsed: 00d 00h 0{epoch + 1}m | Losses/val_all_loss: 2.11e+01 (2.11e+01)"
        )
    log.derivable = {"loss": 1e-4, "memory": 1e-3}
    return log


@maker
def audiocraft() -> Log:
    log = Log(
        "audiocraft/solver",
        "facebookresearch/flashy, flashy/logging.py, LogProgressBar, used by audiocraft (2023)",
        note="Train | Epoch | i/n | rate; Valid lines; a summary of the epoch",
        counter="relative",
    )
    for epoch in (1, 2):
        for index in range(200, 1001, 200):
            loss, rate = log.loss(epoch * 5 + index // 200, 3, 6), log.around(3.21, 2)
            log.line(
                f"[\x1b[36m03-02 09:1{epoch}:{index // 20:02d}\x1b[0m][\x1b[34mflashy.solver\x1b[0m][\x1b[32mINFO\x1b[0m] - Train | Epoch {epoch} | {index}/1000 | {rate:.2f} it/sec | lr 1.00E-04 | ce {loss:.3f} | ppl 167.8\x1b[0m"
            )
            log.row((epoch - 1) * 1000 + index, lr=1e-4)
        log.line(
            f"[\x1b[36m03-02 09:1{epoch}:54\x1b[0m][\x1b[34mflashy.solver\x1b[0m][\x1b[32mINFO\x1b[0m] - Valid | Epoch {epoch} | 50/100 | 9.81 it/sec | ce 5.512 | ppl 247.6\x1b[0m",
            f"[\x1b[36m03-02 09:1{epoch}:55\x1b[0m][\x1b[34mflashy.solver\x1b[0m][\x1b[32mINFO\x1b[0m] - \x1b[1mTrain Summary | Epoch {epoch} | lr=1.00E-04 | ce=5.812 | ppl=334.2\x1b[0m",
        )
    log.derivable = {"step_time_s": 0.01}
    for row, line in zip(log.rows, (line for line in log.text.splitlines() if "Train |" in line), strict=True):
        row["step_time_s"] = 1 / float(line.split(" it/sec")[0].split()[-1])
    return log


@maker
def hifigan() -> Log:
    log = Log(
        "hifigan/console",
        "jik876/hifi-gan, train.py (2020)",
        note="s/b is the step's time in seconds per batch; Gen Loss Total is the generator's; Time taken of the epoch",
    )
    for step in range(0, 61, 5):
        loss, t = log.loss(step // 5, 3, 61), log.around(0.512, 3)
        log.line(
            f"Steps : {step:d}, Gen Loss Total : {loss:4.3f}, Mel-Spec. Error : {log.around(0.81, 3):4.3f}, s/b : {t:4.3f}"
        )
        log.row(step, step_time_s=t)
    log.line("Time taken for epoch 1 is 41 sec", "")
    return log


@maker
def fastspeech2() -> Log:
    log = Log(
        "fastspeech2/log",
        "ming024/FastSpeech2, train.py and evaluate.py (2021)",
        note="Step i/n; the lines of Validation have the same form",
        suffix="txt",
    )
    for step in range(100, 1201, 100):
        loss = log.loss(step // 100, 4, 5)
        log.line(
            f"Step {step}/900000, Total Loss: {loss:.4f}, Mel Loss: {loss / 4:.4f}, Mel PostNet Loss: {loss / 4:.4f}, Pitch Loss: 0.5121, Energy Loss: 0.4121, Duration Loss: 0.2121"
        )
        log.row(step, loss=loss)
        if step % 500 == 0:
            log.line(
                f"Validation Step {step}, Total Loss: {loss + 0.3:.4f}, Mel Loss: 0.9121, Mel PostNet Loss: 0.9121, Pitch Loss: 0.5, Energy Loss: 0.4, Duration Loss: 0.2"
            )
            log.valid(step, val_loss=round(loss + 0.3, 4))
    return log


@maker
def raft() -> Log:
    log = Log(
        "raft/console",
        "princeton-vl/RAFT, train.py, Logger._print_training_status (2020)",
        note="[step, rate] and metrics without names: no loss",
        counter="order",
    )
    for step in range(100, 1201, 100):
        log.line(
            f"[{step:6d}, {step * 1.25e-7:10.7f}] {log.around(0.41):10.4f}, {log.around(0.61):10.4f}, {log.around(0.71):10.4f}, {log.around(8.1):10.4f}, "
        )
        log.row()
    return log


@maker
def graphgym() -> Log:
    log = Log(
        "graphgym/logging",
        "pyg-team/pytorch_geometric, torch_geometric/graphgym/logger.py, Logger.write_epoch (2.5)",
        note="train: and val: with a dict per epoch; time_epoch is the epoch's, time_iter the mean per step, eta to the end",
        counter="order",
    )
    for epoch in range(6):
        loss, val, t = log.loss(epoch, 4, 0.7), log.loss(epoch, 4, 0.72), log.around(0.0121)
        log.line(
            "train: "
            + str(
                {
                    "epoch": epoch,
                    "eta": 41.2,
                    "loss": loss,
                    "lr": 0.01,
                    "params": 41212,
                    "time_iter": t,
                    "accuracy": 0.61,
                }
            ),
            "val: "
            + str(
                {
                    "epoch": epoch,
                    "loss": val,
                    "lr": 0,
                    "params": 41212,
                    "time_iter": log.around(0.0051),
                    "accuracy": 0.6,
                }
            ),
        )
        log.row(epoch, loss=loss, lr=0.01, step_time_s=t)
        log.valid(epoch, val_loss=val)
    log.derivable = {"step_time_s": 1e-4}
    return log


@maker
def lightgcn() -> Log:
    log = Log(
        "lightgcn/console",
        "gusye1234/LightGCN-PyTorch, code/main.py and Procedure.py (2020)",
        note="loss0.512- without a separator; Sample: is the time of sampling of the epoch; [TEST]",
        counter="order",
    )
    for epoch in range(1, 11):
        if epoch % 5 == 1:
            log.line(
                "\x1b[0;30;43m[TEST]\x1b[0m",
                "{'precision': array([0.0121]), 'recall': array([0.0212]), 'ndcg': array([0.0121])}",
            )
        log.line(f"EPOCH[{epoch}/1000] loss{log.loss(epoch, 3, 0.7):.3f}-|Sample:{log.around(2.1, 2):.2f}|")
        log.row(epoch, loss=log.text.splitlines()[-1].split("loss")[1].split("-")[0])
    for row in log.rows:
        row["loss"] = float(row["loss"])
    log.derivable = {"loss": 1e-4}
    return log


@maker
def trainer_tokens() -> Log:
    log = Log(
        "transformers/tokens_per_second",
        "huggingface/transformers, Trainer with include_tokens_per_second, as wandb or a script dumps log_history to JSON lines (4.46)",
        note="train_tokens_per_second only in the last record, of the whole run; eval_ keys",
        suffix="jsonl",
    )
    for step in range(10, 121, 10):
        loss, norm = log.loss(step // 10, 4, 2.4), log.around(1.2, 6)
        log.line(
            json.dumps(
                {
                    "loss": loss,
                    "grad_norm": norm,
                    "learning_rate": 2e-5,
                    "epoch": step / 120,
                    "num_input_tokens_seen": step * 8192,
                    "step": step,
                }
            )
        )
        log.row(step, loss=loss, grad_norm=norm, lr=2e-5)
    log.line(
        json.dumps(
            {
                "eval_loss": 1.2121,
                "eval_runtime": 4.1,
                "eval_samples_per_second": 121.2,
                "eval_steps_per_second": 15.1,
                "epoch": 1.0,
                "step": 120,
            }
        )
    )
    log.valid(120, val_loss=1.2121)
    log.line(
        json.dumps(
            {
                "train_runtime": 412.1,
                "train_samples_per_second": 4.6,
                "train_steps_per_second": 0.291,
                "train_tokens_per_second": 2385.1,
                "total_flos": 1.2e15,
                "train_loss": 1.6121,
                "epoch": 1.0,
                "step": 120,
            }
        )
    )
    return log


@maker
def unsloth() -> Log:
    log = Log(
        "unsloth/notebook",
        "unslothai/unsloth, the Trainer's table in a notebook, copied as text (2024)",
        note="a table with tabs: Step and Training Loss",
        suffix="txt",
    )
    log.line(
        "==((====))==  Unsloth - 2x faster free finetuning | Num GPUs = 1",
        "   \\\\   /|    Num examples = 51,760 | Num Epochs = 1",
        "O^O/ \\_/ \\    Batch size per device = 2 | Gradient Accumulation steps = 4",
        "\\        /    Total batch size = 8 | Total steps = 60",
        ' "-____-"     Number of trainable parameters = 41,943,040',
        "Step\tTraining Loss",
    )
    for step in range(1, 16):
        loss = log.loss(step, 6, 1.8)
        log.line(f"{step}\t{loss:.6f}")
        log.row(step, loss=loss)
    return log


@maker
def notebook_table() -> Log:
    log = Log(
        "transformers/notebook",
        "huggingface/transformers, src/transformers/utils/notebook.py, the table of NotebookProgressCallback, copied as text (4.45)",
        note="No log is the placeholder of a loss that is not yet known",
        counter="order",
        suffix="txt",
    )
    log.line("Epoch\tTraining Loss\tValidation Loss\tAccuracy")
    for epoch in range(1, 7):
        loss, val = log.loss(epoch, 6, 0.6), log.loss(epoch, 6, 0.62)
        log.line(f"{epoch}\t{'No log' if epoch == 1 else f'{loss:.6f}'}\t{val:.6f}\t0.8{epoch}1212")
        log.row(epoch, loss=None if epoch == 1 else loss)
        log.valid(epoch, val_loss=val)
    return log


@maker
def prometheus_like() -> Log:
    log = Log(
        "loops/key_value",
        "a loop with structured logging (logfmt), as zap, slog or structlog print it",
        note='time="…" is the time of day, duration the step\'s; msg="evaluated" is validation',
    )
    now = clock()
    for step in range(10, 121, 10):
        loss, t = log.loss(step // 10, 4, 3), log.around(212.1, 1)
        log.line(
            f'time="{now(2):%Y-%m-%dT%H:%M:%SZ}" level=info msg="trained" step={step} loss={loss:.4f} lr=0.0003 step_time={t:.1f}ms'
        )
        log.row(step, loss=loss, lr=0.0003, step_time_s=t / 1000)
        if step % 50 == 0:
            log.line(
                f'time="{now(9):%Y-%m-%dT%H:%M:%SZ}" level=info msg="evaluated" eval_loss={loss + 0.2:.4f} step={step} eval_time=8.1s'
            )
            log.valid(step, val_loss=round(loss + 0.2, 4))
    return log


@maker
def semicolon_table() -> Log:
    log = Log(
        "loops/semicolon_table",
        "a table as a spreadsheet exports it where the comma is the decimal mark",
        note="semicolons, and commas as the decimal mark: 0,4121 is 0.4121",
        suffix="csv",
    )
    log.line("step;loss;lr;step_time")
    for step in range(0, 120, 10):
        loss, t = log.loss(step // 10, 4, 3), log.around(0.2121)
        log.line(f"{step};{loss};0,0003;{t}".replace(".", ","))
        log.row(step, loss=loss, lr=0.0003, step_time_s=t)
    return log


@maker
def thousands() -> Log:
    log = Log(
        "loops/thousands", "a loop as people write it", note="steps and rates with thousands separators: 1,000 is no 1"
    )
    for step in range(500, 6001, 500):
        loss, rate = log.loss(step // 500, 4, 9), round(log.around(41212, 0))
        log.line(f"step {step:,} | loss {loss:.4f} | {rate:,} tok/s")
        log.row(step, loss=loss, tokens_per_s=rate)
    return log


@maker
def minutes() -> Log:
    log = Log(
        "loops/time_of_day",
        "a loop as people write it",
        note="time 00:01:12 is the time since the start, as h:m:s, one step a line: the step's time is the difference",
    )
    for step in range(1, 16):
        loss = log.loss(step, 4, 9)
        log.line(f"step {step} loss {loss:.4f} time 0{hms(step * 72)}")
        log.row(step, loss=loss, step_time_s=72.0)
    log.derivable = {"step_time_s": 1e-3}
    return log


@maker
def epoch_and_elapsed() -> Log:
    log = Log(
        "loops/epoch_seconds",
        "Keras- and sklearn-like loops as people write them",
        note="Epoch i/n - 41s is the epoch's time; the step is the epoch",
        counter="order",
    )
    for epoch in range(1, 11):
        loss, val = log.loss(epoch, 4, 2), log.loss(epoch, 4, 2.1)
        log.line(
            f"Epoch {epoch}/10 - {41 + epoch % 3}s - loss: {loss:.4f} - acc: 0.{60 + epoch} - val_loss: {val:.4f} - val_acc: 0.{58 + epoch}"
        )
        log.row(epoch, loss=loss)
        log.valid(epoch, val_loss=val)
    return log


@maker
def one_record() -> Log:
    log = Log("loops/one_record", "a loop that has just begun", note="one record: no difference can be taken")
    log.line("step 1 loss 10.9121 lr 3.00e-06 step_time 41.212s")
    log.row(1, loss=10.9121, lr=3e-6, step_time_s=41.212)
    return log


@maker
def ranks_jsonl() -> Log:
    log = Log(
        "loops/ranks_object",
        "a loop as people write it",
        note="rank and world_size in each object; rank 1 is slower",
        suffix="jsonl",
    )
    for step in range(0, 80, 10):
        for rank in range(2):
            loss, t = log.loss(step // 10, 5, 3), log.around(0.212 + rank / 10, 5)
            log.line(json.dumps({"rank": rank, "world_size": 2, "step": step, "loss": loss, "step_time": t}))
            log.row(step, rank=rank, loss=loss, step_time_s=t)
    return log


@maker
def torchrun_tee() -> Log:
    log = Log(
        "torchrun/tee",
        "pytorch/pytorch, torch/distributed/elastic/multiprocessing/tail_log.py, torchrun --tee 3 (2.9)",
        note="[default1]: in front of a line is the local rank",
    )
    log.line(
        "W0302 09:14:07.112121 41212 torch/distributed/run.py:792] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default"
    )
    for step in range(10, 81, 10):
        for rank in range(2):
            loss, t = log.loss(step // 10, 4, 3), log.around(212.1 + rank * 40, 1)
            log.line(f"[default{rank}]:step {step} loss {loss:.4f} step_time {t:.1f}ms")
            log.row(step, rank=rank, loss=loss, step_time_s=t / 1000)
    return log
