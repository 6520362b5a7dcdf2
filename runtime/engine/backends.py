"""Which kernels run on which device: by the name that was asked for and by what is at hand. Knows no model.

On cpu without a C++ compiler torch serves in the place of our kernels, slower, and the log says so.
"""

import logging
import time
from collections.abc import Sequence
from ctypes import CDLL
from functools import cache
from typing import Protocol

import torch

from ramet.kernels import reference
from ramet.kernels.cpu import measured
from ramet.kernels.cpu.build import NoCompiler, WrongKernels, load_library
from ramet.kernels.cpu.limits import measure_all
from ramet.kernels.cpu.measured import ARITHMETICS, Measured
from ramet.kernels.cpu.native import native
from ramet.kernels.cpu.ops import CpuOps
from ramet.kernels.cpu.tile_check import tiles_work
from ramet.runtime.attention.base import AttentionBackend, LayerAttention
from ramet.runtime.attention.cpu import CpuAttention, fits
from ramet.runtime.attention.gathered import GatheredAttention
from ramet.runtime.attention.latent import LatentReference, LatentSizes
from ramet.runtime.attention.latent_cpu import LatentCpuAttention
from ramet.runtime.attention.reference import ReferenceAttention
from ramet.runtime.cache.pool import KVPool
from ramet.runtime.errors import ConfigError
from ramet.runtime.layers.ops import Ops
from ramet.runtime.sampling.epilogue import Epilogue, SamplingKernel

log = logging.getLogger("ramet")
MEASUREMENTS = 5  # of which the best counts


class Kernels(Ops, SamplingKernel, Protocol):
    """Everything that a step computes outside of attention and matrix products."""


def compiled_ops(threads: int) -> CpuOps | None:
    """The C++ kernels for so many threads, with the arithmetic that was measured to be fast; None without them."""
    library = compiled_library()
    if library is None:
        return None
    use(library, machine(library, threads))
    return CpuOps(library, threads)


@cache
def compiled_library() -> CDLL | None:
    """Compiled on the first call on a machine."""
    try:
        return load_library()
    except WrongKernels as error:
        raise ConfigError(str(error)) from None
    except (NoCompiler, OSError) as error:
        log.warning("no C++ kernels, torch runs in their place (slower): %s", error)
        return None


@cache
def machine(library: CDLL, threads: int) -> Measured:
    """Measured on the first call on a machine, and kept."""
    found = measured.read(threads) or measure(library, threads)
    log.info("this machine: %s", found)
    return found


def measure(library: CDLL, threads: int) -> Measured:
    """Now, and kept for later starts."""
    log.info("measuring this machine, once for these kernels and %d thread%s", threads, "s" * (threads > 1))
    found = measure_all(library, threads, tiles=tiles_work(library))
    measured.write(found)
    return found


def use(library: CDLL, found: Measured) -> None:
    """For the whole process."""
    chosen = found.choice
    native(library, "choose_linear", "iin")(ARITHMETICS.index(chosen.few), ARITHMETICS.index(chosen.many), chosen.at)
    native(library, "choose_attention", "ii")(int(found.limits.dots_pay), int(found.limits.tiles_pay))


def float32_is_faster(dtype: torch.dtype, tokens: int = 32, size: int = 1024) -> bool:
    """Of torch on this CPU, measured now: by half, so that memory is not given up for nothing."""
    best = {}
    for each in (dtype, torch.float32):
        x, weight = torch.ones(tokens, size, dtype=each), torch.ones(size, size, dtype=each)
        seconds = []
        for _ in range(MEASUREMENTS):
            started = time.perf_counter()
            torch.nn.functional.linear(x, weight)
            seconds.append(time.perf_counter() - started)
        best[each] = min(seconds)
    return best[dtype] > 1.5 * best[torch.float32]


def choose_ops(device: torch.device, threads: int) -> Kernels:
    if device.type == "cuda":
        from ramet.kernels import gpu_ops  # loads triton

        return gpu_ops
    compiled = compiled_ops(threads) if device.type == "cpu" else None
    return compiled if compiled is not None else reference


def choose_epilogue(device: torch.device) -> type[Epilogue]:
    if device.type != "cuda":
        return Epilogue
    from ramet.runtime.sampling.fused import FusedEpilogue  # loads triton

    return FusedEpilogue


def choose_attention(
    name: str,
    pool: KVPool,
    heads: int,
    layers: Sequence[LayerAttention],
    ops: CpuOps | None,
    max_rows: int,
    dtype: torch.dtype,
    latent: LatentSizes | None = None,
) -> AttentionBackend:
    """`name` as --attention-backend has it. ops: None without compiled kernels. `max_rows` may decode; dtype of
    queries. `latent`: of a model that caches latents.
    """
    device = pool.keys[0].device
    if latent is not None:
        return _choose_latent(name, pool, heads, layers, ops, latent, max_rows)
    if name == "flashinfer":
        return _choose_flashinfer(pool, heads, layers, max_rows, dtype)
    if name == "triton" or (name == "auto" and device.type == "cuda"):
        return _choose_triton(name, pool, heads, layers, max_rows)
    possible = device.type == "cpu" and fits(pool)
    if name in ("cpu", "gather") and not possible:
        raise ConfigError(
            f"--attention-backend is {name}, but the pool is on {device.type} with {pool.heads_are}: it "
            "needs a cpu and multiples of 16 up to 512; use auto"
        )
    is_int8 = pool.dtype == torch.int8
    if is_int8 and name == "gather":
        raise ConfigError("--kv-cache-dtype is int8, which --attention-backend gather does not read; use auto")
    if name == "reference" or not possible or (is_int8 and ops is None):  # torch's own attention reads no int8
        why = "asked for" if name == "reference" else f"no kernel for {device.type} with {pool.heads_are}"
        log.info("attention by the reference in plain torch (%s): %s", why, describe(layers))
        return ReferenceAttention(pool, layers)
    way = "torch" if ops is None else "our C++ kernel"
    if name == "gather":
        way = "our C++ kernel, extends by torch over gathered prefixes"
    log.info("attention by %s: %s", way, describe(layers))
    return (GatheredAttention if name == "gather" else CpuAttention)(pool, heads, layers, ops)


def _choose_latent(
    name: str,
    pool: KVPool,
    heads: int,
    layers: Sequence[LayerAttention],
    ops: CpuOps | None,
    sizes: LatentSizes,
    max_rows: int,
) -> AttentionBackend:
    on = pool.keys[0].device.type
    if name not in ("auto", "reference", "triton" if on == "cuda" else "cpu"):
        raise ConfigError(f"--attention-backend is {name}, which reads no latents on {on}; use auto")
    if ops is not None and name != "reference":
        log.info("attention to latents by our C++ kernel: %s", describe(layers))
        return LatentCpuAttention(pool, heads, layers, sizes, ops)
    if on == "cuda" and name != "reference":
        from ramet.runtime.attention import latent_triton  # loads triton

        if latent_triton.fits(sizes):
            log.info("attention to latents by our Triton kernels: %s", describe(layers))
            return latent_triton.LatentTritonAttention(pool, heads, layers, sizes, max_rows)
        if name == "triton":
            most = f"{latent_triton.MAX_LATENT} and {latent_triton.MAX_ROTATED}"
            raise ConfigError(
                f"--attention-backend is triton, which reads latents of {most} numbers at most, and these have "
                f"{sizes.latent} and {sizes.rotated}; use auto"
            )
    log.log(
        logging.INFO if on == "cpu" else logging.WARNING, "attention to latents in plain torch: %s", describe(layers)
    )
    return LatentReference(pool, layers, sizes)


def _choose_triton(
    name: str, pool: KVPool, heads: int, layers: Sequence[LayerAttention], max_rows: int
) -> AttentionBackend:
    from ramet.runtime.attention import triton  # loads triton

    if pool.keys[0].device.type == "cuda" and triton.fits(pool):
        log.info("attention by our Triton kernels: %s", describe(layers))
        return triton.TritonAttention(pool, heads, layers, max_rows)
    if name == "triton":
        raise ConfigError(
            f"--attention-backend is triton, but the pool is of {str(pool.dtype).removeprefix('torch.')} on "
            f"{pool.keys[0].device.type} with {pool.heads_are}: it needs cuda, no int8, at most 512; use auto"
        )
    why = f"our kernels read no {str(pool.dtype).removeprefix('torch.')} with {pool.heads_are}"
    log.warning("attention in plain torch, and no step is prepared, which costs time: %s", why)
    return ReferenceAttention(pool, layers)


def _choose_flashinfer(
    pool: KVPool, heads: int, layers: Sequence[LayerAttention], max_rows: int, dtype: torch.dtype
) -> AttentionBackend:
    if pool.keys[0].device.type != "cuda":
        raise ConfigError("--attention-backend is flashinfer, which needs --device cuda; use auto")
    from ramet.runtime.attention import flashinfer  # loads triton

    if not flashinfer.fits(pool, layers, dtype):
        kinds = [str(kind).removeprefix("torch.") for kind in (dtype, pool.dtype)]
        sinks = ", and layers have sinks" * any(layer.sinks for layer in layers)
        raise ConfigError(
            f"--attention-backend is flashinfer, but queries are {kinds[0]}, the pool is {kinds[1]} with "
            f"{pool.heads_are}{sinks}: it takes bfloat16 or float16, a pool of the same or of fp8, one head size of "
            "64, 128 or 256, and no sinks; use triton"
        )
    log.info("attention by FlashInfer's kernels, of rows that decode by our Triton kernels: %s", describe(layers))
    return flashinfer.FlashInferAttention(pool, heads, layers, max_rows, dtype)


def describe(layers: Sequence[LayerAttention]) -> str:
    """Which layers there are: "layers 0-4 with window 8 and soft cap 50; layer 5 plain"."""
    alike: dict[str, list[int]] = {}
    for number, layer in enumerate(layers):
        marks = [f"window {layer.window}"] if layer.window is not None else []
        marks += [f"soft cap {layer.softcap:g}"] if layer.softcap is not None else []
        marks += ["sinks"] if layer.sinks else []
        marks += [f"keys of layer {layer.keys_of}"] if layer.keys_of is not None else []
        alike.setdefault("with " + " and ".join(marks) if marks else "plain", []).append(number)
    return "; ".join(f"layer{'s' * (len(numbers) > 1)} {spans(numbers)} {marks}" for marks, numbers in alike.items())


def spans(numbers: Sequence[int]) -> str:
    """[0, 1, 2, 5] -> "0-2, 5"."""
    ends = [i for i, number in enumerate(numbers) if i + 1 == len(numbers) or numbers[i + 1] != number + 1]
    starts = [0, *(end + 1 for end in ends[:-1])]
    runs = [(numbers[a], numbers[b]) for a, b in zip(starts, ends, strict=True)]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
