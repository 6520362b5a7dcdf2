"""Compare the logits of ramet with those of transformers on the same model folder, position by position.

    python scripts/compare_hf.py FOLDER --tokens 64 --chunk 7 --dtype float32

Prints the largest difference and how often the best token agrees; exits with 1 above --tolerance.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

from ramet.runtime.config import Args, CacheArgs, ExecArgs, ModelArgs
from ramet.runtime.engine.batch import Batch
from ramet.runtime.engine.runner import ModelRunner
from ramet.runtime.models.registry import read_shape
from ramet.runtime.sampling.columns import SamplingColumns


def prompt_batch(token_ids: np.ndarray, start: int, stop: int, row: int = 1) -> Batch:
    """Tokens [start, stop) of one sequence whose position i lives in slot 16 + i, drawing after the last."""
    num_new = stop - start
    positions = np.arange(start, stop, dtype=np.int32)
    return Batch(
        rows=np.array([row], np.int32),
        num_new=np.array([num_new], np.int32),
        seq_lens=np.array([stop], np.int32),
        token_ids=token_ids[start:stop].astype(np.int32),
        positions=positions,
        slots=positions + np.int32(16),
        num_decode=int(num_new == 1),
        draws=np.zeros(1, np.int32),
        sampling=SamplingColumns.greedy(1),
    )


def our_logits(folder: str, token_ids: np.ndarray, chunk: int, dtype: str, backend: str) -> torch.Tensor:
    """[num chunks, V]: the logits after each chunk."""
    args = Args(
        model=ModelArgs(model_path=folder, dtype=dtype),
        cache=CacheArgs(max_total_tokens=len(token_ids) + 32),
        execute=ExecArgs(attention_backend=backend),
    )
    runner = ModelRunner(args, lambda name, seconds: print(f"  {name}: {seconds:.2f} s"))
    starts = range(0, len(token_ids), chunk)
    outputs = [runner.forward(prompt_batch(token_ids, at, min(at + chunk, len(token_ids)))).drawn() for at in starts]
    return torch.cat([logits for logits in outputs if logits is not None])


def oracle_logits(folder: str, token_ids: np.ndarray, chunk: int, dtype: str) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    options = {} if dtype == "auto" else {"dtype": getattr(torch, dtype)}
    model = AutoModelForCausalLM.from_pretrained(folder, **options).eval()
    with torch.inference_mode():
        logits = model(torch.from_numpy(token_ids.astype(np.int64))[None]).logits[0].float()
    ends = [min(at + chunk, len(token_ids)) - 1 for at in range(0, len(token_ids), chunk)]
    return logits[ends]


def main() -> None:
    parser = argparse.ArgumentParser(description="logits of ramet against transformers")
    parser.add_argument("folder")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--chunk", type=int, default=1, help="new tokens in each step")
    parser.add_argument("--dtype", default="float32", choices=["auto", "float32", "bfloat16", "float16"])
    parser.add_argument("--attention-backend", default="auto", choices=["auto", "reference", "cpu"])
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    shape = read_shape(Path(args.folder))
    token_ids = np.random.RandomState(args.seed).randint(0, shape.vocab_size, args.tokens)
    ours = our_logits(args.folder, token_ids, args.chunk, args.dtype, args.attention_backend)
    theirs = oracle_logits(args.folder, token_ids, args.chunk, args.dtype)
    worst = (ours - theirs).abs().max().item()
    agree = (ours.argmax(-1) == theirs.argmax(-1)).float().mean().item()
    print(f"{len(ours)} positions: largest difference {worst:.2e}, best token agrees at {agree:.1%}")
    sys.exit(worst > args.tolerance)


if __name__ == "__main__":
    main()
