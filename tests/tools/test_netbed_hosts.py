#!/usr/bin/env python3
"""`lather launch --hosts` on nodes of tools/netbed: a node whose link is cut is left out, and the gang continues on a spare or on the nodes that are left.

    test_netbed_hosts.py NETBED LATHER TRAIN_MLP [ROW]     exit status 77 without root, iproute2 or Open MPI
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [os.path.join(TESTS, "support"), os.path.join(TESTS, "..", "tools")]
from rows import SKIPPED, Skip, full, run_rows  # noqa: E402
from stormlib import complete_steps  # noqa: E402

NETBED, LATHER, TRAIN = (os.path.abspath(path) for path in sys.argv[1:4])
NAME = "d" + "".join("abcdefghij"[int(d)] for d in str(os.getpid() % 100000))  # several runs may share the machine
DEAD, TIMEOUT = 1, 240
STEPS, EVERY, BATCH = 400, 4, 24
FLAGS = ["--data", "synthetic:96:8:3", "--optim", "sgd", "--progress", "off", "--no-tensorboard", "--threads", "1", "--workers", "1",
         "--deterministic", "--eval-every", "0", "--hidden", "4", "--batch-size", "2", "--max-steps", str(STEPS),
         "--checkpoint-every", str(EVERY), "--keep", "0", "--resume", "auto"]
PROGRAM = """[trainer]
kind = gang
ranks = 4
command = {train} {flags} --output run --grad-accum ${{grad-accum}}
batch-size = 2
global-batch = {batch}
backoff = 0.01
heartbeat = {heartbeat}
{supervise}
"""


def netbed(*args):
    return subprocess.run([NETBED, "--name", NAME, *args], capture_output=True, text=True, timeout=60)


def up(nodes):
    done = netbed("up", str(nodes), "--ranks", "2")
    if done.returncode == SKIPPED or not shutil.which("mpirun.openmpi"):
        raise Skip(done.stderr.strip() or "no Open MPI")
    assert done.returncode == 0, done.stderr


def set_link(node, state):
    done = netbed("run", "--on", str(node), "--", "ip", "link", "set", "eth0", state)
    assert done.returncode == 0, done.stderr


def hosts(*nodes):
    return ",".join(f"{NAME}{node}:2" for node in nodes)


def on_first_node(*words):
    """The words that run a command on the first node, with the shell by which mpirun reaches the others."""
    return [NETBED, "--name", NAME, "run", "--on", "0", "--", "env", f"OMPI_MCA_plm_rsh_agent=/run/netbed/{NAME}/agent", *words]


def begin(cwd, supervise, *flags, heartbeat=6, timeout=60, more=()):
    with open(os.path.join(cwd, "program.ini"), "w", encoding="utf-8") as f:
        f.write(PROGRAM.format(train=TRAIN, flags=" ".join([*FLAGS, "--comm-timeout", str(timeout), *more]), batch=BATCH, heartbeat=heartbeat, supervise=supervise and f"supervise = {supervise}"))
    return subprocess.Popen(on_first_node(LATHER, "launch", "program.ini", "--on", "mpirun", "--grace", "1", "--log", "log", *flags), cwd=cwd,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def log(cwd):
    path = os.path.join(cwd, "log")
    return open(path, encoding="utf-8").read() if os.path.exists(path) else ""


def wait_for(condition, launch, cwd):
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert launch.poll() is None and time.monotonic() < end, log(cwd)
        time.sleep(0.01)


def has_checkpoint(cwd, step=EVERY):
    return os.path.exists(os.path.join(cwd, "run", "checkpoints", f"step-{step}", "state.json"))


def marked(cwd):
    """Processes that a launch of this folder has started for its tasks: by their environment."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f, open(f"/proc/{pid}/cmdline", "rb") as g:
                if os.readlink(f"/proc/{pid}/cwd") == os.path.realpath(cwd) and b"LATHER_LAUNCH=lather-" in f.read():
                    found[int(pid)] = g.read().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def finish(launch, cwd, status=0):
    out = launch.communicate(timeout=TIMEOUT)[0]
    text = log(cwd) + out
    assert launch.returncode == status, text
    assert not marked(cwd), f"still running: {marked(cwd)}"
    return text


def cut_while_training(cwd, supervise, *flags, **more):
    launch = begin(cwd, supervise, *flags, **more)
    wait_for(lambda: has_checkpoint(cwd), launch, cwd)
    assert any("orted" in words for words in marked(cwd).values()), f"no daemon of mpirun has the mark: {log(cwd)}"
    set_link(DEAD, "down")
    return launch


def records(cwd, folder):
    with open(os.path.join(cwd, folder, "metrics.jsonl"), encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def losses(cwd, folder, after):
    """The last record of each step after a step: repeated steps override earlier ones."""
    return {r["step"]: (r["loss"], r["lr"]) for r in records(cwd, folder) if r["event"] == "step" and r["step"] > after}


def resume_by_hand(cwd, folder, step, nodes, *more):
    """Resumes a copy of the run from the gang's checkpoint, on these nodes and with the same batch."""
    run = os.path.join(cwd, folder)
    shutil.copytree(os.path.join(cwd, "run"), run, symlinks=True)
    checkpoints = os.path.join(run, "checkpoints")
    for later in complete_steps(run):
        if later > step:
            shutil.rmtree(os.path.join(checkpoints, f"step-{later}"))
    for at in (run, checkpoints):
        if os.path.lexists(os.path.join(at, "latest")):
            os.remove(os.path.join(at, "latest"))
            os.symlink(f"step-{step}" if at == checkpoints else f"checkpoints/step-{step}", os.path.join(at, "latest"))
    kept = [r for r in records(cwd, folder) if r.get("step", 0) <= step and r["event"] != "resume"]
    with open(os.path.join(run, "metrics.jsonl"), "w", encoding="utf-8") as f:
        f.writelines(json.dumps(r) + "\n" for r in kept)
    ranks = 2 * len(nodes)
    subprocess.run(on_first_node("mpirun", "--host", hosts(*nodes), "-n", str(ranks), TRAIN, *FLAGS, "--output", folder, "--grad-accum",
                                 str(BATCH // (2 * ranks)), *more), cwd=cwd, check=True, capture_output=True, timeout=TIMEOUT)
    return losses(cwd, folder, step)


def continues_exactly(cwd, nodes, others):
    """The losses after the restart are those of a run resumed by hand on these nodes, and not those of one on others."""
    resumes = [r["step"] for r in records(cwd, "run") if r["event"] == "resume"]
    assert len(resumes) == 1 and EVERY <= resumes[0] < STEPS, resumes
    got = losses(cwd, "run", resumes[0])
    assert len(got) == STEPS - resumes[0]
    assert got == resume_by_hand(cwd, "hand", resumes[0], nodes), "the losses differ from those of a run resumed by hand"
    assert got != resume_by_hand(cwd, "other", resumes[0], others), "runs on 2 and on 4 ranks cannot be told apart"


LEFT_OUT = f"launch| host {NAME}{DEAD} is left out: cannot connect to the launcher at "


def a_spare_takes_the_place_of_a_node_whose_link_is_cut(cwd):
    up(3)
    assert netbed("run", "--on", "2", "--", "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", "5mbit", "burst", "16kb", "latency", "50ms").returncode == 0
    launch = cut_while_training(cwd, "restart 1", "--hosts", hosts(0, 1), "--spare-hosts", hosts(2))
    text = finish(launch, cwd)
    slow = re.search(rf"launch\| host {NAME}2: a link of (\S+) Gbit/s, less than a tenth of the others' median", text)
    assert slow and 0.002 < float(slow[1]) < 0.01 and f"host {NAME}{DEAD}: a link" not in text, text
    assert f" on {NAME}{DEAD} has sent no heartbeat for" in text and LEFT_OUT in text, text
    assert f"launch| host {NAME}2 takes the place of {NAME}{DEAD}" in text and "trainer continues with" not in text, text
    assert "restart 1 of 1" not in text and "on the hosts that are left" in text, text
    continues_exactly(cwd, (0, 2), (0,))


@full
def a_gang_continues_on_the_slots_that_are_left(cwd):
    up(2)
    text = finish(cut_while_training(cwd, "shrink 1", "--hosts", hosts(0, 1)), cwd)
    assert LEFT_OUT in text and "launch| trainer continues with 2 ranks, grad-accum 6" in text, text
    set_link(DEAD, "up")
    continues_exactly(cwd, (0,), (0, 1))


@full
def without_a_check_silent_ranks_leave_their_host_out(cwd):
    up(2)
    text = finish(cut_while_training(cwd, "restart 1", "--hosts", hosts(1, 0), "--no-host-check"), cwd)  # mpirun places its own first
    assert f"launch| host {NAME}{DEAD} is left out" in text and "launch| trainer continues with 2 ranks, grad-accum 6" in text, text


@full
def without_heartbeats_a_timeout_of_the_ranks_is_enough(cwd):
    up(2)
    text = finish(cut_while_training(cwd, "restart 1", "--hosts", hosts(0, 1), heartbeat=0, timeout=10), cwd)
    assert "trainer failed, and mpirun has not ended for 10 s; ending it" in text and LEFT_OUT in text, text
    assert "launch| trainer continues with 2 ranks, grad-accum 6" in text, text


@full
def a_launch_that_may_not_restart_ends_and_names_the_node(cwd):
    up(2)
    text = finish(cut_while_training(cwd, "", "--hosts", hosts(0, 1)), cwd, 1)
    assert f" on {NAME}{DEAD} has sent no heartbeat for" in text and "continues" not in text, text


@full
def a_node_that_is_back_is_used_at_the_next_restart(cwd):
    up(2)
    launch = cut_while_training(cwd, "restart 1", "--hosts", hosts(0, 1))
    wait_for(lambda: "trainer continues with 2 ranks" in log(cwd), launch, cwd)
    set_link(DEAD, "up")
    wait_for(lambda: [r for r in records(cwd, "run") if r["event"] == "resume"], launch, cwd)
    ranks = [pid for pid, words in marked(cwd).items() if words.startswith(TRAIN)]
    assert len(ranks) == 2, marked(cwd)
    os.kill(ranks[0], 9)
    text = finish(launch, cwd)
    assert f"launch| host {NAME}{DEAD} is back" in text and "launch| trainer continues with 4 ranks, grad-accum 3" in text, text
    assert "restart 1 of 1" in text, text


@full
def a_gang_grows_at_an_epochs_end_when_a_node_is_back(cwd):
    """Messages are delayed, so that the run outlasts the 10 s until the check; the epochs have no other checkpoints."""
    up(2)
    slow = ["--comm-model", "30000,1", "--checkpoint-every", "0"]
    launch = cut_while_training(cwd, "restart 1", "--hosts", hosts(0, 1), more=slow)
    wait_for(lambda: "trainer continues with 2 ranks" in log(cwd), launch, cwd)
    set_link(DEAD, "up")
    text = finish(launch, cwd)
    asked = text.index("launch| trainer: hosts for 4 ranks again: it stops after its epoch and continues")
    back = text.index(f"launch| host {NAME}{DEAD} is back")
    assert asked < back < text.index("launch| trainer continues with 4 ranks, grad-accum 3") and "restart 1 of 1" not in text, text
    resumes = [r["step"] for r in records(cwd, "run") if r["event"] == "resume"]
    assert len(resumes) == 2 and resumes[1] % EVERY == 0 and resumes[0] < resumes[1] < STEPS, resumes
    got = losses(cwd, "run", resumes[1])
    assert len(got) == STEPS - resumes[1]
    assert got == resume_by_hand(cwd, "hand", resumes[1], (0, 1), *slow), "the losses differ from those of a run resumed by hand"
    weights = [open(os.path.join(cwd, folder, "model.safetensors"), "rb").read() for folder in ("run", "hand")]
    assert weights[0] == weights[1]


@full
def a_node_that_fails_its_check_is_not_started_on(cwd):
    up(2)
    set_link(DEAD, "down")
    text = finish(begin(cwd, "restart 1", "--hosts", hosts(0, 1)), cwd)
    assert LEFT_OUT in text and records(cwd, "run")[-1]["step"] == STEPS, text
    shutil.rmtree(os.path.join(cwd, "run"))
    text = finish(begin(cwd, "", "--hosts", hosts(0, 1)), cwd, 1)
    assert f"trainer needs 4 ranks, but there are 2 slots; left out: {NAME}{DEAD} (cannot connect" in text, text
    text = finish(begin(cwd, "restart 1", "--hosts", hosts(0)), cwd, 1)
    assert "trainer needs 4 ranks, but --hosts has 2 slots" in text, text


ROWS = (a_spare_takes_the_place_of_a_node_whose_link_is_cut, a_gang_continues_on_the_slots_that_are_left,
        without_a_check_silent_ranks_leave_their_host_out, without_heartbeats_a_timeout_of_the_ranks_is_enough, a_launch_that_may_not_restart_ends_and_names_the_node,
        a_node_that_is_back_is_used_at_the_next_restart, a_gang_grows_at_an_epochs_end_when_a_node_is_back, a_node_that_fails_its_check_is_not_started_on)

try:
    STATUS = run_rows(ROWS, "netbed-hosts-", sys.argv[4] if sys.argv[4:] else None)
finally:
    if not os.geteuid():
        subprocess.run([NETBED, "--name", NAME, "down"], check=False)
sys.exit(STATUS)
