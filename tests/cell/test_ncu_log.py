"""Reading ncu's log: launches, processes, messages, cut names, lines broken by other messages."""

from __future__ import annotations

from pathlib import Path

from gpustudy.cell.ncu_log import ProfiledLaunch, parse_log
from tests.cell.ncu_texts import GOOD_LOG, TEXTS


def test_launches_of_public_logs() -> None:
    log = parse_log(GOOD_LOG)
    assert log.launches == (
        ProfiledLaunch("distribution_elementwise_grid...", 37),
        ProfiledLaunch("unrolled_elementwise_kernel", 38),
        ProfiledLaunch("Kernel", 1),
        ProfiledLaunch("sm80_xmma_gemm_f32f32_f32f32_...", 0),
    )
    assert [launch.is_complete for launch in log.launches] == [True, True, True, False]
    assert len(log.complete) == 3
    assert log.processes == ((3348935, "/usr/bin/python3.10"),)
    assert log.errors == ()
    assert log.warnings[0].startswith("Unable to access the following 6 metrics")


def test_line_broken_by_a_signal_is_an_unfinished_launch() -> None:
    log = parse_log(TEXTS["interrupted"][0])
    assert log.launches == (ProfiledLaunch("volta_h884gemm_128x256_ldg8_nn", 0),)
    assert "The application returned an error code (15)." in log.errors


def test_line_without_a_number_of_the_oldest_versions() -> None:
    log = parse_log('==PROF== Profiling "tensor_core_matmul_v2": 0%....50%....100% - 1 pass\n')
    assert log.complete == (ProfiledLaunch("tensor_core_matmul_v2", 1),)


def test_unfinished_log_is_read_as_far_as_it_goes() -> None:
    assert parse_log('==PROF== Profiling "sgemm_naive_dmalt": 0%..').launches == (
        ProfiledLaunch("sgemm_naive_dmalt", 0),
    )
    assert parse_log("").launches == ()


def test_real_console_text(shared_data: Path) -> None:
    text = (shared_data / "ncu" / "cuda-kmer-counting__ecoli_gpu_kmer_k8.txt").read_text(errors="replace")
    log = parse_log(text)
    assert log.launches == (ProfiledLaunch("count_kmers_kernel", 31),) * 5
    assert log.processes[0][0] == 206651
