# gpu_check's stage profile: the time of a step by operation, by backend entry and by kernel. shellcheck shell=bash

# Prints the path of Nsight Compute's program.
find_ncu()
{
    local place
    if [ -n "${LATHER_NCU-}" ]; then
        [ ! -x "$LATHER_NCU" ] || echo "$LATHER_NCU"
        return
    fi
    for place in "$(command -v ncu)" "${CUDA_HOME:-/usr/local/cuda}"/bin/ncu /usr/local/cuda*/bin/ncu \
        /opt/nvidia/nsight-compute/*/ncu; do
        [ ! -x "$place" ] || { echo "$place" && return; }
    done
}

# NAME [TOOL...]: trains some steps of ResNet-50 without capture, as profile_shape has set them: tools do not see into a graph.
profile_steps()
{
    local name=$1
    shift
    rm -rf "${dir:?}/work/$name"
    # shellcheck disable=SC2086
    "$@" ${GPU_CHECK_UNDER-} "$bin/train_resnet50" --output "$dir/work/$name" --data "synthetic:$((batch * 4)):$side:10" --batch-size "$batch" "${shape[@]}" \
        --epochs 1 --max-steps "$steps" --eval-every -1 --progress off --no-tensorboard --device "$device" --amp "$amp" --no-graph \
        --profile "$dir/work/$name/trace.json" ${GPU_CHECK_MORE-}
}

# Prints the operations of a trace's last step, the longest first; the first step includes autotuning. GB/s count each tensor
# that an operation reads or writes once, where the trace has its bytes.
sum_last_step() # TRACE
{
    local rows
    [ -s "$1" ] || { echo "no trace was written" && return 1; }
    rows=$(sed 's/{"name":/\n&/g' "$1" | awk -F '"' '
        $12 != "X" { next }
        { name = $4; kind = $8; at = substr($15, 2) + 0; us = substr($17, 2) + 0
          moved = $24 == "bytes" ? substr($25, 2) + 0 : 0 }
        kind == "program" && name == "step" && at >= begin { begin = at; end = at + us }
        kind ~ /^(forward|backward|optim|comm|copy)$/ { n++; key[n] = kind " " name; start[n] = at; time[n] = us; bytes[n] = moved }
        END {
            for (i = 1; i <= n; i++)
                if (start[i] >= begin && start[i] < end) {
                    calls[key[i]]++; sum[key[i]] += time[i]; all[key[i]] += bytes[i]; unknown[key[i]] += !bytes[i]
                }
            for (k in sum)
                printf "%.3f\t%d\t%s\t%s\n", sum[k] / 1e3, calls[k], unknown[k] || !sum[k] ? "-" : sprintf("%.1f", all[k] / sum[k] / 1e3), k
        }' | sort -rn)
    [ -n "$rows" ] || { echo "no operation of a step is in the trace" && return 1; }
    printf 'ms a step\tcalls\tGB/s\toperation\n%s\n' "$rows"
}

# Prints the program's table of spans, then that of the last step. The host waits for each operation, which adds some 10 us.
by_operation()
{
    local batch side steps amp shape
    profile_shape
    LATHER_SYNC=1 profile_steps operations && sum_last_step "$dir/work/operations/trace.json"
}

# Prints the operations of a step and their milliseconds; fails if the table is empty.
operation_cells()
{
    awk -F '\t' '$1 ~ /^[0-9.]+$/ && $4 ~ /^(forward|backward|optim) / { rows++; ms += $1 }
        END { printf "%d operations, %.1f ms a step", rows, ms; exit !rows }' "$log"
}

# Sums ncu's table of launches on standard input (CSV, base units) by kernel, the longest first.
sum_kernels()
{
    tr -d '\r' | awk -F '","' '
        /^"ID","/ { for (i = 1; i <= NF; i++) { gsub(/"/, "", $i); column[$i] = i }; known = 1; next }
        !known || !/^"[0-9]/ { next }
        function number(name,    text) { text = $(column[name]); gsub(/[",]/, "", text); return text + 0 }
        {
            name = $(column["Kernel Name"])
            launches[name]++; ns[name] += number("gpu__time_duration.sum")
            bytes[name] += number("dram__bytes_read.sum") + number("dram__bytes_write.sum")
        }
        END { for (name in ns) printf "%.3f\t%.1f\t%d\t%s\n", ns[name] / 1e6, bytes[name] / 1e6, launches[name], name }' | sort -rn
}

# Profiles the last step only, through LATHER_PROFILE_STEP: the first one includes autotuning.
by_kernel()
{
    local batch side steps amp shape rows
    profile_shape
    LATHER_PROFILE_STEP=$steps profile_steps kernels "$(find_ncu)" --profile-from-start no --clock-control none --csv --page raw --print-units base --target-processes all --log-file "$dir/work/ncu.csv" \
        --metrics gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum || {
        grep -h '^==' "$dir/work/ncu.csv" | tail -3 # ERR_NVGPUCTRPERM: counters are for administrators there
        return 1
    }
    rows=$(sum_kernels <"$dir/work/ncu.csv")
    [ -n "$rows" ] || { echo "ncu: no kernel in its table" && return 1; }
    printf 'ms a step\tMB a step\tlaunches\tkernel\n%s\n' "$rows"
    echo "$rows" | awk -F '\t' '{ ms += $1; mb += $2; n++ } END { printf "%d kernels, %.2f ms and %.0f MB a step\n", n, ms, mb }'
}

# Prints the device time of the backend's entries in the last step, from events around each; nothing waits for them.
by_entry()
{
    local batch side steps amp shape times=$dir/work/entries.tsv
    profile_shape
    rm -f "$times"
    LATHER_PROFILE_STEP=$steps LATHER_PROFILE_EVENTS=$times profile_steps entries || return
    [ -s "$times" ] || { echo "no table of entries was written" && return 1; }
    cat "$times"
    awk -F '\t' '$1 ~ /^[0-9.]+$/ { ms += $1; calls += $2; n++ }
        END { printf "%d entries, %d calls, %.2f ms a step\n", n, calls, ms; exit !n }' "$times"
}

# Adds the first 60 rows of the part's table to the report.
say_rows() # TITLE
{
    grep -E '^(ms a step|[0-9.]+	)' "$log" | head -60 | say "$1"
}

# Sets the callers' variables.
profile_shape()
{
    batch=256 side=224 steps=2 amp=f16 shape=(--arch resnet50 --recompute off)
    ! $small || { batch=4 side=32 amp=off shape=(--arch resnet10 --width 8); }
    [ "$control" != profile ] || shape=(--arch none)
}

stage_profile()
{
    most=240
    export control
    table "a training step of ResNet-50, not captured"
    tell=operation_cells
    part "by operation, each waited for" by_operation && say_rows "by operation, each waited for"
    tell=last_line
    [ "${device%%:*}" != cuda ] || { part "by entry, events" by_entry && say_rows "by entry, events"; }
    if [ "${device%%:*}" = cuda ] && [ -n "$(find_ncu)" ]; then
        part "by kernel, ncu" by_kernel && say_rows "by kernel, ncu"
    else
        pass_over "by kernel, ncu" skipped "there is no ncu; LATHER_NCU=PATH names one"
    fi
    profile_transformers
}
