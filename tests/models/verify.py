#!/usr/bin/env python3
"""lather-verify: a repetition is equal, whatever the processor, the threads and interruptions; a weight changed by one ulp at step 37
is found; runs that cannot be compared are one line each.

    verify.py TRAIN_RESNET50 MPIRUN [ROW]

Prints cmocka's lines.
"""
import hashlib
import json
import os
import re
import struct
import subprocess
import sys

from trainer import BUILD, MODEL, NOISE, PROGRAM, TOOLS, checkpoint, content, copy_until, crc32c, digest, read_safetensors, records, run, run_ranks, run_rows, write_state

FLAGS = [*NOISE, *MODEL, "--batch-size", "4", "--threads", "1", "--workers", "1", "--progress", "off", "--no-tensorboard", "--reproducible",
         "--optim", "adamw", "--ema-decay", "0.9", "--epochs", "4", "--eval-every", "0", "--keep", "0"]
LAUNCHER, WEIGHT = sys.argv[2], "layer2.0.conv1.weight"


def verify(cwd, folder, *args, code=0, env=()):
    done = subprocess.run([os.path.join(TOOLS, "verify"), folder, "--train", PROGRAM, *args], cwd=cwd, capture_output=True, text=True, timeout=240,
                          env={**os.environ, **dict(env)})
    assert done.returncode == code, f"exit {done.returncode}: {done.stdout[-900:]}{done.stderr[-900:]}"
    return done.stdout + done.stderr


def change_by_one_ulp(cwd, folder, step):
    """Adds one to the last bit of a weight in a checkpoint, whose checksums are made to match."""
    path = checkpoint(cwd, folder, step)
    data = bytearray(content(path))
    size = struct.unpack("<Q", data[:8])[0]
    at = 8 + size + json.loads(data[8:8 + size])[WEIGHT]["data_offsets"][0]
    data[at] ^= 1
    with open(path, "wb") as file:
        file.write(data)
    state = checkpoint(cwd, folder, step, "state.json")
    text = re.sub(r'("model.safetensors":\{"bytes":\d+,"crc32c":")\w+', rf"\g<1>{crc32c(data):08x}", content(state).decode())
    write_state(state, text)


def a_repetition_is_equal(cwd):
    run(*FLAGS, "--max-steps", "20", "--checkpoint-every", "8", "--output", "run", cwd=cwd)
    said = verify(cwd, "run", env={"LATHER_CPU_ISA": "generic"})
    assert re.search(r"equal: 5 hashes of weights and optimizer state, from step 0 to step 20\nequal: \d\d metrics\n", said) and ", generic\n" in said, said
    said = verify(cwd, "run", "--from-step", "8", "--steps", "4", "--", "--threads", "2")
    assert "equal: 2 hashes of weights and optimizer state, from step 8 to step 12" in said, said


def a_hash_is_of_the_checkpoint(cwd):
    run(*FLAGS, "--max-steps", "3", "--output", "run", cwd=cwd)
    last = json.loads(content(cwd, "run", "hashes.jsonl").splitlines()[-1])
    files = {**read_safetensors(checkpoint(cwd, "run", 3)), **read_safetensors(checkpoint(cwd, "run", 3, "optim.safetensors"))}
    assert last["tensors"] == {name: hashlib.sha256(data).hexdigest() for name, (_, _, data) in files.items()}
    assert last["numbers"] == {name: str(value) for name, value in json.loads(content(checkpoint(cwd, "run", 3, "state.json")))["numbers"].items()}
    text = "".join(f"{name} {value}\n" for name, value in [*last["tensors"].items(), *last["numbers"].items()])
    assert last["sha256"] == hashlib.sha256(text.encode()).hexdigest() == records(cwd, "run", "hash")[-1]["sha256"]


def other_metrics_are_named(cwd):
    run(*FLAGS, "--max-steps", "3", "--output", "run", cwd=cwd)
    path = os.path.join(cwd, "run", "metrics.jsonl")
    text = content(path).decode()
    with open(path, "w", encoding="utf-8") as file:
        file.write(re.sub(r'"val_top1":[\d.]+', '"val_top1":99.5', text))
    said = verify(cwd, "run", code=1)
    assert "equal: 2 hashes" in said and "different: val_top1 in the record of the epoch at step 3 is 99.5, repeated " in said, said


def ranks_become_micro_batches(cwd):
    run_ranks(LAUNCHER, 2, *FLAGS, "--max-steps", "8", "--hash-every", "1", "--gradient-noise", "--output", "run", cwd=cwd)
    said = verify(cwd, "run")
    assert "--grad-accum 2" in said and "equal: 9 hashes of weights and optimizer state, from step 0 to step 8" in said, said


def hashing_changes_nothing(cwd):
    for name, more in {"few": [], "many": ["--hash-every", "1"]}.items():
        run(*FLAGS, "--max-steps", "14", "--output", name, *more, cwd=cwd)
    assert digest(checkpoint(cwd, "few", 14)) == digest(checkpoint(cwd, "many", 14))
    few, many = ({r["step"]: r["sha256"] for r in records(cwd, name, "hash")} for name in ("few", "many"))
    assert list(few) == [0, 12, 14] and list(many) == list(range(15)) and few.items() <= many.items(), (few, many)


def a_weight_changed_by_one_ulp_is_found(cwd):
    flags = [*FLAGS, "--hash-every", "1"]
    run(*flags, "--max-steps", "40", "--checkpoint-every", "37", "--output", "whole", cwd=cwd)
    copy_until(cwd, "whole", "run", 37)
    change_by_one_ulp(cwd, "run", 37)
    run(*flags, "--max-steps", "40", "--checkpoint-every", "37", "--output", "run", "--resume", "auto", cwd=cwd)
    steps = [json.loads(line)["step"] for line in content(cwd, "run", "hashes.jsonl").splitlines()]
    assert steps == [*range(38), 37, 38, 39, 40], steps
    said = verify(cwd, "run", code=1)
    assert f"different at step 37, equal at step 36\nfirst tensor that differs: {WEIGHT} (1 of " in said, said
    said = verify(cwd, "run", "--from-step", "37")  # from the changed checkpoint: equal
    assert "equal: 4 hashes" in said, said


def an_interrupted_run_is_compared_where_it_stopped(cwd):
    run(*FLAGS, "--max-steps", "5", "--output", "run", cwd=cwd)
    run(*FLAGS, "--max-steps", "14", "--output", "run", "--resume", "auto", cwd=cwd)
    said = verify(cwd, "run")
    assert "note: the run was resumed at step 5 with changes: max-steps 5 -> 14" in said and "equal: 4 hashes" in said, said


def runs_that_cannot_be_compared(cwd):
    run(*[f for f in FLAGS if f != "--reproducible"], "--max-steps", "2", "--output", "usual", cwd=cwd)
    assert "verify: usual: no hashes are recorded: it was trained without --reproducible" in verify(cwd, "usual", code=1)
    assert "verify: absent/metrics.jsonl: No such file" in verify(cwd, "absent", code=1)
    run(*FLAGS, "--max-steps", "20", "--output", "run", cwd=cwd)
    said = verify(cwd, "run", "--data", "synthetic:52:16:3", code=1)
    assert "verify: other data: the run had samples 48, the repetition has 52 (synthetic:52:16:3)" in said, said
    assert "checkpoints/step-5: no such checkpoint" in verify(cwd, "run", "--from-step", "5", code=1)
    said = verify(cwd, "run", "--steps", "5", code=1)
    assert "no hash is recorded after step 0 up to step 5; the next one is at step 12: --steps 12" in said, said
    assert "--steps 0: must be at least 1" in verify(cwd, "run", "--steps", "0", code=2)
    assert "the repetition failed: train_resnet50: --width" in verify(cwd, "run", "--", "--width", "-1", code=1)
    done = subprocess.run([os.path.join(BUILD, "tools", "verify"), "run", "--train", "absent"], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 1 and "verify: absent: no such program" in done.stderr, done


def data_are_compared_by_all_bits_of_their_fingerprint(cwd):
    run(*FLAGS, "--max-steps", "2", "--output", "run", cwd=cwd)
    path, bits = os.path.join(cwd, "run", "metrics.jsonl"), records(cwd, "run", "data")[0]["fingerprint"]
    text = content(path).decode()
    assert re.fullmatch(r"[0-9a-f]{16}", bits) and int(bits, 16) >> 11 | 1 == json.loads(content(checkpoint(cwd, "run", 2, "state.json")))["data_hash"] and int(bits, 16) % 2048, bits
    last = f"{int(bits, 16) ^ 1:016x}"
    for recorded, code in {f'"{last}"': 1, int(bits, 16) >> 11 | 1: 0, (int(bits, 16) >> 11 | 1) + 2: 1}.items():  # numbers: of earlier versions
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(f'"{bits}"', str(recorded)))
        said = verify(cwd, "run", code=code)
        assert ("verify: other data: the run had fingerprint " if code else "equal: 2 hashes") in said, said


def plugins_and_versions_are_named(cwd):
    run(*FLAGS, "--max-steps", "2", "--output", "run", cwd=cwd)
    env = json.loads(content(cwd, "run", "env.json"))
    with open(os.path.join(cwd, "run", "env.json"), "w", encoding="utf-8") as file:
        json.dump({**env, "version": "0.0.9"}, file)
    said = verify(cwd, "run")
    assert "run:        0.0.9, " in said and f"repetition: {env['version']}, " in said and "equal: 2 hashes" in said, said
    with open(os.path.join(cwd, "run", "config.yaml"), "a", encoding="utf-8") as file:
        file.write("plugin:\n  - ./gone.so\n")
    assert "plugin ./gone.so is code that the repetition would run: --allow-plugin" in verify(cwd, "run", code=1)
    assert "plugin ./gone.so is missing: the run was trained with it" in verify(cwd, "run", "--allow-plugin", code=1)


sys.exit(run_rows([a_repetition_is_equal, a_hash_is_of_the_checkpoint, other_metrics_are_named,
                   ranks_become_micro_batches, hashing_changes_nothing, a_weight_changed_by_one_ulp_is_found,
                   an_interrupted_run_is_compared_where_it_stopped, runs_that_cannot_be_compared,
                   data_are_compared_by_all_bits_of_their_fingerprint, plugins_and_versions_are_named], "lather-verify-",
                  *sys.argv[3:4]))
