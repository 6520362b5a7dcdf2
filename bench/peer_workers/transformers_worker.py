"""transformers: `generate` with its dynamic cache and fused attention, batches of equal lengths."""

import argparse

import torch
import transformers
from protocol import serve

p = argparse.ArgumentParser()
p.add_argument("model")
p.add_argument("work")
p.add_argument("--dtype", default="bfloat16")
p.add_argument("--batch", type=int, default=32)
o = p.parse_args()
model = transformers.AutoModelForCausalLM.from_pretrained(o.model, dtype=getattr(torch, o.dtype)).eval()


@torch.inference_mode()
def generate(prompts: list[list[int]], output: int) -> list[int]:
    lengths: list[int] = []
    for first in range(0, len(prompts), o.batch):
        ids = torch.tensor(prompts[first : first + o.batch])
        made = model.generate(
            ids, attention_mask=torch.ones_like(ids), min_new_tokens=output, max_new_tokens=output, do_sample=False,
            pad_token_id=0,
        )  # fmt: skip
        lengths += [made.shape[1] - ids.shape[1]] * len(ids)
    return lengths


generate([[5] * 64], 4)
serve(transformers.__version__, generate)
