#!/usr/bin/env bash
# Stops what slurm_up.sh started: processes that it recorded, by id and start time, and nothing else.
#
#   slurm_down.sh           cancel all jobs of this Slurm, stop its daemons and remove its folder
#   slurm_down.sh DAEMON    stop one of munged, mariadbd, slurmdbd, slurmctld, slurmd (slurm_up.sh starts it again)
#
# GPUSTUDY_SLURM_DIR      folder of the state                                    (default /tmp/gpustudy-slurm)
set -uo pipefail

dir=${GPUSTUDY_SLURM_DIR:-/tmp/gpustudy-slurm}
code=0

start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }

stop() { # DAEMON
    local file=$dir/run/$1.process pid started
    [ -s "$file" ] || return 0
    read -r pid started <"$file"
    if [ -n "$started" ] && [ "$(start_time "$pid")" = "$started" ]; then
        kill -TERM "$pid"
        for _ in $(seq 100); do
            [ "$(start_time "$pid")" = "$started" ] || break
            sleep 0.2
        done
        if [ "$(start_time "$pid")" = "$started" ]; then
            kill -KILL "$pid"
            sleep 0.5
        fi
        if [ "$(start_time "$pid")" = "$started" ]; then
            echo "slurm_down: $1 (process $pid) does not end" >&2
            code=1
            return
        fi
    fi
    rm -f "$file"
}

cancel_jobs() {
    local jobs
    [ -s "$dir/run/slurmctld.process" ] || return 0
    export SLURM_CONF=$dir/etc/slurm.conf
    jobs=$(timeout 10 squeue --noheader --format=%A 2>/dev/null | sort -u)
    # shellcheck disable=SC2086  # one word per job
    [ -z "$jobs" ] || timeout 20 scancel $jobs
    for _ in $(seq 60); do
        [ -n "$(timeout 10 squeue --noheader 2>/dev/null)" ] || return 0
        sleep 0.25
    done
}

if [ $# -gt 0 ]; then
    stop "$1"
    exit "$code"
fi
cancel_jobs
for daemon in slurmd slurmctld slurmdbd mariadbd munged; do
    stop "$daemon"
done
# a folder that is not one of slurm_up.sh's is left alone
if [ "$code" = 0 ] && [ -s "$dir/etc/slurm.conf" ] && [ -s "$dir/run/ports" ]; then
    rm -rf "$dir"
fi
exit "$code"
