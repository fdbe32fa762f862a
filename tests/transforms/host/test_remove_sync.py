"""Waits that are taken out: what goes with them, and what stays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from foretrace.errors import TransformError
from foretrace.graph.check import check
from foretrace.graph.literal import literal
from foretrace.transforms.host.remove_sync import remove_sync
from tests.support.jobs.simple import cpu_job

if TYPE_CHECKING:
    from foretrace.graph.model import Graph


def blocking_job(direction: str) -> Graph:
    """Build a blocking copy inside ``aten::item`` on a job with a loader thread that waits too."""
    return literal(
        [
            ("cudaMemcpyAsync", "launch", 0, 5, None),
            ("train", "host", 0, 9, None),
            (f"Memcpy {direction}", "memcpy", 1, 3, None),
            ("cudaStreamSynchronize", "sync", 2, 5, "load"),
        ],
        [(0, 2, "launch", 6)],
        columns={
            "wait": ["own", "none", "none", "stream"],
            "wait_lane": [-1, -1, -1, 1],
            "operator": [0, -1, -1, -1],
        },
        operators={"name": ["aten::item"], "parent": [-1]},
    )


def test_a_download_goes_with_its_call() -> None:
    """``.item()`` vanishes from host and device; another thread's waits stay."""
    graph = blocking_job("DtoH (Device -> Pageable)")
    lanes = graph.lanes.assign(role=["main", "compute", "loader"])
    graph = replace(graph, lanes=lanes.astype({"role": "category"}))
    changed = check(remove_sync(graph, pattern="item|Synchronize"))

    assert changed.tasks["name"].tolist() == ["train", "cudaStreamSynchronize"]


def test_an_upload_stays_but_no_longer_blocks() -> None:
    """As if the batch came from pinned memory."""
    changed = check(remove_sync(blocking_job("HtoD (Pageable -> Device)"), pattern="HtoD"))

    assert changed.tasks["wait"].tolist() == ["none", "none", "none", "stream"]


def test_on_a_cpu_nobody_waits() -> None:
    """An ``.item()`` there costs its own microsecond and no waiting."""
    graph = literal(
        [("aten::item", "host", 0, 800, "forward"), ("train", "host", 0, 9_000, "forward")],
        columns={"operator": [0, -1]},
        operators={"name": ["aten::item"], "parent": [-1]},
    )

    for job in (graph, cpu_job()):
        with pytest.raises(TransformError, match="nothing to change: this job runs on a CPU alone"):
            remove_sync(job)


def test_the_closest_names_are_those_of_calls_that_wait() -> None:
    """A call that matches and waits for nothing is no suggestion."""
    with pytest.raises(TransformError) as refused:
        remove_sync(blocking_job("DtoH (Device -> Pageable)"), pattern="train")

    assert str(refused.value) == (
        "nothing to change: no wait matching 'train' in this graph; "
        "closest names: cudaMemcpyAsync, cudaStreamSynchronize"
    )
