#!/usr/bin/env bash
# A real Apptainer on Debian 12, as root: a second call finds it and does nothing.
#
# Debian 12 has no package of it. Debian's unstable release has, built against a newer C library: its binaries are put
# where they expect to be and led, by patchelf, to that library in a folder of their own. All else stays Debian 12's.
set -euo pipefail

PREFIX=${GPUSTUDY_APPTAINER_PREFIX:-/opt/gpustudy-apptainer}
SUITE=sid
FETCHED="apptainer libc6 libseccomp2 libsqlite3-0"
HELPERS="ca-certificates debootstrap fuse2fs fuse-overlayfs fuse3 gocryptfs patchelf squashfs-tools squashfuse uidmap"
LIBRARIES=/usr/lib/x86_64-linux-gnu
MAPPED_IDS=65536

fail() {
    echo "apptainer_up: $*" >&2
    exit 1
}

# The mirror that this machine's apt uses already, in either form of apt's sources.
debian_mirror() {
    cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
        grep -v '^[[:space:]]*#' | grep -oE 'https?://[^ ]+/debian/?( |$)' | head -n 1 | tr -d ' '
}

install_helpers() {
    local missing=() name
    for name in $HELPERS; do
        dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
    done
    [ ${#missing[@]} = 0 ] && return
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        -o DPkg::Lock::Timeout=300 "${missing[@]}" >"$PREFIX/apt.log" 2>&1 || fail "apt failed: see $PREFIX/apt.log"
}

# With an apt state of its own: the machine's lists never see the other release.
fetch_packages() {
    local state="$PREFIX/apt" options archive
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/debs"
    : >"$state/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $1 $SUITE main" >"$state/sources.list"
    # A mirror that stands still has an index past its date.
    options=(-o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State=$state"
        -o "Dir::State::lists=$state/lists" -o "Dir::State::status=$state/status" -o "Dir::Cache=$state/cache"
        -o Acquire::Check-Valid-Until=false -o Acquire::Languages=none -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update -qq
    # shellcheck disable=SC2086  # one word per package
    (cd "$state/debs" && apt-get "${options[@]}" download -qq $FETCHED >/dev/null)
    for archive in "$state"/debs/*.deb; do
        dpkg-deb -x "$archive" "$PREFIX/root"
    done
    rm -rf "$state"
}

# The binary must be /usr/bin/apptainer: it finds its configuration relative to itself.
put_in_place() {
    local own="$PREFIX/root$LIBRARIES" loader binary
    loader="$own/ld-linux-x86-64.so.2"
    [ -e "$loader" ] || loader="$PREFIX/root/usr/lib64/ld-linux-x86-64.so.2"
    [ -e "$loader" ] || fail "the fetched C library has no loader below $PREFIX/root"
    [ -d /etc/apptainer ] || cp -a "$PREFIX/root/etc/apptainer" /etc/apptainer
    mkdir -p /var/lib/apptainer/mnt/session /var/lib/apptainer/mnt/source
    rm -rf "$LIBRARIES/apptainer"
    cp -a "$own/apptainer" "$LIBRARIES/apptainer"
    install -m 755 "$PREFIX/root/usr/bin/apptainer" /usr/bin/apptainer
    for binary in /usr/bin/apptainer "$LIBRARIES/apptainer/bin/starter"; do
        patchelf --set-interpreter "$loader" --set-rpath "$own" --force-rpath "$binary"
    done
}

# Where root lacks a capability (most virtual machines of CI), Apptainer asks for more than there is. Inside a user
# namespace with all ids mapped to themselves root has them all, and files keep their owners.
write_front() {
    local file
    cat >/usr/local/bin/apptainer <<FRONT
#!/bin/sh
if [ "\$(id -u)" = 0 ]; then
    full=\$(printf '%016x' \$(( (1 << (\$(cat /proc/sys/kernel/cap_last_cap) + 1)) - 1 )))
    if [ "\$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)" != "\$full" ]; then
        exec unshare -U --map-users=0,0,$MAPPED_IDS --map-groups=0,0,$MAPPED_IDS --setuid 0 --setgid 0 \\
            /usr/bin/apptainer "\$@"
    fi
fi
exec /usr/bin/apptainer "\$@"
FRONT
    chmod 755 /usr/local/bin/apptainer
    ln -sfn apptainer /usr/local/bin/singularity # the name that spython calls
    for file in /etc/subuid /etc/subgid; do
        grep -qs "^root:0:$MAPPED_IDS" $file || echo "root:0:$MAPPED_IDS" >>$file
    done
    if [ -c /dev/fuse ]; then
        chmod 666 /dev/fuse # users other than root mount images through it
    fi
}

if /usr/local/bin/apptainer --version >/dev/null 2>&1; then
    [ ! -c /dev/fuse ] || chmod 666 /dev/fuse # lost with each start of the machine
    exit 0
fi
[ "$(id -u)" = 0 ] || fail "only root can install Apptainer: run as root, or install it yourself"
grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release || fail "this is no Debian 12: install Apptainer yourself"
mirror=${GPUSTUDY_DEBIAN_MIRROR:-$(debian_mirror || true)}
[ -n "$mirror" ] || fail "apt's sources name no Debian mirror: set GPUSTUDY_DEBIAN_MIRROR"
mkdir -p "$PREFIX"
exec 9>"$PREFIX/lock"
flock 9 # two test runs may start side by side
echo "apptainer_up: installing Apptainer ..." >&2
install_helpers
fetch_packages "$mirror"
put_in_place
write_front
/usr/local/bin/apptainer --version >&2
