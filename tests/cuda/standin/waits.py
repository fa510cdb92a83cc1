#!/usr/bin/env python3
"""Tests that every wait is needed: drops one wait at a time while train_resnet50 runs on the stand-in.

    tests/cuda/standin/waits.py BUILD [--list]

Waits are those of a stream for an event, and of the host for a stream or an event. Some waits of each caller are dropped, in orders
of queued work where one side runs ahead. If no run fails or differs, the wait is superfluous or untested. SUPERFLUOUS lists the known
ones with the reason; their functions must exist. The last line is 'N passed, N failed'. Exit status 77: no stand-in, or no
addr2line."""
import collections
import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(sys.argv[1])
SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../src")
PLUGIN = os.path.join(BUILD, "tests/cuda/standin")
PROGRAM = [os.path.join(BUILD, "models/resnet50/train_resnet50"), "--device", "cuda", "--data", "synthetic:24:16:3", "--arch",
           "resnet10", "--width", "4", "--batch-size", "4", "--epochs", "2", "--max-steps", "8", "--threads", "1", "--workers",
           "1", "--progress", "off", "--no-tensorboard", "--deterministic", "--lr", "0.02", "--keep", "1", "--eval-batch-size",
           "5"]
RUNS = {"sgd": [], "soap": ["--optim", "soap", "--precondition-frequency", "3"],
        "shampoo": ["--optim", "shampoo", "--precondition-frequency", "3"]}
ORDERS = ["late", "main-first", "main-last"]
KINDS = {"wait": "LATHER_STANDIN_DROP", "wait of the host": "LATHER_STANDIN_DROP_HOST"}
PASSED = ["cudaStreamSynchronize", "cudaEventSynchronize", "cudaStreamWaitEvent", "lt_cuda_sync", "lt_device_sync", "stream_sync",
          "event_sync", "stream_wait", "drops"]  # frames between the wait and its caller
TIMEOUT, TRIES = 120, 8
COPIED = "a copy from or to pageable memory has waited already"
AT_THE_END = "an earlier wait covers it; tests/cuda/libraries/test_misuse.c tests it alone"
CONTROL = "lt_tensor_write"
SUPERFLUOUS = {  # by the innermost function that is not inlined
    **dict.fromkeys(["lt_tensor_read", "lt_tensor_write", "lt_optim_read_scalars", "lt_optim_update_host", "set_loss_scale",
                     "lt_optim_scale_loss", "read_status", "rational", "is_skipped"], COPIED),
    "lt_loader_next": "each batch of an evaluation is read back",  # tests/data/test_upload.c tests one that is needed
    **dict.fromkeys(["lt_upload_reset", "lt_upload_free", "lt_cuda_free", "lt_cuda_close", "free_graph",
                     "lt_readback_free"], AT_THE_END),
}
FAILURES = {"control": "a run detects that a superfluous wait of {} is dropped", "stale": "SUPERFLUOUS names functions that do not exist: {}"}


def run(cwd, name, flags, order, **wishes):
    env = dict(os.environ, LATHER_PLUGIN_PATH=PLUGIN, LATHER_STANDIN=order, LATHER_STANDIN_PROTECT="0", OMP_WAIT_POLICY="passive",
               XDG_CACHE_HOME=os.path.join(cwd, "plans"), **{k: str(v) for k, v in wishes.items()})
    shutil.rmtree(os.path.join(cwd, name), ignore_errors=True)
    return subprocess.run([*PROGRAM, *flags, "--output", os.path.join(cwd, name)], env=env, capture_output=True, text=True,
                          timeout=TIMEOUT, check=False)


def numbers(cwd, name):
    with open(os.path.join(cwd, name, "metrics.jsonl"), encoding="utf-8") as f:
        return [[row.get(key) for key in ("loss", "grad_norm", "val_loss", "val_top1")] for row in map(json.loads, f)]


def same(cwd, a, b):
    return filecmp.cmp(*(os.path.join(cwd, n, "model.safetensors") for n in (a, b)), shallow=False) and numbers(
        cwd, a) == numbers(cwd, b)


class Names:
    """Names of functions by address, inlined ones included."""

    def __init__(self):
        self.known = {}

    def of(self, library, offset):
        if (library, offset) not in self.known:
            exported = offset.partition("+")[0]
            said = [] if exported else subprocess.run(["addr2line", "-f", "-i", "-e", library, offset[1:]], text=True,
                                                      capture_output=True, check=True).stdout.split()[::2]
            self.known[library, offset] = [exported] if exported else said
        return self.known[library, offset]

    def caller(self, text):
        found = [name.partition(".")[0] for frame in re.findall(r"^(\S+)\(([^)]+)\)\[", text, re.M) for name in self.of(*frame)]
        found = [name for name in found if name not in PASSED and not name.startswith("_Z")]
        return found[0], " < ".join(found[:4])


def callers(cwd, flags):
    """Returns {(kind, function): [numbers of its waits]} and {(kind, function): its first call stack}."""
    said = run(cwd, "right", flags, "now", LATHER_STANDIN_LOG=2).stderr
    waits, how, names = collections.OrderedDict(), {}, Names()
    parts = re.split(r"^standin: (wait(?: of the host)?) (\d+), by\n", said, flags=re.M)
    for kind, number, text in zip(parts[1::3], parts[2::3], parts[3::3]):
        function, stack = names.caller(text)
        waits.setdefault((kind, function), []).append(int(number))
        how.setdefault((kind, function), stack)
    return waits, how


def is_detected(cwd, flags, kind, number):
    for order in ORDERS:
        p = run(cwd, "wrong", flags, order, **{KINDS[kind]: number})
        if p.returncode or not same(cwd, "right", "wrong"):
            return True
    return False


def try_run(name, flags, detected, listed):
    """Adds the callers of the run's waits to detected, with True if dropping one of their waits is detected."""
    with tempfile.TemporaryDirectory(prefix="lather-waits-") as cwd:
        waits, how = callers(cwd, flags)
        for (kind, function), numbers_of_it in waits.items():
            reason = SUPERFLUOUS.get(function)
            if listed:
                print(f"{name}: {len(numbers_of_it)} times {kind}: {how[kind, function]}: {reason or 'must be detected'}")
            if listed or detected.get((kind, function)):
                continue
            chosen = sorted({numbers_of_it[len(numbers_of_it) * k // TRIES] for k in range(TRIES)})
            if function == CONTROL:  # its dropped wait must not be detected, or any failure would count as a detection
                detected["control", function] = not is_detected(cwd, flags, kind, chosen[0])
            detected[kind, function] = bool(reason) or any(is_detected(cwd, flags, kind, number) for number in chosen)


def without_source(names):
    """Returns the names that no source of the library defines or calls."""
    said = subprocess.run(["grep", "-rhoE", "--include=*.c", r"\b(%s)\(" % "|".join(names), SOURCES], text=True, capture_output=True,
                          check=False).stdout
    return sorted(set(names) - {name[:-1] for name in said.split()})


def main():
    detected, listed = {}, "--list" in sys.argv
    gone = "a_function_that_is_not_there"  # the control
    detected["stale", ", ".join(without_source(SUPERFLUOUS))] = without_source([*SUPERFLUOUS, gone]) == [gone]
    if not os.path.exists(os.path.join(PLUGIN, "liblather-cuda.so")) or not shutil.which("addr2line"):
        print("no stand-in, or no addr2line")
        return 77
    for name, flags in RUNS.items():
        try_run(name, flags, detected, listed)
    for (kind, function), good in detected.items():
        if not good:
            print("  " + FAILURES.get(kind, f"no run detects that a {kind} of {{}} is dropped").format(function))
    passed = sum(detected.values())
    print(f"{passed} passed, {len(detected) - passed} failed")
    return 0 if listed or 0 < passed == len(detected) else 1


sys.exit(main())
