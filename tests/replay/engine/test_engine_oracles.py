"""The two engines against oracles: longest paths by networkx, and a plain simulation."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foretrace.replaying.critical_path import REASONS
from foretrace.replaying.engine.event_driven import run_events
from foretrace.replaying.engine.program import (
    END_END,
    END_START,
    START_END,
    START_START,
    Program,
    ReplayError,
)
from foretrace.replaying.engine.static import run, run_static
from foretrace.replaying.engine.topological import prepare, sort_moments
from tests.support.programs import Link, by_hand, cause_of

patient = settings(deadline=None)  # the first example compiles
ANCHORS = (END_START, START_START, END_END, START_END)


@st.composite
def programs(draw: st.DrawFn, *, resources: int = 0) -> Program:
    """Draw up to 12 tasks with any edges among their moments."""
    count = draw(st.integers(1, 12))
    row = st.integers(0, count - 1)
    links = []
    for _ in range(draw(st.integers(0, 2 * count))):
        src, dst, anchor = draw(row), draw(row), draw(st.sampled_from(ANCHORS))
        is_return = anchor == END_END and src != dst
        if src < dst or is_return:
            low = -4 if is_return and not resources else 0
            links.append(Link(src, dst, draw(st.integers(low, 6)), anchor))
    return by_hand(
        draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)),
        links,
        resource=draw(st.lists(st.integers(-1, resources - 1), min_size=count, max_size=count)),
        holds=draw(st.lists(st.booleans(), min_size=count, max_size=count)),
        release_ns=draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)),
    )


def moments_graph(program: Program) -> nx.DiGraph:
    """Return the graph of moments: ("start", i) and ("end", i), weights negated."""
    graph = nx.DiGraph()
    for i, (work, release) in enumerate(zip(program.work_ns, program.release_ns, strict=True)):
        graph.add_edge("origin", ("start", i), weight=-int(release))
        graph.add_edge(("start", i), ("end", i), weight=-int(work))
    columns = (program.src, program.dst, program.lag_ns, program.anchor)
    for src, dst, lag, anchor in zip(*(column.tolist() for column in columns), strict=True):
        tail = ("end" if anchor in {END_START, END_END} else "start", src)
        head = ("end" if anchor in {END_END, START_END} else "start", dst)
        known = graph.get_edge_data(tail, head, {"weight": 0})["weight"]
        exists = graph.has_edge(tail, head)
        graph.add_edge(tail, head, weight=min(known, -lag) if exists else -lag)
    return graph


@patient
@given(programs())
def test_both_engines_find_the_longest_path(program: Program) -> None:
    """Without resources a moment is the longest path to it, for either engine."""
    graph = moments_graph(program)
    assume(nx.is_directed_acyclic_graph(graph))
    shortest = nx.single_source_bellman_ford_path_length(graph, "origin")
    count = len(program.work_ns)
    expected = [[-shortest[side, i] for i in range(count)] for side in ("start", "end")]
    prepared = prepare(program)

    for schedule in (run_static(prepared, sort_moments(prepared)), run_events(prepared)):
        assert [schedule.start_ns.tolist(), schedule.end_ns.tolist()] == expected


@patient
@given(programs())
def test_cycles_are_found_and_lie_on_a_cycle(program: Program) -> None:
    """Either engine refuses exactly the cyclic programs, and names tasks of one cycle."""
    graph = moments_graph(program)
    prepared = prepare(program)
    if nx.is_directed_acyclic_graph(graph):
        sort_moments(prepared)
        return
    on_cycles = {
        moment[1]
        for part in nx.strongly_connected_components(graph)
        if len(part) > 1 or any(graph.has_edge(moment, moment) for moment in part)
        for moment in part
    }

    for engine in (sort_moments, run_events):
        with pytest.raises(ReplayError, match="cycle") as caught:
            engine(prepared)
        assert set(caught.value.tasks) <= on_cycles
        assert caught.value.tasks


def simulated(program: Program) -> list[tuple[int, int]] | None:
    """Simulate *program* the slow way; ``None`` for a deadlock.

    All moments that can be known are worked out anew after each request or release, served in
    order of (time, releases before requests, index).
    """
    granted: dict[int, int] = {}
    released: set[int] = set()
    asked: list[int] = []
    resource, holds = program.resource.tolist(), program.holds.tolist()
    while True:
        ready, start, end = known(program, granted)
        holders = [i for i in granted if holds[i]]
        events = [(end[i], -1 - resource[i], i) for i in holders if i in end and i not in released]
        events += [(ready[i], i, i) for i in ready if resource[i] >= 0 and i not in asked]
        if not events:
            break
        now, code, task = min(events)
        if code < 0:
            released.add(task)
        else:
            asked.append(task)
        for i in [i for i in asked if i not in granted and resource[i] == resource[task]]:
            if any(h not in released and resource[h] == resource[i] for h in granted if holds[h]):
                break
            granted[i] = now
    count = len(resource)
    return [(start[i], end[i]) for i in range(count)] if len(end) == count else None


def known(
    program: Program, granted: dict[int, int]
) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """Return ready, start and end times of all tasks that follow from *granted* starts."""
    columns = (program.src, program.dst, program.lag_ns, program.anchor)
    links = list(zip(*(column.tolist() for column in columns), strict=True))
    ready: dict[int, int] = {}
    start: dict[int, int] = {}
    end: dict[int, int] = {}
    for _ in range(2 * len(program.work_ns)):
        for i in range(len(program.work_ns)):
            bounds: dict[bool, list[int]] = {False: [int(program.release_ns[i])], True: []}
            is_open = {False: False, True: False}
            for src, dst, lag, anchor in links:
                to_end = anchor in {END_END, START_END}
                origin = end if anchor in {END_START, END_END} else start
                if dst == i and src in origin:
                    bounds[to_end].append(origin[src] + lag)
                elif dst == i:
                    is_open[to_end] = True
            if not is_open[False]:
                ready[i] = max(bounds[False])
                if program.resource[i] < 0 or i in granted:
                    start[i] = max(ready[i], granted.get(i, 0))
            if i in start and not is_open[True]:
                end[i] = max(start[i] + int(program.work_ns[i]), *bounds[True], 0)
    return ready, start, end


@patient
@given(programs(resources=2))
def test_event_engine_follows_the_rules(program: Program) -> None:
    """The compiled engine does what a plain simulation of the same rules does."""
    assume(nx.is_directed_acyclic_graph(moments_graph(program)))
    expected = simulated(program)

    if expected is None:
        with pytest.raises(ReplayError, match="deadlock"):
            run(program)
    elif program.has_resources:
        schedule = run(program)
        pairs = zip(schedule.start_ns.tolist(), schedule.end_ns.tolist(), strict=True)
        assert list(pairs) == expected


@patient
@given(programs(resources=2))
def test_holders_never_overlap(program: Program) -> None:
    """Nobody starts on a resource while another task holds it."""
    try:
        schedule = run(program)
    except ReplayError:
        assume(False)
    start, end = schedule.start_ns.tolist(), schedule.end_ns.tolist()

    for holder in np.flatnonzero(program.holds & (program.resource >= 0)).tolist():
        for other in np.flatnonzero(program.resource == program.resource[holder]).tolist():
            assert other == holder or not start[holder] < start[other] < end[holder]


@patient
@given(programs(resources=1))
def test_causes_explain_every_moment(program: Program) -> None:
    """What a cause names adds up to the moment, to the nanosecond."""
    try:
        schedule = run(program)
    except ReplayError:
        assume(False)
    count = len(program.work_ns)
    moments = schedule.moments.tolist()
    links = list(zip(program.src, program.dst, program.lag_ns, program.anchor, strict=True))

    for moment, now in enumerate(moments):
        before, why = cause_of(schedule, moment)
        if REASONS[why] == "work":
            assert now == moments[before] + program.work_ns[before]
        elif REASONS[why] == "resource":
            assert now == moments[before]
            assert program.holds[before - count]
        elif REASONS[why] == "release":
            assert now == program.release_ns[moment]
        else:
            lags = [
                lag
                for src, dst, lag, anchor in links
                if before == src + (count if anchor in {END_START, END_END} else 0)
                and moment == dst + (count if anchor in {END_END, START_END} else 0)
            ]
            assert now - moments[before] in lags
