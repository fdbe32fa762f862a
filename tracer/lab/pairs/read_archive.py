"""Pairs from disk: the archives that `archive` writes, or the folders they are unpacked to."""

from __future__ import annotations

import lzma
import stat
import tarfile
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from foretrace.errors import TraceError
from foretrace.tracer.lab.pairs.archive import CALIBRATION, PAIR
from foretrace.tracer.readers.load import load_bytes
from foretrace.tracer.readers.stored_meta import Facts, Nanoseconds, Text, check_facts
from foretrace.tracer.recording.record import add_metadata
from foretrace.util.exhaustion import within_means
from foretrace.util.limits import MEMBERS, METADATA_BYTES, UNPACKED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from foretrace.tracer.trace import Trace

MOST_NOISE = 1e3
LZMA_BYTES = 256 << 20
"""Memory that unpacking a recording may take besides its content; ours take 5 MiB."""
DAMAGED = (tarfile.TarError, OSError, EOFError, ValueError, KeyError, IndexError, OverflowError)


class StoredSide(msgspec.Struct):
    """One side of a pair: the name of its recording, what is known of its job, its mean step."""

    trace: Text
    facts: dict[str, Any]
    mean_ns: Nanoseconds


class StoredPair(msgspec.Struct):
    """What the file of a pair says, as far as it is read."""

    device: Text
    model: Text
    change: Text
    scenario: Text
    noise: Annotated[float, msgspec.Meta(ge=0, le=MOST_NOISE)]
    before: StoredSide
    after: StoredSide

    @property
    def name(self) -> str:
        """What the pair is called."""
        return f"{self.device}/{self.model}/{self.change}"


@dataclass(frozen=True)
class Pair:
    """A change that was really made: recordings and unprofiled step times of both sides.

    ``noise`` is the share by which the ratio of the two drifted between the halves of the
    measurement; ``scenario`` is the text of the what-if that predicts the change.
    ``calibration`` is the content of its calibration file, None where there is none.
    """

    name: str
    model: str
    change: str
    scenario: str
    before: Trace
    read_after: Callable[[], Trace]
    before_ns: float
    after_ns: float
    noise: float
    calibration: bytes | None = None

    @cached_property
    def after(self) -> Trace:
        """The recording after the change, read when it is first asked for."""
        return self.read_after()


def read_pairs(where: str | Path) -> list[Pair]:
    """Return the pairs of an archive, or of all archives and unpacked pairs in a folder.

    Raises
    ------
    TraceError
        There is no pair, or a file is broken or missing; the text names it.
    """
    where = Path(where)
    if not where.exists():
        raise TraceError(f"{where} does not exist: give an archive of record-pairs or its folder")
    if where.is_dir():
        pairs = [pair for path in sorted(where.rglob("*.tar")) for pair in read_pairs(path)]
        pairs += _pairs(pair_members(where), where)
    else:
        pairs = _pairs(members(where), where)
    if not pairs:
        raise TraceError(f"{where} holds no pair: expected files that end in {PAIR}")
    return pairs


def pair_members(where: str | Path) -> dict[str, Callable[[], bytes]]:
    """Return name -> function that gives the content, for all files of an archive or a folder.

    Raises
    ------
    TraceError
        *where* is no archive and no folder.
    """
    where = Path(where)
    if not where.is_dir():
        return members(where)
    paths = sorted([*where.rglob("*.json*"), *where.rglob(f"*{CALIBRATION}")])
    MEMBERS.check(len(paths), str(where), TraceError)
    return {p.relative_to(where).as_posix(): p.read_bytes for p in paths if _is_plain(p)}


def _is_plain(path: Path) -> bool:
    """Tell whether *path* is a file itself: a link may lead anywhere, a pipe never ends."""
    return stat.S_ISREG(path.lstat().st_mode)


def stored_pair(files: Mapping[str, Callable[[], bytes]], name: str, where: Path) -> StoredPair:
    """Return what the file *name* says; its recordings are not looked at.

    Raises
    ------
    TraceError
        It is not there, or something in it is missing, of the wrong type or out of bounds.
    """
    if name not in files:
        raise TraceError(f"{where}: {name} is not in it")
    try:
        content = files[name]()
        METADATA_BYTES.check(len(content), f"{where}: {name}", TraceError)
        with within_means(f"{where}: {name}", TraceError):
            pair = msgspec.json.decode(content, type=StoredPair)
            for side in (pair.before, pair.after):
                side.facts = {k: v for k, v in side.facts.items() if k in Facts.__struct_fields__}
                check_facts(side.facts)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TraceError(f"{where}: {name} is broken: {error}") from None
    except OSError as error:
        raise TraceError(f"{where}: {name} cannot be read ({error.strerror})") from None
    return pair


def read_pair(files: Mapping[str, Callable[[], bytes]], name: str, where: str | Path) -> Pair:
    """Return the pair whose file is called *name*, of the *files* that `pair_members` found.

    Raises
    ------
    TraceError
        It is not there, or a file is broken or missing; the text names it.
    """
    return _pair(files, name, Path(where))


def members(path: Path) -> dict[str, Callable[[], bytes]]:
    """Return name -> function that gives the content, for the plain files of an archive.

    Raises
    ------
    TraceError
        It is no archive, or has more or larger members than an archive of its size.
    """
    try:
        if not path.is_file():
            raise TraceError(f"{path} is no regular file")
        with within_means(str(path), TraceError), tarfile.open(path, "r:") as archive:
            contents = _read_members(archive, path)
    except DAMAGED as error:
        if isinstance(error, TraceError):
            raise
        text = f"{path} is no archive of record-pairs or shaped_network: {error}"
        raise TraceError(text) from error
    return {name: partial(bytes, content) for name, content in contents.items()}


def _read_members(archive: tarfile.TarFile, path: Path) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    left = on_disk = path.stat().st_size
    for count, member in enumerate(archive, 1):
        MEMBERS.check(count, str(path), TraceError)
        if not member.isfile():
            continue
        left -= member.size
        if member.issparse() or left < 0 or member.size < 0:
            raise TraceError(
                f"{path}: {member.name[:80]!r} claims more than the {on_disk:,} bytes of it"
            )
        file = archive.extractfile(member)
        assert file is not None  # a plain file
        contents[member.name] = file.read()
    return contents


def _pairs(files: dict[str, Callable[[], bytes]], where: Path) -> list[Pair]:
    return [_pair(files, name, where) for name in sorted(files) if name.endswith(PAIR)]


def _pair(files: Mapping[str, Callable[[], bytes]], name: str, where: Path) -> Pair:
    stored = stored_pair(files, name, where)
    read_before, read_after = (
        _trace(files, name, side, where) for side in (stored.before, stored.after)
    )
    calibration = files.get(name.removesuffix(PAIR) + CALIBRATION)
    return Pair(
        name=stored.name,
        model=stored.model,
        change=stored.change,
        scenario=stored.scenario,
        before=read_before(),
        read_after=read_after,
        before_ns=stored.before.mean_ns,
        after_ns=stored.after.mean_ns,
        noise=stored.noise,
        calibration=calibration() if calibration else None,
    )


def recording_member(pair: str, side: StoredSide) -> str:
    """Return the name of the compressed recording of one *side* of *pair*."""
    return f"{pair.rpartition('/')[0]}/{side.trace}.xz".lstrip("/")


def _trace(
    files: Mapping[str, Callable[[], bytes]], pair: str, side: StoredSide, where: Path
) -> Callable[[], Trace]:
    """Return what reads the recording of one *side*."""
    member = recording_member(pair, side)
    if member not in files:
        raise TraceError(f"{where}: {pair} names {member}, which is not there")
    return partial(read_recording, files[member], side.facts, member.removesuffix(".xz"), where)


def read_recording(
    read: Callable[[], bytes], facts: dict[str, Any], member: str, where: Path
) -> Trace:
    """Return the recording *member* of *where*; *read* gives it compressed, *facts* its job."""
    packed = read()
    content = unpack_recording(packed, f"{where}: {member}.xz")
    if not content.strip():
        raise TraceError(f"{where}: {member}.xz is broken: it is empty or cut short")
    return add_metadata(load_bytes(content, member, len(packed)), facts, source=member)


def unpack_recording(packed: bytes, where: str) -> bytes:
    """Return what *packed* holds.

    Raises
    ------
    TraceError
        It is damaged, or holds more than a recording of its size.
    """
    most = UNPACKED.allowed(len(packed))
    try:
        unpacking = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=LZMA_BYTES)
        content = unpacking.decompress(packed, most + 1)
    except (lzma.LZMAError, EOFError, MemoryError) as error:
        raise TraceError(f"{where} is broken: {error}") from error
    if len(content) > most:
        raise TraceError(UNPACKED.refusal(where, most))
    return content
