"""Who takes part in a collective: what a rank knows of itself and of its peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Party:
    """A rank, how many compute, how many serve, and torch's process group.

    The servers are the last ranks. ``device`` is where tensors lie that are sent.
    """

    rank: int
    ranks: int
    servers: int
    group: Any
    device: str = "cpu"

    @property
    def is_server(self) -> bool:
        """Whether this rank only serves parameters."""
        return self.rank >= self.ranks

    def gather(self, value: int) -> list[int]:
        """Return the *value* of every rank, servers included."""
        import torch

        own = torch.tensor([value], device=self.device)
        everyone = [torch.zeros_like(own) for _ in range(self.ranks + self.servers)]
        self.group.allgather([everyone], [own]).wait()
        return [int(each) for each in everyone]

    def meet(self) -> None:
        """Wait for all ranks."""
        self.group.barrier().wait()
        self.finish()

    def finish(self) -> None:
        """Wait until the device has done all it was told; a CPU always has."""
        import torch

        if self.device != "cpu":
            torch.cuda.synchronize(self.device)
