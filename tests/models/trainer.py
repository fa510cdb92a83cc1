"""Runs a training program and reads the files that it writes; shared by the tests of training programs.

The first argument of the test program is the path of the training program.
"""
import hashlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(SOURCE, "tools")]
from rows import MPI, PATIENCE, SKIPPED, Skip, full, needs_plain_memory, run_rows  # noqa: E402,F401
from stormlib import complete_steps  # noqa: E402,F401

PROGRAM = os.path.abspath(sys.argv[1])
NAME = os.path.basename(PROGRAM)
BUILD = os.path.join(os.path.dirname(PROGRAM), "..", "..")
TOOLS = os.path.join(BUILD, "tools")
# The smallest network of each program.
MODELS = {"train_vit": ["--patch-size", "4", "--depth", "2", "--width", "8", "--heads", "2"]}
MODEL = MODELS.get(NAME, ["--arch", "resnet10", "--width", "4"])
SMALL = [*MODEL, "--batch-size", "4", "--threads", "1", "--workers", "1",
         "--progress", "off", "--deterministic"]
NOISE = ["--data", "synthetic:48:16:3"]
TIMEOUT = 240 * PATIENCE
OK, ERROR, USAGE, INTERRUPTED = 0, 1, 2, 3


def run(*args, cwd, code=OK, env=()):
    """Runs the program and checks its exit status; an error must be a single line. env: additional variables."""
    p = subprocess.run([PROGRAM, *args], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT, env={**os.environ, **dict(env)})
    assert p.returncode == code, f"exit {p.returncode}, want {code}: {p.stderr[-500:]}"
    if code in (ERROR, USAGE):
        assert p.stderr.count(f"{NAME}: ") == 1 and p.stderr.endswith("\n"), p.stderr
    return p


def fails(*args, cwd, says, code=ERROR):
    text = run(*args, cwd=cwd, code=code).stderr.splitlines()[-1]
    assert says in text, f"'{text}' lacks '{says}'"


def guide_table(page):
    """Rows of a guide's table "you have | you type": the text of the first cell, and the flags with values that the second has."""
    with open(os.path.join(SOURCE, "docs", "guides", page)) as f:
        lines = f.read().split("\n")
    rows = []
    for line in lines[next(i for i, line in enumerate(lines) if re.match(r"\| (what )?you have \|", line)) + 2:]:
        if not line.startswith("| "):
            return rows
        have, typed = line.strip("| ").split(" | ")
        rows.append((have, [code.split() for code in re.findall(r"`([^`]*)`", typed) if re.match("--.* ", code)]))


def try_table(rows, situations, cwd):
    """Runs the command of each row in a separate folder. situations: text in the first cell -> make(folder, words), which makes the user's data
    and runs the words. Every row needs one situation, every situation a row."""
    for number, (have, commands) in enumerate(rows):
        found = [key for key in situations if key in have]
        assert len(found) == 1, f"{have}: situations of the test: {found}"
        for k, words in enumerate(commands or [[]]):
            folder = os.path.join(cwd, f"{number}-{k}")
            os.mkdir(folder)
            situations[found[0]](folder, words)
    unused = [key for key in situations if not any(key in have for have, _ in rows)]
    assert not unused, unused


def start(*args, cwd, **more):
    return subprocess.Popen([PROGRAM, *args], cwd=cwd, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **more)


def start_ranks(launcher, *groups, cwd, program=PROGRAM):
    """Starts groups of (ranks, arguments) with mpirun; a single rank is the program without a launcher."""
    single = len(groups) == 1 and groups[0][0] == 1
    if launcher == "none" and not single:
        raise Skip("no MPI in this build")
    command = [] if single else [launcher]
    for ranks, args in groups:
        command += [*([":"] if len(command) > 1 else []), *([] if single else ["-n", str(ranks)]), program, *args]
    return subprocess.Popen(command, cwd=cwd, env={**os.environ, **MPI}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def finish(p, code=None, timeout=TIMEOUT):
    """Waits for a process, and kills its session on timeout. Checks the exit status unless code is None. Returns both outputs."""
    try:
        out, err = p.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        p.kill() if os.getpgid(p.pid) == os.getpgrp() else os.killpg(p.pid, signal.SIGKILL)
        raise AssertionError(f"hangs: {p.communicate()[1][-500:]}") from None
    assert code is None or p.returncode == code, f"exit {p.returncode}, want {code}: {err[-1500:]}"
    return out, err


def run_ranks(launcher, ranks, *args, cwd, code=OK, **more):
    return finish(start_ranks(launcher, (ranks, args), cwd=cwd, **more), code)


def has_mpi(launcher, arguments):
    """Returns whether two ranks of the program can run; prints the reason if not. arguments(cwd): those of a short run."""
    if not shutil.which(launcher):
        print(f"no {launcher}")
        return False
    with tempfile.TemporaryDirectory(prefix="lather-ranks-") as cwd:
        p = start_ranks(launcher, (2, arguments(cwd)), cwd=cwd)
        err = finish(p)[1]
    missing = p.returncode and ("not in this build" in err or "unknown communicator" in err)
    if missing:
        print(err)
    return not missing


def wait_for(p, condition):
    end = time.monotonic() + TIMEOUT
    while not condition() and p.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    assert condition(), f"condition not reached; exit status {p.poll()}"


def write_image(path, side, shade):
    """Writes a 24-bit BMP of side x side with a gradient."""
    row = b"".join(bytes(((shade + 3 * x) % 256, shade, 255 - shade)) for x in range(side))
    row += b"\0" * (-len(row) % 4)
    head = struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 54 + len(row) * side, 0, 0, 54, 40, side, side, 1,
                       24, 0, len(row) * side, 2835, 2835, 0, 0)
    with open(path, "wb") as f:
        f.write(head + row * side)


def folders(cwd, classes=3, images=4, side=20):
    for part in ("train", "val"):
        for c in range(classes):
            folder = os.path.join(cwd, "data", part, f"class{c}")
            os.makedirs(folder)
            for i in range(images):
                write_image(os.path.join(folder, f"{i}.bmp"), side, (c * 80 + i * 5) % 256)


def content(*names):
    """Bytes of a file; those of a checkpoint in parts are joined."""
    path = os.path.join(*names)
    if not os.path.exists(path) and os.path.exists(f"{path}.index.json"):
        with tempfile.TemporaryDirectory() as folder:
            joined = os.path.join(folder, "joined")
            subprocess.run([os.path.join(TOOLS, "inspect"), "--join", joined, path], check=True, timeout=60)
            return content(joined)
    with open(path, "rb") as f:
        return f.read()


def digest(path):
    return hashlib.sha256(content(path)).hexdigest()


def checkpoint(cwd, run_folder, step, file="model.safetensors"):
    return os.path.join(cwd, run_folder, "checkpoints", f"step-{step}", file)


def same(cwd, a, b, step):
    for file in ("model.safetensors", "optim.safetensors"):
        x, y = digest(checkpoint(cwd, a, step, file)), digest(checkpoint(cwd, b, step, file))
        assert x == y, f"{file} of {a} and {b} differ"


def copy_until(cwd, whole, copy, step):
    """Copies a run as if it had been killed right after the checkpoint of a step; its records continue beyond it."""
    copy = os.path.join(cwd, copy)
    shutil.copytree(os.path.join(cwd, whole), copy, symlinks=True)
    os.remove(os.path.join(copy, "model.safetensors"))
    for name in os.listdir(os.path.join(copy, "checkpoints")):
        path = os.path.join(copy, "checkpoints", name)
        if os.path.islink(path):
            os.unlink(path)
        elif int(name[5:]) > step:
            shutil.rmtree(path)


def records(cwd, folder, event=None, file="metrics.jsonl"):
    """Records of a run; event: only those of this kind."""
    with open(os.path.join(cwd, folder, file), encoding="utf-8") as f:
        return [r for r in map(json.loads, f) if event in (None, r["event"])]


def steps_of(cwd, folder):
    return records(cwd, folder, "step")


def epochs_of(cwd, folder):
    return records(cwd, folder, "epoch")


TIMES = "seconds", "queue", "starved", "images_per_second", "run"  # parts of the names of fields that differ between runs


def comparable(cwd, folder):
    """Records of a run without the fields that differ between equal runs."""
    return [{k: v for k, v in r.items() if not any(t in k for t in TIMES)} for r in records(cwd, folder)]


def has_step(cwd, folder, step):
    """Returns whether a running program has recorded the step."""
    try:
        return f'"event":"step","step":{step},'.encode() in content(cwd, folder, "metrics.jsonl")
    except FileNotFoundError:
        return False


def crc32c(data):
    """Castagnoli's CRC, computed bitwise."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def write_state(path, text):
    """Writes a state.json with a matching checksum."""
    text = text[:text.rindex(',"crc32c":')]
    with open(path, "w") as f:
        f.write(f'{text},"crc32c":"{crc32c(text.encode()):08x}"}}\n')


def read_header(path):
    """Returns the header of a safetensors file, and the data after it."""
    data = content(path)
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + size]), data[8 + size:]


def write_header(path, header, data):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def metadata_of(path):
    return read_header(path)[0]["__metadata__"]


def write_safetensors(path, tensors, metadata=None):
    """tensors: name -> (dtype, shape, bytes)."""
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    write_header(path, header, b"".join(t[2] for t in tensors.values()))


def read_safetensors(path):
    header, data = read_header(path)
    header.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[slice(*v["data_offsets"])]) for k, v in header.items()}
