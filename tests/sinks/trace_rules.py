"""A checker of the Trace Event Format: the rules of the format, and the errors of Perfetto's importer."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

Event = dict[str, Any]

_KEYS = {
    "M": ({"name", "pid", "tid", "args"}, set()),
    "X": ({"name", "cat", "pid", "tid", "ts", "dur"}, {"args"}),
    "C": ({"name", "pid", "tid", "ts", "args"}, set()),
}
"""By phase of an event: the keys that it must have, and those that it may have."""
_METADATA = {
    "process_name": "name",
    "thread_name": "name",
    "thread_sort_index": "sort_index",
}


def check(text: str) -> list[Event]:
    """Check a whole trace in the array form, and return its events."""
    return check_events(json.loads(text))


def check_events(events: list[Event]) -> list[Event]:
    """Check the events of a whole trace, and return them."""
    json.dumps(events, allow_nan=False)
    for event in events:
        _check_keys(event)
    slices = [event for event in events if event["ph"] == "X"]
    _check_tracks(events, slices)
    tracks: dict[tuple[int, int], list[Event]] = {}
    for event in slices:
        tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    for track in tracks.values():
        _check_nesting(track)
    return events


def _check_keys(event: Event) -> None:
    must, may = _KEYS[event["ph"]]
    keys = event.keys() - {"ph"}
    assert must <= keys <= must | may, event
    assert isinstance(event["name"], str)
    assert event["name"]
    assert all(isinstance(event[key], int) and 0 < event[key] < 2**31 for key in ("pid", "tid"))
    if event["ph"] == "M":
        assert set(event["args"]) >= {_METADATA[event["name"]]}
        return
    for key in {"ts", "dur"} & keys:  # no negative times; and what multiplies by 1000 and cuts off loses nothing
        assert event[key] >= 0, event
        assert event[key] * 8 == int(event[key] * 8), event
        assert event[key] < 2**43, "an eighth of a microsecond is no exact double any more"
    if event["ph"] == "C":
        assert event["args"]
        assert all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in event["args"].values())


def _check_tracks(events: list[Event], slices: list[Event]) -> None:
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    names = [(event["pid"], event["args"]["name"]) for event in events if event["name"] == "thread_name"]
    assert len(set(names)) == len(names), "two tracks of one name"
    assert {(event["pid"], event["tid"]) for event in slices} == named
    processes = Counter(event["pid"] for event in events if event["name"] == "process_name")
    assert set(processes.values()) == {1}
    assert set(processes) == {event["pid"] for event in events}
    assert len({event["tid"] for event in slices}) == len(named), "a number for each track, whichever its process"


def _check_nesting(track: list[Event]) -> None:
    """The slices of a track are in order of time, and any two are nested or disjoint."""
    open_: list[tuple[float, float]] = []
    last = 0.0
    for event in track:
        start, end = event["ts"], event["ts"] + event["dur"]
        assert start >= last, f"{event} is out of order"
        last = start
        while open_ and open_[-1][1] <= start:
            open_.pop()
        assert not open_ or end <= open_[-1][1], f"{event} sticks out of {open_[-1]}"
        open_.append((start, end))
