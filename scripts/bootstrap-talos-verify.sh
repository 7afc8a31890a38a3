#!/usr/bin/env bash
#
# Waits until every node has left maintenance mode and runs the config it was sent. Takes no arguments;
# TALOSCONFIG, ROOT_DIR and LOG_LEVEL mean what they always did. Exits 0, or with one of the codes in
# docs/exit-codes.md.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
for program in "${TALOS_MAGE:-talos-mage}" "$here/lib/talos-mage.sh"; do
  if command -v "$program" >/dev/null; then exec "$program" verify "$@"; fi
done
echo "talos-mage was not found: put it on the PATH, or set TALOS_MAGE to where it is (https://github.com/talos-mage/talos-mage)" >&2
exit 2
