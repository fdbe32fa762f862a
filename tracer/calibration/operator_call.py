"""An operator that a step ran, with its arguments: what decides how long it takes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    import torch

Key = tuple[str, str]
"""Operator and arguments."""


@dataclass(frozen=True)
class Operand:
    """A tensor that an operator was given: shape, strides in elements, type, maybe its values."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: str
    values: torch.Tensor | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Call:
    """One operator with its arguments and, of a real step, its result; tensors are `Operand`."""

    function: Any
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    phase: str
    result: Any = field(default=None, compare=False, repr=False)

    @property
    def operator(self) -> str:
        """The name that the profiler shows, such as "aten::add_"."""
        return str(self.function._schema.name)  # noqa: SLF001 - no public form

    @property
    def text(self) -> str:
        """The arguments as canonical JSON: the same text for the same work."""
        given, named = self.arguments
        return json.dumps([*given, named] if named else given, default=_plain, sort_keys=True)

    @property
    def key(self) -> Key:
        """What decides how long it takes."""
        return self.operator, self.text

    @property
    def operands(self) -> list[Operand]:
        """All tensors among the arguments, in order."""
        return [leaf for leaf in tree_leaves(self.arguments) if isinstance(leaf, Operand)]


def _plain(value: Any) -> Any:
    if isinstance(value, Operand):
        dtype = str(value.dtype).removeprefix("torch.")
        return {"shape": value.shape, "stride": value.stride, "dtype": dtype}
    return str(value)
