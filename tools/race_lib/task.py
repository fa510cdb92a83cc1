"""Tasks and entries: INI files, TASK.ini and TASK/ENTRY.ini. docs/guides/race.md describes them."""
import glob
import os
import re
import subprocess

from reproduce_lib import plugins
from reproduce_lib.launch import LaunchError, message_of
from reproduce_lib.main import HERE
from reproduce_lib.metric import METRICS
from reproduce_lib.plan import PlanError, check_flags, check_keys, nearest, number, read, take
from reproduce_lib.store import sha256_of

TASK_KEYS = ("title", "about", "program", "data", "samples", "fingerprint", "metric", "target", "max-steps", "core-minutes", "seeds")
ENTRY_KEYS = ("title", "author", "tuning-runs", "plugin", "sha256")
MAY_BE_SET = ("epochs", "max-steps", "grad-accum")  # the flags of OWN_FLAGS that a task fixes or leaves free
SECTION = re.compile(r"^([A-Z][a-z]+)(?:, by .*)?:$")
FINGERPRINT = re.compile(r"^[0-9a-f]{16}$")
OPTION = re.compile(r"^  (?:-., )?--(?:\[no-\])?([a-z0-9-]+)")


def folders():
    """Folders of tasks: in the source tree, and installed."""
    return sorted(glob.glob(os.path.join(HERE, "..", "models", "*", "tasks"))) + [os.path.join(HERE, "..", "..", "share", "lather", "tasks")]


def shipped():
    """Names of the tasks that come with the library."""
    return sorted({os.path.basename(path)[:-4] for folder in folders() for path in glob.glob(os.path.join(folder, "*.ini"))})


def find_task(name):
    for path in [name] + [os.path.join(folder, f"{name}.ini") for folder in folders()]:
        if path.endswith(".ini") and os.path.isfile(path):
            return Task(os.path.normpath(path))
    raise PlanError(f"no task '{name}': neither a file nor one of {', '.join(shipped())}{nearest(name, shipped())}")


def check_sections(parser, path, known):
    for section in parser.sections():
        if section not in known:
            raise PlanError(f"{path}: [{section}]: not one of {', '.join(f'[{name}]' for name in known)}")


def check_settings(flags, where):
    check_flags(flags, where, MAY_BE_SET, "by the tool or the task, not here")


class Task:
    """title, program, data, samples and fingerprint of the data (as the runs record them), metric, target (a score), max_steps,
    core_minutes, seeds, fixed (flag -> text), free (flags) and free_sections (of the program's --help)."""

    def __init__(self, path):
        self.path, self.name = path, os.path.basename(path)[:-4]
        parser, where = read(path), f"{path}: [task]"
        check_sections(parser, path, ("task", "fixed", "free"))
        head, free = (dict(parser[name]) if name in parser else {} for name in ("task", "free"))
        check_keys(head, TASK_KEYS, where)
        self.title, self.about = head.get("title", self.name), head.get("about", "")
        self.program, self.data = head.get("program", "train_resnet50"), take(head, "data", where)
        self.samples = number(take(head, "samples", where), f"{where}: samples", 1, 1e15, True)
        self.fingerprint = take(head, "fingerprint", where)
        if not FINGERPRINT.match(self.fingerprint):
            raise PlanError(f"{where}: fingerprint: got '{self.fingerprint}', want 16 hexadecimal digits, as in metrics.jsonl of a run")
        metric = take(head, "metric", where)
        if metric not in METRICS:
            raise PlanError(f"{where}: metric: got '{metric}', want one of {', '.join(METRICS)}")
        self.metric = METRICS[metric]
        self.target = self.metric.score(number(take(head, "target", where), f"{where}: target", 0, 100))
        self.max_steps = number(take(head, "max-steps", where), f"{where}: max-steps", 1, 1e12, True)
        self.core_minutes = number(take(head, "core-minutes", where), f"{where}: core-minutes", 1e-3, 1e6)
        self.seeds = number(head.get("seeds", "5"), f"{where}: seeds", 1, 1000, True)
        self.fixed = {**(dict(parser["fixed"]) if "fixed" in parser else {}), "reproducible": "true"}
        check_settings(self.fixed, f"{path}: [fixed]")
        check_keys(free, ("sections", "flags"), f"{path}: [free]")
        self.free, self.free_sections = free.get("flags", "").split(), free.get("sections", "").split()
        self.sections = {}  # plugin -> section -> its flags

    def entries(self):
        """Names of the entries next to the task's file."""
        return sorted(os.path.basename(path)[:-4] for path in glob.glob(os.path.join(glob.escape(self.path[:-4]), "*.ini")))

    def entry(self, name):
        for path in (name, os.path.join(self.path[:-4], f"{name}.ini")):
            if path.endswith(".ini") and os.path.isfile(path):
                return Entry(self, os.path.normpath(path))
        raise PlanError(f"no entry '{name}' of task {self.name}: neither a file nor one of {', '.join(self.entries()) or 'none'}"
                        f"{nearest(name, self.entries())}")

    def is_free(self, flag, program, plugin):
        """Returns whether an entry may set the flag; sections of --help are read when a flag is not named. Errors: PlanError, LaunchError."""
        if flag in self.fixed:
            return False
        if flag in self.free:
            return True
        if plugin not in self.sections:
            self.sections[plugin] = sections_of(program, plugin)
        for section in self.free_sections:
            if section not in self.sections[plugin]:
                raise PlanError(f"{self.path}: [free]: sections: '{section}' is no section of `{self.program} --help`"
                                f"{nearest(section, self.sections[plugin])}")
        return any(flag in self.sections[plugin][section] for section in self.free_sections)

    def lacks(self, samples, fingerprint):
        """An error's text if the data differ from the task's, else None."""
        if (samples, fingerprint) == (self.samples, self.fingerprint):
            return None
        return (f"the data have {samples} samples, fingerprint {fingerprint}; those of task {self.name} have {self.samples} samples, "
                f"fingerprint {self.fingerprint} ({self.path})")


def sections_of(program, plugin):
    """Section of the program's --help -> its flags. Errors: LaunchError."""
    done = subprocess.run([program, *(["--plugin", plugin] if plugin else []), "--help", "all"], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise LaunchError(message_of(done.stderr, done.returncode))
    found, flags = {}, set()
    for line in done.stdout.splitlines():
        if SECTION.match(line):
            flags = found.setdefault(SECTION.match(line).group(1), set())
        elif OPTION.match(line):
            flags.add(OPTION.match(line).group(1))
    return found


class Entry:
    """title, author, tuning_runs, settings (flag -> text), plugin (path or None) and its SHA-256."""

    def __init__(self, task, path):
        self.task, self.path, self.name = task, path, os.path.basename(path)[:-4]
        parser, where = read(path), f"{path}: [entry]"
        check_sections(parser, path, ("entry", "settings"))
        head = dict(parser["entry"]) if "entry" in parser else {}
        check_keys(head, ENTRY_KEYS, where)
        self.title, self.author = head.get("title", self.name), head.get("author", "")
        self.tuning_runs = number(take(head, "tuning-runs", where), f"{where}: tuning-runs", 0, 1e6, True)
        self.settings = dict(parser["settings"]) if "settings" in parser else {}
        check_settings(self.settings, f"{path}: [settings]")
        self.plugin, self.sha256 = head.get("plugin"), head.get("sha256")
        if self.plugin:
            self.plugin = os.path.join(os.path.dirname(path), self.plugin)

    def check_plugin(self):
        """Errors: PlanError if the file is missing or not the one that was entered."""
        where = f"{self.path}: [entry]"
        try:
            found = sha256_of(self.plugin)
        except OSError as error:
            raise PlanError(f"{where}: plugin {self.plugin}: {error.strerror}") from None
        if found != self.sha256:
            raise PlanError(f"{where}: plugin {self.plugin} has SHA-256 {found}, the entry says sha256 = {self.sha256 or '(missing)'}")

    def check(self, program, plugin):
        """Settings that the task does not leave free. plugin: shared object or None. Errors: PlanError, LaunchError."""
        if plugin and "plugin" not in self.task.free:
            raise PlanError(f"{self.path}: plugin: task {self.task.name} takes no plugin")
        for flag, value in self.settings.items():
            if not self.task.is_free(flag, program, plugin):
                fixed = self.task.fixed.get(flag)
                raise PlanError(f"{self.path}: [settings]: {flag} = {value} is not free in task {self.task.name}"
                                + (f", which fixes {flag} = {fixed}" if fixed is not None else f"; see [free] of {self.task.path}"))
        steps = self.settings.get("max-steps", "0")
        if number(steps, f"{self.path}: max-steps", 0, 1e12, True) > self.task.max_steps:
            raise PlanError(f"{self.path}: max-steps = {steps} is more than the budget of task {self.task.name}, {self.task.max_steps}")

    def all_settings(self, seed):
        """Returns the flags of a run, its seed, and the SHA-256 of the plugin."""
        return {"max-steps": str(self.task.max_steps), **self.task.fixed, **self.settings, "seed": str(seed),
                **({plugins.HASHES: self.sha256} if self.plugin else {})}
