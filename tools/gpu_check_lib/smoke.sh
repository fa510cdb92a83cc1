# gpu_check's stage smoke: each kind of device work once, small, in a separate process.
# shellcheck shell=bash

# NAME COMMAND...: runs the command with the libraries' logs, one file for each library: errors and warnings of cuDNN, whose calls
# would fill megabytes, and each call of the others.
logged()
{
    local name=$1 base file
    shift
    base=$dir/logs/smoke-libraries-$(name_of "$name")
    rm -f "$base".*
    CUDNN_LOGLEVEL_DBG=2 CUDNN_LOGDEST_DBG=$base.cudnn CUBLAS_LOGINFO_DBG=1 CUBLAS_LOGDEST_DBG=$base.cublas \
        CUBLASLT_LOG_LEVEL=5 CUBLASLT_LOG_FILE=$base.cublaslt CUSOLVERDN_LOG_LEVEL=5 CUSOLVERDN_LOG_FILE=$base.cusolver \
        NCCL_DEBUG=INFO NCCL_DEBUG_FILE=$base.nccl "$@"
    local code=$?
    for file in "$base".*; do
        [ -s "$file" ] || rm -f "$file"
    done
    return $code
}

# TITLE COMMAND...: a part with the libraries' logs, and its failed rows in full.
smokes()
{
    local title=$1
    shift
    conforms "$title" logged "$title" "$@"
}

# TITLE ONLY [ARGUMENTS...]: a part that runs these rows of conform.
smoke_rows()
{
    local title=$1 only=$2
    shift 2
    smokes "$title" "$bin/conform" --isolate 20 --verbose --backend "${device%%:*}" --only "$only" "$@"
}

# Convolutions use the formats of training; in bf16 cuDNN compiles fused kernels at run time.
smoke_convolutions()
{
    local entry
    for entry in conv2d conv2d_grad_x conv2d_grad_w conv2d_stats conv2d_grad_x_sums conv2d_norm_stats conv2d_norm_grad_w; do
        smoke_rows "cuDNN: $entry" "$entry $half 3x3 pad 1" --fused on
    done
    smoke_rows "cuDNN: the first convolution on blocks of pixels" "conv2d_stats $half 7x7 stride 2 pad 3, 3 channels" --fused on
    [ $half = f32 ] || smoke_rows "cuDNN: a kernel that is compiled" "conv2d_stats bf16 3x3 pad 1" --fused on
    smoke_rows "cuDNN: attention" "attention $half several sequences, causal"
    smoke_rows "cuDNN: attention's gradient" "attention_grad $half several sequences, causal"
}

smoke_matrices()
{
    local entry
    smoke_rows "cuBLASLt: products in $half" "matmul $half"
    smoke_rows "cuBLASLt: products in f32" "linear f32"
    for entry in gram mode_product; do
        smoke_rows "cuBLAS: $entry" "$entry f32"
    done
    for entry in eigh qr rational; do
        smoke_rows "cuSOLVER: $entry" "$entry f32"
    done
}

# Runs each NCCL collective with a single rank.
smoke_collectives()
{
    [ -x "$bin/gpu_ranks" ] || {
        pass_over "NCCL: each collective, one rank" skipped "gpu_ranks was not carried: the build had no NCCL"
        return
    }
    smokes "NCCL: each collective, one rank" env RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 \
        MASTER_PORT=$((20000 + RANDOM % 20000)) "$bin/gpu_ranks" cases 1
}

stage_smoke()
{
    local ranks=() half=f16
    [ "${device%%:*}" != cpu ] || half=f32
    [ "${device%%:*}" != cuda ] || ranks=(--dist mpi --shard-optimizer --shard-gradients --clip-grad 1)
    most=40
    table "each kind of work once"
    smoke_rows "the device opens, a copy" "cast f32" --first
    # One process until a row fails, then a new one: a process for each row would take a minute to start.
    smokes "every kernel of this project" "$bin/conform" --isolate 20 --verbose --backend "${device%%:*}" --own --first
    smoke_rows "kernels of strided pixels" "normalize f32"
    smoke_rows "kernels of many rows" "embedding_grad f32"
    smoke_convolutions
    smoke_matrices
    smokes "a recorded step is an eager one" "$bin/conform_step" --isolate 30 --device "$device" --recorded
    smokes "NCCL, one rank" train smoke --data synthetic:16:32:4 --arch resnet10 --width 8 --batch-size 4 --max-steps 3 --epochs 1 \
        --eval-every 0 --device "$device" --optim adamw "${ranks[@]}"
    [ "${device%%:*}" != cuda ] || smoke_collectives
    [ "$control" != smoke ] || smokes "control" bash -c 'kill -SEGV $$'
}
