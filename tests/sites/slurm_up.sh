#!/usr/bin/env bash
# A real Slurm of one node for the site tests, on a bare Debian 12, as root, without systemd:
# munged, MariaDB, slurmdbd, slurmctld and slurmd, all of them with their state in one folder of their own.
# A second call starts only what is not running. slurm_down.sh stops what this script started, and nothing else.
#
#   partition    emulates                                            asks for
#   gpu-shared   SDSC Expanse, one GPU of a node (the default)        --gpus, --mem, -t up to 48 h
#   gpu-debug    the same, up to 30 minutes
#   gpu-preempt  the same, preempted by the two above
#   h100         TACC Stampede3: whole nodes                          -N and -t; refuses --mem, --gres and --gpus*
#
# The node claims four V100 and the cores and memory of both sites' nodes; nothing confines a job to its share.
# Nothing below /etc is written: clients find this Slurm by SLURM_CONF (source the file 'env' in the folder).
#
# GPUSTUDY_SLURM_DIR      folder of the state                                    (default /tmp/gpustudy-slurm)
# GPUSTUDY_SLURM_ACCOUNT  the one account, of which root is a member             (default abc123)
set -euo pipefail

dir=${GPUSTUDY_SLURM_DIR:-/tmp/gpustudy-slurm}
account=${GPUSTUDY_SLURM_ACCOUNT:-abc123}
cluster=gpustudy
node=$(hostname -s)
packages=(slurmctld slurmd slurm-client slurmdbd munge mariadb-server)

say() { printf 'slurm_up: %s\n' "$*" >&2; }
fail() {
    say "$1"
    shift
    for log in "$@"; do
        [ ! -s "$log" ] || { say "the end of $log:" && tail -n 15 "$log" >&2; }
    done
    exit 1
}
wait_for() { # SECONDS COMMAND...: until the command succeeds
    local tries=$(($1 * 5))
    shift
    for ((; tries > 0; tries--)); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.2
    done
    return 1
}
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# A process is told by its id and its start time (field 22 of /proc/PID/stat): an id alone is given anew some day.
start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }
record() { printf '%s %s\n' "$2" "$(start_time "$2")" >"$dir/run/$1.process"; }
is_running() {
    local pid started
    [ -s "$dir/run/$1.process" ] || return 1
    read -r pid started <"$dir/run/$1.process"
    [ -n "$started" ] && [ "$(start_time "$pid")" = "$started" ]
}

install_packages() {
    local missing=() package guard=/usr/sbin/policy-rc.d made=0
    for package in "${packages[@]}"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    say "installing ${missing[*]} ..."
    # 101: no package may start a daemon of its own
    if [ ! -e "$guard" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$guard"
        chmod 755 "$guard"
        made=1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 \
        "${missing[@]}" >"$dir/log/apt.log" 2>&1 || fail "apt-get install failed" "$dir/log/apt.log"
    [ "$made" = 0 ] || rm -f "$guard"
}

make_folders() {
    mkdir -p "$dir"/{etc,run,log,munge,db,ctld,slurmd,dev,tmp}
    chmod 755 "$dir" "$dir"/*
    chmod 1777 "$dir/tmp"
    export TMPDIR=$dir/tmp # the caller's may be closed to MariaDB's user
}

choose_ports() { # slurmctld, slurmd, slurmdbd, MariaDB: four in a row that are free, kept for the next call
    local base
    if [ ! -s "$dir/run/ports" ]; then
        for base in $(seq 17817 20 18817); do
            if ! answers "$base" && ! answers $((base + 1)) && ! answers $((base + 2)) && ! answers $((base + 3)); then
                echo "$base" >"$dir/run/ports"
                break
            fi
        done
    fi
    port=$(cat "$dir/run/ports")
}

write_configuration() {
    local etc=$dir/etc devices
    [ -s "$etc/munge.key" ] || head -c 1024 /dev/urandom >"$etc/munge.key"
    [ -s "$etc/password" ] || (umask 077 && head -c 18 /dev/urandom | base64 | tr -dc A-Za-z0-9 >"$etc/password")
    chown munge: "$etc/munge.key" "$dir/munge"
    chown mysql: "$dir/db"
    chmod 400 "$etc/munge.key"
    # slurmd insists on device nodes: four more of /dev/null stand for the GPUs
    for devices in 0 1 2 3; do
        [ -c "$dir/dev/nvidia$devices" ] || mknod -m 666 "$dir/dev/nvidia$devices" c 1 3
    done

    cat >"$etc/slurm.conf" <<CONF
ClusterName=$cluster
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CryptoType=crypto/munge
StateSaveLocation=$dir/ctld
SlurmdSpoolDir=$dir/slurmd
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=5
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=5,sched_interval=5
# the node claims more than this machine has
SlurmdParameters=config_overrides
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
# as sites have it: a job of a failed node is queued again, unless it asked for --no-requeue
JobRequeue=1
# a request that no node can meet is accepted and waits for ever, as at sites without limits
EnforcePartLimits=NO
ReturnToService=2
MinJobAge=300
KillWait=5
MpiDefault=none
JobSubmitPlugins=lua
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((port + 2))
AccountingStoragePass=$dir/munge/socket
AccountingStorageTRES=gres/gpu,gres/gpu:v100
AccountingStorageEnforce=associations,limits,qos
NodeName=$node NodeAddr=127.0.0.1 CPUs=96 RealMemory=1000000 Gres=gpu:v100:4 State=UNKNOWN
PartitionName=gpu-shared Nodes=$node Default=YES MaxTime=2-00:00:00 DefaultTime=30 DefMemPerCPU=1000 PriorityTier=10 PreemptMode=off
PartitionName=gpu-debug Nodes=$node MaxTime=00:30:00 DefaultTime=10 DefMemPerCPU=1000 PriorityTier=10 PreemptMode=off
PartitionName=gpu-preempt Nodes=$node MaxTime=7-00:00:00 DefaultTime=30 DefMemPerCPU=1000 PriorityTier=1 PreemptMode=REQUEUE
PartitionName=h100 Nodes=$node MaxTime=2-00:00:00 MaxNodes=4 DefaultTime=10 OverSubscribe=EXCLUSIVE PriorityTier=10 PreemptMode=off
CONF
    printf 'NodeName=%s Name=gpu Type=v100 File=%s/dev/nvidia[0-3]\n' "$node" "$dir" >"$etc/gres.conf"
    echo 'CgroupPlugin=cgroup/v1' >"$etc/cgroup.conf"
    # TACC's rules as its user guide states them: --mem, --gres and --gpus* are refused, -N and -t are asked for
    cat >"$etc/job_submit.lua" <<'LUA'
function slurm_job_submit(job, partitions, user)
  if job.partition ~= "h100" then return slurm.SUCCESS end
  local function refuse(rule)
    slurm.log_user("--> Verifying " .. rule .. "...FAILED")
    return slurm.ERROR
  end
  if job.pn_min_memory ~= nil and job.pn_min_memory ~= slurm.NO_VAL64 then return refuse("no --mem option") end
  for _, request in ipairs({"gres", "tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket"}) do
    if job[request] ~= nil and job[request] ~= "" then return refuse("no --gres or --gpus option") end
  end
  if job.time_limit == slurm.NO_VAL then return refuse("a time limit (-t)") end
  if job.min_nodes == slurm.NO_VAL then return refuse("a number of nodes (-N)") end
  return slurm.SUCCESS
end
function slurm_job_modify(job, change, partitions, user) return slurm.SUCCESS end
LUA
    (umask 077 && cat >"$etc/slurmdbd.conf" <<CONF
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$((port + 2))
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
LogFile=$dir/log/slurmdbd.log
PidFile=$dir/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$((port + 3))
StorageUser=slurm
StoragePass=$(cat "$etc/password")
StorageLoc=slurm_accounting
CONF
    )
    printf 'export SLURM_CONF=%s/slurm.conf\n' "$etc" >"$dir/env"
    export SLURM_CONF=$etc/slurm.conf
}

start_munged() {
    rm -f "$dir/munge/socket"*
    setpriv --reuid munge --regid munge --init-groups munged --socket="$dir/munge/socket" \
        --key-file="$dir/etc/munge.key" --pid-file="$dir/munge/pid" --log-file="$dir/munge/log" \
        --seed-file="$dir/munge/seed"
    wait_for 10 test -s "$dir/munge/pid" || fail "munged does not start" "$dir/munge/log"
    record munged "$(cat "$dir/munge/pid")"
}

start_mariadbd() {
    local socket=$dir/db/socket password
    if [ ! -d "$dir/db/mysql" ]; then
        mariadb-install-db --no-defaults --user=mysql --datadir="$dir/db" --auth-root-authentication-method=socket \
            --skip-test-db >"$dir/log/mariadb-install.log" 2>&1 ||
            fail "mariadb-install-db failed" "$dir/log/mariadb-install.log"
    fi
    setsid mariadbd --no-defaults --user=mysql --datadir="$dir/db" --socket="$socket" --pid-file="$dir/db/pid" \
        --bind-address=127.0.0.1 --port=$((port + 3)) --skip-log-bin --performance-schema=off \
        --innodb-buffer-pool-size=64M --innodb-log-file-size=16M --innodb-lock-wait-timeout=900 \
        >"$dir/log/mariadbd.log" 2>&1 </dev/null &
    record mariadbd $!
    wait_for 40 mariadb-admin --no-defaults --socket="$socket" ping || fail "MariaDB does not start" "$dir/log/mariadbd.log"
    password=$(cat "$dir/etc/password")
    mariadb --no-defaults --socket="$socket" <<SQL
CREATE DATABASE IF NOT EXISTS slurm_accounting;
CREATE USER IF NOT EXISTS 'slurm'@'127.0.0.1' IDENTIFIED BY '$password';
CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED BY '$password';
GRANT ALL ON slurm_accounting.* TO 'slurm'@'127.0.0.1';
GRANT ALL ON slurm_accounting.* TO 'slurm'@'localhost';
SQL
}

start_slurmdbd() {
    setsid slurmdbd -D >"$dir/log/slurmdbd.out" 2>&1 </dev/null &
    record slurmdbd $!
    wait_for 40 answers $((port + 2)) || fail "slurmdbd does not start" "$dir/log/slurmdbd.log" "$dir/log/slurmdbd.out"
    wait_for 20 sacctmgr -n show cluster || fail "slurmdbd does not answer" "$dir/log/slurmdbd.log"
}

add_account() {
    sacctmgr -n show cluster format=cluster%30 | grep -qw "$cluster" || sacctmgr -i add cluster "$cluster" >/dev/null
    sacctmgr -n show account format=account%30 | grep -qw "$account" ||
        sacctmgr -i add account "$account" Description=tests Organization=tests >/dev/null
    sacctmgr -n show assoc user=root account="$account" format=user%20 | grep -qw root ||
        sacctmgr -i add user root account="$account" >/dev/null
}

start_slurmctld() {
    setsid slurmctld -D -i >"$dir/log/slurmctld.out" 2>&1 </dev/null &
    record slurmctld $!
    wait_for 20 scontrol ping || fail "slurmctld does not start" "$dir/log/slurmctld.log" "$dir/log/slurmctld.out"
}

start_slurmd() {
    setsid slurmd -D -N "$node" >"$dir/log/slurmd.out" 2>&1 </dev/null &
    record slurmd $!
}

node_is_up() { sinfo --noheader --format=%T | grep -Eqx '(idle|mixed|allocated|completing)'; }

[ "$(id -u)" = 0 ] || fail "a Slurm of one's own needs root"
command -v apt-get >/dev/null || fail "this script knows Debian only"
make_folders
install_packages
choose_ports
write_configuration
for daemon in munged mariadbd slurmdbd; do
    is_running "$daemon" || "start_$daemon"
done
add_account
for daemon in slurmctld slurmd; do
    is_running "$daemon" || "start_$daemon"
done
if ! wait_for 30 node_is_up; then
    scontrol update nodename="$node" state=resume || true
    wait_for 15 node_is_up || fail "the node does not come up" "$dir/log/slurmd.log" "$dir/log/slurmctld.log"
fi
say "up, $(slurmctld -V), $(sinfo --noheader --format=%P | tr '\n' ' ')in $dir"
