"""Ranks in network namespaces of their own, on links shaped with ``tc tbf``; Linux, as root.

Goes in: the rack of each rank. Comes out, while the context is open: one namespace per rank, each
joined by a veth pair to the bridge of its rack; a second rack hangs on a shaped uplink. Afterwards
nothing is left, nor are the processes that ran inside.

``python -m foretrace.tracer.lab.network.namespaces --check`` sets two ranks up, reads the rules
back and tears them down; where that cannot be it says why.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretrace.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PREFIX = "foretrace-"
SWITCH = PREFIX + "switch"
DEVICE = "eth0"
PORT = 29500  # of the rendezvous, in a namespace of its own
UPLINK = "uplink"

BURST_BYTES = 128 * 1024
"""Credit of the token bucket. With less, tbf has to split segments of 64 KB: ten times the CPU time
and 40 % longer transfers at 1 Gbit; 128 KB to 1 MB measure the same, to 0.1 %."""

QUEUE_LIMIT = "1s"
"""Longest stay in a link's queue; no packet was dropped with it."""

CONGESTION_CONTROL = "reno"
"""Under BBR, the default of many hosts, single collectives take several times as long as others."""

RACKS = 2
CHECK_MBIT = 300


def unavailable() -> str | None:
    """Return why no shaped network can be had here, ``None`` where it can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are a thing of Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [tool for tool in ("ip", "tc") if shutil.which(tool) is None]:
        return f"{missing[0]} is not installed: it is part of iproute2"
    try:
        with shaped_network((0, 0)) as network:
            network.shape(CHECK_MBIT)
    except RecordError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class ShapedNetwork:
    """The namespaces that `shaped_network` made; ``racks`` has the rack of each rank."""

    racks: tuple[int, ...]
    device: str = DEVICE
    port: int = PORT

    @property
    def ranks(self) -> range:
        """All ranks, in order."""
        return range(len(self.racks))

    def name(self, rank: int) -> str:
        """Return the namespace of *rank*."""
        return f"{PREFIX}{rank}"

    def address(self, rank: int) -> str:
        """Return the address of *rank*, reachable from all others."""
        return f"10.77.0.{rank + 1}"

    def inside(self, rank: int, command: Sequence[str]) -> list[str]:
        """Return what runs *command* in the namespace of *rank*."""
        return ["ip", "netns", "exec", self.name(rank), *command]

    def shape(
        self, mbit: int | None, *, uplink_mbit: int | None = None, ingress: bool = False
    ) -> None:
        """Let every rank send at *mbit*, in Mbit/s; ``None``: as fast as the machine can.

        With *ingress* it receives at no more than that, either. The uplink carries *uplink_mbit*
        each way.
        """
        for rank in self.ranks:
            _shape(self.name(rank), DEVICE, mbit)
            _shape(SWITCH, _port(rank), mbit if ingress else None)
        if max(self.racks):
            for rack in range(RACKS):
                _shape(SWITCH, f"{UPLINK}{rack}", uplink_mbit)

    def drops(self) -> int:
        """Return how many packets the queues of all ranks and of the uplink have dropped."""
        links = [(self.name(rank), DEVICE) for rank in self.ranks]
        links += [(SWITCH, _port(rank)) for rank in self.ranks]
        links += [(SWITCH, f"{UPLINK}{rack}") for rack in range(RACKS) if max(self.racks)]
        return sum(
            queue.get("drops", 0)
            for namespace, device in links
            for queue in _json("tc", "-n", namespace, "-s", "-j", "qdisc", "show", "dev", device)
        )

    def congestion_control(self) -> str:
        """Return the congestion control of the ranks, as read back."""
        used = {_read_congestion_control(self.name(rank)) for rank in self.ranks}
        return "+".join(sorted(used))


@contextmanager
def shaped_network(racks: Sequence[int]) -> Iterator[ShapedNetwork]:
    """Set the namespaces up, one per entry of *racks*, and tear them down.

    Raises
    ------
    RecordError
        The machine refuses a step, or another shaped network is in use; the text says which.
    """
    with _alone():
        clear()
        try:
            yield _set_up(tuple(racks))
        finally:
            clear()


def clear() -> None:
    """End what runs in our namespaces and remove them; also what an earlier run left."""
    for name in _namespaces():
        for pid in _run("ip", "netns", "pids", name).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        _run("ip", "netns", "delete", name)


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the machine's only place for a shaped network: two would take each other's links."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as place:
        try:
            place.bind("\0foretrace-shaped-network")  # abstract: gone with this process
        except OSError as error:
            raise RecordError("another shaped network is in use on this machine") from error
        yield


def _set_up(racks: tuple[int, ...]) -> ShapedNetwork:
    network = ShapedNetwork(racks)
    _run("ip", "netns", "add", SWITCH)
    for rack in range(max(racks) + 1):
        _run("ip", "-n", SWITCH, "link", "add", _bridge(rack), "type", "bridge")
        _run("ip", "-n", SWITCH, "link", "set", _bridge(rack), "up")
    if max(racks):
        _join_racks()
    for rank in network.ranks:
        _add_rank(network, rank)
    return network


def _join_racks() -> None:
    ends = [f"{UPLINK}{rack}" for rack in range(RACKS)]
    _run(*("ip", "-n", SWITCH, "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]))
    for rack, end in enumerate(ends):
        _run("ip", "-n", SWITCH, "link", "set", end, "master", _bridge(rack), "up")


def _add_rank(network: ShapedNetwork, rank: int) -> None:
    name = network.name(rank)
    _run("ip", "netns", "add", name)
    pair = ("type", "veth", "peer", "name", DEVICE, "netns", name)
    _run("ip", "link", "add", _port(rank), "netns", SWITCH, *pair)
    _run(*("ip", "-n", SWITCH, "link", "set", _port(rank)), "master", _bridge(network.racks[rank]))
    _run("ip", "-n", SWITCH, "link", "set", _port(rank), "up")
    _run("ip", "-n", name, "address", "add", f"{network.address(rank)}/24", "dev", DEVICE)
    for device in ("lo", DEVICE):
        _run("ip", "-n", name, "link", "set", device, "up")
    _set_congestion_control(name)


def _set_congestion_control(name: str) -> None:
    """Set it and read it back: a kernel may list one that it does not allow."""
    setting = f"echo {CONGESTION_CONTROL} > /proc/sys/net/ipv4/tcp_congestion_control"
    _run("ip", "netns", "exec", name, "sh", "-c", setting)
    if (used := _read_congestion_control(name)) != CONGESTION_CONTROL:
        raise RecordError(f"{name} uses {used} for congestion control, not {CONGESTION_CONTROL}")


def _read_congestion_control(name: str) -> str:
    path = "/proc/sys/net/ipv4/tcp_congestion_control"
    return _run("ip", "netns", "exec", name, "cat", path).strip()


def _shape(namespace: str, device: str, mbit: int | None) -> None:
    """Replace the queue of *device*; whatever waits in it is lost, so nothing may."""
    command = ("tc", "-n", namespace, "qdisc")
    if mbit is None:
        queues = _json("tc", "-n", namespace, "-j", "qdisc", "show", "dev", device)
        if any(queue["kind"] == "tbf" for queue in queues):
            _run(*command, "delete", "dev", device, "root")
        return
    bucket = ("rate", f"{mbit}mbit", "burst", str(BURST_BYTES), "latency", QUEUE_LIMIT)
    _run(*command, "replace", "dev", device, "root", "tbf", *bucket)


def _bridge(rack: int) -> str:
    return f"rack{rack}"


def _port(rank: int) -> str:
    return f"port{rank}"


def _namespaces() -> list[str]:
    names = [entry["name"] for entry in _json("ip", "-j", "netns", "list")]
    return [name for name in names if name.startswith(PREFIX)]


def _json(*command: str) -> list[dict[str, Any]]:
    """Return the list that *command* prints; some print nothing for an empty one."""
    entries: list[dict[str, Any]] = json.loads(_run(*command) or "[]")
    return entries


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
        raise RecordError(f"{' '.join(command)}: {reason}")
    return done.stdout


def main(arguments: Sequence[str]) -> int:
    """Check that a shaped network can be had, saying what was read back."""
    if list(arguments) != ["--check"]:
        sys.stderr.write("usage: python -m foretrace.tracer.lab.network.namespaces --check\n")
        return 2
    if (reason := unavailable()) is not None:
        sys.stdout.write(f"no shaped network here: {reason}\n")
        return 1
    with shaped_network((0, 1)) as network:
        network.shape(CHECK_MBIT, uplink_mbit=CHECK_MBIT)
        sys.stdout.write(
            f"{len(network.racks)} ranks in {RACKS} racks: tbf {CHECK_MBIT} Mbit/s, "
            f"burst {BURST_BYTES} bytes, {network.congestion_control()}, "
            f"{network.drops()} packets dropped\n"
        )
    return 0


if __name__ == "__main__":  # pragma: no cover - runs in a process of its own
    sys.exit(main(sys.argv[1:]))
