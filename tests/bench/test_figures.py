"""bench/figures/: the newest line of each machine class is shown, and a sentence only where its figures bear it out."""

import copy
import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ramet.bench import stamp
from ramet.bench.figures import page, records, svg
from ramet.bench.figures.questions import QUESTIONS, views_of
from ramet.bench.figures.records import machine_class, variant
from ramet.bench.figures.svg import THEMES, Plot, Row, Value
from ramet.bench.loads import Load
from ramet.bench.offline import _outcome
from ramet.bench.programs.catalogue import BY_NAME

ROOT = Path(__file__).resolve().parents[2]
RESULTS = records.read(ROOT / "bench" / "results")
FRAME = (ROOT / "bench" / "figures" / "frame.md").read_text()
COSTS = """# Costs

## What does a token cost?

How it is measured.

<!-- view: pipeline -->

<!-- holds: server < scheduler -->
The scheduler takes {scheduler:.1f}.

<!-- holds: scheduler <= server -->
The server takes {server:.1f}.

<!-- holds: 0 < nothing_like_it -->
There is {nothing_like_it}.
"""


def line(
    scheduler: float, time: str = "2027-01-01T00:00:00+00:00", cpu: str = "A", command: str = ""
) -> dict[str, Any]:
    record = copy.deepcopy(RESULTS["pipeline"][0])
    record["cpu_us_per_token"] = {"scheduler": scheduler, "server": 5.0}
    record["machine"] |= {"cpu": cpu}
    return record | {"time": time, "command": command or record["command"]}


def test_the_newest_line_is_shown_wherever_it_stands(tmp_path: Path):
    lines = [line(7.0, time="2027-01-02T00:00:00+00:00"), line(8.0), line(9.0)]
    (tmp_path / "pipeline.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    text = page.make(COSTS, records.read(tmp_path)).page
    assert "The scheduler takes 7.0." in text and "8.0" not in text and "9.0" not in text


def test_each_machine_class_has_its_own_newest_line_and_its_own_plots():
    made = page.make(COSTS, {"pipeline": [line(7.0, cpu="A"), line(8.0, cpu="B"), line(9.0, cpu="A")]})
    a, b = made.page.split("**B, 2 cores**")
    assert "scheduler takes 9.0" in a and "scheduler takes 8.0" in b and "7.0" not in made.page
    assert sorted(made.plots) == [f"pipeline-{cpu}-2-cores.{theme}.svg" for cpu in "ab" for theme in ("dark", "light")]


def test_one_cpu_name_with_other_instructions_is_another_class():
    old, new = line(1.0), line(1.0)
    new["machine"]["instructions"] = ["avx2", "amx_bf16"]
    assert machine_class(old) != machine_class(new) and machine_class(new).name == "A, 2 cores, with amx_bf16"


def test_a_sentence_is_shown_only_where_its_condition_holds():
    assert "The server takes 5.0." in page.make(COSTS, {"pipeline": [line(4.0)]}).page
    assert "The server takes" not in page.make(COSTS, {"pipeline": [line(6.0)]}).page


def test_figures_without_a_sentence_that_holds_say_so():
    frame = COSTS.replace("scheduler <= server", "scheduler <= 1")
    assert page.NO_CONCLUSION in page.make(frame, {"pipeline": [line(4.0)]}).page


def test_a_question_without_a_line_is_left_out():
    made = page.make(COSTS, {"pipeline": []})
    assert made.page == "# Costs\n" and not made.plots


def test_other_options_are_another_series_and_other_rounds_are_not():
    command = "python -m ramet bench pipeline"
    lines = [line(6.0), line(7.0, command=f"{command} --chat"), line(8.0, command=f"{command} --rounds 9")]
    (view,) = views_of("pipeline", {"pipeline": lines}).values()
    assert view.plot.series == ("completions", "--chat") and view.numbers["scheduler"] == 8.0
    assert variant(line(1.0, command=f"X=1 {command} --chat --rounds=2 --output-file a")) == "X=1 --chat"


def test_no_more_series_are_shown_than_there_are_colours():
    lines = [line(6.0, command=f"python -m ramet bench pipeline --streams {num}") for num in range(1, 7)]
    made = page.make(COSTS, {"pipeline": lines})
    (view,) = views_of("pipeline", {"pipeline": lines}).values()
    assert view.plot.series == ("--streams 3", "--streams 4", "--streams 5", "--streams 6") and made.plots


@pytest.mark.parametrize(
    ("condition", "is_so"),
    [("1 < a", True), ("a <= 2 < b", True), ("b < a", False), ("1 < a and b < a", False), ("a >= 2", True),
     ("-1 < a", True), ("1 < unknown", False), ("a < b < 2.5", False)],
)  # fmt: skip
def test_conditions_are_chains_of_comparisons(condition: str, is_so: bool):
    assert page.holds(condition, {"a": 2.0, "b": 3.0}) is is_so


def sections() -> list[tuple[str, str]]:
    """(view, conclusions) of every section of the frame."""
    found = page.VIEW.split(FRAME)
    return list(zip(found[1::2], found[2::2]))


@pytest.mark.parametrize(("name", "written"), sections(), ids=[name for name, _ in sections()])
def test_every_name_in_a_conclusion_is_a_number_of_its_view(name: str, written: str):
    question = QUESTIONS[name]
    more = {"offline": [grown()], "programs": [*workloads()], "peers": peer_lines()}.get(question.file, [])
    lines = [each for each in [*RESULTS[question.file], *more] if question.fits(each)]
    known = {number for each in lines for number in question.view([each]).numbers}
    conclusions = page.CONCLUSION.findall(written.split("\n## ")[0])
    assert conclusions
    for condition, text in conclusions:
        words = {word for chain in condition.split(" and ") for word in chain.split()[::2] if word[0].isalpha()}
        assert words | page.cited(text) <= known


def grown() -> dict[str, Any]:
    """A line of `ramet bench offline --grow`, with other loads and round figures."""
    record = {key: RESULTS["offline"][0][key] for key in ("time", "command", "commit", "machine", "versions")}
    loads = [Load("a", 1, 0, 256, 100, 1.0, 1), Load("b", 4, 0, 256, 100, 1.0, 4), Load("c", 1, 0, 512, 1, 1.0, 1)]
    loads += [Load(f"d{num}", 1, 0, num, 10, 1.0, 1, cached=True) for num in (64, 128)]
    seconds = [[2.0, 1.0, 4.0], [4.0], [0.25], [1.0], [1.5]]
    return record | {"growth": [_outcome(load, {"ramet": each}) for load, each in zip(loads, seconds)]}


def peer_lines() -> list[dict[str, Any]]:
    """A line of each kind of `ramet bench peers`."""
    record = {key: RESULTS["peers"][0][key] for key in ("time", "command", "commit", "machine", "versions")}
    record |= {"model": "160m", "weights": "two-byte", "missing": ["Gone is not installed (make peers)"]}
    load = {"load": "batch", "requests": 4, "shared": 0, "own": 9, "output": 10}
    versions = {name: {"version": "1", "start_s": 2.0} for name in ("ramet", "A", "B", "ramet /generate")}
    seconds = {"ramet": [1.0, 2.0], "A": [2.0, 3.0], "B": [1.5, 3.0]}
    against = {"seconds": seconds, "limit_s": 0.75, "best": "B", "ratio": 1.5}
    against["ratios"] = {"A": [1.75, 1.5, 2.0], "B": [1.5, 1.4, 1.6]}
    through = {"seconds": {"ramet": [1.0], "ramet /generate": [1.25]}, "ratios": {"ramet /generate": [1.25, 1.0, 2.0]}}
    through["client_cores"] = {"ramet /generate": 0.02}
    beside = {"engine": "ramet", "quiet_s": [1.0], "busy_s": [2.0], "kept": [0.5, 0.4, 0.6]}
    started = {"version": "1", "start_s": [1.0, 3.0, 2.0], "peak_bytes": 900_000_000, "kv_bytes": 100_000_000}
    return [
        record | {"kind": "engines", "peers": versions, "loads": [load | against]},
        record | {"kind": "http", "peers": versions, "loads": [load | through]},
        record | {"kind": "busy", "peers": versions, "loads": [load | beside]},
        record | {"kind": "starts", "peers": {"ramet /generate": started}},
    ]


def figures_of(name: str, programs_per_s: float, **more: Any) -> dict[str, Any]:
    figures = {
        "programs": 4, "requests": 8, "wall_s": 2.0, "prompt_tokens": 1000, "output_tokens": 60, "cached_tokens": 600,
        "best_cached_tokens": 800, "prefill_tokens": 400, "steps": 30, "retractions": 0, "request_s": 0.5,
        "latency_s": 1.0, "hit_rate": 0.6, "best_hit_rate": 0.8, "programs_per_s": programs_per_s, "batch": 2.0,
    }  # fmt: skip
    return figures | more


def workloads() -> list[dict[str, Any]]:
    """A line on a model, one without, and one of ablations on each."""
    record = {key: RESULTS["offline"][0][key] for key in ("time", "command", "commit", "machine", "versions")}
    plain = {
        name: {
            "all": figures_of(name, 3.0),
            "neither": figures_of(
                name, 1.0, prefill_tokens=1000, latency_s=4.0, request_s=1.0, hit_rate=0.0, cached_tokens=0
            ),
            **({"no jump-forward": figures_of(name, 2.0, steps=60)} if each.compiles else {}),
        }
        for name, each in BY_NAME.items()
    }
    few = ("mmlu", "react", "tree-of-thought")
    parts = {name: {"all": figures_of(name, 4.0), "no cache": figures_of(name, 1.0),
                    "no parallelism": figures_of(name, 2.0)} for name in few}  # fmt: skip
    orders = {name: {"all": figures_of(name, 4.0), "fcfs": figures_of(name, 3.0), "random": figures_of(name, 2.0)}
              for name in few}  # fmt: skip
    found = {name: {"all": each["all"]} for name, each in plain.items()}
    made = {"model": (plain, parts), "scripted": (found, orders)}
    return [record | {"runner": runner, "workloads": each} for runner, lines in made.items() for each in lines]


def test_programs_are_shown_beside_the_papers_and_by_what_they_lack():
    lines = {"programs": workloads()}
    (speed,) = views_of("programs", lines).values()
    rows = {row[0]: row for row in speed.rows}
    mmlu = ("mmlu (4)", "3.00", "4.4", "25%", "50%", "", "2.0 / 2.0", "400 / 1,000", "2.50", "30 / 30", "60%")
    assert rows["mmlu (4)"] == mmlu
    assert rows["react (4)"][2:6] == ("5.6", "25%", "50%", "13%")
    assert rows["json-fields (4)"][-2] == "30 / 30 / 60" and not any(name.startswith("shared") for name in rows)
    assert (speed.numbers["mmlu_tokens"], speed.numbers["json_fields_jumps"]) == (2.5, 2.0)
    (sharing,) = views_of("sharing", lines).values()
    assert sharing.rows[0][1:] == ("60%", "3.00", "3.00 / 1.00", "2.00 / 2.00", "0.50 / 1.00")
    assert all(name.startswith(("shared", "articles")) for name, *_ in sharing.rows)
    (found,) = views_of("hit_rates", lines).values()
    assert found.numbers == {"mean": 0.75, "least": 0.75}
    assert found.rows[0][1:] == ("60.0%", "80.0%", "75.0%", "400 of 1,000", "2.50")
    (parts,) = views_of("parts", lines).values()
    assert parts.rows[1] == ("react", "60%", "0.25 (60%)", "0.50 (60%)")
    (orders,) = views_of("policies", lines).values()
    assert orders.rows[0][2:] == ("0.75 (60%)", "0.50 (60%)")


def test_a_variant_is_shown_as_it_was_measured_last_beside_those_of_other_lines():
    line = workloads()[1]
    hints = {"react": {"all": figures_of("react", 2.0, hit_rate=0.5), "no hints": figures_of("react", 3.0)}}
    again = {"react": {"all": figures_of("react", 2.0), "no cache": figures_of("react", 1.0)}}
    lines = [line, line | {"workloads": hints}, line | {"workloads": again}]
    (parts,) = views_of("parts", {"programs": lines}).values()
    assert parts.header[2:] == tuple(f"{name}: ratio (hit rate)" for name in ("no cache", "no parallelism", "no hints"))
    assert parts.rows[1] == ("react", "60%", "0.50 (60%)", "0.50 (60%)", "1.50 (60%)")
    assert parts.rows[2] == ("tree-of-thought", "60%", "0.25 (60%)", "0.50 (60%)", "")
    assert [row.values[2] for row in parts.plot.rows] == [None, Value(1.5), None]
    assert parts.sources == tuple(lines)


def test_a_workload_that_was_measured_again_is_shown_as_it_was_then():
    line = workloads()[0]
    again = {name: figures | {"programs_per_s": figures["programs_per_s"] * factor} for factor, (name, figures)
             in zip((2, 1), line["workloads"]["react"].items())}  # fmt: skip
    later = line | {"time": "2999-01-01T00:00:00+00:00", "workloads": {"react": again}}
    (speed,) = views_of("programs", {"programs": [line, later]}).values()
    rows = {row[0]: row[1] for row in speed.rows}
    assert (rows["react (4)"], rows["mmlu (4)"]) == ("6.00", "3.00") and speed.sources == (line, later)


def test_growth_is_of_the_batches_and_of_the_prompts_of_one_line():
    (batches,) = views_of("growth", {"offline": [grown(), RESULTS["offline"][0]]}).values()
    assert batches.rows == (("1", "50.0", "50.0"), ("4", "100.0", "25.0"))
    assert batches.numbers == {"most": 4, "each_alone": 50.0, "each_together": 25.0, "ramet_gain": 2.0}
    assert batches.plot.rows[0].values == (Value(50.0, 25.0, 100.0),)
    (lengths,) = views_of("prompts", {"offline": [grown()]}).values()
    assert lengths.rows == (("512", "250", "2,048"),)


def test_a_context_that_doubles_is_compared_with_its_half():
    (contexts,) = views_of("context_growth", {"offline": [grown()]}).values()
    assert contexts.rows == (("64", "10.0"), ("128", "6.7"))
    assert contexts.numbers["dearest_context"] == 1.5 and contexts.numbers["longest"] == 128


def test_each_kind_of_line_of_the_peers_has_its_view():
    lines = {"peers": peer_lines()}
    (engines,) = views_of("engines", lines).values()
    assert [row[1:] for row in engines.rows] == [
        ("ramet 1", "26.7", "2.67", "50%", ""), ("A 1", "16.0", "1.60", "30%", "1.75 (1.50 to 2.00)"),
        ("B 1", "17.8", "1.78", "33%", "1.50 (1.40 to 1.60)"),
        ("not measured: Gone is not installed (make peers)", "", "", "", ""),
    ]  # fmt: skip
    assert engines.plot.rows == (Row("160m batch: B", (Value(1.5, 1.4, 1.6),)),)
    assert [engines.numbers[f"160m_batch_{what}"] for what in ("ratio", "low", "high")] == [1.5, 1.4, 1.6]
    (http,) = views_of("http", lines).values()
    assert http.rows == (("160m batch", "/generate", "0.80 (0.50 to 1.00)", "2.0%"),) and http.numbers["least"] == 0.8
    (busy,) = views_of("busy", lines).values()
    assert busy.rows == (("160m batch", "ramet", "0.50 (0.40 to 0.60)"),) and busy.numbers == {"least": 0.5}
    (starts,) = views_of("engine_starts", lines).values()
    assert starts.rows == (("160m", "ramet /generate 1", "2.00", "900", "800"),)


SURE = {"ratio": 1.5, "low": 1.25, "high": 2.0}
UNSURE = {"ratio": 1.18, "low": 0.95, "high": 1.23}


@pytest.mark.parametrize(
    ("single", "batch", "said"),
    [
        (SURE, SURE, "ramet is 1.50 times as fast as the best other engine of the table for one request, 1.50 times"),
        (UNSURE, SURE, "the median is 1.18 times, and its interval, 0.95 to 1.23, includes 1"),
        (SURE, UNSURE, "For 32 requests that share nothing the best other engine may be as fast: the median is 1.18"),
    ],
)
def test_a_headline_names_the_interval_that_includes_1(single: dict[str, float], batch: dict[str, float], said: str):
    loads = {"single": single, "batch": batch, "shared": SURE}
    numbers = {f"160m_{load}_{what}": value for load, each in loads.items() for what, value in each.items()}
    (headline,) = page.conclusions(dict(sections())["engines"], numbers)
    assert said in " ".join(headline.split())


def test_the_ratio_of_a_line_without_an_interval_is_its_own():
    line = peer_lines()[0]
    for load in line["loads"]:
        del load["ratios"]
    numbers = views_of("engines", {"peers": [line]}).popitem()[1].numbers
    assert numbers["160m_batch_low"] == numbers["160m_batch_high"] == 1.5


def test_every_view_that_has_lines_is_on_the_page_or_in_tuning():
    shown = {name for name, _ in sections()} | {"tuning"}
    assert shown == set(QUESTIONS)


def test_the_frame_has_a_conclusion_that_holds_for_each_class_today():
    assert page.NO_CONCLUSION not in page.make(FRAME, RESULTS).page


PLOTS = {
    "bars": Plot("t", "s", ("x",), (Row("a", (Value(3.0),)), Row("b", (Value(0.0),)))),
    "one row": Plot("t", "s", ("x",), (Row("a", (Value(0.001),)),), "{:.3f}"),
    "nothing but zero": Plot("t", "s", ("x",), (Row("a", (Value(0.0),)),)),
    "a gap": Plot("t", "s", ("x", "y"), (Row("a", (Value(3.0), None)), Row("b", (None, Value(5.0))))),
    "intervals around zero": Plot("t", "s", ("x",), (Row("a", (Value(0.01, -0.2, 0.3),)),), "{:.1%}", points=True),
    "below zero": Plot("t", "s", ("x",), (Row("a", (Value(-4.0, -5.0, -3.0),)),)),
    "a mark beyond": Plot("t", "s", ("x",), (Row("a", (Value(9.0),)),), mark=(10.0, "limit")),
    "signs": Plot('a < b & "c"', "s", ("x & y", "<z>"), (Row("<&>", (Value(1.0), Value(2e6))),), "{:,.0f}"),
    "a long label": Plot("t", "s", ("x",), (Row("--a-rather-long-option-of-the-server 1024", (Value(1e9),)),)),
}


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
@pytest.mark.parametrize("plot", PLOTS.values(), ids=list(PLOTS))
def test_a_plot_is_xml_whose_parts_lie_on_its_canvas(plot: Plot, theme: svg.Theme):
    root = ElementTree.fromstring(svg.draw(plot, theme))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for part in root.iter():
        for name, most in (("x", width), ("x1", width), ("x2", width), ("cx", width), ("y", height), ("y1", height)):
            assert 0 <= float(part.attrib.get(name, 0)) <= most, ElementTree.tostring(part)
        assert float(part.attrib.get("width", 0)) >= 0


@pytest.mark.parametrize("plot", PLOTS.values(), ids=list(PLOTS))
def test_a_plot_says_each_value_its_axis_and_its_labels(plot: Plot):
    said = [part.text for part in ElementTree.fromstring(svg.draw(plot, svg.LIGHT)).iter() if part.text]
    values = [plot.number.format(value.middle) for row in plot.rows for value in row.values if value]
    legend = plot.series if len(plot.series) > 1 else ()
    assert set(said) >= {plot.title, plot.axis, *legend, *values, *(row.label for row in plot.rows)}


def test_a_bar_is_as_long_as_its_value():
    plot = Plot("t", "s", ("x",), (Row("a", (Value(2.0),)), Row("b", (Value(6.0),))))
    root = ElementTree.fromstring(svg.draw(plot, svg.LIGHT))
    bars = [float(part.attrib["width"]) for part in root.iter() if part.attrib.get("fill") == svg.LIGHT.series[0]]
    assert bars[1] == pytest.approx(3 * bars[0], abs=0.3)


def test_the_text_of_a_value_is_not_crossed_by_the_mark():
    plot = Plot("t", "s", ("x",), (Row("a", (Value(100.0),)), Row("b", (Value(1000.0),))), mark=(110.0, "limit"))
    axes = svg.axes_of(plot)
    root = ElementTree.fromstring(svg.draw(plot, svg.LIGHT))
    (text,) = [part for part in root.iter() if part.text == "100" and "text-anchor" not in part.attrib]
    assert float(text.attrib["x"]) > axes.x(110.0)


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 6.0), (0.0, 534.5), (-0.046, 0.0723), (0.0, 0.0108), (0.0, 0.0), (-5.0, 0.0)]
)
def test_ticks_are_few_and_hold_the_range(low: float, high: float):
    ticks = svg.ticks(low, high)
    assert ticks[0] <= low and high <= ticks[-1] + 1e-12 and 2 <= len(ticks) <= svg.MAX_TICKS + 2
    assert len({round(b - a, 9) for a, b in pairwise(ticks)}) == 1


def test_instructions_are_named_oldest_first():
    assert stamp.matrix_instructions("fpu amx_bf16 avx512f avx2 avx512_bf16") == list(stamp.INSTRUCTIONS)
    assert stamp.matrix_instructions("fpu avx2 avx2x") == ["avx2"] and stamp.matrix_instructions("") == []
