#!/usr/bin/env bash
#
# Finds talos-mage and becomes it. In this order: $TALOS_MAGE, talos-mage on the PATH, a binary compiled
# from the module that this script lies in. Copied into another repository it knows the first two alone.
#
#   talos-mage.sh TARGET [-flag=value]...
set -euo pipefail

readonly module=github.com/talos-mage/talos-mage

fail() {
  printf 'talos-mage: %s\n' "$*" >&2
  exit 2
}

# The name of the binary holds a checksum of all it is made from: it is compiled again when a source
# changes, also back to an older one, and two checkouts of different sources never run each other's.
sources_sum() {
  find go.mod go.sum cmd targets internal -type f ! -name '*_test.go' ! -path '*/testdata/*' -print |
    LC_ALL=C sort | xargs cksum | cksum | cut -d ' ' -f 1
}

# A rename at the end keeps several runs of this script out of each other's way.
compile() {
  local binary=$1 work stamp=auto
  command -v go >/dev/null || fail "there is no Go to compile it with: https://go.dev/dl/"
  mkdir -p bin
  find bin -maxdepth 1 -name 'talos-mage-*' -mtime +7 -delete
  work=$(mktemp -d "$PWD/bin/_compile.XXXXXX")
  # shellcheck disable=SC2064 # the path of now, not of then
  trap "rm -rf -- '$work'" EXIT
  printf 'talos-mage: compiling it from %s; the first time takes a minute or two\n' "$PWD" >&2
  # Where git does not answer, as in a folder of another user, Go would end for want of a commit to write down.
  git rev-parse HEAD >/dev/null 2>&1 || stamp=false
  # Settings of the caller's own builds are not meant for this one.
  GOWORK=off GOOS='' GOARCH='' go build -buildvcs="$stamp" -ldflags='-s -w' -o "$work/" ./cmd/talos-mage >&2 ||
    fail "compiling it failed: see above"
  mv -f "$work/talos-mage" "$binary"
  rm -rf -- "$work"
  trap - EXIT
}

# A talos-mage that calls this script again is not the program: the two would go round for ever.
program=
if [[ ${TALOS_MAGE_FINDER:-} != "$$" && ${TALOS_MAGE_FINDER:-} != "$PPID" ]]; then
  if [[ -n ${TALOS_MAGE:-} ]]; then
    program=$(command -v "$TALOS_MAGE") || fail "TALOS_MAGE=$TALOS_MAGE is not a program: correct it or unset it"
  else
    program=$(command -v talos-mage) || true
  fi
fi
if [[ -n $program && ! $program -ef ${BASH_SOURCE[0]} ]]; then
  TALOS_MAGE_FINDER=$$ exec "$program" "$@"
fi

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
if ! grep -qsx "module $module" "$root/go.mod"; then
  fail "not found: git clone https://$module && (cd talos-mage && go build -o /usr/local/bin/ ./cmd/talos-mage), or set TALOS_MAGE to where it is"
fi

binary=$(cd -- "$root" && printf '%s/bin/talos-mage-%s' "$root" "$(sources_sum)")
if [[ ! -x $binary ]]; then
  (cd -- "$root" && compile "$binary")
fi
# Hints name the program as it was called.
exec -a "$0" "$binary" "$@"
