"""Which operators a job would run after a change, found out without running it.

Goes in: the operators of a real step, and what builds the job as it is and as it would be. Both are
built and stepped without data: in what a step without data lacks, or has in excess over a real
one, the change has no part.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

from foretrace.errors import RecordError
from foretrace.tracer.calibration.align_calls import NONE, align
from foretrace.tracer.calibration.fake_tensors import without_data
from foretrace.tracer.calibration.file import REPEATED
from foretrace.tracer.calibration.operator_call import Call, Operand
from foretrace.tracer.calibration.operator_log import log_step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from foretrace.tracer.job import Job

NORM_BACKWARD, STATISTICS = "aten::native_batch_norm_backward", 5
"""Without data torch says that the saved statistics, from this operand on, have the type of the
input; in reality they keep their own."""


WHY_NOTHING_CHANGES = {
    "amp": "the job decides itself what runs under autocast; let the function have amp=..., and "
    "build the job in that type",
    "batch_size": "the job has as many samples already, or its function does not use batch_size",
    "channels_last": "nothing that the job works on has another layout",
}


@dataclass(frozen=True)
class JobChange:
    """A what-if: its name, parameters, and what builds the job as it would be."""

    name: str
    parameters: Mapping[str, Any]
    build: Callable[[], Job]

    @classmethod
    def of(cls, text: str, build: Callable[[], Job]) -> JobChange:
        """Return the change with the canonical *text*.

        >>> JobChange.of("gradient_accumulation(k=2)", print).parameters
        {'k': 2}
        """
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Name)
        given = {str(part.arg): ast.literal_eval(part.value) for part in call.keywords}
        return cls(call.func.id, given, build)

    @property
    def text(self) -> str:
        """The canonical text, such as ``amp(dtype="bf16")``."""
        given = (f"{name}={_quote(value)}" for name, value in self.parameters.items())
        return f"{self.name}({', '.join(given)})"


def _quote(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


@dataclass(frozen=True)
class PlacedCall:
    """An operator after a change, and the position of the one before that it replaces."""

    call: Call
    of: int


def operators_after(
    change: JobChange, before: Sequence[Call], build: Callable[[], Job]
) -> list[PlacedCall]:
    """Return the operators of a step after *change*, placed by those *before* that they replace.

    Of repeated steps only what comes on top of the repetition is returned.

    The job as it is, is built without data too: in what both lack or have in excess over a real
    run, the change has no part.

    Raises
    ------
    RecordError
        A step failed, or it runs the same operators as before.
    """
    with without_data():
        twin = log_step(build(), is_real=False, before=before)
        after = log_step(change.build(), is_real=False, before=before)
    if change.name == REPEATED:
        return _find_added(twin, after, int(change.parameters["k"]))
    if [call.key for call in after] == [call.key for call in twin]:
        raise RecordError(f"it changes no operator: {WHY_NOTHING_CHANGES[change.name]}")
    to_real = align(before, twin)
    placed = []
    for call, of_twin in zip(after, align(twin, after), strict=True):
        if of_twin == NONE:
            placed.append(PlacedCall(call, NONE))
        elif (of := to_real[of_twin]) != NONE:
            placed.append(PlacedCall(_with_values(call, before[of]), of))
    return placed


def _find_added(before: Sequence[Call], after: Sequence[Call], times: int) -> list[PlacedCall]:
    """Return the operators *after* that are not those *before*, run *times* times.

    Gradients are accumulated in place, which the log cannot show.
    """
    left = Counter(
        {key: times * number for key, number in Counter(call.key for call in before).items()}
    )
    added = []
    for call in after:
        left[call.key] -= 1
        if left[call.key] < 0:
            is_sum = call.operator == "aten::add" and call.phase == "backward"
            in_place = replace(call, function=torch.ops.aten.add_.Tensor) if is_sum else call
            added.append(PlacedCall(in_place, NONE))
    return added


def _with_values(call: Call, original: Call) -> Call:
    """Return *call* with the recorded values of the *original*'s operands in the same places."""
    theirs = original.operands
    if len(theirs) != len(call.operands):
        return call
    keeps_fp32 = call.operator == NORM_BACKWARD
    number = count()

    def fill(value: Any) -> Any:
        if not isinstance(value, Operand):
            return value
        place = next(number)
        recorded = theirs[place]
        dtype = recorded.dtype if keeps_fp32 and place >= STATISTICS else value.dtype
        return replace(value, dtype=dtype, values=recorded.values)

    return replace(call, arguments=tree_map(fill, call.arguments))
