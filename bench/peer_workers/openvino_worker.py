"""OpenVINO GenAI: its continuous batching with prefix caching, on a model converted once."""

import argparse
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import openvino as ov
import openvino_genai as genai
from protocol import serve

p = argparse.ArgumentParser()
p.add_argument("model")
p.add_argument("work")
p.add_argument("--weights", default="fp16", help="fp16, int8 or int4")
o = p.parse_args()
folder = Path(o.work) / f"openvino-{Path(o.model).name}-{o.weights}"
if not folder.exists():
    command = [str(Path(sys.executable).with_name("optimum-cli")), "export", "openvino", "-m", o.model]
    command += ["--task", "text-generation-with-past", "--weight-format", o.weights, str(folder)]
    subprocess.run(command, check=True, stdout=sys.stderr)
schedule = genai.SchedulerConfig()
schedule.cache_size, schedule.max_num_batched_tokens = 3, 2048
schedule.enable_prefix_caching, schedule.dynamic_split_fuse = True, True
pipe = genai.ContinuousBatchingPipeline(str(folder), schedule, "CPU")


def generate(prompts: list[list[int]], output: int) -> list[int]:
    config = genai.GenerationConfig()
    config.max_new_tokens, config.min_new_tokens, config.do_sample, config.ignore_eos = output, output, False, True
    tensors = [ov.Tensor(np.array([ids], np.int64)) for ids in prompts]
    results = pipe.generate(tensors, [config] * len(prompts))
    return [len(result.m_generation_ids[0]) for result in results]


generate([[5] * 64], 4)
serve(version("openvino-genai"), generate)
