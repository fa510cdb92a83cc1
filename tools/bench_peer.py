#!/usr/bin/env python3
"""Times a ResNet-50 training step here and in PyTorch, by turns, and prints a Markdown table.

    tools/bench_peer.py --bench build/tools/bench --python PYTHON [--rounds 3] [--also 'NAME=COMMAND']
    tools/bench_peer.py --device cuda --bench BENCH --python PYTHON     eager and compiled, f16, bf16, tf32
    tools/bench_peer.py --eigh 1024,2048 --device cuda     a loop of torch.linalg.eigh over such matrices

PYTHON must have torch and torchvision. Each round runs every contestant once, one after the other,
so that a slow minute of the machine hits all alike; the table has medians over rounds and the
median of the ratios within rounds. Peak memory is VmHWM minus VmRSS just before the first step; on a GPU
what nvidia-smi says is in use more than before, contexts and libraries included. A contestant that fails
has a row that says why.
--also adds a command that prints '... N img/s', with {dtype} replaced by f32 or bf16."""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time


def status_bytes(key):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key))


def child_setup(torch, device, dtype):
    """The step's context and the scaler of its loss."""
    kinds = {"bf16": torch.bfloat16, "f16": torch.float16}
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = dtype == "tf32"
    torch.backends.cudnn.benchmark = True
    context = lambda: torch.autocast(device, kinds.get(dtype, torch.bfloat16), enabled=dtype in kinds)
    return context, torch.amp.GradScaler(device, enabled=dtype == "f16")


def child(a, dtype, layout):
    """One PyTorch run; prints a JSON line."""
    import torch
    import torchvision

    started = time.monotonic()
    batch, steps, warmup, device = a.batch, a.steps, a.warmup, a.device.split(":")[0]
    if device == "cuda" and ":" in a.device:
        torch.cuda.set_device(int(a.device.split(":")[1]))
    if device == "cpu":
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    context, scaler = child_setup(torch, device, dtype)
    model = getattr(torchvision.models, a.arch)().to(device, memory_format=form).train()
    forward = torch.compile(model) if a.compile else model
    images = torch.randn(batch, 3, a.size, a.size).to(device, memory_format=form)
    labels = torch.randint(0, 1000, (batch,)).to(device)
    loss_of = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    optim = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4,
        fused=device == "cuda" or None,  # its fastest form there
    )
    before, seconds = status_bytes("VmRSS"), []
    for _ in range(warmup + steps):
        begin = time.monotonic()
        optim.zero_grad()
        with context():
            loss = loss_of(forward(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optim)
        scaler.update()
        loss.item()  # waits for the device, as ours does
        seconds.append(time.monotonic() - begin)
        if len(seconds) == 1:
            first = time.monotonic() - started
    peak = torch.cuda.max_memory_reserved() if device == "cuda" else status_bytes("VmHWM") - before
    rate = batch / statistics.median(seconds[warmup:])
    print(json.dumps({"images_per_second": rate, "peak_memory_bytes": peak, "version": torch.__version__,
                      "cold_start_seconds": first}))


def eigh(sizes, device, repeats):
    """The refresh of implementations that take one matrix after another: one call a matrix."""
    import torch

    print("| side | torch.linalg.eigh, ms |\n| --- | --- |")
    for n in sizes:
        x = torch.randn(n, 2 * n, device=device)
        a, times = x @ x.T / (2 * n), []
        for _ in range(repeats + 1):
            begin = time.monotonic()
            values, _ = torch.linalg.eigh(a)
            values[0].item()
            times.append(time.monotonic() - begin)
        print(f"| {n} | {1e3 * statistics.median(times[1:]):.2f} |")


class DeviceMemory:
    """The most that nvidia-smi saw in use while the block ran, beyond what was before; 0 without it."""

    def __init__(self, device):
        self.index = device.partition(":")[2] or "0"
        self.peak, self.over = 0, threading.Event()

    def read(self):
        try:
            out = subprocess.run(["nvidia-smi", "-i", self.index, "--query-gpu=memory.used",
                                  "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=20)
            return int(out.stdout) * 2**20
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return 0

    def watch(self):
        while not self.over.wait(0.25):
            self.peak = max(self.peak, self.read())

    def __enter__(self):
        self.before = self.read()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.over.set()
        self.thread.join()

    def used(self):
        return max(self.peak - self.before, 0)


class Failed(Exception):
    pass


def run(command, threads, libraries=None):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    if libraries is not None:
        env["LD_LIBRARY_PATH"] = libraries
    try:
        out = subprocess.run(command, capture_output=True, text=True, env=env)
    except OSError as error:
        raise Failed(str(error)) from error
    if out.returncode:
        said = [line for line in out.stderr.strip().split("\n") if line.strip()]
        raise Failed((said or ["no message"])[-1][:160])
    return out.stdout


def contestants(a, dtype):
    amp = "off" if dtype == "f32" else dtype
    common = ["--batch-size", str(a.batch), "--steps", str(a.steps), "--warmup", str(a.warmup)]
    common += ["--device", a.device, "--arch", a.arch, "--image-size", str(a.size)]
    ours = [a.bench, "train", "--amp", amp, "--threads", str(a.threads), "--json", *common]
    yield "lather", lambda: json.loads(run(ours, a.threads, os.environ.get("LATHER_LIBRARY_PATH")))
    layouts = ["channels_last", "contiguous"] if a.device == "cpu" else ["channels_last"]
    for layout in a.layout or layouts:
        for how in [""] if a.device == "cpu" and not a.compile else ["", "--compile"]:
            peer = [a.python, __file__, "--child", dtype, layout, *common, *how.split()]
            name = "PyTorch " + layout + (", compiled" if how else "")
            yield name, lambda peer=peer: json.loads(run(peer, a.threads).strip().split("\n")[-1])
    for extra in a.also:
        name, command = extra.split("=", 1)
        words = command.replace("{dtype}", dtype).split()
        yield name, lambda words=words: {
            "images_per_second": float(re.search(r"([\d.]+) img/s", run(words, a.threads))[1])
        }


def measured(a, contestant):
    if a.device == "cpu":
        return contestant()
    with DeviceMemory(a.device) as memory:
        result = contestant()
    if memory.used():
        result["peak_memory_bytes"] = memory.used()
    return result


def middle(results, key, form):
    values = [r[key] for r in results if key in r]
    return form(statistics.median(values)) if values else ""


def compare(a, dtype):
    """Whether all contestants ran."""
    runs, why, begin = {}, {}, time.monotonic()
    for done in range(a.rounds):
        spent = time.monotonic() - begin
        if done and spent + spent / done > a.budget:
            break
        for name, contestant in contestants(a, dtype):
            if name in why:
                continue
            try:
                result = measured(a, contestant)
            except Failed as failure:
                why[name] = failure
                continue
            runs.setdefault(name, []).append(result)
            print(dtype, name, result, file=sys.stderr)
    ours = [r["images_per_second"] for r in runs.get("lather", [])]
    for name, results in runs.items():
        rates = [r["images_per_second"] for r in results]
        ratios = [o / r for o, r in zip(ours, rates)]
        ratio = f"{statistics.median(ratios):.2f}" if ratios else ""
        memory = middle(results, "peak_memory_bytes", lambda b: f"{b / 1e9:.2f} GB")
        start = middle(results, "cold_start_seconds", lambda s: f"{s:.1f} s")
        spread = f"{min(rates):.2f}-{max(rates):.2f}"
        print(f"| {dtype} | {name} | {statistics.median(rates):.2f} | {spread} | {ratio} | {memory} | {start} |")
    for name, failure in why.items():
        print(f"| {dtype} | {name} | failed: {failure} | | | | |")
    return not why


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--bench", default="build/tools/bench")
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--batch-size", dest="batch", type=int, default=32)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--warmup", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--layout", action="append", choices=["channels_last", "contiguous"])
    p.add_argument("--also", action="append", default=[], metavar="NAME=COMMAND")
    p.add_argument("--device", default="cpu")
    p.add_argument("--dtype", action="append", choices=["f32", "tf32", "bf16", "f16"])
    p.add_argument("--compile", action="store_true", help="torch.compile too; on cuda always")
    p.add_argument("--budget", type=float, default=1e9, help="seconds of a dtype: no round begins that would go beyond")
    p.add_argument("--arch", default="resnet50", help="of torchvision's names")
    p.add_argument("--image-size", dest="size", type=int, default=224)
    p.add_argument("--eigh", metavar="SIDES")
    p.add_argument("--child", nargs=2, metavar=("DTYPE", "LAYOUT"), help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.child:
        child(a, *a.child)
        return 0
    if a.eigh:
        eigh([int(n) for n in a.eigh.split(",")], a.device, a.rounds)
        return 0
    print("| dtype | what | images/s, median | range | lather is faster by | peak memory | first step |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    good = True
    for dtype in a.dtype or (["f32", "bf16"] if a.device == "cpu" else ["f16", "bf16", "tf32"]):
        good = compare(a, dtype) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
