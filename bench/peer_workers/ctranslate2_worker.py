"""CTranslate2: one static batch, on a model converted once; it is told the prefix that all prompts share."""

import subprocess
import sys

import ctranslate2
from protocol import arguments, serve, shared_length

o = arguments(compute="float32")
folder = o.work / f"ctranslate2-{o.model.name}-{o.compute}"
if not folder.exists():
    command = [sys.executable.replace("/python", "/ct2-transformers-converter"), "--model", str(o.model)]
    command += ["--output_dir", str(folder), "--quantization", o.compute]
    subprocess.run(command, check=True, stdout=sys.stderr)
if o.prepare:
    raise SystemExit
model = ctranslate2.Generator(str(folder), device="cpu", compute_type=o.compute, intra_threads=0, inter_threads=1)


def tokens(ids: list[int]) -> list[str]:
    return [f"w{i}" for i in ids]


def generate(prompts: list[list[int]], output: int) -> list[int]:
    shared = shared_length(prompts)
    results = model.generate_batch(
        [tokens(ids[shared:]) for ids in prompts], static_prompt=tokens(prompts[0][:shared]) if shared else None,
        max_length=output, min_length=output, sampling_topk=1, beam_size=1, include_prompt_in_result=False,
        end_token=[],
    )  # fmt: skip
    return [len(result.sequences_ids[0]) for result in results]


serve(ctranslate2.__version__, generate)
