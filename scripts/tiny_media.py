"""Seeded, untrained checkpoints of models that take media, as published: weights, tokenizer, template, processor.

Decides sizes; a picture of 32 pixels becomes a handful of tokens. Weights and texts are as of scripts/tiny_families.py.

    python scripts/tiny_media.py FOLDER llava
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tiny_families import GEMMA, SIZES, VOCABULARY, write_checkpoint
from tiny_model import write_json, write_tokenizer
from tokenizers import AddedToken, Tokenizer

CONTEXT = 2048  # tokens
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


GRIDS = [[32, 64], [64, 32], [64, 64]]  # pixels
VISION = dict(
    hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=2, image_size=IMAGE_SIZE,
    patch_size=PATCH,
)  # fmt: skip
SQUARE = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}


def make_llava_next(folder: str | Path, seed: int = 0) -> Path:
    """A Mistral without windows; up to 1 + 4 tiles of 16 tokens, and a token for each row."""
    from transformers import CLIPVisionConfig, LlavaNextConfig, LlavaNextForConditionalGeneration, MistralConfig
    from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil

    config = LlavaNextConfig(
        vision_config=CLIPVisionConfig(**VISION, projection_dim=32), image_token_index=FIRST_TOKEN,
        text_config=MistralConfig(**text_sizes(sliding_window=None)), image_grid_pinpoints=GRIDS,
    )  # fmt: skip
    folder = write_checkpoint(Path(folder), LlavaNextForConditionalGeneration(config), seed)
    write_media_tokenizer(folder, ["<image>"], {"image": "<image>"}, seed)
    sizes = dict(size={"shortest_edge": IMAGE_SIZE}, crop_size=SQUARE)
    write_processor(folder, LlavaNextImageProcessorPil(**sizes, image_grid_pinpoints=GRIDS))
    processor = dict(image_token="<image>", num_additional_image_tokens=1, patch_size=PATCH)
    strategy = dict(vision_feature_select_strategy="default", processor_class="LlavaNextProcessor")
    write_json(folder / "processor_config.json", {**processor, **strategy})
    return folder


def make_llava_onevision(folder: str | Path, seed: int = 0) -> Path:
    """A Qwen2 whose head is tied; the largest pictures have fewer tokens, and a frame of a film 4."""
    from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration, Qwen2Config
    from transformers import SiglipVisionConfig as Vision
    from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
        LlavaOnevisionImageProcessorPil,
    )

    config = LlavaOnevisionConfig(
        vision_config=Vision(**VISION, vision_use_head=False), image_grid_pinpoints=GRIDS,
        text_config=Qwen2Config(**text_sizes(tie_word_embeddings=True)), image_token_index=FIRST_TOKEN,
        video_token_index=FIRST_TOKEN + 1, vision_aspect_ratio="anyres_max_2",
    )  # fmt: skip
    folder = write_checkpoint(Path(folder), LlavaOnevisionForConditionalGeneration(config), seed)
    write_media_tokenizer(folder, ["<image>", "<video>"], {"image": "<image>", "video": "<video>"}, seed)
    write_processor(folder, LlavaOnevisionImageProcessorPil(size=SQUARE, image_grid_pinpoints=GRIDS))
    films = {"size": SQUARE, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 3}
    write_json(folder / "video_preprocessor_config.json", {**films, "do_normalize": True})
    processor = dict(num_image_tokens=16, vision_feature_select_strategy="full", vision_aspect_ratio="anyres_max_2")
    write_json(folder / "processor_config.json", {**processor, "processor_class": "LlavaOnevisionProcessor"})
    return folder


def make_idefics3(folder: str | Path, seed: int = 0, smol: bool = False) -> Path:
    """4 tokens for each tile, of which there are up to 4, and for the whole picture."""
    import transformers
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
    from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

    name, processor_class = ("SmolVLM", SmolVLMImageProcessorPil) if smol else ("Idefics3", Idefics3ImageProcessorPil)
    vision = dict(VISION, patch_size=PATCH)
    config = getattr(transformers, f"{name}Config")(
        vision_config=vision, text_config=transformers.LlamaConfig(**text_sizes()), image_token_id=FIRST_TOKEN
    )
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
    folder = write_checkpoint(Path(folder), model, seed)
    places = [f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2)]
    tokens = ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", *places]
    write_media_tokenizer(folder, tokens, {"image": "<image>"}, seed)
    sizes = dict(size={"longest_edge": 2 * IMAGE_SIZE}, max_image_size={"longest_edge": IMAGE_SIZE})
    write_processor(folder, processor_class(**sizes))
    write_json(folder / "processor_config.json", {"image_seq_len": 4, "processor_class": f"{name}Processor"})
    return folder


def make_smolvlm(folder: str | Path, seed: int = 0) -> Path:
    return make_idefics3(folder, seed, smol=True)


def make_internvl(folder: str | Path, seed: int = 0) -> Path:
    """A Qwen3; 4 tokens for each tile, of which there are up to 4, and for the whole picture or a frame."""
    from transformers import InternVLConfig, InternVLForConditionalGeneration, Qwen3Config
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    text = Qwen3Config(**text_sizes(head_dim=32))
    tokens = dict(image_token_id=FIRST_TOKEN, image_seq_length=4)
    config = InternVLConfig(vision_config=dict(VISION), text_config=text, tie_word_embeddings=False, **tokens)
    folder = write_checkpoint(Path(folder), InternVLForConditionalGeneration(config), seed)
    names = ["<IMG_CONTEXT>", "<img>", "</img>", "<video>"]
    write_media_tokenizer(folder, names, {"image": "<IMG_CONTEXT>", "video": "<video>"}, seed)
    write_processor(folder, GotOcr2ImageProcessorPil(size=SQUARE, max_patches=4))
    write_json(folder / "processor_config.json", {"image_seq_length": 4, "processor_class": "InternVLProcessor"})
    return folder


def make_gemma3(folder: str | Path, seed: int = 0) -> Path:
    """16 tokens for each picture, twice as many as the windows of three of four layers hold."""
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3TextConfig, SiglipVisionConfig
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    kinds = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]
    sizes = {**GEMMA, "final_logit_softcapping": None, "num_hidden_layers": 4, "layer_types": kinds}
    text = Gemma3TextConfig(**text_sizes(**sizes))
    ids = {f"{name}_token_index": FIRST_TOKEN + i for i, name in enumerate(("image", "boi", "eoi"))}
    vision = SiglipVisionConfig(**VISION, vision_use_head=False)
    config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=16, **ids)
    folder = write_checkpoint(Path(folder), Gemma3ForConditionalGeneration(config), seed)
    names = ["<image_soft_token>", "<start_of_image>", "<end_of_image>"]
    write_media_tokenizer(folder, names, {"image": "<start_of_image>"}, seed)
    write_processor(folder, Gemma3ImageProcessorPil(size=SQUARE))
    write_json(folder / "processor_config.json", {"image_seq_length": 16, "processor_class": "Gemma3Processor"})
    return folder


def make_qwen2_audio(folder: str | Path, seed: int = 0) -> Path:
    """Up to 2 seconds, 50 tokens."""
    from transformers import Qwen2AudioConfig, Qwen2AudioForConditionalGeneration, Qwen2Config, WhisperFeatureExtractor

    audio = dict(
        d_model=32, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=64, num_mel_bins=16,
        max_source_positions=100,
    )  # fmt: skip
    config = Qwen2AudioConfig(
        audio_config=audio, text_config=Qwen2Config(**text_sizes()), audio_token_index=FIRST_TOKEN
    )
    folder = write_checkpoint(Path(folder), Qwen2AudioForConditionalGeneration(config), seed)
    names = ["<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"]
    write_media_tokenizer(folder, names, {"audio": "<|audio_bos|><|AUDIO|><|audio_eos|>"}, seed)
    WhisperFeatureExtractor(feature_size=16, chunk_length=2).save_pretrained(folder)
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
    "llava-next": make_llava_next,
    "llava-onevision": make_llava_onevision,
    "idefics3": make_idefics3,
    "smolvlm": make_smolvlm,
    "internvl": make_internvl,
    "gemma3": make_gemma3,
    "qwen2-audio": make_qwen2_audio,
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
