"""A CPU: the compiled kernels where there are some, else torch. Steps are captured as lists of native calls.

Decides which attention a model gets here. A step is computed when the host asks for it, or replayed by a thread of the
kernels while the host goes on.
"""

import contextlib
import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from ramet.kernels import reference
from ramet.kernels.cpu.arena import borrowed
from ramet.kernels.cpu.ops import CpuOps
from ramet.kernels.cpu.sampling import DecodingRows
from ramet.kernels.cpu.tape import Tape, TapeReplay
from ramet.runtime.attention.base import StepBackend
from ramet.runtime.attention.cpu import CpuAttention, fits
from ramet.runtime.attention.gathered import GatheredAttention
from ramet.runtime.attention.latent import LatentReference, LatentSizes
from ramet.runtime.attention.latent_cpu import LatentCpuAttention
from ramet.runtime.attention.reference import ReferenceAttention
from ramet.runtime.config import Args
from ramet.runtime.engine.devices.base import AttentionSpec, CapturedStep, Device, States
from ramet.runtime.engine.devices.cpu_kernels import compiled_library, compiled_ops, float32_is_faster
from ramet.runtime.engine.devices.layers import describe
from ramet.runtime.engine.devices.step_inputs import StepInputs
from ramet.runtime.engine.devices.step_tape import ViewsOnly
from ramet.runtime.errors import ConfigError
from ramet.runtime.machine import available_memory
from ramet.runtime.sampling.columns import SamplingColumns
from ramet.runtime.sampling.epilogue import Epilogue, RowBuffer

log = logging.getLogger("ramet")
Made = TypeVar("Made")


class CpuDevice(Device):
    name = "cpu"
    queues_steps = keeps_addresses = captures_at_start = draws_narrow = warms_sizes = False
    shares_memory = expands_latents = captures_adapters = True
    epilogue = Epilogue

    def __init__(self) -> None:
        super().__init__()
        self._compiled: CpuOps | None = None
        self._seen: set[Hashable] = set()  # kinds of steps whose calls were looked at

    def available_bytes(self) -> int:
        return available_memory()

    def load_kernels(self) -> None:
        compiled_library()

    def computes(self, dtype: torch.dtype) -> bool:
        return compiled_library() is not None or not float32_is_faster(dtype)

    def start(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._compiled = compiled_ops(num_threads)
        self.ops = reference if self._compiled is None else self._compiled
        torch.set_num_threads(num_threads)

    def check_float8(self, args: Args) -> None:
        if args.model.quantization == "fp8":
            raise ConfigError("--quantization is fp8, which no kernel for a CPU multiplies: use int8 or int4")
        if args.cache.kv_cache_dtype == "fp8" and args.execute.attention_backend != "reference":
            raise ConfigError(
                "--kv-cache-dtype is fp8, which no kernel for a CPU reads: use int8 or auto, or --attention-backend "
                "reference"
            )

    def _attention(self, name: str, spec: AttentionSpec) -> StepBackend:
        pool, ops, possible = spec.pool, self._compiled, fits(spec.pool)
        if name in ("cpu", "gather") and not possible:
            raise ConfigError(
                f"--attention-backend is {name}, but the pool is on cpu with {pool.heads_are}: it "
                "needs a cpu and multiples of 16 up to 512; use auto"
            )
        is_int8 = pool.dtype == torch.int8
        if is_int8 and name == "gather":
            raise ConfigError("--kv-cache-dtype is int8, which --attention-backend gather does not read; use auto")
        if name == "reference" or not possible or (is_int8 and ops is None):  # torch's own attention reads no int8
            why = "asked for" if name == "reference" else f"no kernel for cpu with {pool.heads_are}"
            log.info("attention by the reference in plain torch (%s): %s", why, describe(spec.layers))
            return ReferenceAttention(pool, spec.layers)
        way = "torch" if ops is None else "our C++ kernel"
        if name == "gather":
            way = "our C++ kernel, extends by torch over gathered prefixes"
        log.info("attention by %s: %s", way, describe(spec.layers))
        return (GatheredAttention if name == "gather" else CpuAttention)(pool, spec.heads, spec.layers, ops)

    def _attention_to_latents(self, name: str, spec: AttentionSpec, sizes: LatentSizes) -> StepBackend:
        if name not in ("auto", "reference", "cpu"):
            raise ConfigError(f"--attention-backend is {name}, which reads no latents on cpu; use auto")
        if self._compiled is not None and name != "reference":
            log.info("attention to latents by our C++ kernel: %s", describe(spec.layers))
            return LatentCpuAttention(spec.pool, spec.heads, spec.layers, sizes, self._compiled)
        log.info("attention to latents in plain torch: %s", describe(spec.layers))
        return LatentReference(spec.pool, spec.layers, sizes)

    def serve(self, attention: StepBackend) -> None:
        if self.lists_calls(attention):
            torch.set_num_threads(1)  # nothing large is left to torch, and its threads would spin against ours

    def to_host(self, tensors: tuple[Tensor, ...]) -> None:
        return None

    # -- steps as lists of native calls ------------------------------------------------------------------------------

    def captures(self, attention: StepBackend) -> bool:
        return self._compiled is not None and isinstance(attention, CpuAttention | LatentCpuAttention)

    def draws_captured(self, columns: SamplingColumns) -> bool:
        """Nothing but the draw: it needs the logits as the model made them, and returns the tokens alone."""
        return columns.penalties is None and columns.is_penalised_at_most

    def capture(
        self, inputs: StepInputs, forward: Callable[[], Tensor], epilogue: Epilogue, rows: RowBuffer
    ) -> CapturedStep:
        """Nothing of the step runs."""
        ops = self._compiled
        assert ops is not None, "without compiled kernels nothing is captured"

        def draw() -> tuple[Tensor, Tensor]:
            tokens, finite = ops.draw(logits, inputs.draw_params, inputs.drawn_positions)
            ops.advance(inputs.rows, tokens, rows.next_ids, rows.lengths)
            return tokens, finite

        takes, gives, drawn = [], [], []
        with torch.inference_mode(), ViewsOnly():
            for staged in inputs.staged:
                takes.append(_recorded(ops, partial(_take_in, ops, inputs, staged.memory, rows))[0])
            forward_tape, logits = _recorded(ops, forward)
            draw_tape, fresh = _recorded(ops, draw)
            for _ in inputs.staged:
                tokens, finite = (torch.empty(each.shape, dtype=each.dtype) for each in fresh)
                kept = tokens, finite
                gives.append(_recorded(ops, partial(_copy_all, ops, kept, fresh))[0])
                drawn.append(kept)

        def replays(tapes: Iterable[Sequence[Tape]]) -> tuple[TapeReplay, ...]:
            return tuple(TapeReplay(ops.library, each, ops.threads) for each in tapes)

        return CapturedStep(
            borrowed(logits),
            drawn,
            forward=replays((take, forward_tape) for take in takes),
            whole=replays((take, forward_tape, draw_tape, give) for take, give in zip(takes, gives, strict=True)),
            in_order=False,
        )

    def lists_calls(self, attention: StepBackend) -> bool:
        """Neither an op nor attention to a long row may be torch's."""
        return self._compiled is not None and attention.name == "cpu"

    def at_once(self, kind: Hashable, compute: Callable[[], States]) -> States:
        """List the calls, then run them. A first step of its kind is looked at, which takes longer."""
        assert self._compiled is not None, "without compiled kernels no calls are listed"
        with self._compiled.deferred(), contextlib.nullcontext() if kind in self._seen else ViewsOnly():
            states = compute()
        self._seen.add(kind)
        return states


def _recorded(ops: CpuOps, run: Callable[[], Made]) -> tuple[Tape, Made]:
    with ops.recorded() as tape:
        made = run()
    return tape, made


def _take_in(ops: CpuOps, inputs: StepInputs, staged: Tensor, rows: RowBuffer) -> None:
    """What the host has written down; rows whose token it does not know read what they drew last."""
    ops.copy(inputs.read.memory, staged)
    of, forward = inputs.read.of, inputs.forward
    assert forward.rope_positions is not None
    decoding = DecodingRows(of["rows"], of["relayed"], of["seq_lens"], of["position_offsets"])
    ids, positions = forward.token_ids, forward.positions
    ops.relay(decoding, rows.next_ids, rows.lengths, ids, positions, forward.rope_positions)


def _copy_all(ops: CpuOps, to: Sequence[Tensor], source: Sequence[Tensor]) -> None:
    for each, other in zip(to, source, strict=True):
        ops.copy(each, other)
