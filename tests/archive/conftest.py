"""Studies with crafted results, to export and import."""

from tests.study.conftest import study_of  # noqa: F401 (a fixture)
