"""``python -m benchmarks.scripts.prepare FOLDER``: clone the repositories of the scripts, and make their data."""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.random import Generator, default_rng

from .counter.sitecustomize import define_torchvision_operators
from .registry import SCRIPTS, Script

WORDS: Final = ["[UNK]", "[PAD]", "[BOS]", "[EOS]", *(f"word{number}" for number in range(500))]
"""The vocabulary of all texts and language models; the first four are the special tokens."""
UNET: Final = {
    "_class_name": "UNet2DModel", "sample_size": 32, "block_out_channels": [32, 32], "layers_per_block": 1,
    "norm_num_groups": 8, "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
    "up_block_types": ["AttnUpBlock2D", "UpBlock2D"],
}  # fmt: skip
GLUE: Final = """\
---
configs:
- config_name: mrpc
  data_files: [{split: train, path: train.jsonl}, {split: validation, path: validation.jsonl}]
---
"""
METRIC: Final = """\
import datasets
import evaluate

class Glue(evaluate.Metric):
    def _info(self):
        features = datasets.Features({name: datasets.Value("int64") for name in ("predictions", "references")})
        return evaluate.MetricInfo(description="", citation="", features=features)

    def _compute(self, predictions, references):
        return {"accuracy": sum(map(int.__eq__, map(int, predictions), map(int, references))) / len(references)}
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Clone each repository at its commit, then make each folder of data; data are the same each time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scripts.prepare", description=__doc__)
    parser.add_argument("checkouts", type=Path, help="the folder that is filled")
    parser.add_argument(
        "--source", default="https://github.com/{owner}/{name}", help="where git finds a repository (%(default)s)"
    )
    options = parser.parse_args(arguments)
    for script in {script.repository: script for script in SCRIPTS}.values():
        clone(script, options.checkouts / script.checkout, options.source)
    define_torchvision_operators()
    for place, make in DATA.items():
        folder = options.checkouts.absolute() / place
        folder.mkdir(parents=True, exist_ok=True)
        make(folder, default_rng(0))


def clone(script: Script, folder: Path, source: str) -> None:
    """Clone the script's repository, where it is not there yet, and check out the commit."""
    if not (folder / ".git").exists():
        owner, name = script.repository.split("/")
        address = source.format(owner=owner, name=name)
        subprocess.run(["git", "clone", "--quiet", "--no-checkout", address, folder], check=True)
    subprocess.run(["git", "-C", folder, "checkout", "--quiet", "--detach", script.commit], check=True)


def mnist(images: int, folder: Path, random: Generator) -> None:
    """Write random images and labels in the files of MNIST."""
    for name, count in (("train", images), ("t10k", 512)):
        for kind, shape, limit in (("images-idx3", (count, 28, 28), 256), ("labels-idx1", (count,), 10)):
            header = np.array([0x800 + len(shape), *shape], ">i4").tobytes()
            values = random.integers(limit, size=shape, dtype=np.uint8).tobytes()
            (folder / f"{name}-{kind}-ubyte").write_bytes(header + values)


def images(folder: Path, random: Generator) -> None:
    """Write 96 images for training and 16 for validation, of two classes."""
    from PIL import Image

    for split, count in (("train", 48), ("val", 8)):
        for kind in ("even", "odd"):
            (folder / split / kind).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                pixels = random.integers(256, size=(64, 64, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / kind / f"{number}.png")


def characters(folder: Path, random: Generator) -> None:
    """Write what nanoGPT's ``prepare.py`` of this folder writes."""
    for name, count in (("train", 100_000), ("val", 10_000)):
        random.integers(65, size=count, dtype=np.uint16).tofile(folder / f"{name}.bin")
    (folder / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 65}))


def sentence(random: Generator) -> str:
    """Return thirty words."""
    return " ".join(random.choice(WORDS[4:], 30))


def words(folder: Path, random: Generator) -> None:
    """Write three texts of a sentence a line."""
    for name, count in (("train", 1_000), ("valid", 100), ("test", 100)):
        (folder / f"{name}.txt").write_text("".join(f"{sentence(random)}\n" for _ in range(count)))


def instructions(folder: Path, random: Generator) -> None:
    """Write instructions and answers."""
    pairs = [{"instruction": sentence(random), "output": sentence(random)} for _ in range(200)]
    (folder / "all.json").write_text(json.dumps(pairs))


def unet(folder: Path, random: Generator) -> None:
    """Write the configuration of a small U-Net."""
    (folder / "config.json").write_text(json.dumps(UNET))


def tokenizer(folder: Path) -> None:
    """Write a tokenizer that knows the words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token=WORDS[0]))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = dict(zip(("unk_token", "pad_token", "bos_token", "eos_token"), WORDS, strict=False))
    PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(folder)


def gpt2(folder: Path, random: Generator) -> None:
    """Write a small random GPT-2 and its tokenizer."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    tokenizer(folder)
    config = GPT2Config(vocab_size=len(WORDS), n_embd=64, n_layer=4, n_head=4, bos_token_id=2, eos_token_id=3)
    GPT2LMHeadModel(config).save_pretrained(folder)


def mrpc(folder: Path, random: Generator) -> None:
    """Write a small random BERT, pairs of sentences and a metric, under the names that accelerate's example loads."""
    from transformers import BertConfig, BertForSequenceClassification

    bert, pairs, metric = folder / "bert-base-cased", folder / "nyu-mll" / "glue", folder / "glue"
    for made in (bert, pairs, metric):
        made.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    tokenizer(bert)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128
    )
    BertForSequenceClassification(config).save_pretrained(bert)
    for name, count in (("train", 320), ("validation", 64)):
        rows = [
            {"sentence1": sentence(random), "sentence2": sentence(random), "label": number % 2, "idx": number}
            for number in range(count)
        ]
        (pairs / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (pairs / "README.md").write_text(GLUE)
    (metric / "glue.py").write_text(METRIC)


def litgpt(folder: Path, random: Generator) -> None:
    """Write a small random GPT of litgpt, by the checkout's own code."""
    sys.path.insert(0, str(folder.parents[1] / "litgpt"))
    from litgpt.config import Config
    from litgpt.model import GPT
    from litgpt.utils import save_config

    torch.manual_seed(0)
    tokenizer(folder)
    config = Config.from_name("pythia-14m", n_layer=4, n_embd=64, padded_vocab_size=512)
    torch.save(GPT(config).state_dict(), folder / "lit_model.pth")
    save_config(config, folder)


def sine_waves(folder: Path, random: Generator) -> None:
    """Make the waves by the example's own program."""
    subprocess.run([sys.executable, "time_sequence_prediction/generate_sine_wave.py"], cwd=folder, check=True)


DATA: Final[Mapping[str, Callable[[Path, Generator], None]]] = {
    "data/MNIST/raw": partial(mnist, 4_096),
    "examples/data/MNIST/raw": partial(mnist, 4_096),
    "pytorch-lightning/Datasets/MNIST/raw": partial(mnist, 4_096),
    "pytorch-lightning/data/MNIST/raw": partial(mnist, 4_096),
    "pytorch-lightning/examples/Datasets/MNIST/raw": partial(mnist, 60_000),
    "nanoGPT/data/shakespeare_char": characters,
    "examples": sine_waves,
    "data/images": images,
    "data/words": words,
    "data/instructions": instructions,
    "data/unet": unet,
    "data/tiny": gpt2,
    "data/accelerate": mrpc,
    "data/pythia": litgpt,
}
"""The function that fills each folder that the scripts read; paths begin at the folder of checkouts."""

if __name__ == "__main__":
    main()
