"""What torch's DDP cannot do, or what is not modelled: refused, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.errors import TransformError
from foretrace.graph.state import Doubt
from foretrace.transforms.distributed.common.backward_passes import count_adding
from foretrace.transforms.distributed.common.dense_gradients import require_dense
from foretrace.transforms.edit.parameters import choice
from foretrace.transforms.edit.select import has_device

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from foretrace.graph.model import Graph
    from foretrace.transforms.distributed.common.gradients import Gradient

COMPRESSIONS = ("fp16", "bf16", "powersgd")
BACKENDS = ("nccl", "gloo")


def check_wire(graph: Graph, compression: str | None, backend: str | None) -> None:
    """Refuse what torch cannot do, or what is not modelled."""
    own = "nccl" if has_device(graph) else "gloo"
    if backend is not None and choice("backend", backend, BACKENDS) != own:
        raise TransformError(
            f"backend={backend!r} is not what this job would use; on "
            f"{'devices it is nccl' if own == 'nccl' else 'CPUs it is gloo'}"
        )
    if compression is None:
        return
    if choice("compression", compression, COMPRESSIONS) == "bf16" and own == "gloo":
        raise TransformError("gloo adds up no bf16: torch's bf16 hook fails there; use fp16")


def doubt_no_sync(graph: Graph, no_sync: bool | None) -> Iterator[Doubt]:  # noqa: FBT001 - an answer
    """Say that nobody says whether passes that only add to gradients exchange them."""
    if no_sync is None and (adding := count_adding(graph)):
        text = (
            f"{adding} of the backward passes of a step only add to the gradients of a later one, "
            "with no update between them: they are taken to run under no_sync and exchange "
            "nothing; without it each exchanges all, and ddp(no_sync=False) asks for that"
        )
        yield Doubt("no-sync-unknown", f"ddp: {text}")


def check_sparse(
    graph: Graph, gradients: Sequence[Gradient], compression: str | None, *, recorded: bool
) -> None:
    """Refuse sparse gradients where torch does, or where their rows are not known."""
    if recorded or has_device(graph):
        require_dense(gradients, "NCCL adds up dense gradients only")
    if compression is not None:
        require_dense(gradients, f"compression={compression!r} is known of dense gradients only")
