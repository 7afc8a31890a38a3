# Completes talos-mage in bash. In ~/.bashrc: source <(talos-mage completion bash)
_talos_mage() {
  # bash parts words at ":" and "=", which talos-mage does not.
  local line=${COMP_LINE:0:COMP_POINT} kept found
  local -a typed
  read -ra typed <<<"$line"
  [[ $line != *[[:space:]] ]] || typed+=("")
  kept=${typed[-1]%"${typed[-1]##*[:=]}"}

  COMPREPLY=()
  while IFS=$'\t' read -r found _; do
    [[ $found != *= ]] || compopt -o nospace
    COMPREPLY+=("${found#"$kept"}")
  done < <("$1" __complete "${typed[@]:1}" 2>/dev/null)
}
complete -o default -F _talos_mage talos-mage
