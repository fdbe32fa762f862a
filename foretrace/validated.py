"""The error that real before/after pairs showed for each transform, as the study last found it.

`validated.toml` is written by ``python -m foretrace.accuracy`` and never by hand.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TABLE = "validated.toml"


@dataclass(frozen=True)
class ValidatedError:
    """The relative error to expect; ``missing`` are the transforms that no pair has tested."""

    share: float
    missing: tuple[str, ...]

    @property
    def is_validated(self) -> bool:
        """Whether every transform has been compared with measurements."""
        return not self.missing


def validated_error(transforms: Iterable[str], *, on_device: bool) -> ValidatedError:
    """Return the error of *transforms* together: independent errors add in quadrature."""
    return combine(transforms, load_table()["gpu" if on_device else "cpu"])


def combine(transforms: Iterable[str], table: Mapping[str, Mapping[str, float]]) -> ValidatedError:
    """Combine the errors that *table* knows.

    >>> combine(["amp", "batch_size"], {"amp": {"p90": 0.03}, "batch_size": {"p90": 0.04}}).share
    0.05
    >>> combine(["amp", "magic"], {"amp": {"p90": 0.03}}).missing
    ('magic',)
    """
    unique = list(dict.fromkeys(transforms))
    shares = [table[name]["p90"] for name in unique if name in table]
    missing = tuple(name for name in unique if name not in table)
    return ValidatedError(float(np.sqrt(np.square(shares).sum())), missing)


@cache
def load_table() -> dict[str, dict[str, Any]]:
    """Read the table: hardware → transform → ``p90``, ``median``, ``pairs``."""
    found = files("foretrace").joinpath(TABLE)
    table = tomllib.loads(found.read_text("utf-8")) if found.is_file() else {}
    return {"gpu": table.get("gpu", {}), "cpu": table.get("cpu", {})}
