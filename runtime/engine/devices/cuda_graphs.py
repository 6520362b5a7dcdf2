"""Captures a decode step on a GPU: the forward pass and the draw as two CUDA graphs, over one pool of memory.

Steps are queued on one stream, so one that is begun comes behind the one before it. Their tokens go to the host on
another (copies.py), and nothing waits but the host, for the tokens that it asks for. A graph's memory is used again by
those that are recorded after it; only one runs at a time. Knows no model.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ramet.kernels.step_rows import StepColumns, take_in
from ramet.runtime.engine.devices.base import CapturedStep, NotReplayable
from ramet.runtime.engine.devices.copies import Copies
from ramet.runtime.engine.devices.step_inputs import Columns, StepInputs
from ramet.runtime.sampling.epilogue import RowBuffer
from ramet.runtime.sampling.fused import FusedEpilogue, prepared_rows


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
class GraphReplay:
    """A step from one place: its inputs go to the device, graphs are replayed, its draws come back where there are."""

    staged: Columns
    inputs: StepInputs
    rows: RowBuffer
    graphs: tuple[torch.cuda.CUDAGraph, ...]
    gives: tuple[tuple[Tensor, Tensor], ...]  # (on the host, on the device)
    copies: Copies
    keeps: object  # what graphs read and nobody else holds
    ended: torch.cuda.Event = field(default_factory=lambda: torch.cuda.Event())

    def begin(self) -> int:
        self.copies.precede()  # what it draws is written where what was drawn before is copied from
        self.inputs.read.memory.copy_(self.staged.memory, non_blocking=True)
        take_in_rows(self.inputs, self.rows)
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


def captured_step(
    inputs: StepInputs,
    forward: Callable[[], Tensor],
    epilogue: FusedEpilogue,
    rows: RowBuffer,
    capture: CudaCapture,
    copies: Copies,
) -> CapturedStep:
    """The forward pass and the draw, without cuts, as two graphs. What they compute meanwhile is padding."""
    asked = prepared_rows(inputs.draw_params, inputs.read.tensors)

    def once() -> None:
        take_in_rows(inputs, rows)
        epilogue.draw_prepared(forward(), asked)

    with torch.inference_mode():
        capture.warm(once)
        forward_graph, logits = capture.graph(forward)
        draw_graph, fresh = capture.graph(lambda: epilogue.draw_prepared(logits, asked))
    drawn, alone, whole = [], [], []
    for staged in inputs.staged:
        tokens, finite = (torch.empty(each.shape, dtype=each.dtype, pin_memory=True) for each in fresh)
        drawn.append((tokens, finite))
        gives = (tokens, fresh[0]), (finite, fresh[1])
        alone.append(GraphReplay(staged, inputs, rows, (forward_graph,), (), copies, asked))
        whole.append(GraphReplay(staged, inputs, rows, (forward_graph, draw_graph), gives, copies, asked))
    return CapturedStep(capture.borrowed(logits), drawn, alone, whole, in_order=True)


def take_in_rows(inputs: StepInputs, rows: RowBuffer) -> None:
    """See kernels/step_rows.py."""
    of, forward = inputs.read.tensors, inputs.forward
    assert forward.rope_positions is not None
    columns = StepColumns(of["rows"], of["relayed"], of["seq_lens"], of["position_offsets"], of["slots"])
    take_in(
        columns, rows.next_ids, rows.lengths, of["ids"], of["positions"], forward.rope_positions, forward.table
    )  # fmt: skip
