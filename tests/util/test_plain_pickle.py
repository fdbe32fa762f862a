"""A pickle is read as data alone: whatever would run or build something is refused."""

from __future__ import annotations

import collections
import os
import pickle
from typing import Any

import numpy as np
import pytest

from foretrace.errors import TraceError
from foretrace.util.limits import OBJECTS
from foretrace.util.plain_pickle import MOST_DEPTH, load_plain

PLAIN = {
    "segments": [{"address": 2**47, "blocks": [("a", 1, -2, 2.5)], "on": True, "off": None}],
    3: [[], {}, (), b"bytes", "é", 10**30],
}


class Evil:
    """What a pickle would call."""

    def __reduce__(self) -> Any:
        """Ask for a command."""
        return os.system, ("exit 1",)


def read(raw: bytes) -> Any:
    """Return what *raw* holds."""
    return load_plain(raw, "x.pickle", TraceError, OBJECTS)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_containers_come_out_as_they_went_in(protocol: int) -> None:
    """Of every protocol, shared parts and all."""
    shared = {"part": [1, 2]}
    value = {**PLAIN, "shared": [shared, shared]} if protocol > 2 else {"a": [1, (2.5, "x"), None]}

    assert read(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize(
    "value",
    [Evil(), {"a": [Evil()]}, collections.OrderedDict(a=1), np.array([1]), {1, 2}, os.getcwd],
)
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_classes_and_functions_are_refused(value: object, protocol: int) -> None:
    """Before anything is looked up."""
    with pytest.raises(TraceError, match="makes more than plain containers; it was not read"):
        read(pickle.dumps(value, protocol))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x80",
        b"\x80\x04.",
        b"no pickle at all",
        b"\x80\x04K\x01K\x02.",
        b"\x80\x04(.",
        b"\x80\x04\x85.",
        b"\x80\x04e.",
        b"\x80\x04]K\x01s.",
        b"\x80\x04}]K\x01s.",
        b"\x80\x04}(K\x01u.",
        b"\x80\x04h\x07.",
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fx.",
        b"\x80\x04r\xff\xff\xff\xffK\x01.",
        pickle.dumps(PLAIN)[:-5],
    ],
)
def test_what_is_broken_is_refused_in_one_sentence(raw: bytes) -> None:
    """Cut short, without marks, with texts longer than the file, keys that are lists."""
    with pytest.raises(TraceError, match="no sound pickle"):
        read(raw)


def test_a_memo_of_any_number_takes_no_memory() -> None:
    """The C unpickler makes room for as many entries as the number says."""
    assert read(b"\x80\x04K\x01r\xf0\xff\xff\x7f.") == 1


def test_instructions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file has no millions of them; the sentence names the variable."""
    monkeypatch.setenv(OBJECTS.variable, "50")

    with pytest.raises(TraceError, match=OBJECTS.variable):
        read(pickle.dumps(list(range(100))))


def nested(depth: int) -> list[Any]:
    """Return a list of so many lists, each but the last with one in it."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_depth_is_bounded() -> None:
    """As many as may be, one more, and a hundred thousand, which no recursion would survive."""
    assert read(pickle.dumps(nested(MOST_DEPTH))) == nested(MOST_DEPTH)
    endless = b"\x80\x04" + b"]" * 100_000 + b"a" * 99_999 + b"."
    for raw in (pickle.dumps(nested(MOST_DEPTH + 1)), endless):
        with pytest.raises(TraceError, match="more than 64 deep"):
            read(raw)


def test_what_holds_itself_is_refused() -> None:
    """A list that is its own entry has no depth."""
    value: list[Any] = []
    value.append(value)

    with pytest.raises(TraceError, match="more than 64 deep"):
        read(pickle.dumps(value))


def test_shared_parts_are_looked_at_once() -> None:
    """Two to the power of fifty leaves, in fifty lists."""
    value: list[Any] = ["leaf"]
    for _ in range(50):
        value = [value, value]

    assert len(read(pickle.dumps(value))) == 2
