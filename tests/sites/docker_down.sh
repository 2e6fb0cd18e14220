#!/usr/bin/env bash
# Ends the daemon that docker_up.sh started, by its recorded pid; its images stay for the next time.
set -euo pipefail

STATE=${GPUSTUDY_DOCKER_STATE:-/var/tmp/gpustudy-docker}
WAIT_S=30

[ -f "$STATE/started.pid" ] || exit 0
pid=$(cat "$STATE/started.pid")
# A pid may have been given to another program since.
if grep -qs dockerd "/proc/$pid/cmdline"; then
    kill "$pid"
    for _ in $(seq $((WAIT_S * 5))); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.2
    done
    if kill -0 "$pid" 2>/dev/null; then
        echo "docker_down: the daemon (process $pid) did not end in $WAIT_S s" >&2
        exit 1
    fi
fi
rm -f "$STATE/started.pid"
