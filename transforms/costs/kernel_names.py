"""Tell from a kernel's name what it does and in which precision, for NVIDIA and AMD names.

The rules are a table, `kernel_names.toml`, read from top to bottom: the first pattern found in the
name wins.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from foretrace.transforms.edit.columns import of_category

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

CLASSES = (
    "gemm",
    "conv",
    "attention",
    "norm",
    "softmax",
    "pointwise",
    "reduce",
    "copy",
    "layout",
    "quantize",
    "optimizer",
    "embedding",
    "collective",
    "other",
)
MATRIX = ("gemm", "conv")
"""Classes of matrix products."""
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "fp4", "mxfp4", "nvfp4", "unknown")

MOST_NAMES = 1 << 20
"""Names that are remembered; a cache that is smaller than a recording has names helps nothing."""
OTHER = "other"
UNKNOWN = "unknown"
_TILE = re.compile(r"(?<!\d)(\d{2,3})x(\d{2,3})(?!\d)")


@cache
def _rules(sort: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the rules of one *sort*, "class" or "precision", in their order."""
    file = files("foretrace.transforms.costs").joinpath("kernel_names.toml")
    rows = tomllib.loads(file.read_text("utf-8"))[sort]
    return tuple((row["name"], re.compile(row["pattern"])) for row in rows)


@lru_cache(maxsize=MOST_NAMES)
def kernel_class(name: str) -> str:
    """Return one of `CLASSES`.

    Examples
    --------
    >>> kernel_class("volta_sgemm_128x32_nt"), kernel_class("bn_fw_tr_1C11_kernel_NCHW")
    ('gemm', 'norm')
    """
    return next((kind for kind, pattern in _rules("class") if pattern.search(name)), OTHER)


@lru_cache(maxsize=MOST_NAMES)
def kernel_precision(name: str) -> str:
    """Return one of `PRECISIONS`: that of the arithmetic, as far as the name tells.

    Examples
    --------
    >>> kernel_precision("volta_sgemm_128x32_nt")
    'fp32'
    >>> kernel_precision("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_nn")
    'bf16'
    """
    return next(
        (precision for precision, pattern in _rules("precision") if pattern.search(name)), UNKNOWN
    )


@lru_cache(maxsize=MOST_NAMES)
def tile(name: str) -> tuple[int, int] | None:
    """Return rows and columns of the output that a block of a product writes, by its name.

    Examples
    --------
    >>> tile("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn")
    (128, 256)
    >>> tile("Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x128_MI16x16x1")
    (64, 32)
    """
    match = _TILE.search(name)
    return (int(match[1]), int(match[2])) if match else None


def classes(names: pd.Series) -> npt.NDArray[np.str_]:
    """Return the class of each name of a category column; each distinct name is read once."""
    return of_category(names, kernel_class, OTHER)


def precisions(names: pd.Series) -> npt.NDArray[np.str_]:
    """Return the precision of each name of a category column."""
    return of_category(names, kernel_precision, UNKNOWN)
