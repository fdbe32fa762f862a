"""Ranks of one machine on its loopback device: what `shaped_network` is without namespaces."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ADDRESS = "127.0.0.1"


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((ADDRESS, 0))
        port: int = taken.getsockname()[1]
    return port


@dataclass(frozen=True)
class Loopback:
    """The loopback device for so many ranks."""

    count: int
    device: str = "lo"
    port: int = field(default_factory=_free_port)

    @property
    def ranks(self) -> range:
        """All ranks, in order."""
        return range(self.count)

    def address(self, _rank: int) -> str:
        """Return the address of every rank."""
        return ADDRESS

    def inside(self, _rank: int, command: Sequence[str]) -> list[str]:
        """Return what runs *command*."""
        return list(command)

    def shape(
        self, _mbit: int | None, *, uplink_mbit: int | None = None, ingress: bool = False
    ) -> None:
        """Leave the device as fast as it is."""

    def drops(self) -> int:
        """Return that no packet was dropped."""
        return 0
