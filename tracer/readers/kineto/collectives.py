"""What a Kineto recording says about collectives: group, size and bytes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.tracer.readers.columns import (
    categorical,
    from_codes,
    integers,
    quantities,
    recode,
    small,
)
from foretrace.tracer.readers.kineto.decode import Arguments

if TYPE_CHECKING:
    from foretrace.tracer.data_issues import Tally
    from foretrace.tracer.readers.kineto.decode import KinetoFile

COLLECTIVE = Arguments(
    single=(
        ("group", "Process Group Name"),
        ("group_size", "Group size"),
        ("source", "Src Rank"),
        ("target", "Dst Rank"),
        ("elements_in", "In msg nelems"),
        ("elements_out", "Out msg nelems"),
        ("element_type", "dtype"),
    )
)
ITEM_BYTES = {
    "float": 4, "int": 4, "double": 8, "long": 8, "half": 2, "bfloat16": 2, "byte": 1, "char": 1,
    "bool": 1, "short": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
COLLECTIVE_NAME = re.compile(r"record_param_comms|nccl|rccl|gloo:|ucc:|mpi:|c10d::", re.IGNORECASE)


def add_collectives(values: dict[str, Any], recording: KinetoFile, tally: Tally) -> None:
    """Set group, size and bytes of collectives, on the host and on the devices."""
    names = values["name"]
    named = np.array([bool(COLLECTIVE_NAME.search(n)) for n in names.categories], dtype=bool)
    rows = np.flatnonzero(named[names.codes] & (values["kind"] >= 0))
    if not len(rows):
        return
    fields = recording.arguments(rows, COLLECTIVE)
    values["group_size"][rows] = small(integers(fields["group_size"], tally), np.int32)
    elements = np.fmax(
        quantities(fields["elements_in"], tally), quantities(fields["elements_out"], tally)
    )
    types = (str(t).lower().removeprefix("c10::") for t in fields["element_type"])
    moved = elements * np.array([ITEM_BYTES.get(t, np.nan) for t in types])
    values["bytes"][rows] = np.where(np.isnan(moved), values["bytes"][rows], moved)
    group = recode(
        categorical(_with_peer(fields, tally)), lambda g: None if g in (-1, "") else str(g)
    )
    codes = np.full(len(names), -1, np.int32)
    codes[rows] = group.codes
    values["group"] = from_codes(codes, list(group.categories))


def _with_peer(fields: dict[str, list[Any]], tally: Tally) -> list[Any]:
    """Return the groups; a send or receive names its peer too, as in "0 ->3" and "0 3->"."""
    source, target = (integers(fields[end], tally).tolist() for end in ("source", "target"))
    return [
        group if src < 0 and dst < 0 else _pair(group, src, dst)
        for group, src, dst in zip(fields["group"], source, target, strict=True)
    ]


def _pair(group: object, source: int, target: int) -> str:
    parts = ("" if group == -1 else group, *("" if end < 0 else end for end in (source, target)))
    return "{} {}->{}".format(*parts)
