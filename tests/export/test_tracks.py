"""Tracks, flows and the counter of a timeline, on graphs written down by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from foretrace.analysis.unchanged.baseline import run_experiment
from foretrace.export.tracks import (
    FLOWS,
    Variant,
    assign_levels,
    count_outstanding,
    find_flows,
    list_variants,
    path_slices,
)
from foretrace.graph.literal import literal
from foretrace.replaying.replay import replay

# The call waits for its copy: it begins before the copy does, and ends after it.
BLOCKING = literal(
    [
        ("cudaMemcpy", "launch", 0, 1_000, None),
        ("next", "host", 0, 500, None),
        ("Memcpy HtoD", "memcpy", 1, 9_000, None),
    ],
    [(0, 2, "launch", 3_000), (2, 0, "return", 2_000)],
    wrap=True,
)


def test_overlapping_slices_take_the_lowest_free_level() -> None:
    """Kernels of one graph launch may overlap on their stream."""
    assert assign_levels(np.array([0, 2, 5, 6]), np.array([5, 6, 7, 9])).tolist() == [0, 1, 0, 1]


def test_overlapping_slices_get_tracks_of_their_own() -> None:
    """Two kernels that nothing orders lie on two tracks of one lane."""
    graph = literal([("a", "kernel", 0, 10, None), ("b", "kernel", 0, 10, None)])
    loose = replace(graph, edges=graph.edges.iloc[:0])
    variant = Variant("before", replay(loose), 0, 1)

    assert variant.tracks.tolist() == [1, 100_001]
    assert [name for _, name in variant.track_names.values()] == [
        "stream 7, compute",
        "stream 7, compute (overlap 1)",
    ]


def test_a_wait_is_an_arrow_from_end_to_end() -> None:
    """Between the starts it would point back in time."""
    [variant] = list_variants(run_experiment(BLOCKING, ()))
    found = find_flows(variant)
    sync = found.kind == FLOWS.index("sync")

    assert (found.src[sync].tolist(), found.dst[sync].tolist()) == ([2], [0])
    assert (found.src_at_end[sync].tolist(), found.dst_at_end[sync].tolist()) == ([True], [True])
    launch = found.kind == FLOWS.index("launch")
    assert (found.src[launch].tolist(), found.dst[launch].tolist()) == ([0], [2])
    assert not found.src_at_end[launch].any()


def test_the_critical_path_leads_from_task_to_task() -> None:
    """Launch, copy, what follows the call: each arrow joins neighbours on the path."""
    [variant] = list_variants(run_experiment(BLOCKING, ()))
    found = find_flows(variant)
    path = found.kind == FLOWS.index("critical path")

    pairs = set(zip(found.src[path].tolist(), found.dst[path].tolist(), strict=True))
    assert pairs <= {(0, 2), (2, 0), (2, 1), (1, 0), (0, 1)}
    assert pairs


def test_path_slices_follow_one_another() -> None:
    """They fill a step, with the reason of each."""
    [variant] = list_variants(run_experiment(BLOCKING, ()))
    slices = path_slices(variant)

    assert sum(end - begin for begin, end, _, _ in slices) == variant.timeline.period_ns
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(slices))
    assert {why for *_, why in slices} >= {"work", "return"}


def test_launches_of_an_earlier_repetition_count_from_the_beginning() -> None:
    """Two launches of the window before are still outstanding when it begins."""
    graph = literal(
        [("call", "launch", 0, 1_000, None), ("gemm", "kernel", 1, 1_000, None)],
        [(0, 1, "launch", 1_000, 2)],
        wrap=True,
    )
    [variant] = list_variants(run_experiment(graph, ()))
    [(moments, counts)] = count_outstanding(variant).values()

    assert moments == sorted(moments)
    assert counts[-1] == 2
    assert set(counts) <= {1, 2, 3}


def test_variants_have_ids_of_their_own() -> None:
    """The job after the change takes processes that the one before does not have."""
    before, after = list_variants(run_experiment(BLOCKING, "faster_host(speedup=2)"))

    assert before.process_names == {1: "before, rank 0"}
    assert after.process_names == {2: "after, rank 0"}
    assert (before.number, after.number) == (0, 1)
