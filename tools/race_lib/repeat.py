"""Verification of a result: runs its seed again by the present files of task and entry, and compares hashes up to the first
that differs."""
import argparse
import json
import os
import shutil
import tempfile

from reproduce_lib.main import say
from reproduce_lib.plan import PlanError
from reproduce_lib.store import read_json, write_whole
from reproduce_lib.verify import Repetition
from report_lib.records import read_settings
from report_lib.text import shown

from . import result
from .work import NOT_COMPARED, Work

NEEDED = """with --reproducible equal bits need the same version, settings, data and plugin, and for images the same version of
libjpeg-turbo; processor, compiler, threads and ranks do not matter (docs/guides/reproducible.md)"""


def write_run(folder, content, cells, program):
    """Writes a result as the run folder that it is of, as far as `lather verify` reads one; hashes of tensors if the run's folder
    is still there."""
    events = [{"event": "data", "step": 0, **content["data"]}]
    events += [{"event": "hash", "step": step, "sha256": value} for step, value in content["hashes"]]
    events += [{"event": "epoch", **{k: v for k, v in zip(content["epoch_keys"], row) if v is not None}} for row in content["epochs"]]
    os.makedirs(folder)
    for name, text in (("metrics.jsonl", "".join(json.dumps(e) + "\n" for e in events)),
                       ("config.yaml", "".join(f"{k}: {v}\n" for k, v in content["config"].items())), ("hashes.jsonl", ""),
                       ("env.json", json.dumps({**content["env"], "arguments": [program]}))):
        write_whole(os.path.join(folder, name), text)
    tensors = os.path.join(cells, content["id"], "run", "hashes.jsonl")
    if os.path.isfile(tensors):
        shutil.copyfile(tensors, os.path.join(folder, "hashes.jsonl"))


class RaceRepetition(Repetition):
    """The repetition of a result that write_run() has written to args.run."""

    def __init__(self, args, work, content):
        super().__init__(args)
        self.work, self.content = work, content

    def command(self, folder):
        return self.work.launcher.command(self.work.cell(self.work.args.seed), folder)

    def report(self, found, folder):
        is_different = super().report(found, folder)
        if found:
            at = self.content["epoch_keys"].index("step")
            epoch = next((i for i, row in enumerate(self.content["epochs"]) if row[at] >= found[0]), 0)
            print(f"epoch {epoch + 1} of {len(self.content['epochs'])} is the first that differs" if found[0] else "the initial values differ")
        others = self.recorded(folder)
        for key, was, now in others:
            print(shown(f"{key}: {was} in the result, {now} in the repetition"))
        if is_different:
            print(NEEDED if others else "none of the recorded settings, versions and properties of the machine differ: report this as a fault")
        return is_different

    def recorded(self, folder):
        """(key, recorded value, value of the repetition) where settings, plugin, build or machine differ."""
        seed = self.work.args.seed
        settings = [{k: v for k, v in found.items() if k not in NOT_COMPARED} for found in (self.content["config"], read_settings(folder))]
        env = read_json(os.path.join(folder, "env.json")) or {}
        plugin = [{k: v for k, v in found.items() if k == "plugin-sha256"} for found in (self.content["settings"], self.work.entry.all_settings(seed))]
        return (result.differing(*settings) + result.differing(*plugin)
                + result.differing(self.content["env"], {k: env[k] for k in result.ENV if k in env}))


def verify(args):
    """Returns the exit status: 0 if all hashes and metrics are equal."""
    work = Work(args)
    path = work.path(args.seed)
    content = read_json(path)
    if not content or not content.get("hashes"):
        raise PlanError(f"{path}: no result of seed {args.seed}: `lather race run` writes it")
    with tempfile.TemporaryDirectory(prefix="lather-race-") as top:
        recorded, repeated = os.path.join(top, "recorded"), os.path.join(top, "run")
        write_run(recorded, content, os.path.join(args.out, "cells"), work.launcher.program)
        of = argparse.Namespace(run=recorded, from_step=None, steps=None, data=work.data)
        code = RaceRepetition(of, work, content).compare(repeated)
        env = read_json(os.path.join(repeated, "env.json")) or {}
    if code == 0 and content["status"] != "done":
        say(f"the run {content['status']} after step {content['hashes'][-1][0]}: equal up to there, which verifies no result")
    elif code == 0:
        record = {"sha256": content["hashes"][-1][1], "env": {k: env[k] for k in result.ENV if k in env}}
        write_whole(result.path_of(work.results, work.task.name, work.entry.name, args.seed, "verified"), json.dumps(record, indent=0) + "\n")
        say(f"verified: {path}")
    return code
