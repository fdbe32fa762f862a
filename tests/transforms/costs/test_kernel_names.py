"""Kernel names as the public recordings have them: class and precision."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from foretrace.tracer.readers.load import load
from foretrace.transforms.costs.kernel_names import (
    classes,
    kernel_class,
    kernel_precision,
    precisions,
)

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [
    ("ampere_sgemm_128x64_tn", "gemm", "fp32"),
    ("volta_sgemm_32x128_nt", "gemm", "fp32"),
    ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>", "gemm", "tf32"),
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_nn", "gemm", "bf16"),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "gemm", "bf16"),
    ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "gemm", "fp16"),
    ("turing_fp16_s1688gemm_fp16_128x64_ldg8_f2f_tn", "gemm", "fp16"),
    ("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", "gemm", "bf16"),
    ("cutlass::device_kernel<dpsk::grouped_gemm::cuda::fp8_ptp128c::GemmKernel>", "gemm", "fp8"),
    ("Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x128_MI16x16x1", "gemm", "bf16"),
    ("Cijk_Ailk_Bljk_SB_MT64x64x16_SN", "gemm", "fp32"),
    ("cudnn_infer_volta_scudnn_128x64_relu_xregs_large_nn_v1", "conv", "fp32"),
    ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>", "conv", "fp32"),
    ("void xmma_cudnn::implicit_gemm::fprop<xmma_cudnn::Ampere_hmma_tf32_traits>", "conv", "tf32"),
    ("void xmma_cudnn::implicit_gemm::fprop<xmma_cudnn::Ampere_hmma_fp32_traits>", "conv", "fp16"),
    ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw", "conv", "tf32"),
    ("void convolveNd_dgrad_float_engine<float, 3, 512, 6, 5, 3, 3, 3, false>", "conv", "fp32"),
    ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8", "conv", "bf16"),
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)", "attention", "fp32"),
    (
        "pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<cutlass::bfloat16_t>>",
        "attention",
        "bf16",
    ),
    ("attn_fwd", "attention", "unknown"),
    ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512>", "norm", "fp32"),
    ("void at::native::GammaBetaBackwardCUDAKernel_32x32<float, float>", "norm", "fp32"),
    ("at::native::batch_norm_backward_kernel<c10::BFloat16, float>", "norm", "bf16"),
    ("void softmax_warp_forward<float, float, float, 10, true>", "softmax", "fp32"),
    ("at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>", "pointwise", "fp32"),
    ("elementwise_kernel<BinaryFunctor<c10::Half, AddFunctor>, LoadWithCast>", "pointwise", "fp16"),
    ("triton_poi_fused__to_copy_1", "pointwise", "unknown"),
    ("triton_red_fused_native_layer_norm_2", "reduce", "unknown"),
    ("void at::native::reduce_kernel<512, 1, ReduceOp<float, MeanOps<float>>>", "reduce", "fp32"),
    ("void at::native::elementwise_kernel<128, 2, direct_copy_kernel_cuda<float>>", "copy", "fp32"),
    ("void cudnn::ops::nchwToNhwcKernel<__half, __half, float>", "layout", "fp16"),
    ("batched_transpose_32x16_half", "layout", "fp16"),
    ("multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>>", "optimizer", "fp32"),
    ("split_embedding_backward_codegen_rowwise_adagrad_unweighted<float>", "embedding", "fp32"),
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "collective", "fp32"),
    ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "collective", "unknown"),
    (
        "elementwise_kernel<128, 4, gpu_kernel_impl_nocast<where_kernel_impl>>",
        "pointwise",
        "unknown",
    ),
    ("elementwise_kernel<128, 2, gpu_kernel_impl_nocast<direct_copy_kernel>>", "copy", "unknown"),
    ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>", "pointwise", "bf16"),
    ("void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16>", "copy", "bf16"),
    ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_bN", "gemm", "mxfp8"),
    ("_ZN13cutlass_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionE", "conv", "unknown"),
    ("triton_tem_fused_mm_relu_3", "gemm", "unknown"),
    ("triton_tem_fused_flex_attention_0", "attention", "unknown"),
    ("triton_for_fused_0", "pointwise", "unknown"),
    ("triton_poi_fused_all_gather_into_tensor_1", "pointwise", "unknown"),
    ("c10d::symmetric_memory::multimem_all_reduce_kernel<c10::BFloat16, 16>", "collective", "bf16"),
    ("one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>", "collective", "bf16"),
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>", "collective", "bf16"),
    ("nvshmemi_transfer_rma_nbi", "collective", "unknown"),
    ("void deep_ep::internode_ll::combine<true, 7168, 9>", "collective", "unknown"),
    ("fused_moe_kernel", "gemm", "unknown"),
    ("_matmul_ogs_NNT_bf16xbf16xmxfp4_64x256x64", "gemm", "mxfp4"),
    ("cutlass::GroupedGemmKernel<float_e4m3_t>", "gemm", "fp8"),
    ("nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_TNT", "gemm", "fp8"),
    ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", "gemm", "fp16"),
    ("cutlass3x_sm100_bstensorop_gemm_ue4m3xe2m1_ue4m3xe2m1_f32_bf16", "gemm", "nvfp4"),
    ("cutlass::gemm::device_kernel<mx_float8_t<float_e4m3_t>>", "gemm", "mxfp8"),
    ("void vllm::cvt_fp16_to_fp4<__nv_bfloat16, false>", "quantize", "fp4"),
    (
        "void per_token_group_quant_8bit_kernel<c10::BFloat16, c10::Float8_e4m3fn>",
        "quantize",
        "fp8",
    ),
    ("void transformer_engine::cast_transpose_optimized_kernel<>", "quantize", "unknown"),
    ("something_else_entirely", "other", "unknown"),
]


@pytest.mark.parametrize(("name", "expected", "precision"), NAMES)
def test_a_name_tells_class_and_precision(name: str, expected: str, precision: str) -> None:
    """NVIDIA, AMD, cuDNN, PyTorch, Triton and library kernels alike."""
    assert (kernel_class(name), kernel_precision(name)) == (expected, precision)


def test_columns_are_read_once_per_name() -> None:
    """Missing names are of no known class."""
    column = pd.Series(["volta_sgemm_x", None, "volta_sgemm_x"], dtype="category")

    assert classes(column).tolist() == ["gemm", "other", "gemm"]
    assert precisions(column).tolist() == ["fp32", "unknown", "fp32"]


@pytest.mark.parametrize(
    "trace",
    [
        "hta/resnet50_ddp_v100_ws1_rank0.json.gz",
        "tracelens/infer_vit-nsfw_mi300x.json.gz",
        "nersc-sc21-unet/dali_amp-fp16.sqlite.gz",
    ],
)
def test_almost_no_time_stays_unclassified(public_traces: Path, trace: str) -> None:
    """Kernels of no known class take less than 2 % of the device's time."""
    events = load(public_traces / trace).events
    kernels = events[events["kind"] == "kernel"]
    other = classes(kernels["name"]) == "other"

    assert kernels["duration_ns"][other].sum() < 0.02 * kernels["duration_ns"].sum()


@pytest.mark.slow
def test_names_of_every_public_trace_are_known(public_traces: Path) -> None:
    """In no trace do kernels of no known class take a tenth of the device's time."""
    unknown = {}
    for path in sorted([*public_traces.rglob("*.json.gz"), *public_traces.rglob("*.sqlite.gz")]):
        if not re.search("execution-|straggler|_et", str(path)):
            events = load(path).events
            kernels = events[events["kind"] == "kernel"]
            time = kernels["duration_ns"].to_numpy()
            unknown[path.name] = time[classes(kernels["name"]) == "other"].sum() / time.sum()

    assert len(unknown) > 40
    assert {name: share for name, share in unknown.items() if share >= 0.1} == {}
