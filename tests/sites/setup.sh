#!/usr/bin/env bash
# What 'make test-sites' needs on a bare Debian, as root: a browser. Elsewhere the tests say what is missing and skip.
set -euo pipefail

if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "tests/sites: no chromium with chromedriver here and no right to install it; browser tests will skip." >&2
    exit 0
fi
echo "tests/sites: installing chromium ..." >&2
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver fonts-dejavu-core \
    >/dev/null
