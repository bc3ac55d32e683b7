"""Small random models of the classes of `transformers`, so that the examples run on any machine in seconds."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DiffusionGemmaConfig,
    DiffusionGemmaForBlockDiffusion,
    DiffusionGemmaTextConfig,
    Gemma4VisionConfig,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

TEXTS = [
    '{"customer": "Jane", "total": 84, "paid": false}',
    "yes, it is a fine lamp",
    "no, the lamp broke in a week",
]


def tokenizer() -> Any:
    """A byte-level BPE with end, padding and mask tokens."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<eos>", "<pad>", "<mask>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(TEXTS * 3, trainer)
    chat = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<eos>", pad_token="<pad>", mask_token="<mask>", chat_template=chat
    )


def diffusion_gemma_model(vocab_size: int, canvas_length: int = 32, seed: int = 0) -> Any:
    """A random `DiffusionGemmaForBlockDiffusion` of two layers."""
    torch.manual_seed(seed)
    text = DiffusionGemmaTextConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=8,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        global_head_dim=16,
        num_experts=2,
        top_k_experts=1,
        moe_intermediate_size=16,
        pad_token_id=None,
        eos_token_id=0,
        bos_token_id=0,
    )
    vision = Gemma4VisionConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=16,
    )
    image = dict.fromkeys(("image_token_id", "boi_token_id", "eoi_token_id"), vocab_size - 1)
    config = DiffusionGemmaConfig(text_config=text, vision_config=vision, canvas_length=canvas_length, **image)
    return DiffusionGemmaForBlockDiffusion(config).eval()


def causal_model(vocab_size: int, seed: int = 0) -> Any:
    """A random `GPT2LMHeadModel` of two layers."""
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=vocab_size, n_embd=32, n_layer=2, n_head=2, n_positions=256, bos_token_id=0, eos_token_id=0
    )
    return GPT2LMHeadModel(config).eval()


def masked_model(vocab_size: int, seed: int = 0) -> Any:
    """A random BERT of two layers: `LLaDA2Pipeline` takes any model that returns the logits of all positions."""
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=256,
    )
    return BertForMaskedLM(config).eval()
