"""Checks of Slurm: that it answers, knows the account, and would take and start what the cells ask for."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpustudy.launch.preflight.asked import Asked
from gpustudy.launch.preflight.checks import FAIL, CheckFunction, Finding, Place, failed, passed, skipped, warned

_UNLIMITED = ("UNLIMITED", "INFINITE", "NONE", "")
_SLURM_TIME = re.compile(r"^(?:(?P<days>\d+)-)?(?P<parts>\d+(?::\d+){0,2})$")
_MINUTES_PER_HOUR = 60
_MINUTES_PER_DAY = 24 * _MINUTES_PER_HOUR
_SECONDS_PER_MINUTE = 60
_ASSOCIATIONS = ("Account", "Partition", "MaxSubmit")
_QOS_LIMITS = ("Name", "MaxSubmitPU", "MaxWall")


def check_scheduler(place: Place) -> Finding:
    """Whether Slurm's controller answers on this machine."""
    answer = place.ask("scontrol", "ping")
    if answer.is_absent:
        return failed("Slurm's programs are not on PATH: run on a login node, or load its Slurm module.")
    if answer.code or " is UP" not in answer.out:
        return failed(
            f"Slurm's controller does not answer ({answer.complaint}): try again later.",
            f"slurmctld does not answer from this login node ('scontrol ping': {answer.complaint}); is it down?",
        )
    version = place.ask("sinfo", "--version").out.strip()
    return passed(f"{version or 'Slurm'} answers.")


def once_slurm_answers(check: CheckFunction) -> CheckFunction:
    """Return ``check`` for where Slurm's controller answers, and no finding where it does not."""

    def checked(place: Place) -> Finding:
        if check_scheduler(place).level == FAIL:
            return skipped("Slurm does not answer.")
        return check(place)

    return checked


def check_slurm_conf(place: Place) -> Finding:
    """Whether jobs find Slurm's configuration: the plugin drops SLURM_CONF in them (our wrapper puts it back)."""
    named = place.environment.get("SLURM_CONF")
    if not named:
        return passed("Slurm finds its configuration without SLURM_CONF.")
    answer = place.ask("env", "-u", "SLURM_CONF", "scontrol", "ping")
    if answer.code == 0:
        return passed("Slurm finds its configuration also without SLURM_CONF, which job steps lose.")
    return warned(
        f"Slurm is found through SLURM_CONF={named} alone, and Snakemake's job step drops it; "
        "the srun of workflow/profiles/bin puts it back, any other way of starting a step would fail.",
        "Could Slurm's configuration be found without SLURM_CONF too (as /etc/slurm/slurm.conf or configless)? "
        "Workflow managers drop the variable in job steps: 'env -u SLURM_CONF srun hostname' fails here.",
    )


def check_account(place: Place, asked: Asked) -> Finding:
    """Whether the account is one of this user's."""
    user = place.user
    found, source = _accounts(place, user)
    yours = f"yours are {', '.join(sorted(found))}" if found else "none is known for you"
    if asked.account is None:
        return failed(f"{asked.refusal[:1].upper()}{asked.refusal[1:]} {yours[:1].upper()}{yours[1:]}.")
    if source is None:
        return skipped(f"Neither sacctmgr nor sshare tells your accounts: sbatch decides on {asked.account}.")
    if asked.account not in found:
        return failed(
            f"Account {asked.account} is not yours ({yours}): set GPUSTUDY_ACCOUNT or site.local.yaml to one of them.",
            f"Please add user {user} to account {asked.account}, or tell us the account that our GPU jobs should name.",
        )
    return passed(f"Account {asked.account} is yours ({source}).")


def check_partition(place: Place, asked: Asked) -> Finding:
    """Whether the partition is up, open to the account, and as large and long as the largest request."""
    limits = _partition(place, asked.partition)
    if isinstance(limits, Finding):
        return limits
    name = asked.partition
    if limits.get("State") != "UP":
        return failed(
            f"Partition {name} is {limits.get('State', 'in an unknown state')}: jobs would wait ('sinfo -p {name}').",
            f"Partition {name} is {limits.get('State')}; when will it take jobs again?",
        )
    closed = _closed_to(limits, asked.account)
    if closed:
        return failed(
            f"Partition {name} is not open to account {asked.account} ({closed}): name another account or partition.",
            f"Please give account {asked.account} access to partition {name}.",
        )
    longest = _longest(place, limits)
    if longest is not None and asked.minutes > longest:
        return failed(
            f"A {asked.gpu} cell asks for {asked.minutes} minutes (modelled), {name} grants {longest}: such a job may "
            "wait for ever; measure fewer iterations or samples, or take another partition.",
        )
    return passed(f"{name} is up and grants {_told(longest)}; the longest cell asks for {asked.minutes} minutes.")


def check_job_count(place: Place, asked: Asked) -> Finding:
    """Whether the user may queue as many jobs as the profile submits at once."""
    limits = _partition(place, asked.partition)
    rows = _table(place, _ASSOCIATIONS, "assoc", "where", f"user={place.user}")
    if rows is None:
        return skipped(f"sacctmgr does not tell limits: {asked.jobs} jobs at once are taken from the config.")
    counts = {
        f"account {row['Account']}": row["MaxSubmit"]
        for row in rows
        if row["Account"] == asked.account and row["Partition"] in ("", asked.partition)
    }
    for row in [] if isinstance(limits, Finding) else _qos(place, limits):
        counts[f"QOS {row['Name']} of partition {asked.partition}"] = row["MaxSubmitPU"]
    known = {where: int(text) for where, text in counts.items() if text.isdigit()}
    if not known:
        return passed(f"No limit below {asked.jobs} jobs at once is set.")
    where = min(known, key=lambda name: known[name])
    if known[where] < asked.jobs:
        return failed(
            f"The profile queues {asked.jobs} jobs at once, {where} takes {known[where]}: run with "
            f"--jobs {known[where]}, and set sites.{place.effective.site}.slurm.max_queued to it.",
        )
    return passed(f"{asked.jobs} jobs at once are within the {known[where]} of {where}.")


def check_request(place: Place, asked: Asked) -> Finding:
    """Whether sbatch would take the largest cell's request; nothing is submitted."""
    answer = place.ask("sbatch", "--test-only", *asked.options(), "--wrap", "true")
    if answer.is_absent:
        return skipped("sbatch is not on PATH.")
    line = " ".join(asked.options())
    lines = [line.strip() for line in f"{answer.out}\n{answer.err}".splitlines() if line.strip()]
    if answer.code:
        reasons = [line for line in lines if re.search(r"error|failure|FAILED", line)] or lines
        reason = "; ".join(dict.fromkeys(line.removeprefix("sbatch: ") for line in reasons)) or "without a reason"
        return failed(
            f"sbatch refuses the largest cell's request '{line}': {reason}. Correct sites.{place.effective.site}.",
            f"sbatch refuses '{line}' with '{reason}'; how should a job with one GPU be asked for?",
        )
    start = next((line.removeprefix("sbatch: ") for line in lines if " to start at " in line), "")
    return passed(f"sbatch takes '{line}'." + (f" {_start(start)}" if start else ""))


def _start(line: str) -> str:
    found = re.search(r"start at (\S+)", line)
    return f"It would start at {found[1]}." if found else ""


def _accounts(place: Place, user: str) -> tuple[set[str], str | None]:
    """Return the user's accounts and who told them; None where nobody does."""
    rows = _table(place, _ASSOCIATIONS, "assoc", "where", f"user={user}")
    if rows:
        return {row["Account"] for row in rows}, "sacctmgr"
    answer = place.ask("sshare", "-U", "-n", "-P", "-o", "Account")
    names = {line.strip() for line in answer.out.splitlines() if line.strip()}
    if not answer.code and names:
        return names, "sshare"
    return set(), None if rows is None else "sacctmgr"


def _table(place: Place, fields: tuple[str, ...], *words: str) -> list[dict[str, str]] | None:
    """Return the rows of ``sacctmgr show``; None where accounting does not answer."""
    answer = place.ask("sacctmgr", "-n", "-P", "show", *words, f"format={','.join(fields)}")
    if answer.code:
        return None
    rows = (line.split("|") for line in answer.out.splitlines() if line.strip())
    return [dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields)]


def _partition(place: Place, name: str) -> Mapping[str, str] | Finding:
    """Return what Slurm says of a partition, or the check that failed."""
    answer = place.ask("scontrol", "show", "partition", name, "-o")
    if answer.code:
        known = ", ".join(place.ask("sinfo", "-h", "-o", "%R").out.split()) or "unknown"
        return failed(
            f"Slurm shows no partition {name} ({answer.complaint}), it has: {known}; "
            f"set sites.{place.effective.site}.slurm.partition.",
        )
    return dict(word.split("=", 1) for word in answer.out.split() if "=" in word)


def _closed_to(limits: Mapping[str, str], account: str | None) -> str:
    """Return why an account may not use a partition; nothing where it may."""
    if account is None:
        return ""
    allowed = limits.get("AllowAccounts", "ALL")
    if allowed != "ALL" and account.lower() not in allowed.lower().split(","):
        return f"it takes {allowed}"
    denied = limits.get("DenyAccounts", "")
    return f"it refuses {denied}" if account.lower() in denied.lower().split(",") else ""


def _longest(place: Place, limits: Mapping[str, str]) -> int | None:
    """Return the minutes that a partition and its QOS grant a job; None where neither sets a limit."""
    texts = [limits.get("MaxTime", ""), *(row["MaxWall"] for row in _qos(place, limits))]
    return min((minutes for text in texts if (minutes := _minutes(text)) is not None), default=None)


def _qos(place: Place, limits: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the limits of a partition's QOS; none where it has none, or accounting does not answer."""
    name = limits.get("QoS", "N/A")
    return [] if name in ("", "N/A") else _table(place, _QOS_LIMITS, "qos", name) or []


def _minutes(text: str) -> int | None:
    """Return a time of Slurm's (``2-00:00:00``, ``30:00``, ``90``) in whole minutes; None where there is no limit."""
    match = _SLURM_TIME.match(text)
    if text.upper() in _UNLIMITED or match is None:
        return None
    parts = [int(part) for part in match["parts"].split(":")]
    if match["days"] is not None:  # D-HH[:MM[:SS]]
        hours, minutes = [*parts, 0][:2]
        return int(match["days"]) * _MINUTES_PER_DAY + hours * _MINUTES_PER_HOUR + minutes
    if len(parts) == len(("hours", "minutes", "seconds")):
        return parts[0] * _MINUTES_PER_HOUR + parts[1]
    return parts[0]


def _told(minutes: int | None) -> str:
    return "any length of job" if minutes is None else f"jobs of {minutes} minutes"
