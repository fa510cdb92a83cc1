"""Shared code of the storms on training programs: the run, the files it leaves, and counting rows."""
import glob
import json
import os


def flags(steps, folder):
    """Flags of every run; it resumes from the newest checkpoint in the folder."""
    return ["--optim", "shampoo", "--max-steps", str(steps), "--epochs", "1000000", "--sched", "constant",
            "--lr", "0.01", "--eval-every", "0", "--limit-eval-batches", "1", "--threads", "1", "--workers", "1",
            "--deterministic", "--no-tensorboard", "--resume", "auto", "--output", folder]


def network(program):
    """Flags of a small network of the program."""
    if os.path.basename(program) == "train_vit":
        return ["--patch-size", "4", "--depth", "3", "--width", "16", "--heads", "2"]
    return ["--arch", "resnet18", "--width", "4"]


def complete_steps(folder):
    """Steps of the complete checkpoints by their names, in order. A folder with its final name is complete,
    or the program's guarantee is broken, which makes the resume fail."""
    names = [os.path.basename(path) for path in glob.glob(f"{glob.escape(folder)}/checkpoints/step-*")]
    return sorted(int(name[5:]) for name in names if name[5:].isdigit())


def records(folder):
    """Records of metrics.jsonl, in the order written; a last line that a kill cut is left out."""
    found = []
    try:
        with open(f"{folder}/metrics.jsonl", encoding="utf-8") as file:
            for line in file:
                try:
                    found.append(json.loads(line))
                except ValueError:
                    continue
    except OSError:
        pass
    return found


class Rows:
    """Counts what passed and failed."""

    def __init__(self):
        self.passed, self.failed = 0, 0

    def row(self, good, text):
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print(f"failed: {text}", flush=True)

    def finish(self):
        """Prints the last line; the exit status."""
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed or not self.passed else 0
