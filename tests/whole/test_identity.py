"""Public recordings replayed: as they are, with other kernels, and eight ranks together."""

from __future__ import annotations

import tomllib
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pytest

from foretrace.graph.build import build
from foretrace.replaying.replay import replay
from foretrace.tracer.readers.load import load
from tests.support.paths import ROOT
from tests.support.recordings.events import scaled

if TYPE_CHECKING:
    from pathlib import Path

STUDY = ROOT / "traces" / "study.toml"


@pytest.mark.slow
def test_replay_meets_every_training_recording(public_traces: Path) -> None:
    """Median 0.5 %, none above 2 %."""
    errors: dict[str, float] = {}
    for entry in tomllib.loads(STUDY.read_text("utf-8"))["identity"]:
        graph = build(load(public_traces / entry["trace"]))
        errors[entry["trace"]] = abs(replay(graph).step_ns / graph.measured_step_ns - 1)

    assert len(errors) == 34
    assert median(errors.values()) <= 0.005
    assert {trace: error for trace, error in errors.items() if error > 0.02} == {}


def test_waits_for_other_processes_are_doubted(public_traces: Path) -> None:
    """A job that shares its GPU stands still for 44 of 511 ms a step; the other has it alone."""
    doubted = [
        "untraced-wait" in {doubt.code for doubt in build(load(public_traces / file)).state.doubts}
        for file in (
            "cs336-transformer-lm/a100pcie_fp32.sqlite.gz",
            "cs336-transformer-lm/a100pcie_amp-bf16.sqlite.gz",
        )
    ]

    assert doubted == [True, False]


def test_resnet50_behind_a_full_launch_queue(public_traces: Path) -> None:
    """The host runs 1,023 launches ahead: 95.7 ms; kernels 3 times as fast leave the host's 33."""
    graph = build(load(public_traces / "hta" / "resnet50_ddp_v100_ws1_rank0.json.gz"))
    timeline = replay(graph)
    faster = replay(scaled(graph, 1 / 3)).step_ns / 1e6
    launches = graph.edges[graph.edges["kind"] == "launch"]
    stream = graph.tasks["lane"].to_numpy()[launches["dst"]]
    launches = launches[stream == np.bincount(stream).argmax()]
    called, started = (
        np.sort(timeline.start_ns[launches[end].to_numpy()]) for end in ("src", "dst")
    )
    period = int(timeline.period_ns)
    before, after = (
        np.searchsorted(np.concatenate([moments + k * period for k in range(-3, 1)]), called)
        for moments in (called, started)
    )

    assert timeline.step_ns / 1e6 == pytest.approx(95.7, rel=0.005)
    assert 31 <= faster <= 36
    assert 1_000 <= (before - after).max() + 1 <= 1_024


def test_eight_ranks_meet_at_their_collectives(public_traces: Path) -> None:
    """97 % of the collective time of this DLRM step is waiting for the last rank; it replays."""
    ranks = sorted((public_traces / "param" / "dlrm_v100x8").glob("kineto_*"))
    graph = build(load(ranks))
    links = graph.lanes[graph.lanes["kind"] == "link"]
    timeline = replay(graph)

    assert "97% of the ranks' collective time is waiting for the last to arrive" in graph.notes
    assert sorted(set(graph.lanes["rank"])) == list(range(8))
    assert links["role"].tolist() == ["communication", "other"]
    assert timeline.settled
    assert timeline.step_ns / 1e6 == pytest.approx(graph.measured_step_ns / 1e6, rel=0.001)
    assert graph.measured_step_ns / 1e6 == pytest.approx(20.8, abs=0.1)
