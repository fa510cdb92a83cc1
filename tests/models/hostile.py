#!/usr/bin/env python3
"""Runs train_resnet50 on what nobody vouches for: counters out of range, names that are no text.

    hostile.py TRAIN_RESNET50
"""
import json
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from rows import run_rows  # noqa: E402
from trainer import NOISE, SMALL, checkpoint, fails, run, same  # noqa: E402


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def forge(folder, **fields):
    """Sets numbers of a checkpoint's state.json, under a checksum that holds."""
    path = os.path.join(folder, "state.json")
    with open(path) as f:
        text = f.read()
    text = text[:text.rindex(',"crc32c":')]
    for field, value in fields.items():
        text, count = re.subn(rf'"{re.escape(field)}":-?\d+', f'"{field}":{value}', text)
        assert count == 1, field
    with open(path, "w") as f:
        f.write(f'{text},"crc32c":"{crc32c(text.encode()):08x}"}}\n')


def counters_of_a_checkpoint_have_ranges(cwd):
    flags = [*NOISE, *SMALL, "--no-tensorboard", "--optim", "shampoo", "--precondition-frequency", "2", "--sched", "constant",
             "--checkpoint-every", "2", "--max-steps", "4"]
    run(*flags, "--output", "run", cwd=cwd)
    forged = os.path.join(cwd, "forged")
    resume = [*flags, "--max-steps", "6", "--output", "again", "--resume"]
    contradict = "'batch' 2 and 'epoch_images' 9 contradict each other, with 4 pictures to an update"
    for field, value, says in (
            ("epoch", 2**63 - 1, "'epoch' 9223372036854775807 is not in [0,2]"),
            ("epoch", -1, "'epoch' -1 is not in [0,2]"),
            ("step", 2**63 - 1, "'step' 9223372036854775807 is not in [0,9007199254740992]"),
            ("step", -2**63, "'step' -9223372036854775808 is not in [0,9007199254740992]"),
            ("step", 2**53, "'attempt' 2 is not in [9007199254740992,9007199254740992]"),
            ("batch", -1, "'batch' -1 is not in [0,9007199254740992]"),
            ("batch", 2**53, "contradict each other"),
            ("epoch_images", 9, contradict),
            ("images", 2**63 - 1, "'images' 9223372036854775807 is not in"),
            ("rooted.0.fc.weight", 3, "'rooted.0.fc.weight' 3 is not in [0,2]")):
        shutil.rmtree(forged, ignore_errors=True)
        shutil.copytree(os.path.join(cwd, "run", "checkpoints", "step-2"), forged)
        forge(forged, **{field: value})
        if "contradict" in says:
            forge(forged, images=2**53)
        fails(*resume, "forged", cwd=cwd, says=says)
    forge(os.path.join(cwd, "run", "checkpoints", "step-4"), epoch=2**63 - 1)
    said = run(*flags, "--max-steps", "6", "--output", "run", "--resume", "auto", cwd=cwd).stderr
    assert "DAMAGED CHECKPOINT" in said and "'epoch' 9223372036854775807 is not in [0,4]" in said, said
    run(*flags, "--max-steps", "6", "--output", "whole", cwd=cwd)
    same(cwd, "run", "whole", 6)


ROWS = [counters_of_a_checkpoint_have_ranges]

sys.exit(run_rows(ROWS, "lather-hostile-", only=sys.argv[2] if len(sys.argv) > 2 else None))
