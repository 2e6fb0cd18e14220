#!/usr/bin/env bash
# A real Docker daemon of Debian's docker.io, as root, on a socket of its own: nothing else on this machine sees it.
# Prints the value for DOCKER_HOST. docker_down.sh ends it by its recorded pid. A second call finds it running.
set -euo pipefail

STATE=${GPUSTUDY_DOCKER_STATE:-/var/tmp/gpustudy-docker}
SOCKET="$STATE/docker.sock"
WAIT_S=60

fail() {
    echo "docker_up: $*" >&2
    exit 1
}

# /usr/bin/docker by name: another client may stand before it on PATH.
answers() {
    /usr/bin/docker --host "unix://$SOCKET" version >/dev/null 2>&1
}

[ "$(id -u)" = 0 ] || fail "only root can start a Docker daemon: run as root, or set DOCKER_HOST to yours"
mkdir -p "$STATE"
exec 9>"$STATE/lock"
flock 9 # two test runs may start side by side
if ! [ -x /usr/sbin/dockerd ]; then
    command -v apt-get >/dev/null || fail "there is no apt-get: install Docker yourself"
    echo "docker_up: installing docker.io ..." >&2
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        -o DPkg::Lock::Timeout=300 docker.io >"$STATE/apt.log" 2>&1 || fail "apt failed: see $STATE/apt.log"
fi
if ! answers; then
    # Neither bridge nor packet filter: containers of the tests have no network. cgroupfs: there may be no systemd.
    # 9>&-: the daemon must not keep the lock.
    nohup setsid /usr/sbin/dockerd --host "unix://$SOCKET" --data-root "$STATE/data" --exec-root "$STATE/exec" \
        --pidfile "$STATE/docker.pid" --bridge=none --iptables=false --ip6tables=false \
        --exec-opt native.cgroupdriver=cgroupfs >"$STATE/dockerd.log" 2>&1 9>&- </dev/null &
    echo $! >"$STATE/started.pid"
    for _ in $(seq $((WAIT_S * 5))); do
        answers && break
        kill -0 "$(cat "$STATE/started.pid")" 2>/dev/null || fail "the daemon ended: see $STATE/dockerd.log"
        sleep 0.2
    done
    answers || fail "the daemon did not answer in $WAIT_S s: see $STATE/dockerd.log"
fi
echo "unix://$SOCKET"
