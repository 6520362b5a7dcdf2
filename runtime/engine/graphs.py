"""Records a decode step on a GPU: the forward pass and the draw as two CUDA graphs, over one pool of memory.

Steps are queued on one stream, so one that is begun comes behind the one before it. Their tokens go to the host on
another (copies.py), and nothing waits but the host, for the tokens that it asks for. A graph's memory is used again by
those that are recorded after it; only one runs at a time. Knows no model.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ramet.kernels.epilogue_rows import EpilogueRows
from ramet.kernels.step_rows import StepColumns, take_in
from ramet.runtime.attention.base import AttentionBackend
from ramet.runtime.attention.triton import TritonRows
from ramet.runtime.engine.copies import Copies
from ramet.runtime.engine.prepared import Columns, Draws, Forward, NotReplayable, StepGraphs, StepInputs
from ramet.runtime.engine.prompt_graphs import PromptGraphs, StatesOf
from ramet.runtime.sampling.epilogue import Epilogue, RowBuffer
from ramet.runtime.sampling.fused import FusedEpilogue, prepared_rows

log = logging.getLogger("ramet")


class CudaCapture:
    """Graphs of one pool of memory."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def warm(self, run: Callable[[], object]) -> None:
        """Run once: kernels are compiled and libraries take what they need, which neither may while one captures."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run()
        torch.cuda.current_stream().wait_stream(stream)

    def graph(self, run: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
        """What `run` launches, and what it returned, which a replay writes again. Nothing need have been computed."""
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                made = run()
        except torch.OutOfMemoryError:
            raise  # fewer rows or a smaller pool are what helps, and the start says so
        except RuntimeError as error:
            raise NotReplayable(f"CUDA captures no graph of it: {error}") from None
        return graph, made

    def borrowed(self, tensor: Tensor) -> Tensor:
        """The same memory, which is not held: what a graph wrote there is good until another one runs."""
        assert tensor.is_contiguous(), "a graph's logits lie side by side"
        return torch.as_tensor(_Memory(tensor), device=tensor.device).view(tensor.dtype).view(tensor.shape)


class _Memory:
    """Bytes at an address, for torch.as_tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self.__cuda_array_interface__ = {
            "shape": (tensor.nbytes,), "typestr": "|u1", "data": (tensor.data_ptr(), False), "version": 3,
        }  # fmt: skip


@dataclass(slots=True)
class Replay:
    """A step from one place: its inputs go to the device, graphs are replayed, its draws come back where there are."""

    staged: Columns
    inputs: StepInputs
    row_buffer: RowBuffer
    graphs: tuple[torch.cuda.CUDAGraph, ...]
    gives: tuple[tuple[Tensor, Tensor], ...]  # (on the host, on the device)
    copies: Copies
    ended: torch.cuda.Event

    def begin(self) -> int:
        self.copies.precede()  # what it draws is written where what was drawn before is copied from
        self.inputs.read.memory.copy_(self.staged.memory, non_blocking=True)
        take_in_rows(self.inputs, self.row_buffer)
        for graph in self.graphs:
            graph.replay()
        if self.gives:
            self.copies.begin(self.gives, self.ended)
        else:
            self.ended.record()
        return 0

    def join(self, begun: int) -> None:
        self.ended.synchronize()

    def took_s(self) -> None:
        """Events that tell it would cost each step."""


@dataclass(frozen=True, slots=True)
class GraphedStep:
    """A `RecordedStep` of graphs."""

    logits: Tensor
    drawn: tuple[Draws, ...]
    forward: tuple[Replay, ...]
    whole: tuple[Replay, ...]
    in_order: bool = True


class GraphRecorder:
    """Of one runner, whose rows read next what is in the row buffer."""

    def __init__(self, row_buffer: RowBuffer, copies: Copies, capture: CudaCapture) -> None:
        self._row_buffer, self._copies, self._capture = row_buffer, copies, capture

    def __call__(
        self, inputs: StepInputs, forward: Callable[[], Tensor], draw: Callable[[Tensor], tuple[Tensor, Tensor]]
    ) -> GraphedStep:
        capture = self._capture

        def once() -> None:
            take_in_rows(inputs, self._row_buffer)
            draw(forward())

        with torch.inference_mode():
            capture.warm(once)
            forward_graph, logits = capture.graph(forward)
            draw_graph, (tokens, finite) = capture.graph(lambda: draw(logits))
        kept = tuple(
            Draws(*(torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for t in (tokens, finite)))
            for _ in inputs.staged
        )
        alone, whole = [], []
        for staged, draws in zip(inputs.staged, kept, strict=True):
            of = staged, inputs, self._row_buffer
            alone.append(Replay(*of, (forward_graph,), (), self._copies, torch.cuda.Event()))
            gives = (draws.tokens, tokens), (draws.finite, finite)
            whole.append(Replay(*of, (forward_graph, draw_graph), gives, self._copies, torch.cuda.Event()))
        return GraphedStep(capture.borrowed(logits), kept, tuple(alone), tuple(whole))


def take_in_rows(inputs: StepInputs, row_buffer: RowBuffer) -> None:
    """See kernels/step_rows.py."""
    of, forward = inputs.read.tensors, inputs.forward
    assert forward.rope_positions is not None
    columns = StepColumns(of["rows"], of["relayed"], of["seq_lens"], of["shifts"], of["slots"])
    take_in(
        columns, row_buffer.next_ids, row_buffer.lengths, of["ids"], of["positions"], forward.rope_positions,
        forward.table,
    )  # fmt: skip


class PreparedDraws:
    """The draw of prepared steps, without cuts; what it asks of each row stays at its place."""

    def __init__(self, epilogue: FusedEpilogue) -> None:
        self._epilogue = epilogue
        self._rows: dict[int, EpilogueRows] = {}  # of so many

    def __call__(self, logits: Tensor, inputs: StepInputs) -> tuple[Tensor, Tensor]:
        """logits [n, V] -> tokens and finite [n]"""
        num = len(inputs.rows)
        if num not in self._rows:  # outside of any graph, as a step runs once before it is captured
            self._rows[num] = prepared_rows(inputs.draw_params, inputs.read.tensors)
        return self._epilogue.draw_prepared(logits, self._rows[num])


def cuda_graphs(
    forward: Forward,
    epilogue: Epilogue,
    row_buffer: RowBuffer,
    table: Tensor,
    max_rows: int,
    copies: Copies,
    capture: CudaCapture,
) -> StepGraphs:
    """Of one runner on a GPU."""
    assert isinstance(epilogue, FusedEpilogue), "on a GPU the draw is fused"
    recorder = GraphRecorder(row_buffer, copies, capture)
    return StepGraphs(forward, PreparedDraws(epilogue), recorder, table, max_rows, few=True, adapts=False)


def prompt_graphs(
    states_of: StatesOf, attention: AttentionBackend, table: Tensor, capture: CudaCapture, copies: Copies
) -> PromptGraphs | None:
    """None: this attention plans prompts on the host."""
    if not isinstance(attention, TritonRows) or not attention.prepares_prompts:
        return None
    return PromptGraphs(states_of, capture, attention, table, copies.precede)


def prepare_all(steps: StepGraphs, prompts: PromptGraphs | None, max_tokens: int | None) -> None:
    """Now, the largest first. `max_tokens` as `PromptGraphs.prepare` has it."""
    started, free = time.perf_counter(), torch.cuda.mem_get_info()[0]
    if prompts is not None:
        prompts.prepare(max_tokens)
    steps.prepare_all()
    taken = (free - torch.cuda.mem_get_info()[0]) / (1 << 20)
    sizes = [] if prompts is None else prompts.sizes
    of_prompts = f"{len(sizes)} with prompts, up to {sizes[-1]} tokens" if sizes else "none with prompts"
    log.info(
        "prepared in %.1f s, with %.0f MiB: steps of %d numbers of rows, %s",
        time.perf_counter() - started, taken, steps.num_prepared, of_prompts,
    )  # fmt: skip
