"""A CUDA device without a GPU: its tensors lie on the host, its streams, events, graphs and pinned copies are recorded.

What is launched is computed at once, in the order of its launches, so numbers are right. What a GPU may reorder is
found by clocks: each stream and the host have a vector clock (Lamport 1978, Mattern 1989), a launch takes in the
host's, an event carries a stream's, and who waits for an event takes in what it carries. A read that does not come
behind the last write of its bytes, or a write that does not come behind their last reads, is a `Race`. Tensors refuse
what those of a GPU refuse: numpy, operands on the host, and to be waited for while a graph captures. What a graph
captures is computed when it is replayed; what it has freed meanwhile may be given to graphs that are captured later
over the same pool, so a replay counts as writing to all tensors of theirs that somebody still holds. The host's own
accesses are seen where it reads pinned memory by torch or numpy, and where `fill` writes `Columns`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from happens_before import Clock, Clocks
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten
from triton.runtime import interpreter

from ramet.runtime.engine import prepared
from ramet.runtime.engine.devices.cuda_graphs import CudaCapture
from ramet.runtime.engine.devices.step_inputs import Columns

CUDA = torch.device("cuda", 0)
HOST = "host"
FIRST = "stream 0"
CAPABILITY = 9, 0
PROCESSORS = 1
MEMORY = 2 << 30

Touched = list[tuple[Tensor, bool]]  # and whether it is written


class DeviceTensor(Tensor):
    """`inner` lies on the host."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> DeviceTensor:
        made: DeviceTensor = Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device="cpu",
        )
        made.inner = inner
        return made

    # what torch's own code would ask of a device that it was not built for
    device = property(lambda _: CUDA)  # type: ignore[assignment]
    is_cuda = property(lambda _: True)  # type: ignore[assignment]
    is_cpu = property(lambda _: False)  # type: ignore[assignment]

    def cpu(self, *_: Any, **__: Any) -> Tensor:  # type: ignore[override]
        return torch.ops.aten._to_copy.default(self, device=torch.device("cpu"))

    def to(self, *args: Any, **kwargs: Any) -> Tensor:  # type: ignore[override]
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(
            *args, **{k: v for k, v in kwargs.items() if k != "copy"}
        )
        if isinstance(args[0] if args else None, Tensor):
            device, dtype = args[0].device, args[0].dtype
        asked = {} if dtype is None else {"dtype": dtype}
        if device is not None and device.type == "cpu":
            return torch.ops.aten._to_copy.default(self, device=device, non_blocking=non_blocking, **asked)
        if (dtype is None or dtype == self.dtype) and not kwargs.get("copy", False):
            return self
        return torch.ops.aten._to_copy.default(self, **asked)

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"DeviceTensor({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return RecordingDevice.current().run(func, args, kwargs or {})


class _Dispatching:
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return RecordingDevice.current().run(func, args, kwargs or {})


class _Factories(_Dispatching, TorchDispatchMode):
    """Sees what makes tensors. Inherits its method, which torch would wrap else."""


class _Moves(TorchFunctionMode):
    """What torch would ask its own device for before it looks for anybody else."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.to and not isinstance(args[0], DeviceTensor):
            device, dtype, non_blocking, _ = torch._C._nn._parse_to(
                *args[1:], **{name: value for name, value in kwargs.items() if name != "copy"}
            )
            if isinstance(args[1] if len(args) > 1 else None, DeviceTensor):
                device, dtype = CUDA, args[1].dtype
            if device is not None and device.type == "cuda":
                asked = {} if dtype is None else {"dtype": dtype}
                return torch.ops.aten._to_copy.default(args[0], device=device, non_blocking=non_blocking, **asked)
        if func in (torch.tensor, torch.as_tensor) and torch.device(kwargs.get("device") or "cpu").type == "cuda":
            return func(*args, **(kwargs | {"device": "cpu"})).to(CUDA)
        return func(*args, **kwargs)


class RecordingEvent:
    def __init__(self, *_: Any, **__: Any) -> None:
        self._seen: Clock | None = None

    def record(self, stream: RecordingStream | None = None) -> None:
        device = RecordingDevice.current()
        self._seen = dict(device.clocks.of[device.stream if stream is None else stream.name])

    def synchronize(self) -> None:
        assert self._seen is not None, "an event is waited for that nothing recorded"
        RecordingDevice.current().clocks.take_in(HOST, self._seen)

    def wait(self, stream: RecordingStream | None = None) -> None:
        device = RecordingDevice.current()
        assert self._seen is not None, "an event is waited for that nothing recorded"
        device.clocks.take_in(device.stream if stream is None else stream.name, self._seen)


class RecordingStream:
    def __init__(self, name: str | None = None) -> None:
        device = RecordingDevice.current()
        self.name = name or f"stream {len(device.clocks.of) - 1}"
        device.clocks.of.setdefault(self.name, {self.name: 0})

    def wait_stream(self, other: RecordingStream) -> None:
        clocks = RecordingDevice.current().clocks
        clocks.take_in(self.name, clocks.of[other.name])

    def wait_event(self, event: RecordingEvent) -> None:
        event.wait(self)

    def synchronize(self) -> None:
        clocks = RecordingDevice.current().clocks
        clocks.take_in(HOST, clocks.of[self.name])


class RecordingGraph:
    """What was launched while it captured, and its tensors, which a replay writes again."""

    def __init__(self) -> None:
        self.launches: list[Callable[[], None]] = []
        self.later: list[RecordingGraph] = []  # over the same pool
        self._made: list[weakref.ref[DeviceTensor]] = []

    def made(self, tree: Any) -> Any:
        self._made += [weakref.ref(each) for each in as_list(tree) if isinstance(each, DeviceTensor)]
        return tree

    def held(self) -> list[Tensor]:
        """What it has made and somebody holds."""
        self._made = [each for each in self._made if each() is not None]
        return [made.inner for each in self._made if (made := each()) is not None]

    def replay(self) -> None:
        device = RecordingDevice.current()
        device.num_replays += 1
        held = [(each, True) for graph in self.later for each in graph.held()]
        device._launch("memory that a graph has used on the way", held)
        for launch in self.launches:
            launch()


class RecordingDevice:
    _current: RecordingDevice | None = None

    def __init__(self) -> None:
        self.clocks = Clocks(HOST, FIRST)
        self.stream = FIRST
        self.capturing: RecordingGraph | None = None
        self.graphs: dict[object, list[RecordingGraph]] = {}  # of a pool
        self.num_replays = 0
        self._pinned: dict[int, Tensor] = {}  # by address; kept, so that nothing else gets one

    @classmethod
    def current(cls) -> RecordingDevice:
        assert cls._current is not None, "no recording device is there"
        return cls._current

    # --- what torch calls

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        with torch._C.DisableTorchFunction(), torch.inference_mode(False):
            touched, target = touched_by(func, args, kwargs), kwargs.get("device")
            if target is not None and torch.device(target).type == "cuda":
                return self._made(func, args, kwargs | {"device": torch.device("cpu")}, touched)
            if any(isinstance(each, DeviceTensor) for each, _ in touched):
                return self._launched(func, args, kwargs, touched)
            return self._on_host(func, args, kwargs, touched)

    def _on_host(self, func: Any, args: Any, kwargs: dict[str, Any], touched: Touched) -> Any:
        pinned = kwargs.get("pin_memory")
        if pinned:
            kwargs = kwargs | {"pin_memory": False}
        if not is_view_of(func):
            self._host_touches_all(touched, func)
        made = func(*args, **kwargs)
        if is_view_of(func) and not share_memory(made, touched):
            self._host_touches_all(touched, func)
        if pinned:
            self._pinned[made.untyped_storage().data_ptr()] = made
            self.clocks.new(made.untyped_storage().data_ptr())
        return made

    def is_pinned(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self._pinned

    def _made(self, func: Any, args: Any, kwargs: dict[str, Any], touched: Touched) -> Any:
        """By a factory, or a copy to the device."""
        if self.capturing is not None and not all(isinstance(each, DeviceTensor) for each, _ in touched):
            raise RuntimeError(f"{func} copies from the host while a graph captures")
        kwargs.pop("non_blocking", None)
        return self._fresh(str(func), partial(func, *unwrapped(args), **unwrapped(kwargs)), self._counted(touched))

    def _counted(self, touched: Touched) -> Touched:
        """But for the host's memory that is not pinned: it is copied away before a copy returns."""
        return [(unwrap(t), writes) for t, writes in touched if isinstance(t, DeviceTensor) or self.is_pinned(t)]

    def _launch(self, what: str, touched: Touched) -> None:
        self.clocks.take_in(self.stream, self.clocks.of[HOST])
        for tensor, writes in touched:
            self.clocks.access(self.stream, tensor, writes=writes, what=what)

    def _launched(self, func: Any, args: Any, kwargs: dict[str, Any], touched: Touched) -> Any:
        name, inner_args, inner_kwargs = str(func), unwrapped(args), unwrapped(kwargs)
        if is_view_of(func):
            made = func(*inner_args, **inner_kwargs)
            if share_memory(made, touched):
                return self._seen_to_be_made(wrapped(made))
        is_to_host = name == "aten._to_copy.default" and "device" in kwargs
        if is_to_host or name in WAITS:
            inner_kwargs.pop("non_blocking", None)
            return self._waited(func, inner_args, inner_kwargs)
        is_copy = name == "aten.copy_.default"
        if not is_copy and any(not isinstance(each, DeviceTensor) and each.dim() for each, _ in touched):
            raise RuntimeError(f"Expected all tensors to be on the same device, but {name} gets one on the host")
        waits = is_copy and self._is_waited_for(args, kwargs)
        run = partial(func, *inner_args, **inner_kwargs)
        counted = self._counted(touched)
        if not any(writes for _, writes in touched):
            return self._fresh(name, run, counted)

        def launch() -> None:
            self._launch(name, counted)
            run()

        self._now_or_replayed(launch)
        if waits:
            self.clocks.take_in(HOST, self.clocks.of[self.stream])
        return written_by(func, args, kwargs)

    def _now_or_replayed(self, launch: Callable[[], None]) -> None:
        if self.capturing is None:
            launch()
        else:
            self.capturing.launches.append(launch)

    def _fresh(self, name: str, run: Callable[[], Any], counted: Touched) -> Any:
        """New tensors, to which a replay writes again."""
        self._launch(name, counted)
        made = run()
        given = {each.untyped_storage().data_ptr() for each, _ in counted}
        tensors = [each for each in as_list(made) if each.untyped_storage().data_ptr() not in given]
        for each in tensors:
            self.clocks.new(each.untyped_storage().data_ptr())
            self.clocks.access(self.stream, each, writes=True, what=name)
        if self.capturing is not None:

            def again() -> None:
                self._launch(name, counted + [(each, True) for each in tensors])
                for kept, new in zip(as_list(made), as_list(run()), strict=True):
                    kept.copy_(new)

            self.capturing.launches.append(again)
        return self._seen_to_be_made(wrapped(made))

    def _seen_to_be_made(self, tree: Any) -> Any:
        return tree if self.capturing is None else self.capturing.made(tree)

    def _waited(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What the host gets at once, and waits for all that its stream has."""
        if self.capturing is not None:
            raise RuntimeError(f"{func} waits for the device while a graph captures")
        self.clocks.take_in(HOST, self.clocks.of[self.stream])
        for tensor, writes in touched_by(func, args, kwargs):
            self.clocks.access(HOST, tensor, writes=writes, what=str(func))
        made = func(*args, **kwargs)
        return wrapped(made) if str(func) in WAITS_AND_STAYS else made

    def _is_waited_for(self, args: Any, kwargs: dict[str, Any]) -> bool:
        """Of a copy to the host: unless it is to pinned memory and need not be."""
        to = args[0]
        is_asked_for = not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
        waits = not isinstance(to, DeviceTensor) and (is_asked_for or not self.is_pinned(to))
        if waits and self.capturing is not None:
            raise RuntimeError("a copy to the host waits for the device while a graph captures")
        return waits

    # --- Triton

    def run_kernel(self, executor: Any, run: Any, args: Any, kwargs: dict[str, Any]) -> None:
        tensors = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
        inner_args, inner_kwargs = unwrapped(args), unwrapped(kwargs)
        self.launch(executor.fn.__name__, tensors, lambda: run(executor, *inner_args, **inner_kwargs))

    def launch(self, what: str, tensors: Sequence[Tensor], run: Callable[[], None]) -> None:
        """A kernel, of which nobody knows what it writes: it counts as all that it is given."""
        assert all(isinstance(each, DeviceTensor) for each in tensors), f"{what} gets a tensor on the host"
        touched = [(unwrap(each), True) for each in tensors]

        def launched() -> None:
            with computing():
                self._launch(what, touched)
                run()

        self._now_or_replayed(launched)

    # --- the host

    def _host_touches_all(self, touched: Touched, func: Any) -> None:
        for tensor, writes in touched:
            self.host_touches(tensor, str(func), writes=writes)

    def host_touches(self, tensor: Tensor, what: str, *, writes: bool) -> None:
        if self.is_pinned(tensor):
            self.clocks.access(HOST, tensor, writes=writes, what=what)


WAITS_AND_STAYS = {"aten.nonzero.default", "aten.masked_select.default"}
WAITS = {"aten._local_scalar_dense.default", "aten.equal.default", "aten.is_nonzero.default", *WAITS_AND_STAYS}


def unwrap(tensor: Tensor) -> Tensor:
    return tensor.inner if isinstance(tensor, DeviceTensor) else tensor


def unwrapped(tree: Any) -> Any:
    if isinstance(tree, DeviceTensor):
        return tree.inner
    if isinstance(tree, (tuple, list)):
        return type(tree)([unwrapped(each) for each in tree])
    if isinstance(tree, dict):
        return {name: unwrapped(each) for name, each in tree.items()}
    return tree


def wrapped(tree: Any) -> Any:
    if isinstance(tree, Tensor):
        return DeviceTensor(tree)
    return type(tree)([wrapped(each) for each in tree]) if isinstance(tree, (tuple, list)) else tree


def as_list(made: Any) -> list[Tensor]:
    return list(made) if isinstance(made, (tuple, list)) else [made]


@cache
def arguments_of(func: Any) -> tuple[tuple[str, bool], ...]:
    """The name of each, and whether it is written."""
    return tuple(
        (each.name, each.alias_info is not None and each.alias_info.is_write) for each in func._schema.arguments
    )


@cache
def is_view_of(func: Any) -> bool:
    """Whether it gives another look at what it is given, and touches none of it."""
    return not any(writes for _, writes in arguments_of(func)) and any(
        each.alias_info is not None for each in func._schema.returns
    )


def share_memory(made: Any, touched: Touched) -> bool:
    """Whether it is a look at something that was given, and no copy: `to` and `reshape` may give either."""
    given = {unwrap(each).untyped_storage().data_ptr() for each, _ in touched}
    return all(each.untyped_storage().data_ptr() in given for each in as_list(made))


def written_by(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What an op in place returns: that which it was given to write to."""
    named = arguments_of(func)
    given = dict(zip((name for name, _ in named), args, strict=False)) | kwargs
    written = [given[name] for name, writes in named if writes and name in given]
    if not func._schema.returns:
        return None
    return written[0] if len(written) == 1 else tuple(written)


def touched_by(func: Any, args: Any, kwargs: dict[str, Any]) -> Touched:
    """Tensors that an op is given, and whether it writes to them."""
    found: Touched = []
    named = arguments_of(func)
    given = [(value, writes) for value, (_, writes) in zip(args, named, strict=False)]
    given += [(kwargs[name], writes) for name, writes in named if name in kwargs] if kwargs else []
    for value, writes in given:
        if isinstance(value, Tensor):
            found.append((value, writes))
        elif isinstance(value, (tuple, list)):
            found += [(each, writes) for each in value if isinstance(each, Tensor)]
    return found


@contextmanager
def computing() -> Iterator[None]:
    """On the host, where nothing of this is seen."""
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.inference_mode(False), torch.no_grad():
        yield


@contextmanager
def recording_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingDevice]:
    """torch finds a CUDA device inside, on this thread."""
    device = RecordingDevice()
    monkeypatch.setattr(RecordingDevice, "_current", device)
    for name, value in cuda_of(device).items():
        monkeypatch.setattr(torch.cuda, name, value)
    # torch finds no memory of a device at an address
    monkeypatch.setattr(CudaCapture, "borrowed", lambda _, tensor: tensor)
    run = interpreter.GridExecutor.__call__
    monkeypatch.setattr(interpreter.GridExecutor, "__call__", lambda self, *a, **k: device.run_kernel(self, run, a, k))
    see_the_host(device, monkeypatch)
    with _Moves(), _Factories():
        yield device


def cuda_of(device: RecordingDevice) -> dict[str, Any]:
    """What torch.cuda has, by name."""
    major, minor = CAPABILITY
    properties = SimpleNamespace(
        multi_processor_count=PROCESSORS, name="recording device", total_memory=MEMORY, major=major, minor=minor
    )

    @contextmanager
    def stream(chosen: RecordingStream) -> Iterator[None]:
        before, device.stream = device.stream, chosen.name
        try:
            yield
        finally:
            device.stream = before

    @contextmanager
    def graph(made: RecordingGraph, pool: object = None, **_: Any) -> Iterator[None]:
        earlier = device.graphs.setdefault(pool, [])
        for each in earlier:
            each.later.append(made)
        earlier.append(made)
        device.capturing = made
        try:
            yield
        finally:
            device.capturing = None

    return {
        "_lazy_init": lambda: None,
        "is_available": lambda: True,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_capability": lambda *_: CAPABILITY,
        "get_device_properties": lambda *_: properties,
        "get_device_name": lambda *_: properties.name,
        "mem_get_info": lambda *_: (MEMORY, MEMORY),
        "Event": RecordingEvent,
        "Stream": RecordingStream,
        "CUDAGraph": RecordingGraph,
        "graph_pool_handle": object,
        "current_stream": lambda *_: RecordingStream(device.stream),
        "synchronize": lambda *_: RecordingStream(device.stream).synchronize(),
        "empty_cache": lambda: None,
        "stream": stream,
        "graph": graph,
    }


def see_the_host(device: RecordingDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it takes pinned memory out of torch's hands, and where it writes there."""
    numpy, fill = Tensor.numpy, prepared.fill

    def read(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if isinstance(tensor, DeviceTensor):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        device.host_touches(tensor, "numpy", writes=False)
        return numpy(tensor, *args, **kwargs)

    def filled(columns: Columns, batch: Any) -> None:
        device.host_touches(columns.memory, "Columns.fill", writes=True)
        fill(columns, batch)

    monkeypatch.setattr(Tensor, "numpy", read)
    monkeypatch.setattr(prepared, "fill", filled)
