"""The whole runtime inside one process: `LLM(...).generate(prompts)`. The same parts, joined by memory, not sockets.

Decides nothing of its own. Knows the encoder, the scheduler and the detokenizer, and drives them turn by turn.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from operator import index
from typing import Any

import numpy as np

from ramet.ipc.channel import MemoryChannel
from ramet.ipc.messages import (
    Abort,
    Admit,
    ControlReply,
    Generate,
    Rejected,
    TextStep,
    TokenStep,
    ToScheduler,
    Uid,
    pack_ids,
)
from ramet.ipc.params import shown
from ramet.ipc.spec import RequestSpec
from ramet.ipc.stats import Stats
from ramet.runtime.config import Args, make_args, resolve
from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert
from ramet.runtime.intake.prompts import pack_embeds
from ramet.runtime.intake.specs import SpecLists, read_specs
from ramet.runtime.interrupts import interrupts_wait
from ramet.runtime.reply import Sequence as Output
from ramet.runtime.scheduler.loop import Scheduler
from ramet.runtime.scheduler.process import limits_of, make_runner
from ramet.runtime.text.decode_process import Detokenizer
from ramet.runtime.text.defaults import sampling_defaults
from ramet.runtime.text.encode_process import Encoder
from ramet.runtime.text.tokenizer import Tokenizer

Prompt = str | Sequence[int] | np.ndarray[Any, Any]


class LLM:
    """Options are those of `ramet serve`: LLM("FOLDER", page_size=16). For one thread."""

    def __init__(self, model: Args | str | None = None, **options: Any) -> None:
        """`model` is a model folder, or all options at once; without it the bundled model is loaded."""
        if isinstance(model, str):
            options["model_path"] = model
        self.args = resolve(model if isinstance(model, Args) else make_args(**options))
        self.startup: list[tuple[str, float]] = []  # phase, seconds
        self.tokenizer = Tokenizer.from_folder(self.args.tokenizer_folder, self.args.model_folder)
        self.runner = make_runner(self.args, self.tokenizer, lambda name, s: self.startup.append((name, s)))
        runner = self.runner
        self._inbox: MemoryChannel[ToScheduler] = MemoryChannel()
        self._steps: MemoryChannel[TokenStep] = MemoryChannel()
        self._told: MemoryChannel[Stats | ControlReply] = MemoryChannel()
        self._encoder = Encoder(self.tokenizer, limits_of(runner))
        self._detokenizer = Detokenizer(self.tokenizer)
        self._defaults = sampling_defaults(self.args.model_folder, self.args.model.sampling_defaults)
        self._uids = itertools.count(1)
        self._processors_on = self.args.execute.enable_custom_logit_processor
        self._open: dict[Uid, Output] = {}  # every sequence that has not ended, whoever asked for it
        self.scheduler = Scheduler(
            self.args,
            runner,
            max_total_tokens=runner.max_total_tokens,
            max_running=runner.max_running,
            inbox=self._inbox,
            detokenizer=self._steps,
            server=self._told,
            tokenizer=self.tokenizer,
            eos_ids=self.tokenizer.eos_ids,
        )

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop the model; the object cannot generate any more."""
        del self.scheduler, self.runner

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: dict[str, Any] | Sequence[dict[str, Any]] | None = None,
        **extras: Any,
    ) -> list[dict[str, Any]]:
        """Texts or token ids in; one reply like /generate's for every sample of every prompt, prompt by prompt.

        A prompt of embeddings is a floating array [tokens, hidden size]. `extras` are fields of /generate:
        return_logprob, logprob_start_len, top_logprobs_num, token_ids_logprob, return_text_in_logprobs, priority,
        extra_key, cache_salt, custom_logit_processor, return_hidden_states, prefix_lease_s. Raises ClientError for what
        cannot be asked; what fails while it runs has a finish_reason of type abort.
        """
        outputs: dict[Uid, Output] = {}
        try:
            with interrupts_wait():
                outputs = self._submit(_as_list(prompts), sampling_params, extras)
            while not all(output.done for output in outputs.values()):
                self._turn()
        finally:  # an interrupt
            self._abort(outputs)
        return [output.reply() for output in outputs.values()]

    def stream(
        self, prompt: Prompt, sampling_params: dict[str, Any] | None = None, **extras: Any
    ) -> Iterator[dict[str, Any]]:
        """Replies with cumulative text as it grows. Leaving the loop early aborts the request. `extras` as above."""
        outputs: dict[Uid, Output] = {}
        try:
            with interrupts_wait():
                outputs = self._submit([prompt], sampling_params, extras)
            seen = dict.fromkeys(outputs, 0)
            while not all(output.done and output.size == seen[uid] for uid, output in outputs.items()):
                for uid, output in outputs.items():
                    if output.size > seen[uid]:
                        seen[uid] = output.size
                        yield output.reply()
                if not all(output.done for output in outputs.values()):
                    self._turn()
        finally:
            self._abort(outputs)

    def phase_seconds(self) -> dict[str, float]:
        """Seconds spent in each part of all steps so far, and their number."""
        return {**self.scheduler.reporter.phase_seconds, "steps": float(self.scheduler.reporter.steps)}

    def flush_cache(self) -> None:
        """Forget every cached prefix."""
        self.scheduler.flush()

    def _abort(self, outputs: dict[Uid, Output]) -> None:
        """End those that run on."""
        left = [uid for uid, output in outputs.items() if not output.done]
        if left:
            self._inbox.send(Abort(left))
            self._turn()

    def _submit(self, prompts: Sequence[Prompt], sampling_params: Any, extras: dict[str, Any]) -> dict[Uid, Output]:
        known = [name for name in SpecLists.__struct_fields__ if name != "sampling_params"]
        unknown = set(extras) - set(known)
        if unknown:
            raise TypeError(f"unknown argument {sorted(unknown)[0]}; known are {', '.join(known)}")
        body = convert({**extras, "sampling_params": sampling_params}, SpecLists)
        specs = read_specs(body, len(prompts), True, self._defaults, self._processors_on)
        admits, outputs = [], {}
        for prompt, spec in zip(prompts, specs, strict=True):
            admits.append(self._admit(prompt, spec))
            outputs.update({uid: Output(f"{uid}", time.monotonic()) for uid in admits[-1].uids})
        self._open.update(outputs)
        for admit in admits:  # only when every prompt was found good
            self._inbox.send(admit)
        return outputs

    def _admit(self, prompt: Prompt, spec: RequestSpec) -> Admit:
        uids = [Uid(next(self._uids)) for _ in range(spec.params.n)]
        text, ids, embeds = None, None, None
        if isinstance(prompt, str):
            text = prompt
        elif _is_embeds(prompt):
            embeds = pack_embeds("input_embeds", _array(prompt).tolist(), self.runner.hidden_size)
        else:
            ids = _pack(prompt)
        answer = self._encoder.admit(Generate(uids, spec, text, ids, embeds, time.monotonic()))
        if isinstance(answer, Rejected):
            raise ClientError.of(answer.error)
        return answer

    def _turn(self) -> None:
        """One scheduler turn, for everybody: several streams may be open at once."""
        with interrupts_wait():
            self.scheduler.receive(block=False)
            self.scheduler.turn()
            self._told.drain()
            for step in self._steps.drain():
                self._apply(self._detokenizer.step(step))

    def _apply(self, step: TextStep) -> None:
        for opened in step.opened:
            self._open[opened.uid].open(opened)
        for uid, token, text in zip(step.uids, memoryview(step.tokens).cast("i"), step.texts, strict=True):
            self._open[uid].add(token, text)
        for scores in step.logprobs:
            self._open[scores.uid].score(scores)
        for states in step.hidden:
            self._open[states.uid].show(states)
        for closed, tail in zip(step.closed, step.tails, strict=True):
            self._open.pop(closed.uid).close(closed.finish, tail)


def _as_list(prompts: Any) -> list[Prompt]:
    """One prompt is a text, a list of ids or an array of embeddings; several are a list of those."""
    single = isinstance(prompts, str) or _is_embeds(prompts) or (len(prompts) > 0 and _is_id(prompts[0]))
    return [prompts] if single else list(prompts)


def _is_id(item: Any) -> bool:
    """A number of whatever integer type, as opposed to an array of them."""
    return hasattr(item, "__index__") and getattr(item, "ndim", 0) == 0


def _is_embeds(prompt: Any) -> bool:
    """A floating array of two dimensions, of whatever library."""
    return getattr(prompt, "ndim", 0) == 2 and _array(prompt).dtype.kind == "f"


def _array(prompt: Any) -> np.ndarray[Any, Any]:
    """numpy knows neither bfloat16 nor gradients."""
    is_torch = hasattr(prompt, "detach") and prompt.is_floating_point()
    return np.asarray(prompt.detach().float().cpu() if is_torch else prompt)


def _pack(ids: Any) -> bytes:
    """Ids of any integer type. Raises ClientError for what is no id at all; the encoder checks the vocabulary."""
    try:
        if isinstance(ids, bytes | bytearray):
            raise TypeError
        return pack_ids(map(index, ids))
    except (TypeError, OverflowError):
        raise ClientError("input_ids", f"is {shown(ids)}, must be a list of token ids") from None
