#!/usr/bin/env python3
"""--plugin on all programs: the example plugins train, resume and run on ranks; files that are no plugins, or may not be loaded.

    plugins.py TRAIN_RESNET50 MPIRUN FOLDER [ROW]

FOLDER: of the built plugins signum.so, shapes.so, parts.so and the program own_resnet. Prints cmocka's lines.
"""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys

import trainer
from trainer import BUILD, ERROR, MODELS, OK, SOURCE, TOOLS, USAGE, content, digest, fails, records, run, run_ranks, run_rows, start, wait_for

LAUNCHER, PLUGINS = sys.argv[2], os.path.abspath(sys.argv[3])
COMPILER = os.environ.get("CC", "cc").split()
FLAGS = ["--arch", "resnet10", "--width", "4", "--batch-size", "32", "--threads", "1", "--workers", "1", "--progress", "off", "--deterministic"]
SIGNUM = ["--optim", "signum", "--lr", "3e-4", "--data", "shapes:16", *FLAGS]
PROGRAMS = {"train_vit": os.path.join(BUILD, "models", "vit", "train_vit"), "own_resnet": os.path.join(PLUGINS, "own_resnet")}


def here(cwd, *names):
    """Copies plugins to the folder; returns the flags that load them."""
    for name in names:
        shutil.copy(os.path.join(PLUGINS, name + ".so"), cwd)
        os.chmod(os.path.join(cwd, name + ".so"), 0o755)
    return [word for name in names for word in ("--plugin", f"./{name}.so")]


def compile_plugin(cwd, name, text, *flags):
    """Compiles C to NAME.so in the folder as a user does; returns its flags."""
    path = os.path.join(cwd, name + ".c")
    with open(path, "w", encoding="utf-8") as file:
        file.write('#include "lather/ext/optim_family.h"\n#include "lather/plugin.h"\n' + text)
    subprocess.run([*COMPILER, *flags, "-shared", "-fPIC", f"-I{SOURCE}/include", path, "-o", os.path.join(cwd, name + ".so")], check=True)
    os.chmod(os.path.join(cwd, name + ".so"), 0o755)
    return ["--plugin", f"./{name}.so"]


def other_signum(cwd, folder):
    """Compiles Signum to other bytes in a folder below; returns its path."""
    os.makedirs(os.path.join(cwd, folder))
    shutil.copy(os.path.join(SOURCE, "examples", "plugin_signum.c"), os.path.join(cwd, folder, "signum.c"))
    path = os.path.join(cwd, folder, "signum.so")
    subprocess.run([*COMPILER, "-g1", "-DOTHER", "-shared", "-fPIC", f"-I{SOURCE}/include", os.path.join(cwd, folder, "signum.c"), "-o", path], check=True)
    os.chmod(path, 0o755)
    return f"./{folder}/signum.so"


def with_program(path, args, cwd, code=OK):
    done = subprocess.run([path, *args], cwd=cwd, capture_output=True, text=True, timeout=trainer.TIMEOUT, check=False)
    assert done.returncode == code, f"{path}: exit {done.returncode}: {done.stderr[-500:]}"
    return done


def weights_of(cwd, name):
    return digest(os.path.join(cwd, name, "model.safetensors"))


def plugins_train_and_resume_bit_for_bit_after_a_kill(cwd):
    plugins = here(cwd, "signum", "shapes")
    flags = [*plugins, *SIGNUM, "--epochs", "3", "--checkpoint-every", "5"]
    run(*flags, "--output", "whole", cwd=cwd)
    p = start(*flags, "--output", "parts", cwd=cwd)
    wait_for(p, lambda: os.path.exists(os.path.join(cwd, "parts", "checkpoints", "latest")))
    p.send_signal(signal.SIGKILL)
    p.communicate()
    assert not os.path.exists(os.path.join(cwd, "parts", "model.safetensors")), "control: the run ended before the kill"
    run(*flags, "--output", "parts", "--resume", "auto", cwd=cwd)
    assert weights_of(cwd, "whole") == weights_of(cwd, "parts")
    run(*flags, "--output", "other", "--momentum", "0.5", cwd=cwd)
    assert weights_of(cwd, "whole") != weights_of(cwd, "other"), "control: another momentum changes nothing"
    assert [r.get("changed") for r in records(cwd, "parts") if r["event"] == "resume"] == [None]


def every_program_takes_them(cwd):
    plugins = here(cwd, "signum", "shapes")
    vit = [*plugins, *SIGNUM[:6], *MODELS["train_vit"], "--threads", "1", "--deterministic", "--progress", "off", "--epochs", "1", "--max-steps", "4", "--output"]
    with_program(PROGRAMS["train_vit"], [*vit, "vit"], cwd)
    with_program(PROGRAMS["train_vit"], [*vit, "parts", "--max-steps", "2"], cwd)
    with_program(PROGRAMS["train_vit"], [*vit, "parts", "--resume", "auto"], cwd)
    assert weights_of(cwd, "vit") == weights_of(cwd, "parts")
    with_program(PROGRAMS["own_resnet"], [*plugins, *SIGNUM, "--max-steps", "2", "--output", "own"], cwd)
    said = with_program(PROGRAMS["own_resnet"], ["evaluate", *plugins, "--weights", "own/model.safetensors", "--data", "shapes:16"], cwd).stdout
    assert "over 128 images" in said, said
    assert "own_resnet: " in with_program(PROGRAMS["own_resnet"], ["--plugin", "none.so"], cwd, ERROR).stderr
    said = run("plan", "--goal", "deadline=1h", *plugins, *SIGNUM, "--max-steps", "3", "--profile-seconds", "0.01", cwd=cwd).stdout
    assert "--plugin ./signum.so" in said and "--optim signum" in said, said
    run("predict", *plugins, "--weights", "own/model.safetensors", os.path.join(SOURCE, "tests", "tools", "gradient.jpg"), cwd=cwd)
    text = " ".join(run(*plugins, "--help", "all", cwd=cwd).stdout.split())
    assert "lion|adafactor|prodigy|signum" in text and "signum=0.0001" in text and "--plugin FILE.so" in text and "signum only" in text, text
    assert "signum" not in run("--help", "all", cwd=cwd).stdout, "control"


def a_plugin_registers_a_communicator_a_reducer_and_hooks(cwd):
    plugins = here(cwd, "shapes", "parts")
    flags = [*plugins, "--data", "shapes:16", *FLAGS, "--max-steps", "3"]
    run(*flags, "--dist", "alone", "--output", "run", cwd=cwd)
    assert sum(r["event"] == "parts" for r in records(cwd, "run")) == 3
    fails(*flags, "--compress", "nosuch", "--dist", "alone", cwd=cwd, says="mean", code=USAGE)
    if LAUNCHER != "none":
        run_ranks(LAUNCHER, 2, *flags, "--compress", "mean", cwd=cwd)


def the_run_records_them(cwd):
    plugins = here(cwd, "signum", "shapes")
    run(*plugins, *SIGNUM, "--max-steps", "2", "--optim-stats", "1", "--output", "run", cwd=cwd)
    events = [r for r in records(cwd, "run") if r["event"] == "optim_stats"]
    assert len(events) == 2 and all([k for k in r if k.startswith("rule_")] == ["rule_sign"] for r in events), events
    state = json.loads(content(cwd, "run", "checkpoints", "latest", "state.json"))
    version = run("--version", cwd=cwd).stdout.split()[1]
    assert state["plugins"] == [{"path": f"./{n}.so", "sha256": digest(os.path.join(cwd, n + ".so")), "version": version} for n in ("signum", "shapes")]
    text = content(cwd, "run", "config.yaml").decode()
    assert "plugin:\n  - ./signum.so\n  - ./shapes.so\n" in text, text
    for plugin in state["plugins"]:
        assert f"# plugin {plugin['path']}: version {version}, SHA-256 {plugin['sha256']}\n" in text, text
    run("--data", "synthetic:32:16:4", *FLAGS, "--max-steps", "1", "--output", "none", cwd=cwd)
    assert b"plugin" not in content(cwd, "none", "config.yaml") + content(cwd, "none", "checkpoints", "latest", "state.json"), "control"


def inspect_claims_no_rule_of_a_plugin(cwd):
    """A plugin's states "m" and "v" may be anything; its factors are matrices as they are stored."""
    flags = ["--data", "synthetic:32:16:4", *FLAGS, "--max-steps", "2"]
    run(*here(cwd, "one_sided"), *flags, "--optim", "one_sided", "--output", "own", cwd=cwd)
    run(*flags, "--optim", "adamw", "--output", "known", cwd=cwd)

    def inspect(*args):
        return with_program(os.path.join(TOOLS, "inspect"), ["--optim", *args], cwd).stdout
    own, known = (json.loads(inspect("--json", f"{name}/checkpoints/latest"))["files"][0] for name in ("own", "known"))
    assert {row["rule"] for row in own["optim_parameters"]} == {None} and {row["m_over_sqrt_v"] for row in own["optim_parameters"]} == {None}, own
    assert {row["rule"] for row in known["optim_parameters"]} == {"elementwise"} and all(row["m_over_sqrt_v"] > 0 for row in known["optim_parameters"]), known
    assert known["optim_factors"] == [] and all(1 <= row["effective_rank"] <= row["size"] * (1 + 1e-9) for row in own["optim_factors"]), own
    assert "conv1.weight" in [row["parameter"] for row in own["optim_factors"]], own
    assert "one_sided is a plugin's: its rules are not known" in inspect("own")


def a_resume_names_what_changed(cwd):
    signum, shapes = here(cwd, "signum"), here(cwd, "shapes")
    parts = here(cwd, "parts")
    flags = [*SIGNUM, "--max-steps", "4", "--output", "run", "--resume", "auto"]
    run(*signum, *shapes, *flags, "--max-steps", "1", cwd=cwd)
    has = "checkpoints/step-1 was trained with"
    fails(*flags, cwd=cwd, code=USAGE, says=f"{has} --plugin ./signum.so --plugin ./shapes.so")
    fails(*signum, *flags, cwd=cwd, says=f"{has} --plugin ./shapes.so", code=ERROR)
    fails(*shapes, *flags, "--optim", "adam", cwd=cwd, code=USAGE, says=f"{has} --plugin ./signum.so")
    other = other_signum(cwd, "other")
    assert digest(os.path.join(cwd, other)) != digest(os.path.join(cwd, "signum.so"))
    run("--plugin", other, *shapes, *flags, "--max-steps", "2", cwd=cwd)
    run("--plugin", other, *shapes, *parts, *flags, cwd=cwd)
    first, second = [r["changed"] for r in records(cwd, "run") if r["event"] == "resume"]
    old, new = (digest(os.path.join(cwd, p))[:12] for p in ("signum.so", other))
    others = {n: digest(os.path.join(cwd, n + ".so"))[:12] for n in ("shapes", "parts")}
    assert f"plugin ./signum.so {old}, ./shapes.so {others['shapes']} -> {other} {new}, ./shapes.so {others['shapes']}" in first, first
    assert f"plugin {other} {new}, ./shapes.so {others['shapes']} -> {other} {new}, ./shapes.so {others['shapes']}, ./parts.so {others['parts']}" in second, second
    renamed = content(SOURCE, "examples", "plugin_signum.c").decode().replace('= "m"', '= "mean"').replace('{"m"}', '{"mean"}')
    assert '"mean"' in renamed
    for place, says in (("signum", "was trained with --plugin ./signum.so before it was compiled again"), ("third", "third/checkpoints/step-1 was trained with --plugin ./signum.so")):
        run(*here(cwd, "signum"), *shapes, *flags, "--max-steps", "1", "--output", place, cwd=cwd)
        plugin = compile_plugin(cwd, place, renamed)
        fails(*plugin, *shapes, *flags, "--output", place, cwd=cwd, says="'conv1.weight#mean' is missing", code=ERROR)
        fails(*plugin, *shapes, *flags, "--output", place, cwd=cwd, says=says, code=ERROR)
    here(cwd, "signum")
    run("--data", "synthetic:32:16:4", *FLAGS, "--max-steps", "1", "--output", "plain", cwd=cwd)
    run(*signum, "--data", "synthetic:32:16:4", *FLAGS, "--max-steps", "2", "--output", "plain", "--resume", "auto", cwd=cwd)
    (resume,) = [r for r in records(cwd, "plain") if r["event"] == "resume"]
    assert resume["changed"].endswith(f"plugin (none) -> ./signum.so {old}"), resume


def a_file_may_name_a_plugin_that_the_user_allows(cwd):
    plugins = here(cwd, "signum", "shapes")
    run(*plugins, *SIGNUM, "--max-steps", "2", "--output", "run", cwd=cwd)
    shutil.copy(os.path.join(cwd, "run", "config.yaml"), os.path.join(cwd, "mine.yaml"))
    line = 2 + content(cwd, "mine.yaml").decode().splitlines().index("plugin:")
    for flag in ("--config", "--recipe"):
        fails(flag, "mine.yaml", "--output", "a", cwd=cwd, code=USAGE, says=f"mine.yaml: line {line}: plugin ./signum.so is code that this file would run")
        assert not os.path.exists(os.path.join(cwd, "a"))
        for n, more in enumerate((["--allow-plugin"], plugins)):
            run(flag, "mine.yaml", *more, "--output", f"{flag}{n}", cwd=cwd)
            assert weights_of(cwd, "run") == weights_of(cwd, f"{flag}{n}")
    fails("--config", "mine.yaml", *plugins[2:], cwd=cwd, code=USAGE, says="muon|lars|lamb|lion|adafactor|prodigy; others are those of a --plugin FILE.so")  # the command line replaces the file's


BAD = {
    "other": ('const char lt_plugin_version[] = "9.8.7"; lt_status lt_plugin(const lt_plugin_host *h) { return LT_OK; }\n'
              '#include <stdio.h>\n__attribute__((constructor)) static void begin(void) { fputs("RAN", stderr); }', ERROR,
              "compiled for version 9.8.7, but this is "),
    "undefined": ("lt_status nosuch(void); LT_PLUGIN(host) { return nosuch(); }", ERROR, "cannot be loaded: ", "undefined symbol: nosuch"),
    "none": ("int x;", USAGE, "has no lt_plugin: "),
    "fails": ('LT_PLUGIN(host) { return lt_fail(LT_E_IO, "no licence at %s", "/etc"); }', ERROR, "no licence at /etc"),
    "silent": ("LT_PLUGIN(host) { return LT_E_IO; }", ERROR, "its entry failed without a message"),
    "strange": ("LT_PLUGIN(host) { return (lt_status)77; }", USAGE, "its entry returned 77"),
    "ended": ("LT_PLUGIN(host) { return LT_END; }", USAGE, "its entry returned 10"),
}


def bad_plugins_are_one_line_each(cwd):
    for name, (text, code, *says) in BAD.items():
        flags = compile_plugin(cwd, name, text)
        said = run(*flags, *NOTHING, cwd=cwd, code=code).stderr
        assert said.count("\n") == 1 and f"plugin ./{name}.so: " in said and all(s in said for s in says), said
    same = content(cwd, compile_plugin(cwd, "same", "LT_PLUGIN(host) { return LT_OK; }")[1])
    for i in range(65):
        with open(os.path.join(cwd, f"{i}.so"), "wb") as f:
            f.write(same + bytes([i]))
    fails(*[word for i in range(65) for word in ("--plugin", f"./{i}.so")], *NOTHING, cwd=cwd, code=USAGE, says="plugin ./64.so: 64 are loaded, which is the limit")
    signum = here(cwd, "signum")
    fails(*signum, "--plugin", other_signum(cwd, "again"), *NOTHING, cwd=cwd, code=USAGE, says="plugin ./again/signum.so: optimizer signum: the name is already registered")
    taken = content(SOURCE, "examples", "plugin_signum.c").decode().replace('.name = "signum"', '.name = "adam"')
    fails(*compile_plugin(cwd, "taken", taken), *NOTHING, cwd=cwd, code=USAGE, says="plugin ./taken.so: optimizer adam: the name is already registered")
    shutil.copy(os.path.join(cwd, "signum.so"), os.path.join(cwd, "copy.so"))
    said = run(*signum, *signum, "--plugin", "copy.so", "--data", "synthetic:32:16:4", *FLAGS, "--max-steps", "1", cwd=cwd).stderr
    assert said.count("skipped, as ./signum.so has the same contents") == 2, said


NOTHING = ["--data", "synthetic:32:16:4", "--max-steps", "1"]


def a_plugin_older_than_the_library_is_a_warning(cwd):
    flags = [*here(cwd, "signum"), "--optim", "signum", "--data", "synthetic:32:16:4", *FLAGS, "--max-steps", "1"]
    assert "older" not in run(*flags, cwd=cwd).stderr, "control"
    os.utime(os.path.join(cwd, "signum.so"), (1e9, 1e9))
    said = run(*flags, cwd=cwd).stderr.splitlines()[0]
    assert said.startswith("lather warn plugin: ./signum.so is older than ") and "liblather" in said, said
    built = os.stat(said.split(" is older than ", 1)[1].split(": compile", 1)[0]).st_mtime
    os.utime(os.path.join(cwd, "signum.so"), (built, built))
    assert "older" not in run(*flags, cwd=cwd).stderr, "built in the same second"


def files_that_are_no_plugins_are_one_line_each(cwd):
    here(cwd, "signum")
    signum = content(cwd, "signum.so")

    def refused(name, says, code=ERROR):
        said = run(f"--plugin={name}", *NOTHING, cwd=cwd, code=code).stderr
        assert said.count("\n") == 1 and f"plugin {name}" in said and says in said, said
    for name, data, says in (("text.so", b"#!/bin/sh\n", "not an ELF file"), ("empty.so", b"", "not an ELF file"),
                             ("cut.so", signum[:len(signum) // 2], "truncated"), ("head.so", signum[:20], "truncated"),
                             ("arm.so", signum[:18] + struct.pack("<H", 40) + signum[20:], "for another machine (ELF machine 40"),
                             ("object.so", signum[:16] + struct.pack("<H", 1) + signum[18:], "not a shared object")):
        with open(os.path.join(cwd, name), "wb") as file:
            file.write(data)
        os.chmod(os.path.join(cwd, name), 0o644)
        refused(name, says)
    os.mkdir(os.path.join(cwd, "folder.so"))
    os.mkfifo(os.path.join(cwd, "pipe.so"))
    refused("folder.so", "not a regular file, but a folder")
    refused("pipe.so", "not a regular file, but a pipe")
    refused("none.so", "No such file or directory")
    for mode, who in ((0o757, "0757"), (0o775, "0775")):
        os.chmod(os.path.join(cwd, "signum.so"), mode)
        refused("./signum.so", f"others may write to it (mode {who}): chmod go-w", USAGE)
    os.chmod(os.path.join(cwd, "signum.so"), 0o755)
    if os.geteuid() == 0:
        os.chown(os.path.join(cwd, "signum.so"), 12345, 12345)
        refused("./signum.so", "belongs to user 12345, neither to you (user 0) nor to root", USAGE)
    else:
        os.chmod(os.path.join(cwd, "signum.so"), 0)
        refused("./signum.so", "Permission denied")
    fails(*NOTHING, "--plugin", cwd=cwd, code=USAGE, says="--plugin: missing value")
    fails(*NOTHING, "--plugin=", cwd=cwd, code=USAGE, says="--plugin: missing value")


def ranks_have_the_same_plugins(cwd):
    if LAUNCHER == "none":
        raise trainer.Skip("no MPI in this build")
    plugins = here(cwd, "signum", "shapes")
    flags = [*SIGNUM, "--batch-size", "16", "--epochs", "1", "--no-tensorboard", "--sync-bn"]
    run_ranks(LAUNCHER, 2, *plugins, *flags, "--output", "plain", cwd=cwd)
    run_ranks(LAUNCHER, 2, *plugins, *flags, "--output", "sharded", "--shard-optimizer", cwd=cwd)
    assert weights_of(cwd, "plain") == weights_of(cwd, "sharded")
    run_ranks(LAUNCHER, 2, *plugins, *flags, "--output", "parts", "--max-steps", "7", cwd=cwd)
    run_ranks(LAUNCHER, 2, *plugins, *flags, "--output", "parts", "--resume", "auto", cwd=cwd)
    assert weights_of(cwd, "plain") == weights_of(cwd, "parts")
    matrices = [*plugins, *here(cwd, "one_sided"), *flags, "--optim", "one_sided", "--lr", "0.01", "--output"]
    run_ranks(LAUNCHER, 2, *matrices, "whole", cwd=cwd)
    run_ranks(LAUNCHER, 2, *matrices, "halves", "--max-steps", "5", cwd=cwd)
    run_ranks(LAUNCHER, 2, *matrices, "halves", "--resume", "auto", cwd=cwd)
    assert weights_of(cwd, "whole") == weights_of(cwd, "halves")
    other = ["--plugin", other_signum(cwd, "other"), *plugins[2:]]
    p = trainer.start_ranks(LAUNCHER, (1, [*plugins, *flags]), (1, [*other, *flags]), cwd=cwd)
    said = trainer.finish(p)[1]
    hashes = [digest(os.path.join(cwd, path)) for path in ("signum.so", "other/signum.so")]
    assert p.returncode and re.search(f"the SHA-256 of plugin .*signum.so is {hashes[0]} on rank 0, {hashes[1]} on rank 1", said), said


def save_tensors(path, tensors):
    """name -> list of numbers, as f64."""
    head, data = {}, b""
    for name, values in tensors.items():
        part = struct.pack(f"<{len(values)}d", *values)
        head[name] = {"dtype": "F64", "shape": [len(values)], "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(head).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def load_tensors(path):
    with open(path, "rb") as file:
        head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    return {name: struct.unpack("<" + "d" * t["shape"][0], data[slice(*t["data_offsets"])]) for name, t in head.items() if name != "__metadata__"}


def signum(values, gradients, lr, decay):
    """Algorithm 2 of the paper with momentum 0.9."""
    m = [0.0] * len(values)
    for g in gradients:
        m = [0.9 * a + 0.1 * b for a, b in zip(m, g)]
        values = [p - lr * ((x > 0) - (x < 0) + decay * p) for p, x in zip(values, m)]
        yield values


def bench_and_replay_take_them(cwd):
    plugins = here(cwd, "signum")
    bench = os.path.join(TOOLS, "bench")
    for command, *more in (("optim",), ("train", "--image-size", "16", "--batch-size", "2")):
        flags = [command, *plugins, "--optim", "signum", "--arch", "resnet10", "--steps", "1", "--warmup", "0", "--threads", "1", "--json", *more]
        assert "signum" in with_program(bench, flags, cwd).stdout + command
    shapes = here(cwd, "shapes")
    assert '"steps": 2' in with_program(bench, ["loader", *shapes, "--data", "shapes:16", "--size", "16", "--steps", "2", "--threads", "1", "--json"], cwd).stdout
    assert "cannot pack samples in planes" in with_program(os.path.join(TOOLS, "pack"), [*shapes, "shapes:16", "packed"], cwd, ERROR).stderr
    assert "No such file" in with_program(bench, ["optim", "--plugin", "none.so"], cwd, USAGE).stderr
    start_values, gradients = [1.0, -2.0, 3.0, 0.5], [[0.5, -1e-3, 2.0, -4.0], [-9.0, 2e-3, 1.0, 3.0], [-1.0, 0.1, -70.0, 0.2]]
    save_tensors(os.path.join(cwd, "in"), {"param.w": start_values, **{f"grad.{t + 1}.w": g for t, g in enumerate(gradients)}})
    with open(os.path.join(cwd, "c.json"), "w", encoding="utf-8") as file:
        json.dump({"optim": "signum", "lr": 0.125, "weight_decay": 0.5, "dtype": "float64"}, file)
    replay = [os.path.join(TOOLS, "optim_replay"), ["--config", "c.json", "--in", "in", "--out", "out"]]
    assert "signum" in with_program(*replay, cwd, ERROR).stderr
    with_program(replay[0], [*plugins, *replay[1]], cwd)
    found, worst = load_tensors(os.path.join(cwd, "out")), 0
    for t, want in enumerate(signum(start_values, gradients, 0.125, 0.5)):
        worst = max(worst, max(abs(a - b) for a, b in zip(found[f"param.{t + 1}.w"], want)))
    assert worst < 1e-7, worst  # sign(u) is u / (|u| + 1e-12)
    assert any(abs(a - b) > 1e-3 for a, b in zip(found["param.3.w"], list(signum(start_values, gradients, 0.125, 0.4))[-1])), "control"


PLAN = """[plan]
budgets    = 1
seeds      = 1
baseline   = sgd
challenger = signum
[common]
arch       = resnet10
width      = 4
batch-size = 16
[arm sgd]
optim      = sgd
lr         = 0.1
[arm signum]
optim      = signum
lr         = 1e-4 .. 1e-3
plugin     = ./signum.so
"""


def a_plan_names_them_and_cells_know_their_hash(cwd):
    here(cwd, "signum", "shapes")
    tool = os.path.join(SOURCE, "tools", "reproduce")
    with open(os.path.join(cwd, "tiny.ini"), "w", encoding="utf-8") as file:
        file.write(PLAN)

    def reproduce(*more, code=OK):
        return with_program(sys.executable, [tool, "tiny.ini", "--threads", "1", "--train", trainer.PROGRAM, *more], cwd, code)
    noise = ["--data", "synthetic:32:16:4", "--out", "out"]
    assert "[arm signum]: plugin ./signum.so is code that this plan would run: --allow-plugin" in reproduce(*noise, code=USAGE).stderr
    reproduce(*noise, "--allow-plugin")
    cells = set(os.listdir(os.path.join(cwd, "out", "metrics")))
    settings = [json.loads(content(cwd, "out", "metrics", name))["settings"] for name in sorted(cells)]
    assert len(cells) == 3 and {s.get("plugin-sha256") for s in settings} == {None, digest(os.path.join(cwd, "signum.so"))}, settings
    assert f"Plugins: ./signum.so, SHA-256 {digest(os.path.join(cwd, 'signum.so'))}." in content(cwd, "out", "tiny", "report.html").decode()
    assert "3 done" in reproduce(*noise, "--allow-plugin").stdout
    shutil.copy(os.path.join(cwd, other_signum(cwd, "other")), os.path.join(cwd, "signum.so"))
    said = reproduce(*noise, "--allow-plugin", "--list").stdout
    assert said.count(" done ") == 1 and said.count(" to do ") == 1, said
    os.remove(os.path.join(cwd, "signum.so"))
    assert "plugin ./signum.so: No such file" in reproduce(*noise, "--allow-plugin", code=USAGE).stderr
    reproduce("--out", "out", "--redraw")
    here(cwd, "signum")
    said = reproduce("--data", "shapes:16", "--out", "named", "--plugin", "./signum.so", "--plugin", "./shapes.so", "--only", "final sgd*").stdout
    assert "final sgd 1 seed 1" in said and len(os.listdir(os.path.join(cwd, "named", "metrics"))) == 1, said


def a_reproducible_run_takes_those_that_declare_it(cwd):
    flags, text = [*trainer.NOISE, *FLAGS, "--reproducible", "--max-steps", "1"], "LT_PLUGIN(host)\n{\n    return LT_OK;\n}\n"
    fails(*flags, *compile_plugin(cwd, "silent", text), cwd=cwd, code=USAGE,
          says="plugin ./silent.so and --reproducible contradict each other: it does not declare LT_PLUGIN_REPRODUCIBLE")
    run(*flags, *compile_plugin(cwd, "declared", text + "LT_PLUGIN_REPRODUCIBLE;\n"), cwd=cwd)


sys.exit(run_rows([
    plugins_train_and_resume_bit_for_bit_after_a_kill, every_program_takes_them, a_plugin_registers_a_communicator_a_reducer_and_hooks, the_run_records_them,
    inspect_claims_no_rule_of_a_plugin, a_resume_names_what_changed, a_file_may_name_a_plugin_that_the_user_allows, bad_plugins_are_one_line_each,
    a_plugin_older_than_the_library_is_a_warning, files_that_are_no_plugins_are_one_line_each, ranks_have_the_same_plugins, bench_and_replay_take_them,
    a_reproducible_run_takes_those_that_declare_it, a_plan_names_them_and_cells_know_their_hash], "lather-plugins-", *sys.argv[4:5]))
