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


FAMILIES: dict[str, Callable[..., Path]] = {"llava": make_llava}


def main() -> None:
    parser = argparse.ArgumentParser(description="write a seeded, untrained checkpoint of a model that takes media")
    parser.add_argument("folder")
    parser.add_argument("family", choices=list(FAMILIES))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(FAMILIES[args.family](args.folder, args.seed))


if __name__ == "__main__":
    main()
