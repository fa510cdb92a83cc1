#!/usr/bin/env python3
"""Kills a run at random system calls, or lets these fail, and resumes it to its end.

    tools/syscall_storm.py TRAIN_RESNET50 [--kills 10] [--enospc 10] [--eio 10] [--seed N] [--jobs N]

strace counts the calls of an undisturbed run and injects the faults (strace(1), --inject). A call's name is
drawn with its frequency as weight, then the occurrence. Half of the runs begin from nothing, half resume one that
was killed. The files that the disturbed run and the resumes after it leave must be those of an undisturbed run, bit
for bit: every checkpoint's weights, optimizer state and counters, and all records but times. A disturbed run
that ends with 0 and without a message must have left all of them without a resume. First, controls: files damaged on
purpose must be found. Exit status 0 if all that holds, 77 if strace or the program cannot be used.
"""
import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from reproduce_lib.store import sha256_of
from stormlib import Rows, complete_steps, flags, records

STEPS, EVERY, LIMIT = 6, 2, 300
CHANGES = ["write", "pwrite64", "openat", "mkdir", "rename", "renameat2", "symlink", "ftruncate", "fsync", "fdatasync"]
CALLS = {
    "KILL": CHANGES + ["unlink", "rmdir", "close", "read", "getdents64", "newfstatat", "readlink"],
    "ENOSPC": CHANGES,
    "EIO": CHANGES + ["unlink", "rmdir", "close", "read", "getdents64", "newfstatat", "readlink"],
}
# 1: an error; 127: the dynamic linker's. Killed: by strace's fault alone.
ENDS = {"KILL": {-signal.SIGKILL}, "ENOSPC": {0, 1, 127}, "EIO": {0, 1, 127}}
# Keys that differ from run to run, and those from /proc/cpuinfo, which a fault may keep from being read.
VOLATILE = re.compile("second|queue|starved|^run|^crc32c$|^cpu$|^cpu_model$")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def start(program, folder, before=()):
    command = [program, *flags(STEPS, folder), "--data", "synthetic:16:8:2", "--arch", "resnet10", "--width", "4",
               "--stem", "small", "--batch-size", "4", "--precondition-frequency", "2", "--checkpoint-every", str(EVERY),
               "--keep", "0", "--progress", "off"]
    return subprocess.run([*before, *command], capture_output=True, text=True, errors="replace", timeout=LIMIT,
                          stdin=subprocess.DEVNULL, env=ENVIRONMENT)


def stable(value):
    if isinstance(value, dict):
        return {key: stable(v) for key, v in value.items() if not VOLATILE.search(key)}
    return value


def is_rest(name):
    """True if the name is that of an unfinished file of a process that has ended (its number may have been reused)."""
    number = re.search(r"\.tmp-(\d+)$", name)
    return number and not os.path.exists(f"/proc/{number[1]}")


def snapshot(folder):
    """Names and contents of the files that a run leaves, without times."""
    found = {"records": [stable(r) for r in records(folder) if r.get("event") in ("step", "epoch")]}
    names = ["model.safetensors"]
    for step in complete_steps(folder):
        place = f"checkpoints/step-{step}"
        names += [f"{place}/model.safetensors", f"{place}/optim.safetensors"]
        with open(f"{folder}/{place}/state.json", encoding="utf-8") as file:
            found[f"{place}/state.json"] = stable(json.load(file))
    for name in names:
        found[name] = sha256_of(f"{folder}/{name}") if os.path.exists(f"{folder}/{name}") else None
    for name in ("latest", "best"):
        path = f"{folder}/checkpoints/{name}"
        found[name] = os.readlink(path) if os.path.islink(path) else None
    found["rests"] = [name for _, parts, files in os.walk(folder) for name in parts + files if is_rest(name)]
    return found


def differences(found, wanted):
    """Names of the entries that differ, and the first record that differs."""
    names = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    for a, b in itertools.zip_longest(found["records"], wanted["records"]):
        if a != b:
            return [*names, f"record {a}, want {b}"]
    return names + [rest for rest in found["rests"] if rest not in wanted["rests"]]


def lost(process, folder):
    """Steps whose checkpoints a run reported as not written, after which it continued."""
    told = re.findall(r"checkpoint of step (\d+) not written", process.stderr)
    return {int(step) for step in told} | {r["step"] for r in records(folder) if r.get("event") == "checkpoint_failed"}


def without(found, steps):
    return {name: v for name, v in found.items() if not any(name.startswith(f"checkpoints/step-{s}/") for s in steps)}


def said(process):
    """stderr with its numbers replaced by N."""
    return re.sub(r"\d+", "N", process.stderr)


def count_calls(log):
    """How often each call was made by the thread that made it most: strace counts each thread apart."""
    counts = collections.defaultdict(collections.Counter)
    with open(log, encoding="utf-8", errors="replace") as file:
        for line in file:
            call = re.match(r"(\d+) +(\w+)\(", line)
            if call:
                counts[call[2]][call[1]] += 1
    return {name: max(threads.values()) for name, threads in counts.items()}


class Begin:
    """A starting point of disturbed runs, a folder or nothing, with the result of an undisturbed run from it."""

    def __init__(self, storm, name, kill=None):
        self.folder = None
        if kill:
            self.folder = f"{storm.folder}/{name}"
            start(storm.program, self.folder, inject(f"{storm.folder}/log", *kill))
        calm, log = self.copy(f"{storm.folder}/{name}-calm"), f"{storm.folder}/{name}-log"
        process = start(storm.program, calm, ["strace", "-f", "-qq", "-o", log, "-e", "trace=" + ",".join(CALLS["KILL"])])
        storm.row(process.returncode == 0, f"without a fault the run ends with {process.returncode}: {process.stderr[-300:]}")
        self.calls, self.wanted, self.said = count_calls(log), snapshot(calm), said(process)
        storm.row(complete_steps(calm) == list(range(EVERY, STEPS + 1, EVERY)), f"checkpoints {complete_steps(calm)}")

    def copy(self, folder):
        if self.folder:
            shutil.copytree(self.folder, folder, symlinks=True)
        return folder


def inject(log, call, fault, when):
    return ["strace", "-f", "-qq", "-o", log, "-e", f"trace={call}", "-e", f"inject={call}:{fault}:when={when}"]


class Storm(Rows):
    def __init__(self, program, seed):
        super().__init__()
        self.program, self.seed = program, seed
        self.folder = tempfile.mkdtemp(prefix="syscall-storm-")

    def prepare(self):
        fresh = Begin(self, "fresh")
        half = fresh.calls.get("rename", 2) // 2 + 1
        self.begins = [fresh, Begin(self, "half", ("rename", "signal=SIGKILL", half))]

    def draw(self, kind, number):
        """The starting point, the call, the fault and its occurrence."""
        rand = random.Random(f"{self.seed} {kind} {number}")
        begin = rand.choice(self.begins)
        calls = {name: begin.calls[name] for name in CALLS[kind] if name in begin.calls}
        call = rand.choices(list(calls), weights=list(calls.values()))[0]
        when = str(rand.randint(1, calls[call]))
        if kind == "ENOSPC" and rand.random() < 0.5:
            when += "+"  # the disk remains full
        return begin, call, "signal=SIGKILL" if kind == "KILL" else f"error={kind}", when

    def resume(self, folder, wanted, missing=()):
        """Resumes to the end; returns the problem, or "". missing: steps whose checkpoints may be absent."""
        process = start(self.program, folder)
        if process.returncode:
            return f"the resume ended with {process.returncode}: {process.stderr[-300:]}"
        missing = set(missing) - set(complete_steps(folder)) - {STEPS}
        apart = differences(snapshot(folder), without(wanted, missing))
        return f"after the resume differ {apart}" if apart else ""

    def trial(self, kind, number):
        """Returns (whether the fault occurred, exit status, problem or "")."""
        begin, call, fault, when = self.draw(kind, number)
        folder, log = begin.copy(f"{self.folder}/{kind}-{number}"), f"{self.folder}/{kind}-{number}.log"
        try:
            process = start(self.program, folder, inject(log, call, fault, when))
            with open(log, encoding="utf-8", errors="replace") as file:
                hit = process.returncode < 0 if kind == "KILL" else "(INJECTED)" in file.read()
            wrong = ""
            if process.returncode not in (ENDS[kind] if hit else {0}):
                wrong = f"it ended with {process.returncode}: {process.stderr[-300:]}"
            elif process.returncode == 0 and said(process) == begin.said:
                apart = differences(snapshot(folder), begin.wanted)
                wrong = f"it ended with 0 and quiet, and differ {apart}" if apart else ""
            wrong = wrong or self.resume(folder, begin.wanted, lost(process, folder))
        except (OSError, ValueError, subprocess.TimeoutExpired) as why:
            return True, None, f"{kind} {number}: {call} {when}: {why}"
        begun = "half" if begin.folder else "fresh"
        end = process.returncode
        shutil.rmtree(folder, ignore_errors=True)
        return hit, end, wrong and f"{kind} {number}: {call} number {when} of {begin.calls[call]}, {begun}: {wrong}"

    def run(self, kind, count, jobs):
        ends, hits = collections.Counter(), 0
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for hit, end, wrong in pool.map(lambda number: self.trial(kind, number), range(count)):
                self.row(not wrong, wrong)
                ends[end] += 1
                hits += hit
        self.row(hits >= 0.9 * count, f"{kind}: only {hits} of {count} faults came")
        print(f"{kind}: {hits} of {count} faults came; the runs ended with {dict(ends)}", flush=True)

    # --- Controls ---

    def spoil_weights(self, folder):
        """Another bit in the newest checkpoint, under checksums that hold."""
        place = f"{folder}/checkpoints/step-{complete_steps(folder)[-1]}"
        with open(f"{place}/model.safetensors", "r+b") as file:
            data = bytearray(file.read())
            data[-2] ^= 1
            file.seek(0)
            file.write(data)
        with open(f"{place}/state.json", encoding="utf-8") as file:
            text = file.read()
        text = re.sub(r'("model.safetensors":{"bytes":\d+,"crc32c":")\w+', rf"\g<1>{crc32c(data):08x}", text)
        text = text[:text.rindex(',"crc32c":')]
        with open(f"{place}/state.json", "w", encoding="utf-8") as file:
            file.write(f'{text},"crc32c":"{crc32c(text.encode()):08x}"}}\n')

    def controls(self):
        half = self.begins[1]
        wrong = self.resume(half.copy(f"{self.folder}/spoilt-not"), half.wanted)
        self.row(not wrong, f"control: an undamaged run is reported as different: {wrong}")
        spoilt = half.copy(f"{self.folder}/spoilt")
        self.spoil_weights(spoilt)
        wrong = self.resume(spoilt, half.wanted)
        self.row("differ" in wrong, f"control: a resume from a damaged checkpoint is not found: '{wrong}'")
        calm = f"{self.folder}/half-calm"
        shutil.rmtree(f"{calm}/checkpoints/step-{EVERY}")
        self.row(differences(snapshot(calm), half.wanted), "control: a missing checkpoint is not found")


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def usable(program):
    """Why the storm cannot be; None: it can."""
    if not os.access(program, os.X_OK):
        return f"{program} is not there"
    if not shutil.which("strace"):
        return "no strace"
    probe = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=mkdir:error=EIO:when=1", "true"],
                           capture_output=True, text=True)
    return f"strace cannot trace: {probe.stderr.strip()[-200:]}" if probe.returncode else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    for kind in CALLS:
        parser.add_argument("--kills" if kind == "KILL" else f"--{kind.lower()}", dest=kind, type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    why = usable(args.program)
    if why:
        print(why)
        sys.exit(77)
    print(f"seed {args.seed}", flush=True)
    storm = Storm(os.path.abspath(args.program), args.seed)
    try:
        storm.prepare()
        storm.controls()
        for kind in CALLS:
            storm.run(kind, getattr(args, kind), args.jobs)
    finally:
        shutil.rmtree(storm.folder, ignore_errors=True)
    sys.exit(storm.finish())


main()
