"""Kernel classes: every row of the table works for the name it was written for, and real traces are covered."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from gpustudy.base.errors import UserError
from gpustudy.metrics.classes import (
    CLASSES,
    UNCLASSIFIED,
    ClassRow,
    check_share,
    class_rows,
    classify,
    unclassified_share,
)

TRACES = ("hta_alexnet", "hta_ns_resolution", "hta_triton_example", "hta_cpu_only")


@pytest.mark.parametrize("row", class_rows(), ids=lambda row: row.example[:60])
def test_each_row_decides_its_own_example(row: ClassRow) -> None:
    first = next(other for other in class_rows() if re.search(other.pattern, row.example))
    assert first == row
    assert row.source


def test_every_class_has_a_row_and_every_row_a_class() -> None:
    assert {row.kernel_class for row in class_rows()} == set(CLASSES) - {UNCLASSIFIED}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # cuDNN, one name of each family that 3D convolution training meets
        (
            "void cudnn::detail::wgrad_alg1_nd_float_engine<float, 3, 512, 6, 5, 3, 3, 3, false, true>(int)"
            "",
            "conv_wgrad",
        ),
        ("void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*, void const*, float, int, int)", "conv_wgrad"),
        ("volta_scudnn_128x64_stridedB_splitK_small_nn_v1", "conv_wgrad"),
        (
            "cask_cudnn_train::computeWgradSplitKOffsetsKernel(cask_cudnn_train::ComputeSplitKOffsetsParams)"
            "",
            "conv_wgrad",
        ),
        ("void convolveNd_dgrad_float_engine<float, 3, 512, 6, 5, 3, 3, 3, false>(int, int, int)", "conv_dgrad"),
        (
            "sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64x32_warpgroupsize1x1x1_g1_"
            "execute_segment_k_on_kernel__5x_cudnn",
            "conv_dgrad",
        ),
        (
            "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128_16x4_nhwc_align4"
            ">(P)",
            "conv_forward",
        ),
        (
            "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_256x128_16x3_nhwc_align4>("
            "P)",
            "conv_wgrad",
        ),
        ("_ZN17cutlass__5x_cudnn6KernelI66cutlass_tensorop_s1688fprop_optimized_tf32_64x64", "conv_forward"),
        ("cudnn_infer_volta_scudnn_128x64_relu_small_nn_v1", "conv_forward"),
        ("cudnn_infer_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "conv"),
        (
            "void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, false, false, true>(int, int)"
            "",
            "implicit_gemm",
        ),
        ("void precomputed_convolve_sgemm<float, 512, 5, 5, 3, 3, 3, 1, false>(int, int, int)", "implicit_gemm"),
        ("void conv2d_grouped_direct_kernel<float, float, float, float, float, true, false, 0, 0, 0>(P)", "conv"),
        ("ampere_gcgemm_64x64_nt", "conv"),
        # layout and padding: the study's central question, never to be taken for a copy
        ("void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>()", "layout"),
        ("void nhwcToNchwKernel<float, float, float, true, false>(int, int, int, int, float const*, float*)", "layout"),
        ("batched_transpose_32x16_half", "layout"),
        ("void cudnn::ops::nhwcAddPaddingKernel<float, float, float, true, (cudnnKernelDataType_t)2>()", "padding"),
        # matrix products
        ("ampere_sgemm_128x64_tn", "gemm"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8>(P)", "gemm"),
        ("nvjet_sm100_tst_64x32_64x16_2x1_2cta_v_bz_TNN", "gemm"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x128x32_MI16x16x1", "gemm"),
        ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(P)", "gemm"),
        # PyTorch
        ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*)", "attention"),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x128x128", "attention"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::"
            "ComputeBackwardFusedParamsCUDAKernel<float>()",
            "normalisation",
        ),
        (
            "void at::native::elementwise_kernel<128, 2, void at::native::gpu_kernel_impl_nocast<"
            "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>>(int)",
            "copy",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIt"
            "eratorBase&)",
            "copy",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<"
            "char*, 1> >",
            "memset",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace):"
            ":FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4>>",
            "optimiser",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::silu_kernel(at:"
            ":TensorIteratorBase&)",
            "elementwise",
        ),
        (
            "void at::native::(anonymous namespace)::upsample_trilinear3d_backward_out_frame<float, float>(int)"
            "",
            "upsampling",
        ),
        # ROCm
        ("igemm_fwd_gtcx3_nhwc_fp16_bx0_ex0_bt128x128x32_wt32x32x8_ws1x1_wr2x2", "conv_forward"),
        ("naive_conv_ab_nonpacked_wrw_ncdhw_float_double_float", "conv_wgrad"),
        ("naive_conv_ab_nonpacked_bwd_ncdhw_float_double_float", "conv_dgrad"),
        (
            "void ck::tensor_operation::device::kernel_grouped_conv_bwd_weight_xdl_cshuffle_v3<ck::GridwiseGemm>("
            ")",
            "conv_wgrad",
        ),
        (
            "void ck::tensor_operation::device::kernel_grouped_conv_bwd_data_multiple_d_xdl_cshuffle<ck::Gridwise"
            "Gemm>()",
            "conv_dgrad",
        ),
        ("void ck::kernel_gemm_xdl_cshuffle_v1<ck::GridwiseGemm>()", "gemm"),
        ("Im3d2Col", "conv"),
        ("MIOpenBatchNormBwdSpatial", "normalisation"),
        ("__amd_rocclr_copyBuffer", "copy"),
        ("__amd_rocclr_fillBufferAligned", "memset"),
        # Triton, and operators of the CPU
        ("triton_red_fused_native_group_norm_silu_4", "fused"),
        ("aten::slow_conv3d_forward", "conv_forward"),
        ("aten::mkldnn_convolution_backward", "conv_backward"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "attention"),
        ("aten::contiguous", "copy"),
        ("SiluBackward0", "framework"),
        ("_FastConvolution", "framework"),
        ("aten::isneginf", "elementwise"),
        ("aten::brand_new_operator", UNCLASSIFIED),
        ("my_own_kernel(float*)", UNCLASSIFIED),
    ],
)  # fmt: skip
def test_names_of_every_family(name: str, expected: str) -> None:
    assert classify(name) == expected


@pytest.mark.parametrize("trace", TRACES)
def test_less_than_one_percent_of_a_real_trace_is_unclassified(shared_data: Path, trace: str) -> None:
    events = json.loads(gzip.decompress((shared_data / "kineto" / f"{trace}.json.gz").read_bytes()))["traceEvents"]
    times: Counter[str] = Counter()
    for event in events:
        if event.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset", "cpu_op"}:
            times[event["name"]] += round(1000 * event["dur"])
    classes = [classify(name) for name in times]
    assert unclassified_share(classes, times.values()) < 0.01


def test_too_much_unclassified_time_is_refused_with_the_command_that_lists_it() -> None:
    share = unclassified_share(["gemm", UNCLASSIFIED], [94, 6])
    assert share == pytest.approx(0.06)
    with pytest.raises(UserError, match=r"t\.json: 6\.0% .*census --unclassified"):
        check_share(share, "t.json")
    check_share(0.05, "t.json")
    assert unclassified_share([], []) == 0
