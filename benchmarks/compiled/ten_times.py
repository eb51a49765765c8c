"""Pairs of models in which one module does ten times the work, between neighbours that stay as they are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..models import Batch, squares
from .case import Build

SMALL, LARGE = 1, 10


def _batch(*shape: int, ids: int = 0) -> Batch:
    def make_batch(i: int) -> Any:
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
        self.gate, self.up = nn.Linear(d, w, bias=False), nn.Linear(d, w, bias=False)
        self.down = nn.Linear(w, d, bias=False)

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


class GeluSpread(nn.Module):
    """GELU of n scaled copies, summed: a pointwise kernel with an inner reduction"""

    def __init__(self, n: Any) -> None:
        super().__init__()
        self.register_buffer("scale", torch.linspace(0.5, 1.5, n).unsqueeze(-1))

    def forward(self, x: Any) -> Any:
        return F.gelu(x.unsqueeze(-2) * self.scale).sum(-2)


def seq(**kids: Any) -> nn.Module:
    """Return the modules in a row, by name."""
    return nn.Sequential(OrderedDict(kids))


def words(d: int = 128, **kids: Any) -> nn.Module:
    """Return the modules between two linears."""
    return seq(pre=nn.Linear(128, d), **kids, post=nn.Linear(d, 128))


def pixels(c: int = 64, k: int = 3, **kids: Any) -> nn.Module:
    """Return the modules between two convolutions."""
    return seq(conv1=nn.Conv2d(c, c, k, padding=k // 2), **kids, conv3=nn.Conv2d(c, c, k, padding=k // 2))


def grown(kind: Any, n: int, c: int, most: int = 9, **options: Any) -> nn.Module:
    """Return a convolution of kernel 3, the large one of ``most``."""
    k = 3 if n == SMALL else most
    made: nn.Module = kind(c, c, k, padding=k // 2, **options)
    return made


def norms(n: int, kind: Any) -> nn.Module:
    """Return n normalisations between two linears."""
    return seq(pre=nn.Linear(32, 256), norm=Repeat(n, lambda: kind(256)), post=nn.Linear(256, 32))


def looked_up(emb: nn.Module) -> nn.Module:
    """Return embeddings before a normalisation."""
    return seq(emb=emb, norm=nn.LayerNorm(256), post=nn.Linear(256, 32))


def _mid(n: int, i: int) -> nn.Module:
    return seq(pre=nn.Linear(128, 128, bias=False), mid=Bottleneck(128, 256 * (n if i == 1 else 1)), act=nn.GELU())


tok = _batch(4, 128, 128)  # 512 tokens of 128
wide = _batch(16, 128, 128)  # 2048 tokens of 128
img = _batch(8, 64, 16, 16)
huge = _batch(16, 256, 32)  # 4096 tokens of 32
bigimg = _batch(8, 32, 32, 32)
ids = _batch(16, 512, ids=2000)
relu, norm, batch_norm = nn.ReLU, nn.LayerNorm, nn.BatchNorm2d
Make = Callable[[int], nn.Module]
# name, path of the module that grows, batch, model of size n, note
_ALL: tuple[tuple[str, str, Batch, Make, str], ...] = (
    ("linear_bottleneck", "mid", tok, lambda n: words(act=relu(), mid=Bottleneck(128, 256 * n), norm=norm(128)),
     "two linears, inner width 256 -> 2560"),
    ("linear_repeat", "mid", tok,
     lambda n: words(384, act=relu(), mid=Repeat(n, lambda: nn.Linear(384, 384)), act2=nn.Tanh()),
     "1 -> 10 different linears in a row"),
    ("linear_again", "mid", tok, lambda n: words(384, act=relu(), mid=Again(n, nn.Linear(384, 384)), act2=nn.Tanh()),
     "ONE linear called 1 -> 10 times; mid.inner must grow with it"),
    ("linear_nobias_sibling", "1.mid", tok, lambda n: nn.Sequential(*[_mid(n, i) for i in range(3)]),
     "three equal blocks, the second's linears grow"),
    ("conv_kernel", "conv2", img,
     lambda n: pixels(bn1=batch_norm(64), r1=relu(), conv2=grown(nn.Conv2d, n, 64), bn2=batch_norm(64), r2=relu()),
     "ONE nn.Conv2d, kernel 3 -> 9 (9 times the products), between BatchNorm and ReLU"),
    ("conv_kernel_relu_only", "conv2", img,
     lambda n: pixels(relu1=relu(), conv2=grown(nn.Conv2d, n, 64), relu2=relu()),
     "the same without BatchNorm: its backward must not go to a ReLU"),
    ("conv_repeat", "mid", img,
     lambda n: pixels(relu1=relu(), mid=Repeat(n, lambda: nn.Conv2d(64, 64, 3, padding=1)), bn2=batch_norm(64)),
     "1 -> 10 convolutions in a row"),
    ("conv_resnet_block", "blocks.1.b.conv", img,
     lambda n: seq(stem=ConvBlock(64, 3),
                   blocks=nn.Sequential(*[ResBlock(64, 9 if n == LARGE and i == 1 else 3) for i in range(3)])),
     "residual blocks, one convolution of the second grows, kernel 3 -> 9"),
    ("conv_depthwise", "dw", _batch(8, 32, 64, 64),
     lambda n: pixels(32, 1, act1=relu(), dw=grown(nn.Conv2d, n, 32, groups=32), bn=batch_norm(32), act2=relu()),
     "depthwise, kernel 3 -> 9; mkldnn makes its forward only about twice as long, its backward six times"),
    ("conv1d", "mid", _batch(8, 64, 128),
     lambda n: seq(pre=nn.Conv1d(64, 64, 3, padding=1), act=nn.SiLU(), mid=grown(nn.Conv1d, n, 64, 31),
                   bn=nn.BatchNorm1d(64), post=nn.Conv1d(64, 64, 3, padding=1)),
     "Conv1d, kernel 3 -> 31"),
    ("conv_transpose", "mid", img,
     lambda n: pixels(act=relu(), mid=grown(nn.ConvTranspose2d, n, 64), bn=batch_norm(64)),
     "ConvTranspose2d, kernel 3 -> 9"),
    ("sdpa", "attn.core", tok, lambda n: words(attn=Attention(128, 4, n), norm=norm(128)),
     "scaled_dot_product_attention 1 -> 10 times, qkv and proj unchanged"),
    ("sdpa_causal", "attn.core", tok, lambda n: words(attn=Attention(128, 4, n, True), norm=norm(128)),
     "the same, causal"),
    ("sdpa_one_block", "1.attn.core", tok,
     lambda n: nn.Sequential(*[Block(128, 4, 256, n if i == 1 else 1) for i in range(3)]),
     "three equal transformer blocks, the second's attention grows"),
    ("mlp_one_block", "2.mlp", tok,
     lambda n: nn.Sequential(*[Block(128, 4, 256 * (n if i == 2 else 1)) for i in range(3)]),
     "three equal transformer blocks, the third's MLP grows, 256 -> 2560"),
    ("attention_matmul", "core", tok, lambda n: words(core=MathAttention(n), norm=norm(128)),
     "attention by matmul and softmax"),
    ("batchnorm", "norm", bigimg, lambda n: pixels(32, 1, norm=Repeat(n, lambda: batch_norm(32))),
     "1 -> 10 BatchNorm2d in a row between convolutions"),
    ("batchnorm_relu", "norm", bigimg,
     lambda n: pixels(32, 1, relu1=relu(), norm=Repeat(n, lambda: batch_norm(32)), relu2=relu()),
     "the same with a ReLU before and behind, which inductor fuses into it"),
    ("layernorm", "norm", huge, lambda n: norms(n, norm), "1 -> 10 LayerNorm in a row between linears"),
    ("rmsnorm", "norm", huge, lambda n: norms(n, nn.RMSNorm), "1 -> 10 RMSNorm"),
    ("groupnorm", "norm", bigimg, lambda n: pixels(32, 1, norm=Repeat(n, lambda: nn.GroupNorm(8, 32))),
     "1 -> 10 GroupNorm"),
    ("embedding_tables", "emb", ids, lambda n: looked_up(Tables(n, 2000, 256)), "1 -> 10 tables, summed"),
    ("embedding_hashed", "emb", ids, lambda n: looked_up(Hashed(n, 2000, 256)), "ONE table, 1 -> 10 look-ups a token"),
    ("gelu_spread", "act", wide, lambda n: words(act=GeluSpread(n)), "GELU of 1 -> 10 scaled copies, summed"),
    ("gelu", "act", wide, lambda n: words(act=Repeat(n, nn.GELU)),
     "1 -> 10 GELU in a row: one fused kernel, alone between two linears"),
    ("mlp_gelu", "mlp", tok, lambda n: words(norm=norm(128), mlp=MLP(128, 256 * n), norm2=norm(128)),
     "MLP, width 256 -> 2560"),
    ("mlp_swiglu", "mlp", tok, lambda n: words(norm=norm(128), mlp=SwiGLU(128, 192 * n), norm2=norm(128)),
     "SwiGLU, width 192 -> 1920"),
    ("softmax_chain", "core", wide, lambda n: words(core=Spread(n)),
     "softmax and sine, 1 -> 10 times: no weights, no matrix product"),
    ("lstm_cell", "rnn", _batch(64, 192),
     lambda n: seq(pre=nn.Linear(192, 192), rnn=Recurrent(192, n), post=nn.Linear(192, 192)),
     "LSTM cell, 1 -> 10 steps, one cell"),
)  # fmt: skip


def _build(make: Make, batch: Batch, n: int) -> Build:
    return lambda: (make(n), batch, squares)


PAIRS = [(name, _build(make, batch, SMALL), _build(make, batch, LARGE), path) for name, path, batch, make, _ in _ALL]
NOTES = {name: note for name, *_, note in _ALL}
