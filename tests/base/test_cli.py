"""The command line: help with examples for every verb, and an end that leaves nothing half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from gpustudy.cli import VERBS, main


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb, capsys):
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert "example" in printed
    assert f"gpustudy {verb}" in printed


def test_without_a_verb_the_help_lists_them_all(capsys):
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert all(verb in printed for verb in VERBS)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["statsu"], "gpustudy: unknown verb 'statsu': did you mean 'status'?\n"),
        (["data", "lst"], "gpustudy data: unknown action 'lst': did you mean 'list'?\n"),
        (["data", "xyz"], "known are: check, list, lock, prepare, prepare-folder.\n"),
        (["archive", "export", "a.zip", "--with", "mettrics"], "unknown --with 'mettrics': did you mean 'metrics'?\n"),
        (
            ["status", "--confgfile", "x"],
            "gpustudy status: unknown option '--confgfile': did you mean '--configfile'?\n",
        ),
        (["archive", "list", "--jsno"], "gpustudy archive list: unknown option '--jsno': did you mean '--json'?\n"),
        (["--versoin"], "gpustudy: unknown option '--versoin': did you mean '--version'?\n"),
        (["status", "cpu"], "gpustudy status: 'cpu' is one word too many: see 'gpustudy status --help'.\n"),
        (["status", "--site"], "argument --site: expected one argument: see 'gpustudy status --help'.\n"),
        (["retry"], "required: GPU/CONFIG/rN[/STAGE]: see 'gpustudy retry --help'.\n"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_nearest(words, sentence, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.endswith(sentence)
    assert said.count("\n") == 1


@pytest.mark.parametrize("action", ["list", "lock", "prepare", "prepare-folder", "check"])
def test_every_action_on_data_has_an_example(action, capsys):
    with pytest.raises(SystemExit):
        main(["data", action, "--help"])
    assert f"  gpustudy data {action}" in capsys.readouterr().out


def test_status_of_an_unknown_gpu_names_the_nearest(capsys, monkeypatch, repository):
    monkeypatch.chdir(repository)
    assert main(["status", "--gpu", "a10"]) == 2
    assert capsys.readouterr().err == "gpustudy status: unknown gpu 'a10': did you mean 'a100'?\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["--help", "config --optimisations", "data --help"])
@pytest.mark.parametrize(
    ("redirection", "reason"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
)
def test_output_that_cannot_be_written_is_one_sentence(words, redirection, reason, unbuffered, repository):
    command = f"{sys.executable} -m gpustudy {words} {redirection}"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=repository, env=environment)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [done.stderr.strip()]
    assert done.stderr.endswith(f"standard output: {reason}; mend that and run again.\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_verb_that_is_told_to_end_cleans_up(tmp_path, number):
    program = textwrap.dedent(
        """
        import sys, time, types
        from pathlib import Path
        from gpustudy import cli
        from gpustudy.base.atomic import atomic_directory

        def run(arguments):
            with atomic_directory(Path(sys.argv[1]) / "out") as work:
                (work / "half").write_text("x")
                print("writing", flush=True)
                time.sleep(60)

        sys.modules["gpustudy.verbs.status"] = types.SimpleNamespace(configure=lambda parser: None, run=run)
        sys.exit(cli.main(["status"]))
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said == "gpustudy status: interrupted; nothing half-written was left.\n"
    assert list(tmp_path.iterdir()) == []


def test_a_verb_refuses_to_speak_for_another_checkout(tmp_path, monkeypatch, capsys):
    (tmp_path / "workflow/gpustudy").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert main(["status"]) == 2
    assert "belongs to the checkout" in capsys.readouterr().err
