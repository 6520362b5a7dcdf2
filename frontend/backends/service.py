"""What the backends of remote APIs share: an API that keeps answers to JSON at most, and knows no tokens of a prompt.

Decides what a program's call becomes there: which parameters are sent, which form an answer has, how many calls n
outputs take, and how the choices of a `select` are put to a model that gives no scores: it names one.
"""

import asyncio
import json
from abc import abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ramet.frontend.backends.base import Backend, Completion, GenCall, OnText, PromptPlace, SelectCall, SelectedChoice
from ramet.frontend.backends.chat import stopped, turn_has_text
from ramet.frontend.backends.forms import FREE, EnforcedForm
from ramet.frontend.backends.http import HttpClient
from ramet.frontend.backends.stops import UntilStop
from ramet.frontend.errors import BackendError, Unsupported
from ramet.frontend.ir import Gen, Held, Select
from ramet.frontend.prompt import Prompt

T = TypeVar("T")
CHOICE_TOKENS = 1024  # of a call that names a choice, where its model may think first, or write something else
MORE_BYTES = 64  # of an answer in JSON that is a choice: a field's name, blanks, what ends it


class ServiceQuestion(NamedTuple):
    """One call of the API. `sampling`: parameters that it has, by our names; `stops` are apart from them."""

    sampling: Mapping[str, Any]
    stops: Sequence[str]
    form: EnforcedForm = FREE
    options: Mapping[str, Any] = {}
    thoughts: bool = False

    @property
    def num_samples(self) -> int:
        return int(self.sampling.get("n", 1))


class AnswerCut(BackendError):
    """It has no end, so it cannot be read."""


class ServiceBackend(Backend):
    samples_itself = True  # n outputs in one call
    _http: HttpClient
    _thinks_of_choices = False  # an answer that names one was found to take more than its own tokens

    @abstractmethod
    def form(self, held: Held | None, kind: type | None, in_turns: bool) -> EnforcedForm:
        """How such an output is asked for. Raises ValueError with what cannot be kept to."""

    @abstractmethod
    def choice_form(self, choices: Sequence[str], in_turns: bool) -> EnforcedForm:
        """How one of these texts is asked for. Raises ValueError."""

    @abstractmethod
    async def ask(self, prompt: Prompt, question: ServiceQuestion, on_text: OnText | None) -> list[Completion]:
        """Its answers, as they came. `on_text`: gets the pieces of the first one, all of them. Raises BackendError."""

    async def close(self) -> None:
        await self._http.close()

    def choice_tokens(self, choices: Sequence[str]) -> int:
        """How many tokens a call that names one of them is given."""
        return CHOICE_TOKENS

    def check_gen(self, node: Gen, sampling: Mapping[str, Any], place: PromptPlace) -> None:
        super().check_gen(node, sampling, place)
        what = f"gen({node.name!r})" if node.name else "gen"
        if node.thoughts:
            why = "its service decides how thoughts are found: leave model_type out"
            raise Unsupported(self.name, f"{what}: model_type", why)
        try:
            form = self.form(node.held, node.kind, place.has_turns)
        except ValueError as error:
            raise Unsupported(self.name, what, f"cannot keep to it: {error}") from None
        self.check_form(what, form, place)

    def check_select(self, node: Select, place: PromptPlace) -> None:
        super().check_select(node, place)
        what = f"select({node.name!r})" if node.name else "select"
        try:
            form = self.choice_form(node.choices, place.has_turns)
        except ValueError as error:
            raise Unsupported(self.name, what, f"cannot choose: {error}") from None
        self.check_form(what, form, place)

    def check_form(self, what: str, form: EnforcedForm, place: PromptPlace) -> None:
        """Raises Unsupported for a form that cannot be asked for there."""

    async def generate(self, prompt: Prompt, call: GenCall, on_text: OnText | None = None) -> list[Completion]:
        self._check_turn_is_new("gen", prompt)
        try:
            form = self.form(call.held, call.kind, prompt.has_turns)
        except ValueError as error:
            raise Unsupported(self.name, "gen", f"cannot keep to it: {error}") from None
        stops = call.sampling.get("stop", ())
        sampling = {name: value for name, value in call.sampling.items() if name != "stop" and self.honours(name)}
        is_text = form.read is None
        question = ServiceQuestion(sampling, stops if is_text else (), form, call.options, call.thoughts is not None)
        if self.samples_itself or call.num_samples == 1:
            return await self._outputs(prompt, question, stops, on_text)
        each = [question._replace(sampling=_one_of(sampling, i)) for i in range(call.num_samples)]
        asked = [self._outputs(prompt, one, stops, on_text if i == 0 else None) for i, one in enumerate(each)]
        return [output for outputs in await together(asked) for output in outputs]

    async def select(self, prompt: Prompt, call: SelectCall) -> SelectedChoice:
        self._check_turn_is_new("select", prompt)
        try:
            form = self.choice_form(call.choices, prompt.has_turns)
        except ValueError as error:
            raise Unsupported(self.name, "select", f"cannot choose: {error}") from None
        wanted = {"temperature": call.temperature}
        if "sampling_seed" in call.options:
            wanted["sampling_seed"] = call.options["sampling_seed"]
        sampling = {name: value for name, value in wanted.items() if self.honours(name)}
        known = self.capabilities.options
        options = {name: value for name, value in call.options.items() if known is None or name in known}
        output = await self._choice(
            prompt, ServiceQuestion(sampling, (), form, options), self.choice_tokens(call.choices)
        )
        return SelectedChoice(call.choices.index(output.text), output.meta)

    async def _choice(self, prompt: Prompt, question: ServiceQuestion, most: int) -> Completion:
        """An answer that names a choice, of `most` tokens; of more, where the model thinks first."""
        if most < CHOICE_TOKENS and not self._thinks_of_choices:
            try:
                return await self._answer(prompt, question, most)
            except AnswerCut:
                self._thinks_of_choices = True
        return await self._answer(prompt, question, max(most, CHOICE_TOKENS))

    async def _answer(self, prompt: Prompt, question: ServiceQuestion, most: int) -> Completion:
        limited = question._replace(sampling={**question.sampling, "max_new_tokens": most})
        (output,) = await self._outputs(prompt, limited, (), None)
        return output

    def _check_turn_is_new(self, what: str, prompt: Prompt) -> None:
        """A turn that has text already would be answered by another one."""
        if not self.capabilities.continues and turn_has_text(prompt):
            raise Unsupported(self.name, what, "cannot go on inside a turn that has text already")

    async def _outputs(
        self, prompt: Prompt, question: ServiceQuestion, stops: Sequence[str], on_text: OnText | None
    ) -> list[Completion]:
        heard = UntilStop(stops, on_text)
        listening = on_text is not None and question.form.read is None
        answers = await self.ask(prompt, question, heard.add if listening else None)
        outputs = [self._read(answer, question.form, stops) for answer in answers]
        if listening:
            heard.end(len(outputs[0].text))
        return outputs

    def _read(self, answer: Completion, form: EnforcedForm, stops: Sequence[str]) -> Completion:
        """The output of an answer. Raises BackendError for one that is not what was asked for."""
        reason = answer.meta.get("finish_reason")
        if reason is None:
            raise BackendError(self.name, "the answer ended before the output did")
        text = answer.text
        if form.read is not None:
            if reason["type"] == "length":
                raise AnswerCut(self.name, "its answer was cut at max_tokens before it was complete")
            try:
                text = form.read(text)
            except ValueError as error:
                raise BackendError(self.name, f"its answer is not what was asked for: {error}") from None
        until = UntilStop(stops)
        until.add(text)
        if until.matched:
            answer.meta |= stopped(until.matched)
        return Completion(until.text, answer.meta, answer.thought)


def bytes_of_choice(choices: Sequence[str]) -> int:
    """Tokens that the longest of them takes where answers are held to them: a token has a byte at least."""
    return max(len(json.dumps(choice)) for choice in choices) + MORE_BYTES


def _one_of(sampling: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Of one of n calls; with a seed each has its own, or all would give the same."""
    alone = {name: value for name, value in sampling.items() if name != "n"}
    return alone | ({"sampling_seed": alone["sampling_seed"] + index} if "sampling_seed" in alone else {})


async def together(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All of them at once; the first error ends the others and is raised."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
