#!/bin/bash
# lather completion: the words that a shell offers. Usage: test_completion.sh LATHER TRAIN_RESNET50
set -u # not -e: --help of an unfinished word fails
source <("$1" completion bash)

offers() { # WANTED WORD...: WANTED is offered for the last word, and every offer begins with that word
    local wanted=$1 offer found=
    COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2)) COMPREPLY=()
    _lather
    for offer in "${COMPREPLY[@]}"; do
        [[ $offer == "${COMP_WORDS[-1]}"* ]] || { echo "${*:2}: offers $offer"; return 1; }
        [[ $offer != "$wanted" ]] || found=yes
    done
    [[ $found ]] || { echo "${*:2}: $wanted is missing in ${COMPREPLY[*]}"; return 1; }
}
offers --batch-size "$2" --ba || exit 1
offers --shuffle "$2" --data x --sh || exit 1
offers bf16 "$2" --amp b || exit 1
offers wsd "$2" --data x --sched w || exit 1
offers launch "$1" l || exit 1
offers --dry-run "$1" launch --d || exit 1
! offers --bs "$2" --ba >/dev/null || { echo "control: --bs was found"; exit 1; }
! "$1" completion fish 2>/dev/null || { echo "fish was accepted"; exit 1; }
[[ $("$1" completion zsh) == *bashcompinit* ]]
