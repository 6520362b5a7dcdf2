"""What the folder of the model of pictures has beside its weights: its processor, and how a chat becomes text."""

from pathlib import Path

from scripts.demo_model.vocabulary import write_json

# As LLaVA's own template, a message's pictures stand before its text, however the client mixed them.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}{{- '<|im_start|>' + message.role + '\\n' -}}"
    "{%- if message.content is string -%}{{- message.content -}}{%- else -%}"
    "{%- for part in message.content -%}{%- if part.type == 'image' -%}{{- '<image>' -}}{%- endif -%}{%- endfor -%}"
    "{%- for part in message.content -%}{%- if part.type == 'text' -%}{{- part.text -}}{%- endif -%}{%- endfor -%}"
    "{%- endif -%}{{- '<|im_end|>\\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)


def write_processor(folder: Path, size: int, patch: int) -> None:
    """All of a picture, in a square: nothing is cut off."""
    half = [0.5, 0.5, 0.5]
    pixels = {
        "processor_class": "LlavaProcessor",
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"height": size, "width": size},
        "resample": 3,
        "do_center_crop": False,
        "crop_size": {"height": size, "width": size},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": half,
        "image_std": half,
    }
    write_json(folder / "preprocessor_config.json", pixels)
    tokens = {
        "processor_class": "LlavaProcessor",
        "image_token": "<image>",
        "patch_size": patch,
        "num_additional_image_tokens": 1,
        "vision_feature_select_strategy": "default",
    }
    write_json(folder / "processor_config.json", tokens)
