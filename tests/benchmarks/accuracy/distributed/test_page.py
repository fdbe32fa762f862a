"""The page on distributed accuracy: what it says of rows."""

from __future__ import annotations

from benchmarks.accuracy.distributed.collectives import CheckRow, CollectiveRow
from benchmarks.accuracy.distributed.ddp_jobs import BucketRow, MoreRow
from benchmarks.accuracy.distributed.megatron import LEFT_OUT, MegatronPlan, MegatronRow
from benchmarks.accuracy.distributed.operation_timelines import TimelineRow
from benchmarks.accuracy.distributed.page import distributed_page
from benchmarks.accuracy.distributed.recorded_ranks import RankRow, RanksStudy
from benchmarks.accuracy.distributed.shaped_links import pair_rows
from benchmarks.accuracy.distributed.study import Distributed
from benchmarks.accuracy.distributed.sweeps import SweepRow
from benchmarks.accuracy.intervals.interval_coverage import judge
from benchmarks.accuracy.intervals.observations import observe_pairs
from foretrace.analysis.error.error_scale import ErrorScale
from foretrace.analysis.rank_pace import RankPace
from tests.support.measured.distributed_rows import network_row

CELLS = (
    network_row(0.02),
    network_row(-0.04, rate_mbit=1000),
    network_row(0.5, rate_mbit=None),
    network_row(0.03, problems=("repeats differ by 6.0%",)),
    network_row(0.01, scheme="fsdp", model="wide", scenario=("fsdp(workers=2)",)),
    network_row(0.06, model="lstm", held_out=True),
)


def test_in_short() -> None:
    """DDP, held-out models and other schemes apart, each beside its null models."""
    text = distributed_page(Distributed(cells=CELLS))

    assert (
        "- Median |error| over 2 cells of DDP: predicted 3.0%, 90th percentile 3.8%; computing "
        "plus bytes over bandwidth 10.0%, 90th percentile 10.0%; no change 75.0%, 90th percentile "
        "75.0%." in text
    )
    assert "over 1 cells of DDP of held-out models: predicted 6.0%" in text
    assert "over 1 cells of other schemes: predicted 1.0%" in text


def test_tables_of_own_runs() -> None:
    """By scheme and, for DDP, by rate, model and ranks; judged cells beside all conclusive ones."""
    text = distributed_page(Distributed(cells=CELLS))
    parts = {part.split("\n", 1)[0]: part for part in text.replace("### ", "## ").split("## ")}

    assert (
        "| ddp | 4 | 3 | 2 | 3.0 / 3.8 / 4.0 | 10.0 / 10.0 / 10.0 | 75.0 / 75.0 / 75.0 | "
        "4.0 / 40.8 / 50.0 | 10.0 / 10.0 / 10.0 |" in parts["By scheme"]
    )
    assert "| ddp (held out) | 1 | 1 | 1 | 6.0 / 6.0 / 6.0 |" in parts["By scheme"]
    rates = [line.split(" | ")[0] for line in parts["DDP by rate"].splitlines() if "/" in line]
    assert rates == ["| Mbit/s", "| 300", "| 1000", "| unshaped"]
    assert "| lstm (held out) | 1 |" in parts["DDP by model"]
    assert "| 2 | 5 | 4 | 3 |" in parts["DDP by ranks"]
    assert "+3.0% | +10.0% | -75.0% | 1.0% | repeats differ by 6.0% |" in parts["Every cell"]


def test_intervals_of_cells_are_made_of_other_pairs() -> None:
    """Of four conclusive cells on slow links one is 6 % off."""
    scale = ErrorScale(base=0.05, quantile=1.0)
    judged = list(judge(observe_pairs(pair_rows(CELLS)), scale))
    text = distributed_page(Distributed(cells=CELLS), judged)

    assert "measurement in 75% of 4 conclusive cells." in text


def test_cells_that_nothing_foresees_are_listed() -> None:
    """With the reason."""
    text = distributed_page(Distributed(cells=CELLS, unforeseen={"strange cell": "too strange"}))

    assert "- strange cell: no number, too strange" in text


def test_an_empty_study_says_what_is_missing() -> None:
    """No recordings, no public measurements."""
    text = distributed_page(Distributed(absent=("vtrain-nccl",)))

    assert "Not on the machine that made this page: vtrain-nccl." in text
    assert "None are in this checkout." in text
    assert "## Every cell" not in text


def test_collectives_alone() -> None:
    """The small ones, which wait for the scheduler, are left out."""
    row = SweepRow("all_gather", 4, True, 1 << 20, 300, 50e6, 45e6, 0.0)
    small = SweepRow("all_gather", 4, True, 4096, 300, 4e6, 1e6, 0.0)
    text = distributed_page(Distributed(sweeps=(row, small)))

    assert "| all_gather | 4, in two racks | 1 | -10.0% | -10.0% | -10.0% |" in text


def test_public_ddp_jobs() -> None:
    """The difference, the count of buckets, and twice the GPUs with and without calibration."""
    buckets = BucketRow("2022", -0.8, -0.9, (1.0,) * 8, (2.0,) * 5, 8, 5)
    more = (
        MoreRow("2022", "8 before", 40.0, 32.0, 36.0),
        MoreRow("2022", "8 after", 40.0, 32.0, 36.0, "8 before", 39.0, 70.0),
    )
    text = distributed_page(Distributed(buckets=(buckets,), more=more))

    assert "- Other buckets on 4 A100 of 2022: -0.80 ms a step, -0.90 predicted." in text
    assert "at most 10.0% off with the nominal network, no change 20.0%." in text
    assert "| 2022 | -0.80 | -0.90 | +12.5% | 8 to 5 | 8 to 5 |" in text
    assert "| 2022, 8 before | 40.0 | 36.0 | -10.0% |  |  | -20.0% |" in text
    assert "| 2022, 8 after | 40.0 | 36.0 | -10.0% | 39.0 | -2.5% | -20.0% |" in text


def test_collectives_of_nccl() -> None:
    """What was fitted is marked; the messages of a DLRM stand beside the table."""
    rows = (
        CollectiveRow("A100", 2, "form", True, 0.0, 0.001, 0.002, 0.01),
        CollectiveRow("A100", 8, "form", False, -0.01, 0.01, 0.02),
    )
    check = CheckRow("all_reduce", 1_000_000, 100_000, 110_000, 0.1, "table")
    text = distributed_page(Distributed(collectives=rows, messages=(check,)))

    assert "| A100 | 2 | form | +0.0% | 0.1% | 0.2% | +1.0% | fitted |" in text
    assert "| A100 | 8 | form | -1.0% | 1.0% | 2.0% |  |  |" in text
    assert "| all_reduce | 1.000 | 100 | 110 | +10.0% | table |" in text
    assert "a DLRM" not in distributed_page(Distributed(collectives=rows))


def test_other_plans_of_megatron() -> None:
    """Mean errors by change, and what was left out."""
    plan = MegatronPlan(175.0, 8, 8, 1, 64, 4, 16, 1, 1, 1, 100.0)
    row = MegatronRow("tp <-> dp", plan, plan, 103.0, 110.0, 90.0)
    text = distributed_page(Distributed(plans=(row,)))

    assert "| tp <-> dp | 1 | 3.0% | 10.0% | 10.0% |" in text
    assert all(f"- {what}: {why}." in text for what, why in LEFT_OUT.items())


def test_published_timelines() -> None:
    """The largest error of each kind of number."""
    rows = (
        TimelineRow("ST", "nodelay", "", "1", 2.0, 2.0),
        TimelineRow("ST", "nodelay", "", "2", 2.0, 2.0001),
    )

    assert "| ST | nodelay | 2 | 0.0050% |" in distributed_page(Distributed(timelines=rows))


def test_recorded_ranks() -> None:
    """Which rank sets the pace, and what it is worth to know when ranks begin."""
    rank = RankRow(RankPace(0, 0.0, 0.0, 1, 1, 0.0, 1.0), 1.0, 1.0)
    study = RanksStudy("dlrm", 20e6, 20.02e6, 14e6, 8, 8, "rank 0 sets the pace", (rank,))
    text = distributed_page(Distributed(ranks=study))

    assert "20.02 ms beside 20.00 (+0.10%); if all ranks began together: -30.0%." in text
    assert "At 8 of 8 collectives the recorded rank arrives last." in text
    assert "Rank 0 sets the pace." in text
