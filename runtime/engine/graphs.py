"""Records a decode step on a GPU: the forward pass and the draw as two CUDA graphs, over one pool of memory.

Everything is queued on one stream, so a step that is begun comes behind the one before it, and nothing waits but the
host, for the tokens that it asks for. A graph's memory is used again by those that are recorded after it; only one runs
at a time. Knows no model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ramet.kernels.epilogue_rows import EpilogueRows
from ramet.kernels.step_rows import take_in
from ramet.runtime.engine.inputs import Columns, Draws, Forward, StepGraphs, StepInputs
from ramet.runtime.sampling.epilogue import Epilogue, RowBuffer
from ramet.runtime.sampling.fused import FusedEpilogue, prepared_rows


@dataclass(slots=True)
class Replay:
    """A step from one place: its inputs go to the device, graphs are replayed, its draws come back where there are."""

    staged: Columns
    inputs: StepInputs
    row_buffer: RowBuffer
    graphs: tuple[torch.cuda.CUDAGraph, ...]
    gives: tuple[tuple[Tensor, Tensor], ...]  # (on the host, on the device)
    ended: torch.cuda.Event

    def begin(self) -> int:
        self.inputs.read.memory.copy_(self.staged.memory, non_blocking=True)
        take_in_rows(self.inputs, self.row_buffer)
        for graph in self.graphs:
            graph.replay()
        for host, device in self.gives:
            host.copy_(device, non_blocking=True)
        self.ended.record()
        return 0

    def join(self, begun: int) -> None:
        self.ended.synchronize()


@dataclass(frozen=True, slots=True)
class GraphedStep:
    """A `RecordedStep` of CUDA graphs."""

    logits: Tensor
    drawn: tuple[Draws, ...]
    forward: tuple[Replay, ...]
    whole: tuple[Replay, ...]
    in_order: bool = True


class GraphRecorder:
    """Of one runner, whose rows read next what is in the row buffer."""

    def __init__(self, row_buffer: RowBuffer) -> None:
        self._row_buffer = row_buffer
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(
        self, inputs: StepInputs, forward: Callable[[], Tensor], draw: Callable[[Tensor], tuple[Tensor, Tensor]]
    ) -> GraphedStep:
        with torch.inference_mode():
            self._run_once(inputs, forward, draw)
            forward_graph, logits = self._graph(forward)
            draw_graph, (tokens, finite) = self._graph(lambda: draw(logits))
        kept = tuple(
            Draws(*(torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for t in (tokens, finite)))
            for _ in inputs.staged
        )
        alone, whole = [], []
        for staged, draws in zip(inputs.staged, kept, strict=True):
            of = staged, inputs, self._row_buffer
            alone.append(Replay(*of, (forward_graph,), (), torch.cuda.Event()))
            gives = (draws.tokens, tokens), (draws.finite, finite)
            whole.append(Replay(*of, (forward_graph, draw_graph), gives, torch.cuda.Event()))
        return GraphedStep(borrowed(logits), kept, tuple(alone), tuple(whole))

    def _run_once(
        self, inputs: StepInputs, forward: Callable[[], Tensor], draw: Callable[[Tensor], tuple[Tensor, Tensor]]
    ) -> None:
        """Kernels are compiled and libraries take what they need, which neither may while a graph is captured."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            take_in_rows(inputs, self._row_buffer)
            draw(forward())
        torch.cuda.current_stream().wait_stream(stream)

    def _graph(self, run: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            made = run()
        return graph, made


def take_in_rows(inputs: StepInputs, row_buffer: RowBuffer) -> None:
    """See kernels/step_rows.py."""
    of, forward = inputs.read.tensors, inputs.forward
    assert forward.shifted is not None
    take_in(
        of["rows"], of["relayed"], of["seq_lens"], of["shifts"], of["slots"], row_buffer.next_ids, row_buffer.lengths,
        of["ids"], of["positions"], forward.shifted, forward.table,
    )  # fmt: skip


class PreparedDraws:
    """The draw of prepared steps, without cuts; what it asks of each row stays at its place."""

    def __init__(self, epilogue: FusedEpilogue) -> None:
        self._epilogue = epilogue
        self._rows: dict[int, EpilogueRows] = {}  # of so many

    def __call__(self, logits: Tensor, inputs: StepInputs) -> tuple[Tensor, Tensor]:
        """logits [n, V] -> tokens and finite [n]"""
        num = len(inputs.rows)
        if num not in self._rows:
            of = inputs.read.tensors
            self._rows[num] = prepared_rows(of["temperature"], of["seeds"], of["drawn_positions"], of["rows"])
        return self._epilogue.draw_prepared(logits, self._rows[num])


def cuda_graphs(
    forward: Forward, epilogue: Epilogue, row_buffer: RowBuffer, table: Tensor, max_rows: int
) -> StepGraphs:
    """Of one runner on a GPU."""
    assert isinstance(epilogue, FusedEpilogue), "on a GPU the draw is fused"
    return StepGraphs(forward, PreparedDraws(epilogue), GraphRecorder(row_buffer), table, max_rows, few=True)


class _Memory:
    """Bytes at an address, for torch.as_tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self.__cuda_array_interface__ = {
            "shape": (tensor.nbytes,), "typestr": "|u1", "data": (tensor.data_ptr(), False), "version": 3,
        }  # fmt: skip


def borrowed(tensor: Tensor) -> Tensor:
    """The same memory, which is not held: what a graph wrote there is good until another one runs."""
    assert tensor.is_contiguous()
    return torch.as_tensor(_Memory(tensor), device=tensor.device).view(tensor.dtype).view(tensor.shape)
