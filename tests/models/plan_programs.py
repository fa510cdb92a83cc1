"""plan of each training program of models/, with a profile written by hand: seconds by the formulas, the task's metric, a command that starts the program.

    plan_programs.py TRAIN_RESNET50|TRAIN_VIT|TRAIN_GPT none [ROW]
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from plan import by_ranks, near, plan, profile, refuses, step, write  # noqa: E402
from plan_memory import memory, must_fail  # noqa: E402
from rows import Skip, full, run_rows  # noqa: E402
from trainer import MODEL, NAME, OK, PROGRAM, run  # noqa: E402

IS_GPT = NAME == "train_gpt"
WORDS = ["--data", "text.txt", "--layers", "2", "--width", "16", "--heads", "2", "--positions", "64", "--seq-len", "16"] if IS_GPT else ["--data", "synthetic:160:16:3", *MODEL]
GOAL, OTHER = ("perplexity=20", "top1=75") if IS_GPT else ("top1=75", "perplexity=20")


def prepare(cwd, **more):
    with open(os.path.join(cwd, "text.txt"), "w") as f:
        f.write("the quick brown fox jumps over the lazy dog. " * 100)
    write(cwd, profile(**more))


def it_plans(cwd):
    """Steps on each number of ranks; a goal by the task's metric; the printed command runs."""
    prepare(cwd)
    found = plan(cwd, *WORDS, "--goal", GOAL, "--ranks", "1..4", "--vary", "batch-size=4,16", "--max-steps", "2")
    of = {(c["ranks"], c["batch_size"]): c for c in found["candidates"]}
    assert len(of) == 6 and not found["dropped"] and found["program"] == NAME, found
    for (ranks, batch), c in of.items():
        near(c["step_seconds"]["value"], step(ranks, batch), 1e-6)
        near(c["epoch_seconds"], step(ranks, batch) * 1600 / ranks / batch, 1e-6)
        assert c["steps"]["value"] is None and "not enough measurements" in c["steps"]["why"], c
    last = plan(cwd, *WORDS, "--goal", "deadline=1d", "--ranks", "1", "--max-steps", "2", "--progress", "off", json_out=False).splitlines()[-1]
    assert last.startswith(PROGRAM + " "), last
    run(*last.split(" ")[1:], cwd=cwd, code=OK)
    refuses(cwd, *WORDS, "--goal", OTHER, "--ranks", "1", says=f"--goal {OTHER.split('=')[0]}: no metric of this program; known: loss, train_loss, ")
    refuses(cwd, *WORDS, "--step-profile", write(cwd, profile(program="train_mlp"), "other.json"), "--goal", GOAL, "--ranks", "1", says=f"measured by train_mlp, but this program is {NAME}")


def a_grid_is_rejected_for_vit_b(cwd):
    """64 images of 197 tokens by data parallelism on 64 ranks, or 4 x 4 x 4, which pays below 16 times 768 tokens. It is rejected alone too, but not with 16 images, fewer than ranks."""
    prepare(cwd, layers=12, hidden=768, tokens=197, buckets=[{"elements": 86_000_000, "ready": 1, "rows": 0, "columns": 0, "dense": 0}])
    words = ["--data", "synthetic:1600:224:3", "--arch", "vit_b_16", "--goal", "top1=75", "--ranks", "64", "--ranks-per-node", "8", "--simulate"]
    found = plan(cwd, *words, "--vary", "tensor-parallel=1,4x4x4", "--vary", "batch-size=1,64", "--global-batch", "64")
    (best,) = found["candidates"]
    reasons = [d["why"] for d in found["dropped"] if "4x4x4" in d["setting"] and "tokens" in d["why"]]
    assert (best["tensor_parallel"], best["batch_size"]) == (1, 1) and len(reasons) == 1, found
    for says in reasons:
        assert "4x4x4 pays below 12288 tokens per replica (16 times the width), and there are 12608" in says, says
    refuses(cwd, *words, "--tensor-parallel", "4x4x4", "--batch-size", "64", says=["no candidate is left of 1", "pays below 12288 tokens per replica", "and there are 12608"])
    (kept,) = plan(cwd, *words, "--tensor-parallel", "4x4x4", "--batch-size", "16")["candidates"]
    assert kept["tensor_parallel"] == 64, kept


def a_tensor_parallel_language_model_is_planned(cwd):
    """Two ranks with half of each layer."""
    prepare(cwd, layers=2, hidden=16, tokens=16, vocabulary=256)
    found = by_ranks(plan(cwd, *WORDS, "--goal", GOAL, "--ranks", "2,4", "--tensor-parallel", "2", "--batch-size", "3"))
    assert sorted(found) == [2, 4] and all(c["tensor_parallel"] == 2 and c["verdict"] for c in found.values()), found


def activations_of_a_batch_take_the_memory_that_was_predicted(cwd):
    """A network of few weights."""
    words = ["--data", "synthetic:1600:32:10", "--arch", "resnet10", "--width", "16", "--batch-size", "8", "--threads", "1", "--workers", "1"]
    said, real = memory(cwd, *words, batches=(16, 192), optims=["sgd"])
    sample = (said["sgd", 192] - said["sgd", 16]) / 176
    must_fail(said, real, activations=lambda optim, batch: sample * batch)


@full
def a_rank_takes_the_memory_that_was_predicted(cwd):
    """ResNet-18 on two batches, with SGD's momentum and AdamW's two moments."""
    if "oneDNN: not in this build" in subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout:
        raise Skip("a build without oneDNN takes half an hour")
    words = ["--data", "synthetic:1600:32:10", "--arch", "resnet18", "--threads", "1", "--workers", "1"]
    said, real = memory(cwd, *words, batches=(16, 64), optims=["sgd", "adamw"])
    parameters = said["adamw", 16] - said["sgd", 16]
    sample = (said["sgd", 64] - said["sgd", 16]) / 48
    must_fail(said, real, activations=lambda optim, batch: sample * batch, moment=lambda optim, batch: parameters * (optim == "adamw"), gradients=lambda optim, batch: parameters)


ROWS = [it_plans] + {"train_resnet50": [activations_of_a_batch_take_the_memory_that_was_predicted, a_rank_takes_the_memory_that_was_predicted], "train_vit": [a_grid_is_rejected_for_vit_b], "train_gpt": [a_tensor_parallel_language_model_is_planned]}.get(NAME, [])


if __name__ == "__main__":
    sys.exit(run_rows(ROWS, "lather-plan-", sys.argv[3] if len(sys.argv) > 3 else None))
