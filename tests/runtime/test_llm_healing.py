"""Healed prompts of LLM: with everything else that may be asked, on a tiny model whose texts have many spellings."""

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from healed import Everything, load_hf, make_model, text_of

from ramet.kernels.philox import philox_uniforms
from ramet.runtime.errors import ClientError
from ramet.runtime.grammar.byte_fsm import build_byte_fsm
from ramet.runtime.llm import LLM
from ramet.runtime.scheduler.request import seed_of_sample

TIE = 1e-4
BORDER = 1e-6  # a random number so near to the border of two tokens is on either side of it, by the rounding of a batch
OPTIONS: dict[str, Any] = {"device": "cpu", "dtype": "float32", "max_total_tokens": 4096, "random_seed": 1}
GREEDY = {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True}
TEXTS = [text_of(random.Random(seed)) for seed in range(60)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("healed"))


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with LLM(str(folder), enable_custom_logit_processor=True, **OPTIONS) as llm:
        yield llm


@pytest.fixture(scope="module")
def everything(llm: LLM) -> Everything:
    return Everything(llm.tokenizer)


@pytest.fixture(scope="module")
def logits(folder: Path):  # type: ignore[no-untyped-def]
    return load_hf(folder)


def bytes_of(everything: Everything, tokens: list[int]) -> bytes:
    return b"".join(everything.tokens[token] for token in tokens)


def tail_of(llm: LLM, everything: Everything, text: str, most: int = 12) -> tuple[list[int], bytes]:
    return everything.tail(llm.tokenizer.encode(text), most)


def asked(llm: LLM, texts: list[str], params: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return llm.generate(texts, params, token_healing=True, **more)


# -- text --------------------------------------------------------------------------------------------------------------


def test_prompt_and_text_are_what_the_tokens_spell(llm: LLM, everything: Everything) -> None:
    for params in (GREEDY, {**GREEDY, "temperature": 1.0, "sampling_seed": 5}):
        for text, reply in zip(TEXTS, asked(llm, TEXTS, params, return_prompt_token_ids=True), strict=True):
            kept, tail = tail_of(llm, everything, text)
            assert reply["prompt_token_ids"] == kept
            output = b"".join(llm.tokenizer.token_bytes(token) or b"" for token in reply["output_ids"])
            assert output.startswith(tail)
            special = llm.tokenizer.special_ids
            plain = b"".join(everything.tokens.get(t, b"") if t not in special else b"" for t in reply["output_ids"])
            if not special & set(reply["output_ids"]) and not set(reply["output_ids"]) - everything.tokens.keys():
                assert reply["text"] == plain[len(tail) :].decode("utf-8", "replace")


def test_a_stream_says_the_same_and_never_shows_the_tail(llm: LLM) -> None:
    for text in TEXTS[:10]:
        (whole,) = asked(llm, [text], GREEDY)
        parts = list(llm.stream(text, GREEDY, token_healing=True))
        assert parts[-1]["text"] == whole["text"] and parts[-1]["output_ids"] == whole["output_ids"]
        assert all(whole["text"].startswith(part["text"]) for part in parts)


def test_a_stop_text_is_looked_for_after_the_prompt_alone(llm: LLM, everything: Everything) -> None:
    stopped = 0
    for text in TEXTS:
        _, tail = tail_of(llm, everything, text)
        (free,) = asked(llm, [text], GREEDY)
        for stop in {text[-1], text[-2:], free["text"][:1], free["text"][1:3]} - {""}:
            if "\ufffd" in stop:
                continue
            (reply,) = asked(llm, [text], {**GREEDY, "stop": [stop]})
            at = free["text"].find(stop)
            assert reply["text"] == (free["text"] if at < 0 else free["text"][:at]), (text, stop)
            stopped += at >= 0 and bool(tail)
            if at >= 0:
                assert reply["meta_info"]["finish_reason"]["matched"] == stop
    assert stopped > 10


def test_a_stop_token_that_only_spells_the_prompts_end_stops_nothing(llm: LLM, everything: Everything) -> None:
    seen = set[bool]()
    for text in TEXTS:
        _, tail = tail_of(llm, everything, text)
        (free,) = asked(llm, [text], GREEDY)
        first = everything.first_of(free["output_ids"], tail) if tail else ()
        for token in first:
            (reply,) = asked(llm, [text], {**GREEDY, "stop_token_ids": [token]})
            has_text = token == first[-1] and len(bytes_of(everything, list(first))) > len(tail)
            seen.add(has_text)
            if has_text:
                assert reply["output_ids"] == list(first) and reply["text"] == ""
            else:
                later = free["output_ids"][len(first) :]
                end = len(first) + (later.index(token) + 1 if token in later else len(later))
                assert reply["output_ids"] == free["output_ids"][:end]
    assert seen == {True, False}


# -- what is drawn -----------------------------------------------------------------------------------------------------


def best_of(
    everything: Everything, logits: Any, kept: list[int], tail: bytes, change: Any
) -> dict[tuple[int, ...], float]:
    """The log-probability of each sequence. `change` WRITES the logits [V] that follow an output."""

    def after(paths: list[tuple[int, ...]]) -> list[torch.Tensor]:
        rows = [row.clone() for row in logits([[*kept, *path] for path in paths])]
        for row, path in zip(rows, paths, strict=True):
            change(row, path)
        return [torch.log_softmax(row, -1) for row in rows]

    return everything.sequences(tail, 12, after)


def penalise(row: torch.Tensor, path: tuple[int, ...]) -> None:
    for token in set(path):
        row[token] -= 1.5 * path.count(token) + 0.5
        row[token] = row[token] / 1.3 if row[token] > 0 else row[token] * 1.3


def ban_a(row: torch.Tensor, path: tuple[int, ...]) -> None:
    row[BANNED] = -math.inf


def ban_ends(row: torch.Tensor, path: tuple[int, ...]) -> None:
    row[ENDS] = -math.inf


def bias(row: torch.Tensor, path: tuple[int, ...]) -> None:
    row[BIASED] += 4.0


BANNED, ENDS, BIASED = list(range(262, 290, 2)), [1, 3], list(range(262, 280))
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {
    "penalties": ({"frequency_penalty": 1.5, "presence_penalty": 0.5, "repetition_penalty": 1.3}, {}, penalise),
    "bias": ({"logit_bias": {str(token): 4.0 for token in BIASED}}, {}, bias),
    "min_new_tokens": ({"ignore_eos": False, "min_new_tokens": 12}, {}, ban_ends),
    "a processor": ({"custom_params": {"token_ids": BANNED}}, {"custom_logit_processor": "ban_tokens"}, ban_a),
}


@pytest.mark.parametrize("name", CASES)
def test_the_best_sequence_is_that_of_the_changed_logits(
    llm: LLM, everything: Everything, logits: Any, name: str
) -> None:
    params, more, change = CASES[name]
    tried, changed = 0, 0
    for text, reply in zip(TEXTS, asked(llm, TEXTS, {**GREEDY, **params}, **more), strict=True):
        kept, tail = tail_of(llm, everything, text)
        if tail:
            sequences = best_of(everything, logits, kept, tail, change)
            found = everything.first_of(reply["output_ids"], tail)
            assert sequences[found] > max(sequences.values()) - TIE, text
            plain = best_of(everything, logits, kept, tail, lambda row, path: None)
            changed += max(plain, key=plain.__getitem__) != found
            tried += 1
    assert tried > 10 and (changed or name == "min_new_tokens")


PATTERNS = ["[ab]{2,5}", "(é|日本){1,3}x", " ?(yes|no)", "b?", "\n[a-z]+"]


@pytest.mark.parametrize("backend", ["llguidance", "xgrammar", "outlines"])
def test_under_a_constraint_the_best_sequence_is_of_those_that_go_on_as_it_allows(
    llm: LLM, everything: Everything, logits: Any, backend: str
) -> None:
    inside = 0
    for i, text in enumerate(TEXTS[:25]):
        pattern = PATTERNS[i % len(PATTERNS)]
        (reply,) = asked(llm, [text], {**GREEDY, "ignore_eos": False, "regex": pattern}, grammar_backend=backend)
        kept, tail = tail_of(llm, everything, text)
        fsm = build_byte_fsm(pattern)
        if reply["meta_info"]["finish_reason"]["type"] == "stop":
            assert fsm.accepts(fsm.walk(fsm.start, reply["text"].encode()))  # type: ignore[arg-type]
        if tail:
            sequences = best_of(everything, logits, kept, tail, lambda row, path: None)
            spelled = {each: bytes_of(everything, list(each))[len(tail) :] for each in sequences}
            legal = {each: p for each, p in sequences.items() if fsm.walk(fsm.start, spelled[each]) is not None}
            found = everything.first_of(reply["output_ids"], tail)
            assert legal[found] > max(legal.values()) - TIE, (text, pattern)
            inside += bool(spelled[found])
    assert inside >= 1


def test_a_constraint_means_the_same_with_every_way_to_jump(folder: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"aa": {"enum": ["ab", "ba"]}},
        "required": ["aa"],
        "additionalProperties": False,
    }
    params = {**GREEDY, "ignore_eos": False, "max_new_tokens": 40, "json_schema": json.dumps(schema)}
    texts = [text + ending for text in TEXTS[:8] for ending in ("", "a", "{", '"')]
    outputs = []
    for mode in ("off", "ff", "retokenize"):
        with LLM(str(folder), jump_forward=mode, **OPTIONS) as llm:
            replies = asked(llm, texts, params)
            outputs.append([reply["output_ids"] for reply in replies])
            assert all(list(json.loads(reply["text"])) == ["aa"] for reply in replies)
    assert outputs[0] == outputs[1]


def test_a_processor_that_remembers_sees_the_output_as_it_is(llm: LLM) -> None:
    """It bans runs of two tokens that came before: what it remembers of a sequence that was left must be forgotten."""
    more = {"custom_logit_processor": "no_repeat_ngram"}
    for text in TEXTS:
        (reply,) = asked(llm, [text], {**GREEDY, "max_new_tokens": 30, "custom_params": {"ngram_size": 2}}, **more)
        runs = list(zip(reply["output_ids"], reply["output_ids"][1:]))
        assert len(set(runs)) == len(runs), text


# -- what is returned --------------------------------------------------------------------------------------------------


def test_each_token_has_a_log_probability_among_all_tokens(llm: LLM, everything: Everything, logits: Any) -> None:
    params = {**GREEDY, "temperature": 1.0, "sampling_seed": 3}
    extra = {"return_logprob": True, "top_logprobs_num": 2, "token_ids_logprob": [5, 300]}
    several = 0
    for text, reply in zip(TEXTS, asked(llm, TEXTS, params, **extra), strict=True):
        kept, tail = tail_of(llm, everything, text)
        info, output = reply["meta_info"], reply["output_ids"]
        several += bool(tail) and len(everything.first_of(output, tail)) > 1
        for i in range(len(output)):
            row = torch.log_softmax(logits([[*kept, *output[:i]]])[0], -1)
            value, token, _ = info["output_token_logprobs"][i]
            assert token == output[i] and value == pytest.approx(float(row[token]), abs=1e-3)
            assert [e[1] for e in info["output_top_logprobs"][i]] == torch.topk(row, 2).indices.tolist()
            chosen = [e[0] for e in info["output_token_ids_logprobs"][i]]
            assert chosen == pytest.approx([float(row[5]), float(row[300])], abs=1e-3)
    assert several > 2


def test_hidden_states_are_those_of_the_tokens_that_are_left(llm: LLM) -> None:
    for text in TEXTS[:20]:
        (reply,) = asked(llm, [text], GREEDY, return_hidden_states=True, return_prompt_token_ids=True)
        ids = reply["prompt_token_ids"] + reply["output_ids"]
        (again,) = llm.generate([ids[:-1]], {**GREEDY, "max_new_tokens": 0}, return_hidden_states=True)
        prompt, *rows = reply["meta_info"]["hidden_states"]
        (expected,) = again["meta_info"]["hidden_states"]
        assert torch.allclose(torch.tensor([*prompt, *rows]), torch.tensor(expected), atol=1e-3)


# -- schedules ---------------------------------------------------------------------------------------------------------


def test_samples_batches_and_options_change_no_output(folder: Path, llm: LLM) -> None:
    params = {**GREEDY, "temperature": 1.0, "sampling_seed": 9, "n": 3}
    told = {"return_logprob": True, "token_ids_logprob": list(range(llm.tokenizer.vocab_size))}
    alone = [reply for text in TEXTS for reply in asked(llm, [text], params, **told)]

    def check(replies: list[dict[str, Any]]) -> None:
        for i, (one, other) in enumerate(zip(alone, replies, strict=True)):
            if one["output_ids"] != other["output_ids"]:
                distance = distance_to_border(one, other, seed_of_sample(9, i % 3))
                assert distance < BORDER, (i, one["output_ids"], other["output_ids"], distance)

    check(asked(llm, TEXTS, params))
    for options in (
        {"page_size": 16, "overlap": "on"},
        {"disable_radix_cache": True, "chunked_prefill_size": 3},
        {
            "max_total_tokens": 128,
            "max_running_requests": 6,
            "schedule_conservativeness": 0.01,
            "check_invariants": True,
        },
    ):
        with LLM(str(folder), **{**OPTIONS, **options}) as other:
            check(asked(other, TEXTS, params))


def distance_to_border(one: dict[str, Any], other: dict[str, Any], seed: int) -> float:
    """Of the random number of the first draw that differs, to the border between the tokens that were drawn.

    A draw inverts the mass of the tokens in the order of their ids (kernels/reference.py). `one` tells all of them.
    """
    pairs = enumerate(zip(one["output_ids"], other["output_ids"], strict=True))
    at, (first, second) = next((at, pair) for at, pair in pairs if pair[0] != pair[1])
    mass = [0.0] * len(one["meta_info"]["output_token_ids_logprobs"][at])
    for logprob, token, _ in one["meta_info"]["output_token_ids_logprobs"][at]:
        mass[token] = math.exp(logprob)
    low, high = sorted((first, second))
    (number,) = philox_uniforms(np.array([seed], dtype=np.uint64), np.array([at]))
    below, above = math.fsum(mass[: low + 1]), math.fsum(mass[:high])  # where `low` ends, and where `high` begins
    return max(abs(number - below), abs(number - above))


# -- what is asked -----------------------------------------------------------------------------------------------------


def test_ids_are_healed_where_the_request_says_so(llm: LLM, everything: Everything) -> None:
    for text in TEXTS[:10]:
        ids = llm.tokenizer.encode(text)
        (of_text,), (of_ids,) = asked(llm, [text], GREEDY), asked(llm, [ids], GREEDY)  # type: ignore[list-item]
        assert of_text["output_ids"] == of_ids["output_ids"] and of_text["text"] == of_ids["text"]


def test_the_option_is_for_texts_that_do_not_say(folder: Path, llm: LLM) -> None:
    ids = [llm.tokenizer.encode(text) for text in TEXTS]
    healed, plain = asked(llm, TEXTS, GREEDY), llm.generate(TEXTS, GREEDY)
    assert [r["output_ids"] for r in healed] != [r["output_ids"] for r in plain]
    with LLM(str(folder), token_healing="on", **OPTIONS) as other:
        assert [r["text"] for r in other.generate(TEXTS, GREEDY)] == [r["text"] for r in healed]
        assert [r["text"] for r in other.generate(TEXTS, GREEDY, token_healing=False)] == [r["text"] for r in plain]
        assert [r["text"] for r in other.generate(ids, GREEDY)] == [r["text"] for r in plain]
        some = other.generate(TEXTS, GREEDY, token_healing=[i % 2 == 0 for i in range(len(TEXTS))])
        assert [r["text"] for r in some] == [(healed, plain)[i % 2][i]["text"] for i in range(len(TEXTS))]


def test_a_prompt_that_nothing_is_healed_of_is_as_it_was(llm: LLM) -> None:
    for text in ("a", "<|im_end|>", "aab<tool>"):
        (healed,), (plain,) = asked(llm, [text], GREEDY), llm.generate([text], GREEDY)
        assert healed["output_ids"] == plain["output_ids"]
        assert healed["meta_info"]["prompt_tokens"] == plain["meta_info"]["prompt_tokens"]
    (scored,) = asked(llm, [TEXTS[0]], {"max_new_tokens": 0})
    assert scored["output_ids"] == [] and scored["meta_info"]["prompt_tokens"] == len(llm.tokenizer.encode(TEXTS[0]))


def test_embeddings_cannot_be_healed(llm: LLM) -> None:
    with pytest.raises(ClientError, match=r"^token_healing is True, but input_embeds\[0\] is a prompt of embeddings"):
        llm.generate([torch.zeros(3, 64).numpy()], GREEDY, token_healing=True)


def test_what_no_sequence_can_spell_is_refused(llm: LLM) -> None:
    """A processor that leaves one token which no tail begins with."""
    healed = next(text for text in TEXTS if asked(llm, [text], GREEDY)[0]["meta_info"]["prompt_tokens"] > 1)
    only = {"custom_params": {"token_ids": [8 + 200]}}
    (reply,) = asked(llm, [healed], {**GREEDY, **only}, custom_logit_processor="allow_tokens")
    reason = reply["meta_info"]["finish_reason"]
    assert reason["type"] == "abort" and "healed end of the prompt" in reason["message"] and reply["output_ids"] == []
