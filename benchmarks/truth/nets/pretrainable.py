"""Networks of transformers, of any type that the library lists, from small configurations.

Nothing is downloaded: weights and data are random. ``build(architecture, sizes)`` takes the type
of model; ``sizes.more["task"]`` names one of `TASKS`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.truth.training import Parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.truth.spec import Sizes

WORDS = 1_000
LABELS = 10
HEAD = 32  # channels of an attention head
FRAMES = 400  # samples of sound per unit of length

TASKS = {
    "masked": ("MODEL_FOR_MASKED_LM_MAPPING_NAMES", "words"),
    "causal": ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "words"),
    "seq2seq": ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "words"),
    "sentence": ("MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES", "sentence"),
    "tags": ("MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES", "tags"),
    "image": ("MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", "image"),
    "pixels": ("MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES", "pixels"),
    "speech": ("MODEL_FOR_CTC_MAPPING_NAMES", "speech"),
    "sound": ("MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES", "sound"),
}
"""Name of the library's list of heads, and what a head trains on."""

SETTINGS: dict[str, Callable[[Sizes], Any]] = {
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "embedding_size", "emb_dim"),
        lambda s: s.width,
    ),
    **dict.fromkeys(
        (
            *("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
            *("decoder_layers", "num_decoder_layers", "num_encoder_layers"),
        ),
        lambda s: s.depth,
    ),
    **dict.fromkeys(
        (
            *("num_attention_heads", "n_head", "n_heads", "encoder_attention_heads"),
            *("decoder_attention_heads", "num_key_value_heads", "num_heads"),
        ),
        lambda s: max(s.width // HEAD, 1),
    ),
    **dict.fromkeys(
        (
            *("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "ffn_dim", "d_ff"),
            *("ffn_hidden_size", "dim_feedforward"),
        ),
        lambda s: 4 * s.width,
    ),
    **dict.fromkeys(("head_dim", "d_kv"), lambda _: HEAD),
    **dict.fromkeys(("vocab_size",), lambda _: WORDS),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), lambda _: 512),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), lambda _: 4),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token"), lambda _: 2),
    **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size"), lambda s: s.width),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), lambda _: HEAD),
    "n_group": lambda _: 1,
    "topk_group": lambda _: 1,
    "image_size": lambda s: s.length,
    "num_labels": lambda _: LABELS,
    "pad_token_id": lambda _: 0,
    "bos_token_id": lambda _: 1,
    "eos_token_id": lambda _: 2,
    "decoder_start_token_id": lambda _: 1,
    "use_cache": lambda _: False,
}
"""What a configuration is told, where it has the name."""
STAGES = ("hidden_sizes", "embed_dims", "encoder_hidden_sizes")
"""Channels by stage: each twice those before."""


def build(architecture: str, sizes: Sizes) -> Parts:
    """Return the type of model *architecture* with the head for its task."""
    model = network(architecture, sizes)
    names, sample = data_of(sizes, model.config)

    def loss(batch: tuple[Any, ...]) -> Any:
        return model(**dict(zip(names, batch, strict=True))).loss

    return Parts(model, loss, sample)


def network(architecture: str, sizes: Sizes) -> Any:
    """Return the network, in training mode."""
    cls = find_class(architecture, sizes)
    return cls._from_config(configure(architecture, sizes)).train()


def find_class(architecture: str, sizes: Sizes) -> Any:
    """Return the class of the network with the head for its task."""
    auto = import_module("transformers.models.auto.modeling_auto")
    head = getattr(auto, TASKS[sizes.more["task"]][0])[architecture]
    return getattr(import_module("transformers"), head if isinstance(head, str) else head[0])


def configure(architecture: str, sizes: Sizes) -> Any:
    """Return the type's own configuration, made small."""
    auto_config = import_module("transformers").AutoConfig
    usual = auto_config.for_model(architecture)
    known = {*usual.to_dict(), *getattr(usual, "attribute_map", {})}
    settings = {name: value(sizes) for name, value in SETTINGS.items() if name in known}
    settings["num_labels"] = LABELS
    for name in STAGES:
        if isinstance(stages := getattr(usual, name, None), list | tuple):
            settings[name] = [sizes.width // 2 << stage for stage in range(len(stages))]
    return auto_config.for_model(architecture, **settings)


def data_of(sizes: Sizes, config: Any) -> tuple[tuple[str, ...], Callable[[int], tuple[Any, ...]]]:
    """Return names of a batch's parts, and what makes so many samples."""
    length = sizes.length
    channels = getattr(config, "num_channels", 3)
    channels = channels if isinstance(channels, int) else 3

    def words(n: int) -> Any:
        return torch.randint(3, WORDS, (n, length))

    def pictures(n: int) -> Any:
        return torch.randn(n, channels, length, length)

    def labels(n: int, *more: int) -> Any:
        return torch.randint(LABELS, (n, *more))

    def heard(n: int) -> Any:
        return torch.randn(n, FRAMES * length)

    kinds: dict[str, tuple[tuple[str, ...], Callable[[int], tuple[Any, ...]]]] = {
        "words": (("input_ids", "labels"), lambda n: (words(n), words(n))),
        "sentence": (("input_ids", "labels"), lambda n: (words(n), labels(n))),
        "tags": (("input_ids", "labels"), lambda n: (words(n), labels(n, length))),
        "image": (("pixel_values", "labels"), lambda n: (pictures(n), labels(n))),
        "pixels": (("pixel_values", "labels"), lambda n: (pictures(n), labels(n, length, length))),
        "speech": (
            ("input_values", "labels"),
            lambda n: (heard(n), torch.randint(1, 30, (n, max(length // 8, 2)))),
        ),
        "sound": (("input_values", "labels"), lambda n: (heard(n), labels(n))),
    }
    return kinds[TASKS[sizes.more["task"]][1]]
