# gpu_check: runs failed parts again with other settings, to narrow down the cause. shellcheck shell=bash

WAYS=("as it was" "LATHER_SYNC=1" "--fused off" "--no-graph" "--deterministic" "memcheck")
MOST_AGAIN=6     # commands of a stage: one fault often has many rows
LONGEST_AGAIN=60 # seconds of each

# TITLE COMMAND...: schedules a failed part to be run again at the end of the stage.
remember()
{
    again+=("$(printf '%q ' "$stage" "$@")")
}

# COMMAND...: prints the program that the command runs: "train" for functions of this script that train, "spans" and "kernels"
# for those that profile a step, nothing if no other settings apply.
program_of()
{
    case $(basename -- "$1") in
    logged | of_program) shift 2 && program_of "$@" ;;
    env | [A-Z]*=*) shift && program_of "$@" ;;
    conform | conform_step | gpu_ranks) basename "$1" ;;
    bench) [ "${2-}" = train ] && echo bench || echo measure ;;
    by_operation | spans_of) echo spans ;;
    by_kernel) echo kernels ;;
    train | learns | recorded_is_eager | loss_falls | steps_of | reruns_are_equal | rank_is_none | fused_is_unfused | crosses) echo train ;;
    esac
}

# WAY PROGRAM: succeeds if the setting applies to the program. Spans always use LATHER_SYNC=1, profiles are never captured, and
# only one tool can run at a time.
has_way()
{
    case $1.$2 in
    LATHER_SYNC=1.spans | memcheck.kernels) return 1 ;;
    memcheck.*) [ -n "$(find_sanitizer)" ] ;;
    --no-graph.bench | --no-graph.train) ;;
    --no-graph.* | --*.conform_step | --*.gpu_ranks | --*.measure) return 1 ;;
    esac
}

# WAY PROGRAM COMMAND...: runs the command with that setting.
in_way()
{
    local way=$1 program=$2 more=() under=()
    shift 2
    case $way in
    LATHER_SYNC=1) local -x LATHER_SYNC=1 ;;
    --*) read -ra more <<<"$way" ;;
    memcheck)
        local -x LATHER_POOL=off
        under=("$(find_sanitizer)" --tool memcheck --target-processes all --error-exitcode 9)
        ;;
    esac
    case $program in
    train | spans | kernels) GPU_CHECK_MORE="${more[*]}" GPU_CHECK_UNDER="${under[*]}" "$@" ;;
    *) "${under[@]}" "$@" "${more[@]}" ;;
    esac
}

# WAY LOG PROGRAM COMMAND...: runs it with a time limit; prints ok, or how it failed.
verdict()
{
    local way=$1 said=$2 limit=$LONGEST_AGAIN
    shift 2
    [ "$(left)" -ge "$limit" ] || limit=$(left)
    [ "$(left)" -ge 5 ] || {
        echo "no time"
        return
    }
    GPU_CHECK_WAY=$way timeout -k 5 "$limit" "$BASH" "$self" function "$dir" in_way "$way" "$@" >"$said" 2>&1 </dev/null
    case $? in
    0) echo ok ;;
    124 | 137) echo "no end in $limit s" ;;
    *) echo "fails" ;;
    esac
}

# TITLE COMMAND...: adds a row with a column for each setting. Its title differs from the part's, whose result is kept.
each_way()
{
    local title=$1 program way said cells='' pass='' result sum
    shift
    program=$(program_of "$@")
    [ "${1##*/}" != logged ] || shift 2
    for way in "${WAYS[@]}"; do
        result=-
        said=$dir/logs/$stage-again-$(name_of "$title $way").log
        if has_way "$way" "$program"; then
            result=$(verdict "$way" "$said" "$program" "$@")
            [ "$result" != ok ] || pass="$pass, $way"
        fi
        cells="$cells${cells:+ | }$result"
        [ "$way" != memcheck ] || grep -h '^=========' "$said" 2>/dev/null | head -40 | say "again: $title"
    done
    sum="passes: ${pass#, }"
    [ -n "$pass" ] || sum="fails in every way"
    row "again: $title" "" "" "$sum | $cells"
}

# LOG: prints the first three failed rows of conform or conform_step, one for each entry and dtype.
failed_rows()
{
    sed -n 's/^FAIL \([^:]*\):.*/\1/p' "$1" 2>/dev/null | awk '!seen[$1, $2]++' | head -3
}

# Runs the scheduled parts again, while time is left.
run_again()
{
    local log='' line command only count=0 shown=''
    local section stage
    for line in "${again[@]}"; do
        eval "command=($line)"
        stage=${command[0]} command=("${command[@]:1}")
        [ -n "$(program_of "${command[@]:1}")" ] || continue
        [ "$shown" = "$stage" ] || table "failed parts, run again" "$(printf ' | %s' "passes with" "${WAYS[@]}" | cut -c 4-)"
        shown=$stage
        while IFS= read -r only; do
            [ $((count += 1)) -le $MOST_AGAIN ] && [ "$(left)" -ge 10 ] || return 0
            if [ -n "$only" ]; then
                each_way "$only" "${command[@]:1}" --only "$only"
            else
                each_way "${command[@]}"
            fi
        done < <(rows_to_repeat "${command[@]}")
    done
}

# TITLE COMMAND...: prints the failed rows, or an empty line to repeat the whole command.
rows_to_repeat()
{
    local title=$1 rows=''
    shift
    case $(program_of "$@") in
    conform | conform_step) rows=$(failed_rows "$dir/logs/$stage-$(name_of "$title").log") ;;
    esac
    printf '%s\n' "$rows"
}
