"""Tell from a kernel's name what it does and in which precision, for NVIDIA and AMD names.

The rules are a table, read from top to bottom: the first pattern found in the name wins.
"""

from __future__ import annotations

import re
from functools import lru_cache
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
    "optimizer",
    "embedding",
    "collective",
    "other",
)
MATRIX = ("gemm", "conv")
"""Classes of matrix products."""
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "unknown")

CLASS_RULES = (
    ("collective", r"nccl|rccl|(^|\W)all_?reduce|internode::|intranode::|deep_ep|lamport"),
    ("pointwise", r"^triton_poi|(?i:rotary)"),
    ("reduce", r"^triton_(red|per)"),
    ("gemm", r"^triton_(tem|mm)|^bmm_"),
    ("conv", r"ImplicitGemmConvolution"),
    ("copy", r"reshape_and_cache"),
    ("embedding", r"(?i)embedding|pooled_embs|bounds_check_indices|lengths_range|tbe_"),
    ("optimizer", r"multi_tensor_apply|(?i:fused_?(adam|sgd|lamb|adagrad))|AdamFunctor"),
    ("attention", r"(?i)fmha|flash|attn|attention|(^|_)mha_"),
    ("norm", r"(?i)(batch|layer|group|rms|instance)_?norm|(^|[\W_])bn_"),
    ("norm", r"RowwiseMoments|GammaBeta|ComputeInternalGradients|Compute(Backward)?Fused"),
    ("softmax", r"(?i)softmax|cross_?entropy"),
    ("layout", r"(?i)nchw_?(to_?|2)nhwc|nhwc_?(to_?|2)nchw|transpose|tensorTransform"),
    ("layout", r"(?i)add_?padding|im2col|col2im|permute|flip_filter|kern_precompute"),
    ("conv", r"(?i)[sh]cudnn|winograd|[fdw](prop|grad)(\b|_|\d|2d)|implicit_(conv|gemm)|igemm"),
    ("conv", r"(?i)conv(?!ert)|fft\dd|fft_\w*kernel|_g?cgemm|miopen(sp|gcn|conv)|cudnn::detail::d"),
    ("conv", r"(?i)cask_cudnn|wrw_|xdlops_bwd_weight|compute_grad_weight|cudnn::cnn::"),
    ("gemm", r"(?i)gemm|gemv|cutlass|Cijk_|nvjet|splitKreduce|matmul|dot_kernel|cublasLt|xmma"),
    ("gemm", r"(?i)epilogue::|reduce_1Block|persistent_kernel|RNN_block|wvSplitK"),
    ("reduce", r"(?i)reduce|pool|cub::|thrust|rocprim|scan|sort|topk|argm(ax|in)|nll_?loss"),
    ("pointwise", r"elementwise_kernel<.*(Binary|[AB]Unary)Functor|CUDAFunctor(OnSelf)?_add"),
    ("copy", r"(?i)copy|(?<!with)(?<!without)(?<!no)cast|CatArray|gather|scatter|histogram"),
    ("copy", r"(?i)dali::|SliceFlip|batched_unfold|pad_nd|convert|index"),
    ("pointwise", r"(?i)elementwise|functor|fill|dropout|distribution|elemwise|upsample"),
    ("pointwise", r"(?i)op_?(generic_)?tensor|SubTensor|threshold|masked|CudaCodeGen"),
    ("pointwise", r"(?i)^fused_|^kernel\d|activation|add_?bias|bias_?(act|add)|LSTM|GRU"),
    ("pointwise", r"(?i)tri(u|l)|gelu|silu|relu|where|act_and_mul|scalePackedTensor|cuApply"),
    ("pointwise", r"(?i)mse_|loss|range|routing|finalize|compute_|setTensor|swiglu|pointwise"),
    ("pointwise", r"(?i)expand|quant|amp_update|NLLCriterion|^triton_"),
)

PRECISION_RULES = (
    ("fp8", r"(?i)fp8|e4m3|e5m2|float8"),
    ("tf32", r"(?i)tf32|f32f32_f32f32_f32"),
    ("tf32", r"(?i)(?<!fp16_)(?<!bf16_)(?<!f16_)s1688(?!\d)(?!\w*f16)"),
    ("bf16", r"(?i)bf16|bfloat16|DF16b|Cijk_\w+?_Bj?l?j?k?_B(BS)?_"),
    ("fp16", r"(?i)fp16|f16|half|hgemm|hcudnn|[hs]884|h1688|[hs]16816|DF16_|hmma_fp32"),
    ("fp16", r"(?i)Cijk_\w+_H(H|S)?S?_"),
    ("fp32", r"(?i)sgemm|scudnn|float|f32|fp32|cgemm|Cijk_\w+_SB?_|(volta|maxwell)_s|IfE|ILf"),
)

MOST_NAMES = 1 << 20
"""Names that are remembered; a cache that is smaller than a recording has names helps nothing."""
OTHER = "other"
UNKNOWN = "unknown"
_TILE = re.compile(r"(?<!\d)(\d{2,3})x(\d{2,3})(?!\d)")
_CLASS = tuple((name, re.compile(pattern)) for name, pattern in CLASS_RULES)
_PRECISION = tuple((name, re.compile(pattern)) for name, pattern in PRECISION_RULES)


@lru_cache(maxsize=MOST_NAMES)
def kernel_class(name: str) -> str:
    """Return one of `CLASSES`.

    Examples
    --------
    >>> kernel_class("volta_sgemm_128x32_nt"), kernel_class("bn_fw_tr_1C11_kernel_NCHW")
    ('gemm', 'norm')
    """
    return next((kind for kind, pattern in _CLASS if pattern.search(name)), OTHER)


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
    return next((precision for precision, pattern in _PRECISION if pattern.search(name)), UNKNOWN)


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
