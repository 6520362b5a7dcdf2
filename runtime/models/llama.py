"""Llama 2 and 3 (Touvron et al. 2023, Dubey et al. 2024): the shared decoder as it is."""

from ramet.runtime.models.decoder import Decoder


class LlamaForCausalLM(Decoder):
    """Grouped queries, rotary scaling, biases and a tied head are all in the shape."""
