"""Each optimisation does what its name says, changes nothing else, and says so when a device or torch lacks it."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gpustudy.cell import optimisations
from gpustudy.cell.allocator import PROBED_BYTES, can_keep_memory, heap_in_huge_pages_bytes, keep_freed_memory
from gpustudy.cell.optimisation_names import INCOMPATIBLE, OPTIMISATIONS, incompatible_pair, lacking
from gpustudy.cell.optimisations import REGISTRY, Setup, apply_optimisations, verify_optimisations
from gpustudy.cell.outcomes import Outcome
from gpustudy.cell.probe import Probe, take_probe
from gpustudy.medddpm import blocks
from gpustudy.medddpm.trainer import Trainer, TrainOptions, TrainSettings
from gpustudy.medddpm.unet import UNet3D
from gpustudy.medddpm.volumes import PreparedVolumes
from tests.cell.conftest import MODEL, TRAIN

ROOT = Path(__file__).parents[2]

TRANSPARENT_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

EXPLICIT_TOLERANCE = 1e-4
"""Relative tolerance between two forms of the same float32 mathematics."""


BF16_TOLERANCE = 0.05
"""The same over all gradients of a small network in bfloat16, which has 8 bits of mantissa."""


def make_setup(*names: str) -> Setup:
    """A setup on the CPU with every zero weight made non-zero, so that all gradients flow."""
    torch.manual_seed(0)
    model = UNet3D.from_document(MODEL)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.normal_(std=0.05)
    setup = Setup("cpu", model)
    apply_optimisations(setup, names, pytorch_defaults=False)
    return setup


def options_of(setup: Setup) -> TrainOptions:
    return TrainOptions(**setup.options)


def loss_and_gradients(setup: Setup) -> tuple[Tensor, dict[str, Tensor]]:
    """One forward and backward of fixed noise, outside the trainer."""
    x = torch.randn((1, 3, 8, 8, 8), generator=torch.Generator().manual_seed(1))
    dtype = setup.options.get("autocast_dtype")
    with torch.autocast("cpu", dtype, dtype is not None):
        loss = setup.model(x, torch.tensor([100])).float().square().mean()
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in setup.model.named_parameters() if p.grad is not None}


def assert_equal_mathematics(names: tuple[str, ...], tolerance: float = EXPLICIT_TOLERANCE) -> None:
    expected_loss, expected = loss_and_gradients(make_setup())
    loss, gradients = loss_and_gradients(make_setup(*names))
    torch.testing.assert_close(loss, expected_loss, rtol=tolerance, atol=0)
    assert gradients.keys() == expected.keys()
    scale = max(float(value.abs().max()) for value in expected.values())
    for name, value in expected.items():
        torch.testing.assert_close(gradients[name], value, rtol=tolerance, atol=tolerance * scale, msg=name)


def saved_bytes(*names: str) -> int:
    setup = make_setup(*names)
    return take_probe(setup.model, options_of(setup)).saved_bytes


def test_the_table_of_names_and_the_registry_hold_the_same() -> None:
    assert set(OPTIMISATIONS) == set(REGISTRY)
    assert all(first in OPTIMISATIONS and second in OPTIMISATIONS for first, second, _ in INCOMPATIBLE)
    assert incompatible_pair(["fp16", "sdpa", "bf16"]) is not None
    assert incompatible_pair(["bf16", "sdpa", "keep_attention"]) is None


@pytest.mark.parametrize(
    ("name", "device", "architecture", "has"),
    [
        ("tf32", "cpu", "cpu", False),
        ("tf32", "cuda", "sm_70", False),
        ("tf32", "cuda", "sm_80", True),
        ("tf32", "cuda", "sm_90a", True),
        ("tf32", "cuda", "sm_100", True),
        ("bf16", "cuda", "sm_70", False),
        ("bf16", "cuda", "sm_80", True),
        ("bf16", "cpu", "cpu", True),
        ("fp16", "cpu", "cpu", False),
        ("fp16", "cuda", "sm_70", True),
        ("cudnn_benchmark", "cpu", "cpu", False),
        ("channels_last", "cuda", "sm_70", True),
        ("fast_convolution", "cuda", "sm_90", False),
        ("reuse_memory", "cuda", "sm_90", False),
        ("compile", "cuda", "sm_60", False),
        ("compile", "cuda", "sm_70", True),
    ],
)
def test_what_each_device_has(name: str, device: str, architecture: str, has: bool) -> None:
    assert (lacking(name, device, architecture) is None) == has


def test_channels_last_reaches_the_convolutions_and_its_absence_is_seen() -> None:
    setup = make_setup("channels_last")
    trainer_model = setup.model.to(memory_format=torch.channels_last_3d)
    probe = take_probe(trainer_model, options_of(setup))
    evidence = REGISTRY["channels_last"].verify(setup, probe)
    assert evidence.verified
    assert "input_blocks.0.0" in evidence.seen["received"]  # the stem gets the input as it comes
    plain = make_setup()
    probe = take_probe(plain.model, options_of(plain))
    assert not REGISTRY["channels_last"].verify(plain, probe).verified


def test_bf16_convolutions_take_bfloat16_and_weights_stay_float32() -> None:
    setup = make_setup("bf16")
    probe = take_probe(setup.model, options_of(setup))
    assert {row["inputs"][0]["dtype"] for row in probe.convolutions()} == {"bfloat16"}
    assert {parameter.dtype for parameter in setup.model.parameters()} == {torch.float32}
    assert not REGISTRY["bf16"].verify(setup, take_probe(setup.model, TrainOptions())).verified


def test_native_norm_normalises_in_bfloat16() -> None:
    for names, dtype in ((("bf16",), "float32"), (("bf16", "native_norm"), "bfloat16")):
        setup = make_setup(*names)
        probe = take_probe(setup.model, options_of(setup))
        dtypes = {row["inputs"][0]["dtype"] for row in probe.rows if row["op"] == "aten.native_group_norm"}
        assert dtype in dtypes
    assert verify_optimisations(setup, names, probe)["native_norm"].verified


def test_sdpa_is_called_and_equals_explicit_attention() -> None:
    setup = make_setup("sdpa")
    probe = take_probe(setup.model, options_of(setup))
    assert probe.fused_attention_calls == 4  # one on the way down, one in the middle, two on the way up
    kernels = REGISTRY["sdpa"].verify(setup, probe).seen["fused_kernels"]
    for_cpu = "_scaled_dot_product_flash_attention_for_cpu"  # from PyTorch 2.2 on
    assert kernels == ({f"aten.{for_cpu}": 4} if hasattr(torch.ops.aten, for_cpu) else {})
    assert take_probe(make_setup().model, TrainOptions()).fused_attention_calls == 0
    assert_equal_mathematics(("sdpa",))


def test_kept_attention_gives_equal_gradients_from_more_memory() -> None:
    assert_equal_mathematics(("keep_attention",), tolerance=1e-6)
    assert saved_bytes("keep_attention") > saved_bytes()


def test_checkpointing_keeps_less_and_gives_equal_gradients() -> None:
    assert_equal_mathematics(("checkpointing",), tolerance=1e-6)
    assert saved_bytes("checkpointing") < 0.5 * saved_bytes()


def test_lean_norm_keeps_less_and_gives_equal_gradients() -> None:
    assert_equal_mathematics(("lean_norm",))
    assert saved_bytes("lean_norm") < 0.8 * saved_bytes()


def test_fast_convolution_gives_equal_gradients_by_other_operators() -> None:
    assert_equal_mathematics(("fast_convolution", "lean_norm"), tolerance=1e-3)
    setup, plain = make_setup("fast_convolution"), make_setup()
    operators = [
        [
            (row["op"], row["inputs"][0]["shape"])
            for row in take_probe(made.model, options_of(made)).rows
            if row["inputs"]
        ]
        for made in (setup, plain)
    ]
    assert operators[0] != operators[1]


_KEPT_MEMORY = """
from gpustudy.cell.allocator import page_faults_of_reuse
from gpustudy.cell.outcomes import Outcome
from gpustudy.cell.optimisations import verify_optimisations
from gpustudy.cell.probe import Probe
from tests.cell.test_optimisations import make_setup
try:
    verify_optimisations(make_setup(), ("reuse_memory",), Probe())
except Outcome as outcome:
    print(outcome.reason, page_faults_of_reuse())
evidence = verify_optimisations(make_setup("reuse_memory"), ("reuse_memory",), Probe())["reuse_memory"]
print(evidence.verified)
print(evidence.seen["heap_in_huge_pages_bytes"])
"""
"""For a process of its own: what the C library was told once holds to the end."""


def test_memory_is_kept_and_its_absence_is_seen() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "workflow"), str(ROOT)])}
    run = subprocess.run(
        [sys.executable, "-c", _KEPT_MEMORY], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    without, kept, huge = run.stdout.split("\n")[:3] if run.returncode == 0 else pytest.fail(run.stderr)
    reason, faults = without.split()
    assert reason == "no_effect"
    assert int(faults) >= PROBED_BYTES >> 21  # one for every 4 KiB, or for every huge page
    assert kept == "True"
    if TRANSPARENT_HUGE_PAGES.exists() and "[never]" not in TRANSPARENT_HUGE_PAGES.read_text():
        assert int(huge) >= PROBED_BYTES - (2 << 21)  # all but the ends of the block that was written


def test_huge_pages_of_the_heap_alone_are_counted(tmp_path: Path) -> None:
    lines = []
    for name, huge in (("[heap]", 2048), ("", 4096), ("[heap]", 6144), ("/lib/x.so", 0)):
        lines += [
            f"5555e7916000-5555ef370000 rw-p 00000000 00:00 0    {name}",
            "Rss: 9 kB",
            f"AnonHugePages:  {huge} kB",
        ]
    (tmp_path / "smaps").write_text("\n".join(lines) + "\n")
    assert heap_in_huge_pages_bytes(tmp_path / "smaps") == 8192 << 10
    assert heap_in_huge_pages_bytes(tmp_path / "none") == 0


def test_a_c_library_without_mallopt_cannot_keep_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert (can_keep_memory(), keep_freed_memory()) == (False, False)
    with pytest.raises(Outcome, match=r"reuse_memory cannot be applied.*mallopt") as caught:
        make_setup("reuse_memory")
    assert (caught.value.state, caught.value.reason) == ("unsupported", "stack")


@pytest.mark.parametrize(
    ("name", "switch", "effect"),
    [
        ("keep_attention", "attention_recompute", 1),
        ("lean_norm", "lean_norm", -1),
        ("checkpointing", "block_recompute", -1),
    ],
)
def test_what_changes_no_kept_bytes_or_changes_them_the_wrong_way_is_no_effect(
    name: str, switch: str, effect: int
) -> None:
    for change, verified in ((effect, True), (0, False), (-effect, False)):
        probe = Probe(saved_bytes=100 + change, without={switch: Probe(saved_bytes=100)})
        assert REGISTRY[name].verify(make_setup(name), probe).verified == verified
    assert not REGISTRY[name].verify(make_setup(name), Probe(saved_bytes=100)).verified


def test_fast_convolutions_that_are_plain_ones_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = make_setup("fast_convolution")
    verify = REGISTRY["fast_convolution"].verify
    assert verify(setup, take_probe(setup.model, options_of(setup))).verified
    plain = partial(torch.nn.functional.conv3d, padding=1)
    monkeypatch.setattr(blocks, "fast_convolution", plain)
    assert not verify(setup, take_probe(setup.model, options_of(setup))).verified


def test_optimisations_compose() -> None:
    names = ("channels_last", "bf16", "sdpa", "keep_attention", "native_norm", "lean_norm", "fast_convolution")
    setup = make_setup(*names)
    setup.model.to(memory_format=torch.channels_last_3d)
    evidence = verify_optimisations(setup, names, take_probe(setup.model, options_of(setup)))
    assert all(found.verified for found in evidence.values())
    assert_equal_mathematics(("sdpa", "keep_attention"))


OF_THE_TRAINER = ("fused_adam", "cast_once", "concurrent_micro_batches")

ON_CPU = [
    name for name in OPTIMISATIONS if lacking(name, "cpu", "cpu") is None and name not in ("compile", *OF_THE_TRAINER)
]
"""Those that change the network itself here; a compiled network is looked at in tests/medddpm/test_switches.py, what
the trainer does in tests/medddpm/test_micro_batches.py."""

PAIRS = [pair for pair in combinations(ON_CPU, 2) if incompatible_pair(pair) is None]


@pytest.mark.parametrize("names", PAIRS, ids="+".join)
def test_each_composes_with_each_that_it_does_not_exclude(names: tuple[str, str]) -> None:
    setup, plain = make_setup(*names), make_setup()
    if "channels_last" in names:
        setup.model.to(memory_format=torch.channels_last_3d)
    evidence = verify_optimisations(setup, names, take_probe(setup.model, options_of(setup)))
    assert {name: found.verified for name, found in evidence.items()} == dict.fromkeys(names, True)
    (_, expected), (_, gradients) = loss_and_gradients(plain), loss_and_gradients(setup)
    assert gradients.keys() == expected.keys()
    ours, theirs = (torch.cat([values[name].flatten() for name in expected]) for values in (gradients, expected))
    apart = float((ours - theirs).norm() / theirs.norm())
    assert apart < (BF16_TOLERANCE if "bf16" in names else EXPLICIT_TOLERANCE)


def after_a_step(prepared: Path, *names: str, accumulation: int = 2) -> Setup:
    setup = make_setup(*names)
    settings = TrainSettings(**TRAIN | {"accumulation": accumulation})
    with Trainer(setup.model, settings, PreparedVolumes(prepared), 1, options_of(setup)) as trainer:
        trainer.step()
        setup.threads, setup.called = trainer.threads, trainer.written_network
    return setup


def test_cast_weights_are_seen_and_their_absence_as_well(prepared: Path) -> None:
    cast = REGISTRY["cast_once"].verify(after_a_step(prepared, "bf16", "cast_once"), Probe())
    assert cast.verified
    assert set(cast.seen) == {"bfloat16", "float32"}  # normalisations keep theirs
    for names in (("bf16",), ("cast_once",)):  # without a lower precision there is nothing to cast to
        assert not REGISTRY["cast_once"].verify(after_a_step(prepared, *names), Probe()).verified


def test_micro_batches_at_the_same_time_are_seen_and_their_absence_as_well(prepared: Path) -> None:
    verify, name = REGISTRY["concurrent_micro_batches"].verify, "concurrent_micro_batches"
    found = verify(after_a_step(prepared, name), Probe())
    assert found.verified
    assert found.seen == {"most_at_once": 2, "threads_of_each": max(torch.get_num_threads() // 2, 1)}
    assert not verify(after_a_step(prepared), Probe()).verified
    assert not verify(after_a_step(prepared, name, accumulation=1), Probe()).verified  # one has no other beside it


def test_fused_adam_takes_the_same_step(prepared: Path) -> None:
    weights = []
    for names in ((), ("fused_adam",)):
        setup = make_setup()
        if REGISTRY["fused_adam"].missing(setup):
            pytest.skip("this torch has no fused Adam on the CPU")
        apply_optimisations(setup, names, pytorch_defaults=False)
        with Trainer(setup.model, TrainSettings(**TRAIN), PreparedVolumes(prepared), 1, options_of(setup)) as trainer:
            setup.optimizer = trainer.optimizer
            trainer.step()
        assert REGISTRY["fused_adam"].verify(setup, Probe()).verified == bool(names)
        weights.append(dict(setup.model.named_parameters()))
    for name, expected in weights[0].items():
        torch.testing.assert_close(weights[1][name], expected, rtol=1e-5, atol=1e-7)


def test_one_without_effect_is_no_result_of_that_name() -> None:
    setup = make_setup("sdpa")
    with pytest.raises(Outcome, match="without effect") as caught:
        verify_optimisations(setup, ("sdpa",), Probe())
    assert (caught.value.state, caught.value.reason) == ("unsupported", "no_effect")


def test_what_this_torch_lacks_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("`fused=True` requires all the params to be CUDA")  # torch 2.0 on the CPU

    monkeypatch.setattr(torch.optim, "Adam", refuse)
    monkeypatch.delattr(optimisations.F, "scaled_dot_product_attention")
    for name in ("fused_adam", "sdpa"):
        with pytest.raises(Outcome, match=name) as caught:
            make_setup(name)
        assert (caught.value.state, caught.value.reason) == ("unsupported", "stack")


def test_compile_without_a_compiler_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(Outcome, match="compile"):
        make_setup("compile")


def test_pytorch_defaults_touch_no_switch() -> None:
    before = torch.backends.cudnn.benchmark
    interface = optimisations.tf32_interface(torch)
    interface.set_tf32(True)
    values = interface.read()
    apply_optimisations(Setup("cpu", make_setup().model), (), pytorch_defaults=True)
    assert torch.backends.cudnn.benchmark == before
    make_setup()  # not the defaults: off
    assert interface.read() != values
