#!/usr/bin/env bash
#
# How nodes were brought up before: a loop over talosctl, with the calls, the polls and the pauses of the scripts that
# talos-mage replaced.
#
#   loop.sh sequential|parallel    with a line "address config" for each node on its input, a control plane first
#
# SCALE divides every pause: it is how many times as fast time passes for the nodes. KUBECONFIG is written.
set -uo pipefail

readonly mode=$1 at_once=2
readonly reachability_retries=3 reachability_delay=2000 initial_delay=3000 max_delay=60000 max_retries=5
readonly settle_delay=2000 check_interval=5000 verification_timeout=300000 again_delay=10000

addresses=() configs=()
while read -r address config; do addresses+=("$address") configs+=("$config"); done

# pause waits for some milliseconds of the nodes' time.
pause() {
  local text
  printf -v text '%d.%03d' $(($1 / SCALE / 1000)) $(($1 / SCALE % 1000))
  sleep "$text"
}

is_reachable() {
  local try
  for ((try = 1; try <= reachability_retries; try++)); do
    talosctl get machinestatus --insecure --nodes "$1" >/dev/null 2>&1 && return
    pause "$reachability_delay"
  done
  return 1
}

# is_in_maintenance takes a query that fails for a node that has left.
is_in_maintenance() {
  local status
  status=$(talosctl get machinestatus --insecure --nodes "$1" --output json 2>/dev/null) && [[ $status == *'"maintenance"'* ]]
}

preflight() {
  is_reachable "$1" || echo "$1 is not reachable" >&2
  is_in_maintenance "$1" || echo "$1 is not in maintenance" >&2
  talosctl get disks --insecure --nodes "$1" >/dev/null 2>&1 || echo "$1 tells no disks" >&2
}

apply() {
  local try delay=$initial_delay
  is_reachable "$1" || echo "$1 is not reachable" >&2
  for ((try = 1; try <= max_retries; try++)); do
    if talosctl apply-config --insecure --nodes "$1" --file "$2"; then
      pause "$settle_delay"
      is_in_maintenance "$1" # whatever it says: the config was taken
      return 0
    fi
    pause "$delay"
    delay=$((delay * 2 < max_delay ? delay * 2 : max_delay))
  done
  echo "$1 has no config" >&2
}

verify() {
  local waited
  for ((waited = 0; waited < verification_timeout; waited += check_interval)); do
    is_in_maintenance "$1" || return 0
    pause "$check_interval"
  done
  echo "$1 is stuck in maintenance" >&2
}

for address in "${addresses[@]}"; do preflight "$address"; done

for i in "${!addresses[@]}"; do
  if [[ $mode == sequential ]]; then
    apply "${addresses[i]}" "${configs[i]}"
    continue
  fi
  ((i < at_once)) || wait -n
  apply "${addresses[i]}" "${configs[i]}" &
done
wait

for address in "${addresses[@]}"; do verify "$address"; done

readonly first=${addresses[0]}
until talosctl bootstrap --endpoints "$first" --nodes "$first"; do pause "$again_delay"; done
until talosctl kubeconfig "$KUBECONFIG" --force --endpoints "$first" --nodes "$first"; do pause "$again_delay"; done
