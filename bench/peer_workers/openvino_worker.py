"""OpenVINO GenAI: its continuous batching with prefix caching, on a model converted once."""

import subprocess
import sys
from importlib.metadata import version

import numpy as np
import openvino as ov
import openvino_genai as genai
from protocol import arguments, serve

o = arguments(weights="fp16")
folder = o.work / f"openvino-{o.model.name}-{o.weights}"
if not folder.exists():
    command = [sys.executable.replace("/python", "/optimum-cli"), "export", "openvino", "-m", str(o.model)]
    command += ["--task", "text-generation-with-past", "--weight-format", o.weights]
    if o.weights == "int4":
        command += ["--group-size", "128", "--sym", "--ratio", "1.0"]
    subprocess.run([*command, str(folder)], check=True, stdout=sys.stderr)
if o.prepare:
    raise SystemExit
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


serve(version("openvino-genai"), generate)
