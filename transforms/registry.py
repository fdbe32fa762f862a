"""The list of what-ifs: functions from graph to graph, one file each.

`TRANSFORMS` is the only registry; the command line, the docs and the contract test read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.transforms.batching.batch_size import batch_size
from foretrace.transforms.batching.gradient_accumulation import gradient_accumulation
from foretrace.transforms.compute.amp.amp import amp
from foretrace.transforms.compute.channels_last import channels_last
from foretrace.transforms.compute.compile import compile  # noqa: A004 - what users call it
from foretrace.transforms.compute.cuda_graphs import cuda_graphs
from foretrace.transforms.compute.device import device
from foretrace.transforms.compute.faster_kernels import faster_kernels
from foretrace.transforms.compute.faster_modules import faster_modules
from foretrace.transforms.compute.flash_attention import flash_attention
from foretrace.transforms.compute.fused_optimizer import fused_optimizer
from foretrace.transforms.compute.metaflow.metaflow import metaflow
from foretrace.transforms.compute.reconstruct_batchnorm import reconstruct_batchnorm
from foretrace.transforms.compute.remove_modules import remove_modules
from foretrace.transforms.compute.replace_kernel import replace_kernel
from foretrace.transforms.compute.tf32 import tf32
from foretrace.transforms.distributed.blueconnect import blueconnect
from foretrace.transforms.distributed.ddp.ddp import ddp
from foretrace.transforms.distributed.dgc import dgc
from foretrace.transforms.distributed.fsdp import fsdp
from foretrace.transforms.distributed.network import network
from foretrace.transforms.distributed.p3.p3 import p3
from foretrace.transforms.distributed.parameter_server import parameter_server
from foretrace.transforms.distributed.pipeline.pipeline import pipeline
from foretrace.transforms.distributed.placement import placement
from foretrace.transforms.distributed.powersgd import powersgd
from foretrace.transforms.distributed.straggler import remove_stragglers, straggler
from foretrace.transforms.distributed.tensor_parallel.tensor_parallel import tensor_parallel
from foretrace.transforms.host.cpu_cores import cpu_cores
from foretrace.transforms.host.dataloader import dataloader
from foretrace.transforms.host.faster_host import faster_host
from foretrace.transforms.host.overlap_h2d import overlap_h2d
from foretrace.transforms.host.remove_sync import remove_sync
from foretrace.transforms.memory.activation_checkpoint import activation_checkpoint
from foretrace.transforms.memory.gist import gist
from foretrace.transforms.memory.vdnn import vdnn

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.graph.model import Graph

TRANSFORMS: dict[str, Callable[..., Graph]] = {
    function.__name__: function
    for function in (
        faster_kernels,
        faster_host,
        amp,
        fused_optimizer,
        remove_sync,
        dataloader,
        batch_size,
        gradient_accumulation,
        cpu_cores,
        overlap_h2d,
        channels_last,
        compile,
        device,
        tf32,
        flash_attention,
        cuda_graphs,
        activation_checkpoint,
        remove_modules,
        faster_modules,
        replace_kernel,
        reconstruct_batchnorm,
        metaflow,
        vdnn,
        gist,
        ddp,
        network,
        placement,
        fsdp,
        parameter_server,
        p3,
        blueconnect,
        dgc,
        powersgd,
        pipeline,
        tensor_parallel,
        straggler,
        remove_stragglers,
    )
}
"""Every what-if by name; its keyword-only arguments are its parameters."""
