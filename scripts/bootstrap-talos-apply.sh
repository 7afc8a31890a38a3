#!/usr/bin/env bash
#
# Sends every node its machine config.
#
#   bootstrap-talos-apply.sh [OUT_DIR] [sequential|parallel] [-flag=value]...
#
# OUT_DIR holds the machine configs (default: CLUSTERCONFIG_DIR, else the current directory). TALOSCONFIG,
# ROOT_DIR and LOG_LEVEL mean what they always did. Exits 0, or with one of the codes in docs/exit-codes.md.
set -euo pipefail

out_dir=${CLUSTERCONFIG_DIR:-.} mode=sequential
if [[ $# -gt 0 && $1 != -* ]]; then out_dir=$1 && shift; fi
if [[ $# -gt 0 && $1 != -* ]]; then mode=$1 && shift; fi
case $mode in
  sequential) target=applySequential ;;
  parallel) target=applyParallel ;;
  *) echo "bootstrap-talos-apply.sh: the mode is sequential or parallel, not \"$mode\"" >&2 && exit 2 ;;
esac
CLUSTERCONFIG_DIR=$(cd -- "$out_dir" 2>/dev/null && pwd) ||
  { echo "bootstrap-talos-apply.sh: $out_dir is not a directory: config:generate makes it" >&2 && exit 2; }
export CLUSTERCONFIG_DIR

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
for program in "${TALOS_MAGE:-talos-mage}" "$here/lib/talos-mage.sh"; do
  if command -v "$program" >/dev/null; then exec "$program" "$target" "$@"; fi
done
echo "talos-mage was not found: put it on the PATH, or set TALOS_MAGE to where it is (https://github.com/talos-mage/talos-mage)" >&2
exit 2
