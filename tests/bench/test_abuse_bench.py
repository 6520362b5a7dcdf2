"""`ramet bench abuse`: its bodies, its figures, what they are judged by, and one complete run."""

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from ramet.bench import connections
from ramet.bench.abuse import bench, cost, flood, library
from ramet.bench.abuse.beside import SLIGHT, attack_of, slight_attack
from ramet.bench.abuse.bodies import BOMB, PLAIN, plain, required
from ramet.bench.abuse.burner import Burn, burn
from ramet.bench.abuse.client import Attack, Attacked, requests_of
from ramet.bench.abuse.cost import MIN_CPU_S, without_idle
from ramet.bench.abuse.heavy import HEAVY
from ramet.bench.abuse.judged import as_record, at_limit, misses, not_known, table, verdicts
from ramet.bench.abuse.library import seconds_per_body, texts_of, was_tokenised
from ramet.bench.abuse.load import AbuseLoad
from ramet.bench.abuse.ratios import RatioRound, compared
from ramet.bench.abuse.shapes import CONTROL, PACKED, SHAPES, body_of, route_control, with_route_controls
from ramet.bench.abuse.windows import CLIENT, Beside, burns_of
from ramet.bench.abuse.work import WORK
from ramet.bench.connections import ConnectionWindow
from ramet.ipc.messages import CallRefused, Limits, RenderChoices
from ramet.runtime.config import BUNDLED_MODEL
from ramet.runtime.intake.limits import MAX_CONSTRAINT_BYTES, MAX_INPUTS, MAX_SEQUENCES, MAX_TOOLS
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.segments import SegmentEncoder
from ramet.runtime.text.template_files import TemplateSources
from ramet.runtime.text.tokenizer import Tokenizer

SIZE = 1 << 16
BROKEN = {"brackets", "a long number", "bad UTF-8", "no JSON", *PACKED}  # the others are JSON


@pytest.mark.parametrize("shape", SHAPES)
def test_a_body_has_the_size_that_was_asked_for(shape: str) -> None:
    size = SIZE // BOMB if shape in PACKED else SIZE
    body = body_of(shape, size)
    assert 0.8 * size <= len(body.data) <= size + 64
    if shape not in BROKEN:
        assert isinstance(orjson.loads(body.data), dict)


@pytest.mark.parametrize("path", PLAIN)
def test_the_control_is_one_text_of_the_same_size(path: str) -> None:
    body = plain(SIZE, path)
    assert (body.path, len(body.data)) == (path, SIZE)
    assert isinstance(orjson.loads(body.data), dict)


def test_a_shape_is_compared_with_plain_text_on_its_route() -> None:
    assert {route_control(shape): body_of(shape, SIZE // BOMB).path for shape in PACKED} == {CONTROL: "/generate"}
    for shape in SHAPES.keys() - set(PACKED):
        assert body_of(route_control(shape), SIZE).path == body_of(shape, SIZE).path
    chat, messages = "plain text to /v1/chat/completions", "plain text to /v1/messages"
    assert with_route_controls(["tools", "turns", "messages", "ids", "many prompts"]) == [
        chat, messages, "tools", "turns", "messages", "ids",
    ]  # fmt: skip


@pytest.mark.parametrize("name", HEAVY)
@pytest.mark.parametrize("size", [SIZE, 1 << 20])
def test_a_body_of_much_work_has_its_size_and_as_much_work_as_its_parts(name: str, size: int) -> None:
    heavy = HEAVY[name]
    body, written = heavy.body(size), orjson.loads(heavy.body(size).data)
    assert 0.9 * size <= len(body.data) <= size + 64
    parts = next(value for value in written.values() if isinstance(value, list) and value != ["x"])
    assert len(parts) == len(heavy.parts(size)) == len(heavy.control(size)) <= MAX_SEQUENCES
    assert all(isinstance(orjson.loads(each.data), dict) for each in heavy.control(size)[:3])


def test_much_work_is_within_the_bounds_of_the_product() -> None:
    mib = 1 << 20
    assert len(HEAVY["texts to embed together"].parts(mib)) <= MAX_INPUTS
    for name in ("required properties", "long constants"):
        asked = orjson.loads(HEAVY[name].body(mib).data)["sampling_params"]
        assert len({orjson.dumps(each) for each in asked}) == len(asked) > 1  # no cache answers the second
        assert all(len(orjson.dumps(each["json_schema"])) < MAX_CONSTRAINT_BYTES for each in asked)
    chat = orjson.loads(body_of("allowed tools", mib).data)
    assert len(chat["tools"]) <= MAX_TOOLS < len(chat["tool_choice"]["tools"])


def test_every_property_is_required() -> None:
    schema = orjson.loads(required(SIZE))
    assert schema["required"] == list(schema["properties"]) and len(schema["required"]) > 1000


@pytest.mark.parametrize("name", WORK)
def test_work_differs_each_time_and_its_control_has_as_many_bytes(name: str) -> None:
    bodies = [WORK[name].body(i).data for i in range(3)]
    assert len(set(bodies)) == 3
    assert abs(len(WORK[name].control(1).data) - len(bodies[1])) < 32


BESIDE: dict[str, Any] = {
    "shape": "s", "size": bench.LARGE, "gap_ratio": 1.3, "gap_interval": [1.2, 1.5], "health_s": 9.0,
    "health_ratio": 3.0, "health_interval": [2.0, 3.1]
}  # fmt: skip
COST: dict[str, Any] = {"shape": "s", "size": 1, "ratio": 4.0, "route_ratio": 1.0}


@pytest.mark.parametrize(
    ("part", "line", "missed"),
    [
        ("cost", COST, False),
        ("cost", {**COST, "ratio": 4.1, "net_ratio": 1.0}, True),
        ("cost", {**COST, "route_ratio": 4.1}, True),
        ("cost", {"shape": "s", "size": 1, "alone_ratio": 4.0}, False),
        ("cost", {"shape": "s", "size": 1, "alone_ratio": 4.1}, True),
        ("beside", BESIDE, False),
        ("beside", {**BESIDE, "gap_ratio": 1.5, "gap_interval": [1.3, 1.7]}, False),
        ("beside", {**BESIDE, "gap_ratio": 1.5, "gap_interval": [1.31, 1.7]}, True),
        ("beside", {**BESIDE, "route_gap_ratio": 9.0}, False),
        ("beside", {**BESIDE, "health_ratio": 3.2, "health_interval": [3.1, 3.3]}, True),
        ("beside", {**BESIDE, "size": bench.SMALL, "health_s": 0.9, "health_ratio": 9.0}, False),
        ("beside", {**BESIDE, "size": bench.SMALL, "health_s": 1.1}, True),
        ("beside", {**BESIDE, "statuses": {"400": 3, "503": 1, "late": 1}}, False),
        ("beside", {**BESIDE, "statuses": {"400": 3, "500": 1}}, True),
        ("flood", {"shape": "s", "idle_mib": 100.0, "left_mib": [240.0, 250.0, 244.0]}, False),
        ("flood", {"shape": "s", "idle_mib": 100.0, "left_mib": [200.0, 200.0, 205.0]}, True),
        ("flood", {"shape": "s", "idle_mib": 100.0, "left_mib": [260.0, 260.0, 260.0]}, True),
    ],
)
def test_a_figure_beyond_its_bound_is_missed(part: str, line: dict[str, Any], missed: bool) -> None:
    assert bool(misses({part: [line]})) is missed
    assert any(each.held is False for each in verdicts({part: [line]})) is missed


def test_the_table_has_the_worst_shape_of_each_criterion() -> None:
    bad = {**BESIDE, "shape": "bad", "gap_ratio": 2.5, "gap_interval": [2.0, 3.0]}
    lines = [{**BESIDE, "shape": "good", "gap_ratio": 1.1}, bad]
    found = {each.name: each for each in verdicts({"beside": lines, "cost": [COST]})}
    worst = found["p99 between tokens, over the control's"]
    assert (worst.shape, worst.value, worst.held) == ("bad", 2.5, False)
    assert found["CPU of a MiB, over plain text's"].held is True
    assert "2.5 x [2, 3]   NOT HELD  bad" in table(list(found.values()))
    assert {each["name"] for each in as_record(list(found.values()))} == found.keys()


def test_a_cost_is_judged_with_the_librarys_time_and_without() -> None:
    found = {each.name: each for each in verdicts({"cost": [{**COST, "ratio": 36.7, "net_ratio": 3.9}, COST]})}
    assert [each.held for each in found.values()] == [False, True, True]
    assert found["the same without the tokenizers library's own time"].value == 4.0


def test_what_an_idle_server_uses_meanwhile_is_no_cost_of_a_body() -> None:
    assert without_idle(0.5, wall_s=10.0, idle_share=0.02) == pytest.approx(0.3)
    assert without_idle(0.19, wall_s=10.0, idle_share=0.02) == MIN_CPU_S  # a ratio to it exists


def test_the_library_is_timed_for_the_texts_of_a_body() -> None:
    assert texts_of(body_of("plain text to /v1/tokenize", 1000)) == [
        orjson.loads(plain(1000, "/v1/tokenize").data)["prompt"]
    ]
    assert len(texts_of(HEAVY["many choices"].body(SIZE))) == 4001  # with the prompt
    assert texts_of(body_of("no JSON", 100)) == []
    assert (
        seconds_per_body(BUNDLED_MODEL, body_of("texts", SIZE))
        > 0
        == seconds_per_body(BUNDLED_MODEL, body_of("ids", SIZE))
    )


def test_the_library_is_timed_for_the_choices_that_a_server_tokenises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body of too many is refused on the way, and what a server has not tokenised by then is not subtracted."""
    body, chars = body_of("long choices", 1 << 20), {"server": 0, "bench": 0}

    class Server(Tokenizer):
        def encode(self, text: str, *more: Any) -> list[int]:  # type: ignore[override]
            chars["server"] += len(text)
            return super().encode(text, *more)

    def timed(_: Path, text: str) -> tuple[float, int]:
        chars["bench"] += len(text)
        return 1e-6, len(tokenizer.encode(text))

    tokenizer = Tokenizer.from_folder(BUNDLED_MODEL)
    encoder = SegmentEncoder(
        Server.from_folder(BUNDLED_MODEL), Limits(4096, 10_000, 1 << 20, 4), Chats(TemplateSources())
    )
    written = orjson.loads(body.data)
    refused = encoder.render_choices(RenderChoices(7, written["prompt"], written["choices"], True))
    assert isinstance(refused, CallRefused) and was_tokenised({"400": 3}, {"400": refused.error.fact})
    monkeypatch.setattr(library, "_timed", timed)
    assert seconds_per_body(BUNDLED_MODEL, body) > 0
    # a server tokenises each choice together with the prompt
    assert 0.95 * chars["server"] < chars["bench"] <= chars["server"] < len(body.data) / 2


@pytest.mark.parametrize(
    ("statuses", "said", "tokenised"),
    [
        ({"200": 1}, {}, True),
        ({"400": 9, "200": 1}, {"400": "is empty"}, True),
        ({"400": 1}, {"400": "text has 5000 tokens, must have at most 4095"}, True),
        ({"400": 1}, {"400": "text has more than 4096 tokens, must have at most 4095"}, False),  # refused unread
        ({"400": 1}, {"400": "tools has 9913 entries, must have at most 1024"}, False),
        ({"413": 1, "late": 1}, {}, False),
    ],
)
def test_the_librarys_time_counts_where_a_reply_shows_that_texts_were_tokenised(
    statuses: dict[str, int], said: dict[str, str], tokenised: bool
) -> None:
    assert was_tokenised(statuses, said) is tokenised


def test_a_disturbed_control_does_not_hide_a_figure() -> None:
    assert compared([RatioRound(10, 15, 12)], most=1.3) == (1.364, None)
    assert compared([RatioRound(10, 15, 1000)], most=1.3) == (1.5, None)


def test_an_interval_is_as_wide_as_rounds_and_controls_differ() -> None:
    def interval(*rounds: RatioRound) -> tuple[float, float]:
        low, high = compared(rounds, most=1.3)[1] or (0.0, 0.0)
        return low, high

    assert interval(*[RatioRound(10, 15, 10)] * 5) == (1.5, 1.5)
    uneven = interval(*[RatioRound(10, 15, 12)] * 5)
    assert 15 / 12 <= uneven[0] < 15 / 11 < uneven[1] <= 15 / 10
    rounds = [RatioRound(10, beside, 10) for beside in (12, 14, 15, 16, 21)]
    assert interval(*rounds) == (1.2, 2.1) and compared(rounds, most=1.3)[0] == 1.5
    assert interval(*[RatioRound(10 * slow, 15 * slow, 10 * slow) for slow in (1, 2, 9)]) == (
        1.5,
        1.5,
    )  # a drift is none


def test_one_round_leaves_a_ratio_beyond_its_bound_unknown() -> None:
    line = {**BESIDE, "gap_ratio": 1.5, "gap_interval": None}
    (worst, *_) = verdicts({"beside": [line]})
    assert (worst.held, worst.in_words) == (None, "one round")
    assert misses({"beside": [line]}) == [] and "see --rounds" in not_known({"beside": [line]})[0]
    assert not_known({"beside": [{**line, "gap_interval": [1.2, 1.6]}, {**line, "gap_ratio": 1.3}]}) == []


def test_a_ratio_that_is_surely_beyond_its_bound_is_worse_than_a_larger_one_that_may_hold() -> None:
    sure, unsure = {"gap_ratio": 1.5, "gap_interval": [1.4, 1.6]}, {"gap_ratio": 2.0, "gap_interval": [1.2, 4.0]}
    lines = [{**BESIDE, **unsure, "shape": "unsure"}, {**BESIDE, **sure, "shape": "sure"}]
    assert verdicts({"beside": lines})[0].shape == "sure"


@pytest.mark.parametrize(("over", "interval", "missed"), [(1.4, [1.05, 1.6], False), (1.2, [1.11, 1.3], True)])
def test_a_time_between_tokens_that_the_machine_imposes_is_at_its_limit(
    over: float, interval: list[float], missed: bool
) -> None:
    line = {**BESIDE, "gap_ratio": 2.5, "gap_interval": [2.0, 3.0]}
    assert misses({"beside": [line]}) and not at_limit({"beside": [line]})
    limited = {"beside": [{**line, "limit": {"over": over, "over_interval": interval}}]}
    assert (bool(misses(limited)), bool(at_limit(limited))) == (missed, not missed)
    (worst, *_) = verdicts(limited)
    assert (worst.held, worst.in_words) == (False, "NOT HELD" if missed else "at limit")


def test_bodies_that_are_accepted_have_a_limit_with_as_many_slight_ones() -> None:
    load = AbuseLoad("", 1, SIZE, 2 * SIZE, 16, 3, 3.0, 0.8, 32.0, 0, (SIZE,), True)
    window = Beside(ConnectionWindow(0.0, 3.0, 0.0, 0.0), [], {}, 0, {})

    def slight(shape: str, statuses: dict[str, int]) -> Attack | None:
        found = window._replace(answers={CLIENT: Attacked(sum(statuses.values()), 1.0, 1.0, 0.0, 0.0, statuses)})
        return next(iter(slight_attack(load, shape, SIZE, found).values()), None)

    attack = slight("numbers", {"200": 50, "late": 46})
    assert attack is not None and not attack.control
    assert attack.num == attack_of(load, "numbers", SIZE)[CLIENT].num
    (small,) = requests_of(attack)
    assert SLIGHT / 2 < len(small) < 2 * SLIGHT
    assert slight("numbers", {"400": 96}) is None
    assert slight("many prompts", {"200": 2}) is None  # its control is the same work already
    control = slight("an ambiguous grammar", {"200": 4})
    assert control is not None and control.control


def test_a_burner_burns_what_it_is_asked_for_and_ends_in_time() -> None:
    assert burn(Burn(cpu_s=0.01, num=1, seconds=60.0)).cpu_s >= 0.01
    assert burn(Burn(cpu_s=60.0, num=1, seconds=0.01)).cpu_s < 60


def test_what_streams_cost_the_readers_is_not_burnt() -> None:
    """Half as many of their tokens came beside the client as without it."""
    nothing = ConnectionWindow(0.0, 3.0, 0.0, 0.0)
    alone = Beside(nothing, [], {"server": 0.3, "tokenizer": 0.2}, 100, {})
    sent = Attacked(7, 7.0, 1.0, 0.0, 0.04, {"400": 7})
    beside = Beside(nothing, [], {"server": 0.9, "tokenizer": 0.05}, 50, {CLIENT: sent})
    burnt = {"server": 0.75, "tokenizer": 0.0, CLIENT: 0.04}
    assert burns_of(beside, alone) == {role: Burn(cpu_s, 7, 3.0) for role, cpu_s in burnt.items()}


def test_a_run_makes_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"SETTLE_S": 0.1, "SMALL": SIZE, "LARGE": 2 * SIZE, "COST_MIB": 0}.items():
        monkeypatch.setattr(bench, name, value)
    monkeypatch.setattr(cost, "IDLE_S", 0.1)
    monkeypatch.setattr(connections, "TOKENS", 16)  # of each stream, whose end is awaited
    monkeypatch.setattr(flood, "FLOODS", (CONTROL,))
    monkeypatch.setattr(flood, "GIVEN_BACK_S", 0.1)
    monkeypatch.setattr(flood, "CONNECTIONS", 4)
    lines = tmp_path / "lines.jsonl"
    argv = ["--shape", "messages", "--shape", "prompts of many contexts", "--size", "small"]
    argv += ["--limit", "--rounds", "1", "--streams", "2", "--window-s", "0.3", "--rate-mib-s", "1"]
    served = ["--", "--runner", "scripted", "--scripted-step-ms", "40"]
    bench.main(
        [*argv, "--output-file", str(lines), *served]
    )  # the exit code says whether the bounds hold, which they may not on a busy machine
    (record,) = map(json.loads, lines.read_text().splitlines())
    printed = capsys.readouterr().out
    assert record["bench"] == "abuse", printed
    on_route = "plain text to /v1/messages"
    costs = {(each["shape"], each["size"]): each for each in record["cost"]}
    assert costs.keys() == {(shape, SIZE) for shape in ("messages", on_route, "prompts of many contexts")}
    assert all(each["ms_per_mib"] > 0 for each in record["cost"])
    assert costs[on_route, SIZE]["route_ratio"] == 1
    assert {(each["shape"], each["size"]) for each in record["beside"]} == {
        (shape, SIZE) for shape in ("messages", on_route, "prompts of many contexts")
    }
    for each in record["beside"]:
        assert each["gap_interval"] is None and each["limit"]["ratio"] > 0
        assert each["gap_ms"] > 0 and each["health_s"] > 0 and sum(each["statuses"].values()) >= 1
    assert len(record["flood"][0]["left_mib"]) == 3
    named = {each["name"]: each for each in record["criteria"]}
    assert named["p99 between tokens, over the control's"]["most"] == 1.3
    assert all(name in printed for name in named)
