"""The command line of tools/race."""
import argparse
import signal
import sys

from reproduce_lib.fingerprint import DataError
from reproduce_lib.launch import LaunchError
from reproduce_lib.main import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_USAGE, interrupt
from reproduce_lib.plan import PlanError
from reproduce_lib.store import StoreError
from reproduce_lib.verify import VerifyError

from . import board, repeat, work
from .task import shipped

ABOUT = """\
A race of optimizers on fixed tasks, verified bit for bit. TASK is a file, or one of: {tasks}.
ENTRY is a file, or the name of one in the task's folder."""


def at_least_one(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def parse(argv):
    parser = argparse.ArgumentParser(prog="lather race", description=ABOUT.format(tasks=", ".join(shipped())),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    parts = {name: commands.add_parser(name, help=text, description=text) for name, text in (
        ("run", "run an entry for each seed, and write a result of each run"),
        ("verify", "run a seed again, and compare the hashes of weights and optimizer state with those of its result"),
        ("board", "draw the page of results: ranks, intervals, tests, curves, settings, hashes"))}
    for name, part in parts.items():
        part.add_argument("task", metavar="TASK", nargs="?" if name == "board" else None)
        if name != "board":
            part.add_argument("entry", metavar="ENTRY")
        part.add_argument("--out", metavar="DIR", default="runs/race", help="folder of the runs; default: %(default)s")
        part.add_argument("--results", metavar="DIR", help="folder of the results; default: OUT/results")
    for part in (parts["run"], parts["verify"]):
        part.add_argument("--data", metavar="DIR", help="data set, if it is in another place than the task names")
        part.add_argument("--train", metavar="FILE", help="path of the program that the task names; default: searched in build folders and PATH")
        part.add_argument("--threads", metavar="N", type=int, default=0, help="compute threads of each run; default: all, divided by the jobs")
        part.add_argument("--allow-plugin", action="store_true", help="load the entry's plugin: it is code")
    parts["run"].add_argument("--seeds", metavar="K", type=at_least_one, help="seeds 1 to K; default: the task's")
    parts["run"].add_argument("--jobs", metavar="N", type=at_least_one, default=0, help="runs side by side; default: 1, with --on as many as there are slots for")
    parts["run"].add_argument("--on", choices=("local", "mpirun", "slurm"), default="local", help="machines that share --out and the data, as of `lather reproduce`")
    parts["run"].add_argument("--hosts", metavar="LIST", default="", help="a:8,b:8: machines and their slots, for --on mpirun")
    parts["run"].add_argument("--checkpoint-every", metavar="N", type=int, default=0,
                              help="steps between checkpoints, in addition to those at the ends of epochs")
    parts["verify"].add_argument("--seed", metavar="K", type=at_least_one, default=1, help="default: %(default)s")
    parts["verify"].set_defaults(jobs=1, checkpoint_every=0, on="local", hosts="")
    parts["board"].add_argument("--page", metavar="FILE", help="Markdown page whose sections of tasks are replaced; default: RESULTS.md")
    parts["board"].add_argument("--check", action="store_true", help="write nothing; exit status 1 if the page or curves would change")
    return parser.parse_args(argv)


COMMANDS = {"run": work.run, "verify": repeat.verify, "board": board.board}


def main(argv):
    args = parse(argv)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        return COMMANDS[args.command](args)
    except PlanError as error:
        print(f"race: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (DataError, LaunchError, StoreError, VerifyError, OSError) as error:
        print(f"race: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
