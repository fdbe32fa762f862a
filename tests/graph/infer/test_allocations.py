"""Who holds memory by an allocator's events: blocks are paired, and told apart by phases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from foretrace.graph.build import build
from foretrace.graph.infer.allocations import pair_blocks
from foretrace.graph.state import MEMORY_PARTS
from foretrace.tracer.readers.kineto.read import read_kineto
from foretrace.tracer.readers.load import load
from foretrace.transforms.costs.peak_memory import peak_memory
from tests.support.paths import PUBLIC

if TYPE_CHECKING:
    from foretrace.graph.model import Graph

Event = dict[str, Any]


def operator(name: str, start: float) -> Event:
    """Return an operator of 10 us."""
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": 10}


def memory(start: float, size: int, address: int, total: int | None = None) -> Event:
    """Return a memory event of device 0; *total* is what is allocated behind it."""
    args = {"Device Type": 1, "Device Id": 0, "Bytes": size, "Addr": address}
    args |= {} if total is None else {"Total Allocated": total, "Total Reserved": 900}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1,
            "ts": start, "args": args}  # fmt: skip


STEP = (
    operator("aten::mm", 0),
    operator("autograd::engine::evaluate_function: MmBackward0", 20),
    operator("Optimizer.step#Adam.step", 40),
    {**operator("aten::add_", 40), "dur": 9},
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1, "dur": 40,
     "args": {"device": 0, "stream": 7}},
)  # fmt: skip


def built(*events: Event) -> Graph:
    """Return the graph of one step with these memory events."""
    raw = json.dumps({"traceEvents": [*STEP, *events]}).encode()
    return build(read_kineto(raw, "memory.json"))


def held(graph: Graph, moment: int) -> dict[str, float]:
    """Return the parts that hold something behind the event number *moment*."""
    assert graph.state.allocations is not None
    sizes = zip(MEMORY_PARTS, graph.state.allocations.held[moment], strict=True)
    return {part: size for part, size in sizes if size}


def test_a_block_belongs_to_the_phase_that_made_it_and_those_that_need_it() -> None:
    """From forward to backward activations, within a phase temporary, behind it gradients."""
    graph = built(
        memory(1, 100, 1, 1_100),
        memory(2, 7, 2, 1_107),
        memory(3, -7, 2, 1_100),
        memory(21, 30, 3, 1_130),
        memory(22, 5, 4, 1_135),
        memory(23, -5, 4, 1_130),
        memory(24, -100, 1, 1_030),
        memory(41, 8, 5, 1_038),
        memory(42, -8, 5, 1_030),
        memory(43, -30, 3, 1_000),
    )

    assert held(graph, 1) == {"activations": 100, "temporary": 7}
    assert held(graph, 4) == {"activations": 100, "gradients": 30, "temporary": 5}
    assert held(graph, 7) == {"gradients": 30, "update": 8}
    assert held(graph, 9) == {}
    assert graph.state.allocations is not None
    assert graph.state.allocations.before == 1_000
    found = peak_memory(graph)
    assert found is not None
    assert (found.bytes, found.source, found.phase) == (1_135, "recorded", "backward")


def test_what_was_there_before_is_counted_from_the_beginning() -> None:
    """Given back in backward it was an activation of before."""
    graph = built(memory(1, 10, 1, 1_010), memory(21, -200, 9, 810))

    assert held(graph, 0) == {"activations": 210}
    assert graph.state.allocations is not None
    assert graph.state.allocations.before == 800


def test_without_addresses_and_totals_blocks_are_paired_by_their_size() -> None:
    """As until 2021; what was held before is not known."""
    events = [memory(1, 64, -1), memory(2, 64, -1), memory(22, -64, -1), memory(23, -64, -1)]
    for event in events:
        del event["args"]["Addr"]
    graph = built(*events)

    assert held(graph, 1) == {"activations": 128}
    assert held(graph, 3) == {}
    assert graph.state.allocations is not None
    assert graph.state.allocations.before is None


def test_an_address_is_used_again_and_again() -> None:
    """Each block ends at the next event of its address."""
    address, size = np.array([5, 5, 5, 5, 6]), np.array([4.0, -4.0, 8.0, -8.0, 2.0])

    assert pair_blocks(address, size).tolist() == [1, 0, 3, 2, -1]


@pytest.mark.parametrize(
    "name",
    [
        "hta/ddp_toy_mlp-rnn_v100_ws2_rank1",
        "tracelens/infer_bert-small_h100",
        "tracelens/infer_bert-small_mi300x",
        "tracelens/infer_qwen1.5-0.5b_h100",
        "tracelens/infer_vit-nsfw_h100",
        "triosim/vgg13_h100_bs512_adam_iter41",
    ],
)
def test_parts_add_up_to_the_recorded_peak_of_public_traces(name: str) -> None:
    """Within a thousandth; 5 % are asked."""
    path = PUBLIC / f"{name}.json.gz"
    if not path.exists():
        pytest.skip("the public traces are not here")
    graph = build(load(path))
    found = peak_memory(graph)

    assert found is not None
    assert found.bytes == pytest.approx(graph.meta.extra["memory"]["allocated_bytes"], rel=1e-3)
