#!/bin/bash
# tools/gpu_check on folders whose programs are scripts: its search for libraries, the files that it writes and keeps,
# its end. $1: gpu_check. Rows are sentences; the last line counts them.
set -u
export LATHER_PYTHON=/nonexistent LATHER_SANITIZER=/nonexistent
check=$(readlink -f "$1")
here=$(dirname "$(readlink -f "$0")")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

row() # SENTENCE COMMAND...
{
    local name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $name: $(tail -5 "$work/out" | tr '\n' '/')"
        [ -z "${VERBOSE-}" ] || cat "$work/dir/results/report.md"
    fi
}

put() # FILE LINE...
{
    local file=$1
    shift
    mkdir -p "$(dirname "$file")"
    { echo '#!/bin/bash' && printf '%s\n' "$@"; } >"$file"
    chmod +x "$file"
}

# Trains: a run with losses that fall, weights, a trace where one is asked for.
put_transformer() # NAME [LOSSES]
{
    put "$work/dir/bin/$1" 'while [ $# -gt 0 ]; do case $1 in --output) to=$2 ;; --profile) trace=$2 ;; esac; shift; done' \
        'mkdir -p "$to" && echo weights >"$to/model.safetensors"; [ -z "${trace-}" ] || cp "$(dirname "$0")/../trace.json" "$trace"' \
        'for step in 1 2 3 4 5 6 7 8 9 10 11 12; do' \
        "set -- ${2-9 8 7 6 5 4 3 3 3 3 3 3}; shift \$((step - 1))" \
        'echo "{\"event\":\"step\",\"loss\":$1,\"tokens_per_second\":2000,\"data_seconds\":0,\"seconds\":0.05}" >>"$to/metrics.jsonl"; done' \
        'echo "forward   linear 20 1.500 625.0 700.1 60.1 1.00"'
    put_trace
}

# Writes a trace of two steps; the first includes the choice of plans, and a span after the last one belongs to no step.
put_trace()
{
    local spans=() span name kind at us bytes
    for span in conv2d,forward,1010,900000,1 step,program,1000,950000 conv2d,forward,960000,8000,9000000000 \
        conv2d,forward,968000,4500,1000000000 conv2d,backward,973000,4000,9000000000 conv2d,backward,977000,4250 \
        step,program,955000,30000 conv2d,forward,990000,7000,1; do
        IFS=, read -r name kind at us bytes <<<"$span"
        spans+=("{\"name\":\"$name\",\"cat\":\"$kind\",\"ph\":\"X\",\"ts\":$at,\"dur\":$us,\"pid\":1,\"tid\":0${bytes:+,\"args\":{\"bytes\":$bytes\}}}")
    done
    (IFS=, && echo "{\"traceEvents\":[{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":1,\"args\":{\"name\":\"loader\"}},${spans[*]}],\"dropped\":0}") >"$work/dir/trace.json"
}

fresh() # a folder whose programs are all well
{
    rm -rf "$work/dir" "$work/path"
    mkdir -p "$work/dir/lib" "$work/dir/data"
    echo none >"$work/dir/commit"
    local program
    for program in conform conform_step train_resnet50 bench pack; do
        put "$work/dir/bin/$program" 'echo "it: 3 passed, 0 failed"'
    done
    put_transformer train_gpt
    put_transformer train_vit
    put "$work/dir/bin/gpu_ranks" '[ "$RANK.$WORLD_SIZE.$*" = "0.1.cases 1" ]'
    printf '%s\n' '| f = 50, block 2048 | 2.9 | 1.26 | 25.1 | 10.41 | 1.234 | 1.05 |' '| f = 1, block 1024 | 2.6 | 1.09 | 16.5 | 6.23 | 1.345 | 1.3 |' >"$work/dir/gpu-model.md"
}

run() # EXPECTED-STATUS ARGUMENTS...
{
    local want=$1
    shift
    PATH=$work/path:$PATH "$check" run "$work/dir" "$@" >"$work/out" 2>&1
    [ $? = "$want" ]
}

says() # TEXT: the report
{
    grep -q -- "$1" "$work/dir/results/report.md"
}

well()
{
    fresh
    run 0 --stage conform && says '| every entry and dtype against ref in double | ok |' &&
        grep -q 'conform: 5 passed, 0 failed, 0 left out' "$work/out" && says 'conform to the reference .* 5 of 5 | met'
}

two_stages()
{
    fresh
    run 0 --stage conform,peer && says '## conform' && says '## peer' && says 'PyTorch | skipped' &&
        [ "$(grep -c 'commit none' "$work/dir/results/report.md")" = 1 ]
}

no_such_stage()
{
    fresh
    run 2 --stage everything && run 2 --stage conform --budget soon && run 2 --stage ''
}

wrong_row()
{
    fresh
    put "$work/dir/bin/conform" 'echo "FAIL relu f32: operand 1"; echo "it: 3 passed, 1 failed"; exit 1'
    run 1 --stage conform && says 'FAILED (1)' && says '    FAIL relu f32' && says '1 of 5 | NOT MET'
}

# A later call that fails a part or has no time for it keeps the earlier result; the report names both.
kept()
{
    fresh
    run 0 --stage conform && run 1 --stage conform --budget 7 && says 'reruns | ok |' && says '5 of 5 | met' || return
    put "$work/dir/bin/conform_step" 'exit 1'
    run 1 --stage conform && says 'reruns | FAILED (1), ok before' && says '4 of 5 | NOT MET'
}

# A second call runs the remaining parts, and none that has a result, right or wrong.
goes_on()
{
    fresh
    put "$work/dir/bin/conform" "[ -n \"\${GPU_CHECK_WAY-}\" ] || echo conform >>'$work/seen'; echo 'FAIL one'; echo 'it: 1 passed, 1 failed'; exit 1"
    put "$work/dir/bin/conform_step" "echo step >>'$work/seen'; exec sleep 600"
    rm -f "$work/seen"
    run 1 --stage conform --budget 12 && says 'reruns | LEFT OUT' || return
    put "$work/dir/bin/conform_step" "echo step >>'$work/seen'; echo well"
    run 1 --stage conform --continue && says 'reruns | ok' && says '    FAIL one' &&
        [ "$(grep -c step "$work/seen")" = 2 ] && [ "$(grep -c conform "$work/seen")" = 6 ] # and two that only open
}

# A part that timed out is run once more.
timed_out()
{
    fresh
    run 0 --stage conform && sed -i '/reruns\tok/s/ok/TIMED OUT/' "$work/dir/results/rows" || return
    run 0 --stage conform --continue && says 'reruns | ok' || return
    sed -i '/reruns\tok/s/ok/TIMED OUT/' "$work/dir/results/rows"
    run 1 --stage conform --continue && says 'reruns | TIMED OUT'
}

# A part that times out is run again after the others, once, in the same call; never in other ways before that.
retried()
{
    fresh
    put "$work/dir/bin/conform_step" "[ -z \"\${GPU_CHECK_WAY-}\" ] || exit 1; echo step >>'$work/seen'; [ \$(grep -c . '$work/seen') != 1 ] || exit 124"
    rm -f "$work/seen"
    run 0 --stage conform && says 'reruns | ok, TIMED OUT before' && says '5 of 5 | met' && ! says 'run again' &&
        grep -q 'conform: 5 passed, 0 failed' "$work/out" || return
    fresh
    put "$work/dir/bin/conform_step" "[ -z \"\${GPU_CHECK_WAY-}\" ] || exit 1; echo step >>'$work/seen'; exit 124"
    rm -f "$work/seen"
    run 1 --stage conform && says 'reruns | TIMED OUT' && says 'again: a step.s gradients.* fails in every way' &&
        grep -q 'conform: 4 passed, 1 failed' "$work/out" && [ "$(grep -c . "$work/seen")" = 2 ] || return
    run 1 --stage conform --continue && [ "$(grep -c . "$work/seen")" = 2 ]
}

# With its numbers: a headline is not lost to the first time.
retried_with_facts()
{
    fresh
    rm -f "$work/seen"
    put_bench "case \"\$*\" in *'--amp bf16 --steps 30'*) echo bf16 >>'$work/seen'; [ \$(grep -c . '$work/seen') != 1 ] || exit 124 ;; esac"
    run 0 --stage bench && says '| batch 256, bf16 | ok, TIMED OUT before |' && target 'batch 256, bf16: the same .* 1.388 x | met |'
}

# A machine that went away in the middle of a part.
went_away()
{
    fresh
    put "$work/dir/bin/conform_step" 'kill -9 $(cat '"$work/pid"')'
    { echo $BASHPID >"$work/pid" && exec "$check" run "$work/dir" --stage conform >"$work/out" 2>&1; } &
    wait $! 2>/dev/null
    says 'double | ok' && says 'reruns | DID NOT END' || return
    put "$work/dir/bin/conform_step" 'echo well'
    run 0 --stage conform --continue && says 'reruns | ok'
}

within_total()
{
    fresh
    put "$work/dir/bin/conform_step" 'exec sleep 600'
    local begin=$SECONDS
    run 1 --total 17 && says '## sanitize' && says '## more' && says 'LEFT OUT' && [ $((SECONDS - begin)) -lt 60 ]
}

copied()
{
    fresh
    mkdir "$work/dir/cache" && echo timed >"$work/dir/cache/plans"
    run 0 --stage conform --copy "$work/copy" && cmp "$work/copy/report.md" "$work/dir/results/report.md" || return
    # From the copy on another machine.
    fresh
    tar -C "$work/dir" -xzf "$work/copy/results.tar.gz" && tar -C "$work/dir" -xzf "$work/copy/cache.tar.gz" && grep -q timed "$work/dir/cache/plans" || return
    put "$work/dir/bin/conform_step" 'exit 1'
    run 0 --stage conform,peer --continue && says '5 of 5 | met' && says 'PyTorch | skipped'
}

# Numbers of bench and of a PyTorch that stands for one.
put_bench()
{
    put "$work/dir/bin/bench" "$@" 'case "$*" in
        ceilings*) echo "copy 4000.0 GB/s, products f32 50, bf16 780000, f16 790000 GFLOP/s" ;;
        *train*) echo "{\"images_per_second\": ${RATE:-9000}, \"milliseconds\": 28.4, \"mean_milliseconds\": ${MEAN:-30}, \"peak_memory_bytes\": 500000000, \"cold_start_seconds\": 2, \"factor_sides\": \"1024x3,64x2\"}" ;;
        *roots*) echo "{\"rows\": [{\"solver\": \"rational\", \"milliseconds\": 4}, {\"solver\": \"rational\", \"milliseconds\": 2.5}]}" ;;
        esac'
}

put_peer()
{
    mkdir -p "$work/dir/bench" && cp "$(dirname "$check")"/bench/peer.py "$(dirname "$check")"/bench/turns.py "$work/dir/bench/"
}

target() # TEXT: the rest of a row of the table of targets
{
    grep -q -- "$1" <(sed -n '/^## Targets/,/^## Versions/p' "$work/dir/results/report.md")
}

numbers()
{
    fresh
    put_bench 'case "$*" in *shampoo*) MEAN=31.2 ;; esac'
    local -x LATHER_PYTHON=$here/fake_torch/python3
    put_peer
    run 0 --stage shampoo --small && target 'f = 1, block 1024.* not measured' &&
        [ "$(awk -F '\t' '$1 == "roots.64"' "$work/dir/results/facts" | cut -f 2)" = 6.5 ] || return
    run 0 --stage bench && target 'roof of the fused graph .* 1.388 x | met |' && target 'gpu-model.md has it .* 1.388 x | met |' &&
        target 'batch 256, bf16: the same .* 1.388 x | met |' &&
        says 'f16: --fused auto | *| *| 1.000 x as fast' || return
    run 0 --stage shampoo && target 'f = 50, block 2048.* 1.04 x | met |' && target 'f = 1, block 1024.* 1.04 x | met, moonshot too' &&
        says 'shampoo, f = 50, block 2048, products in TF32 | ok | [0-9]* | 9000 | 28.4 | 31.2 | 477 | 2 | 1.040 (model 1.234) |' &&
        says 'shampoo, f = 1, block 1024, products in TF32 .* | 1.040 (model 1.345) |' &&
        says 'shampoo, f = 50, block 2048, products in F32 .* | 1.040 |'
}

# The numbers that gpu_check reads from the model's page exist, and its roof at the page's rates is that of tools/cuda_nodes.
model_is_read()
{
    local top roof
    top=$(dirname "$(dirname "$check")")
    fresh
    cp "$top/docs/results/gpu-model.md" "$work/dir/"
    roof=$(sed -n 's/^ROOF = \([0-9.]*\)e-3 .*/\1/p' "$top/tools/cuda_nodes")
    mkdir -p "$work/dir/results" && printf 'bench.copy\t4300\nbench.product\t790000\n' >"$work/dir/results/facts"
    [ "$("$check" function "$work/dir" roof 256 | cut -c 1-4)" = "$roof" ] || return
    "$check" function "$work/dir" modelled 50 2048 | grep -qx '1\.[0-9]*' && "$check" function "$work/dir" modelled 1 1024 | grep -qx '1\.[0-9]*' &&
        [ -z "$("$check" function "$work/dir" modelled 7 1024)" ]
}

# PRECISION: the first step in it only tunes.
tuned_first()
{
    grep -m 1 -- "--amp $1 " "$work/seen" | grep -q -- '--steps 1 --warmup 1'
}

# Each stage that measures tunes its plans first, in a separate part; once for a machine that has kept them.
tunes()
{
    local -x LATHER_PYTHON=$here/fake_torch/python3
    fresh
    rm -f "$work/seen"
    put_bench "echo \"\$*\" >>'$work/seen'"
    put_peer
    run 0 --stage bench && tuned_first f16 && tuned_first bf16 && tuned_first tf32 && says '| batch 256, bf16: timed and kept, not measured | ok |' || return
    mkdir "$work/dir/cache" && rm "$work/seen"
    run 0 --stage shampoo && ! tuned_first f16 && tuned_first 'f16 .*shampoo .* 2048' && tuned_first 'f16 .*shampoo .* 1024' || return
    fresh
    rm -f "$work/seen"
    put_bench "echo \"\$*\" >>'$work/seen'"
    put_peer
    run 0 --stage shampoo --small && tuned_first f16 && says '| batch 2, f16, --optim shampoo .*: timed and kept, not measured | ok |' || return
    rm -f "$work/seen"
    run 0 --stage peer --small && tuned_first off
}

beside_peer()
{
    fresh
    put_bench 'RATE=100000'
    local -x LATHER_PYTHON=$here/fake_torch/python3
    put_peer
    run 0 --stage peer --small && says 'batch 2, f32: PyTorch channels_last, compiled | *| *| [0-9.]* | [0-9.-]* | [0-9.]* |' &&
        grep -q '^peer.f32.2.compiled.ratio' "$work/dir/results/facts"
}

# A contestant that runs out of memory or hangs has a row with that result, and the others have theirs.
peer_fails() # MODE TEXT
{
    fresh
    put_bench 'RATE=100000'
    local -x LATHER_PYTHON=$here/fake_torch/python3 FAKE_TORCH=$1
    put_peer
    run 1 --stage peer --small --budget 32 && says "compiled | *| *| failed: $2" && says 'f32: lather | *| *| [0-9]'
}

no_device()
{
    fresh
    put "$work/dir/bin/conform" 'echo "conform: backend cuda: no NVIDIA driver"' \
        'echo "conform: the driver: cuInit returns 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)" >&2; exit 77'
    put "$work/path/nvidia-smi" 'echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18'
    run 77 --stage conform && says 'no NVIDIA driver' && says 'cuInit returns 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)' &&
        says 'Failed to initialize NVML' && says '/dev/nvidia' && says '^    LD_LIBRARY_PATH='
}

# The driver's files are listed, or reported as not found.
device_files()
{
    rm -rf "$work/dev" && mkdir "$work/dev" && touch "$work/dev/null"
    [ "$("$check" function "$work/dir" device_files "$work/dev")" = "$work/dev/nvidia*: not found" ] || return
    touch "$work/dev/nvidia0" "$work/dev/nvidiactl" && chmod 600 "$work/dev/nvidia0"
    [ "$("$check" function "$work/dir" device_files "$work/dev" | grep -c '^-rw.*/nvidia')" = 2 ] &&
        "$check" function "$work/dir" device_files "$work/dev" | grep -q '^-rw------- .*/dev/nvidia0$'
}

# Smoke alone ends within a minute: even opening the device may not take longer.
smoke_total()
{
    fresh
    put "$work/path/timeout" "case \"\$*\" in *no-such-entry*) echo \$1 >>'$work/limits' ;; esac; exec $(command -v timeout) \"\$@\""
    rm -f "$work/limits"
    PATH=$work/path:$PATH "$check" smoke "$work/dir" --device cpu >"$work/out" 2>&1 && [ "$(cat "$work/limits")" -le 50 ] || return
    rm -f "$work/limits"
    PATH=$work/path:$PATH "$check" smoke "$work/dir" --device cpu --total 90 >"$work/out" 2>&1 && [ "$(cat "$work/limits")" -gt 60 ]
}

no_start()
{
    fresh
    put "$work/dir/bin/conform" 'echo "libc.so.6: version GLIBC_2.99 not found"; exit 1'
    run 1 --stage conform && says 'gpu_check build' && says 'GLIBC_2.99'
}

hangs()
{
    fresh
    put "$work/dir/bin/conform_step" 'exec sleep 600'
    local begin=$SECONDS
    run 1 --stage conform --budget 12 && says 'reruns | LEFT OUT' && [ $((SECONDS - begin)) -lt 60 ]
}

left_out()
{
    fresh
    run 1 --stage conform --budget 7 && says 'LEFT OUT'
}

# A library that only a wheel has, and one that this one wants in turn.
wheels()
{
    fresh
    local site=$work/site/nvidia
    mkdir -p "$site/one/lib" "$site/two/lib"
    touch "$site/one/lib/libelsewhere.so.9" "$site/two/lib/libwanted.so.1"
    put "$work/path/ldd" "case \$LD_LIBRARY_PATH in
        *$site/one/lib*$site/two/lib* | *$site/two/lib*$site/one/lib*) ;;
        *$site/one/lib*) echo '	libwanted.so.1 => not found' ;;
        *) echo '	libelsewhere.so.9 => not found' ;;
        esac"
    local -x PYTHONPATH=$work/site LATHER_PYTHON=''
    run 0 --stage conform && grep -q "^$site/one/lib:$site/two/lib:$" "$work/dir/logs/libraries"
}

# Python gets the libraries that it would have had.
python_apart()
{
    fresh
    local -x LATHER_PYTHON=$work/path/python3
    put "$work/path/python3" "echo \"\$LD_LIBRARY_PATH|\${LATHER_LIBRARY_PATH-}\" >>'$work/seen'"
    rm -f "$work/seen"
    local -x LD_LIBRARY_PATH=/mine
    run 0 --stage peer --small && grep -q "^/mine|$work/dir/lib:.*/mine$" "$work/seen" && ! grep -v '^/mine|' "$work/seen"
}

sanitizer() # MODE EXPECTED-STATUS TEXT
{
    fresh
    local -x FAKE_SANITIZER=$1 LATHER_SANITIZER=$here/fake_sanitizer
    run "$2" --stage sanitize --small && says "$3"
}

# A process that dies takes its row alone; what the libraries wrote is among the logs.
smoke()
{
    fresh
    put "$work/dir/bin/conform" '[ -z "${CUDNN_LOGDEST_DBG-}" ] || echo "E! a note" >"$CUDNN_LOGDEST_DBG"' \
        'case "$*" in *"eigh f32"*) kill -SEGV $$ ;; esac' 'echo "it: 3 passed, 0 failed"'
    run 1 --stage smoke && says 'cuSOLVER: eigh | FAILED (139)' && says 'cuSOLVER: rational | ok' && says 'NCCL: each collective, one rank | ok' &&
        [ "$(grep -c '^smoke.*FAILED\|| FAILED' "$work/dir/results/report.md")" = 1 ] &&
        grep -q 'a note' "$work/dir/logs/smoke-libraries-cuDNN-conv2d-stats.cudnn" &&
        ! find "$work/dir/logs" -name 'smoke-libraries-*' -empty | grep . || return
    PATH=$work/path:$PATH "$check" smoke "$work/dir" --continue >"$work/out" 2>&1
    [ $? = 1 ] && grep -q '^smoke: .* 1 failed' "$work/out"
}

# The libraries themselves, where there are any, read the variables that smoke sets: a call writes to each one's file. They need no
# device for that; cuDNN, whose errors and warnings alone are wanted, is given one.
libraries_log()
{
    local name call library calls=() kinds=()
    while read -r name call; do
        library=$("$(dirname "$check")/find_cuda" 2>/dev/null | sed -n "s/^lib\\.$name=//p")
        [ ! -e "$library" ] || { calls+=("$library" "$call") && kinds+=("${name,,}"); }
    done <<<'cudnn cudnnCreate
cublas cublasCreate_v2
cublasLt cublasLtCreate
cusolver cusolverDnCreate
nccl ncclGetUniqueId'
    fresh
    mkdir "$work/dir/logs"
    [ ${#kinds[@]} -gt 0 ] || { echo "libraries log: no libraries here" && return; }
    LD_LIBRARY_PATH=$(dirname "${calls[0]}") "$check" function "$work/dir" logged real python3 -c 'import ctypes, sys
for path, call in zip(sys.argv[1::2], sys.argv[2::2]):
    getattr(ctypes.CDLL(path, ctypes.RTLD_GLOBAL), call)(None if call == "cudnnCreate" else ctypes.create_string_buffer(256))' "${calls[@]}" >"$work/out" 2>&1
    for name in "${kinds[@]}"; do
        [ -s "$work/dir/logs/smoke-libraries-real.$name" ] || { echo "$name wrote none" >>"$work/out" && return 1; }
    done
}

# A failed part is run again in each way that its program has; the report names the ways that pass.
again()
{
    fresh
    local -x FAKE_SANITIZER='' LATHER_SANITIZER=$here/fake_sanitizer
    put "$work/dir/bin/conform" 'case "$*" in *no-such* | *--fused\ off*) echo "it: 1 passed, 0 failed"; exit 0 ;; esac' \
        'echo "FAIL conv2d f16 3x3: y, element 3"; echo "FAIL conv2d f16 1x1: y"; echo "it: 3 passed, 2 failed"; exit 1'
    put "$work/dir/bin/conform_step" '[ -n "${LATHER_SYNC-}" ] || exit 1'
    run 1 --stage conform && says '| part | result | seconds | passes with | as it was | LATHER_SYNC=1 | --fused off | --no-graph | --deterministic | memcheck |' &&
        says '| again: conv2d f16 3x3 | *| *| passes: --fused off | fails | fails | ok | - | fails | fails |' && ! says '| again: conv2d f16 1x1 |' &&
        says '| again: a step.s gradients.* | *| *| passes: LATHER_SYNC=1 | fails | ok | - | - | - | fails |' &&
        grep -q 'conform: 1 passed, 4 failed' "$work/out" || return
    put "$work/dir/bin/conform_step" 'case "$*" in *--only\ recorded*) exit 0 ;; esac' 'echo "FAIL recorded steps are eager ones f16 sgd: killed by signal 11"; exit 1'
    run 1 --stage conform && says '| again: recorded steps are eager ones f16 sgd | *| *| passes: as it was, LATHER_SYNC=1, memcheck | ok' || return
    fresh # the control: a part that passes is run once
    run 0 --stage conform && ! says 'run again'
}

# A function of gpu_check hands its ways on to the program.
trains_again()
{
    fresh
    put "$work/dir/bin/train_resnet50" 'case "$*" in *--no-graph) exit 0 ;; esac' 'echo wrong; exit 1'
    run 1 --stage smoke && says '| again: NCCL, one rank | *| *| passes: --no-graph | fails | fails | fails | ok | fails | - |'
}

# Parts with a separate program: each collective, roots, a profile. Each has the ways that its program knows.
others_again()
{
    local -x LATHER_SANITIZER=$here/fake_sanitizer FAKE_SANITIZER=''
    fresh
    put "$work/dir/bin/gpu_ranks" '[ -n "${LATHER_SYNC-}" ] && [ "$RANK.$WORLD_SIZE.$*" = "0.1.cases 1" ]'
    run 1 --stage smoke && says '| again: NCCL: each collective, one rank | *| *| passes: LATHER_SYNC=1 | fails | ok | - | - | - | fails |' || return
    fresh
    put_bench 'case "$*" in roots*) exit 1 ;; esac'
    run 1 --stage shampoo --small && says '| again: ours, block 64 | *| *| fails in every way | fails | fails | - | - | - | fails |' || return
    fresh
    local -x LATHER_NCU=$here/fake_ncu
    put "$work/dir/bin/train_resnet50" 'case "$*" in *--deterministic) exit 0 ;; *) exit 1 ;; esac'
    run 1 --stage profile && says '| again: by kernel, ncu | *| *| passes: --deterministic | fails | fails | fails | - | ok | - |' || return
    put "$work/dir/bin/train_resnet50" 'case "$*" in *--fused\ off) ;; *) exit 1 ;; esac' "mkdir -p \"\$2\"; cp '$work/dir/trace.json' \"\$2/trace.json\""
    run 1 --stage profile && says '| again: by operation, each waited for | *| *| passes: --fused off | fails | - | ok | - | fails | fails |' || return
    put "$work/dir/bin/train_gpt" 'exit 1'
    run 1 --stage profile && says '| again: train_gpt by operation | *| *| fails in every way | fails | - | fails | - | fails | fails |'
}

profile() # MODE EXPECTED-STATUS TEXT
{
    fresh
    local -x FAKE_NCU=$1 LATHER_NCU=$here/fake_ncu
    [ "$1" != absent ] || LATHER_NCU=/nonexistent
    put "$work/dir/bin/train_resnet50" "[ '$1' = untraced ] || { mkdir -p \"\$2\"; cp '$work/dir/trace.json' \"\$2/trace.json\"; }" \
        "[ '$1' = untimed ] || [ -z \"\${LATHER_PROFILE_EVENTS-}\" ] || [ \"\$LATHER_PROFILE_STEP\" != 2 ] || printf 'ms a step\\tcalls\\tentry\\n1.5000\\t2\\tconv2d\\n0.2500\\t1\\tsgd\\n' >\"\$LATHER_PROFILE_EVENTS\"" \
        'echo "forward   conv2d 20 12.500 625.0 700.1 60.1 1.00"'
    [ "$1" != idle ] || echo '{"traceEvents":[]}' >"$work/dir/trace.json"
    run "$2" --stage profile && says "$3" || return
    [ "$1" != idle ] || return 0 # so are the transformers then
    says '| train_gpt by operation | ok | .* | 2 operations, 20.8 ms a step' && says '| train_vit by operation | ok' || return
    [ "$2" = 1 ] || { says '| by operation, each waited for | ok | .* | 2 operations, 20.8 ms a step' && says '12.500.2.800.0.forward conv2d' && says '8.250.2.-.backward conv2d'; }
}

# Results of train_gpt and train_vit in each stage.
transformers_train() # EXPECTED-STATUS TEXT [LOSSES]
{
    fresh
    put_transformer train_gpt "${3-9 8 7 6 5 4 3 3 3 3 3 3}"
    put "$work/dir/bin/train_resnet50" 'while [ $# -gt 0 ]; do case $1 in --output) mkdir -p "$2" && echo same >"$2/model.safetensors" ;; esac; shift; done'
    # The control's lr of 0 is nothing to a script.
    run "$1" --stage train --small --device cpu --control transformers && says "$2" && { [ "$1" = 1 ] || says '| train_vit: recorded = eager, --amp bf16 | ok'; }
}

# A recorded step that has other weights than an eager one.
transformers_differ()
{
    fresh
    put "$work/dir/bin/train_vit" 'case "$*" in *--no-graph*) weights=eager ;; *) weights=recorded ;; esac' \
        'while [ $# -gt 0 ]; do case $1 in --output) mkdir -p "$2" && echo $weights >"$2/model.safetensors" ;; esac; shift; done'
    run 1 --stage train --small --device cpu --control transformers && says '| train_vit: recorded = eager, --amp bf16 | FAILED' && says '| train_gpt: recorded = eager, --amp bf16 | ok'
}

transformers_bench()
{
    fresh
    put_bench 'RATE=9000'
    put "$work/dir/bin/train_vit" 'exit 0'
    run 1 --stage bench --small && says '| train_gpt: .*--seq-len 32 --batch-size 4 | ok | .* | 50.00 ms a step, 2000 a second, 10 steps |' && says '| train_vit: .* | FAILED'
}

wrong_collective()
{
    fresh
    put "$work/dir/bin/gpu_ranks" 'exit 1'
    run 1 --stage smoke && says '| NCCL: each collective, one rank | FAILED (1)'
}

no_sanitizer()
{
    fresh
    run 1 --stage sanitize && says 'compute-sanitizer | LEFT OUT'
}

# STATUS ARGUMENTS...: a quarter of an hour in small sizes, where 2 s without a byte are a hang.
quarter()
{
    local want=$1
    shift
    PATH=$work/path:$PATH GPU_CHECK_QUIET=2 "$check" quarter "$work/dir" --small "$@" >"$work/out" 2>&1
    [ $? = "$want" ]
}

quarter_folder()
{
    fresh
    put_bench 'RATE=9000'
    put "$work/dir/bin/train_resnet50" 'while [ $# -gt 0 ]; do case $1 in --output) to=$2 ;; esac; shift; done; mkdir -p "$to" && echo same >"$to/model.safetensors"' \
        'echo "{\"event\":\"eval\",\"val_top1\":90,\"train_loss\":1}" >"$to/metrics.jsonl"' \
        '[ -z "${LATHER_PROFILE_EVENTS-}" ] || printf "1.5000\t2\tconv2d\n" >"$LATHER_PROFILE_EVENTS"'
}

# Every stage has its rows, the headline among the first.
quarter_is_broad()
{
    quarter_folder
    quarter 0 && says 'the device opens, a copy | ok' && says '| batch 2, f16 | ok | [0-9]* | 9000 | 28.4 |' && says 'double | ok' && says 'learns, adamw.* | ok' &&
        says 'PyTorch | skipped' && says 'shampoo, f = 3, block 64' && says 'by entry, events | ok' && says 'train_gpt: .* | ok' && ! says 'run again' || return
    [ "$(grep -n '^| batch 2, f16 ' "$work/out" | cut -d : -f 1)" -lt "$(grep -n '^| every entry' "$work/out" | cut -d : -f 1)" ]
}

# Hangs in three stages cost their seconds there; the rest has results, and each is run once more at the end.
quarter_hangs()
{
    local begin=$SECONDS hang='[ -n "${GPU_CHECK_WAY-}" ] || sleep 600'
    quarter_folder
    put "$work/dir/bin/conform" "case \"\$*\" in *--own*) $hang ;; esac; echo 'it: 3 passed, 0 failed'"
    put_bench "case \"\$*\" in *'--amp f16 --steps 1 --warmup 1 --recompute off --image-size 32 --arch resnet10 --num-classes 10') $hang ;; esac"
    put "$work/dir/bin/conform_step" "$hang"
    quarter 1 && says 'every kernel of this project | HUNG' && says '| batch 2, f16 | HUNG' && says 'reruns | HUNG' && [ "$(grep -c '| HUNG |' "$work/out")" = 5 ] &&
        says '| batch 2, bf16 | ok' && says 'double | ok' && says 'learns, adamw.* | ok' && says 'train_gpt: .* | ok' &&
        says '| again: every kernel of this project | *| *| passes: as it was, LATHER_SYNC=1 | ok | ok |' && says '| again: a step' &&
        [ $((SECONDS - begin)) -lt 60 ]
}

# A program that writes, however slowly, does not hang.
quarter_waits()
{
    quarter_folder
    put "$work/dir/bin/conform_step" 'for i in 1 2 3 4; do echo $i; sleep 1; done'
    quarter 0 && says 'reruns | ok | [3-9]'
}

# Failures cost their rows; what the time did not allow is there after a second call, which repeats no part that has a result.
quarter_goes_on()
{
    quarter_folder
    put "$work/dir/bin/conform_step" 'exit 1'
    put "$work/dir/bin/train_vit" 'exit 1'
    put "$work/dir/bin/conform" 'sleep 1; echo "it: 3 passed, 0 failed"'
    quarter 1 --total 20 --copy "$work/copy" && says '| batch 2, f16 | LEFT OUT\|train_vit: .* | LEFT OUT' && cmp "$work/copy/report.md" "$work/dir/results/report.md" || return
    quarter 1 --continue --copy "$work/copy" && ! says 'LEFT OUT' && says 'reruns | FAILED' && says 'train_vit: .* | FAILED' && says '| again: train_vit' &&
        says 'train_gpt: .* | ok' && [ "$(find "$work/copy" -type f | wc -l)" -le 8 ] && [ "$(du -sm "$work/copy" | cut -f 1)" -le 16 ]
}

# Logs that are too large are left out; the numbers are copied.
quarter_is_small()
{
    quarter_folder
    put "$work/dir/bin/conform_step" 'head -c 9000000 /dev/urandom; echo; echo well'
    rm -rf "$work/copy"
    quarter 0 --copy "$work/copy" && [ "$(du -sm "$work/copy" | cut -f 1)" -le 16 ] && tar -tzf "$work/copy/results.tar.gz" | grep -q '^results/rows' &&
        ! tar -tzf "$work/copy/results.tar.gz" | grep -q '^logs/'
}

row "a sound folder passes" well
row "several stages have one report, and versions once" two_stages
row "wrong command lines are refused" no_such_stage
row "a wrong entry fails the stage and is in the report" wrong_row
row "without a device the report says why" no_device
row "  and names the driver's files" device_files
row "programs that do not start here are told from wrong ones" no_start
row "a part that hangs is ended" hangs
row "a part without time is left out, which is no success" left_out
row "results that were there are kept, and named where later ones differ" kept
row "a continued run runs only the remaining parts" goes_on
row "a part that timed out is tried once more" timed_out
row "  in the same call, when the others are through" retried
row "  with the numbers that it has" retried_with_facts
row "a machine that disappears leaves earlier results" went_away
row "all stages end within the total" within_total
row "a complete copy can be continued in another folder" copied
row "numbers are compared with the targets" numbers
row "  which the model's page has" model_is_read
row "each stage tunes its plans before it measures" tunes
row "contestants have rows and facts" beside_peer
row "a contestant out of memory leaves the others" peer_fails dies 'OutOfMemoryError'
row "a contestant that hangs leaves the others" peer_fails hangs 'no time was left'
row "libraries are found in wheels, and their dependencies too" wheels
row "Python does not see the carried libraries" python_apart
row "each part of the device has a process, and the libraries have logs" smoke
row "  which the libraries write, by the variables that are set" libraries_log
row "smoke alone has a minute" smoke_total
row "what fails is run again in other ways" again
row "training that fails is run again in other ways" trains_again
row "  each program in the ways that it knows" others_again
row "a sanitizer without findings passes" sanitizer '' 0 'racecheck, every kernel | ok'
row "a sanitizer's finding fails, and is in the report" sanitizer finds 1 'Invalid __global__ write'
row "a sanitizer without output fails" sanitizer silent 1 'memcheck has no summary'
row "without a sanitizer the stage fails" no_sanitizer
row "a profile has operations and kernels, summed by name" profile '' 0 '2.000.8.0.2.apply_vectors<T>(a, b)'
row "  of one step, with their sums" profile '' 0 '| by kernel, ncu | ok | .* | 2 kernels, 2.25 ms and 9 MB a step'
row "  and what the device takes for each entry, by events" profile '' 0 '| by entry, events | ok | .* | 2 entries, 3 calls, 1.75 ms a step'
row "  without ncu too" profile absent 0 '| by entry, events | ok'
row "a profile without times of entries fails" profile untimed 1 'no table of entries was written'
row "counters that are not allowed are said" profile forbidden 1 'ERR_NVGPUCTRPERM'
row "a profile without kernels fails" profile silent 1 'no kernel in its table'
row "without ncu there are operations" profile absent 0 'by kernel, ncu | skipped'
row "a profile without operations fails" profile untraced 1 'no trace was written'
row "  and one without a step" profile idle 1 'no operation of a step is in the trace'
row "a text that is learnt passes" transformers_train 0 '| train_gpt learns a text, --amp bf16 | ok | .* | loss 9.000, then 3.000'
row "  and a loss that does not fall fails" transformers_train 1 '| train_gpt learns a text, --amp bf16 | FAILED' '9 9 9 9 9 9 9 9 9 9 9 9'
row "a transformer's recorded step that differs fails" transformers_differ
row "transformers have a step's time, or fail" transformers_bench
row "a collective that is wrong fails" wrong_collective
row "a quarter of an hour has some of each stage" quarter_is_broad
row "  and hangs cost seconds" quarter_hangs
row "  but a slow program does not hang" quarter_waits
row "  and a second call has the rest" quarter_goes_on
row "  in a few megabytes" quarter_is_small
echo "$passed passed, $failed failed"
[ $failed = 0 ]
