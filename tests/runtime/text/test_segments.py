"""The ids of a prompt of the language, its contexts, and the tokens of choices: where texts are tokenised apart."""

from itertools import pairwise
from typing import Any

import pytest

from ramet.ipc.messages import (
    CallRefused,
    ChatTurn,
    ChoicesReply,
    ContextGroup,
    Contexts,
    Limits,
    PromptReply,
    RenderChoices,
    RenderPrompt,
    Segment,
    unpack_ids,
)
from ramet.runtime.text import segments
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.context import MAX_CALL_BYTES
from ramet.runtime.text.segments import SegmentEncoder, without_last_token
from ramet.runtime.text.template_files import TemplateSources
from ramet.runtime.text.tokenizer import Tokenizer

TEMPLATE = (
    "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|user|>{% endif %}"
)


def encoder(tokenizer: Tokenizer, context_length: int = 100, vocab_size: int = 1000) -> SegmentEncoder:
    limits = Limits(context_length, 10_000, vocab_size, 4)
    return SegmentEncoder(tokenizer, limits, Chats(TemplateSources(TEMPLATE)))


def rendered(tokenizer: Tokenizer, *segments: Segment, **limits: int) -> PromptReply:
    reply = encoder(tokenizer, **limits).render(RenderPrompt(7, list(segments)))
    assert isinstance(reply, PromptReply) and reply.call == 7, reply
    return reply


def chosen(tokenizer: Tokenizer, segments: list[Segment], choices: list[str], healed: bool = True) -> ChoicesReply:
    reply = encoder(tokenizer).render_choices(RenderChoices(7, segments, choices, healed))
    assert isinstance(reply, ChoicesReply) and reply.call == 7, reply
    return reply


def each(reply: ChoicesReply) -> list[list[int]]:
    return [unpack_ids(ids) for ids in reply.choices]


def failure(reply: Any) -> tuple[str, str]:
    assert isinstance(reply, CallRefused) and reply.call == 7, reply
    return reply.error.place, reply.error.fact


# -- prompts -----------------------------------------------------------------------------------------------------------


def test_raw_texts_are_tokenised_as_one_with_the_tokenizers_special_tokens(byte_pieces: Tokenizer) -> None:
    reply = rendered(byte_pieces, "the f", "ox")
    assert reply.text == "the fox" and unpack_ids(reply.ids) == byte_pieces.encode("the fox")
    assert unpack_ids(reply.ids)[0] == byte_pieces.added_tokens["<s>"]


def test_a_template_writes_special_tokens_itself(byte_level: Tokenizer, byte_pieces: Tokenizer) -> None:
    reply = rendered(byte_level, ChatTurn("user", ["the fox"]), ChatTurn("assistant", ["na"], open=True))
    assert reply.text == "<|user|>the fox<|end|><|user|>na"
    assert unpack_ids(reply.ids) == byte_level.encode(reply.text, add_special_tokens=False)
    assert byte_pieces.added_tokens["<s>"] not in unpack_ids(rendered(byte_pieces, ChatTurn("user", ["the"])).ids)


def test_contexts_are_tokenised_each_by_itself(byte_level: Tokenizer) -> None:
    parts = ["the quick", "the quick brown", "fox", " jumps"]
    before, one, two, after = (byte_level.encode(text) for text in parts)
    reply = rendered(byte_level, parts[0], ContextGroup(parts[1:3]), parts[3])
    assert unpack_ids(reply.ids) == before + one + two + after
    assert reply.contexts == ((len(before), len(one), len(two)),)
    assert reply.text == "".join(parts)


def test_groups_stand_in_order_and_a_prompt_may_begin_with_one(byte_level: Tokenizer) -> None:
    reply = rendered(byte_level, ContextGroup(["fox"]), ChatTurn("user", ["a", ContextGroup(["dog", "over"]), "b"]))
    (first, *_), (second, *lengths) = reply.contexts
    ids = unpack_ids(reply.ids)
    assert first == 0 and byte_level.decode(ids[second:][: lengths[0]]) == "dog"
    assert byte_level.decode(ids[second + lengths[0] :][: lengths[1]]) == "over"


@pytest.mark.parametrize("end", [[], [""]])
def test_a_prompt_may_end_with_a_group_whose_last_token_then_follows_it(byte_level: Tokenizer, end: list[str]) -> None:
    one, two = byte_level.encode("the quick"), byte_level.encode("the lazy dog")
    assert len(two) > 1
    reply = rendered(byte_level, ContextGroup(["the quick", "the lazy dog"]), *end)
    assert unpack_ids(reply.ids) == one + two and reply.contexts == ((0, len(one), len(two) - 1),)
    choices = chosen(byte_level, [ContextGroup(["the quick", "the lazy dog"]), *end], ["a", "b"])
    assert unpack_ids(choices.ids) == one + two and choices.contexts == reply.contexts


@pytest.mark.parametrize(
    ("contexts", "left"),
    [((), ()), (((3, 1),), ()), (((0, 2, 1),), ((0, 2),)), (((0, 2), (2, 1)), ((0, 2),)), (((1, 2, 3),), ((1, 2, 2),))],
)
def test_the_last_token_leaves_its_group(contexts: Contexts, left: Contexts) -> None:
    assert without_last_token(contexts) == left


def test_a_prompt_must_fit_the_context_with_all_of_its_contexts(byte_level: Tokenizer) -> None:
    def asked(*segments: Segment, context_length: int) -> PromptReply | CallRefused:
        return encoder(byte_level, context_length).render(RenderPrompt(7, list(segments)))

    num = len(byte_level.encode("the lazy dog"))
    assert isinstance(asked("the lazy dog", context_length=num + 1), PromptReply)
    place, fact = failure(asked("the lazy dog", context_length=num))
    assert place == "prompt" and f"has {num} tokens, must have at most {num - 1}" in fact
    group, last = ContextGroup(["the lazy dog"] * 5), len(byte_level.encode("x"))
    assert isinstance(asked(group, "x", context_length=5 * num + last + 1), PromptReply)
    assert failure(asked(group, "x", context_length=5 * num + last))[0] == "prompt"
    choices = RenderChoices(7, [group, "x"], ["a", "b"], True)
    assert failure(encoder(byte_level, 5 * num + last).render_choices(choices))[0] == "prompt"  # not its choices
    assert failure(asked("x" * 10_000, context_length=10))[0] == "prompt"  # refused before it is tokenised


def test_contexts_are_counted_before_any_is_tokenised(byte_level: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(*segments: Segment) -> tuple[str, str]:
        return failure(encoder(byte_level, 1 << 22).render(RenderPrompt(7, [*segments, "x"])))

    monkeypatch.setattr(Tokenizer, "encode", lambda *_, **__: pytest.fail("something was tokenised"))
    many, large = ContextGroup(["a"] * 600), ContextGroup(["a" * (1 << 20)] * 3)
    place, fact = call(many, many)
    assert place == "prompt[1].contexts" and "are 1200 with those before, must be at most 1024" in fact
    place, fact = call(large, ChatTurn("user", ["b", large]))
    assert place == "prompt[1].content[1].contexts" and "come to 6291456 bytes" in fact


def test_an_end_that_the_client_wrote_may_be_healed_where_tokens_are_bytes(
    byte_level: Tokenizer, wordpiece: Tokenizer
) -> None:
    turn = ChatTurn("user", ["the fox"])
    assert rendered(byte_level, "the f").may_heal and rendered(byte_level, turn, "the f").may_heal
    assert not rendered(byte_level, turn).may_heal
    assert not rendered(wordpiece, "the f").may_heal


@pytest.mark.parametrize(
    ("segments", "place", "fact"),
    [
        ([""], "prompt", "has no tokens once rendered"),
        (["a", "\ud800"], "prompt[1]", "lone surrogate"),
        ([ChatTurn("user", ["a", "\udfff"])], "prompt[0].content[1]", "lone surrogate"),
        ([ChatTurn("us\ud800er", ["a"])], "prompt[0].role", "lone surrogate"),
        ([ContextGroup(["a", "\ud800"]), "b"], "prompt[0].contexts[1]", "lone surrogate"),
        ([ChatTurn("user", [ContextGroup(["\ud800"]), "b"])], "prompt[0].content[0].contexts[0]", "lone surrogate"),
    ],
)
def test_a_refusal_names_the_segment(byte_level: Tokenizer, segments: list[Segment], place: str, fact: str) -> None:
    found = failure(encoder(byte_level).render(RenderPrompt(7, segments)))
    assert found[0] == place and fact in found[1]


def test_ids_outside_the_models_vocabulary_are_refused(byte_level: Tokenizer) -> None:
    found = failure(encoder(byte_level, vocab_size=3).render(RenderPrompt(7, ["the"])))
    assert found[0].startswith("prompt[") and "must be a token id in [0, 3)" in found[1]


# -- choices -----------------------------------------------------------------------------------------------------------


def test_healed_choices_are_tokenised_with_the_prompt(byte_level: Tokenizer) -> None:
    """`th` is one token, `the` another: the prompt's last token is none that stands before the choices."""
    prompt, choices = "near th", ["e", "at"]
    reply = chosen(byte_level, [prompt], choices)
    whole = [byte_level.encode(prompt + choice) for choice in choices]
    shared = unpack_ids(reply.ids)
    assert [shared + ids for ids in each(reply)] == whole
    assert shared == byte_level.encode("near") != byte_level.encode(prompt)
    assert len({ids[0] for ids in each(reply)}) == 2
    assert reply.prompt_tokens == len(byte_level.encode(prompt))


def test_no_more_is_shared_than_the_prompt_has(byte_level: Tokenizer) -> None:
    """What all choices begin with belongs to them."""
    reply = chosen(byte_level, ["near"], [" the fox", " the dog"])
    assert unpack_ids(reply.ids) == byte_level.encode("near")
    assert [byte_level.decode(ids) for ids in each(reply)] == [" the fox", " the dog"]


def test_unhealed_choices_follow_the_prompts_own_tokens(byte_level: Tokenizer) -> None:
    reply = chosen(byte_level, ["near th"], ["e", "at"], healed=False)
    assert unpack_ids(reply.ids) == byte_level.encode("near th")
    assert each(reply) == [byte_level.encode("e"), byte_level.encode("at")]


def test_nothing_is_healed_where_no_token_would_stand_before_the_choices(byte_level: Tokenizer) -> None:
    reply = chosen(byte_level, ["th"], ["e", "is"])
    assert byte_level.encode("the")[0] != byte_level.encode("th")[0]
    assert unpack_ids(reply.ids) == byte_level.encode("th")
    assert each(reply) == [byte_level.encode("e"), byte_level.encode("is")]


def test_a_special_token_before_the_text_is_one_that_stands_before_all(byte_pieces: Tokenizer) -> None:
    reply = chosen(byte_pieces, ["th"], ["e", "is"])
    assert unpack_ids(reply.ids) == [byte_pieces.added_tokens["<s>"]]
    assert unpack_ids(reply.opening) == [byte_pieces.added_tokens["<s>"]]


def test_choices_behind_contexts_are_healed_within_the_text_that_follows_them(byte_level: Tokenizer) -> None:
    group = ContextGroup(["the fox", "dog"])
    reply = chosen(byte_level, ["near", group, " the th"], ["e", "at"])
    before = [*byte_level.encode("near"), *byte_level.encode("the fox"), *byte_level.encode("dog")]
    assert unpack_ids(reply.ids) == before + byte_level.encode(" the")
    bare = chosen(byte_level, ["near", group, "th"], ["e", "at"])
    assert unpack_ids(bare.ids) == before + byte_level.encode("th")  # one token of the text must stay
    assert reply.contexts == bare.contexts != ()


def test_what_ends_an_output_and_opens_a_text_comes_along(byte_level: Tokenizer) -> None:
    reply = chosen(byte_level, ["near"], ["x"])
    assert reply.ends == (0,) and unpack_ids(reply.opening) == [0]


def test_shared_tokens_do_not_depend_on_the_order_of_choices(byte_level: Tokenizer) -> None:
    choices = ["e quick", "at"]
    forward, back = chosen(byte_level, ["in th"], choices), chosen(byte_level, ["in th"], choices[::-1])
    assert forward.ids == back.ids and each(forward) == each(back)[::-1]


@pytest.mark.parametrize(
    ("prompt", "choices", "place", "fact"),
    [
        ([""], ["a"], "prompt", "has no tokens once rendered"),
        (["a"], ["b", "\ud800"], "choices[1]", "lone surrogate"),
        (["a"], ["b", "x" * 99], "choices[1]", "tokens, must have at most 99"),
        (["a"], ["b", "x" * 100_000], "choices[1]", "more than 100 tokens"),
        (["a"], ["b" * 1000] * (MAX_CALL_BYTES // 1000), "choices", f"must be at most {MAX_CALL_BYTES}"),
    ],
)
def test_a_refusal_names_the_choice(
    byte_level: Tokenizer, prompt: list[Segment], choices: list[str], place: str, fact: str
) -> None:
    found = failure(encoder(byte_level).render_choices(RenderChoices(7, prompt, choices)))
    assert found[0] == place and fact in found[1]


@pytest.mark.parametrize("healed", [True, False])
def test_the_tokens_of_all_choices_are_bounded_while_they_are_made(
    byte_level: Tokenizer, monkeypatch: pytest.MonkeyPatch, healed: bool
) -> None:
    """The reply tells each of them. What is beyond the bound is not even tokenised."""
    one, most = len(byte_level.encode(" x")), 10
    monkeypatch.setattr(segments, "MAX_CHOICE_TOKENS", most * one)
    fits, beyond = [" x"] * most, [" x"] * (most + 50)
    assert len(chosen(byte_level, ["near"], fits, healed).choices) == most
    tokenised, encode = list[str](), Tokenizer.encode
    monkeypatch.setattr(
        Tokenizer, "encode", lambda self, text, *more: tokenised.append(text) or encode(self, text, *more)
    )
    place, fact = failure(encoder(byte_level).render_choices(RenderChoices(7, ["near"], beyond, healed)))
    assert place == "choices" and f"come to more than {most * one} tokens" in fact
    assert most / 2 < sum(text.endswith(" x") for text in tokenised) <= most + 1


@pytest.mark.parametrize("healed", [True, False])
def test_choices_that_are_left_are_counted_by_their_bytes(
    byte_level: Tokenizer, monkeypatch: pytest.MonkeyPatch, healed: bool
) -> None:
    """They are refused as soon as they are certain to have too many tokens."""
    assert byte_level.bytes_per_token is not None
    size, num = 3 * byte_level.bytes_per_token, 50  # each has three tokens at least
    choices = [f"{i} " + "x" * size for i in range(num)]
    total = sum(map(len, each(chosen(byte_level, ["near"], choices, healed))))
    tokenised, encode = list[str](), Tokenizer.encode
    monkeypatch.setattr(
        Tokenizer, "encode", lambda self, text, *more: tokenised.append(text) or encode(self, text, *more)
    )

    def num_tokenised(most: int) -> int:
        """Of the choices, which are refused."""
        monkeypatch.setattr(segments, "MAX_CHOICE_TOKENS", most)
        tokenised.clear()
        asked = RenderChoices(7, ["near"], choices, healed)
        place, fact = failure(encoder(byte_level).render_choices(asked))
        assert place == "choices" and f"come to more than {most} tokens" in fact
        return sum(text.endswith("x") for text in tokenised)

    assert num_tokenised(num // 2) == 0
    assert 0 < num_tokenised(total // 2) < num // 2
    assert num_tokenised(total - 1) == num


def test_tokens_that_healing_gives_to_the_choices_count_for_them(
    byte_level: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    num = sum(map(len, each(chosen(byte_level, ["near th"], ["e", "at"]))))
    assert num == 1 + len(byte_level.encode(" that"))
    monkeypatch.setattr(segments, "MAX_CHOICE_TOKENS", num)
    chosen(byte_level, ["near th"], ["e", "at"])
    monkeypatch.setattr(segments, "MAX_CHOICE_TOKENS", num - 1)
    assert failure(encoder(byte_level).render_choices(RenderChoices(7, ["near th"], ["e", "at"])))[0] == "choices"


def test_a_choice_without_tokens_of_its_own_is_refused(wordpiece: Tokenizer) -> None:
    """This tokenizer drops blanks: behind the prompt the choice adds nothing."""
    found = failure(encoder(wordpiece).render_choices(RenderChoices(7, ["the"], [" fox", " "])))
    assert found == ("choices[1]", "has no tokens of its own behind the prompt, must have at least 1")


def test_longer_prompts_begin_with_the_tokens_of_shorter_ones(byte_level: Tokenizer) -> None:
    turns: list[Segment] = [
        ChatTurn("user", ["the fox"]),
        ChatTurn("assistant", ["over"]),
        ChatTurn("user", ["the dog"]),
    ]
    ids = [unpack_ids(rendered(byte_level, *turns[:i]).ids) for i in range(1, 4)]
    assert all(longer[: len(shorter)] == shorter for shorter, longer in pairwise(ids))
