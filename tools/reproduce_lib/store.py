"""The folder of results: OUT/metrics/ID.json of finished cells, OUT/failed/ID.json of failed ones, OUT/cells/ID/ of those at work.

A cell is done when cells/ID/DONE names the hash of its metrics; or when only the metrics are there, as in a folder that was
committed or copied from another machine. Files appear whole or not at all."""
import contextlib
import fcntl
import glob
import hashlib
import json
import os
import shutil
import stat
import time

from . import compact

LOG_LINES = 12


def sha256_of(path):
    """The SHA-256 of a file. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class StoreError(Exception):
    """The folder cannot be used."""


def open_lock(folder):
    """A file that is only locked; a link at its name is an error."""
    return os.fdopen(os.open(os.path.join(folder, ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "w", encoding="utf-8")


def write_whole(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.tmp-{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.remove(temporary)
    with open(temporary, "x", encoding="utf-8") as file:  # not through a link that another user made
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


# Files of write_whole() below the folder of results; * is a cell's id, a plan's name or a figure's.
WRITTEN = ("metrics/*.json", "failed/*.json", "cells/*/DONE", "*/plan.json", "*/bands.json", "*/report.html", "*/drawn.json",
           "*/figures/*.svg", "*/figures/*.csv", "*/tables/*.csv", "*/tables/*.md")


def is_own_file(path):
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid()


def remove_unfinished(out):
    """Removes temporary files that killed tools left of write_whole(), by their places, owner and type."""
    for pattern in WRITTEN:
        for path in glob.glob(f"{glob.escape(out)}/{pattern}.tmp-*"):
            pid = path.rpartition(".tmp-")[2]
            if pid.isdigit() and not is_running(int(pid)) and is_own_file(path):
                remove(path)


def remove(path):
    try:
        os.unlink(path)
    except OSError:
        pass


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def without_remarks(lines):
    """The lines without the boxes that Open MPI's mpirun draws with dashes when a rank has failed."""
    rules = [i for i, line in enumerate(lines) if len(line) > 40 and not line.strip("-")]
    inside = {i for first, last in zip(rules[::2], rules[1::2]) for i in range(first, last + 1)}
    return [line for i, line in enumerate(lines) if i not in inside] or lines


class Store:
    """Results of cells. metric: by which runs are compared. sources: further folders whose metrics count as finished."""

    def __init__(self, out, metric, sources=()):
        self.out, self.metric, self.sources, self.cache = out, metric, list(sources), {}

    summarize = staticmethod(compact.compact)  # (cell, run folder, status) -> metrics

    def folder(self, cell_id):
        return os.path.join(self.out, "cells", cell_id)

    def run_folder(self, cell_id):
        return os.path.join(self.folder(cell_id), "run")

    def lock(self):
        """One tool at a time. Errors: StoreError. The lock ends with the process."""
        os.makedirs(self.out, exist_ok=True)
        self.locked = open_lock(self.out)
        try:
            fcntl.flock(self.locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreError(f"{self.out}: another reproduce works there") from None
        remove_unfinished(self.out)

    def lock_cell(self, cell_id, seconds=120):
        """A file locked as long as some process has it open: the run inherits it, so that a run that outlives a killed tool
        keeps others out. Waits for such a run to end. Errors: StoreError."""
        os.makedirs(self.folder(cell_id), exist_ok=True)
        file = open_lock(self.folder(cell_id))
        end = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file
            except OSError:
                if time.monotonic() > end:
                    file.close()
                    raise StoreError(f"{self.folder(cell_id)}: a run is still at work there") from None
                time.sleep(0.1)

    def metrics(self, cell_id):
        """The metrics of a finished cell, or None."""
        if cell_id not in self.cache:
            found = self.read_own(cell_id)
            for source in self.sources:
                found = found or read_json(os.path.join(source, "metrics", f"{cell_id}.json"))
            if found is None:
                return None
            self.cache[cell_id] = found
        return self.cache[cell_id]

    def all_metrics(self):
        """(name, metrics) of every finished cell there is, own ones first."""
        seen = set()
        for folder in [self.out] + self.sources:
            try:
                names = sorted(f[:-5] for f in os.listdir(os.path.join(folder, "metrics")) if f.endswith(".json"))
            except OSError:
                continue
            for name in names:
                found = None if name in seen else self.metrics(name)
                seen.add(name)
                if found:
                    yield name, found

    def read_own(self, cell_id):
        path = os.path.join(self.out, "metrics", f"{cell_id}.json")
        found = read_json(path)
        if found is None or not os.path.isdir(self.folder(cell_id)):
            return found
        done = read_json(os.path.join(self.folder(cell_id), "DONE"))
        return found if done and done.get("metrics") == sha256_of(path) else None

    def finish(self, cell, status):
        """Metrics, then DONE, then the checkpoints may go."""
        text = compact.text_of(self.summarize(cell, self.run_folder(cell.id), status))
        write_whole(os.path.join(self.out, "metrics", f"{cell.id}.json"), text)
        mark = {"metrics": hashlib.sha256(text.encode()).hexdigest(), "status": status}
        write_whole(os.path.join(self.folder(cell.id), "DONE"), json.dumps(mark) + "\n")
        remove(os.path.join(self.out, "failed", f"{cell.id}.json"))
        shutil.rmtree(os.path.join(self.run_folder(cell.id), "checkpoints"), ignore_errors=True)
        remove(os.path.join(self.run_folder(cell.id), "model.safetensors"))

    def fail(self, cell, code):
        """Leaves the reason, for the report and for the next start, which tries again."""
        failure = {"id": cell.id, "code": code, "settings": cell.settings, "log": self.log_end(cell.id)}
        write_whole(os.path.join(self.out, "failed", f"{cell.id}.json"), json.dumps(failure, indent=1) + "\n")

    def failure(self, cell_id):
        found = [read_json(os.path.join(folder, "failed", f"{cell_id}.json")) for folder in [self.out] + self.sources]
        return next((f for f in found if f), None)

    def log_end(self, cell_id):
        """The last lines of the last start; mpirun's own remarks after a failure are no use here."""
        try:
            with open(os.path.join(self.folder(cell_id), "log.txt"), encoding="utf-8", errors="replace") as file:
                text = file.read().replace("\r", "\n")
        except OSError:
            return []
        last = text.rpartition("\n$ ")[2] if "\n$ " in text else text
        lines = [line.rstrip() for line in last.split("\n")[1:] if line.strip()]
        return without_remarks(lines)[-LOG_LINES:]

    def score(self, cell_id):
        """The final score of a finished cell, or None; a run that diverged gets the metric's worst."""
        found = self.metrics(cell_id)
        if found is None:
            return None
        if found["status"] == "diverged" or not found["epochs"]:
            return self.metric.worst
        return self.metric.score(found["epochs"][-1][found["epoch_keys"].index(self.metric.key)])
