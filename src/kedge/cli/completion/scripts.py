"""The scripts that shells read. Each asks `kedge completion --words` for the words that fit."""

from typing import Final

BASH: Final = r"""# Completion of kedge for bash:  source <(kedge completion bash)
_kedge_complete() {
    local line words
    words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <(kedge completion --words -- "${words[@]}" 2>/dev/null)
    # A word that ends with / or = is continued.
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/=] ]] && compopt -o nospace
    return 0
}
complete -o default -F _kedge_complete kedge
"""

ZSH: Final = r"""#compdef kedge
# Completion of kedge for zsh:  source <(kedge completion zsh)
_kedge() {
    local -a found continued
    found=("${(@f)$(kedge completion --words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=(${found:#})
    if (( ! $#found )); then
        _files
        return
    fi
    continued=(${(M)found:#*[/=]})
    found=(${found:#*[/=]})
    compadd -S '' -- $continued
    compadd -- $found
}
if [[ $funcstack[1] == _kedge ]]; then
    # zsh has loaded this file from $fpath, to complete something.
    _kedge "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit -u; }
    compdef _kedge kedge
fi
"""

FISH: Final = r"""# Completion of kedge for fish:  kedge completion fish | source
function __kedge_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found (kedge completion --words -- $words[2..-1] 2>/dev/null | string match -v '')
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c kedge -f -a '(__kedge_complete)'
"""

SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}
FILES: Final = {
    "bash": "share/bash-completion/completions/kedge",
    "zsh": "share/zsh/site-functions/_kedge",
    "fish": "share/fish/vendor_completions.d/kedge.fish",
}
"""Where shells look for the scripts, below a prefix such as /usr or ~/.local."""
