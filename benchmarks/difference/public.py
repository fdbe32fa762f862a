"""Public recordings of one job before and after a known change: what `foretrace diff` says."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import foretrace
from foretrace.analysis.difference.difference import NOISE

if TYPE_CHECKING:
    from collections.abc import Iterator

LISTED = Path(__file__).with_name("pairs.toml")


@dataclass(frozen=True)
class PublicPair:
    """A pair of recordings, the causes that its change is known to touch, doubts that are due."""

    id: str
    change: str
    before: str
    after: str
    expected: tuple[str, ...]
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublicVerdict:
    """What was said of a pair: the difference, or why it is refused."""

    pair: PublicPair
    difference: foretrace.Difference | None
    refused: str = ""

    @property
    def judged(self) -> str:
        """Whether the largest part is one that the change is known to touch."""
        if self.difference is None:
            return "refused"
        named = {doubt.code for doubt in self.difference.doubts}
        if not named.issuperset(self.pair.doubts):
            return "a doubt is missing"
        if self.difference.parts[0].cause in self.pair.expected:
            return "right"
        return "within noise, and says so" if NOISE in named else "wrong"


def read_pairs() -> tuple[PublicPair, ...]:
    """Return the listed pairs."""
    listed = LISTED.read_text("utf-8")
    return tuple(msgspec.convert(tomllib.loads(listed)["pair"], list[PublicPair]))


def judge_public_pairs(folder: Path) -> tuple[PublicVerdict, ...]:
    """Return what is said of every listed pair in *folder*; nothing where that is not here."""
    return tuple(_judge(folder)) if folder.exists() else ()


def _judge(folder: Path) -> Iterator[PublicVerdict]:
    for pair in read_pairs():
        try:
            yield judge_public_pair(pair, folder)
        except foretrace.ForetraceError as error:
            yield PublicVerdict(pair, None, str(error))


def judge_public_pair(pair: PublicPair, folder: Path) -> PublicVerdict:
    """Return what is said of *pair*, whose recordings are in *folder*."""
    before, after = (
        foretrace.build(foretrace.load(folder / name)) for name in (pair.before, pair.after)
    )
    return PublicVerdict(pair, foretrace.diff(before, after))
