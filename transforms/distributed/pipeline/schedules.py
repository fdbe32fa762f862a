"""In which order a pipeline stage computes: the schedules, as data.

In: the shape of the pipeline. Out: the turns of one rank, first to last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foretrace.errors import TransformError
from foretrace.transforms.edit.parameters import choice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Turn(NamedTuple):
    """One computation of a rank: ``direction`` is "forward" or "backward".

    ``chunk`` is the place of the model part among those of the rank, from 0.
    """

    direction: str
    micro_batch: int
    chunk: int = 0


def turns(
    schedule: str, *, stages: int, micro_batches: int, stage: int, chunks: int = 1
) -> list[Turn]:
    """Return the turns of *stage* in one step.

    Parameters
    ----------
    schedule
        "gpipe": all forwards, then all backwards. "1f1b": as many forwards as there are stages
        behind, then one of each in turn. "interleaved": 1F1B over several chunks of the model per
        rank (Megatron-LM's virtual stages).
    stages
        Ranks in the pipeline.
    micro_batches
        Parts of the batch.
    stage
        Which rank, from 0.
    chunks
        Model parts per rank; 1 unless interleaved.

    Raises
    ------
    TransformError
        The schedule is unknown, or interleaved with a number of micro-batches that the stages do
        not divide.

    Examples
    --------
    >>> order = turns("1f1b", stages=2, micro_batches=3, stage=0)
    >>> " ".join(f"{turn.direction[0]}{turn.micro_batch}" for turn in order)
    'f0 f1 b0 f2 b1 b2'
    """
    choice("schedule", schedule, SCHEDULES)
    forward, backward, ahead = SCHEDULES[schedule](stages, micro_batches, stage, chunks)
    return list(_alternate(forward, backward, min(ahead, len(forward))))


def _alternate(forward: list[Turn], backward: list[Turn], ahead: int) -> Iterator[Turn]:
    """Run *ahead* forwards, then one forward and one backward in turn, then what is left."""
    yield from forward[:ahead]
    rest = iter(forward[ahead:])
    for turn in backward:
        yield from (each for each in (next(rest, None),) if each is not None)
        yield turn


_Turns = tuple[list[Turn], list[Turn], int]
"""Forwards, backwards, and how many forwards run before the first backward."""


def _plain(micro_batches: int) -> tuple[list[Turn], list[Turn]]:
    return (
        [Turn("forward", k) for k in range(micro_batches)],
        [Turn("backward", k) for k in range(micro_batches)],
    )


def _gpipe(_stages: int, micro_batches: int, _stage: int, _chunks: int) -> _Turns:
    return *_plain(micro_batches), micro_batches


def _one_forward_one_backward(stages: int, micro_batches: int, stage: int, _chunks: int) -> _Turns:
    return *_plain(micro_batches), stages - stage - 1


def _interleaved(stages: int, micro_batches: int, stage: int, chunks: int) -> _Turns:
    """Let groups of as many micro-batches as stages pass through one chunk after another."""
    if micro_batches % stages:
        raise TransformError(
            f"micro_batches={micro_batches} is no multiple of the {stages} stages, "
            "as the interleaved schedule needs"
        )
    count = micro_batches * chunks
    group = stages * chunks
    places = [
        (index % group // stages, index // group * stages + index % stages)
        for index in range(count)
    ]
    forward = [Turn("forward", k, chunk) for chunk, k in places]
    backward = [Turn("backward", k, chunks - 1 - chunk) for chunk, k in places]
    ahead = count if micro_batches == stages else 2 * (stages - stage - 1) + (chunks - 1) * stages
    return forward, backward, ahead


SCHEDULES: dict[str, Callable[[int, int, int, int], _Turns]] = {
    "gpipe": _gpipe,
    "1f1b": _one_forward_one_backward,
    "interleaved": _interleaved,
}
"""Every schedule by name. Sources: GPipe (NeurIPS'19); PipeDream-Flush and the interleaved
schedule as in Megatron-LM (SC'21)."""
