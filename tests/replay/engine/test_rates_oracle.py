"""Sharing against a plain simulation: exact fractions, and bandwidths instead of rates."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.graph.shared_links import Network
from tests.support.jobs.shared_links import job, kernel, times, transfer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from foretrace.graph.model import Graph

Edge = tuple[int, int, str, int]
Path = tuple[int, "Sequence[int]"]
"""Bandwidth, and links."""


@dataclass(frozen=True)
class Case:
    """Tasks on lanes; those with a bandwidth carry transfers over some links, the others kernels.

    All belong to one rank. Bandwidths are of the links' unit; no lane is faster than its links.
    """

    lane: Sequence[int]
    work: Sequence[int]
    edges: Sequence[Edge]
    capacity: Sequence[int]
    paths: Mapping[int, Path]  # by lane
    shares: tuple[Fraction, Fraction]  # compute, transfer

    def graph(self) -> Graph:
        """Return the job as the project knows it."""
        routes = tuple(
            (lane, link, bandwidth / self.capacity[link])
            for lane, (bandwidth, path) in self.paths.items()
            for link in path
        )
        names = tuple(str(link) for link in range(len(self.capacity)))
        compute, transfers = (float(share) for share in self.shares)
        network = Network(names, routes, compute, transfers)
        of_kind = [transfer if lane in self.paths else kernel for lane in self.lane]
        each = zip(of_kind, self.lane, self.work, strict=True)
        return job(network, [make(lane, work) for make, lane, work in each], self.edges)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw up to ten tasks on two or three transfer lanes and two kernel lanes."""
    capacity = draw(st.lists(st.integers(4, 10), min_size=1, max_size=4))
    some_links = st.lists(
        st.integers(0, len(capacity) - 1), min_size=1, max_size=len(capacity), unique=True
    )
    paths = {}
    for lane in range(draw(st.integers(2, 3))):
        path = draw(some_links)
        paths[lane] = draw(st.integers(1, min(capacity[link] for link in path))), path
    every = list(range(len(paths) + 2))
    lanes = draw(st.lists(st.sampled_from(every), min_size=1, max_size=10))
    lanes = [*every, *lanes]
    work = st.lists(st.integers(0, 10**5), min_size=len(lanes), max_size=len(lanes))
    row = st.integers(0, len(lanes) - 1)
    drawn = st.lists(st.tuples(row, row, st.integers(0, 10**5)), max_size=4)
    edges = [(min(a, b), max(a, b), "data", lag) for a, b, lag in draw(drawn) if a != b]
    share = st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(9, 10)])
    return Case(lanes, draw(work), edges, capacity, paths, (draw(share), draw(share)))


def max_min(paths: Mapping[int, Path], capacity: Sequence[int]) -> dict[int, Fraction]:
    """Return each flow's bandwidth: all rise alike until their own is reached or a link is full."""
    got: dict[int, Fraction] = {}
    while len(got) < len(paths):
        still = {flow: path for flow, path in paths.items() if flow not in got}
        level = {
            link: (limit - sum((got[f] for f in got if link in paths[f][1]), Fraction(0)))
            / max(sum(link in path for _, path in still.values()), 1)
            for link, limit in enumerate(capacity)
        }
        limits = {
            flow: min([Fraction(own), *(level[link] for link in path)])
            for flow, (own, path) in still.items()
        }
        first = min(limits.values())
        got |= {flow: first for flow, limit in limits.items() if limit == first}
    return got


def rates(case: Case, running: Iterable[int]) -> dict[int, Fraction]:
    """Return how fast each running task runs."""
    compute, transfers = case.shares
    moving = {
        task: case.paths[case.lane[task]] for task in running if case.lane[task] in case.paths
    }
    kernels = [task for task in running if task not in moving]
    allowed = max_min(moving, case.capacity)
    slow = transfers if kernels else Fraction(1)
    found = {task: allowed[task] / moving[task][0] * slow for task in moving}
    return found | dict.fromkeys(kernels, compute if moving else Fraction(1))


def simulated(case: Case) -> list[tuple[int, int]]:
    """Step from one start or end to the next; ends are rounded to whole ns."""
    before = waits(case)
    start: dict[int, int] = {}
    end: dict[int, int] = {}
    left: dict[int, Fraction] = {}
    now = 0
    while len(end) < len(before):
        speed = rates(case, left)
        due = {task: now + round(left[task] / speed[task]) for task in left}
        coming = [*due.values(), *ready(before, start, end).values()]
        passed, now = min(coming) - now, min(coming)
        left = {task: left[task] - speed[task] * passed for task in left if due[task] > now}
        end |= {task: now for task in due if due[task] == now}
        while begun := [task for task, at in ready(before, start, end).items() if at == now]:
            start |= dict.fromkeys(begun, now)
            left |= {task: Fraction(case.work[task]) for task in begun if case.work[task]}
            end |= {task: now for task in begun if not case.work[task]}
    return [(start[task], end[task]) for task in range(len(before))]


def waits(case: Case) -> list[list[tuple[int, int]]]:
    """Return for each task what it waits for, and how long it waits on top."""
    rows = range(len(case.lane))
    chains = [[r for r in rows[:task] if case.lane[r] == case.lane[task]] for task in rows]
    return [
        [(row, 0) for row in chains[task][-1:]]
        + [(src, lag) for src, dst, _, lag in case.edges if dst == task]
        for task in rows
    ]


def ready(
    before: Sequence[Sequence[tuple[int, int]]], start: Mapping[int, int], end: Mapping[int, int]
) -> dict[int, int]:
    """Return when the tasks that wait for nothing unknown may start."""
    return {
        task: max([0, *(end[src] + lag for src, lag in waited)])
        for task, waited in enumerate(before)
        if task not in start and all(src in end for src, _ in waited)
    }


@settings(deadline=None)
@given(cases())
def test_compiled_rates_are_those_of_the_plain_simulation(case: Case) -> None:
    """Every start and end, but for the rounding of ends that lie between two ns."""
    found, expected = times(case.graph()), simulated(case)

    for (start, end), (known_start, known_end) in zip(found, expected, strict=True):
        assert abs(start - known_start) <= len(found)
        assert abs(end - known_end) <= len(found)
