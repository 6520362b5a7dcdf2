"""Prompts of the language to ids, and the tokens of choices that may follow one.

Decides where texts are tokenised apart: at the edges of contexts, which are texts of their own, and nowhere else. A
choice that is healed is tokenised as one text with its prompt. So the tokens before it may end differently than those
of the prompt by itself, and only what all choices have in common stands before them:

    ids(prompt)     a b c          the common prefix of all: a b
    ids(prompt + 1) a b x y        choice 1: x y
    ids(prompt + 2) a b c z        choice 2: c z

turns.py makes the text.
"""

from collections.abc import Sequence
from itertools import takewhile

from ramet.ipc import messages
from ramet.ipc.content import Contexts
from ramet.ipc.media import Prepared
from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.text import turns
from ramet.runtime.text.chats import ChatWriter
from ramet.runtime.text.context import MAX_CALL_BYTES, longer_than_context
from ramet.runtime.text.parallel_contexts import MAX_CONTEXTS
from ramet.runtime.text.tokenizer import Tokenizer, check_ids, require_unicode
from ramet.runtime.text.turns import ContextList, Written

MAX_CHOICE_TOKENS = 1 << 17  # of all choices of a call, each of which the reply tells: five megabytes of JSON


class SegmentEncoder:
    """Raises nothing for a client's mistake: it answers."""

    def __init__(self, tokenizer: Tokenizer, limits: messages.Limits, chats: ChatWriter) -> None:
        self._tokenizer, self._limits, self._chats = tokenizer, limits, chats

    def render(self, call: messages.RenderPrompt) -> messages.PromptReply | messages.CallRefused:
        try:
            written = self._write(call.segments, call.media)
            ids, contexts = self._encode_groups(written)
            last = self._encode_last(written)
            ids, contexts = ids + last, contexts if last else without_last_token(contexts)
            self._check_prompt(ids)
        except ClientError as error:
            return messages.CallRefused(call.call, error.record)
        may_heal = written.may_heal and self._tokenizer.pieces is not None
        return messages.PromptReply(call.call, written.whole, messages.pack_ids(ids), contexts, may_heal)

    def render_choices(self, call: messages.RenderChoices) -> messages.ChoicesReply | messages.CallRefused:
        try:
            written = self._write(call.segments, call.media)
            self._check_choices(written.texts[-1], call.choices)
            before, contexts = self._encode_groups(written)
            prompt = self._encode_last(written)
            contexts = contexts if prompt else without_last_token(contexts)
            self._check_prompt(before + prompt)
            shared, each = self._tokens_of_choices(written, prompt, call.choices, call.healed)
            num = len(before) + len(shared)
            _check_num_told(sum(map(len, each)))
            for i, ids in enumerate(each):
                self._check_choice(f"choices[{i}]", num, ids)
        except ClientError as error:
            return messages.CallRefused(call.call, error.record)
        ends = tuple(sorted(self._tokenizer.eos_ids))
        return messages.ChoicesReply(
            call.call,
            messages.pack_ids(before + shared),
            [messages.pack_ids(ids) for ids in each],
            len(before) + len(prompt),
            contexts,
            messages.pack_ids(self._tokenizer.encode("") or ends[:1]),
            ends,
        )

    # -- text -------------------------------------------------------------------------------------------------------

    def _write(self, segments: list[messages.Segment], media: Sequence[Prepared]) -> Written:
        for i, segment in enumerate(segments):
            if isinstance(segment, str):
                require_unicode(segment, f"prompt[{i}]")
            elif isinstance(segment, messages.ChatTurn):
                require_unicode(segment.role, f"prompt[{i}].role")
                for j, item in enumerate(segment.content):
                    if isinstance(item, str):
                        require_unicode(item, f"prompt[{i}].content[{j}]")
        written = turns.write(segments, self._chats, tokens=self._limits.media, media=media)
        for group in written.groups:
            for j, context in enumerate(group.contexts):
                require_unicode(context, f"{group.place}[{j}]")
        return written

    def _check_choices(self, last: str, choices: list[str]) -> None:
        for i, choice in enumerate(choices):
            require_unicode(choice, f"choices[{i}]")
        total = len(choices) * len(last.encode()) + sum(len(choice.encode()) for choice in choices)
        if total > MAX_CALL_BYTES:
            fact = f"come to {total} bytes, each with the prompt before it, must be at most {MAX_CALL_BYTES}"
            raise ClientError("choices", fact, "send fewer")

    # -- ids --------------------------------------------------------------------------------------------------------

    def _encode_groups(self, written: Written) -> tuple[list[int], Contexts]:
        """All but the text that the prompt ends with."""
        self._check_groups(written)
        ids, contexts = list[int](), list[tuple[int, ...]]()
        for i, (text, group) in enumerate(zip(written.texts[:-1], written.groups, strict=True)):
            ids += self._encode(text, "prompt", written.is_raw and i == 0)
            start, lengths = len(ids), list[int]()
            for found in self._encode_contexts(group):
                ids += found
                lengths.append(len(found))
            contexts.append((start, *lengths))
        return ids, tuple(contexts)

    def _check_groups(self, written: Written) -> None:
        """Before anything of them is tokenised, which takes seconds for megabytes."""
        num, num_bytes = 0, 0
        for group in written.groups:
            num += len(group.contexts)
            num_bytes += sum(len(context.encode()) for context in group.contexts)
            if num > MAX_CONTEXTS:
                fact = f"are {num} with those before, must be at most {MAX_CONTEXTS} in one prompt"
                raise ClientError(group.place, fact)
            if num_bytes > MAX_CALL_BYTES:
                fact = f"come to {num_bytes} bytes with those before, must be at most {MAX_CALL_BYTES}"
                raise ClientError(group.place, fact)
        most = self._limits.context_length
        if written.groups and self._tokenizer.too_long(written.whole, most):
            raise longer_than_context("prompt", f"more than {most} tokens", most)

    def _encode_contexts(self, group: ContextList) -> list[list[int]]:
        each = [self._encode(text, f"{group.place}[{j}]") for j, text in enumerate(group.contexts)]
        for j, ids in enumerate(each):
            if not ids:
                fact = f"is {shown(group.contexts[j])}, which has no tokens; must have at least 1"
                raise ClientError(f"{group.place}[{j}]", fact)
        return each

    def _encode_last(self, written: Written) -> list[int]:
        return self._encode(written.texts[-1], "prompt", self._is_start(written))

    def _is_start(self, written: Written) -> bool:
        """Whether the tokenizer puts its special tokens before the text that the prompt ends with."""
        return written.is_raw and not written.groups

    def _encode(self, text: str, place: str, add_special_tokens: bool = False) -> list[int]:
        most = self._limits.context_length
        if self._tokenizer.too_long(text, most):  # refused unread: tokenising megabytes takes seconds
            raise longer_than_context(place, f"more than {most} tokens", most)
        return self._tokenizer.encode(text, add_special_tokens)

    def _tokens_of_choices(
        self, written: Written, prompt: list[int], choices: list[str], healed: bool
    ) -> tuple[list[int], list[list[int]]]:
        """Those that the prompt's last text and all choices begin with, and those of each choice behind them.

        Without one that they share, which the first token of a choice is scored after, nothing is healed.
        """
        if healed:
            joined = self._encode_choices(choices, written.texts[-1], len(prompt), self._is_start(written))
            if k := _num_common([prompt, *joined]):
                return prompt[:k], [ids[k:] for ids in joined]
        return prompt, self._encode_choices(choices)

    def _encode_choices(
        self, choices: list[str], before: str = "", num_before: int = 0, is_start: bool = False
    ) -> list[list[int]]:
        """Of `before` and each choice, as one text. `before` has `num_before` tokens by itself.

        Those beyond are the choice's, whatever healing adds to them. Choices which are too many for a call are not all
        tokenised: each is counted when it has been, and those that are left by the fewest tokens that they can have.
        """
        each, num = list[list[int]](), 0
        size, left = len(before.encode()), sum(len(choice.encode()) for choice in choices)
        for i, choice in enumerate(choices):
            num_left = len(choices) - i
            _check_num_told(num + self._tokenizer.min_tokens(num_left * size + left) - num_left * num_before)
            ids = self._encode(before + choice, f"choices[{i}]", is_start)
            each.append(ids)
            num, left = num + len(ids) - num_before, left - len(choice.encode())
            _check_num_told(num)
        return each

    def _check_prompt(self, ids: list[int]) -> None:
        if not ids:
            raise ClientError("prompt", "has no tokens once rendered, must have at least 1")
        self._check_fits("prompt", 0, ids)

    def _check_choice(self, place: str, num_before: int, ids: list[int]) -> None:
        if not ids:
            raise ClientError(place, "has no tokens of its own behind the prompt, must have at least 1")
        self._check_fits(place, num_before, ids)

    def _check_fits(self, place: str, num_before: int, ids: list[int]) -> None:
        """`num_before`: tokens that were checked. Those of all contexts count, though they share positions."""
        most, num = self._limits.context_length, num_before + len(ids)
        if num >= most:
            raise longer_than_context(place, f"{num} tokens", most)
        check_ids(place, ids, self._limits.vocab_size)


def without_last_token(contexts: Contexts) -> Contexts:
    """Of a prompt that ends with its last group: the last token follows it, for some token must see all contexts."""
    if not contexts:
        return contexts
    *groups, (start, *lengths) = contexts
    lengths[-1] -= 1
    lengths = [length for length in lengths if length]
    return (*groups, (start, *lengths)) if lengths else tuple(groups)


def _check_num_told(num: int) -> None:
    """Of tokens of choices, as far as they are known. Raises ClientError."""
    if num > MAX_CHOICE_TOKENS:
        raise ClientError("choices", f"come to more than {MAX_CHOICE_TOKENS} tokens in one call", "send fewer")


def _num_common(each: Sequence[list[int]]) -> int:
    """How many tokens all of them begin with."""
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*each)))
