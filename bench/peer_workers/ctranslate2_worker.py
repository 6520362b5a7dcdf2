"""CTranslate2: one static batch, on a model converted once."""

import argparse
import subprocess
import sys
from pathlib import Path

import ctranslate2
from protocol import serve

p = argparse.ArgumentParser()
p.add_argument("model")
p.add_argument("work")
p.add_argument("--compute", default="float32", help="float32 or int8_float32")
o = p.parse_args()
folder = Path(o.work) / f"ctranslate2-{Path(o.model).name}-{o.compute}"
if not folder.exists():
    command = [str(Path(sys.executable).with_name("ct2-transformers-converter")), "--model", o.model]
    command += ["--output_dir", str(folder), "--quantization", o.compute]
    subprocess.run(command, check=True, stdout=sys.stderr)
model = ctranslate2.Generator(str(folder), device="cpu", compute_type=o.compute, intra_threads=0, inter_threads=1)


def tokens(ids: list[int]) -> list[str]:
    return [f"w{i}" for i in ids]


def generate(prompts: list[list[int]], output: int) -> list[int]:
    results = model.generate_batch(
        [tokens(ids) for ids in prompts], max_length=output, min_length=output, sampling_topk=1, beam_size=1,
        include_prompt_in_result=False, end_token=[],
    )  # fmt: skip
    return [len(result.sequences_ids[0]) for result in results]


generate([[5] * 64], 4)
serve(ctranslate2.__version__, generate)
