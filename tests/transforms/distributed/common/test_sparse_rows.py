"""Sparse gradients: which ones, how many rows travel, and what their update then costs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from foretrace.errors import TransformError
from foretrace.transforms.cluster.placement import place_workers
from foretrace.transforms.collectives.cost import collective_cost
from foretrace.transforms.costs.assumed import noting_use
from foretrace.transforms.distributed.common.gradients import find_gradients
from foretrace.transforms.distributed.common.sparse_rows import DISTINCT
from foretrace.transforms.distributed.ddp.ddp import ddp
from foretrace.transforms.distributed.parameter_server import parameter_server
from tests.support.jobs.gradients import sparse_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from foretrace.graph.model import Graph

TABLE = (60_000, 64)


def test_the_rows_that_the_recorder_counted_travel_with_their_indices() -> None:
    """750 rows of 64 floats and an index of 8 bytes each, not a table of 15 MB."""
    with noting_use() as used:
        found = find_gradients(sparse_job(rows=768, table=TABLE, distinct=750))

    assert [(each.name, each.rows, each.bytes) for each in found] == [
        ("table", 750, 750 * (8 + 256)),
        ("dense", 0, 1_000_000),
    ]
    assert not used


def test_without_a_count_rows_are_even_draws_and_that_is_assumed() -> None:
    """768 draws from 60,000 rows hit 763 of them; popular ones would be fewer."""
    with noting_use() as used:
        found = find_gradients(sparse_job(rows=768, table=TABLE))

    assert found[0].rows == 763
    assert list(used) == [DISTINCT]


def test_rows_of_all_workers_are_gathered_and_updated() -> None:
    """Header, indices and rows are gathered one after the other; each rank then has 1,491 rows."""
    changed = ddp(sparse_job(rows=768, table=TABLE, distinct=750), workers=2, network="1Gbps")
    placed = place_workers(2, network="1Gbps")
    parts = (2 * 750 * 256, 2 * 750 * 8, 2 * 72)
    gathered = 1_000 * placed.cluster.host.bucket_us + sum(
        collective_cost(placed.cluster, placed.devices, "all_gather", size).ns for size in parts
    )
    sent = changed.tasks[changed.tasks.kind == "collective"]
    update = changed.tasks[changed.tasks.name == "rows"]

    assert sent["bytes"].tolist() == [750 * 264, 1_000_000]
    assert sent["work_ns"].iloc[0] == pytest.approx(gathered, abs=2)
    assert update["work_ns"].tolist() == pytest.approx([8e6 * (2 - 750 / 60_000)])
    assert any("750 rows" in note for note in changed.notes)


def test_a_sparse_gradient_has_a_bucket_of_its_own() -> None:
    """However small it is."""
    graph = sparse_job(rows=4, table=TABLE, distinct=4)
    changed = ddp(graph, workers=2, network="1Gbps", bucket_cap_mb=25)

    assert (changed.tasks.kind == "collective").sum() == 2


@pytest.mark.parametrize(
    "asked", [partial(parameter_server, workers=2), partial(ddp, workers=2, compression="fp16")]
)
def test_what_takes_dense_gradients_only_says_so(asked: Callable[..., Graph]) -> None:
    """The sentence names the parameter."""
    with pytest.raises(TransformError, match="table has a sparse gradient"):
        asked(sparse_job(rows=768, table=TABLE), network="1Gbps")
