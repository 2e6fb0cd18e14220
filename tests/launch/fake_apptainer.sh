#!/bin/sh
# Stands in for Apptainer: builds a file of the image format that holds the recipe, and runs commands on this machine.
# FAKE_FAILS: fail at the end of a build, with a half-written image. FAKE_VERSIONS: what the look inside finds.
echo "$@" >>"$FAKE_LOG"
case "$1" in
--version) echo "apptainer version 9.9.9" ;;
--quiet | --silent | --debug) shift ;;
esac
case "$1" in
build)
    shift
    while [ "${1#--}" != "$1" ]; do
        case "$1" in
        --help) echo "      --mksquashfs-args string   extra arguments to pass to mksquashfs" && exit 0 ;;
        --mksquashfs-args) shift ;;
        esac
        shift
    done
    echo "INFO:    building $1" >&2
    cp "$2" "$FAKE_LOG.def"
    if [ -n "$FAKE_FAILS" ]; then
        echo half >"$1"
        echo "FATAL:   no space left" >&2
        exit 255
    fi
    python3 -m tests.launch.sif_bytes "$2" "$1"
    ;;
exec) echo "$FAKE_VERSIONS" ;;
esac
