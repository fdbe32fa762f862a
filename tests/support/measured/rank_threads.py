"""Several ranks as threads of one process, joined by real gloo groups over the loopback device."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from foretrace.tracer.lab.network.party import Party

if TYPE_CHECKING:
    from collections.abc import Callable


def together(run: Callable[[Party], Any], ranks: int, servers: int = 0) -> list[Any]:
    """Call *run* as every rank at once; return what each gave, servers last.

    The environment has to say ``GLOO_SOCKET_IFNAME=lo``.
    """
    import torch.distributed as dist

    store = dist.HashStore()

    def start(rank: int) -> Any:
        return run(Party(rank, ranks, servers, _group(store, rank, ranks + servers)))

    with ThreadPoolExecutor(ranks + servers) as pool:
        return [done.result(60) for done in [pool.submit(start, r) for r in range(ranks + servers)]]


def _group(store: Any, rank: int, size: int) -> Any:
    import torch
    import torch.distributed as dist

    group = dist.ProcessGroup(rank, size)  # with a store, older versions want options as well
    gloo = dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=20))
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
    return group
