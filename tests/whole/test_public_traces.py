"""Every public recording loads with the data issues that are known of it, or is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from foretrace.errors import TraceError
from foretrace.tracer.readers.load import load

if TYPE_CHECKING:
    from pathlib import Path

REFUSED = {
    "execution-trace": "this is an execution trace",
    "execution-graph": "this is an execution trace",
    "result-": "holds no list 'traceEvents'",
    "allreduce": "neither JSON, SQLite nor Parquet",
}
"""Part of the name -> part of the sentence."""

COUNTED = {
    "hta/dlrm_a100_ws8_rank3.json.gz": {"coinciding_events": 643},
    "hta/dlrm_v100_ws2_rank1.json.gz": {"kernel_without_launch": 614, "shared_correlation": 12},
    "param/resnet_2080ti_30steps.json.gz": {"coinciding_events": 1072},
    "deepseek/deepseek-v3_h800_dualpipe_train.json.gz": {"coinciding_events": 239},
    "kineto-tb-plugin/resnet50_v100_nw0_2020-12_toplevel-list.json.gz": {
        "bare_list": 1,
        "kernel_without_launch": 765,
    },
    "tracelens/resnet18_ddp8_mi300x_actckpt_rank0.json.gz": {"kernel_without_launch": 968},
    "tracelens/vllm_mi300x_graph-replay.json.gz": {"shared_correlation": 25},
    "nersc-sc21-unet/4gpu_ddp_baseline.sqlite.gz": {"steps_without_device": 6},
    "nersc-sc21-unet/4gpu_ddp_bucket100.sqlite.gz": {"steps_without_device": 16},
}


@pytest.mark.slow
def test_every_public_file_loads_or_is_refused(public_traces: Path) -> None:
    """The traces load sorted and complete; the other files end in their sentence."""
    files = sorted(public_traces.rglob("*.gz"))
    refused = 0
    for path in files:
        reason = next((why for part, why in REFUSED.items() if part in path.name), None)
        if reason is not None:
            refused += 1
            with pytest.raises(TraceError, match=reason):
                load(path)
            continue
        trace = load(path)
        name = str(path.relative_to(public_traces))
        expected = COUNTED.get(name, {})
        assert expected.items() <= trace.meta.warnings.items(), name
        of_rank = trace.events.groupby("rank")["start_ns"]
        assert all(start.is_monotonic_increasing for _, start in of_rank), name
        assert trace.events["start_ns"].min() == 0, name
        assert (trace.events["duration_ns"] >= 0).all(), name
        assert trace.events["name"].notna().all(), name

    assert (len(files), refused) == (88, 27)


def test_clocks_of_late_recordings(public_traces: Path) -> None:
    """The device clocks of two exports are 325 and 823 ms late; blocking copies prove it."""
    folder = public_traces / "nersc-sc21-unet"
    shifts = [
        load(folder / f"4gpu_ddp_{name}.sqlite.gz").meta.extra["clock_shift_ns"]
        for name in ("baseline", "bucket100")
    ]

    assert shifts == [-324_706_588, -823_066_798]


def test_eight_ranks_of_one_job(public_traces: Path) -> None:
    """Eight ranks of one host agree on the ends of their 8 collectives to a few microseconds."""
    ranks = sorted((public_traces / "param" / "dlrm_v100x8").glob("kineto_*"))
    trace = load(ranks)
    clocks = trace.meta.extra["rank_clocks"]

    assert trace.meta.ranks == tuple(range(8))
    assert clocks["end_spread_ns"] <= 6_000
    assert all(clocks[str(rank)]["collectives"] == 8 for rank in range(8))
    assert all(abs(clocks[str(rank)]["offset_ns"]) <= 2_500 for rank in range(8))
