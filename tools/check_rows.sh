# Stages, rows and their sums, for ./check, which sources this file. A stage is a function; inside it `row` runs
# one check and `rows` counts a run of test programs.
# shellcheck shell=bash disable=SC2154,SC2034,SC2030,SC2031

passed=0 failed=0 skipped=0 stage_seconds=
logs=$work
exec 3>&1 # a signal comes while a command's output goes to its log

stage() # NAME FUNCTION
{
    case $1 in
    install | build) ;;
    *"$only"* | "${only#=}") ;;
    *) return ;;
    esac
    local start=$SECONDS before="$passed $failed $skipped"
    echo "== $1"
    stage_name=$1
    "$2"
    local seconds=$((SECONDS - start))
    # shellcheck disable=SC2086
    set -- "$1" $before
    local p=$((passed - $2)) f=$((failed - $3)) s=$((skipped - $4))
    echo "== $1: $p passed, $f failed, $s skipped ($seconds s)"
    [ "$f" = 0 ] || echo "   to repeat only this: ./check${full_option-} --only $1"
    stage_seconds="$stage_seconds $1 $seconds,"
    result="$p $f $s $seconds"
}

# Runs stages that use one core concurrently with those that follow, until `together`.
concurrently() # STAGE FUNCTION [STAGE FUNCTION...]
{
    mkdir -p "$work/concurrent" && rm -f "$work/concurrent/sums"
    (
        trap - INT TERM HUP
        passed=0 failed=0 skipped=0 stage_seconds='' logs=$work/concurrent
        while [ $# -gt 0 ]; do
            stage "$1" "$2"
            shift 2
        done
        echo "$passed $failed $skipped $stage_seconds" >"$logs/sums"
    ) >"$work/concurrent/report" &
    concurrent_stages=$!
}

# Waits for the stages of `concurrently`, prints their lines and adds their counts.
together()
{
    local p=0 f=1 s=0 seconds=''
    wait "$concurrent_stages"
    cat "$work/concurrent/report"
    [ ! -f "$work/concurrent/sums" ] || read -r p f s seconds <"$work/concurrent/sums"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s)) stage_seconds="$stage_seconds${seconds:+ $seconds}"
}

# A command in the background, so that a signal ends it at once.
run() # COMMAND...
{
    "$@" 3>&- &
    wait $!
}

row() # NAME COMMAND...: exit status 0 passes, 77 skips, else fails with the end of its output
{
    local name=$1 log=$logs/row.log code start=$SECONDS took=
    shift
    run "$@" >"$log" 2>&1 </dev/null
    code=$?
    [ $((SECONDS - start)) -lt 3 ] || took=" ($((SECONDS - start)) s)"
    if [ $code = 0 ]; then
        passed=$((passed + 1))
        echo "  ok       $name$took"
    elif [ $code = 77 ]; then
        skip "$name" "$(tail -1 "$log")"
    else
        failed=$((failed + 1))
        echo "  FAILED   $name (exit status $code)"
        tail -40 "$log" | sed 's/^/    /'
        [ "$(wc -l <"$log")" -le 40 ] || { cp "$log" "$logs/failed.$failed.log" && echo "   all of it: $logs/failed.$failed.log"; }
    fi
    return $code
}

skip() # NAME WHY
{
    skipped=$((skipped + 1))
    echo "  skipped  $1: $2"
}

# With $rebuild set, if only to nothing, meson first builds what the chosen tests run.
rows() # NAME BUILD-DIRECTORY [meson test arguments]: the rows of the test programs
{
    local name=$1 dir=$2 log=$logs/tests.log p f s
    shift 2
    rm -f "$dir"/meson-logs/testlog*.json
    run meson test -C "$dir" ${rebuild---no-rebuild} --print-errorlogs "$@" >"$log" 2>&1 </dev/null
    local code=$? json
    json=$(ls -t "$dir"/meson-logs/testlog*.json 2>/dev/null | head -1)
    if [ -z "$json" ]; then
        failed=$((failed + 1))
        echo "  FAILED   $name: no test ran"
        tail -20 "$log"
        return 1
    fi
    read -r p f s <<<"$(python3 tools/count_rows "$json" --seconds "$work/suites")"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    if [ $code != 0 ] || [ "$f" != 0 ]; then
        if [ "$f" = 0 ]; then
            failed=$((failed + 1))
            tail -120 "$log" | sed 's/^/    /'
        fi
        echo "   to repeat one: meson test -C ${dir#"$root/"} NAME"
    fi
    echo "  $name: $p passed, $f failed, $s skipped"
    [ $code = 0 ] && [ "$f" = 0 ]
}

counted() # NAME COMMAND...: a program that ends with `N passed, N failed[, N skipped]`
{
    local name=$1 log=$logs/counted.log code line p f s
    shift
    run "$@" >"$log" 2>&1 </dev/null
    code=$?
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -1)
    if [ $code = 77 ]; then
        skip "$name" "$(tail -1 "$log")"
        return
    fi
    read -r p f s <<<"$(echo "$line" | tr -cd '0-9 ' | tr -s ' ')"
    p=${p:-0} f=${f:-0} s=${s:-0}
    if [ $code != 0 ] && [ "$f" = 0 ] || [ $((p + f + s)) = 0 ]; then
        f=$((f + 1))
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    [ "$f" = 0 ] || { grep '^FAIL' "$log"; tail -40 "$log"; } | sed 's/^/    /'
    echo "  $name: $p passed, $f failed, $s skipped"
}

rejects() # COMMAND...
{
    ! "$@"
}

# Each check has a control that it must reject: its self-test.
checked() # SENTENCE SCRIPT [ARGUMENTS]
{
    local sentence=$1 script=$2
    shift 2
    row "$sentence" "$script" "$@"
    row "  and a violation is rejected" "$script" --self-test
}

descendants() # PID...
{
    local pid
    for pid in "$@"; do
        # shellcheck disable=SC2046
        descendants $(ps -o pid= --ppid "$pid")
        [ "$pid" = $$ ] || echo "$pid"
    done
}

# Kills all descendants: meson starts tests in separate sessions, which a terminal's signal does not reach.
stop() # EXIT-STATUS
{
    local all
    trap - INT TERM HUP
    all=$(descendants $$)
    # shellcheck disable=SC2086
    kill $all 2>/dev/null
    sleep 1
    # shellcheck disable=SC2086
    kill -KILL $all 2>/dev/null
    [ -z "${memory_folder-}" ] || rm -rf "$memory_folder"
    echo "interrupted in ${stage_name-}: nothing is left running; a new ./check reuses the build" >&3
    exit "$1"
}

say_seconds()
{
    echo "seconds:${stage_seconds%,}; $SECONDS in all"
    [ -s "$work/suites" ] || return
    echo "the twenty slowest test programs:"
    sort -rn "$work/suites" | head -20
}
