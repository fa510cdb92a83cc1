#!/usr/bin/env python3
"""plan = auto of a gang: its command's plan says on how many ranks it starts, and again between its runs.

    gang_plan.py LATHER TRAIN_MLP MPIRUN [ROW]
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from rows import Skip, run_rows  # noqa: E402

LATHER, TRAIN, MPIRUN = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3]
TIMEOUT = 120
FLAGS = "--data synthetic:1600:16:3 --optim sgd --threads 1 --workers 1 --progress off --no-tensorboard --eval-every -1 --max-steps 12 --batch-size 16"
FAST, SLOW = "--link 0,8000 --link-between 0,8000", "--link 0,0.1 --link-between 0,0.1"
# A step of 10 ms and 1 ms a sample, of a million gradients.
PROFILE = {"format": 1, "program": "train_mlp", "model": "mlp", "samples_hash": "0", "fixed": 0.01, "per_sample": 0.001, "backward": 0.5, "load_per_sample": 0,
           "parameter_bytes": 4e6, "activation_bytes": 0, "layers": 0, "hidden": 0, "tokens": 0, "samples": 1600, "spent": 0, "batch_sizes": [16],
           "batch_seconds": [0.026], "step_seconds": [0.026], "buckets": [{"elements": 1000000, "ready": 1, "rows": 0, "columns": 0, "dense": 1000000}],
           "optimizers": [{"name": "sgd", "block": 0, "update": 0.001, "refresh": 0, "state_bytes": 0, "blocks": []}]}


def launch(cwd, keys, *flags, status=0):
    """The output of a program of one gang."""
    path = os.path.join(cwd, "program.ini")
    with open(os.path.join(cwd, "p.json"), "w") as f:
        json.dump(PROFILE, f)
    with open(path, "w") as f:
        f.write("[trainer]\nkind = gang\n" + "\n".join(f"{k} = {v}" for k, v in keys.items()) + "\n")
    env = dict(os.environ, TMPDIR=cwd, OMPI_MCA_odls_base_sigkill_timeout="0", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_btl_vader_single_copy_mechanism="none")
    p = subprocess.run([LATHER, "launch", path, *flags], cwd=cwd, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert p.returncode == status, (p.returncode, p.stdout, p.stderr)
    assert not [name for name in os.listdir(cwd) if name.startswith("lather-")], os.listdir(cwd)  # files that plans left in the launch's folder are removed
    return p.stdout + p.stderr


def config(cwd, run):
    with open(os.path.join(cwd, run, "config.yaml")) as f:
        return f.read()


def ranks(cwd, run):
    with open(os.path.join(cwd, run, "env.json")) as f:
        return json.load(f)["ranks"]


def a_gang_runs_as_its_plan_says_and_the_next_plan_reads_the_run(cwd):
    """The link is so slow that one rank is the best; of an epoch a batch of 32. The second plan's step is the first run's."""
    said = launch(cwd, {"ranks": 4, "command": f"{TRAIN} {FLAGS} --output runs-${{run}}", "runs": 2,
                        "plan": f"auto --goal loss=1 --vary batch-size=8,32 --step-profile p.json {SLOW}"})
    if "config files need libyaml" in said:
        raise Skip("no libyaml: the second plan cannot read the run")
    first, second = [line for line in said.splitlines() if "trainer: plan: " in line]
    assert "plan: 1 of at most 4 ranks, sgd, flat: 43 ms a step (model)" in first and " s an epoch (not enough measurements" in first and "; next: 1 ranks, " in first, first
    assert "plan: 1 of at most 4 ranks, sgd, flat: " in second and "ms a step (measured)" in second, second
    assert "launch| trainer: run 2 of 2, on 1 ranks" in said, said
    for run in ("runs-1", "runs-2"):
        assert "\nbatch-size: 32\n" in config(cwd, run) and ranks(cwd, run) == 1, config(cwd, run)


def ranks_that_pay_are_started_with_the_same_global_batch(cwd):
    if MPIRUN == "none":
        raise Skip("no MPI")
    said = launch(cwd, {"ranks": 2, "command": f"{TRAIN} {FLAGS} --grad-accum ${{grad-accum}} --output run", "batch-size": 16, "global-batch": 64,
                        "plan": f"auto --goal loss=1 --step-profile p.json {FAST}"})
    assert "plan: 2 of at most 2 ranks" in said and "; next: 1 ranks, " in said, said
    assert "\ngrad-accum: 2\n" in config(cwd, "run") and ranks(cwd, "run") == 2, config(cwd, "run")
    said = launch(cwd, {"ranks": 2, "command": f"{TRAIN} {FLAGS} --grad-accum ${{grad-accum}} --output one", "batch-size": 16, "global-batch": 64,
                        "plan": f"auto --goal loss=1 --step-profile p.json {FAST}"}, "--slots", "1")
    assert "plan: 1 of at most 1 ranks" in said and "\ngrad-accum: 4\n" in config(cwd, "one"), said


def a_gang_shrinks_between_runs(cwd):
    """The first plan wants the shortest epoch, which two ranks have; the second one has a deadline too, so that the cheapest wins (and is of another --threads, so that the first run measured none of its steps): its run is on one, with the same global batch."""
    if MPIRUN == "none":
        raise Skip("no MPI")
    script = os.path.join(cwd, "train")
    with open(script, "w") as f:
        f.write(f'#!/bin/sh\nif [ "$1" = plan ] && [ -e runs-1 ]; then exec {TRAIN} "$@" --goal deadline=1d --threads 2; fi\nexec {TRAIN} "$@"\n')
    os.chmod(script, 0o755)
    said = launch(cwd, {"ranks": 2, "command": f"{script} {FLAGS} --grad-accum ${{grad-accum}} --output runs-${{run}}", "batch-size": 16, "global-batch": 64, "runs": 2,
                        "plan": "auto --goal loss=1 --step-profile p.json --link 0,8 --link-between 0,8"})
    first, second = [line for line in said.splitlines() if "trainer: plan: " in line]
    assert "plan: 2 of at most 2 ranks" in first and "plan: 1 of at most 2 ranks" in second and "launch| trainer: run 2 of 2, on 1 ranks" in said, said
    assert [ranks(cwd, f"runs-{i}") for i in (1, 2)] == [2, 1], said
    assert "\ngrad-accum: 2\n" in config(cwd, "runs-1") and "\ngrad-accum: 4\n" in config(cwd, "runs-2"), said


def a_plan_that_fails_between_runs_changes_nothing(cwd):
    script = os.path.join(cwd, "train")
    with open(script, "w") as f:
        f.write(f'#!/bin/sh\nif [ "$1" = plan ] && [ -e runs-1 ]; then echo no more plans >&2; exit 3; fi\nexec {TRAIN} "$@"\n')
    os.chmod(script, 0o755)
    said = launch(cwd, {"ranks": 4, "command": f"{script} {FLAGS} --output runs-${{run}}", "runs": 2,
                        "plan": f"auto --goal loss=1 --vary batch-size=8,32 --step-profile p.json {SLOW}"})
    assert "launch: trainer: plan = auto: no more plans; continuing with 1 ranks" in said, said
    assert "\nbatch-size: 32\n" in config(cwd, "runs-2"), config(cwd, "runs-2")


def what_is_no_plan_is_refused(cwd):
    good = {"ranks": 4, "command": f"{TRAIN} {FLAGS}", "plan": f"auto --goal loss=1 --step-profile p.json {SLOW}"}
    empty = os.path.join(cwd, "empty")
    with open(empty, "w") as f:
        f.write("#!/bin/sh\necho \"$*\" >\"$0.arguments\"\nfor flag; do [ \"${flag#--json=}\" = \"$flag\" ] || echo '{\"candidates\":[]}' > \"${flag#--json=}\"; done\n")
    os.chmod(empty, 0o755)
    for more, says in (({"command": empty}, "launch: trainer: the plan has no candidate with 1 to 4 ranks"),
                       ({"plan": "soon"}, "plan = soon: want auto, followed by flags of plan"),
                       ({"plan": "automatic"}, "plan = automatic: want auto"),
                       ({"plan": "auto"}, "trainer: plan = auto: train_mlp plan: --goal: missing"),
                       ({"plan": "auto" + " a" * 600}, "launch: plan = auto: more than 511 arguments"),
                       ({"plan": "auto --goal loss=1 --ranks 8..2"}, "trainer: plan = auto: train_mlp plan: --ranks 8..2: want A..B"),
                       ({"command": "/bin/false"}, "trainer: plan = auto: no output"),
                       ({"command": "nowhere/train"}, "trainer: plan = auto: nowhere/train: No such file or directory"),
                       ({"command": "/bin/true"}, "trainer.plan: No such file or directory"),
                       ({"kind": "function"}, "trainer: plan = auto needs a gang with a command"),
                       ({"command": "x ${buffer.address}\n[buffer]\nkind = service\ncommand = /bin/sleep 100\n[other]\ncommand = true"},
                        "plan = auto runs before buffer has an address"),
                       ({"runs": 0}, "runs = 0: want a number, 1 to 4096"),
                       ({"plan": good["plan"], "batch-size": 3, "global-batch": 64}, "a global batch of 64 is not a multiple of micro-batches of 3 on 4 ranks")):
        said = launch(cwd, {**good, **more} if "\n" not in more.get("command", "") else {"ranks": 4, "plan": good["plan"], **more}, status=1)
        assert says in said, (more, said)
    for plan, has in ((good["plan"], "--step-profile p.json"), ("auto --goal loss=1", "/trainer.profile --goal")):  # of the launch: its later plans measure no step again
        launch(cwd, {"ranks": 4, "command": f"{empty} {FLAGS}", "plan": plan}, status=1)
        with open(empty + ".arguments") as f:
            arguments = f.read()
        assert arguments.count("--step-profile") == 1 and has in arguments, arguments
    said = launch(cwd, {**good, "runs": 3}, "--dry-run")
    assert f"    plan = auto: ranks, at most 4, and flags by plan --goal loss=1 --step-profile p.json {SLOW}" in said and "    3 runs" in said, said


ROWS = (a_gang_runs_as_its_plan_says_and_the_next_plan_reads_the_run, ranks_that_pay_are_started_with_the_same_global_batch, a_gang_shrinks_between_runs,
        a_plan_that_fails_between_runs_changes_nothing, what_is_no_plan_is_refused)


if __name__ == "__main__":
    sys.exit(run_rows(ROWS, "lather-gang-plan-", sys.argv[4] if len(sys.argv) > 4 else None))
