"""What is known about optimizer, loader and machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from foretrace.tracer.recording.job_metadata import (
    count_sparse_rows,
    describe_loader,
    describe_optimizer,
    tensor_bytes,
)
from foretrace.tracer.recording.module_ranges import annotate_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

torch = pytest.importorskip("torch")


def after_one_step(kind: str, **settings: Any) -> dict[str, Any]:
    """Return what is said about an optimizer over one 4x4 weight."""
    weight = torch.nn.Parameter(torch.ones(4, 4))
    optimizer = getattr(torch.optim, kind)([weight], lr=0.1, **settings)
    weight.sum().backward()
    optimizer.step()
    described = describe_optimizer(optimizer)
    assert described is not None
    return described


@pytest.mark.parametrize(
    ("kind", "settings", "passes"),
    [
        ("SGD", {}, 3),
        ("SGD", {"momentum": 0.9}, 5),
        ("Adam", {}, 7),
        ("AdamW", {}, 7),
        ("Adam", {"amsgrad": True}, 9),
    ],
)
def test_memory_passes_follow_from_the_state(
    kind: str, settings: dict[str, Any], passes: int
) -> None:
    """Parameter twice, gradient once, and each state twice."""
    assert after_one_step(kind, **settings)["state_passes"] == passes


@pytest.mark.parametrize(
    ("settings", "kind"),
    [({}, "loop"), ({"foreach": True}, "foreach"), ({"fused": True}, "fused")],
)
def test_the_kind_of_update_is_named(settings: dict[str, bool], kind: str) -> None:
    """Torch's own choice on a CPU is the loop."""
    assert after_one_step("Adam", **settings)["kind"] == kind


def test_no_optimizer_is_none() -> None:
    """Nothing is said about what is not there."""
    assert describe_optimizer(None) is None
    assert describe_optimizer(object()) is None


def test_the_cost_of_a_batch_leaves_the_random_state_alone() -> None:
    """A shuffled loader is read once more, and the job's own order stays."""
    data = torch.utils.data.TensorDataset(torch.ones(8, 4))
    loader = torch.utils.data.DataLoader(data, batch_size=2, shuffle=True, num_workers=1)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    described = describe_loader(loader)
    assert torch.equal(torch.rand(1), expected)
    assert described is not None
    assert (described["workers"], described["prefetch"], described["batch_bytes"]) == (1, 2, 32)
    assert 0 <= described["cpu_share"] <= 1


def test_unbatched_loaders_and_lists_are_read_too() -> None:
    """Anything that can be iterated twice has a cost per batch."""
    whole = torch.utils.data.DataLoader([torch.ones(3)], batch_size=None)
    for loader in (whole, [torch.ones(3)]):
        described = describe_loader(loader)
        assert described is not None
        assert described["batch_bytes"] == 12


def test_an_iterator_is_not_consumed() -> None:
    """Its batches belong to the job; the cost stays unknown."""

    def batches() -> Iterator[int]:
        yield 1

    loader = batches()
    described = describe_loader(loader)
    assert described is not None
    assert described["load_ns"] is None
    assert next(loader) == 1
    empty = describe_loader([])
    assert empty is not None
    assert empty["load_ns"] is None


def test_bytes_of_nested_batches() -> None:
    """Tensors count wherever they are; numbers do not."""
    assert tensor_bytes({"a": [torch.ones(2), 3], "b": (torch.ones(1, dtype=torch.int64),)}) == 16


def test_a_model_that_calls_itself_keeps_its_ranges_in_order() -> None:
    """Ranges close also when a forward fails, and a compiled model gets none."""
    layer = torch.nn.Linear(2, 2)
    model = torch.nn.Sequential(layer, layer)
    with annotate_modules(model) as count:
        assert count == 2
        with pytest.raises(RuntimeError):
            model(torch.ones(1, 3))
        model(torch.ones(1, 2))
    with annotate_modules(torch.compile(model, backend="eager")) as count:
        assert count == 0
    with annotate_modules(None) as count:
        assert count == 0


def test_rows_of_sparse_gradients_are_counted_once() -> None:
    """An index looked up twice is one row; a dense gradient has none."""
    model = torch.nn.Sequential(torch.nn.Embedding(9, 2, sparse=True), torch.nn.Linear(2, 1))
    model(torch.tensor([3, 5, 3])).sum().backward()

    assert count_sparse_rows(model) == [["0.weight", 2]]
    assert count_sparse_rows(None) == []
