"""The memory budget: how many tokens the KV pool holds, and the table that says which flag moves which row.

Pure: numbers in, plan out; ConfigError when the numbers cannot be met. Knows no tensor. All sizes are bytes.

    weights, states and KV pool share `share` of what is available; slot table, activations and counts come out of the
    rest. States are those of layers that keep no keys: of rows that run, of the padding row, and snapshots.
    By default the pool holds as many requests of full length as may run, or MIN_CONTEXTS if fewer may: what running
    ones do not need keeps prefixes. A pool that is taken whole at the start holds no more than those that may run.
"""

from dataclasses import dataclass

from ramet.runtime.engine.batch import PART_ROWS
from ramet.runtime.errors import ConfigError

CPU_SHARE, CUDA_SHARE = 0.4, 0.85
SLOT_BYTES = 4
MIN_CONTEXTS = 256
RUNNING_SHARE, SNAPSHOT_SHARE = 0.25, 0.25  # of what weights leave, for states of rows, then of what these leave
SNAPSHOTS_PER_ROW = 2  # more are worth nothing, unless they are asked for


@dataclass(frozen=True, slots=True)
class Needs:
    """What the model and the options ask for."""

    weights: int
    bytes_per_token: int  # of keys and values
    max_running: int
    context_length: int
    page_size: int
    activations: int
    penalties: int = 0  # what running requests have drawn
    state_bytes: int = 0  # of one place, in the layers that have states
    num_snapshots: int = 0
    max_total_tokens: int | None = None  # as asked; None: what memory allows
    is_filled: bool = False  # all of the pool is taken at the start, which takes seconds for each GiB

    @property
    def states(self) -> int:
        return (self.max_running + 1 + self.num_snapshots) * self.state_bytes

    @property
    def fixed(self) -> int:
        """Out of `share`, beside keys and values."""
        return self.weights + self.states


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    needs: Needs
    available: int
    share: float
    max_total_tokens: int  # whole pages

    @property
    def context_length(self) -> int:
        return min(self.needs.context_length, self.max_total_tokens)

    @property
    def pool_bytes(self) -> int:
        return (self.max_total_tokens + self.needs.page_size) * self.needs.bytes_per_token

    @property
    def rows(self) -> list[tuple[str, int, str]]:
        """(what, bytes, the flag that moves it)"""
        needs = self.needs
        pool = self.pool_bytes
        table = (needs.max_running + PART_ROWS + 1) * self.context_length * SLOT_BYTES
        reserve = self.available - needs.fixed - pool - table - needs.activations - needs.penalties
        pool_flags = "--max-total-tokens, --mem-fraction-static, --kv-cache-dtype"
        states = (
            f"{needs.max_running} + {needs.num_snapshots} states",
            needs.states,
            "--max-running-requests, --max-state-snapshots",
        )
        return [
            ("weights", needs.weights, "--dtype, --quantization"),
            *((states,) if needs.state_bytes else ()),
            (f"KV pool, {self.max_total_tokens} tokens", pool, pool_flags),
            ("slot table", table, "--max-running-requests, --context-length"),
            ("activations", needs.activations, "--chunked-prefill-size"),
            ("penalty counts", needs.penalties, "--max-penalised-requests"),
            ("reserve", reserve, "--mem-fraction-static"),
        ]

    def table(self) -> str:
        lines = [f"memory: {shown_bytes(self.available)} available"]
        lines += [f"  {what:<28} {shown_bytes(size):>11}   {flag}" for what, size, flag in self.rows]
        return "\n".join(lines)


def default_share(weights: int, available: int, shared: bool) -> float:
    """Of what is available, for weights and KV pool. On a CPU other programs share the memory: the pool has a share of
    what the weights leave.
    """
    return (weights + CPU_SHARE * max(0, available - weights)) / available if shared else CUDA_SHARE


def plan_memory(needs: Needs, available: int, share: float) -> MemoryPlan:
    """`available` before the weights are loaded; `share` of it is for weights and KV pool."""
    most = _max_tokens(needs, available, share)
    tokens = most if needs.max_total_tokens is None else needs.max_total_tokens
    if needs.max_total_tokens is not None:
        pool = (tokens + needs.page_size) * needs.bytes_per_token
        whole = needs.fixed + needs.activations + needs.penalties + pool
        if whole > available:
            raise ConfigError(
                f"--max-total-tokens {tokens} needs {shown_bytes(tokens * needs.bytes_per_token)} for keys and values, "
                f"with the model {shown_bytes(whole)}, but {shown_bytes(available)} are available"
            )
    tokens -= tokens % needs.page_size
    if tokens < max(16, needs.page_size):
        taken = f"the model takes {shown_bytes(needs.weights)} of {shown_bytes(available)} available"
        if needs.weights < available:
            left = shown_bytes(max(0, int(available * share) - needs.weights))
            taken += f", --mem-fraction-static {share:g} leaves {left}"
        raise ConfigError(f"no room for a KV pool: {taken}{_of_states(needs)}")
    return MemoryPlan(needs, available, share, tokens)


def rows_with_states(most: int, room: int, state_bytes: int) -> int:
    """How many may run where each has a state; `room`: bytes that weights leave."""
    return max(1, min(most, int(room * RUNNING_SHARE) // state_bytes - 1))


def snapshots_of(asked: int | None, max_running: int, room: int, state_bytes: int) -> int:
    """Places for snapshots beside the rows'; `room` as `rows_with_states` has it."""
    if asked is not None or not state_bytes:
        return asked or 0
    left = room - (max_running + 1) * state_bytes
    return max(0, min(SNAPSHOTS_PER_ROW * max_running, int(left * SNAPSHOT_SHARE) // state_bytes))


def _of_states(needs: Needs) -> str:
    if not needs.state_bytes:
        return ""
    return (
        f", of which {needs.max_running} states of running requests and {needs.num_snapshots} snapshots take "
        f"{shown_bytes(needs.states)} (--max-running-requests, --max-state-snapshots)"
    )


def _max_tokens(needs: Needs, available: int, share: float) -> int:
    room = (int(available * share) - needs.fixed) // needs.bytes_per_token - needs.page_size
    pages_of_a_request = -(-needs.context_length // needs.page_size)
    contexts = needs.max_running if needs.is_filled else max(needs.max_running, MIN_CONTEXTS)
    return min(max(0, room), contexts * pages_of_a_request * needs.page_size)


def activation_bytes(
    *, tokens: int, draws: int, hidden: int, qkv: int, intermediate: int, vocab_size: int, dtype_bytes: int
) -> int:
    """A layer's live tensors for `tokens` new ones, and float32 logits (twice: the sampler's copy) for `draws` rows."""
    per_token = (4 * hidden + 2 * qkv + 3 * intermediate) * dtype_bytes
    return tokens * per_token + draws * vocab_size * (2 * 4 + dtype_bytes)


def shown_bytes(size: int) -> str:
    for unit, bytes_in_it in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if abs(size) >= bytes_in_it:
            return f"{size / bytes_in_it:.2f} {unit}"
    return f"{size / 1024:.1f} KiB"
