"""Cost of a plan, printed before it starts: cells, epochs, and hours estimated from a few steps of each arm."""
import json
import os
import statistics
import subprocess
import tempfile

from .launch import ENVIRONMENT, LaunchError, message_of

STEPS, WARM, EVALUATIONS = 16, 4, 4


def calibrate_arm(launcher, settings):
    """(seconds a step, seconds an evaluated batch) from a run of a few steps. Errors: LaunchError."""
    settings = dict(settings, epochs="1")
    settings.pop("warmup-epochs", None)
    settings["limit-train-batches"] = str(STEPS)
    with tempfile.TemporaryDirectory(prefix="calibrate-", dir=launcher.scratch) as folder:
        line = launcher.start_of_line(settings) + [
            "--limit-eval-batches", str(EVALUATIONS), "--progress", "off", "--no-tensorboard", "--output", folder]
        line += ["--device", launcher.devices[0]] if launcher.devices else []
        line += ["--threads", str(launcher.threads)] if launcher.threads else []
        done = subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
                              env=ENVIRONMENT)
        if done.returncode:
            raise LaunchError(message_of(done.stderr, done.returncode))
        with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
    steps = [r["seconds"] for r in records if r["event"] == "step"]
    ends = [r["eval_seconds"] for r in records if r["event"] == "epoch"]
    return statistics.fmean(steps[WARM:] or steps), ends[-1] / EVALUATIONS


def steps_of_epoch(settings, images):
    """Updates in an epoch; images: in the training set."""
    batch = int(settings.get("global-batch", settings.get("batch-size", "32")))
    whole = max(1, images // batch)
    limit = int(settings.get("limit-train-batches", "0"))
    return min(whole, limit) if limit else whole


def cell_seconds(settings, pace, ranks, images, held_back):
    """Estimated seconds of one run: its steps, and an evaluation per epoch. pace: (step, evaluated batch) of all ranks together."""
    epochs, together = float(settings["epochs"]), ranks * int(settings.get("batch-size", "32"))
    batches = max(1, held_back // together)
    limit = int(settings.get("limit-eval-batches", "0"))
    every = float(settings.get("eval-every", "1")) or epochs
    micro = int(settings.get("global-batch", "0")) // together or 1
    return (epochs * steps_of_epoch(settings, images) * pace[0] * micro
            + epochs / every * min(batches, limit or batches) * pace[1] + 1.0)


def hours_text(seconds):
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
