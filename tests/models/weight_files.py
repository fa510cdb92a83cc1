#!/usr/bin/env python3
"""Weight files as other programs leave them: torch.save(), several files, run folders, 16-bit floats.

    weight_files.py TRAIN_RESNET50 [ROW]
"""
import json
import os
import re
import struct
import subprocess
import sys

from trainer import NOISE, SMALL, TOOLS, fails, guide_table, read_safetensors, run, run_rows, try_table, write_safetensors

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
import make_torch_files as torch_files  # noqa: E402


def trained(cwd, *flags):
    run(*NOISE, *SMALL, "--max-steps", "2", "--output", "made", *flags, cwd=cwd)
    return read_safetensors(os.path.join(cwd, "made", "model.safetensors"))


def evaluated(cwd, weights):
    done = run(*NOISE, "--eval", "--weights", weights, "--threads", "1", cwd=cwd)
    return done.stdout.splitlines()[-1], done.stderr


def state_dict(tensors, prefix=""):
    made = {}
    for index, (name, (dtype, shape, data)) in enumerate(tensors.items()):
        kind, code = {"F32": ("Float", "f"), "I64": ("Long", "q")}[dtype]
        values = struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)
        strides = [1] * len(shape)
        for i in range(len(shape) - 1, 0, -1):
            strides[i - 1] = strides[i] * shape[i]
        made[prefix + name] = torch_files.tensor(torch_files.Storage(str(index), kind, values), shape, strides)
    return torch_files.state_dict(made)


def save(cwd, name, data):
    with open(os.path.join(cwd, name), "wb") as file:
        file.write(data)


def files_of_torch_save_are_read(cwd):
    plain = trained(cwd)
    want = evaluated(cwd, "made/model.safetensors")[0]
    for prefix in ("", "module.", "backbone.", "model._orig_mod."):
        save(cwd, "w.pth", torch_files.zipped(state_dict(plain, prefix)))
        assert evaluated(cwd, "w.pth")[0] == want, prefix
    save(cwd, "w.pth", torch_files.legacy(state_dict(plain)))
    assert evaluated(cwd, "w.pth")[0] == want
    zeros = {k: (dtype, shape, bytes(len(data))) for k, (dtype, shape, data) in plain.items()}
    save(cwd, "w.pth", torch_files.zipped({"model": state_dict(zeros), "state_dict_ema": state_dict(plain), "epoch": 3}))
    found, said = evaluated(cwd, "w.pth")
    assert found == want and "w.pth: reading its 'state_dict_ema'" in said, (found, said)
    save(cwd, "w.pth", torch_files.zipped({"model": state_dict(zeros)}))
    assert evaluated(cwd, "w.pth")[0] != want
    run(*NOISE, *SMALL, "--weights", "w.pth", "--max-steps", "1", cwd=cwd)


def files_that_run_code_are_refused(cwd):
    call = torch_files.Call(os.system, "touch lather-was-here")
    for data in (torch_files.zipped({"x": call}), torch_files.legacy({"x": call})):
        save(cwd, "w.pth", data)
        fails(*NOISE, "--eval", "--weights", "w.pth", cwd=cwd, says="w.pth: refuses to run posix.system")
        assert not os.path.exists(os.path.join(cwd, "lather-was-here"))
    save(cwd, "w.pth", b"\x81" * 200)
    fails(*NOISE, "--eval", "--weights", "w.pth", cwd=cwd, says="header of ")


def models_in_several_files_are_read(cwd):
    plain = trained(cwd)
    want = evaluated(cwd, "made/model.safetensors")[0]
    os.mkdir(os.path.join(cwd, "parts"))
    part = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(plain)}
    for file in set(part.values()):
        write_safetensors(os.path.join(cwd, "parts", file), {k: v for k, v in plain.items() if part[k] == file})
    path = "parts/model.safetensors.index.json"

    def write_index(weight_map):
        with open(os.path.join(cwd, path), "w") as file:
            json.dump({"metadata": {"total_size": 1}, "weight_map": weight_map}, file)
    write_index(part)
    for name in ("parts", path):
        assert evaluated(cwd, name)[0] == want
    first = next(iter(part))
    for change, says in (({**part, first: "other.safetensors"}, "other.safetensors"),
                         ({**part, first: "../made/model.safetensors"}, "is not the name of a file in its folder"),
                         ({**part, "extra": part[first]}, "tensor 'extra' is not in 'model-"),
                         ({**part, first: 1}, f"the file of '{first}' is not a text"), ({}, "no 'weight_map'")):
        write_index(change)
        fails(*NOISE, "--eval", "--weights", path, cwd=cwd, says=says)
    os.remove(os.path.join(cwd, path))
    fails(*NOISE, "--eval", "--weights", "parts", cwd=cwd, says="parts: a folder without model.safetensors, ")


def a_run_gives_its_best_weights(cwd):
    trained(cwd)
    best, final = "made/checkpoints/best", "made/model.safetensors"
    zeros = {k: (dtype, shape, bytes(len(data))) for k, (dtype, shape, data) in read_safetensors(os.path.join(cwd, final)).items()}
    want = evaluated(cwd, best)[0]
    write_safetensors(os.path.join(cwd, final), zeros)
    found, said = evaluated(cwd, "made")
    assert found == want != evaluated(cwd, final)[0] and "made: reading made/checkpoints/best" in said, (found, said)
    trained(cwd, "--overwrite", "--ema-decay", "0.5")
    found, said = evaluated(cwd, "made")
    assert found == evaluated(cwd, final)[0] and "reading" not in said, "the averages are in the final weights alone"
    os.remove(os.path.join(cwd, final))
    os.remove(os.path.join(cwd, best))
    assert "made: reading made/checkpoints/latest" in evaluated(cwd, "made")[1]


def sixteen_bit_floats_with_counters_are_read(cwd):
    plain = trained(cwd)
    want = float(evaluated(cwd, "made")[0].split("loss ")[1].split()[0])
    for dtype in ("F16", "BF16"):
        short = {}
        for name, (kind, shape, data) in plain.items():
            values = struct.unpack(f"<{len(data) // 4}f", data) if kind == "F32" else struct.unpack("<q", data)
            code = struct.pack(f"<{len(values)}e", *values) if dtype == "F16" else b"".join(
                struct.pack("<f", v)[2:] for v in values)
            short[name] = dtype, shape, code
        extra = {"mask." + kind: (kind, [2], bytes(2 * size)) for kind, size in (("BOOL", 1), ("I8", 1), ("I16", 2), ("U8", 1))}
        write_safetensors(os.path.join(cwd, "w.safetensors"), {**short, **extra})
        loss = float(evaluated(cwd, "w.safetensors")[0].split("loss ")[1].split()[0])
        assert abs(loss - want) <= 0.02, (dtype, loss, want)
        write_safetensors(os.path.join(cwd, "w.safetensors"), {**short, **extra, "mask.float": ("F32", [1], bytes(4))})
        fails(*NOISE, "--eval", "--weights", "w.safetensors", cwd=cwd, says="'mask.float' is not in the model, one of 1")


def huggingface_names_of_residual_networks_are_read(cwd):
    plain = trained(cwd)

    def renamed(name):
        name = re.sub(r"^conv1\.", "embedder.embedder.convolution.", name)
        name = re.sub(r"^bn1\.", "embedder.embedder.normalization.", name)
        name = re.sub(r"^layer(\d)\.(\d+)\.", lambda m: f"encoder.stages.{int(m[1]) - 1}.layers.{m[2]}.", name)
        name = re.sub(r"\.downsample\.([01])\.", lambda m: (".shortcut.convolution.", ".shortcut.normalization.")[int(m[1])], name)
        name = re.sub(r"\.(conv|bn)(\d)\.", lambda m: f".layer.{int(m[2]) - 1}.{'convolution' if m[1] == 'conv' else 'normalization'}.", name)
        return re.sub(r"^fc\.", "classifier.1.", "resnet." + name if not name.startswith("fc.") else name)
    names = {renamed(name): tensor for name, tensor in plain.items()}
    assert "resnet.encoder.stages.1.layers.0.shortcut.convolution.weight" in names and len(names) == len(plain), names.keys()
    write_safetensors(os.path.join(cwd, "w.safetensors"), names)
    assert evaluated(cwd, "w.safetensors")[0] == evaluated(cwd, "made/model.safetensors")[0]


def every_row_of_the_weights_guide_runs(cwd):
    plain = trained(cwd)
    want, best = (evaluated(cwd, "made/" + name)[0] for name in ("model.safetensors", "checkpoints/best"))
    zeros = {k: (dtype, shape, bytes(len(data))) for k, (dtype, shape, data) in plain.items()}

    def has(write, says="", same=True):
        """write(folder): makes the user's file, and returns its name; its evaluation is that of the run, unless same is false."""
        def make(folder, words):
            name = write(folder)
            done = run(*NOISE, "--eval", "--threads", "1", *(words[:-1] or ["--weights"]), name, cwd=folder)
            assert (done.stdout.splitlines()[-1] == want) == same and says in done.stderr, (words, done)
        return make

    def torch(content):
        def write(folder):
            save(folder, "w.pth", content)
            return "w.pth"
        return write

    def tensors(found, name="w.safetensors"):
        def write(folder):
            os.makedirs(os.path.join(folder, os.path.dirname(name)), exist_ok=True)
            write_safetensors(os.path.join(folder, name), found)
            return os.path.dirname(name) or name
        return write

    def other_classes(folder, words):
        few = {k: v for k, v in plain.items() if not k.startswith("fc.")}
        write_safetensors(os.path.join(folder, "w.safetensors"), few)
        run(*NOISE, *SMALL, "--max-steps", "1", *["w.safetensors" if word == "FILE" else word for word in words], cwd=folder)

    def refused(folder, words):
        assert not words, words
        save(folder, "w.pth", torch_files.zipped({"x": torch_files.Call(os.system, "touch lather-was-here")}))
        fails(*NOISE, "--eval", "--weights", "w.pth", cwd=folder, says="refuses to run posix.system")

    def unknown(folder, words):
        write_safetensors(os.path.join(folder, "w.safetensors"), plain)
        assert not words, words
        said = subprocess.run([os.path.join(TOOLS, "inspect"), "--values", "w.safetensors"], cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout
        assert "fc.weight" in said and " min " in said and " mean " in said, said

    try_table(guide_table("weights.md"), {
        "safetensors file": has(tensors(plain)), "`torch.save(model.state_dict())`": has(torch(torch_files.zipped(state_dict(plain)))),
        "checkpoint of a training script": has(torch(torch_files.zipped({"model": state_dict(zeros), "ema": state_dict(plain)})), says="its 'ema'"),
        "file of `torch.save(model)`": refused, "`save_pretrained()`": has(tensors(plain, "FOLDER/model.safetensors")),
        "run of Lather": has(lambda folder: "../made", says="reading ../made/checkpoints/best", same=best == want),
        "one checkpoint of a run": has(lambda folder: "../made/checkpoints/step-2"),
        "weights without last layer": other_classes,
        "before all of them": has(tensors({"module._orig_mod." + k: v for k, v in plain.items()})),
        "f64, f16, bf16": has(tensors({k: ("F64", shape, struct.pack(f"<{len(data) // 4}d", *struct.unpack(f"<{len(data) // 4}f", data)))
                                       if dtype == "F32" else (dtype, shape, data) for k, (dtype, shape, data) in plain.items()})),
        "contents unknown": unknown}, cwd)


ROWS = [every_row_of_the_weights_guide_runs, files_of_torch_save_are_read, files_that_run_code_are_refused, models_in_several_files_are_read,
        a_run_gives_its_best_weights, sixteen_bit_floats_with_counters_are_read,
        huggingface_names_of_residual_networks_are_read]

sys.exit(run_rows(ROWS, "lather-weights-", *sys.argv[2:3]))
