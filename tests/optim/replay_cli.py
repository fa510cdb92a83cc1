#!/usr/bin/env python3
"""The command line of optim_replay: files it reads and writes, and rejected input. Standard library only.

    replay_cli.py OPTIM_REPLAY
"""
import json, os, struct, subprocess, sys, tempfile

SIZES = {"F32": "f", "F64": "d", "I64": "q"}


def save(path, tensors):
    """{name: (dtype, shape, values)}"""
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        blob = struct.pack(f"<{len(values)}{SIZES[dtype]}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(blob)]}
        data += blob
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def load(path):
    with open(path, "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(size)), f.read()
    header.pop("__metadata__", None)
    out = {}
    for name, v in header.items():
        blob = data[v["data_offsets"][0]:v["data_offsets"][1]]
        kind = SIZES[v["dtype"]]
        out[name] = (v["dtype"], v["shape"], list(struct.unpack(f"<{len(blob) // struct.calcsize(kind)}{kind}", blob)))
    return out


TRACE = {
    "param.w": ("F64", [2, 2], [1, 2, 3, 4]), "param.s": ("F32", [], [5]),
    "grad.1.w": ("F64", [2, 2], [1, 1, 1, 1]), "grad.1.s": ("F32", [], [2]),
    "grad.2.w": ("F32", [2, 2], [2, 2, 2, 2]),                 # no gradient for s
    "grad.4.w": ("F64", [2, 2], [9, 9, 9, 9]),                 # after the end: there is no step 3
}
SGD = {"optim": "sgd", "lr": 0.5}


def with_(**tensors):
    return {**TRACE, **{k.replace("_", "."): v for k, v in tensors.items()}}


# name, config, trace, words of the message
BAD = [
    ("an unknown key", {**SGD, "momentun": 1}, TRACE, "momentun"),
    ("a schedule of one step for two", {**SGD, "lr_schedule": [1]}, TRACE, "lr_schedule"),
    ("a gradient of another shape", SGD, with_(grad_2_s=("F32", [2], [1, 2])), "grad.2.s"),
    ("a gradient of integers", SGD, with_(grad_2_s=("I64", [], [1])), "grad.2.s"),
    ("no parameters", SGD, {"grad.1.w": TRACE["grad.1.w"]}, "param"),
    ("no such input", SGD, None, "t.safetensors"),
    ("an input that is cut off", SGD, b"\x10\0\0\0\0\0\0\0{}", "t.safetensors"),
]


def main():
    program, failed, count = sys.argv[1], [], 0

    def expect(name, ok):
        nonlocal count
        count += 1
        print("ok    " if ok else "FAILED", name)
        if not ok:
            failed.append(name)

    def run(folder, config, trace):
        c, t, r = (os.path.join(folder, n) for n in ("c.json", "t.safetensors", "r.safetensors"))
        with open(c, "w") as f:
            json.dump(config, f)
        if isinstance(trace, dict):
            save(t, trace)
        elif trace is not None:
            with open(t, "wb") as f:
                f.write(trace)
        done = subprocess.run([program, "--config", c, "--in", t, "--out", r], capture_output=True, text=True)
        return done, r

    for dtype, kind in (("float64", "F64"), ("float32", "F32")):
        with tempfile.TemporaryDirectory() as folder:
            done, path = run(folder, {**SGD, "dtype": dtype}, TRACE)
            want = {"param.1.w": (kind, [2, 2], [.5, 1.5, 2.5, 3.5]), "param.1.s": (kind, [], [4]),
                    "param.2.w": (kind, [2, 2], [-.5, .5, 1.5, 2.5]), "param.2.s": (kind, [], [4])}
            expect(f"{dtype}: every parameter after each of two steps", done.returncode == 0 and load(path) == want)
            expect(f"{dtype}: silent", done.stdout == "" and done.stderr == "")
            expect("control: the comparison sees a wrong number", load(path) != {**want, "param.1.s": (kind, [], [4.5])})
    for name, config, trace, words in BAD:
        with tempfile.TemporaryDirectory() as folder:
            done, path = run(folder, config, trace)
            lines = done.stderr.strip().splitlines()
            expect(f"refused: {name}", done.returncode == 1 and len(lines) == 1 and words in lines[0] and
                   not [n for n in os.listdir(folder) if n.startswith("r.")])
    for name, arguments in (("nothing", []), ("an unknown option", ["--confg", "x"]), ("an option without its value", ["--in"])):
        expect(f"usage: {name}", subprocess.run([program, *arguments], capture_output=True).returncode == 2)
    expect("help", subprocess.run([program, "--help"], capture_output=True).returncode == 0)
    print(f"{count} rows, {len(failed)} failed")
    sys.exit(bool(failed))


main()
