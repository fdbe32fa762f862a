"""Sound files in, hostile ones out: changed where their structure says that something stands.

Every draw comes from one `random.Random`, so that a seed is a mutant and hypothesis can shrink it.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import math
import re
import sqlite3
import tarfile
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.seeds import parquet_parts, tar_of

if TYPE_CHECKING:
    from random import Random

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, -7, 0.5, -0.5, 1e-9, 1e18, -1e18, 1e300, math.nan, math.inf,
    -math.inf, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 2**70, 10**25,
    "", " ", "x", "-1", "0", "1e999", "NaN", "9" * 30, "a\x00b", "\ud800", "é" * 40, "x" * 5000,
    "../../etc/passwd", "os:system", "mine.py:f", "step 1", "nccl" * 400 + "!", "step" + "#" * 900,
    [], {}, [[]], [1, 2], [-1], ["x"], [None], {"a": 1}, [[2**40, 2**40]], [[[1]]],
)  # fmt: skip
ODD_TEXT = ("", "0", "-1", "1e999", "nan", "inf", "-inf", "9" * 25, "9" * 5000, "[", "]]", "{", '"',
            "'", "=", "#", "\x00", "\ufeff", "x" * 3000, "a.b", "." * 80, "true", "1979-05-27",
            "mine.py:f", "(.*)*(.*)*Q$", "amp", "€", "step 1/0", "loss", "\r", "\t")  # fmt: skip
SQL_TYPES = (None, -1, 0, 2**62, -(2**63), 1.5, 1e308, "text", "", b"\xff\x00", "9" * 20)
PARQUET_TYPES = (
    pa.string(),
    pa.float64(),
    pa.int64(),
    pa.bool_(),
    pa.binary(),
    pa.list_(pa.int8()),
)
TOKEN = re.compile(r"[\w.+-]+|[^\w\s]|\s+")


def mutant(kind: str, content: bytes, draw: Random) -> bytes:
    """Return *content*, a file of *kind*, changed in one to four places."""
    for _ in range(draw.choice((1, 1, 1, 2, 2, 4))):
        try:
            content = _STRUCTURED[_format(kind)](content, draw)
        except BROKEN:
            content = _bytes(content, draw)
            break
    if draw.random() < BYTES_SHARE:
        content = _bytes(content, draw)
    if kind.startswith("trace") and draw.random() < GZIP_SHARE:
        content = gzip.compress(content, 1)
    return content


BYTES_SHARE, GZIP_SHARE = 0.15, 0.1
BROKEN = (ValueError, TypeError, KeyError, IndexError, OverflowError, OSError, EOFError,
          sqlite3.Error, pa.ArrowException, tarfile.TarError, lzma.LZMAError, AttributeError,
          RecursionError)  # fmt: skip
"""What a structure that was broken by an earlier change may raise here."""


def _format(kind: str) -> str:
    if kind in ("trace-parquet", "calibration", "results", "costs"):
        return "parquet"
    if kind == "trace-nsight":
        return "sqlite"
    if kind == "archive":
        return "tar"
    if kind == "log-array":
        return "bytes"
    return "json" if kind.startswith("trace") else "text"


def _bytes(content: bytes, draw: Random) -> bytes:
    """Flip, cut, insert, repeat."""
    at = draw.randrange(len(content) + 1)
    size = draw.choice((1, 2, 8, 64))
    piece = bytes(draw.randrange(256) for _ in range(size))
    match draw.randrange(6):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + content[at + size :]
        case 2:
            return content[:at] + piece + content[at:]
        case 3:
            return content[:at] + content[at : at + 4 * size] * 3 + content[at:]
        case 4:
            return content[:at] + b"\xff" * size + content[at + size :]
    return content[:at] + piece + content[at + size :]


def _json(content: bytes, draw: Random) -> bytes:
    text = json.dumps(tree(json.loads(content), draw))
    if draw.random() < 0.05:
        text = text.replace("1", draw.choice(("1e400", "1" * 400, "0x1", "+1")), 1)
    return text.encode("utf-8", "surrogatepass")


def tree(root: Any, draw: Random) -> Any:
    """Return decoded JSON with something changed at a place drawn from all depths."""
    holder: list[Any] = [root]
    container, key = holder, 0
    while isinstance(container[key], dict | list) and container[key] and draw.random() < 0.85:
        container = container[key]
        key = draw.choice(list(container) if isinstance(container, dict) else range(len(container)))
    match draw.randrange(8):
        case 0 if container is not holder:
            del container[key]
        case 1 if isinstance(container, list):
            container[key:key] = [container[key]] * draw.choice((1, 2, 40))
        case 2 if isinstance(container, dict):
            container[draw.choice(("x", "ts", "dur", "args", "name", "ph", "cat", "correlation",
                                   "stream", "device"))] = draw.choice(ODD)  # fmt: skip
        case 3 if isinstance(container[key], int | float) and not isinstance(container[key], bool):
            container[key] = container[key] * draw.choice((-1, 0, 1e-3, 1e3, 1e6, 1e12, 1e17))
        case 4:
            container[key] = [container[key]] if draw.random() < 0.5 else {"a": container[key]}
        case 5 if isinstance(container, list) and len(container) > 1:
            other = draw.randrange(len(container))
            container[key], container[other] = container[other], container[key]
        case 6:
            container[key] = str(container[key])
        case _:
            container[key] = draw.choice(ODD)
    return holder[0]


def _sqlite(content: bytes, draw: Random) -> bytes:
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(content)
        tables = [name for (name,) in connection.execute("select name from sqlite_master")]
        table = draw.choice(tables)
        columns = [row[1] for row in connection.execute(f'pragma table_info("{table}")')]
        column, value = draw.choice(columns), draw.choice(SQL_TYPES)
        (rows,) = connection.execute(f'select count(*) from "{table}"').fetchone()  # noqa: S608
        row = draw.randrange(max(rows, 1)) + 1
        match draw.randrange(7):
            case 0:
                connection.execute(f'drop table "{table}"')
            case 1:
                connection.execute(f'alter table "{table}" drop column "{column}"')
            case 2:
                connection.execute(f'update "{table}" set "{column}" = ?', (value,))  # noqa: S608
            case 3:
                connection.execute(f'delete from "{table}" where rowid >= ?', (row,))  # noqa: S608
            case 4:
                connection.execute(f'insert into "{table}" select * from "{table}"')  # noqa: S608
            case _:
                connection.execute(
                    f'update "{table}" set "{column}" = ? where rowid = ?',  # noqa: S608
                    (value, row),
                )
        connection.commit()
        return connection.serialize()
    finally:
        connection.close()


def _parquet(content: bytes, draw: Random) -> bytes:
    table, metadata = parquet_parts(content)
    if metadata and draw.random() < 0.5:
        key = draw.choice([key for key in metadata if key != b"ARROW:schema"])
        try:
            metadata[key] = json.dumps(tree(json.loads(metadata[key]), draw)).encode()
        except ValueError:
            metadata[key] = draw.choice((b"", b"[" * 20_000, b"{", b"1e999", b"\xff"))
    else:
        table = _column(table, draw)
    target = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), target)
    return target.getvalue()


def _column(table: pa.Table, draw: Random) -> pa.Table:
    place = draw.randrange(table.num_columns)
    name, column = table.column_names[place], table.column(place)
    match draw.randrange(5):
        case 0:
            return table.drop_columns([name])
        case 1:
            return table.set_column(
                place, name, column.cast(draw.choice(PARQUET_TYPES), safe=False)
            )
        case 2:
            return table.slice(0, draw.randrange(table.num_rows + 1))
    values = column.to_pylist()
    for _ in range(draw.choice((1, 3, len(values)))):
        values[draw.randrange(len(values))] = draw.choice(ODD)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    kept = [value if _fits(value, kind) else None for value in values]
    return table.set_column(place, name, pa.array(kept, kind))


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except BROKEN:
        return False
    return True


def _tar(content: bytes, draw: Random) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = {m.name: archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]
    name = draw.choice(list(members))
    match draw.randrange(8):
        case 0:
            del members[name]
        case 1:
            members[draw.choice(("../x", "/etc/x", "a" * 200, "x.pair.json", ""))] = members[name]
        case 2:
            members[name] = _bytes(members[name], draw)
        case 3 if name.endswith(".xz"):
            inside = lzma.decompress(members[name])
            members[name] = lzma.compress(_json(inside, draw), preset=0)
        case _ if name.endswith(".json"):
            members[name] = _json(members[name], draw)
        case _ if name.endswith(".parquet"):
            members[name] = _parquet(members[name], draw)
        case _:
            members[name] = _bytes(members[name], draw)
    return tar_of(members)


def _text(content: bytes, draw: Random) -> bytes:
    tokens = TOKEN.findall(content.decode("utf-8", "replace"))
    at = draw.randrange(len(tokens))
    match draw.randrange(6):
        case 0:
            del tokens[at]
        case 1:
            tokens[at:at] = tokens[at : at + draw.choice((1, 3, 9))] * draw.choice((1, 2, 300))
        case 2:
            other = draw.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        case 3:
            tokens.insert(at, draw.choice(ODD_TEXT))
        case 4:
            tokens[at] = draw.choice(ODD_TEXT) * draw.choice((1, 1, 60))
        case _:
            tokens[at] = draw.choice(ODD_TEXT)
    return "".join(tokens).encode("utf-8", "surrogatepass")


_STRUCTURED = {
    "json": _json, "sqlite": _sqlite, "parquet": _parquet, "tar": _tar, "text": _text,
    "bytes": _bytes,
}  # fmt: skip
