"""Processes: the command line of a cell, and a pool of slots that run cells side by side.

Each run ends with the tool: the kernel sends it SIGTERM when its parent is gone, upon which it writes a checkpoint. It also
holds the lock of its folder, so that a tool that is started again waits for it."""
import ctypes
import os
import re
import shlex
import signal
import subprocess
import sys
import time

from report_lib.records import settings_in

from . import plugins

PR_SET_PDEATHSIG = 1
# Settings in config.yaml that are not compared.
UNCOMPARED = ("eval-every", "eval-batch-size", "checkpoint-every")
REPEATED = ("opt-kwargs", "sched-kwargs")  # flags that are given once for each word
INTERRUPTED = 3  # the trainer's exit status after a checkpoint
DIVERGED = "is not finite"
OWN_LINE = re.compile(r"train_\w+: ")  # prefix of a trainer's messages
# Waiting threads sleep; Open MPI takes few cores for many ranks, and binds none of the cells side by side to the same core.
ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
               **os.environ}


class LaunchError(Exception):
    """A cell cannot be started as asked."""


def flags_of(settings):
    """Settings as the trainer's flags; true and false are of switches."""
    flags = []
    for key, value in settings.items():
        if key in ("global-batch", plugins.HASHES):
            continue
        if key == plugins.FILES:
            flags += plugins.flags_of(value)
            continue
        if key in REPEATED:
            flags += [word for each in value.split() for word in (f"--{key}", each)]
        elif value in ("true", "false"):
            flags.append(f"--{key}" if value == "true" else f"--no-{key}")
        else:
            flags += [f"--{key}", value]
    return flags


def accumulation(settings, ranks):
    """Micro-batches per update that make the global batch on that number of ranks. Errors: LaunchError."""
    if "global-batch" not in settings:
        if ranks > 1:
            raise LaunchError("--ranks: the plan names no global-batch, so ranks would change it")
        return 1
    whole, part = int(settings["global-batch"]), int(settings.get("batch-size", "32")) * ranks
    if whole % part:
        raise LaunchError(f"global-batch {whole} is no multiple of {ranks} ranks with {part // ranks} samples each")
    if int(settings.get("limit-eval-batches", "0")) % ranks:
        raise LaunchError(f"limit-eval-batches {settings['limit-eval-batches']} is no multiple of {ranks} ranks")
    return whole // part


def message_of(text, code):
    """The message of a failed run: the trainer's line, else the last line, or the first line of a box that mpirun draws."""
    lines = [line for line in text.split("\n") if line.strip()]
    own = [line for line in lines if OWN_LINE.match(line)]
    box = [line for line in lines if line.strip("-")] if lines and not lines[-1].strip("-") else []
    return (own + box + lines[-1:] + [f"exit status {code}"])[0]


def leaves(pid):
    """The processes at the ends of a tree: a run itself, or its ranks."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = [int(word) for word in file.read().split()]
    except OSError:
        children = []
    return [leaf for child in children for leaf in leaves(child)] or [pid]


def ask_to_stop(process, by_launcher):
    """Lets a run write a checkpoint. mpirun would give its ranks a second only, and srun none: they are told themselves, or, on
    other machines, by SIGUSR1, which both hand on."""
    if by_launcher:
        process.send_signal(signal.SIGUSR1)
        return
    for pid in leaves(process.pid):
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass


def end_with_parent():
    """Ties a run to the tool's life; called in the child before exec."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tool, which ends its runs itself
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # another kernel: the lock alone keeps order
    if os.getppid() == 1:
        os._exit(INTERRUPTED)


class Launcher:
    """How cells are run: program, data, ranks, devices, machines; scratch: a folder that all machines see, None: any."""

    def __init__(self, program, data, machines, ranks, devices, threads, checkpoint_every, scratch):
        self.program, self.data, self.machines, self.jobs, self.ranks = program, data, machines, machines.jobs, ranks
        self.devices, self.checkpoint_every, self.resolved, self.scratch = list(devices), checkpoint_every, {}, scratch
        self.threads = threads or (max(1, len(os.sched_getaffinity(0)) // (machines.most * ranks)) if machines.most > 1 else 0)

    def start_of_line(self, settings, slot=0):
        return self.machines.launcher(slot) + [self.program, "--data", self.data] + flags_of(settings)

    def command(self, cell, folder, slot=0):
        settings, many = cell.settings, accumulation(cell.settings, self.ranks)
        if "limit-train-batches" in settings and many > 1:  # a plan counts those of all ranks, the trainer a rank's
            settings = {**settings, "limit-train-batches": str(many * int(settings["limit-train-batches"]))}
        if "limit-eval-batches" in settings:
            settings = {**settings, "limit-eval-batches": str(int(settings["limit-eval-batches"]) // self.ranks)}
        line = self.start_of_line(settings, slot)
        if many > 1:
            line += ["--grad-accum", str(many)]
        if self.devices:
            line += ["--device", self.devices[slot % len(self.devices)]]
        if self.threads:
            line += ["--threads", str(self.threads)]
        if self.checkpoint_every:
            line += ["--checkpoint-every", str(self.checkpoint_every)]
        return line + ["--progress", "lines", "--log-every", "1000", "--no-tensorboard", "--keep", "1", "--output", folder,
                       "--resume", "auto"]

    def resolve(self, settings):
        """The configuration that the trainer resolves settings to: key -> value. Errors: LaunchError with its message."""
        key = tuple(sorted(settings.items()))
        if key not in self.resolved:
            self.resolved[key] = self.ask(settings)
        return self.resolved[key]

    def ask(self, settings):
        done = subprocess.run([self.program, "--data", self.data] + flags_of(settings) + ["--print-config"], capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise LaunchError(message_of(done.stderr, done.returncode))
        return settings_in(done.stdout.split("\n"))

    def start(self, cell, store, slot):
        """Errors: store's, LaunchError, OSError."""
        lock = store.lock_cell(cell.id)
        line = self.command(cell, store.run_folder(cell.id), slot)
        with lock, open(os.path.join(store.folder(cell.id), "log.txt"), "a", encoding="utf-8") as log:
            log.write("$ " + shlex.join(line) + "\n")
            log.flush()
            return subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, pass_fds=[lock.fileno()],
                                    preexec_fn=end_with_parent, env={**ENVIRONMENT, **self.machines.environment(slot)})


class Pool:
    """Runs cells in slots; report(text) gets a line for each event."""

    def __init__(self, launcher, store, report):
        self.launcher, self.store, self.report = launcher, store, report
        self.slots = [None] * launcher.jobs
        self.tried = set()  # failed in this call: not again before the next
        self.seconds = []  # seconds of finished cells

    def is_busy(self):
        return any(self.slots)

    def ids(self):
        return {entry[0].id for entry in self.slots if entry}

    def has_free_slot(self):
        return None in self.slots

    def start(self, cell):
        slot = self.slots.index(None)
        try:
            self.slots[slot] = (cell, self.launcher.start(cell, self.store, slot), time.monotonic())
        except OSError as error:
            raise LaunchError(f"{error.filename or self.launcher.program}: {error.strerror}") from None

    def wait(self):
        """Waits until at least one run has ended."""
        while True:
            ended = [i for i, entry in enumerate(self.slots) if entry and entry[1].poll() is not None]
            for i in ended:
                (cell, process, begin), self.slots[i] = self.slots[i], None
                self.take(cell, process.returncode, time.monotonic() - begin)
            if ended or not self.is_busy():
                return
            time.sleep(0.05)

    def take(self, cell, code, seconds):
        log = self.store.log_end(cell.id)
        if code == 0 or (code == 1 and any(DIVERGED in line for line in log)):
            self.store.finish(cell, "done" if code == 0 else "diverged")
            self.seconds.append(seconds)
            metric = self.store.metric
            self.report(f"{cell.id}  {metric.text(self.store.score(cell.id)):>6} {metric.unit}  {seconds:6.1f} s  {cell.roles[0]}"
                        + ("" if code == 0 else "  diverged"))
            return
        self.tried.add(cell.id)
        if code != INTERRUPTED:
            self.store.fail(cell, code)
            self.report(f"{cell.id}  FAILED with exit status {code}  {cell.roles[0]}: "
                        + message_of("\n".join(log), code))

    def stop(self):
        """Lets the runs write a checkpoint and waits for them."""
        for entry in self.slots:
            if entry and entry[1].poll() is None:
                ask_to_stop(entry[1], self.launcher.machines.stop_by_launcher)
        for entry in self.slots:
            if entry:
                entry[1].wait()
        print("interrupted: the same command resumes", file=sys.stderr)
