"""Every what-if with the parameters and the jobs on which it is put to the contract.

Random jobs where it applies to them; where they lack what it is about, a small job of its own,
the one that its own tests change. A new what-if needs a row in `CASES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from foretrace.transforms.distributed.common.workers import with_workers
from foretrace.transforms.distributed.ddp.ddp import ddp
from tests.support.jobs import collectives, gradients, kernels, modules
from tests.support.jobs.kernels import BACKWARD_CHAIN, CHAIN, CONV, SGEMM, SOFTMAX, launching
from tests.support.jobs.layers import cpu_layers, gpu_layers
from tests.support.jobs.sharded import device_job, host_job
from tests.support.jobs.simple import cpu_job, gpu_job, jobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.graph.model import Graph


@dataclass(frozen=True)
class Case:
    """A what-if by name, its parameters, and the jobs that it is applied to."""

    name: str
    parameters: dict[str, Any]
    graphs: st.SearchStrategy[Graph]


ANY = jobs()
GPU = jobs((gpu_job,))
CPU = jobs((cpu_job,))
WIRE: dict[str, Any] = {"network": "1Gbps"}
STAGES: dict[str, Any] = {"stages": 2, "micro_batches": 2, "activation_mb": 0.01}


def of(*builders: Callable[[], Graph]) -> st.SearchStrategy[Graph]:
    """Return a strategy that gives each of a few jobs, built when it is drawn."""
    return st.one_of([st.builds(build) for build in builders])


def in_buckets(mb: float) -> st.SearchStrategy[Graph]:
    """Return a strategy of two workers, on CPUs or devices, with gradients in buckets of *mb*."""
    return of(
        lambda: ddp(host_job(), workers=2, bucket_cap_mb=mb, **WIRE),
        lambda: ddp(device_job(), workers=2, bucket_cap_mb=mb, **WIRE),
    )


def hosts_in_racks() -> Graph:
    """Return four workers on CPUs, in two racks, with buckets of 1 MB."""
    graph = ddp(host_job(), workers=4, bucket_cap_mb=1, **WIRE)
    return with_workers(graph, collectives.SLOW_RACKS)


SHARDED = of(host_job, device_job)
FP32_PRODUCTS = of(partial(launching, ("forward", [SGEMM, CONV])))
FP32_ATTENTION = of(partial(launching, ("forward", [SGEMM, SOFTMAX, SGEMM])))
ATTENTION = of(partial(launching, ("forward", CHAIN), ("backward", BACKWARD_CHAIN)))
PERCEPTRON = of(
    *(partial(modules.forward_and_backward, modules.MLP, device=on) for on in (False, True))
)
THREE_LAYERS = of(*(partial(build, "012", steps=2) for build in (cpu_layers, gpu_layers)))
CASES = (
    Case("faster_kernels", {"pattern": ".*", "speedup": 2.0}, GPU),
    Case("faster_host", {"speedup": 2.0}, ANY),
    Case("amp", {}, ANY),
    Case("fused_optimizer", {}, ANY),
    Case("remove_sync", {}, GPU),
    Case("dataloader", {"workers": 2}, ANY),
    Case("batch_size", {"n": 64}, ANY),
    Case("gradient_accumulation", {"k": 3}, ANY),
    Case("cpu_cores", {"n": 8, "recorded": 1}, CPU),
    Case("overlap_h2d", {}, of(kernels.uploading)),
    Case("channels_last", {}, of(kernels.layout_changes, kernels.cpu_convolutions)),
    Case("compile", {}, ANY),
    Case("device", {"name": "H100"}, GPU),
    Case("tf32", {}, FP32_PRODUCTS),
    Case("flash_attention", {}, ATTENTION),
    Case("flash_attention", {"kind": "mem_efficient"}, FP32_ATTENTION),
    Case("cuda_graphs", {}, GPU),
    Case("cuda_graphs", {"phases": "forward+optimizer"}, GPU),
    Case("activation_checkpoint", {}, ANY),
    Case("remove_modules", {"pattern": "blocks.1"}, of(modules.two_blocks)),
    Case("faster_modules", {"pattern": "blocks.1", "speedup": 2}, of(modules.two_blocks)),
    Case("replace_kernel", {"pattern": "gemm", "duration_us": 3.0}, GPU),
    Case("reconstruct_batchnorm", {}, of(kernels.batch_norms)),
    Case("metaflow", {"merge": "q|k|v"}, of(kernels.projections)),
    Case("vdnn", {}, GPU),
    Case("gist", {"lossy_bits": 8}, GPU),
    Case("ddp", {"workers": 4, "network": "10Gbps", "gradient_mb": 50}, ANY),
    Case("ddp", {"workers": 2, **WIRE}, of(gradients.cpu_job, gradients.gpu_job)),
    Case("network", {"bandwidth": "300Mbps"}, in_buckets(1)),
    Case("network", {"bandwidth": 4.0}, of(collectives.measured_collectives)),
    Case("placement", {"to": "spread"}, of(collectives.in_racks)),
    Case("placement", {"to": [3, 2, 1, 0]}, of(hosts_in_racks)),
    Case("fsdp", {"workers": 4, **WIRE}, SHARDED),
    *(Case("parameter_server", {"workers": 3, "mode": m, **WIRE}, SHARDED) for m in ("bsp", "asp")),
    *(Case("p3", {"workers": 2, "servers": n, **WIRE}, SHARDED) for n in (None, 2)),
    Case("blueconnect", {}, of(partial(collectives.reduces, 1_000, 2_000), hosts_in_racks)),
    Case("dgc", {}, in_buckets(25)),
    Case("powersgd", {"rank": 1}, in_buckets(0.4)),
    *(Case("pipeline", {"schedule": s, **STAGES, **WIRE}, THREE_LAYERS) for s in ("gpipe", "1f1b")),
    Case("tensor_parallel", {"degree": 2, **WIRE}, PERCEPTRON),
    Case("straggler", {"rank": 0, "slowdown": 2}, of(collectives.two_ranks)),
    Case("remove_stragglers", {}, of(collectives.two_ranks)),
)
"""In the order of the registry."""
NEUTRAL = (
    Case("faster_kernels", {"pattern": ".*", "speedup": 1.0}, GPU),
    Case("faster_host", {"speedup": 1.0}, ANY),
    Case("dataloader", {"workers": 0}, ANY),
    Case("batch_size", {"n": 32}, ANY),
    Case("gradient_accumulation", {"k": 1}, ANY),
    Case("device", {"name": "A100-80GB"}, GPU),
    Case("ddp", {"workers": 1}, ANY),
    Case("pipeline", {"stages": 1, "micro_batches": 1}, of(cpu_layers, gpu_layers)),
    Case("tensor_parallel", {"degree": 1}, PERCEPTRON),
)
"""Asking for what is there."""
