#!/usr/bin/env python3
"""Runs train_resnet50 --device cuda on the stand-in. Every order of queued work gives the same bits, dropped waits are
detected, features that use the device work, and a device that is missing, too old, too small or faulty is reported.
tests/models/recorded.py compares the optimizers; tests/models/gpu_ranks.py runs several ranks.

    tests/cuda/standin/train.py BUILD/models/resnet50/train_resnet50 BUILD [ROW]

Prints cmocka's lines."""
import difflib
import filecmp
import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))
from rows import full  # noqa: E402
from standin_ranks import ENV, TIMEOUT, environment, run_rows  # noqa: E402

PROGRAM = os.path.abspath(sys.argv[1])
SMALL = ["--data", "synthetic:24:16:3", "--arch", "resnet10", "--width", "4", "--batch-size", "4", "--epochs", "2",
         "--max-steps", "8", "--threads", "1", "--workers", "1", "--progress", "off", "--no-tensorboard", "--deterministic",
         "--lr", "0.02", "--keep", "1"]
CUDA = ["--device", "cuda"]
ADAMW = ["--optim", "adamw"]
MAIN = ["main-first", "main-last"]
COUNTS = re.compile(r"(\d+) waits \((\d+) dropped\), (\d+) captures, (\d+) launches")


def start(cwd, name, *args, order="now", devices=1, **wishes):
    """Starts the program with output folder cwd/name. wishes: environment variables without their prefix LATHER_. The slow
    check that the host never touches device memory is off unless STANDIN_PROTECT=1."""
    env = dict(environment(cwd, order, devices), LATHER_STANDIN_LOG="1", LATHER_STANDIN_PROTECT="0")
    env.update({"LATHER_" + key: str(value) for key, value in wishes.items()})
    again = [] if "--resume" in args else ["--overwrite"]
    return subprocess.Popen([PROGRAM, *SMALL, *args, *again, "--output", os.path.join(cwd, name)], env=env,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(cwd, name, *args, code=0, **wishes):
    """Returns the finished process, with its stderr as .said and the stand-in's counts."""
    with start(cwd, name, *args, **wishes) as p:
        try:
            p.said = p.communicate(timeout=TIMEOUT)[1]
        except subprocess.TimeoutExpired:
            p.kill()
            raise
    assert code is None or p.returncode == code, f"{name}: exit {p.returncode}, want {code}: {p.said[-600:]}"
    found = COUNTS.search(p.said)
    p.waits, p.drops, p.captures, p.launches = map(int, found.groups()) if found else [0] * 4
    return p


def same(cwd, a, b):
    return filecmp.cmp(*(os.path.join(cwd, name, "model.safetensors") for name in (a, b)), shallow=False)


def numbers(cwd, name, event="step"):
    with open(os.path.join(cwd, name, "metrics.jsonl"), encoding="utf-8") as f:
        return [row for row in map(json.loads, f) if row["event"] == event]


def agree(cwd, flags, *orders):
    """Captured steps in the given orders have the bits of eager steps."""
    run(cwd, "eager", *CUDA, *flags, "--no-graph")
    for order in orders:
        p = run(cwd, order, *CUDA, *flags, order=order)
        assert p.captures and p.launches, f"{flags}: {p.captures} captures, {p.launches} launches"
        assert same(cwd, "eager", order), f"{flags}: {order} differs from eager"
        want, got = (numbers(cwd, name, "epoch")[-1] for name in ("eager", order))
        assert want["val_loss"] == got["val_loss"], f"{flags}: {order}: {want}, {got}"


# --- rows ---------------------------------------------------------------------------------------

def every_order_has_the_same_bits(cwd):
    agree(cwd, [], "late", "shuffled", *MAIN)
    for order in ("late", *MAIN):
        run(cwd, "eager " + order, *CUDA, "--no-graph", order=order)
        assert same(cwd, "eager", "eager " + order), order
    for seed in (2, 3):
        run(cwd, f"seed{seed}", *CUDA, order="shuffled", STANDIN_SEED=seed)
        assert same(cwd, "eager", f"seed{seed}")


@full
def the_host_does_not_touch_device_memory(cwd):
    run(cwd, "late", *CUDA, order="late", STANDIN_PROTECT=1)


MORE = [*CUDA, "--max-steps", "6", "--eval-every", "0"]


def losses(cwd, name):
    return [row.get("loss") for row in numbers(cwd, name)]  # None if not finite


def is_detected(cwd, **wishes):
    """Returns true if the run fails or differs from the run "right"."""
    p = run(cwd, "wrong", *MORE, code=None, **wishes)
    assert p.drops > 0 or p.returncode, "nothing was dropped"
    return p.returncode != 0 or not same(cwd, "right", "wrong") or losses(cwd, "right") != losses(cwd, "wrong")


def dropped_stream_waits_are_detected(cwd):
    """Control for the rows above: drops all waits, then single ones with one of the two streams ahead of the other. Only a few
    matter: the device is idle when the first batch comes."""
    waits = run(cwd, "right", *MORE, order="late").waits
    assert is_detected(cwd, order="late", STANDIN_DROP=-1)
    found = [any(is_detected(cwd, order=order, STANDIN_DROP=wait) for order in MAIN) for wait in range(4, min(waits, 8) + 1)]
    assert found and sum(found) >= 2 * len(found) // 3, f"found: {found}"


@full
def dropped_host_waits_are_detected(cwd):
    """Waits before image buffers are reused, and for results: drops all, then single ones until three are detected. A copy of
    pageable memory waits twice, so one dropped wait is harmless."""
    run(cwd, "right", *MORE, order="late")
    assert is_detected(cwd, order="late", STANDIN_DROP_HOST=-1)
    found, wait = [], 1
    while sum(found) < 3:
        found.append(is_detected(cwd, order="late", STANDIN_DROP_HOST=wait))
        wait += 2


@full
def tf32_and_fused_kernels_too(cwd):
    agree(cwd, ["--amp", "tf32"], "late")
    agree(cwd, ["--amp", "bf16", "--fused", "on"], "late")


@full
def mixup_too(cwd):
    agree(cwd, ["--mixup-alpha", "0.4"], "shuffled")


@full
def partial_batches_too(cwd):
    agree(cwd, ["--eval-batch-size", "5", "--clip-grad", "1"], *MAIN)


@full
def steps_that_keep_all_activations_too(cwd):
    agree(cwd, ["--recompute", "off"], "shuffled")


@full
def memory_decides_what_is_recomputed(cwd):
    """A resumed run keeps the choice, whatever memory it has."""
    large = ["--data", "synthetic:64:128:3", "--width", "16", "--amp", "f16", "--batch-size", "32", "--max-steps", "1",
             "--eval-every", "-1", "--recompute", "auto"]

    def chosen(*args, **wishes):
        p = run(cwd, "run", *CUDA, *large, *args, STANDIN_DRY=2, **wishes)
        with open(os.path.join(cwd, "run", "config.yaml"), encoding="utf-8") as f:
            found = re.findall(r"^recompute: (\w+)", f.read(), re.M)
        assert re.search(f"--recompute auto: {found[0]}[:,] ", p.said), (found, p.said)
        return found[0]

    assert chosen(STANDIN_MEMORY=224) == "cheap"
    assert chosen("--resume", "auto", "--max-steps", "2", STANDIN_MEMORY=4096) == "cheap"
    assert chosen(STANDIN_MEMORY=4096) == "off"
    assert chosen("--resume", "auto", "--max-steps", "2", STANDIN_MEMORY=224) == "off"
    assert chosen("--device", "cpu", "--amp", "off") == "off"


@full
def a_killed_run_resumes_bit_for_bit(cwd):
    more = ["--checkpoint-every", "1", *ADAMW, "--epochs", "4", "--max-steps", "20"]
    run(cwd, "whole", *CUDA, *more, order="late")
    latest = os.path.join(cwd, "cut", "checkpoints", "latest")
    with start(cwd, "cut", *CUDA, *more, order="late") as p:
        end = time.monotonic() + TIMEOUT
        while p.poll() is None and not os.path.exists(latest) and time.monotonic() < end:
            time.sleep(0.002)
        p.kill()
    assert p.returncode == -signal.SIGKILL and os.path.exists(latest), f"exit {p.returncode}"
    run(cwd, "cut", *CUDA, *more, "--resume", "auto", order="shuffled")
    assert same(cwd, "whole", "cut")


@full
def checkpoints_resume_on_the_other_device(cwd):
    """Losses agree to 1 %: sums differ in order."""
    for here, there in (("cuda", "cpu"), ("cpu", "cuda")):
        name = f"{here} {there}"
        run(cwd, here, "--device", here, *ADAMW, order="late")
        run(cwd, name, "--device", here, *ADAMW, "--max-steps", "4", order="late")
        run(cwd, name, "--device", there, *ADAMW, "--resume", "auto", order="late")
        want, got = (numbers(cwd, n)[-1] for n in (here, name))
        assert want["step"] == got["step"] == 8 and abs(got["loss"] - want["loss"]) <= 0.01 * want["loss"], (want, got)


@full
def it_overfits_two_batches(cwd):
    run(cwd, "learn", *CUDA, "--overfit-batches", "2", "--epochs", "30", "--max-steps", "60", "--eval-every", "30",
        "--lr", "0.05", "--label-smoothing", "0", order="late")
    first, last = numbers(cwd, "learn")[0]["loss"], numbers(cwd, "learn", "epoch")[-1]
    assert last["train_top1"] == 100 and last["train_loss"] < first / 2, f"from {first} to {last}"


@full
def skipped_steps_keep_running_statistics(cwd):
    """After the first step weights overflow in f16, so all later steps are skipped, captured ones included."""
    p = run(cwd, "skip", *CUDA, "--amp", "f16", "--lr", "1e6", "--on-nan", "skip")
    assert p.captures and p.launches and sum(r.get("skipped", 0) for r in numbers(cwd, "skip")) == 7
    with open(os.path.join(cwd, "skip", "model.safetensors"), "rb") as f:
        header = json.loads(f.read(*struct.unpack("<Q", f.read(8))))
        data = f.read()
    del header["__metadata__"]
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = struct.unpack("<q" if entry["dtype"] == "I64" else f"<{(end - begin) // 4}f", data[begin:end])
        assert "num_batches" not in name or values == (1,), (name, values)
        assert "running" not in name or all(map(math.isfinite, values)), (name, values)


@full
def the_second_device_has_the_same_bits(cwd):
    run(cwd, "one", *CUDA, order="late", devices=2)
    run(cwd, "two", "--device", "cuda:1", order="late", devices=2)
    assert same(cwd, "one", "two")


@full
def tensors_may_be_allocated_without_the_pool(cwd):
    """Without the pool, memory is freed while the device works, and steps are not captured."""
    run(cwd, "pool", *CUDA)
    p = run(cwd, "none", *CUDA, order="late", POOL="off")
    assert same(cwd, "pool", "none") and not p.captures and "without a graph" not in p.said, p.said


@full
def failures_that_only_cost_time(cwd):
    """The run continues without capture, or leaks memory; no later operation reports the error."""
    run(cwd, "right", *CUDA)
    for call in ("cudaStreamBeginCapture:1", "cudaStreamEndCapture:1", "cudaGraphInstantiate:1", "cudaFreeHost:1",
                 "cudaFree:1"):
        run(cwd, "run", *CUDA, order="late", STANDIN_FAIL=call)
        assert same(cwd, "right", "run"), call


def says(cwd, *words, args=(), **wishes):
    p = run(cwd, "bad", *CUDA, *args, code=1, **wishes)
    told = [line for line in p.said.splitlines() if line.startswith("train_resnet50: ")]
    assert told, p.said
    for word in words:
        assert re.search(word, told[-1]), f"'{told[-1]}' does not say '{word}'"
    return p


def a_missing_driver_is_reported(cwd):
    says(cwd, "this machine has no NVIDIA driver", devices=-1)


@full
def an_old_driver_is_reported(cwd):
    says(cwd, r"the driver is for CUDA \d+\.0, want one for CUDA \d+\.0 or later", STANDIN_OLD=1)


@full
def a_wrong_library_version_is_reported(cwd):
    """The message has the version found, its path, and the version wanted. Control: a later minor version works."""
    for found, words in (("cuDNN 9.7", r"cuDNN 9\.7 was found \(.+\), want 9\.8 or a later 9\.x"),
                         ("cuDNN 10.1", r"cuDNN 10\.1 was found"), ("cuBLAS 11.4", r"cuBLAS 11\.4 was found \(.+\), want \d+\.0"),
                         ("cuSOLVER 99.0", r"cuSOLVER 99\.0 was found \(.+\), want \d+\.0 or a later")):
        says(cwd, f"device cuda: {words}", STANDIN_VERSION=found)
    run(cwd, "run", *CUDA, "--max-steps", "1", STANDIN_VERSION="cuDNN 9.99")


def a_missing_device_is_reported(cwd):
    says(cwd, "there is a driver, but no device", devices=0)


@full
def an_unknown_device_is_reported(cwd):
    says(cwd, r"device cuda:1: there are 1 devices", args=["--device", "cuda:1"])


@full
def too_little_memory_is_reported(cwd):
    """The message has the tensor, its bytes, the free memory, and a batch that may fit."""
    args = ["--data", "synthetic:64:64:3", "--batch-size", "64", "--max-steps", "1"]
    says(cwd, r"no [\d.]+ MiB of device memory", r"[\d.]+ of 52\.0 MiB are free", r"f32 \[\d+,\d+,\d+,\d+\]",
         r"a batch of \d+ instead of 64 may fit", args=args, STANDIN_MEMORY=52)


@full
def failing_calls_are_reported(cwd):
    """The message names the failing call, not a later one of the clean-up, which waits for queued copies."""
    for call, words in {"cudaMallocHost:2": "page-locked memory", "cudaEventRecord:2": "upload", "cudaEventSynchronize:3": "wait for results",
                        "cudaStreamWaitEvent:2": "upload", "cudaGraphLaunch:2": "recorded step"}.items():
        says(cwd, f"cuda:0: {words}: {call.split(':')[0]}: CUDA says: cudaErrorUnknown, unknown error \\(999\\)", order="late", STANDIN_FAIL=call)


LIBRARIES = (("cudnnBackendExecute:140", [], r"conv2d\w*: cudnn: cudnnBackendExecute: ", r"CUDNN_STATUS_EXECUTION_FAILED \(5000\)",
              r"CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED \(4004\)"),
             ("cublasLtMatmul:7", [], "linear: cublasLtMatmul: cuBLAS says: ", r"CUBLAS_STATUS_EXECUTION_FAILED, .* \(13\)",
              r"CUBLAS_STATUS_ALLOC_FAILED, .* \(3\)"),
             ("cublasGemmBatched:2", ["--optim", "shampoo"], "gram: cublasSgemmBatched: cuBLAS says: ", r"CUBLAS_STATUS_\w+, .* \(13\)",
              r"CUBLAS_STATUS_ALLOC_FAILED, .* \(3\)"),
             ("cusolverDnXsyevBatched:1", ["--optim", "shampoo", "--root-solver", "eigh", "--precondition-frequency", "2"],
              "eigh: cusolverDnXsyevBatched: cuSOLVER says: ",
              r"CUSOLVER_STATUS_EXECUTION_FAILED, .* \(6\)", r"CUSOLVER_STATUS_ALLOC_FAILED, no memory \(2\)"))


@full
def failing_libraries_are_reported(cwd):
    """The message has operation, call, status name and number. A cuDNN plan that has run before is not replaced."""
    for call, args, words, failed, _ in LIBRARIES:
        p = says(cwd, f"cuda:0: {words}{failed}", order="late", args=["--no-graph", *args], STANDIN_FAIL=call)
        assert "are free" not in p.said and "may fit" not in p.said, p.said


@full
def lack_of_memory_in_a_library_is_reported(cwd):
    """As for a tensor, the message has the free memory, and in a pass a batch that may fit. Control: the row above."""
    for call, args, words, _, ended in LIBRARIES:
        advice = [] if args else ["; a batch of 2 instead of 4 may fit"]
        says(cwd, f"cuda:0: {words}{ended}.*, device memory: [\\d.]+ of 4096.0 MiB are free", *advice, order="late",
             args=["--no-graph", *args], STANDIN_FAIL=call, STANDIN_NO_MEMORY=1)


def a_switch_that_does_not_exist_is_named(cwd):
    """A misspelt failure or lie ends the process: its row would pass otherwise."""
    for switch, words in {"FAIL=cudaMaloc:1": "LATHER_STANDIN_FAIL: there is no cudaMaloc; there are .*, cudaMalloc, ",
                          "FAIL=cudaMalloc:no": "LATHER_STANDIN_FAIL=cudaMalloc:no: expected NAME:N", "LIES=slow-load:1,tf32": "LATHER_STANDIN_LIES: there is no tf32; "}.items():
        p = run(cwd, "bad", *CUDA, code=-signal.SIGABRT, **dict([("STANDIN_" + switch).split("=")]))
        assert re.search("standin: " + words, p.said), p.said


@full
def what_libraries_do_not_have_is_reported(cwd):
    """No algorithm of cuBLASLt, no engine of cuDNN, a heuristic or a launch that fails. The message has dtype and shapes."""
    says(cwd, r"cuda:0: linear: cuBLASLt has no algorithm for f32 \[\d+,\d+\]", STANDIN_LIES="no-algorithm")
    says(cwd, r"cuda:0: conv2d: cudnn: no engine for f32\[4,3,16,16\] f32\[4,3,3,3\] f32\[4,4,16,16\]", STANDIN_LIES="no-engine")
    says(cwd, r"linear: cublasLtMatmulAlgoGetHeuristic: cuBLAS says: CUBLAS_STATUS_\w+, .* \(13\)", STANDIN_FAIL="cublasLtMatmulAlgoGetHeuristic:-1")
    says(cwd, r"cuda:0: \w+: \w+: CUDA says: cudaErrorUnknown", STANDIN_FAIL="kernel:20")


@full
def a_refused_capture_is_reported_once(cwd):
    """Steps run eagerly, with the same bits. Plans that were timed are kept."""
    run(cwd, "right", *CUDA)
    p = run(cwd, "eager", *CUDA, order="late", STANDIN_LIES="refuses-capture")
    words = "graph capture failed, steps run eagerly: cuda:0: conv2d: cudnn: cudnnBackendExecute: CUDNN_STATUS_EXECUTION_FAILED"
    assert same(cwd, "right", "eager") and not p.captures and p.said.count(words) == 1, p.said
    p = run(cwd, "timed", *CUDA, "--no-deterministic", "--batch-size", "5", STANDIN_LIES="refuses-capture")
    assert p.said.count(words) == 1 and "did not run" not in p.said and "engine" not in p.said, "short plans are timed in captures: " + p.said


@full
def nan_is_skipped_whatever_its_bits(cwd):
    """As a GPU has NaN, and a relu that keeps it: the same steps are skipped, with the same bits."""
    flags = [*CUDA, "--amp", "f16", "--fused", "on", "--lr", "1e6", "--on-nan", "skip"]
    run(cwd, "right", *flags)
    assert sum(r.get("skipped", 0) for r in numbers(cwd, "right")) == 7
    for lie in ("nan-7fffffff", "relu-keeps-nan", "nan-7fffffff,relu-keeps-nan"):
        run(cwd, "run", *flags, STANDIN_LIES=lie)
        assert same(cwd, "right", "run") and sum(r.get("skipped", 0) for r in numbers(cwd, "run")) == 7, lie


@full
def a_slow_library_is_reported(cwd):
    """A first run with a cold disk takes seconds. Control: a fast one."""
    line = r"device cuda: took (\d+\.\d) s to open and load its libraries"
    found = re.search(line, run(cwd, "run", *CUDA, "--max-steps", "1", STANDIN_LIES="slow-load:2100").said)
    assert found and 2.1 <= float(found[1]) < 10, found
    assert not re.search(line, run(cwd, "run", *CUDA, "--max-steps", "1").said)


@full
def the_profiler_covers_one_step(cwd):
    """The profiler covers exactly the kernels of one step; those of the next step are the same. An invalid step is rejected. Uploads are
    ignored: the loader's thread decides when they happen."""
    def profiled(step):
        works = os.path.join(cwd, f"works{step}")
        run(cwd, "run", *CUDA, "--no-graph", "--max-steps", "4", "--eval-every", "0", STANDIN_WORKS=works, PROFILE_STEP=step)
        with open(works, encoding="utf-8") as f:
            names = [line.split("\t")[1] for line in f]
        return [n for n in names[names.index("profiler starts") + 1:names.index("profiler stops")] if n != "copy to the device"], names

    second, names = profiled(2)
    third = profiled(3)[0]
    assert second == third, list(difflib.unified_diff(second, third, n=1))
    assert len(second) > 100 and not set(second) & {"profiler starts", "profiler stops"}, second
    before = names[:names.index("profiler starts")]
    assert "step_list" in second and second.count("step_list") == before.count("step_list"), "an update is a part of a step"
    p = run(cwd, "run", *CUDA, code=2, PROFILE_STEP="soon")
    assert "LATHER_PROFILE_STEP=soon: expected the number of a step, 1 or more" in p.said, p.said


@full
def events_time_entries(cwd):
    """The table has all entries of one step with their calls, the same in the next step except uploads. Without LATHER_PROFILE_STEP no
    table is written; a file that cannot be written is an error."""
    def timed(step, name):
        table = os.path.join(cwd, name)
        p = run(cwd, "run", *CUDA, "--no-graph", "--max-steps", "4", "--eval-every", "0", PROFILE_STEP=step, PROFILE_EVENTS=table)
        assert p.returncode == 0, p.said
        with open(table, encoding="utf-8") as f:
            head, *rows = (line.rstrip("\n").split("\t") for line in f)
        assert head == ["ms a step", "calls", "entry"], head
        times = [float(r[0]) for r in rows]
        assert times == sorted(times, reverse=True) and times[0] > 0 and min(times) >= 0, times
        return {entry: int(calls) for _, calls, entry in rows if entry != "upload"}

    second = timed(2, "second")
    assert second == timed(3, "third"), second
    assert second["sgd"] == 1 and sum(calls for entry, calls in second.items() if entry.startswith("conv2d")) > 20 and "profiler" not in second, second
    run(cwd, "run", *CUDA, "--no-graph", "--max-steps", "2", PROFILE_EVENTS=os.path.join(cwd, "none"))
    assert not os.path.exists(os.path.join(cwd, "none"))
    p = run(cwd, "run", *CUDA, "--no-graph", "--max-steps", "2", code=1, PROFILE_STEP=2, PROFILE_EVENTS=os.path.join(cwd, "no", "table"))
    assert re.search("LATHER_PROFILE_EVENTS=.*no/table: No such file or directory", p.said), p.said


@full
def a_fault_is_reported(cwd):
    """Faults in a captured graph, whose kernels have no operation; in the evaluation after the steps; before a capture."""
    recorded, earlier = "a captured step was running: if an operation in it", "if an earlier operation"
    for fault, launched, words in ((900, True, recorded), (1200, True, earlier), (300, False, earlier)):
        p = says(cwd, "an illegal memory access", f"; {words} is at fault, LATHER_SYNC=1 names it", order="late", STANDIN_FAULT=fault)
        assert bool(p.launches) == launched, p.said
    for node in (1, 50, 700):
        says(cwd, "an illegal memory access", f"; {recorded} is at fault, LATHER_SYNC=1 names it", order="late", STANDIN_LIES=f"fault-at-node:{node}")


@full
def a_fault_names_its_operation(cwd):
    """With LATHER_SYNC=1 the message names the operation at fault."""
    names = set()
    for n in (300, 303, 310, 317):
        p = run(cwd, "bad", *CUDA, order="late", STANDIN_FAULT=n, SYNC=1, code=1)
        names.update(re.findall(r"train_resnet50: cuda:0: (\w+): \w+: CUDA says: cudaErrorIllegalAddress, an illegal", p.said))
    assert names - {"upload", "sync", "copy"}, f"names: {names}"


ROWS = [every_order_has_the_same_bits, the_host_does_not_touch_device_memory,
        dropped_stream_waits_are_detected, dropped_host_waits_are_detected,
        tf32_and_fused_kernels_too, mixup_too, partial_batches_too,
        steps_that_keep_all_activations_too, memory_decides_what_is_recomputed, a_killed_run_resumes_bit_for_bit, checkpoints_resume_on_the_other_device,
        it_overfits_two_batches, skipped_steps_keep_running_statistics, tensors_may_be_allocated_without_the_pool, failures_that_only_cost_time,
        the_second_device_has_the_same_bits, a_missing_driver_is_reported, an_old_driver_is_reported, a_wrong_library_version_is_reported, a_missing_device_is_reported,
        an_unknown_device_is_reported, too_little_memory_is_reported, failing_calls_are_reported, failing_libraries_are_reported,
        lack_of_memory_in_a_library_is_reported, a_switch_that_does_not_exist_is_named, what_libraries_do_not_have_is_reported,
        a_refused_capture_is_reported_once, nan_is_skipped_whatever_its_bits, a_slow_library_is_reported,
        the_profiler_covers_one_step, events_time_entries, a_fault_is_reported, a_fault_names_its_operation]

sys.exit(run_rows(ROWS, os.path.abspath(sys.argv[2]), "lather-standin-", *sys.argv[3:4]))
