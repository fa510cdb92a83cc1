#!/usr/bin/env python3
"""Formats of quantized state, byte by byte against tests/oracle/quantized_model.py.

    quantized_formats.py QUANTIZE_CLI      exit 0: the same bytes; 77: no numpy here; 1: a difference
"""
import os, struct, subprocess, sys

try:
    import numpy as np
except ImportError:
    print("SKIP: numpy is not installed")
    sys.exit(77)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle"))
import quantized_model as model

KINDS = ["moment", "positive", "matrix", "symmetric", "cholesky"]
DTYPES = ["f32", "bf16", "int8", "int4"]
SIDES = [1, 2, 13, 64]
ROUNDS = 3
KEY = 0x9F3A5C71E24B6D08  # key of the random draws


def numbers(rng, n, kind, dtype, how):
    x = rng.standard_normal((n, n)) * 10.0 ** rng.uniform(-6, 2, (n, n))
    if how == "tiny":
        x *= 1e-30
    elif how == "holes":
        x[rng.random((n, n)) < 0.3] = 0
        x.flat[-1] = np.inf if n > 2 else 1
    elif how == "levels":  # exactly on them, and exactly between
        levels = model.levels_of(kind, dtype)
        x = rng.choice(np.append(levels, (levels[:-1] + levels[1:]) / 2), (n, n)) * rng.choice([-1, 1], (n, n))
        x.flat[::64] = 1  # the scale
    x = np.abs(x) if kind == model.POSITIVE else x
    return (x + x.T if kind == model.SYMMETRIC else x).astype(np.float32)


class Program:
    """quantize_cli, started once."""

    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, kind, dtype, arrays, key=None):
        """Returns the program's bytes after the arrays, and the dequantized array."""
        n = arrays[0].size
        self.process.stdin.write(f"{kind} {dtype} {n} {len(arrays)} {key or 0}\n".encode() + b"".join(a.tobytes() for a in arrays))
        self.process.stdin.flush()
        size, = struct.unpack("N", self.read(struct.calcsize("N")))
        return self.read(size), np.frombuffer(self.read(4 * n), np.float32)

    def read(self, size):
        data = self.process.stdout.read(size)
        assert len(data) == size, f"{len(data)} of {size} bytes: the program has ended with {self.process.wait()}"
        return data

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


def main():
    program, rng, rows, bad = Program(sys.argv[1]), np.random.default_rng(7), 0, 0
    np.seterr(all="ignore")
    for kind in range(5):
        for dtype in range(4):
            if dtype == model.INT4 and kind in (model.MOMENT, model.POSITIVE) or kind == model.CHOLESKY and dtype == model.F32:
                continue
            keys = (None, KEY)
            for n, how, key in [(s, h, k) for s in SIDES for h in ("plain", "tiny", "holes", "levels") for k in keys]:
                arrays = [numbers(rng, n, kind, dtype, how) for _ in range(ROUNDS)]
                memory, values = program.run(kind, dtype, arrays, key)
                want, back = model.store(arrays, kind, dtype, key)
                same = memory == want and np.array_equal(values, back, equal_nan=True)
                rows += 1
                bad += not same
                if not same:
                    print(f"{KINDS[kind]} in {DTYPES[dtype]}, {n} x {n}, {how}, key {key}: "
                          f"{'codes' if memory != want else 'values'} differ")
    # A control: one element on the other side of a middle.
    one = [np.full((2, 2), 1.0, np.float32)]
    one[0][1, 1] = 0.98
    memory, _ = program.run(model.MOMENT, model.INT8, one)
    one[0][1, 1] = 0.999
    if memory == model.store(one, model.MOMENT, model.INT8)[0]:
        bad += 1
        print("the control passes: another number has the same codes")
    print(f"{rows} formats, {bad} differ")
    return bad > 0 or program.close()


sys.exit(main())
