"""A file of Parquet as any stranger may have written it: looked at before it is read.

How many rows and how much text it holds is known from its end, before memory is taken for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foretrace.util.exhaustion import within_means
from foretrace.util.limits import METADATA_BYTES, ROWS, TABLE_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa
    import pyarrow.parquet as pq

    from foretrace.errors import ForetraceError

MOST_COLUMNS = 1000
"""A table of ours has 24; each takes memory before any row of it does."""


class Content(NamedTuple):
    """The columns asked for that are there, texts as dictionaries; and what our *key* says."""

    table: pa.Table
    described: bytes | None


def read_parquet_file(
    source: Path | bytes,
    where: str,
    key: bytes,
    wanted: Sequence[str],
    error: type[ForetraceError],
    *,
    damaged: str = "damaged Parquet file",
) -> Content:
    """Return the *wanted* columns of *source* that are there, and its metadata under *key*.

    *damaged* is what is said of a file that cannot be read.

    Raises
    ------
    error
        It is too large in some respect, nested, or damaged; the text names *where*.
    OSError
        It cannot be read.
    """
    import pyarrow as pa

    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    try:
        with within_means(where, error), _open(source) as file:
            _check_sizes(file, where, size, error)
            schema = file.schema_arrow
            names = [name for name in wanted if name in schema.names]
            _check_flat(schema, names, where, error)
            described = (schema.metadata or {}).get(key)
            table = file.read(columns=names)
            _check_texts(table, where, size, error)
    except (pa.ArrowException, ValueError, TypeError, KeyError, IndexError) as failed:
        if isinstance(failed, error):
            raise
        raise error(f"{where}: {damaged} ({_reason(failed)})") from failed
    except OSError as failed:
        if failed.errno is not None:
            raise
        raise error(f"{where}: {damaged} ({_reason(failed)})") from failed
    return Content(table, described)


def _open(source: Path | bytes) -> pq.ParquetFile:
    """Open *source*; texts are read as dictionaries: what repeats takes memory once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    given = pa.BufferReader(source) if isinstance(source, bytes) else str(source)
    most = METADATA_BYTES.allowed()
    plain = pq.ParquetFile(given, memory_map=True, thrift_string_size_limit=most)
    texts = [field.name for field in plain.schema_arrow if _is_text(field.type)]
    if not 0 < len(texts) <= MOST_COLUMNS:
        return plain
    return pq.ParquetFile(
        given,
        metadata=plain.metadata,
        memory_map=True,
        read_dictionary=texts,
        thrift_string_size_limit=most,
    )


def _check_sizes(file: pq.ParquetFile, where: str, size: int, error: type[ForetraceError]) -> None:
    metadata = file.metadata
    ROWS.check(metadata.num_rows, where, error, on_disk=size)
    METADATA_BYTES.check(metadata.serialized_size, where, error)
    if len(file.schema_arrow) > MOST_COLUMNS:
        raise error(f"{where}: it has more than {MOST_COLUMNS:,} columns")
    # not column by column: what a damaged one says of its values would end the process
    groups = (metadata.row_group(at) for at in range(metadata.num_row_groups))
    unpacked = sum(max(group.total_byte_size, 0) for group in groups)
    TABLE_BYTES.check(unpacked, where, error, on_disk=size)


def _check_flat(
    schema: pa.Schema, names: Sequence[str], where: str, error: type[ForetraceError]
) -> None:
    import pyarrow as pa

    for name in names:
        kind = schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        plain = pa.types.is_primitive(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)
        if not (plain or _is_text(kind)):
            raise error(f"{where}: column {name!r} is {str(kind)[:60]}, no number and no text")


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _check_texts(table: pa.Table, where: str, size: int, error: type[ForetraceError]) -> None:
    """Refuse a table whose texts, each once per row, are more than it may hold."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [
        (chunk, pc.binary_length(chunk.dictionary))
        for column in table.columns
        for chunk in column.chunks
        if pa.types.is_dictionary(chunk.type) and _is_text(chunk.type.value_type)
    ]
    total = sum(len(chunk) * (pc.max(lengths).as_py() or 0) for chunk, lengths in texts)
    if total > TABLE_BYTES.allowed(size):  # only then is it worth knowing for sure
        total = sum(pc.sum(lengths.take(chunk.indices)).as_py() or 0 for chunk, lengths in texts)
    TABLE_BYTES.check(total, where, error, on_disk=size)


def _reason(failed: BaseException) -> str:
    return (str(failed).splitlines() or [type(failed).__name__])[0][:200]
