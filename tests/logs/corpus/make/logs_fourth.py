"""A fourth round of logs: the kinds that logs of others showed, written after their sources with other numbers."""

# ruff: noqa: E501 (the lines of a log are long)

from __future__ import annotations

from writing import Log, clock, maker


@maker
def paddlevideo() -> Log:
    log = Log(
        "paddlevideo/train",
        "PaddlePaddle/PaddleVideo, paddlevideo/utils/record.py, log_batch and log_epoch (2.2)",
        note="val step has batches of the validation, only END epoch val its mean; END epoch train has means of the epoch",
        counter="order",
    )
    now = clock()
    for epoch in range(1, 4):
        for mode, batches in (("train", 3), ("val", 2)):
            for index in range(batches):
                loss, cost, read = log.loss(3 * epoch + index, 5), log.around(0.412, 5), log.around(0.0212, 5)
                rate = round(64 / cost, 5)
                rest = f"top1: 0.48438 top5: 0.82812 batch_cost: {cost:.5f} sec, reader_cost: {read:.5f} sec, ips: {rate:.5f} instance/sec."
                lr = "lr: 0.010000 " if mode == "train" else ""
                log.line(
                    f"[{now(41):%m/%d %H:%M:%S}] epoch:[{epoch:>3d}/{3:<3d}] {mode} step:{index * 100:<4d} loss: {loss:7.5f} {lr}{rest}"
                )
                if mode == "train":
                    log.row(index * 100, loss=loss, lr=0.01, step_time_s=cost, data_time=read, throughput=rate)
            mean = log.loss(3 * epoch, 5)
            log.line(
                f"[{now(2):%m/%d %H:%M:%S}] END epoch:{epoch:<3d} {mode} loss_avg: {mean:7.5f} top1_avg: 0.14896 top5_avg: 0.39 avg_batch_cost: 0.31 sec, avg_reader_cost: 0.01 sec, batch_cost_sum: 63.13 sec, avg_ips: 60.82 instance/sec."
            )
            if mode == "val":
                log.valid(epoch, val_loss=mean)
    log.batch_size = 64
    return log


@maker
def transformer_xl() -> Log:
    log = Log(
        "transformer_xl/tensorflow",
        "kimiyoung/transformer-xl, tf/train_gpu.py, and its versions for TensorFlow 2, with absl's lines",
        note="the step in brackets; each line is written by TensorFlow and by absl; batches[ 100] is no step",
    )
    for step in range(500, 3500, 500):
        loss, norm, lr = log.loss(step // 500, 2), log.around(0.9, 2), round(step / 1e7, 6)
        lines = [f"[{step:6d}] | gnorm {norm:5.2f} lr {lr:9.6f} | loss {loss:>5.2f}"]
        lines += [f"{name} batches[{100:5d}]                | loss {loss:>5.2f}" for name in ("Train", "Eval ")]
        for at, line in enumerate(lines):
            log.line(f"INFO:tensorflow:{line}", f"I0302 09:14:07.{step:06d} 1285298 train.py:{298 + at}] {line}")
        log.row(step, loss=loss, grad_norm=norm, lr=lr)
        log.valid(step, val_loss=loss)
    return log


@maker
def alphazero_gomoku() -> Log:
    log = Log(
        "alphazero_gomoku/train",
        "junxiaosong/AlphaZero_Gomoku, train.py, run and policy_update",
        note="two lines a record, the first without the second; lr_multiplier is no learning rate",
    )
    for step in range(1, 13):
        log.line(f"batch i:{step}, episode_len:{20 + step}")
        if step == 1:
            log.row(step)
            continue
        loss = log.loss(step, 6)
        log.line(
            f"kl:{0.01:.5f},lr_multiplier:1.500,loss:{loss},entropy:{log.around(4.2, 6)},explained_var_old:0.093,explained_var_new:0.343"
        )
        log.row(step, loss=loss)
    return log


@maker
def interval_time() -> Log:
    log = Log(
        "loops/interval_time",
        "a loop that prints the time since its last line, like tensorflow/tensorflow, basic_session_run_hooks.py, LoggingTensorHook",
        note="time is that of 100 steps: the log does not say it",
    )
    for step in range(100, 1300, 100):
        loss = log.loss(step / 100)
        log.line(f"step {step}/5000  loss {loss:.4f}  time {log.around(11.4, 2)}s")
        log.row(step, loss=loss)
    return log


@maker
def validation_section() -> Log:
    log = Log(
        "loops/validation_section",
        "a loop whose validation prints the same lines as the training, below a heading",
        note="the lines below 'Running validation' are batches of it; its counter begins again",
    )
    for part in range(3):
        for step in range(part * 50, part * 50 + 50, 10):
            loss = log.loss(step / 10)
            log.line(f"iter {step}: loss {loss:.4f}, lr 0.0010")
            log.row(step, loss=loss, lr=0.001)
        log.line("Running validation ...")
        log.line(*(f"iter {step}: loss {log.loss(9):.4f}, lr 0.0010" for step in range(0, 30, 10)))
        log.line("Resuming training.")
    return log


@maker
def second_start() -> Log:
    log = Log(
        "loops/second_start",
        "a loop that was stopped and started again from the beginning, into the same file",
        note="the first attempt went further than the second: its records are of another run",
    )
    for step in range(0, 200, 10):
        log.line(f"step {step} loss {log.loss(step / 10):.4f}")
    log.line("Traceback (most recent call last):", "KeyboardInterrupt", "Loading dataset...")
    for step in range(0, 100, 10):
        loss = log.loss(step / 10, start=4.0)
        log.line(f"step {step} loss {loss:.4f}")
        log.row(step, loss=loss)
    return log


@maker
def loss_at_step() -> Log:
    log = Log(
        "loops/loss_at_step",
        "a loop that prints sentences: Loss at step 2: 8.53",
        note="the value behind the counter is that of the name in front of it; Average loss at step is a mean",
    )
    now = clock()
    for step in range(1, 13):
        loss = log.loss(step, 6)
        log.line(f"{now(0.91):%Y-%m-%d %H:%M:%S,%f}"[:-3] + f":\tLoss at step {step}: {loss:.6f}")
        log.row(step, loss=loss, step_time_s=0.91)
    log.derivable = {"step_time_s": 0.05}
    return log


@maker
def step_above_loss() -> Log:
    log = Log(
        "loops/step_above_loss",
        "a loop that prints the step as an ordinal, and the loss on the next line",
        note="95th; some steps are missing, so the records must not be numbered",
    )
    for step in (1, 2, 3, 4, *range(93, 103)):
        loss = log.loss(step / 10, 6)
        log.line(f"current step: {step}th step", f"batch loss:{loss}")
        log.row(step, loss=loss)
    return log


@maker
def zeros_in_front() -> Log:
    log = Log(
        "loops/zeros_in_front",
        "a log that was emptied (logrotate's copytruncate) while the loop went on writing at its old position",
        note="it begins with 10,000 zero bytes",
    )
    log.raw("\0" * 10_000)
    for step in range(10, 130, 10):
        loss = log.loss(step / 10)
        log.line(f"step {step:5d} | loss {loss:.4f} | lr 2.99e-04 | {400 + step} tok/s")
        log.row(step, loss=loss, lr=2.99e-4, tokens_per_s=400 + step)
    return log


@maker
def losses_of_domains() -> Log:
    log = Log(
        "loops/losses_of_domains",
        "a loop with two losses and no sum, a line each; time is since the start of the epoch",
        note="none is the loss; the time is none of a step",
        counter="order",
    )
    for epoch in range(9):
        for name in ("tgt", "src"):
            log.line(f"INFO:__main__:Epoch: {epoch:04d} avg_loss_{name}: {log.loss(epoch, 3)} time: {log.around(9.4)}s")
        log.row(epoch)
    return log


@maker
def step_in_a_part() -> Log:
    log = Log(
        "loops/part_of_an_epoch",
        "a loop that prints step: 81/100, of which a part was kept",
        note="the counter begins again in one of two changes of the epoch only",
        counter="relative",
    )
    for epoch, steps in ((1, range(1, 9)), (2, range(81, 89)), (3, range(1, 9))):
        for step in steps:
            loss, t = log.loss(epoch, 6), log.around(7.4, 2)
            log.line(
                f"epoch: {epoch:04d}  step: {step}/100     time: {t:.2f} sec  loss: {loss:.6f}  ({loss:.6f}, 0.000000)"
            )
            log.row((epoch - 1) * 100 + step, loss=loss, step_time_s=t)
    return log
