# Completion of kedge for fish:  kedge completion fish | source
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
