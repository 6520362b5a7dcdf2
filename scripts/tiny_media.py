"""Seeded, untrained checkpoints of models that take media, as published: weights, tokenizer, template, processor.

Decides sizes; a picture of 32 pixels becomes a handful of tokens. Weights and texts are as of scripts/tiny_families.py.

    python scripts/tiny_media.py FOLDER llava
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tiny_families import SIZES, VOCABULARY, write_checkpoint
from tiny_model import write_json, write_tokenizer
from tokenizers import AddedToken, Tokenizer

CONTEXT = 1024  # tokens
MEDIA_TOKENS = 16  # ids at the vocabulary's end that are no text
FIRST_TOKEN = VOCABULARY - MEDIA_TOKENS  # id of a family's first one
IMAGE_SIZE, PATCH = 32, 8  # pixels

TEMPLATE = (  # parts in their order, each of media as its placeholder
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}PLACEHOLDERS{% endif %}"
    "{% endfor %}{% endif %}"
    "{{ '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def text_sizes(**more: Any) -> dict[str, Any]:
    """Of the language model."""
    return {**SIZES, "max_position_embeddings": CONTEXT, **more}


def make_llava(folder: str | Path, seed: int = 0) -> Path:
    """LLaVA-1.5: 16 tokens for each picture."""
    from transformers import CLIPImageProcessorPil, CLIPVisionConfig, LlamaConfig, LlavaConfig
    from transformers import LlavaForConditionalGeneration as Llava

    vision = CLIPVisionConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=2, image_size=IMAGE_SIZE,
        patch_size=PATCH, projection_dim=32,
    )  # fmt: skip
    text = LlamaConfig(**text_sizes())
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=FIRST_TOKEN)
    folder = write_checkpoint(Path(folder), Llava(config), seed)
    write_media_tokenizer(folder, ["<image>"], {"image": "<image>"}, seed)
    size = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    write_processor(folder, CLIPImageProcessorPil(size={"shortest_edge": IMAGE_SIZE}, crop_size=size))
    processor = dict(image_token="<image>", num_additional_image_tokens=1, patch_size=PATCH)
    strategy = dict(vision_feature_select_strategy="default", processor_class="LlavaProcessor")
    write_json(folder / "processor_config.json", {**processor, **strategy})
    return folder


QWEN_TOKENS = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
QWEN_PLACEHOLDERS = {kind: f"<|vision_start|><|{kind}_pad|><|vision_end|>" for kind in ("image", "video")}
QWEN_IDS = {
    f"{name}_token_id": FIRST_TOKEN + i for i, name in enumerate(("vision_start", "vision_end", "image", "video"))
}


def make_qwen2_vl(folder: str | Path, seed: int = 0) -> Path:
    """A token for each 16 x 16 pixels of a picture, and of two frames of a film."""
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
    vision = dict(depth=2, embed_dim=32, hidden_size=64, num_heads=2, patch_size=PATCH)
    config = Qwen2VLConfig(text_config=text_sizes(rope_parameters=rope), vision_config=vision, **QWEN_IDS)
    model = Qwen2VLForConditionalGeneration(config)
    return _write_qwen(write_checkpoint(Path(folder), model, seed, rewrite=published_qwen2_vl), seed, "Qwen2VL")


def published_qwen2_vl(config: dict[str, Any]) -> None:
    """As on the hub: what is said of the text model is on top. WRITES config."""
    text = config.pop("text_config")
    for name in ("model_type", "layer_types"):
        del text[name]
    rope = text.pop("rope_parameters")
    text["rope_scaling"] = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    text["rope_theta"] = rope["rope_theta"]
    config |= {**text, "torch_dtype": config.pop("dtype")}


def make_qwen2_5_vl(folder: str | Path, seed: int = 0) -> Path:
    """The same, with windows of 2 x 2 tokens in the tower's first layer."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
    vision = dict(
        depth=2, hidden_size=32, out_hidden_size=64, intermediate_size=48, num_heads=2, patch_size=PATCH,
        window_size=4 * PATCH, fullatt_block_indexes=[1], tokens_per_second=2,
    )  # fmt: skip
    config = Qwen2_5_VLConfig(text_config=text_sizes(rope_parameters=rope), vision_config=vision, **QWEN_IDS)
    model = Qwen2_5_VLForConditionalGeneration(config)
    return _write_qwen(write_checkpoint(Path(folder), model, seed), seed, "Qwen2VL")


def make_qwen3_vl(folder: str | Path, seed: int = 0) -> Path:
    """The same without windows, with more features for two of the three layers."""
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [6, 5, 5], "mrope_interleaved": True}
    vision = dict(
        depth=3, hidden_size=32, out_hidden_size=64, intermediate_size=48, num_heads=2, patch_size=PATCH,
        num_position_embeddings=16, deepstack_visual_indexes=[0, 2],
    )  # fmt: skip
    text = text_sizes(rope_parameters=rope, head_dim=32, num_hidden_layers=3)
    config = Qwen3VLConfig(text_config=text, vision_config=vision, **QWEN_IDS)
    model = Qwen3VLForConditionalGeneration(config)
    return _write_qwen(write_checkpoint(Path(folder), model, seed), seed, "Qwen3VL")


def _write_qwen(folder: Path, seed: int, video: str) -> Path:
    from transformers import Qwen2VLImageProcessorPil

    write_media_tokenizer(folder, QWEN_TOKENS, QWEN_PLACEHOLDERS, seed)
    size = {"shortest_edge": 512, "longest_edge": 8192}  # pixels
    write_processor(folder, Qwen2VLImageProcessorPil(patch_size=PATCH, size=size))
    films = dict(size={"shortest_edge": 512, "longest_edge": 4096}, patch_size=PATCH, temporal_patch_size=2)
    settings = {**films, "merge_size": 2, "fps": 2, "video_processor_type": f"{video}VideoProcessor"}
    write_json(folder / "video_preprocessor_config.json", settings)
    return folder


def write_media_tokenizer(folder: Path, tokens: Sequence[str], placeholders: dict[str, str], seed: int) -> None:
    """`tokens` get the ids from FIRST_TOKEN on; `placeholders`: what the template writes for a part, by its type."""
    assert len(tokens) <= MEDIA_TOKENS, f"{len(tokens)} tokens of media do not fit"
    write_tokenizer(folder, FIRST_TOKEN, seed, CONTEXT)
    file = folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file))
    unused = [f"<unused{i}>" for i in range(FIRST_TOKEN - tokenizer.get_vocab_size())]
    tokenizer.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in [*unused, *tokens]])
    assert tokenizer.token_to_id(tokens[0]) == FIRST_TOKEN
    tokenizer.save(str(file))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    parts = [f"{{% elif part['type'] == '{kind}' %}}{{{{ '{text}' }}}}" for kind, text in placeholders.items()]
    settings["chat_template"] = TEMPLATE.replace("PLACEHOLDERS", "".join(parts))
    write_json(folder / "tokenizer_config.json", settings)


def write_processor(folder: Path, processor: Any) -> None:
    """An image processor of transformers' Pillow backend, under the name that folders publish."""
    processor.save_pretrained(folder)
    file = folder / "preprocessor_config.json"
    settings = json.loads(file.read_text())
    settings["image_processor_type"] = settings["image_processor_type"].removesuffix("Pil")
    write_json(file, settings)


FAMILIES: dict[str, Callable[..., Path]] = {
    "llava": make_llava,
    "qwen2-vl": make_qwen2_vl,
    "qwen2.5-vl": make_qwen2_5_vl,
    "qwen3-vl": make_qwen3_vl,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="write a seeded, untrained checkpoint of a model that takes media")
    parser.add_argument("folder")
    parser.add_argument("family", choices=list(FAMILIES))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(FAMILIES[args.family](args.folder, args.seed))


if __name__ == "__main__":
    main()
