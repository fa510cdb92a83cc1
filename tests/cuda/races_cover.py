#!/usr/bin/env python3
"""Every kernel once under ThreadSanitizer: conform's first row of each entry, and of entries that choose among kernels more.

    races_cover.py CONFORM_RACES FILE.cu... [--control]

Fails where a row does, a race among them, and for a kernel of the files that no row launched, by its name. Each row
of ROWS launches one that no other does. --control: of cast.cu, without one of its rows and without those of fill, and with
a kernel that is not there; exits 0 where just these are missed.
"""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = """cast bf16 from f32, odd count
cast f32 from f64, channels-last to gaps
cast f32 transposed, few rows
add f32 channels-last to gaps
pointwise f32 exp, channels-last to gaps
sum f32 columns
normalize f32 channels-last to gaps
batchnorm_apply f16 many values, 64 channels
embedding_grad f32 many ids, few rows
grad_norm f32 of norms
gram f32 many rows and columns
gram f32 a window of nine
mode_product f32 a window of nine
mode_product f32 four vectors with gaps
mode_product f32 four vectors of one block
eigh f32 odd size
qr f32 odd size
rational f32 not positive definite, last block of many
conv2d_pixels_grad_w f16 7x7 stride 2 pad 3, odd image""".split("\n")
NO_KERNEL = "cast.cu:no_such_kernel"
CONTROL = ["cast.cu:convert", "cast.cu:fill_kernel", NO_KERNEL]


def kernels_of(files):
    command = [sys.executable, os.path.join(HERE, "emulate.py"), "--kernels", *files]
    return set(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.split())


def launched_by(program, rows, more):
    """Its exit status, and the kernels that it launched."""
    with tempfile.TemporaryDirectory() as folder:
        ran = os.path.join(folder, "ran")
        also = [word for row in rows for word in ("--also", row)]
        code = subprocess.run([program, "--backend", "emulated", "--own", "--first", *also, *more],
                              env=dict(os.environ, LATHER_EMULATE_RAN=ran), check=False).returncode
        if not os.path.exists(ran):
            return code, set()
        with open(ran, encoding="utf-8") as file:
            return code, set(file.read().split())


def check(program, wanted, rows, more=()):
    """Returns the exit status, and which kernels are missing."""
    code, ran = launched_by(program, rows, more)
    missing = sorted(wanted - ran)
    print(f"{len(wanted)} kernels" + (", launched by no row: " + " ".join(missing) if missing else ""))
    return code, missing


def main():
    control = "--control" in sys.argv
    program, *files = [a for a in sys.argv[1:] if a != "--control"]
    wanted = kernels_of(files)
    if control:
        wanted = {name for name in wanted if name.startswith("cast.cu:")} | {NO_KERNEL}
        return check(program, wanted, ROWS[1:], ["--only", "cast"])[1] != CONTROL
    code, missing = check(program, wanted, ROWS)
    return 1 if code or missing or not wanted else 0


sys.exit(main())
