"""Every call shape of a state: what may be appended, turns, scopes, variables, forks, joins, copies, thoughts."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import ramet
from ramet import (
    LLM,
    Mock,
    ProgramError,
    Unsupported,
    assistant,
    assistant_begin,
    assistant_end,
    function,
    gen,
    image,
    select,
    separate_reasoning,
    system,
    system_begin,
    system_end,
    tool,
    tool_begin,
    tool_end,
    user,
    user_begin,
    user_end,
    video,
)
from ramet.frontend.prompt import MediaPiece
from ramet.frontend.written import read, written
from tests.fakes.services import Service


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(max_total_tokens=16384) as llm:
        yield llm


def run(body: Any, backend: Any = None, **options: Any) -> Any:
    return function(body).run(backend=backend or Mock(lambda prompt, call: f"<{len(prompt)}>"), **options)


# -- extend ------------------------------------------------------------------------------------------------------------


def test_every_way_to_append():
    def body(s):
        s += "a"
        s += gen("x") + "b"
        s += "c" + gen("y")
        s += "d" + gen("z") + "e" + select("w", ["f"])
        s.extend("g")
        s.extend(gen("v"))
        s += ""

    state = run(body)
    assert state.text() == "a<1>bc<6>d<10>efg<17>"
    assert [state[name] for name in "xyzwv"] == ["<1>", "<6>", "<10>", "f", "<17>"]


@pytest.mark.parametrize("value", [None, 5, 1.5, True, ["a"], b"a", object(), gen])
def test_what_cannot_be_appended_is_refused_where_it_is(value: Any):
    reached = []

    def body(s):
        with pytest.raises(TypeError, match="cannot be appended to a prompt"):
            s += value
        with pytest.raises(TypeError, match="cannot be appended to a prompt"):
            s.extend(value)
        with pytest.raises(TypeError):
            "a" + gen("x") + value
        reached.append(True)

    run(body)
    assert reached


def test_a_call_inside_an_f_string_is_refused():
    """Its text would be that of a Python object."""
    for make in (lambda: f"a {gen('x')}", lambda: "a {}".format(select("x", ["b"])), lambda: f"{user('a'):>9}"):
        with pytest.raises(TypeError, match=r"put texts and calls together with \+"):
            make()


def test_a_value_that_is_still_to_come_is_not_compared_and_not_put_into_an_f_string():
    async def body(s):
        s += gen("x")
        for use in (lambda: s["x"] == "<0>", lambda: s["x"] != "", lambda: bool(s["x"]), lambda: f"{s['x']}"):
            with pytest.raises(TypeError, match="'x' is still to come: await it"):
                use()
        s["is right"] = await s["x"] == "<0>"

    assert run(body)["is right"] is True


def test_a_node_may_be_appended_to_many_states():
    question = "What? " + gen("x")

    def body(s):
        s += question
        s += question

    assert run(body).text() == "What? <6>What? <15>"


# -- turns -------------------------------------------------------------------------------------------------------------

CHAT = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi <13>"},
    {"role": "tool", "content": "4 degrees"},
]


def with_calls(s):
    s += system("Be kind.")
    s += user("Hello") + assistant("Hi " + gen("x")) + tool("4 degrees")


def with_begin_and_end(s):
    s += system_begin() + "Be kind." + system_end()
    s += user_begin()
    s += "Hello"
    s += user_end()
    s += assistant_begin() + "Hi " + gen("x") + assistant_end()
    s += tool_begin() + "4 degrees" + tool_end()


def with_blocks(s):
    with s.system():
        s += "Be kind."
    with s.user():
        s += "Hello"
    with s.assistant():
        s += "Hi "
        s += gen("x")
    with s.tool():
        s += "4 degrees"


def with_methods(s):
    s += s.system("Be kind.") + s.user("Hello")
    s += s.assistant("Hi " + s.gen("x"))
    s += s.tool("4 degrees")


@pytest.mark.parametrize("body", [with_calls, with_begin_and_end, with_blocks, with_methods])
def test_turns_are_written_in_four_ways(body: Any):
    mock = Mock(lambda prompt, call: f"<{len(prompt)}>")
    state = run(body, mock)
    assert state.messages() == [*CHAT[:2], {"role": "assistant", "content": "Hi <16>"}, CHAT[3]]
    assert state["x"] == "<16>"


def test_a_turn_of_the_state_is_appended_where_it_is_called():
    """As SGLang's programs write it; what is appended of it then is nothing."""

    @function
    def program(s):
        s.system("Be kind.")
        s += s.user("Who?") + s.assistant(gen("x"))
        s.tool("text" + gen("y"))
        with pytest.raises(TypeError, match=r"s.user\(...\) has appended its turn already"):
            s += "text" + s.user("b")

    state = program.run(backend=Mock(["x", "y"]))
    assert [message["content"] for message in state.messages()] == ["Be kind.", "Who?", "x", "texty", "b"]


def test_a_message_is_what_was_written_to_the_last_blank():
    def body(s):
        s += user("  two blanks, and a line \n")

    assert run(body).messages() == [{"role": "user", "content": "  two blanks, and a line \n"}]


def test_the_text_of_a_chat_is_what_the_model_reads(llm: LLM):
    def body(s):
        s += user("What is the capital of France?")
        s += assistant(gen("x", max_tokens=32))

    state = run(body, llm, temperature=0)
    assert state["x"] == "The capital of France is Paris."
    asked = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
    assert state.text().startswith(asked + "<|im_start|>assistant\nThe capital of France is Paris.")


def test_a_turn_that_is_open_goes_on(llm: LLM):
    def body(s):
        s += user("What is the capital of France?")
        s += assistant("The capital of France" + gen("x", max_tokens=16))

    assert run(body, llm, temperature=0)["x"] == " is Paris."


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (user("a" + assistant("b")), "turns do not nest"),
        (user_begin() + system_begin(), "turns do not nest"),
        (user_end(), "no turn has begun"),
        (user_begin() + assistant_end(), "the turn is of user"),
    ],
)
def test_turns_that_do_not_fit_are_refused_at_once(expression: Any, message: str):
    mock = Mock()

    def body(s):
        with pytest.raises(ProgramError, match=message):
            s += expression

    run(body, mock).sync()
    assert mock.calls == []


def test_a_block_that_raises_ends_its_turn_and_its_scope():
    def body(s):
        for block in (s.user(), s.var_scope("said")):
            with pytest.raises(LookupError), block:
                s += "a"
                raise LookupError
        s += assistant("b")

    state = run(body)
    assert [message["content"] for message in state.messages()] == ["a", "b"] and state["said"] == "a"


# -- scopes and variables ----------------------------------------------------------------------------------------------


def test_a_scope_is_the_text_of_its_block():
    def body(s):
        s += "a"
        with s.var_scope("whole"):
            s += "b" + gen("x")
            with s.var_scope("inner"):
                s += "c"
        s += "d"

    state = run(body)
    assert (state["whole"], state["inner"], state["x"]) == ("b<2>c", "c", "<2>")


def test_a_scope_does_not_stand_inside_itself():
    def body(s):
        with s.var_scope("a"), pytest.raises(ProgramError, match="stands inside itself"), s.var_scope("a"):
            s += "x"
        with s.var_scope("a"):
            s += "y"

    assert run(body)["a"] == "y"


@pytest.mark.parametrize(
    "refused",
    [
        lambda: assistant(gen("a") + gen("x", regex="a")),
        lambda: user(gen("a")) + user_end(),
        lambda: assistant_begin() + "b" + user_begin(),
        lambda: assistant("b") + image("c.png"),
    ],
)
def test_of_a_line_that_is_refused_nothing_is_appended_and_nothing_is_sent(refused: Any):
    service = Service(held=frozenset(), completion=False)

    def body(s):
        s += user("q")
        with pytest.raises(ProgramError):
            s += refused()
        s += assistant(gen("x"))

    state = run(body, service)
    assert state.messages() == [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<1>"}]
    assert service.prompts == ["q"] and "a" not in state


def test_variables_are_read_set_and_asked_for():
    def body(s):
        s += gen("x")
        assert "x" in s and "y" not in s
        s["y"] = [1]
        s.set_var("z", "end")
        assert s["x"] == s.get_var("x") == "<0>"
        s += s["x"] + s["z"]

    state = run(body)
    assert state.text() == "<0><0>end" and state["y"] == [1]
    assert state.get_meta_info("x")["finish_reason"]["type"] == "stop"
    assert "y" in state and "nothing" not in state
    with pytest.raises(KeyError, match="there are x, y, z"):
        state["nothing"]


# -- forks -------------------------------------------------------------------------------------------------------------


def test_forks_are_appended_to_in_every_way():
    def body(s):
        s += "p"
        forks = s.fork(3)
        forks += "a"
        forks += ["b", "cc", "d" + gen("list")]
        forks += lambda i: str(i) + gen("f")
        for fork in forks:
            fork += "!"
        forks[0] += "?"
        with pytest.raises(TypeError, match="not replaced"):
            forks[0] = s
        assert len(forks) == 3
        s["texts"] = [fork.text() for fork in forks]

    assert run(body)["texts"] == ["pab0<4>!?", "pacc1<5>!", "pad<3>2<7>!"]


def test_a_list_must_have_one_value_for_each_fork():
    def body(s):
        forks = s.fork(2)
        with pytest.raises(ValueError, match="3 values are appended to 2 forks"):
            forks += ["a", "b", "c"]

    run(body)


@pytest.mark.parametrize("size", [0, -1, True, "2", 1.5])
def test_a_fork_has_a_size(size: Any):
    def body(s):
        with pytest.raises(ValueError, match="size is"):
            s.fork(size)

    run(body)


def test_position_ids_offset_is_refused_with_what_there_is_instead():
    def body(s):
        with pytest.raises(ValueError, match="concate_and_append"):
            s.fork(2, position_ids_offset=[0, 1])

    run(body)


def test_a_fork_has_what_its_parent_had():
    def body(s):
        s += user("a") + assistant(gen("x"))
        s["y"] = 1
        (fork,) = s.fork()
        assert fork["x"] == s["x"] and fork["y"] == 1
        fork += user("b")
        s["messages"] = fork.messages()

    state = run(body)
    assert [message["content"] for message in state["messages"]] == ["a", "<1>", "b"]
    assert len(state.messages()) == 2


def test_joins_gather_variables_and_a_second_one_makes_lists_longer():
    def body(s):
        for first in (0, 2):
            forks = s.fork(2)
            forks += lambda i, first=first: f"{first + i}" * (first + i + 1) + gen("x")
            forks.join()
        s["n"] = len(s["x"])

    state = run(body)
    assert state["x"] == ["<1>", "<2>", "<3>", "<4>"] and state["n"] == 4
    assert state.text() == ""
    assert len(state.get_meta_info("x")) == 4


def test_variables_without_a_name_join_too():
    @function
    def program(s):
        s += gen()
        for _ in range(2):
            forks = s.fork(2)
            forks += gen()
            forks.join()
        with s.copy() as other:
            other += gen()
        s += gen("gen_4") + gen()

    state = program.run(backend=Mock(lambda prompt, call: str(len(prompt))))
    values = {name: state[name] for name in state.results()}
    assert list(values) == ["gen_0", "gen_1", "gen_2", "gen_3", "gen_4", "gen_5"]
    assert [len(values[name]) for name in ("gen_1", "gen_2")] == [2, 2]
    assert (values["gen_0"], values["gen_4"], values["gen_5"]) == ("0", "1", "2")


def test_forks_without_a_text_are_no_contexts(llm: LLM):
    @function
    def program(s):
        s += "Some facts. "
        forks = s.fork(3)
        forks[0] += "One. "
        forks[2] += "Three. "
        forks.join("concate_and_append")
        s += gen("x", max_tokens=2)

    state = program.run(backend=llm)
    assert state["x"] and state.text().startswith("Some facts. One. Three. ")


def test_a_join_may_append_the_texts_too():
    def body(s):
        for word in ("a", "b"):
            forks = s.fork(2)
            forks += lambda i, word=word: word + gen("x")
            forks.join("concate_and_append")
        s += "end"

    state = run(body)
    assert state.text() == "a<1>a<1>b<9>b<9>end"
    assert state["x"] == ["<1>", "<1>", "<9>", "<9>"]


def turned(fork):
    fork += user("q") + assistant(gen("a"))


def test_turns_of_forks_are_not_joined_as_texts():
    def body(s):
        forks = s.fork(2)
        for fork in forks:
            turned(fork)
        with pytest.raises(ProgramError, match="a fork has turns of its own"):
            forks.join("concate_and_append")
        forks.join()

    assert run(body).error() is None


@pytest.mark.parametrize("contexts", [False, True])
def test_media_of_forks_are_joined_in_their_order(contexts: bool):
    def body(s):
        forks = s.fork(3)
        forks[0] += "a" + image(b"0")
        forks[1] += image(b"1") + "b"
        forks[2] += "c"
        forks.join("concate_and_append")
        s += "end" + gen("x")

    prompt = run(body, Service(contexts=contexts, media=frozenset({"image"}))).prompt()
    first, second = (MediaPiece("image", content) for content in (b"0", b"1"))
    assert prompt.pieces() == ["a", first, second, "bcend<6>"]


def test_contexts_are_of_prompts_without_media():
    def body(s):
        s += image(b"0")
        forks = s.fork(2)
        for fork in forks:
            fork += "a"
        forks.join("concate_and_append")

    state = run(body, Service(contexts=True, media=frozenset({"image"})))
    assert state.prompt().pieces() == [MediaPiece("image", b"0"), "aa"]


def test_forks_are_joined_once():
    def body(s):
        forks = s.fork(2)
        forks += gen("x")
        forks.join()
        with pytest.raises(ProgramError, match="these forks are joined already"):
            forks.join()

    assert run(body)["x"] == ["<0>", "<0>"]


def test_a_join_has_two_modes():
    def body(s):
        with pytest.raises(ValueError, match="must be 'gather_variable' or 'concate_and_append'"):
            s.fork(2).join("average")

    run(body)


def test_a_copy_goes_its_own_way_and_gives_its_variables():
    def body(s):
        s += "a"
        with s.copy() as other:
            other += "bc" + gen("x")
        s += "d" + gen("y")

    state = run(body)
    assert (state.text(), state["x"], state["y"]) == ("ad<2>", "<3>", "<2>")


def test_forks_may_be_given_to_threads():
    def body(s):
        s += "p"
        forks = s.fork(8)

        def work(i):
            for _ in range(20):
                forks[i] += str(i) + gen("x")
            return forks[i].text()

        with ThreadPoolExecutor(8) as threads:
            s["texts"] = list(threads.map(work, range(8)))

    for i, text in enumerate(run(body, Mock(lambda prompt, call: "-"))["texts"]):
        assert text == "p" + f"{i}-" * 20


def test_forks_of_the_model_are_computed_on_one_prefix(llm: LLM):
    """The prefix is computed before the forks ask, so that each of them finds it."""
    ramet.flush_cache(llm)
    shared = "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is Madrid. "

    def body(s):
        s += shared
        forks = s.fork(4)
        forks += ["The capital of " + country for country in ("Peru", "Chile", "Kenya", "Japan")]
        forks += " is" + gen("x", max_tokens=8, stop=".")
        forks.join()

    state = run(body, llm, temperature=0)
    assert state["x"] == [" Lima", " Santiago", " Nairobi", " Tokyo"]
    assert all(meta["cached_tokens"] >= 15 for meta in state.get_meta_info("x"))


# -- media and thoughts ------------------------------------------------------------------------------------------------


def test_how_a_film_is_looked_at_stays_with_it():
    state = run(lambda s: s.extend(user(video("a.mp4", num_frames=8) + video("b.mp4"))))
    assert [piece.options for piece in state.prompt().media()] == [{"num_frames": 8}, {}]
    assert [piece.options for piece in read(written(state.prompt())).media()] == [{"num_frames": 8}, {}]


def test_media_reach_a_backend_that_takes_them():
    sources = []

    class Seeing(Mock):
        async def generate(self, prompt, call, on_text=None):
            sources.extend((piece.kind, piece.source) for piece in prompt.media())
            return await super().generate(prompt, call, on_text)

    def body(s):
        s += user(image("sea.png") + "What is it?" + video("sea.mp4", num_frames=4)) + assistant(gen("x"))

    run(body, Seeing()).sync()
    assert sources == [("image", "sea.png"), ("video", "sea.mp4")]


@pytest.mark.parametrize("node", [image("sea.png"), image(b"png"), video("sea.mp4", 3)])
def test_media_are_refused_by_name_before_anything_of_the_line(llm: LLM, node: Any):
    def body(s):
        s += "a"
        with pytest.raises(Unsupported, match=f"^{node.kind}: LLM takes no {node.kind} input"):
            s += "b" + gen("x") + node

    state = run(body, llm)
    assert state.text() == "a" and "x" not in state


def thinking(s):
    s += user("What is 23 + 45? Think step by step.")
    s += assistant(separate_reasoning(gen("x", max_tokens=96)))


def test_a_thought_is_kept_apart(llm: LLM):
    state = run(thinking, llm, temperature=0)
    assert state["x"].strip() == "The answer is 68." and "68" in state["x_reasoning_content"]
    assert "<think>" not in state["x"] + state["x_reasoning_content"]
    assert state.messages()[-1]["content"] == state["x"]


def test_a_thought_is_kept_apart_in_a_stream(llm: LLM):
    whole, streamed = run(thinking, llm, temperature=0), run(thinking, llm, temperature=0, stream=True)
    assert "".join(streamed.text_iter("x")) == streamed["x"] == whole["x"]
    assert streamed["x_reasoning_content"] == whole["x_reasoning_content"]


def test_the_thought_of_a_call_without_a_name_is_found_by_its_number(llm: LLM):
    def body(s):
        s += user("What is 23 + 45? Think step by step.") + assistant(separate_reasoning(gen(max_tokens=96)))

    assert "68" in run(body, llm, temperature=0)["gen_0_reasoning_content"]


def test_what_a_turn_raises_is_raised_where_its_end_no_longer_fits():
    @function
    def program(s):
        with s.user():
            s += "a" + ramet.user_end()
            raise KeyError("the cause")

    with pytest.raises(KeyError, match="the cause"):
        program.run(backend=Mock())
