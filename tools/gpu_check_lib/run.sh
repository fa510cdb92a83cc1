# gpu_check run: runs parts with time limits and keeps their results. shellcheck shell=bash
#
# DIR/results has the report's data, a line for each value; later lines replace earlier ones:
#   rows      section STAGE SECTION COLUMNS; row STAGE SECTION TITLE RESULT SECONDS CELLS; stage STAGE DATE SECONDS
#   facts     KEY VALUE: numbers to compare with the targets
#   text/     long output of parts
#   versions.N  versions of hardware and software of a machine
# If the machine disappears during a part, all earlier results are kept.

tab=$(printf '\t')

keep()
{
    local IFS=$tab
    echo "$*" >>"$dir/results/rows"
}

# TITLE RESULT SECONDS CELLS
row()
{
    keep row "$stage" "$section" "$1" "$2" "$3" "$4"
    if [ "$2" = STARTED ]; then
        write_report
        return
    fi
    echo "| $1 | $2 | $3 | $4 |"
    publish
}

# TITLE [COLUMNS]: begins a table for the following rows; " | " separates the titles of columns.
table()
{
    section=$1
    keep section "$stage" "$section" "${2-}"
    echo && echo "$stage: $section"
}

fact()
{
    echo "$1$tab$2" >>"$dir/results/facts"
}

# KEY: prints the last value of the fact.
known()
{
    awk -F '\t' -v key="$1" '$1 == key { value = $2 } END { print value }' "$dir/results/facts" 2>/dev/null
}

name_of()
{
    printf '%s' "$1" | tr -cs 'A-Za-z0-9.\n' '-'
}

# TITLE: adds standard input to the report, below the section's table.
say()
{
    local name
    [ "$log" != /dev/null ] || return 0 # a skipped part keeps its text
    name=$(name_of "$stage $section $1")
    head -c 20000 >"$dir/results/text/$name"
    keep text "$stage" "$section" "$1" "$name"
}

MOST_ARCHIVE=7 # MiB of an archive: a borrowed machine returns a limited number of bytes

# NAME FOLDER...: makes NAME.tar.gz in the copy's folder; fails, and leaves the one that is there, if it is too large.
archive()
{
    local new=$copy/$1.new
    tar -C "$dir" -czf "$new" "${@:2}" 2>/dev/null
    if [ "$(stat -c %s "$new")" -gt $((MOST_ARCHIVE << 20)) ]; then
        rm -f "$new"
        return 1
    fi
    mv "$new" "$copy/$1.tar.gz"
}

# Writes the report and a copy of all results, with the cache of plans, so that a later machine need not time them again.
publish()
{
    write_report
    [ -n "$copy" ] || return 0
    mkdir -p "$copy"
    cp "$dir/results/report.md" "$copy/report.md.new" && mv "$copy/report.md.new" "$copy/report.md"
    archive results results logs || archive results results || echo "results.tar.gz exceeds $MOST_ARCHIVE MiB: only report.md is copied"
    [ ! -d "$dir/cache" ] || [ -z "$(find "$dir/cache" -newer "$copy/cache.tar.gz" 2>&1 | head -1)" ] || archive cache cache
}

left()
{
    echo $((deadline - SECONDS))
}

# TITLE: prints the part's result: ok, FAILED ..., skipped. Prints nothing if it was left out, was started once and did not end,
# or timed out once: its tuned plans are cached, so it may end the next time.
result_of()
{
    awk -F '\t' -v stage="$stage" -v section="$section" -v title="$1" '
        $1 == "row" && $2 == stage && $3 == section && $4 == title {
            if ($5 == "STARTED") { begun++; open = 1; next }
            open = 0
            if ($5 == "TIMED OUT" && !late++) next
            if ($5 != "LEFT OUT") result = $5
        }
        END { print (open && begun > 1 ? "DID NOT END" : result) }' "$dir/results/rows"
}

count() # RESULT
{
    case $1 in
    ok*) passed=$((passed + 1)) ;;
    skipped) skipped=$((skipped + 1)) ;;
    "LEFT OUT") out=$((out + 1)) ;;
    *) failed=$((failed + 1)) ;;
    esac
}

# TITLE: prints its result if --continue keeps it; fails otherwise.
done_before()
{
    $continued && ! is_late "$1" && result_of "$1" | grep .
}

# TITLE: succeeds if it timed out in this call and has not been retried.
is_late()
{
    printf '%s\n' "${late[@]}" | grep -qxF -- "$section$tab$1"
}

# TITLE: records a time-out. Succeeds if it was the first one, over all calls with --continue: the part is then retried at the end
# of the stage.
was_first_time_out()
{
    local kept=() line
    if ! $retrying && { ! $continued || [ -z "$(result_of "$1")" ]; }; then
        late+=("$section$tab$1")
        return
    fi
    for line in "${late[@]}"; do
        [ "$line" = "$section$tab$1" ] || kept+=("$line")
    done
    late=("${kept[@]}")
    return 1
}

# Retries parts that timed out, while time is left: their tuned plans are cached, so they may end now. Skips parts that have a
# result.
try_again()
{
    local continued=true retrying=true
    [ ${#late[@]} -gt 0 ] && [ "$(left)" -ge "$LEAST_RETRY" ] || return 0
    echo && echo "$stage: retrying the parts that timed out"
    passed=0 failed=0 skipped=0 out=0
    "stage_$stage"
}

pass_over() # TITLE RESULT WHY
{
    count "$2"
    row "$1" "$2" 0 "$3"
}

LEAST_RETRY=30 # seconds that a stage must have left to retry

# most: limit of a part in seconds. quiet: seconds without a written byte after which it is ended, 0: any. tell: function that
# makes the row's cells from $log.
most=300 quiet=0 tell=last_line
HUNG=200 # an exit status that no program has
running='' # the part's process

last_line()
{
    grep -v '^ *$' "$log" | tail -1 | tr '|\r\t' '/  ' | cut -c1-160
}

# Prints the sizes of the files that a part writes.
written()
{
    find "$log" "$dir/results/plans.tsv" "$dir/work" -type f -printf '%s ' 2>/dev/null
}

# SECONDS COMMAND...: runs the command with this time limit; ends it too when it writes nothing for $quiet seconds, with status
# HUNG.
limited()
{
    local pid sizes='' now last=$SECONDS
    timeout -k 5 "$@" >"$log" 2>&1 </dev/null &
    pid=$! running=$!
    while [ "$quiet" -gt 0 ] && sleep .2 && kill -0 $pid 2>/dev/null; do
        now=$(written)
        if [ "$now" != "$sizes" ]; then
            sizes=$now last=$SECONDS
        elif [ $((SECONDS - last)) -ge "$quiet" ]; then
            kill $pid
            wait $pid
            return $HUNG
        fi
    done
    wait $pid
}

# TITLE COMMAND...: runs a part, which passes with exit status 0. $log is its output, /dev/null if it did not run. A part cut off by
# the end of the stage counts as left out.
part()
{
    local title=$1 limit begin code result
    shift
    log=/dev/null
    if result=$(done_before "$title"); then
        count "$result"
        [ "$result" = ok ]
        return
    fi
    limit=$(left)
    if [ "$limit" -lt 5 ]; then
        pass_over "$title" "LEFT OUT" "no time"
        return 1
    fi
    [ "$limit" -lt "$most" ] || limit=$most
    log=$dir/logs/$stage-$(name_of "$title").log
    row "$title" STARTED 0 ""
    local command=("$@")
    # Functions run in a separate process, so that the time limit applies.
    [ "$(type -t "$1")" != function ] || set -- "$BASH" "$self" function "$dir" "$@"
    begin=$SECONDS
    limited "$limit" "$@"
    code=$?
    case $code in
    "$HUNG") result="HUNG" ;;
    0) result=ok ;;
    124 | 137) result="TIMED OUT" && [ "$limit" = "$most" ] || result="LEFT OUT" ;;
    *) result="FAILED ($code)" ;;
    esac
    count "$result"
    if [ $code = 0 ]; then
        row "$title" ok $((SECONDS - begin)) "$("$tell")"
        return 0
    fi
    row "$title" "$result" $((SECONDS - begin)) "$(last_line)"
    [ "$result" != "TIMED OUT" ] || ! was_first_time_out "$title" || return 1
    [ "$result" = "LEFT OUT" ] || remember "$title" "${command[@]}"
    return 1
}

# --- a run ---

clocks()
{
    timeout 10 nvidia-smi --query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw --format=csv,noheader 2>/dev/null | head -1
}

# Writes the versions of hardware and software, once for each machine.
versions()
{
    local new
    new=$dir/results/versions.$(uname -n | cksum | cut -d ' ' -f 1)
    {
        timeout 10 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader 2>/dev/null ||
            echo "a machine without nvidia-smi"
        uname -srm
        sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sort | uniq -c | sed 's/^ *//; s/ / x /'
        echo "commit $(cat "$dir/commit")"
        "$bin/train_resnet50" --version 2>&1
        nvcc --version 2>/dev/null | sed -n 's/.*release/nvcc release/p'
        ldd "$dir/lib/liblather-cuda.so" 2>/dev/null | sed -n 's/^[ \t]*\(libcu[^ ]*\|libnccl[^ ]*\) => \(.*\) (.*/\1 \2/p'
        if has_torch; then
            cat "$dir/logs/python" "$dir/logs/python-versions" 2>/dev/null
        else
            echo "no Python with torch and torchvision"
        fi
    } >"$new"
}

# SECONDS: prints the smaller of SECONDS and the time left of the call, at least 1.
at_most()
{
    echo $((end - SECONDS < $1 ? (end - SECONDS > 1 ? end - SECONDS : 1) : $1))
}

# Importing PyTorch takes long, above all the first time, so this runs in the background of the first stage.
python_versions()
{
    has_torch && [ ! -s "$dir/logs/python-versions" ] || return 0
    LD_LIBRARY_PATH=$LATHER_OUTSIDE timeout "$(at_most 150)" "$(cat "$dir/logs/python")" -c 'import torch, torchvision
print("torch", torch.__version__, "torchvision", torchvision.__version__, "cudnn", torch.backends.cudnn.version(), "devices", torch.cuda.device_count())' \
        >"$dir/logs/python-versions.new" 2>&1
    tail -1 "$dir/logs/python-versions.new" >"$dir/logs/python-versions"
}

# FOLDER: lists the driver's device files with their permissions.
device_files()
{
    find "$1" -maxdepth 1 -name 'nvidia*' -exec ls -ld {} + 2>&1 | grep . || echo "$1/nvidia*: not found"
}

# Ends the run with diagnostics if the device cannot be opened.
must_open()
{
    local code
    timeout "$(at_most $([ "$stages" = quarter ] && echo 40 || echo 120))" "$bin/conform" --backend "${device%%:*}" --filter no-such-entry >"$dir/logs/open.log" 2>&1
    code=$?
    if grep -q '[0-9] passed, ' "$dir/logs/open.log"; then
        rm -f "$dir/results/closed"
        return 0
    fi
    {
        [ $code = 77 ] || echo "gpu_check: the carried programs do not start here (exit status $code): gpu_check build $dir"
        cat "$dir/logs/open.log"
        timeout 20 nvidia-smi 2>&1 | head -20
        device_files /dev
        cat /proc/driver/nvidia/version 2>/dev/null
        ldd "$dir/bin/conform" "$dir/lib/liblather-cuda.so" 2>&1 | grep -E 'not found|GLIBC' | sort -u
        echo "LD_LIBRARY_PATH=$LD_LIBRARY_PATH"
    } | tee "$dir/results/closed" >&2
    publish
    [ $code = 77 ] || exit 1
    exit 77
}

# FUNCTION SECONDS: a stage that this function runs.
one_stage()
{
    local begun=$SECONDS before
    passed=0 failed=0 skipped=0 out=0 most=300 tell=last_line again=() late=()
    deadline=$((SECONDS + $2))
    [ "$deadline" -lt "$end" ] || deadline=$end
    $continued || rm -f "$dir/logs/$stage"-*.log
    before=$(clocks)
    "$1"
    if ! $retrying; then
        try_again
        run_again
    fi
    keep stage "$stage" "$(date -u '+%Y-%m-%d %H:%M') UTC" $((SECONDS - begun)) "$before" "$(clocks)"
    versions
    publish
    echo && echo "$stage: $passed passed, $failed failed, $out left out, $skipped skipped, $((SECONDS - begun)) s"
    [ $((failed + out)) = 0 ] && [ $((passed + skipped)) -gt 0 ]
}

parse_run()
{
    dir=${1-} stages='' device=cuda budget=480 total=1000000 copy='' small=false continued=false control=''
    [ -d "$dir/bin" ] || usage
    dir=$(readlink -f "$dir")
    shift
    while [ $# -gt 0 ]; do
        case $1 in
        --stage) stages=${2-} && [ -n "$stages" ] && shift || usage ;;
        --device) device=${2-} && shift ;;
        --budget) budget=${2-} && shift ;;
        --total) total=${2-} && shift ;;
        --copy) copy=${2-} && shift ;;
        --control) control=${2-} && shift ;;
        --continue) continued=true ;;
        --small) small=true ;;
        *) usage ;;
        esac
        shift
    done
    [ -n "$stages" ] && [ "$stages" != all ] || stages=smoke,conform,train,bench,peer,shampoo,profile,sanitize,more
    for stage in ${stages//,/ }; do
        case $stage in
        smoke | conform | sanitize | train | bench | peer | shampoo | profile | more | quarter) ;;
        *) usage ;;
        esac
    done
    [ "$budget" -gt 0 ] 2>/dev/null || die "--budget $budget: not a number of seconds"
    [ "$total" -gt 0 ] 2>/dev/null || die "--total $total: not a number of seconds"
}

run()
{
    local status=0 retrying=false
    parse_run "$@"
    bin=$dir/bin end=$((SECONDS + total - 10))
    mkdir -p "$dir/logs" "$dir/results/text" "$dir/work"
    touch "$dir/results/rows" "$dir/results/facts"
    ! $small || touch "$dir/results/small"
    export device small
    # The search can take a while, so it runs once for each machine.
    uname -n | cmp -s - "$dir/logs/machine" || rm -f "$dir/logs/libraries" "$dir/logs/everywhere" "$dir/logs/python-versions"
    uname -n >"$dir/logs/machine"
    [ -f "$dir/logs/libraries" ] || cuda_folders "$dir" >"$dir/logs/libraries"
    find_python >"$dir/logs/python"
    LD_LIBRARY_PATH=$dir/lib:$(cat "$dir/logs/libraries")$LATHER_OUTSIDE
    export LD_LIBRARY_PATH LATHER_PLUGIN_PATH=$dir/lib XDG_CACHE_HOME=$dir/cache LATHER_PLAN_LOG=$dir/results/plans.tsv
    trap 'kill $running 2>/dev/null; publish; exit 143' TERM INT HUP
    python_versions &
    versions
    must_open
    for stage in ${stages//,/ }; do
        case $stage in
        quarter) run_quarter || status=1 ;;
        *) one_stage "stage_$stage" $((budget - 5)) || status=1 ;;
        esac
    done
    wait
    versions
    publish
    echo && echo "$dir/results/report.md"
    return $status
}
