"""Several ranks of one job on one clock.

A collective ends on all its ranks at the same moment and begins whenever each of them arrives, so
clocks are aligned on the *ends*. Which belong together is told by the number of the step and the
place in it, by the place in the recording, or by the offset at which most ends coincide.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from foretrace.errors import TraceError
from foretrace.tracer.data_issues import LEVELS, Tally
from foretrace.tracer.readers.coinciding_ends import MOST, align_by_coincidence
from foretrace.tracer.readers.columns import from_codes
from foretrace.tracer.trace import EVENT_COLUMNS, Trace
from foretrace.util.schema import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DEVICE_COLLECTIVE = re.compile(
    r"^(?>.*?(?:nccl|rccl|oneccl)).*(?:Kernel|_)", re.IGNORECASE | re.DOTALL
)
HOST_COLLECTIVE = re.compile(r"(gloo|mpi|nccl|ucc):", re.IGNORECASE)
ALL_TO_ALL = re.compile(r"all_?(to|2)_?all", re.IGNORECASE)
"""NCCL runs an all-to-all as sends and receives; where there is one, those are collectives."""
POINT_TO_POINT = re.compile(r"send|recv", re.IGNORECASE)
STEP = re.compile(
    r"^[\W_]*(?:ProfilerStep|(?:(?:global|train(?:ing)?)[\W_]*)?(?:step|iteration|iter|batch))"
    r"[\W_]*(\d{1,15})[\W_]*$",
    re.IGNORECASE,
)
"""A range that says which step it is."""
COINCIDE_NS = 50_000
"""Ends closer than this may be the same collective's."""
TRIED = 400
"""Collectives of a kind per rank that are tried against each other."""
SAME_CLOCK_NS = 3600 * 10**9
"""Origins further apart than an hour are clocks that were never set, not one job's ranks."""
AGREEING = 0.9
"""Share of the paired ends that coincide where the pairs are right."""
ROUNDS = 3


def join_ranks(traces: Sequence[Trace]) -> Trace:
    """Put the traces of several ranks into one, on one clock.

    The recorded origins are honoured where they can be compared; the rest is an offset per rank,
    the one that makes the ends of common collectives agree best. ``meta.extra["rank_clocks"]``
    has, per rank, ``offset_ns`` and the number of ``collectives``, and ``end_spread_ns``, the
    largest disagreement that is left.

    Raises
    ------
    TraceError
        If there is no trace, or two files say they are the same rank.
    """
    if not traces:
        raise TraceError("no trace given; name at least one file")
    if len(traces) == 1:
        return traces[0]
    tally = Tally()
    ranks = _ranks(traces, tally)
    origins = _origins(traces)
    starts = [t.events["start_ns"].to_numpy() + o for t, o in zip(traces, origins, strict=True)]
    offsets, clocks = _align_clocks(traces, starts, tally)
    starts = [start + offset for start, offset in zip(starts, offsets, strict=True)]
    first = min(int(start.min()) for start in starts if len(start))
    columns = _concatenate(traces, ranks)
    columns["start_ns"] = np.concatenate(starts) - first
    order = np.lexsort((-columns["duration_ns"], columns["start_ns"], columns["rank"]))
    columns = {name: values[order] for name, values in columns.items()}
    _tally_all(traces, tally)
    meta = traces[0].meta
    clocks |= {str(rank): ends for rank, ends in zip(ranks, clocks.pop("each"), strict=True)}
    devices = {device.index: device for trace in traces for device in trace.meta.devices}
    meta = replace(
        meta,
        source=f"{meta.source} and {len(traces) - 1} more",
        devices=tuple(devices[index] for index in sorted(devices)),
        ranks=tuple(sorted(ranks)),
        world_size=max([len(traces), *(t.meta.world_size or 0 for t in traces)]),
        warnings=tally.counts(),
        extra=meta.extra | {"rank_clocks": clocks},
    )
    return Trace(table(EVENT_COLUMNS, columns, len(order)), meta)


def _tally_all(traces: Sequence[Trace], tally: Tally) -> None:
    """Add up what was odd in each trace; of rates and shares, the largest."""
    for name in dict.fromkeys(name for trace in traces for name in trace.meta.warnings):
        counts = [trace.meta.warnings.get(name, 0) for trace in traces]
        tally.add(name, max(counts) if name in LEVELS else sum(counts))


def _ranks(traces: Sequence[Trace], tally: Tally) -> list[int]:
    """Return each trace's rank: its own, or the place it was given in."""
    for trace in traces:
        if len(trace.meta.ranks) > 1:
            raise TraceError(f"{trace.meta.source}: it already holds several ranks; load it alone")
    own = [bool(trace.meta.extra.get("own_rank")) for trace in traces]
    if not all(own):
        tally.add("unknown_rank", len(own) - sum(own))
        return list(range(len(traces)))
    ranks = [trace.meta.ranks[0] for trace in traces]
    for rank in ranks:
        same = [t.meta.source for t in traces if t.meta.ranks[0] == rank]
        if len(same) > 1:
            raise TraceError(f"{same[1]}: rank {rank}, like {same[0]}; give each rank once")
    return ranks


def _origins(traces: Sequence[Trace]) -> list[int]:
    """Return the recorded origins relative to the first, or zeros if they cannot be compared."""
    origins = [int(trace.meta.extra.get("origin_ns", 0)) for trace in traces]
    comparable = max(origins) - min(origins) < SAME_CLOCK_NS
    return [origin - origins[0] if comparable else 0 for origin in origins]


def _align_clocks(
    traces: Sequence[Trace], starts: list[np.ndarray], tally: Tally
) -> tuple[list[int], dict[str, Any]]:
    """Return an offset per rank, and what is known about it."""
    ends = [_collective_ends(t, s) for t, s in zip(traces, starts, strict=True)]
    offsets, matched = max(
        (_fit_offsets(keyed) for keyed in _pair_ends(traces, starts, ends)),
        key=lambda fit: _share_agreeing(*fit),
    )
    counts = matched.notna().sum().to_numpy()
    unaligned = counts == 0
    if _share_agreeing(offsets, matched) < AGREEING:
        every = [_collective_ends(t, s, with_peers=True)["end"].to_numpy()
                 for t, s in zip(traces, starts, strict=True)]  # fmt: skip
        offsets, shares = align_by_coincidence(every, offsets)
        unaligned &= shares < MOST
    tally.add("unaligned_ranks", np.count_nonzero(unaligned))
    whole = [round(offset) for offset in offsets.tolist()]
    spread = (
        np.ptp(matched.dropna().to_numpy(float) + whole, axis=1) if len(matched.dropna()) else []
    )
    each = [
        {"offset_ns": offset, "collectives": int(count)}
        for offset, count in zip(whole, counts, strict=True)
    ]
    return whole, {"each": each, "end_spread_ns": round(max(spread, default=0))}


def _pair_ends(
    traces: Sequence[Trace], starts: list[np.ndarray], ends: list[pd.DataFrame]
) -> Iterator[list[pd.Series]]:
    """Yield ways to tell which ends of the ranks are one collective's, the surest first."""
    by_step = [_number_by_step(t, s, e) for t, s, e in zip(traces, starts, ends, strict=True)]
    numbered = [one for one in by_step if one is not None]
    if len(numbered) == len(ends):
        yield [_key(one) for one in numbered]
    in_order = [one.assign(place=one.groupby(["name", "group"]).cumcount()) for one in ends]
    sizes = [one.groupby(["name", "group"]).size() for one in ends]
    if any(not size.equals(sizes[0]) for size in sizes):
        yield [_key(_place_by_time(one, max(in_order, key=len))) for one in in_order]
    yield [_key(one) for one in in_order]


def _key(ends: pd.DataFrame) -> pd.Series:
    keys = [name for name in ends.columns if name not in ("began", "end")]
    return ends.set_index(keys)["end"]


def _number_by_step(trace: Trace, start: np.ndarray, ends: pd.DataFrame) -> pd.DataFrame | None:
    """Return *ends* with the step in which each lies, and its place in it; ``None`` without."""
    names = trace.events["name"].cat
    numbers = [match[1] if (match := STEP.match(n)) else "-1" for n in names.categories]
    number = np.array([*numbers, "-1"], np.int64)[names.codes.to_numpy()]
    marks = np.flatnonzero((number >= 0) & (trace.events["thread"].to_numpy() != -1))
    if len(marks) < 2 or not len(ends):  # noqa: PLR2004  # one step can only be paired in order
        return None
    marks = marks[np.argsort(start[marks], kind="stable")]
    at = np.searchsorted(start[marks], ends["began"].to_numpy(), side="right") - 1
    numbered = ends[at >= 0].assign(step=number[marks][at[at >= 0]])
    place = numbered.groupby(["name", "group", "step"]).cumcount()
    return numbered.assign(place=place)


def _place_by_time(ends: pd.DataFrame, most: pd.DataFrame) -> pd.DataFrame:
    """Return *ends* with the place of the one in *most* that ends with it, at the best offset."""
    groups = dict(iter(most.groupby(["name", "group"])))
    pairs = [(one, groups[key]) for key, one in ends.groupby(["name", "group"]) if key in groups]
    apart = [
        (other["end"].to_numpy()[:TRIED, None] - one["end"].to_numpy()[:TRIED]).ravel()
        for one, other in pairs
    ]
    place = pd.Series(-1 - np.arange(len(ends)), index=ends.index)
    if apart:
        spacing = float(np.median(np.diff(np.sort(most["end"].to_numpy())))) if len(most) > 1 else 0
        close = min(COINCIDE_NS, spacing / 4)
        offset = _find_commonest(np.concatenate(apart), close)
        for one, other in pairs:
            moved, theirs = one["end"].to_numpy() + offset, other["end"].to_numpy()
            order = np.argsort(theirs, kind="stable")
            at = np.clip(np.searchsorted(theirs[order], moved - close), 0, len(theirs) - 1)
            near = order[at]
            same = np.abs(theirs[near] - moved) <= close
            place[one.index[same]] = other["place"].to_numpy()[near[same]]
    return ends.assign(place=place).drop_duplicates(["name", "group", "place"])


def _find_commonest(apart: np.ndarray, close: float) -> float:
    """Return the difference that most of *apart* are *close* to; of equals, the smallest."""
    ordered = np.sort(apart)
    ends = np.searchsorted(ordered, ordered + close, side="right")
    count = ends - np.arange(len(ordered))
    best = np.flatnonzero(count >= count.max())
    middle = ordered[best + (count[best] - 1) // 2]
    return float(middle[np.argmin(np.abs(middle))])


def _fit_offsets(ends: list[pd.Series]) -> tuple[np.ndarray, pd.DataFrame]:
    """Return the offsets at which the *ends* of common collectives agree best, and these ends."""
    matched = pd.concat(ends, axis=1, join="outer").dropna(thresh=2)
    counts = matched.notna().sum().to_numpy()
    table_ = matched.to_numpy(float)
    offsets = np.zeros(len(ends))
    for _ in range(ROUNDS if len(matched) else 0):
        moved = table_ + offsets
        centre = np.nanmedian(moved, axis=1, keepdims=True)
        for rank in np.flatnonzero(counts):
            offsets[rank] += np.nanmedian(centre - moved[:, [rank]])
    offsets -= offsets[0] if counts[0] else 0
    return offsets, matched


def _share_agreeing(offsets: np.ndarray, matched: pd.DataFrame) -> float:
    """Return the share of *matched* whose ends agree at these *offsets*."""
    if not len(matched):
        return 0.0
    ends = matched.to_numpy(float) + offsets
    return float(((np.nanmax(ends, axis=1) - np.nanmin(ends, axis=1)) <= COINCIDE_NS).mean())


def _collective_ends(trace: Trace, start: np.ndarray, *, with_peers: bool = False) -> pd.DataFrame:
    """Return when each collective ended: its name and group, in order of time.

    Sends and receives count *with_peers* only: each has other partners.
    """
    events = trace.events
    names = events["name"].cat
    device = _matching(names, DEVICE_COLLECTIVE, with_peers=with_peers)
    device &= (events["kind"] == "kernel").to_numpy()
    rows = np.flatnonzero(device)
    if not len(rows):
        host = events["kind"].isin(["op", "annotation"]).to_numpy()
        rows = np.flatnonzero(_matching(names, HOST_COLLECTIVE, with_peers=with_peers) & host)
    return pd.DataFrame(
        {
            "name": np.asarray(names.categories, object)[names.codes.to_numpy()[rows]],
            "group": events["group"].astype(object).fillna("").to_numpy()[rows],
            "began": start[rows].astype(float),
            "end": (start + events["duration_ns"].to_numpy())[rows].astype(float),
        }
    )


def _matching(names: Any, pattern: re.Pattern[str], *, with_peers: bool = False) -> np.ndarray:
    everyone = with_peers or any(ALL_TO_ALL.search(n) for n in names.categories)
    hits = [
        bool(pattern.match(n)) and (everyone or not POINT_TO_POINT.search(n))
        for n in names.categories
    ]
    return np.array([*hits, False], bool)[names.codes.to_numpy()]


def _concatenate(traces: Sequence[Trace], ranks: list[int]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for column in EVENT_COLUMNS:
        parts = [trace.events[column.name] for trace in traces]
        if column.dtype == "category":
            columns[column.name] = _concatenate_names(parts)
        else:
            columns[column.name] = np.concatenate([part.to_numpy() for part in parts])
    sizes = [len(trace.events) for trace in traces]
    columns["rank"] = np.repeat(np.array(ranks, np.int16), sizes)
    return columns


def _concatenate_names(parts: list[pd.Series]) -> pd.Categorical:
    offsets = np.cumsum([0, *(len(part.cat.categories) for part in parts)])
    codes = []
    for part, offset in zip(parts, offsets.tolist(), strict=False):
        own = part.cat.codes.to_numpy().astype(np.int64)
        codes.append(np.where(own < 0, -1, own + offset))
    names = [name for part in parts for name in part.cat.categories]
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    lookup = np.array([*(place[name] for name in names), -1], np.int64)
    return from_codes(lookup[np.concatenate(codes)], list(place))
