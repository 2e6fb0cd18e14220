"""Account and scratch folder of the person at a site: environment, file, config; never a placeholder."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustudy.base.errors import UserError
from gpustudy.cli import main
from gpustudy.launch.own import own_site, require_account
from tests.support.studies import seen_from

STUDY = seen_from("expanse").study


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("GPUSTUDY_ACCOUNT", "GPUSTUDY_SCRATCH"):
        monkeypatch.delenv(name, raising=False)


def write(text: str) -> None:
    Path("site.local.yaml").write_text(text)


def test_the_environment_goes_before_the_file_and_the_file_before_the_config():
    assert own_site(STUDY, "expanse").scratch == STUDY.sites["expanse"].scratch
    write("sites: {expanse: {account: csd403, scratch: /fast}}")
    found = own_site(STUDY, "expanse", {"GPUSTUDY_ACCOUNT": "uic400"})
    assert (found.account, found.scratch) == ("uic400", "/fast")


def test_the_file_of_one_site_says_nothing_of_another():
    write("sites: {expanse: {account: csd403}}")
    assert own_site(STUDY, "stampede3").account is None


def test_without_an_account_a_sentence_tells_both_ways_to_set_it():
    with pytest.raises(UserError) as caught:
        require_account(STUDY, "expanse")
    assert "export GPUSTUDY_ACCOUNT=NAME" in str(caught.value)
    assert "site.local.yaml" in str(caught.value)


@pytest.mark.parametrize("text", ["CHANGEME", "<account>", "your_account", "your-project", "$ACCOUNT", "TODO", "xxx"])
def test_a_placeholder_is_no_account(text, monkeypatch):
    monkeypatch.setenv("GPUSTUDY_ACCOUNT", text)
    with pytest.raises(UserError, match="which is no account of anybody"):
        require_account(STUDY, "expanse")


@pytest.mark.parametrize("text", ["abc123", "TG-MCA93S002", "csd403", "uic.400_gpu"])
def test_accounts_of_sites_pass(text, monkeypatch):
    monkeypatch.setenv("GPUSTUDY_ACCOUNT", text)
    assert require_account(STUDY, "expanse") == text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sites: {expanze: {account: a1}}", "unknown site 'expanze': did you mean 'expanse'?"),
        ("sites: {expanse: {acount: a1}}", "unknown key 'sites.expanse.acount': did you mean 'account'?"),
        ("site: {}", "unknown key 'site': did you mean 'sites'?"),
        ("sites: [", "is no readable YAML"),
        ("sites: {expanse: {account: 123}}", "'sites.expanse.account' is 123"),
    ],
)
def test_a_mistake_in_the_file_names_file_and_key(text, sentence):
    write(text)
    with pytest.raises(UserError) as caught:
        own_site(STUDY, "expanse")
    assert str(caught.value).startswith("site.local.yaml")
    assert sentence in str(caught.value)


def test_a_mistake_in_the_file_is_told_by_the_plan(repository: Path, capsys: pytest.CaptureFixture[str]):
    Path("config.yaml").write_text((repository / "config.yaml").read_text())
    write("sites: {expanse: {acount: csd403}}")
    assert main(["plan", "--site", "expanse"]) == 2
    said = capsys.readouterr().err
    assert "site.local.yaml: unknown key 'sites.expanse.acount': did you mean 'account'?" in said
