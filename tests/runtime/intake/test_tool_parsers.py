"""What each format of tool calls says of an output: content, names, the JSON of arguments."""

import json
from collections.abc import Callable
from importlib.metadata import EntryPoint

import pytest
from effort import num_bytes, num_calls

from ramet.runtime.errors import ConfigError
from ramet.runtime.intake.parsers import tools
from ramet.runtime.intake.parsers.json_calls import HermesParser
from ramet.runtime.intake.parsers.tools import (
    CallArguments,
    CallStart,
    Event,
    Offer,
    ToolParser,
    Unwritable,
    detect_tools,
    tool_parser_class,
    tool_parser_names,
)

OFFERED = frozenset({"f", "g", "get.time"})
Calls = list[tuple[str, str]]


def joined(events: list[Event]) -> tuple[str, Calls]:
    content, calls = "", []
    for event in events:
        match event:
            case str():
                content += event
            case CallStart(name):
                calls.append((name, ""))
            case CallArguments(text):
                assert text, "an empty fragment"
                calls[-1] = (calls[-1][0], calls[-1][1] + text)
    return content, calls


def read(name: str, text: str) -> tuple[str, Calls]:
    parser = tool_parser_class(name)(OFFERED)
    whole = joined(parser.push(text) + parser.close())
    parser = tool_parser_class(name)(OFFERED)
    assert joined([event for char in text for event in parser.push(char)] + parser.close()) == whole
    return whole


# -- hermes -----------------------------------------------------------------------------------------------------------


def test_hermes_calls_among_content():
    text = (
        'One.\n\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\nTwo. '
        '<tool_call>{"name": "any name", "arguments": {}}</tool_call> '
    )
    assert read("hermes", text) == ("One.Two.", [("f", '{"a": 1}'), ("any name", "{}")])


def test_white_space_of_plain_text_is_kept():
    assert read("hermes", " a\n <b> \n") == (" a\n <b> \n", [])


def test_brackets_quotes_and_tags_in_a_string_mean_nothing():
    arguments = '{"a": "}]</tool_call> \\" \\\\", "b": {"c": [{}, "\\u0041 \\ud83d\\ude00"]}}'
    assert read("hermes", f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>') == (
        "",
        [("f", arguments)],
    )


def test_keys_in_any_order_and_unknown_ones():
    text = (
        '<tool_call>{"id": ["x", {"name": "no"}], "arguments": {"a": 1}, "name": "\\u0066", "type": null}</tool_call>'
    )
    assert read("hermes", text) == ("", [("f", '{"a": 1}')])


def test_arguments_in_a_string():
    inside = '{"a": "\u00e9 \\" \U0001f600", "b": [1]}'
    for escape in (True, False):
        text = json.dumps({"name": "f", "arguments": f" {inside}\n"}, ensure_ascii=escape)
        assert read("hermes", f"<tool_call>{text}</tool_call>") == ("", [("f", inside)])


def test_half_a_surrogate_pair_in_a_string_of_arguments_is_replaced():
    text = r'<tool_call>{"name": "f", "arguments": "{\"a\": \"\ud83d\ud83d\ude00\ude00x\ud83d\"}"}</tool_call>'
    assert read("hermes", text) == ("", [("f", '{"a": "\ufffd\U0001f600\ufffdx\ufffd"}')])


@pytest.mark.parametrize("arguments", ["null", '""', '" "', "{}", "{ }"])
def test_no_arguments_are_an_empty_object(arguments: str):
    content, [(name, text)] = read("hermes", f'<tool_call>{{"name": "f", "arguments": {arguments}}}</tool_call>')
    assert (content, name, json.loads(text)) == ("", "f", {})
    assert read("hermes", '<tool_call>{"name": "f"}</tool_call>') == ("", [("f", "{}")])


def test_closing_tag_may_be_missing():
    assert read("hermes", '<tool_call>{"name": "f"}<tool_call>{"name": "g"}') == ("", [("f", "{}"), ("g", "{}")])


@pytest.mark.parametrize(
    "text",
    [
        "a <tool_call> b",
        "<tool_call>\n{}\n</tool_call>\n",
        '<tool_call>{"name": 5}</tool_call>',
        '<tool_call>{"name": ""}</tool_call>',
        '<tool_call>{"arguments": [], "name": "f"}</tool_call>',
        '<tool_call>{"arguments": {"a": 01}, "name": "f"}</tool_call>',
        "<tool_call>{'name': 'f'}</tool_call>",
        '<tool_call>{"x": nul, "name": "f"}</tool_call>',
        '<tool_call>{"name": "f',
        '<tool_call>{"' + "k" * 300 + '": 1, "name": "f"}',
        '<tool_call>{"x": ' + "[" * 200 + "]" * 200 + ', "name": "f"}',
        '<tool_call>{"x": ' + "1" * 2000 + ', "name": "f"}',
        "\n <tool_call",
    ],
)
def test_wrong_before_the_name_is_content_byte_for_byte(text: str):
    assert read("hermes", text) == (text, [])


@pytest.mark.parametrize(
    ("arguments", "kept", "rest"),
    [
        ('{"a": 01}}', '{"a": 0', "1}}"),
        ('{"a": tru }}', '{"a": tru', " }}"),
        ('{"a" 1}}', '{"a" ', "1}}"),
        ('{"a": [1}}', '{"a": [1', "}}"),
        ("[1]}", "", "[1]}"),
        ('{"a": 1} x}', '{"a": 1}', "x}"),
        ('{"a": 1}, "x": tru}', '{"a": 1}', "}"),
    ],
)
def test_wrong_after_the_name_ends_the_arguments(arguments: str, kept: str, rest: str):
    assert read("hermes", f'<tool_call>{{"name": "f", "arguments": {arguments}') == (rest, [("f", kept)])


@pytest.mark.parametrize("written, value", [
    ("a\nb\r\n\tc\0", "a\nb\r\n\tc\0"),
    ("\n\n", "\n\n"),
    (r"\d+\s \' \x41 \(", r"\d+\s \' \x41 \("),
    (r"C:\users\new \u12", "C:\\users\new \\u12"),
    (r"\u00e9 \ud83d\ude00 \\d", "é 😀 \\d"),
    ("\\\n.", "\\\n."),
])  # fmt: skip
@pytest.mark.parametrize("key", ["arguments", "parameters"])
def test_line_breaks_and_backslashes_in_a_string_are_escaped(written: str, value: str, key: str):
    inside = json.dumps(f'{{"a": "{written}", "b": 1}}')
    for text in (
        f'<tool_call>{{"name": "f", "{key}": {{"a": "{written}", "b": 1}}}}</tool_call>.',
        f'<tool_call>{{"x": "{written}", "{key}": {{"a": "{written}", "b": 1}}, "name": "f"}}</tool_call>.',
        f'<tool_call>{{"{key}": {inside}, "name": "f"}}</tool_call>.',
    ):
        content, [(name, arguments)] = read("hermes", text)
        assert (content, name, json.loads(arguments)) == (".", "f", {"a": value, "b": 1})


def test_what_is_given_back_as_content_is_not_repaired():
    text = '<tool_call>{"arguments": {"a": "x\n\\d"}, "name": 5}</tool_call>'
    assert read("hermes", text) == (text, [])


def test_what_is_escaped_goes_out_as_it_comes():
    parser = tool_parser_class("hermes")(OFFERED)
    parser.push('<tool_call>{"name": "f", "arguments": {"a": "x')
    assert parser.push("\ny") == [CallArguments("\\ny")]
    assert parser.push("\\") == [CallArguments("\\")]
    assert parser.push("u00") == []
    assert parser.push("e9") == [CallArguments("u00e9")]
    assert parser.push("\\us") == [CallArguments("\\\\us")]


def test_string_of_arguments_that_is_no_object_ends_the_arguments_and_not_the_call():
    text = '<tool_call>{"name": "f", "arguments": "{\\"a\\": x}"}</tool_call> ok'
    assert read("hermes", text) == ("ok", [("f", '{"a": ')])


def test_truncated_arguments_end_where_the_output_ends():
    assert read("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1') == ("", [("f", '{"a": 1')])


def test_arguments_go_out_as_they_come():
    parser = tool_parser_class("hermes")(OFFERED)
    assert parser.push('<tool_call>{"name": "f') == []
    assert parser.push('", "arguments": {"a') == [CallStart("f"), CallArguments('{"a')]
    assert parser.push('b": "x') == [CallArguments('b": "x')]
    assert parser.push('"}}') == [CallArguments('"}')]


def test_content_goes_out_as_it_comes():
    parser = tool_parser_class("hermes")(OFFERED)
    assert parser.push("Hello") == ["Hello"]
    assert parser.push(" wor<") == [" wor"]
    assert parser.push("ld") == ["<ld"]


@pytest.mark.parametrize("effort", [num_calls, num_bytes])
def test_long_output_in_small_pieces_is_work_in_proportion(effort: Callable[[Callable[[], object]], int]):
    def push_all(size: int) -> None:
        parser = tool_parser_class("hermes")(OFFERED)
        arguments, texts = ["abcd" * 25] * size, ["\n<to "] * size
        for piece in ['<tool_call>{"name": "f", "arguments": {"a": "', *arguments, '"}}', *texts]:
            parser.push(piece)

    assert effort(lambda: push_all(1000)) < 6 * effort(lambda: push_all(250))  # 16 times if all were read again


# -- llama3-json ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "f", "parameters": {"a": 1}}; {"name": "g"}',
        ' [{"name": "f", "parameters": {"a": 1}}, {"type": "function", "name": "g", "parameters": {}}]\n',
        '<|python_tag|>{"name": "f", "arguments": {"a": 1}}\n{"name": "g", "parameters": null}',
        '<|python_tag|> [{"name": "f", "parameters": {"a": 1}},{"name": "g"}]',
        '{"name": "f", "parameters": {"a": 1}}{"name": "g"}',
        '{"name": "f", "parameters": {"a": 1}} <|python_tag|>{"name": "g"}',
    ],
)
def test_llama_calls(text: str):
    assert read("llama3-json", text) == ("", [("f", '{"a": 1}'), ("g", "{}")])


@pytest.mark.parametrize(
    "text",
    [
        ' {"name": "nobody", "parameters": {}}\n',
        'So: {"name": "f", "parameters": {}}',
        '[1, {"name": "f"}]',
        '{"parameters": {"a": 1}}',
        "\n\n",
        "<|python_tag|>print(1)",
        "[",
    ],
)
def test_llama_content_byte_for_byte(text: str):
    assert read("llama3-json", text) == (text, [])


def test_llama_takes_any_name_after_the_tag():
    assert read("llama3-json", 'ok <|python_tag|>{"name": "x"}') == ("ok", [("x", "{}")])


def test_separator_that_no_call_follows_is_content():
    assert read("llama3-json", '{"name": "f"}; and') == ("; and", [("f", "{}")])
    assert read("llama3-json", '{"name": "f"}; {"name": "x"}') == ('; {"name": "x"}', [("f", "{}")])


# -- mistral ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        'Hm. [TOOL_CALLS] [{"name": "f", "arguments": {"a": "[TOOL_CALLS]"}}, {"arguments": {}, "name": "g"}]',
        'Hm.[TOOL_CALLS]f{"a": "[TOOL_CALLS]"}[TOOL_CALLS]g{}',
        'Hm.\n[TOOL_CALLS]f[ARGS]{"a": "[TOOL_CALLS]"}\n[TOOL_CALLS] g [CALL_ID]abc123XYZ[ARGS] {}',
    ],
)
def test_mistral_calls(text: str):
    assert read("mistral", text) == ("Hm.", [("f", '{"a": "[TOOL_CALLS]"}'), ("g", "{}")])


@pytest.mark.parametrize(
    "text",
    [
        "[TOOL_CALLS]",
        "[TOOL_CALLS] []",
        "[TOOL_CALLS]two words{}",
        "[TOOL_CALLS]f[OTHER]{}",
        "[TOOL_CALLS]f",
        " [TOOL_",
    ],
)
def test_mistral_content_byte_for_byte(text: str):
    assert read("mistral", text) == (text, [])
    assert read("mistral", "[TOOL_CALLS]" + "x" * 10_000) == ("[TOOL_CALLS]" + "x" * 10_000, [])


# -- deepseek ---------------------------------------------------------------------------------------------------------

BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEP, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
FENCED = '{"a": "```<｜tool▁call▁end｜>"}'


@pytest.mark.parametrize(
    "text",
    [
        f"Hm.\n{BEGIN}{CALL}function{SEP}f\n```json\n{FENCED}\n```{CALL_END}\n"
        f"{CALL}function{SEP}any-name\n```json\n{{}}\n```{CALL_END}{END}",
        f"Hm.{BEGIN}{CALL}f{SEP}{FENCED}{CALL_END}{CALL}any-name{SEP}{{}}{CALL_END}{END}",
        f"Hm. {BEGIN}\n{CALL} f {SEP} {FENCED} {CALL_END}\n{CALL}any-name{SEP}```json\n{{}}\n```{CALL_END}\n{END}\n",
        f"Hm.{BEGIN}{CALL}function{SEP}f\n```json\n{FENCED}{CALL}function{SEP}any-name\n```\n{{}}{END}",
        f"Hm.{BEGIN}{CALL}function{SEP}f\n{FENCED}{CALL_END}{BEGIN}{CALL}any-name{SEP}{{}}",
    ],
)
def test_deepseek_calls(text: str):
    assert read("deepseek", text) == ("Hm.", [("f", FENCED), ("any-name", "{}")])


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        (f"function{SEP}{{}}", "function"),
        (f"function{SEP}function\n```json\n{{}}\n```", "function"),
        (f"東京.f{SEP}{{}}", "東京.f"),
    ],
)
def test_deepseek_takes_any_name(shown: str, name: str):
    assert read("deepseek", f"{BEGIN}{CALL}{shown}{CALL_END}{END}") == ("", [(name, "{}")])


@pytest.mark.parametrize("cut", ["", "\n", "\n```", f"\n```{CALL_END}", f"\n```{CALL_END}{END}"])
def test_deepseek_output_may_end_anywhere_after_the_arguments(cut: str):
    assert read("deepseek", f"{BEGIN}{CALL}function{SEP}f\n```json\n{FENCED}{cut}") == ("", [("f", FENCED)])
    assert read("deepseek", f"{BEGIN}{CALL}function{SEP}f\n```json\n{FENCED[:5]}") == ("", [("f", FENCED[:5])])


@pytest.mark.parametrize(
    "text",
    [
        BEGIN,
        f" {BEGIN} {END} so",
        f"{BEGIN}{CALL}f",
        f"{BEGIN}{CALL}function{SEP}f\n```json\n",
        f"{BEGIN}{CALL}two words{SEP}{{}}{CALL_END}{END}",
        f"{BEGIN}{CALL}{SEP}{{}}{CALL_END}{END}",
        f"{BEGIN}{CALL}f{{}}{CALL_END}{END}",
        f"{BEGIN}f{SEP}{{}}{CALL_END}{END}",
        f"{CALL}f{SEP}{{}}{CALL_END}",
        f"{BEGIN}{CALL}{'f' * 300}{SEP}{{}}{CALL_END}{END}",
        " <｜tool▁calls",
    ],
)
def test_deepseek_content_byte_for_byte(text: str):
    assert read("deepseek", text) == (text, [])


def test_deepseek_calls_that_go_wrong_among_others():
    good = f"{BEGIN}{CALL}f{SEP}{{}}{CALL_END}"
    assert read("deepseek", f"{good}{CALL}f g{SEP}{{}}") == (f"{CALL}f g{SEP}{{}}", [("f", "{}")])
    assert read("deepseek", f"{BEGIN}no {good}{END}") == (f"{BEGIN}no", [("f", "{}")])
    assert read("deepseek", f"{good}{END}\nSo.") == ("So.", [("f", "{}")])
    assert read("deepseek", f"{BEGIN}{CALL}f{SEP}{{}}\n```") == ("```", [("f", "{}")])
    assert read("deepseek", f'{BEGIN}{CALL}f{SEP}{{"a": 01}}') == ("1}", [("f", '{"a": 0')])


def test_deepseek_arguments_go_out_as_they_come():
    parser = tool_parser_class("deepseek")(OFFERED)
    assert parser.push(f"{BEGIN}{CALL}function{SEP}f\n```json\n") == []
    assert parser.push('{"a') == [CallStart("f"), CallArguments('{"a')]
    assert parser.push('": 1}\n`') == [CallArguments('": 1}')]
    assert parser.push(f"``{CALL_END}{END}") == []


def test_deepseek_holds_back_no_more_than_a_head():
    parser = tool_parser_class("deepseek")(OFFERED)
    text = f"{BEGIN}{CALL}" + "x" * 1000
    pushed = joined([event for char in text for event in parser.push(char)])
    assert pushed == (text, [])


# -- pythonic ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["[f(a=1), g()]", " \n[ f ( a = 1 , ) , g( ) , ]\n", "<|python_start|>[f(a=1), g()]<|python_end|>"],
)
def test_pythonic_calls(text: str):
    assert read("pythonic", text) == ("", [("f", '{"a": 1}'), ("g", "{}")])


def test_pythonic_calls_among_content():
    text = "Hm. <|python_start|>[get.time(zone='UTC')]<|python_end|> So."
    assert read("pythonic", text) == ("Hm.So.", [("get.time", '{"zone": "UTC"}')])


LITERALS = [
    ("-1.5", -1.5),
    ("(1, None, [True, False])", [1, None, [True, False]]),
    ("{'k': {'(': ')'}, 2: ()}", {"k": {"(": ")"}, "2": []}),
    (r"""'it\'s, "]"'""", 'it\'s, "]"'),
    ("''", ""),
    ("'' ')'", ")"),
    ('"""a "quote", \'\'\'\n)"""', "a \"quote\", '''\n)"),
    (r"r'\d\''", r"\d\'"),
    (r"'\d'", r"\d"),
    (r"'\u00e9\x41 é'", "éA é"),
    ("'two\nlines\r\n'", "two\nlines\r\n"),
    ('"a\nb"\n"c"', "a\nbc"),
    ("'\\\n'", ""),  # a line that goes on
    ("'a\0b\n'", "a\0b\n"),
    ('"""a\0b\n"""', "a\0b\n"),
    ("r'\\d\n\\''", "\\d\n\\'"),
    ('[R\'\\d\0\', r"""\\d\n"""]', ["\\d\0", "\\d\n"]),
    ("true", True),
    ("[false, {'a': null, 'b': (true,)}, True]", [False, {"a": None, "b": [True]}, True]),
    ("{null: 1, True: 2, 3: 4, 5.5: 6}", {"null": 1, "true": 2, "3": 4, "5.5": 6}),
    ("[0x1f, 1_000, +2, .5, 1., 1e5]", [31, 1000, 2, 0.5, 1.0, 100000.0]),
    (r"'\ud800'", "\ud800"),
    ("'" + "a" * 200_000 + "'", "a" * 200_000),
]
NO_LITERALS = [
    "9**9**9", "open('x', 'y')", "{1, 2}", "b'x'", "truth", "true.x", "{[]: 1}", "{**x}", "-True", "1+2j", "nan",
    "f'{x}'", "9" * 5000, "0x" + "f" * 5000, "\0", "-" * 9000 + "1", "-" * 90000 + "1", "1+" * 8000 + "1",
    "x" + ".x" * 8000, "[" * 60 + "]" * 60, "[" * 9000 + "]" * 9000, "not " * 4000 + "1", "1 if " * 3000 + "1",
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "value"),
    [*LITERALS, *((source, source) for source in NO_LITERALS)],
    ids=lambda text: str(text)[:20],
)
def test_python_literals_become_json_and_all_else_its_source(source: str, value: object):
    content, [(name, text)] = read("pythonic", f"[f(x={source}, y=1)]")
    assert (content, name) == ("", "f")
    assert json.loads(text) == {"x": value, "y": 1}
    text.encode()


NUMBERS = ["18446744073709551616", "-" + "9" * 40, "0.12345678901234567890", "1e999", "-1E-400", "1.10", "7", "-0.0"]


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_keep_their_digits(number: str):
    assert read("pythonic", f"[f(x={number}, y=['é', {number}, \n{number}])]") == (
        "", [("f", f'{{"x": {number}, "y": ["é", {number}, {number}]}}')])  # fmt: skip
    assert read("hermes", f'<tool_call>{{"name": "f", "arguments": {{"x": {number}}}}}') == (
        "", [("f", f'{{"x": {number}}}')])  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2]", "[]", "[f]", "[x(a=1)]", "[f(1), g()]", "[f(a==1)]", "[f(a=)]", "[f(a=1]", "[f(**{'a': 1})]",
        "[f(1a=2)]", " f(a=1)", "So [f(a=1)]", "<|python_start|>print(1)<|python_end|>", "[f g(a=1)]", "[f(a b=1)]",
        "[f(a=[)])]", "[f(", "[f(a='x", "[" + "f" * 300 + "(a=1)]",
    ],
)  # fmt: skip
def test_pythonic_content_byte_for_byte(text: str):
    assert read("pythonic", text) == (text, [])


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("[f(a=1, 2), g()]", ", 2), g()]"),
        ("[f(a=1, b=])]", ", b=])]"),
        ("[f(a=1, b='x", ", b='x"),
        ("[f(a=1, b", ", b"),
    ],
)
def test_pythonic_call_that_goes_wrong_keeps_its_complete_arguments(text: str, rest: str):
    assert read("pythonic", text) == (rest, [("f", '{"a": 1')])


def test_pythonic_arguments_go_out_when_complete():
    parser = tool_parser_class("pythonic")(OFFERED)
    assert parser.push("[f(a=1") == []
    assert parser.push(", b='") == [CallStart("f"), CallArguments('{"a": 1')]
    assert parser.push("x')") == [CallArguments(', "b": "x"'), CallArguments("}")]


# -- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("pythonic", "[f(a='"),
        ("pythonic", "["),
        ("hermes", '<tool_call>{"arguments": {"a": "'),
        ("mistral", "[TOOL_CALLS]"),
    ],
)
@pytest.mark.parametrize("filler", ["x", " "])
def test_what_may_be_no_call_is_held_up_to_a_bound(name: str, begins: str, filler: str):
    text = begins + filler * (1 << 20) + "!"
    parser = tool_parser_class(name)(OFFERED)
    assert joined(parser.push(text)) == (text, [])
    assert parser.push("more") == ["more"]


# -- registry ---------------------------------------------------------------------------------------------------------


def test_names_and_aliases():
    assert set(tool_parser_names()) >= {
        "deepseek", "deepseek-v3", "hermes", "qwen", "qwen25", "llama3-json", "llama3", "llama3_json", "mistral",
        "pythonic",
    }  # fmt: skip
    assert tool_parser_class("qwen25") is HermesParser
    shown = {name for name in tool_parser_names() if tool_parser_class(name).shows_special}
    assert shown == set(tool_parser_names()) - {"hermes", "qwen", "qwen25"}


def test_unknown_parser_names_the_known_ones():
    with pytest.raises(ConfigError, match="hermes, llama3"):
        tool_parser_class("none")(OFFERED)


class Shouting(ToolParser):
    def push(self, text: str) -> list[Event]:
        return [text.upper()]

    def close(self) -> list[Event]:
        return []


def test_installed_package_adds_a_parser(monkeypatch: pytest.MonkeyPatch):
    points = [
        EntryPoint("shouting", f"{__name__}:Shouting", tools.GROUP),
        EntryPoint("gone", "ramet.no_such_module:X", tools.GROUP),
        EntryPoint("odd", "json:dumps", tools.GROUP),
    ]
    monkeypatch.setattr(tools, "entry_points", lambda group, name="": [p for p in points if name in ("", p.name)])
    assert "shouting" in tool_parser_names()
    assert tool_parser_class("shouting")(OFFERED).push("a") == ["A"]
    for name in ("gone", "odd"):
        with pytest.raises(ConfigError, match=name):
            tool_parser_class(name)(OFFERED)


def test_a_parser_that_does_not_say_how_calls_are_written_forces_none():
    for form in (Shouting.calls_form, Shouting.text_form):
        with pytest.raises(Unwritable, match="does not say how calls are written"):
            form([Offer("f", {})], False)


# how these models' own templates go from the tag to the brace
HERMES_2_PRO = """{{- 'in <tool_call></tool_call> tags:
' }}
{{- "<tool_call>
" }}
{{- '{"name": <function-name>, "arguments": <args-dict>}
' }}
{{- '\\n<tool_call>\\n' }}
{{- '{' }}
{{- '"name": "' }}"""
HERMES_3 = """{{ '<tool_call>\\n' -}}
{{ '{\\"name\\": \\"' + call.name + '\\"' }}"""


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ('<tool_call>\\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}\\n</tool_call>', "hermes"),
        ("{{- '<tool_call>\n{\"name\": \"' }}", "hermes"),
        (HERMES_2_PRO, "hermes"),
        (HERMES_3, "hermes"),
        ("{{- '<|channel|>commentary to=functions.' + name + '<|message|>' }}", "gpt-oss"),
        ("<tool_call>\n<function=example_function_name>\n<parameter=a>", None),
        ("<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>", None),
        ("{{- \"[TOOL_CALLS] [\" }}", "mistral"),
        ("{{- '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>' }}", "deepseek"),
        ("{{- '<|python_tag|>' + name }}", "llama3-json"),
        ('format {"name": function name, "parameters": dictionary of argument name and its value}.', "llama3-json"),
        ("{{- '<|python_start|>' }}", "pythonic"),
        ("[func_name1(params_name1=params_value1, ...), func_name2(params)]", "pythonic"),
        ("{% for message in messages %}{{ message.content }}{% endfor %}", None),
    ],
)  # fmt: skip
def test_formats_are_told_from_templates(template: str, name: str | None):
    assert detect_tools(template) == name


def test_a_literal_that_cannot_be_computed_is_its_source():
    source = "1" + "0" * 400 + "+1j"
    assert read("pythonic", f"[f(a={source})]") == ("", [("f", json.dumps({"a": source}))])


@pytest.mark.parametrize("digits", [999, 1000, 1001])
def test_the_longest_number_ends_at_the_same_character_in_any_pieces(digits: int):
    text = '<tool_call>{"name": "f", "arguments": {"a": ' + "1" * digits + "}}</tool_call>"
    whole = read("hermes", text)
    for cut in (60, 500, len(text) - 15, len(text) - 14, len(text) - 13):
        parser = tool_parser_class("hermes")(OFFERED)
        events = [*parser.push(text[:cut]), *parser.push(text[cut:]), *parser.close()]
        assert joined(events) == whole
