# Completes workloads, runs, keys and their values for the commands of this project, in bash and zsh:
#
#     source pipelines/completion.bash
if [ -n "$ZSH_VERSION" ]; then
    autoload -U +X compinit && compinit
    autoload -U +X bashcompinit && bashcompinit
    _pipelines_root=${${(%):-%x}:A:h:h}
else
    _pipelines_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
fi

_pipelines() {
    local line=${COMP_LINE:0:$COMP_POINT} word
    case $line in
        *pipelines/*.py\ * | *-m\ exporters\ *) ;;
        *) return ;;
    esac
    COMPREPLY=($(PYTHONPATH=$_pipelines_root "$_pipelines_root/.venv/bin/python" -m pipelines.completions "$line" 2> /dev/null))
    word=${line##* }
    # bash takes what stands behind = for a word of its own
    case $COMP_WORDBREAKS$word in
        *=*=*) COMPREPLY=("${COMPREPLY[@]#*=}") ;;
    esac
    case "${COMPREPLY[*]}" in
        *=) compopt -o nospace 2> /dev/null ;;
    esac
}
complete -o default -F _pipelines python python3 accelerate .venv/bin/python .venv/bin/accelerate
