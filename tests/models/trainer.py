"""What the tests of a training program share: running it, images, and reading what it writes.

The first argument of the test program is the path of the training program.
"""
import hashlib
import json
import os
import struct
import subprocess
import sys

PROGRAM = os.path.abspath(sys.argv[1])
NAME = os.path.basename(PROGRAM)
# The smallest network of each program.
MODELS = {"train_vit": ["--patch-size", "4", "--depth", "2", "--width", "8", "--heads", "2"]}
MODEL = MODELS.get(NAME, ["--arch", "resnet10", "--width", "4"])
SMALL = [*MODEL, "--batch-size", "4", "--threads", "1", "--workers", "1",
         "--progress", "off", "--deterministic"]
NOISE = ["--data", "synthetic:48:16:3"]
TIMEOUT = 240
OK, ERROR, USAGE, INTERRUPTED = 0, 1, 2, 3


def run(*args, cwd, code=OK, env=()):
    """Runs the program; its exit status must be code, and an error one line. env: variables besides."""
    p = subprocess.run([PROGRAM, *args], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT, env={**os.environ, **dict(env)})
    assert p.returncode == code, f"exit {p.returncode}, want {code}: {p.stderr[-500:]}"
    if code in (ERROR, USAGE):
        assert p.stderr.count(f"{NAME}: ") == 1 and p.stderr.endswith("\n"), p.stderr
    return p


def fails(*args, cwd, says, code=ERROR):
    text = run(*args, cwd=cwd, code=code).stderr.splitlines()[-1]
    assert says in text, f"'{text}' does not say '{says}'"


def write_image(path, side, shade):
    """A 24-bit BMP of side x side with a gradient."""
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


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def checkpoint(cwd, run_folder, step, file="model.safetensors"):
    return os.path.join(cwd, run_folder, "checkpoints", f"step-{step}", file)


def same(cwd, a, b, step):
    for file in ("model.safetensors", "optim.safetensors"):
        x, y = digest(checkpoint(cwd, a, step, file)), digest(checkpoint(cwd, b, step, file))
        assert x == y, f"{file} of {a} and {b} differ"


def steps_of(cwd, folder):
    with open(os.path.join(cwd, folder, "metrics.jsonl")) as f:
        return [r for r in map(json.loads, f) if r["event"] == "step"]


def epochs_of(cwd, folder):
    with open(os.path.join(cwd, folder, "metrics.jsonl")) as f:
        return [r for r in map(json.loads, f) if r["event"] == "epoch"]


def has_step(cwd, folder, step):
    """Of a run at work."""
    try:
        with open(os.path.join(cwd, folder, "metrics.jsonl")) as f:
            return f'"event":"step","step":{step},' in f.read()
    except FileNotFoundError:
        return False


def crc32c(data):
    """Castagnoli's, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def write_state(path, text):
    """A state.json with the checksum that its text wants."""
    text = text[:text.rindex(',"crc32c":')]
    with open(path, "w") as f:
        f.write(f'{text},"crc32c":"{crc32c(text.encode()):08x}"}}\n')


def metadata_of(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        return json.loads(f.read(size))["__metadata__"]


def write_safetensors(path, tensors, metadata=None):
    """tensors: name -> (dtype, shape, bytes)."""
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def read_safetensors(path):
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[8 + size:][slice(*v["data_offsets"])])
            for k, v in header.items()}
