"""From a model folder to its media format. A family's file is imported when a model asks for it."""

from importlib import import_module
from pathlib import Path

from ramet.runtime.media.formats.base import MediaFormat
from ramet.runtime.text.files import read_json

FORMATS = {  # architecture as Hugging Face names it -> the module of this folder with its FORMAT
    "Gemma3ForConditionalGeneration": "gemma3",
    "Idefics3ForConditionalGeneration": "idefics3",
    "InternVLForConditionalGeneration": "internvl",
    "LlavaForConditionalGeneration": "llava",
    "LlavaNextForConditionalGeneration": "llava_next",
    "LlavaOnevisionForConditionalGeneration": "llava_onevision",
    "Qwen2AudioForConditionalGeneration": "qwen2_audio",
    "Qwen2VLForConditionalGeneration": "qwen2_vl",
    "Qwen2_5_VLForConditionalGeneration": "qwen2_vl",
    "Qwen3VLForConditionalGeneration": "qwen3_vl",
    "SmolVLMForConditionalGeneration": "idefics3",
}


def format_of(folder: Path) -> MediaFormat | None:
    """None: the model takes texts alone. Raises ConfigError for a broken file."""
    names = read_json(folder / "config.json").get("architectures")
    name = FORMATS.get(names[0]) if isinstance(names, list) and names and isinstance(names[0], str) else None
    if name is None:
        return None
    made: MediaFormat = import_module(f"ramet.runtime.media.formats.{name}").FORMAT(folder)
    return made
