"""Peak rates: data that agree with each other, and no rate for a device that is not known to have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustudy.base.errors import UserError
from gpustudy.study.peaks import Peaks, all_peaks, peaks_of, read_peaks

GIB = 2**30


@pytest.mark.parametrize("peaks", all_peaks(), ids=lambda peaks: peaks.product)
def test_rates_follow_from_units_and_clock(peaks: Peaks) -> None:
    """Lanes per SM are 64 on Volta and A100, 128 on Hopper (white papers): an independent way to the FP32 rate."""
    lanes = 128 if peaks.architecture == "sm_90" else 64
    assert peaks.fp32 == pytest.approx(peaks.sms * lanes * 2 * peaks.boost_hz, rel=0.01)
    assert peaks.l1_bytes == pytest.approx(peaks.sms * 128 * peaks.boost_hz, rel=0.001)
    if peaks.tf32 is not None:
        assert peaks.fp16 == pytest.approx(2 * peaks.tf32, rel=0.001)
    assert (peaks.tf32 is None) == (peaks.architecture == "sm_70")


def test_l2_of_a100_is_2_3_times_that_of_v100() -> None:
    """The ratio that the A100 white paper states."""
    ampere, volta = peaks_of("sm_80", "NVIDIA A100-SXM4-40GB"), peaks_of("sm_70", "Tesla V100-SXM2-32GB")
    assert ampere is not None
    assert volta is not None
    assert ampere.l2_bytes is not None
    assert ampere.l2_bytes / (volta.l2_bytes or 0) == pytest.approx(2.3, abs=0.05)


@pytest.mark.parametrize(
    ("architecture", "name", "memory", "product"),
    [
        ("sm_70", "Tesla V100-SXM2-32GB", None, "V100-SXM2-32GB"),
        ("sm_70", "V100", 32 * GIB, "V100-SXM2-32GB"),
        ("sm_80", "NVIDIA A100-SXM4-40GB", 42_298_834_944, "A100-SXM4-40GB"),
        ("sm_80", "NVIDIA A100-PCIE-40GB", None, "A100-PCIE-40GB"),
        ("sm_80", "GRID A100X-40C", None, "A100-SXM4-40GB"),
        ("sm_80", "A100", 40 * GIB, "A100-SXM4-40GB"),  # SXM4 and PCIe have equal rates
        ("sm_90", "NVIDIA H100 80GB HBM3", 85_045_870_592, "H100-SXM5-80GB"),
        ("sm_90", "H100", 96 * GIB, "H100-SXM5-96GB"),
        ("sm_90", "NVIDIA H100", 101_000_000_000, "H100-SXM5-96GB"),
        ("sm_90", "NVIDIA H200", 150_122_528_768, "H200-SXM5-141GB"),
    ],
)
def test_devices_are_found_by_their_names(architecture: str, name: str, memory: int | None, product: str) -> None:
    peaks = peaks_of(architecture, name, memory)
    assert peaks is not None
    assert peaks.product == product


@pytest.mark.parametrize(
    ("architecture", "name", "memory"),
    [
        ("cpu", "", None),
        ("sm_80", "A100", None),  # 40 and 80 GB differ in bandwidth
        ("sm_80", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("sm_80", "GRID A100X-10C", None),
        ("sm_70", "Tesla V100-PCIE-32GB", None),
        ("sm_90", "NVIDIA H100 PCIe", None),
        ("sm_90", "NVIDIA A100-SXM4-40GB", None),
        ("sm_100", "NVIDIA B200", None),
    ],
)
def test_no_rate_for_what_is_not_known(architecture: str, name: str, memory: int | None) -> None:
    assert peaks_of(architecture, name, memory) is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"devices: [", "while parsing a flow node"),
        (b"\xff", "invalid start byte"),
        (b"", "it has no list of devices"),
        (b"rates: []", "it has no list of devices"),
        (b"devices: [{product: A100}]", "names: field required"),
        (b"devices: [text]", "an entry: input should be a valid dictionary"),
    ],
)
def test_a_broken_file_is_told_in_one_sentence(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "peaks.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"peaks\.yaml cannot be read as .*{why}.*: correct it, or restore it"):
        read_peaks(path)
