"""Read operation-level timelines: one interval per operation of a pipeline-parallel job.

In: the Chrome-trace list that ByteDance's StragglerAnalysis publishes (Megatron-style training,
sampled steps). Out: a trace with one rank per (data-parallel rank, stage), one kernel event per
operation, and one annotation per rank and step.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from foretrace.errors import TraceError
from foretrace.tracer.data_issues import Tally
from foretrace.tracer.readers.columns import (
    LATEST_NS,
    encode_names,
    from_codes,
    merge_codes,
    nanoseconds,
)
from foretrace.tracer.trace import EVENT_COLUMNS, Trace, TraceMeta
from foretrace.util.schema import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MARK = b'"seq_id"'
HEAD = 1 << 16
"""The mark stands in the arguments of the first operation, so near the beginning."""
LANES = ("compute", "pp-comm", "tp-comm", "dp-comm", "misc")
"""Streams of a rank, by the names of the file's threads."""
THREAD = re.compile(r"PP rank (\d{1,5}), TP rank (\d{1,5}), (\S+)")
SHAPE = "timeline"
"""Name in `TraceMeta.extra`, and of the graph: {"dp": data-parallel ranks, "pp": stages}.

Rank = data-parallel rank x stages + stage."""
MOST_RANKS = np.iinfo(np.int16).max


class _Operations(NamedTuple):
    """One row per operation; times in ns, ``lane`` is a place in `LANES`."""

    name: pd.Categorical
    dp: Ints
    stage: Ints
    lane: Ints
    step: Ints
    place: Ints
    start_ns: Ints
    duration_ns: Ints

    def select(self, rows: Ints | NDArray[np.bool_]) -> _Operations:
        """Return some rows."""
        return _Operations(*(column[rows] for column in self))


def is_timeline(raw: bytes) -> bool:
    """Tell whether *raw*, a JSON text, is such a timeline: a list with a ``seq_id`` each."""
    return raw.lstrip()[:1] == b"[" and MARK in raw[:HEAD]


def read_timeline(raw: bytes, source: str) -> Trace:
    """Turn the text of a timeline into a trace.

    Parameters
    ----------
    raw
        The uncompressed file.
    source
        Its name, for messages.

    Raises
    ------
    TraceError
        It is no complete JSON, its threads are not named, it holds several tensor-parallel ranks
        or model chunks, or no operation.
    """
    tally = Tally()
    events = _decode(raw, source)
    operations = _drop_unusable(_operations(events, source), tally)
    if not len(operations.step):
        raise TraceError(f"{source}: no operation of this timeline has a time; record it again")
    stages, replicas = int(operations.stage.max()) + 1, int(operations.dp.max()) + 1
    if stages * replicas > MOST_RANKS:
        raise TraceError(f"{source}: more than {MOST_RANKS} ranks in one timeline; split it")
    origin = int(operations.start_ns.min())
    operations = operations._replace(start_ns=operations.start_ns - origin)
    meta = TraceMeta(
        format="timeline",
        source=source,
        ranks=tuple(range(stages * replicas)),
        world_size=stages * replicas,
        warnings=tally.counts(),
        extra={"origin_ns": origin, SHAPE: {"dp": replicas, "pp": stages}},
    )
    return Trace(_events(operations, operations.dp * stages + operations.stage), meta)


def _decode(raw: bytes, source: str) -> list[Any]:
    import msgspec

    number = Annotated[int, msgspec.Meta(ge=-1, le=LATEST_NS)]
    replica = Annotated[int, msgspec.Meta(ge=0, le=LATEST_NS)]
    arguments = msgspec.defstruct(
        "Arguments",
        [
            ("step", number | None, None),
            ("seq_id", number | None, None),
            ("model_chunk", number | None, None),
            ("name", str | None, None),
        ],
        gc=False,
    )
    event = msgspec.defstruct(
        "Event",
        [
            ("name", str),
            ("ph", str),
            ("pid", replica, 0),
            ("tid", int, 0),
            ("ts", float | None, None),
            ("dur", float | None, None),
            ("args", arguments, msgspec.field(default_factory=arguments)),
        ],
        gc=False,
    )
    try:
        decoded: list[Any] = msgspec.json.decode(raw, type=list[event])  # type: ignore[valid-type]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(
            f"{source}: no timeline of operations in complete JSON ({error}); copy it again"
        ) from None
    return decoded


def _operations(events: list[Any], source: str) -> _Operations:
    """Return the complete events whose thread says which rank and stream they belong to."""
    threads = {
        (e.pid, e.tid): THREAD.search(e.args.name or "")
        for e in events
        if e.ph == "M" and e.name == "thread_name"
    }
    operations = [e for e in events if e.ph == "X"]
    keys = [(e.pid, e.tid) for e in operations]
    place = {key: code for code, key in enumerate(dict.fromkeys(keys))}
    named = np.array([_thread(key, threads.get(key), source) for key in place]).reshape(-1, 3)
    code = np.fromiter(map(place.__getitem__, keys), np.int64, len(keys))
    if (named[:, 1] > 0).any():
        raise TraceError(f"{source}: several tensor-parallel ranks; give the timeline of rank 0")
    if any((e.args.model_chunk or 0) > 0 for e in operations):
        raise TraceError(
            f"{source}: its stages hold several model chunks (interleaved); this is not supported"
        )
    start, known = nanoseconds([np.nan if e.ts is None else e.ts for e in operations])
    length, measured = nanoseconds([np.nan if e.dur is None else e.dur for e in operations])
    return _Operations(
        name=encode_names([e.name for e in operations]),
        dp=np.array([pid for pid, _ in keys], np.int64),
        stage=named[code, 0],
        lane=named[code, 2],
        step=_ids([e.args.step for e in operations]),
        place=_ids([e.args.seq_id for e in operations]),
        start_ns=np.where(known, start, -1),
        duration_ns=np.where(measured, length, -1),
    )


def _thread(key: tuple[int, int], match: re.Match[str] | None, source: str) -> tuple[int, int, int]:
    """Return stage, tensor-parallel rank and lane of a thread."""
    if match is None or match[3] not in LANES:
        raise TraceError(
            f"{source}: thread {key[1]} of process {key[0]} is not named "
            "'PP rank ..., TP rank ..., compute' or the like"
        )
    return int(match[1]), int(match[2]), LANES.index(match[3])


def _ids(values: list[int | None]) -> Ints:
    return np.array([-1 if value is None else value for value in values], np.int64)


def _drop_unusable(operations: _Operations, tally: Tally) -> _Operations:
    """Drop operations without a time or a place, and repeated ones; count them."""
    bad = operations.start_ns < 0
    unplaced = ~bad & ((operations.step < 0) | (operations.place < 0))
    tally.add("bad_timestamp", np.count_nonzero(bad))
    tally.add("unreadable_events", np.count_nonzero(unplaced))
    operations = operations.select(~bad & ~unplaced)
    negative = operations.duration_ns < 0
    tally.add("negative_duration", np.count_nonzero(negative))
    operations = operations._replace(duration_ns=np.where(negative, 0, operations.duration_ns))
    identity = {"name": operations.name.codes}
    identity |= {c: getattr(operations, c) for c in ("dp", "stage", "lane", "step", "place")}
    again = pd.DataFrame(identity).duplicated().to_numpy()
    tally.add("duplicate_events", np.count_nonzero(again))
    return operations.select(~again)


def _events(operations: _Operations, rank: Ints) -> pd.DataFrame:
    """Return the event table: the operations, and an annotation per rank and step around them."""
    groups = pd.DataFrame(
        {"rank": rank, "step": operations.step, "start": operations.start_ns,
         "end": operations.start_ns + operations.duration_ns}
    ).groupby(["rank", "step"])  # fmt: skip
    begin, end = groups["start"].min(), groups["end"].max()
    steps = begin.index.get_level_values("step")
    count, marks = len(rank), len(begin)
    names = [*operations.name.categories, *(f"step {number}" for number in steps.unique())]
    mark = len(operations.name.categories) + pd.factorize(steps)[0]
    values: dict[str, Any] = {
        "name": np.concatenate([mark, operations.name.codes.astype(np.int64)]),
        "kind": np.repeat([1, 0], [marks, count]),
        "rank": np.concatenate([begin.index.get_level_values("rank"), rank]),
        "device": np.repeat([-1, 0], [marks, count]),
        "stream": np.concatenate([np.full(marks, -1), operations.lane]),
        "thread": np.repeat([0, -1], [marks, count]),
        "start_ns": np.concatenate([begin, operations.start_ns]),
        "duration_ns": np.concatenate([end - begin, operations.duration_ns]),
        "sequence": np.concatenate([steps, operations.place]),
    }
    order = np.lexsort((-values["duration_ns"], values["start_ns"], values["rank"]))
    values = {name: column[order] for name, column in values.items()}
    values["name"] = merge_codes(values["name"], names)
    values["kind"] = from_codes(values["kind"], ("kernel", "annotation"))
    return table(EVENT_COLUMNS, values, count + marks)
