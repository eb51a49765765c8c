"""Healthy programs of real arithmetic, six of them standard models: no finding may accuse them."""

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import autoprof
from benchmarks.models import import_package

from ..judge import Judge
from ..parts import update
from ..registry import program

STEPS = 40


def train(model: nn.Module, loss: Callable[[], Tensor], steps: int = STEPS) -> Judge:
    """Train on the loss of one batch after another; nothing may be accused."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    session = autoprof.instrument(model, optimizer=optimizer)
    for _ in range(steps):
        update(loss(), optimizer)
    return Judge(session).silent()


# standard models


def language_model(name: str, **options: Any) -> Judge:
    """Train a model of transformers on random tokens with its own loss."""
    kind: Any = getattr(import_package("transformers"), name)
    model = kind(kind.config_class(**options))

    def loss() -> Tensor:
        tokens = torch.randint(3, options["vocab_size"], (4, 96))
        value: Tensor = model(input_ids=tokens, labels=tokens).loss
        return value

    return train(model, loss)


@program("healthy", "GPT-2 of transformers", "transformers")
def gpt2_is_healthy() -> Judge:
    return language_model("GPT2LMHeadModel", vocab_size=1000, n_positions=128, n_embd=192, n_layer=4, n_head=4)


@program("healthy", "BERT of transformers", "transformers")
def bert_is_healthy() -> Judge:
    return language_model(
        "BertForMaskedLM", vocab_size=1000, hidden_size=192, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=768, max_position_embeddings=128,
    )  # fmt: skip


@program("healthy", "Llama of transformers", "transformers")
def llama_is_healthy() -> Judge:
    return language_model(
        "LlamaForCausalLM", vocab_size=1000, hidden_size=192, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=512, max_position_embeddings=128,
    )  # fmt: skip


def image_model(package: str, name: str, batch: int, side: int, **options: Any) -> Judge:
    """Train an image classifier of timm on random pictures."""
    model = import_package(package).create_model(name, num_classes=10, **options)

    def loss() -> Tensor:
        pictures, labels = torch.randn(batch, 3, side, side), torch.randint(0, 10, (batch,))
        return functional.cross_entropy(model(pictures), labels)

    return train(model, loss, 30)


@program("healthy", "ViT of timm", "timm")
def vit_is_healthy() -> Judge:
    return image_model("timm", "vit_tiny_patch16_224", 8, 96, img_size=96, depth=6)


@program("healthy", "ResNet-50 of timm", "timm")
def resnet50_is_healthy() -> Judge:
    return image_model("timm", "resnet50", 4, 64)


@program("healthy", "ConvNeXt of timm", "timm")
def convnext_is_healthy() -> Judge:
    return image_model("timm", "convnext_atto", 8, 96)


# programs unlike each other


class Coder(nn.Module):
    """A convolutional variational autoencoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 32, 3, 2, 1), nn.SiLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.SiLU(), nn.Conv2d(64, 16, 1)
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(8, 64, 4, 2, 1), nn.SiLU(), nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.SiLU(),
            nn.Conv2d(32, 1, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = self.encoder(x).chunk(2, 1)
        decoded: Tensor = self.decoder(mean + torch.randn_like(mean) * spread.exp())
        return decoded, (mean.square() + spread.exp() - spread).mean()


@program("healthy", "a variational autoencoder, with two loader workers that stay, a scheduler and clipped gradients")
def autoencoder_is_healthy() -> Judge:
    model = Coder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
    data = TensorDataset(torch.rand(640, 1, 48, 48))
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=2, persistent_workers=True)
    session = autoprof.instrument(model, optimizer=optimizer)
    for _ in range(3):
        for (x,) in loader:
            decoded, divergence = model(x)
            (functional.mse_loss(decoded, x) + divergence).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
    return Judge(session).silent()


@program("healthy", "a GAN with two optimizers and pictures of two sizes")
def adversaries_is_healthy() -> Judge:
    def layers(*widths: int) -> nn.Sequential:
        pairs = itertools.pairwise(widths)
        return nn.Sequential(*(nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.LeakyReLU(0.2)) for a, b in pairs))

    model = nn.ModuleDict({"generator": layers(8, 48, 48, 3), "critic": layers(3, 48, 48, 1)})
    generator, critic = model["generator"], model["critic"]
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-4)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-4)
    session = autoprof.instrument(model)
    for number in range(STEPS):
        side = 24 if number % 2 else 28
        fake = generator(torch.randn(8, 8, side, side))
        real = torch.rand(8, 3, side, side)
        update(critic(fake.detach()).mean() - critic(real).mean(), of_critic)
        update(-critic(fake).mean(), of_generator)
        of_critic.zero_grad()
    return Judge(session).silent()


class Messages(nn.Module):
    """A graph network: messages along edges, added up at the nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(32, 128)
        self.rounds = nn.ModuleList(
            nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 128)) for _ in range(3)
        )
        self.leave = nn.Linear(128, 1)

    def forward(self, nodes: Tensor, edges: Tensor) -> Any:
        x = self.enter(nodes)
        for one in self.rounds:
            x = x + torch.zeros_like(x).index_add(0, edges[1], one(x[edges].transpose(0, 1).flatten(1)))
        return self.leave(x)


@program("healthy", "a graph network on graphs of different sizes")
def graphs_is_healthy() -> Judge:
    model = Messages()

    def loss() -> Tensor:
        count = int(torch.randint(300, 340, ()))
        edges = torch.randint(0, count, (2, 6 * count))
        value: Tensor = model(torch.randn(count, 32), edges).square().mean()
        return value

    return train(model, loss, 60)


@program("healthy", "an actor and a critic that share a trunk: short rollouts without gradients, then an update")
def actor_critic_is_healthy() -> Judge:
    class Policy(nn.Module):
        """Actions and values from one trunk."""

        def __init__(self) -> None:
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh())
            self.actor, self.critic = nn.Linear(512, 6), nn.Linear(512, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            hidden = self.trunk(x)
            return self.actor(hidden), self.critic(hidden)

    def rollout(policy: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
        states = torch.randn(64, 64)
        with torch.no_grad():
            for _ in range(2):
                actions = policy(states)[0].softmax(1).multinomial(1)
                yield states, actions
                states = (states + 0.1 * actions).clamp(-3, 3)

    model = Policy()

    def loss() -> Tensor:
        states, actions = (torch.cat(parts) for parts in zip(*list(rollout(model)) * 8, strict=True))
        scores, values = model(states)
        chosen = scores.log_softmax(1).gather(1, actions)
        value: Tensor = (values.square() - chosen * values.detach()).mean()
        return value

    return train(model, loss, 60)


@program("healthy", "640,000 tuples are built and dropped in each step: resident memory creeps up without a leak")
def tuples_of_each_step_is_healthy() -> Judge:
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 8))

    def loss() -> Tensor:
        pairs = [(number, number + 1) for number in range(640_000)]
        value: Tensor = model(torch.randn(64, 64)).square().mean() / len(pairs)
        return value

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    session = autoprof.instrument(model, optimizer=optimizer)
    for _ in range(60):
        update(loss(), optimizer)
    return Judge(session).silent("memory-growth")


def beside_a_thread(work: Callable[[], object]) -> Judge:
    """Train beside a thread that does some work again and again."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.is_set():
            work()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(12)))
    try:
        return train(model, lambda: model(torch.randn(256, 256)).square().mean(), 60)
    finally:
        ended.set()
        thread.join()


@program("healthy", "a thread of the program multiplies matrices, for which it releases the interpreter")
def thread_without_the_interpreter_is_healthy() -> Judge:
    matrix = torch.randn(700, 700)
    return beside_a_thread(lambda: matrix @ matrix)


@program("healthy", "a thread of the program sleeps and counts, as a progress bar's or a logger's does")
def thread_that_sleeps_is_healthy() -> Judge:
    pause = threading.Event()
    return beside_a_thread(lambda: pause.wait(0.005))
