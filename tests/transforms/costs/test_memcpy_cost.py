"""Moving bytes in a rank's memory: at the probed rate, the device's, or what was seen elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foretrace.graph.literal import literal
from foretrace.transforms.costs.memcpy_cost import compute_device, insert_moves, moving_ns
from tests.support.jobs.sharded import host_job
from tests.support.jobs.simple import gpu_job

SIZES = np.array([1e3, 8.5e6])


def test_probed_rate_of_a_cpu() -> None:
    """4 GB/s, read and written together; a probe of more than 10 ran alone."""
    slow, fast = (replace(host_job().meta, machine={"copy_gbps": rate}) for rate in (4.0, 25.0))

    assert moving_ns(replace(host_job(), meta=slow), SIZES).tolist() == [250, 2_125_000]
    assert moving_ns(replace(host_job(), meta=fast), SIZES).tolist() == [100, 850_000]


def test_cpu_that_was_not_probed() -> None:
    """0.2 ns per byte copied, which is 0.1 per byte moved."""
    job = host_job()
    unknown = replace(job, meta=replace(job.meta, machine=None))
    changed, rows = insert_moves(unknown, np.array([0]), SIZES[1:], name="copy")

    assert moving_ns(unknown, SIZES).tolist() == [100, 850_000]
    assert changed.tasks["cost"].iloc[rows].tolist() == ["prior"]


def test_known_device() -> None:
    """A40 GB A100 streams 85 % of 1555 GB/s or more; a kernel takes its shortest time at least."""
    device = moving_ns(gpu_job(device="NVIDIA A100-SXM4-40GB"), SIZES)

    assert device[0] == 2_000
    assert 5_000 < device[1] < 7_000


def test_unknown_device() -> None:
    """That of a V100: 900 GB/s."""
    graph = gpu_job(device="NVIDIA Nonesuch")
    changed, rows = insert_moves(graph, np.array([2]), SIZES[1:], name="copy")

    assert moving_ns(graph, SIZES)[1] == round(8.5e6 / (900 * 0.85))
    assert changed.tasks[["kind", "cost"]].iloc[rows].to_numpy().tolist() == [["kernel", "prior"]]


def test_device_of_most_kernels() -> None:
    """−1 on a CPU."""
    assert compute_device(gpu_job()) == 0
    assert compute_device(literal([("a", "host", 0, 5, None)])) == -1
