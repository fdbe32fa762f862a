"""Namespaces on shaped links: what is set up, what is read back, that nothing is left."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.errors import RecordError
from foretrace.tracer.lab.network import namespaces as shaped

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.usefixtures("namespaces")
def test_ranks_reach_each_other_through_their_queues() -> None:
    """Every rank sends through tbf at its rate, and the rules read back as set."""
    with shaped.shaped_network((0, 0)) as network:
        network.shape(300)
        queues = [_queue(name, "eth0") for name in ("foretrace-0", "foretrace-1")]
        assert [queue["kind"] for queue in queues] == ["tbf", "tbf"]
        assert {queue["options"]["rate"] * 8 for queue in queues} == {300_000_000}
        for queue in queues:
            assert queue["options"]["burst"] == pytest.approx(131_072, rel=1e-3)
        assert network.congestion_control() == "reno"
        assert _answers(network, 0, 1)
        assert network.drops() == 0
        network.shape(None)
        assert _queue("foretrace-0", "eth0")["kind"] != "tbf"
    assert shaped._namespaces() == []


@pytest.mark.usefixtures("namespaces")
def test_racks_meet_over_the_uplink_alone() -> None:
    """Three ranks in two racks: with the uplink down, only those of one rack reach each other."""
    with shaped.shaped_network((0, 0, 1)) as network:
        network.shape(1000, uplink_mbit=300, ingress=True)
        for device, mbit in (("uplink0", 300), ("uplink1", 300), ("port2", 1000)):
            assert _queue(shaped.SWITCH, device)["options"]["rate"] * 8 == mbit * 1_000_000
        assert _answers(network, 0, 2)
        subprocess.run(["ip", "-n", shaped.SWITCH, "link", "set", "uplink0", "down"], check=True)
        assert _answers(network, 0, 1)
        assert not _answers(network, 0, 2)


def _queue(namespace: str, device: str) -> dict[str, Any]:
    return shaped._json("tc", "-n", namespace, "-j", "qdisc", "show", "dev", device)[0]


def _answers(network: shaped.ShapedNetwork, rank: int, other: int) -> bool:
    """Tell whether *other* takes a connection from *rank*."""
    listen = (
        "import socket; s = socket.create_server(('', 7)); print('ready', flush=True); s.accept()"
    )
    reach = f"import socket; socket.create_connection(('{network.address(other)}', 7), 0.5)"
    with subprocess.Popen(
        network.inside(other, [sys.executable, "-c", listen]), stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        server.stdout.readline()
        done = subprocess.run(
            network.inside(rank, [sys.executable, "-c", reach]), capture_output=True, check=False
        )
        server.kill()
    return done.returncode == 0


@pytest.mark.usefixtures("namespaces")
def test_what_still_runs_inside_is_ended() -> None:
    """A process that outlives its controller would slow every later run."""
    with shaped.shaped_network((0, 0)) as network:
        process = subprocess.Popen(network.inside(0, ["sleep", "60"]))
        assert _is_inside(process.pid)
    assert process.wait(5) == -signal.SIGKILL


def _is_inside(pid: int) -> bool:
    while str(pid) not in shaped._run("ip", "netns", "pids", "foretrace-0").split():
        pass  # it has not entered yet
    return True


@pytest.mark.usefixtures("namespaces")
def test_the_machine_has_one_place() -> None:
    """Two networks at once would take each other's links; an error inside frees the place."""
    with shaped.shaped_network((0, 0)):
        assert shaped.unavailable() == "another shaped network is in use on this machine"
    with pytest.raises(KeyError), shaped.shaped_network((0, 0)):
        raise KeyError
    assert shaped.unavailable() is None


@pytest.mark.usefixtures("namespaces")
def test_a_kernel_that_keeps_another_congestion_control_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Under another one collectives take several times as long, now and then."""
    monkeypatch.setattr(shaped, "_read_congestion_control", lambda _name: "bbr")

    with pytest.raises(RecordError, match="foretrace-0 uses bbr for congestion control, not reno"):
        shaped.shaped_network((0,)).__enter__()

    monkeypatch.undo()
    assert shaped._namespaces() == []


@pytest.mark.parametrize(
    ("where", "value", "reason"),
    [
        ("sys.platform", "darwin", "network namespaces are a thing of Linux"),
        ("os.geteuid", lambda: 1000, "network namespaces need root"),
        ("shutil.which", lambda _tool: None, "ip is not installed: it is part of iproute2"),
    ],
)
def test_why_there_is_none(
    where: str, value: object, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason names what is missing."""
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(where, value)

    assert shaped.unavailable() == reason


def test_a_refused_command_is_quoted() -> None:
    """The error has the command and the first line of what it said."""
    with pytest.raises(RecordError, match=r"^ls /no/such/place: .*No such file"):
        shaped._run("ls", "/no/such/place")
    with pytest.raises(RecordError, match=r"^false: exit code 1$"):
        shaped._run("false")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--check"], 0, "2 ranks in 2 racks: tbf 300 Mbit/s, burst 131072 bytes, reno, 0 packets"),
        ([], 2, "usage: python -m foretrace.tracer.lab.network.namespaces --check"),
    ],
)
@pytest.mark.usefixtures("namespaces")
def test_the_check_says_what_it_read(
    arguments: Sequence[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and an exit code for scripts."""
    assert shaped.main(arguments) == code
    told = capsys.readouterr()
    assert said in told.out + told.err


def test_the_check_says_why_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where there is no shaped network, scripts can tell."""
    monkeypatch.setattr(shaped, "unavailable", lambda: "network namespaces need root")

    assert shaped.main(["--check"]) == 1
    assert capsys.readouterr().out == "no shaped network here: network namespaces need root\n"
