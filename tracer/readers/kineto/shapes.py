"""Shapes and types of an operator's inputs, as a Kineto file has them; nothing else passes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from foretrace.tracer.readers.columns import INT64_MAX, categorical, cut_name, from_codes, recode

if TYPE_CHECKING:
    import pandas as pd


def compact_lists(texts: list[Any], rows: np.ndarray, count: int) -> pd.Categorical:
    """Encode pieces of JSON without their spaces; an empty piece or list is unknown."""
    some = recode(categorical(list(map(bytes, texts))), _compact_text)
    codes = np.full(count, -1, np.int32)
    codes[rows] = some.codes
    return from_codes(codes, list(some.categories))


def _compact_text(text: bytes) -> str | None:
    try:
        value = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, list) or not value:
        return None
    return json.dumps([_plain(each) for each in value], separators=(",", ":"))


def _plain(value: Any) -> Any:
    """Return one input's type, or its shape; of a list of tensors, theirs; else an empty shape."""
    if isinstance(value, str):
        return cut_name(value)
    if not isinstance(value, list):
        return []
    if all(type(size) is int and 0 <= size <= INT64_MAX for size in value):
        return value
    return [_plain(each) for each in value] if all(isinstance(e, list) for e in value) else []
