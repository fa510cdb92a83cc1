#!/usr/bin/env python3
"""Runs train_gpt and train_vit --device cuda on the stand-in. Captured steps have the bits of eager steps in every order of
queued work, the host never touches device memory, losses agree with the CPU's, failing calls are reported. train.py tests
everything that does not depend on the model.

    tests/cuda/standin/transformers.py BUILD/models/gpt/train_gpt BUILD/models/vit/train_vit BUILD [ROW]

Prints cmocka's lines."""
import filecmp
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))
from standin_ranks import TIMEOUT, environment, run_rows  # noqa: E402

GPT, VIT = map(os.path.abspath, sys.argv[1:3])
COMMON = ["--batch-size", "4", "--max-steps", "6", "--threads", "1", "--workers", "1", "--progress", "off",
          "--no-tensorboard", "--deterministic", "--lr", "0.01", "--keep", "1", "--overwrite"]
SMALL = {GPT: ["--data", "text.txt", "--seq-len", "20", "--layers", "2", "--heads", "4", "--width", "32"],
         VIT: ["--data", "synthetic:24:16:3", "--arch", "vit_ti_16", "--patch-size", "4", "--depth", "2", "--heads", "2",
               "--width", "16", "--epochs", "2"]}
WORDS = "attention is a sum of values by shares that a query has of keys, and shares are exponentials. "
COUNTS = re.compile(r"(\d+) captures, (\d+) launches")


def run(cwd, program, name, *args, code=0, order="now", device="cuda", **wishes):
    """Returns the finished process, with its stderr and the numbers of captures and launches."""
    env = dict(environment(cwd, order, 1), LATHER_STANDIN_LOG="1", LATHER_STANDIN_PROTECT="0")
    env.update({"LATHER_" + key: str(value) for key, value in wishes.items()})
    with open(os.path.join(cwd, "text.txt"), "w", encoding="utf-8") as f:
        f.write(WORDS * 12)
    p = subprocess.run([program, *SMALL[program], *COMMON, "--device", device, *args, "--output", name], cwd=cwd, env=env,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT, check=False)
    p.said = p.stderr
    assert p.returncode == code, f"{name}: exit {p.returncode}, want {code}: {p.said[-600:]}"
    found = COUNTS.search(p.said)
    p.captures, p.launches = map(int, found.groups()) if found else (0, 0)
    return p


def losses(cwd, name):
    with open(os.path.join(cwd, name, "metrics.jsonl"), encoding="utf-8") as f:
        return [row["loss"] for row in map(json.loads, f) if row["event"] == "step"]


def same(cwd, a, b):
    return filecmp.cmp(*(os.path.join(cwd, name, "model.safetensors") for name in (a, b)), shallow=False)


def agree(cwd, program, *flags):
    """Captured steps have the bits of eager steps."""
    run(cwd, program, "eager", *flags, "--no-graph")
    for order in ("late", "shuffled", "main-first", "main-last"):
        p = run(cwd, program, order, *flags, order=order)
        assert p.captures and p.launches, f"{flags}: {p.captures} captures, {p.launches} launches"
        assert same(cwd, "eager", order), f"{flags}: {order} differs from eager"


def near_the_cpu(cwd, program, bound, *flags):
    """Losses agree with the CPU's up to rounding."""
    run(cwd, program, "cuda", *flags)
    run(cwd, program, "cpu", *flags, device="cpu")
    got, want = losses(cwd, "cuda"), losses(cwd, "cpu")
    assert len(got) == len(want) > 4, f"{got}, {want}"
    worst = max(abs(a - b) / b for a, b in zip(got, want))
    assert worst <= bound, f"{flags}: {got}, want {want}, {worst} apart"


# --- rows ---------------------------------------------------------------------------------------

def gpt_in_f32_is_the_same_captured(cwd):
    agree(cwd, GPT)


def gpt_in_bf16_is_the_same_captured(cwd):
    agree(cwd, GPT, "--amp", "bf16")


def shared_keys_and_rotary_positions_are_the_same_recorded(cwd):
    agree(cwd, GPT, "--amp", "bf16", "--kv-heads", "2", "--position", "rotary", "--norm", "rmsnorm", "--activation", "swiglu")


def gpt_by_composed_attention_in_tf32_is_the_same_captured(cwd):
    agree(cwd, GPT, "--tf32", "on", "--fused", "off")


def vit_in_bf16_is_the_same_captured(cwd):
    agree(cwd, VIT, "--amp", "bf16")


def vit_in_f16_with_the_mean_of_patches_is_the_same_captured(cwd):
    agree(cwd, VIT, "--amp", "f16", "--pool", "mean")


def the_host_does_not_touch_device_memory(cwd):
    run(cwd, GPT, "gpt", "--amp", "bf16", order="late", STANDIN_PROTECT=1)
    run(cwd, VIT, "vit", "--amp", "bf16", order="late", STANDIN_PROTECT=1)


def losses_are_the_cpus(cwd):
    near_the_cpu(cwd, GPT, 1e-5)
    near_the_cpu(cwd, VIT, 1e-5)
    near_the_cpu(cwd, GPT, 1e-2, "--amp", "bf16")
    near_the_cpu(cwd, VIT, 1e-2, "--amp", "bf16")


def another_model_is_not_near_the_cpu(cwd):
    """Control for the row above."""
    run(cwd, GPT, "cuda")
    run(cwd, GPT, "cpu", "--norm", "rmsnorm", "--position", "rotary", device="cpu")
    worst = max(abs(a - b) / b for a, b in zip(losses(cwd, "cuda"), losses(cwd, "cpu")))
    assert worst > 1e-5, worst


def a_failing_product_is_reported(cwd):
    p = run(cwd, GPT, "bad", code=1, STANDIN_FAIL="cublasGemmStridedBatched:2")
    assert re.search("attention", p.said), p.said[-400:]


def kinds_of_attention(cwd, name, length, **wishes):
    """Returns the attention implementations that a run chose, from its LATHER_PLAN_LOG file. Rows share a cache on disk, so each uses
    another sequence length."""
    table = os.path.join(cwd, name + ".tsv")
    run(cwd, GPT, name, "--amp", "bf16", "--seq-len", str(length), PLANS=table, **wishes)
    with open(table, encoding="utf-8") as f:
        lines = [dict(zip(("device", "key", "settings", "candidate", "kind", "engine", "workspace", "time", "chosen"), line.split("\t")))
                 for line in f if line.startswith("cuda:0\tattention")]
    return {line["kind"] for line in lines if line["chosen"] == "1"}


def plans_that_do_not_run_are_composed(cwd):
    """Later processes compose attention too: the choice is cached on disk."""
    assert kinds_of_attention(cwd, "composed", 22, STANDIN_FAIL="cudnnBackendExecute:-1") == {"composed"}
    assert kinds_of_attention(cwd, "later", 22) == {"composed"}
    run(cwd, GPT, "cpu", "--amp", "bf16", "--seq-len", "22", device="cpu")
    apart = [abs(a - b) / b for a, b in zip(losses(cwd, "composed"), losses(cwd, "cpu"))]
    assert max(apart) <= 1e-2, apart


def plans_are_tried_again_after_lack_of_memory(cwd):
    """The next process tries the plans again. Control: the row above."""
    failing = {"STANDIN_FAIL": "cudnnBackendExecute:-1", "STANDIN_NO_MEMORY": 1}
    assert kinds_of_attention(cwd, "composed", 26, **failing) == {"composed"}
    kinds = kinds_of_attention(cwd, "later", 26)
    assert kinds and "composed" not in kinds, kinds


ROWS = [gpt_in_f32_is_the_same_captured, gpt_in_bf16_is_the_same_captured,
        shared_keys_and_rotary_positions_are_the_same_recorded, gpt_by_composed_attention_in_tf32_is_the_same_captured,
        vit_in_bf16_is_the_same_captured, vit_in_f16_with_the_mean_of_patches_is_the_same_captured,
        the_host_does_not_touch_device_memory, losses_are_the_cpus, another_model_is_not_near_the_cpu,
        a_failing_product_is_reported, plans_that_do_not_run_are_composed, plans_are_tried_again_after_lack_of_memory]

sys.exit(run_rows(ROWS, os.path.abspath(sys.argv[3]), "lather-transformers-", *sys.argv[4:5]))
