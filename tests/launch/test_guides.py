"""The guides of the sites say what the program takes: commands parse, overlays are sound, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gpustudy import cli
from gpustudy.base.errors import UserError
from gpustudy.launch.own import Own, own_site
from gpustudy.study.load import effective, read_yaml

REPOSITORY = Path(__file__).resolve().parents[2]
GUIDES = ("sites", "run-on-expanse", "run-on-stampede3", "run-on-jetstream2")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OWN_PROFILE = "mycluster"
"""The profile that docs/sites.md has its reader make."""


def guide(name: str) -> str:
    return (REPOSITORY / "docs" / f"{name}.md").read_text()


def commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """Every call of ``program`` in a block of a guide or in its running text."""
    for name in GUIDES:
        text = guide(name)
        lines = [line for kind, block in BLOCK.findall(text) if kind == "" for line in block.splitlines()]
        lines += re.findall(rf"`({program} [^`…]*)`", text)
        for line in lines:
            words = shlex.split(line.split(" || ")[0], comments=True)
            if words and words[0] == program:
                yield name, [word.replace("$GPUSTUDY_ACCOUNT", "abc123") for word in words[1:]]


def overlays() -> Iterator[tuple[str, str]]:
    for name in GUIDES:
        for kind, block in BLOCK.findall(guide(name)):
            if kind == "yaml":
                yield name, block


@pytest.mark.parametrize(("name", "words"), list(commands("gpustudy")))
def test_verbs_of_the_guides_are_taken(name: str, words: list[str]) -> None:
    cli._parser(words).parse_args(words)
    for site in [word for word in words if word == "--site"]:
        assert words[words.index(site) + 1] in read_yaml(REPOSITORY / "config.yaml")["sites"]


@pytest.mark.parametrize(("name", "words"), list(commands("snakemake")))
def test_calls_of_snakemake_in_the_guides_are_taken(
    name: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from snakemake.cli import parse_args

    monkeypatch.chdir(REPOSITORY)
    words = ["expanse" if word in (OWN_PROFILE, "NAME") else word for word in words]
    _, parsed = parse_args(words)
    names = read_yaml(REPOSITORY / "config.yaml")
    for target in parsed.targets or ():
        assert target in {*names["configs"], *names["gpus"], "images"}


@pytest.mark.parametrize(("name", "text"), list(overlays()))
def test_overlays_of_the_guides_are_sound(name: str, text: str) -> None:
    content = yaml.safe_load(text)
    if "account" in content.get("sites", {}).get("expanse", {}):
        Own.model_validate(content)
        return
    site = next(iter(content["sites"]))
    effective([(Path("config.yaml"), read_yaml(REPOSITORY / "config.yaml")), (Path("mine.yaml"), content)], site)


@pytest.mark.parametrize("name", GUIDES)
def test_links_of_the_guides_lead_somewhere(name: str) -> None:
    text = guide(name)
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (REPOSITORY / "docs" / target).exists(), target
    for anchor in re.findall(r"\]\(#([^)]+)\)", text):
        assert f"\n## {anchor.replace('-', ' ')}\n" in text.lower(), anchor


@pytest.mark.parametrize("text", [*map(guide, GUIDES), (REPOSITORY / "README.md").read_text()])
def test_an_account_of_a_guide_is_a_placeholder_that_is_never_submitted(text: str) -> None:
    study = effective([(Path("config.yaml"), read_yaml(REPOSITORY / "config.yaml"))], "expanse").study
    named = re.findall(r"export GPUSTUDY_ACCOUNT=(\S+)", text)
    for account in named:
        with pytest.raises(UserError, match="which is no account of anybody"):
            own_site(study, "expanse", {"GPUSTUDY_ACCOUNT": account})


def test_every_site_has_its_guide() -> None:
    text = guide("sites")
    for site in read_yaml(REPOSITORY / "config.yaml")["sites"]:
        assert f"| `{site}` |" in text
