"""Images in the plan: known without a runtime, built before the first cell that needs them, and only where one does."""

from __future__ import annotations

import pytest

from tests.support.checkout import Checkout, copy_checkout, planned


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Checkout:
    return copy_checkout(tmp_path_factory.mktemp("images") / "checkout")


def plan_of(checkout: Checkout, site: str, target: str, *more: str) -> dict[str, int]:
    words = ["--profile", site, "-n", "-q", "rules", *more, "--", target]
    return planned(checkout.snakemake(*words).stdout)


def test_the_image_of_a_site_is_planned_once_before_its_cells(checkout):
    jobs = plan_of(checkout, "expanse", "v100")
    assert jobs["build_image"] == 1
    assert jobs["run_train"] == 7 * 3


def test_a_site_without_containers_plans_no_image(checkout):
    assert "build_image" not in plan_of(checkout, "local", "cpu")
    assert plan_of(checkout, "local", "images") in ({}, {"images": 1})


def test_an_image_that_is_there_is_not_planned_again(checkout):
    path = checkout.root / checkout.gpustudy("image", "path", "paper", "--site", "expanse").stdout.strip()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"an image")
    try:
        jobs = plan_of(checkout, "expanse", "v100")
        assert "build_image" not in jobs
        assert jobs["run_train"] == 7 * 3
        assert plan_of(checkout, "expanse", "images") in ({}, {"images": 1})
    finally:
        path.unlink()


def test_docker_keeps_a_file_that_names_the_image(checkout):
    name = checkout.overlay({"sites": {"jetstream2": {"runtime": "docker"}}})
    assert plan_of(checkout, "jetstream2", "images", "--configfile", name) == {"build_image": 1, "images": 1}
    sif = checkout.gpustudy("image", "path", "paper", "--site", "jetstream2").stdout.strip()
    docker = checkout.gpustudy("image", "path", "paper", "--site", "jetstream2", "--configfile", name).stdout.strip()
    assert docker == sif.replace(".sif", ".docker.json"), "the key knows nothing of the runtime"
