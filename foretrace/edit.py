"""What a what-if of one's own is written with: select tasks, edit them, say what was assumed.

`docs/writing-your-own.md` shows it; `foretrace.testing.check_transform` tests the result.
"""

from __future__ import annotations

from foretrace.graph.literal import literal
from foretrace.transforms.edit.parameters import choice, positive, whole
from foretrace.transforms.edit.primitives import (
    insert,
    insert_kernels,
    reorder,
    rewire,
    scale,
    scale_lags,
)
from foretrace.transforms.edit.provenance import add_note
from foretrace.transforms.edit.remove import remove
from foretrace.transforms.edit.repeat import repeat
from foretrace.transforms.edit.select import has_device, modules_matching, require, select

__all__ = [
    "add_note",
    "choice",
    "has_device",
    "insert",
    "insert_kernels",
    "literal",
    "modules_matching",
    "positive",
    "remove",
    "reorder",
    "repeat",
    "require",
    "rewire",
    "scale",
    "scale_lags",
    "select",
    "whole",
]
