"""A study becomes items: a recording, what is changed, and a key that names all it depends on.

The key is a hash of the recording's content, the calibration, the scenario with the files that it
names, what was measured after, and this package's own code. The same question has the same key
everywhere; a changed recording, what-if or program has another.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import foretrace
from foretrace.batch.config import scenario_texts
from foretrace.errors import ForetraceError, TraceError
from foretrace.tracer.lab.pairs.archive import CALIBRATION, PAIR
from foretrace.tracer.lab.pairs.read_archive import (
    pair_members,
    recording_member,
    stored_pair,
)
from foretrace.transforms.foreign_scenario import parse_foreign_scenario
from foretrace.transforms.measured.calibration import calibration_path
from foretrace.transforms.scenario import parse_scenario
from foretrace.util.text_file import is_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from foretrace.batch.config import PairEntry, Study, TraceEntry
    from foretrace.transforms.scenario import Scenario

STAGES = ("tracer", "graph", "transforms", "replaying")
HASHED = (".py", ".toml", ".parquet")
"""Files of the package that decide what is predicted."""
DIGEST_BYTES = 16
ENDINGS = (".gz", ".json", ".sqlite", ".parquet")


@dataclass(frozen=True)
class Recording:
    """Where a recording lies: one file per rank, or the file of a *pair* in an archive or folder.

    ``after`` names the recording after a change. ``digest`` names the content as it was found;
    ``problem`` says why it was not.
    """

    name: str
    model: str
    files: tuple[str, ...]
    pair: str | None = None
    after: str | None = None
    step: str | None = None
    digest: str = ""
    problem: str | None = None


@dataclass(frozen=True)
class Item:
    """The question what *scenario* does to *recording*.

    The step after was measured where the recording is a pair or has one after it, or where
    ``after_ns`` is given.
    """

    recording: Recording
    scenario: tuple[str, ...]
    after_ns: float | None = None
    key: str = ""
    version: str = ""

    @property
    def names(self) -> str:
        """The transforms of the scenario."""
        return " + ".join(text.partition("(")[0] for text in self.scenario)


def list_items(study: Study, folder: Path) -> list[Item]:
    """Return all items of *study*, each once, but those of models; paths are relative to *folder*.

    Raises
    ------
    TransformError
        A scenario is wrong.
    """
    scenarios = [scenario_texts(texts) for texts in study.scenarios]
    items: list[Item] = []
    for entry in study.trace:
        for recording in _list_recordings(entry, folder):
            items += make_items(recording, scenarios)
    items += [_make_measured(pair, folder) for pair in study.pair]
    for archive in study.archive:
        for path in _expand(archive.path, folder):
            items += list_pairs(path)
    return drop_repeats(items)


def make_items(recording: Recording, scenarios: Sequence[tuple[str, ...]]) -> list[Item]:
    """Return an item per scenario."""
    return [add_key(Item(recording, scenario)) for scenario in scenarios]


def list_pairs(where: Path, *names: str) -> list[Item]:
    """Return an item per pair in an archive or a folder, or for those with *names* alone."""
    try:
        files = read_members(str(where))
        chosen = names or sorted(name for name in files if name.endswith(PAIR))
    except (OSError, ValueError, KeyError) as error:
        return [_make_unusable(where, _why(error, where))]
    return [_pair(where, name, files) for name in chosen] or [
        _make_unusable(where, f"{where} holds no pair: expected files that end in {PAIR}")
    ]


def _make_unusable(where: Path, problem: str, pair: str | None = None) -> Item:
    """Return the item of an archive, or of a *pair* in it, that cannot be used."""
    name = where.name if pair is None else f"{where.name}/{pair.removesuffix(PAIR)}"
    return add_key(Item(Recording(name, where.name, (str(where),), pair, problem=problem), ()))


def make_failed(name: str, model: str, scenario: tuple[str, ...], problem: str) -> Item:
    """Return the item of a recording that could not be made."""
    nothing = Recording(name, model, (), problem=problem)
    return add_key(Item(nothing, scenario))


def drop_repeats(items: Iterable[Item]) -> list[Item]:
    """Return *items* without repetitions, in order."""
    return list({item.key: item for item in items}.values())


def check_unchanged(recording: Recording) -> Recording:
    """Return *recording* with the digest that its content has now.

    Raises
    ------
    TraceError
        It is gone, or not what it was.
    """
    now = add_digest(replace(recording, digest="", problem=None))
    if now.problem is not None:
        raise TraceError(now.problem)
    if now.digest != recording.digest:
        raise TraceError(f"{recording.files[0]}: changed while the batch ran; run it again")
    return now


def add_digest(recording: Recording) -> Recording:
    """Return *recording* with a digest of its content, or the reason why there is none."""
    try:
        return replace(recording, digest=_digest_of(recording))
    except (OSError, KeyError, ValueError) as error:
        return replace(recording, problem=_why(error, Path(recording.files[0])))


def add_key(item: Item) -> Item:
    """Return *item* with its key."""
    recording = item.recording
    parts = [
        version(),
        recording.name,
        recording.model,
        recording.step or "",
        recording.digest or " ".join(recording.files),
        *item.scenario,
        *(_named_files(item) if recording.problem is None else ()),
        repr(item.after_ns),
    ]
    key = digest(*(part.encode() for part in parts))
    return replace(item, key=key, version=version())


def digest(*contents: bytes) -> str:
    """Return a hash of *contents*, in which no two parts can be taken for one.

    >>> digest(b"ab", b"c") == digest(b"a", b"bc")
    False
    """
    hashed = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for content in contents:
        hashed.update(len(content).to_bytes(8, "little"))
        hashed.update(content)
    return hashed.hexdigest()


def read_members(where: str) -> dict[str, Callable[[], bytes]]:
    """Return what `pair_members` finds in *where*; an archive is read once for all its pairs."""
    path = Path(where)
    if path.is_dir():
        return pair_members(path)
    stat = path.stat()
    return _unpack(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1)
def _unpack(path: Path, _mtime_ns: int, _size: int) -> dict[str, Callable[[], bytes]]:
    return pair_members(path)


@cache
def version() -> str:
    """Return the version and a hash of the package's code and tables."""
    folders = [Path(foretrace.__file__).parent]
    folders += [Path(import_module(f"foretrace.{stage}").__path__[0]) for stage in STAGES]
    files = [p for folder in folders for p in sorted(folder.rglob("*")) if p.suffix in HASHED]
    return f"{foretrace.__version__}+{digest(*(path.read_bytes() for path in files))[:12]}"


def _list_recordings(entry: TraceEntry, folder: Path) -> Iterator[Recording]:
    paths = _expand(entry.path, folder)
    for group in [paths] if entry.ranks else [[path] for path in paths]:
        name = entry.path if entry.ranks else _stem(group[0])
        files = tuple(str(path) for path in group)
        yield add_digest(Recording(name, entry.model or name, files, step=entry.step))


def _make_measured(entry: PairEntry, folder: Path) -> Item:
    before = folder / entry.before
    recording = Recording(
        _stem(before),
        entry.model or _stem(before),
        (str(before),),
        after=None if entry.after is None else str(folder / entry.after),
        step=entry.step,
    )
    after_ns = None if entry.after_ms is None else entry.after_ms * 1e6
    return add_key(Item(add_digest(recording), scenario_texts(entry.scenario), after_ns))


def _pair(where: Path, name: str, files: Mapping[str, Callable[[], bytes]]) -> Item:
    """Return the item of one pair: what is wrong with it costs no other one."""
    try:
        stored = stored_pair(files, name, where)
        scenario = tuple(map(str, parse_foreign_scenario([stored.scenario])))
    except ForetraceError as error:
        return _make_unusable(where, f"{name}: {error}", name)
    recording = Recording(stored.name, stored.model, (str(where),), pair=name)
    return add_key(Item(add_digest(recording), scenario))


def scenario_of(item: Item) -> Scenario:
    """Return the what-ifs of *item*; those of a pair come from its archive."""
    parse = parse_scenario if item.recording.pair is None else parse_foreign_scenario
    return parse(item.scenario)


def _expand(pattern: str, folder: Path) -> list[Path]:
    """Return what *pattern* matches; itself, to be reported as missing, where that is nothing."""
    path = Path(pattern)
    root, inside = (
        (Path(path.anchor), path.relative_to(path.anchor)) if path.anchor else (folder, path)
    )
    try:
        return sorted(root.glob(str(inside))) or [root / inside]
    except (OSError, ValueError, RecursionError):  # no file has such a name
        return [root / inside]


def _digest_of(recording: Recording) -> str:
    if recording.pair is None:
        paths = [Path(name) for name in recording.files]
        beside = calibration_path(paths[0])
        after = [] if recording.after is None else [Path(recording.after)]
        parts = [*paths, *([beside] if is_file(beside) else []), *after]
        return digest(*(_file_digest(path).encode() for path in parts))
    files = read_members(recording.files[0])
    stored = stored_pair(files, recording.pair, Path(recording.files[0]))
    calibration = files.get(recording.pair.removesuffix(PAIR) + CALIBRATION)
    recorded = files[recording_member(recording.pair, stored.before)]()
    content = files[recording.pair]()
    return digest(content, recorded, calibration() if calibration else b"")


def _file_digest(path: Path) -> str:
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise TraceError(f"{path}: no regular file")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _named_files(item: Item) -> Iterator[str]:
    """Yield a digest of each file that a what-if is defined in, or has as a parameter."""
    for what_if in scenario_of(item):
        texts = [what_if.name.rpartition(":")[0], *map(str, what_if.parameters.values())]
        yield from (_file_digest(Path(text)) for text in texts if is_file(text))


def _stem(path: Path) -> str:
    name = path.name
    while (ending := Path(name).suffix) in ENDINGS:
        name = name.removesuffix(ending)
    return name


def _why(error: Exception, path: Path) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{error.filename or path}: there is no such file"
    if isinstance(error, OSError):
        return f"{error.filename or path}: cannot be read ({error.strerror})"
    if isinstance(error, KeyError):
        return f"{path}: {error.args[0]} is not in it"
    return str(error)
