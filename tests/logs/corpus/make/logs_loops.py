"""Logs of loops as people write them, in English and Chinese, and files that are cut, mixed or oddly encoded."""

# ruff: noqa: E501 (the lines of a log are long)

from __future__ import annotations

import json
import math

from writing import Log, clock, hms, maker

OWN = "a loop as people write it"


@maker
def chinese_one_line() -> Log:
    log = Log(
        "chinese/one_line", OWN, note="训练步数 is the step, 耗时 the step's time in ms, 验证损失 the validation's loss"
    )
    for step in range(10, 121, 10):
        loss, t, lr = log.loss(step // 10, 4, 4), log.around(312.1, 1), round(1e-3 * (1 - step / 200), 6)
        log.line(f"训练步数: {step}/1000 | 轮次: 1 | 损失: {loss:.4f} | 学习率: {lr:.6f} | 耗时: {t:.1f}ms")
        log.row(step, loss=loss, lr=lr, step_time_s=t / 1000)
        if step % 60 == 0:
            log.line(f"验证: 训练步数: {step} 验证损失: {loss + 0.2:.4f} 准确率: 61.2%")
            log.valid(step, val_loss=round(loss + 0.2, 4))
    return log


@maker
def chinese_full_width() -> Log:
    log = Log(
        "chinese/full_width",
        OWN,
        note="full-width colons and commas; 第…轮 第…步; 总耗时 is since the start: no step's time",
    )
    for step in range(1, 16):
        loss = log.loss(step, 4, 4)
        log.line(f"第1轮，第{step}步，训练损失：{loss:.4f}，学习率：0.0003，总耗时：{step * 2.1:.1f}秒")
        log.row(step, loss=loss, lr=0.0003, step_time_s=2.1)
    log.derivable = {"step_time_s": 0.03}
    return log


@maker
def chinese_gb18030() -> Log:
    log = Log("chinese/gb18030", OWN, note="encoded as GB 18030; 每步耗时 is the step's time in seconds; 显存 in MB")
    log.encoding = "gb18030"
    for step in range(100, 1201, 100):
        loss, t = log.loss(step // 100, 4, 4), log.around(0.412, 3)
        log.line(f"步数 {step}，损失 {loss:.4f}，每步耗时 {t:.3f} 秒，显存 8192MB")
        log.row(step, loss=loss, step_time_s=t, memory=8.0)
    return log


@maker
def chinese_epochs() -> Log:
    log = Log(
        "chinese/epochs",
        OWN,
        note="a line per epoch; 用时 is the epoch's time; 验证集损失 is validation",
        counter="order",
    )
    for epoch in range(1, 11):
        loss, val = log.loss(epoch, 4, 2), log.loss(epoch, 4, 2.2)
        log.line(
            f"轮次 [{epoch}/50] 训练损失: {loss:.4f} 验证损失: {val:.4f} 准确率: {50 + epoch}.12% 用时: {log.around(61.2, 1)}s"
        )
        log.row(epoch, loss=loss)
        log.valid(epoch, val_loss=val)
    return log


@maker
def chinese_table() -> Log:
    log = Log(
        "chinese/table",
        OWN,
        note="a CSV with Chinese names; 数据时间 is the waiting for data, both in ms",
        suffix="csv",
    )
    log.line("训练步数,损失,学习率,步耗时(ms),数据时间(ms)")
    for step in range(0, 120, 10):
        loss, t, d = log.loss(step // 10, 5, 3), log.around(212.1, 2), log.around(21.1, 2)
        log.line(f"{step},{loss},0.0001,{t},{d}")
        log.row(step, loss=loss, lr=0.0001, step_time_s=t / 1000, data_time=d / 1000)
    return log


@maker
def validation_prefix() -> Log:
    log = Log("loops/validation_prefix", OWN, note="Validation: has the words step and loss too")
    for step in range(10, 201, 10):
        loss, t = log.loss(step // 10, 4, 3), log.around(0.211, 3)
        log.line(f"step {step} loss {loss:.4f} time {t:.3f}s")
        log.row(step, loss=loss, step_time_s=t)
        if step % 50 == 0:
            log.line(f"Validation: step {step} loss {loss + 0.3:.4f} time 3.121s")
            log.valid(step, val_loss=round(loss + 0.3, 4))
    return log


@maker
def eval_prefix() -> Log:
    log = Log("loops/eval_prefix", OWN, note="Eval: and [TEST] lines; their time is the evaluation's")
    for step in range(100, 1101, 100):
        loss = log.loss(step // 100, 4, 3)
        log.line(f"[TRAIN] step: {step}, loss: {loss:.4f}, lr: 1.0e-04, throughput: 512.3 samples/s")
        log.row(step, loss=loss, lr=1e-4, throughput=512.3)
        if step % 300 == 0:
            log.line(
                f"Eval: step: {step}, loss: {loss + 0.3:.4f}, throughput: 2012.1 samples/s",
                f"[TEST] step: {step}, loss: {loss + 0.4:.4f}",
            )
            log.valid(step, val_loss=[round(loss + 0.3, 4), round(loss + 0.4, 4)])
    return log


@maker
def summary_blocks() -> Log:
    log = Log(
        "loops/optimizer_time",
        OWN,
        note="optimizer_time, forward_time and backward_time are parts; no time of the whole step",
        suffix="jsonl",
    )
    for step in range(12):
        loss = log.loss(step, 6, 3)
        log.line(
            json.dumps(
                {
                    "step": step,
                    "loss": loss,
                    "forward_time": log.around(0.05, 6),
                    "backward_time": log.around(0.11, 6),
                    "optimizer_time": log.around(0.02, 6),
                }
            )
        )
        log.row(step, loss=loss)
    return log


@maker
def placeholder_rate() -> Log:
    log = Log(
        "loops/placeholder", OWN, note='samples_per_sec is the text "0.00" throughout: never measured', suffix="jsonl"
    )
    for step in range(20):
        loss = log.loss(step, 6, 3)
        log.line(json.dumps({"step": step, "loss": loss, "samples_per_sec": "0.00", "lr": 0.0003}))
        log.row(step, loss=loss, lr=0.0003)
    return log


@maker
def rounded_rate() -> Log:
    log = Log(
        "loops/rounded_rate",
        OWN,
        note="it/s has one digit: 0.3 may be 0.25 to 0.35, so the step's time is not known to better than a third; the time itself is printed",
    )
    for step in range(1, 15):
        loss, t = log.loss(step, 3, 3), log.around(3.121, 3)
        log.line(f"step={step} loss={loss:.3f} speed={1 / t:.1f}it/s step_time={t:.3f}s")
        log.row(step, loss=loss, step_time_s=t)
    log.derivable = {"steps_per_s": 0.25}
    return log


@maker
def ms_per_iter() -> Log:
    log = Log("loops/ms_per_iter", OWN, note="2906 ms/iter, in the value's unit")
    for step in range(0, 120, 10):
        loss, t = log.loss(step // 10, 4, 9), round(log.around(2906, 0))
        log.line(f"iter {step}: loss {loss:.4f}, {t} ms/iter, lr 3.00e-04")
        log.row(step, loss=loss, step_time_s=t / 1000, lr=3e-4)
    return log


@maker
def ms_per_step() -> Log:
    log = Log(
        "loops/ms_per_step",
        OWN,
        note="50ms/step; 742.03/s has no unit: of what is not said, but its place after the samples says it",
    )
    for step in range(10, 121, 10):
        loss, t = log.loss(step // 10, 4, 9), round(log.around(50, 0))
        log.line(f"Step {step:4d} - {t}ms/step - loss: {loss:.4f}")
        log.row(step, loss=loss, step_time_s=t / 1000)
    return log


@maker
def two_counters_tutorial() -> Log:
    log = Log(
        "loops/epoch_step",
        "PyTorch tutorial by yunjey, tutorials/01-basics/logistic_regression/main.py",
        note="Epoch [1/5], Step [100/600]: the step restarts",
        counter="relative",
    )
    for epoch in range(1, 4):
        for step in range(100, 601, 100):
            loss = log.loss(epoch * 6 + step // 100, 4, 3)
            log.line(f"Epoch: [{epoch}/5], Step: [{step}/600], Loss: {loss:.4f}")
            log.row((epoch - 1) * 600 + step, loss=loss)
    return log


@maker
def epochs_only() -> Log:
    log = Log(
        "loops/epoch_summary",
        OWN,
        note="a line per epoch; the time is the epoch's; train and val losses on one line",
        counter="order",
    )
    for epoch in range(1, 13):
        loss, val = log.loss(epoch, 4, 2), log.loss(epoch, 4, 2.2)
        log.line(
            f"Epoch {epoch:02}/12: train_loss={loss:.4f} val_loss={val:.4f} val_acc={0.5 + epoch / 30:.4f} time={log.around(61.2, 1)}s lr=1.00e-03"
        )
        log.row(epoch, loss=loss, lr=1e-3)
        log.valid(epoch, val_loss=val)
    return log


@maker
def gan_loop() -> Log:
    log = Log(
        "loops/gan",
        "PyTorch-GAN by eriklindernoren, implementations/gan/gan.py",
        note="[D loss] and [G loss] of two networks; two counters in brackets",
        counter="relative",
    )
    for epoch in range(2):
        for batch in range(0, 938, 134):
            log.line(
                f"[Epoch {epoch}/200] [Batch {batch}/938] [D loss: {log.around(0.61, 6):f}] [G loss: {log.around(0.81, 6):f}]"
            )
            log.row(epoch * 938 + batch)
    return log


@maker
def gan_csv() -> Log:
    log = Log(
        "loops/gan_table",
        OWN,
        note="d_loss, g_loss and the times of both updates: parts of a step; step_time is the whole",
        suffix="csv",
    )
    log.line("step,d_loss,g_loss,d_time_ms,g_time_ms,step_time_ms")
    for step in range(0, 200, 20):
        a, b = log.around(41.2, 2), log.around(52.1, 2)
        log.line(f"{step},{log.around(0.61, 5)},{log.around(0.81, 5)},{a},{b},{a + b + 3:.2f}")
        log.row(step, step_time_s=round(a + b + 3, 2) / 1000)
    return log


@maker
def cumulative_time() -> Log:
    log = Log(
        "loops/elapsed",
        OWN,
        note="elapsed is since the start, avg the mean since the start; neither is the step's time, their differences are",
    )
    total = 0.0
    for step in range(1, 21):
        dt = log.around(0.512, 3)
        total += dt
        loss = log.loss(step, 4, 3)
        log.line(f"step {step} loss {loss:.4f} elapsed {total:.3f}s avg {total / step:.3f}s/step")
        log.row(step, loss=loss, step_time_s=round(dt, 3))
    log.derivable = {"step_time_s": 0.01}
    return log


@maker
def average_only() -> Log:
    log = Log(
        "loops/average_only",
        OWN,
        note="only the mean since the start is printed, every 100 steps, and no time of day: no step's time can be known well",
    )
    for step in range(100, 1201, 100):
        loss = log.loss(step // 100, 4, 3)
        log.line(f"step {step} | loss {loss:.4f} | avg_step_time {0.5 + 20 / step:.4f}s")
        log.row(step, loss=loss)
    return log


@maker
def two_ranks() -> Log:
    log = Log("loops/two_ranks", OWN, note="each rank prints its own time; ranks are interleaved")
    for step in range(0, 60, 5):
        for rank in (step // 5 % 2, 1 - step // 5 % 2):
            loss, t = log.loss(step // 5, 4, 3), log.around(0.412 + rank / 10, 3)
            log.line(f"[rank{rank}] step {step} loss {loss:.4f} step_time {t:.3f}s")
            log.row(step, rank=rank, loss=loss, step_time_s=t)
    return log


@maker
def restart() -> Log:
    log = Log(
        "loops/restart", OWN, note="the run restarts from step 60's checkpoint: the later records count", suffix="jsonl"
    )
    kept: dict[int, dict[str, float]] = {}
    for steps in (range(10, 101, 10), range(60, 151, 10)):
        for step in steps:
            loss, t = log.loss(step // 10, 5, 3), log.around(0.212, 5)
            log.line(json.dumps({"step": step, "loss": loss, "step_time": t}))
            kept[step] = {"loss": loss, "step_time_s": t}
    for step, values in sorted(kept.items()):
        log.row(step, **values)
    return log


@maker
def cut_in_a_number() -> Log:
    log = Log(
        "loops/cut", OWN, note="the last line ends within a number: 0.2 of 0.2… is no value, nor is its record complete"
    )
    for step in range(1, 16):
        loss, t = log.loss(step, 4, 3), log.around(0.212, 4)
        log.line(f"step {step} loss {loss:.4f} step_time {t:.4f}s lr 3.00e-04")
        log.row(step, loss=loss, step_time_s=t, lr=3e-4)
    log.raw("step 16 loss 1.1021 step_time 0.2")
    log.row(16, loss=1.1021)
    log.derivable = {}
    return log


@maker
def cut_jsonl() -> Log:
    log = Log("loops/cut_object", OWN, note="the last line ends within an object", suffix="jsonl")
    for step in range(1, 13):
        loss, t = log.loss(step, 5, 3), log.around(0.212, 5)
        log.line(json.dumps({"step": step, "loss": loss, "step_time": t}))
        log.row(step, loss=loss, step_time_s=t)
    log.raw('{"step": 13, "loss": 1.0')
    return log


@maker
def utf16() -> Log:
    log = Log(
        "loops/utf16",
        OWN,
        note="UTF-16 without a byte order mark, as PowerShell's redirection and some editors leave it",
    )
    log.encoding = "utf-16-le"
    for step in range(1, 16):
        loss, t = log.loss(step, 4, 3), log.around(0.212, 4)
        log.line(f"step {step} loss {loss:.4f} step_time {t:.4f}s")
        log.row(step, loss=loss, step_time_s=t)
    return log


@maker
def not_a_number() -> Log:
    log = Log("loops/nan", OWN, note="the loss is nan from step 6 on and inf at step 5: records, but not zeros")
    for step in range(1, 11):
        loss = log.loss(step, 4, 3)
        text = "nan" if step > 5 else "inf" if step == 5 else f"{loss:.4f}"
        t = log.around(0.212, 4)
        log.line(f"step {step} loss {text} step_time {t:.4f}s")
        log.row(step, loss=loss if step < 5 else math.inf if step == 5 else None, step_time_s=t)
    return log


@maker
def nested_jsonl() -> Log:
    log = Log("loops/nested", OWN, note="train/…, val/… and time/… nested; time/total since the start", suffix="jsonl")
    for step in range(0, 120, 10):
        loss, t, d = log.loss(step // 10, 5, 3), log.around(0.212, 5), log.around(0.021, 5)
        record = {
            "step": step,
            "train": {"loss": loss, "lr": 0.0003},
            "time": {"step": t, "data": d, "total": round(step * 0.212, 3)},
        }
        log.row(step, loss=loss, lr=0.0003, step_time_s=t, data_time=d)
        if step % 50 == 0:
            record["val"] = {"loss": round(loss + 0.2, 5), "time": 4.12}
            log.valid(step, val_loss=round(loss + 0.2, 5))
        log.line(json.dumps(record))
    return log


@maker
def wandb_history() -> Log:
    log = Log(
        "loops/wandb_export",
        "wandb, an export of a table as CSV, and of run.history()",
        note="_runtime is since the start, _timestamp the time of day; eval/loss only in some rows",
        suffix="csv",
    )
    log.line("_step,_runtime,_timestamp,train/loss,train/learning_rate,train/grad_norm,eval/loss,train/epoch")
    for step in range(0, 120, 10):
        loss, norm, val = log.loss(step // 10, 6, 3), log.around(1.2, 6), ""
        if step % 40 == 0:
            val = f"{loss + 0.1:.6f}"
            log.valid(step, val_loss=float(val))
        log.line(f"{step},{10 + step * 0.4:.6f},{1772442847 + step * 0.4:.6f},{loss},0.0003,{norm},{val},{step / 100}")
        log.row(step, loss=loss, lr=0.0003, grad_norm=norm, step_time_s=0.4)
    log.derivable = {"step_time_s": 1e-3}
    return log


@maker
def tensorboard_csv() -> Log:
    log = Log(
        "loops/tensorboard_export",
        "TensorBoard, the CSV of one scalar",
        note="Wall time, Step, Value: of what the value is, only the file's name says",
        suffix="csv",
    )
    log.line("Wall time,Step,Value")
    for step in range(0, 120, 10):
        log.line(f"{1772442847 + step * 0.4:.6f},{step},{log.loss(step // 10, 6, 3)}")
        log.row(step, step_time_s=0.4)
    log.derivable = {"step_time_s": 1e-3}
    return log


@maker
def units_in_keys() -> Log:
    log = Log("loops/units", OWN, note="units in keys and values: us, ms, minutes, MiB, k samples/s", suffix="log")
    for step in range(1, 13):
        t, d, rate = round(log.around(212100, 0)), log.around(1.2, 2), log.around(1.212, 3)
        log.line(
            f"step={step} step_time_us={t} data_time_ms={d} throughput={rate}k samples/s mem=8192MiB elapsed={step / 60:.3f}min"
        )
        log.row(step, step_time_s=t / 1e6, data_time=d / 1000, throughput=round(rate * 1000, 3), memory=8.0)
    return log


@maker
def accelerate_bar() -> Log:
    log = Log(
        "loops/no_trainer",
        "huggingface/transformers, examples/pytorch/language-modeling/run_clm_no_trainer.py (4.45)",
        note="bars without numbers; a line per epoch: perplexity and eval_loss; then all_results",
        counter="order",
    )
    log.line(
        "03/02/2026 09:14:07 - INFO - __main__ - ***** Running training *****",
        "03/02/2026 09:14:07 - INFO - __main__ -   Num examples = 2334",
        "03/02/2026 09:14:07 - INFO - __main__ -   Total optimization steps = 876",
    )
    for epoch in range(3):
        val = log.loss(epoch, 12, 3.2)
        log.line(
            f"03/02/2026 09:2{epoch}:07 - INFO - __main__ - epoch {epoch}: perplexity: {math.exp(val)} eval_loss: {val}"
        )
        log.valid(val_loss=val)
    return log


@maker
def fastai() -> Log:
    log = Log(
        "fastai/learner",
        "fastai/fastprogress, fastprogress/fastprogress.py, ConsoleMasterBar.write (1.0), and fastai's Recorder",
        note="a table without separators; time is the epoch's; train_loss is a moving average",
        counter="order",
        suffix="txt",
    )
    log.line("epoch     train_loss  valid_loss  accuracy  time    ")
    for epoch in range(6):
        loss, val = log.loss(epoch, 6, 1.2), log.loss(epoch, 6, 1.1)
        log.line(f"{epoch:<8}  {loss:<10.6f}  {val:<10.6f}  {0.6 + epoch / 20:<8.6f}  00:{41 + epoch}   ")
        log.row(epoch)
        log.valid(epoch, val_loss=val)
    return log


@maker
def catalyst() -> Log:
    log = Log(
        "catalyst/console",
        "catalyst-team/catalyst, catalyst/loggers/console.py, ConsoleLogger (22.04)",
        note="train and valid lines of an epoch; the loss is the epoch's mean",
        counter="order",
    )
    for epoch in range(1, 5):
        loss, val = log.loss(epoch, 16, 0.6), log.loss(epoch, 16, 0.62)
        log.line(
            f"train ({epoch}/4) accuracy01: 0.7{epoch} | loss: {loss} | loss/mean: {loss} | loss/std: 0.1 | lr: 0.02 | momentum: 0.9",
            f"valid ({epoch}/4) accuracy01: 0.7{epoch} | loss: {val} | loss/mean: {val} | loss/std: 0.1 | lr: 0.02 | momentum: 0.9",
            f"* Epoch ({epoch}/4) lr: 0.02 | momentum: 0.9",
        )
        log.row(loss=loss, lr=0.02)
        log.valid(val_loss=val)
    return log


@maker
def recbole() -> Log:
    log = Log(
        "recbole/train",
        "RUCAIBox/RecBole, recbole/trainer/trainer.py, _generate_train_loss_output (1.2)",
        note="time is the epoch's; the train loss is the sum over the epoch's batches",
        counter="order",
    )
    now = clock()
    for epoch in range(6):
        loss = log.loss(epoch, 4, 212)
        log.line(
            f"{now(13):%a %d %b %Y %H:%M:%S} INFO  epoch {epoch} training [time: {log.around(12.1, 2):.2f}s, train loss: {loss:.4f}]",
            f"{now(1):%a %d %b %Y %H:%M:%S} INFO  epoch {epoch} evaluating [time: 0.32s, valid_score: 0.0{epoch + 2}1200]",
            f"{now(0):%a %d %b %Y %H:%M:%S} INFO  valid result: ",
            "recall@10 : 0.0412    mrr@10 : 0.0212    ndcg@10 : 0.0212",
        )
        log.row(epoch, loss=loss)
    return log


@maker
def pyg() -> Log:
    log = Log(
        "pyg/gcn",
        "pyg-team/pytorch_geometric, examples/gcn.py, and torch_geometric/logging.py, log (2.5)",
        note="a line per epoch; Train, Val, Test are accuracies",
        counter="order",
    )
    for epoch in range(1, 16):
        loss = log.loss(epoch, 4, 2)
        log.line(
            f"Epoch: {epoch:03d}, Loss: {loss:.4f}, Train: 0.7{epoch:03d}, Val: 0.5{epoch:03d}, Test: 0.5{epoch:03d}"
        )
        log.row(epoch, loss=loss)
    log.line("Median time per epoch: 0.0121s")
    return log


@maker
def dgl() -> Log:
    log = Log(
        "dgl/train_sampling",
        "dmlc/dgl, examples/pytorch/graphsage/train_sampling.py (0.8)",
        note="Speed (samples/sec) is the mean of the last steps; GPU memory is a maximum; Epoch Time(s) is the epoch's",
        counter="relative",
    )
    for epoch in range(2):
        for step in range(0, 160, 20):
            loss, rate = log.loss(epoch * 8 + step // 20, 4, 3.2), log.around(41212.12, 4)
            log.line(
                f"Epoch {epoch:05d} | Step {step:05d} | Loss {loss:.4f} | Train Acc 0.4121 | Speed (samples/sec) {rate:.4f} | GPU 1234.5 MB"
            )
            log.row(epoch * 160 + step, loss=loss, throughput=rate, memory=1234.5 / 1024)
        log.line(f"Epoch Time(s): {log.around(4.1):.4f}")
    log.counter = "order"
    return log


@maker
def jax_flax() -> Log:
    log = Log(
        "flax/imagenet",
        "google/flax, examples/imagenet/train.py with clu/metric_writers/logging_writer.py (0.8)",
        note="[step] name=value; steps_per_second is the rate of the interval; train_ and eval_ in records of their own",
        counter="exact",
    )
    for step in range(100, 1001, 100):
        loss, rate = log.loss(step // 100, 6, 7), log.around(3.21, 6)
        log.line(
            f"I0302 09:1{step // 200}:07.112121 140121 logging_writer.py:48] [{step}] steps_per_second={rate:.6f}, train_accuracy=0.012121, train_learning_rate=0.01, train_loss={loss:.6f}"
        )
        log.row(step, loss=loss, step_time_s=1 / rate, lr=0.01)
        if step % 500 == 0:
            log.line(
                f"I0302 09:1{step // 200}:41.112121 140121 logging_writer.py:48] [{step}] eval_accuracy=0.021212, eval_loss={loss + 0.2:.6f}"
            )
            log.valid(step, val_loss=round(loss + 0.2, 6))
    log.derivable = {"step_time_s": 1e-4}
    return log


@maker
def allennlp() -> Log:
    log = Log(
        "allennlp/metrics",
        "allenai/allennlp, allennlp/training/gradient_descent_trainer.py, metrics_epoch_N.json as lines (2.10)",
        note="training_duration is since the start, training_loss the epoch's mean; memory in MB",
        counter="order",
        suffix="jsonl",
    )
    for epoch in range(6):
        loss, val = log.loss(epoch, 12, 0.7), log.loss(epoch, 12, 0.72)
        log.line(
            json.dumps(
                {
                    "best_epoch": epoch,
                    "training_duration": hms(61 * (epoch + 1)) + ".121212",
                    "epoch": epoch,
                    "training_accuracy": 0.71,
                    "training_loss": loss,
                    "training_worker_0_memory_MB": 2121.2,
                    "validation_accuracy": 0.7,
                    "validation_loss": val,
                    "best_validation_loss": val,
                }
            )
        )
        log.row(epoch, loss=loss)
        log.valid(epoch, val_loss=val)
    return log


@maker
def catboost() -> Log:
    log = Log(
        "catboost/console",
        "catboost/catboost, catboost/libs/logging and train (1.2)",
        note="total is the time since the start, remaining the time to the end; learn and test",
        counter="order",
    )
    for index in range(0, 100, 10):
        log.line(
            f"{index}:\tlearn: {log.loss(index // 10, 7, 0.7):.7f}\ttest: {log.loss(index // 10, 7, 0.71):.7f}\tbest: {log.loss(index // 10, 7, 0.71):.7f} ({index})\ttotal: {index * 5.2 + 52:.3g}ms\tremaining: {5.2:.3g}s"
        )
        log.row(index)
    log.line("", "bestTest = 0.4121212", "bestIteration = 99")
    return log


@maker
def xgboost() -> Log:
    log = Log(
        "xgboost/console",
        "dmlc/xgboost, python-package/xgboost/callback.py, EvaluationMonitor (2.1)",
        note="[round] and metrics of two data sets: no loss of a step, no time",
        counter="order",
    )
    for index in range(15):
        log.line(f"[{index}]\ttrain-rmse:{log.loss(index, 5, 0.9):.5f}\tvalidation-rmse:{log.loss(index, 5, 0.95):.5f}")
        log.row(index)
    return log


@maker
def fasttext() -> Log:
    log = Log(
        "fasttext/train",
        "facebookresearch/fastText, src/fasttext.cc, printInfo (0.9)",
        note="Progress in percent, no step; avg.loss is a mean since the start; words/sec/thread",
        counter="order",
    )
    log.line("Read 12M words", "Number of words:  212121", "Number of labels: 12")
    for percent in range(10, 101, 10):
        log.raw(
            f"\rProgress: {percent:5.1f}% words/sec/thread: {round(log.around(412121, 0)):7d} lr: {0.1 * (1 - percent / 100):9.6f} avg.loss: {log.loss(percent // 10, 6, 2):9.6f} ETA: {hms(100 - percent):>9}"
        )
        log.row(lr=round(0.1 * (1 - percent / 100), 6))
    log.raw("\n")
    log.derivable = {"lr": 1e-4}
    return log
