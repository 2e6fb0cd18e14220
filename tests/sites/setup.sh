#!/usr/bin/env bash
# What 'make test-sites' needs: a browser and Apptainer (on a bare Debian, as root); with GPUSTUDY_OLD_STACK=1 also
# the stack of the paper in .venv-paper, which is a download of 2 GB.
# Where one cannot be had, its tests say what is missing and skip.
set -euo pipefail
cd "$(dirname "$0")/../.."

install_browser() {
    if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then
        return
    fi
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "tests/sites: no chromium with chromedriver here and no right to install it; browser tests will skip." >&2
        return
    fi
    echo "tests/sites: installing chromium ..." >&2
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        chromium chromium-driver fonts-dejavu-core >/dev/null
}

# torch 2.0.1 has wheels up to Python 3.11. Its CUDA build is a download of 2 GB, once; TORCH_INDEX may name an index
# with CPU-only wheels.
install_old_stack() {
    local venv=.venv-paper python
    if [ "$venv/.installed" -nt envs/paper.txt ]; then
        return
    fi
    for python in python3.11 python3.10; do
        if "$python" -c 'import venv, ensurepip' 2>/dev/null; then
            echo "tests/sites: installing envs/paper.txt into $venv (a few minutes, once) ..." >&2
            "$python" -m venv --clear "$venv"
            # shellcheck disable=SC2046  # one word per pin
            "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
                ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -r envs/paper.txt \
                $(grep -E '^(pytest|hypothesis)==' envs/test.txt)
            touch "$venv/.installed"
            return
        fi
    done
    echo "tests/sites: no Python 3.10 or 3.11 here; tests on the paper's stack will skip." >&2
}

install_browser
bash tests/sites/apptainer_up.sh || echo "tests/sites: no Apptainer; tests of containers will skip." >&2
if [ "${GPUSTUDY_OLD_STACK:-0}" = 1 ]; then
    install_old_stack
fi
