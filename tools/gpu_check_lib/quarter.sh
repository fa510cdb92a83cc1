# gpu_check's stage quarter: a quarter of an hour on a borrowed machine, the widest view first. Its parts are those of the other
# stages, in their tables. Nothing is retried before the end, and a part that writes nothing for QUIET seconds is ended.
# shellcheck shell=bash

QUIET=${GPU_CHECK_QUIET-20}

# Stage, function, and the seconds that it may take; the next stage begins at once.
QUARTER=("smoke quick_contact 40" "bench quick_headline 110" "conform quick_conform 60" "train quick_learning 45" "peer quick_peer 160"
    "shampoo quick_shampoo 60" "profile quick_profile 45" "bench quick_transformers 50")

quick_contact()
{
    local half=f16
    [ "${device%%:*}" != cpu ] || half=f32
    most=40 quiet=40 # the first call loads gigabytes of libraries
    table "each kind of work once"
    smoke_rows "the device opens, a copy" "cast f32" --first
    most=20 quiet=$QUIET
    measure_ceilings
    table "each kind of work once"
    smokes "every kernel of this project" "$bin/conform" --isolate "$QUIET" --verbose --backend "${device%%:*}" --own --first
    smoke_rows "cuDNN: conv2d_norm_stats" "conv2d_norm_stats $half 3x3 pad 1" --fused on
    smoke_rows "cuBLASLt: products in $half" "matmul $half"
    smoke_rows "cuSOLVER: eigh" "eigh f32"
    [ "${device%%:*}" != cuda ] || smoke_collectives
}

quick_headline()
{
    local steps warm batch amp shape cell precision
    bench_shape
    for precision in f16 bf16; do
        [ "$precision$device" != f16cpu ] || continue
        tune "$batch" $precision
        table "a ResNet-50 training step" "${timed}relative to the roof"
        bench_step "$batch" $precision ""
        roof_fact "bench.roof$([ $precision = f16 ] || echo .$precision)" "$batch"
    done
    [ "$control" != quarter ] || part "control" "$bin/bench" train --device none
}

quick_conform()
{
    local backend=${device%%:*} few=() step=()
    ! $small || few=(--filter relu) step=(--recorded)
    table "conformance"
    conforms "every entry and dtype against ref in double" "$bin/conform" --isolate "$QUIET" --verbose --backend "$backend" "${few[@]}"
    conforms "a step's gradients, recorded steps, reruns" "$bin/conform_step" --isolate "$QUIET" --device "$device" "${step[@]}"
}

quick_learning()
{
    local data host fast amps want half learn short bottleneck
    training_shape
    table "training on the carried images"
    part "learns, $fast, --amp ${amps%% *}" learns $want "learn-${amps%% *}" "${learn[@]}" --optim $fast --amp "${amps%% *}"
    part "recorded = eager, adamw, --amp $half" recorded_is_eager adamw --device "$device" "${short[@]}" --max-steps 6 --amp $half --optim adamw
}

quick_peer()
{
    local rounds=(--rounds 2 --steps 20 --warmup 5) shape=(--recompute off) quiet=0 # PyTorch compiles in silence, and has its own limit
    table "lather and PyTorch, alternating" "images/s, median | range | lather is faster by | peak memory | first step | compile"
    needs_torch "PyTorch" || return
    if $small; then
        shape=(--arch resnet18 --image-size 32) rounds=(--rounds 1 --steps 1 --warmup 1 --arch resnet18 --image-size 32 --layout channels_last)
        peer_cell 2:f32 60 eager,compiled
    else
        peer_cell 256:f16 130 eager,compiled
    fi
}

quick_shampoo()
{
    local steps warm batch amp shape cell turn=1 least=10 cells="50:2048:tf32 1:1024:tf32"
    bench_shape
    ! $small || cells="3:64:tf32" least=2
    # shellcheck disable=SC2086
    compare_with_adamw $cells
}

quick_profile()
{
    export control
    table "a training step of ResNet-50, not captured"
    [ "${device%%:*}" != cuda ] || { part "by entry, events" by_entry && say_rows "by entry, events"; }
    if [ "${device%%:*}" = cuda ] && [ -n "$(find_ncu)" ]; then
        part "by kernel, ncu" by_kernel && say_rows "by kernel, ncu"
    else
        pass_over "by kernel, ncu" skipped "there is no ncu; LATHER_NCU=PATH names one"
    fi
}

quick_transformers()
{
    bench_transformers
}

# Runs the stages of QUARTER, and then once more what failed, as it was and with waiting after each operation.
run_quarter()
{
    local status=0 plan name seconds failed_parts=() again quiet=$QUIET retrying=true
    local WAYS=("as it was" "LATHER_SYNC=1") MOST_AGAIN=12 LONGEST_AGAIN=$QUIET
    for plan in "${QUARTER[@]}"; do
        read -r stage name seconds <<<"$plan"
        ! $small || seconds=$((4 * seconds)) # a dry run emulates the device
        one_stage "$name" "$seconds" || status=1
        failed_parts+=("${again[@]}")
    done
    again=("${failed_parts[@]}") deadline=$end
    run_again
    publish
    return $status
}
