"""Tensors to run an operator on: recorded values where they matter, random ones elsewhere."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

from foretrace.tracer.calibration.operator_call import Operand

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from foretrace.tracer.calibration.operator_call import Call

ALIGNMENT = 64
RNN_BACKWARD = "aten::mkldnn_rnn_layer_backward"


class Inputs:
    """Makes tensors for calls: floats share one store of random values per type and device.

    What a call writes to is copied first, so that no run sees what the last one left.
    """

    def __init__(self, calls: Iterable[Call]) -> None:
        """Have enough random values for the biggest of *calls*."""
        sizes: dict[tuple[torch.dtype, str], int] = defaultdict(int)
        for call in calls:
            needed: dict[tuple[torch.dtype, str], int] = defaultdict(int)
            for operand in call.operands:
                if operand.values is None:
                    needed[operand.dtype, operand.device] += _span(operand)
            for kind, size in needed.items():
                sizes[kind] = max(sizes[kind], size)
        self._stores = {kind: _random(size, *kind) for kind, size in sizes.items()}

    def of(self, call: Call) -> Any:
        """Return fresh arguments for *call*."""
        taken: dict[tuple[torch.dtype, str], int] = defaultdict(int)

        def make(operand: Any) -> Any:
            if not isinstance(operand, Operand):
                return operand
            if operand.values is not None:
                return _lay_out(operand)
            kind = operand.dtype, operand.device
            offset = taken[kind]
            taken[kind] += _span(operand)
            return torch.as_strided(self._stores[kind], operand.shape, operand.stride, offset)

        given, named = tree_map(make, call.arguments)
        written = _find_written(call)
        if call.operator == RNN_BACKWARD:
            given = (*given[:-1], _rnn_workspace(given))
        return (
            tuple(_copy(v) if place in written else v for place, v in enumerate(given)),
            {name: _copy(v) if name in written else v for name, v in named.items()},
        )


def _rnn_workspace(given: Sequence[Any]) -> Any:
    """Return what the forward layer leaves for its backward: invented bytes would crash it."""
    reverse, mode, *sizes, biases, train, bidirectional, batch_sizes, batch_first = given[13:22]
    with torch.enable_grad():  # else nothing is left for a backward
        return torch.ops.aten.mkldnn_rnn_layer(
            *given[:7],
            *(reverse, batch_sizes, mode, *sizes, biases, bidirectional, batch_first, train),
        )[3]


def _find_written(call: Call) -> set[int | str]:
    """Return places and names of the arguments that *call* writes to."""
    arguments = call.function._schema.arguments  # noqa: SLF001 - no public form
    written = [
        (place, argument.name)
        for place, argument in enumerate(arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return {key for both in written for key in both}


def _copy(value: Any) -> Any:
    """Return *value* with every tensor in it copied, strides kept."""

    def copy(part: Any) -> Any:
        if not isinstance(part, torch.Tensor):
            return part
        return torch.empty_strided(
            part.shape, part.stride(), dtype=part.dtype, device=part.device
        ).copy_(part)

    return tree_map(copy, value)


def _span(operand: Operand) -> int:
    """Return how many elements of memory *operand* reaches over, aligned."""
    if 0 in operand.shape:
        return 0
    reach = sum(
        (size - 1) * stride for size, stride in zip(operand.shape, operand.stride, strict=True)
    )
    step = max(ALIGNMENT // operand.dtype.itemsize, 1)
    return -(-(1 + reach) // step) * step


def _random(size: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Return *size* values: floats from 0.1 to 1, booleans half of them true, whole numbers 0."""
    if dtype == torch.bool:
        return torch.rand(size, device=device) < 0.5  # noqa: PLR2004 - half of them
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.zeros(size, dtype=dtype, device=device)
    return (0.1 + 0.9 * torch.rand(size, device=device)).to(dtype)


def _lay_out(operand: Operand) -> torch.Tensor:
    """Return the recorded values, repeated or cut to the operand's shape, with its strides."""
    assert operand.values is not None
    values = operand.values.to(operand.dtype)
    if tuple(values.shape) != operand.shape:
        values = _repeat_to(values.flatten(), math.prod(operand.shape)).reshape(operand.shape)
    stored = values[tuple(slice(0, 1 if step == 0 else None) for step in operand.stride)]
    laid = torch.empty_strided(
        stored.shape, operand.stride, dtype=operand.dtype, device=operand.device
    )
    return laid.copy_(stored).expand(operand.shape)


def _repeat_to(values: torch.Tensor, size: int) -> torch.Tensor:
    """Return *size* values, those given again and again; a rising series from 0 goes on rising.

    Such a series says where things begin, and code that relies on it crashes if it turns back.
    """
    if not values.numel():
        return torch.zeros(size, dtype=values.dtype, device=values.device)
    times = -(-size // values.numel())
    repeated = values.repeat(times)[:size]
    is_number = values.dtype != torch.bool and not values.is_floating_point()
    if values.numel() < 2 or not is_number or values[0] or not bool((values.diff() > 0).all()):  # noqa: PLR2004 - a series has two
        return repeated
    rise = values[-1] + values[-1] - values[-2]
    return repeated + rise * torch.arange(times).repeat_interleave(values.numel())[:size]
