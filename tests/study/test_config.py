"""The config: the documented default, overlays, and every kind of mistake in one sentence."""

from __future__ import annotations

import re

import pytest

from gpustudy.base.errors import UserError
from gpustudy.cli import main
from gpustudy.study.load import load_effective, load_study, read_yaml
from gpustudy.study.models import Section, Study
from gpustudy.study.render import render


def test_the_default_config_is_what_the_models_generate(repository, in_checkout):
    assert render(load_study()) == (repository / "config.yaml").read_text(), "run: gpustudy config --write"


def test_every_field_of_every_section_is_described():
    sections = Section.__subclasses__()
    assert Study in sections
    bare = [
        f"{section.__name__}.{name}"
        for section in sections
        for name, field in section.model_fields.items()
        if not field.description
    ]
    assert bare == []


def test_the_study_of_the_paper_is_whole(in_checkout):
    study = load_study()
    assert {name: gpu.architecture for name, gpu in study.gpus.items()} == {
        "v100": "sm_70",
        "a100": "sm_80",
        "h100": "sm_90",
        "cpu": "cpu",
    }
    assert "tf32" in study.gpus["v100"].null_control
    assert {name: site.gpus for name, site in study.sites.items()} == {
        "local": ["cpu"],
        "expanse": ["v100"],
        "jetstream2": ["a100"],
        "stampede3": ["h100"],
        "stampede3-node": ["h100"],
    }
    assert study.configs["opt12"].optimisations == ["tf32", "channels_last"]
    assert study.repeats == 3
    paper = study.workloads["paper"]
    assert (paper.model.volume, paper.model.base_channels) == ([128, 128, 128], 64)
    assert (paper.train.iterations, paper.train.accumulation, paper.train.batch_size) == (25, 2, 1)


def overlay(folder, text):
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("repeat: 3", "mine.yaml: unknown key 'repeat': did you mean 'repeats'?"),
        ("gpus: {a100: {memory_gb: 40}}", "mine.yaml: unknown key 'gpus.a100.memory_gb': did you mean 'memory_gib'?"),
        (
            "workloads: {demo: {train: {iteration: 3}}}",
            "mine.yaml: unknown key 'workloads.demo.train.iteration': did you mean 'iterations'?",
        ),
        ("data: {mni152-demo: {sed: 1}}", "mine.yaml: unknown key 'data.mni152-demo.sed': did you mean 'seed'?"),
        ("repeats: three", "mine.yaml: 'repeats' is 'three', but input should be a valid integer: correct the value."),
        ("repeats: 0", "mine.yaml: 'repeats' is 0, but input should be greater than or equal to 1: correct the value."),
        ("gpus: {a100: {device: gpu}}", "mine.yaml: 'gpus.a100.device' is 'gpu', but input should be 'cuda' or 'cpu'"),
        ("gpus: {l40: {architecture: sm_89, workload: paper}}", "mine.yaml: key 'gpus.l40.stack' is missing"),
        ("gpus: {A100: {architecture: sm_80}}", "mine.yaml: 'gpus.A100'"),
        (
            "configs: {fast: {optimisations: [channel_last]}}",
            "'configs.fast.optimisations[0]': unknown optimisation 'channel_last': did you mean 'channels_last'?",
        ),
        ("sites: {local: {gpus: [cpuu]}}", "mine.yaml: 'sites.local.gpus[0]': unknown gpu 'cpuu': did you mean 'cpu'?"),
        (
            "gpus: {cpu: {workload: demos}}",
            "mine.yaml: 'gpus.cpu.workload': unknown workload 'demos': did you mean 'demo'?",
        ),
        (
            "workloads: {demo: {model: {volume: [32, 40, 32]}}}",
            "mine.yaml: 'workloads.demo.model.volume[1]': side 40 is not divisible by 16: take 48.",
        ),
        (
            "workloads: {demo: {model: {volume: [48, 48, 48]}}}",
            "mine.yaml: 'workloads.demo.model.volume': the volume is [48, 48, 48], but data set 'mni152-demo'",
        ),
        (
            "workloads: {demo: {model: {attention_downsamples: [3]}}}",
            "mine.yaml: 'workloads.demo.model.attention_downsamples[0]': no level is downsampled by 3",
        ),
        (
            "workloads: {demo: {model: {mask_channels: 3}}}",
            "mine.yaml: 'workloads.demo.model.mask_channels': mask_channels is 3, but data set 'mni152-demo' gives 2",
        ),
        ("configs: {cpu: {optimisations: []}}", "mine.yaml: 'configs.cpu': config 'cpu' is named like a gpu"),
        (
            "configs: {step_time: {optimisations: []}}",
            "mine.yaml: 'configs.step_time': config 'step_time' is named like a figure",
        ),
        ("configs: {all: {optimisations: []}}", "mine.yaml: 'configs.all': config 'all' is named like a rule"),
        ("configs: {docs: {optimisations: []}}", "mine.yaml: 'configs.docs': config 'docs' is named like a folder"),
        (
            "configs: {half: {optimisations: [bf16, fp16]}}",
            "mine.yaml: 'configs.half.optimisations': 'bf16' and 'fp16' exclude each other",
        ),
        (
            "configs: {half: {optimisations: [sdpa, cast_once]}}",
            "mine.yaml: 'configs.half.optimisations': 'cast_once' has no lower precision to cast to",
        ),
        (
            "workloads: {demo: {quality: {ddim_steps: 300}}}",
            "mine.yaml: 'workloads.demo.quality.ddim_steps': ddim_steps is 300, but train.timesteps is 250",
        ),
        ("gpus: {cpu: {architecture: sm_80}}", "mine.yaml: 'gpus.cpu.architecture'"),
        ("site: expanze", "unknown site 'expanze': did you mean 'expanse'?"),
        ("site: [local]", "unknown site '['local']': did you mean 'local'?"),
        ("seed: 1000000000000000000000", "'seed' is 1000000000000000000000, but input should be less than or equal to"),
        (
            "repeats: 1000000",
            "mine.yaml: 'repeats': 4 gpus x 7 configs x 1000000 repeats are 28000000 cells, above the limit",
        ),
        (
            "repeats: 1000\nconfigs: {a: {optimisations: []}, b: {optimisations: [sdpa]}}",
            "mine.yaml: 'repeats': 4 gpus x 9 configs x 1000 repeats are 36000 cells, above the limit of 30000: take",
        ),
        ("gpus: {a100: {memory_gib: 1e+308}}", "'gpus.a100.memory_gib' is "),
        ("repeats: " + "[" * 5000, "mine.yaml is no readable YAML"),
        ("seed: .nan", "mine.yaml: 'seed': nan is not a finite number"),
        (
            "workloads: {demo: {train: {learning_rate: .inf}}}",
            "mine.yaml: 'workloads.demo.train.learning_rate': inf is not a finite number",
        ),
        (
            "workloads: {demo: {train: {learning_rate: 1e999}}}",
            "mine.yaml: 'workloads.demo.train.learning_rate' is inf, but input should be a finite number",
        ),
        (
            "workloads: {demo: {model: {volume: [32, .nan, 32]}}}",
            "mine.yaml: 'workloads.demo.model.volume[1]': nan is not a finite number",
        ),
        (
            "gpus: {cpu: {true: 1, threads: .nan}}",
            "mine.yaml: 'gpus.cpu': mapping key True is not a string",
        ),
        ("repeats: 1\nrepeats: 2", "mine.yaml is no readable YAML .*key 'repeats' stands twice"),
        ("repeats: [", "mine.yaml is no readable YAML"),
        ("- 1", "mine.yaml holds a list, not a mapping"),
    ],
)
def test_a_mistake_is_one_sentence_with_file_and_path(in_checkout, text, expected, capsys):
    path = overlay(in_checkout, text)
    code = main(["config", "--configfile", path.name])
    printed = capsys.readouterr().err
    assert code == 2
    assert printed.count("\n") == 1
    assert re.search(expected if "*" in expected else re.escape(expected), printed), printed


def test_the_file_named_is_the_one_that_holds_the_mistake(in_checkout):
    config = in_checkout / "config.yaml"
    config.write_text(config.read_text().replace("iterations: 25", "iterations: none"))
    overlay(in_checkout, "repeats: 2")
    with pytest.raises(UserError, match=r"^config\.yaml: 'workloads\.paper\.train\.iterations' is 'none'"):
        load_effective([in_checkout / "mine.yaml"])


def test_a_missing_file_is_named(in_checkout):
    with pytest.raises(UserError, match=r"nowhere\.yaml does not exist"):
        read_yaml(in_checkout / "nowhere.yaml")


def test_overlays_merge_mappings_and_replace_lists(in_checkout):
    overlay(in_checkout, "configs: {opt1: {optimisations: [channels_last]}}\nsite: expanse")
    seen = load_effective([in_checkout / "mine.yaml"])
    assert seen.site == "expanse"
    assert seen.study.configs["opt1"].optimisations == ["channels_last"]
    assert "opt2" in seen.study.configs


def test_an_anchored_mapping_may_be_merged_into_another(in_checkout):
    text = "gpus:\n  a100: &memory {memory_gib: 80}\n  h100: {<<: *memory, stack: current}\n"
    gpus = load_study([overlay(in_checkout, text)]).gpus
    assert (gpus["h100"].memory_gib, gpus["h100"].stack) == (80, "current")


def test_all_timesteps_may_be_sampled_and_either_lower_precision_be_cast_to(in_checkout):
    text = "workloads: {demo: {quality: {ddim_steps: 250}}}\nconfigs: {half: {optimisations: [fp16, cast_once]}}"
    assert load_study([overlay(in_checkout, text)]).workloads["demo"].quality.ddim_steps == 250


def test_a_number_without_a_dot_before_its_exponent_is_a_number(in_checkout):
    overlay(in_checkout, "workloads: {demo: {train: {learning_rate: 1e-3}}}")
    assert load_effective([in_checkout / "mine.yaml"]).study.workloads["demo"].train.learning_rate == 0.001


def test_labels_of_ones_own_data_may_be_numbers(in_checkout):
    text = "{kind: nifti, images: i, labels: l, volume: [32, 32, 32], classes: {1: brain, 2: lesion}}"
    overlay(in_checkout, f"data: {{mine: {text}}}")
    found = load_effective([in_checkout / "mine.yaml"]).study.data["mine"]
    assert found.classes == {"1": "brain", "2": "lesion"}


@pytest.mark.parametrize(
    ("stack", "message"),
    [
        ("{pins: envs/papr.txt}", r"'stacks\.paper\.pins': .*envs/papr\.txt cannot be read \(No such file"),
        ("{recipe: containers/none.Dockerfile}", r"'stacks\.paper\.recipe': .*none\.Dockerfile cannot be read"),
        ("{pins: README.md}", r"'stacks\.paper\.pins': .*README\.md, line 3: '.*' pins no version"),
    ],
)
def test_the_config_verb_reads_the_files_of_every_stack(stack, message, tmp_path, capsys, in_checkout):
    overlay = tmp_path / "mine.yaml"
    overlay.write_text(f"stacks: {{paper: {stack}}}")
    assert main(["config", "--configfile", str(overlay)]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert main(["config"]) == 0
