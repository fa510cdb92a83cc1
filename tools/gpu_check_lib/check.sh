# gpu_check's stages that test results: conform, train, sanitize. shellcheck shell=bash

# --- conform ---

# TITLE COMMAND...: a part whose failed rows are in the report in full.
conforms()
{
    local title=$1
    part "$@"
    grep '^FAIL' "$log" 2>/dev/null | head -60 | say "$title"
}

stage_conform()
{
    local broken='' backend=${device%%:*}
    [ "$control" != conform ] || broken=--break
    table "conformance"
    conforms "every entry and dtype against ref in double" "$bin/conform" --isolate 60 --verbose --backend "$backend"
    # shellcheck disable=SC2086
    conforms "a step's gradients, recorded steps, reruns" "$bin/conform_step" --isolate 120 --device "$device" $broken
    conforms "fused convolutions against ref in double" "$bin/conform" --isolate 60 --verbose --backend "$backend" --fused on --filter conv2d_
    [ "$backend" != cuda ] || conforms "products in TF32 within its bound" "$bin/conform" --isolate 60 --verbose --backend cuda --tf32
    [ "$backend" != cuda ] || conforms "attention composed of products" "$bin/conform" --isolate 60 --verbose --backend cuda --fused off --filter attention
}

# --- train ---

# RUN KEY: prints the last value of the key in the run's metrics.
last_number()
{
    sed -n 's/.*"'"$2"'":\([-0-9.eE+]*\).*/\1/p' "$dir/work/$1/metrics.jsonl" | tail -1
}

train()
{
    local name=$1
    shift
    rm -rf "${dir:?}/work/$name"
    # shellcheck disable=SC2086
    ${GPU_CHECK_UNDER-} "$bin/${trains-train_resnet50}" --progress off --no-tensorboard --output "$dir/work/$name" "$@" ${GPU_CHECK_MORE-}
}

resume()
{
    local name=$1
    shift
    # shellcheck disable=SC2086
    ${GPU_CHECK_UNDER-} "$bin/train_resnet50" --progress off --no-tensorboard --output "$dir/work/$name" --resume auto "$@" ${GPU_CHECK_MORE-}
}

# LEAST-TOP-1 RUN ARGUMENTS...: trains; fails below that top-1 accuracy in percent.
learns()
{
    local least=$1 name=$2
    shift 2
    train "$name" "$@" || return
    awk -v got="$(last_number "$name" val_top1)" -v want="$least" -v loss="$(last_number "$name" train_loss)" 'BEGIN {
        printf "val top-1 %.2f %%, at least %g wanted; training loss %.3f\n", got, want, loss
        exit !(got >= want) }'
}

# RUN OTHER: fails if their weights differ in any bit.
same_weights()
{
    cmp "$dir/work/$1/model.safetensors" "$dir/work/$2/model.safetensors" && echo "the same bits"
}

# Trains both runs from the start, so that files of an earlier call do not matter. Fails if captured and eager steps differ.
recorded_is_eager() # NAME ARGUMENTS...
{
    local name=$1
    shift
    train "graph-$name" --deterministic "$@" && train "eager-$name" --deterministic "$@" --no-graph &&
        same_weights "graph-$name" "eager-$name"
}

reruns_are_equal() # NAME ARGUMENTS...
{
    local name=$1
    shift
    train "first-$name" --deterministic "$@" && train "second-$name" --deterministic "$@" &&
        same_weights "first-$name" "second-$name"
}

rank_is_none() # NAME RANK-ARGUMENTS ARGUMENTS...
{
    local name=$1 ranks=$2
    shift 2
    # shellcheck disable=SC2086
    train "none-$name" --deterministic "$@" && train "rank-$name" --deterministic "$@" $ranks &&
        same_weights "none-$name" "rank-$name"
}

# RUN OTHER: prints the mean relative difference of their losses over all steps.
apart()
{
    local run
    for run in "$1" "$2"; do
        sed -n 's/.*"event":"step".*"loss":\([-0-9.eE+]*\).*/\1/p' "$dir/work/$run/metrics.jsonl" >"$dir/work/$run/losses"
    done
    paste "$dir/work/$1/losses" "$dir/work/$2/losses" | awk 'NF == 2 && $1 > 0 { d = ($1 - $2) / $1; sum += d < 0 ? -d : d; n++ }
        END { if (n) print sum / n; else print "none" }'
}

# Compares losses: the sums differ in order, so the bits do; a wrong kernel deviates far more within a few steps.
fused_is_unfused() # NAME ARGUMENTS...
{
    local name=$1 way distance
    shift
    for way in off on auto; do
        train "$name-$way" "$@" --fused $way || return
    done
    for way in on auto; do
        distance=$(apart "$name-off" "$name-$way")
        printf 'fused %s: losses %s apart; ' $way "$distance"
        awk -v d="$distance" 'BEGIN { exit !(d != "none" && d <= 0.03) }' || return
    done
    echo "0.03 allowed"
}

# Trains the first half on one device and the second on another; the loss must agree with a run on the first.
crosses()
{
    local name=$1 there=$2 here=$3
    shift 3
    train "$name-whole" --deterministic --device "$there" "$@" --max-steps 8 || return
    train "$name" --deterministic --device "$there" "$@" --max-steps 4 || return
    resume "$name" --deterministic --device "$here" "$@" --max-steps 8 || return
    awk -v a="$(last_number "$name" loss)" -v b="$(last_number "$name-whole" loss)" -v there="$there" 'BEGIN {
        printf "loss %.6f, on %s alone %.6f\n", a, there, b
        d = a - b; exit !(a != "" && b != "" && d * d <= (0.02 * b) ^ 2) }'
}

# Sets the caller's variables; smaller sizes with --small, precisions of the CPU with --device cpu.
training_shape()
{
    bottleneck=(--depths 1,1,1,1 --width 16 --batch-size 16 --max-steps 10)
    data=(--data "$dir/data") host=cpu fast=shampoo amps="f16 off bf16" want=75 half=f16
    if [ -f "$dir/data/train-images-idx3-ubyte.gz" ]; then
        data=(--data fashion-mnist)
        export LATHER_FASHION_MNIST="$dir/data"
    fi
    [ "$device" != cpu ] || amps="off bf16" host=ref half=bf16
    learn=("${data[@]}" --device "$device" --arch resnet18 --width 32 --batch-size 128 --epochs 5)
    if $small; then
        learn=("${data[@]}" --device "$device" --arch resnet10 --width 4 --batch-size 32 --epochs 1 --limit-train-batches 80
            --limit-eval-batches 8 --lr 0.01)
        bottleneck=(--depths 1,1,1,1 --width 8 --batch-size 4 --max-steps 3)
        fast=adamw want=35 half=off
    fi
    [ "$control" != learn ] || learn+=(--lr 0)
    short=("${data[@]}" --arch resnet10 --width 8 --batch-size 16 --epochs 1 --limit-eval-batches 1 --lr 0.02)
}

stage_train()
{
    local data host fast amps want half learn short bottleneck amp optim
    training_shape
    set -- --device "$device" "${short[@]}" --max-steps 6 --amp $half
    most=120
    if [ "$control" = transformers ]; then
        table "training transformers"
        train_transformers
        return
    fi
    table "training on the carried images"
    part "learns, $fast, --amp ${amps%% *}" learns $want "learn-${amps%% *}" "${learn[@]}" --optim $fast --amp "${amps%% *}"
    [ "$control" != learn ] || return
    for optim in shampoo sgd adamw; do
        part "recorded = eager, $optim, --amp $half" recorded_is_eager $optim "$@" --optim $optim
        part "a second run has the same bits, $optim, --amp $half" reruns_are_equal $optim "$@" --optim $optim
    done
    for amp in ${amps#* }; do
        [ $amp != bf16 ] || most=200 # its fused kernels are compiled first
        part "learns, $fast, --amp $amp" learns $want "learn-$amp" "${learn[@]}" --optim $fast --amp "$amp"
    done
    most=120
    $small || part "learns, sgd, --amp off" learns $want learn-sgd "${learn[@]}" --optim sgd --amp off
    most=200
    for amp in f16 bf16; do
        [ "$amp$device" != f16cpu ] || continue
        part "fused = unfused nearly, --amp $amp" fused_is_unfused "fused-$amp" --device "$device" "${data[@]}" --arch resnet50 \
            "${bottleneck[@]}" --epochs 1 --limit-eval-batches 1 --lr 0.01 --amp $amp
    done
    for optim in adamw shampoo; do # the calls of NCCL, recorded too: a group of one rank
        part "a rank by NCCL = none, $optim" rank_is_none $optim "$([ "${device%%:*}" != cuda ] || echo --dist mpi)" "$@" --optim $optim
    done
    part "saved on $device, resumed on $host" crosses to-host "$device" $host "${short[@]}" --optim adamw
    part "saved on $host, resumed on $device" crosses from-host $host "$device" "${short[@]}" --optim adamw
    most=120
    table "training transformers"
    train_transformers
}

# --- sanitize ---

# TOOL COMMAND...: fails unless the tool's summary reports 0 errors. Without a summary the tool checked nothing.
sanitized()
{
    local tool=$1 said
    shift
    said=$dir/logs/sanitizer-$tool-$$.log
    LATHER_POOL=off "$sanitizer" --tool "$tool" --error-exitcode 9 "$@" >"$said" 2>&1 || {
        grep -E '=========|FAIL' "$said" | head -60
        grep -E 'SUMMARY' "$said" || tail -3 "$said"
        return 1
    }
    grep -E '(ERROR|RACECHECK) SUMMARY: 0 (errors|hazards)' "$said" && return
    echo "$tool has no summary: $(tail -1 "$said")"
    return 1
}

# TOOL: prints the tool's messages with their counts.
findings()
{
    grep -h '^=========' "$dir/logs/sanitizer-$1"-*.log 2>/dev/null | sort | uniq -c | sort -rn | head -30
}

# Runs the project's kernels by entry under each tool, and a training run under memcheck only: the libraries' kernels read
# uninitialized values that they do not use.
stage_sanitize()
{
    local tool amp sanitizer program=("$bin/train_resnet50" --data synthetic:16:32:4 --arch resnet10 --width 8
        --batch-size 4 --max-steps 3 --epochs 1 --progress off --eval-every 0 --optim shampoo --no-graph)
    local conform=("$bin/conform" --backend "${device%%:*}" --own)
    ! $small || conform+=(--filter batchnorm_stats)
    export sanitizer
    sanitizer=$(find_sanitizer)
    [ "$control" != sanitize ] || export FAKE_SANITIZER=finds
    $continued || rm -f "$dir"/logs/sanitizer-*.log
    table "compute-sanitizer"
    if [ -z "$sanitizer" ]; then
        pass_over "compute-sanitizer" "LEFT OUT" "not found; LATHER_SANITIZER=PATH names one"
        return
    fi
    most=160
    for amp in f16 off; do
        [ "$amp$device" != f16cpu ] || amp=bf16
        part "memcheck, three steps, --amp $amp" sanitized memcheck "${program[@]}" --device "$device" --amp "$amp"
    done
    for tool in memcheck racecheck initcheck synccheck; do
        part "$tool, every kernel" sanitized $tool "${conform[@]}"
        findings $tool | say "$tool, every kernel"
    done
}
