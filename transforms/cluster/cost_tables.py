"""Measured costs of collectives: a table, in memory and on disk.

In: rows of (device, topology, kind, ranks, bytes, ns, spread), from nccl-tests or a sweep. Out: a
`CollectiveTable`, as Parquet; `collectives.interpolation` says what it tells about a case.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foretrace.errors import TraceError
from foretrace.util.atomic_write import write_atomically
from foretrace.util.exhaustion import within_means
from foretrace.util.limits import METADATA_BYTES
from foretrace.util.parquet_file import read_parquet_file
from foretrace.util.schema import Column, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd
    import pyarrow as pa

KINDS = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "send",
)  # fmt: skip
"""Kinds of collectives, as torch spells them."""
COLLECTIVE_COLUMNS = (
    Column("device", "category", "", "as devices.toml calls it; empty: not said, fits any"),
    Column("topology", "category", "", "class of what joins the ranks; empty: not said, fits any"),
    Column("kind", "category", "", "one of KINDS"),
    Column("ranks", "int32", "", "how many take part"),
    Column("bytes", "int64", "B", "of all_gather and reduce_scatter the whole"),
    Column("ns", "float64", "ns", "from the last arrival to the end"),
    Column("spread", "float64", "", "half the range of repeats over ns"),
)
KEYS = ["device", "topology", "kind", "ranks", "bytes"]
KEY, FORMAT, WHAT = b"foretrace", 1, "collectives"


class CostEntry(NamedTuple):
    """One measured cost; the fields are those of `COLLECTIVE_COLUMNS`."""

    device: str
    topology: str
    kind: str
    ranks: int
    bytes: int
    ns: float
    spread: float = 0.0


@dataclass(frozen=True)
class CollectiveTable:
    """Measured costs; ``entries`` has `COLLECTIVE_COLUMNS`, sorted, one row per case."""

    entries: pd.DataFrame

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.entries)

    def select(self, device: str, topology: str, kind: str) -> pd.DataFrame:
        """Return the rows of this kind that were measured there, or that do not say where."""
        rows = self.entries
        there = rows["device"].isin({device, ""}) & rows["topology"].isin({topology, ""})
        return rows[there & (rows["kind"] == kind)]


def make_table(entries: Iterable[CostEntry]) -> CollectiveTable:
    """Return the table of *entries*; repeats of a case become their mean, and widen its spread.

    Examples
    --------
    >>> twice = [CostEntry("", "", "send", 2, 100, ns) for ns in (90.0, 110.0)]
    >>> make_table(twice).entries[["ns", "spread"]].values.tolist()
    [[100.0, 0.1]]
    """
    import pandas as pd

    frame = pd.DataFrame(list(entries), columns=[c.name for c in COLLECTIVE_COLUMNS])
    cases = frame.groupby(KEYS, sort=True)
    mean = cases["ns"].mean()
    range_ns = cases["ns"].max() - cases["ns"].min()
    spread = np.maximum(cases["spread"].max(), range_ns / 2 / mean)
    return _sort(pd.DataFrame({"ns": mean, "spread": spread}).reset_index())


def describe(measured: CollectiveTable) -> str:
    """Return in words what a table has: entries by kind and ranks."""
    groups = measured.entries.groupby(["kind", "ranks"], observed=True).size()
    parts = [f"{kind} of {ranks} ranks, {count:,} sizes" for (kind, ranks), count in groups.items()]
    return "; ".join(parts)


def merge(tables: Sequence[CollectiveTable]) -> CollectiveTable:
    """Return one table with the cases of all *tables*; where two have one, the later wins."""
    import pandas as pd

    plain = [t.entries.astype({"device": str, "topology": str, "kind": str}) for t in tables]
    return _sort(pd.concat(plain).drop_duplicates(KEYS, keep="last"))


def write_table(measured: CollectiveTable, path: Path) -> None:
    """Write the table as Parquet, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = pa.Table.from_pandas(measured.entries, preserve_index=False)
    metadata = json.dumps({"format": FORMAT, "what": WHAT}).encode()
    buffer = io.BytesIO()
    pq.write_table(content.replace_schema_metadata({KEY: metadata}), buffer, compression="zstd")
    write_atomically(path, buffer.getvalue())


def is_table(path: Path) -> bool:
    """Say whether *path* is a Parquet file, by its first bytes."""
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def read_table(path: str | Path) -> CollectiveTable:
    """Read what `write_table` wrote.

    Raises
    ------
    TraceError
        It is no such table, damaged, impossible, or of a newer version; the text says which.
    """
    name = Path(path).name
    content, metadata = _open_table(Path(path), name)
    if not isinstance(metadata, dict) or metadata.get("what") != WHAT:
        raise TraceError(f"{name}: a Parquet file, but no table of collectives")
    if metadata.get("format") != FORMAT:
        raise TraceError(f"{name}: of format {metadata.get('format')!r}, this reads {FORMAT}")
    missing = [c.name for c in COLLECTIVE_COLUMNS if c.name not in content.column_names]
    if missing:
        raise TraceError(f"{name}: lacks the column {missing[0]!r}")
    empty = [c.name for c in COLLECTIVE_COLUMNS if content[c.name].null_count]
    if empty:
        raise TraceError(f"{name}: column {empty[0]!r} has missing values")
    try:
        frame = content.select([c.name for c in COLLECTIVE_COLUMNS]).to_pandas()
        return _check(_sort(frame), name)
    except (ValueError, TypeError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"{name}: a column holds something else than numbers") from error


def _open_table(path: Path, name: str) -> tuple[pa.Table, Any]:
    wanted = [c.name for c in COLLECTIVE_COLUMNS]
    try:
        if path.exists() and not path.is_file():
            raise TraceError(f"{name}: no regular file")
        content, told = read_parquet_file(
            path, name, KEY, wanted, TraceError, damaged="no table of collectives"
        )
        METADATA_BYTES.check(len(told or b""), name, TraceError)
        with within_means(name, TraceError):
            return content, json.loads(told or b"{}")
    except OSError as error:
        raise TraceError(f"{name}: cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"{name}: no table of collectives ({error})") from error


def _sort(frame: pd.DataFrame) -> CollectiveTable:
    ordered = frame.astype({"device": str, "topology": str, "kind": str}).sort_values(KEYS)
    values = {c.name: ordered[c.name].to_numpy() for c in COLLECTIVE_COLUMNS}
    return CollectiveTable(table(COLLECTIVE_COLUMNS, values, len(ordered)))


def _check(measured: CollectiveTable, name: str) -> CollectiveTable:
    rows = measured.entries
    unknown = set(rows["kind"].unique()) - set(KINDS)
    if unknown:
        raise TraceError(f"{name}: the kind {min(unknown)!r} is none of {', '.join(KINDS)}")
    for column, least in (("ranks", 2), ("bytes", 1), ("ns", 0), ("spread", 0)):
        values = rows[column].to_numpy()
        if not ((values >= least) & np.isfinite(values)).all():
            raise TraceError(f"{name}: column {column!r} holds a value below {least} or no number")
    return measured
