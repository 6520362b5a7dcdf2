"""Models that are published as a text decoder beside towers for pictures or sound.

The decoder is of any family of ours, as text_config says, and behind a prefix of the weights. Decides how both are read
of a composite's files; what else they hold is the towers', which are left out here.
"""

from dataclasses import dataclass, replace

from ramet.runtime.models.config_json import ConfigObject
from ramet.runtime.models.decoder_config import read_dtype
from ramet.runtime.models.shape import ModelShape
from ramet.runtime.models.weight_map import WeightMap

TEXTS = {  # model_type of a text_config -> the class that its decoder has on its own
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gemma4_text": "Gemma4ForCausalLM",
    "glm": "GlmForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
}
HARMLESS = (  # to the decoder: keys of composites that are about other things than text, or that no class reads
    # towers, and what joins them with the decoder
    "vision_config", "audio_config", "projector_hidden_act", "multimodal_projector_bias", "vision_feature_layer",
    "vision_feature_select_strategy", "downsample_ratio", "scale_factor", "projection_dim", "perceiver_config",
    "pixel_shuffle_factor", "use_resampler", "qk_layer_norms", "use_image_newline_parameter",
    # sizes of pictures
    "image_grid_pinpoints", "image_seq_length", "mm_tokens_per_image", "vision_aspect_ratio",
    "vision_soft_tokens_per_image",
    # tokens
    "image_token_id", "image_token_index", "video_token_id", "video_token_index", "audio_token_id", "audio_token_index",
    "vision_start_token_id", "vision_end_token_id", "boi_token_id", "boi_token_index", "eoi_token_id",
    "eoi_token_index", "boa_token_id", "eoa_token_id", "eoa_token_index", "ignore_index",
    # of other libraries, and of conversions
    "is_llama_config", "rope_interleaved", "transformers.js_config", "use_bfloat16", "use_reentrant_checkpointing",
    "vocab_size",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Composite:
    text: str  # model_type of a text_config that names none
    towers: tuple[str, ...]  # prefixes of weights behind `inside`, or without it as older files have them
    inside: str = "language_model."  # the prefix of the decoder's weights
    tied: bool = False  # what an absent tie_word_embeddings means
    tied_as_text: bool = False  # that of text_config ties as well

    def around(self, weights: WeightMap) -> WeightMap:
        """Of the whole checkpoint, where the decoder alone has `weights`."""
        inside = self.inside
        renamed = (
            (f"{inside}model.", "model."), (f"{inside}lm_head.", "lm_head."), (f"model.{inside}", "model."),
            (inside, "model."),
        )  # fmt: skip
        towers = (*self.towers, *(f"model.{tower}" for tower in self.towers))
        return replace(weights, renamed=(*renamed, *weights.renamed), ignored=(*weights.ignored, *towers))


VISION = ("vision_tower.", "multi_modal_projector.")
COMPOSITES = {  # architecture as Hugging Face names it
    "Gemma3ForConditionalGeneration": Composite("gemma3_text", VISION, tied=True),
    "Gemma4ForConditionalGeneration": Composite(
        "gemma4_text", ("vision_tower.", "audio_tower.", "embed_vision.", "embed_audio."), tied=True
    ),
    "Idefics3ForConditionalGeneration": Composite("llama", ("vision_model.", "connector."), "text_model."),
    "InternVLForConditionalGeneration": Composite("qwen2", VISION, tied=True),
    "LlavaForConditionalGeneration": Composite("llama", VISION, tied_as_text=True),
    "LlavaNextForConditionalGeneration": Composite("llama", (*VISION, "image_newline")),
    "LlavaOnevisionForConditionalGeneration": Composite("qwen2", (*VISION, "image_newline"), tied_as_text=True),
    "Qwen2AudioForConditionalGeneration": Composite("qwen2", ("audio_tower.", "multi_modal_projector.")),
    "Qwen3_5ForConditionalGeneration": Composite("qwen3_5_text", ("visual.",), tied_as_text=True),
    "Qwen3_5MoeForConditionalGeneration": Composite("qwen3_5_moe_text", ("visual.",), tied_as_text=True),
    "SmolVLMForConditionalGeneration": Composite("llama", ("vision_model.", "connector."), "text_model."),
}


def text_of(config: ConfigObject) -> tuple[str, ConfigObject]:
    """The class that the decoder has on its own, and its part of the file."""
    inner = config.object("text_config")
    return TEXTS[inner.choice(("model_type",), tuple(TEXTS), COMPOSITES[config.architecture].text)], inner


def beside_towers(shape: ModelShape, config: ConfigObject, inner: ConfigObject) -> ModelShape:
    """The decoder that was read of `inner`, as `config` has it."""
    composite = COMPOSITES[config.architecture]
    tied = config.flag("tie_word_embeddings", composite.tied)
    return replace(
        shape,
        composite=config.architecture,
        tied_head=tied or (composite.tied_as_text and shape.tied_head),
        dtype=read_dtype(inner, read_dtype(config, "float32")),
    )
