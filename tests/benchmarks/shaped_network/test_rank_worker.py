"""The commands of a rank that trains, on ranks that are threads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.measured.rank_threads import together

torch = pytest.importorskip("torch")

from benchmarks.shaped_network import chains, models  # noqa: E402 - needs torch
from benchmarks.shaped_network.rank_worker import (  # noqa: E402 - same
    Rank,
    _sent_bytes,
    training_commands,
)
from benchmarks.shaped_network.training import RankTraining  # noqa: E402 - same
from foretrace.tracer.lab.network.party import Party  # noqa: E402 - same

if TYPE_CHECKING:
    from pathlib import Path

SHORT = {"seconds": 0.001, "fewest": 2, "most": 3, "lone_steps": 2}


def _tiny() -> chains.LayerChain:
    return chains.LayerChain(*(torch.nn.Linear(8, 8) for _ in range(2)))


@pytest.fixture(autouse=True)
def _tiny_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    example = chains.Example(_tiny, chains.vectors, 8, {"width": 8, "classes": 8}, cut=1)
    monkeypatch.setitem(models.EXAMPLES, "tiny", example)


def _answers(
    *commands: tuple[str, dict[str, Any]], ranks: int = 2, servers: int = 0
) -> list[list[Any]]:
    """Return what every rank answers to *commands*."""

    def run(party: Party) -> list[Any]:
        answers = training_commands(party, "lo")
        return [answers[name](**arguments) for name, arguments in commands]

    return together(run, ranks, servers)


def test_a_cell_is_measured_between_lone_steps() -> None:
    """All ranks make as many steps; the job alone is timed before and after; bytes are counted."""
    pipeline = {"training": "pipeline", "model": "tiny", "options": {"micro_batches": 2}}
    answers = _answers(
        ("build", {"model": "tiny"}),
        ("prepare", pipeline),
        ("measure", SHORT),
    )

    for built, prepared, measured in answers:
        assert built["parameters"][:2] == [
            ["layers.0.weight", [8, 8], "torch.float32"],
            ["layers.0.bias", [8], "torch.float32"],
        ]
        assert prepared == {}
        assert len(measured["step_ns"]) in (2, 3)
        assert len(measured["lone_ns"]) == len(measured["lone_forward_ns"]) == 4
        assert measured["expected_bytes"] == len(measured["step_ns"]) * 8 * 8 * 4
        assert measured["tx_bytes"] >= measured["expected_bytes"]
        assert measured["facts"]["cut"] == "layers.1"
    assert len({len(measured["step_ns"]) for *_, measured in answers}) == 1


def test_a_server_has_no_job_of_its_own() -> None:
    """It neither computes nor is it recorded; the workers' bytes come back through it."""
    server = {"training": "parameter_server", "model": "tiny", "options": {"mode": "bsp"}}
    *_, (built, _, measured) = _answers(
        ("build", {"model": "tiny"}),
        ("prepare", server),
        ("measure", SHORT),
        servers=1,
    )

    assert built == {}
    assert (measured["step_ns"], measured["lone_ns"]) == ([], [])
    assert measured["expected_bytes"] in (4 * 576, 6 * 576)


def test_collectives_are_commands_too() -> None:
    """One kind at one size; and computing with all-reduces behind it."""
    contend = {"compute": "products", "size": 4096, "seconds": 0.01}
    for ends, company in _answers(
        ("time_collective", {"kind": "all_reduce", "size": 4096, "seconds": 0.001}),
        ("contend", contend),
    ):
        assert len(ends) >= 4
        assert set(company) == {"alone_ends_ns", "ends_ns", "quiet_ns", "busy_ns"}


def test_the_job_alone_is_recorded(tmp_path: Path) -> None:
    """Rank 0 writes a Kineto file of the job as it is without any group."""
    path = tmp_path / "tiny.json"
    [[_, recorded]] = _answers(
        ("build", {"model": "tiny"}),
        ("record", {"path": str(path), "command": "python -m benchmarks.shaped_network"}),
        ranks=1,
    )

    names = {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}
    assert {"ProfilerStep#0", "##layers.0", "aten::addmm"} <= names
    assert recorded["facts"]["command"] == "python -m benchmarks.shaped_network"
    assert recorded["facts"]["batch_size"] == 8
    assert len(recorded["facts"]["unprofiled_step_ns"]) == 25


def test_a_server_records_nothing() -> None:
    """It has no job."""
    rank = Rank(Party(1, 1, 1, None), "lo")
    assert rank.record(path="", command="") == {}


@pytest.mark.parametrize(
    ("training", "counts", "limited"),
    [
        (RankTraining(lambda: None), [5, 5], [6, 6]),
        (RankTraining(lambda: None, in_step=False), [10, 5], [8, 6]),
    ],
    ids=["in step", "on their own"],
)
def test_who_waits_makes_as_many_steps_as_the_slowest(
    training: RankTraining, counts: list[int], limited: list[int]
) -> None:
    """Steps of 1 and 2 ms in 10 ms; the server's estimate, which is none, does not count."""
    rank = Rank(Party(0, 2, 1, None), "lo")
    rank.training = training

    assert rank._counts([1_000_000, 2_000_000, 0], 0.01, 1, 100) == counts
    assert rank._counts([1_000_000, 2_000_000, 0], 0.01, 6, 8) == limited


def test_a_device_that_does_not_count_has_sent_nothing() -> None:
    """Bytes come from the counters that Linux keeps."""
    assert _sent_bytes("no-such-device") == 0
