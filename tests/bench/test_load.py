"""What a load is made of: arrivals, prompts and the reading of event streams."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.bench.arrivals import due_times
from ramet.bench.client import note_event
from ramet.bench.datasets import DatasetVocabulary, random_ids, random_text, shared_prefix, sharegpt_file
from ramet.bench.errors import BadOption
from ramet.bench.metrics import Timeline
from ramet.bench.sse import EventSplitter

BUNDLED = Path(__file__).resolve().parents[2] / "runtime" / "models" / "bundled"
PAYLOADS = st.lists(st.binary(max_size=20).filter(lambda b: not {10, 13} & set(b)), max_size=8)


@pytest.fixture(scope="module")
def vocabulary() -> DatasetVocabulary:
    return DatasetVocabulary(BUNDLED)


class TestArrivals:
    def test_an_infinite_rate_is_all_at_once(self) -> None:
        assert due_times(3, float("inf"), 1) == [0, 0, 0]

    def test_same_seed_same_arrivals(self) -> None:
        assert due_times(50, 4, 1) == due_times(50, 4, 1) != due_times(50, 4, 2)

    def test_arrivals_ascend_from_zero_at_the_mean_rate(self) -> None:
        times = due_times(20_000, 8, 1)
        assert times[0] == 0 and times == sorted(times)
        assert 20_000 / times[-1] == pytest.approx(8, rel=0.05)


class TestEventSplitter:
    @given(PAYLOADS, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.randoms())
    def test_cuts_between_pieces_do_not_matter(self, payloads: list[bytes], end: bytes, draw: random.Random) -> None:
        stream = b"".join(b"data: " + p + end + end for p in payloads)
        splitter, found = EventSplitter(), []
        at = 0
        while at < len(stream):
            size = draw.randint(1, 6)
            found += splitter.feed(stream[at : at + size])
            at += size
        found += splitter.feed(b"data: end\n\n")
        assert found == [*payloads, b"end"]

    def test_comments_are_no_events_and_other_fields_are_passed_over(self) -> None:
        assert EventSplitter().feed(b": keep-alive\n\nid: 7\ndata: a\nevent: x\n\ndata:b\n\n") == [b"a", b"b"]

    def test_lines_of_one_event_are_joined(self) -> None:
        assert EventSplitter().feed(b"data: a\ndata: b\n\n") == [b"a\nb"]

    def test_an_unfinished_event_waits(self) -> None:
        splitter = EventSplitter()
        assert splitter.feed(b"data: a\n") == [] and splitter.feed(b"\ndata: b") == [b"a"]


class TestTokenCounting:
    def counts(self, *events: object) -> list[int]:
        line = Timeline(start=0)
        for i, event in enumerate(events):
            note_event(line, json.dumps(event).encode(), float(i))
        return line.counts

    def test_the_servers_count_is_believed(self) -> None:
        assert self.counts(*({"text": "", "meta_info": {"completion_tokens": n}} for n in (0, 1, 3))) == [1, 3]

    def test_text_that_looks_like_a_count_is_text(self) -> None:
        assert self.counts({"text": '"completion_tokens":99', "meta_info": {"completion_tokens": 2}}) == [2]
        assert self.counts({"choices": [{"text": '"completion_tokens":99'}]}) == [1]

    def test_without_a_count_an_event_with_text_is_one_token(self) -> None:
        deltas = [{"choices": [{"text": t}]} for t in ("a", "", "bc")]
        assert self.counts(*deltas, {"choices": [], "usage": {"completion_tokens": 9}}) == [1, 2]


class TestDatasets:
    @pytest.mark.parametrize("length", [1, 2, 7, 64, 257])
    def test_random_text_has_exactly_the_asked_tokens(self, vocabulary: DatasetVocabulary, length: int) -> None:
        prompts = random_text(vocabulary, 20, length, 5, 1.0, seed=3)
        texts = [p.text or "" for p in prompts]
        assert vocabulary.count(texts) == [p.input_len for p in prompts] == [max(length, vocabulary.added + 1)] * 20
        assert len(set(texts)) > 1

    def test_lengths_fill_the_asked_range(self, vocabulary: DatasetVocabulary) -> None:
        prompts = random_ids(vocabulary, 2000, 20, 10, 0.5, seed=1)
        assert {p.input_len for p in prompts} == set(range(10, 21))
        assert {p.output_len for p in prompts} == set(range(5, 11))
        assert all(p.ids is not None and len(p.ids) == p.input_len and p.text is None for p in prompts)

    def test_ratio_zero_never_asks_for_nothing(self, vocabulary: DatasetVocabulary) -> None:
        prompts = random_ids(vocabulary, 200, 3, 3, 0.0, seed=1)
        assert {p.input_len for p in prompts} == {p.output_len for p in prompts} == {1, 2, 3}

    def test_same_seed_same_prompts(self, vocabulary: DatasetVocabulary) -> None:
        made = [random_text(vocabulary, 5, 9, 9, 0.0, seed) for seed in (1, 1, 2)]
        assert made[0] == made[1] != made[2]

    def test_random_ids_are_never_special_tokens(self, vocabulary: DatasetVocabulary) -> None:
        used = {i for p in random_ids(vocabulary, 50, 200, 1, 1.0, seed=1) for i in p.ids or ()}
        assert used <= set(vocabulary.ids) and min(vocabulary.ids) > 0

    def test_prompts_of_a_group_share_exactly_their_system_prompt(self, vocabulary: DatasetVocabulary) -> None:
        prompts = shared_prefix(vocabulary, 3, 4, 40, 10, 6, seed=1)
        heads = [(p.text or "").split("\n\n")[0] for p in prompts]
        assert len(prompts) == len({p.text for p in prompts}) == 12
        assert sorted(heads.count(head) for head in set(heads)) == [4, 4, 4]
        assert all(50 <= p.input_len <= 54 and p.output_len == 6 for p in prompts)

    def test_sharegpt_takes_lengths_from_the_two_first_turns(
        self, vocabulary: DatasetVocabulary, tmp_path: Path
    ) -> None:
        draw = random.Random(1)
        asked, answered = vocabulary.text(draw, 30)[0], vocabulary.text(draw, 12, special=False)[0]
        talks = [
            {"conversations": [{"value": asked}, {"value": answered}]},
            {"conversations": [{"value": asked}]},
            {"conversations": [{"value": asked}, {"value": "."}]},
        ]
        path = tmp_path / "talks.json"
        path.write_text(json.dumps(talks))
        (prompt,) = sharegpt_file(vocabulary, path, 1, seed=1)
        assert (prompt.text, prompt.input_len, prompt.output_len) == (asked, 30, 12)
        with pytest.raises(BadOption, match="has 1 usable conversations, --num-prompts asks for 2"):
            sharegpt_file(vocabulary, path, 2, seed=1)

    @pytest.mark.parametrize("content", ["{", "{}", "[7]", '[{"conversations": [1, 2]}]'])
    def test_a_file_that_is_no_sharegpt_is_one_clear_error(
        self, vocabulary: DatasetVocabulary, tmp_path: Path, content: str
    ) -> None:
        path = tmp_path / "talks.json"
        path.write_text(content)
        with pytest.raises(BadOption, match="--dataset-path"):
            sharegpt_file(vocabulary, path, 1, seed=1)
