"""Not a fake: what a timeline must be by the Chrome trace event format, so that Perfetto's importer takes all of it."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

METADATA = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index"}


def read_timeline(data: bytes | Path) -> list[dict[str, Any]]:
    """Its events, of which each is checked."""
    raw = data.read_bytes() if isinstance(data, Path) else data
    document = json.loads(gzip.decompress(raw))
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"} and document["displayTimeUnit"] == "ms"
    events: list[dict[str, Any]] = document["traceEvents"]
    for event in events:
        check_event(event)
    timed = [event["ts"] for event in events if event["ph"] != "M"]
    assert timed == sorted(timed)
    check_names(events)
    check_tracks(events)
    return events


def check_event(event: dict[str, Any]) -> None:
    assert isinstance(event["name"], str) and event["name"] and isinstance(event["pid"], int) and event["pid"] > 0
    assert isinstance(event["args"], dict)
    match event["ph"]:
        case "M":
            assert set(event) == {"name", "ph", "pid", "tid", "args"} and set(event["args"]) == {
                METADATA[event["name"]]
            }
        case "X":
            assert set(event) == {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"}
            assert event["ts"] >= 0 and event["dur"] >= 0 and isinstance(event["tid"], int)
        case "C":
            assert set(event) == {"name", "ph", "ts", "pid", "args"} and event["ts"] >= 0
            assert event["args"] and all(isinstance(value, int | float) for value in event["args"].values())
        case other:
            raise AssertionError(other)


def check_names(events: list[dict[str, Any]]) -> None:
    """Every process and track that has slices has one name."""
    named = [(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"]
    assert len(named) == len(set(named))
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"} <= set(named)
    processes = [event["pid"] for event in events if event["name"] == "process_name"]
    assert len(processes) == len(set(processes)) and {event["pid"] for event in events} == set(processes)


def check_tracks(events: list[dict[str, Any]]) -> None:
    """Slices of a track follow one another or lie inside one another."""
    tracks = defaultdict[tuple[int, int], list[tuple[int, int]]](list)
    for event in events:
        if event["ph"] == "X":
            begin = round(event["ts"] * 1000)
            tracks[event["pid"], event["tid"]].append((begin, begin + round(event["dur"] * 1000)))
    for slices in tracks.values():
        open_until: list[int] = []
        for begin, end in sorted(slices, key=lambda each: (each[0], -each[1])):
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or end <= open_until[-1], (begin, end, open_until)
            open_until.append(end)
