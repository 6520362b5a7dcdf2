"""vLLM on a CPU, by its own choice of kernels or with the set that a variable of its environment switches on."""

import os

import vllm
from protocol import arguments, serve

if __name__ == "__main__":
    o = arguments(switch="")
    if o.switch and o.switch not in vllm.envs.environment_variables:
        raise SystemExit(f"error: vLLM {vllm.__version__} has no {o.switch}, it chooses these kernels by itself")
    if o.switch:
        os.environ[o.switch] = "1"
    llm = vllm.LLM(
        model=str(o.model), dtype="bfloat16", max_model_len=2048, max_num_batched_tokens=2048,
        enable_prefix_caching=True, disable_log_stats=True, seed=0,
    )  # fmt: skip

    def generate(prompts: list[list[int]], output: int) -> list[int]:
        params = vllm.SamplingParams(
            temperature=0, max_tokens=output, min_tokens=output, ignore_eos=True, detokenize=False
        )
        replies = llm.generate([{"prompt_token_ids": ids} for ids in prompts], params, use_tqdm=False)
        return [len(reply.outputs[0].token_ids) for reply in replies]

    serve(vllm.__version__, generate, pool_bytes=int(os.environ["VLLM_CPU_KVCACHE_SPACE"]) << 30)
