"""transformers: `generate` with fused attention; a common prefix is computed once and its cache copied.

Its cache that grows is faster on a CPU than its static one, which attends to its whole length in every step.
"""

import copy

import torch
import transformers
from protocol import arguments, serve, shared_length

o = arguments(dtype="bfloat16", batch="64", cache="dynamic")
model = transformers.AutoModelForCausalLM.from_pretrained(
    o.model, dtype=getattr(torch, o.dtype), attn_implementation="sdpa"
).eval()


@torch.inference_mode()
def generate(prompts: list[list[int]], output: int) -> list[int]:
    shared, size = shared_length(prompts), int(o.batch)
    prefix = transformers.DynamicCache(config=model.config)
    if shared:
        model(torch.tensor([prompts[0][:shared]]), past_key_values=prefix, logits_to_keep=1)
    lengths: list[int] = []
    for first in range(0, len(prompts), size):
        ids = torch.tensor(prompts[first : first + size])  # all of one length, so nothing is padded
        chosen = {"cache_implementation": o.cache}
        if shared:
            copied = copy.deepcopy(prefix)
            copied.batch_repeat_interleave(len(ids))
            chosen = {"past_key_values": copied}
        made = model.generate(
            ids, attention_mask=torch.ones_like(ids), min_new_tokens=output, max_new_tokens=output, do_sample=False,
            pad_token_id=0, **chosen,
        )  # fmt: skip
        lengths += [made.shape[1] - ids.shape[1]] * len(ids)
    return lengths


serve(transformers.__version__, generate)
