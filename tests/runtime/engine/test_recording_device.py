"""The device that tests of a GPU's steps run on: what it computes, what it refuses, and which races it finds."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from happens_before import Race
from recording_device import DeviceTensor, RecordingDevice, RecordingEvent, RecordingGraph, recording_device
from torch import Tensor

CUDA = "cuda"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingDevice]:
    with recording_device(monkeypatch) as made:
        yield made


def pinned(num: int = 4) -> Tensor:
    return torch.zeros(num, pin_memory=True)


def test_tensors_lie_on_the_device_and_compute(device: RecordingDevice) -> None:
    x = torch.arange(6, device=CUDA).view(2, 3)
    x[1] += 10
    assert isinstance(x, DeviceTensor) and x.device.type == CUDA and x.is_cuda
    assert (x.float() @ torch.ones(3, device=CUDA)).tolist() == [3, 42]
    assert torch.from_numpy(np.ones(2)).to(CUDA, non_blocking=True).sum().item() == 2
    assert x[x > 11].cpu().numpy().tolist() == [13, 14, 15] and torch.equal(x, x.clone())


def test_what_a_gpu_refuses_is_refused(device: RecordingDevice) -> None:
    x = torch.zeros(3, device=CUDA)
    with pytest.raises(TypeError, match="numpy"):
        x.numpy()
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(3)


def test_a_copy_is_read_behind_its_event_alone(device: RecordingDevice) -> None:
    host, x = pinned(), torch.ones(4, device=CUDA)
    host.copy_(x, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    with pytest.raises(Race, match=r"host reads in numpy what stream 0 wrote in aten.copy_"):
        host.numpy()
    event.synchronize()
    assert host.numpy().tolist() == [1, 1, 1, 1]


def test_an_event_of_before_the_copy_orders_nothing(device: RecordingDevice) -> None:
    host, x, event = pinned(), torch.ones(4, device=CUDA), torch.cuda.Event()
    event.record()
    host.copy_(x, non_blocking=True)
    event.synchronize()
    with pytest.raises(Race):
        host.sum()


def test_a_copy_that_waits_orders_what_comes_after(device: RecordingDevice) -> None:
    host, x = pinned(), torch.ones(4, device=CUDA)
    host.copy_(x)
    assert host.numpy().sum() == 4
    x.copy_(host, non_blocking=True)
    with pytest.raises(Race, match=r"host writes in aten.zero_.default what stream 0 read"):
        host.zero_()


def test_streams_are_ordered_by_waiting(device: RecordingDevice) -> None:
    x, side = torch.ones(4, device=CUDA), torch.cuda.Stream()
    with torch.cuda.stream(side), pytest.raises(Race, match=r"stream 1 reads"):
        x.sum()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total = x.sum()
    with pytest.raises(Race, match=r"stream 0 reads"):
        total + 1
    with pytest.raises(Race, match=r"stream 0 writes in aten.zero_.default what stream 1 read"):
        x.zero_()
    event = RecordingEvent()
    event.record(side)
    event.wait()
    x.zero_()
    assert (total + 1).item() == 5


def test_parts_of_a_tensor_are_apart(device: RecordingDevice) -> None:
    host, x = pinned(8), torch.ones(4, device=CUDA)
    host[:4].copy_(x, non_blocking=True)
    assert host[4:].numpy().sum() == 0
    with pytest.raises(Race):
        host[3:5].numpy()


def test_a_graph_computes_when_it_is_replayed(device: RecordingDevice) -> None:
    x, counted = torch.zeros(2, device=CUDA), torch.zeros(1, device=CUDA)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x + 1) * 2
        counted += 1
    assert isinstance(graph, RecordingGraph) and counted.item() == 0
    for value in (3, 5):
        x.fill_(value)
        graph.replay()
        assert y.tolist() == [2 * value + 2] * 2
    assert counted.item() == device.num_replays == 2


def test_what_may_be_a_view_and_is_a_copy_is_computed_when_it_is_replayed(device: RecordingDevice) -> None:
    x, graph = torch.zeros(2, 3, device=CUDA), torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):  # where torch asks a device for `to` and `reshape` themselves
        view, copies = x.reshape(6), (x.int(), x.T.reshape(6))
    x.copy_(torch.arange(6, device=CUDA).view(2, 3))
    assert view.tolist() == [0, 1, 2, 3, 4, 5]
    graph.replay()
    assert copies[0].tolist() == [[0, 1, 2], [3, 4, 5]] and copies[1].tolist() == [0, 3, 1, 4, 2, 5]


def test_nothing_is_waited_for_while_a_graph_captures(device: RecordingDevice) -> None:
    x = torch.zeros(2, device=CUDA)
    for waits in (lambda: x.sum().item(), x.cpu, x.tolist, lambda: pinned(2).copy_(x), lambda: torch.nonzero(x)):
        with pytest.raises(RuntimeError, match="captures"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            waits()
