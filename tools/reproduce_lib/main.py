"""The command line of tools/reproduce."""
import argparse
import fnmatch
import glob
import json
import os
import shlex
import shutil
import signal
import sys

from . import budget, checks, drawing, plugins
from .cells import Cells, settings_of, trial_values
from .fingerprint import DataError, fingerprint, fingerprint_of_name, images
from .launch import LaunchError, Launcher, Pool
from .machines import machines_of
from .names import Names
from .plan import Plan, PlanError, number
from .store import Store, StoreError, read_json, write_whole

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXIT_DONE, EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 3

ABOUT = """\
Runs a plan of training runs and makes a report of them: does Shampoo reach the accuracy of the Nesterov recipe in fewer
epochs, at what cost per step, and which of its settings matter?

PLAN is a file, or one of: {plans}. Everything is kept in --out; the same command resumes an interrupted
plan. Plans with the same --out share the runs that they have in common."""


def say(text):
    print(text, flush=True)


def plan_folders():
    """Folders of plans: in the source tree, and installed."""
    return sorted(glob.glob(os.path.join(HERE, "..", "models", "*", "plans"))) + [os.path.join(HERE, "..", "..", "share", "lather", "plans")]


def shipped_plans():
    names = {f[:-4] for folder in plan_folders() if os.path.isdir(folder) for f in os.listdir(folder) if f.endswith(".ini")}
    return sorted(names)


def find_plan(name):
    for path in [name] + [os.path.join(folder, f"{name}.ini") for folder in plan_folders()]:
        if os.path.isfile(path):
            return os.path.normpath(path)
    raise PlanError(f"no plan '{name}': neither a file nor one of {', '.join(shipped_plans())}")


def find_program(given, name):
    """The plan's trainer: as given, in a build folder of the source tree, in the folder of an installed tool, or in PATH."""
    root = os.path.dirname(HERE)
    given = given or os.environ.get("LATHER_TRAIN")
    choices = [given] if given else (
        [path for b in ("build", "build-quickstart", "build-check/main") for path in glob.glob(os.path.join(root, b, "models", "*", name))]
        + [os.path.join(os.path.dirname(root), "bin", name), shutil.which(name) or ""])
    for path in choices:
        if path and os.access(path, os.X_OK) and os.path.isfile(path):
            return os.path.abspath(path)
    raise LaunchError(f"{given or name}: no such program; build it, or name it with --train")


def parse(argv):
    parser = argparse.ArgumentParser(prog="reproduce", description=ABOUT.format(plans=", ".join(shipped_plans())),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", metavar="PLAN")
    parser.add_argument("--data", metavar="DIR", help="data set; default: the plan's")
    parser.add_argument("--out", metavar="DIR", default=os.path.join("runs", "reproduce"), help="default: %(default)s")
    parser.add_argument("--from", metavar="DIR", dest="sources", action="append", default=[],
                        help="count the runs finished there, too (--out of an earlier part, or committed metrics)")
    parser.add_argument("--train", metavar="FILE", help="path of the trainer that the plan names; default: searched in build folders and PATH")
    parser.add_argument("--plugin", metavar="FILE.so", action="append", default=[],
                        help="load a plugin in every cell, instead of those that the plan names; may be repeated")
    parser.add_argument("--allow-plugin", action="store_true", help="load the plugins that the plan names: they are code")
    parser.add_argument("--list", action="store_true", help="list the cells and stop")
    parser.add_argument("--only", metavar="GLOB", help="run only cells with this name, or with a role such as 'final shampoo*'")
    parser.add_argument("--seeds", metavar="N", help="instead of the plan's")
    parser.add_argument("--dry-run", action="store_true", help="print budget and command lines, run nothing")
    parser.add_argument("--on", choices=("local", "mpirun", "slurm"), default="local",
                        help="machines that share --out and the data: by mpirun, or as steps of Slurm's allocation")
    parser.add_argument("--hosts", metavar="LIST", default="", help="a:8,b:8: machines and their slots, for --on mpirun; default: this one")
    parser.add_argument("--jobs", metavar="N", default="0", help="cells side by side; default: 1, with --on as many as there are slots for")
    parser.add_argument("--ranks", metavar="N", default="1", help="ranks of each cell (mpirun)")
    parser.add_argument("--mpirun", metavar="FILE", default="mpirun", help="program that starts N ranks by `-n N`, for example srun; default: %(default)s")
    parser.add_argument("--devices", metavar="LIST", default="", help="cuda:0,cuda:1,...: one for each job")
    parser.add_argument("--threads", metavar="N", default="0", help="compute threads of each cell; 0: all, divided by the jobs")
    parser.add_argument("--redraw", action="store_true", help="run nothing: only make the report of existing results")
    parser.add_argument("--no-clock", action="store_true", help="leave everything that was measured in seconds out of the report")
    parser.add_argument("--check", action="store_true",
                        help="compare with the stored bands; exit status 1 when a claim that held stops holding")
    parser.add_argument("--write-bands", action="store_true", help="store bands for --check from this report")
    return parser.parse_args(argv)


class Work:
    """One call: plan, data, store, cells."""

    def __init__(self, args):
        self.args, self.plan = args, Plan(find_plan(args.plan))
        self.seeds = number(args.seeds, "--seeds", 1, 1000, True) if args.seeds else self.plan.seeds
        self.store = Store(args.out, self.plan.metric, args.sources)
        self.data = args.data or self.plan.data
        self.plugins = plugins.settle(self.plan, args.plugin, args.allow_plugin or args.redraw, self.earlier_plugins() if args.redraw else None)
        self.given_up = set()
        self.data_print = self.identify_data()
        self.launcher = self.open_launcher()
        self.name = Names(self.store, self.data_print, self.earlier_names(), self.launcher and self.launcher.resolve)
        self.recorded = None

    def open_launcher(self):
        """The launcher; None if nothing is run, or for --list without a trainer. Errors: PlanError, LaunchError."""
        args = self.args
        jobs, ranks = number(args.jobs, "--jobs", 0, 1000, True), number(args.ranks, "--ranks", 1, 100000, True)
        threads, devices = number(args.threads, "--threads", 0, 4096, True), [d for d in args.devices.split(",") if d]
        if args.redraw:
            return None
        try:
            program = find_program(args.train, self.plan.program)
        except LaunchError:
            if args.list and not args.train:
                return None
            raise
        machines, scratch = machines_of(args.on, jobs, ranks, args.mpirun, args.hosts), None
        if args.on != "local":
            scratch = args.out
            os.makedirs(scratch, exist_ok=True)
        return Launcher(program, self.data, machines, ranks, devices, threads, self.plan.checkpoint_every, scratch)

    def record_path(self):
        return os.path.join(self.args.out, self.plan.name, "plan.json")

    def records(self):
        """(path, content) of the plan.json of this plan's earlier parts, the one in --out first."""
        paths = [self.record_path()] + [os.path.join(s, self.plan.name, "plan.json") for s in self.args.sources]
        return [(path, record) for path, record in ((p, read_json(p)) for p in paths) if record]

    def earlier_names(self):
        known = {}
        for _, record in reversed(self.records()):
            known.update(record.get("cells", {}))
        return known

    def earlier_plugins(self):
        return {text: hashes for _, record in reversed(self.records()) for text, hashes in record.get("plugins", {}).items()}

    def identify_data(self):
        """The data's fingerprint; it must be that of an earlier part of the plan. Errors: DataError."""
        earlier = [(path, record["data"]) for path, record in self.records()]
        if self.args.redraw:
            if not earlier:
                raise DataError(f"{self.record_path()}: nothing there to redraw")
            return earlier[0][1]
        if not self.data:
            raise DataError("the plan names no data: --data DIR is needed")
        settings = [self.plan.common] + [arm.fixed for arm in self.plan.arms.values()]
        here = fingerprint_of_name(self.data) if plugins.is_named_data(self.data, settings) else fingerprint(self.data)
        for path, there in earlier:
            if there != here:
                raise DataError(f"{self.data}: fingerprint {here}, but an earlier part of this plan used data with fingerprint "
                                f"{there} ({path})")
        return here

    def cells(self):
        return Cells(self.plan, self.name, self.seeds, self.store.score, lambda cell_id: cell_id in self.given_up)

    def is_chosen(self, cell):
        only = self.args.only
        return not only or any(fnmatch.fnmatch(text, only) for text in [cell.id] + cell.roles)

    def state(self, cell):
        found = self.store.metrics(cell.id)
        return found["status"] if found else "failed" if self.store.failure(cell.id) else "to do"

    def record(self):
        """Writes the facts that a redrawing without data and trainer needs."""
        record = {"plan": self.plan.name, "data": self.data_print, "seeds": self.seeds,
                  "cells": dict(sorted(self.cells().names.items())), **({"plugins": self.plugins} if self.plugins else {})}
        if record != self.recorded:
            write_whole(self.record_path(), json.dumps(record, indent=0) + "\n")
            self.recorded = record


def paces(work, launcher, todo):
    """arm -> seconds of a step and of an evaluated batch, for arms with something left to run."""
    found = {}
    names = {role.split()[1] for cell in todo for role in cell.roles if role.split()[0] != "sweep"}
    for name, arm in work.plan.arms.items():
        if name in names or (work.cells().best[name] is None and not work.args.only):
            settings = settings_of(work.plan, arm, work.plan.tune_at, 0, trial_values(arm, 0))
            try:
                found[name] = budget.calibrate_arm(launcher, settings)
            except LaunchError as error:
                say(f"  {name}: no calibration: {error}")
    return found


def print_budget(work, launcher, todo):
    cells = work.cells()
    later, later_epochs = (0, 0) if work.args.only else cells.pending
    epochs = sum(float(c.settings["epochs"]) for c in todo) + later_epochs
    done = sum(1 for c in cells.by_id.values() if work.store.metrics(c.id))
    say(f"plan {work.plan.name}: {work.plan.title}")
    say(f"data {work.data}, fingerprint {work.data_print}")
    say(f"{len(todo) + later} cells to run ({later} of them once tuning is through), {done} done, {epochs:g} epochs")
    sizes = images(work.data)
    if not sizes or not todo:
        return
    pace = paces(work, launcher, todo)
    if not pace:
        say("no estimate of the time")
        return
    mean = [sum(p[i] for p in pace.values()) / len(pace) for i in (0, 1)]
    seconds = sum(budget.cell_seconds(c.settings, pace.get(c.roles[0].split()[1], mean), launcher.ranks, *sizes)
                  for c in todo)
    if later:
        each = dict(todo[0].settings, epochs=str(later_epochs / later))
        seconds += later * budget.cell_seconds(each, mean, launcher.ranks, *sizes)
    for name, (step, _) in pace.items():
        say(f"  {name}: {1000 * step:.1f} ms a micro-batch")
    say(f"about {budget.hours_text(seconds / launcher.jobs)} by this calibration")


def list_cells(work):
    for cell in work.cells().by_id.values():
        if work.is_chosen(cell):
            score = work.store.score(cell.id)
            say(f"{cell.id}  {work.state(cell):8}  {'' if score is None else work.plan.metric.text(score):>6}  {'; '.join(cell.roles)}")
    count, epochs = work.cells().pending
    if count:
        say(f"and {count} cells, {epochs:g} epochs, after tuning")


def run_cells(work, launcher):
    pool = Pool(launcher, work.store, say)
    work.given_up = pool.tried
    try:
        while True:
            work.record()
            todo = [c for c in work.cells().by_id.values() if work.store.metrics(c.id) is None and c.id not in pool.tried
                    and c.id not in pool.ids() and work.is_chosen(c)]
            for cell in todo:
                if not pool.has_free_slot():
                    break
                pool.start(cell)
            if not pool.is_busy():
                break
            pool.wait()
    except KeyboardInterrupt:
        pool.stop()
        raise
    return len(pool.tried)


def run(work):
    args, launcher = work.args, work.launcher
    checks.check_all(work, launcher)
    todo = [c for c in work.cells().by_id.values() if work.store.metrics(c.id) is None and work.is_chosen(c)]
    if todo and not args.dry_run:
        checks.check_devices(work.plan, launcher)
    print_budget(work, launcher, todo)
    if args.dry_run:
        for cell in todo:
            say(shlex.join(launcher.command(cell, work.store.run_folder(cell.id))))
        return EXIT_DONE
    work.store.lock()
    return EXIT_ERROR if run_cells(work, launcher) else EXIT_DONE


def work_on(args):
    work = Work(args)
    if args.list:
        list_cells(work)
        return EXIT_DONE
    code = EXIT_DONE
    if args.redraw:
        work.given_up = {c.id for c in work.cells().by_id.values() if work.store.failure(c.id)}
    else:
        code = run(work)
        if args.dry_run:
            return code
    return max(code, drawing.draw(work))


def interrupt(_signal, _frame):
    raise KeyboardInterrupt


def main(argv):
    args = parse(argv)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        return work_on(args)
    except PlanError as error:
        print(f"reproduce: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (DataError, LaunchError, StoreError, OSError) as error:
        print(f"reproduce: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
