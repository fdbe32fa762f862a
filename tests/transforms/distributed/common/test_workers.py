"""What every scheme asks of a job before it makes several workers of one."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.transforms.cluster.placement import Placement
from foretrace.transforms.cluster.presets import ethernet
from foretrace.transforms.distributed.common.workers import (
    of_workers,
    place_alone,
    with_workers,
    workers_of,
)
from tests.support.jobs.simple import cpu_job, gpu_job

NOWHERE: dict[str, Any] = {"cluster": None, "network": None, "nodes": None}


def test_a_job_of_one_worker_is_placed() -> None:
    """Two workers at 25 Gbit/s."""
    placed = place_alone(cpu_job(), "p3", 2, **{**NOWHERE, "network": "25Gbps"})

    assert placed.devices == (0, 1)
    assert workers_of(of_workers(cpu_job(), 2, placed), "p3") is placed
    assert of_workers(cpu_job(), 2).meta.world_size == 2


def test_devices_for_devices_only() -> None:
    """A cluster of GPUs is none for a CPU job."""
    assert place_alone(gpu_job(), "p3", 2, **{**NOWHERE, "cluster": "dgx-a100"}).devices == (0, 1)
    with pytest.raises(TransformError, match="joins devices, and this is a CPU job"):
        place_alone(cpu_job(), "p3", 2, **{**NOWHERE, "cluster": "dgx-a100"})


def test_a_job_that_communicates_is_refused() -> None:
    """It has its peers."""
    graph = literal([("ncclAllReduce", "collective", 0, 5, None)])

    with pytest.raises(TransformError, match="p3 starts from the recording of a job on one worker"):
        place_alone(graph, "p3", 2, **{**NOWHERE, "network": "25Gbps"})


def test_no_workers_are_refused() -> None:
    """None is too few."""
    with pytest.raises(TransformError, match="workers=0 is out of range"):
        place_alone(cpu_job(), "p3", 0, **{**NOWHERE, "network": "25Gbps"})


def test_workers_stay_with_the_graph() -> None:
    """What ddp placed, a later what-if finds."""
    placed = Placement(ethernet(2, 1.0), (0, 1))

    assert workers_of(with_workers(literal([("a", "host", 0, 5, None)]), placed), "dgc") is placed


def test_who_the_workers_are_is_asked_for() -> None:
    """One sentence says how to get them."""
    with pytest.raises(TransformError, match="dgc needs a job whose workers and network are known"):
        workers_of(literal([("a", "host", 0, 5, None)]), "dgc")
