#!/usr/bin/env python3
"""--reproducible: weights and optimizer state are the same bits for every instruction set and any number of threads.

    same_bits.py TRAIN_RESNET50 TRAIN_VIT TRAIN_GPT OPTIM_REPLAY [ROW]

Each row trains a small model on several instruction sets and compares the SHA-256 of its checkpoints. More sets are a build
for ARM64 (tools/cross/arm64.ini) in LATHER_ARM64, which runs in qemu-aarch64, and builds by other compilers in
LATHER_OTHER_BUILDS, separated by colons. f64, in which these programs do not train, is compared by optim_replay; operations in f64
by `test-tensor-gradients --hashes` (tools/check_full.sh).
"""
import hashlib
import json
import os
import random
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from rows import full, run_rows  # noqa: E402

PROGRAMS = dict(zip(("resnet", "vit", "gpt", "replay"), map(os.path.abspath, sys.argv[1:5])))
ARM64 = os.environ.get("LATHER_ARM64")
SYSROOT = "/usr/aarch64-linux-gnu"
QEMU = ["qemu-aarch64", "-L", SYSROOT, "-E", f"LD_LIBRARY_PATH={SYSROOT}/lib"]  # not the libc of another package
OTHER_BUILDS = [b for b in os.environ.get("LATHER_OTHER_BUILDS", "").split(":") if b]
SETS = ("generic", "avx2", "avx512", "amx", *(["arm64"] if ARM64 else []), *OTHER_BUILDS)  # amx: all that this machine has
IMAGES = ["--data", "synthetic:48:16:3", "--batch-size", "8", "--mixup-alpha", "0.2", "--augment", "small", "--auto-augment", "ra"]
MODELS = {"resnet": ["--arch", "resnet10", "--width", "16", *IMAGES],
          "vit": ["--patch-size", "4", "--depth", "2", "--width", "32", "--heads", "2", *IMAGES],
          "gpt": ["--layers", "2", "--width", "32", "--heads", "2", "--positions", "64", "--seq-len", "48", "--batch-size", "4", "--data", "text.txt"]}
COMMON = ["--workers", "1", "--progress", "off", "--no-tensorboard", "--eval-every", "0", "--lr", "0.01", "--clip-grad", "1", "--ema-decay", "0.9"]
SOLVERS = ("eigh", "newton", "higher_order", "newton_db", "rational")
OPTIMIZERS = {"sgd": ["--optim", "sgd"], "adamw": ["--optim", "adamw"], "muon": ["--optim", "muon"], "soap": ["--optim", "soap"],
              "shampoo qr": ["--optim", "shampoo", "--preconditioner", "eigendecomposed", "--root-solver", "qr"],
              **{f"shampoo {s}": ["--optim", "shampoo", "--root-solver", s] for s in SOLVERS}}
OPTIMIZERS["shampoo newton_db"] += ["--inverse-exponent", "0.25"]  # one that it has
for solver in ("newton", "higher_order", "newton_db"):  # thousands of products, each a hundred times slower without a multiply-add
    OPTIMIZERS[f"shampoo {solver}"] += ["--max-preconditioner-dim", "96"]
RUNS = [("resnet", o) for o in OPTIMIZERS if o != "adamw"] + [(m, o) for m in ("vit", "gpt") for o in ("adamw", "shampoo rational", "shampoo eigh")]
SHORT = {("resnet", "sgd", "f32"), ("vit", "adamw", "bf16"), ("gpt", "adamw", "f32"), ("gpt", "shampoo rational", "f32")}
STEPS_F64 = 6


def flags_of(optimizer, dtype, steps):
    """Shampoo and SOAP refresh a few times at least."""
    refresh = ["--precondition-frequency", "2" if steps < 20 else "10"] if optimizer.startswith(("shampoo", "soap")) else []
    return [*OPTIMIZERS[optimizer], *refresh, *(["--amp", dtype] if dtype != "f32" else [])]


def command_of(program, isa):
    """The command of a program on a set, and the environment."""
    path = os.path.relpath(PROGRAMS[program], os.path.join(PROGRAMS["resnet"], "..", "..", ".."))
    command = [PROGRAMS[program]]
    if isa == "arm64":
        command, isa = [*QEMU, os.path.join(ARM64, path)], "neon"
    elif isa in OTHER_BUILDS:
        command, isa = [os.path.join(isa, path)], "amx"
    return command, {**os.environ, "LATHER_CPU_ISA": isa}


def digest(cwd, model, flags, steps, isa, threads, mode="--reproducible"):
    """Trains, and returns the SHA-256 of weights and optimizer state."""
    name = f"{isa}-{threads}-{steps}-{mode}".replace(os.sep, "_")
    program, environment = command_of(model, isa)
    command = [*program, *MODELS[model], *COMMON, *flags, "--max-steps", str(steps), "--threads", str(threads), mode, "--output", name]
    p = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=environment, timeout=1200)
    assert p.returncode == 0, f"{' '.join(command)}: {p.stderr[-500:]}"
    h = hashlib.sha256()
    for file in ("model.safetensors", "optim.safetensors"):
        with open(os.path.join(cwd, name, "checkpoints", f"step-{steps}", file), "rb") as f:
            h.update(f.read())
    return h.hexdigest()


def compare(cwd, model, flags, steps, sets=SETS):
    """Sets have other numbers of threads."""
    with open(os.path.join(cwd, "text.txt"), "w") as f:
        f.write("the quick brown fox jumps over the lazy dog. " * 60)
    found = {(isa, threads): digest(cwd, model, flags, steps, isa, threads) for i, isa in enumerate(sets) for threads in ((1, 3, 2, 4)[i % 4],)}
    assert len(set(found.values())) == 1, found
    return found


def row(model, optimizer, dtype):
    steps = 4 if (model, optimizer, dtype) in SHORT else 6

    def trains(cwd):
        compare(cwd, model, flags_of(optimizer, dtype, steps), steps)
    trains.__name__ = f"{model}_{optimizer}_{dtype}".replace(" ", "_")
    return trains if (model, optimizer, dtype) in SHORT else full(trains)


def two_hundred_steps(model, optimizer, dtype):
    """Without generic, whose multiply-add takes a hundred times as long; in the emulator only the rows of SHORT."""
    sets = [isa for isa in SETS if isa != "generic" and (isa != "arm64" or (model, optimizer, dtype) in SHORT)]

    def trains(cwd):
        compare(cwd, model, flags_of(optimizer, dtype, 200), 200, sets)
    trains.__name__ = f"{model}_{optimizer}_{dtype}_200_steps".replace(" ", "_")
    return full(trains)


def write_parameters(path, steps):
    """A safetensors file of f64 parameters and gradients."""
    numbers, shapes, header, data = random.Random(7), {"v": [7], "m": [20, 17], "conv": [6, 3, 3, 3]}, {}, b""
    for kind in ("param", *(f"grad.{t}" for t in range(1, steps + 1))):
        for name, shape in shapes.items():
            count = 1
            for n in shape:
                count *= n
            header[f"{kind}.{name}"] = {"dtype": "F64", "shape": shape, "data_offsets": [len(data), len(data) + 8 * count]}
            data += struct.pack(f"<{count}d", *(numbers.uniform(-1, 1) for _ in range(count)))
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def replay(cwd, optimizer, isa):
    """Updates f64 parameters, and returns the SHA-256 of their values after each step."""
    flags = flags_of(optimizer, "f32", STEPS_F64)
    config = {flag[2:].replace("-", "_"): value for flag, value in zip(flags[::2], flags[1::2])}
    if "inverse_exponent" in config:
        config["inverse_exponent"] = {order: float(config["inverse_exponent"]) for order in "1234"}
    if "precondition_frequency" in config:
        config.update(precondition_frequency=int(config["precondition_frequency"]), max_preconditioner_dim=12)
    with open(os.path.join(cwd, "config.json"), "w") as f:
        json.dump({**config, "lr": 0.01, "dtype": "float64"}, f)
    program, environment = command_of("replay", isa)
    p = subprocess.run([*program, "--config", "config.json", "--in", "in.safetensors", "--out", "out.safetensors"], cwd=cwd, capture_output=True, text=True,
                       env=environment, timeout=120)
    assert p.returncode == 0, f"{optimizer}: {p.stderr[-500:]}"
    with open(os.path.join(cwd, "out.safetensors"), "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def optimizers_in_f64(cwd):
    """f64 has one set of kernels: processors and compilers are what may differ."""
    write_parameters(os.path.join(cwd, "in.safetensors"), STEPS_F64)
    sets, hashes = [isa for isa in SETS if isa not in ("avx2", "avx512")], set()
    for optimizer in OPTIMIZERS:
        found = {isa: replay(cwd, optimizer, isa) for isa in sets}
        assert len(set(found.values())) == 1, (optimizer, found)
        hashes.add(found["generic"])
    assert len(hashes) == len(OPTIMIZERS), "optimizers with equal results"


def control_the_default_mode_differs(cwd):
    flags = OPTIMIZERS["sgd"]
    found = {isa: digest(cwd, "resnet", flags, 6, isa, 1, "--deterministic") for isa in ("generic", "amx")}
    assert found["generic"] != found["amx"], "the comparison sees no difference"


ROWS = [make(*r, dtype) for make in (row, two_hundred_steps) for r in RUNS for dtype in ("f32", "bf16")]
sys.exit(run_rows([control_the_default_mode_differs, optimizers_in_f64, *ROWS], "lather-bits-", sys.argv[5] if len(sys.argv) > 5 else None))
