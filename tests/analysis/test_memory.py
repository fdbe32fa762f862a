"""Who holds memory, what fits, and what what-ifs change: small jobs, and the command."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from foretrace.analysis.memory import report_memory
from foretrace.analysis.memory_snapshot import with_totals
from foretrace.cli import app as cli
from foretrace.errors import TransformError
from foretrace.graph.literal import literal
from foretrace.tracer.readers.load import load
from foretrace.tracer.readers.memory_snapshot import read_snapshot
from foretrace.tracer.trace import Device, TraceMeta
from tests.support.paths import PUBLIC
from tests.support.recordings.kineto import write_small_trace

if TYPE_CHECKING:
    from pathlib import Path

    from foretrace.graph.model import Graph

VGG = PUBLIC / "triosim/vgg13_h100_bs512_adam_iter41.json.gz"


def job(memory: int = 10_000) -> Graph:
    """Return a job of one product of 64 x 16 values, batch 64, on a device of *memory* bytes."""
    return literal(
        [("sgemm", "kernel", 0, 9_000, "forward"), ("sgemm", "kernel", 0, 9_000, "backward")],
        columns={"operator": [0, -1]},
        operators={
            "name": ["aten::mm", "torch::autograd::AccumulateGrad"],
            "parent": [-1, -1],
            "step": [0, 0],
            "phase": ["forward", "backward"],
            "shapes": ["[[64,16],[16,2]]", "[[16,2]]"],
        },
        meta=TraceMeta("kineto", devices=(Device(0, "X", memory_bytes=memory),), batch_size=64),
    )


def test_the_largest_batch_by_hand() -> None:
    """4,096 B of activations and as many temporary; weights of 128 B, half of their gradients.

    Beside 192 B there is room for 1.197 times the 8,192 B that grow with the batch: 76 samples.
    """
    report = report_memory(job())
    room = report.variants[0].rooms[0]

    assert report.variants[0].peak.bytes == 8_192 + 192
    assert (room.of, room.size, room.largest) == ("batch", 64, 76)
    assert room.times == pytest.approx((10_000 - 192) / 8_192)
    assert report.variants[0].fits


def test_each_what_if_alone_and_all_together() -> None:
    """Half the batch takes half; what does not apply is said, not dropped."""
    report = report_memory(job(8_000), ["batch_size(n=32)", "vdnn", "gist"])

    assert [each.fits for each in report.variants[:2]] == [False, True]
    assert report.variants[1].peak.bytes == 4_096 + 192
    assert {text for text, _ in report.refused} >= {"vdnn"}


def test_another_device() -> None:
    """Of the table, by name; one that is not there is refused."""
    assert report_memory(job(), device="V100-SXM2").variants[0].capacity == 32e9
    with pytest.raises(TransformError, match="not in the table"):
        report_memory(job(), device="abacus")


def test_nothing_is_said_where_nothing_tells() -> None:
    """No shapes, no events, no device of the table."""
    with pytest.raises(TransformError, match="record with profile_memory=True"):
        report_memory(literal([("copy", "kernel", 0, 9, None)]))


def test_the_command_tells_parts_and_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    """39.3 GB of VGG-13 as the allocator recorded them; JSON and text say the same."""
    if not VGG.exists():
        pytest.skip("the public traces are not here")
    assert cli.run(["memory", str(VGG), "batch_size(n=1024,recorded=512)", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    recorded, doubled = found["variants"]

    assert recorded["memory_gb"]["peak"] == 39.343881
    assert recorded["memory_gb"]["source"] == "recorded"
    assert found["reserved_gb"] == 61.652074
    assert found["fragmentation_gb"] == pytest.approx(61.652074 - 39.343881, abs=1e-5)
    assert 1.8 < doubled["memory_gb"]["peak"] / recorded["memory_gb"]["peak"] < 2
    assert doubled["largest"]["batch"]["recorded"] == 1024
    assert cli.run(["memory", str(VGG)]) == 0
    text = capsys.readouterr().out
    assert "39.3 GB  in backward; recorded by the allocator" in text
    assert "22.3 GB of it not handed out" in text


def test_a_snapshot_gives_the_totals(tmp_path: Path) -> None:
    """Of a recording without events of its own: 80 bytes at the peak, 100 reserved."""
    path = tmp_path / "s.pickle"
    history = [{"action": "segment_alloc", "size": 100}, {"action": "alloc", "size": 80}]
    segments = [{"device": 0, "total_size": 100, "allocated_size": 80}]
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": [history]}))
    trace = with_totals(load(write_small_trace(tmp_path)), read_snapshot(path))

    assert trace.meta.extra["memory"] == {
        "device": 0, "allocated_bytes": 80, "reserved_bytes": 100, "swing_bytes": 80,
    }  # fmt: skip
    graph = replace(job(), meta=replace(job().meta, extra={"memory": {"allocated_bytes": 9_000}}))
    assert report_memory(graph).variants[0].peak.bytes == pytest.approx(9_000)
