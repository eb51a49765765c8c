"""Logs of tools that classify, detect and restore images."""

# ruff: noqa: E501 (the lines of a log are long)

from __future__ import annotations

import json

from writing import Log, bar, clock, hms, maker, ms


@maker
def imagenet_example() -> Log:
    log = Log(
        "pytorch_examples/imagenet",
        "pytorch/examples, imagenet/main.py, ProgressMeter.display and AverageMeter.__str__ (2023)",
        note="value (average of the epoch); the value of Time is the last step's, of Data the time of waiting for it",
        counter="relative",
    )
    log.line("=> creating model 'resnet18'")
    for epoch in range(2):
        for index in range(0, 60, 10):
            t, d = log.around(0.35, 3), log.around(0.012, 3)
            loss, seen = log.loss(epoch * 6 + index // 10), epoch * 6 + index // 10
            log.line(
                f"Epoch: [{epoch}][{index + 1:4d}/5005]\tTime {t:6.3f} ({t + 0.21:6.3f})\tData {d:6.3f} ({d + 0.1:6.3f})"
                f"\tLoss {loss:.4e} ({loss + 0.11:.4e})\tAcc@1 {seen / 3:6.2f} ({seen / 4:6.2f})\tAcc@5 {seen:6.2f} ({seen / 2:6.2f})"
            )
            log.row(epoch * 5005 + index + 1, loss=loss, step_time_s=t, data_time=d)
        for index in range(0, 30, 10):
            log.line(
                f"Test: [{index + 1:3d}/196]\tTime {log.around(2.1, 3):6.3f} ({1.801:6.3f})\tLoss {log.loss(epoch):.4e} "
                f"(6.5101e+00)\tAcc@1   1.95 (  1.42)\tAcc@5   6.25 (  5.11)"
            )
        log.line(" *   Acc@1 1.542 Acc@5 5.310")
    return log


@maker
def mnist_example() -> Log:
    log = Log(
        "pytorch_examples/mnist",
        "pytorch/examples, mnist/main.py, train and test (2024)",
        note="the counter is of samples, 64 a step; the summary of the test set has the validation loss",
        counter="order",
    )
    for epoch in (1, 2):
        for batch in range(0, 940, 200):
            loss = log.loss(epoch * 2 + batch // 100, 6, 2.3)
            log.line(f"Train Epoch: {epoch} [{batch * 64}/60000 ({100.0 * batch / 938:.0f}%)]\tLoss: {loss:.6f}")
            log.row(loss=loss)
        val = log.around(0.06 / epoch, 4)
        log.line("", f"Test set: Average loss: {val:.4f}, Accuracy: {9800 + epoch}/10000 (98%)", "")
        log.valid(val_loss=val)
    return log


@maker
def dcgan_example() -> Log:
    log = Log(
        "pytorch_examples/dcgan",
        "pytorch/examples, dcgan/main.py (2024)",
        note="two losses of two networks, none of which is the loss; two counters in brackets",
        counter="relative",
    )
    for epoch in range(2):
        for index in range(8):
            log.line(
                f"[{epoch}/25][{index}/1583] Loss_D: {log.around(1.2):.4f} Loss_G: {log.around(5.3):.4f} "
                f"D(x): {log.around(0.61):.4f} D(G(z)): {log.around(0.3):.4f} / {log.around(0.01):.4f}"
            )
            log.row(epoch * 1583 + index)
    return log


@maker
def word_language_model() -> Log:
    log = Log(
        "pytorch_examples/word_language_model",
        "pytorch/examples, word_language_model/main.py, train (2023)",
        note="ms/batch is the mean of the interval; the end of an epoch has its validation loss",
        counter="relative",
    )
    for epoch in (1, 2):
        for batch in range(200, 1001, 200):
            t, loss = log.around(13.2, 2), log.loss(epoch + batch // 200, 2)
            log.line(
                f"| epoch {epoch:3d} | {batch:5d}/ 2983 batches | lr {20:02.2f} | ms/batch {t:5.2f} | "
                f"loss {loss:5.2f} | ppl {2.718**loss:8.2f}"
            )
            log.row((epoch - 1) * 2983 + batch, loss=loss, lr=20.0, step_time_s=t / 1000)
        val = log.around(5.6 / epoch, 2)
        log.line(
            "-" * 89,
            f"| end of epoch {epoch:3d} | time: 45.12s | valid loss {val:5.2f} | valid ppl {2.7**val:8.2f}",
            "-" * 89,
        )
        log.valid(val_loss=val)
    return log


@maker
def moco() -> Log:
    log = Log(
        "moco/main_moco",
        "facebookresearch/moco, main_moco.py, ProgressMeter (2020)",
        note="value (average of the epoch)",
        counter="relative",
    )
    log.line("Use GPU: 0 for training")
    for epoch in range(2):
        for index in range(0, 50, 10):
            t, d, loss = log.around(0.412, 3), log.around(0.002, 3), log.loss(epoch * 5 + index // 10)
            log.line(
                f"Epoch: [{epoch}][{index:4d}/5004]\tTime {t:6.3f} ({t + 0.5:6.3f})\tData {d:6.3f} ({d + 0.2:6.3f})\t"
                f"Loss {loss:.4e} ({loss + 0.2:.4e})\tAcc@1   0.78 (  0.51)\tAcc@5   3.12 (  2.04)"
            )
            log.row(epoch * 5004 + index, loss=loss, step_time_s=t, data_time=d)
    return log


@maker
def supcontrast() -> Log:
    log = Log(
        "supcontrast/main_supcon",
        "HobbitLong/SupContrast, main_supcon.py, train (2021)",
        note="BT is the step's time, DT the time of waiting for data, each value (average of the epoch)",
        counter="relative",
    )
    for epoch in (1, 2):
        for index in range(10, 60, 10):
            t, d, loss = log.around(0.21, 3), log.around(0.031, 3), log.loss(epoch * 5 + index // 10, 3)
            log.line(
                f"Train: [{epoch}][{index}/195]\tBT {t:.3f} ({t + 0.04:.3f})\tDT {d:.3f} ({d + 0.03:.3f})\t"
                f"loss {loss:.3f} ({loss + 0.2:.3f})"
            )
            log.row((epoch - 1) * 195 + index, loss=loss, step_time_s=t, data_time=d)
        log.line(f"epoch {epoch}, total time 45.32")
    return log


@maker
def supcontrast_linear() -> Log:
    log = Log(
        "supcontrast/main_linear",
        "HobbitLong/SupContrast, main_linear.py, train and validate (2021)",
        note="the lines of Test have a Time and a Loss of the validation, with a counter of its own",
        counter="relative",
    )
    for epoch in (1, 2):
        for index in range(10, 40, 10):
            t, d, loss = log.around(0.11, 3), log.around(0.041, 3), log.loss(epoch * 4 + index // 10, 3)
            log.line(
                f"Train: [{epoch}][{index}/195]\tBT {t:.3f} ({t + 0.04:.3f})\tDT {d:.3f} ({d + 0.03:.3f})\t"
                f"loss {loss:.3f} ({loss + 0.2:.3f})\tAcc@1 45.31 (41.02)"
            )
            log.row((epoch - 1) * 195 + index, loss=loss, step_time_s=t, data_time=d)
        log.line(f"Train epoch {epoch}, total time 21.12, accuracy:44.51")
        for index in range(0, 30, 10):
            log.line(
                f"Test: [{index}/40]\tTime {log.around(0.09, 3):.3f} (0.121)\tLoss {log.around(1.9):.4f} (1.8812)\tAcc@1 49.22 (48.10)"
            )
        log.line(" * Acc@1 48.620")
    return log


def _metric_logger(log: Log, epoch: int, indices: range, total: int, test: bool, lr: float, scale: float) -> None:
    digits = len(str(total))
    header = "Test:" if test else f"Epoch: [{epoch}]"
    for index in indices:
        t, d, loss = log.around(0.36 * scale), log.around(0.021 * scale), log.loss(epoch * 3 + index // 50, 4)
        head = f"{header}  [{index:{digits}d}/{total}]  eta: {hms(t * (total - index))}  "
        rate = "" if test else f"lr: {lr:.6f}  "
        log.line(f"{head}{rate}loss: {loss:.4f} ({loss + 0.3:.4f})  time: {t:.4f}  data: {d:.4f}  max mem: 7214")
        if not test:
            log.row(epoch * total + index, loss=loss, lr=lr, step_time_s=t, data_time=d, memory=7214 / 1024)
    log.line(f"{header} Total time: 0:07:32 (0.3612 s / it)")


@maker
def detr() -> Log:
    log = Log(
        "detr/main",
        "facebookresearch/detr, util/misc.py, MetricLogger.log_every (2021)",
        note="loss: median (average of the epoch); time and data: mean of the last 20 steps; Test is validation",
        counter="relative",
    )
    log.line("Not using distributed mode", "number of params: 41302368", "Start training")
    for epoch in range(2):
        _metric_logger(log, epoch, range(0, 40, 10), 1251, False, 0.0001, 1.0)
        log.line(f"Averaged stats: lr: 0.000100  loss: {log.around(6.0):.4f} ({log.around(6.3):.4f})")
        _metric_logger(log, epoch, range(0, 30, 10), 50, True, 0.0, 3.0)
        log.line(
            f"Averaged stats: loss: {log.around(5.0):.4f} (5.1100)",
            "Accumulating evaluation results...",
            "DONE (t=12.21s).",
        )
        log.line(" Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.021")
    log.line("Training time 0:31:07")
    return log


@maker
def detr_json() -> Log:
    log = Log(
        "detr/log",
        "facebookresearch/detr, main.py, log_stats (2021)",
        note="a line per epoch: train_loss is the epoch's mean, test_loss the validation's",
        counter="order",
        suffix="txt",
    )
    for epoch in range(6):
        loss, val = log.loss(epoch, 12, 20), log.loss(epoch, 12, 18)
        log.line(
            json.dumps(
                {
                    "train_lr": 9.999999999999e-05,
                    "train_class_error": log.around(80, 10),
                    "train_loss": loss,
                    "train_loss_ce": log.around(2, 12),
                    "test_class_error": log.around(70, 10),
                    "test_loss": val,
                    "test_loss_ce": log.around(1.9, 12),
                    "test_coco_eval_bbox": [0.02, 0.05, 0.011],
                    "epoch": epoch,
                    "n_parameters": 41302368,
                }
            )
        )
        log.row(epoch, loss=loss, lr=9.999999999999e-05)
        log.valid(epoch, val_loss=val)
    return log


@maker
def torchvision_reference() -> Log:
    log = Log(
        "torchvision/references_classification",
        "pytorch/vision, references/classification/utils.py, MetricLogger.log_every, and train.py (0.20)",
        note="img/s: mean of the last 10 records (window 10); loss: median (average); Test has no lr",
        counter="relative",
    )
    log.line("Start training")
    for epoch in range(2):
        for index in range(0, 500, 100):
            t, d, loss = log.around(0.36), log.around(0.021), log.loss(epoch * 5 + index // 100)
            rate = log.around(88.8)
            log.line(
                f"Epoch: [{epoch}]  [{index:5d}/40037]  eta: {hms(t * (40037 - index))}  lr: 0.1  img/s: {rate:.4f} ({rate - 1:.4f})  "
                f"loss: {loss:.4f} ({loss + 0.1:.4f})  acc1: 0.0000 (0.1200)  acc5: 3.1250 (2.0000)  time: {t:.4f}  data: {d:.4f}  max mem: 3810"
            )
            log.row(
                epoch * 40037 + index,
                loss=loss,
                lr=0.1,
                step_time_s=t,
                data_time=d,
                throughput=rate,
                memory=3810 / 1024,
            )
        log.line(f"Epoch: [{epoch}] Total time: 4:00:11")
        for index in range(0, 300, 100):
            log.line(
                f"Test:   [{index:4d}/1563]  eta: 0:12:01  loss: {log.around(3):.4f} (3.2100)  acc1: 3.1250 (4.0012)  acc5: 9.3750 (10.2100)  time: {log.around(0.41):.4f}  data: 0.3312  max mem: 3810"
            )
        log.line("Test:  Total time: 0:02:31", "Test:  Acc@1 4.210 Acc@5 12.340")
    return log


@maker
def mae_log() -> Log:
    log = Log(
        "mae/log",
        "facebookresearch/mae, main_pretrain.py, log_stats (2022)",
        note="a line per epoch",
        counter="order",
        suffix="txt",
    )
    for epoch in range(8):
        loss, lr = log.loss(epoch, 15, 0.9), round(1.2e-6 * (epoch + 1), 12)
        log.line(json.dumps({"train_lr": lr, "train_loss": loss, "epoch": epoch}))
        log.row(epoch, loss=loss, lr=lr)
    return log


@maker
def dinov2() -> Log:
    log = Log(
        "dinov2/train",
        "facebookresearch/dinov2, dinov2/logging/helpers.py, MetricLogger.log_every (2023)",
        note="total_loss: median (average); time and data: mean of the last 20 steps",
    )
    for index in range(0, 100, 10):
        t, d, loss, lr = log.around(0.512, 6), log.around(0.0021, 6), log.loss(index // 10), round(1e-6 * index, 4)
        log.line(
            f"I20260302 09:14:{index // 2:02d} 41233 dinov2 helpers.py:102] Training  [{index:6d}/125000]  eta: 17:46:40  lr: {lr:.4f} (0.0000)  wd: 0.0400 (0.0400)  "
            f"mom: 0.9920 (0.9920)  last_layer_lr: 0.0000 (0.0000)  current_batch_size: 128.0000 (128.0000)  total_loss: {loss:.4f} ({loss + 0.3:.4f})  "
            f"dino_local_crops_loss: {loss / 2:.4f} ({loss / 2:.4f})  time: {t:.6f}  data: {d:.6f}  max mem: 21045"
        )
        log.row(index, loss=loss, lr=lr, step_time_s=t, data_time=d, memory=21045 / 1024)
    log.derivable = {"lr": 1e-3}
    return log


@maker
def swin() -> Log:
    log = Log(
        "swin/main",
        "microsoft/Swin-Transformer, main.py, train_one_epoch and validate (2022)",
        note="value (average of the epoch); lines of Test are validation",
        counter="relative",
    )
    now = clock()
    for epoch in range(2):
        for index in range(0, 50, 10):
            t, loss, norm = log.around(0.38), log.loss(epoch * 5 + index // 10), log.around(2.1)
            stamp = f"[{now(t * 10):%Y-%m-%d %H:%M:%S} swin_tiny_patch4_window7_224] (main.py 226): INFO"
            log.line(
                f"{stamp} Train: [{epoch}/300][{index}/1251]\teta 3:12:01 lr 0.000001\t wd 0.0500\t"
                f"time {t:.4f} ({t + 0.11:.4f})\tloss {loss:.4f} ({loss + 0.2:.4f})\tgrad_norm {norm:.4f} ({norm + 0.3:.4f})\t"
                f"loss_scale 65536.0000 (65536.0000)\tmem 8912MB"
            )
            log.row(epoch * 1251 + index, loss=loss, lr=1e-6, step_time_s=t, grad_norm=norm, memory=8912 / 1024)
        stamp = f"[{now(400):%Y-%m-%d %H:%M:%S} swin_tiny_patch4_window7_224]"
        log.line(f"{stamp} (main.py 237): INFO EPOCH {epoch} training takes 0:07:55")
        for index in range(0, 30, 10):
            log.line(
                f"{stamp} (main.py 283): INFO Test: [{index}/98]\tTime {log.around(0.9, 3):.3f} (0.912)\tLoss 6.1022 (6.1121)\tAcc@1 1.562 (1.420)\tAcc@5 5.312 (5.001)\tMem 8912MB"
            )
        log.line(f"{stamp} (main.py 290): INFO  * Acc@1 1.421 Acc@5 5.011")
    return log


@maker
def timm_1() -> Log:
    log = Log(
        "timm/train",
        "huggingface/pytorch-image-models, train.py, train_one_epoch and validate (1.0)",
        note="Loss, Time, Data: value (average); the rate after Time is that of the step; Test is validation",
        counter="relative",
    )
    log.line("Training in distributed mode with 1 device(s).", "Model resnet50 created, param count:25557032")
    for epoch in range(2):
        for index in (0, 50, 100, 150, 200):
            t, d, loss = log.around(0.412, 3), log.around(0.021, 3), log.loss(epoch * 5 + index // 50, 3)
            lr, rate = 1e-5 * (epoch + 1), round(256 / t, 2)
            log.line(
                f"Train: {epoch} [{index:>4d}/1251 ({100 * index / 1250:>3.0f}%)]  Loss: {loss:#.3g} ({loss + 0.1:#.3g})  "
                f"Time: {t:.3f}s, {rate:>7.2f}/s  ({t + 0.2:.3f}s, {256 / (t + 0.2):>7.2f}/s)  LR: {lr:.3e}  Data: {d:.3f} ({d + 0.1:.3f})"
            )
            log.row(
                epoch * 1251 + index, loss=float(f"{loss:#.3g}"), lr=lr, step_time_s=t, data_time=d, throughput=rate
            )
        for index in (0, 50, 97):
            log.line(
                f"Test: [{index:>4d}/97]  Time: {log.around(0.6, 3):.3f} (0.712)  Loss:   6.512 ( 6.601)  Acc@1:   1.953 (  1.402)  Acc@5:   6.250 (  5.112)"
            )
        log.line(f"Current checkpoints:\n ('./output/checkpoint-{epoch}.pth.tar', 1.4)", "")
    log.line("*** Best metric: 1.4 (epoch 1)")
    return log


@maker
def timm_old() -> Log:
    log = Log(
        "timm/train_0_6",
        "rwightman/pytorch-image-models, train.py, train_one_epoch (0.6)",
        note="losses_m.val with %g; the step's time has its rate after it, the averages in brackets; Data: value (average)",
        counter="relative",
    )
    for index in (0, 50, 100, 150, 200, 250):
        t, d, loss = log.around(0.512, 3), log.around(0.006, 3), log.loss(index // 50, 3)
        rate = round(512 / t, 2)
        log.line(
            f"Train: 0 [{index:>4d}/625 ({100 * index / 624:>3.0f}%)]  Loss: {loss:#.4g} ({loss + 0.02:#.3g})  "
            f"Time: {t:.3f}s, {rate:>7.2f}/s  ({t + 0.1:.3f}s, {512 / (t + 0.1):>7.2f}/s)  LR: 1.000e-04  Data: {d:.3f} ({d + 0.03:.3f})"
        )
        log.row(index, loss=float(f"{loss:#.4g}"), lr=1e-4, step_time_s=t, data_time=d, throughput=rate)
    return log


@maker
def timm_summary() -> Log:
    log = Log(
        "timm/summary",
        "huggingface/pytorch-image-models, timm/utils/summary.py, update_summary (1.0)",
        note="a row per epoch",
        counter="order",
        suffix="csv",
    )
    log.line("epoch,train_loss,eval_loss,eval_top1,eval_top5,lr")
    for epoch in range(8):
        loss, val, lr = log.loss(epoch, 10), log.loss(epoch, 8, 6.5), round(0.05 * (1 + epoch) / 8, 6)
        log.line(f"{epoch},{loss},{val},{epoch * 4.1:.3f},{epoch * 8.2:.3f},{lr}")
        log.row(epoch, loss=loss, lr=lr)
        log.valid(epoch, val_loss=val)
    return log


@maker
def basicsr() -> Log:
    log = Log(
        "basicsr/train",
        "XPixelGroup/BasicSR, basicsr/utils/logger.py, MessageLogger.__call__ (1.4)",
        note="time (data): the value in brackets is the data time, both means of the interval; l_pix is a loss",
    )
    now = clock()
    for index in range(100, 1300, 100):
        t, d, loss = log.around(0.312, 3), log.around(0.004, 3), log.loss(index // 100, 4, 0.05)
        log.line(
            f"{now(t * 100):%Y-%m-%d %H:%M:%S},512 INFO: [SwinI..][epoch:{index // 400:3d}, iter:{index:8,d}, lr:(2.000e-04,)] "
            f"[eta: 1 day, 2:03:04, time (data): {t:.3f} ({d:.3f})] l_pix: {loss:.4e} "
        )
        log.row(index, loss=loss, lr=2e-4, step_time_s=t, data_time=d)
    log.line(f"{now(9):%Y-%m-%d %H:%M:%S},001 INFO: Validation Set5", "\t # psnr: 31.2210\tBest: 31.2210 @ 1200 iter")
    return log


@maker
def kair() -> Log:
    log = Log(
        "kair/vrt",
        "cszn/KAIR and JingyunLiang/VRT, main_train_vrt.py (2022)",
        note="no time but that of the line; PSNR lines are of tests",
    )
    now = clock("2026-03-02 22:10:41")
    for index in range(200, 2200, 200):
        loss = log.loss(index // 200, 4, 0.06)
        stamp = f"{now(180):%y-%m-%d %H:%M:%S}.{index % 1000:03d} : "
        log.line(f"{stamp}<epoch:{index // 900:3d}, iter:{index:8,d}, lr:4.000e-04> G_loss: {loss:.3e} ")
        log.row(index, loss=float(f"{loss:.3e}"), lr=4e-4, step_time_s=0.9)
    log.derivable = {"loss": 1e-3, "step_time_s": 0.01}
    return log


@maker
def mmdet_2() -> Log:
    log = Log(
        "mmdetection/v2",
        "open-mmlab/mmcv, mmcv/runner/hooks/logger/text.py, TextLoggerHook._log_info (1.7)",
        note="time and data_time are means of the interval; Epoch(val) counts the images of the validation",
        counter="relative",
    )
    now = clock()
    for epoch in (1, 2):
        for index in range(50, 301, 50):
            t, d, loss = log.around(0.296, 3), log.around(0.053, 3), log.loss(epoch * 5 + index // 50)
            norm, lr = log.around(12.1), round(1.978e-3 * index / 50, 6)
            log.line(
                f"{now(t * 50):%Y-%m-%d %H:%M:%S},218 - mmdet - INFO - Epoch [{epoch}][{index}/7330]\tlr: {lr:.3e}, eta: 6:01:33, time: {t:.3f}, "
                f"data_time: {d:.3f}, memory: 3803, loss_rpn_cls: {loss / 5:.4f}, loss_bbox: {loss / 4:.4f}, acc: 93.4521, loss: {loss:.4f}, grad_norm: {norm:.4f}"
            )
            log.row(
                (epoch - 1) * 7330 + index,
                loss=loss,
                lr=float(f"{lr:.3e}"),
                step_time_s=t,
                data_time=d,
                grad_norm=norm,
                memory=3803 / 1024,
            )
        log.line(f"{now(60):%Y-%m-%d %H:%M:%S},812 - mmdet - INFO - Saving checkpoint at {epoch} epochs")
        log.line(
            f"{now(90):%Y-%m-%d %H:%M:%S},002 - mmdet - INFO - Epoch(val) [{epoch}][625]\tbbox_mAP: 0.0210, bbox_mAP_50: 0.0450, bbox_mAP_copypaste: 0.021 0.045 0.018"
        )
    return log


@maker
def mmdet_2_json() -> Log:
    log = Log(
        "mmdetection/v2_scalars",
        "open-mmlab/mmcv, mmcv/runner/hooks/logger/text.py, TextLoggerHook._dump_log (1.7)",
        note="mode tells training from validation, whose iter is the number of its batches and whose lr is no step's",
        counter="relative",
        suffix="log.json",
    )
    log.line(
        json.dumps({"env_info": "sys.platform: linux\nPython: 3.8.13", "seed": 7, "exp_name": "faster_rcnn_r50.py"})
    )
    for epoch in (1, 2):
        for index in range(50, 301, 50):
            t, d, loss, norm = (
                log.around(0.296, 5),
                log.around(0.053, 5),
                log.loss(epoch * 5 + index // 50, 5),
                log.around(12.1, 5),
            )
            log.line(
                json.dumps(
                    {
                        "mode": "train",
                        "epoch": epoch,
                        "iter": index,
                        "lr": 0.01978,
                        "memory": 3803,
                        "data_time": d,
                        "loss_cls": round(loss / 3, 5),
                        "acc": 93.4,
                        "loss": loss,
                        "grad_norm": norm,
                        "time": t,
                    }
                )
            )
            log.row(
                (epoch - 1) * 300 + index,
                loss=loss,
                lr=0.01978,
                step_time_s=t,
                data_time=d,
                grad_norm=norm,
                memory=3803 / 1024,
            )
        log.line(
            json.dumps(
                {
                    "mode": "val",
                    "epoch": epoch,
                    "iter": 625,
                    "lr": 0.01978,
                    "bbox_mAP": 0.021,
                    "bbox_mAP_copypaste": "0.021 0.045 0.018",
                }
            )
        )
    log.counter = "order"
    return log


@maker
def mmengine_val() -> Log:
    log = Log(
        "mmengine/detection",
        "open-mmlab/mmengine, mmengine/runner/log_processor.py, LogProcessor.get_log_after_iter (0.10)",
        note="Epoch(val) has a time and a data_time of the validation, with a counter of its own; base_lr is no second lr",
        counter="relative",
    )
    now = clock()
    for epoch in (1, 2):
        for index in range(50, 301, 50):
            t, d, loss, norm = log.around(0.296), log.around(0.053), log.loss(epoch * 5 + index // 50), log.around(12.1)
            log.line(
                f"{now(t * 50):%m/%d %H:%M:%S} - mmengine - INFO - Epoch(train)  [{epoch}][{index:4d}/7330]  base_lr: 2.0000e-02 lr: 1.9800e-03  eta: 6:01:33  time: {t:.4f}  "
                f"data_time: {d:.4f}  memory: 3803  grad_norm: {norm:.4f}  loss: {loss:.4f}  loss_rpn_cls: {loss / 5:.4f}  acc: 93.4521"
            )
            log.row(
                (epoch - 1) * 7330 + index,
                loss=loss,
                lr=1.98e-3,
                step_time_s=t,
                data_time=d,
                grad_norm=norm,
                memory=3803 / 1024,
            )
        for index in range(50, 201, 50):
            log.line(
                f"{now(5):%m/%d %H:%M:%S} - mmengine - INFO - Epoch(val)  [{epoch}][{index:3d}/625]    eta: 0:00:57  time: {log.around(0.107):.4f}  data_time: {log.around(0.062):.4f}  memory: 1034  "
            )
        log.line(
            f"{now(5):%m/%d %H:%M:%S} - mmengine - INFO - Epoch(val) [{epoch}][625/625]    coco/bbox_mAP: 0.0210  coco/bbox_mAP_50: 0.0450  data_time: 0.0633  time: 0.1082"
        )
    return log


@maker
def mmengine_iter() -> Log:
    log = Log(
        "mmengine/segmentation",
        "open-mmlab/mmengine, mmengine/runner/log_processor.py (0.10), by_epoch=False",
        note="Iter(train) counts steps, Iter(val) the validation's batches",
    )
    now = clock()
    for index in range(50, 501, 50):
        t, d, loss = log.around(0.211), log.around(0.006), log.loss(index // 50)
        log.line(
            f"{now(t * 50):%m/%d %H:%M:%S} - mmengine - INFO - Iter(train) [{index:5d}/80000]  base_lr: 9.9945e-03 lr: 9.9945e-03  eta: 4:41:11  time: {t:.4f}  data_time: {d:.4f}  memory: 7634  "
            f"loss: {loss:.4f}  decode.loss_ce: {loss * 0.7:.4f}  decode.acc_seg: 41.2210  aux.loss_ce: {loss * 0.3:.4f}"
        )
        log.row(index, loss=loss, lr=9.9945e-3, step_time_s=t, data_time=d, memory=7634 / 1024)
        if index == 250:
            for batch in range(50, 201, 50):
                log.line(
                    f"{now(6):%m/%d %H:%M:%S} - mmengine - INFO - Iter(val) [{batch:3d}/500]    eta: 0:00:51  time: {log.around(0.12):.4f}  data_time: 0.0021  memory: 3012  "
                )
            log.line(
                f"{now(6):%m/%d %H:%M:%S} - mmengine - INFO - Iter(val) [500/500]    aAcc: 61.2000  mIoU: 12.1000  mAcc: 19.9000  data_time: 0.0023  time: 0.1177"
            )
    return log


@maker
def mmengine_scalars_val() -> Log:
    log = Log(
        "mmengine/scalars",
        "open-mmlab/mmengine, mmengine/visualization/vis_backend.py, LocalVisBackend.add_scalars (0.10)",
        note="a record of the validation has no mode: it has metrics with a slash, and step is the epoch",
        suffix="json",
    )
    step = 0
    for epoch in (1, 2):
        for index in range(50, 301, 50):
            step = (epoch - 1) * 300 + index
            t, d, loss, norm = (
                log.around(0.296, 12),
                log.around(0.053, 12),
                log.loss(step // 50, 12),
                log.around(12.1, 12),
            )
            log.line(
                json.dumps(
                    {
                        "base_lr": 0.02,
                        "lr": 0.00198,
                        "data_time": d,
                        "grad_norm": norm,
                        "loss": loss,
                        "loss_cls": loss / 3,
                        "time": t,
                        "epoch": epoch,
                        "iter": step,
                        "memory": 3803,
                        "step": step,
                    }
                )
            )
            log.row(step, loss=loss, lr=0.00198, step_time_s=t, data_time=d, grad_norm=norm, memory=3803 / 1024)
        log.line(
            json.dumps(
                {
                    "coco/bbox_mAP": 0.021 * epoch,
                    "coco/bbox_mAP_50": 0.045 * epoch,
                    "data_time": log.around(0.0633, 12),
                    "time": log.around(0.1082, 12),
                    "step": epoch,
                }
            )
        )
    return log


@maker
def yolox() -> Log:
    log = Log(
        "yolox/train",
        "Megvii-BaseDetection/YOLOX, yolox/core/trainer.py, after_iter (0.3)",
        note="iter_time and data_time are means of the interval; gpu mem is the device's, mem the host's",
        counter="relative",
    )
    now = clock()
    for epoch in (1, 2):
        for index in range(10, 70, 10):
            t, d, loss = log.around(0.345, 3), log.around(0.012, 3), log.loss(epoch * 6 + index // 10, 1, 20)
            log.line(
                f"{now(t * 10):%Y-%m-%d %H:%M:%S} | INFO     | yolox.core.trainer:after_iter:278 - epoch: {epoch}/300, iter: {index}/14786, gpu mem: 4321Mb, mem: 20.1Gb, "
                f"iter_time: {t:.3f}s, data_time: {d:.3f}s, total_loss: {loss:.1f}, iou_loss: {loss / 4:.1f}, l1_loss: 0.0, conf_loss: {loss / 2:.1f}, cls_loss: {loss / 4:.1f}, lr: 1.218e-06, size: 640, ETA: 5 days, 2:03:04"
            )
            log.row((epoch - 1) * 14786 + index, loss=loss, lr=1.218e-6, step_time_s=t, data_time=d, memory=4321 / 1024)
    return log


@maker
def yolov5_console() -> Log:
    log = Log(
        "yolov5/console",
        "ultralytics/yolov5, train.py, train: pbar.set_description (7.0)",
        note="a tqdm bar per epoch whose losses are means of the epoch; the first column is the epoch; its s/it is of batches",
        counter="order",
    )
    for epoch in range(3):
        log.line("", "      Epoch    GPU_mem   box_loss   obj_loss   cls_loss  Instances       Size")
        for done in (1, 4, 8):
            t = 0.5
            log.raw(
                f"\r{f'{epoch}/2':>11}{'3.47G':>11}{log.around(0.04, 4):>11}{log.around(0.06, 4):>11}{log.around(0.02, 4):>11}{190:>11}{640:>11}: {100 * done // 8:3d}%|{bar(done, 8)}| {done}/8 [{ms(done * t)}<{ms((8 - done) * t)},  2.00it/s]"
            )
        log.raw("\n")
        log.line(
            "                 Class     Images  Instances          P          R      mAP50   mAP50-95: 100%|██████████| 4/4 [00:02<00:00,  1.60it/s]"
        )
        log.line("                   all        128        929      0.712      0.633      0.701      0.471")
        log.row(step_time_s=0.5, memory=3.47)
        log.row(step_time_s=0.5, memory=3.47)
        log.row(step_time_s=0.5, memory=3.47)
    log.derivable = {"step_time_s": 0.01, "memory": 0.001}
    return log


@maker
def ultralytics_csv() -> Log:
    log = Log(
        "ultralytics/results",
        "ultralytics/ultralytics, ultralytics/engine/trainer.py, save_metrics (8.3)",
        note="time is the time since the start, a row per epoch: no step's time; three losses, none of which is the sum",
        counter="order",
        suffix="csv",
    )
    log.line(
        "epoch,time,train/box_loss,train/cls_loss,train/dfl_loss,metrics/precision(B),metrics/recall(B),metrics/mAP50(B),val/box_loss,val/cls_loss,val/dfl_loss,lr/pg0,lr/pg1,lr/pg2"
    )
    total = 0.0
    for epoch in range(1, 9):
        total += log.around(41.2, 4)
        lr = round(3.3e-4 * epoch, 8)
        log.line(
            f"{epoch},{total:.4f},{log.around(1.2, 5)},{log.around(1.5, 5)},{log.around(1.1, 5)},0.61,0.52,0.55,{log.around(1.1, 5)},{log.around(1.3, 5)},{log.around(1.05, 5)},{lr},{lr},{lr}"
        )
        log.row(epoch, lr=lr)
    return log


@maker
def yolov5_csv() -> Log:
    log = Log(
        "yolov5/results",
        "ultralytics/yolov5, utils/loggers/__init__.py, on_fit_epoch_end (7.0)",
        note="columns are padded with spaces; a row per epoch; no time, no sum of the losses",
        counter="order",
        suffix="csv",
    )
    names = [
        "epoch",
        "train/box_loss",
        "train/obj_loss",
        "train/cls_loss",
        "metrics/precision",
        "metrics/recall",
        "metrics/mAP_0.5",
        "val/box_loss",
        "val/obj_loss",
        "val/cls_loss",
        "x/lr0",
        "x/lr1",
        "x/lr2",
    ]
    log.line(",".join(f"{name:>20}" for name in names))
    for epoch in range(6):
        values = [
            epoch,
            *[log.around(0.05, 5) for _ in range(3)],
            0.61,
            0.52,
            0.55,
            *[log.around(0.04, 5) for _ in range(3)],
            0.0033 * (epoch + 1),
            0.0033,
            0.07,
        ]
        log.line(",".join(f"{value:20.5g}" for value in values))
        log.row(epoch)
    return log


@maker
def detectron2_console() -> Log:
    log = Log(
        "detectron2/console",
        "facebookresearch/detectron2, detectron2/utils/events.py, CommonMetricPrinter.write (0.6)",
        note="time is the mean since the start, last_time that of the last step; data_time is the mean of 20 steps",
    )
    now = clock()
    for index in range(19, 259, 20):
        t, d, loss, lr = log.around(0.3321), log.around(0.0021), log.loss(index // 20, 3), round(1e-5 * (index + 1), 8)
        mean = round(0.41 - index / 4000, 4)
        data = log.around(0.0123)
        log.line(
            f"[{now(t * 20):%m/%d %H:%M:%S} d2.utils.events]:  eta: 1:02:03  iter: {index}  total_loss: {loss:.4g}  loss_cls: {loss / 2:.4g}  loss_box_reg: {loss / 4:.4g}    "
            f"time: {mean:.4f}  last_time: {t:.4f}  data_time: {data:.4f}  last_data_time: {d:.4f}   lr: {lr:.5g}  max_mem: 3456M"
        )
        log.row(index, loss=loss, lr=lr, step_time_s=t, data_time=[data, d], memory=3456 / 1024)
    return log


@maker
def detectron2_old() -> Log:
    log = Log(
        "detectron2/console_0_1",
        "facebookresearch/detectron2, detectron2/utils/events.py, CommonMetricPrinter.write (0.1)",
        note="time is the mean since the start: no step's time is printed",
    )
    for index in range(19, 219, 20):
        loss, lr, d = log.loss(index // 20, 3), round(1e-5 * (index + 1), 8), log.around(0.0123)
        log.line(
            f"\x1b[32m[03/02 09:1{index // 40}:07 d2.utils.events]: \x1b[0m eta: 1:02:03  iter: {index}  total_loss: {loss:.4g}  loss_cls: {loss / 2:.4g}  time: {0.41 - index / 4000:.4f}  data_time: {d:.4f}  lr: {lr:.5g}  max_mem: 3456M"
        )
        log.row(index, loss=loss, lr=lr, data_time=d, memory=3456 / 1024)
    return log


@maker
def detectron2_json() -> Log:
    log = Log(
        "detectron2/metrics",
        "facebookresearch/detectron2, detectron2/utils/events.py, JSONWriter.write (0.6)",
        note="time and data_time are medians of 20 steps; a record of the evaluation has AP and no time",
        suffix="json",
    )
    for index in range(19, 259, 20):
        t, d, loss = log.around(0.33, 16), log.around(0.0021, 16), log.loss(index // 20, 12)
        log.line(
            json.dumps(
                {
                    "data_time": d,
                    "eta_seconds": 3723.1,
                    "iteration": index,
                    "loss_cls": loss / 2,
                    "lr": 0.00019981,
                    "rank_data_time": d,
                    "time": t,
                    "total_loss": loss,
                },
                sort_keys=True,
            )
        )
        log.row(index, loss=loss, lr=0.00019981, step_time_s=t, data_time=d)
    log.line(json.dumps({"bbox/AP": 12.1, "bbox/AP50": 24.2, "iteration": 259}))
    return log


@maker
def paddle_detection() -> Log:
    log = Log(
        "paddledetection/train",
        "PaddlePaddle/PaddleDetection, ppdet/engine/callbacks.py, LogPrinter.on_step_end (2.6)",
        note="batch_cost is the step's time and data_cost the waiting for data, both means of the interval; ips is samples/s",
        counter="relative",
    )
    now = clock()
    for epoch in range(2):
        for index in range(0, 120, 20):
            t, d, loss = log.around(0.4321), log.around(0.0121), log.loss(epoch * 6 + index // 20, 6)
            ips = round(8 / t, 4)
            log.line(
                f"[{now(t * 20):%m/%d %H:%M:%S}] ppdet.engine INFO: Epoch: [{epoch}] [{index:4d}/7329] learning_rate: 0.000333 loss_rpn_cls: {loss / 4:.6f} loss_rpn_reg: {loss / 8:.6f} loss: {loss:.6f} "
                f"eta: 1 day, 3:04:05 batch_cost: {t:.4f} data_cost: {d:.4f} ips: {ips:.4f} images/s"
            )
            log.row(epoch * 7329 + index, loss=loss, lr=0.000333, step_time_s=t, data_time=d, throughput=ips)
        log.line(
            f"[{now(40):%m/%d %H:%M:%S}] ppdet.engine INFO: Eval iter: 0",
            f"[{now(40):%m/%d %H:%M:%S}] ppdet.engine INFO: Eval iter: 100",
        )
        log.line(f"[{now(40):%m/%d %H:%M:%S}] ppdet.engine INFO: Total sample number: 5000, average FPS: 21.2")
    return log


@maker
def paddle_seg() -> Log:
    log = Log(
        "paddleseg/train",
        "PaddlePaddle/PaddleSeg, paddleseg/core/train.py (2.8)",
        note="batch_cost and reader_cost are means of the interval; the progress bar of [EVAL] has a batch_cost of its own",
    )
    now = clock()
    for index in range(10, 101, 10):
        t, d, loss = log.around(0.5432), log.around(0.12345, 5), log.loss(index // 10)
        log.line(
            f"{now(t * 10):%Y-%m-%d %H:%M:%S} [INFO]\t[TRAIN] epoch: 1, iter: {index}/80000, loss: {loss:.4f}, lr: 0.009999, batch_cost: {t:.4f}, reader_cost: {d:.5f}, ips: {4 / t:.4f} samples/sec | ETA 12:04:15"
        )
        log.row(index, loss=loss, lr=0.009999, step_time_s=t, data_time=d, throughput=round(4 / t, 4))
        if index == 50:
            log.line(f"{now(1):%Y-%m-%d %H:%M:%S} [INFO]\tStart evaluating (total_samples: 500, total_iters: 500)...")
            for batch in (1, 250, 500):
                log.line(
                    f"{batch}/500 [{'=' * (batch // 20)}{'.' * (25 - batch // 20)}] - ETA: 0s - batch_cost: {log.around(0.11):.4f} - reader cost: {log.around(0.01, 6):.6f}"
                )
            log.line(
                f"{now(50):%Y-%m-%d %H:%M:%S} [INFO]\t[EVAL] #Images: 500 mIoU: 0.1210 Acc: 0.6120 Kappa: 0.4120 Dice: 0.1920"
            )
    return log


@maker
def paddle_ocr() -> Log:
    log = Log(
        "paddleocr/train",
        "PaddlePaddle/PaddleOCR, tools/program.py, train (2.7)",
        note="avg_batch_cost and avg_reader_cost are means of the interval in seconds; avg_samples is the batch",
    )
    now = clock()
    for index in range(10, 101, 10):
        t, d, loss = log.around(0.45321, 5), log.around(0.12101, 5), log.loss(index // 10, 6)
        ips = round(128 / t, 5)
        log.line(
            f"[{now(t * 10):%Y/%m/%d %H:%M:%S}] ppocr INFO: epoch: [1/500], global_step: {index}, lr: 0.000001, acc: 0.0, norm_edit_dis: 0.0, loss: {loss:.6f}, avg_reader_cost: {d:.5f} s, avg_batch_cost: {t:.5f} s, avg_samples: 128.0, ips: {ips:.5f} samples/s, eta: 1 day, 1:02:03"
        )
        log.row(index, loss=loss, lr=1e-6, step_time_s=t, data_time=d, throughput=ips)
    log.line(f"[{now(5):%Y/%m/%d %H:%M:%S}] ppocr INFO: cur metric, acc: 0.0121, norm_edit_dis: 0.1021, fps: 812.1021")
    return log


@maker
def paddle_clas() -> Log:
    log = Log(
        "paddleclas/train",
        "PaddlePaddle/PaddleClas, ppcls/engine/train/utils.py, log_info, and evaluation/classification.py (2.5)",
        note="batch_cost and reader_cost are the averages of the epoch with an s (AverageMeter.avg): running means; [Eval] is validation",
        counter="relative",
    )
    now = clock()
    for epoch in (1, 2):
        for index in range(0, 50, 10):
            loss = log.loss(epoch * 5 + index // 10, 5)
            log.line(
                f"[{now(4):%Y/%m/%d %H:%M:%S}] ppcls INFO: [Train][Epoch {epoch}/120][Iter: {index}/20018]lr(Piecewise): 0.10000000, CELoss: {loss:.5f}, loss: {loss:.5f}, batch_cost: {log.around(0.4, 5):.5f}s, reader_cost: {log.around(0.2, 5):.5f}, ips: {log.around(161, 5):.5f} samples/s, eta: 11 days, 2:03:04"
            )
            log.row((epoch - 1) * 20018 + index, loss=loss, lr=0.1)
        log.line(
            f"[{now(4):%Y/%m/%d %H:%M:%S}] ppcls INFO: [Eval][Epoch {epoch}][Iter: 0/782]CELoss: 6.61021, loss: 6.61021, top1: 0.01562, top5: 0.04688, batch_cost: 1.92103s, reader_cost: 1.81022, ips: 33.31540 images/sec"
        )
        log.line(
            f"[{now(4):%Y/%m/%d %H:%M:%S}] ppcls INFO: [Eval][Epoch {epoch}][Avg]CELoss: 6.52013, loss: 6.52013, top1: 0.01420, top5: 0.05110"
        )
        log.valid(val_loss=6.52013)
    return log


@maker
def darknet() -> Log:
    log = Log(
        "darknet/train",
        "AlexeyAB/darknet, src/detector.c, train_detector (2020)",
        note="iteration, loss, mean loss, rate, the step's time, samples since the start",
    )
    for index in range(1, 11):
        loss, t = log.loss(index, 6, 1900), log.around(6.21, 6)
        log.line(
            " (next mAP calculation at 1000 iterations) ",
            f" {index}: {loss:.6f}, {loss + 10:.6f} avg loss, 0.000000 rate, {t:.6f} seconds, {index * 64} images, 12.301002 hours left",
            "Loaded: 0.000031 seconds",
        )
        log.row(index, loss=loss, lr=0.0, step_time_s=t, data_time=0.000031)
    return log


@maker
def caffe() -> Log:
    log = Log(
        "caffe/train",
        "BVLC/caffe, src/caffe/solver.cpp, Solver::Step and Solver::Test; sgd_solver.cpp (1.0)",
        note="(iter/s, seconds/iterations of the interval); Test net output is validation",
    )
    for index in range(0, 1000, 100):
        loss, seconds = log.loss(index // 100, 5), log.around(21.9, 4)
        t, rate = seconds / 100, round(100 / seconds, 5)
        if index == 500:
            log.line(
                "I0302 09:20:01.004312 41233 solver.cpp:330] Iteration 500, Testing net (#0)",
                "I0302 09:20:09.112312 41233 solver.cpp:397]     Test net output #0: accuracy = 0.4121",
                "I0302 09:20:09.112345 41233 solver.cpp:397]     Test net output #1: loss = 1.70213 (* 1 = 1.70213 loss)",
            )
            log.valid(500, val_loss=1.70213)
        log.line(
            f"I0302 09:1{index // 100}:07.204312 41233 solver.cpp:218] Iteration {index} ({rate:g} iter/s, {seconds}s/100 iters), loss = {loss:g}",
            f"I0302 09:1{index // 100}:07.204345 41233 solver.cpp:237]     Train net output #0: loss = {loss:g} (* 1 = {loss:g} loss)",
            f"I0302 09:1{index // 100}:07.204361 41233 sgd_solver.cpp:105] Iteration {index}, lr = 0.001",
        )
        log.row(index, loss=loss, lr=0.001, step_time_s=t)
    log.derivable = {"step_time_s": 1e-3}
    return log
