"""Texts that show each row of the table of failures, by the row's name.

Each is as a public log, NVIDIA's documentation or ncu 2024.1.1 itself has it (process ids and paths shortened),
unless its comment says that it was composed from the documented form.
"""

from __future__ import annotations

TEXTS: dict[str, tuple[str, ...]] = {
    "permission": (
        "==PROF== Connected to process 87374 (/usr/bin/python3.10)\n"
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on "
        "the target device 0. For instructions on enabling permissions and to get more information see "
        "https://developer.nvidia.com/ERR_NVGPUCTRPERM\n",
    ),
    "driver-busy": (
        "==PROF== Connected to process 7508 (/usr/bin/python3.11)\n\n"
        "==ERROR== An error was reported by the driver\n\n"
        "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like DCGM) "
        "is concurrently collecting profiling data. See https://docs.nvidia.com/nsight-compute/ProfilingGuide/"
        "index.html#faq for more details.\n"
        '==ERROR== Failed to profile "vectorized_elementwise_kernel" in process 7508\n'
        "==PROF== Trying to shutdown target application\n"
        "==ERROR== The application returned an error code (9).\n"
        "==ERROR== An error occurred while trying to profile.\n"
        "==WARNING== No kernels were profiled.\n",
    ),
    "driver": (
        "==ERROR== Cuda driver is not compatible with Nsight Compute.\n"
        "==WARNING== Failed to load Nsight Compute CUDA modules.\n",
        # ncu 2024.1.1 on a machine without a driver; the first line goes to standard error, the others to the log
        "==ERROR== Nsight Compute failed to connect to the CUDA driver (stub libcuda.so[.1] on path?).\n"
        "==ERROR== The application returned an error code (1).\n"
        "==WARNING== No kernels were profiled.\n",
        "==ERROR== Driver could not be loaded.\n",  # ncu 2024.1.1 --query-metrics, likewise
    ),
    "profiler-library": (
        "==PROF== Connected to process 162 (/usr/bin/python3.13)\n\n"
        "==ERROR== An error was reported by the counter measurement library:\n"
        "==ERROR== Failed to initialize the profiler: LibraryNotLoaded. Check that a compatible driver library is "
        "loaded.\n==PROF== Trying to shutdown target application\n"
        "==ERROR== The application returned an error code (9).\n",
        "==ERROR== Failed to prepare kernel for profiling\n"
        "==ERROR== An error was reported by the counter measurement library:\n"
        "==ERROR== Unknown error on device 0.\n"
        '==ERROR== Failed to profile "distribution_elementwise_grid..." in process 3929334\n',
        "==ERROR== Profiling is not supported on device 0.\n",  # composed: the documented words
    ),
    "clock-control": (
        '==PROF== Profiling "v1,cw51cXTLSUwv1sCUt9Ww1FEw0N..." - 0: 0%\n'
        "==ERROR== An error was reported by the driver\n\n"
        "==ERROR== Cannot lock GPU clock frequencies on MIG! Try locking the clocks externally (e.g. using "
        "'nvidia-smi --lock-gpu-clocks=tdp,tdp') or profile without fixed frequencies (see '--clock-control').\n"
        '==ERROR== Failed to profile "v1,cw51cXTLSUwv1sCUt9Ww1FEw0N..." in process 2119298\n'
        "==PROF== Trying to shutdown target application\n"
        "==ERROR== The application returned an error code (9).\n"
        "==ERROR== An error occurred while trying to profile.\n"
        "==WARNING== No kernels were profiled.\n",
    ),
    "lock-file": (
        "==ERROR== Failed to open/create lock file /tmp/nsight-compute-lock. Please check that this process has write "
        "permissions on this file. See https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#faq for more "
        "details.\n"
        '==ERROR== Failed to profile "vectorized_elementwise_kernel" in process 2323392\n'
        "==PROF== Trying to shutdown target application\n"
        "==ERROR== The application returned an error code (9).\n"
        "==ERROR== An error occurred while trying to profile.\n"
        "==WARNING== No kernels were profiled.\n",
    ),
    "metric": (
        "==PROF== Connected to process 20101 (/usr/bin/python3.10)\n"
        "==ERROR== Failed to find metric regex:^flop_count_sp\\.(sum|min|max|avg|pct|ratio|max_rate)$\n",
    ),
    "section": (
        "==ERROR== Option '--section .*' did not match any section.\n",
        "==ERROR== Option '--section Nope' did not match any section.\n"
        "==ERROR== Use --list-sections to see the list of available sections.\n",
    ),
    "ncu-options": ("==ERROR== unrecognised option '--bogus'. Use --help for further details.\n",),
    "replay-memory": (
        '==WARNING== Backing up device memory in system memory. Kernel replay might be slow. Consider using "--replay-'
        'mode application" to avoid memory save-and-restore.\n'
        "==ERROR== Unhandled C++ exception: bad allocation\n"
        '==ERROR== Failed to profile "sparse_moe_d1_kernel"\n',
        "==WARNING== Backing up device memory in system memory. Kernel replay might be slow.\n"
        "==ERROR== UnknownError\n"
        '==ERROR== Failed to profile "scale_f32" in process 1322774\n'
        "==ERROR== No kernels were profiled.\n",
        "==ERROR== Failed to save memory for replay.\n",
    ),
    "launch-failed": (
        "==ERROR== LaunchFailed\n"
        "==PROF== Trying to shutdown target application\n"
        "==ERROR== The application returned an error code (9).\n"
        "==ERROR== An error occurred while trying to profile.\n",
    ),
    "torch-library": (
        "RuntimeError: Error in dlopen: libcaffe2_nvrtc.so: cannot open shared object file: No such file\n",
    ),
    "interrupted": (
        '==PROF== Profiling "volta_h884gemm_128x256_ldg8_nn" - 20: 0%..==PROF== Received signal\n'
        "==PROF== Trying to shutdown target application\n"
        " - 3 passes\n"
        '==ERROR== Failed to profile "volta_h884gemm_128x256_ldg8_nn" in process 25093\n'
        "==PROF== Trying to shutdown target application\n"
        "==ERROR== The application returned an error code (15).\n",
    ),
    "application": (
        "==PROF== Connected to process 3300 (/usr/bin/python3.10)\n"
        '==PROF== Profiling "computeOffsetsKernel" - 0: 0%....50%....100% - 1 pass\n'
        "==ERROR== The application returned an error code (1).\n",
    ),
    "no-kernels": (
        "==PROF== Connected to process 3300 (/usr/bin/python3.10)\n"
        "==PROF== Disconnected from process 3300\n"
        "==WARNING== No kernels were profiled.\n",
        "==WARNING== No kernels were profiled.\n"
        "==WARNING== Profiling kernels launched by child processes requires the --target-processes all option.\n",
        "==WARNING== No kernels were profiled.\n"
        "==WARNING== Note that specified NVTX include expressions match only push/pop ranges.\n",
    ),
    "slow-launch": (
        '==PROF== Profiling "wmma_db" - 1: 0%\n'
        "==WARNING== Launching the workload is taking more time than expected. If this continues to hang, terminate "
        "the profile and re-try by profiling the range of all related launches using '--replay-mode range'. See "
        "https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#replay for more details.\n",
    ),
    "memory-spill": (
        '==WARNING== Backing up device memory in system memory. Kernel replay might be slow. Consider using "--replay-'
        'mode application" to avoid memory save-and-restore.\n',
    ),
    "clocks-free": (
        "==WARNING== Note: Running with unmodified GPU clocks. If not controlled otherwise, profiling results may be "
        "inconsistent.\n",
    ),
    "clocks-left-locked": ("==WARNING== Found outstanding GPU clock reset, trying to revert...Success.\n",),
    "graph": ('==PROF== Profiling "graph" - 94: 0%....50%....100% - 1 pass\n',),
    "other-process": (
        # composed from the documented form: 13 such lines per run were seen in public logs
        "==PROF== Connected to process 4242 (/usr/bin/nvidia-smi)\n",
    ),
    "child-without-cuda": ("==PROF== Target process 3323 terminated before first instrumented API call.\n",),
    "shared-device": (
        "==WARNING== Unable to access the following 8 metrics: pcie__read_bytes.avg.per_second, "
        "pcie__read_bytes.max.per_second. If profiling on a MIG instance, it is not possible to collect metrics from "
        "GPU units that are shared with other MIG instances.\n",
        "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-9c73eb7b-8d6d-6c0e-dc13-97873e2ede40)\n"
        "  MIG 1g.10gb     Device  0: (UUID: MIG-a686709d-6dc2-542a-8851-0d2508448c10)\n",
    ),
    "home": (
        '==WARNING== Could not deploy stock section files to "/root/Documents/NVIDIA Nsight Compute/2021.3.1/Sections".'
        " Set the HOME environment variable to a writable directory.\n",
        "==WARNING== Could not determine user home directory for section deployment.\n"
        '==WARNING== Using "/opt/ncu/target/../../sections" instead.\n',
    ),
    "missing-metrics": (
        "==WARNING== Unable to access the following 6 metrics: ctc__rx_bytes_data_user.sum, "
        "ctc__rx_bytes_data_user.sum.pct_of_peak_sustained_elapsed, ctc__rx_bytes_data_user.sum.per_second.\n",
        "==ERROR== Failed to access the following 8 metrics: nvlrx__bytes.sum, nvltx__bytes.sum.\n",
    ),
}
"""Row name to texts, each of which must be classified as that row."""

FINDINGS = (
    "stall",
    "no-backward",
    "many-launches",
    "names-changed",
    "cold-caches",
    "application-replay",
    "out-of-range",
)
"""Rows without a text: findings of the stage (each has a test of its own) or, the last, of the report's reader."""

GOOD_LOG = """\
==PROF== Connected to process 3348935 (/usr/bin/python3.10)
==WARNING== Unable to access the following 6 metrics: ctc__rx_bytes_data_user.sum, ctc__tx_bytes_data_user.sum.

==PROF== Profiling "distribution_elementwise_grid..." - 0: 0%....50%....100% - 37 passes
==PROF== Profiling "unrolled_elementwise_kernel" - 1 (2/4): 0%....50%....100% - 38 passes
==PROF== Profiling "Kernel" - 2: 0%....50%....100% - 1 pass
==PROF== Profiling "sm80_xmma_gemm_f32f32_f32f32_..." - 3: 0%....50%.... - 19 passes
==PROF== Disconnected from process 3348935
==PROF== Report: /tmp/attn_fwd.ncu-rep
"""
"""Lines of public logs put together (2024.1 and 2025.1 forms); the last launch did not come to its end."""
