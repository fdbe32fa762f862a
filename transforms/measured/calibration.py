"""What operators and whole segments cost on the machine at hand: the file, read without torch.

In: the Parquet file of ``foretrace calibrate``. Out: a `Calibration`; attached to a graph, the
what-ifs look for it there before they resort to a rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from foretrace.errors import TraceError
from foretrace.tracer.calibration.file import FORMAT, KEY, REPEATED
from foretrace.transforms.measured.change import is_text_of
from foretrace.util.exhaustion import within_means
from foretrace.util.limits import METADATA_BYTES
from foretrace.util.parquet_file import read_parquet_file
from foretrace.util.schema import Column, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import pyarrow as pa

    from foretrace.graph.model import Graph
    from foretrace.transforms.measured.change import Transform

ENDING = ".calibration.parquet"
MOST_BYTES = 1 << 28
MOST_DROPPED = 0.1
"""Share of the operators' time that may have no successor after a change; a list that loses more is
cut short (the lists of the recorded pairs lose nothing)."""
LISTS = ("before", "after", "segment")
MOST_NS, MOST_SPREAD = 1e16, 1e6


class StoredFormat(msgspec.Struct):
    """What says whether the rest can be read."""

    format: int


class StoredWhere(msgspec.Struct):
    """What a calibration says of the machine and the job that it is of."""

    device: Annotated[str, msgspec.Meta(max_length=1 << 16)] | None = None
    threads: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] | None = None
    job: Annotated[str, msgspec.Meta(max_length=1 << 16)] | None = None
    parameter_bytes: dict[str, Annotated[int, msgspec.Meta(ge=0, le=2**62)] | None] | None = None


CALIBRATION_COLUMNS = (
    Column("change", "category", "", "the what-if, as in a scenario; empty: the job as it is"),
    Column("list", "category", "", "one of LISTS: operators before, after, or whole segments"),
    Column("position", "int32", "", "order within one step, optimizer left out"),
    Column("operator", "category", "", "as the profiler names it; 'optimizer' of a segment"),
    Column("arguments", "category", "", "its arguments, canonical JSON"),
    Column("phase", "category", "", "forward or backward"),
    Column("of", "int32", "", "position before of what an 'after' row replaces; -1: new"),
    Column("ns", "float64", "ns", "time of its event, children included; NaN: not timed"),
    Column("device_ns", "float64", "ns", "time of its kernels; NaN on a CPU"),
    Column("spread", "float64", "", "half the range of the middle half of the runs over ns"),
)


@dataclass(frozen=True)
class Calibration:
    """Timings of one job's operators, old form and new, on one machine.

    ``entries`` has the columns `CALIBRATION_COLUMNS`, in order of change, list and position;
    ``parameter_bytes`` is the size of the parameters by owner, "model" and "optimizer".
    """

    entries: pd.DataFrame
    device: str = ""
    threads: int | None = None
    source: str = ""
    job: str = ""
    parameter_bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def before(self) -> pd.DataFrame:
        """Operators of the job as it is, in order."""
        return self._rows("before")

    @property
    def unrest(self) -> float:
        """How much the runs of one operator vary, as a share; the mean over all timed work."""
        timed = self.entries[self.entries["spread"].notna() & self.entries["ns"].notna()]
        total = timed["ns"].sum()
        return float((timed["ns"] * timed["spread"]).sum() / total) if total else 0.0

    def after(self, change: Transform) -> pd.DataFrame:
        """Operators of the job after *change*, in order; empty where that was not timed."""
        return self._rows("after", change)

    def segment_ns(self, operator: str, change: Transform | None = None) -> float | None:
        """Return what one run of a whole segment takes after *change*; None when unknown."""
        return _first_ns(self._rows("segment", change), operator)

    def any_segment_ns(self, operator: str) -> float | None:
        """Return what one run of a whole segment takes, of which any change has the same."""
        return _first_ns(self.entries[self.entries["list"] == "segment"], operator)

    def _rows(self, of_list: str, change: Transform | None = None) -> pd.DataFrame:
        texts = [str(each) for each in self.entries["change"].cat.categories]
        same = [not text if change is None else is_text_of(text, change) for text in texts]
        where = np.array([*same, False])[self.entries["change"].cat.codes]
        return self.entries[where & (self.entries["list"] == of_list)].reset_index(drop=True)


def _first_ns(rows: pd.DataFrame, operator: str) -> float | None:
    times = rows["ns"][rows["operator"] == operator].dropna()
    return float(times.iloc[0]) if len(times) else None


def calibration_path(trace: str | Path) -> Path:
    """Return where the calibration of *trace* lies by convention.

    Examples
    --------
    >>> str(calibration_path("runs/job.parquet")), str(calibration_path("a.b.json.gz"))
    ('runs/job.calibration.parquet', 'a.b.calibration.parquet')
    """
    trace = Path(trace)
    stem = trace.name.removesuffix(".gz")
    return trace.with_name(stem.rpartition(".")[0] + ENDING if "." in stem else stem + ENDING)


def calibration_of(graph: Graph) -> Calibration | None:
    """Return the calibration attached to *graph*, if any."""
    attached = graph.state.calibration
    return attached if isinstance(attached, Calibration) else None


def read_calibration(source: str | Path | bytes) -> Calibration:
    """Read a file of ``foretrace calibrate``, or its content.

    Raises
    ------
    TraceError
        It is no calibration, damaged, inconsistent, or of a newer version; the text says which.
    """
    import pyarrow as pa

    where = "the calibration" if isinstance(source, bytes) else Path(source).name
    try:
        with within_means(where, TraceError):
            return _read(source, where)
    except TraceError:
        raise
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise TraceError(f"{where}: cannot be read as a calibration ({reason})") from error
    except (pa.ArrowException, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TraceError(f"{where}: damaged calibration ({reason}); calibrate again") from error


def _read(source: str | Path | bytes, where: str) -> Calibration:
    size = len(source) if isinstance(source, bytes) else Path(source).stat().st_size
    if size > MOST_BYTES:
        raise TraceError(f"{where}: {size:,} bytes are more than a calibration has")
    if not isinstance(source, bytes) and not Path(source).is_file():
        raise TraceError(f"{where}: cannot be read as a calibration (no regular file)")
    wanted = [column.name for column in CALIBRATION_COLUMNS]
    given = source if isinstance(source, bytes) else Path(source)
    content, text = read_parquet_file(
        given, where, KEY, wanted, TraceError, damaged="damaged calibration"
    )
    described = _describe(text, where)
    missing = [c.name for c in CALIBRATION_COLUMNS if c.name not in content.column_names]
    if missing:
        raise TraceError(f"{where}: lacks the column {missing[0]!r}; calibrate again")
    entries = table(
        CALIBRATION_COLUMNS,
        {c.name: _column(content[c.name], c, where) for c in CALIBRATION_COLUMNS},
        content.num_rows,
    )
    return Calibration(
        _check(entries, where),
        source=where,
        device=described.device or "",
        threads=described.threads,
        job=described.job or "",
        parameter_bytes={
            owner: size for owner, size in (described.parameter_bytes or {}).items() if size
        },
    )


def _describe(text: bytes | None, where: str) -> StoredWhere:
    """Return what the metadata *text* says of the machine and the job."""
    if text is None:
        raise TraceError(f"{where}: a Parquet file, but no calibration of Foretrace")
    METADATA_BYTES.check(len(text), where, TraceError)
    try:
        told = msgspec.json.decode(text, type=StoredFormat).format
    except msgspec.ValidationError:  # no object, or one without a format
        raise TraceError(f"{where}: a Parquet file, but no calibration of Foretrace") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TraceError(f"{where}: damaged calibration ({error}); calibrate again") from None
    try:
        if told == FORMAT:
            return msgspec.json.decode(text, type=StoredWhere)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TraceError(f"{where}: damaged calibration ({error}); calibrate again") from None
    raise TraceError(
        f"{where}: calibration of format {told}, this Foretrace reads {FORMAT}; upgrade or "
        "calibrate again"
    )


def _column(values: pa.ChunkedArray, column: Column, where: str) -> Any:
    """Return the values as declared; a text that is missing becomes empty."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    if is_text != (column.dtype == "category"):
        raise TraceError(f"{where}: column {column.name!r} is {values.type}; calibrate again")
    if is_text:
        return values.fill_null("").to_pandas().astype("category")
    empty = float("nan") if column.dtype == "float64" else -1
    return values.cast(column.dtype.replace("float64", "double")).fill_null(empty).to_numpy()


def _check(entries: pd.DataFrame, where: str) -> pd.DataFrame:
    """Return *entries* in order, or say what makes them impossible."""
    entries = entries.sort_values(["change", "list", "position"], kind="stable")
    entries = entries.reset_index(drop=True)
    unknown = set(entries["list"].unique()) - set(LISTS)
    if unknown:
        raise TraceError(f"{where}: list {min(unknown)!r} is none of {', '.join(LISTS)}")
    _check_times(entries, where)
    operators = entries[entries["list"] != "segment"]
    if (operators["ns"] == 0).any():
        raise TraceError(f"{where}: column 'ns' holds an operator that takes no time")
    for (name, change), rows in operators.groupby(["list", "change"], observed=True):
        if not np.array_equal(rows["position"], np.arange(len(rows))):
            text = f"list {name!r}" + f" of {change}" * bool(change)
            raise TraceError(f"{where}: the positions of its {text} are not 0, 1, 2, …")
    before, after = (entries[entries["list"] == name] for name in ("before", "after"))
    if ((after["of"] < -1) | (after["of"] >= len(before))).any():
        raise TraceError(f"{where}: column 'of' points at no row of the list 'before'")
    for change, rows in after.groupby("change", observed=True):
        if not str(change).startswith(REPEATED):  # its list holds additions only
            _refuse_cut_lists(before, rows, f"{where}: the list after {change}")
    return entries


def _check_times(entries: pd.DataFrame, where: str) -> None:
    for name in ("ns", "device_ns"):
        times = entries[name].to_numpy()
        if (times > MOST_NS).any() or (times < 0).any():
            raise TraceError(f"{where}: column {name!r} holds a time that is negative or endless")
    spread = entries["spread"].to_numpy()
    if ((spread < 0) | (spread > MOST_SPREAD)).any():
        raise TraceError(f"{where}: column 'spread' holds a share that cannot be")


def _refuse_cut_lists(before: pd.DataFrame, after: pd.DataFrame, what: str) -> None:
    """Raise where the list *after* a change lacks too many of the operators *before*."""
    kept = after["of"][after["of"] >= 0]
    if (kept.diff() < 0).any():
        raise TraceError(f"{what} is not in the order of the list 'before'; calibrate again")
    times = before["ns"].fillna(before["ns"].mean()).fillna(1.0).to_numpy()
    lost = np.ones(len(before), bool)
    lost[kept] = False
    missing = times[lost].sum() / max(times.sum(), 1.0)
    if missing > MOST_DROPPED:
        raise TraceError(
            f"{what} lacks operators with {missing:.0%} of the time before: it is cut short; "
            "calibrate again"
        )
