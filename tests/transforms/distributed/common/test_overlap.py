"""How computing and communication slow each other, by what is known of device and cluster."""

from __future__ import annotations

import pytest

from foretrace.transforms.cluster.presets import ethernet, load_cluster
from foretrace.transforms.distributed.common.overlap import host_shares, slow_overlaps
from tests.support.jobs.simple import cpu_job, gpu_job


def test_transfers_and_what_overlaps_slow_each_other() -> None:
    """Kernels and NCCL by what is known of devices; computing and gloo by what a cluster says."""
    on_host, on_device = (
        slow_overlaps(job, [1], load_cluster(name)).state.network
        for job, name in ((cpu_job(), "shaped-links"), (gpu_job(), "dgx-a100"))
    )

    assert on_host is not None
    assert (on_host.members, on_host.slowed) == (((1, 0),), ("host",))
    assert on_host.compute_share < 1
    assert on_device is not None
    assert (on_device.transfer_share, on_device.slowed) == (0.9, ("kernel",))


def test_computing_keeps_less_the_faster_the_link() -> None:
    """As measured behind fixed quanta of computing; beyond the fastest link as there."""
    shares = [host_shares(ethernet(2, rate))[0] for rate in (0.3, 1.0, 100.0)]

    assert shares == pytest.approx([0.907, 0.833, 0.627])
    assert host_shares(ethernet(2, 100.0))[1] == pytest.approx(0.472)
