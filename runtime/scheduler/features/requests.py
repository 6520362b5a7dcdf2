"""What requests bring that not all have: how each feature takes it in, and which of them cannot be served."""

from typing import Any

import numpy as np

from ramet.ipc.messages import Finish, FinishKind, Generate
from ramet.ipc.params import shown
from ramet.ipc.spec import RequestSpec
from ramet.ipc.stats import WaitKind
from ramet.runtime.arrays import Ints
from ramet.runtime.engine.batch import LoadedRunner
from ramet.runtime.scheduler.admission import AdmissionRound, Refused, refused
from ramet.runtime.scheduler.features.adapters import AdapterSlots
from ramet.runtime.scheduler.features.biases import LogitBias
from ramet.runtime.scheduler.features.constraints import Constraints
from ramet.runtime.scheduler.features.embeds import InputEmbeds
from ramet.runtime.scheduler.features.long_rope import LongRope
from ramet.runtime.scheduler.features.media import RequestMedia, Towers
from ramet.runtime.scheduler.features.penalties import PenaltySlots
from ramet.runtime.scheduler.features.prefix_leases import PrefixLeases
from ramet.runtime.scheduler.features.returned import ReturnedLogprobs, ReturnedStates
from ramet.runtime.scheduler.features.tail_search import Healing
from ramet.runtime.scheduler.request import OutputStart, Request
from ramet.runtime.scheduler.request_feature import RequestFeature
from ramet.runtime.scheduler.row_flag import RowFlag
from ramet.runtime.scheduler.running import RunningSet
from ramet.runtime.text.healing import Tail
from ramet.runtime.text.tokenizer import Tokenizer

# bits of requests whose features have something to do only while they run, by the path of a field of `Generate`
MARKS = {
    "spec.params.filters": RowFlag.FILTERED,
    "spec.params.min_new_tokens": RowFlag.MIN_NEW,
    "spec.params.stop_regex": RowFlag.PATTERNS | RowFlag.WATCHED,
    "spec.expert_routes": RowFlag.WATCHED,
}


class Processors(RequestFeature):
    """A logit processor, which the runner must have."""

    asked_by = "spec.processor"
    flag = RowFlag.PROCESSOR

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
    flag = RowFlag.PENALTIES

    def __init__(self, penalties: PenaltySlots) -> None:
        self._slots = penalties.slots

    def waits(self, request: Request, round: AdmissionRound) -> Refused | None:
        if self._slots.num_free:
            return None
        return refused(WaitKind.PENALTIES, "finds all places of --max-penalised-requests taken")


class _Drains:
    """The request that waited longest needs a slot of an adapter: until it has one, no other with an adapter begins."""

    is_on = False


class AdapterRequests(RequestFeature):
    """An adapter, which must be loaded, and needs a slot to run."""

    asked_by = "spec.lora"
    flag = RowFlag.ADAPTER

    def __init__(self, running: RunningSet, slots: AdapterSlots) -> None:
        self._running, self._slots = running, slots

    def refuse(self, request: Request, shared: Any) -> Finish | None:
        adapter = request.spec.lora
        assert adapter is not None, request.uid
        if adapter.generation in self._slots:
            return None
        return Finish.abort("lora_path", f"is {shown(adapter.name)}, which is not loaded")

    def waits(self, request: Request, round: AdmissionRound) -> Refused | None:
        drains = round.own(_Drains)
        if self._slots.place(request, drains.is_on, self._running.table):
            return None
        drains.is_on = drains.is_on or round.is_aged(request)
        num = self._slots.num_slots
        return refused(WaitKind.ADAPTERS, f"waits for one of the {num} adapters of --max-loras-per-batch to end")

    def begins(self, request: Request, round: AdmissionRound, num_cached: int) -> None:
        self._running.memory.commands += self._slots.take_placements()


class InputEmbeddings(RequestFeature):
    """Embeddings in the place of the prompt's ids, which are zeros."""

    asked_by = "content.embeds"
    flag = RowFlag.EMBEDS

    def receive(self, message: Generate, prompt: Ints) -> InputEmbeds:
        assert message.content.embeds is not None
        return InputEmbeds(np.frombuffer(message.content.embeds, dtype=np.float32).reshape(len(prompt), -1))

    def refuse(self, request: Request, shared: InputEmbeds) -> None:
        request.own[InputEmbeds] = shared


class BiasedRequests(RequestFeature):
    """Numbers that are added to logits."""

    asked_by = "spec.params.logit_bias"
    flag = RowFlag.BIAS

    def receive(self, message: Generate, prompt: Ints) -> LogitBias:
        return LogitBias.of(message.spec.params)

    def refuse(self, request: Request, shared: LogitBias) -> None:
        request.own[LogitBias] = shared


class LogprobRequests(RequestFeature):
    """Log-probabilities of the output's tokens, and of the prompt's from one on."""

    asked_by = "spec.logprobs"
    flag = RowFlag.LOGPROBS | RowFlag.WATCHED

    def refuse(self, request: Request, shared: Any) -> None:
        asked = request.spec.logprobs
        assert asked is not None, request.uid
        if asked.start is not None and asked.start + 1 < request.prompt_len:
            request.own[ReturnedLogprobs] = ReturnedLogprobs(asked.start + 1)


class HiddenStateRequests(RequestFeature):
    """The hidden states of all tokens, or of one."""

    asked_by = "spec.hidden"
    flag = RowFlag.HIDDEN

    def refuse(self, request: Request, shared: Any) -> None:
        assert request.spec.hidden is not None, request.uid
        request.own[ReturnedStates] = ReturnedStates(request.spec.hidden)


class MediaRequests(RequestFeature):
    """Pictures, videos and sound, whose tokens the tree knows by numbers of their own."""

    asked_by = "media"
    flag = RowFlag.MEDIA

    def __init__(self, towers: Towers | None) -> None:
        self._towers = towers

    def receive(self, message: Generate, prompt: Ints) -> RequestMedia:
        assert self._towers is not None, "media were sent to a model that takes none"
        return self._towers.of_request(message.media, len(prompt))

    def refuse(self, request: Request, shared: RequestMedia) -> None:
        request.own[RequestMedia], request.tokens = shared, shared.mark(request.tokens)
        if shared.era:
            request.cache_apart("media", shared.era)

    def fails(self, request: Request) -> Finish | None:
        return request.own[RequestMedia].failure

    def lacks(self, request: Request, num_cached: int) -> Refused | None:
        lacking = request.own[RequestMedia].lacks(num_cached)
        return refused(WaitKind.MEDIA, lacking) if lacking else None


class HealedPrompts(RequestFeature):
    """The end of the prompt is chosen again."""

    asked_by = "tail"
    flag = RowFlag.HEALING | RowFlag.HEALED

    def __init__(self, tokenizer: Tokenizer | None, vocab_size: int) -> None:
        self._tokenizer, self._vocab_size = tokenizer, vocab_size

    def receive(self, message: Generate, prompt: Ints) -> Tail:
        assert self._tokenizer is not None, "a prompt is healed without a tokenizer"
        table = self._tokenizer.token_bytes_table(self._vocab_size)
        return Tail(message.tail, table, message.spec.params.max_new_tokens)

    def refuse(self, request: Request, shared: Tail) -> None:
        request.own[Healing] = Healing(shared, None if request.params.greedy else request.seed)
        request.start = OutputStart(num_bytes=len(shared.text))


class LongRopeLimit(RequestFeature):
    """Sequences beyond the model's limit have other keys than shorter ones: they are cached apart. Of such models."""

    asked_by = "uids"  # every request
    flag = RowFlag.LONG_ROPE

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def refuse(self, request: Request, shared: Any) -> None:
        own = request.own[LongRope] = LongRope(self._limit)
        if request.prompt_len > self._limit:
            own.outgrow(request)


class LeaseRequests(RequestFeature):
    """A lease on the prompt's prefix, which is claimed on arrival; or 0, to end one."""

    asked_by = "spec.prefix_lease_s"
    flag = RowFlag.WATCHED

    def __init__(self, leases: PrefixLeases) -> None:
        self._leases = leases

    def arrive(self, request: Request, shared: Any) -> Finish | None:
        if denied := self._leases.claim(request):
            return Finish(FinishKind.ABORT, error=denied)
        if request.spec.prefix_lease_s == 0 and _returns_nothing(request.spec):  # it was sent to end a lease
            return Finish(FinishKind.LENGTH, length=0)
        return None


class ConstrainedRequests(RequestFeature):
    """A constraint, which may have to be compiled before the request waits in the queue."""

    asked_by = "spec.constraint"
    flag = RowFlag.WATCHED

    def __init__(self, constraints: Constraints) -> None:
        self._constraints = constraints

    def arrive(self, request: Request, shared: Any) -> Finish | bool | None:
        attached = self._constraints.attach(request)
        return attached if isinstance(attached, Finish) else not attached or None


def _returns_nothing(spec: RequestSpec) -> bool:
    """No token is drawn, and nothing is told of the prompt's."""
    return spec.params.max_new_tokens == 0 and spec.logprobs is None and spec.hidden is None
