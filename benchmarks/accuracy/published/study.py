"""Published before/after measurements in, the answers of the default settings beside them out.

The table (`published-speedups.tsv`, beside the public traces) has one measured change a row: its
source, the ratio of the step times after and before, the public trace that it matches, how closely,
and what to ask. What cannot be asked is a row with the reason.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from benchmarks.accuracy.constants import list_constants
from foretrace.analysis.prediction import predict_from
from foretrace.analysis.unchanged.baseline import replay_baseline, replay_scenario
from foretrace.errors import ForetraceError
from foretrace.graph.build import build
from foretrace.tracer.readers.load import load
from foretrace.transforms.scenario import parse_scenario
from foretrace.util.progress import stage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from foretrace.analysis.prediction import Prediction
    from foretrace.analysis.unchanged.baseline import Baseline

GROUPS = (
    ("exact job", "The exact job"),
    ("other software", "The same job on newer software"),
    ("software upgrade", "The same job on newer software"),
    ("same GPU, other batch", "The same model and GPU at another batch"),
    ("exact GPU, other batch", "The same model and GPU at another batch"),
    ("recorded GPU same", "From V100 to another GPU"),
    ("other GPU than the trace", "From V100 to another GPU"),
)
"""What a row's closeness says, and the group it counts in; the first that fits."""
REST = "The rest: another framework, model, or a GPU other than the recorded one"
BASES = {
    "h_b256": ("batch_size(n=256, recorded=32)",),
    "k4_b128": ("batch_size(n=128, recorded=32)",),
    "h_fast_a100s": (
        "batch_size(n=256, recorded=32)",
        "device(name='A100-SXM4-80GB')",
        "tf32",
    ),
    "h_amp": ("amp(dtype='fp16')",),
    "h_b256_amp": ("batch_size(n=256, recorded=32)", "amp(dtype='fp16')"),
    "h_b256_amp_nhwc": (
        "batch_size(n=256, recorded=32)",
        "amp(dtype='fp16')",
        "channels_last",
    ),
    "g_amp": ("amp(dtype='bf16')",),
}
"""What a row's "before" already has, by the name that the table gives it."""


BASE_TRACES = {
    "h": "hta/resnet50_ddp_v100_ws1_rank0",
    "k4": "kineto-tb-plugin/resnet50_v100_nw4_2021-06_runB",
    "g": "triosim/vgg13_h100_bs512_adam_iter41",
}
"""The trace that such a name begins with."""
ASKED = {
    "T067": "batch_size(n=256, recorded=32) + amp(dtype='fp16') + "
    "ddp(workers=8, cluster='dgx-1v', gradient_mb=102.2) relative to [h_b256_amp]",
    "T061": "batch_size(n=256, recorded=32) + amp(dtype='fp16') + channels_last + "
    "ddp(workers=8, cluster='dgx-1v', gradient_mb=102.2) relative to [h_b256_amp_nhwc]",
    "T076": "ddp(workers=2, cluster='dgx-1v', gradient_mb=102.2)",
    "T090": "batch_size(n=256, recorded=32) + device(name='RTX 4090') + tf32 relative to [h_b256]",
    "T101": "batch_size(n=256, recorded=32) + device(name='A100-SXM4-80GB') + tf32 + "
    "amp(dtype='fp16') + channels_last relative to [h_fast_a100s]",
}
"""What to ask where the table leaves a row, or a part of its change, unasked."""
NOISE = 0.03
"""Share by which published steps of one and the same job differ from epoch to epoch."""
NO_TRACE = "the table names no what-if for it: the trace is of another job, or none is public"


@dataclass(frozen=True)
class PublishedRow:
    """One published change beside its answer. Ratios are step times, after over before.

    ``published`` was measured by its authors, ``predicted`` is the answer and ``interval`` its
    range, ``status`` how sure it calls itself. A row is ``tuned_on`` where a constant's value or
    range was chosen by it. ``problem`` says why there is no answer.
    """

    name: str
    source: str
    model: str
    devices: str
    change: str
    group: str
    trace: str
    asked: str
    tuned_on: bool
    published: float
    predicted: float = 0.0
    interval: tuple[float, float] = (0.0, 0.0)
    status: str = ""
    doubts: tuple[str, ...] = ()
    problem: str = ""

    @property
    def error(self) -> float:
        """Signed relative error of the predicted ratio."""
        return self.predicted / self.published - 1

    @property
    def null_error(self) -> float:
        """Signed relative error of "no change"."""
        return 1 / self.published - 1

    @property
    def has_sign(self) -> bool:
        """Whether it says faster or slower as published, where that is more than noise."""
        return abs(self.published - 1) <= NOISE or (self.published < 1) == (self.predicted < 1)

    @property
    def is_inside(self) -> bool:
        """Whether the interval holds what was published."""
        return self.interval[0] <= self.published <= self.interval[1]


def run_published(
    table: Path, traces: Path, only: Callable[[str], bool] = lambda _: True
) -> list[PublishedRow]:
    """Ask every row of *table* whose name *only* accepts of the traces under *traces*."""
    with table.open(encoding="utf-8") as file:
        listed = [row for row in csv.DictReader(file, delimiter="\t") if only(row["id"])]
    asker = _Asker(traces)
    files = [_find_trace(_base_trace(row) or row["matches_trace"], traces) for row in listed]
    order = sorted(range(len(listed)), key=lambda at: str(files[at]))  # each is read once
    rows = {at: asker.ask(listed[at], files[at]) for at in order}
    return [rows[at] for at in range(len(listed))]


class _Asker:
    """Answers rows; keeps the replays of the trace that was read last."""

    def __init__(self, traces: Path) -> None:
        self._traces = traces
        self._read: tuple[Path, Baseline] | None = None

    def ask(self, row: dict[str, str], file: Path | None) -> PublishedRow:
        """Return one row of the table with its answer, or why there is none."""
        empty = _empty_row(row, file.relative_to(self._traces) if file else None)
        if not empty.asked:
            return _without(empty, row["caveats"] or NO_TRACE)
        if file is None:
            return _without(empty, f"no trace here: {row['matches_trace']}")
        try:
            with stage(f"asking {empty.name}"):
                return self._answer(empty, self._baseline(file))
        except ForetraceError as error:
            return _without(empty, str(error))

    def _baseline(self, file: Path) -> Baseline:
        if self._read is None or self._read[0] != file:
            self._read = (file, replay_baseline(build(load(file))))
        return self._read[1]

    def _answer(self, row: PublishedRow, baseline: Baseline) -> PublishedRow:
        """Return *row* with what is predicted of it, relative to what its "before" has already."""
        asked, _, base = row.asked.partition(" relative to ")
        after = _predict(baseline, asked.split(" + "))
        before_ns = baseline.measured.step_ns
        if base:
            before_ns = _predict(baseline, BASES[base.strip("[]")]).predicted_ns
        low, high = (ns / before_ns for ns in after.interval_ns)
        return PublishedRow(
            **{
                **vars(row),
                "predicted": after.predicted_ns / before_ns,
                "interval": (low, high),
                "status": after.status,
                "doubts": tuple(each.code for each in after.doubts),
            }
        )


def _predict(baseline: Baseline, texts: Collection[str]) -> Prediction:
    return predict_from(replay_scenario(baseline, parse_scenario(texts)))


def _empty_row(row: dict[str, str], trace: Path | None) -> PublishedRow:
    return PublishedRow(
        name=row["id"],
        source=row["source"],
        model=row["model"],
        devices=row["gpus"],
        change=row["change"],
        group=find_group(row["closeness"]),
        trace=str(trace or ""),
        asked=ASKED.get(row["id"], row["whatif"]),
        tuned_on=row["id"] in list_tuned_on(),
        published=float(row["ratio"]),
    )


def _without(row: PublishedRow, problem: str) -> PublishedRow:
    return PublishedRow(**{**vars(row), "problem": problem})


@cache
def list_tuned_on() -> frozenset[str]:
    """Return the rows and pairs by which the value or the range of some constant was chosen."""
    return frozenset(name for constant in list_constants() for name in constant.tuned_on)


def find_group(closeness: str) -> str:
    """Return the group that a row counts in.

    >>> find_group("same model, same GPU, other software")
    'The same job on newer software'
    """
    return next((group for words, group in GROUPS if words in closeness), REST)


def _base_trace(row: dict[str, str]) -> str | None:
    """Return the trace of what the row's "before" has already; ``None`` where it has nothing."""
    _, _, base = ASKED.get(row["id"], row["whatif"]).partition(" relative to ")
    return BASE_TRACES[base.strip("[]").partition("_")[0]] if base else None


def _find_trace(text: str, traces: Path) -> Path | None:
    """Return the first trace that *text* names and that is here."""
    return next(_named_traces(text, traces), None)


def _named_traces(text: str, traces: Path) -> Iterator[Path]:
    for folder, name in re.findall(r"([\w-]+)/([\w.-]+)", text):
        yield from sorted((traces / folder).glob(f"{name}.*"))
