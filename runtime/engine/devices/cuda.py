"""A CUDA device: Triton kernels, and steps that are captured as CUDA graphs over one pool of memory (cuda_graphs.py).

Decides which attention a model gets here. Steps are queued on one stream; their tokens go to the host on another
(copies.py), and nothing waits but the host, for the tokens that it asks for.
"""

import logging
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from ramet.kernels import gpu_ops
from ramet.runtime.attention import latent_triton, triton
from ramet.runtime.attention.base import StepBackend
from ramet.runtime.attention.latent import LatentReference, LatentSizes
from ramet.runtime.attention.reference import ReferenceAttention
from ramet.runtime.config import Args
from ramet.runtime.engine.devices.base import AttentionSpec, CapturedStep, Device, StatesOf
from ramet.runtime.engine.devices.copies import Copies, Readback
from ramet.runtime.engine.devices.cuda_graphs import CudaCapture, captured_step
from ramet.runtime.engine.devices.layers import describe
from ramet.runtime.engine.devices.prompt_graphs import PromptGraphs
from ramet.runtime.engine.devices.step_inputs import StepInputs
from ramet.runtime.errors import ConfigError
from ramet.runtime.sampling.columns import SamplingColumns
from ramet.runtime.sampling.epilogue import Epilogue, RowBuffer
from ramet.runtime.sampling.fused import FusedEpilogue

log = logging.getLogger("ramet")
MIN_FP8_CAPABILITY = (8, 9)


class CudaDevice(Device):
    name = "cuda"
    queues_steps = keeps_addresses = captures_at_start = draws_narrow = warms_sizes = True
    shares_memory = expands_latents = captures_adapters = False
    ops = gpu_ops
    epilogue = FusedEpilogue

    @cached_property
    def copies(self) -> Copies:
        return Copies()

    @cached_property
    def graphs(self) -> CudaCapture:
        return CudaCapture()

    def available_bytes(self) -> int:
        return torch.cuda.mem_get_info(self.torch)[0]

    def load_kernels(self) -> None:
        """Triton compiles each when it first runs."""

    def computes(self, dtype: torch.dtype) -> bool:
        return True

    def start(self, num_threads: int) -> None:
        self.num_threads = num_threads

    def check_float8(self, args: Args) -> None:
        if args.model.quantization == "fp8":
            _check_capability("--quantization", "use int8 or int4")
        if args.cache.kv_cache_dtype == "fp8":
            _check_capability("--kv-cache-dtype", "use auto")

    def _attention(self, name: str, spec: AttentionSpec) -> StepBackend:
        if name == "reference":
            log.info("attention by the reference in plain torch (asked for): %s", describe(spec.layers))
            return ReferenceAttention(spec.pool, spec.layers)
        return _flashinfer(spec) if name == "flashinfer" else _triton(name, spec)

    def _attention_to_latents(self, name: str, spec: AttentionSpec, sizes: LatentSizes) -> StepBackend:
        if name not in ("auto", "reference", "triton"):
            raise ConfigError(f"--attention-backend is {name}, which reads no latents on cuda; use auto")
        if name != "reference" and latent_triton.fits(sizes):
            log.info("attention to latents by our Triton kernels: %s", describe(spec.layers))
            return latent_triton.LatentTritonAttention(spec.pool, spec.heads, spec.layers, sizes, spec.max_rows)
        if name == "triton":
            bounds = f"{latent_triton.MAX_LATENT} and {latent_triton.MAX_ROTATED}"
            raise ConfigError(
                f"--attention-backend is triton, which reads latents of {bounds} numbers at most, and these have "
                f"{sizes.latent} and {sizes.rotated}; use auto"
            )
        log.warning("attention to latents in plain torch: %s", describe(spec.layers))
        return LatentReference(spec.pool, spec.layers, sizes)

    def serve(self, attention: StepBackend) -> None:
        """The host computes next to nothing."""

    def to_host(self, tensors: tuple[Tensor, ...]) -> Readback:
        return Readback(tensors, self.copies)

    def captures(self, attention: StepBackend) -> bool:
        return attention.name != "reference"

    def draws_captured(self, columns: SamplingColumns) -> bool:
        return columns.is_penalised_at_most and not columns.is_cut

    def capture(
        self, inputs: StepInputs, forward: Callable[[], Tensor], epilogue: Epilogue, rows: RowBuffer
    ) -> CapturedStep:
        assert isinstance(epilogue, FusedEpilogue), "on a GPU the draw is fused"
        return captured_step(inputs, forward, epilogue, rows, self.graphs, self.copies)

    def capture_prompts(self, states_of: StatesOf, attention: StepBackend, table: Tensor) -> PromptGraphs | None:
        if not isinstance(attention, triton.TritonAttention | latent_triton.LatentTritonAttention):
            return None
        return PromptGraphs(states_of, self.graphs, attention.rows, table, self.copies.precede)


def _check_capability(option: str, remedy: str) -> None:
    """Raises ConfigError where a GPU is too old for fp8."""
    if (capability := torch.cuda.get_device_capability()) < MIN_FP8_CAPABILITY:
        raise ConfigError(
            f"{option} is fp8, which needs a CUDA device of compute capability {MIN_FP8_CAPABILITY[0]}."
            f"{MIN_FP8_CAPABILITY[1]} or more, and this one has {capability[0]}.{capability[1]}: {remedy}"
        )


def _triton(name: str, spec: AttentionSpec) -> StepBackend:
    pool, kind = spec.pool, str(spec.pool.dtype).removeprefix("torch.")
    if triton.fits(pool):
        log.info("attention by our Triton kernels: %s", describe(spec.layers))
        return triton.TritonAttention(pool, spec.heads, spec.layers, spec.max_rows)
    if name == "triton":
        raise ConfigError(
            f"--attention-backend is triton, but the pool is of {kind} on cuda with {pool.heads_are}: it needs cuda, "
            "no int8, at most 512; use auto"
        )
    why = f"our kernels read no {kind} with {pool.heads_are}"
    log.warning("attention in plain torch, and no step is prepared, which costs time: %s", why)
    return ReferenceAttention(pool, spec.layers)


def _flashinfer(spec: AttentionSpec) -> StepBackend:
    from ramet.runtime.attention import flashinfer  # an optional package

    pool, layers = spec.pool, spec.layers
    if not flashinfer.fits(pool, layers, spec.dtype):
        kinds = [str(kind).removeprefix("torch.") for kind in (spec.dtype, pool.dtype)]
        sinks = ", and layers have sinks" * any(layer.sinks for layer in layers)
        raise ConfigError(
            f"--attention-backend is flashinfer, but queries are {kinds[0]}, the pool is {kinds[1]} with "
            f"{pool.heads_are}{sinks}: it takes bfloat16 or float16, a pool of the same or of fp8, one head size of "
            "64, 128 or 256, and no sinks; use triton"
        )
    log.info("attention by FlashInfer's kernels, of rows that decode by our Triton kernels: %s", describe(layers))
    return flashinfer.FlashInferAttention(pool, spec.heads, layers, spec.max_rows, spec.dtype)
