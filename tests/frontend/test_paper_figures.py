"""The programs of the papers run as they are printed: Figures 1 and 4 of the SGLang paper, and that of the article.

Figure 1 has two misprints, which are mended: a `+` that nothing follows, and the two last lines, which the print moves
into the function.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny_media import make_llava

from ramet import (
    LLM,
    Mock,
    Unsupported,
    assistant,
    function,
    gen,
    image,
    select,
    set_default_backend,
    system,
    user,
)
from ramet.frontend.backends import chosen
from ramet.frontend.backends.base import GenCall

FIGURE_1 = """
dimensions = ["Clarity", "Originality", "Evidence"]

@function
def essay_judge(s, essay):
    s += "Please evaluate the following essay. " + essay
    # Evaluate an essay from multiple dimensions in parallel
    forks = s.fork(len(dimensions))
    for f, dim in zip(forks, dimensions):
        f += (
            "Evaluate based on the following metric: " +
            dim + ". End your judgement with the word 'END'"
        )
        f += "Judgment: " + f.gen("judgment", stop="END")
    # Merge judgments
    for f, dim in zip(forks, dimensions):
        s += dim + ": " + f["judgment"]
    # Generate a summary and give a score
    s += "In summary, " + s.gen("summary")
    s += "I give the essay a letter grade of "
    s += s.gen("grade", choices=["A", "B", "C", "D"])

ret = essay_judge.run(essay="A long essay ...")
print(ret["grade"])
"""

FIGURE_4 = """
@function
def expand(s, tip):
    s += (
        "Please expand the following tip into a "
        "detailed paragraph: " + tip + "\\n"
    )
    s += s.gen("paragraph")

@function
def tip_suggestion(s, topic):
    s += "Here are 2 concise tips for " + topic + ".\\n"

    # Generate a skeleton of two short tips
    s += "1." + s.gen("tip_1", stop=["\\n", ":", "."]) + "\\n"
    s += "2." + s.gen("tip_2", stop=["\\n", ":", "."]) + "\\n"

    # Expand the tips into detailed paragraphs in parallel
    detailed_tip1 = expand(tip=s["tip_1"])
    detailed_tip2 = expand(tip=s["tip_2"])

    # Merge the results and generate a summary
    s += "Tip 1: " + detailed_tip1["paragraph"] + "\\n"
    s += "Tip 2: " + detailed_tip2["paragraph"] + "\\n"
    s += "In summary" + s.gen("summary")

state = tip_suggestion.run(topic="staying healthy")
print(state.text())
"""


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(max_total_tokens=16384) as llm:
        yield llm


@pytest.fixture(autouse=True)
def no_default_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "_default", [])


def printed_program(source: str, backend: Any) -> dict[str, Any]:
    """What its names are after it ran. Its import line and its backend are all that is added."""
    set_default_backend(backend)
    names: dict[str, Any] = {"function": function}
    exec(compile(source, "<figure>", "exec"), names)
    return names


def echo(prompt: str, call: GenCall) -> str:
    """Says what it was asked last, and more than a stop text lets through."""
    return f"<{prompt[-12:]}>END"


def test_figure_1_on_mock(capsys: pytest.CaptureFixture[str]):
    mock = Mock(echo)
    state = printed_program(FIGURE_1, mock)["ret"]
    asked = [prompt for prompt, _ in mock.calls]
    essay = "Please evaluate the following essay. A long essay ..."
    ending = ". End your judgement with the word 'END'Judgment: "
    dimensions = ("Clarity", "Originality", "Evidence")
    judged = [f"{essay}Evaluate based on the following metric: {dim}{ending}" for dim in dimensions]
    assert sorted(asked[:3]) == sorted(judged)
    merged = essay + "".join(f"{dim}: <D'Judgment: >" for dim in dimensions) + "In summary, "
    assert asked[3] == merged
    graded = merged + "<In summary, >ENDI give the essay a letter grade of "
    assert asked[4] == graded
    assert state.text() == graded + state["grade"]
    assert capsys.readouterr().out == state["grade"] + "\n"


def test_figure_1_on_the_bundled_model(llm: LLM, capsys: pytest.CaptureFixture[str]):
    state = printed_program(FIGURE_1, llm)["ret"]
    assert state["grade"] in ("A", "B", "C", "D")
    assert capsys.readouterr().out == state["grade"] + "\n"
    form = "Please evaluate the following essay. A long essay ...Clarity: .*Originality: .*Evidence: .*In summary, "
    assert re.fullmatch(form, state.text().removesuffix(end_of(state)), re.DOTALL)


def end_of(state: Any) -> str:
    return f"{state['summary']}I give the essay a letter grade of {state['grade']}"


def test_figure_4_on_mock(capsys: pytest.CaptureFixture[str]):
    replies = {
        "1.": " Sleep well. And more.",
        "2.": " Walk: often",
        "Sleep well\n": "Eight hours.",
        "Walk\n": "To the shop.",
        "In summary": " both.",
    }
    mock = Mock(lambda prompt, call: next(reply for end, reply in replies.items() if prompt.endswith(end)))
    state = printed_program(FIGURE_4, mock)["state"]
    assert capsys.readouterr().out == state.text() + "\n"
    assert state.text() == (
        "Here are 2 concise tips for staying healthy.\n1. Sleep well\n2. Walk\n"
        "Tip 1: Eight hours.\nTip 2: To the shop.\nIn summary both."
    )
    asked = [prompt for prompt, _ in mock.calls]
    expand = "Please expand the following tip into a detailed paragraph: "
    assert sorted(asked[2:4]) == sorted([expand + " Sleep well\n", expand + " Walk\n"])


def test_figure_4_on_the_bundled_model(llm: LLM, capsys: pytest.CaptureFixture[str]):
    state = printed_program(FIGURE_4, llm)["state"]
    one, two, summary = (state[name] for name in ("tip_1", "tip_2", "summary"))
    assert not set("\n:.") & set(one + two)
    head = f"Here are 2 concise tips for staying healthy.\n1.{one}\n2.{two}\nTip 1: "
    assert state.text().startswith(head) and state.text().endswith("\nIn summary" + summary)
    assert "\nTip 2: " in state.text()[len(head) :]
    assert capsys.readouterr().out == state.text() + "\n"


# -- the program that the article describes, as the paper's last version prints it -------------------------------------

MULTI_DIMENSIONAL_JUDGE = r"""
dimensions = ["Clarity", "Originality", "Evidence"]

@function
def multi_dimensional_judge(s, path, essay):
    s += system("Evaluate an essay about an image.")
    s += user(image(path) + "Essay:" + essay)
    s += assistant("Sure!")

    # Return directly if it is not related
    s += user("Is the essay related to the image?")
    s += assistant(select("related", choices=["yes", "no"]))
    if s["related"] == "no": return

    # Judge multiple dimensions in parallel
    forks = s.fork(len(dimensions))
    for f, dim in zip(forks, dimensions):
        f += user("Evaluate based on the following dimension:" +
            dim + ". End your judgment with the word 'END'")
        f += assistant("Judgment:" + gen("judgment", stop="END"))

    # Merge the judgments
    judgment = "\n".join(f["judgment"] for f in forks)

    # Generate a summary and a grade. Return in the JSON format.
    s += user("Provide the judgment, summary, and a letter grade")
    s += assistant(judgment + "In summary," + gen("summary", stop=".")
        + "The grade of it is" + gen("grade"))

    schema = r'\{"summary": "[\w\d\s]+\.", "grade": "[ABCD][+-]?"\}'
    s += user("Return in the JSON format.")
    s += assistant(gen("output", regex=schema))

state = multi_dimensional_judge.run(path, essay)
print(state["output"] if state["related"] == "yes" else "not related")
"""


def judged(path: Path, essay: str, backend: Any) -> Any:
    set_default_backend(backend)
    words = {each.__name__: each for each in (function, system, user, assistant, image, select, gen)}
    names: dict[str, Any] = {**words, "path": str(path), "essay": essay}
    exec(compile(MULTI_DIMENSIONAL_JUDGE, "<figure>", "exec"), names)
    return names["state"]


@pytest.fixture
def sea(tmp_path: Path) -> Path:
    rows = np.linspace([190, 220, 250], [10, 40, 120], 40)
    Image.fromarray(np.repeat(rows[:, None], 30, axis=1).astype(np.uint8)).save(tmp_path / "sea.png")
    return tmp_path / "sea.png"


def test_the_printed_program_on_mock(sea: Path, capsys: pytest.CaptureFixture[str]):
    verdict = '{"summary": "Good.", "grade": "A-"}'
    mock = Mock(lambda prompt, call: verdict if call.held else "It is good END of it", picks=["yes"])
    state = judged(sea, "The sea is blue.", mock)
    assert capsys.readouterr().out == verdict + "\n"
    begin = "Evaluate an essay about an image.<image>Essay:The sea is blue.Sure!Is the essay related to the image?"
    assert len(mock.calls) == 7 and all(prompt.startswith(begin) for prompt, _ in mock.calls)
    assert state["summary"] == "It is good END of it"
    judged(sea, "The moon is red.", Mock(picks=["no"]))
    assert capsys.readouterr().out == "not related\n"


def test_the_printed_program_on_a_model_that_sees(
    sea: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
):
    """Weights are random, and so is the choice: of a few essays one is related. The same picture is computed once."""
    with LLM(make_llava(tmp_path_factory.mktemp("llava") / "model"), max_total_tokens=8192, dtype="float32") as llm:
        for number in range(20):
            state = judged(sea, f"The sea has {number} waves.", llm)
            printed = capsys.readouterr().out
            if state["related"] == "yes":
                break
        assert printed.startswith('{"summary": "') and printed == state["output"] + "\n"
        assert state.text().count("<image>") == 1
        info = state.get_meta_info("output")
        assert info["cached_tokens"] > 16  # the picture has 16 tokens


DIMENSIONS = ("Clarity", "Originality", "Evidence")
VERDICT = r'\{"summary": "[A-Za-z ,]{1,80}\.", "grade": "[ABCD][+-]?"\}'


def multi_dimensional_judge(s: Any, path: str | None, essay: str) -> None:
    s += system("Evaluate an essay about an image.")
    s += user((image(path) if path else "") + "Essay: " + essay)
    s += assistant("Yes.")
    s += user("Is the essay related to the image?")
    s += assistant(select("related", choices=["yes", "no"]))
    if s["related"] == "no" and path:
        return
    forks = s.fork(len(DIMENSIONS))
    for f, dimension in zip(forks, DIMENSIONS, strict=True):
        f += user(f"Evaluate its {dimension}. End with the word END.")
        f += assistant("Judgment: " + gen("judgment", stop="END", max_tokens=48))
    forks.join()
    s += user("Judge, summarize and grade the essay.")
    s += assistant("\n".join(s["judgment"]) + " In summary, " + gen("summary", stop=".", max_tokens=48))
    s += user("Return it as JSON.")
    s += assistant(gen("verdict", regex=VERDICT, max_tokens=128))


judge = function(multi_dimensional_judge)


def test_the_article_s_program_judges_text(llm: LLM):
    state = judge.run(path=None, essay="A film about the sea.", backend=llm)
    assert state["related"] in ("yes", "no")
    assert len(state["judgment"]) == 3
    assert set(json.loads(state["verdict"])) == {"summary", "grade"}
    roles = [message["role"] for message in state.messages()]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user", "assistant", "user", "assistant"]


def test_the_article_s_program_on_a_backend_that_takes_images():
    verdict = '{"summary": "Good.", "grade": "A-"}'
    answered = set()
    for number in range(20):  # Mock chooses by the prompt
        mock = Mock(lambda prompt, call: verdict if call.held else "It is good END of it")
        state = judge.run(path="sea.png", essay=f"The sea has {number} waves.", backend=mock)
        answered.add(state["related"])
        if state["related"] == "yes":
            assert state["judgment"] == ["It is good "] * 3 and state["verdict"] == verdict
            assert len(mock.calls) == 6
        else:
            assert "judgment" not in state and len(mock.calls) == 1
    assert answered == {"yes", "no"}


def test_an_image_is_refused_before_the_first_call(llm: LLM):
    with pytest.raises(Unsupported, match=r"^image: LLM takes no image input$"):
        judge.run(path="sea.png", essay="The sea is blue.", backend=llm)
    blind = Mock()
    blind.capabilities = replace(Mock.capabilities, media=frozenset())
    with pytest.raises(Unsupported, match=r"^image: Mock takes no image input$"):
        judge.run(path="sea.png", essay="The sea is blue.", backend=blind)
    assert blind.calls == []
