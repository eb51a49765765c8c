"""Files without a training record, of which nothing may be read."""

# ruff: noqa: E501 (the lines of a log are long)

from __future__ import annotations

import json
import random

from writing import Log, bar, clock, maker

_RANDOM = random.Random(4)
_ARGS = {
    "model": "resnet50",
    "batch_size": 256,
    "lr": 0.1,
    "epochs": 90,
    "weight_decay": 1e-4,
    "workers": 8,
    "seed": 1,
    "warmup_steps": 500,
    "max_steps": 100000,
    "step_size": 30,
    "log_interval": 50,
    "loss": "ce",
    "time_limit": 3600.0,
    "memory": 16,
    "output_dir": "runs/a",
}


def _none(name: str, suffix: str, text: str, note: str = "") -> None:
    def make() -> Log:
        log = Log(f"none/{name}", "no training log", note=note, counter="order", suffix=suffix)
        log.written = "by hand"
        log.raw(text if text.endswith("\n") else f"{text}\n")
        return log

    maker(make)


_none("args", "json", json.dumps(_ARGS, indent=2), "the settings of a run")
_none("args_line", "json", json.dumps(_ARGS), "the settings of a run, on one line")
_none(
    "namespace",
    "log",
    "Namespace(" + ", ".join(f"{key}={value!r}" for key, value in _ARGS.items()) + ")",
    "argparse's print of the settings",
)
_none(
    "namespace_lines",
    "txt",
    "\n".join(f"{key:>20}: {value}" for key, value in _ARGS.items()),
    "the settings, one on each line",
)
_none(
    "config",
    "yaml",
    "model:\n  name: vit_small\n  depth: 12\noptimizer:\n  name: adamw\n  lr: 3.0e-4\n  step: 1000\ntrain:\n  steps: 100000\n  batch_size: 256\n  loss: cross_entropy\n  time: 3600\n",
)
_none(
    "dots",
    "log",
    "\n".join(
        [
            "------------------------ arguments ------------------------",
            *[f"  {key} {'.' * (48 - len(key))} {value}" for key, value in _ARGS.items()],
            "-------------------- end of arguments ---------------------",
        ]
    ),
    "Megatron-LM's print of its arguments",
)
_none(
    "readme",
    "md",
    """# A model

Train with `python train.py --lr 0.1 --batch-size 256`. The loss after epoch 90 is 2.1; one epoch takes 12 minutes on 8 GPUs.

| model | epochs | top-1 | time |
|---|---|---|---|
| resnet50 | 90 | 76.1 | 14 h |
| resnet101 | 90 | 77.4 | 22 h |

1. Step 1: download the data (138 GB).
2. Step 2: run `prepare.py`; it takes 20 minutes.
3. Step 3: train; the learning rate falls by 10 at epoch 30, 60 and 80.

You should see lines with step, loss and lr. At step 100 the loss is about 6.9.
""",
    "prose and a table of results with the words step, loss, epoch and time",
)
_none(
    "pip_install",
    "log",
    "Collecting torch\n  Downloading torch-2.9.0-cp311-cp311-manylinux_2_28_x86_64.whl (899.8 MB)\n     ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 899.8/899.8 MB 41.2 MB/s eta 0:00:00\nCollecting numpy<3,>=1.26\n  Downloading numpy-2.3.4-cp311-cp311-manylinux_2_27_x86_64.whl (16.9 MB)\n     ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 16.9/16.9 MB 88.1 MB/s eta 0:00:00\nInstalling collected packages: numpy, torch\nSuccessfully installed numpy-2.3.4 torch-2.9.0\n",
)
_none(
    "pip_freeze",
    "txt",
    "accelerate==1.10.0\nlightning==2.5.5\nloguru==0.7.3\nnumpy==2.3.4\npandas==2.3.3\ntorch==2.9.0\ntqdm==4.67.1\ntransformers==4.57.1\n",
)
_none(
    "nvidia_smi",
    "txt",
    """Mon Mar  2 09:14:07 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.86.15              Driver Version: 570.86.15      CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |                    0 |
| N/A   41C    P0             412W / 700W |   61212MiB /  81559MiB |     97%      Default |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:2A:00.0 Off |                    0 |
| N/A   39C    P0             401W / 700W |   61212MiB /  81559MiB |     98%      Default |
+-----------------------------------------+------------------------+----------------------+
""",
)
_none(
    "git_log",
    "txt",
    "".join(
        f"commit {_RANDOM.getrandbits(160):040x}\nAuthor: A Person <a@example.org>\nDate:   Mon Mar {day} 09:14:07 2026 +0000\n\n    {title}\n\n"
        for day, title in (
            (2, "Step 2: add loss scaling 1024"),
            (3, "Fix loss at step 100, lr 0.1"),
            (4, "Epoch 3 took 12 s longer: undo"),
        )
    ),
)
_none(
    "stack_trace",
    "log",
    """Traceback (most recent call last):
  File "train.py", line 112, in <module>
    main()
  File "train.py", line 87, in main
    loss = step(model, batch, lr=0.1)
  File "train.py", line 41, in step
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.21 GiB is free. Of the allocated memory 71.21 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated.
[rank0]:[W302 09:14:07.112121 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL.
""",
)
_none(
    "flowers",
    "csv",
    "sepal_length,sepal_width,petal_length,petal_width,species\n"
    + "".join(
        f"{_RANDOM.uniform(4, 8):.1f},{_RANDOM.uniform(2, 4):.1f},{_RANDOM.uniform(1, 7):.1f},{_RANDOM.uniform(0, 2.5):.1f},setosa\n"
        for _ in range(20)
    ),
    "a table of data",
)
_none(
    "weather",
    "csv",
    "date,temperature,humidity,pressure,wind_speed\n"
    + "".join(
        f"2026-03-{day:02d},{_RANDOM.uniform(2, 20):.1f},{_RANDOM.uniform(40, 90):.0f},{_RANDOM.uniform(990, 1030):.1f},{_RANDOM.uniform(0, 12):.1f}\n"
        for day in range(1, 21)
    ),
    "a table of data by day",
)
_none(
    "results",
    "csv",
    "model,params_m,top1,top5,img_size\nresnet18,11.7,69.8,89.1,224\nresnet50,25.6,76.1,92.9,224\nvit_b_16,86.6,81.1,95.3,224\n",
    "a table of results of models",
)
_none("requirements", "txt", "torch>=2.4\nnumpy>=1.26,<3\ntqdm\nwandb>=0.17  # logs loss and lr\n")
_none(
    "download",
    "log",
    "".join(
        f"\rDownloading model.safetensors: {10 * index:3d}%|{bar(index, 10)}| {index * 0.5:.2f}G/5.00G [00:{index * 2:02d}<00:{20 - index * 2:02d}, 251MB/s]"
        for index in range(11)
    ),
    "a bar of a download: its rate is of bytes",
)
_none(
    "tokenizing",
    "log",
    "".join(
        f"\rMap (num_proc=8): {10 * index:3d}%|{bar(index, 10)}| {index * 5000}/50000 [00:{index:02d}<00:{10 - index:02d}, 4812.12 examples/s]"
        for index in range(11)
    ),
    "a bar of the preparation of data: no training",
)
_none(
    "model_summary",
    "txt",
    "==========================================================================================\nLayer (type:depth-idx)                   Output Shape              Param #\n==========================================================================================\nResNet                                   [1, 1000]                 --\n├─Conv2d: 1-1                            [1, 64, 112, 112]         9,408\n├─BatchNorm2d: 1-2                       [1, 64, 112, 112]         128\n├─Linear: 1-3                            [1, 1000]                 513,000\n==========================================================================================\nTotal params: 11,689,512\nTrainable params: 11,689,512\nTotal mult-adds (Units.GIGABYTES): 1.81\nInput size (MB): 0.60\nParams size (MB): 46.76\n",
)
_none(
    "pytest",
    "log",
    "============================= test session starts ==============================\nplatform linux -- Python 3.11.7, pytest-8.3.3\ncollected 121 items\n\ntests/test_loss.py ............                                          [ 10%]\ntests/test_step.py ........................                              [ 30%]\n\n============================= slowest 2 durations ==============================\n1.21s call     tests/test_step.py::test_step_time\n0.81s call     tests/test_loss.py::test_loss_is_finite\n======================== 121 passed in 12.12s =========================\n",
)
_now = clock()
_none(
    "access",
    "log",
    "".join(
        f'192.0.2.{index} - - [{_now(3):%d/%b/%Y:%H:%M:%S} +0000] "GET /step/{index}?loss=1 HTTP/1.1" 200 {_RANDOM.randrange(200, 9000)} "-" "curl/8.5.0"\n'
        for index in range(15)
    ),
    "a web server's log",
)
_none(
    "meminfo",
    "txt",
    "MemTotal:       131072000 kB\nMemFree:         8121212 kB\nMemAvailable:   91212121 kB\nBuffers:          121212 kB\nCached:         71212121 kB\nSwapTotal:             0 kB\n",
)
_none(
    "script",
    "py.txt",
    'import torch\n\nfor step in range(100):\n    loss = model(x).mean()\n    loss.backward()\n    optimizer.step()\n    if step % 10 == 0:\n        print(f"step {step} loss {loss.item():.4f} lr {lr:.1e} time {time.time() - start:.2f}s")\n',
    "source code with the words of a log",
)
_none(
    "slurm",
    "sh",
    "#!/bin/bash\n#SBATCH --job-name=train\n#SBATCH --nodes=4\n#SBATCH --time=24:00:00\n#SBATCH --mem=512G\nsrun python train.py --lr 0.1 --batch-size 256 --epochs 90 --step-size 30\n",
)
_none(
    "tokenizer",
    "json",
    json.dumps(
        {
            "add_bos_token": True,
            "model_max_length": 4096,
            "padding_side": "left",
            "vocab_size": 32000,
            "time": 0,
            "rope_theta": 10000.0,
        },
        indent=2,
    ),
)
_none(
    "annotations",
    "json",
    json.dumps(
        {
            "images": [
                {"id": index, "width": 640, "height": 480, "file_name": f"{index:012d}.jpg"} for index in range(8)
            ],
            "annotations": [
                {"id": index, "image_id": index, "category_id": 3, "area": 1212.5, "bbox": [12.1, 21.2, 41.0, 29.5]}
                for index in range(8)
            ],
        }
    ),
    "a data set's annotations: records with numbers",
)
_none(
    "chat",
    "jsonl",
    "".join(
        json.dumps(
            {
                "messages": [
                    {"role": "user", "content": f"What is step {index}?"},
                    {"role": "assistant", "content": f"loss {index}.5"},
                ],
                "id": index,
                "score": index / 10,
            }
        )
        + "\n"
        for index in range(8)
    ),
    "a data set for fine-tuning",
)
_none(
    "cmake",
    "log",
    "".join(
        f"[{10 * index:3d}%] Building CXX object src/CMakeFiles/core.dir/step_{index}.cpp.o\n" for index in range(1, 11)
    )
    + "[100%] Linking CXX shared library libcore.so\n[100%] Built target core\n",
)
_none(
    "squeue",
    "txt",
    "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n             41212       gpu    train    alice  R    2:12:41      4 gpu[01-04]\n             41213       gpu     eval    alice PD       0:00      1 (Priority)\n",
)
_none(
    "kernel_messages",
    "log",
    "[    0.000000] Linux version 6.8.0-45-generic\n[    0.412121] smpboot: CPU0: AMD EPYC 9554 64-Core Processor\n[    1.212121] Memory: 131072000K/134217728K available\n[  412.121212] NVRM: Xid (PCI:0000:18:00): 31, pid=41212, name=python, Ch 00000008\n",
)
_none(
    "hparams",
    "yaml",
    "lr: 0.0003\nbatch_size: 32\nmax_epochs: 10\nstep: 0\nloss_weight: 1.0\n",
    "Lightning's hparams.yaml",
)
_none(
    "benchmark",
    "json",
    json.dumps(
        {
            "name": "matmul",
            "mean": 0.0121,
            "stddev": 0.0012,
            "rounds": 41,
            "min": 0.0111,
            "max": 0.0212,
            "machine": {"cpu": "x86_64", "count": 64},
        }
    ),
    "one object with statistics",
)
