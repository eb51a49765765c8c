"""Models of transformers, small, from their configurations: text, vision, audio, both."""

from collections.abc import Callable
from typing import Any, Final

import torch
import zoo_torchvision_ops
from torch import Tensor, nn
from zoo_case import Arguments, Case, Subject

zoo_torchvision_ops.provide()  # transformers imports torchvision

import transformers  # noqa: E402

WORDS: Final = 64
LENGTH: Final = 12
SMALL: Final[dict[str, Any]] = {
    "vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False,
}  # fmt: skip
GROUPED: Final = {**SMALL, "num_key_value_heads": 2, "head_dim": 4}
EXPERTS: Final = {
    **GROUPED,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
}
BOTH: Final = {
    "vocab_size": WORDS, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "use_cache": False,
}  # fmt: skip
T5: Final = {
    "vocab_size": WORDS, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4, "pad_token_id": 0,
    "decoder_start_token_id": 0, "use_cache": False,
}  # fmt: skip
IMAGE: Final = {"image_size": 32, "patch_size": 8, "num_labels": 3}

CAUSAL: Final[dict[str, dict[str, Any]]] = {
    "gpt2": SMALL, "gpt_neo": {**SMALL, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
    "gpt_neox": SMALL, "gptj": {**SMALL, "rotary_dim": 4}, "opt": {**SMALL, "ffn_dim": 24, "word_embed_proj_dim": 16},
    "bloom": SMALL, "llama": GROUPED, "mistral": GROUPED, "mixtral": EXPERTS, "qwen2": GROUPED, "qwen3": GROUPED,
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 8, "decoder_sparse_step": 1}, "qwen3_moe": EXPERTS,
    "gemma": GROUPED, "gemma2": GROUPED, "gemma3_text": GROUPED, "phi": SMALL, "phi3": GROUPED, "falcon": SMALL,
    "mpt": SMALL, "codegen": {**SMALL, "rotary_dim": 4}, "stablelm": GROUPED, "olmo": GROUPED, "olmoe": EXPERTS,
    "cohere": GROUPED, "granite": GROUPED, "starcoder2": GROUPED,
    "mamba": {**SMALL, "state_size": 4},
    "mamba2": {**SMALL, "state_size": 4, "num_heads": 8, "head_dim": 4, "n_groups": 2},
    "xglm": {**SMALL, "d_model": 16, "ffn_dim": 24, "num_layers": 2, "attention_heads": 4}, "biogpt": SMALL,
    "persimmon": SMALL, "gpt_bigcode": SMALL, "ctrl": {**SMALL, "dff": 24}, "openai-gpt": SMALL,
    "smollm3": GROUPED, "glm": GROUPED, "nemotron": GROUPED,
}  # fmt: skip
PLAIN: Final = (
    "bert", "roberta", "electra", "deberta", "deberta-v2", "mpnet", "convbert", "camembert", "nystromformer",
    "rembert", "roformer", "yoso", "ibert", "megatron-bert", "ernie", "layoutlm", "data2vec-text", "fnet",
)  # fmt: skip
MASKED: Final[dict[str, dict[str, Any]]] = dict.fromkeys(PLAIN, SMALL) | {
    "albert": {**SMALL, "embedding_size": 8, "num_hidden_groups": 1},
    "distilbert": {**SMALL, "dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 24},
    "squeezebert": {**SMALL, "embedding_size": 16},
    "mobilebert": {**SMALL, "intra_bottleneck_size": 8, "embedding_size": 8, "true_hidden_size": 8},
    "xlm": {**SMALL, "emb_dim": 16, "n_layers": 2, "n_heads": 4},
    "longformer": {**SMALL, "attention_window": 4},
    "big_bird": {**SMALL, "attention_type": "original_full"},
    "modernbert": {**SMALL, "global_attn_every_n_layers": 2, "local_attention": 4},
    "funnel": {
        "vocab_size": WORDS, "block_sizes": [1, 1], "d_model": 16, "n_head": 4, "d_head": 4, "d_inner": 24,
        "num_decoder_layers": 1,
    },
}  # fmt: skip
SEQUENCES: Final[dict[str, dict[str, Any]]] = {
    "t5": T5, "mt5": T5, "umt5": T5, "longt5": {**T5, "local_radius": 4},
    "switch_transformers": {**T5, "num_experts": 2, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1},
    "bart": BOTH, "mbart": BOTH, "pegasus": BOTH, "blenderbot": BOTH, "marian": BOTH, "m2m_100": BOTH,
    "led": {
        **BOTH, "attention_window": [4, 4],
        "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64,
    },
    "prophetnet": {
        "vocab_size": WORDS, "hidden_size": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "num_encoder_layers": 2,
        "num_decoder_layers": 2, "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4, "ngram": 2,
        "max_position_embeddings": 64, "pad_token_id": 0, "decoder_start_token_id": 1, "use_cache": False,
    },
}  # fmt: skip
VISION: Final[dict[str, dict[str, Any]]] = {
    "vit": {**SMALL, **IMAGE}, "ijepa": {**SMALL, **IMAGE}, "beit": {**SMALL, **IMAGE}, "dinov2": {**SMALL, **IMAGE},
    "data2vec-vision": {**SMALL, **IMAGE}, "vit_msn": {**SMALL, **IMAGE},
    "swin": {**IMAGE, "patch_size": 4, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
    "swinv2": {**IMAGE, "patch_size": 4, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4},
    "convnext": {**IMAGE, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "patch_size": 4},
    "convnextv2": {**IMAGE, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "patch_size": 4},
    "resnet": {**IMAGE, "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
    "regnet": {**IMAGE, "embedding_size": 8, "hidden_sizes": [8, 16, 16, 16], "depths": [1] * 4, "groups_width": 4},
    "poolformer": {**IMAGE, "patch_size": 16, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]},
    "segformer": {**IMAGE, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 1, 2, 2]},
    "mobilenet_v1": {**IMAGE, "depth_multiplier": 0.25, "min_depth": 8},
    "mobilenet_v2": {**IMAGE, "depth_multiplier": 0.25, "min_depth": 8},
    "focalnet": {
        **IMAGE, "patch_size": 4, "embed_dim": 8, "depths": [1, 1], "hidden_sizes": [8, 16],
        "focal_levels": [2, 2], "focal_windows": [3, 3],
    },
    "pvt": {**IMAGE, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 1, 2, 2]},
}  # fmt: skip
AUDIO: Final[dict[str, dict[str, Any]]] = {
    name: {
        **SMALL, "conv_dim": (8, 8), "conv_kernel": (8, 4), "conv_stride": (4, 4), "num_feat_extract_layers": 2,
        "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.2, "mask_time_length": 2,
        "mask_feature_prob": 0.0,
    }
    for name in ("wav2vec2", "hubert", "wavlm", "data2vec-audio")
}  # fmt: skip


def _words() -> Tensor:
    return torch.randint(3, WORDS, (2, LENGTH))


def _draw_text() -> Arguments:
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[1, -3:] = 0
    return (), {"input_ids": _words(), "attention_mask": mask, "labels": _words()}


def _draw_image() -> Arguments:
    return (), {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 2])}


def _draw_audio() -> Arguments:
    return (), {"input_values": torch.randn(2, 600), "labels": torch.randint(3, WORDS, (2, 4))}


def _loss(output: Any) -> Tensor:
    return output.loss


def _auto(kind: str, name: str, more: dict[str, Any], draw: Callable[[], Arguments]) -> Subject:
    config = transformers.AutoConfig.for_model(name, **more)
    model: nn.Module = getattr(transformers, f"AutoModelFor{kind}").from_config(config)
    return Subject(model, draw, _loss)


def _clip(name: str) -> Subject:
    text = {**SMALL, "projection_dim": 8}
    vision = {**SMALL, "image_size": 32, "patch_size": 8, "projection_dim": 8}
    config = transformers.AutoConfig.for_model(name, text_config=text, vision_config=vision, projection_dim=8)

    def draw() -> Arguments:
        words = _words()
        words[:, -1] = 2
        return (), {"input_ids": words, "pixel_values": torch.randn(2, 3, 32, 32), "return_loss": True}

    return Subject(transformers.AutoModel.from_config(config), draw, _loss)


def _whisper() -> Subject:
    config = transformers.WhisperConfig(
        **{**BOTH, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 16}
    )

    def draw() -> Arguments:
        return (), {"input_features": torch.randn(2, 8, 32), "labels": torch.randint(3, WORDS, (2, 6))}

    return Subject(transformers.WhisperForConditionalGeneration(config), draw, _loss)


def _checkpointed(reentrant: bool) -> Subject:
    made = _auto("CausalLM", "llama", GROUPED, _draw_text)
    made.model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    made.model.enable_input_require_grads()
    return made


def _cached() -> Subject:
    return _auto("CausalLM", "llama", {**GROUPED, "use_cache": True}, _draw_text)


def _everything_returned() -> Subject:
    more = {**SMALL, "output_hidden_states": True, "output_attentions": True, "attn_implementation": "eager"}
    return _auto("MaskedLM", "bert", more, _draw_text)


def _case(name: str, build: Callable[[], Subject]) -> Case:
    return Case("transformers", name, build)


def _cases(kind: str, models: dict[str, dict[str, Any]], draw: Callable[[], Arguments]) -> list[Case]:
    return [_case(name, lambda n=name, m=more: _auto(kind, n, m, draw)) for name, more in models.items()]


CASES: Final = [
    *_cases("CausalLM", CAUSAL, _draw_text),
    *_cases("MaskedLM", MASKED, _draw_text),
    *_cases("Seq2SeqLM", SEQUENCES, _draw_text),
    *_cases("ImageClassification", VISION, _draw_image),
    *_cases("CTC", AUDIO, _draw_audio),
    *(_case(name, lambda n=name: _clip(n)) for name in ("clip", "siglip")),
    _case("whisper", _whisper),
    _case("llama, checkpointed", lambda: _checkpointed(False)),
    _case("llama, checkpointed, reentrant", lambda: _checkpointed(True)),
    _case("llama with a cache", _cached),
    _case("bert, everything returned", _everything_returned),
]
