"""Models of known families, tiny, with random weights and without dropout."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .case import Case

MODELS: list[Case] = []
FAMILY: dict[str, str] = {}
B, T, V = 2, 32, 128


def model(name: Any, family: Any, batch: Any, loss: Any, fullgraph: Any = True, note: Any = "", **kw: Any) -> Any:
    def wrap(fn: Any) -> Any:
        def build() -> Any:
            return fn(), batch, loss

        MODELS.append(Case(name, build, fullgraph=fullgraph, note=note, **kw))
        FAMILY[name] = family
        return fn

    return wrap


def gen(i: Any) -> Any:
    return torch.Generator().manual_seed(3000 + i)


def sq(out: Any, target: Any = None) -> Any:
    return out.float().pow(2).mean()


def ce(out: Any, target: Any) -> Any:
    return F.cross_entropy(out.flatten(0, -2), target.flatten())


def hf_loss(out: Any, target: Any = None) -> Any:
    return out.loss


def hf_sq(out: Any, target: Any = None) -> Any:
    return out.last_hidden_state.float().pow(2).mean()


def floats(*s: Any, classes: Any = 0) -> Any:
    def mb(i: Any = 0) -> Any:
        g = gen(i)
        x = torch.randn(s, generator=g)
        return (x,), {}, torch.randint(0, classes, (s[0],), generator=g) if classes else None

    return mb


def tokens(b: Any = B, t: Any = T, v: Any = V, target: Any = True) -> Any:
    def mb(i: Any = 0) -> Any:
        x = torch.randint(3, v, (b, t), generator=gen(i))
        return (x,), {}, x if target else None

    return mb


def hf_tokens(labels: Any = True, mask: Any = False, **more: Any) -> Any:
    def mb(i: Any = 0) -> Any:
        x = torch.randint(3, V, (B, T), generator=gen(i))
        kw = {"input_ids": x}
        if labels:
            kw["labels"] = x
        if mask:
            kw["attention_mask"] = torch.ones_like(x)
        kw.update({k: v(i) for k, v in more.items()})
        return (), kw, None

    return mb


def pixels(size: Any = 32, classes: Any = 5, key: Any = "labels", **more: Any) -> Any:
    def mb(i: Any = 0) -> Any:
        g = gen(i)
        kw = {"pixel_values": torch.randn(B, 3, size, size, generator=g)}
        if classes:
            kw[key] = torch.randint(0, classes, (B,), generator=g)
        return (), kw, None

    return mb


# transformers
LM = {
    "vocab_size": V,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "use_cache": False,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GQA = {**LM, "num_key_value_heads": 2}
ENC = {
    "vocab_size": V,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 66,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "pad_token_id": 0,
}
VIS = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "num_labels": 5,
}


def tf(cls: Any, cfg: Any, **kw: Any) -> Any:
    import transformers as t

    if cls.endswith("ImageClassification"):
        kw["problem_type"] = "single_label_classification"  # else set at the first call, and dynamo compiles twice
    m = getattr(t, cls)(getattr(t, cfg)(**kw))
    if cls == "GPT2LMHeadModel":
        m.loss_type = "ForCausalLM"  # else a warning, which breaks the graph
    if cls == "Wav2Vec2Model":
        m.feature_extractor._requires_grad = (
            False  # the flag only: else it sets requires_grad of its input, which breaks the graph
        )
    return m


def causal(name: Any, stem: Any, **kw: Any) -> None:
    model(name, "transformer", hf_tokens(), hf_loss)(lambda: tf(stem + "ForCausalLM", stem + "Config", **kw))


model("gpt2", "transformer", hf_tokens(), hf_loss)(
    lambda: tf(
        "GPT2LMHeadModel",
        "GPT2Config",
        vocab_size=V,
        n_embd=64,
        n_layer=2,
        n_head=4,
        n_positions=64,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        use_cache=False,
        bos_token_id=1,
        eos_token_id=2,
    )
)
causal("llama", "Llama", **GQA)
causal("mistral", "Mistral", **GQA, sliding_window=16)
causal("qwen2", "Qwen2", **GQA)
causal("gemma", "Gemma", **GQA, head_dim=16)
causal("phi", "Phi", **LM, resid_pdrop=0.0, embd_pdrop=0.0, attention_dropout=0.0)
causal("gpt_neox", "GPTNeoX", **LM, attention_dropout=0.0, hidden_dropout=0.0)
model("opt", "transformer", hf_tokens(), hf_loss)(
    lambda: tf(
        "OPTForCausalLM",
        "OPTConfig",
        vocab_size=V,
        hidden_size=64,
        ffn_dim=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        dropout=0.0,
        attention_dropout=0.0,
        word_embed_proj_dim=64,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
)
model("bert", "transformer", hf_tokens(), hf_loss)(lambda: tf("BertForMaskedLM", "BertConfig", **ENC))
model("roberta", "transformer", hf_tokens(), hf_loss)(lambda: tf("RobertaForMaskedLM", "RobertaConfig", **ENC))
model("electra", "transformer", hf_tokens(), hf_loss)(
    lambda: tf("ElectraForMaskedLM", "ElectraConfig", **ENC, embedding_size=32)
)
model("albert", "transformer", hf_tokens(), hf_loss, note="one layer's weights called twice")(
    lambda: tf("AlbertForMaskedLM", "AlbertConfig", **ENC, embedding_size=32, classifier_dropout_prob=0.0)
)
model("distilbert", "transformer", hf_tokens(), hf_loss)(
    lambda: tf(
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        vocab_size=V,
        dim=64,
        hidden_dim=128,
        n_layers=2,
        n_heads=4,
        max_position_embeddings=64,
        dropout=0.0,
        attention_dropout=0.0,
    )
)
model("t5", "transformer", hf_tokens(), hf_loss)(
    lambda: tf(
        "T5ForConditionalGeneration",
        "T5Config",
        vocab_size=V,
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        use_cache=False,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
)
model("bart", "transformer", hf_tokens(), hf_loss)(
    lambda: tf(
        "BartForConditionalGeneration",
        "BartConfig",
        vocab_size=V,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_position_embeddings=64,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
        forced_eos_token_id=2,
    )
)
model("vit", "transformer", pixels(), hf_loss)(lambda: tf("ViTForImageClassification", "ViTConfig", **VIS))
model("deit", "transformer", pixels(), hf_loss)(lambda: tf("DeiTForImageClassification", "DeiTConfig", **VIS))
model("beit", "transformer", pixels(), hf_loss)(
    lambda: tf("BeitForImageClassification", "BeitConfig", **VIS, drop_path_rate=0.0)
)
model("convnext", "convolution", pixels(64), hf_loss)(
    lambda: tf(
        "ConvNextForImageClassification",
        "ConvNextConfig",
        hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 2, 1],
        num_labels=5,
        drop_path_rate=0.0,
    )
)
model("swin", "transformer", pixels(), hf_loss)(
    lambda: tf(
        "SwinForImageClassification",
        "SwinConfig",
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        num_labels=5,
        drop_path_rate=0.0,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
)
model("resnet_hf", "convolution", pixels(64), hf_loss)(
    lambda: tf(
        "ResNetForImageClassification",
        "ResNetConfig",
        embedding_size=16,
        hidden_sizes=[16, 32, 48],
        depths=[1, 1, 1],
        layer_type="bottleneck",
        num_labels=5,
    )
)
model("mobilenet_v2", "convolution", pixels(32), hf_loss)(
    lambda: tf(
        "MobileNetV2ForImageClassification",
        "MobileNetV2Config",
        depth_multiplier=0.25,
        image_size=32,
        num_labels=5,
        classifier_dropout_prob=0.0,
    )
)


def seg(i: Any = 0) -> Any:
    g = gen(i)
    return (
        (),
        {
            "pixel_values": torch.randn(B, 3, 64, 64, generator=g),
            "labels": torch.randint(0, 5, (B, 64, 64), generator=g),
        },
        None,
    )


model("segformer", "transformer", pixels(64), hf_loss)(
    lambda: tf(
        "SegformerForImageClassification",
        "SegformerConfig",
        hidden_sizes=[16, 32],
        depths=[1, 1],
        num_encoder_blocks=2,
        num_attention_heads=[1, 2],
        sr_ratios=[4, 2],
        patch_sizes=[7, 3],
        strides=[4, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=32,
        num_labels=5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout_prob=0.0,
        drop_path_rate=0.0,
    )
)
model(
    "segformer_seg",
    "transformer",
    seg,
    hf_loss,
    fullgraph=False,
    note="transformers takes a lock to install its hooks: the graph breaks",
)(
    lambda: tf(
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        hidden_sizes=[16, 32],
        depths=[1, 1],
        num_encoder_blocks=2,
        num_attention_heads=[1, 2],
        sr_ratios=[4, 2],
        patch_sizes=[7, 3],
        strides=[4, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=32,
        num_labels=5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout_prob=0.0,
        drop_path_rate=0.0,
    )
)


def audio(i: Any = 0) -> Any:
    g = gen(i)
    x = torch.randint(3, V, (B, 16), generator=g)
    return (), {"input_features": torch.randn(B, 16, 64, generator=g), "labels": x}, None


model("whisper", "transformer", audio, hf_loss)(
    lambda: tf(
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        vocab_size=V,
        num_mel_bins=16,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=32,
        max_target_positions=32,
        dropout=0.0,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        begin_suppress_tokens=None,
        suppress_tokens=None,
    )
)


def clip(i: Any = 0) -> Any:
    g = gen(i)
    ids = torch.randint(3, V - 1, (4, 16), generator=g)
    ids[:, -1] = V - 1
    return (), {"input_ids": ids, "pixel_values": torch.randn(4, 3, 32, 32, generator=g), "return_loss": True}, None


_CLIP = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
model("clip", "transformer", clip, hf_loss)(
    lambda: tf(
        "CLIPModel",
        "CLIPConfig",
        text_config=dict(
            _CLIP, vocab_size=V, max_position_embeddings=16, eos_token_id=V - 1, bos_token_id=1, pad_token_id=0
        ),
        vision_config=dict(_CLIP, image_size=32, patch_size=8),
        projection_dim=32,
    )
)


def wave(i: Any = 0) -> Any:
    return (), {"input_values": torch.randn(B, 2000, generator=gen(i))}, None


model("wav2vec2", "transformer", wave, hf_sq)(
    lambda: tf(
        "Wav2Vec2Model",
        "Wav2Vec2Config",
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        conv_dim=(32, 32, 32),
        conv_stride=(5, 2, 2),
        conv_kernel=(10, 3, 3),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        feat_proj_dropout=0.0,
        activation_dropout=0.0,
        layerdrop=0.0,
        apply_spec_augment=False,
        mask_time_prob=0.0,
    )
)
model("mamba_hf", "other", hf_tokens(), hf_loss, note="the sequential scan of transformers, unrolled")(
    lambda: tf(
        "MambaForCausalLM",
        "MambaConfig",
        vocab_size=V,
        hidden_size=32,
        state_size=4,
        num_hidden_layers=1,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
)
model("mixtral", "transformer", hf_tokens(), hf_loss, note="sparse experts of transformers")(
    lambda: tf("MixtralForCausalLM", "MixtralConfig", **GQA, num_local_experts=4, num_experts_per_tok=2)
)


# by hand
model("mlp", "other", floats(32, 64, classes=5), ce)(
    lambda: nn.Sequential(
        nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 5)
    )
)


class BasicBlock(nn.Module):
    def __init__(self, i: Any, o: Any, s: Any) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.downsample = (
            nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o)) if s > 1 or i != o else None
        )

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    def __init__(self, w: Any = 16, classes: Any = 5) -> None:
        super().__init__()
        self.conv1, self.bn1, self.relu, self.maxpool = (
            nn.Conv2d(3, w, 7, 2, 3, bias=False),
            nn.BatchNorm2d(w),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        i = w
        for k in range(4):
            o = w * 2**k
            setattr(self, f"layer{k + 1}", nn.Sequential(BasicBlock(i, o, 1 if k == 0 else 2), BasicBlock(o, o, 1)))
            i = o
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(i, classes)

    def forward(self, x: Any) -> Any:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for k in range(4):
            x = self.get_submodule(f"layer{k + 1}")(x)
        return self.fc(self.avgpool(x).flatten(1))


model("resnet18", "convolution", floats(4, 3, 64, 64, classes=5), ce)(ResNet18)


def cbr(i: Any, o: Any, k: Any = 3, s: Any = 1, g: Any = 1, act: Any = nn.ReLU6) -> Any:
    return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o), act())


class SE(nn.Module):
    def __init__(self, c: Any) -> None:
        super().__init__()
        self.pool, self.a, self.b = nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, c // 4, 1), nn.Conv2d(c // 4, c, 1)

    def forward(self, x: Any) -> Any:
        return x * torch.sigmoid(self.b(F.silu(self.a(self.pool(x)))))


class MBConv(nn.Module):
    def __init__(self, i: Any, o: Any, s: Any, se: Any = False, act: Any = nn.ReLU6) -> None:
        super().__init__()
        self.expand, self.dw = cbr(i, 4 * i, 1, act=act), cbr(4 * i, 4 * i, 3, s, 4 * i, act=act)
        self.se, self.project, self.bn = (
            SE(4 * i) if se else nn.Identity(),
            nn.Conv2d(4 * i, o, 1, bias=False),
            nn.BatchNorm2d(o),
        )
        self.skip = s == 1 and i == o

    def forward(self, x: Any) -> Any:
        y = self.bn(self.project(self.se(self.dw(self.expand(x)))))
        return x + y if self.skip else y


model("mobilenet", "convolution", floats(4, 3, 32, 32, classes=5), ce)(
    lambda: nn.Sequential(
        cbr(3, 16, 3, 2),
        MBConv(16, 16, 1),
        MBConv(16, 24, 2),
        MBConv(24, 24, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 5),
    )
)
model("efficientnet", "convolution", floats(4, 3, 32, 32, classes=5), ce)(
    lambda: nn.Sequential(
        cbr(3, 16, 3, 2, act=nn.SiLU),
        MBConv(16, 16, 1, True, nn.SiLU),
        MBConv(16, 24, 2, True, nn.SiLU),
        MBConv(24, 24, 1, True, nn.SiLU),
        cbr(24, 64, 1, act=nn.SiLU),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 5),
    )
)


class DenseLayer(nn.Module):
    def __init__(self, i: Any, g: Any) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(i), nn.Conv2d(i, g, 3, padding=1, bias=False)

    def forward(self, x: Any) -> Any:
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], 1)


model("densenet", "convolution", floats(4, 3, 32, 32, classes=5), ce)(
    lambda: nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1),
        *[DenseLayer(16 + 8 * k, 8) for k in range(4)],
        nn.Sequential(nn.BatchNorm2d(48), nn.ReLU(), nn.Conv2d(48, 24, 1), nn.AvgPool2d(2)),
        *[DenseLayer(24 + 8 * k, 8) for k in range(3)],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, 5),
    )
)


class Double(nn.Module):
    def __init__(self, i: Any, o: Any) -> None:
        super().__init__()
        self.a, self.b = cbr(i, o, act=nn.ReLU), cbr(o, o, act=nn.ReLU)

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x))


class UNet(nn.Module):
    def __init__(self, w: Any = 8, classes: Any = 3) -> None:
        super().__init__()
        self.down1, self.down2, self.mid = Double(3, w), Double(w, 2 * w), Double(2 * w, 4 * w)
        self.pool = nn.MaxPool2d(2)
        self.up2, self.dec2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2), Double(4 * w, 2 * w)
        self.up1, self.dec1 = nn.Upsample(scale_factor=2, mode="bilinear"), Double(3 * w, w)
        self.out = nn.Conv2d(w, classes, 1)

    def forward(self, x: Any) -> Any:
        a = self.down1(x)
        b = self.down2(self.pool(a))
        c = self.mid(self.pool(b))
        c = self.dec2(torch.cat([self.up2(c), b], 1))
        return self.out(self.dec1(torch.cat([self.up1(c), a], 1)))


model("unet", "convolution", floats(2, 3, 32, 32), sq)(UNet)


class Attn(nn.Module):
    def __init__(self, d: Any, h: Any = 4, causal: Any = False) -> None:
        super().__init__()
        self.h, self.causal = h, causal
        self.q, self.kv, self.o = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)

    def forward(self, x: Any, ctx: Any = None) -> Any:
        ctx = x if ctx is None else ctx
        b, t, d = x.shape
        q = self.q(x).view(b, t, self.h, -1).transpose(1, 2)
        k, v = self.kv(ctx).view(b, ctx.shape[1], 2, self.h, -1).permute(2, 0, 3, 1, 4)
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).reshape(b, t, d))


def ffn(d: Any, m: Any = 2, act: Any = nn.GELU) -> Any:
    return nn.Sequential(nn.Linear(d, m * d), act(), nn.Linear(m * d, d))


class ConvModule(nn.Module):
    def __init__(self, d: Any, k: Any = 7) -> None:
        super().__init__()
        self.norm, self.pw1, self.dw, self.bn, self.pw2 = (
            nn.LayerNorm(d),
            nn.Conv1d(d, 2 * d, 1),
            nn.Conv1d(d, d, k, padding=k // 2, groups=d),
            nn.BatchNorm1d(d),
            nn.Conv1d(d, d, 1),
        )

    def forward(self, x: Any) -> Any:
        x = F.glu(self.pw1(self.norm(x).transpose(1, 2)), 1)
        return self.pw2(F.silu(self.bn(self.dw(x)))).transpose(1, 2)


class ConformerBlock(nn.Module):
    def __init__(self, d: Any) -> None:
        super().__init__()
        self.ff1, self.ff2 = (
            nn.Sequential(nn.LayerNorm(d), ffn(d, act=nn.SiLU)),
            nn.Sequential(nn.LayerNorm(d), ffn(d, act=nn.SiLU)),
        )
        self.norm, self.attn, self.conv, self.out = nn.LayerNorm(d), Attn(d), ConvModule(d), nn.LayerNorm(d)

    def forward(self, x: Any) -> Any:
        x = x + 0.5 * self.ff1(x)
        x = x + self.attn(self.norm(x))
        x = x + self.conv(x)
        return self.out(x + 0.5 * self.ff2(x))


model("conformer", "transformer", floats(2, 48, 40), sq)(
    lambda: nn.Sequential(nn.Linear(40, 64), ConformerBlock(64), ConformerBlock(64), nn.Linear(64, 32))
)


class Experts(nn.Module):
    def __init__(self, d: Any, n: Any = 4, k: Any = 2) -> None:
        super().__init__()
        self.router, self.experts, self.k = nn.Linear(d, n), nn.ModuleList([ffn(d) for _ in range(n)]), k

    def forward(self, x: Any) -> Any:
        w = torch.softmax(self.router(x), -1)
        top, idx = w.topk(self.k, -1)
        gate = torch.zeros_like(w).scatter(-1, idx, top / top.sum(-1, keepdim=True))
        return sum(gate[..., i : i + 1] * e(x) for i, e in enumerate(self.experts))


class PreNorm(nn.Module):
    def __init__(self, d: Any, attn: Any, mlp: Any) -> None:
        super().__init__()
        self.norm1, self.attn, self.norm2, self.mlp = nn.LayerNorm(d), attn, nn.LayerNorm(d), mlp

    def forward(self, x: Any) -> Any:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


model("moe", "transformer", tokens(), ce)(
    lambda: nn.Sequential(
        nn.Embedding(V, 64),
        PreNorm(64, Attn(64, causal=True), Experts(64)),
        PreNorm(64, Attn(64, causal=True), Experts(64)),
        nn.LayerNorm(64),
        nn.Linear(64, V),
    )
)


class CellRnn(nn.Module):
    def __init__(self, cell: Any, d: Any = 64, t: Any = 12) -> None:
        super().__init__()
        self.emb, self.cell, self.head, self.lstm = nn.Embedding(V, d), cell(d, d), nn.Linear(d, V), cell is nn.LSTMCell

    def forward(self, ids: Any) -> Any:
        x = self.emb(ids)
        h = x.new_zeros(x.shape[0], x.shape[2])
        s = (h, h) if self.lstm else h
        out = []
        for t in range(x.shape[1]):
            s = self.cell(x[:, t], s)
            out.append(s[0] if self.lstm else s)
        return self.head(torch.stack(out, 1))


model("rnn_gru_cell", "other", tokens(4, 12), ce, note="one cell, 12 calls")(lambda: CellRnn(nn.GRUCell))
model("lstm_cell", "other", tokens(4, 12), ce, note="one cell, 12 calls")(lambda: CellRnn(nn.LSTMCell))


class LSTMHead(nn.Module):
    def __init__(self, d: Any) -> None:
        super().__init__()
        self.norm, self.ffn, self.out = nn.LayerNorm(d), ffn(d), nn.Linear(d, V)

    def forward(self, x: Any) -> Any:
        return self.out(x + self.ffn(self.norm(x)))


class LSTM(nn.Module):
    def __init__(self, d: Any = 64) -> None:
        super().__init__()
        self.emb, self.lstm, self.head = nn.Embedding(V, d), nn.LSTM(d, d, 2, batch_first=True), LSTMHead(d)

    def forward(self, ids: Any) -> Any:
        x = self.emb(ids)
        x, _ = self.lstm(x)
        return self.head(x)


model(
    "lstm",
    "other",
    tokens(4, 16),
    ce,
    fullgraph=False,
    note="nn.LSTM: dynamo skips the root frame, emb and lstm run eagerly, only head becomes a graph",
)(LSTM)


class MixerBlock(nn.Module):
    def __init__(self, t: Any, d: Any) -> None:
        super().__init__()
        self.norm1, self.token, self.norm2, self.channel = nn.LayerNorm(d), ffn(t), nn.LayerNorm(d), ffn(d)

    def forward(self, x: Any) -> Any:
        x = x + self.token(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel(self.norm2(x))


class Patches(nn.Module):
    def __init__(self, p: Any, d: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, d, p, p)

    def forward(self, x: Any) -> Any:
        return self.conv(x).flatten(2).transpose(1, 2)


class MeanHead(nn.Module):
    def __init__(self, d: Any, n: Any) -> None:
        super().__init__()
        self.fc = nn.Linear(d, n)

    def forward(self, x: Any) -> Any:
        return self.fc(x.mean(1))


model("mixer", "other", floats(2, 3, 32, 32, classes=5), ce)(
    lambda: nn.Sequential(Patches(8, 64), MixerBlock(16, 64), MixerBlock(16, 64), nn.LayerNorm(64), MeanHead(64, 5))
)


class VAE(nn.Module):
    def __init__(self, w: Any = 16, z: Any = 8) -> None:
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(3, w, 4, 2, 1),
            nn.SiLU(),
            nn.GroupNorm(4, w),
            nn.Conv2d(w, 2 * w, 4, 2, 1),
            nn.SiLU(),
            nn.Flatten(),
        )
        self.mu, self.logvar, self.up = nn.Linear(2 * w * 64, z), nn.Linear(2 * w * 64, z), nn.Linear(z, 2 * w * 64)
        self.dec = nn.Sequential(
            nn.Unflatten(1, (2 * w, 8, 8)),
            nn.ConvTranspose2d(2 * w, w, 4, 2, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(w, 3, 4, 2, 1),
        )

    def forward(self, x: Any) -> Any:
        h = self.enc(x)
        mu, lv = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * lv).exp()
        return F.mse_loss(self.dec(self.up(z)), x) - 0.5 * (1 + lv - mu * mu - lv.exp()).mean()


model(
    "vae",
    "convolution",
    floats(4, 3, 32, 32),
    lambda o, t=None: o,
    note="draws noise in the graph: inductor draws other numbers than eager; its loss is the output",
)(VAE)


class WaveLayer(nn.Module):
    def __init__(self, c: Any, d: Any) -> None:
        super().__init__()
        self.d, self.f, self.g, self.res, self.skip = (
            d,
            nn.Conv1d(c, c, 2, dilation=d),
            nn.Conv1d(c, c, 2, dilation=d),
            nn.Conv1d(c, c, 1),
            nn.Conv1d(c, c, 1),
        )

    def forward(self, x: Any) -> Any:
        y = F.pad(x, (self.d, 0))
        y = torch.tanh(self.f(y)) * torch.sigmoid(self.g(y))
        return x + self.res(y), self.skip(y)


class WaveNet(nn.Module):
    def __init__(self, c: Any = 32, n: Any = 5) -> None:
        super().__init__()
        self.inp, self.layers, self.out = (
            nn.Conv1d(1, c, 1),
            nn.ModuleList([WaveLayer(c, 2**i) for i in range(n)]),
            nn.Sequential(nn.ReLU(), nn.Conv1d(c, c, 1), nn.ReLU(), nn.Conv1d(c, 16, 1)),
        )

    def forward(self, x: Any) -> Any:
        x, skips = self.inp(x), 0
        for layer in self.layers:
            x, s = layer(x)
            skips = skips + s
        return self.out(skips)


model("wavenet", "convolution", floats(2, 1, 256), sq)(WaveNet)


class GraphConv(nn.Module):
    def __init__(self, i: Any, o: Any) -> None:
        super().__init__()
        self.own, self.msg, self.norm = nn.Linear(i, o), nn.Linear(i, o, bias=False), nn.LayerNorm(o)

    def forward(self, x: Any, src: Any, dst: Any) -> Any:
        m = self.msg(x)[src]
        agg = torch.zeros(x.shape[0], m.shape[1], dtype=m.dtype).index_add(0, dst, m)
        return F.relu(self.norm(self.own(x) + agg))


class GNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = (
            nn.ModuleList([GraphConv(32, 64), GraphConv(64, 64), GraphConv(64, 64)]),
            nn.Linear(64, 5),
        )

    def forward(self, x: Any, src: Any, dst: Any) -> Any:
        for layer in self.layers:
            x = layer(x, src, dst)
        return self.head(x.mean(0, keepdim=True))


def graph(i: Any = 0) -> Any:
    g = gen(i)
    return (
        (
            torch.randn(100, 32, generator=g),
            torch.randint(0, 100, (400,), generator=g),
            torch.randint(0, 100, (400,), generator=g),
        ),
        {},
        torch.randint(0, 5, (1,), generator=g),
    )


model("graphconv", "other", graph, ce)(GNN)


class Perceiver(nn.Module):
    def __init__(self, d: Any = 64, n: Any = 16) -> None:
        super().__init__()
        self.inp, self.latents = nn.Linear(32, d), nn.Parameter(torch.randn(1, n, d) * 0.02)
        self.normq, self.normk, self.cross, self.mlp = (
            nn.LayerNorm(d),
            nn.LayerNorm(d),
            Attn(d),
            nn.Sequential(nn.LayerNorm(d), ffn(d)),
        )
        self.shared, self.head = PreNorm(d, Attn(d), ffn(d)), MeanHead(d, 5)

    def forward(self, x: Any) -> Any:
        x, z = self.normk(self.inp(x)), self.latents.expand(x.shape[0], -1, -1)
        for _ in range(2):
            z = z + self.cross(self.normq(z), x)
            z = z + self.mlp(z)
            z = self.shared(z)
        return self.head(z)


model("perceiver", "transformer", floats(2, 96, 32, classes=5), ce, note="every module called twice")(Perceiver)


class Decoder(nn.Module):
    def __init__(self, d: Any) -> None:
        super().__init__()
        self.n1, self.n2, self.n3, self.self_attn, self.cross_attn, self.ffn = (
            nn.LayerNorm(d),
            nn.LayerNorm(d),
            nn.LayerNorm(d),
            Attn(d),
            Attn(d),
            ffn(d),
        )

    def forward(self, x: Any, m: Any) -> Any:
        x = x + self.self_attn(self.n1(x))
        x = x + self.cross_attn(self.n2(x), m)
        return x + self.ffn(self.n3(x))


class DETR(nn.Module):
    def __init__(self, d: Any = 64, q: Any = 10, classes: Any = 5) -> None:
        super().__init__()
        self.backbone = nn.Sequential(cbr(3, 16, 3, 2), BasicBlock(16, 32, 2), BasicBlock(32, 32, 2))
        self.proj, self.pos, self.query = (
            nn.Conv2d(32, d, 1),
            nn.Parameter(torch.randn(1, 64, d) * 0.02),
            nn.Embedding(q, d),
        )
        self.encoder, self.decoder = (
            nn.ModuleList([PreNorm(d, Attn(d), ffn(d)) for _ in range(2)]),
            nn.ModuleList([Decoder(d) for _ in range(2)]),
        )
        self.cls, self.box = nn.Linear(d, classes + 1), nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 4))

    def forward(self, x: Any) -> Any:
        m = self.proj(self.backbone(x)).flatten(2).transpose(1, 2) + self.pos
        for layer in self.encoder:
            m = layer(m)
        q = self.query.weight.unsqueeze(0).expand(x.shape[0], -1, -1)
        for layer in self.decoder:
            q = layer(q, m)
        return self.cls(q), self.box(q).sigmoid()


model("detr", "transformer", floats(2, 3, 64, 64), lambda o, t=None: o[0].logsumexp(-1).mean() + o[1].pow(2).mean())(
    DETR
)


class SSM(nn.Module):
    """Mamba-like: gated, short convolution, selective scan unrolled over 16 steps"""

    def __init__(self, d: Any = 32, s: Any = 4) -> None:
        super().__init__()
        self.inp, self.conv, self.dt, self.bc, self.out = (
            nn.Linear(d, 4 * d),
            nn.Conv1d(2 * d, 2 * d, 3, padding=2, groups=2 * d),
            nn.Linear(2 * d, 2 * d),
            nn.Linear(2 * d, 2 * s),
            nn.Linear(2 * d, d),
        )
        self.A, self.D = nn.Parameter(torch.zeros(2 * d, s)), nn.Parameter(torch.ones(2 * d))

    def forward(self, x: Any) -> Any:
        t = x.shape[1]
        u, z = self.inp(x).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., :t].transpose(1, 2))
        dt, (b, c) = F.softplus(self.dt(u)), self.bc(u).chunk(2, -1)
        a, bu = torch.exp(-dt.unsqueeze(-1) * self.A.exp()), (dt * u).unsqueeze(-1) * b.unsqueeze(2)
        h, ys = torch.zeros_like(a[:, 0]), []
        for i in range(t):
            h = a[:, i] * h + bu[:, i]
            ys.append((h * c[:, i].unsqueeze(1)).sum(-1))
        y = torch.stack(ys, 1) + self.D * u
        return self.out(y * F.silu(z))


class Res(nn.Module):
    def __init__(self, d: Any, f: Any) -> None:
        super().__init__()
        self.norm, self.mixer = nn.RMSNorm(d), f

    def forward(self, x: Any) -> Any:
        return x + self.mixer(self.norm(x))


model("mamba", "other", tokens(2, 8), ce)(
    lambda: nn.Sequential(nn.Embedding(V, 32), Res(32, SSM()), Res(32, SSM()), nn.RMSNorm(32), nn.Linear(32, V))
)


class TimeUNet(nn.Module):
    """a small diffusion UNet: time embedding, GroupNorm, self-attention in the middle"""

    def __init__(self, w: Any = 16) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 2 * w), nn.SiLU(), nn.Linear(2 * w, 2 * w))
        self.inp, self.down, self.norm, self.t_proj = (
            nn.Conv2d(3, w, 3, padding=1),
            nn.Conv2d(w, 2 * w, 3, 2, 1),
            nn.GroupNorm(4, 2 * w),
            nn.Linear(2 * w, 2 * w),
        )
        self.attn, self.up, self.out = (
            PreNorm(2 * w, Attn(2 * w), ffn(2 * w)),
            nn.ConvTranspose2d(2 * w, w, 2, 2),
            nn.Conv2d(2 * w, 3, 3, padding=1),
        )

    def forward(self, x: Any, t: Any) -> Any:
        f = t[:, None] * torch.exp(torch.arange(8) * -0.5)
        e = self.time(torch.cat([f.sin(), f.cos()], -1))
        a = self.inp(x)
        h = F.silu(self.norm(self.down(a)) + self.t_proj(e)[:, :, None, None])
        b, c, hh, ww = h.shape
        h = self.attn(h.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(b, c, hh, ww)
        return self.out(torch.cat([self.up(h), a], 1))


def noisy(i: Any = 0) -> Any:
    g = gen(i)
    return (torch.randn(2, 3, 16, 16, generator=g), torch.rand(2, generator=g)), {}, None


model("diffusion_unet", "convolution", noisy, sq)(TimeUNet)


class Dlrm(nn.Module):
    def __init__(self, n: Any = 6, v: Any = 1000, d: Any = 16) -> None:
        super().__init__()
        self.bottom, self.tables = (
            nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, d)),
            nn.ModuleList([nn.Embedding(v, d) for _ in range(n)]),
        )
        self.tri: torch.Tensor
        self.top = nn.Sequential(nn.Linear(d + (n + 1) * n // 2, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("tri", torch.tril_indices(n + 1, n + 1, -1), persistent=False)

    def forward(self, dense: Any, ids: Any) -> Any:
        x = self.bottom(dense)
        z = torch.stack([x] + [t(ids[:, i]) for i, t in enumerate(self.tables)], 1)
        p = z @ z.transpose(1, 2)
        return self.top(torch.cat([x, p[:, self.tri[0], self.tri[1]]], 1))


def clicks(i: Any = 0) -> Any:
    g = gen(i)
    return (torch.randn(64, 13, generator=g), torch.randint(0, 1000, (64, 6), generator=g)), {}, None


model("dlrm", "other", clicks, sq)(Dlrm)
# torch's own layers
model("torch_transformer", "transformer", floats(2, 32, 64), sq)(
    lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True, norm_first=True),
        2,
        enable_nested_tensor=False,
    )
)

BY_NAME = {c.name: c for c in MODELS}
