"""Programs as SGLang's users write them, with one line changed: `import ramet as sgl`."""

import asyncio
import json
import re
import statistics
from collections.abc import Iterator
from typing import Any

import pytest
from live import Live

import ramet as sgl
from ramet.frontend.backends import chosen

WORDS = (
    "assistant", "assistant_begin", "assistant_end", "flush_cache", "function", "gen", "gen_int", "gen_string", "image",
    "select", "separate_reasoning", "set_default_backend", "system", "system_begin", "system_end", "user", "user_begin",
    "user_end", "video", "RuntimeEndpoint", "greedy_token_selection", "token_length_normalized",
    "unconditional_likelihood_normalized",
)  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    with Live(max_total_tokens=16384) as live:
        yield live


@pytest.fixture(autouse=True)
def default_backend(server: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "_default", [])
    sgl.set_default_backend(sgl.RuntimeEndpoint(server.url))


def test_the_words_are_there():
    assert set(WORDS) <= set(dir(sgl))
    for word in WORDS:
        assert getattr(sgl, word) is not None


@pytest.mark.parametrize(("word", "here"), [("Runtime", "LLM"), ("Engine", "LLM"), ("VertexAI", "Gemini")])
def test_words_that_are_others_here_say_so(word: str, here: str):
    with pytest.raises(AttributeError, match=rf"^module 'ramet' has no attribute '{word}'; here it is {here}$"):
        getattr(sgl, word)


def test_few_shot_questions_in_a_batch(capsys: pytest.CaptureFixture[str]):
    @sgl.function
    def few_shot_qa(s, question):
        s += "The following are questions with answers.\n\n"
        s += "Q: What is the capital of France?\nA: Paris\n"
        s += "Q: What is the capital of Germany?\nA: Berlin\n"
        s += "Q: " + question + "\nA:" + sgl.gen("answer", stop="\n", temperature=0)

    arguments = [{"question": f"What is the capital of {country}?"} for country in ("Peru", "Japan", "Kenya")]
    states = few_shot_qa.run_batch(arguments, max_new_tokens=16, num_threads=4, progress_bar=True)
    assert [state["answer"].strip() for state in states] == ["Lima", "Tokyo", "Nairobi"]
    assert "3/3" in capsys.readouterr().err


def test_a_chat_of_two_questions():
    @sgl.function
    def multi_turn_question(s, question_1, question_2):
        s += sgl.system("You are a helpful assistant.")
        s += sgl.user(question_1)
        s += sgl.assistant(sgl.gen("answer_1", max_tokens=64))
        s += sgl.user(question_2)
        s += sgl.assistant(sgl.gen("answer_2", max_tokens=64))

    state = multi_turn_question.run(
        question_1="What is the capital of the United Kingdom?", question_2="What is 23 + 45?", temperature=0
    )
    assert [message["role"] for message in state.messages()] == ["system", "user", "assistant", "user", "assistant"]
    assert state.messages()[2]["content"] == state["answer_1"] and "London" in state["answer_1"]
    assert "68" in state["answer_2"]


def test_a_chat_in_blocks():
    @sgl.function
    def chat(s):
        with s.system():
            s += "You are a helpful assistant."
        with s.user():
            s += "What is the capital of Peru?"
        with s.assistant():
            s += "It is "
            s += sgl.gen("city", max_tokens=8, stop=".")

    assert chat.run(temperature=0)["city"].strip()


def test_control_flow_by_a_choice():
    @sgl.function
    def tool_use(s, question):
        s += "To answer this question: " + question + ". "
        s += "I need to use a " + sgl.gen("tool", choices=["calculator", "search engine"]) + ". "
        if s["tool"] == "calculator":
            s += "The expression is" + sgl.gen("expression", max_tokens=8)
        elif s["tool"] == "search engine":
            s += "The key word to search is" + sgl.gen("word", max_tokens=8)

    state = tool_use.run(question="What is 37 + 58?")
    assert ("expression" in state) != ("word" in state)
    meta = state.get_meta_info("tool")
    calculator, engine = meta["input_token_logprobs"]
    assert len(calculator) == meta["choices"][0]["num_tokens"] and len(engine) == meta["choices"][1]["num_tokens"]
    means = [statistics.fmean(logprob for logprob, *_ in tokens) for tokens in (calculator, engine)]
    assert meta["normalized_prompt_logprobs"] == pytest.approx(means)
    assert state["tool"] == ("calculator" if means[0] >= means[1] else "search engine")


def test_parallel_tips():
    @sgl.function
    def tip_suggestion(s):
        s += "Here are two tips for staying healthy: 1. Balanced diet. 2. Regular exercise.\n\n"
        forks = s.fork(2)
        for i, f in enumerate(forks):
            f += f"Now, expand tip {i + 1} into a paragraph:\n"
            f += sgl.gen("detailed_tip", max_tokens=24, stop="\n\n")
        s += "Tip 1:" + forks[0]["detailed_tip"] + "\n"
        s += "Tip 2:" + forks[1]["detailed_tip"] + "\n"
        s += "In summary" + sgl.gen("summary", max_tokens=8)

    text = tip_suggestion.run().text()
    assert text.index("Tip 1:") < text.index("Tip 2:") < text.index("In summary")


def test_forks_by_index_and_join():
    @sgl.function
    def vote(s):
        s += sgl.user("What is 23 + 45?")
        forks = s.fork(3)
        forks += lambda i: sgl.assistant_begin() + sgl.gen("answer", max_tokens=16, temperature=0.2 * i)
        forks += sgl.assistant_end()
        forks.join()
        return max(set(s["answer"]), key=s["answer"].count)

    state = vote.run()
    assert len(state["answer"]) == 3 and state.ret_value in state["answer"]


def test_outputs_that_keep_to_a_pattern():
    address = r"((25[0-5]|2[0-4]\d|[01]?\d\d?).){3}(25[0-5]|2[0-4]\d|[01]?\d\d?)"
    character = (
        r"""\{\n    "name": "[\w\d\s]{1,16}",\n    "house": "(Gryffindor|Slytherin)",\n    "age": [0-9]{1,2}\n\}"""
    )

    @sgl.function
    def constrained(s):
        s += "What is the IP address of a name server?\n" + sgl.gen("ip", temperature=0, regex=address, max_tokens=32)
        s += "\nFill in this information about a student.\n" + sgl.gen("json", regex=character, max_tokens=96)
        s += "\nAge: " + sgl.gen_int("age", 4, 1, " ")

    state = constrained.run()
    assert re.fullmatch(address, state["ip"])
    assert json.loads(state["json"])["house"] in ("Gryffindor", "Slytherin")
    assert isinstance(state["age"], int)


def test_streams_plain_and_async():
    @sgl.function
    def story(s):
        s += sgl.user("Write a short story about a dog.")
        s += sgl.assistant(sgl.gen("story", max_tokens=40))

    state = story.run(stream=True, temperature=0)
    text = "".join(state.text_iter("story"))

    async def read():
        state = story.run(stream=True, temperature=0)
        return "".join([piece async for piece in state.text_async_iter(var_name="story")])

    assert text == asyncio.run(read()) == story.run(temperature=0)["story"] != ""


def test_functions_called_by_functions():
    @sgl.function
    def summarize(s, text):
        s += text + "\nIn one word:" + sgl.gen("word", max_tokens=4, stop="\n")

    @sgl.function
    def compare(s, texts):
        states = [summarize(text=text) for text in texts]
        for state in states:
            s += state["word"] + "\n"
        s += "Together:" + sgl.gen("together", max_tokens=4)

    assert compare.run(texts=["The sun is hot.", "The ice is cold."]).text().count("\n") >= 2


def test_scopes_logprobs_and_the_cache():
    @sgl.function
    def scored(s):
        with s.var_scope("whole"):
            s += "37 + 58 =" + sgl.gen("sum", max_tokens=4, return_logprob=True, top_logprobs_num=2)

    sgl.flush_cache()
    state = scored.run(temperature=0)
    state.sync()
    assert state.error() is None and state["whole"] == "37 + 58 =" + state["sum"]
    assert state.get_meta_info("sum")["output_token_logprobs"]


def test_pictures_where_a_backend_takes_them():
    @sgl.function
    def image_qa(s, path, question):
        s += sgl.user(sgl.image(path) + question)
        s += sgl.assistant(sgl.gen("answer"))

    assert image_qa.run(path="sea.png", question="What is it?", backend=sgl.Mock(["The sea."]))["answer"] == "The sea."
    with pytest.raises(sgl.Unsupported, match=r"^image: the server at http://\S+ takes no image input$"):
        image_qa.run(path="sea.png", question="What is it?")


def test_states_are_used_after_the_run():
    @sgl.function
    def first(s: Any, topic: str) -> None:
        s += "Here is a fact about " + topic + ":" + sgl.gen("fact", max_tokens=8)

    state = first.run("the sea", temperature=0)
    state += "\nAnother one:" + sgl.gen("other", max_tokens=8)
    assert "other" in state and state.text().endswith(state["other"])
    assert str(state) == f"ProgramState({state.text()})"
