"""Public traces with allocator events in, the peak by their events and without them out.

Events say what came and went. Newer ones carry the allocator's own total, which is the truth; of
older ones only the swing is known, the highest less the lowest level.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.graph.build import build
from foretrace.tracer.readers.load import load
from foretrace.transforms.costs.memory_curve import memory_curve
from foretrace.transforms.costs.peak_memory import peak_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from foretrace.graph.model import Graph

WITH_TOTALS = (
    "hta/ddp_toy_mlp-rnn_v100_ws2_rank1",
    "tracelens/infer_bert-small_h100",
    "tracelens/infer_bert-small_mi300x",
    "tracelens/infer_qwen1.5-0.5b_h100",
    "tracelens/infer_qwen1.5-0.5b_mi300x",
    "tracelens/infer_vit-nsfw_h100",
    "tracelens/infer_vit-nsfw_mi300x",
    "triosim/vgg13_h100_bs512_adam_iter41",
)
WITHOUT = (
    "kineto-tb-plugin/resnet50_v100_nw0_2021-06_runA",
    "kineto-tb-plugin/resnet50_v100_nw0_2021-06_runB",
    "kineto-tb-plugin/resnet50_v100_nw4_2021-06_runA",
    "kineto-tb-plugin/resnet50_v100_nw4_2021-06_runB",
)


class PublicPeak(NamedTuple):
    """Bytes: as the allocator said, by the parts that events give, and estimated without events.

    Where ``is_swing``, all three are the highest less the lowest level. None where nothing tells.
    """

    name: str
    is_swing: bool
    allocator: float
    by_events: float | None
    estimated: float | None
    source: str


def read_public(folder: Path) -> Iterator[PublicPeak]:
    """Yield the traces below *folder*, those with totals first."""
    for name in (*WITH_TOTALS, *WITHOUT):
        graph = build(load(folder / f"{name}.json.gz"))
        memory = graph.meta.extra["memory"]
        is_swing = memory["allocated_bytes"] is None
        bare = {key: value for key, value in graph.meta.extra.items() if key != "memory"}
        guessed = replace(graph, meta=replace(graph.meta, extra=bare)).with_state(allocations=None)
        by_events, _ = _level(graph, is_swing=is_swing)
        estimated, source = _level(guessed, is_swing=is_swing)
        truth = memory["swing_bytes" if is_swing else "allocated_bytes"]
        yield PublicPeak(name, is_swing, truth, by_events, estimated, source)


def _level(graph: Graph, *, is_swing: bool) -> tuple[float | None, str]:
    curve = memory_curve(graph)
    if curve is None:
        return None, ""
    total = float(np.ptp(curve.total)) if is_swing else peak_of(curve).bytes
    return total, curve.source
