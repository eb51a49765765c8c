"""The scripts: where they come from, and the arguments that make them small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Script:
    """A training script of another project. ``{checkout}``, ``{data}``, ``{out}`` are folders of this computer."""

    name: str
    repository: str
    """On GitHub; its checkout lies in a folder of the repository's name."""
    commit: str
    command: str
    """The file, relative to the checkout, and its arguments."""
    data: str = "none"
    """The data in place of a download; ``prepare`` makes them."""
    folder: str = ""
    """The working directory, where it is not the checkout."""
    on_path: str = ""
    """A folder of the checkout that ``PYTHONPATH`` has to name."""
    in_turn: bool = True
    """Whether each training step has a step of several optimizers; otherwise each of theirs is a step of its own."""

    @property
    def checkout(self) -> str:
        """The name of the checkout's folder."""
        return self.repository.partition("/")[2]


_EXAMPLES: Final = ("pytorch/examples", "77f55b9")
_LIGHTNING: Final = ("Lightning-AI/pytorch-lightning", "7f0c343")
_CLEANRL: Final = ("vwxyzjn/cleanrl", "fe8d8a0")
_MNIST: Final = "MNIST with 4,096 random images"
SCRIPTS: Final = (
    Script(
        "nanoGPT", "karpathy/nanoGPT", "3adf61e",
        "train.py config/train_shakespeare_char.py --device=cpu --compile=False --eval_iters=2 --log_interval=1 "
        "--block_size=32 --batch_size=4 --n_layer=4 --n_head=4 --n_embd=64 --max_iters=60 --lr_decay_iters=60 "
        "--dropout=0.0 --eval_interval=25",
        "random characters",
    ),
    Script(
        "minGPT, adder", "karpathy/minGPT", "37baab7",
        "projects/adder/adder.py --trainer.max_iters=60 --trainer.num_workers=0",
        on_path=".",
    ),
    Script(
        "MNIST", *_EXAMPLES,
        "mnist/main.py --epochs 1",
        _MNIST,
    ),
    Script(
        "DCGAN", *_EXAMPLES,
        "dcgan/main.py --dataset fake --niter 1 --batchSize 32 --ngf 8 --ndf 8 --workers 0 --outf {out}",
        "the script's own fake images",
    ),
    Script(
        "ImageNet, ResNet-18", *_EXAMPLES,
        "imagenet/main.py --arch resnet18 --epochs 1 --batch-size 8 --workers 1 --no-accel {data}/images",
        "96 random images",
    ),
    Script(
        "Hogwild, two processes", *_EXAMPLES,
        "mnist_hogwild/main.py --epochs 1 --num-processes 2",
        _MNIST,
    ),
    Script(
        "language model, LSTM", *_EXAMPLES,
        "word_language_model/main.py --data {data}/words --epochs 1 --emsize 32 --nhid 32 --use-optimizer --save "
        "{out}/w.pt",
        "random words",
    ),
    Script(
        "sine waves, L-BFGS", *_EXAMPLES,
        "time_sequence_prediction/train.py --steps 1",
        "made by the example's generate_sine_wave.py",
    ),
    Script(
        "forward-forward, an optimizer a layer", *_EXAMPLES,
        "mnist_forward_forward/main.py --epochs 5 --train_size 500 --test_size 100",
        _MNIST, in_turn=False,
    ),
    Script(
        "Lightning, autoencoder", *_LIGHTNING,
        "examples/pytorch/basics/autoencoder.py --trainer.max_epochs 1 --trainer.logger false "
        "--trainer.limit_train_batches 60 --trainer.limit_val_batches 5 --trainer.limit_test_batches 5 "
        "--trainer.limit_predict_batches 5",
        "MNIST with 60,000 random images",
    ),
    Script(
        "Fabric, cross-validation in three folds", *_LIGHTNING,
        "examples/fabric/kfold_cv/train_fabric.py --epochs 1 --batch-size 256 --folds 3",
        _MNIST, in_turn=False,
    ),
    Script(
        "PPO", *_CLEANRL,
        "cleanrl/ppo.py --total-timesteps 2048",
        "CartPole", on_path=".",
    ),
    Script(
        "DQN, with a target network", *_CLEANRL,
        "cleanrl/dqn.py --total-timesteps 12000",
        "CartPole", on_path=".",
    ),
    Script(
        "timm, ResNet-18 with EMA", "huggingface/pytorch-image-models", "aa4b585",
        "train.py --data-dir {data}/images --model resnet18 --img-size 64 --num-classes 2 --batch-size 8 --epochs 2 "
        "--workers 1 --model-ema --device cpu --output {out}",
        "96 random images",
    ),
    Script(
        "diffusers, unconditional diffusion with EMA", "huggingface/diffusers", "58eb52c",
        "examples/unconditional_image_generation/train_unconditional.py --train_data_dir {data}/images/train "
        "--resolution 32 --train_batch_size 8 --num_epochs 2 --use_ema --ddpm_num_steps 20 --ddpm_num_inference_steps "
        "2 --eval_batch_size 2 --model_config_name_or_path {data}/unet --output_dir {out}/model",
        "96 random images, a small random U-Net", on_path="src",
    ),
    Script(
        "TRL, supervised fine-tuning by transformers' Trainer", "huggingface/trl", "f2cd57710",
        "trl/scripts/sft.py --model_name_or_path {data}/tiny --dataset_name {data}/words --packing --max_length 64 "
        "--per_device_train_batch_size 8 --max_steps 60 --use_cpu --bf16 false --report_to none --output_dir "
        "{out}/model",
        "random words, a small random GPT-2", on_path=".",
    ),
    Script(
        "accelerate, gradient accumulation", "huggingface/accelerate", "16cb6eb8",
        "{checkout}/examples/by_feature/gradient_accumulation.py --cpu --gradient_accumulation_steps 4",
        "random pairs of sentences, a small random BERT, a metric of the same name", folder="{data}/accelerate",
    ),
    Script(
        "litgpt, fine-tuning", "Lightning-AI/litgpt", "26857050",
        "-m litgpt finetune_full {data}/pythia --data JSON --data.json_path {data}/instructions/all.json "
        "--data.val_split_fraction 0.1 --data.num_workers 0 --train.max_steps 40 --train.epochs 1 "
        "--train.global_batch_size 4 --train.micro_batch_size 2 --precision 32-true --logger_name csv --out_dir "
        "{out}/model",
        "random instructions, a small random GPT", on_path=".",
    ),
)  # fmt: skip
