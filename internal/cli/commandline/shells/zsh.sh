#compdef talos-mage
# Completes talos-mage in zsh. In ~/.zshrc, after compinit: source <(talos-mage completion zsh)
_talos_mage() {
  local line found
  local -a whole begun shown

  for line in "${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}"; do
    found=${line%%$'\t'*}
    if [[ $found == *= ]]; then
      begun+=("$found")
    elif [[ -n $found ]]; then
      whole+=("$found")
      shown+=("${line/$'\t'/  }")
    fi
  done

  if (( $#whole + $#begun == 0 )); then
    _files
    return
  fi

  compadd -S '' -a begun
  compadd -l -d shown -a whole
}
compdef _talos_mage talos-mage
