"""Checkpoints of models that see, with seeded random weights, and the pictures and films that are shown to them.

LLaVA-1.5 reads pictures and LLaVA-OneVision films, as in section 6 of the SGLang paper. Texts are words of
bench/programs/words.py: the two tokens after them stand for a picture and a film.
"""

import io
import json
import random
from pathlib import Path
from typing import Any

from ramet.bench.programs.words import CONTEXT, END, END_ID, VOCABULARY, tokenizer_json

IMAGE, VIDEO = VOCABULARY, VOCABULARY + 1  # ids
TEXT: dict[str, Any] = {  # 60M
    "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8,
    "num_key_value_heads": 8, "vocab_size": VOCABULARY + 64, "max_position_embeddings": CONTEXT,
    "bos_token_id": None, "eos_token_id": END_ID, "pad_token_id": None,
}  # fmt: skip
TOWER: dict[str, Any] = {  # 28M; pictures of 336 pixels have 576 tokens, frames of 378 pixels 196
    "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 9, "num_attention_heads": 8, "patch_size": 14,
}  # fmt: skip


def write_llava(folder: Path, side: int = 336, text: dict[str, Any] = TEXT, tower: dict[str, Any] = TOWER) -> None:
    """Of pictures, in float32."""
    from transformers import CLIPImageProcessorPil, CLIPVisionConfig, LlamaConfig, LlavaConfig
    from transformers import LlavaForConditionalGeneration as Llava

    vision = CLIPVisionConfig(**tower, image_size=side, projection_dim=tower["hidden_size"])
    _save(Llava, LlavaConfig(vision_config=vision, text_config=LlamaConfig(**text), image_token_index=IMAGE), folder)
    crop = {"height": side, "width": side}
    CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size=crop).save_pretrained(folder)
    _write_processor(
        folder, "LlavaProcessor", image_token="<image>", num_additional_image_tokens=1, patch_size=tower["patch_size"],
        vision_feature_select_strategy="default",
    )  # fmt: skip


def write_onevision(folder: Path, side: int = 378, text: dict[str, Any] = TEXT, tower: dict[str, Any] = TOWER) -> None:
    """Of films and pictures, in float32."""
    from transformers import LlavaOnevisionConfig, Qwen2Config, SiglipVisionConfig
    from transformers import LlavaOnevisionForConditionalGeneration as Onevision
    from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
        LlavaOnevisionImageProcessorPil,
    )

    vision = SiglipVisionConfig(**tower, image_size=side, vision_use_head=False)
    grids = [[side, 2 * side], [2 * side, side]]
    config = LlavaOnevisionConfig(
        vision_config=vision, text_config=Qwen2Config(**text), image_grid_pinpoints=grids, image_token_index=IMAGE,
        video_token_index=VIDEO,
    )  # fmt: skip
    _save(Onevision, config, folder)
    size = {"height": side, "width": side}
    LlavaOnevisionImageProcessorPil(size=size, image_grid_pinpoints=grids).save_pretrained(folder)
    films = {"size": size, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 3, "do_normalize": True}
    (folder / "video_preprocessor_config.json").write_text(json.dumps(films))
    _write_processor(
        folder, "LlavaOnevisionProcessor", num_image_tokens=(side // tower["patch_size"]) ** 2,
        vision_feature_select_strategy="full", vision_aspect_ratio="anyres_max_9",
    )  # fmt: skip


def _save(family: Any, config: Any, folder: Path) -> None:
    import torch

    torch.manual_seed(0)
    family(config).save_pretrained(folder)
    tokenizer = tokenizer_json()
    form = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokenizer["added_tokens"] += [
        {"id": IMAGE, "content": "<image>", **form},
        {"id": VIDEO, "content": "<video>", **form},
    ]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))


def _write_processor(folder: Path, name: str, **fields: Any) -> None:
    (folder / "processor_config.json").write_text(json.dumps({**fields, "processor_class": name}))


def picture(seed: str, width: int = 640, height: int = 480) -> bytes:
    """A PNG of coloured boxes, another one for each seed."""
    from PIL import Image, ImageDraw

    draw, made = random.Random(seed), Image.new("RGB", (width, height))
    pen = ImageDraw.Draw(made)
    for _ in range(24):
        x, y = draw.randrange(width), draw.randrange(height)
        box = x, y, x + draw.randrange(20, 240), y + draw.randrange(20, 240)
        pen.rectangle(box, fill=tuple(draw.randrange(256) for _ in range(3)))
    data = io.BytesIO()
    made.save(data, "PNG")
    return data.getvalue()


def film(seed: str, seconds: float, width: int = 640, height: int = 360, fps: int = 25) -> bytes:
    """An MP4 (H.264) of a picture that moves, with some noise."""
    import av
    import numpy as np
    from PIL import Image

    noise = np.random.default_rng(random.Random(seed).randrange(1 << 32))
    wide = np.asarray(Image.open(io.BytesIO(picture(seed, 2 * width, height))))  # [height, 2 width, 3]
    data = io.BytesIO()
    with av.open(data, "w", format="mp4") as container:
        stream: Any = container.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.options = {"preset": "veryfast", "crf": "23"}
        for i in range(round(seconds * fps)):
            left = 3 * i % width
            shown = wide[:, left : left + width] // 8 * 7 + noise.integers(0, 16, (height, width, 1), np.uint8)
            for packet in stream.encode(av.VideoFrame.from_ndarray(shown, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return data.getvalue()
