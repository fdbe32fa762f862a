"""The ranks of a pipeline: lanes, waits and edges of a job that loads, copies and synchronises."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay
from foretrace.transforms.distributed.pipeline.assembly import AssembledRanks, assemble
from foretrace.transforms.distributed.pipeline.partition import cut_model
from foretrace.transforms.distributed.pipeline.schedules import turns

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

#        name   kind      lane work phase      module
_TASKS = (
    ("fetch", "load", 1, 30, None, None),
    ("next", "host", 0, 5, "load", None),
    ("launch", "launch", 0, 5, "forward", "0"),
    ("launch", "launch", 0, 5, "forward", "1"),
    ("sync", "sync", 0, 5, "forward", "1"),
    ("launch", "launch", 0, 5, "backward", "1"),
    ("launch", "launch", 0, 5, "backward", "0"),
    ("launch", "launch", 0, 5, "optimizer", None),
    ("f0", "kernel", 2, 100, "forward", "0"),
    ("f1", "kernel", 2, 100, "forward", "1"),
    ("b1", "kernel", 2, 100, "backward", "1"),
    ("b0", "kernel", 2, 100, "backward", "0"),
    ("step", "kernel", 2, 100, "optimizer", None),
    ("saved", "memcpy", 3, 10, "forward", "0"),
)
_EDGES = (
    (0, 1, "data", 0),
    (1, 0, "data", 0, 1),
    (2, 8, "launch", 6),
    (3, 9, "launch", 6),
    (5, 10, "launch", 6),
    (6, 11, "launch", 6),
    (7, 12, "launch", 6),
    (2, 13, "launch", 6),
    (8, 13, "event", 0),  # within a pass
    (13, 11, "event", 0),  # from forward to backward of one piece
    (9, 12, "event", 0),  # from a pass to the update
    (12, 8, "event", 0, 1),  # from the update to the next step
    (8, 9, "event", 0),  # between pieces: what is sent stands for it
)


def job() -> Graph:
    """Return one step of two layers with a loader, a copy stream and a synchronisation."""
    names, kinds, lanes, works, phases, modules = zip(*_TASKS, strict=True)
    waits = ["stream" if name == "sync" else "none" for name in names]
    graph = literal(
        list(zip(names, kinds, lanes, works, phases, strict=True)),
        _EDGES,
        columns={
            "module": pd.Categorical(modules),
            "wait": pd.Categorical(waits, categories=["none", "stream"]),
            "wait_lane": [2 if wait == "stream" else -1 for wait in waits],
            "start_ns": np.array([0, 30, 40, 50, 60, 70, 80, 90, 46, 56, 76, 86, 96, 47]),
        },
        wrap=True,
    )
    roles = ["main", "loader", "compute", "copy"]
    return replace(graph, lanes=graph.lanes.assign(role=pd.Categorical(roles)))


@pytest.fixture
def ranks() -> AssembledRanks:
    """Assemble two stages of two micro-batches, GPipe."""
    graph = job()
    order = [turns("gpipe", stages=2, micro_batches=2, stage=stage) for stage in range(2)]
    return assemble(graph, cut_model(graph, 2), order)


def named(found: AssembledRanks, *names: str) -> list[tuple[str, int]]:
    """Return name and rank of the tasks of these names, in order."""
    tasks = found.graph.tasks
    rank = found.graph.lanes["rank"].to_numpy()[tasks["lane"].to_numpy()]
    pairs = zip(tasks["name"].tolist(), rank.tolist(), strict=True)
    return [pair for pair in pairs if pair[0] in names]


def ends(
    found: AssembledRanks, src: str, dst: str, kind: str = "event"
) -> list[tuple[int, int, int]]:
    """Return which occurrence of *src* leads to which of *dst*, and how many windows later."""
    names = found.graph.tasks["name"].to_numpy()
    places = {name: np.flatnonzero(names == name).tolist() for name in (src, dst)}
    edges = found.graph.edges
    rows = zip(edges["src"], edges["dst"], edges["shift"], edges["kind"], strict=True)
    return [
        (places[src].index(a), places[dst].index(b), shift)
        for a, b, shift, own in rows
        if own == kind and a in places[src] and b in places[dst]
    ]


def test_each_rank_has_its_lanes_and_the_first_one_loads(ranks: AssembledRanks) -> None:
    """The copy stream and the loader are those of the first stage alone."""
    check(ranks.graph)
    lanes = ranks.graph.lanes

    assert list(zip(lanes["rank"], lanes["role"], strict=True)) == [
        (0, "main"),
        (0, "loader"),
        (0, "compute"),
        (0, "copy"),
        (1, "main"),
        (1, "compute"),
    ]
    assert named(ranks, "fetch", "next") == [("fetch", 0), ("next", 0)]
    assert named(ranks, "f0", "f1", "step") == [
        ("f0", 0), ("f0", 0), ("step", 0), ("f1", 1), ("f1", 1), ("step", 1)
    ]  # fmt: skip


def test_a_synchronisation_waits_for_its_own_ranks_stream(ranks: AssembledRanks) -> None:
    """Both of the second stage's wait for that stage's compute stream."""
    tasks = ranks.graph.tasks
    waits = tasks["wait_lane"][tasks["name"] == "sync"]

    assert waits.tolist() == [5, 5]
    assert set(tasks["wait_lane"][tasks["name"] != "sync"]) == {-1}


def test_edges_hold_per_micro_batch_within_a_piece(ranks: AssembledRanks) -> None:
    """Inside a pass, and from its forward to its backward."""
    assert ends(ranks, "f0", "saved") == [(0, 0, 0), (1, 1, 0)]
    assert ends(ranks, "saved", "b0") == [(0, 0, 0), (1, 1, 0)]


def test_what_runs_once_waits_for_the_last_micro_batch(ranks: AssembledRanks) -> None:
    """The update follows the last forward of its rank; the next step's first follows the update."""
    assert ends(ranks, "f1", "step") == [(1, 1, 0)]
    assert ends(ranks, "step", "f0") == [(0, 0, 1)]


def test_pieces_meet_through_what_is_sent_alone(ranks: AssembledRanks) -> None:
    """No edge between ranks is left."""
    graph = ranks.graph
    rank = graph.lanes["rank"].to_numpy()[graph.tasks["lane"].to_numpy()]

    assert ends(ranks, "f0", "f1") == []
    assert (rank[graph.edges["src"]] == rank[graph.edges["dst"]]).all()


def test_loaders_keep_their_queue(ranks: AssembledRanks) -> None:
    """A batch per step, and the free slot handed back one step later."""
    assert ends(ranks, "fetch", "next", "data") == [(0, 0, 0)]
    assert ends(ranks, "next", "fetch", "data") == [(0, 0, 1)]


def test_runs_tell_where_each_pass_begins_and_ends(ranks: AssembledRanks) -> None:
    """First and last task on the host and on the device."""
    names = ranks.graph.tasks["name"].tolist()
    found = [
        (run.rank, run.part, run.micro_batch, names[run.first_host], names[run.first])
        for run in ranks.runs
    ]

    assert found[:3] == [
        (0, 0, 0, "next", "next"),
        (0, 2, 0, "launch", "f0"),
        (0, 2, 1, "launch", "f0"),
    ]
    assert found[-1] == (1, 1, 0, "launch", "step")
    assert replay(ranks.graph).step_ns > 0
