"""The compiled ops behind the signatures of kernels/reference.py, and packed weights.

Decides nothing: takes addresses and sizes out of tensors. Every tensor is on the CPU, of float32, bfloat16 or float16
(keys and values of int8 as well); the last dimension is contiguous. Large results lie in memory that is used again
(memory.py).
T tokens, N in or hidden, M out, F intermediate, R rows, H query heads, G kv heads, D head size.
"""

import ctypes
import math
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ctypes import addressof
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ramet.kernels import reference
from ramet.kernels.cpu.arena import Arena
from ramet.kernels.cpu.experts import DTYPES, NativeExperts, NativeMixture
from ramet.kernels.cpu.native import Native, Plan, Replay, Rule, Step, Tape, native
from ramet.kernels.draw_params import DrawParams
from ramet.kernels.reference import HeadNorms, RopeTables
from ramet.kernels.reference_delta import DeltaShape, DeltaStates, DeltaWeights, StateRows
from ramet.kernels.reference_experts import SIGMOID, Gated, Mixture, Projections, RouteRule

Ints = npt.NDArray[np.int32]
Call = tuple[str, *tuple[int | None, ...]]  # name of a native, and words for it

CACHE_INT8 = 3  # of keys and values alone
NATIVES = {  # function -> kinds of its arguments (native.py)
    "rms_norm": "ipnpppnnfii",
    "norm_heads": "ipnpnnnfii",
    "silu_mul": "ipnpnni",
    "gelu_mul": "ipnpnnii",
    "gelu_by": "ipnpnpnnii",
    "add_scaled": "ipppnni",
    "clamped_mul": "ipnffpnni",
    "softcap": "pnnfi",
    "gather": "ippfpnni",
    "rotate": "ipnpppnnnni",
    "attention": "ppiipnppp",
    "store_kv": "ippnnpppnni",
    "store_kv_int8": "ippnnpppnnni",
    "penalise": "pnpppppnppni",
    "count_tokens": "pnpppn",
    "mask": "pnpnpni",
    "draw": "pnnppppppppi",
    "advance": "ppnpp",
    "relay": "ppppnppppp",
    "copy": "ppn",
    "normalise": "pnppnnpppi",
    "plan": "ppp",
    "unpack": "ipnpnfpi",
    "unpack_int8": "ippnpnfpi",
    "unpack_int4": "ippnnpnfpi",
    "linear": "ipnpppnnnnii",
    "linear_int8": "ipnpppppnnnnii",
    "linear_int8wo": "ipnppppnnnnii",
    "linear_int4": "ipnppnppnnnnii",
    "route": "pnnniipnnnffpppi",
    "store_routes": "ppnnp",
    "sort_routes": "pnnnppp",
    "linear_of_experts": "ppnppnippnni",
    "combine": "ippppppnnni",
    "adapt": "ipnppnpninni",
    "adapt_rows": "ippppnnfi",
    "linear_of_heads": "ppnnipnnpnnni",
    "latent_attention": "pfip",
    "store_latents": "pnnpnnppni",
    "delta_net": "ipnpnppppfppnnnnnpppnppnpi",
    "sigmoid_mul": "ipnpnpnni",
}
LARGE_BYTES = 1 << 17  # from which on malloc asks the system for pages and gives them back


class CpuOps:
    """Fits the Ops protocol of the layers and the SamplingKernel of the epilogue. Jobs are cut for `threads`."""

    _rms_norm: Native
    _norm_heads: Native
    _silu_mul: Native
    _gelu_mul: Native
    _gelu_by: Native
    _add_scaled: Native
    _clamped_mul: Native
    _softcap: Native
    _gather: Native
    _rotate: Native
    _attention: Native
    _store_kv: Native
    _store_kv_int8: Native
    _penalise: Native
    _count_tokens: Native
    _mask: Native
    _draw: Native
    _advance: Native
    _relay: Native
    _copy: Native
    _normalise: Native
    _plan: Native

    def __init__(self, library: ctypes.CDLL, threads: int) -> None:
        self.library, self.threads = library, threads
        self._arena, self._tape_arena = Arena(), Arena()
        self._tape: Tape | None = None
        self._heads: weakref.WeakKeyDictionary[Projections, NativeExperts] = weakref.WeakKeyDictionary()
        self._natives = {name: native(library, name, kinds) for name, kinds in NATIVES.items()}
        self._use(self._natives)

    def _use(self, natives: Mapping[str, Native]) -> None:
        for name, function in natives.items():
            setattr(self, f"_{name}", function)

    def call(self, name: str) -> Native:
        """The function that is used now."""
        used: Native = getattr(self, f"_{name}")
        return used

    @contextmanager
    def recorded(self) -> Iterator[Tape]:
        """The calls that are made inside, as a tape: none runs. What they return stays good while the tape exists."""
        with self._taped(Tape(self.library, self._tape_arena)) as tape:
            yield tape

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """The calls that are made inside run at its end, in their order; none does if it ends by an error.

        What they are given must last until then; what they return does. A call by itself costs Python some 0.1 ms,
        because the one before it has taken the caches.
        """
        with self._taped(Tape(self.library, self._arena)) as tape:
            yield
        replay = Replay(self.library, (tape,), threads=1)  # runs on this thread; each call has its own threads
        replay.begin()

    @contextmanager
    def _taped(self, tape: Tape) -> Iterator[Tape]:
        assert self._tape is None, "one tape is recorded at a time"
        self._tape = tape
        self._use({name: tape.recording(name, NATIVES[name]) for name in self._natives})
        try:
            yield tape
        finally:
            self._tape = None
            self._use(self._natives)
        tape.seal()

    def empty(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """As torch.empty."""
        if self._tape is not None:
            return self._tape.arena.empty(shape, dtype)
        if math.prod(shape) * dtype.itemsize >= LARGE_BYTES:
            return self._arena.empty(shape, dtype)
        return torch.empty(shape, dtype=dtype)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return self._norm(x, None, weight, eps)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
        return self._norm(x, residual.data_ptr(), weight, eps)

    def norm_heads(self, x: Tensor, weight: Tensor | None, eps: float) -> None:
        at, w, sizes = x.data_ptr(), None if weight is None else weight.data_ptr(), x.shape
        wide = weight is not None and weight.dtype == torch.float32
        self._norm_heads(DTYPES[x.dtype], at, x.stride(0), w, *sizes, eps, wide, self.threads)

    def _norm(self, x: Tensor, residual: int | None, weight: Tensor, eps: float) -> Tensor:
        tokens, size = x.shape
        out = self.empty(tokens, size, dtype=x.dtype)
        at, to, w = x.data_ptr(), out.data_ptr(), weight.data_ptr()
        wide = weight.dtype == torch.float32
        self._rms_norm(DTYPES[x.dtype], at, x.stride(0), residual, w, to, tokens, size, eps, wide, self.threads)
        return out

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        tokens, both = gate_up.shape
        out = self.empty(tokens, both // 2, dtype=gate_up.dtype)
        at, to = gate_up.data_ptr(), out.data_ptr()
        self._silu_mul(DTYPES[gate_up.dtype], at, gate_up.stride(0), to, tokens, both // 2, self.threads)
        return out

    def gelu_mul(self, gate_up: Tensor, tanh: bool) -> Tensor:
        tokens, both = gate_up.shape
        out = self.empty(tokens, both // 2, dtype=gate_up.dtype)
        at, to = gate_up.data_ptr(), out.data_ptr()
        self._gelu_mul(DTYPES[gate_up.dtype], at, gate_up.stride(0), to, tokens, both // 2, tanh, self.threads)
        return out

    def clamped_mul(self, gate_up: Tensor, alpha: float, limit: float) -> Tensor:
        tokens, both = gate_up.shape
        out = self.empty(tokens, both // 2, dtype=gate_up.dtype)
        source, to = (gate_up.data_ptr(), gate_up.stride(0)), out.data_ptr()
        self._clamped_mul(DTYPES[out.dtype], *source, alpha, limit, to, tokens, both // 2, self.threads)
        return out

    def gelu_by(self, gate: Tensor, up: Tensor, tanh: bool) -> Tensor:
        out = self.empty(*gate.shape, dtype=gate.dtype)
        sources = gate.data_ptr(), gate.stride(0), up.data_ptr(), up.stride(0)
        self._gelu_by(DTYPES[gate.dtype], *sources, out.data_ptr(), *gate.shape, tanh, self.threads)
        return out

    def add_scaled(self, x: Tensor, y: Tensor | None, factor: Tensor | None) -> None:
        assert x.is_contiguous() and (y is None or (y.is_contiguous() and y.dtype == x.dtype)), x.stride()
        assert factor is None or factor.dtype == torch.float32, "a factor keeps its bits"
        beside = (None if each is None else each.data_ptr() for each in (y, factor))
        self._add_scaled(DTYPES[x.dtype], x.data_ptr(), *beside, *x.shape, self.threads)

    def route(
        self, logits: Tensor, rule: RouteRule, bias: Tensor | None = None, of_experts: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As kernels/reference_experts.py; logits [T, E] float32."""
        assert of_experts is None or of_experts.dtype == torch.float32, "weights are float32"
        assert logits.dtype == torch.float32 and logits.is_contiguous(), logits.dtype
        assert bias is None or bias.dtype == torch.float32, "what decides with the scores is float32 as they are"
        tokens, num = logits.shape
        experts = self.empty(tokens, rule.per_token, dtype=torch.int32)
        weights = self.empty(tokens, rule.per_token, dtype=torch.float32)
        addresses = experts.data_ptr(), weights.data_ptr()
        how = rule.normalise, rule.scores == SIGMOID, None if bias is None else bias.data_ptr()
        of_all = None if of_experts is None else of_experts.data_ptr()
        groups = rule.groups, rule.kept_groups, rule.of_group, rule.scale, rule.sharpness, of_all
        self.call("route")(logits.data_ptr(), tokens, num, rule.per_token, *how, *groups, *addresses, self.threads)
        return experts, weights

    def store_routes(self, experts: Tensor, slots: Tensor, table: Tensor) -> None:
        """As kernels/reference_experts.py; slots [T] int64. WRITES table [S, K] int32."""
        kinds = experts.dtype, slots.dtype, table.dtype
        assert kinds == (torch.int32, torch.int64, torch.int32) and table.is_contiguous(), kinds
        addresses = experts.data_ptr(), slots.data_ptr()
        self.call("store_routes")(*addresses, *experts.shape, table.data_ptr())

    def mixture(self, gate_up: Projections, activation: Gated, down: Projections) -> Mixture:
        """As kernels/reference_experts.py; all weights are packed."""
        first, second = (NativeExperts.of(self, list(each)) for each in (gate_up, down))
        return NativeMixture(self, first, activation, second)

    def of_heads(self, layers: Projections, x: Tensor) -> Tensor:
        """As kernels/reference_latent.py; all weights are packed."""
        if layers not in self._heads:
            self._heads[layers] = NativeExperts.of(self, list(layers))
        return self._heads[layers].of_heads(self, x)

    def store_latents(self, latents: Tensor, turned: Tensor, keys: Tensor, slots: Tensor) -> None:
        """As kernels/reference_latent.py, of one dtype. WRITES keys."""
        size = keys.element_size()
        sources = [(x.data_ptr(), x.stride(0) * size, x.shape[-1] * size) for x in (latents, turned)]
        self.call("store_latents")(
            *sources[0], *sources[1], keys.data_ptr(), slots.data_ptr(), len(slots), self.threads
        )

    def keep(self, *things: object) -> None:
        """What calls read, if they are run again or later."""
        if self._tape is not None:
            self._tape.keep(*things)

    def delta_net(
        self, x: Tensor, gates: Tensor, of: DeltaShape, weights: DeltaWeights, states: DeltaStates, at: StateRows
    ) -> Tensor:
        """As kernels/reference_delta.py; all tensors but x and gates are contiguous, the columns of `at` int32."""
        saves = () if at.save_at is None or at.save_to is None else (at.save_at, at.save_to)
        columns = at.rows, at.num_new, at.seq_lens, *saves
        assert all(column.dtype == np.int32 and column.flags.c_contiguous for column in columns)
        if self._tape is not None:
            self._tape.keep(weights, states, *columns)
        out = self.empty(len(x), of.values, dtype=x.dtype)
        inputs = x.data_ptr(), x.stride(0), gates.data_ptr(), gates.stride(0)
        own = weights.conv.data_ptr(), weights.a_log.data_ptr(), weights.dt_bias.data_ptr(), weights.norm.data_ptr()
        kept = states.last.data_ptr(), states.matrix.data_ptr()
        sizes = of.key_heads, of.value_heads, of.key, of.value, of.taps
        rows = *(column.ctypes.data for column in columns[:3]), len(at.rows)
        at_places = (*(column.ctypes.data for column in saves), saves[0].shape[1]) if saves else (None, None, 0)
        self.call("delta_net")(
            DTYPES[x.dtype], *inputs, *own, weights.eps, *kept, *sizes, *rows, *at_places, out.data_ptr(), self.threads
        )
        return out

    def sigmoid_mul(self, x: Tensor, gates: Tensor) -> Tensor:
        tokens, size = x.shape
        out = self.empty(tokens, size, dtype=x.dtype)
        both = x.data_ptr(), x.stride(0), gates.data_ptr(), gates.stride(0)
        self.call("sigmoid_mul")(DTYPES[x.dtype], *both, out.data_ptr(), tokens, size, self.threads)
        return out

    def softcap(self, x: Tensor, cap: float) -> None:
        assert x.dtype == torch.float32 and x.is_contiguous(), x.dtype
        self._softcap(x.data_ptr(), *x.shape, cap, self.threads)

    def gather(self, table: Tensor, ids: Tensor, scale: float) -> Tensor:
        size = table.shape[1]
        out = self.empty(len(ids), size, dtype=table.dtype)
        at, which, to = table.data_ptr(), ids.data_ptr(), out.data_ptr()
        self._gather(DTYPES[table.dtype], at, which, scale, to, len(ids), size, self.threads)
        return out

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor) -> None:
        tokens, heads, _ = x.shape
        at, c, s, p = x.data_ptr(), cos.data_ptr(), sin.data_ptr(), positions.data_ptr()
        half = cos.shape[1]
        self._rotate(DTYPES[x.dtype], at, x.stride(0), c, s, p, tokens, heads, x.stride(1), half, self.threads)

    def norm_rope_store(
        self,
        qkv: Tensor,
        heads: int,
        rope: RopeTables,
        positions: Tensor,
        norms: HeadNorms | None,
        keys: Tensor,
        values: Tensor,
        slots: Tensor,
    ) -> None:
        turning = qkv.shape[1] - keys.shape[1]
        if norms is not None:
            self.norm_heads(qkv[:, :heads], norms.q, norms.eps)
            self.norm_heads(qkv[:, heads:turning], norms.k, norms.eps)
            if norms.values:
                self.norm_heads(qkv[:, turning:], None, norms.eps)
        self.rotate(qkv[:, :turning], *rope, positions)
        self.store_kv(qkv[:, heads:turning], qkv[:, turning:], keys, values, slots)

    def store_kv(self, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
        """As kernels/reference.py; k and v [T, G, D] may have strided rows. WRITES keys and values."""
        if keys.dtype == torch.float8_e4m3fn:  # no kernel here reads it
            reference.store_kv(k, v, keys, values, slots)
            return
        tokens, kv_heads, head_dim = k.shape
        sources = k.data_ptr(), v.data_ptr(), k.stride(0), v.stride(0)
        targets = keys.data_ptr(), values.data_ptr(), slots.data_ptr()
        if keys.dtype == torch.int8:
            self._store_kv_int8(DTYPES[k.dtype], *sources, *targets, tokens, kv_heads, head_dim, self.threads)
            return
        self._store_kv(k.element_size(), *sources, *targets, tokens, kv_heads * head_dim, self.threads)

    def plan(
        self,
        planner: "Planner",
        table: Tensor,
        rows: Ints,
        first_tokens: Ints,
        num_new: Ints,
        seq_lens: Ints,
        shifts: Ints | None = None,
        sees: Ints | None = None,
    ) -> None:
        """Cut a step's attention. table [rows of it, L] int32; the columns [R] int32. Good until the next plan.

        sees [T] int32: keys that a token sees; None: those up to its own.
        """
        given = (rows, first_tokens, num_new, seq_lens, shifts, sees)
        columns = [column for column in given if column is not None]
        assert all(column.dtype == np.int32 and column.flags.c_contiguous for column in columns)
        addresses = [None if column is None else column.ctypes.data for column in given]
        step = Step(table.data_ptr(), table.stride(0), *addresses)
        step.num_rows, step.threads = len(rows), self.threads
        if self._tape is not None:
            self._tape.keep(step, planner, table, *columns)
        self._plan(planner.handle, addressof(step), planner.address)

    def attend(self, planner: "Planner", rule: Rule, q: Tensor, keys: Tensor, values: Tensor, out: Tensor) -> None:
        """WRITES out [T, H, D] for the tokens of the plan; q [T, H, D] may have strided rows.

        keys and values [S, G, D] of q's dtype, or [S, G, D + 4] int8 as store_kv writes them.
        """
        assert keys.dtype in (q.dtype, torch.int8), (keys.dtype, q.dtype)
        dtypes = DTYPES[q.dtype], CACHE_INT8 if keys.dtype == torch.int8 else DTYPES[q.dtype]
        addresses = keys.data_ptr(), values.data_ptr(), out.data_ptr()
        self._attention(planner.address, addressof(rule), *dtypes, q.data_ptr(), q.stride(0), *addresses)

    def linear(self, x: Tensor, weight: "NativeWeight", bias: Tensor | None, wide: bool) -> Tensor:
        """x [T, N], whose rows may be strided, and bias [M] -> [T, M], float32 if `wide`."""
        assert x.dtype == weight.dtype and x.shape[1] == weight.num_in, (x.dtype, x.shape, weight.num_in)
        out = self.empty(len(x), weight.num_out, dtype=torch.float32 if wide else x.dtype)
        name, *words = weight.linear_call
        addresses = None if bias is None else bias.data_ptr(), out.data_ptr()
        sizes = weight.num_out, len(x), weight.num_in, weight.num_out
        self.call(name)(DTYPES[x.dtype], x.data_ptr(), x.stride(0), *words, *addresses, *sizes, wide, self.threads)
        return out

    def unpack(self, weight: "NativeWeight", rows: Tensor, scale: float) -> Tensor:
        """rows [n] int64 of a packed weight -> [n, N], times `scale`."""
        out = self.empty(len(rows), weight.num_in, dtype=weight.dtype)
        name, *words = weight.unpack_call
        which = weight.num_in, rows.data_ptr(), len(rows), scale
        self.call(name)(DTYPES[out.dtype], *words, *which, out.data_ptr(), self.threads)
        return out

    def penalise(
        self,
        logits: Tensor,
        rows: Tensor,
        slots: Tensor,
        frequency: Tensor,
        presence: Tensor,
        repetition: Tensor,
        counts: Tensor,
        seen: Tensor,
    ) -> None:
        """As kernels/reference.py. WRITES logits [Q, V] float32 in `rows`; all tensors are contiguous."""
        columns = (rows, slots, frequency, presence, repetition)
        assert all(column.element_size() == 4 for column in columns), [column.dtype for column in columns]
        assert all(tensor.is_contiguous() for tensor in (logits, *columns, counts, seen))
        addresses = (column.data_ptr() for column in columns)
        state = (counts.data_ptr(), seen.data_ptr(), seen.shape[1])
        self._penalise(logits.data_ptr(), logits.shape[1], *addresses, len(rows), *state, self.threads)

    def count_tokens(self, counts: Tensor, rows: Tensor, slots: Tensor, tokens: Tensor) -> None:
        """As kernels/reference.py. WRITES counts; all tensors are contiguous."""
        assert [t.element_size() for t in (counts, rows, slots, tokens)] == [1, 4, 4, 8]
        assert all(tensor.is_contiguous() for tensor in (counts, rows, slots, tokens))
        addresses = (tensor.data_ptr() for tensor in (rows, slots, tokens))
        self._count_tokens(counts.data_ptr(), counts.shape[1], *addresses, len(rows))

    def mask(self, logits: Tensor, rows: Tensor, allowed: Tensor) -> None:
        """As kernels/reference.py. WRITES logits [Q, V] float32 in `rows`; all tensors are contiguous."""
        kinds = logits.dtype, rows.dtype, allowed.dtype
        assert kinds == (torch.float32, torch.int32, torch.int32), kinds
        assert all(tensor.is_contiguous() for tensor in (logits, rows, allowed))
        num, words = allowed.shape
        assert num == len(rows) and words * 32 >= logits.shape[1], (allowed.shape, logits.shape)
        addresses = logits.data_ptr(), logits.shape[1], rows.data_ptr(), num, allowed.data_ptr(), words
        self._mask(*addresses, self.threads)

    def draw(self, logits: Tensor, params: DrawParams[Tensor], positions: Tensor) -> tuple[Tensor, Tensor]:
        """As kernels/reference.py; logits [Q, V] float32, all tensors are contiguous."""
        columns = (params.temperature, params.top_k, params.top_p, params.min_p, params.seeds, positions)
        sizes = [column.element_size() for column in columns]
        assert sizes == [4, 8, 4, 4, 8, 8] and logits.dtype == torch.float32 and logits.is_contiguous(), sizes
        num, vocabulary = logits.shape
        tokens, finite = self.empty(num, dtype=torch.int64), self.empty(num, dtype=torch.bool)
        addresses = (tensor.data_ptr() for tensor in (*columns, tokens, finite))
        self._draw(logits.data_ptr(), vocabulary, num, *addresses, self.threads)
        return tokens, finite

    def advance(self, rows: Tensor, tokens: Tensor, next_ids: Tensor, lengths: Tensor) -> None:
        """rows [Q] drew tokens [Q], int64. WRITES next_ids [M] int32, and adds 1 to lengths [M] int32, in these."""
        addresses = next_ids.data_ptr(), lengths.data_ptr()
        self._advance(rows.data_ptr(), tokens.data_ptr(), len(rows), *addresses)

    def relay(
        self,
        rows: Ints,
        relayed: Ints,
        seq_lens: Ints,
        shifts: Ints,
        next_ids: Tensor,
        lengths: Tensor,
        ids: Tensor,
        positions: Tensor,
        shifted: Tensor,
    ) -> None:
        """Rows [Q] that decode: those `relayed` read next_ids at the end of lengths [M], the others have seq_lens.

        WRITES ids, positions and shifted [Q] int64, and lengths; the rest is int32.
        """
        columns = rows.ctypes.data, relayed.ctypes.data, seq_lens.ctypes.data, shifts.ctypes.data
        state = next_ids.data_ptr(), lengths.data_ptr()
        self._relay(*columns, len(rows), *state, ids.data_ptr(), positions.data_ptr(), shifted.data_ptr())

    def copy(self, to: Tensor, source: Tensor) -> None:
        """WRITES `to`, contiguous and as large as `source`."""
        assert to.nbytes == source.nbytes and to.is_contiguous() and source.is_contiguous()
        if self._tape is not None:
            self._tape.keep(to, source)
        self._copy(to.data_ptr(), source.data_ptr(), to.nbytes)

    def normalise(
        self, logits: Tensor, rows: Tensor, temperature: Tensor, num_top: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As kernels/reference.py; logits [Q, V] float32, all tensors are contiguous."""
        kinds = logits.dtype, rows.dtype, temperature.dtype
        assert kinds == (torch.float32, torch.int64, torch.float32) and logits.is_contiguous(), kinds
        vocabulary, num = logits.shape[1], len(rows)
        out = torch.empty(num), torch.empty(num), torch.empty((num, num_top), dtype=torch.int64)
        columns, addresses = (rows.data_ptr(), temperature.data_ptr()), (tensor.data_ptr() for tensor in out)
        self._normalise(logits.data_ptr(), vocabulary, *columns, num, num_top, *addresses, self.threads)
        return out


class Planner:
    """Cuts the attention of a step into items (plan.cpp), and owns their arrays."""

    def __init__(self, library: ctypes.CDLL, heads: int, kv_heads: int, head_dim: int) -> None:
        library.ramet_make_planner.restype, library.ramet_free_planner.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
        self.handle = library.ramet_make_planner()
        weakref.finalize(self, library.ramet_free_planner, self.handle)
        self.struct = Plan(heads=heads, kv_heads=kv_heads, head_dim=head_dim)
        self.address = addressof(self.struct)


class NativeWeight(Protocol):
    """A packed [M, N] for inputs and outputs of `dtype`."""

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def num_out(self) -> int: ...

    @property
    def num_in(self) -> int: ...

    @property
    def linear_call(self) -> Call:
        """What multiplies it, and what that is told of the weight."""

    @property
    def unpack_call(self) -> Call:
        """What gives rows of it, and what that is told of the weight."""


@dataclass(frozen=True, slots=True)
class PlainWeight:
    """[M, N] of its own dtype, in the layout of linear.cpp."""

    ops: CpuOps
    packed: Tensor
    num_out: int
    num_in: int

    @property
    def dtype(self) -> torch.dtype:
        return self.packed.dtype

    @property
    def linear_call(self) -> Call:
        return "linear", self.packed.data_ptr()

    @property
    def unpack_call(self) -> Call:
        return "unpack", self.packed.data_ptr()

    def linear(self, x: Tensor, bias: Tensor | None, wide: bool = False) -> Tensor:
        return self.ops.linear(x, self, bias, wide)

    def rows(self, at: Tensor, scale: float = 1.0) -> Tensor:
        return self.ops.unpack(self, at, scale)
