"""What only the person at a site knows: account and scratch folder, from the environment or ``site.local.yaml``.

The file is in no repository and in no key::

    sites:
      expanse:
        account: abc123        # the project that is charged (sbatch -A)
        scratch: /expanse/lustre/scratch/me/temp_project
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from gpustudy.base.errors import UserError
from gpustudy.base.words import nearest
from gpustudy.study.load import read_yaml
from gpustudy.study.mistakes import user_error
from gpustudy.study.models import Section, SiteName, Study

OWN_FILE = Path("site.local.yaml")
ACCOUNT = "GPUSTUDY_ACCOUNT"
SCRATCH = "GPUSTUDY_SCRATCH"

_ACCOUNT_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PLACEHOLDER = re.compile(
    r"(my|your)?[-_]?(account|project|allocation)([-_]?name)?|change[-_]?me|placeholder|none|null|todo|x+|name",
    re.IGNORECASE,
)
"""Texts that stand for an account in templates and guides."""


class OwnSite(Section):
    """What a person sets for one site."""

    account: str | None = Field(None, description="The project that is charged (sbatch -A).")
    scratch: str | None = Field(None, description="Fast folder for images and temporary files.")


class Own(Section):
    """The whole file."""

    sites: dict[SiteName, OwnSite] = Field({}, description="Settings per site.")


def own_site(study: Study, site: str, environment: Mapping[str, str] | None = None) -> OwnSite:
    """Return what is set for ``site``: by the environment, else by ``site.local.yaml``, else by the config.

    Raises:
        UserError: a mistake in the file, or an account that is a placeholder.
    """
    variables = os.environ if environment is None else environment
    found = read_own(study).sites.get(site, OwnSite(account=None, scratch=None))
    account = variables.get(ACCOUNT) or found.account
    scratch = variables.get(SCRATCH) or found.scratch or study.sites[site].scratch
    if account is not None:
        place = f"environment variable {ACCOUNT}" if variables.get(ACCOUNT) else f"{OWN_FILE}: 'sites.{site}.account'"
        _check_account(account, place)
    return OwnSite(account=account, scratch=scratch)


def stated_scratch(study: Study, site: str, environment: Mapping[str, str] | None = None) -> Path | None:
    """Return the scratch folder of ``site`` with its variables filled in, whether or not it exists; None where none is.

    Raises:
        UserError: it names a variable that is not set, or there is a mistake in the file.
    """
    variables = os.environ if environment is None else environment
    text = own_site(study, site, variables).scratch
    if text is None:
        return None
    try:
        return Path(string.Template(text).substitute(variables))
    except KeyError as error:
        raise UserError(
            f"the scratch folder of site {site} is '{text}', and {error.args[0]} is not set: set it, or {SCRATCH}, or "
            f"name another folder in {OWN_FILE}."
        ) from error
    except ValueError as error:
        raise UserError(f"the scratch folder of site {site} is no path: '{text}'; correct it.") from error


def read_own(study: Study) -> Own:
    """Return the content of ``site.local.yaml``; nothing where there is none.

    Raises:
        UserError: it is no YAML, or names a key or a site that does not exist.
    """
    if not OWN_FILE.exists():
        return Own(sites={})
    layers = [(OWN_FILE, read_yaml(OWN_FILE))]
    try:
        own = Own.model_validate(layers[0][1])
    except ValidationError as error:
        raise user_error(error, layers, Own) from error
    for name in own.sites:
        if name not in study.sites:
            raise UserError(f"{OWN_FILE}: unknown site '{name}': {nearest(name, study.sites)}")
    return own


def require_account(study: Study, site: str) -> str:
    """Return the account that jobs at ``site`` are charged to.

    Raises:
        UserError: none is set.
    """
    account = own_site(study, site).account
    if account is None:
        raise UserError(
            f"site {site} charges jobs to an account, and none is set: export {ACCOUNT}=NAME, or write "
            f"'sites: {{{site}: {{account: NAME}}}}' into {OWN_FILE} (the site's portal, or 'sacctmgr show "
            "associations user=$USER', names yours)."
        )
    return account


def _check_account(account: str, place: str) -> None:
    if not _ACCOUNT_FORM.fullmatch(account) or _PLACEHOLDER.fullmatch(account):
        raise UserError(f"{place} is '{account}', which is no account of anybody: put yours there.")
