"""The user's name, and what stands for it where there is none."""

from __future__ import annotations

import os
import pwd

import pytest

from gpustudy.base.user import user_name

VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")


def test_the_environment_names_the_user(monkeypatch):
    monkeypatch.setenv("LOGNAME", "ada")
    assert user_name() == "ada"


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found: 1234"), OSError("No username set")])
def test_a_user_without_a_passwd_entry_is_told_by_number(monkeypatch, error):
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)

    def unknown(number):
        raise error

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    assert user_name() == "1234"
