"""Transfers: on a link and on a stream, issued by the host, waited for by host and device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.graph.model import Platform
from foretrace.replaying.replay import replay
from foretrace.transforms.distributed.common.transfers import (
    add_lane,
    after,
    before,
    block,
    communicates,
    issue,
    put,
    send,
    wait,
)

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

MOVE: dict[str, Any] = {"name": "all_reduce", "work_ns": 70, "bytes": 64.0, "cost": "table"}


def on_cpu() -> Graph:
    """Return three host tasks of 10 ns."""
    return literal([(name, "host", 0, 10, None) for name in "abc"], wrap=True)


def on_device() -> Graph:
    """Return two launches of 1 ns, two kernels of 50 ns."""
    return literal(
        [("launch", "launch", 0, 1, None)] * 2 + [("k", "kernel", 1, 50, None)] * 2,
        [(0, 2, "launch"), (1, 3, "launch")],
        wrap=True,
        platform=Platform(launch_ns=1, launch_latency_ns=5),
    )


def test_link_carries_what_the_host_issued() -> None:
    """a, issue 2 ns, b beside 70 ns on the link, c when that has ended 4 ns ago."""
    graph, link = add_lane(on_cpu())
    graph, rows = send(graph, link, np.array([0]), call_ns=2, **MOVE)
    graph = check(wait(graph, rows, np.array([2]), return_ns=4))

    assert replay(graph).step_ns == 10 + 2 + 70 + 4 + 10
    assert graph.lanes["kind"].tolist() == ["thread", "link"]
    assert communicates(graph).tolist() == [False] * 3 + [True] + [False] * 2


def test_host_may_wait_at_once() -> None:
    """Everything in a row."""
    graph, link = add_lane(on_cpu())
    graph, rows = send(graph, link, np.array([0, 1]), call_ns=2, **MOVE)
    graph, waits = block(graph, rows)

    assert replay(check(graph)).step_ns == 30 + 2 * (2 + 70)
    assert graph.tasks["kind"].iloc[waits].tolist() == ["sync", "sync"]


def test_host_waits_for_the_end_of_a_chain() -> None:
    """Issued is the first of two transfers, waited for the second."""
    graph, link = add_lane(on_cpu())
    graph, first = send(graph, link, np.array([0]), call_ns=2, **MOVE)
    graph, back = add_lane(graph)
    graph, second = put(graph, back, np.array([0]), **MOVE)
    graph = wait(graph, first, second)
    graph, _ = block(graph, second, first)

    assert replay(check(graph)).step_ns == 30 + 2 + 2 * 70


def test_streams_wait_for_each_other() -> None:
    """The transfer follows the first kernel, the second kernel follows the transfer."""
    graph, stream = add_lane(on_device(), kind="stream", device=0)
    graph, rows = send(graph, stream, np.array([2]), **MOVE)
    graph = check(wait(graph, rows, np.array([3])))

    assert replay(graph).step_ns == 50 + 70 + 50
    assert graph.lanes.iloc[-1].tolist() == ["stream", 0, 0, 101, "communication"]


def test_transfer_of_the_last_step_is_waited_for_in_the_next() -> None:
    """The first task of the next repetition waits for what the last one sent."""
    graph, link = add_lane(on_cpu())
    graph, rows = send(graph, link, np.array([2]), call_ns=2, **MOVE)

    assert replay(graph).step_ns == 70
    assert replay(wait(graph, rows, np.array([0]), shift=1)).step_ns == 30 + 2 + 70


def test_what_nothing_issues_is_not_issued() -> None:
    """−1 stands for nothing, on either side."""
    graph, link = add_lane(on_cpu())
    graph, rows = put(graph, link, np.array([0]), **MOVE)
    none = np.array([-1])

    assert issue(graph, rows, none) is graph
    assert (
        len(wait(graph, rows, none).edges) == len(wait(graph, none, rows).edges) == len(graph.edges)
    )


def test_issued_before_a_task_it_starts_before_it() -> None:
    """The call stands before b: a, call, b."""
    graph, link = add_lane(on_cpu())
    graph, rows = put(graph, link, np.array([1]), **{**MOVE, "work_ns": 5})
    timeline = replay(issue(graph, rows, np.array([1]), place="before", call_ns=3))

    assert timeline.start_ns[1] == timeline.start_ns[3] == timeline.end_ns[0] + 3


def test_one_wait_serves_several_transfers() -> None:
    """C waits once for both."""
    graph, link = add_lane(on_cpu())
    graph, rows = send(graph, link, np.array([0, 1]), call_ns=2, **MOVE)
    graph = wait(graph, rows, np.array([2, 2]))

    assert (graph.tasks["kind"] == "sync").sum() == 1
    assert replay(check(graph)).step_ns == 10 + 2 + 2 * 70 + 10


@pytest.mark.parametrize("wrap", [True, False])
def test_neighbours_on_a_lane(wrap: bool) -> None:  # noqa: FBT001
    """Before the first comes the last of the repetition before, where lanes repeat."""
    graph = literal([(name, "host", 0, 10, None) for name in "ab"], wrap=wrap)
    found = [*before(graph, np.array([0, 1])), *after(graph, np.array([0, 1]))]
    ends = (1, 1, 0, 1) if wrap else (-1, 0, -1, 0)

    assert [each.tolist() for each in found] == [
        [ends[0], 0],
        [ends[1], 0],
        [1, ends[2]],
        [0, ends[3]],
    ]
