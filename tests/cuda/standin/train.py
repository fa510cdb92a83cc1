#!/usr/bin/env python3
"""Runs train_resnet50 --device cuda on the stand-in: the same bits in every order of queued work, waits that are
missed when they are dropped, the features that meet the device, and what is said of a device that is missing, too
old, too small or broken. tests/models/recorded.py compares the optimizers; tests/models/gpu_ranks.py has several ranks.

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
    """Into cwd/name. wishes: LATHER_..., by the rest of their names. That the host leaves a device's memory alone is
    looked after where it is asked for: it takes long."""
    env = dict(environment(cwd, order, devices), LATHER_STANDIN_LOG="1", LATHER_STANDIN_PROTECT="0")
    env.update({"LATHER_" + key: str(value) for key, value in wishes.items()})
    again = [] if "--resume" in args else ["--overwrite"]
    return subprocess.Popen([PROGRAM, *SMALL, *args, *again, "--output", os.path.join(cwd, name)], env=env,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(cwd, name, *args, code=0, **wishes):
    """The ended process, with what it said and the stand-in's counts."""
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
    """Recorded steps in those orders have the bits of eager ones."""
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
def the_host_leaves_device_memory_alone(cwd):
    run(cwd, "late", *CUDA, order="late", STANDIN_PROTECT=1)


MORE = [*CUDA, "--max-steps", "6", "--eval-every", "0"]


def losses(cwd, name):
    return [row.get("loss") for row in numbers(cwd, name)]  # none: it is not finite


def is_noticed(cwd, **wishes):
    """Beside the run "right"."""
    p = run(cwd, "wrong", *MORE, code=None, **wishes)
    assert p.drops > 0 or p.returncode, "nothing was dropped"
    return p.returncode != 0 or not same(cwd, "right", "wrong") or losses(cwd, "right") != losses(cwd, "wrong")


def dropped_waits_of_streams_are_found(cwd):
    """A control for the rows above: all of them, then single ones where one of the two streams runs ahead of the other.
    Few may be dropped: the device has done all when the first batch comes."""
    waits = run(cwd, "right", *MORE, order="late").waits
    assert is_noticed(cwd, order="late", STANDIN_DROP=-1)
    found = [any(is_noticed(cwd, order=order, STANDIN_DROP=wait) for order in MAIN) for wait in range(4, min(waits, 8) + 1)]
    assert found and sum(found) >= 2 * len(found) // 3, f"found: {found}"


@full
def dropped_waits_of_the_host_are_found(cwd):
    """For images whose memory is written again, and for results: all of them, then single ones until three were missed.
    What is copied to or from memory that is not page-locked is waited for in the copy, and once more."""
    run(cwd, "right", *MORE, order="late")
    assert is_noticed(cwd, order="late", STANDIN_DROP_HOST=-1)
    found, wait = [], 1
    while sum(found) < 3:
        found.append(is_noticed(cwd, order="late", STANDIN_DROP_HOST=wait))
        wait += 2


@full
def products_of_tf32_and_fused_kernels_too(cwd):
    agree(cwd, ["--amp", "tf32"], "late")
    agree(cwd, ["--amp", "bf16", "--fused", "on"], "late")


@full
def mixed_images_too(cwd):
    agree(cwd, ["--mixup-alpha", "0.4"], "shuffled")


@full
def parts_of_batches_too(cwd):
    agree(cwd, ["--eval-batch-size", "5", "--clip-grad", "1"], *MAIN)


@full
def steps_that_keep_all_activations_too(cwd):
    agree(cwd, ["--recompute", "off"], "shuffled")


@full
def memory_decides_what_is_made_again(cwd):
    """And a run that goes on keeps to it, with whatever memory."""
    large = ["--data", "synthetic:64:128:3", "--width", "16", "--amp", "f16", "--batch-size", "32", "--max-steps", "1",
             "--eval-every", "-1", "--recompute", "auto"]

    def chosen(*args, **wishes):
        p = run(cwd, "run", *CUDA, *large, *args, STANDIN_DRY=2, **wishes)
        with open(os.path.join(cwd, "run", "config.yaml"), encoding="utf-8") as f:
            found = re.findall(r"^recompute: (\w+)", f.read(), re.M)
        assert f"--recompute auto: {found[0]}: " in p.said, (found, p.said)
        return found[0]

    assert chosen(STANDIN_MEMORY=224) == "cheap"
    assert chosen("--resume", "auto", "--max-steps", "2", STANDIN_MEMORY=4096) == "cheap"
    assert chosen(STANDIN_MEMORY=4096) == "off"
    assert chosen("--resume", "auto", "--max-steps", "2", STANDIN_MEMORY=224) == "off"
    assert chosen("--device", "cpu", "--amp", "off") == "off"


@full
def a_killed_run_goes_on_bit_for_bit(cwd):
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
def checkpoints_go_on_on_the_other_device(cwd):
    """With nearly its losses: sums are not in the same order."""
    for here, there in (("cuda", "cpu"), ("cpu", "cuda")):
        name = f"{here} {there}"
        run(cwd, here, "--device", here, *ADAMW, order="late")
        run(cwd, name, "--device", here, *ADAMW, "--max-steps", "4", order="late")
        run(cwd, name, "--device", there, *ADAMW, "--resume", "auto", order="late")
        want, got = (numbers(cwd, n)[-1] for n in (here, name))
        assert want["step"] == got["step"] == 8 and abs(got["loss"] - want["loss"]) <= 0.01 * want["loss"], (want, got)


@full
def it_learns(cwd):
    run(cwd, "learn", *CUDA, "--overfit-batches", "2", "--epochs", "30", "--max-steps", "60", "--eval-every", "30",
        "--lr", "0.05", "--label-smoothing", "0", order="late")
    first, last = numbers(cwd, "learn")[0]["loss"], numbers(cwd, "learn", "epoch")[-1]
    assert last["train_top1"] == 100 and last["train_loss"] < first / 2, f"from {first} to {last}"


@full
def skipped_steps_leave_running_statistics(cwd):
    """After the first step weights overflow in f16: all others are skipped, recorded ones too."""
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
def each_tensor_may_be_an_allocation_of_its_own(cwd):
    """Freed while the device works, which cudaFree() need not wait for; nothing can be recorded then."""
    run(cwd, "pool", *CUDA)
    p = run(cwd, "none", *CUDA, order="late", POOL="off")
    assert same(cwd, "pool", "none") and not p.captures and "without a graph" not in p.said, p.said


@full
def failures_that_cost_time_only(cwd):
    """Nothing is recorded, or something stays allocated; the next operation is not at fault."""
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


def no_driver_is_said(cwd):
    says(cwd, "this machine has no NVIDIA driver", devices=-1)


@full
def an_old_driver_is_said(cwd):
    says(cwd, r"the driver is for CUDA \d+\.0, want one for CUDA \d+\.0 or later", STANDIN_OLD=1)


@full
def a_library_of_another_version_is_said(cwd):
    """What was found, where, and what is wanted; the control: a later minor version will do."""
    for found, words in (("cuDNN 9.7", r"cuDNN 9\.7 was found \(.+\), want 9\.8 or a later 9\.x"),
                         ("cuDNN 10.1", r"cuDNN 10\.1 was found"), ("cuBLAS 11.4", r"cuBLAS 11\.4 was found \(.+\), want \d+\.0"),
                         ("cuSOLVER 99.0", r"cuSOLVER 99\.0 was found \(.+\), want \d+\.0 or a later")):
        says(cwd, f"device cuda: {words}", STANDIN_VERSION=found)
    run(cwd, "run", *CUDA, "--max-steps", "1", STANDIN_VERSION="cuDNN 9.99")


def no_device_is_said(cwd):
    says(cwd, "there is a driver, but no device", devices=0)


@full
def an_unknown_device_is_said(cwd):
    says(cwd, r"device cuda:1: there are 1 devices", args=["--device", "cuda:1"])


@full
def too_little_memory_is_said(cwd):
    """The tensor, the bytes, what is free, and a batch that may fit: which does."""
    args = ["--data", "synthetic:64:64:3", "--batch-size", "64", "--max-steps", "1"]
    says(cwd, r"no [\d.]+ MiB of device memory", r"[\d.]+ of 52\.0 MiB are free", r"f32 \[\d+,\d+,\d+,\d+\]",
         r"a batch of \d+ instead of 64 may fit", args=args, STANDIN_MEMORY=52)


@full
def calls_that_fail_are_said(cwd):
    """By their own names, not by those of what is cleaned up behind them; queued copies keep their memory till then."""
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
def libraries_that_fail_are_said(cwd):
    """By operation, call, name and number; a plan of cuDNN that has run before is not made in another way."""
    for call, args, words, failed, _ in LIBRARIES:
        p = says(cwd, f"cuda:0: {words}{failed}", order="late", args=["--no-graph", *args], STANDIN_FAIL=call)
        assert "are free" not in p.said and "may fit" not in p.said, p.said


@full
def memory_that_ends_within_a_library_is_said(cwd):
    """As where a tensor wants it: what is free, and in a pass a batch that may fit. The row above is the control."""
    for call, args, words, _, ended in LIBRARIES:
        advice = [] if args else ["; a batch of 2 instead of 4 may fit"]
        says(cwd, f"cuda:0: {words}{ended}.*, device memory: [\\d.]+ of 4096.0 MiB are free", *advice, order="late",
             args=["--no-graph", *args], STANDIN_FAIL=call, STANDIN_NO_MEMORY=1)


@full
def a_profiler_looks_at_one_step(cwd):
    """At all of its kernels, which are those of the next one too, and at no other; a step that is none is refused. When batches are copied is the loader's matter."""
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
    assert "LATHER_PROFILE_STEP=soon: want the number of a step, 1 or more" in p.said, p.said


@full
def entries_are_timed_by_events(cwd):
    """All entries of one step and their calls, those of the next one but for uploads, which are the loader's matter; as many convolutions as the step has; nothing without a step, and a file that cannot be written is said."""
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
def a_fault_is_said(cwd):
    """In a captured graph, whose kernels have no operations; in the evaluation behind the steps; before one was captured."""
    recorded, earlier = "a captured step was running: if an operation in it", "if an earlier operation"
    for fault, launched, words in ((900, True, recorded), (1200, True, earlier), (300, False, earlier)):
        p = says(cwd, "an illegal memory access", f"; {words} is at fault, LATHER_SYNC=1 names it", order="late", STANDIN_FAULT=fault)
        assert bool(p.launches) == launched, p.said


@full
def a_fault_has_a_name(cwd):
    """Of the operation that was at fault, whatever it was."""
    names = set()
    for n in (300, 303, 310, 317):
        p = run(cwd, "bad", *CUDA, order="late", STANDIN_FAULT=n, SYNC=1, code=1)
        names.update(re.findall(r"train_resnet50: cuda:0: (\w+): \w+: CUDA says: cudaErrorIllegalAddress, an illegal", p.said))
    assert names - {"upload", "sync", "copy"}, f"names: {names}"


ROWS = [every_order_has_the_same_bits, the_host_leaves_device_memory_alone,
        dropped_waits_of_streams_are_found, dropped_waits_of_the_host_are_found,
        products_of_tf32_and_fused_kernels_too, mixed_images_too, parts_of_batches_too,
        steps_that_keep_all_activations_too, memory_decides_what_is_made_again, a_killed_run_goes_on_bit_for_bit, checkpoints_go_on_on_the_other_device,
        it_learns, skipped_steps_leave_running_statistics, each_tensor_may_be_an_allocation_of_its_own, failures_that_cost_time_only,
        the_second_device_has_the_same_bits, no_driver_is_said, an_old_driver_is_said, a_library_of_another_version_is_said, no_device_is_said,
        an_unknown_device_is_said, too_little_memory_is_said, calls_that_fail_are_said, libraries_that_fail_are_said,
        memory_that_ends_within_a_library_is_said,
        a_profiler_looks_at_one_step, entries_are_timed_by_events, a_fault_is_said, a_fault_has_a_name]

sys.exit(run_rows(ROWS, os.path.abspath(sys.argv[2]), "lather-standin-", *sys.argv[3:4]))
