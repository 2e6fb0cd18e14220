"""Programs that stand in for Slurm's: ``sbatch`` runs a job at once, with nothing of the caller's environment.

For tests of what happens inside a job without a Slurm; real Slurm is tested in ``tests/sites``.
"""

from __future__ import annotations

from pathlib import Path

PROGRAMS = {
    # a job starts with the environment of a login shell: the site's Slurm passed nothing on
    "sbatch": """
        number=$(($(cat "$folder/jobs" 2>/dev/null || echo 0) + 1))
        echo "$number" > "$folder/jobs"
        printf '%q ' "$@" >> "$folder/calls"; echo >> "$folder/calls"
        for word in "$@"; do
            case $word in --wrap=*) command=${word#--wrap=} ;; esac
        done
        echo RUNNING > "$folder/state.$number"
        (
            env -i HOME="$HOME" PATH="$folder:/usr/bin:/bin" TMPDIR="$TMPDIR" SLURM_JOB_ID="$number" \
                bash -c "$command" > "$folder/log.$number" 2>&1 < /dev/null
            code=$?
            if [ "$code" = 0 ]; then state=COMPLETED; else state=FAILED; fi
            echo "$state" > "$folder/state.$number"
        ) > /dev/null 2>&1 &
        echo "$number"
    """,
    "squeue": """
        case "$*" in *--format=%r*) echo None; exit ;; esac
        for file in "$folder"/state.*; do
            [ -e "$file" ] && echo "${file##*.}|$(cat "$file")"
        done
        exit 0
    """,
    # everything behind the options of the step
    "srun": 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"',
    "scontrol": "echo 'MinJobAge = 300 sec'; echo 'MaxArraySize = 1001'",
    "sacctmgr": "echo abc123",
    "sacct": "exit 0",
    "sinfo": "exit 0",
    "sshare": "exit 0",
    "scancel": "exit 0",
}


def write_stand_ins(folder: Path) -> Path:
    """Write the programs into ``folder``, which is to come first on PATH, and return it."""
    folder.mkdir()
    for name, body in PROGRAMS.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\nfolder={folder}\n{body}\n")
        (folder / name).chmod(0o755)
    return folder
