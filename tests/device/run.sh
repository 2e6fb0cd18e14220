#!/usr/bin/env bash
# Measures default, baseline, opt1, opt2 and opt12 on this machine's GPU: timing, census and hardware counters.
# Needs one CUDA GPU, Python 3.10 or newer with torch and numpy, and Nsight Compute's ncu; no network, no Snakemake.
#
#   tests/device/run.sh --data results/data/mni152-demo-0123456789ab
#   OUT=here PYTHON=/opt/torch/bin/python tests/device/run.sh --help
#
# It leaves at most 8 files in $OUT (default ./device-results): see docs/counters.md.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-python3}
export OUT=${OUT:-device-results}

if ! command -v "$python" >/dev/null; then
    echo "run.sh: '$python' is not on PATH: set PYTHON to an interpreter that has torch." >&2
    exit 2
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "run.sh: '$python' is older than Python 3.10: set PYTHON to a newer one that has torch." >&2
    exit 2
fi
export PYTHONPATH="$root/workflow${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" "$root/tests/device/start.py" --out "$OUT" "$@"
