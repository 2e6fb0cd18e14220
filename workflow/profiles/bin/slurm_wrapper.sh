# Read by the wrappers beside this file. They stand in front of Slurm's own programs while Snakemake runs here, and mend
# from outside what snakemake-executor-plugin-slurm 2.8.0 and its jobstep 0.6.1 make of Slurm's answers: see README.md.

# The plugin waits 60 s for the answer to one query: a wrapper that rides out an outage ends before.
GPUSTUDY_QUERY_LIMIT_S=${GPUSTUDY_QUERY_LIMIT_S:-45}
# One call of a program of Slurm's own that hangs is ended, and made again.
GPUSTUDY_CALL_LIMIT_S=${GPUSTUDY_CALL_LIMIT_S:-20}
# Between two tries.
GPUSTUDY_PAUSE_S=${GPUSTUDY_PAUSE_S:-3}

# The plugin drops SLURM_CONF in jobs; where it alone says which Slurm this is, nothing is found without it.
if [ -n "${SLURM_CONF:-}" ]; then
    export GPUSTUDY_SLURM_CONF=$SLURM_CONF
elif [ -n "${GPUSTUDY_SLURM_CONF:-}" ]; then
    export SLURM_CONF=$GPUSTUDY_SLURM_CONF
fi

# File of this run with its jobs, one a line: id, cell, log. The run makes it and takes it away when it ends.
record=${GPUSTUDY_SLURM_JOBS:-}

# tell TEXT: a sentence for the person who looks at the run; the run prints what is added to this file
tell() {
    [ ! -e "${record:-/nowhere}" ] || printf '%s\n' "$1" >>"$record.notes"
}

# note_ends: read 'ID|STATE' lines, pass them on, and tell once how each job ended that did not end well
note_ends() {
    local id state cell log
    while IFS='|' read -r id state; do
        printf '%s|%s\n' "$id" "$state"
        case $state in
            CANCELLED* | DEADLINE | FAILED | NODE_FAIL | OUT_OF_MEMORY | PREEMPTED | TIMEOUT | BOOT_FAIL) ;;
            *) continue ;;
        esac
        [ -n "$record" ] && ! grep -qs "^Slurm job $id " "$record.notes" || continue
        # a job that is not in the record was refused at submission
        read -r _ cell log < <(grep -s "^$id " "$record") && tell "Slurm job $id ($cell) ended: $state; its log: $log"
    done
}

# plain_states: 'CANCELLED by 1000' and PREEMPTED leave the plugin waiting for ever. Jobs are never requeued (see sbatch),
# so a preempted one has ended; the plugin knows no such end, and FAILED is the state that it tries again.
plain_states() { sed -e 's/|CANCELLED by [0-9]*$/|CANCELLED/' -e 's/|PREEMPTED$/|FAILED/'; }

# find_real NAME: the first NAME on PATH that is no wrapper, of this checkout or of another
find_real() {
    local candidate
    while IFS= read -r candidate; do
        if [ ! -e "$(dirname "$(readlink -f "$candidate")")/slurm_wrapper.sh" ]; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done < <(type -aP "$1")
    echo "$1: no $1 of Slurm's own on PATH: load the site's Slurm module, then run again." >&2
    return 127
}

# ask PROGRAM ARGUMENT...: its output once it succeeds; its last error and code when it does not within the limit
ask() {
    local deadline=$((SECONDS + GPUSTUDY_QUERY_LIMIT_S)) output code
    while :; do
        output=$(timeout "$GPUSTUDY_CALL_LIMIT_S" "$@" 2>"$errors")
        code=$?
        if [ "$code" = 0 ] || [ $((SECONDS + GPUSTUDY_PAUSE_S)) -ge "$deadline" ]; then
            break
        fi
        sleep "$GPUSTUDY_PAUSE_S"
    done
    cat "$errors" >&2
    [ -z "$output" ] || printf '%s\n' "$output"
    return "$code"
}

# pass_on PROGRAM ARGUMENT...: become that program
pass_on() {
    rm -f "$errors"
    exec "$@"
}

errors=$(mktemp "${TMPDIR:-/tmp}/gpustudy-slurm.XXXXXX")
trap 'rm -f "$errors"' EXIT
