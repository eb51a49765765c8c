"""Pairs of models in which one module does ten times the work, between neighbours that stay as they are."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .case import Build

SMALL, LARGE = 1, 10


def _loss(out: Any, target: Any = None) -> Any:
    return out.float().pow(2).mean()


def _batch(*shape: Any, ids: Any = 0) -> Any:
    def make_batch(i: Any = 0) -> Any:
        g = torch.Generator().manual_seed(2000 + i)
        x = torch.randint(0, ids, shape, generator=g) if ids else torch.randn(shape, generator=g)
        return (x,), {}, None

    return make_batch


class Bottleneck(nn.Module):
    """linear, same in and out, inner width n times"""

    def __init__(self, d: Any, w: Any) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(d, w), nn.Linear(w, d)

    def forward(self, x: Any) -> Any:
        return self.down(self.up(x))


class MLP(nn.Module):
    def __init__(self, d: Any, w: Any, act: Any = nn.GELU) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(d, w), act(), nn.Linear(w, d)

    def forward(self, x: Any) -> Any:
        return self.fc2(self.act(self.fc1(x)))


class SwiGLU(nn.Module):
    def __init__(self, d: Any, w: Any) -> None:
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(d, w, bias=False),
            nn.Linear(d, w, bias=False),
            nn.Linear(w, d, bias=False),
        )

    def forward(self, x: Any) -> Any:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Repeat(nn.Module):
    """n modules of one kind, one after another, all within this module"""

    def __init__(self, n: Any, make: Any) -> None:
        super().__init__()
        self.steps = nn.ModuleList([make() for _ in range(n)])

    def forward(self, x: Any) -> Any:
        for s in self.steps:
            x = s(x)
        return x


class Again(nn.Module):
    """ONE module called n times"""

    def __init__(self, n: Any, inner: Any) -> None:
        super().__init__()
        self.inner, self.n = inner, n

    def forward(self, x: Any) -> Any:
        for _ in range(self.n):
            x = self.inner(x)
        return x


class Sdpa(nn.Module):
    """no weights: scaled_dot_product_attention, n times, the output is the next query"""

    def __init__(self, n: Any, causal: Any = False) -> None:
        super().__init__()
        self.n, self.causal = n, causal

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        for _ in range(self.n):
            q = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return q


class Attention(nn.Module):
    def __init__(self, d: Any, h: Any, n: Any = 1, causal: Any = False) -> None:
        super().__init__()
        self.h, self.qkv, self.core, self.proj = h, nn.Linear(d, 3 * d), Sdpa(n, causal), nn.Linear(d, d)

    def forward(self, x: Any) -> Any:
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        return self.proj(self.core(q, k, v).transpose(1, 2).reshape(b, t, d))


class MathAttention(nn.Module):
    """attention by matmul and softmax, n times"""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.n = n

    def forward(self, x: Any) -> Any:
        k = x.transpose(1, 2)
        for _ in range(self.n):
            x = torch.softmax(x @ k * x.shape[-1] ** -0.5, -1) @ k.transpose(1, 2)
        return x


class Block(nn.Module):
    def __init__(self, d: Any, h: Any, w: Any, n: Any = 1) -> None:
        super().__init__()
        self.norm1, self.attn, self.norm2, self.mlp = nn.LayerNorm(d), Attention(d, h, n), nn.LayerNorm(d), MLP(d, w)

    def forward(self, x: Any) -> Any:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ConvBlock(nn.Module):
    def __init__(self, c: Any, k: Any) -> None:
        super().__init__()
        self.conv, self.bn, self.act = nn.Conv2d(c, c, k, padding=k // 2, bias=False), nn.BatchNorm2d(c), nn.ReLU()

    def forward(self, x: Any) -> Any:
        return self.act(self.bn(self.conv(x)))


class ResBlock(nn.Module):
    def __init__(self, c: Any, k: Any) -> None:
        super().__init__()
        self.a, self.b = ConvBlock(c, 3), ConvBlock(c, k)

    def forward(self, x: Any) -> Any:
        return x + self.b(self.a(x))


class Tables(nn.Module):
    """n embedding tables, the same ids, summed"""

    def __init__(self, n: Any, vocab: Any, d: Any) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(vocab, d) for _ in range(n)])

    def forward(self, ids: Any) -> Any:
        return sum(t(ids) for t in self.tables)


class Hashed(nn.Module):
    """ONE table, n look-ups a token, summed"""

    def __init__(self, n: Any, vocab: Any, d: Any) -> None:
        super().__init__()
        self.n, self.table = n, nn.Embedding(vocab, d)

    def forward(self, ids: Any) -> Any:
        out = self.table(ids)
        for i in range(1, self.n):
            out = out + self.table((ids * (2 * i + 1) + i) % self.table.num_embeddings)
        return out


class Cell(nn.Module):
    def __init__(self, d: Any) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(d, 4 * d), nn.Linear(d, 4 * d)

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        i, f, g, o = (self.x(x) + self.h(h)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class Recurrent(nn.Module):
    """an LSTM cell, n times"""

    def __init__(self, d: Any, n: Any) -> None:
        super().__init__()
        self.cell, self.n = Cell(d), n

    def forward(self, x: Any) -> Any:
        h = c = torch.zeros_like(x)
        for _ in range(self.n):
            h, c = self.cell(x, h, c)
        return h


class Spread(nn.Module):
    """softmax and logsumexp of a wide inner axis: pointwise and reductions, no matrix product"""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.n = n

    def forward(self, x: Any) -> Any:
        for _ in range(self.n):
            x = x + torch.softmax(x, -1) * torch.sin(x)
        return x


def seq(**kids: Any) -> Any:
    from collections import OrderedDict

    return nn.Sequential(OrderedDict(kids))


PAIRS: list[tuple[str, Build, Build, str]] = []  # (name, build_small, build_large, path that must grow)
DETAILS: dict[str, dict[str, Any]] = {}


def pair(name: Any, path: Any, batch: Any, note: Any = "", **kw: Any) -> Any:
    def wrap(fn: Any) -> Any:
        def build(n: Any) -> Any:
            return fn(n), batch, _loss

        PAIRS.append((name, functools.partial(build, SMALL), functools.partial(build, LARGE), path))
        DETAILS[name] = dict(note=note, fullgraph=True, **kw)
        return fn

    return wrap


L = functools.partial
tok = _batch(4, 128, 128)  # 512 tokens of 128
wide = _batch(16, 128, 128)  # 2048 tokens of 128
img = _batch(8, 64, 16, 16)
huge = _batch(16, 256, 32)  # 4096 tokens of 32
bigimg = _batch(8, 32, 32, 32)

# linear
pair("linear_bottleneck", "mid", tok, "two linears, inner width 256 -> 2560")(
    lambda n: seq(
        pre=nn.Linear(128, 128),
        act=nn.ReLU(),
        mid=Bottleneck(128, 256 * n),
        norm=nn.LayerNorm(128),
        post=nn.Linear(128, 128),
    )
)
pair("linear_repeat", "mid", tok, "1 -> 10 different linears in a row")(
    lambda n: seq(
        pre=nn.Linear(128, 384),
        act=nn.ReLU(),
        mid=Repeat(n, L(nn.Linear, 384, 384)),
        act2=nn.Tanh(),
        post=nn.Linear(384, 128),
    )
)
pair("linear_again", "mid", tok, "ONE linear called 1 -> 10 times; mid.inner must grow with it")(
    lambda n: seq(
        pre=nn.Linear(128, 384),
        act=nn.ReLU(),
        mid=Again(n, nn.Linear(384, 384)),
        act2=nn.Tanh(),
        post=nn.Linear(384, 128),
    )
)
pair("linear_nobias_sibling", "1.mid", tok, "three equal blocks, the second's linears grow")(
    lambda n: nn.Sequential(
        *[
            seq(pre=nn.Linear(128, 128, bias=False), mid=Bottleneck(128, 256 * (n if i == 1 else 1)), act=nn.GELU())
            for i in range(3)
        ]
    )
)

# convolution
pair("conv_kernel", "conv2", img, "ONE nn.Conv2d, kernel 3 -> 9 (9 times the products), between BatchNorm and ReLU")(
    lambda n: seq(
        conv1=nn.Conv2d(64, 64, 3, padding=1),
        bn1=nn.BatchNorm2d(64),
        relu1=nn.ReLU(),
        conv2=nn.Conv2d(64, 64, 3 if n == 1 else 9, padding=1 if n == 1 else 4),
        bn2=nn.BatchNorm2d(64),
        relu2=nn.ReLU(),
        conv3=nn.Conv2d(64, 64, 3, padding=1),
    )
)
pair("conv_kernel_relu_only", "conv2", img, "the same without BatchNorm: its backward must not go to a ReLU")(
    lambda n: seq(
        conv1=nn.Conv2d(64, 64, 3, padding=1),
        relu1=nn.ReLU(),
        conv2=nn.Conv2d(64, 64, 3 if n == 1 else 9, padding=1 if n == 1 else 4),
        relu2=nn.ReLU(),
        conv3=nn.Conv2d(64, 64, 3, padding=1),
        relu3=nn.ReLU(),
    )
)
pair("conv_repeat", "mid", img, "1 -> 10 convolutions in a row")(
    lambda n: seq(
        conv1=nn.Conv2d(64, 64, 3, padding=1),
        relu1=nn.ReLU(),
        mid=Repeat(n, L(nn.Conv2d, 64, 64, 3, padding=1)),
        bn2=nn.BatchNorm2d(64),
        relu2=nn.ReLU(),
        conv3=nn.Conv2d(64, 64, 3, padding=1),
    )
)
pair(
    "conv_resnet_block", "blocks.1.b.conv", img, "residual blocks, one convolution of the second grows, kernel 3 -> 9"
)(
    lambda n: seq(
        stem=ConvBlock(64, 3), blocks=nn.Sequential(ResBlock(64, 3), ResBlock(64, 3 if n == 1 else 9), ResBlock(64, 3))
    )
)
pair(
    "conv_depthwise",
    "dw",
    _batch(8, 32, 64, 64),
    "depthwise Conv2d, kernel 3 -> 9; mkldnn makes its forward only about twice as long, its backward six times",
)(
    lambda n: seq(
        pw1=nn.Conv2d(32, 32, 1),
        act1=nn.ReLU(),
        dw=nn.Conv2d(32, 32, 3 if n == 1 else 9, padding=1 if n == 1 else 4, groups=32),
        bn=nn.BatchNorm2d(32),
        act2=nn.ReLU(),
        pw2=nn.Conv2d(32, 32, 1),
    )
)
pair("conv1d", "mid", _batch(8, 64, 128), "Conv1d, kernel 3 -> 31")(
    lambda n: seq(
        pre=nn.Conv1d(64, 64, 3, padding=1),
        act=nn.SiLU(),
        mid=nn.Conv1d(64, 64, 3 if n == 1 else 31, padding=1 if n == 1 else 15),
        bn=nn.BatchNorm1d(64),
        post=nn.Conv1d(64, 64, 3, padding=1),
    )
)
pair("conv_transpose", "mid", img, "ConvTranspose2d, kernel 3 -> 9")(
    lambda n: seq(
        pre=nn.Conv2d(64, 64, 3, padding=1),
        act=nn.ReLU(),
        mid=nn.ConvTranspose2d(64, 64, 3 if n == 1 else 9, padding=1 if n == 1 else 4),
        bn=nn.BatchNorm2d(64),
        post=nn.Conv2d(64, 64, 3, padding=1),
    )
)

# attention
pair("sdpa", "attn.core", tok, "scaled_dot_product_attention 1 -> 10 times, qkv and proj unchanged")(
    lambda n: seq(pre=nn.Linear(128, 128), attn=Attention(128, 4, n), norm=nn.LayerNorm(128), post=nn.Linear(128, 128))
)
pair("sdpa_causal", "attn.core", tok, "the same, causal")(
    lambda n: seq(
        pre=nn.Linear(128, 128), attn=Attention(128, 4, n, True), norm=nn.LayerNorm(128), post=nn.Linear(128, 128)
    )
)
pair("sdpa_one_block", "1.attn.core", tok, "three equal transformer blocks, the second's attention grows")(
    lambda n: nn.Sequential(*[Block(128, 4, 256, n if i == 1 else 1) for i in range(3)])
)
pair("mlp_one_block", "2.mlp", tok, "three equal transformer blocks, the third's MLP grows, 256 -> 2560")(
    lambda n: nn.Sequential(*[Block(128, 4, 256 * (n if i == 2 else 1)) for i in range(3)])
)
pair("attention_matmul", "core", _batch(4, 128, 128), "attention by matmul and softmax")(
    lambda n: seq(pre=nn.Linear(128, 128), core=MathAttention(n), norm=nn.LayerNorm(128), post=nn.Linear(128, 128))
)

# norms
pair("batchnorm", "norm", bigimg, "1 -> 10 BatchNorm2d in a row between convolutions")(
    lambda n: seq(conv1=nn.Conv2d(32, 32, 1), norm=Repeat(n, L(nn.BatchNorm2d, 32)), conv2=nn.Conv2d(32, 32, 1))
)
pair("batchnorm_relu", "norm", bigimg, "the same with a ReLU before and behind, which inductor fuses into it")(
    lambda n: seq(
        conv1=nn.Conv2d(32, 32, 1),
        relu1=nn.ReLU(),
        norm=Repeat(n, L(nn.BatchNorm2d, 32)),
        relu2=nn.ReLU(),
        conv2=nn.Conv2d(32, 32, 1),
    ),
)
pair("layernorm", "norm", huge, "1 -> 10 LayerNorm in a row between linears")(
    lambda n: seq(pre=nn.Linear(32, 256), norm=Repeat(n, L(nn.LayerNorm, 256)), post=nn.Linear(256, 32))
)
pair("rmsnorm", "norm", huge, "1 -> 10 RMSNorm")(
    lambda n: seq(pre=nn.Linear(32, 256), norm=Repeat(n, L(nn.RMSNorm, 256)), post=nn.Linear(256, 32))
)
pair("groupnorm", "norm", bigimg, "1 -> 10 GroupNorm")(
    lambda n: seq(conv1=nn.Conv2d(32, 32, 1), norm=Repeat(n, L(nn.GroupNorm, 8, 32)), conv2=nn.Conv2d(32, 32, 1))
)

# embedding
pair("embedding_tables", "emb", _batch(16, 512, ids=2000), "1 -> 10 tables, summed")(
    lambda n: seq(emb=Tables(n, 2000, 256), norm=nn.LayerNorm(256), post=nn.Linear(256, 32))
)
pair("embedding_hashed", "emb", _batch(16, 512, ids=2000), "ONE table, 1 -> 10 look-ups a token")(
    lambda n: seq(emb=Hashed(n, 2000, 256), norm=nn.LayerNorm(256), post=nn.Linear(256, 32))
)


# pointwise, MLP and the rest
class GeluSpread(nn.Module):
    """GELU of n scaled copies, summed: a pointwise kernel with an inner reduction"""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.register_buffer("scale", torch.linspace(0.5, 1.5, n).unsqueeze(-1))

    def forward(self, x: Any) -> Any:
        return F.gelu(x.unsqueeze(-2) * self.scale).sum(-2)


pair("gelu_spread", "act", wide, "GELU of 1 -> 10 scaled copies, summed")(
    lambda n: seq(pre=nn.Linear(128, 128), act=GeluSpread(n), post=nn.Linear(128, 128))
)
pair("gelu", "act", wide, "1 -> 10 GELU in a row: one fused kernel, alone between two linears")(
    lambda n: seq(pre=nn.Linear(128, 128), act=Repeat(n, nn.GELU), post=nn.Linear(128, 128))
)
pair("mlp_gelu", "mlp", tok, "MLP, width 256 -> 2560")(
    lambda n: seq(
        pre=nn.Linear(128, 128),
        norm=nn.LayerNorm(128),
        mlp=MLP(128, 256 * n),
        norm2=nn.LayerNorm(128),
        post=nn.Linear(128, 128),
    )
)
pair("mlp_swiglu", "mlp", tok, "SwiGLU, width 192 -> 1920")(
    lambda n: seq(
        pre=nn.Linear(128, 128),
        norm=nn.LayerNorm(128),
        mlp=SwiGLU(128, 192 * n),
        norm2=nn.LayerNorm(128),
        post=nn.Linear(128, 128),
    )
)
pair("softmax_chain", "core", wide, "softmax and sine, 1 -> 10 times: no weights, no matrix product")(
    lambda n: seq(pre=nn.Linear(128, 128), core=Spread(n), post=nn.Linear(128, 128))
)
pair("lstm_cell", "rnn", _batch(64, 192), "LSTM cell, 1 -> 10 steps, one cell")(
    lambda n: seq(pre=nn.Linear(192, 192), rnn=Recurrent(192, n), post=nn.Linear(192, 192))
)
