"""What is known of the kernels of a job: class, precision, work, and the library of attention.

In: a graph. Out: arrays with one entry per task. Names tell most; operators and their shapes, and
what `amp` moved to another type, tell the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from foretrace.transforms.costs.kernel_names import MATRIX, UNKNOWN, classes, precisions, tile
from foretrace.transforms.costs.operators import matmul_work
from foretrace.transforms.edit.columns import Mask, by_category, is_in, matches

if TYPE_CHECKING:
    import numpy.typing as npt

    from foretrace.graph.model import Graph

    Floats = npt.NDArray[np.float64]

ATTENTION_KINDS = (
    ("flash3", r"compute_attn_ws|hopper|Sm90|Sm100|Fa3|flash3"),
    ("fp32", r"fmha_cutlass[FB]_f32"),
    ("mem_efficient", r"fmha_cutlass|PyTorchMemEffAttention"),
    ("flash1", r"pytorch_fmha|fmha_(fwd|bwd)_(loop|dot|q_dk)|FMHA_kernel"),
)
"""Which library an attention kernel is of, by its name; flash2 where none matches."""


@dataclass(frozen=True)
class Kernels:
    """What is known of every task's kernel: class, precision, and a product's flops and bytes."""

    graph: Graph

    @cached_property
    def where(self) -> Mask:
        """The kernels, those that only communicate left out."""
        return is_in(self.graph.tasks["kind"], "kernel") & (self.classes != "collective")

    @cached_property
    def classes(self) -> npt.NDArray[np.str_]:
        """Class by name; a product that a convolution operator launched is a convolution."""
        by_name = classes(self.graph.tasks["name"])
        inside = np.zeros(len(by_name), bool)
        if len(self.graph.operators):
            inside = self._of_operator(by_category(self.graph.operators["name"], _convolves))
        return np.where(inside & (by_name == "gemm"), "conv", by_name)

    @cached_property
    def turns_images(self) -> Mask:
        """Convolutions for which NCHW images are turned around: not 1x1 ones, that are products."""
        return (self.classes == "conv") & (classes(self.graph.tasks["name"]) == "conv")

    @cached_property
    def precisions(self) -> npt.NDArray[np.str_]:
        """Precision by name, else by the operator's first input, else that of most products.

        What `tf32`, `device` or `amp` moved has the precision that it was moved to.
        """
        named = precisions(self.graph.tasks["name"])
        of_input = np.full(len(named), UNKNOWN, dtype=named.dtype)
        operators = self.graph.operators
        if len(operators):
            for precision, dtype in (("bf16", "BFloat16"), ("fp16", "Half"), ("fp32", "float")):
                typed = matches(operators["dtypes"], dtype)
                of_input[self._of_operator(typed) & (of_input == UNKNOWN)] = precision
        told = np.where(named == UNKNOWN, of_input, named)
        told = np.where(told == UNKNOWN, self._usual(told), told)
        to_tf32 = (told == "fp32") & np.isin(self.classes, self.graph.state.tf32)
        told = np.where(to_tf32, "tf32", told)
        moved = self.graph.state.autocast
        return np.where(self._cast(told), moved.dtype, told) if moved else told

    def _cast(self, wide: npt.NDArray[np.str_]) -> Mask:
        """Return what `amp` moved from the precisions *found* to 16 bits."""
        cast = np.isin(self.classes, [*MATRIX, "attention"]) & np.isin(wide, ["fp32", "tf32"])
        return cast & ~is_in(self.graph.tasks["phase"], "optimizer", "load", "communication")

    @cached_property
    def work(self) -> tuple[Floats, Floats]:
        """Flops and bytes of each product's operator; NaN where shapes do not tell."""
        operators = self.graph.operators
        figures = np.full((2, len(operators) + 1), np.nan)
        if len(operators):
            keys = operators[["name", "shapes", "dtypes"]].astype(object)
            codes, distinct = keys.groupby(list(keys), dropna=False, sort=False).ngroup(), {}
            for row, code in enumerate(codes.to_numpy().tolist()):
                if code not in distinct:
                    distinct[code] = matmul_work(*(str(v) for v in keys.iloc[row]))
                figures[:, row] = distinct[code]
        operator = self.graph.tasks["operator"].to_numpy()
        return figures[0][operator], figures[1][operator]

    @cached_property
    def written(self) -> Floats:
        """Numbers that each product writes at least: its tile times its grid; 0 where unknown."""
        tasks = self.graph.tasks
        areas = [math.prod(tile(str(name)) or (0,)) for name in tasks["name"].cat.categories]
        area = np.array([*areas, 0], np.float64)[tasks["name"].cat.codes.to_numpy()]
        return area * np.maximum(tasks["blocks"].to_numpy(), 0)

    def moved(self, flops: Floats) -> Floats:
        """Return bytes that each product of so many *flops* moves at least; 0 where unknown.

        What it writes tells how long its inner dimension is. It reads two operands: the least they
        can be is those of a square output, and a layer reads about as much as it writes.
        """
        item = np.where(np.isin(self.precisions, ["fp32", "tf32"]), 4, 2)
        inner = flops / (2 * np.maximum(self.written, 1.0))
        read = np.maximum(self.written, 2 * inner * np.sqrt(self.written))
        return item * (self.written + read) * (self.written > 0)

    def _of_operator(self, flags: Mask) -> Mask:
        operator = self.graph.tasks["operator"].to_numpy()
        return flags[operator] & (operator >= 0)

    def _usual(self, named: npt.NDArray[np.str_]) -> str:
        heavy = self.where & np.isin(self.classes, [*MATRIX, "attention"]) & (named != UNKNOWN)
        if not heavy.any():
            return "fp32"
        work = self.graph.tasks["work_ns"].to_numpy()[heavy]
        names, place = np.unique(named[heavy], return_inverse=True)
        return str(names[np.argmax(np.bincount(place, weights=work))])


def _convolves(name: str) -> bool:
    return "conv" in name.replace("convert", "")


def attention_kinds(graph: Graph) -> npt.NDArray[np.str_]:
    """Return the library of every task's kernel, were it fused attention."""
    kinds = np.full(len(graph.tasks), "flash2", dtype="<U13")
    for kind, pattern in reversed(ATTENTION_KINDS):
        kinds[matches(graph.tasks["name"], pattern)] = kind
    if moved := graph.state.autocast:
        wide = np.isin(precisions(graph.tasks["name"]), ["fp32", "tf32"])
        kinds[wide] = moved.attention
    return kinds
