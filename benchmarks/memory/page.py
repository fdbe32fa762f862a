"""Peaks in, their page out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.accuracy.markdown import percent, spread_cell, table
from benchmarks.memory.jobs import SIDES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.memory.jobs import Peak
    from benchmarks.memory.public import PublicPeak
    from benchmarks.memory.published import Batch


def memory_page(
    peaks: Sequence[Peak], public: Sequence[PublicPeak], batches: Sequence[Batch]
) -> str:
    """Return the page."""
    sections = [
        "# How far off memory is",
        "",
        "`make accuracy` generates this page (`python -m benchmarks.memory`).",
        "",
        *_jobs(peaks),
        *_public(public),
        *_published(batches),
    ]
    return "\n".join(sections).rstrip() + "\n"


def _jobs(peaks: Sequence[Peak]) -> list[str]:
    jobs = list(dict.fromkeys(peak.job for peak in peaks))
    of = {(peak.job, peak.side): peak for peak in peaks}
    sides = [side for side in SIDES if any((job, side) in of for job in jobs)]
    lines = [
        (job, _mb(of[job, "base"].measured), *(_error(of.get((job, side))) for side in sides))
        for job in jobs
    ]
    errors = [spread_cell(p.error for p in peaks if p.side == side) for side in sides]
    return [
        "## Jobs on a CPU against the allocator's own peak",
        "",
        f"{len(jobs)} jobs of the truth set, none of them held out.",
        "The truth is the most that torch's CPU allocator hands out in two steady steps, by its",
        "events since before the model was built; each form of the job was run for that.",
        "What is said comes from one recording of the job as it is: `base` is the recorded peak,",
        "every other column a what-if asked of it. An empty cell is a form that the job has not;",
        "`refused`: the what-if does not apply to the recording.",
        "",
        *table(("job", "measured", *sides), lines),
        "",
        "`amp` is to be trusted least: which tensors between products stay in fp32, such as logits",
        "that a loss casts back and sums with fp32 residuals, no recording in fp32 shows.",
        "`physics` takes gradients of gradients, and `sparse` has gradients as long as its batch:",
        "neither is counted as growing with the batch.",
        "",
        "Median / 90th percentile / largest error, in percent:",
        "",
        *table(("", *sides), [("all jobs", *errors)]),
        "",
    ]


def _error(peak: Peak | None) -> str:
    if peak is None:
        return ""
    return "refused" if peak.error is None else percent(peak.error)


def _public(rows: Sequence[PublicPeak]) -> list[str]:
    lines = [
        (
            f"`{row.name}`",
            f"{_mb(row.allocator)}{' (swing)' if row.is_swing else ''}",
            _off(row.by_events, row.allocator),
            _off(row.estimated, row.allocator),
            row.source,
        )
        for row in rows
    ]
    return [
        "## Public traces with allocator events",
        "",
        "The allocator's own total at the peak, and how far off are the parts that the events give",
        "and what is estimated where the events are left out.",
        "Parts begin at the allocator's first total: no error says that no event was misread.",
        "Events before 2022 carry no total: there the swing is compared, the highest less the",
        "lowest level.",
        "",
        *table(("trace", "allocator", "by events", "without them", "estimated from"), lines),
        "",
    ]


def _published(batches: Sequence[Batch]) -> list[str]:
    lines = [
        (
            f"{batch.row}, {batch.source}",
            " + ".join(batch.what_ifs) or "fp32",
            f"{batch.batch}{', the largest' if batch.is_largest else ''}",
            f"{_gb(batch.needs)} of {_gb(batch.capacity)}",
            "yes" if batch.needs <= batch.capacity else "**no**",
            "" if batch.largest is None else f"{batch.largest:,}",
        )
        for batch in batches
    ]
    columns = ("row", "form", "batch trained", "needs", "said to fit", "largest said")
    return [
        "## Against what others published",
        "",
        "Nobody published a peak in bytes of a job whose trace is public.",
        "Published is that a batch was trained on a device, and of some that it was the largest:",
        "ResNet-50, asked of a trace of batch 32 on a V100 without shapes or allocator events.",
        "What is said leaves out what the allocator reserves beside what it hands out; so much too",
        "large is the largest batch.",
        "",
        *table(columns, lines),
        "",
        "Errors that other tools publish of their memory models, from configurations, no traces:",
        "",
        *table(
            ("tool", "jobs", "error"),
            [
                ("SimuMax", "dense Llama3 and DeepSeek on B200", "-0.8 % to -0.2 %"),
                ("Calculon", "activations of LLMs", "6.7 % mean, 30.4 % at most"),
                ("Proteus", "180 jobs, whether they fit", "2 wrong"),
            ],
        ),
    ]


def _off(said: float | None, truth: float) -> str:
    return "nothing tells" if said is None else percent(said / truth - 1)


def _mb(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"
