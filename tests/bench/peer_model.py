"""Write one ViT-B/32 with random weights for open_clip and for Hugging Face's CLIP (for tests.bench.peers)."""

import json
from pathlib import Path
from typing import Any

import open_clip
import torch
from safetensors.torch import save_file
from torch import Tensor

NAME = "ViT-B-32"
START, END = 49406, 49407
SIDES = {"": "text_model", "visual.": "vision_model"}
PARTS = {"ln_1": "layer_norm1", "ln_2": "layer_norm2", "mlp.c_fc": "mlp.fc1", "mlp.c_proj": "mlp.fc2"}
PARTS |= {"attn.out_proj": "self_attn.out_proj"}
PLAIN = {
    "logit_scale": "logit_scale",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.ln_pre.weight": "vision_model.pre_layrnorm.weight",
    "visual.ln_pre.bias": "vision_model.pre_layrnorm.bias",
    "visual.ln_post.weight": "vision_model.post_layernorm.weight",
    "visual.ln_post.bias": "vision_model.post_layernorm.bias",
}


def write_models(root: Path) -> None:
    """Write open_clip/ and hf/ under `root`, with the same weights."""
    torch.manual_seed(0)
    model = open_clip.create_model(NAME)
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    config = {"model_cfg": open_clip.get_model_config(NAME), "preprocess_cfg": dict(model.visual.preprocess_cfg)}
    save(root / "open_clip", state, "open_clip_model", {"open_clip_config": config})
    save(root / "hf", converted(state), "model", hugging_face_files())
    tokenizer = open_clip.get_tokenizer(NAME)
    (root / "hf/vocab.json").write_text(json.dumps(tokenizer.encoder, ensure_ascii=False))
    merges = "".join(f"{left} {right}\n" for left, right in tokenizer.bpe_ranks)
    (root / "hf/merges.txt").write_text("#version: 0.2\n" + merges)


def save(folder: Path, state: dict[str, Tensor], name: str, files: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    save_file(
        {key: tensor.contiguous() for key, tensor in state.items()}, folder / f"{name}.safetensors", {"format": "pt"}
    )
    for file, content in files.items():
        (folder / f"{file}.json").write_text(json.dumps(content))


def converted(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """open_clip's tensors under the names of Hugging Face's CLIPModel."""
    made = {theirs: state[mine] for mine, theirs in PLAIN.items()}
    made["text_projection.weight"] = state["text_projection"].T
    made["visual_projection.weight"] = state["visual.proj"].T
    for name, tensor in state.items():
        before, found, rest = name.partition("transformer.resblocks.")
        if not found or before not in SIDES:
            continue
        number, _, part = rest.partition(".")
        layer = f"{SIDES[before]}.encoder.layers.{number}"
        if part.startswith("attn.in_proj_"):
            for one, third in zip("qkv", tensor.chunk(3), strict=True):
                made[f"{layer}.self_attn.{one}_proj.{part.removeprefix('attn.in_proj_')}"] = third
        else:
            module, _, kind = part.rpartition(".")
            made[f"{layer}.{PARTS[module]}.{kind}"] = tensor
    return made


def hugging_face_files() -> dict[str, Any]:
    shared = {"hidden_act": "gelu", "num_hidden_layers": 12, "projection_dim": 512, "layer_norm_eps": 1e-5}
    text = {"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8, "vocab_size": 49408}
    text |= {"max_position_embeddings": 77, "bos_token_id": START, "eos_token_id": END, "pad_token_id": END}
    vision = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "patch_size": 32}
    config = {
        "architectures": ["CLIPModel"],
        "model_type": "clip",
        "projection_dim": 512,
        "logit_scale_init_value": 2.66,
    }
    tokens = {"bos_token": "<start_of_text>", "eos_token": "<end_of_text>", "unk_token": "<end_of_text>"}
    return {
        "config": {
            **config,
            "text_config": {**shared, **text},
            "vision_config": {**shared, **vision, "image_size": 224},
        },
        "preprocessor_config": {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 224}},
        "tokenizer_config": {"tokenizer_class": "CLIPTokenizer", "pad_token": "<end_of_text>", **tokens},
    }
