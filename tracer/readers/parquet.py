"""The project's own trace file: Parquet, with the metadata as JSON in the file's schema."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.errors import TraceError
from foretrace.tracer.readers.check_events import check_events
from foretrace.tracer.readers.columns import cut_name, merge_codes
from foretrace.tracer.trace import EVENT_COLUMNS, Trace, TraceMeta
from foretrace.util.atomic_write import check_writable
from foretrace.util.limits import METADATA_BYTES
from foretrace.util.parquet_file import read_parquet_file
from foretrace.util.schema import UNKNOWN_ID, require, table

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
"""As `stored_meta` reads it."""
KEY = b"foretrace"
ALWAYS = ("name", "kind", "start_ns", "duration_ns")
"""Any other column is left out of the file where all of it is unknown."""
UNIQUE = ["start_ns", "duration_ns", "correlation", "external_id"]
"""Columns with too many different values for a dictionary to pay."""


def save(trace: Trace, path: str | Path) -> Path:
    """Write *trace* to *path*, whole or not at all, and return the path.

    The file is written under a temporary name beside *path*, flushed to disk, then renamed. A
    link stays, and what it points at is replaced.

    Raises
    ------
    TraceError
        If *path* is a folder, a device or a pipe, its folder does not exist or cannot be written
        to, or a column is missing.
    """
    import pyarrow.parquet as pq

    require(trace.events, EVENT_COLUMNS, TraceError, "trace table")
    path = Path(path)
    check_place(path)
    content = _arrow(trace)
    try:
        real = path.resolve()
        handle, temporary = tempfile.mkstemp(prefix=f".{real.name}-", dir=real.parent)
    except OSError as error:
        raise TraceError(f"{path}: cannot write there ({error.strerror})") from error
    try:
        with os.fdopen(handle, "wb") as file:
            coded = [name for name in content.column_names if name not in UNIQUE]
            pq.write_table(content, file, compression="zstd", use_dictionary=coded)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(real)
    except OSError as error:
        raise TraceError(f"{path}: cannot write there ({error.strerror})") from error
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path


def check_place(path: Path) -> None:
    """Raise now what `save` would raise after a recording: *path* is no place for a trace.

    Raises
    ------
    TraceError
        It is a folder, a device or a pipe, or its folder does not exist or cannot be written to.
    """
    try:
        if path.exists() and not path.is_file():
            raise TraceError(f"{path}: cannot write there (not a regular file); name a file")
        check_writable(path)
    except OSError as error:
        raise TraceError(f"{path}: cannot write there ({error.strerror})") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _arrow(trace: Trace) -> pa.Table:
    import pyarrow as pa

    arrays = {}
    for column in EVENT_COLUMNS:
        values = trace.events[column.name]
        if column.dtype == "category":
            codes = values.cat.codes.to_numpy().astype(np.int32)
            unknown = codes < 0
            names = pa.array(list(values.cat.categories), pa.string())
            array = pa.DictionaryArray.from_arrays(pa.array(codes, mask=unknown), names)
        else:
            plain = values.to_numpy()
            unknown = np.isnan(plain) if column.dtype == "float64" else plain == UNKNOWN_ID
            array = pa.array(plain)
        if not unknown.all() or column.name in ALWAYS:
            arrays[column.name] = array
    fields = {f.name: getattr(trace.meta, f.name) for f in dataclasses.fields(TraceMeta)}
    fields["devices"] = [dataclasses.asdict(device) for device in trace.meta.devices]
    content = {"version": VERSION, "meta": fields}
    text = json.dumps(content, default=_plain, ensure_ascii=False)
    return pa.table(arrays).replace_schema_metadata({KEY: text.encode("utf-8", "replace")})


def _plain(value: Any) -> Any:
    """Return numpy scalars and arrays, which end up in ``extra``, as plain numbers and lists."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def read_parquet(path: Path) -> Trace:
    """Read what `save` wrote; nothing in it is believed.

    Raises
    ------
    TraceError
        If the file is damaged, someone else's, impossible, or written by a newer version.
    """
    from foretrace.tracer.readers.stored_meta import read_meta  # recording does without msgspec

    wanted = [column.name for column in EVENT_COLUMNS]
    try:
        content, described = read_parquet_file(path, path.name, KEY, wanted, TraceError)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror})") from error
    if described is None:
        raise TraceError(f"{path.name}: a Parquet file, but no Foretrace trace")
    METADATA_BYTES.check(len(described), path.name, TraceError)
    meta = read_meta(described, path.name)
    try:
        columns = {name: _column(content[name]) for name in content.column_names}
        events = table(EVENT_COLUMNS, columns, content.num_rows)
    except (ValueError, TypeError, OverflowError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TraceError(
            f"{path.name}: damaged Parquet file ({reason}); import it again"
        ) from error
    return check_events(Trace(events, meta), path.name)


def _column(values: pa.ChunkedArray) -> Any:
    import pyarrow as pa

    if not pa.types.is_dictionary(values.type):
        return values.combine_chunks().to_numpy(zero_copy_only=False)
    joined = values.unify_dictionaries().combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        joined = joined.chunk(0)
    codes = joined.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    texts = joined.dictionary.to_pylist()
    return merge_codes(codes, [None if text is None else cut_name(str(text)) for text in texts])
