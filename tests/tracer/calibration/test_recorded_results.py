"""Jobs whose shapes depend on values: their changed forms are logged with the recorded sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from foretrace.tracer.calibration.fake_run import JobChange, operators_after  # noqa: E402
from foretrace.tracer.calibration.fake_tensors import without_data  # noqa: E402
from foretrace.tracer.calibration.operator_log import log_step  # noqa: E402
from foretrace.tracer.job import Job  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.tracer.calibration.operator_call import Call


def masked(samples: int = 4) -> Job:
    """Return a job that trains on the words that a mask lets through: half of them."""
    layer = torch.nn.Linear(3, 2)
    words, is_seen = torch.ones(samples, 6, 3), torch.arange(6).repeat(samples, 1) < 3

    def step() -> None:
        layer(words[is_seen]).sum().backward()

    return Job(step, layer)


def routed(samples: int = 4) -> Job:
    """Return a job that sends each sample to one of two layers, found out from their numbers."""
    layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(2))
    x, to = torch.ones(samples, 3), (torch.arange(samples) % 4 == 0).long()

    def step() -> None:
        rows = [(to == expert).nonzero().flatten() for expert in range(2)]
        sum(layer(x[at]).sum() for layer, at in zip(layers, rows, strict=True)).backward()

    return Job(step, layers)


def split(samples: int = 4) -> Job:
    """Return a job that reads from a tensor how many rows each of two layers gets."""
    layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(2))
    x, sizes = torch.ones(samples, 3), torch.tensor([1, samples - 1])

    def step() -> None:
        first, rest = (int(size) for size in sizes)
        parts = x.split([first, rest])
        sum(layer(part).sum() for layer, part in zip(layers, parts, strict=True)).backward()

    return Job(step, layers)


def spoken(samples: int = 4) -> Job:
    """Return a job whose loss aligns 8 frames with up to 3 letters."""
    layer = torch.nn.Linear(3, 5)
    frames, letters = torch.ones(8, samples, 3), torch.ones(samples, 3, dtype=torch.long)
    lengths = torch.full((samples,), 8), torch.full((samples,), 2)

    def step() -> None:
        scores = layer(frames).log_softmax(-1)
        torch.nn.functional.ctc_loss(scores, letters, *lengths).backward()

    return Job(step, layer)


def rows_of(calls: list[Call], operator: str = "aten::addmm") -> list[int]:
    """Return the rows of what the products of *calls* work on."""
    return [call.operands[1].shape[0] for call in calls if call.operator == operator]


@pytest.mark.parametrize("build", [masked, routed, split, spoken])
def test_sizes_that_values_decide_are_the_recorded_ones(build: Callable[..., Job]) -> None:
    """The list of a step without data is the list that ran."""
    real = log_step(build(), is_real=True)

    with without_data():
        found = log_step(build(), is_real=False, before=real)

    assert [call.key for call in found] == [call.key for call in real]


@pytest.mark.parametrize(("build", "rows"), [(masked, [24]), (routed, [6, 2])])
def test_they_grow_with_the_batch(build: Callable[..., Job], rows: list[int]) -> None:
    """Twice as many samples: twice as many words seen, twice as many rows for each layer."""
    real = log_step(build(), is_real=True)
    change = JobChange("batch_size", {"n": 8}, lambda: build(8))

    after = [one.call for one in operators_after(change, real, build)]

    assert rows_of(after) == rows
    assert rows_of(real) == [size // 2 for size in rows]


def test_casts_reach_what_values_decide() -> None:
    """Words that a mask lets through are of the type that they are now."""

    def build(dtype: Any = torch.float32) -> Job:
        words, is_seen = torch.ones(4, 3, dtype=dtype, requires_grad=True), torch.arange(4) < 3
        return Job(lambda: words[is_seen].sum().backward())

    real = log_step(build(), is_real=True)
    change = JobChange("amp", {}, lambda: build(torch.bfloat16))

    after = [one.call for one in operators_after(change, real, build)]

    seen = next(call for call in after if call.operator == "aten::sum")
    assert seen.operands[0].dtype == torch.bfloat16


def test_making_a_batch_is_no_part_of_the_list() -> None:
    """It grows in a phase of its own; as operators of the step it would count twice."""
    samples = [torch.full((3,), float(number)) for number in range(8)]
    layer = torch.nn.Linear(3, 2)

    def build(size: int = 2) -> Job:
        loader = torch.utils.data.DataLoader(samples, batch_size=size)
        return Job(lambda batch: layer(batch).sum().backward(), layer, loader=loader)

    real = log_step(build(), is_real=True)

    assert "aten::stack" not in {call.operator for call in real}
    change = JobChange("batch_size", {"n": 4}, lambda: build(4))
    after = operators_after(change, real, build)
    assert rows_of([one.call for one in after]) == [4]
