#!/usr/bin/env python3
"""Kills ranks, nodes and the launcher of a gang on two nodes of tools/netbed, two ranks each, every few seconds.

    tools/gang_storm.py LATHER TRAIN_MLP [--kills 200] [--minutes M] [--seconds 4] [--seed N]

A rank is killed alone; a node loses its link and all its processes, and is back some seconds later; the launcher is killed alone and
started again, after nothing of it runs any more. Every start must resume, from the newest complete checkpoint, and the run, on 4 or 2
ranks with --reproducible, must end with the weights of a run of one process that was not killed, bit for bit. Prints the kills of each
kind and the goodput: steps of the run over steps that were computed, over those that the gang would have computed in the time without
kills, and the latter for one kill a minute. Exit status 0 if all that holds, 77 without root, iproute2 or Open MPI.
"""
import argparse
import collections
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from stormlib import Rows, complete_steps, records

NETBED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "netbed")
CANNOT, BATCH, EVERY, FAR, PATIENCE, TAIL = 77, 24, 4, 1_000_000, 300, 16384
FLAGS = ["--data", "synthetic:96:8:3", "--optim", "shampoo", "--precondition-frequency", "3", "--reproducible", "--sched", "constant",
         "--lr", "0.01", "--eval-every", "0", "--threads", "1", "--workers", "1", "--hidden", "4", "--batch-size", "2", "--epochs", str(FAR),
         "--checkpoint-every", str(EVERY), "--progress", "off", "--no-tensorboard", "--resume", "auto"]
PROGRAM = """[trainer]
kind = gang
ranks = 4
command = {train} {flags} --output storm --max-steps {steps} --grad-accum ${{grad-accum}} --comm-timeout 60
batch-size = 2
global-batch = {batch}
supervise = restart {far}
backoff = 0.01
heartbeat = 1
"""


class GangStorm(Rows):
    def __init__(self, lather, train, seed):
        super().__init__()
        self.lather, self.train, self.random = lather, train, random.Random(seed)
        self.name = "s" + "".join("abcdefghij"[int(d)] for d in str(os.getpid() % 100000))
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="gang-storm-"))
        self.kills, self.launch, self.is_down, self.back_at = collections.Counter(), None, False, 0
        self.lost, self.rate = 0, 0  # steps that were computed and are not in a checkpoint; steps a second without kills

    def netbed(self, *words):
        return subprocess.run([NETBED, "--name", self.name, *words], capture_output=True, text=True, timeout=60)

    # --- Processes ----------------------------------------------------------------------------------

    def processes(self, word="", node=None):
        """Ids of the run's processes whose command line has the word, of all nodes or one."""
        place = node is not None and os.stat(f"/run/netbed/{self.name}/{node}/net")
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                at = os.stat(f"/proc/{pid}/ns/net")
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                    line = file.read().replace("\0", " ")
                if line and word in line and os.readlink(f"/proc/{pid}/cwd") == self.folder and (not place or (at.st_dev, at.st_ino) == (place.st_dev, place.st_ino)):
                    found.append(int(pid))
            except OSError:
                continue
        return found

    def kill(self, pids):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def start(self, steps):
        with open(f"{self.folder}/program.ini", "w", encoding="utf-8") as file:
            file.write(PROGRAM.format(train=self.train, flags=" ".join(FLAGS), steps=steps, batch=BATCH, far=FAR))
        with open(f"{self.folder}/log", "a", encoding="utf-8") as log:
            self.launch = subprocess.Popen(
                [NETBED, "--name", self.name, "run", "--on", "0", "--", "env", f"OMPI_MCA_plm_rsh_agent=/run/netbed/{self.name}/agent", self.lather, "launch",
                 "program.ini", "--on", "mpirun", "--grace", "1", "--hosts", f"{self.name}0:2,{self.name}1:2"], cwd=self.folder, stdout=log, stderr=log)

    # --- Kills --------------------------------------------------------------------------------------

    def link(self, state):
        self.netbed("run", "--on", "1", "--", "ip", "link", "set", "eth0", state)
        self.is_down, self.back_at = state == "down", time.monotonic() + self.random.uniform(2, 10)

    def kill_rank(self):
        ranks = self.processes(self.train + " ")
        if ranks:
            self.kill([self.random.choice(ranks)])
        return bool(ranks)

    def kill_node(self):
        ranks = self.processes(self.train + " ", 1)
        if ranks:
            self.link("down")
            self.kill(self.processes(node=1))
        return bool(ranks)

    def launchers(self):
        """The launcher without its guard, which then ends the rest."""
        found = []
        for pid in self.processes(f"{self.lather} launch"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8") as file:
                if file.read().strip() != "lather-guard":
                    found.append(pid)
        return found

    def end_launcher(self):
        self.kill(self.launchers())
        self.launch.wait(timeout=PATIENCE)
        end = time.monotonic() + PATIENCE
        while self.processes() and time.monotonic() < end:
            time.sleep(0.05)
        left = [name for name in os.listdir(self.folder) if name.startswith("lather-")]
        self.row(not self.processes() and not left, f"after the launcher's death there are still {self.processes()} {left}")

    def kill_launcher(self):
        self.end_launcher()
        self.start(FAR)
        return True

    def last_step(self):
        """By the end of the records alone, as this is asked often."""
        with contextlib.suppress(OSError), open(f"{self.folder}/storm/metrics.jsonl", "rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - TAIL, 0))
            return max(map(int, re.findall(rb'"event":"step","step":(\d+),', file.read())), default=0)
        return 0

    def last_checkpoint(self):
        return max(complete_steps(f"{self.folder}/storm"), default=0)

    def wait_for_steps(self, count=EVERY + 1):
        """Waits until the gang has computed steps since the last kill. It does not get stuck: that is a failure."""
        before, end = self.last_checkpoint(), time.monotonic() + PATIENCE
        while self.last_step() < before + count:
            if self.is_down and time.monotonic() > self.back_at:
                self.link("up")
            if self.launch.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"no step in {PATIENCE} s, the launcher's status is {self.launch.poll()}")
            time.sleep(0.1)

    def measure_rate(self):
        few, many = 20, 120
        self.wait_for_steps(few)
        begin, first = time.monotonic(), self.last_step()
        self.wait_for_steps(many)
        self.rate = (self.last_step() - first) / (time.monotonic() - begin)

    def strike(self, seconds):
        """One kill, mostly after the gang has computed steps, else while it starts."""
        starting = 0.15
        if self.random.random() > starting:
            self.wait_for_steps()
        time.sleep(self.random.uniform(0, seconds))
        before = self.last_checkpoint()
        kind = self.random.choice(("rank", "rank", "rank", "rank", "node", "node", "launcher"))
        if not getattr(self, f"kill_{kind}")():
            return
        self.kills[kind] += 1
        time.sleep(0.1)
        after = self.last_checkpoint()
        self.lost += max(self.last_step() - after, 0)
        self.row(after >= before, f"step {before} was complete, after a kill of a {kind} it is {after}")

    # --- The run ------------------------------------------------------------------------------------

    def finish_run(self):
        """Ends the launcher, then lets another compute a few steps to the end."""
        if self.is_down:
            self.link("up")
        self.kill_launcher()
        self.wait_for_steps()
        self.end_launcher()
        steps = self.last_step() + EVERY
        self.start(steps)
        self.row(self.launch.wait(timeout=PATIENCE) == 0, "the last part of the run failed")
        return steps

    def compare(self, steps):
        done = subprocess.run([self.train, *FLAGS, "--dist", "off", "--output", "calm", "--max-steps", str(steps), "--grad-accum", str(BATCH // 2)],
                              cwd=self.folder, capture_output=True, text=True)
        self.row(done.returncode == 0, f"the run without kills: {done.stderr[-300:]}")
        weights = [open(f"{self.folder}/{run}/model.safetensors", "rb").read() for run in ("storm", "calm")]
        self.row(weights[0] == weights[1], f"after step {steps} the weights differ from those of a run without kills")

    def report(self, steps, during, seconds):
        recorded = [r["step"] for r in records(f"{self.folder}/storm") if r.get("event") == "step"]
        resumes = sum(r.get("event") == "resume" for r in records(f"{self.folder}/storm"))
        self.row(recorded == list(range(1, steps + 1)), f"{len(recorded)} records of {steps} steps")
        kills = sum(self.kills.values())
        kinds = ", ".join(f"{count} of {kind}s" for kind, count in sorted(self.kills.items()))
        outage = (seconds - during / self.rate) / kills
        print(f"{kills} kills ({kinds}) in {seconds:.0f} s, {resumes} resumes; {steps} steps, {self.lost} computed twice: {100 * steps / (steps + self.lost):.1f} % of "
              f"those computed; without kills {self.rate:.1f} steps a second: goodput {100 * during / self.rate / seconds:.0f} % with a kill every "
              f"{seconds / kills:.1f} s, {outage:.1f} s lost by each, {100 * (1 - outage / 60):.1f} % with one a minute")

    def run(self, kills, seconds, minutes):
        self.start(FAR)
        try:
            self.measure_rate()
            begin, first = time.monotonic(), self.last_step()
            while sum(self.kills.values()) < kills and time.monotonic() < begin + 60 * minutes:
                self.strike(seconds)
            lasted, reached = time.monotonic() - begin, self.last_step() - first
            steps = self.finish_run()
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            with open(f"{self.folder}/log", encoding="utf-8") as log:
                self.row(False, f"after {dict(self.kills)}: {error}\n" + log.read()[-3000:])
            return
        self.compare(steps)
        self.report(steps, reached, lasted)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("lather")
    parser.add_argument("train")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=600, help="with fewer kills if they last longer")
    parser.add_argument("--seconds", type=float, default=4, help="at most so long after the gang's first steps")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    args = parser.parse_args()
    storm = GangStorm(os.path.abspath(args.lather), os.path.abspath(args.train), args.seed)
    up = storm.netbed("up", "2", "--ranks", "2")
    if up.returncode or not shutil.which("mpirun.openmpi"):
        print(up.stderr.strip() or "no Open MPI")
        sys.exit(up.returncode or CANNOT)
    print(f"seed {args.seed}", flush=True)
    try:
        storm.run(args.kills, args.seconds, args.minutes)
    finally:
        storm.netbed("down")
        shutil.rmtree(storm.folder, ignore_errors=True)
    sys.exit(storm.finish())


main()
