# Completes talos-mage in fish: talos-mage completion fish >~/.config/fish/completions/talos-mage.fish
function __talos_mage_complete
    set -l typed (commandline -opc)
    set -l found ($typed[1] __complete $typed[2..-1] (commandline -ct) 2>/dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c talos-mage -f -a '(__talos_mage_complete)'
