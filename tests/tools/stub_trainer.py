"""A trainer that trains nothing, for rows of tools/reproduce that are about cells, files and reports: it has the options of the
real one, and writes the files that reproduce reads of a run, with numbers made up of the settings.

reproduce_support.py appends the call of main() with the real one's path. LATHER_STUB_PACE: seconds of a step."""
import _signal  # signal imports enum and re, which take as long as all else
import os
import sys
import time
import zlib

RUN_OPTIONS = ("grad-accum", "device", "threads", "checkpoint-every", "progress", "log-every", "keep", "output", "resume",
               "limit-eval-batches", "max-steps")
NOT_WRITTEN = ("data-changed", "watch-wait", "overwrite", "plan", "allow-plugin")  # lines of --print-config that config.yaml lacks
INTERRUPTED = 3
DIVERGES = 1e3  # a learning rate
stopped = []


def divide(argv):
    """(arguments that are the plan's, {option of the run: value})"""
    plan, run, words = [], {}, iter(argv)
    for word in words:
        if word.startswith("--") and word[2:] in RUN_OPTIONS:
            run[word[2:]] = next(words)
        elif word == "--no-tensorboard":
            run["tensorboard"] = "false"
        elif word != "--print-config":
            plan.append(word)
    return plan, run


def resolve(plan, real, answers):
    """The configuration that the real trainer prints for these flags; answers is the folder that caches it. Exits with the trainer's status if it rejects them."""
    key = "\0".join(plan)
    path = os.path.join(answers, f"{zlib.crc32(key.encode()):08x}{zlib.crc32(key[::-1].encode()):08x}")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        import subprocess
    done = subprocess.run([real, *plan, "--print-config"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    write(path, done.stdout)
    return done.stdout


def write(path, text):
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{path}.{os.getpid()}", path)


def made_up(*of):
    """A number from 0 to 1 that is a hash of the arguments."""
    return zlib.crc32(repr(of).encode()) / 2**32


class Run:
    """One start in a folder."""

    def __init__(self, text, run):
        lines = [line.partition(": ") for line in text.splitlines()]
        lines = [line for line in lines if line[0].rstrip(":") not in NOT_WRITTEN]
        lines = [(key, mark, run.get(key, value) if mark else value) for key, mark, value in lines]
        lines.append(("output", ": ", run["output"]))
        self.text, self.folder = "".join("".join(line) + "\n" for line in lines), run["output"]
        self.config = config = {key: value.strip('"') for key, _, value in lines}
        self.lr, self.epochs = float(config["lr"]), int(float(config["epochs"]))
        self.accum, self.ranks = int(run.get("grad-accum", 1)), int(os.environ.get("OMPI_COMM_WORLD_SIZE", 1))
        self.together = int(config["batch-size"]) * self.accum * self.ranks
        count = int(config["data"].split(":")[1]) // self.together
        limit = int(config["limit-train-batches"]) // self.accum
        self.steps = min(max(1, count), limit) if limit else max(1, count)
        self.resumes = run.get("resume") == "auto"
        self.pace = float(os.environ.get("LATHER_STUB_PACE", 0))

    def path(self, name):
        return os.path.join(self.folder, name)

    def start(self):
        """(steps done, the file of metrics)"""
        done, size = 0, 0
        os.makedirs(self.path("checkpoints"), exist_ok=True)
        try:
            with open(self.path("checkpoints/state"), encoding="utf-8") as file:
                done, size = (int(word) for word in file.read().split())
        except FileNotFoundError:
            pass
        done, size = (done, size) if self.resumes else (0, 0)
        write(self.path("config.yaml"), self.text)
        write(self.path("env.json"), '{"version": "0.0", "cpu": "none", "cpu_threads": 1, "os": "none"}\n')
        file = open(self.path("metrics.jsonl"), "a", encoding="utf-8")
        file.truncate(size)
        return done, file

    def checkpoint(self, done, file):
        file.flush()
        write(self.path("checkpoints/state"), f"{done} {os.path.getsize(self.path('metrics.jsonl'))}")

    def loss(self, step):
        """The loss of a step; that of the first step depends only on the seed."""
        return 1.5 + 0.1 * made_up(self.config["seed"]) - (step - 1) * 0.01 * made_up(self.lr, self.config["optim"], step)

    def step(self, step):
        roots = ',"shampoo_factor_seconds":1e-4,"shampoo_root_seconds":2e-4,"shampoo_apply_seconds":1e-4,"shampoo_roots":' \
            + ("4" if int(self.config.get("precondition-frequency", 1)) > 1 else "10") if self.config["optim"] == "shampoo" else ""
        return (f'{{"event":"step","step":{step},"epoch":{(step - 1) // self.steps},"loss":{self.loss(step)},"lr":{self.lr},'
                f'"data_seconds":1e-5,"seconds":{1e-3 * (1 + made_up(step, self.lr))}{roots}}}\n')

    def epoch(self, step):
        epoch = step // self.steps - 1
        top1 = 25 + 50 * made_up(self.lr, self.config["optim"], self.config.get("momentum")) * (1 - 0.5 ** (epoch + 1))
        top1 += made_up(self.config["seed"], self.lr)
        print(f"epoch {epoch + 1}: train loss {self.loss(step):.4f} | val top-1 {top1:.2f} %", flush=True)
        return (f'{{"event":"epoch","epoch":{epoch},"step":{step},"train_loss":{self.loss(step)},"train_top1":{top1},'
                f'"val_loss":{2 - top1 / 100},"val_top1":{top1},"val_top5":100,"seconds":{1e-3 * self.steps},"eval_seconds":1e-3,'
                f'"optimizer_bytes":{4096 if self.config["optim"] == "sgd" else 8192}}}\n')

    def train(self, most):
        """The exit status."""
        done, file = self.start()
        print(f"{self.ranks} ranks, {self.together} images per update", flush=True)
        for step in range(done + 1, min(self.epochs * self.steps, most) + 1):
            time.sleep(self.pace)
            file.write(self.step(step))
            if self.lr > DIVERGES:
                print("train_resnet50: the gradient of conv1.weight is not finite", file=sys.stderr)
                return 1
            if step % self.steps == 0 or step == most:
                file.write(self.epoch(step))
                self.checkpoint(step, file)
            if stopped:
                self.checkpoint(step, file)
                return INTERRUPTED
        file.close()
        return 0


def main(real, answers):
    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGUSR1):
        _signal.signal(number, lambda *_: stopped.append(True))
    plan, run = divide(sys.argv[1:])
    text = resolve(plan, real, answers)
    if "--print-config" in sys.argv:
        print(text, end="")
        return 0
    if os.environ.get("OMPI_COMM_WORLD_RANK", "0") != "0":
        return 0  # the others have nothing to do
    return Run(text, run).train(int(run.get("max-steps", 1 << 30)))

