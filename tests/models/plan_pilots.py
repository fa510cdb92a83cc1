"""plan --pilots: short runs that plan makes, of which what they measured is known beside what the profile says.

    plan_pilots.py TRAIN_MLP MPIRUN|none [ROW]
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from plan import MPIRUN, plan, profile, refuses, write  # noqa: E402
from rows import Skip, run_rows  # noqa: E402

ONE = ["--goal", "loss=1", "--ranks", "1", "--pilots", "auto"]


def mean_step(folder):
    """Seconds behind the first two steps."""
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        seconds = [r["seconds"] for r in map(json.loads, f) if r["event"] == "step"]
    assert len(seconds) > 10, seconds
    return sum(seconds[2:]) / len(seconds[2:])


def a_pilot_measures_what_was_predicted(cwd):
    """A step of 27 ms by the profile is one of some 0.1 ms in truth."""
    write(cwd, profile())
    found = plan(cwd, *ONE, "--epochs", "10000", "--pilot-dir", "kept", "--pilot-budget", "50%")
    best, made = found["candidates"][0], found["pilots"]["made"]
    truth = mean_step(os.path.join(cwd, "kept", "pilot-1"))
    assert best["step_seconds"]["rests_on"] == "measured" and abs(best["step_seconds"]["value"] / truth - 1) < 1e-6, (best, truth)
    assert len(made) == 1 and made[0]["failed"] is None and abs(made[0]["predicted_seconds"] - 0.027) < 1e-9, made
    assert made[0]["rank_seconds"] > 10 * truth and found["pilots"]["rank_seconds"] == made[0]["rank_seconds"]
    assert abs(best["seconds"] / (truth * 1e6) - 1) < 1e-6 and "as the flags say" in best["steps"]["why"], best
    assert "leads" in found["pilots"]["no_more"] and found["runs"][0]["pilot"] and not found["runs"][0]["points"]
    assert "--pilot" not in best["command"], best["command"]
    text = plan(cwd, *ONE, "--epochs", "10000", json_out=False)
    assert "pilots: 1, " in text and "predicted 27 ms" in text, text
    again = plan(cwd, "--goal", "loss=1", "--ranks", "1", "--from", "kept/pilot-1")
    assert again["candidates"][0]["step_seconds"]["rests_on"] == "measured"


def the_budget_is_kept(cwd):
    """A run of 2.7 s: 5 % of it are less than a pilot takes."""
    write(cwd, profile())
    found = plan(cwd, *ONE, "--epochs", "1", "--pilot-dir", "kept")
    assert not found["pilots"]["made"] and os.listdir(os.path.join(cwd, "kept")) == [], found["pilots"]
    assert "the budget: one of 1 ranks, sgd, flat" in found["pilots"]["no_more"] and "0.135 are left" in found["pilots"]["no_more"]
    assert found["candidates"][0]["step_seconds"]["rests_on"] == "model"


def one_that_overruns_is_ended_and_not_used(cwd):
    """A step of a thousand micro-batches of a microsecond each by the profile."""
    write(cwd, profile(fixed=1e-6, per_sample=1e-12, optimizers=[{**profile()["optimizers"][0], "update": 1e-9}]))
    found = plan(cwd, *ONE, "--max-steps", "3000", "--grad-accum", "1000", "--data", "synthetic:160000:16:3", "--pilot-budget", "45", "--pilot-dir", "kept")
    (made,) = found["pilots"]["made"]
    assert "ended behind" in made["failed"] and made["step_seconds"] is None and made["rank_seconds"] > 1.3, made
    assert not found["runs"] and found["candidates"][0]["step_seconds"]["rests_on"] == "model", found["candidates"]


def one_that_fails_is_named_and_not_used(cwd):
    write(cwd, profile())
    found = plan(cwd, *ONE, "--epochs", "1000", "--pilot-dir", "kept", "--data", "nowhere")
    (made,) = found["pilots"]["made"]
    assert "exit status 1: see kept/pilot-1.log" in made["failed"], made
    with open(os.path.join(cwd, "kept", "pilot-1.log")) as f:
        assert "nowhere" in f.read()
    assert not found["runs"] and found["candidates"][0]["step_seconds"]["rests_on"] == "model", found["candidates"]
    text = plan(cwd, *ONE, "--epochs", "1000", "--data", "nowhere", json_out=False)
    assert "failed, and is not used: exit status 1: see " in text, text


def two_ranks_tell_the_noise_scale(cwd):
    """By the profile they are as good as one."""
    if MPIRUN == "none":
        raise Skip("no MPI")
    write(cwd, profile())
    os.mkdir(os.path.join(cwd, "temporary"))
    found = plan(cwd, "--goal", "loss=1", "--ranks", "1,2", "--pilots", "auto", "--epochs", "30000", "--pilot-budget", "100%", TMPDIR=os.path.join(cwd, "temporary"))
    made = {q["ranks"]: q for q in found["pilots"]["made"]}
    assert sorted(made) == [1, 2] and not any(q["failed"] for q in made.values()), found["pilots"]
    of_two = next(r for r in found["runs"] if r["ranks"] == 2)
    steps = next(c for c in found["candidates"] if c["ranks"] == 2)["steps"]
    if of_two["noise_scale"]:
        phi = of_two["noise_scale"]
        assert abs(steps["value"] / (3e6 * (1 + phi / 32) / (1 + phi / 16)) - 1) < 1e-6 and "of a pilot" in steps["why"], steps
    else:
        assert steps["value"] is None, steps
    assert os.listdir(os.path.join(cwd, "temporary")) == []


def bad_input(cwd):
    write(cwd, profile())
    for text in ("0", "-5%", "101%", "much", "5%%", "nan"):
        refuses(cwd, *ONE, "--epochs", "1", "--pilot-budget", text, says=f"--pilot-budget {text}: want percent, above 0 and at most 100")
    refuses(cwd, *ONE, says=["--pilot-budget 5%: of how long a run?", "not enough measurements: no run", "--epochs or --max-steps"])
    refuses(cwd, *ONE, "--epochs", "1", "--simulate", says="--pilots: --simulate says that the machines are not here")
    refuses(cwd, *ONE, "--epochs", "1", "--output", "o", "--resume", "auto", says="--pilots and --resume contradict each other")
    refuses(cwd, *ONE[2:], says="--goal: missing")


ROWS = [a_pilot_measures_what_was_predicted, the_budget_is_kept, one_that_overruns_is_ended_and_not_used, one_that_fails_is_named_and_not_used,
        two_ranks_tell_the_noise_scale, bad_input]


if __name__ == "__main__":
    sys.exit(run_rows(ROWS, "lather-pilots-", sys.argv[3] if len(sys.argv) > 3 else None))
