#!/usr/bin/env python3
"""lather new: folders of each kind build by meson and by the command of their README, and pass their test; a wrong
formula fails it; the plugins train; files are never overwritten, and bad names are one clear line.

    test_new.py LATHER TRAIN_RESNET50
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

LATHER, TRAIN = (os.path.abspath(path) for path in sys.argv[1:3])
BUILD, SOURCE = os.environ["LATHER_TEST_BUILD"], os.environ["LATHER_TEST_SOURCE"]
ENV = dict(os.environ, LD_LIBRARY_PATH=BUILD, CFLAGS="-Wall -Wextra -Werror")
KINDS = ("optimizer", "dataset", "model", "op")
# A fault in each source.
WRONG = {"optimizer": ("1 - o->momentum", "0.5 - o->momentum"), "dataset": ("bytes + 1, PIXELS", "bytes + 2, PIXELS"),
         "model": (".stride = 2", ".stride = 1"), "op": ("(1 + fabs(in[1][i])) * (1 +", "(1 + fabs(in[1][i])) * (2 +")}
NETWORK = ["--arch", "resnet10", "--width", "4", "--stem", "small", "--batch-size", "4", "--max-steps", "3", "--eval-every", "-1",
           "--threads", "1", "--progress", "off", "--no-tensorboard"]


def run(*argv, cwd, code=0, says=""):
    p = subprocess.run(argv, cwd=cwd, env=ENV, capture_output=True, text=True)
    assert p.returncode == code, f"{argv}: exit {p.returncode}, want {code}: {p.stdout[-2000:]}{p.stderr[-2000:]}"
    assert says in p.stdout + p.stderr, f"{argv}: no '{says}' in {p.stdout}{p.stderr}"
    return p


def new(cwd, *argv, code=0, says=""):
    return run(LATHER, "new", *argv, cwd=cwd, code=code, says=says)


def commands(folder):
    """The lines of README.md that compile, of which the last runs the test."""
    with open(os.path.join(folder, "README.md")) as f:
        return re.findall(r"^    ((?:mkdir|cc) .*)$", f.read(), re.M)


def by_cc(folder, code=0, says=""):
    for line in commands(folder)[:-1]:
        run("sh", "-c", line.replace("cc ", "cc $CFLAGS "), cwd=folder)
    run("sh", "-c", commands(folder)[-1].replace("cc ", "cc $CFLAGS "), cwd=folder, code=code, says=says)


def edit(path, before, after):
    with open(path) as f:
        text = f.read()
    assert before in text, f"{path}: no {before}"
    with open(path, "w") as f:
        f.write(text.replace(before, after))


def each_kind_builds_and_passes_its_test(cwd):
    for kind in KINDS:
        new(cwd, kind, f"my_{kind}", "--folder", f"deep/{kind}", says=f"deep/{kind}/my_{kind}.c")
        folder = os.path.join(cwd, "deep", kind)
        by_cc(folder, says="equal the formula")
        left = subprocess.run(["grep", "-ri", "new_name", folder], capture_output=True, text=True).stdout
        assert not left, left


def meson_builds_all_kinds(cwd):
    if not shutil.which("meson"):
        return
    with open(os.path.join(cwd, "meson.build"), "w") as f:  # one configuration for all: each is a subproject
        f.write("project('all', 'c')\n" + "".join(f"subproject('my_{kind}')\n" for kind in KINDS))
    for kind in KINDS:
        new(cwd, kind, f"my_{kind}", "--folder", f"subprojects/my_{kind}")
    run("meson", "setup", "build", cwd=cwd)
    run("meson", "test", "-C", "build", cwd=cwd, says="Ok:                 4")
    assert os.path.exists(os.path.join(cwd, "build/subprojects/my_optimizer/libmy_optimizer.so"))


def a_wrong_formula_fails_the_test(cwd):
    for kind in KINDS:
        new(cwd, kind, "wrong")
        edit(os.path.join(cwd, "wrong", "wrong.c"), *WRONG[kind])
        by_cc(os.path.join(cwd, "wrong"), code=1, says="wrong: ")
        shutil.rmtree(os.path.join(cwd, "wrong"))


def plugins_and_the_program_train(cwd):
    for kind, name in (("optimizer", "push"), ("dataset", "bytes"), ("model", "tiny")):
        new(cwd, kind, name)
        run("sh", "-c", commands(os.path.join(cwd, name))[0], cwd=os.path.join(cwd, name))
    run("tiny/build/train_tiny", "--data", "synthetic:40:16:3", "--max-steps", "3", "--width", "8", "--progress", "off", "--output", "own",
        cwd=cwd)
    run("tiny/build/train_tiny", "--eval", "--weights", "own/model.safetensors", "--data", "synthetic:40:16:3", cwd=cwd)
    with open(os.path.join(cwd, "train.bin"), "wb") as f:
        f.write(b"".join(bytes([i % 10]) + bytes((i * 7 + k) % 256 for k in range(3072)) for i in range(40)))
    shutil.copy(os.path.join(cwd, "train.bin"), os.path.join(cwd, "val.bin"))
    plugins = ["--plugin", "push/build/libpush.so", "--plugin", "bytes/build/libbytes.so"]
    run(TRAIN, *plugins, *NETWORK, "--optim", "push", "--momentum", "0.8", "--data", "bytes:.", "--output", "run", cwd=cwd)
    with open(os.path.join(cwd, "run", "metrics.jsonl")) as f:
        assert f.read().count('"event":"step"') == 3


def nothing_is_overwritten(cwd):
    new(cwd, "op", "mine")
    with open(os.path.join(cwd, "mine", "mine.c"), "a") as f:
        f.write("/* work of a week */\n")
    os.remove(os.path.join(cwd, "mine", "README.md"))
    new(cwd, "op", "mine", code=2, says="mine/meson.build exists and is not overwritten")
    assert not os.path.exists(os.path.join(cwd, "mine", "README.md"))
    with open(os.path.join(cwd, "file"), "w"):
        pass
    new(cwd, "op", "mine", "--folder", "file", code=1, says="file: not a folder")
    os.symlink("nowhere", os.path.join(cwd, "mine", "other.c"))
    new(cwd, "op", "other", "--folder", "mine", code=2, says="exists")


def wrong_commands_are_one_line(cwd):
    for argv, says in ((["layer", "x"], "unknown kind 'layer'; kinds: optimizer, dataset, model, op"),
                       (["op", "my-op"], "'my-op' is not a C identifier in lower case"), (["op", "2x"], "not a C identifier"),
                       (["op", ""], "not a C identifier"), (["op", "Mine"], "lower case"), (["op", "../x"], "not a C identifier"),
                       (["op", "x" * 41], "at most 40"), (["op"], "want a kind and a name"), ([], "want a kind and a name"),
                       (["op", "a", "b"], "want a kind and a name"), (["optimizer", "adam"], "has an optimizer 'adam'"),
                       (["dataset", "synthetic"], "choose another name"), (["op", "x", "--folder", ""], "--folder: empty"), (["op", "x", "--nosuch"], "nosuch")):
        p = new(cwd, *argv, code=2, says=says)
        assert p.stderr.count("\n") == 1, p.stderr
    new(cwd, "--help", says="optimizer|dataset|model|op NAME")
    assert not os.listdir(cwd), os.listdir(cwd)


ROWS = (each_kind_builds_and_passes_its_test, meson_builds_all_kinds, a_wrong_formula_fails_the_test, plugins_and_the_program_train,
        nothing_is_overwritten, wrong_commands_are_one_line)
failed = 0
packages = tempfile.TemporaryDirectory(prefix="lather-new-")  # pkg-config's file of the build tree
with open(os.path.join(packages.name, "lather.pc"), "w") as pc:
    pc.write(f"Name: lather\nDescription: build tree\nVersion: 0\nCflags: -I{SOURCE}/include\nLibs: -L{BUILD} -llather\n")
ENV["PKG_CONFIG_PATH"] = packages.name
for row in ROWS:
    with tempfile.TemporaryDirectory(prefix="lather-new-") as folder:
        try:
            row(folder)
            result = "OK"
        except AssertionError as e:
            result, failed = f"FAILED\n{e}", failed + 1
    print(f"{row.__name__.replace('_', ' ')}: {result}", flush=True)
print(f"{len(ROWS) - failed} passed, {failed} failed")
sys.exit(failed > 0)
