"""Operation-level timelines written down by hand: operations in µs in, events and traces out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from foretrace.tracer.readers.operation_timeline import LANES, read_timeline
from foretrace.transforms.distributed.pipeline.schedules import turns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foretrace.tracer.trace import Trace

Event = dict[str, Any]
TAIL = (
    "layernorm-grads-all-reduce",
    "embedding-grads-all-reduce",
    "grads-reduce-scatter",
    "optimizer-clip-main-grad",
    "optimizer",
)


def operation(
    name: str, start: float, length: float, *, stage: int = 0, dp: int = 0, **more: Any
) -> Event:
    """Return one operation; *more* are arguments (step, seq_id, model_chunk)."""
    lane = 0 if "compute" in name or name in ("gc", "optimizer") else 3
    if name.endswith(("send", "recv")):
        lane = 1
    arguments = {"step": 7, "model_chunk": 0, "mb_id": None, "seq_id": 0, **more}
    times = {"ts": start, "dur": length, "pid": dp, "tid": 5 * stage + lane}
    return {"name": name, "cat": name, "ph": "X", **times, "args": arguments}


def named_threads(stages: int = 1, replicas: int = 1, tp: int = 0) -> list[Event]:
    """Return the events that name the threads of every rank."""
    return [
        {
            "name": "thread_name",
            "ph": "M",
            "pid": dp,
            "tid": 5 * stage + at,
            "args": {"name": f"PP rank {stage}, TP rank {tp}, {lane}"},
        }
        for dp in range(replicas)
        for stage in range(stages)
        for at, lane in enumerate(LANES)
    ]


def read(events: list[Event]) -> Trace:
    """Read a timeline of these events."""
    return read_timeline(json.dumps(events).encode(), "timeline.json")


def job(
    lengths: Mapping[str, float],
    *,
    stages: int = 1,
    replicas: int = 1,
    micro_batches: int = 1,
    steps: int = 1,
    changed: Mapping[tuple[str, int, int], float] | None = None,
) -> list[Event]:
    """Return a 1F1B job; of an operation's starts only the order counts.

    *lengths* says what each kind of operation takes (kinds that are not named do not occur),
    *changed* what one takes on a rank: (kind, replica, stage).
    """
    events = named_threads(stages, replicas)
    for step in range(steps):
        for dp in range(replicas):
            for stage in range(stages):
                operations = _rank(set(lengths), stages, stage, micro_batches)
                for at, (name, place) in enumerate(operations):
                    length = (changed or {}).get((name, dp, stage), lengths[name])
                    begin = 1_000.0 * (100 * step + at)
                    events.append(
                        operation(name, begin, length, stage=stage, dp=dp, step=step, seq_id=place)
                    )
    return events


def _rank(kinds: set[str], stages: int, stage: int, micro_batches: int) -> list[tuple[str, int]]:
    operations = [("params-all-gather", 0)]
    for turn in turns("1f1b", stages=stages, micro_batches=micro_batches, stage=stage):
        place = turn.micro_batch
        ahead = stage < stages - 1, stage > 0
        sends, receives = ahead if turn.direction == "forward" else ahead[::-1]
        operations += [(f"{turn.direction}-recv", place)] * receives
        operations += [(f"{turn.direction}-compute", place)]
        operations += [(f"{turn.direction}-send", place)] * sends
    has_embedding = stage in (0, stages - 1)
    operations += [(name, 0) for name in TAIL if "embedding" not in name or has_embedding]
    return [(name, place) for name, place in operations if name in kinds]
