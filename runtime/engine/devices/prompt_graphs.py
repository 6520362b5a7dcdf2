"""Steps with prompts as CUDA graphs, where a model is so small that launching a step takes longer than computing it.

A graph has so many tokens and reads its rows where they lie, so it serves any rows of up to as many tokens together;
the others are padding, token 0 at position 0 into slot 0. A row that decodes beside prompts attends as a prompt of one
token. Which sizes are worth it is measured at the start: those that the card has computed as soon as the host has
launched them. What comes before the layers and after them is launched as for any step.
T tokens of a graph, R its rows, B its tiles, N hidden size.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import takewhile

import numpy as np
import torch
from torch import Tensor

from ramet.kernels.attention_call import Extends
from ramet.runtime.attention.base import ForwardInputs
from ramet.runtime.attention.triton import TritonRows
from ramet.runtime.engine.devices.base import NotReplayable, States, StatesOf
from ramet.runtime.engine.devices.cuda_graphs import CudaCapture
from ramet.runtime.sampling.epilogue import on_device

SIZES = tuple(16 << doubled for doubled in range(9))  # up to 4,096
MAX_ROWS = 128
LONGEST = 1024  # context of a row that decodes in a graph: one program reads all of it for each of its heads
LAUNCHED_SLOWLY = 1.2  # times the launches that a step may take

log = logging.getLogger("ramet")


def sizes_up_to(max_tokens: int) -> list[int]:
    """Of which that is the largest; none where it is 0."""
    return [*(size for size in SIZES if size < max_tokens), max_tokens] if max_tokens else []


class PromptInputs:
    """Where a graph of T tokens reads its step. Row R, behind the others, has no tokens: padding tiles are its."""

    def __init__(self, size: int, tiles: TritonRows, table: Tensor) -> None:
        self.size, self.rows, self._tiles = size, min(size, MAX_ROWS), tiles
        device, num_tiles = table.device, size // tiles.tokens_of_tile + self.rows
        self._tokens = torch.zeros((4, size), dtype=torch.int64, device=device)  # ids, positions, slots, rope_positions
        width = -(-max(self.rows + 1, num_tiles) // 4) * 4  # columns begin at 16 bytes
        self._host = np.zeros((len(Extends._fields), width), np.int32)
        self._columns = torch.zeros(self._host.shape, dtype=torch.int32, device=device)
        lens = [self.rows + 1] * 4 + [num_tiles] * 2
        extends = Extends(*(column[:length] for column, length in zip(self._columns, lens, strict=True)))
        ids, positions, slots, rope_positions = self._tokens
        self.forward = ForwardInputs(
            token_ids=ids,
            positions=positions,
            slots=slots,
            last_tokens=torch.zeros(1, dtype=torch.int64, device=device),
            table=table,
            rows=self._host[0],
            num_new=self._host[2],
            seq_lens=self._host[3],
            num_decode=0,
            rope_positions=rope_positions,
            extends=extends,
        )

    def fill(self, inputs: ForwardInputs) -> None:
        """With a step of up to T tokens and R rows."""
        num, tokens = len(inputs.rows), inputs.num_tokens
        rows, firsts, num_new, seq_lens, tile_rows, tile_starts = self._host
        self._host[:] = 0
        rows[:num], num_new[:num], seq_lens[:num] = inputs.rows, inputs.num_new, inputs.seq_lens
        firsts[:num] = np.cumsum(inputs.num_new) - inputs.num_new
        found, starts = self._tiles.tiles(inputs.num_new, inputs.seq_lens)
        tile_rows[:] = self.rows
        tile_rows[: len(found)], tile_starts[: len(found)] = found, starts
        self._columns.copy_(on_device(self._host.copy(), self._columns.device))
        rope_positions = inputs.positions if inputs.rope_positions is None else inputs.rope_positions
        columns = inputs.token_ids, inputs.positions, inputs.slots, rope_positions
        for own, given in zip(self._tokens, columns, strict=True):
            own[:tokens].copy_(given)
        if tokens < self.size:
            self._tokens[:, tokens:].zero_()


class PromptGraphs:
    """Of one runner on a GPU."""

    def __init__(
        self, states_of: StatesOf, capture: CudaCapture, tiles: TritonRows, table: Tensor, precede: Callable[[], None]
    ) -> None:
        """`precede` as copies.py has it."""
        self._states_of, self._capture, self._tiles, self._table = states_of, capture, tiles, table
        self._precede = precede
        self._prepared: list[tuple[PromptInputs, torch.cuda.CUDAGraph, States]] = []  # the smallest first

    @property
    def sizes(self) -> list[int]:
        """Tokens of each that is prepared."""
        return [inputs.size for inputs, *_ in self._prepared]

    @torch.inference_mode()
    def prepare(self, max_tokens: int | None) -> None:
        """Sizes up to that; None: those whose launches take longer than the card."""
        for size in reversed(self._worth_it() if max_tokens is None else sizes_up_to(max_tokens)):
            inputs = PromptInputs(size, self._tiles, self._table)
            try:
                run = partial(self._states_of, inputs.forward)
                self._capture.warm(run)
                graph, states = self._capture.graph(run)
            except NotReplayable as why:
                log.warning("steps with prompts are not prepared, which costs time: %s", why)
                return
            self._prepared.insert(0, (inputs, graph, states))

    def run(self, inputs: ForwardInputs) -> States | None:
        """x and residual [T, N], good until another graph runs; None: it is no step for a graph."""
        if not inputs.is_text or inputs.adapters is not None or inputs.placed is not None:
            return None
        if len(inputs.rows) > MAX_ROWS:
            return None
        if inputs.num_decode and inputs.seq_lens[: inputs.num_decode].max() > LONGEST:
            return None
        for own, graph, states in self._prepared:
            if inputs.num_tokens <= own.size and len(inputs.rows) <= own.rows:
                own.fill(inputs)
                self._precede()  # memory that it had on the way is that of draws of graphs recorded later
                graph.replay()
                return states
        return None

    def _worth_it(self) -> list[int]:
        possible = [size for size in SIZES if size < self._table.shape[1]]
        return list(takewhile(self._launches_dominate, possible))

    def _launches_dominate(self, size: int) -> bool:
        """Of a step of one row, launched kernel by kernel."""
        inputs = PromptInputs(size, self._tiles, self._table).forward
        row = np.array([size], np.int32)
        plain = replace(inputs, rows=np.zeros(1, np.int32), num_new=row, seq_lens=row, extends=None)
        took = launches = float("inf")
        for _ in range(3):  # the first compiles
            torch.cuda.synchronize()
            started = time.perf_counter()
            self._states_of(plain)
            launches = min(launches, time.perf_counter() - started)
            torch.cuda.synchronize()
            took = min(took, time.perf_counter() - started)
        return took < LAUNCHED_SLOWLY * launches
