"""What requests bring that not all have: how each feature takes it in, and which of them cannot be served."""

from typing import Any

import numpy as np

from ramet.ipc.messages import Finish, FinishKind, Generate
from ramet.ipc.params import shown
from ramet.ipc.stats import WaitKind
from ramet.runtime.arrays import Floats, Ints
from ramet.runtime.engine.batch import LoadedRunner
from ramet.runtime.scheduler.admission import AdmissionRound, Refused, refused
from ramet.runtime.scheduler.features.constraints import Constraints
from ramet.runtime.scheduler.features.media import RequestMedia, Towers
from ramet.runtime.scheduler.features.prefix_leases import PrefixLeases
from ramet.runtime.scheduler.features.tail_search import Healing
from ramet.runtime.scheduler.request import Request
from ramet.runtime.scheduler.request_feature import RequestFeature
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.text.healing import Tail
from ramet.runtime.text.tokenizer import Tokenizer


class Processors(RequestFeature):
    """A logit processor, which the runner must have."""

    asked_by = "spec.processor"

    def __init__(self, runner: LoadedRunner) -> None:
        self._runner = runner

    def refuse(self, request: Request, shared: Any) -> Finish | None:
        name = request.spec.processor
        assert name is not None, request.uid
        fact = self._runner.refusal(name, request.params.custom_params or {})
        return Finish.abort("custom_logit_processor", fact) if fact else None


class PenalisedRequests(RequestFeature):
    """Penalties, whose counts need one of a few places on the device."""

    asked_by = "spec.params.penalised"

    def __init__(self, running: RunningSet) -> None:
        self._running = running

    def waits(self, request: Request, round: AdmissionRound) -> Refused | None:
        if self._running.features.penalties.slots.num_free:
            return None
        return refused(WaitKind.PENALTIES, "finds all places of --max-penalised-requests taken")


class _Drains:
    """The request that waited longest needs a slot of an adapter: until it has one, no other with an adapter begins."""

    is_on = False


class AdapterRequests(RequestFeature):
    """An adapter, which must be loaded, and needs a slot to run."""

    asked_by = "spec.lora"

    def __init__(self, running: RunningSet) -> None:
        self._running = running

    def refuse(self, request: Request, shared: Any) -> Finish | None:
        adapter = request.spec.lora
        assert adapter is not None, request.uid
        if adapter.generation in self._running.features.adapters:
            return None
        return Finish.abort("lora_path", f"is {shown(adapter.name)}, which is not loaded")

    def waits(self, request: Request, round: AdmissionRound) -> Refused | None:
        drains = round.own(_Drains)
        if self._running.features.adapters.place(request, drains.is_on, self._running.table):
            return None
        drains.is_on = drains.is_on or round.is_aged(request)
        num = self._running.features.adapters.num_slots
        return refused(WaitKind.ADAPTERS, f"waits for one of the {num} adapters of --max-loras-per-batch to end")


class InputEmbeddings(RequestFeature):
    """Embeddings in the place of the prompt's ids, which are zeros."""

    asked_by = "content.embeds"

    def receive(self, message: Generate, prompt: Ints) -> Floats:
        assert message.content.embeds is not None
        values: Floats = np.frombuffer(message.content.embeds, dtype=np.float32).reshape(len(prompt), -1)
        return values

    def refuse(self, request: Request, shared: Floats) -> None:
        request.embeds = shared


class MediaRequests(RequestFeature):
    """Pictures, videos and sound, whose tokens the tree knows by numbers of their own."""

    asked_by = "media"

    def __init__(self, towers: Towers | None) -> None:
        self._towers = towers

    def receive(self, message: Generate, prompt: Ints) -> RequestMedia:
        assert self._towers is not None, "media were sent to a model that takes none"
        return self._towers.of_request(message.media, len(prompt))

    def refuse(self, request: Request, shared: RequestMedia) -> None:
        request.media, request.tokens = shared, shared.mark(request.tokens)

    def fails(self, request: Request) -> Finish | None:
        assert request.media is not None, request.uid
        return request.media.failure

    def lacks(self, request: Request, num_cached: int) -> Refused | None:
        assert request.media is not None, request.uid
        lacking = request.media.lacks(num_cached)
        return refused(WaitKind.MEDIA, lacking) if lacking else None


class HealedPrompts(RequestFeature):
    """The end of the prompt is chosen again."""

    asked_by = "tail"

    def __init__(self, tokenizer: Tokenizer | None, vocab_size: int) -> None:
        self._tokenizer, self._vocab_size = tokenizer, vocab_size

    def receive(self, message: Generate, prompt: Ints) -> Tail:
        assert self._tokenizer is not None, "a prompt is healed without a tokenizer"
        table = self._tokenizer.token_bytes_table(self._vocab_size)
        return Tail(message.tail, table, message.spec.params.max_new_tokens)

    def refuse(self, request: Request, shared: Tail) -> None:
        request.healing = Healing(shared, None if request.params.greedy else request.seed)
        request.tail_bytes = len(shared.text)


class LongRopeLimit(RequestFeature):
    """Sequences beyond the model's limit have other keys than shorter ones: they are cached apart. Of such models."""

    asked_by = "uids"  # every request

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def refuse(self, request: Request, shared: Any) -> None:
        request.boundary, request.is_long = self._limit, request.prompt_len > self._limit


class LeaseRequests(RequestFeature):
    """A lease on the prompt's prefix, which is claimed on arrival; or 0, to end one."""

    asked_by = "spec.prefix_lease_s"

    def __init__(self, leases: PrefixLeases) -> None:
        self._leases = leases

    def arrive(self, request: Request, shared: Any) -> Finish | None:
        if denied := self._leases.claim(request):
            return Finish(FinishKind.ABORT, error=denied)
        if request.spec.prefix_lease_s == 0 and request.returns_nothing:  # it was sent to end a lease
            return Finish(FinishKind.LENGTH, length=0)
        return None


class ConstrainedRequests(RequestFeature):
    """A constraint, which may have to be compiled before the request waits in the queue."""

    asked_by = "spec.constraint"

    def __init__(self, constraints: Constraints) -> None:
        self._constraints = constraints

    def arrive(self, request: Request, shared: Any) -> Finish | bool | None:
        attached = self._constraints.attach(request)
        return attached if isinstance(attached, Finish) else not attached or None
