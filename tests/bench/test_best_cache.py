"""An infinite cache, on requests that are small enough to count by hand, and against one that remembers everything."""

import random

from ramet.bench.programs.best_cache import SentRequest, best_cached, best_hit_rate


def one_after_the_other(*pairs: tuple[str, str]) -> list[SentRequest]:
    return [SentRequest([*prompt.encode()], [*output.encode()], i, i + 0.5) for i, (prompt, output) in enumerate(pairs)]


def at_once(*pairs: tuple[str, str]) -> list[SentRequest]:
    return [each._replace(arrived=0.0, ended=1.0 + i) for i, each in enumerate(one_after_the_other(*pairs))]


def test_a_shared_prefix_is_computed_once():
    assert best_cached(one_after_the_other(("abcX", ""), ("abcY", ""), ("abcYZ", ""))) == [0, 3, 4]
    assert best_hit_rate(one_after_the_other(("abcX", ""), ("abcY", ""))) == 3 / 8


def test_it_is_found_while_the_one_before_still_runs():
    assert best_cached(at_once(("abcX", "o"), ("abcY", "o"))) == [0, 3]


def test_the_last_token_of_a_prompt_is_always_computed():
    assert best_cached(at_once(("abc", ""), ("abc", ""), ("a", ""), ("", ""))) == [0, 2, 0, 0]


def test_a_conversation_finds_its_own_outputs_but_for_the_last_token():
    assert best_cached(one_after_the_other(("ab", "cde"), ("abcdefg", ""))) == [0, 4]


def test_an_output_is_found_only_once_its_request_has_ended():
    first, second = one_after_the_other(("ab", "cde"), ("abcdefg", ""))
    assert best_cached([first._replace(ended=1.5), second]) == [0, 2]
    assert best_cached([first._replace(ended=1.0), second]) == [0, 4]  # it ended, and that started the other


def test_the_order_of_the_list_does_not_matter_but_the_times_do():
    first, second = one_after_the_other(("abcd", ""), ("abcde", ""))
    assert best_cached([second, first]) == [4, 0]


def test_forks_share_what_stood_before_them():
    question, chains = "q" * 10, [("q" * 10 + hint, "xyz") for hint in "12345"]
    assert best_cached([*at_once(*chains)]) == [0, *[len(question)] * 4]


def test_nothing_shared_is_nothing_found():
    assert best_hit_rate(at_once(("abc", "x"), ("def", "y"))) == 0.0 == best_hit_rate([])


def test_it_is_what_remembering_every_sequence_finds():
    draw = random.Random(0)
    sent = [
        SentRequest(
            draw.choices("ab", k=draw.randint(1, 12)), draw.choices("ab", k=draw.randint(0, 5)), t, t + draw.random()
        )
        for t in (draw.random() for _ in range(200))
    ]
    for each, best in zip(sent, best_cached(sent), strict=True):
        known = [other.prompt for other in sent if other.arrived < each.arrived]
        known += [[*other.prompt, *other.output[:-1]] for other in sent if other.ended <= each.arrived and other.output]
        common = [
            next((i for i, (a, b) in enumerate(zip(other, each.prompt[:-1], strict=False)) if a != b),
                 min(len(other), len(each.prompt) - 1))
            for other in known
        ]  # fmt: skip
        assert best == max(common, default=0)
