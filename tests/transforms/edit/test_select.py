"""Selections: what makes a job one of a device."""

from __future__ import annotations

import numpy as np

from foretrace.graph.literal import literal
from foretrace.transforms.distributed.ddp.ddp import ddp
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.select import device_tasks_matching, has_device, on_device
from tests.support.jobs.gradients import cpu_job, gpu_job


def test_work_on_a_stream_makes_a_job_of_a_device() -> None:
    """Kernels do; threads alone, collectives on a link and a stream without work do not."""
    kernel = literal([("gemm", "kernel", 0, 10, None)])

    assert has_device(kernel)
    assert not has_device(literal([("step", "host", 0, 10, None)]))
    assert not has_device(remove(kernel, np.array([True])))


def test_an_exchange_does_not_change_what_a_job_runs_on() -> None:
    """The collectives of a CPU job stand on a link."""
    on_cpu, on_gpu = (ddp(job(), workers=2, network="10Gbps") for job in (cpu_job, gpu_job))

    assert on_device(on_cpu).any()
    assert not has_device(on_cpu)
    assert has_device(on_gpu)


def test_collectives_take_their_transfer_with_them() -> None:
    """The transfer for which two ranks meet goes by another name, and is no work of the product."""
    graph = literal(
        [
            ("gemm", "kernel", 0, 50, None),
            ("nccl", "collective", 1, 20, None),
            ("nccl", "collective", 2, 20, None),
            ("transfer", "collective", 3, 20, None),
        ],
        [(1, 3, "collective"), (2, 3, "collective")],
    )

    assert device_tasks_matching(graph, "nccl").tolist() == [False, True, True, True]
    assert device_tasks_matching(graph, "gemm").tolist() == [True, False, False, False]
