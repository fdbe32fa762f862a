"""The study file of a batch: TOML in, entries out, every mistake one line.

Paths and globs in it are relative to its own folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from foretrace.errors import RefusedError, TransformError
from foretrace.transforms.scenario import parse_scenario
from foretrace.util.toml_file import read_toml

if TYPE_CHECKING:
    from pathlib import Path

Texts = str | list[str]
"""A scenario: one what-if, or several that are made together."""


class TraceEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Recordings, one job per file that *path*, a glob, finds; with ``ranks`` all of them are one.

    ``model`` is what tables group by, by default the name of the file.
    """

    path: str
    model: str | None = None
    step: str | None = None
    ranks: bool = False


class PairEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A change that was really made: recordings before and after, or the step after in ms."""

    before: str
    scenario: Texts
    after: str | None = None
    after_ms: Annotated[float, msgspec.Meta(ge=1e-6, le=1e12)] | None = None
    model: str | None = None
    step: str | None = None


class ArchiveEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Archives of ``foretrace record-pairs``: each pair brings its what-if and its truth."""

    path: str


class ModelEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Jobs that the batch records itself, by name.

    A name is one of the zoo, ``torchvision:NAME``, ``transformers:TYPE`` or a user's own
    ``module:function``. With ``changes``, as ``foretrace record-pairs --variants`` names them, each
    is measured before and after, interleaved; without, the study's scenarios are predicted.
    On a CPU the zoo takes its small shapes. ``rounds`` and ``calibration_seconds`` are per change,
    ``minutes`` the longest that one may take.
    """

    names: list[str]
    changes: list[str] = []
    device: Literal["cpu", "cuda"] = "cpu"
    rounds: int | None = None
    calibration_seconds: float | None = None
    minutes: float = 10.0


class Study(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a study file says."""

    scenarios: list[Texts] = []
    trace: list[TraceEntry] = []
    pair: list[PairEntry] = []
    archive: list[ArchiveEntry] = []
    model: list[ModelEntry] = []


def read_study(path: Path) -> Study:
    """Read the study file *path*.

    Raises
    ------
    TransformError
        It cannot be read, has an unknown key or a wrong value, or asks for nothing.
    """
    try:
        study = read_toml(path, Study)
    except RefusedError as error:
        raise TransformError(f"study file {error}") from None
    for mistake in _mistakes(study):
        raise TransformError(f"study file {path}: {mistake}")
    return study


def scenario_texts(texts: Texts) -> tuple[str, ...]:
    """Return a scenario as the texts that parse to it, in their one spelling.

    Raises
    ------
    TransformError
        A what-if is unknown, or a parameter is wrong.

    Examples
    --------
    >>> scenario_texts("batch_size( n = 64 )")
    ('batch_size(n=64)',)
    """
    given = [texts] if isinstance(texts, str) else texts
    return tuple(str(what_if) for what_if in parse_scenario(given))


def _mistakes(study: Study) -> list[str]:
    """Return what a study file says that cannot be done."""
    unmeasured = study.trace or any(not entry.changes for entry in study.model)
    mistakes = []
    if not (study.trace or study.pair or study.archive or study.model):
        mistakes.append("name a [[trace]], [[pair]], [[archive]] or [[model]]")
    if unmeasured and not study.scenarios:
        mistakes.append('scenarios is empty; write scenarios = ["amp", ...]')
    if [] in study.scenarios:
        mistakes.append("a scenario is an empty list; name a what-if in it")
    mistakes += [
        f"pair of {pair.before}: give either after or after_ms"
        for pair in study.pair
        if (pair.after is None) == (pair.after_ms is None)
    ]
    return mistakes
