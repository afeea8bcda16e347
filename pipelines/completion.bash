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
_pipelines_python=$_pipelines_root/.venv/bin/python
[ -x "$_pipelines_python" ] || _pipelines_python=python3

# Call argcomplete by its own protocol; unlike its registration, this sees through `accelerate launch`.
_pipelines() {
    local IFS=$'\013' line=${COMP_LINE:0:$COMP_POINT} script words
    case $line in
        *pipelines/*.py\ *) words=${line#*pipelines/} script=pipelines/${words%%.py *}.py ;;
        *-m\ exporters\ * | *-m\ pipelines\ export\ * | five-workloads\ export\ *) words=${line#*export} script=exporters/__main__.py ;;
        *-m\ pipelines\ * | five-workloads\ *) words=${line#*pipelines } words=${words#five-workloads } script=pipelines/${words%% *}.py ;;
        *) return ;;
    esac
    script=$_pipelines_root/$script words=${words#* }
    [ -f "$script" ] && [ "${script##*/}" != doctor.py ] || return  # which takes no words, and would begin
    COMPREPLY=($(PYTHONPATH=$_pipelines_root COMP_LINE="command $words" COMP_POINT=$((8 + ${#words})) _ARGCOMPLETE=1 \
        _ARGCOMPLETE_SUPPRESS_SPACE=1 _ARGCOMPLETE_COMP_WORDBREAKS=$COMP_WORDBREAKS \
        "$_pipelines_python" "$script" 8>&1 9> /dev/null 1> /dev/null 2>&1))
    case "${COMPREPLY[*]}" in
        *=) compopt -o nospace 2> /dev/null ;;
    esac
}
complete -o default -F _pipelines five-workloads python python3 accelerate .venv/bin/python .venv/bin/accelerate
