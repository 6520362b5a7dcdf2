"""The adapters of the engine by name: which generation a request gets that is sent now, and when one can be forgotten.

A name is given to another generation only once that is loaded, and a generation is dropped when the last sequence that
was sent with it has ended: no request meets another adapter than the one it was sent with, nor the keys of one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from ramet.ipc.params import shown
from ramet.ipc.spec import RequestSpec
from ramet.runtime.config import Args
from ramet.runtime.engine_client.submission import UNOPENED, GeneratedSequence
from ramet.runtime.errors import ClientError
from ramet.runtime.options.adapter_paths import NamedAdapter, wrong_name, wrong_path

MAX_NAMED = 8  # in an error


@dataclass(frozen=True, slots=True)
class KnownAdapter:
    named: NamedAdapter
    generation: int


class AdapterNames:
    def __init__(self, args: Args) -> None:
        self._folder, self._reserved = args.adapters.lora_dir, (args.model_name, "default")
        self._known = {each.name: KnownAdapter(each, i) for i, each in enumerate(args.named_adapters, 1)}
        self._generations = count(len(self._known) + 1)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    @property
    def paths(self) -> dict[str, str]:
        """By name, in the order in which they were loaded."""
        return {name: known.named.path for name, known in self._known.items()}

    def sent(self, spec: RequestSpec) -> RequestSpec:
        """The spec of a request that names an adapter, with the generation that it gets now. Raises ClientError."""
        assert spec.lora is not None
        known = self._known.get(spec.lora.name)
        if known is None:
            raise ClientError("lora_path", f"is {shown(spec.lora.name)}, {self.words}", "/load_lora_adapter loads one")
        return spec.sent_with(known.generation)

    @property
    def words(self) -> str:
        names = [*self._known][:MAX_NAMED]
        more = f" and {len(self._known) - MAX_NAMED} more" if len(self._known) > MAX_NAMED else ""
        return f"the adapters that are loaded are {', '.join(names)}{more}" if names else "no adapter is loaded"

    def check_new(self, name: str, path: str, *, replaces: bool) -> int:
        """A generation for what is to be loaded. Raises ClientError."""
        if fact := wrong_name(name):
            raise ClientError("lora_name", f"is {shown(name)}, which {fact}")
        if name in self._reserved:
            raise ClientError("lora_name", f"is {shown(name)}, which is a name of the model")
        if name in self._known and not replaces:
            raise ClientError(
                "lora_name", f"is {shown(name)}, which is loaded", "unload it, or set load_inplace to true"
            )
        if fact := wrong_path(path, self._folder):
            raise ClientError("lora_path", f"is {shown(path)}, which {fact}")
        return next(self._generations)

    def give(self, name: str, path: str, pinned: bool, generation: int) -> int | None:
        """From now on requests get this one. Returns the generation that they got before."""
        before = self._known.get(name)
        self._known[name] = KnownAdapter(NamedAdapter(name, path, pinned), generation)
        return before.generation if before is not None else None

    def take_away(self, name: str) -> int:
        """From now on no request gets it. Raises ClientError."""
        if name not in self._known:
            raise ClientError("lora_name", f"is {shown(name)}, {self.words}")
        return self._known.pop(name).generation


def in_use(sequences: Iterable[GeneratedSequence]) -> tuple[frozenset[str], frozenset[str]]:
    """The names of those that run, and of those that wait."""
    running, waiting = set[str](), set[str]()
    for sequence in sequences:
        if (lora := sequence.prompt.spec.lora) is not None:
            (running if sequence.opened is not UNOPENED else waiting).add(lora.name)
    return frozenset(running), frozenset(waiting)


def has_generation(spec: RequestSpec, generation: int) -> bool:
    """Whether a request that was sent has this generation of its adapter."""
    return spec.lora is not None and spec.lora.generation == generation
