"""Runs of an entry's seeds, each a cell of tools/reproduce, which resumes after any interruption."""
import os
import shlex
import subprocess
import tempfile

from reproduce_lib import plugins
from reproduce_lib.cells import Cell
from reproduce_lib.compact import read_records, text_of
from reproduce_lib.fingerprint import DataError
from reproduce_lib.launch import LaunchError, Launcher, Pool, flags_of, message_of
from reproduce_lib.machines import machines_of
from reproduce_lib.main import HERE, find_program, say
from reproduce_lib.names import hash_of
from reproduce_lib.plan import OWN_FLAGS, PlanError
from reproduce_lib.store import Store, read_json, write_whole

from . import result
from .task import MAY_BE_SET, find_task

NOT_COMPARED = {*OWN_FLAGS, "allow-plugin", "comm-timeout", plugins.FILES} - {"seed", *MAY_BE_SET}
INCLUDES = (os.path.join(HERE, "..", "include"), os.path.join(HERE, "..", "..", "include"))  # source tree, installed


class RaceStore(Store):
    """OUT/cells and OUT/metrics, whose metrics are results."""
    summarize = staticmethod(result.summarize)


def build_plugin(entry, out):
    """The shared object of an entry's plugin; C is compiled into OUT/plugins. Errors: LaunchError."""
    if not entry.plugin or not entry.plugin.endswith(".c"):
        return entry.plugin
    path = os.path.join(out, "plugins", f"{entry.sha256[:16]}.so")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        line = [*shlex.split(os.environ.get("CC", "cc")), "-O2", "-ffp-contract=off", "-shared", "-fPIC", entry.plugin,
                *(f"-I{folder}" for folder in INCLUDES if os.path.isdir(folder)), "-o", f"{path}.{os.getpid()}"]
        done = subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise LaunchError(f"plugin {entry.plugin} does not compile: {message_of(done.stderr, done.returncode)}")
        os.replace(f"{path}.{os.getpid()}", path)
    return path


class Work:
    """An entry on a task, with the program and the data that are here. Errors: PlanError, LaunchError."""

    def __init__(self, args):
        self.args, self.task = args, find_task(args.task)
        self.entry = self.task.entry(args.entry)
        if self.entry.plugin:
            self.entry.check_plugin()
        if self.entry.plugin and not args.allow_plugin:
            raise PlanError(f"{self.entry.path}: plugin {self.entry.plugin} is code that this run would load: --allow-plugin permits it")
        self.results = args.results or os.path.join(args.out, "results")
        self.data = args.data or self.task.data
        program = find_program(args.train, self.task.program)
        self.plugin = build_plugin(self.entry, args.out)
        self.entry.check(program, self.plugin)
        self.launcher = Launcher(program, self.data, machines_of(args.on, args.jobs, 1, "mpirun", args.hosts), 1, [], args.threads, args.checkpoint_every, None)

    def cell(self, seed):
        """Its name is a hash of the resolved configuration, the task's data and the plugin."""
        settings = self.entry.all_settings(seed)
        if self.plugin:
            settings[plugins.FILES] = shlex.quote(self.plugin)
        try:
            config = self.launcher.resolve(settings)
        except LaunchError as error:
            raise PlanError(f"{self.entry.path}: {error}") from None
        identity = {key: value for key, value in config.items() if key not in NOT_COMPARED}
        name = hash_of(data=self.task.fingerprint, config=identity, plugin=self.entry.sha256)
        cell = Cell(name, settings, self.task.fingerprint)
        cell.roles.append(f"{self.task.name} {self.entry.name} seed {seed}")
        return cell

    def path(self, seed):
        return result.path_of(self.results, self.task.name, self.entry.name, seed)

    def check_data(self):
        """One step with the task's own flags, which records the data. Errors: DataError, LaunchError."""
        with tempfile.TemporaryDirectory(prefix="lather-race-") as folder:
            flags = flags_of({**self.task.fixed, "max-steps": "1", "eval-every": "-1"})
            done = subprocess.run([self.launcher.program, "--data", self.data, *flags, "--progress", "off", "--no-tensorboard", "--output", folder],
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
            if done.returncode:
                raise LaunchError(f"{self.task.path}: {message_of(done.stderr, done.returncode)}")
            data = next((r for r in read_records(os.path.join(folder, "metrics.jsonl")) if r.get("event") == "data"), {})
        lack = self.task.lacks(data.get("samples"), data.get("fingerprint"))
        if lack:
            raise DataError(f"{self.data}: {lack}")


def line_of(task, path):
    """A finished run in words."""
    found = result.Result(task, 0, read_json(path))
    reached = f"reached at step {found.steps}" if found.is_reached() else f"not reached in {found.curve[-1][0] if found.curve else 0} steps"
    return f"target {task.metric.text(task.target)} {task.metric.unit} {reached}, weights and state {found.last_hash[:12]}  {path}"


def run(args):
    """Runs the missing seeds; returns the exit status."""
    work = Work(args)
    store = RaceStore(args.out, work.task.metric)
    wanted = {seed: work.cell(seed) for seed in range(1, (args.seeds or work.task.seeds) + 1)}
    cells = {cell.id: seed for seed, cell in wanted.items()}
    done = {seed for seed, cell in wanted.items() if (read_json(work.path(seed)) or {}).get("id") == cell.id}
    todo = [cell for seed, cell in wanted.items() if seed not in done and store.metrics(cell.id) is None]
    say(f"task {work.task.name}, entry {work.entry.name}: {len(todo)} runs to do, {len(wanted) - len(todo)} done")
    if todo:
        work.check_data()
    store.lock()
    pool = Pool(work.launcher, store, say)
    try:
        while todo or pool.is_busy():
            while todo and pool.has_free_slot():
                pool.start(todo.pop(0))
            pool.wait()
    except KeyboardInterrupt:
        pool.stop()
        raise
    copy = os.path.join(work.results, work.task.name, f"{work.entry.name}.ini")
    if work.entry.name not in work.task.entries():  # for the board
        with open(work.entry.path, encoding="utf-8") as file:
            write_whole(copy, file.read())
    for cell_id, seed in cells.items():
        if seed not in done and store.metrics(cell_id):
            write_whole(work.path(seed), text_of(store.metrics(cell_id)))
        if os.path.exists(work.path(seed)):
            say(f"seed {seed}: {line_of(work.task, work.path(seed))}")
    return 1 if pool.tried else 0
