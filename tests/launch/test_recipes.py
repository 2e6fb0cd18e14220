"""A stack's Dockerfile becomes the recipe that builds the same with Apptainer, or is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpustudy.base.errors import UserError
from gpustudy.launch.recipes import apptainer_recipe, build_arguments, read_recipe
from gpustudy.study.stacks import base_image, read_pins

GOLDEN = Path(__file__).parent / "golden"
LABELS = {"gpustudy.stack": "paper", "gpustudy.key": "0123456789ab"}
BASE = f"debian:12@sha256:{'ab' * 32}"


def recipe_of(folder: Path, text: str):
    path = folder / "x.Dockerfile"
    path.write_text(text)
    return read_recipe(path)


@pytest.mark.parametrize("stack", ["paper", "current", "current_cu126"])
def test_the_stacks_recipes_are_converted_as_checked_by_eye(stack, repository):
    recipe = read_recipe(repository / "containers" / f"{stack}.Dockerfile")
    values = build_arguments(recipe, {"TORCH_INDEX": "https://index.example/cu"})
    text = apptainer_recipe(recipe, values, {**LABELS, "gpustudy.stack": stack})
    assert text == (GOLDEN / f"{stack}.def").read_text()


@pytest.mark.parametrize("stack", ["paper", "current", "current_cu126"])
def test_the_base_is_named_by_digest_alone_as_apptainer_wants_it(stack, repository):
    path = repository / "containers" / f"{stack}.Dockerfile"
    recipe = read_recipe(path)
    assert recipe.base == base_image(path)
    assert re.fullmatch(r"nvidia/cuda:[\w.-]+@sha256:[0-9a-f]{64}", recipe.base)
    assert re.search(r"^From: nvidia/cuda@sha256:[0-9a-f]{64}$", apptainer_recipe(recipe, {}, {}), re.MULTILINE)


@pytest.mark.parametrize(
    ("stack", "python", "cuda"),
    [("paper", "python3.10", "11.8"), ("current", "python3.11", "13"), ("current_cu126", "python3.11", "12.6")],
)
def test_a_recipe_installs_the_pins_and_ends_where_the_build_of_torch_is_another(stack, python, cuda, repository):
    recipe = read_recipe(repository / "containers" / f"{stack}.Dockerfile")
    (source, target), commands = recipe.copied[0], "\n".join(recipe.commands)
    assert {"torch", "numpy"} <= set(read_pins(repository / source))
    assert f"-r {target}" in commands
    assert f"{python} -m venv" in commands
    assert re.search(rf"torch\.version\.cuda.*assert found == .*'{re.escape(cuda)}'", commands)
    assert commands.endswith("&& ncu --version")


def test_the_papers_recipe_replaces_cudnn_and_checks_it(repository):
    commands = "\n".join(read_recipe(repository / "containers/paper.Dockerfile").commands)
    assert "nvidia-cudnn-cu11==8.9.2.26" in commands
    assert "8902" in commands


def test_variables_are_exported_and_arguments_take_their_value(tmp_path):
    lines = ['ARG INDEX="a b"', "ARG GIVEN", 'ENV A=1 B="two words"', "RUN echo $A \\", "    && INDEX=3 true"]
    recipe = recipe_of(tmp_path, "\n".join([f"FROM {BASE}", *lines, "ENV PATH=/x:$PATH", ""]))
    values = build_arguments(recipe, {"GIVEN": "g", "OTHER": "o"})
    assert values == {"INDEX": "a b", "GIVEN": "g"}
    post = apptainer_recipe(recipe, values, {}).split("%post\n")[1].split("\n\n")[0].splitlines()
    assert [line.strip() for line in post] == [
        'export INDEX="a b"',
        'export GIVEN="g"',
        'export A="1"',
        'export B="two words"',
        "echo $A \\",
        "&& INDEX=3 true",
        'export PATH="/x:$PATH"',
    ]


def test_an_argument_that_must_be_given_is_asked_for_before_anything_is_built(repository):
    recipe = read_recipe(repository / "containers/paper.Dockerfile")
    with pytest.raises(UserError, match=r"paper\.Dockerfile needs TORCH_INDEX .* as docs/containers\.md says"):
        build_arguments(recipe, {"TORCH_INDEX": ""})


def test_a_base_image_as_a_file_needs_no_registry(tmp_path):
    text = apptainer_recipe(recipe_of(tmp_path, f"FROM {BASE}\n"), {}, {}, Path("/bases/b.sif"))
    assert text.startswith("Bootstrap: localimage\nFrom: /bases/b.sif\n")
    assert "docker" not in text


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("USER me", "USER me', which Apptainer cannot do: Apptainer runs a container as the user who starts it"),
        ("WORKDIR /x", "name folders by their whole path"),
        ("ADD a.tar /a", "write COPY for files"),
        ("COPY --chown=1 a /a", "copy without options"),
        ("RUN true\nCOPY a /a", "a COPY behind a RUN, and Apptainer copies first: move every COPY up"),
        (f"FROM {BASE} AS two", "2 lines FROM, a stack is built in one stage: keep one"),
    ],
)
def test_what_the_two_runtimes_would_build_differently_is_refused(lines, message, tmp_path):
    with pytest.raises(UserError, match=re.escape(message)):
        recipe_of(tmp_path, f"FROM {BASE}\n{lines}\n")


def test_words_in_a_continued_line_are_no_instructions(tmp_path):
    recipe = recipe_of(tmp_path, f"FROM {BASE}\nRUN echo \\\n    USER \\\n    FROM x\n")
    assert recipe.commands == ("echo \\", "USER \\", "FROM x")


def test_a_missing_recipe_is_told(tmp_path):
    with pytest.raises(UserError, match=r"none\.Dockerfile cannot be read"):
        read_recipe(tmp_path / "none.Dockerfile")
