"""Logs of tools for speech, for reinforcement learning, and for generating images."""

# ruff: noqa: E501 (the lines of a log are long)

from __future__ import annotations

import json

from writing import Log, bar, clock, maker, ms


@maker
def espnet2() -> Log:
    log = Log(
        "espnet/train",
        "espnet/espnet, espnet2/train/reporter.py, SubReporter.log_message, and trainer.py (202402)",
        note="iter_time is the waiting for data, train_time the step's time, both means of the interval; forward_time, backward_time and optim_step_time are parts; 1-100batch is an interval",
        counter="relative",
    )
    now = clock()
    for epoch in (1, 2):
        log.line(f"[gpu01] {now(2):%Y-%m-%d %H:%M:%S},112 (trainer:299) INFO: {epoch}/30epoch started")
        for start in range(1, 402, 100):
            d, t, loss, norm, lr = (
                round(log.around(1.9e-4, 7), 7),
                log.around(0.127, 3),
                log.loss(epoch * 4 + start // 100, 3, 174),
                log.around(101.5, 3),
                1e-5 * epoch,
            )
            log.line(
                f"[gpu01] {now(12):%Y-%m-%d %H:%M:%S},112 (trainer:755) INFO: {epoch}epoch:train:{start}-{start + 99}batch: iter_time={d:.3e}, forward_time=0.040, loss_ctc={loss + 20:.3f}, loss_att={loss - 8:.3f}, acc=0.235, loss={loss:.3f}, backward_time=0.049, grad_norm={norm:.3f}, clip=100.000, loss_scale=1.000, optim_step_time=0.015, optim0_lr0={lr:.3e}, train_time={t:.3f}"
            )
            log.row(
                (epoch - 1) * 500 + start + 99,
                loss=loss,
                step_time_s=t,
                data_time=float(f"{d:.3e}"),
                grad_norm=norm,
                lr=float(f"{lr:.3e}"),
            )
        log.line(
            f"[gpu01] {now(30):%Y-%m-%d %H:%M:%S},112 (trainer:353) INFO: {epoch}epoch results: [train] iter_time=1.9e-04, forward_time=0.040, loss_ctc=164.1, loss_att=131.1, acc=0.251, loss=141.0, backward_time=0.049, grad_norm=99.1, clip=100.000, loss_scale=1.000, optim_step_time=0.015, optim0_lr0=1.000e-05, train_time=0.126, time=1 minute and 2.1 seconds, total_count={epoch * 500}, gpu_max_cached_mem_GB=21.12, [valid] loss_ctc=151.1, loss_att=121.1, acc=0.301, cer=0.991, loss=130.{epoch}, time=8.12 seconds, total_count={epoch * 50}, [att_plot] time=3.2 seconds, total_count=0"
        )
        log.valid(val_loss=round(130 + epoch / 10, 1))
    log.counter = "order"
    return log


@maker
def icefall() -> Log:
    log = Log(
        "icefall/train",
        "k2-fsa/icefall, egs/librispeech/ASR/pruned_transducer_stateless7/train.py, train_one_epoch (2023)",
        note="loss[…] is the batch's, tot_loss[…] a moving mean; lines of validation; batch size is the batch's",
        counter="order",
    )
    now = clock()
    for epoch in (1, 2):
        for batch in range(0, 251, 50):
            loss, lr = log.loss(epoch * 4 + batch // 50, 4, 7), round(2.25e-2 + batch * 1e-5, 5)
            log.line(
                f"{now(22):%Y-%m-%d %H:%M:%S},112 INFO [train.py:898] (0/4) Epoch {epoch}, batch {batch}, loss[loss={loss:.4g}, simple_loss={loss * 0.9:.4g}, pruned_loss={loss:.4g}, over 17023.00 frames. ], tot_loss[loss={loss + 0.5:.4g}, simple_loss={loss * 0.95:.4g}, pruned_loss={loss + 0.4:.4g}, over 812312.21 frames. ], batch size: 30, lr: {lr:.2e}, grad_scale: 1.0"
            )
            log.row(loss=float(f"{loss:.4g}"), lr=float(f"{lr:.2e}"))
            if batch == 100:
                log.line(
                    f"{now(1):%Y-%m-%d %H:%M:%S},112 INFO [train.py:922] (0/4) Computing validation loss",
                    f"{now(9):%Y-%m-%d %H:%M:%S},112 INFO [train.py:931] (0/4) Epoch {epoch}, validation: loss=1.{epoch}12, simple_loss=1.01, pruned_loss=1.09, over 944034.00 frames. ",
                    f"{now(0):%Y-%m-%d %H:%M:%S},112 INFO [train.py:932] (0/4) Maximum memory allocated so far is 19212MB",
                )
                log.valid(val_loss=1 + epoch / 10 + 0.012)
    for row in log.rows:
        row["memory"] = [19212 / 1024, 19212e6 / 2**30]  # the tool divides by a million
    log.derivable = {"memory": 1e-3}
    return log


@maker
def speechbrain() -> Log:
    log = Log(
        "speechbrain/train_log",
        "speechbrain/speechbrain, speechbrain/utils/train_logger.py, FileTrainLogger.log_stats (1.0)",
        note="a line per epoch: train loss is the epoch's mean, valid loss the validation's",
        counter="order",
        suffix="txt",
    )
    for epoch in range(1, 11):
        loss, val, lr = log.loss(epoch, 2, 3), log.loss(epoch, 2, 2.8), round(9e-4 / epoch, 6)
        log.line(
            f"epoch: {epoch}, lr: {lr:.2e}, steps: {epoch * 500}, optimizer: Adam - train loss: {loss:.2f} - valid loss: {val:.2f}, valid ACC: 7.21e-01, valid WER: 12.12"
        )
        log.row(epoch, loss=loss, lr=float(f"{lr:.2e}"))
        log.valid(epoch, val_loss=val)
    return log


@maker
def coqui() -> Log:
    log = Log(
        "coqui_tts/train",
        "coqui-ai/Trainer, trainer/logging/console_logger.py, print_train_step and print_eval_step (0.0.36)",
        note="records of several lines; value (average); step_time is without loader_time; avg_ lines of the evaluation",
    )
    now = clock()
    log.line(
        "",
        "\x1b[4m\x1b[1m > EPOCH: 0/1000\x1b[0m",
        " --> /data/run-March-02-2026_09+14AM",
        "",
        "\x1b[1m > TRAINING (2026-03-02 09:14:07) \x1b[0m",
    )
    for step in range(0, 101, 25):
        loss, t, d = log.loss(step // 25, 5, 5.4), log.around(0.9667), log.around(0.0412)
        log.line(
            "",
            f"\x1b[1m   --> TIME: {now(25):%Y-%m-%d %H:%M:%S} -- STEP: {step}/406 -- GLOBAL_STEP: {step}\x1b[0m",
            "     | > loss_text_ce: 0.02864  (0.02864)",
            f"     | > loss: {loss}  ({loss + 0.12})",
            "     | > current_lr: 5e-06 ",
            f"     | > step_time: {t:.4f}  ({t + 0.2:.4f})",
            f"     | > loader_time: {d:.4f}  ({d + 0.1:.4f})",
        )
        log.row(step, loss=loss, lr=5e-6, step_time_s=t, data_time=d)
    log.line(
        "",
        "\x1b[1m > EVALUATION \x1b[0m",
        "",
        "  \x1b[1m--> EVAL PERFORMANCE\x1b[0m",
        "     | > avg_loader_time: 0.01231 \x1b[0m(+0.00000)",
        "     | > avg_loss_text_ce: 0.02712 \x1b[0m(+0.00000)",
        "     | > avg_loss: 4.61212 \x1b[0m(+0.00000)",
    )
    log.valid(val_loss=4.61212)
    return log


@maker
def vits() -> Log:
    log = Log(
        "vits/train",
        "jaywalnut310/vits, train_ms.py, train_and_evaluate (2021)",
        note="a list without names: losses, then the step, then the rate; in the line before it the share of the epoch",
        counter="order",
    )
    now = clock()
    for epoch in (1, 2):
        for index in range(3):
            log.line(
                f"{now(40):%Y-%m-%d %H:%M:%S},112\tljs_base\tINFO\tTrain Epoch: {epoch} [{index * 33}%]",
                f"{now(0):%Y-%m-%d %H:%M:%S},112\tljs_base\tINFO\t[{log.around(2.4, 12)}, {log.around(2.1, 12)}, {log.around(8.1, 12)}, {log.around(21.1, 12)}, {log.around(1.7, 12)}, {log.around(2.3, 12)}, {epoch * 600 + index * 200}, 0.00019995]",
            )
            log.row()
        log.line(f"{now(1):%Y-%m-%d %H:%M:%S},112\tljs_base\tINFO\t====> Epoch: {epoch}")
    return log


@maker
def so_vits() -> Log:
    log = Log(
        "so_vits_svc/train",
        "svc-develop-team/so-vits-svc, train.py, train_and_evaluate (4.1)",
        note="a list of losses without names; step and lr have names; cost is the epoch's time",
    )
    now = clock()
    for epoch in (1, 2, 3):
        for index in range(3):
            step = (epoch - 1) * 600 + index * 200
            log.line(
                f"{now(40):%Y-%m-%d %H:%M:%S},112\t44k\tINFO\tTrain Epoch: {epoch} [{index * 33}%]",
                f"{now(0):%Y-%m-%d %H:%M:%S},112\t44k\tINFO\tLosses: [{log.around(2.4, 12)}, {log.around(2.1, 12)}, {log.around(8.1, 12)}, {log.around(21.1, 12)}, {log.around(1.7, 12)}], step: {step}, lr: 9.99875e-05, reference_loss: {log.around(35.2, 12)}",
            )
            log.row(step, lr=9.99875e-5)
        log.line(f"{now(1):%Y-%m-%d %H:%M:%S},112\t44k\tINFO\t====> Epoch: {epoch}, cost 121.12 s")
    log.derivable = {"step_time_s": 0.1}
    for row in log.rows:
        row["step_time_s"] = 0.2
    return log


@maker
def rvc() -> Log:
    log = Log(
        "rvc/train",
        "RVC-Project/Retrieval-based-Voice-Conversion-WebUI, infer/modules/train/train.py (2023)",
        note="a list of step and rate without names; five losses, none of which is the loss; the epoch's time in brackets",
        counter="order",
    )
    now = clock()
    for epoch in (1, 2, 3, 4):
        log.line(
            f"INFO:mi-test:Train Epoch: {epoch} [{epoch * 11}%]",
            f"INFO:mi-test:[{epoch * 50}, 9.99875e-05]",
            f"INFO:mi-test:loss_disc={log.around(3.9, 3):.3f}, loss_gen={log.around(3.2, 3):.3f}, loss_fm={log.around(9.1, 3):.3f},loss_mel={log.around(22.1, 3):.3f}, loss_kl={log.around(3.3, 3):.3f}",
            f"INFO:mi-test:====> Epoch: {epoch} [{now(21):%Y-%m-%d %H:%M:%S}] | (0:00:21.{epoch}12345)",
        )
        log.row()
    return log


@maker
def tacotron2() -> Log:
    log = Log(
        "tacotron2/train",
        "NVIDIA/tacotron2, train.py, train and validate (2020)",
        note="Train loss STEP LOSS Grad Norm NORM TIMEs/it; the time begins behind the wait for the batch, so it is a part of the step",
        counter="exact",
    )
    for step in range(12):
        loss, norm, t = log.loss(step, 6, 43), log.around(12.3, 6), log.around(3.45, 2)
        if step == 10:
            log.line(
                "Validation loss 10: 31.121212  ",
                "Saving model and optimizer state at iteration 10 to outdir/checkpoint_10",
            )
            log.valid(10, val_loss=31.121212)
        log.line(f"Train loss {step} {loss:.6f} Grad Norm {norm:.6f} {t:.2f}s/it")
        log.row(step, loss=loss, grad_norm=norm)
    return log


@maker
def tortoise() -> Log:
    log = Log(
        "tortoise/dlas",
        "neonbjb/DL-Art-School, codes/train.py, Trainer.do_step (2022)",
        note="iteration_rate is the step's time in seconds; step: is the number as a float; of many losses one is loss_gpt_total",
    )
    now = clock("2026-03-02 09:14:07")
    for step in range(50, 501, 50):
        t = log.around(0.8121, 4)
        log.line(
            f"{now(41):%y-%m-%d %H:%M:%S}.112 - INFO: [epoch:{step // 200:3d}, iter:{step:8,d}, lr:(1.000e-05,1.000e-05,)] step: {step:.4e} samples: {step * 64:.4e} megasamples: {step * 64 / 1e6:.4e} iteration_rate: {t:.4e} loss_text_ce: {log.around(4.1):.4e} loss_mel_ce: {log.around(3.1):.4e} loss_gpt_total: {log.around(3.2):.4e} grad_scaler_scale: 1.0000e+00 "
        )
        log.row(step, lr=1e-5, step_time_s=[t, 41 / 50])
    log.derivable = {"step_time_s": 0.03}
    return log


@maker
def espnet1_json() -> Log:
    log = Log(
        "espnet/chainer_log",
        "espnet/espnet, Chainer's LogReport, exp/…/results/log (v.0.10)",
        note="a list of records; elapsed_time since the start; validation/main/loss is the validation's, only in some records",
        suffix="json",
    )
    records = []
    for index in range(1, 11):
        loss, val = log.loss(index, 12, 150), log.loss(index, 12, 140)
        record = {
            "main/loss": loss,
            "main/loss_ctc": loss + 1,
            "main/acc": 0.31,
            "epoch": index // 4,
            "iteration": index * 100,
            "elapsed_time": index * 31.5,
        }
        if index % 4 == 0:
            record |= {"validation/main/loss": val, "validation/main/acc": 0.33}
            log.valid(index * 100, val_loss=val)
        records.append(record)
        log.row(index * 100, loss=loss, step_time_s=0.315)
    log.raw(json.dumps(records, indent=4))
    log.derivable = {"step_time_s": 1e-3}
    return log


def _table(log: Log, rows: list[tuple[str, str]], width: int = 45) -> None:
    log.line("-" * width)
    for name, value in rows:
        log.line(f"| {name:<18} | {value:<{width - 25}} |")
    log.line("-" * width)


@maker
def spinup() -> Log:
    log = Log(
        "spinningup/console",
        "openai/spinningup, spinup/utils/logx.py, EpochLogger.dump_tabular (2020)",
        note="a table per epoch; Time is since the start; no step's time; two losses",
        counter="order",
    )
    for epoch in range(4):
        log.line("-" * 39)
        for name, value in (
            ("Epoch", epoch),
            ("AverageEpRet", log.around(21.2, 1)),
            ("StdEpRet", 11.1),
            ("EpLen", log.around(21.2, 1)),
            ("AverageVVals", 1.2),
            ("TotalEnvInteracts", (epoch + 1) * 4000),
            ("LossPi", -0.0121),
            ("LossV", log.around(212.1, 1)),
            ("KL", 0.0101),
            ("StopIter", 79),
            ("Time", round(4.12 * (epoch + 1), 2)),
        ):
            log.line(f"|  {name:>15} | {value:>15} |")
        log.line("-" * 39)
        log.row()
    return log


@maker
def spinup_progress() -> Log:
    log = Log(
        "spinningup/progress",
        "openai/spinningup, spinup/utils/logx.py, Logger.dump_tabular to progress.txt (2020)",
        note="a table with tabs; Time is since the start; TotalEnvInteracts counts steps of the environment",
        counter="order",
        suffix="txt",
    )
    names = [
        "Epoch",
        "AverageEpRet",
        "StdEpRet",
        "MaxEpRet",
        "MinEpRet",
        "EpLen",
        "AverageVVals",
        "TotalEnvInteracts",
        "LossPi",
        "LossV",
        "DeltaLossPi",
        "Entropy",
        "KL",
        "Time",
    ]
    log.line("\t".join(names))
    for epoch in range(8):
        log.line(
            "\t".join(
                str(value)
                for value in (
                    epoch,
                    log.around(21.2, 6),
                    11.1,
                    61.0,
                    9.0,
                    log.around(21.2, 6),
                    1.2,
                    (epoch + 1) * 4000,
                    log.around(-0.0121, 9),
                    log.around(212.1, 6),
                    -0.01,
                    0.68,
                    0.0101,
                    round(4.12 * (epoch + 1), 6),
                )
            )
        )
        log.row()
    return log


@maker
def sb3_by_source() -> Log:
    log = Log(
        "stable_baselines3/ppo_console",
        "DLR-RM/stable-baselines3, stable_baselines3/common/logger.py, HumanOutputFormat.write (2.3)",
        note="fps is the mean since the start, of the environment's steps; iterations counts roll-outs; time_elapsed since the start",
        counter="order",
    )
    for index in range(1, 5):
        loss = log.around(30.1, 1)
        log.line("-" * 41)
        log.line(
            "| rollout/                |             |",
            f"|    ep_len_mean          | {log.around(42, 1):<11} |",
            f"|    ep_rew_mean          | {log.around(42, 1):<11} |",
            "| time/                   |             |",
            f"|    fps                  | {round(log.around(1021, 0)):<11} |",
            f"|    iterations           | {index:<11} |",
            f"|    time_elapsed         | {index * 2:<11} |",
            f"|    total_timesteps      | {index * 2048:<11} |",
        )
        if index > 1:
            log.line(
                "| train/                  |             |",
                "|    approx_kl            | 0.009012121 |",
                "|    entropy_loss         | -0.661      |",
                "|    learning_rate        | 0.0003      |",
                f"|    loss                 | {loss:<11} |",
                f"|    n_updates            | {(index - 1) * 10:<11} |",
                "|    policy_gradient_loss | -0.0161     |",
                "|    value_loss           | 54.1        |",
            )
        log.line("-" * 41)
        log.row(loss=loss if index > 1 else None, lr=0.0003 if index > 1 else None, step_time_s=2.0)
    log.derivable = {"step_time_s": 1e-3}  # of an iteration, by time_elapsed
    return log


@maker
def sb3_csv() -> Log:
    log = Log(
        "stable_baselines3/progress",
        "DLR-RM/stable-baselines3, stable_baselines3/common/logger.py, CSVOutputFormat (2.3)",
        note="time/fps is the mean since the start; train/… is empty in the first row",
        counter="order",
        suffix="csv",
    )
    log.line(
        "time/fps,time/iterations,rollout/ep_len_mean,time/time_elapsed,rollout/ep_rew_mean,time/total_timesteps,train/loss,train/learning_rate,train/value_loss,train/n_updates"
    )
    for index in range(1, 9):
        loss = log.around(30.1, 6)
        tail = ",,," if index == 1 else f"{loss},0.0003,{log.around(54.1, 6)},{(index - 1) * 10}"
        log.line(
            f"{round(log.around(1021, 0))},{index},{log.around(42, 3)},{index * 2},{log.around(42, 3)},{index * 2048},{tail}"
        )
        log.row(loss=None if index == 1 else loss, lr=None if index == 1 else 0.0003, step_time_s=2.0)
    log.derivable = {"step_time_s": 1e-3}  # of an iteration, by time_elapsed
    return log


@maker
def rsl_rl() -> Log:
    log = Log(
        "rsl_rl/console",
        "leggedrobotics/rsl_rl, rsl_rl/runners/on_policy_runner.py, OnPolicyRunner.log (2.0)",
        note="Iteration time is the step's time (collection and learning); Total time since the start; steps/s are the environment's; total timesteps too",
    )
    total = 0.0
    for index in range(4):
        collection, learning = log.around(1.234, 3), log.around(0.312, 3)
        t = round(collection + learning, 2)
        total += t
        log.line(
            "#" * 80, f" \x1b[1m Learning iteration {index}/1500 \x1b[0m ".center(80), "",
            f"{'Computation:':>35} {98304 / t:.0f} steps/s (collection: {collection:.3f}s, learning {learning:.3f}s)",
            f"{'Value function loss:':>35} {log.around(0.0123):.4f}", f"{'Surrogate loss:':>35} {-0.0012:.4f}", f"{'Mean action noise std:':>35} {0.98:.2f}", f"{'Mean reward:':>35} {-1.21:.2f}", f"{'Mean episode length:':>35} {21.21:.2f}",
            "-" * 80, f"{'Total timesteps:':>35} {(index + 1) * 98304}", f"{'Iteration time:':>35} {t:.2f}s", f"{'Total time:':>35} {total:.2f}s", f"{'ETA:':>35} {t * 1500:.1f}s", "",
        )  # fmt: skip
        log.row(index, step_time_s=[t, round(collection + learning, 3)])
    log.derivable = {"step_time_s": 0.01}
    return log


@maker
def cleanrl() -> Log:
    log = Log(
        "cleanrl/ppo",
        "vwxyzjn/cleanrl, cleanrl/ppo.py (2024)",
        note="global_step counts the environment's steps; SPS is the mean since the start: no time, no loss",
        counter="order",
    )
    for index in range(1, 11):
        log.line(f"global_step={index * 412}, episodic_return=[{log.around(21, 0)}]")
        if index % 2:
            log.line(f"SPS: {round(log.around(1212, 0))}")
        log.row()
    return log


@maker
def tianshou() -> Log:
    log = Log(
        "tianshou/dqn",
        "thu-ml/tianshou, tianshou/trainer/base.py, and tqdm (1.1)",
        note="it counts the environment's steps, it/s too; Epoch #: test_reward is of the test",
        counter="order",
    )
    for epoch in range(1, 5):
        loss = log.loss(epoch, 3, 2)
        log.raw(
            f"\rEpoch #{epoch}: 10001it [00:{10 + epoch},  812.12it/s, env_episode=412, env_step={epoch * 10000}, gradient_step={epoch * 1000}, len=51, loss={loss:.3f}, n/ep=0, n/st=10, rew=51.00]                          \n"
        )
        log.line(
            f"Epoch #{epoch}: test_reward: {epoch * 21.0:.6f} ± 9.121212, best_reward: {epoch * 21.0:.6f} ± 9.121212 in #{epoch}"
        )
        log.row(loss=loss, step_time_s=1 / 812.12)
    log.derivable = {"step_time_s": 1e-3}  # of the steps that `it` counts
    return log


@maker
def rllib() -> Log:
    log = Log(
        "rllib/result",
        "ray-project/ray, python/ray/tune/logger/json.py, result.json (2.9)",
        note="nested; time_this_iter_s is the iteration's time, time_total_s since the start; timers are means; the loss is nested by policy",
        suffix="json",
    )
    for index in range(1, 8):
        t = log.around(6.212, 12)
        log.line(
            json.dumps(
                {
                    "info": {
                        "learner": {
                            "default_policy": {
                                "learner_stats": {
                                    "total_loss": log.around(8.1, 12),
                                    "policy_loss": -0.012,
                                    "cur_lr": 5e-05,
                                    "grad_gnorm": 1.2,
                                }
                            }
                        },
                        "num_env_steps_sampled": index * 4000,
                    },
                    "episode_reward_mean": log.around(21.1, 12),
                    "training_iteration": index,
                    "timesteps_total": index * 4000,
                    "time_this_iter_s": t,
                    "time_total_s": round(index * 6.2, 6),
                    "timestamp": 1772442847 + index * 6,
                    "timers": {
                        "training_iteration_time_ms": 6211.1,
                        "sample_time_ms": 2101.2,
                        "learn_time_ms": 4001.1,
                        "learn_throughput": 999.7,
                    },
                    "perf": {"cpu_util_percent": 41.2, "ram_util_percent": 12.1},
                    "iterations_since_restore": index,
                }
            )
        )
        log.row(index, step_time_s=t)
    log.derivable = {"step_time_s": 1e-4, "loss": 1e9, "lr": 1e-4, "grad_norm": 1e9}
    for row in log.rows:
        row["lr"] = 5e-5
    return log


@maker
def cyclegan() -> Log:
    log = Log(
        "cyclegan/loss_log",
        "junyanz/pytorch-CycleGAN-and-pix2pix, util/visualizer.py, print_current_losses, and train.py (2021)",
        note="time is the computation per image (divided by the batch), data the waiting for data: no step's time; iters counts the epoch's images; two networks' losses",
        counter="order",
        suffix="txt",
    )
    log.line("================ Training Loss (Mon Mar  2 09:14:07 2026) ================")
    for epoch in (1, 2):
        for iters in range(100, 601, 100):
            d = log.around(0.212, 3)
            log.line(
                f"(epoch: {epoch}, iters: {iters}, time: {log.around(0.121, 3):.3f}, data: {d:.3f}) D_A: {log.around(0.31, 3):.3f} G_A: {log.around(0.41, 3):.3f} cycle_A: {log.around(1.1, 3):.3f} idt_A: 0.512 D_B: 0.212 G_B: 0.412 cycle_B: 1.212 idt_B: 0.512 "
            )
            log.row(data_time=d)
        log.line(f"End of epoch {epoch} / 200 \t Time Taken: 123 sec")
    log.derivable = {"data_time": 1e-3}
    return log


@maker
def stylegan3() -> Log:
    log = Log(
        "stylegan3/log",
        "NVlabs/stylegan3, training/training_loop.py (2022)",
        note="tick, kimg: no step; time since the start; sec/tick and sec/kimg are of many steps; gpumem in GB; no loss",
        counter="order",
        suffix="txt",
    )
    for tick in range(10):
        log.line(
            f"tick {tick:<5d} kimg {tick * 4.0:<8.1f} time {f'{tick + 1}m {12 + tick:02d}s':<12s} sec/tick {log.around(71.2, 1):<7.1f} sec/kimg {log.around(17.8, 2):<7.2f} maintenance {log.around(4.1, 1):<6.1f} cpumem {3.21:<6.2f} gpumem {9.12:<6.2f} reserved {9.51:<6.2f} augment 0.000"
        )
        log.row(memory=[9.12, 9.51])
    log.derivable = {"memory": 1e-3}
    return log


@maker
def edm() -> Log:
    log = Log(
        "edm/log",
        "NVlabs/edm, training/training_loop.py (2022)",
        note="as StyleGAN3; no loss is printed, which is in stats.jsonl",
        counter="order",
        suffix="txt",
    )
    for tick in range(10):
        log.line(
            f"tick {tick:<5d} kimg {tick * 50.1:<9.1f} time {f'{tick + 1}m {12 + tick:02d}s':<12s} sec/tick {log.around(71.2, 1):<7.1f} sec/kimg {log.around(1.78, 2):<7.2f} maintenance {log.around(4.1, 1):<6.1f} cpumem {3.21:<6.2f} gpumem {9.12:<6.2f} reserved {9.51:<6.2f}"
        )
        log.row(memory=[9.12, 9.51])
    log.derivable = {"memory": 1e-3}
    return log


@maker
def dit() -> Log:
    log = Log(
        "dit/log",
        "facebookresearch/DiT, train.py (2023)",
        note="(step=0000100); Train Steps/Sec is the rate of the interval",
        suffix="txt",
    )
    now = clock()
    log.line(
        "[\x1b[34m2026-03-02 09:14:07\x1b[0m] Experiment directory created at results/000-DiT-XL-2",
        "[\x1b[34m2026-03-02 09:14:09\x1b[0m] DiT Parameters: 675,129,632",
        "[\x1b[34m2026-03-02 09:14:09\x1b[0m] Beginning epoch 0...",
    )
    for step in range(100, 1101, 100):
        rate, loss = log.around(3.21, 2), log.loss(step // 100, 4, 0.9)
        log.line(
            f"[\x1b[34m{now(100 / rate):%Y-%m-%d %H:%M:%S}\x1b[0m] (step={step:07d}) Train Loss: {loss:.4f}, Train Steps/Sec: {rate:.2f}"
        )
        log.row(step, loss=loss, step_time_s=1 / rate)
    log.derivable = {"step_time_s": 0.005}
    return log


@maker
def guided_diffusion() -> Log:
    log = Log(
        "guided_diffusion/console",
        "openai/guided-diffusion, guided_diffusion/logger.py, HumanOutputFormat.writekvs (2021)",
        note="a table per interval: means of the interval; loss_q0 to q3 are quarters of the noise levels",
    )
    for step in range(0, 41, 10):
        loss, norm = log.loss(step // 10, 3, 0.9), log.around(0.121, 3)
        rows = [
            ("grad_norm", f"{norm:.3g}"),
            ("loss", f"{loss:.3g}"),
            ("loss_q0", f"{loss * 1.5:.3g}"),
            ("loss_q3", f"{loss / 3:.3g}"),
            ("mse", f"{loss:.3g}"),
            ("param_norm", "302"),
            ("samples", f"{(step + 1) * 256:.3g}"),
            ("step", f"{step}"),
        ]
        log.line("-" * 26)
        log.line(*[f"| {name:<10} | {value:<9} |" for name, value in rows])
        log.line("-" * 26)
        log.row(step, loss=float(f"{loss:.3g}"), grad_norm=float(f"{norm:.3g}"))
    return log


@maker
def guided_diffusion_csv() -> Log:
    log = Log(
        "guided_diffusion/progress",
        "openai/guided-diffusion, guided_diffusion/logger.py, CSVOutputFormat (2021)",
        note="columns in alphabetical order: step is the last",
        suffix="csv",
    )
    log.line("grad_norm,loss,loss_q0,loss_q1,loss_q2,loss_q3,mse,param_norm,samples,step")
    for step in range(0, 101, 10):
        loss, norm = log.loss(step // 10, 12, 0.9), log.around(0.121, 12)
        log.line(f"{norm},{loss},{loss * 1.5},{loss},{loss / 2},{loss / 3},{loss},302.1,{(step + 1) * 256},{step}")
        log.row(step, loss=loss, grad_norm=norm)
    return log


@maker
def kohya() -> Log:
    log = Log(
        "kohya/train_network",
        "kohya-ss/sd-scripts, train_network.py, progress_bar.set_postfix (0.8)",
        note="a bar rewritten with \\r; avr_loss is a moving mean over the epoch, not the step's loss; s/it is smoothed",
    )
    log.line(
        "running training / 学習開始",
        "  num train images * repeats / 学習画像の数×繰り返し回数: 400",
        "  num epochs / epoch数: 4",
        "  batch size per device / バッチサイズ: 1",
        "  gradient accumulation steps / 勾配を合計するステップ数 = 1",
        "  total optimization steps / 学習ステップ数: 1600",
        "steps:   0%|          | 0/1600 [00:00<?, ?it/s]",
        "epoch 1/4",
    )
    for step in range(1, 21):
        log.raw(
            f"\rsteps:   {step // 16}%|{bar(step, 1600)}| {step}/1600 [{ms(step * 1.7)}<{ms((1600 - step) * 1.7)},  1.70s/it, avr_loss={log.around(0.12, 3):.3g}]"
        )
        log.row(step, step_time_s=1.7)
    log.raw("\n")
    log.derivable = {"step_time_s": 0.05}
    return log


@maker
def diffusers_example() -> Log:
    log = Log(
        "diffusers/text_to_image",
        "huggingface/diffusers, examples/text_to_image/train_text_to_image.py, progress_bar.set_postfix (0.31)",
        note="a bar rewritten with \\r; step_loss is the step's loss",
    )
    log.line(
        "03/02/2026 09:14:07 - INFO - __main__ - ***** Running training *****",
        "03/02/2026 09:14:07 - INFO - __main__ -   Num examples = 833",
        "03/02/2026 09:14:07 - INFO - __main__ -   Num Epochs = 72",
        "03/02/2026 09:14:07 - INFO - __main__ -   Total train batch size (w. parallel, distributed & accumulation) = 4",
        "03/02/2026 09:14:07 - INFO - __main__ -   Total optimization steps = 15000",
    )
    log.raw("Steps:   0%|          | 0/15000 [00:00<?, ?it/s]")
    for step in range(1, 16):
        loss = log.around(0.12, 3)
        log.raw(
            f"\rSteps:   0%|{bar(step, 15000)}| {step}/15000 [{ms(step / 1.3)}<{ms((15000 - step) / 1.3)},  1.30it/s, lr=1e-5, step_loss={loss:.3g}]"
        )
        log.row(step, loss=loss, lr=1e-5, step_time_s=1 / 1.3)
    log.raw("\n")
    log.derivable = {"step_time_s": 0.02, "loss": 1e-4}
    return log


@maker
def nerfstudio() -> Log:
    log = Log(
        "nerfstudio/console",
        "nerfstudio-project/nerfstudio, nerfstudio/utils/writer.py, LocalWriter (1.1)",
        note="a table without separators: step (share), the step's time, ETA, rays/s",
    )
    log.line("Step (% Done)       Train Iter (time)    ETA (time)           Train Rays / Sec    ", "-" * 80)
    for step in range(10, 121, 10):
        t = log.around(41.212, 3)
        log.line(f"{f'{step} ({step / 300:.2f}%)':<20}{f'{t:.3f} ms':<21}{'20 m, 12 s':<21}{'98.21 K':<20}")
        log.row(step, step_time_s=t / 1000)
    return log


@maker
def open_clip() -> Log:
    log = Log(
        "open_clip/train",
        "mlfoundations/open_clip, src/open_clip_train/train.py, train_one_epoch (2.24)",
        note="the counter is of samples; Data (t) and Batch (t) are means of the interval; Loss: value (average); /s is of all GPUs, /s/gpu of one; Eval lines",
        counter="order",
    )
    now = clock()
    for index in range(10):
        d, t, loss, lr = log.around(0.012, 3), log.around(0.456, 3), log.loss(index, 4, 5.6), round(1e-6 * index, 6)
        rate = 256 * 8 / t
        log.line(
            f"{now(45):%Y-%m-%d,%H:%M:%S} | INFO | Train Epoch: 0 [{(index * 100 + 1) * 2048:>8}/12800000 ({index * 1.6:.0f}%)] Data (t): {d:.3f} Batch (t): {t:.3f}, {rate:#g}/s, {rate / 8:#g}/s/gpu LR: {lr:5f} Logit Scale: 14.286 Contrastive_loss: {loss:#.5g} ({loss + 0.01:#.5g}) Loss: {loss:#.5g} ({loss + 0.01:#.5g})"
        )
        log.row(loss=float(f"{loss:#.5g}"), lr=lr, step_time_s=t, data_time=d, throughput=float(f"{rate:#g}"))
    log.line(
        f"{now(45):%Y-%m-%d,%H:%M:%S} | INFO | Eval Epoch: 1 [256 / 5000]\tClip Loss: 4.812121\t",
        f"{now(5):%Y-%m-%d,%H:%M:%S} | INFO | Eval Epoch: 1 image_to_text_mean_rank: 812.1212\tclip_val_loss: 4.7121\tepoch: 1.0000\tnum_samples: 5000.0000",
    )
    log.valid(val_loss=4.7121)
    log.derivable = {"throughput": 1e-3}
    return log


@maker
def nnunet() -> Log:
    log = Log(
        "nnunet/training_log",
        "MIC-DKFZ/nnUNet, nnunetv2/training/nnUNetTrainer/nnUNetTrainer.py, on_epoch_end (2.5)",
        note="records of several lines; Epoch time is the epoch's; the loss is negative",
        counter="order",
        suffix="txt",
    )
    now = clock()
    for epoch in range(5):
        loss, val, lr = (
            round(-0.1 - 0.1 * epoch, 4),
            round(-0.12 - 0.09 * epoch, 4),
            round(0.01 * (1 - epoch / 1000) ** 0.9, 5),
        )
        stamp = f"{now(120):%Y-%m-%d %H:%M:%S}.112121"
        log.line(
            f"{stamp}:  ",
            f"{stamp}: Epoch {epoch} ",
            f"{stamp}: Current learning rate: {lr} ",
            f"{stamp}: train_loss {loss} ",
            f"{stamp}: val_loss {val} ",
            f"{stamp}: Pseudo dice [np.float32(0.5121), np.float32(0.4121)] ",
            f"{stamp}: Epoch time: {log.around(121.2, 2)} s ",
        )
        log.row(epoch, loss=loss, lr=lr)
        log.valid(val_loss=val)
    return log


@maker
def monai() -> Log:
    log = Log(
        "monai/spleen",
        "Project-MONAI/tutorials, 3d_segmentation/spleen_segmentation_3d.ipynb (1.3)",
        note="step/steps of the epoch, then the loss of the step; then the mean of the epoch",
        counter="relative",
    )
    for epoch in (1, 2):
        log.line("----------", f"epoch {epoch}/600")
        for step in range(1, 9):
            loss = log.around(0.61)
            log.line(f"{step}/8, train_loss: {loss:.4f}")
            log.row((epoch - 1) * 8 + step, loss=loss)
        log.line(f"epoch {epoch} average loss: {log.around(0.61):.4f}")
    log.line("current epoch: 2 current mean dice: 0.0512", "best mean dice: 0.0512 at epoch: 2")
    log.counter = "order"
    return log


@maker
def gluon() -> Log:
    log = Log(
        "gluoncv/imagenet",
        "dmlc/gluon-cv, scripts/classification/imagenet/train_imagenet.py (0.10)",
        note="Speed is samples/s of the interval; [Epoch] training: and validation: are of the epoch",
        counter="relative",
    )
    now = clock()
    for epoch in range(2):
        for batch in range(49, 300, 50):
            rate = log.around(1231.21, 6)
            log.line(
                f"{now(40):%Y-%m-%d %H:%M:%S},112 INFO: Epoch[{epoch}] Batch [{batch}]\tSpeed: {rate:f} samples/sec\taccuracy=0.012121\tlr=0.100000"
            )
            log.row(epoch * 300 + batch, throughput=rate, lr=0.1)
        log.line(
            f"[Epoch {epoch}] training: accuracy=0.112121",
            f"[Epoch {epoch}] speed: 1211 samples/sec\ttime cost: 1041.121212",
            f"[Epoch {epoch}] validation: err-top1=0.812121 err-top5=0.612121",
        )
    log.counter = "order"
    return log
