"""A fifth round of logs: the kinds that the fourth batch of unseen logs showed, written after their sources with other numbers."""

# ruff: noqa: E501 (the lines of a log are long)

from __future__ import annotations

from writing import Log, bar, clock, maker, ms


@maker
def first_batch_of_each_epoch() -> Log:
    log = Log(
        "loops/first_batch",
        "a loop that prints the first batch of each epoch, with the length of the epoch",
        note="the counter is 0 in every record; lr restarts",
    )
    for epoch in range(12):
        loss, lr = log.loss(epoch, 6), (0.001, 0.00075, 0.00025)[epoch % 3]
        log.line(f"[train] epoch:{epoch} iter:0/24 0.00% lr:{lr:.6f} loss:{loss:.6f} ETA:0.0min")
        log.line(f"[val] epoch:{epoch} miou:{log.around(0.5, 2)}")
        log.row(24 * epoch, loss=loss, lr=lr)
    return log


@maker
def average_loss_of_an_evaluation() -> Log:
    log = Log(
        "loops/evaluation_epoch",
        "a loop that prints the mean loss of the training and of the evaluation of each epoch",
        note="the mean of an evaluation is its result; that of the training is none of a step",
    )
    for epoch in range(1, 10):
        mean, result = log.loss(epoch), log.loss(epoch)
        log.line(f"INFO:root:Epoch {epoch} - Average Loss: {mean:.4f}, Average Accuracy: 0.41, Samples: 693")
        log.line(
            f"INFO:root:Evaluation Epoch {epoch} - Average Loss: {result:.4f}, Average Accuracy: 0.39, Samples: 115"
        )
        log.row(epoch)
        log.valid(epoch, val_loss=result)
    return log


@maker
def number_before_epoch() -> Log:
    log = Log(
        "mindspore/number_before_epoch",
        "2024-MindSpore-1/Code3, MaxwellNet/train_maxwellnet.py, with logging's date as %a, %d %b %Y",
        note="the number stands before the word epoch; the line of the program is in the prefix",
    )
    now = clock()
    log.line(f"{now(0):%a, %d %b %Y %H:%M:%S} train_maxwellnet.py[line:102] INFO Train Dataset length: 1")
    for epoch in range(1, 13):
        loss = log.loss(epoch, 5, 380)
        log.line(
            f"{now(7):%a, %d %b %Y %H:%M:%S} train_maxwellnet.py[line:140] INFO [Train] {epoch} epoch. Loss: {loss:.5f}"
        )
        log.row(epoch, loss=loss)
    return log


@maker
def tokens_of_all() -> Log:
    log = Log(
        "loops/global_tokens",
        "a loop around DeepSpeed that prints the tokens per second of all ranks",
        note="Global Tokens/s: the sign is no group's",
    )
    for step in range(1, 13):
        loss, rate = log.loss(step), log.around(2050, 2)
        log.line(f"[Step {step}/100] Loss: {loss:.4f} | Global Tokens/s: {rate:.2f}")
        log.row(step, loss=loss, tokens_per_s=rate)
    return log


@maker
def bar_drawn_many_times() -> Log:
    log = Log(
        "tqdm/drawn_many_times",
        "a loop that sets the postfix of tqdm several times per step (MONAI's patches), and a bar per epoch",
        note="0/4 several times is no new beginning; the loss is that of the last patch or a mean",
        counter="relative",
        suffix="txt",
    )
    shown: dict[int, list[float]] = {}
    times: dict[int, float] = {}
    for epoch in range(1, 6):
        for done in range(5):
            step, took = 4 * (epoch - 1) + done, log.around(1.5, 2)
            rate = f"{ms(2 * done)}<{ms(8 - 2 * done)}, {took:5.2f}s/it" if done else "00:13<?, ?it/s"
            for _ in range(3 if done < 4 else 1):
                loss = log.loss(step) if done < 4 else shown[step - 1][-1]
                shown.setdefault(step, []).append(loss)
                log.raw(
                    f"\r[fold_0] {epoch:03d}/200: {25 * done:3d}%|{bar(done, 4)}| {done}/4 [{rate}, loss={loss:.4f}]"
                )
            if done:
                times[step] = took
        log.raw("\n")
    for step, losses in shown.items():
        log.row(step, loss=losses, step_time_s=times.get(step))
    log.derivable = {"step_time_s": 0.02, "steps_per_s": 0.02}
    return log


@maker
def letter_of_the_epoch() -> Log:
    log = Log(
        "loops/letter_of_the_epoch",
        "a loop that prints [E1] step 0 loss 9.2",
        note="E1 is the epoch: the steps begin again at 0 in [E2]; avg-loss is the epoch's",
        counter="order",
    )
    for epoch in (1, 2, 3):
        for step in range(0, 80, 10):
            loss = log.loss(epoch + step / 10)
            log.line(f"[E{epoch}] step {step} loss {loss:.4f}")
            log.row(step, loss=loss)
        log.line(f"[E{epoch}] avg-loss {log.loss(epoch):.4f}")
    return log


@maker
def prefix_v() -> Log:
    log = Log(
        "loops/prefix_v",
        "a console that shows each name of the validation with v_ (Mathux/TMR's RichProgressBar)",
        note="three names stand with v_ and without it: v_loss is the validation's",
    )
    now = clock()
    for epoch in range(10):
        loss, result = log.loss(epoch, 3), log.loss(epoch, 3)
        log.line(
            f"[{now(200):%m/%d/%y %H:%M:%S}] INFO   Epoch {epoch}: v_recons 4.545e-01  recons 4.626e-01  v_loss {result:.3e}  loss {loss:.3e}  v_kl 5.804e+00  kl 5.591e+00"
        )
        log.row(epoch, loss=loss)
        log.valid(epoch, val_loss=result)
    return log


@maker
def loss_of_the_value() -> Log:
    log = Log(
        "loops/loss_of_the_value",
        "a loop of reinforcement learning that prints loss, v_loss (of the value) and p_loss",
        note="v_loss is none of a validation",
    )
    for step in range(100, 1300, 100):
        loss = log.loss(step / 100)
        log.line(
            f"step {step} loss {loss:.4f} v_loss {loss / 3:.4f} p_loss {loss / 2:.4f} v_grad_norm 0.51 grad_norm 0.4800"
        )
        log.row(step, loss=loss, grad_norm=0.48)
    return log


@maker
def abbreviated_accuracy() -> Log:
    log = Log(
        "loops/abbreviated_accuracy",
        "a loop that ends each epoch with lines of Train. Acc. and Test. Acc.",
        note="the loss of the line that begins with Test. is the validation's",
        counter="relative",
    )
    for epoch in range(1, 4):
        for batch in range(0, 469, 50):
            loss = log.loss(10 * epoch + batch / 50)
            log.line(f"Epoch: {epoch:03d}/020 | Batch {batch:04d}/0469 | Loss: {loss:.4f}")
            log.row(469 * (epoch - 1) + batch, loss=loss)
        result = log.loss(10 * epoch)
        log.line(f"**Epoch: {epoch:03d}/020 | Train. Acc.: 95.060% | Loss: {log.loss(10 * epoch):.4f}")
        log.line(f"**Epoch: {epoch:03d}/020 | Test. Acc.: 97.430% | Loss: {result:.4f}")
        log.valid(epoch, val_loss=result)
    return log


@maker
def ranks_without_a_label() -> Log:
    log = Log(
        "deepspeed/ranks_without_a_label",
        "a loop of two processes that all print, around DeepSpeed (runtime/engine.py: [Rank 0] step=)",
        note="two lines per step and no label: either loss is true, and none is of a known rank",
        counter="order",
    )
    now = clock()
    for step in range(1, 13):
        stamp = f"[{now(5):%Y-%m-%d %H:%M:%S},105] [INFO]"
        log.line(f"{stamp} [logging.py:107:log_dist] [Rank 0] step={step}, skipped=0, lr=[1e-05], mom=[(0.9, 0.999)]")
        losses = [log.loss(step), log.loss(step)]
        for loss in losses:
            log.line(f"[Step {step}/100] Loss: {loss:.4f} | Peak Mem: 43.96")
        log.row(step, loss=losses, lr=1e-5, memory=43.96)
    log.derivable = {"step_time_s": 0.01}
    for row in log.rows[1:]:
        row["step_time_s"] = 5.0
    return log
