"""A second round of logs, written before any of them was read."""

# ruff: noqa: E501 (the lines of a log are long)

from __future__ import annotations

import json

from writing import Log, bar, clock, hms, maker, ms


@maker
def pytorch_cifar() -> Log:
    log = Log(
        "pytorch_cifar/main",
        "kuangliu/pytorch-cifar, main.py and utils.py, progress_bar (2021)",
        note="Loss is the mean of the epoch so far; 'Step: 21ms' is a time; Tot is since the start of the epoch; the bar of the test is the same",
        counter="order",
    )
    for epoch in range(2):
        log.line("", f"Epoch: {epoch}")
        for it in range(1, 9):
            t = int(log.around(61, 0))
            log.raw(
                f" [{'=' * it}>{'.' * (64 - it)}]  Step: {t}ms | Tot: {it * 61}ms | Loss: {log.loss(epoch * 8 + it, 3, 2.3):.3f} | Acc: {10 + it}.{it}23% ({it * 14}/{it * 128}) {it}/391 \r"
            )
            log.row(step_time_s=t / 1000)
        log.line("")
        log.raw(
            " [================================================================>]  Step: 12ms | Tot: 2s112ms | Loss: 1.912 | Acc: 31.210% (3121/10000) 100/100 \n"
        )
    return log


@maker
def pytorch_cifar100() -> Log:
    log = Log(
        "pytorch_cifar/cifar100",
        "weiaicunzai/pytorch-cifar100, train.py, train and eval_training (2021)",
        note="the counter is of samples of the epoch; the line of the epoch has its time; 'Test set' has the validation's loss",
        counter="order",
    )
    for epoch in (1, 2):
        for it in range(1, 7):
            loss = log.loss(epoch * 6 + it, 4, 4.6)
            log.line(f"Training Epoch: {epoch} [{it * 128}/50000]\tLoss: {loss:0.4f}\tLR: {0.1:0.6f}")
            log.row(loss=loss, lr=0.1)
        val = round(log.loss(epoch, 4, 4.2) / 128, 4)
        log.line(
            f"epoch {epoch} training time consumed: 31.21s",
            "Evaluating Network.....",
            f"Test set: Epoch: {epoch}, Average loss: {val:.4f}, Accuracy: 0.0612, Time consumed:3.21s",
            "",
        )
        log.valid(val_loss=val)
    return log


@maker
def cifar10_fast() -> Log:
    log = Log(
        "cifar10_fast/table",
        "davidcpage/cifar10-fast, core.py, TableLogger (2019)",
        note="a table aligned to the right; names of two words; times of epochs and since the start",
        counter="exact",
    )
    names = ["epoch", "lr", "train time", "train loss", "train acc", "test time", "test loss", "test acc", "total time"]
    log.line(" ".join(f"{name:>12s}" for name in names))
    total = 0.0
    for epoch in range(1, 9):
        t, loss, val, lr = log.around(3.12), log.loss(epoch, 4, 1.9), log.loss(epoch, 4, 1.7), 0.08 * epoch
        total += t
        log.line(" ".join([f"{epoch:12}", *(f"{number:12.4f}" for number in (lr, t, loss, 0.4, 0.2, val, 0.5, total))]))
        log.row(epoch, loss=loss, lr=round(lr, 4))
        log.valid(epoch, val_loss=val)
    return log


@maker
def hlb_cifar10() -> Log:
    log = Log(
        "hlb_cifar10/table",
        "tysam-code/hlb-CIFAR10, main.py, print_training_details (2023)",
        note="a table of |; total_time_seconds is since the start, without the validation",
    )
    log.line(
        "-" * 60,
        "|  epoch  |  train_loss  |  val_loss  |  train_acc  |  val_acc  |  ema_val_acc  |  total_time_seconds  |",
        "-" * 60,
    )
    for epoch in range(8):
        loss, val = log.loss(epoch, 4, 1.9), log.loss(epoch, 4, 1.7)
        log.line(
            f"|  {epoch:5d}  |  {loss:10.4f}  |  {val:8.4f}  |  {0.4:9.4f}  |  {0.5:7.4f}  |  {'':>11}  |  {epoch * 1.8 + 1.7:18.4f}  |"
        )
        log.row(epoch, loss=loss)
        log.valid(epoch, val_loss=val)
    return log


@maker
def bearpaw_bar() -> Log:
    log = Log(
        "pytorch_classification/bar",
        "bearpaw/pytorch-classification, cifar.py, train, with progress.bar (2018)",
        note="Data, Batch and Loss are means of the epoch so far",
        counter="order",
    )
    for epoch in (1, 2):
        log.line("", f"Epoch: [{epoch} | 164] LR: 0.100000")
        for it in range(1, 7):
            log.raw(
                f"\rProcessing |{'#' * it}{' ' * (32 - it)}| ({it}/391) Data: {0.01 / it:.3f}s | Batch: {0.2 / it:.3f}s | Total: 0:00:0{it} | ETA: 0:00:31 | Loss: {log.loss(it, 4, 4.6):.4f} | top1:  1.5625 | top5:  6.2500"
            )
        log.line("")
        log.row(lr=0.1)
    log.derivable = {"lr": 1e-4}
    return log


@maker
def bearpaw_table() -> Log:
    log = Log(
        "pytorch_classification/log",
        "bearpaw/pytorch-classification, utils/logger.py, Logger (2018)",
        note="tabs; names of two words; a record per epoch without a counter",
        counter="order",
        suffix="txt",
    )
    log.line("Learning Rate\tTrain Loss\tValid Loss\tTrain Acc.\tValid Acc.\t")
    for epoch in range(8):
        loss, val = log.loss(epoch, 6, 4.2), log.loss(epoch, 6, 4.0)
        log.line(f"{0.1:.6f}\t{loss:.6f}\t{val:.6f}\t{12.1:.6f}\t{13.2:.6f}\t")
        log.row(loss=loss, lr=0.1)
        log.valid(val_loss=val)
    return log


@maker
def apex_imagenet() -> Log:
    log = Log(
        "apex/imagenet",
        "NVIDIA/apex, examples/imagenet/main_amp.py, train (2022)",
        note="value (mean): Time of the interval, Speed in images per second, Loss",
        counter="relative",
    )
    for epoch in range(2):
        for it in range(10, 70, 10):
            t, speed, loss = log.around(0.512, 3), log.around(2000.1, 3), log.loss(it / 10, 10, 7)
            log.line(
                f"Epoch: [{epoch}][{it}/1251]\tTime {t:.3f} ({t + 0.1:.3f})\tSpeed {speed:.3f} ({speed - 200:.3f})\tLoss {loss:.10f} ({loss + 0.1:.4f})\tPrec@1 0.098 (0.101)\tPrec@5 0.391 (0.412)"
            )
            log.row(epoch * 1251 + it, step_time_s=t, throughput=speed, loss=loss)
    log.derivable = {"throughput": 1e-4}
    return log


@maker
def centernet() -> Log:
    log = Log(
        "centernet/train",
        "xingyizhou/CenterNet, src/lib/trains/base_trainer.py, run_epoch (2019)",
        note="all losses and Net are means of the epoch so far; Data value(mean); the epoch's line in log.txt has its mean",
        counter="relative",
    )
    for epoch in (1, 2):
        for it in range(0, 60, 10):
            d = log.around(0.012, 3)
            log.raw(
                f"\rctdet/coco_dla |#####                           | train: [{epoch}][{it}/1000]|Tot: 0:00:{it // 2:02d} |ETA: 0:12:03 |loss {log.loss(it / 10, 4, 9):.4f} |hm_loss 6.1231 |wh_loss 12.1231 |off_loss 0.3121 |Data {d:.3f}s({d + 0.01:.3f}s) |Net 0.312s"
            )
            log.row((epoch - 1) * 1000 + it, data_time=d)
        log.line("")
    log.derivable = {"data_time": 1e-4}
    return log


@maker
def kaggle_elapsed() -> Log:
    log = Log(
        "loops/kaggle",
        "a loop that many notebooks of Kaggle copy: train_fn, valid_fn and asMinutes (2021)",
        note="Elapsed 0m 31s is since the start of the epoch; Loss: value(mean); EVAL has losses of batches and their mean; avg_train_loss and the time are of the epoch",
        counter="relative",
    )
    for epoch in (1, 2):
        for it in range(0, 600, 100):
            loss, lr = log.loss(it / 100, 4, 0.7), 0.00002
            log.line(
                f"Epoch: [{epoch}][{it}/600] Elapsed {it * 31 // 6000}m {it * 31 // 100 % 60}s (remain 2m {50 - it // 20}s) Loss: {loss:.4f}({loss + 0.05:.4f}) Grad: {log.around(1.2):.4f}  LR: {lr:.8f}  "
            )
            log.row((epoch - 1) * 600 + it, loss=loss, lr=lr, step_time_s=0.31)
        for it in (0, 100):
            log.line(
                f"EVAL: [{it}/101] Elapsed 0m {it // 10}s (remain 0m {12 - it // 10}s) Loss: {log.loss(9, 4, 0.7):.4f}(0.5512) "
            )
        log.line(
            f"Epoch {epoch} - avg_train_loss: 0.6012  avg_val_loss: 0.551{epoch}  time: 312s",
            f"Epoch {epoch} - Score: 0.7121",
        )
        log.valid(val_loss=round(0.551 + epoch / 10000, 4))
    log.derivable = {"val_loss": 1e9, "step_time_s": 0.04}
    return log


@maker
def dlrm() -> Log:
    log = Log(
        "dlrm/train",
        "facebookresearch/dlrm, dlrm_s_pytorch.py, run (2022)",
        note="ms/it and loss are means of the interval; the counter stands in the sentence; Testing at - has no loss",
    )
    for it in range(1024, 11 * 1024, 1024):
        t, loss = log.around(12.34, 2), log.around(0.51, 6)
        log.line(f"Finished training it {it}/306969 of epoch 0, {t:.2f} ms/it, loss {loss:.6f}")
        log.row(it, loss=loss, step_time_s=t / 1000)
        if it == 5120:
            log.line(f"Testing at - {it}/306969 of epoch 0,", " accuracy 78.123 %, best 78.123 %")
    return log


@maker
def hugectr() -> Log:
    log = Log(
        "hugectr/train",
        "NVIDIA-Merlin/HugeCTR, HugeCTR/src/pybind/model.cpp, Model::fit (23.x)",
        note="the time is that of 1000 iterations; AUC of the evaluation",
    )
    for it in range(1000, 11000, 1000):
        loss, lr = log.around(0.1423, 6), 0.001
        log.line(
            f"[HCTR][09:14:{it // 1000 + 7:02d}.123][INFO][RK0][main]: Iter: {it} Time(1000 iters): {log.around(11.2, 5):.5f}s Loss: {loss} lr:{lr}"
        )
        log.row(it, loss=loss, lr=lr)
        if it == 5000:
            log.line(
                "[HCTR][09:14:13.123][INFO][RK0][main]: Evaluation, AUC: 0.712312",
                "[HCTR][09:14:13.124][INFO][RK0][main]: Eval Time for 300 iters: 0.21231s",
            )
    log.derivable = {"step_time_s": 1e9}
    return log


@maker
def tf1_tutorial() -> Log:
    log = Log(
        "tensorflow1/cifar10",
        "tensorflow/models, tutorials/image/cifar10/cifar10_train.py, _LoggerHook (2018)",
        note="the rate and the time in parentheses are of the interval",
    )
    now = clock()
    for step in range(0, 120, 10):
        loss, rate, t = log.loss(step / 10, 2, 4.6), log.around(1234.5, 1), log.around(0.104, 3)
        log.line(
            f"{now(1):%Y-%m-%d %H:%M:%S}.112345: step {step}, loss = {loss:.2f} ({rate:.1f} examples/sec; {t:.3f} sec/batch)"
        )
        log.row(step, loss=loss, throughput=rate, step_time_s=t)
    log.derivable = {"throughput": 1e-4, "step_time_s": 1e-4}
    return log


@maker
def tf_slim() -> Log:
    log = Log(
        "tensorflow1/slim",
        "google-research/tf-slim, tf_slim/learning.py, train_step (1.1)",
        note="the time in parentheses is the step's; global_step/sec is of the supervisor",
    )
    for step in range(10, 130, 10):
        loss, t = log.loss(step / 10, 4, 2.3), log.around(0.123, 3)
        log.line(f"INFO:tensorflow:global step {step}: loss = {loss:.4f} ({t:.3f} sec/step)")
        log.row(step, loss=loss, step_time_s=t)
        if step == 60:
            log.line("INFO:tensorflow:global_step/sec: 7.9121", "INFO:tensorflow:Recording summary at step 60.")
    log.derivable = {"step_time_s": 1e-4, "steps_per_s": 1e9}
    return log


@maker
def tf_object_detection() -> Log:
    log = Log(
        "tf_models/object_detection",
        "tensorflow/models, research/object_detection/model_lib_v2.py, train_loop (2.8)",
        note="the time of a step in a line, then a dictionary of several lines; total_loss is the sum with the regularization",
    )
    for step in range(100, 1100, 100):
        t, loss = log.around(0.523, 3), log.loss(step / 100, 6, 1.9)
        log.line(
            f"INFO:tensorflow:Step {step} per-step time {t:.3f}s",
            f"I0302 09:14:{step // 100:02d}.112345 140121 model_lib_v2.py:705] Step {step} per-step time {t:.3f}s",
            f"INFO:tensorflow:{{'Loss/classification_loss': {loss * 0.6:.7f},",
            f" 'Loss/localization_loss': {loss * 0.3:.7f},",
            f" 'Loss/regularization_loss': {loss * 0.1:.7f},",
            f" 'Loss/total_loss': {loss},",
            " 'learning_rate': 0.0373333}",
        )
        log.row(step, step_time_s=t, loss=loss, lr=0.0373333)
    log.derivable = {"lr": 1e-4}
    return log


@maker
def easylm() -> Log:
    log = Log(
        "easylm/train",
        "young-geng/EasyLM, EasyLM/models/llama/llama_train.py: tqdm.write of pprint (2023)",
        note="a dictionary of several lines per record, beside a bar",
    )
    for step in range(0, 500, 50):
        loss, grad = log.loss(step / 50, 6, 10.4), log.around(1.2, 6)
        log.raw(f"\r  {step / 2500:.0%}|{bar(step, 250000)}| {step}/250000 [01:02<91:12:03,  1.31s/it]")
        log.line(
            "",
            f"{{'accuracy': 0.0{step + 121},",
            f" 'gradient_norm': {grad},",
            " 'learning_rate': 0.0003,",
            f" 'loss': {loss},",
            " 'param_norm': 312.1,",
            f" 'step': {step}}}",
            "",
        )
        log.row(step, loss=loss, grad_norm=grad, lr=3e-4)
    log.derivable = {"step_time_s": 1e9, "steps_per_s": 1e9}
    return log


@maker
def flax_examples() -> Log:
    log = Log(
        "transformers/flax",
        "huggingface/transformers, examples/flax/language-modeling/run_clm_flax.py (4.40)",
        note="Step... (N | Loss: …): the counter after dots and a parenthesis; Eval lines have the same form",
    )
    for step in range(500, 6500, 500):
        loss, lr = log.loss(step / 500, 6, 9), round(5e-5 * (1 - step / 10000), 10)
        log.line(f"Step... ({step} | Loss: {loss}, Learning Rate: {lr})")
        log.row(step, loss=loss, lr=lr)
        if step % 2500 == 0:
            log.line(f"Step... ({step} | Eval Loss: {loss + 0.1:.6f} | Eval Perplexity: 12.1)")
            log.valid(step, val_loss=round(loss + 0.1, 6))
    return log


@maker
def acme() -> Log:
    log = Log(
        "acme/learner",
        "google-deepmind/acme, acme/utils/loggers/terminal.py (0.4)",
        note="[Learner] and [Actor] lines have counters of their own; Steps Per Second of the actor are of the environment",
        counter="order",
    )
    for index in range(1, 9):
        loss = log.around(0.12, 3)
        log.line(
            f"[Learner] Critic Loss = {loss:.3f} | Learner Steps = {index * 100} | Learner Walltime = {index * 12.3:.3f} | Policy Loss = {log.around(0.31, 3):.3f}",
            f"[Actor] Actor Episodes = {index} | Actor Steps = {index * 1000} | Episode Length = 1000 | Episode Return = {log.around(112.1, 3):.3f} | Steps Per Second = {log.around(81.2, 3):.3f}",
        )
        log.row(index * 100)
    return log


@maker
def deepmd() -> Log:
    log = Log(
        "deepmd/console",
        "deepmodeling/deepmd-kit, deepmd/pt/train/training.py and loggers/training.py, format_training_message (3.0)",
        note="trn: is training, val: validation; rmse is no loss; total wall time is that of the interval",
        counter="exact",
    )
    for batch in range(100, 1100, 100):
        lr, wall = 1e-3, log.around(5.23, 2)
        log.line(
            f"[2026-03-02 09:14:07,112] DEEPMD INFO    batch {batch:7d}: trn: rmse = {log.around(12.1, 2):8.2e}, rmse_e = 1.1e-01, rmse_f = 4.1e-01, lr = {lr:8.2e}",
            f"[2026-03-02 09:14:07,113] DEEPMD INFO    batch {batch:7d}: val: rmse = {log.around(13.1, 2):8.2e}, rmse_e = 1.2e-01, rmse_f = 4.3e-01",
            f"[2026-03-02 09:14:07,114] DEEPMD INFO    batch {batch:7d}: total wall time = {wall:.2f} s",
        )
        log.row(batch, lr=lr)
    return log


@maker
def deepmd_lcurve() -> Log:
    log = Log(
        "deepmd/lcurve",
        "deepmodeling/deepmd-kit, lcurve.out (3.0)",
        note="a table whose header begins with #; no loss, only errors and the learning rate",
        suffix="out",
    )
    log.line("#  step      rmse_val    rmse_trn    rmse_e_val  rmse_e_trn    rmse_f_val  rmse_f_trn         lr")
    for step in range(0, 1000, 100):
        log.line(
            f"{step:7d}      {log.around(16.1, 2):.2e}    {log.around(15.1, 2):.2e}      1.52e+00    1.41e+00      5.12e-01    5.03e-01    1.0e-03"
        )
        log.row(step, lr=1e-3)
    return log


@maker
def modelscope() -> Log:
    log = Log(
        "modelscope/trainer",
        "modelscope/modelscope, modelscope/trainers/hooks/logger/text_logger_hook.py (1.10)",
        note="epoch [1][10/100]; memory in MB; iter_time and data_load_time of the interval",
        counter="relative",
    )
    now = clock()
    for epoch in (1, 2):
        for it in range(10, 70, 10):
            loss, t, d = log.loss(it / 10, 4, 2.1), log.around(0.512, 3), log.around(0.012, 3)
            log.line(
                f"{now(5):%Y-%m-%d %H:%M:%S},112 - modelscope - INFO - epoch [{epoch}][{it}/100]\tlr: 1.000e-05, eta: 0:12:03, iter_time: {t:.3f}, data_load_time: {d:.3f}, memory: 1234, loss: {loss:.4f}"
            )
            log.row((epoch - 1) * 100 + it, loss=loss, step_time_s=t, data_time=d, lr=1e-5, memory=1234 / 1024)
        log.line(
            f"{now(5):%Y-%m-%d %H:%M:%S},112 - modelscope - INFO - epoch(eval) [{epoch}][25]\tmemory: 1234, evaluation/accuracy: 0.7, loss: 1.2{epoch}12"
        )
        log.valid(val_loss=round(1.2 + epoch / 100 + 0.0012, 4))
    return log


@maker
def funasr() -> Log:
    log = Log(
        "funasr/train",
        "modelscope/FunASR, funasr/train_utils/trainer.py, log (1.1)",
        note="many counters: total step is the run's; losses are means over ranks and slices; total_time in a dictionary is the step's; peak is the memory",
    )
    for step in range(10, 110, 10):
        loss, total = log.loss(step / 10, 3, 4), log.around(0.61, 3)
        log.line(
            f"[2026-03-02 09:14:{step // 2:02d},112][root][INFO] - train, rank: 0, epoch: 0/50, data_slice: 0/1, step_in_slice: {step}/1000, step_in_epoch: {step}, total step: {step}, "
            f"(loss_avg_rank: {loss:.3f}), (loss_avg_slice: {loss + 0.1:.3f}), (ppl_avg_slice: 8.12e+00), (acc_avg_slice: 0.312), (lr: 1.000e-05), [('loss', {loss:.3f}), ('acc', 0.31)], "
            f"{{'data_load': '0.012', 'forward_time': '0.312', 'backward_time': '0.201', 'optim_time': '0.051', 'total_time': '{total:.3f}'}}, GPU, memory: usable: 1.212 GB, peak: 3.412 GB, cache: 5.121 GB, cache_peak: 5.121 GB"
        )
        log.row(step, rank=0, loss=loss, step_time_s=total, lr=1e-5)
    log.derivable = {"loss": 1e-3, "step_time_s": 1e-3, "lr": 1e-4, "memory": 1e9, "data_time": 1e9}
    return log


@maker
def paddlespeech() -> Log:
    log = Log(
        "paddlespeech/tts",
        "PaddlePaddle/PaddleSpeech, paddlespeech/t2s/training/updaters and reporter (2022)",
        note="avg_* are means of the interval; several losses of two networks",
    )
    now = clock()
    for it in range(10, 110, 10):
        reader, cost, ips = log.around(0.0012, 5), log.around(0.512, 5), log.around(16.1, 5)
        log.line(
            f"[{now(5):%Y-%m-%d %H:%M:%S},112] [    INFO] [trainer.py:167] - iter: {it}/350000, Rank: 0, epoch: 0, generator/generator_loss: 1.21, generator/mel_loss: 0.91, discriminator/dis_loss: 0.41, "
            f"avg_reader_cost: {reader:.5f} sec, avg_batch_cost: {cost:.5f} sec, avg_samples: 8, avg_ips: {ips:.5f} sequences/sec"
        )
        log.row(it, rank=0, data_time=reader, step_time_s=cost, throughput=ips)
    log.derivable = {"data_time": 1e-3, "step_time_s": 1e-3, "throughput": 1e-3}
    return log


@maker
def ffcv() -> Log:
    log = Log(
        "ffcv/log",
        "libffcv/ffcv-imagenet, train_imagenet.py, ImageNetTrainer.log (2023)",
        note="relative_time is since the start; val_time is of the validation; a record per epoch",
        suffix="jsonl",
    )
    for epoch in range(8):
        loss = log.loss(epoch, 6, 6.5)
        log.line(
            json.dumps(
                {
                    "timestamp": 1772442847.1 + epoch * 91.2,
                    "relative_time": 91.2 * (epoch + 1),
                    "current_lr": 0.5,
                    "top_1": 0.1 + epoch / 20,
                    "top_5": 0.3,
                    "val_time": 6.1,
                    "train_loss": loss,
                    "epoch": epoch,
                }
            )
        )
        log.row(epoch, loss=loss, lr=0.5)
    return log


@maker
def mace() -> Log:
    log = Log(
        "mace/train",
        "ACEsuit/mace, mace/tools/train.py, valid_err_log (0.3)",
        note="loss of the console is that of the validation; MAE in meV",
        counter="order",
    )
    now = clock()
    for epoch in range(8):
        val = log.loss(epoch, 8, 0.31)
        log.line(
            f"{now(31):%Y-%m-%d %H:%M:%S}.112 INFO: Epoch {epoch}: head: Default, loss={val:8.8f}, MAE_E_per_atom={log.around(12.1, 2):8.2f} meV, MAE_F={log.around(45.1, 2):8.2f} meV / A"
        )
        log.row(epoch)
        log.valid(epoch, val_loss=val)
    return log


@maker
def openseq2seq() -> Log:
    log = Log(
        "openseq2seq/train",
        "NVIDIA/OpenSeq2Seq, open_seq2seq/utils/hooks.py, PrintLossAndTimeHook (2019)",
        note="a record of two lines; time per step as a clock with fractions",
    )
    for step in range(0, 1000, 100):
        loss, t = log.loss(step / 100, 4, 7), log.around(0.512, 3)
        log.line(
            f"*** Epoch 0, global step {step}: ******** time per step = 0:00:00.{int(t * 1000):03d}",
            f"*** Train loss: {loss:.4f} ",
        )
        log.row(step, loss=loss, step_time_s=int(t * 1000) / 1000)
    return log


@maker
def deepspeed_monitor() -> Log:
    log = Log(
        "deepspeed/monitor",
        "microsoft/DeepSpeed, deepspeed/monitor/csv_monitor.py (0.14): Train_Samples_train_loss.csv",
        note="the column step counts samples",
        counter="order",
        suffix="csv",
    )
    log.line("step,Train/Samples/train_loss")
    for index in range(1, 13):
        loss = log.loss(index, 6, 9)
        log.line(f"{index * 2560},{loss}")
        log.row(loss=loss)
    return log


@maker
def mlflow_export() -> Log:
    log = Log(
        "loops/long_table",
        "metrics of MLflow in a table of one value per row: key, value, step, timestamp",
        note="the column value holds losses, learning rates and times",
        suffix="csv",
    )
    log.line("run_uuid,key,value,timestamp,step,is_nan")
    for step in range(0, 60, 10):
        loss = log.loss(step / 10)
        for key, value in (("loss", loss), ("lr", 1e-4), ("val_loss", loss + 0.2)):
            log.line(f"8f1c2d,{key},{value},{1772442847123 + step * 231},{step},0")
        log.row(step, loss=loss, lr=1e-4)
        log.valid(step, val_loss=loss + 0.2)
    return log


@maker
def tensor_repr() -> Log:
    log = Log(
        "loops/tensor_repr", "a loop that prints tensors as they are", note="device='cuda:0' and grad_fn hold digits"
    )
    for step in range(10, 130, 10):
        loss, norm = log.loss(step / 10), log.around(1.2)
        log.line(
            f"step {step} loss tensor({loss:.4f}, device='cuda:0', grad_fn=<NllLossBackward0>) grad_norm tensor({norm:.4f}, device='cuda:0')"
        )
        log.row(step, loss=loss, grad_norm=norm)
    return log


@maker
def step_is_a_time() -> Log:
    log = Log(
        "loops/step_time_named_step",
        "a loop that prints the parts of a step and the step",
        note="step=235.1ms is a time; fwd, bwd, opt are parts",
    )
    for step in range(1, 13):
        loss, t = log.loss(step), log.around(235.1, 1)
        log.line(
            f"[step {step}] loss={loss:.4f} fwd={t * 0.3:.1f}ms bwd={t * 0.6:.1f}ms opt={t * 0.1:.1f}ms step={t:.1f}ms"
        )
        log.row(step, loss=loss, step_time_s=t / 1000)
    log.derivable = {"step_time_s": 1e-4}
    return log


@maker
def emoji() -> Log:
    log = Log("loops/emoji", "a loop with pictures and lines between its values", note="│ between the values")
    for step in range(100, 1300, 100):
        loss, t = log.loss(step / 100), log.around(231.1, 1)
        log.line(
            f"🚀 step {step:>6} │ 🎯 loss {loss:.4f} │ ⏱ {t:.1f} ms/it │ 📈 lr 1.0e-04 │ 🔥 {log.around(55.1, 1):.1f}% util"
        )
        log.row(step, loss=loss, step_time_s=t / 1000, lr=1e-4)
    log.derivable = {"lr": 1e-4, "gpu_util": 1e9}
    return log


@maker
def uncertainty() -> Log:
    log = Log(
        "loops/uncertainty",
        "a loop that prints a mean with its deviation, a change and the value before",
        note="loss is the mean of 100 steps ± deviation; delta and was are no losses; 12.3±0.4 ms the mean of 100 steps",
    )
    for step in range(100, 1300, 100):
        loss, t = log.loss(step / 100), log.around(12.3, 1)
        log.line(
            f"step {step}: loss = {loss:.4f} ± 0.0312 (delta -0.0121, was {loss + 0.0121:.4f}), step time {t:.1f} ± 0.4 ms, throughput 5203 ± 120 tokens/s"
        )
        log.row(step, loss=loss, step_time_s=t / 1000, tokens_per_s=5203)
    log.derivable = {"step_time_s": 1e-4, "tokens_per_s": 1e-4}
    return log


@maker
def one_line_epoch() -> Log:
    log = Log(
        "loops/epoch_line",
        "a loop that prints a line per epoch",
        note="12.3s is the epoch's time; train and val of each metric; the best in brackets",
        counter="exact",
    )
    for epoch in range(1, 11):
        loss, val = log.loss(epoch, 4, 2.3), log.loss(epoch, 4, 2.2)
        log.line(
            f"Epoch {epoch:03d}/050 | train loss {loss:.4f} val loss {val:.4f} | train acc 0.4012 val acc 0.4112 [best 0.4212] | lr 1.00e-03 | {log.around(12.3, 1):.1f}s | patience 3/10"
        )
        log.row(epoch, loss=loss, lr=1e-3)
        log.valid(epoch, val_loss=val)
    return log


@maker
def chinese_sentence() -> Log:
    log = Log(
        "chinese/sentence",
        "a loop that prints Chinese sentences",
        note="平均损失 is the mean; 用时 is of the step; 准确率 no loss",
    )
    for step in range(100, 1300, 100):
        loss, t = log.loss(step / 100), log.around(0.231, 3)
        log.line(
            f"迭代 {step}/10000 | 损失 {loss:.4f} | 平均损失 {loss + 0.1:.4f} | 学习率 1.0e-04 | 每步耗时 {t:.3f}s | 准确率 71.2%"
        )
        log.row(step, loss=loss, lr=1e-4, step_time_s=t)
        if step % 500 == 0:
            log.line(f"验证 迭代 {step} | 验证损失 {loss + 0.2:.4f} | 验证准确率 70.1%")
            log.valid(step, val_loss=round(loss + 0.2, 4))
    return log


@maker
def chinese_epoch_batch() -> Log:
    log = Log(
        "chinese/epoch_batch",
        "a loop of a Chinese tutorial",
        note="the batch counts within the epoch; 训练集loss is the batch's; 测试集 is validation; 耗时 is the epoch's",
        counter="relative",
    )
    for epoch in (1, 2):
        for batch in range(100, 700, 100):
            loss = log.loss(epoch + batch / 100, 4, 2.3)
            log.line(f"Epoch:{epoch}/10, Batch:{batch}/938, 训练集loss:{loss:.4f}, 训练集acc:0.71")
            log.row((epoch - 1) * 938 + batch, loss=loss)
        log.line(f"第{epoch}轮结束, 测试集loss:0.512{epoch}, 测试集acc:0.81, 耗时:31.2秒")
        log.valid(val_loss=round(0.512 + epoch / 10000, 4))
    return log


@maker
def yaml_records() -> Log:
    log = Log(
        "loops/yaml_records",
        "a loop that writes a document of YAML per record",
        note="a name and its value per line, --- between the records",
        suffix="yaml",
    )
    for step in range(10, 110, 10):
        loss, t = log.loss(step / 10), log.around(0.231, 3)
        log.line("---", f"step: {step}", f"loss: {loss}", "lr: 0.0001", f"step_time: {t}")
        log.row(step, loss=loss, lr=1e-4, step_time_s=t)
    return log


@maker
def resumed_and_crashed() -> Log:
    log = Log(
        "loops/crash",
        "a loop that fails with a traceback in the middle, and is started again from a checkpoint",
        note="numbers in the traceback are no records; steps 50 and 60 are logged twice, the later counts",
        counter="order",
    )
    values = {}
    for start, stop in ((10, 70), (50, 110)):
        log.line(f"Loading checkpoint from step {start - 10}, best loss 1.2345")
        for step in range(start, stop, 10):
            values[step] = loss = log.loss(step / 10)
            log.line(f"[step {step}] loss: {loss:.4f} lr: 1.0e-04")
        if stop == 70:
            log.line(
                "Traceback (most recent call last):",
                '  File "/home/me/train.py", line 412, in <module>',
                "    loss = model(batch, step=70, loss=2.0)",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.12 GiB is free.",
            )
    for step in sorted(values):
        log.row(step, loss=values[step], lr=1e-4)
    return log


@maker
def mixed_prefix() -> Log:
    log = Log(
        "torchrun/ranks_in_text",
        "torchrun's prefix [rank1]: before the lines of a loop that itself prints its world size",
        note="the world size is no rank; losses of two ranks",
    )
    for step in range(10, 90, 10):
        for rank in (0, 1):
            loss = log.loss(step / 10)
            log.line(f"[rank{rank}]: [step {step}] world_size=2 loss={loss:.4f} mem={40.0 + rank} GiB")
            log.row(step, rank=rank, loss=loss, memory=40.0 + rank)
    return log


@maker
def throughput_units() -> Log:
    log = Log(
        "loops/rates",
        "a loop with rates of samples, tokens and bytes, per device and in all",
        note="5.2k tok/s/gpu and 41.6k tok/s are both tokens; GB/s is the storage's; it/s is rounded",
    )
    for step in range(10, 130, 10):
        loss, tok = log.loss(step / 10), log.around(5.21, 2)
        log.line(
            f"step {step} | loss {loss:.4f} | {tok:.2f}k tok/s/gpu | {tok * 8:.2f}k tok/s | {log.around(81.2, 1):.1f} TFLOP/s | io 1.31 GB/s | elapsed {hms(step * 3)} | eta 1:02:03"
        )
        log.row(step, loss=loss, tokens_per_s=[tok * 1e3, round(tok * 8, 2) * 1e3], step_time_s=3.0)
    log.derivable = {"tokens_per_s": 1e-3, "tflops": 1e9, "step_time_s": 1e-3}
    return log


@maker
def tqdm_two_bars() -> Log:
    log = Log(
        "tqdm/nested",
        "tqdm 4.66, two bars below each other: epochs and batches",
        note="the bar of epochs is no step; the postfix of the batches has the loss; the validation's bar follows",
        counter="relative",
    )
    for epoch in range(2):
        for it in range(1, 7):
            loss, rate = log.loss(epoch * 6 + it, 3), log.around(5.1, 2)
            log.raw(
                f"\rEpochs:  {epoch * 50}%|{bar(epoch, 2)}| {epoch}/2 [00:{epoch * 20:02d}<00:20, 20.11s/it]\n\rTrain:  {it * 10}%|{bar(it, 100)}| {it}/100 [{ms(it / rate)}<00:19,  {rate:.2f}it/s, loss={loss:.3f}]\x1b[A"
            )
            log.row(epoch * 100 + it, loss=loss, steps_per_s=rate, step_time_s=1 / rate)
        log.raw(f"\n\rValid: 100%|{bar(10, 10)}| 10/10 [00:02<00:00,  4.91it/s, loss=1.{epoch}12]\n")
    log.derivable = {"step_time_s": 0.01, "steps_per_s": 0.01}
    return log
