"""Records a decode step on a GPU: the forward pass and the draw as two CUDA graphs, over one pool of memory.

Everything is queued on one stream, so a step that is begun comes behind the one before it, and nothing waits but the
host, for the tokens that it asks for. A graph's memory is used again by those that are recorded after it; only one runs
at a time. Knows no model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ramet.kernels.epilogue_rows import EpilogueRows
from ramet.kernels.step_rows import take_in
from ramet.runtime.engine.inputs import Columns, Draws, Forward, NotReplayable, StepGraphs, StepInputs
from ramet.runtime.sampling.epilogue import Epilogue, RowBuffer
from ramet.runtime.sampling.fused import FusedEpilogue, prepared_rows


class Event(Protocol):
    def record(self) -> None: ...

    def synchronize(self) -> None: ...


class Graph(Protocol):
    def replay(self) -> None: ...


class Capture(Protocol):
    """What a device offers to record launches."""

    def event(self) -> Event: ...

    def warm(self, run: Callable[[], object]) -> None:
        """Run once: kernels are compiled and libraries take what they need, which neither may while one captures."""

    def graph(self, run: Callable[[], Any]) -> tuple[Graph, Any]:
        """What `run` launches, and what it returned, which a replay writes again. Nothing need have been computed."""

    def borrowed(self, tensor: Tensor) -> Tensor:
        """The same memory, which is not held: what a graph wrote there is good until another one runs."""


class CudaCapture:
    """Graphs of one pool of memory."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def event(self) -> Event:
        return torch.cuda.Event()

    def warm(self, run: Callable[[], object]) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run()
        torch.cuda.current_stream().wait_stream(stream)

    def graph(self, run: Callable[[], Any]) -> tuple[Graph, Any]:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                made = run()
        except RuntimeError as error:
            raise NotReplayable(f"CUDA captures no graph of it: {error}") from None
        return graph, made

    def borrowed(self, tensor: Tensor) -> Tensor:
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
    graphs: tuple[Graph, ...]
    gives: tuple[tuple[Tensor, Tensor], ...]  # (on the host, on the device)
    ended: Event

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
    """A `RecordedStep` of graphs."""

    logits: Tensor
    drawn: tuple[Draws, ...]
    forward: tuple[Replay, ...]
    whole: tuple[Replay, ...]
    in_order: bool = True


class GraphRecorder:
    """Of one runner, whose rows read next what is in the row buffer."""

    def __init__(self, row_buffer: RowBuffer, capture: Capture) -> None:
        self._row_buffer, self._capture = row_buffer, capture

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
        pinned = tokens.device.type == "cuda"
        kept = tuple(
            Draws(*(torch.empty(t.shape, dtype=t.dtype, pin_memory=pinned) for t in (tokens, finite)))
            for _ in inputs.staged
        )
        alone, whole = [], []
        for staged, draws in zip(inputs.staged, kept, strict=True):
            of = staged, inputs, self._row_buffer
            alone.append(Replay(*of, (forward_graph,), (), capture.event()))
            gives = (draws.tokens, tokens), (draws.finite, finite)
            whole.append(Replay(*of, (forward_graph, draw_graph), gives, capture.event()))
        return GraphedStep(capture.borrowed(logits), kept, tuple(alone), tuple(whole))


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
        if num not in self._rows:  # outside of any graph, as a step runs once before it is captured
            self._rows[num] = prepared_rows(inputs.read.tensors)
        return self._epilogue.draw_prepared(logits, self._rows[num])


def cuda_graphs(
    forward: Forward, epilogue: Epilogue, row_buffer: RowBuffer, table: Tensor, max_rows: int
) -> StepGraphs:
    """Of one runner on a GPU."""
    assert isinstance(epilogue, FusedEpilogue), "on a GPU the draw is fused"
    return StepGraphs(
        forward, PreparedDraws(epilogue), GraphRecorder(row_buffer, CudaCapture()), table, max_rows, few=True
    )
