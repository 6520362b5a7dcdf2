"""The engine of an `LLM`: how it is made and closed, and what whoever owns it asks of it beside outputs.

Calls come from any thread and any event loop; each becomes a coroutine on the event loop of the engine. Whoever waits
may be interrupted: what was asked then ends, others go on.
"""

import asyncio
import json
import os
import threading
import weakref
from collections.abc import Coroutine, Sequence
from typing import Any, Self, TypeVar

from ramet.ipc.control import ControlReply, MemoryTag
from ramet.ipc.loop_thread import LoopThread
from ramet.ipc.owned import NotCopied
from ramet.ipc.params import shown
from ramet.runtime.config import Args, make_args, resolve
from ramet.runtime.engine_client.admin import MAX_FLUSH_WAIT_S
from ramet.runtime.engine_client.pauses import PauseMode
from ramet.runtime.errors import ClientError, ConfigError, EngineClosed
from ramet.runtime.intake.calls import CallDefaults
from ramet.runtime.intake.programs import plain
from ramet.runtime.processes.inprocess import InProcessEngine
from ramet.runtime.processes.threads import quiet_at_exit
from ramet.runtime.scheduler.process.start import make_runner
from ramet.runtime.text.defaults import sampling_defaults
from ramet.runtime.text.healing import check_healing
from ramet.runtime.text.tokenizer import Tokenizer
from ramet.runtime.weights import ahead

T = TypeVar("T")


class EngineOwner(NotCopied):
    """An engine within this process, with its model, its threads and its handle."""

    only_one = "it owns an engine; share the object among threads, or make another one with LLM(llm.args)"

    def __init__(self, model: Args | str | os.PathLike[str] | None = None, **options: Any) -> None:
        """`model` is a model folder, or all options at once; without it the bundled model is loaded."""
        if isinstance(model, str | os.PathLike):
            options["model_path"] = os.fspath(model)
        elif not isinstance(model, Args | None):
            raise ConfigError(f"model is {shown(model)}, must be a model folder")
        self.args = args = resolve(model if isinstance(model, Args) else make_args(**options))
        ahead.begin(args.model, args.model_folder)
        self.startup: list[tuple[str, float]] = []  # phase, seconds
        self.tokenizer = tokenizer = Tokenizer.from_folder(args.tokenizer_folder, args.model_folder)
        tokenizer.log_notes()
        check_healing(args, tokenizer)
        startup = self.startup  # the engine must not hold this object, or it would never be collected
        self._loop = LoopThread("ramet-loop", _engine_closed)
        try:
            load = lambda: make_runner(args, tokenizer, lambda name, seconds: startup.append((name, seconds)))  # noqa: E731
            engine = self._loop.run(InProcessEngine.start(args, tokenizer, load))
        except BaseException as error:
            self._loop.close(_nothing(), wait=isinstance(error, Exception))
            raise
        self._handle = engine.client
        self._defaults = CallDefaults(
            sampling_defaults(args.model_folder, args.model.sampling_defaults),
            self._handle.limits,
            args.execute.enable_custom_logit_processor,
            args.heals_unasked,
        )
        # called by close, when this object is collected, or when Python ends, whichever comes first
        self._close = weakref.finalize(self, _close, self._loop, engine)
        quiet_at_exit(EngineClosed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Open calls end with EngineClosed, as will later ones; threads end, and the model is dropped."""
        self._close()

    @property
    def loop(self) -> LoopThread:
        """The engine's event loop: what waits there for the engine hands nothing from thread to thread."""
        return self._loop

    # -- adapters, weights and memory ---------------------------------------------------------------------------------

    def load_lora_adapter(self, name: str, path: str, *, pinned: bool = False, load_inplace: bool = False) -> None:
        """From its end on `lora_path=name` gets the adapter of this folder. Raises ClientError.

        pinned: it keeps its slot, whoever waits for one. load_inplace: it may take the place of one of that name.
        """
        self._loop.run(self._handle.admin.load_adapter(name, path, pinned=pinned, replaces=load_inplace))

    def unload_lora_adapter(self, name: str) -> None:
        """Returns when the requests that have it are done. Raises ClientError."""
        self._loop.run(self._handle.admin.unload_adapter(name))

    def flush_cache(self, timeout_s: float = 60.0) -> None:
        """Forget every cached prefix, once nothing runs or waits. Raises ClientError if that takes longer."""
        seconds = plain("timeout_s", timeout_s)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= MAX_FLUSH_WAIT_S:
            raise ClientError(
                "timeout_s", f"is {shown(timeout_s)}, must be a number of seconds in [0, {MAX_FLUSH_WAIT_S:g}]"
            )
        reply: ControlReply = self._loop.run(self._handle.admin.flush_cache(float(seconds)))
        if not reply.ok:
            raise ClientError("flush_cache", f"found requests still running after {seconds:g} s", status=409)

    def pause_generation(self, mode: str = "abort") -> None:
        """Returns when no step runs any more; what is asked from now on waits until `continue_generation`.

        mode: "abort" ends every open call now, "retract" computes them again later, "in_place" keeps what they have.
        """
        modes = [each.value for each in PauseMode]
        if mode not in modes:
            raise ClientError("mode", f"is {shown(mode)}, must be one of {', '.join(modes)}")
        self._loop.run(self._handle.admin.pauses.pause(PauseMode(mode)))

    def continue_generation(self) -> None:
        """Compute again what waits."""
        self._loop.run(self._handle.admin.pauses.go_on())

    def update_weights_from_disk(self, model_path: str, weight_version: str | None = None) -> None:
        """Serve other weights of the same model (docs/administration.md): calls that run end with those they began
        with, unless generation is paused. Raises ClientError; then nothing has changed.
        """
        check_type("model_path", model_path, str, "the path of a folder")
        check_type("weight_version", weight_version, str | None, "a string or None")
        self._loop.run(self._handle.admin.update_weights(model_path, weight_version))

    def release_memory_occupation(self, tags: Sequence[str] | None = None) -> None:
        """Give memory back to the system: of "weights", "kv_cache" and "cuda_graph", or all. What is asked from now on
        waits until it is resumed. Raises ClientError while something runs; then nothing has changed.
        """
        self._loop.run(self._handle.admin.release_memory(_tags(tags)))

    def resume_memory_occupation(self, tags: Sequence[str] | None = None) -> None:
        """Take it again. Raises ClientError; then all of it stays released."""
        self._loop.run(self._handle.admin.resume_memory(_tags(tags)))

    # -- what it is, and does ---------------------------------------------------------------------------------------

    @property
    def resolved(self) -> dict[str, Any]:
        """What the options that were left open came to: device, dtype, num_threads, max_total_tokens and others."""
        found: dict[str, Any] = json.loads(self._handle.limits.resolved)
        return found

    def state(self) -> dict[str, Any]:
        """The scheduler's counters between two steps: what /get_server_info has in `internal_states`."""
        found: dict[str, Any] = json.loads(self._loop.run(self._handle.admin.state()).body)
        return found

    def phase_seconds(self) -> dict[str, float]:
        """Seconds spent in each part of all steps so far, and their number."""
        state = self.state()
        return {**state["phase_seconds"], "steps": float(state["steps"])}

    # -- on the engine's event loop ---------------------------------------------------------------------------------

    async def _elsewhere(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait on the caller's event loop for what runs on the engine's."""
        return await asyncio.wrap_future(self._loop.start(coroutine))


def _engine_closed(pid: int | None) -> EngineClosed:
    if pid is None:
        return EngineClosed()
    return EngineClosed(f"The engine is one of process {pid}; after os.fork() the child makes its own.")


async def _nothing() -> None:
    pass


def _close(loop: LoopThread, engine: InProcessEngine) -> None:
    """End the engine, maybe in a garbage collection on one of its own threads, which cannot wait for itself."""
    wait = not loop.is_current() and not engine.owns(threading.current_thread())
    loop.close(engine.close(), wait)


def _tags(names: Sequence[str] | None) -> list[MemoryTag]:
    known = {each.value: each for each in MemoryTag}
    check_type("tags", names, Sequence | None, "a list of strings or None")
    if unknown := [name for name in names or () if name not in known]:
        raise ClientError("tags", f"has {shown(unknown[0])}, must be of {', '.join(known)}")
    return [known[name] for name in names or known]


def check_type(place: str, value: Any, type_: Any, wanted: str) -> None:
    if not isinstance(value, type_):
        raise ClientError(place, f"is {shown(value)}, must be {wanted}")
