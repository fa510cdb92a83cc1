#!/usr/bin/env python3
"""--reproducible: rejected options, records of the mode, and a resume on another processor.

    reproducible.py TRAIN_RESNET50 [ROW]

Prints cmocka's lines.
"""
import json
import os
import sys

from trainer import NOISE, SMALL, USAGE, checkpoint, content, copy_until, fails, records, run, run_rows, write_image

FLAGS = [*NOISE, *SMALL, "--reproducible", "--epochs", "2", "--eval-every", "0", "--no-tensorboard"]
LEVELS = "generic", "avx2", "avx512", "avx512_bf16"


def isa(level):
    return {"LATHER_CPU_ISA": level}


def state(cwd, folder, step):
    return json.loads(content(checkpoint(cwd, folder, step, "state.json")))


def rejections(cwd):
    rows = {("--device", "cuda"): "--device cuda and --reproducible contradict each other: a GPU adds",
            ("--drop-compute", "auto"): "--drop-compute auto and --reproducible contradict each other: the micro-batches",
            ("--drop-compute", "3"): "--drop-compute 3 and --reproducible",
            ("--precondition-budget", "0.1"): "--precondition-budget is gone since 0.2",
            ("--compress", "topk:0.1"): "--compress topk:0.1 and --reproducible", ("--sums", "engine"): "--sums engine and --reproducible",
            ("--sync-bn",): "--sync-bn true and --reproducible",
            ("--backup-workers", "1"): "--backup-workers 1 and --reproducible",
            ("--local-steps", "2"): "--local-steps 2 and --reproducible",
            ("--comm-dtype", "bf16", "--shard-optimizer"): "--comm-dtype bf16 and --reproducible"}
    for flags, says in rows.items():
        fails(*FLAGS, *flags, cwd=cwd, says=says, code=USAGE)
    p = run(*FLAGS, "--max-steps", "1", cwd=cwd, code=USAGE, env={"LATHER_CPU_KERNELS": "onednn"})
    assert "LATHER_CPU_KERNELS=onednn: a reproducible device has built-in kernels only" in p.stderr, p.stderr


def records_name_the_mode(cwd):
    run(*FLAGS, "--max-steps", "2", "--output", "run", cwd=cwd)
    run(*[f for f in FLAGS if f != "--reproducible"], "--max-steps", "2", "--output", "usual", cwd=cwd)
    assert state(cwd, "run", 2)["reproducible"] is True and "reproducible" not in state(cwd, "usual", 2)
    assert b"reproducible: true" in content(cwd, "run", "config.yaml")
    with open(os.path.join(cwd, "run", "env.json"), encoding="utf-8") as file:
        env = json.load(file)
    assert env["cpu_isa"] == state(cwd, "run", 2)["cpu_isa"] in LEVELS[:3], env


def a_resume_on_another_processor_is_silent(cwd):
    run(*FLAGS, "--max-steps", "4", "--checkpoint-every", "2", "--keep", "0", "--output", "whole", cwd=cwd)
    copy_until(cwd, "whole", "half", 2)
    more = [*FLAGS, "--max-steps", "4", "--checkpoint-every", "2", "--keep", "0", "--output", "half", "--resume", "auto"]
    p = run(*more, cwd=cwd, env=isa("generic"))
    assert "differ" not in p.stderr and "cpu" not in p.stderr, p.stderr
    assert not any("changed" in r for r in records(cwd, "half", "resume")), records(cwd, "half", "resume")
    copy_until(cwd, "whole", "other", 2)
    more = [f for f in more if f not in ("--reproducible", "--output", "half")]
    p = run(*more, "--output", "other", cwd=cwd, env=isa("generic"))
    assert "saved with --reproducible, this run is without it" in p.stderr, p.stderr
    assert "reproducible true -> false" in records(cwd, "other", "resume")[-1]["changed"]


def other_commands_have_it(cwd):
    run(*FLAGS, "--max-steps", "1", "--output", "run", cwd=cwd)
    run("--eval", "--reproducible", *NOISE, "--weights", "run/model.safetensors", cwd=cwd)
    fails("--eval", "--reproducible", *NOISE, "--weights", "run/model.safetensors", "--device", "cuda", cwd=cwd, says="--device cuda and", code=USAGE)
    write_image(os.path.join(cwd, "image.bmp"), 16, 7)
    run("predict", "--reproducible", "--weights", "run/model.safetensors", "image.bmp", cwd=cwd)


sys.exit(run_rows([rejections, records_name_the_mode, a_resume_on_another_processor_is_silent, other_commands_have_it], "lather-reproducible-",
                  *sys.argv[2:3]))
