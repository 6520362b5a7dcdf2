"""vLLM on a CPU, in process; VLLM_CPU_SGL_KERNEL chooses its second set of kernels."""

import argparse

import vllm
from protocol import serve

if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("work")
    o = p.parse_args()
    llm = vllm.LLM(
        model=o.model, dtype="bfloat16", max_model_len=2048, max_num_batched_tokens=2048, enable_prefix_caching=True,
        disable_log_stats=True, seed=0,
    )  # fmt: skip

    def generate(prompts: list[list[int]], output: int) -> list[int]:
        params = vllm.SamplingParams(
            temperature=0, max_tokens=output, min_tokens=output, ignore_eos=True, detokenize=False
        )
        replies = llm.generate([{"prompt_token_ids": ids} for ids in prompts], params, use_tqdm=False)
        return [len(reply.outputs[0].token_ids) for reply in replies]

    generate([[5] * 64], 4)
    serve(vllm.__version__, generate)
