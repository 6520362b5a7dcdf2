"""A prompt of the language as one text: raw text, turns by each bundled template, open turns, places for contexts."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ramet.ipc.media import MediaKind, MediaToken, Prepared
from ramet.ipc.messages import Chat, ChatTurn, ContextGroup, MediaPlace, Segment
from ramet.runtime.errors import ClientError
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.template_files import TemplateSources, built_in_names, read_templates
from ramet.runtime.text.turns import MAX_BREAKS, write

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
ENDS = {  # what a template writes behind the text of a user's turn
    "chatml": "<|im_end|>\n",
    "deepseek": "",
    "c4ai-command-r": "<|END_OF_TURN_TOKEN|>",
    "chatml-llava": "<|im_end|>\n",
    "gemma": "<end_of_turn>\n",
    "granite-3-instruct": "<|end_of_text|>\n",
    "llama-2-chat": " [/INST]",
    "llama-4": "<|eot|>",
    "qwen2-vl": "<|im_end|>\n",
    "vicuna_v1.1": " ",
    "llama-3": "<|eot_id|>",
    "mistral": "[/INST]",
    "phi": "<|im_end|>",
    "qwen": "<|im_end|>\n",
}
PLAIN = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def chats(source: str) -> Chats:
    return Chats(TemplateSources(source, {}, TOKENS))


def bundled(name: str) -> Chats:
    return chats(read_templates(Path(), name).default or "")


def user(*content: str | ContextGroup | MediaPlace, open: bool = False) -> ChatTurn:
    return ChatTurn("user", list(content), open)


def assistant(*content: str | ContextGroup | MediaPlace, open: bool = False) -> ChatTurn:
    return ChatTurn("assistant", list(content), open)


def text_of(segments: list[Segment], source: str = PLAIN) -> str:
    return write(segments, chats(source)).whole


def rendered(model: Chats, *turns: tuple[str, str], reply: bool = False) -> str:
    messages: list[Any] = [{"role": role, "content": content} for role, content in turns]
    return model.render(Chat(messages, add_generation_prompt=reply))


# -- by each bundled template ------------------------------------------------------------------------------------------


def test_every_bundled_template_is_tested_here() -> None:
    assert built_in_names() == sorted(ENDS)


@pytest.mark.parametrize("name", ENDS)
def test_closed_turns_are_what_the_template_makes_of_the_chat(name: str) -> None:
    model = bundled(name)
    written = write([user("Rome", "?"), assistant("21"), user("Oslo?")], model)
    assert written.whole == rendered(model, ("user", "Rome?"), ("assistant", "21"), ("user", "Oslo?"))
    assert not written.is_raw and not written.may_heal


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("begun", ["", "Well, ", " It is"])
def test_an_open_assistant_turn_is_the_prompt_for_a_reply_and_its_content_as_it_is(name: str, begun: str) -> None:
    model = bundled(name)
    written = write([user("Rome?"), assistant("21"), user("Oslo?"), assistant(begun, open=True)], model)
    before = rendered(model, ("user", "Rome?"), ("assistant", "21"), ("user", "Oslo?"), reply=True)
    assert written.whole == before + begun
    assert written.may_heal == (begun != "")


@pytest.mark.parametrize("name", ENDS)
def test_an_open_user_turn_is_cut_where_its_content_ends(name: str) -> None:
    model = bundled(name)
    whole = rendered(model, ("user", "Rome?"), ("assistant", "21"), ("user", "Tell me of Oslo"))
    written = write([user("Rome?"), assistant("21"), user("Tell me", " of Oslo", open=True)], model)
    assert whole == written.whole + ENDS[name]
    assert written.may_heal and not written.is_raw


@pytest.mark.parametrize("name", ENDS)
def test_an_open_user_turn_keeps_the_blank_at_its_end(name: str) -> None:
    assert write([user("Tell me ", open=True)], bundled(name)).whole.endswith("Tell me ")


@pytest.mark.parametrize("name", ENDS)
def test_raw_text_stands_before_and_behind_the_rendered_chat(name: str) -> None:
    model = bundled(name)
    written = write(["Before. ", user("Rome?"), " Behind"], model)
    assert written.whole == "Before. " + rendered(model, ("user", "Rome?")) + " Behind"
    assert written.may_heal and not written.is_raw


@pytest.mark.parametrize("name", [name for name in ENDS if name != "mistral"])
def test_a_text_between_turns_stands_where_the_shorter_chat_ends(name: str) -> None:
    model = bundled(name)
    one, two = rendered(model, ("user", "Rome?")), rendered(model, ("user", "Rome?"), ("assistant", "21"))
    assert write([user("Rome?"), "(aside)", assistant("21")], model).whole == one + "(aside)" + two[len(one) :]


def test_a_template_that_moves_a_system_text_along_takes_no_text_between_turns() -> None:
    segments: list[Segment] = [
        ChatTurn("system", ["Be kind."]),
        user("Rome?"),
        "(aside)",
        assistant("21"),
        user("Oslo?"),
    ]
    with pytest.raises(ClientError, match="rewrites earlier turns") as caught:
        write(segments, bundled("mistral"))
    assert caught.value.place == "prompt[4]"
    assert "Be kind." in write([each for each in segments if each != "(aside)"], bundled("mistral")).whole


@pytest.mark.parametrize("name", ENDS)
def test_a_first_turn_of_the_assistant_can_be_open_where_the_template_knows_such(name: str) -> None:
    model, segments = bundled(name), [assistant("Once", open=True)]
    try:
        whole = rendered(model, ("assistant", "Once"))
    except ClientError as refusal:
        with pytest.raises(ClientError) as caught:
            write(segments, model)
        assert caught.value.fact == refusal.fact and caught.value.place == "prompt"
    else:
        assert whole.startswith(write(segments, model).whole) and write(segments, model).whole.endswith("Once")


# -- raw text ----------------------------------------------------------------------------------------------------------


def test_a_prompt_without_turns_is_its_text_and_needs_no_template() -> None:
    written = write(["Once ", "", "upon"], Chats(TemplateSources()))
    assert (written.texts, written.is_raw, written.may_heal) == (["Once upon"], True, True)


def test_texts_are_put_together_once() -> None:
    """Thousands of texts that are added up copy each as often."""

    class Text(str):
        __slots__ = ()

        def __radd__(self, _: str) -> str:
            pytest.fail("a text was added to those before it")

    assert write([Text("a"), Text("b"), Text("c")], Chats(TemplateSources())).whole == "abc"


def test_turns_need_a_template() -> None:
    with pytest.raises(ClientError, match="need a chat template") as caught:
        write([user("hi")], Chats(TemplateSources()))
    assert caught.value.place == "prompt"


def test_an_empty_text_behind_turns_is_no_text_to_heal() -> None:
    assert not write([user("hi"), ""], chats(PLAIN)).may_heal
    assert write([user("hi"), "so"], chats(PLAIN)).may_heal


def test_every_text_between_turns_costs_a_rendering_so_their_number_is_bounded() -> None:
    segments: list[Segment] = [each for _ in range(MAX_BREAKS + 2) for each in (user("a"), "b")]
    assert len(write(segments[:-2], chats(PLAIN)).whole) > MAX_BREAKS
    with pytest.raises(ClientError, match=f"more than {MAX_BREAKS} places"):
        write(segments, chats(PLAIN))


def test_all_renderings_of_a_prompt_together_have_the_time_of_one() -> None:
    now = iter(range(100))
    segments: list[Segment] = [user("a"), "b", user("c"), "d"]
    assert write(segments, chats(PLAIN), lambda: next(now)).whole
    with pytest.raises(ClientError, match="takes more than the 3 s of --chat-template-timeout-s to render") as caught:
        write(segments * 2, chats(PLAIN), lambda: next(now))
    assert caught.value.place == "prompt"


# -- templates that do other things ------------------------------------------------------------------------------------


def test_a_template_that_rewrites_is_refused_only_where_a_text_stands_between_its_turns() -> None:
    newest_first = "{% for m in messages | reverse %}<{{ m.content }}>{% endfor %}"
    assert text_of([user("a"), assistant("b")], newest_first) == "<b><a>"
    with pytest.raises(ClientError, match="rewrites earlier turns") as caught:
        text_of([user("a"), "text", assistant("b")], newest_first)
    assert caught.value.place == "prompt[2]"


def test_an_open_turn_whose_text_the_template_leaves_out_is_refused() -> None:
    with pytest.raises(ClientError, match="does not show its text") as caught:
        text_of([user("a", open=True)], "{% for m in messages %}<{{ m.role }}>{% endfor %}")
    assert caught.value.place == "prompt[0].content"


def test_an_open_turn_that_a_template_writes_twice_is_cut_at_its_last_place() -> None:
    twice = "{% for m in messages %}({{ m.content }})[{{ m.content }}]{% endfor %}"
    assert text_of([user("ab", open=True)], twice) == "(ab)[ab"


def test_what_a_template_refuses_names_the_segment() -> None:
    for at in range(3):
        segments: list[Segment] = ["raw", user("a"), user("b")]
        segments.insert(at, ChatTurn("nobody", ["x"]))
        with pytest.raises(ClientError, match="must be one of system") as caught:
            text_of(segments)
        assert caught.value.place == f"prompt[{at}].role"


# -- contexts ----------------------------------------------------------------------------------------------------------

GROUP = ContextGroup(["one", "two"])


def test_contexts_stand_apart_from_the_texts_around_them() -> None:
    written = write(["Read. ", GROUP, " Then ", ContextGroup(["x"]), "answer"], Chats(TemplateSources()))
    assert written.texts == ["Read. ", " Then ", "answer"]
    assert [(group.place, group.contexts) for group in written.groups] == [
        ("prompt[1].contexts", ["one", "two"]),
        ("prompt[3].contexts", ["x"]),
    ]
    assert written.whole == "Read. onetwo Then xanswer"


@pytest.mark.parametrize("name", ENDS)
def test_contexts_inside_a_turn_stand_where_its_content_has_them(name: str) -> None:
    model = bundled(name)
    written = write([user("Read ", GROUP, " and sum up."), assistant("So", open=True)], model)
    assert written.whole == rendered(model, ("user", "Read onetwo and sum up."), reply=True) + "So"
    assert written.groups[0].place == "prompt[0].content[1].contexts"
    assert written.texts[0].endswith("Read ") and written.texts[1].startswith(" and sum up.")


def test_contexts_that_a_template_repeats_moves_or_leaves_out_are_refused() -> None:
    twice = "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}"
    backwards = "{% for m in messages | reverse %}{{ m.content }}{% endfor %}"
    for source, segments in (
        (twice, [user("a", GROUP, "b")]),
        (backwards, [user("a", GROUP), user("b", GROUP, "c")]),
        ("{{ messages | length }}", [user("a", GROUP, "b")]),
    ):
        with pytest.raises(ClientError, match="leaves out, repeats or moves") as caught:
            write(list(segments), chats(source))
        assert caught.value.place.endswith(".contexts")


def test_every_group_of_a_large_body_is_looked_for_once() -> None:
    """Looking through all of them for each would take minutes here."""
    num = 100_000
    written = write([user(*[ContextGroup(["x"])] * num, open=True)], chats(PLAIN))
    assert len(written.groups) == num and len(written.texts) == num + 1


def test_contexts_are_looked_for_by_a_mark_that_no_client_knows() -> None:
    """A group's own texts are put in after all others: they are never read for marks."""
    written = write(["a", ContextGroup(["CONTEXTS_0_", "b"]), "c"], chats(PLAIN))
    assert written.whole == "aCONTEXTS_0_bc"


def test_longer_prompts_begin_with_shorter_ones() -> None:
    """What a program adds to its prompt leaves what it had, so that its cached prefix is found again."""
    turns: list[Segment] = ["Intro. ", user("a"), assistant("b"), user("c"), assistant("d")]
    texts = [text_of(turns[:i]) for i in range(1, len(turns) + 1)]
    assert all(longer.startswith(shorter) for shorter, longer in pairwise(texts))


# -- media -------------------------------------------------------------------------------------------------------------

IMAGE, VIDEO = MediaPlace(MediaKind.IMAGE), MediaPlace(MediaKind.VIDEO)
TOKENS_OF_MEDIA = {
    MediaKind.IMAGE: MediaToken("<image>", "<i>", 500),
    MediaKind.VIDEO: MediaToken("<video>", "<v>", 501),
}
PARTS = (  # a template that writes placeholders itself
    "{% for m in messages %}[{{ m.role }}]{% for p in m.content %}"
    "{{ p.text if p.type == 'text' else '<' + p.type + '>' }}"
    "{% endfor %}[end]{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
PICTURES_FIRST = (
    "{% for m in messages %}[{{ m.role }}]"
    "{% for p in m.content if p.type != 'text' %}<{{ p.type }}>{% endfor %}"
    "{% for p in m.content if p.type == 'text' %}{{ p.text }}{% endfor %}"
    "[end]{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


def with_media(source: str, *segments: Segment, media: tuple[Prepared, ...] = ()) -> str:
    model = chats(source).with_media(TOKENS_OF_MEDIA)
    return write(list(segments), model, tokens=TOKENS_OF_MEDIA, media=media).whole


@pytest.mark.parametrize("source", [PLAIN, PARTS])
def test_media_stand_where_the_client_has_them(source: str) -> None:
    turns = user("a", IMAGE, "b", VIDEO), assistant("c"), user(IMAGE)
    said = "[user]a<image>b<video>[end][assistant]c[end][user]<image>[end]"
    assert with_media(source, *turns) == said
    assert with_media(source, *turns, assistant("d", IMAGE, "e", open=True)) == said + "[assistant]d<image>e"
    assert with_media(source, user("a", IMAGE, open=True)) == "[user]a<image>"
    assert with_media(source, user(IMAGE, "a", open=True)) == "[user]<image>a"
    assert with_media(source, "a", IMAGE, user("b"), VIDEO) == "a<image>[user]b[end]<video>"


def test_a_template_has_its_own_order_of_media_and_texts() -> None:
    assert with_media(PICTURES_FIRST, user("a", IMAGE, "b")) == "[user]<image>ab[end]"
    assert with_media(PICTURES_FIRST, user("a", IMAGE, open=True)) == "[user]<image>a"


def test_media_are_expanded_around_contexts_and_never_inside_them() -> None:
    one, two = (Prepared(MediaKind.IMAGE, b"", ("(", num, ")"), (), "") for num in (2, 1))
    group = ContextGroup(["x <image>", "y"])
    written = write([IMAGE, group, user(IMAGE, "a")], chats(PARTS).with_media(TOKENS_OF_MEDIA),
                    tokens=TOKENS_OF_MEDIA, media=(one, two))  # fmt: skip
    assert written.texts == ["(<i><i>)", "[user](<i>)a[end]"]
    assert written.groups[0].contexts == ["x <image>", "y"]


def test_a_prompt_that_ends_with_media_is_not_healed() -> None:
    inside = user("a"), assistant(IMAGE, open=True)
    for segments, may_heal in (((IMAGE,), False), ((IMAGE, "a"), True), (inside, False)):
        model = chats(PARTS).with_media(TOKENS_OF_MEDIA)
        assert write(list(segments), model, tokens=TOKENS_OF_MEDIA).may_heal is may_heal


def test_placeholders_that_a_client_wrote_as_text_are_counted() -> None:
    one = Prepared(MediaKind.IMAGE, b"", (2,), (), "", "prompt[0].image")
    with pytest.raises(ClientError) as refused:
        with_media(PARTS, IMAGE, "see <image>", media=(one,))
    assert refused.value.place == "prompt[0].image" and "2 times <image>" in refused.value.fact
