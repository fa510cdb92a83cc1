#!/usr/bin/env python3
"""Command-line usability: option names, contradictions, messages with a remedy.

    usage.py TRAIN_RESNET50 [ROW]
"""
import json
import math
import os
import re
import struct
import subprocess
import sys

from trainer import (ERROR, NOISE, OK, PROGRAM, SMALL, SOURCE, TOOLS, USAGE, epochs_of, fails, read_safetensors, records, run, run_rows,
                     write_safetensors)


def common_aliases_of_options_are_accepted(cwd):
    typed = ["--learning_rate", "0.25", "--wd", "0.5", "--mixup", "0.2", "--cutmix=0.3", "--bs", "8", "--ep", "7",
             "--aa", "ta_wide", "--hflip", "0.4", "--max-grad-norm", "3", "--sched", "step", "--decay-rate", "0.2"]
    config = run(*NOISE, *typed, "--print-config", cwd=cwd, code=OK).stdout.splitlines()
    for line in ("lr: 0.25", "weight-decay: 0.5", "mixup-alpha: 0.2", "cutmix-alpha: 0.3", "batch-size: 8",
                 "epochs: 7", "auto-augment: ta_wide", "flip: 0.4", "clip-grad: 3", "gamma: 0.2"):
        assert line in config, line
    fails(*NOISE, "--learnin-rate", "1", cwd=cwd, code=USAGE, says="the nearest is --learning-rate (--lr)")
    fails(*NOISE, "--fp16", cwd=cwd, code=USAGE, says="--fp16: no such option; use --amp f16")


def a_multistep_schedule_needs_milestones(cwd):
    fails(*NOISE, *SMALL, "--sched", "multistep", cwd=cwd, code=USAGE, says="--sched multistep: needs --milestone")
    most = [word for epoch in range(1, 9) for word in ("--milestone", str(epoch))]
    run(*NOISE, *SMALL, "--sched", "multistep", *most, "--epochs", "9", "--max-steps", "1", "--eval-every", "0", cwd=cwd)


def help_entries(text):
    """name -> (words that set it to VALUE, its choices, its help), from the output of --help all."""
    entries, through = {}, None
    for line in text.splitlines():
        section = re.match(r"\S.*, by --([\w-]+) NAME=VALUE:$", line)
        begins = re.match(r"  (?:-\w, )?(--(?:\[no-\])?)?([\w-]+)(?:(?<=\w)[ =]((?! )\S+))?(?:  +(.*))?$", line)
        if line[:1].strip():
            through = section and section.group(1)
        elif begins:
            dashes, name, choices, rest = begins.groups()
            words = ["--" + name] if dashes and "no-" in dashes else ["--" + name, "VALUE"] if dashes else ["--" + through, name + "=VALUE"]
            entries[name] = (words, choices.split("|") if choices else [], [rest or ""])
        elif entries:
            entries[name][2].append(line.strip())
    return {name: (words, choices, " ".join(rest).strip()) for name, (words, choices, rest) in entries.items()}


def says_that_it_depends(text, choices):
    """Returns whether a help text begins with the value or the flag that makes the option meaningful."""
    begins = re.match(r"with --|([\w-]+)(?:, [\w-]+)*: ", text)
    return bool(begins) and (not begins.group(1) or begins.group(1) in choices)


def flags_without_a_meaning_are_refused(cwd):
    many = [word for epoch in range(1, 10) for word in ("--milestone", str(epoch))]
    for flags, says in ((["--scale", "0.5,0.2"], "--scale: '0.5,0.2' is not LOW,HIGH with 0 < LOW <= HIGH"),
                        (["--ratio", "1"], "--ratio: '1' is not LOW,HIGH with 0 < LOW <= HIGH"),
                        (["--image-size-schedule", "0:16,2"], "--image-size-schedule: sizes '0:16,2': want EPOCH:SIZE"),
                        (["--val-split", "0.1", "--val-labels", "v.csv"], "--val-split and --val-labels contradict each other"),
                        (["--freeze", "."], "--freeze: nothing is left to train"),
                        (["--param-group", "fc"], "--param-group: 'fc' is not REGEX:lr=..,weight_decay=.."),
                        (["--param-group", ":lr=1"], "--param-group: ':lr=1' is not REGEX:lr=..,weight_decay=.."),
                        (["--param-group", "fc:lr"], "--param-group: 'lr' is not lr=NUMBER or weight_decay=NUMBER, 0 or more"),
                        (["--param-group", "fc:lr=1,weight_decay=-1"], "--param-group: 'weight_decay=-1' is not lr=NUMBER or weight_decay=NUMBER"),
                        (["--param-group", "fc:momentum=1"], "--param-group: unknown setting 'momentum=1'; valid: lr, weight_decay"),
                        (["--sched", "multistep", "--milestone", "1x"], "--milestone: '1x' is not a number"),
                        (["--sched", "multistep", *many], "--milestone: given 9 times, at most 8"),
                        (["--sched", "cosine", "--iterate-averaging", "schedule-free"], "--sched cosine and --iterate-averaging schedule-free contradict each other"),
                        (["--overfit-batches", "1", "--limit-train-batches", "2"], "--overfit-batches and --limit-train-batches contradict each other"),
                        (["--eval", "--weights", "w", "--cache-ram", "1M"], "--cache-ram: an evaluation reads each image once"),
                        (["--target-top1", "90", "--eval-every", "-1"], "--target-top1: needs evaluations during the run, but --eval-every is -1"),
                        (["--contributors", "c.txt"], "--contributors: needs --backup-workers"),
                        (["--config", "out.yaml", "--lr", "auto"], "--lr auto: give --output as a flag, not in a config file")):
        with open(os.path.join(cwd, "out.yaml"), "w") as f:
            f.write("output: made\n")
        fails(*NOISE, *SMALL, *flags, cwd=cwd, code=USAGE, says=says)
    for step in "0", "2x":
        said = run(*NOISE, *SMALL, "--max-steps", "1", cwd=cwd, code=USAGE, env={"LATHER_PROFILE_STEP": step}).stderr
        assert f"LATHER_PROFILE_STEP={step}: expected the number of a step, 1 or more" in said, said
    launched = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    said = run(*NOISE, *SMALL, "--lr", "auto", cwd=cwd, code=USAGE, env=launched).stderr
    assert "--lr auto: tries rates on one rank" in said, said


def unusable_files_are_refused(cwd):
    plain = trained(cwd)
    huge = struct.pack("<2f", 3e38, -3e38)
    plain["fc.weight"] = (*plain["fc.weight"][:2], huge * (len(plain["fc.weight"][2]) // len(huge)))
    write_safetensors(os.path.join(cwd, "huge.safetensors"), plain)
    os.mkdir(os.path.join(cwd, "grey"))
    for name, content in ("images-idx3", struct.pack(">4I", 2051, 6, 16, 16) + bytes(6 * 256)), ("labels-idx1", struct.pack(">2I", 2049, 6) + bytes([0, 1, 2] * 2)):
        for part in "train", "t10k":
            with open(os.path.join(cwd, "grey", f"{part}-{name}-ubyte"), "wb") as f:
                f.write(content)
    for weights in "huge.safetensors", "made":  # without metadata, and with a mean of each channel
        fails("--data", "grey", "--eval", "--weights", weights, cwd=cwd, says=f"{weights}: the weights expect 3 channels, but the images of grey have 1")
    for flag in "--save-logits", "--eval-json":
        fails(*NOISE, "--watch", "made", flag, "f", cwd=cwd, code=USAGE, says=f"{flag}: needs a single evaluation; --watch makes several")
    for name, text in ("nul", b"a\nb\0c\n"), ("empty", b"\n"):
        with open(os.path.join(cwd, name), "wb") as f:
            f.write(text)
    for words, code, says in ((["predict", "--weights", "made", "-", "-"], USAGE, "-: standard input is used twice"),
                              (["predict", "--weights", "made", "--files-from", "nul"], ERROR, "nul: line 2 contains a NUL"),
                              (["predict", "--weights", "made", "--files-from", "empty"], ERROR, "empty: contains no path"),
                              ([*NOISE, *SMALL, "--lr", "auto", "--weights", "huge.safetensors"], USAGE, "--lr auto: the loss is not finite at any of 7 rates"),
                              (["serve-data", "--address", "tcp://127.0.0.1:0"], USAGE, "--data: missing; the images to serve")):
        p = subprocess.run([PROGRAM, *words], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert p.returncode == code and says in p.stderr, (words, p.returncode, p.stderr)
    more = [*NOISE, *SMALL, "--eval-every", "0", "--output", "made", "--resume", "auto", "--max-steps", "4"]
    fails(*more, "--seed", "7", cwd=cwd, code=USAGE, says="made/checkpoints/step-2: was trained with --seed 0, but this run has 7")
    fails(*more, "--mup", "2", cwd=cwd, code=USAGE, says="made/checkpoints/step-2: was trained with --mup 0, but this run has 2")
    fails(*more, "--limit-train-batches", "1", cwd=cwd, code=USAGE, says="made/checkpoints/step-2: was saved at batch 2 of an epoch, which now has 1")
    run(*NOISE, *SMALL, "--optim", "shampoo", "--optim-stats", "1", "--eval-every", "0", "--output", "stats", "--max-steps", "1", cwd=cwd)
    os.mkdir(os.path.join(cwd, "new"))
    for folder, start in ("stats", ["--resume", "auto"]), ("new", []):
        with open(os.path.join(cwd, folder, "optim_stats.bin"), "wb") as f:
            f.write(b"another program's file")
        fails(*NOISE, *SMALL, "--optim", "shampoo", "--optim-stats", "1", "--output", folder, *start, "--max-steps", "2", cwd=cwd,
              says=f"{folder}/optim_stats.bin: not a file of --optim-stats; move it away")


def settings_that_others_leave_unread_are_rejected(cwd):
    entries = help_entries(run("--help", "all", cwd=cwd).stdout)
    needs = {name: re.search(r"\(needs --([\w-]+) ?(.*)\)$", text) for name, (_, _, text) in entries.items()}

    def try_values(name, is_met):
        """Sets an option to the first value that its type permits, after the option that it needs; is_met False: after another choice of that option."""
        words, choices, _ = entries[name]
        before = meet(*needs[name].groups(), is_met) if needs[name] else []
        for value in [*reversed(choices), "2", "0.25", "x"]:
            flags = [*before, *(word.replace("VALUE", value) for word in words)]
            p = subprocess.run([PROGRAM, *NOISE, *flags, "--print-config"], cwd=cwd, capture_output=True, text=True)
            if not re.search("is not in|is not a|unknown value", p.stderr):
                return flags, p
        raise AssertionError(f"--{name}: no value is valid")

    def meet(other, wanted, is_met):
        wanted = re.split(", | or ", wanted) if wanted and "--" not in wanted else []
        found = [choice for choice in entries[other][1] if (choice in wanted) == is_met] if wanted else []
        return ["--" + other, found[0]] if found else try_values(other, True)[0] if is_met else []

    dependent = [name for name in needs if needs[name]]
    assert len(dependent) > 50 and {"gamma", "power", "milestone", "min-lr", "vflip", "tail-start", "outer-lr"} <= set(dependent), dependent
    for name in dependent:
        alone, together = (try_values(name, is_met)[1] for is_met in (False, True))
        assert alone.returncode == USAGE and f"--{name}: needs --{needs[name].group(1)}" in alone.stderr, (name, alone.stderr)
        assert together.returncode == OK or needs[name].group(1) == "watch", (name, together.args, together.stderr)
    choices = {word for _, words, _ in entries.values() for word in words} - {"auto", "off"}
    assert says_that_it_depends("step: epochs between decays", choices) and says_that_it_depends("with --eval: file", choices)
    silent = [name for name, (_, _, text) in entries.items() if not needs[name] and " only)" not in text and says_that_it_depends(text, choices - set(entries[name][1]))]
    assert not silent, f"options that depend on others by their help, without a check: {silent}"


def what_begins_after_the_run_is_rejected(cwd):
    for more, says in ((["--iterate-averaging", "tail", "--opt-kwargs", "tail-start=25"], "--tail-start 25: is never reached, as the run has 24 steps"),
                       (["--iterate-averaging", "ema-nesterov", "--opt-kwargs", "lookahead-start=25"], "--lookahead-start 25: is never reached, as the run has 24 steps"),
                       (["--sched", "multistep", "--milestone", "1", "--milestone", "2"], "--milestone 2: is never reached, as the run has 2 epochs"),
                       (["--sched", "step"], "--step-epochs 30: is never reached, as the run has 2 epochs"),
                       (["--image-size-schedule", "0:16,2:32"], "--image-size-schedule 2: is never reached, as the run has 2 epochs"),
                       (["--image-size-schedule", "0:16,3:32", "--epochs", "0", "--max-steps", "36"], "--image-size-schedule 3: is never reached, as the run has 3 epochs")):
        fails(*NOISE, *SMALL, "--epochs", "2", *more, cwd=cwd, code=USAGE, says=says)
    for more in (["--opt-kwargs", "tail-start=24"], ["--opt-kwargs", "tail-start=3", "--max-steps", "2"]):  # the schedule counts, of which --max-steps is a part
        run(*NOISE, *SMALL, "--epochs", "2", "--iterate-averaging", "tail", *more, "--eval-every", "0", cwd=cwd)


def state_memory_limits_the_state_to_adams(cwd):
    once = [*NOISE, *SMALL, "--optim", "shampoo", "--eval-every", "0", "--output", "fits"]

    def mib(*flags):
        said = re.search(r"--state-memory adam: (.*): ([0-9.]+) MiB of state, Adam's moments are ([0-9.]+) MiB", run(*flags, cwd=cwd).stderr)
        return said.group(1), float(said.group(2)), float(said.group(3))
    what, used, adam = mib(*once, "--max-steps", "1", "--state-memory", "adam")
    assert what.startswith("moments in ") and ", factors in " in what and used <= adam, (what, used, adam)
    what, less, adam = mib(*once, "--max-steps", "2", "--resume", "auto", "--state-memory", "adam", "--factor-dtype", "int8", "--state-dtype", "int8")
    assert what.startswith("moments in int8, factors in int") and less <= used, (what, less, used)
    blocks = re.search(r"blocks of (\d+)", what).group(1)
    kept = epochs_of(cwd, "fits")[-1]["optimizer_bytes"] / 2 ** 20
    assert abs(kept - less) <= 0.0501 and kept < adam, (kept, less, adam)
    what, used, adam = mib(*once, "--output", "wider", "--max-steps", "1", "--state-memory", "adam", "--width", "8", "--max-preconditioner-dim", "512", "--beta1", "0.9")
    assert what.startswith("moments in int8, factors in int8, ") and used <= adam, f"moments in int8 come before factors in int4: {what}"
    run(*once, "--max-steps", "3", "--resume", "auto", "--state-memory", "any", "--factor-dtype", "f32", "--state-dtype", "f32", "--max-preconditioner-dim", blocks, cwd=cwd)
    fails(*once, "--overwrite", "--factor-dtype", "int4", "--refresh", "async", cwd=cwd, code=USAGE, says="refresh async contradicts factor_dtype")
    fails(*NOISE, *SMALL, "--optim", "prodigy", "--state-memory", "adam", cwd=cwd, code=USAGE, says="--state-memory adam: prodigy needs at least ")


def errors_in_a_config_are_reported_even_if_overridden(cwd):
    with open(os.path.join(cwd, "run.yaml"), "w") as f:
        f.write("arch: resnet10\nbatch-size: big\n")
    fails(*NOISE, "--config", "run.yaml", "--batch-size", "4", cwd=cwd, code=USAGE,
          says="run.yaml: line 2: --batch-size: 'big' is not an integer")


def trained(cwd):
    """Trains on NOISE; returns the weights as a dictionary."""
    run(*NOISE, *SMALL, "--max-steps", "2", "--eval-every", "0", "--output", "made", cwd=cwd)
    return read_safetensors(os.path.join(cwd, "made", "model.safetensors"))


def accuracy(cwd, weights):
    return run(*NOISE, "--eval", "--weights", weights, "--threads", "1", cwd=cwd).stdout.splitlines()[-1]


def a_different_class_count_suggests_reset_head(cwd):
    trained(cwd)
    four = ["--data", "synthetic:48:16:4", *SMALL, "--weights", "made/model.safetensors", "--max-steps", "1",
            "--eval-every", "0"]
    fails(*four, cwd=cwd, says="'fc.weight' is [3,32], but the model needs [4,32]; --reset-head keeps the rest and makes")
    run(*four, "--reset-head", cwd=cwd)


def a_backbone_without_head_is_fine_tuned(cwd):
    plain = trained(cwd)
    tune = [*NOISE, *SMALL, "--max-steps", "1", "--eval-every", "0", "--weights", "w.safetensors"]
    for name in (None, "fc.1"):
        tensors = {k: v for k, v in plain.items() if not k.startswith("fc.")}
        if name:
            tensors.update({k.replace("fc", name): v for k, v in plain.items() if k.startswith("fc.")})
        write_safetensors(os.path.join(cwd, "w.safetensors"), tensors)
        for flags in (["--eval", *NOISE, "--weights", "w.safetensors"], tune):
            fails(*flags, cwd=cwd, says="w.safetensors: the last layer, 'fc.*', is missing or has other names: rename it, or train with --reset")
        run(*tune, "--reset-head", "--freeze", "^(conv1|bn1|layer)", "--freeze-bn", "--output", "fine", "--overwrite", cwd=cwd)
        found = read_safetensors(os.path.join(cwd, "fine", "model.safetensors"))
        assert found["layer1.0.conv1.weight"] == plain["layer1.0.conv1.weight"] and "fc.weight" in found
    del plain["conv1.weight"]
    write_safetensors(os.path.join(cwd, "w.safetensors"), plain)
    fails(*tune, cwd=cwd, says="no 'conv1.weight' of 4 dimensions: not the weights of a residual network with torchvision's names")


def counts_converted_to_floats_are_ignored(cwd):
    """{k: v.half()} converts counts to floats, which are infinite above 65,504 batches."""
    plain = trained(cwd)
    half = {k: ("F16", [], b"\x00\x7c") if k.endswith("num_batches_tracked") else v for k, v in plain.items()}
    assert half != plain
    write_safetensors(os.path.join(cwd, "w.safetensors"), half)
    assert accuracy(cwd, "w.safetensors") == accuracy(cwd, "made/model.safetensors")


def a_folder_means_its_weights(cwd):
    trained(cwd)
    for folder in ("made", "made/checkpoints/best", "made/checkpoints/step-2"):
        if os.path.exists(os.path.join(cwd, folder)):
            assert accuracy(cwd, folder) == accuracy(cwd, folder + "/model.safetensors")


def fine_tuning_keeps_the_defaults_of_other_flags(cwd):
    """The weights set the network's options; --sched constant is a default of schedule-free, not of the user."""
    trained(cwd)
    run(*NOISE, "--weights", "made/model.safetensors", "--batch-size", "4", "--threads", "1", "--workers", "1", "--progress", "off",
        "--optim", "sgd", "--iterate-averaging", "schedule-free", "--max-steps", "1", "--output", "fine", cwd=cwd)
    with open(os.path.join(cwd, "fine", "config.yaml")) as f:
        assert "sched: constant" in f.read().splitlines()


def flags_that_contradict_the_weights_are_rejected(cwd):
    trained(cwd)
    for flag, value, says in (("arch", "resnet50", "holds another model, resnet10 of width 4"), ("width", "8", "has 4, by its tensors"),
                              ("depths", "1,1,1,2", "has 1,1,1,1, by its tensors"), ("stem", "imagenet", "has small, by its tensors")):
        for how in (["--eval"], ["--max-steps", "1"]):
            fails(*NOISE, *how, "--weights", "made", f"--{flag}", value, cwd=cwd, code=USAGE, says=f"--{flag} {value}: made {says}")
    fails(*NOISE, "--eval", "--weights", "made", "--num-classes", "7", cwd=cwd, code=USAGE, says="--num-classes 7: made has 3")
    run(*NOISE, "--eval", "--weights", "made", "--num-classes", "3", "--arch", "resnet10", "--width", "4", "--stem", "small", "--threads", "1", cwd=cwd)


def a_resume_with_different_state_names_the_flag(cwd):
    flags = [*NOISE, *SMALL, "--optim", "shampoo", "--precondition-frequency", "2", "--output", "run"]
    run(*flags, "--max-steps", "2", cwd=cwd)
    more = [*flags, "--max-steps", "4", "--resume", "auto"]
    fails(*more, "--ema-decay", "0.9", cwd=cwd, says="--ema-decay was not set in the checkpointed run; remove it or start a new run")
    for flag, was, new in (("max-preconditioner-dim", "1024", "8"), ("beta1", "0", "0.9"), ("momentum", "0.9", "0"), ("grafting", "sgd", "adam")):
        says = f"start a new run; settings that differ and determine its state: {flag} {was} -> {new}; others that differ: max-steps 2 -> 4"
        fails(*more, f"--{flag}", new, cwd=cwd, says=says)
    run(*flags, "--max-steps", "2", "--ema-decay", "0.9", "--overwrite", cwd=cwd)
    fails(*more, cwd=cwd, says="--ema-decay was set in the checkpointed run; set it or start a new run")
    for typed, flag in (("--ema-decay=1", "ema-decay"), ("--opt-kwargs=eval-interp-coeff=1", "eval-interp-coeff")):
        fails(*more, typed, cwd=cwd, code=USAGE, says=f"--{flag}: 1 is not in [0, 1)")


def prefixes_of_wrappers_are_removed(cwd):
    plain = trained(cwd)
    for prefix in ("module.", "_orig_mod.", "module._orig_mod."):
        write_safetensors(os.path.join(cwd, "w.safetensors"), {prefix + k: v for k, v in plain.items()})
        assert accuracy(cwd, "w.safetensors") == accuracy(cwd, "made/model.safetensors")
        run(*NOISE, *SMALL, "--weights", "w.safetensors", "--max-steps", "1", "--eval-every", "0", cwd=cwd)
    some = {("module." if k == "fc.weight" else "") + k: v for k, v in plain.items()}
    write_safetensors(os.path.join(cwd, "w.safetensors"), some)
    fails(*NOISE, "--eval", "--weights", "w.safetensors", cwd=cwd, says="the last layer, 'fc.*', is missing or has other names")


def other_groups_are_named(cwd):
    def zeros(*shape):
        return "F32", list(shape), bytes(4 * math.prod(shape))
    file = {"conv1.weight": zeros(8, 3, 7, 7), "layer1.0.conv2.weight": zeros(10, 3, 3, 3), "layer1.0.conv3.weight": zeros(32, 10, 1, 1),
            "fc.weight": zeros(3, 8)}
    write_safetensors(os.path.join(cwd, "w.safetensors"), file)
    fails(*NOISE, "--eval", "--weights", "w.safetensors", cwd=cwd, says="3x3 convolutions of 10 channels in 3 groups, which no ResNet")
    fails(*NOISE, "--arch", "resnext50", cwd=cwd, code=USAGE, says="resnext50_32x4d")


def frozen_batch_norms_do_not_change(cwd):
    before = trained(cwd)
    tune = [*NOISE, *SMALL, "--weights", "made/model.safetensors", "--freeze", "^(conv1|bn1|layer1)", "--max-steps", "2",
            "--eval-every", "0"]
    run(*tune, "--output", "moving", cwd=cwd)
    run(*tune, "--freeze-bn", "--output", "frozen", cwd=cwd)
    moving, frozen = (read_safetensors(os.path.join(cwd, f, "model.safetensors")) for f in ("moving", "frozen"))
    for name, tensor in before.items():
        inside = name.startswith(("conv1", "bn1", "layer1"))
        statistic = "running" in name or "tracked" in name
        assert (moving[name] == tensor) == (inside and not statistic), name
        assert (frozen[name] == tensor) == inside, name
    fails(*NOISE, *SMALL, "--freeze-bn", cwd=cwd, code=USAGE, says="--freeze-bn: needs --freeze")
    fails(*NOISE, *SMALL, "--freeze-bn", "--freeze", "conv", cwd=cwd, code=USAGE,
          says="--freeze-bn: --freeze matches no batch norm")


def help_explains_parameter_group_factors(cwd):
    text = " ".join(run("--help", "all", cwd=cwd).stdout.split())
    assert "with --lr 0.1, ^fc:lr=1 trains the last layer ten times as fast" in text


def help_lists_common_options_and_the_rest_by_topic(cwd):
    def flags(*topic):
        return re.findall(r"^  (?:-\w, )?--(?:\[no-\])?([\w-]+)", run("--help", *topic, cwd=cwd, code=OK).stdout, re.M)
    few, every = flags(), flags("all")
    # 184: layer-decay, sampler and mup are names that users of timm and PyTorch look for
    assert 35 <= len(few) <= 52 and set(few) < set(every) and len(every) == len(set(every)) <= 184, (len(few), len(every))
    assert {"data", "epochs", "optim", "lr", "output", "resume", "help"} <= set(few)
    assert set(flags("optimizer")) < set(every) and "lr" in flags("Optimizer") and "data" not in flags("optimizer")
    lr = " ".join(run("--help", "lr", cwd=cwd, code=OK).stdout.split())
    assert lr == " ".join(run("--help", "--learning_rate", "never read", cwd=cwd, code=OK).stdout.split())
    assert "shampoo=0.1" in lr and "Section Optimizer; values: numbers from 0 to 1000000" in lr, lr
    settings = " ".join(run("--help", "opt-kwargs", cwd=cwd, code=OK).stdout.split())
    assert "rank-rtol=X with pseudo_inverse: relative cutoff" in settings and "rank-rtol" not in every, settings
    fails("--help", "optimiser", cwd=cwd, code=USAGE, says="--help optimiser: no such section or option; the nearest is Optimizer")
    fails("--help", "--batchsize", cwd=cwd, code=USAGE, says="the nearest is batch-size")


def removed_options_are_rejected_with_a_replacement(cwd):
    instead = "--read-ahead is gone since 0.2: use --workers"
    with open(os.path.join(cwd, "old.yaml"), "w") as f:
        f.write("arch: resnet10\nread-ahead: 64\nrank-rtol: 0\nread_ahead: 65\n")
    fails(*NOISE, "--read-ahead", "64", cwd=cwd, code=USAGE, says=instead)
    fails("--help", "read-ahead", cwd=cwd, code=USAGE, says=instead)
    for flag in ("--config", "--recipe"):
        fails(*NOISE, flag, "./old.yaml", cwd=cwd, code=USAGE, says=f"old.yaml: line 4: {instead}")
    fails(*NOISE, "--rank-rtol", "0.5", cwd=cwd, code=USAGE, says="--rank-rtol has no flag: use --opt-kwargs rank-rtol=VALUE")
    shampoo = [*NOISE, "--optim", "shampoo", "--opt-kwargs", "epsilon-rule=pseudo_inverse", "--opt-kwargs", "rank_rtol=0.5"]
    assert "rank-rtol: 0.5" in run(*shampoo, "--print-config", cwd=cwd, code=OK).stdout.splitlines()


def choices_for_small_images_are_reported(cwd):
    def said(*flags):
        return run(*NOISE, *SMALL, "--progress", "lines", "--max-steps", "1", "--eval-every", "0", *flags, cwd=cwd).stderr
    chosen = "chosen by the size of the input:"
    assert f"{chosen} --stem small, --augment small\n" in said()
    assert f"{chosen} --stem imagenet, --augment imagenet\n" in said("--image-size", "96")
    assert f"{chosen} --augment small\n" in said("--stem", "small")
    assert chosen not in said("--stem", "small", "--augment", "none")


def the_table_of_blocks_is_shown_on_demand(cwd):
    flags = [*NOISE, *SMALL, "--optim", "shampoo", "--progress", "lines", "--max-steps", "1", "--eval-every", "0"]
    text = run(*flags, "--output", "run", cwd=cwd).stderr
    assert "blocks: " in text and "ms a refresh" in text and "factors MiB" not in text, text
    with open(os.path.join(cwd, "run", "blocks.txt")) as f:
        assert "factors MiB" in f.read()
    assert "factors MiB" in run(*flags, "--verbose", cwd=cwd).stderr


def a_profile_creates_its_folder(cwd):
    flags = [*NOISE, *SMALL, "--max-steps", "1", "--eval-every", "0"]
    run(*flags, "--profile", "new/deep/trace.json", cwd=cwd)
    run(*flags, "--output", "run", "--profile", "run/trace.json", cwd=cwd)
    for path in ("new/deep/trace.json", "run/trace.json"):
        with open(os.path.join(cwd, path)) as f:
            assert json.load(f)["traceEvents"]
    with open(os.path.join(cwd, "file"), "w"):
        pass
    fails(*flags, "--profile", "file/trace.json", cwd=cwd, says="file: not a folder")
    fails(*flags, "--output", "o/" * 451, cwd=cwd, code=USAGE, says="--output: a path of 902 bytes; at most 900 are possible")


def a_resume_with_a_different_batch_size_names_the_old_one(cwd):
    flags = [*NOISE, *SMALL, "--epochs", "2", "--eval-every", "0", "--output", "run"]
    run(*flags, "--batch-size", "16", "--max-steps", "1", cwd=cwd)
    flags += ["--resume", "auto"]
    fails(*flags, "--batch-size", "4", "--grad-accum", "2", cwd=cwd, code=USAGE,
          says="16 images per update, but this run has 8 (--batch-size x --grad-accum x ranks); use --batch-size 8")
    said = run(*flags, "--batch-size", "5", "--grad-accum", "3", cwd=cwd, code=USAGE).stderr
    assert "this run has 15" in said and "use" not in said, said  # 16 is not a multiple of 3


def inspect(*args, cwd):
    p = subprocess.run([os.path.join(TOOLS, "inspect"), *args], cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    return p.returncode, p.stdout + p.stderr


def inspect_summarizes_a_run_folder(cwd):
    run(*NOISE, *SMALL, "--epochs", "2", "--lr", "0.02", "--output", "made", cwd=cwd)
    code, text = inspect("made", cwd=cwd)
    assert code == 0, text
    for line in ("run made", "  data         synthetic:48:16:3", "  arch         resnet10", "  lr           0.02",
                 "  steps        24", "  epochs       2", "made/checkpoints/latest: complete, checksums hold",
                 "resnet10, 3 classes, optimizer sgd, step 24, epoch 2, batch 0, seed 0"):
        assert line + "\n" in text, f"no '{line}' in {text}"
    code, text = inspect("--json", "made", "made/model.safetensors", cwd=cwd)
    first, second = json.loads(text)["files"]
    assert (code, first["steps"], first["latest"]["step"]) == (0, 24, 24) and second["tensors"], text
    assert first["val_loss"] == float(f"{epochs_of(cwd, 'made')[-1]['val_loss']:.9g}"), text
    with open(os.path.join(cwd, "made", "checkpoints", "latest", "model.safetensors"), "r+b") as f:
        f.seek(-1, os.SEEK_END)
        last = f.read(1)[0]
        f.seek(-1, os.SEEK_END)
        f.write(bytes([last ^ 1]))
    code, text = inspect("made", cwd=cwd)
    assert code == 1 and "inspect: made/checkpoints/latest" in text, text
    code, text = inspect("--json", "made", cwd=cwd)
    assert code == 1 and json.loads(text.splitlines()[0])["files"][0]["latest"] is None, text
    os.mkdir(os.path.join(cwd, "empty"))
    code, text = inspect("empty", cwd=cwd)
    assert code == 1 and "empty: neither a checkpoint, which has a state.json, nor a run folder" in text, text


def statistics_of_a_run_and_of_its_checkpoint_agree(cwd):
    flags = [*NOISE, *SMALL, "--optim", "soap", "--precondition-frequency", "2", "--max-steps", "6", "--output", "stats"]
    run(*flags, "--optim-stats", "3", "--optim-stats-params", "layer4.*conv1", cwd=cwd)
    with open(os.path.join(cwd, "stats", "optim_stats.bin"), "rb") as f:
        data = f.read()
    size = int.from_bytes(data[8:16], "little")
    tables = json.loads(data[16:16 + size])["tables"]
    width = sum(len(t["rows"]) * len(t["columns"]) for t in tables)
    values = struct.unpack(f"<{width}f", data[-4 * width:])
    assert struct.unpack_from("<q", data, len(data) - 4 * width - 8)[0] == 6 and all("conv1" in row["name"] for row in tables[0]["rows"])
    columns = tables[2]["columns"]
    factors = values[width - len(tables[2]["rows"]) * len(columns):]
    code, text = inspect("--json", "--optim", "stats/checkpoints/step-6", cwd=cwd)
    assert code == 0, text
    shown = {(f["parameter"], f["block"], f["dim"]): f for f in json.loads(text)["files"][0]["optim_factors"]}
    for i, row in enumerate(tables[2]["rows"]):
        name = tables[0]["rows"][tables[1]["rows"][row["block"]]["parameter"]]["name"]
        found, number = shown[name, 0, row["dim"]], dict(zip(columns, factors[i * len(columns):]))
        assert found["size"] == row["size"] and found["root_age"] == number["root_age"], (found, number)
        for key in "eigenvalue_max", "effective_rank", "off_diagonal":
            assert math.isclose(found[key], number[key], rel_tol=1e-3, abs_tol=1e-6), (name, key, found[key], number[key])
    code, text = inspect("--optim", "stats/checkpoints/step-6", cwd=cwd)
    assert code == 0 and re.search(r"^conv1.weight +diagonal +6 ", text, re.M) and re.search(r"^layer4.0.conv1.weight +eigenbasis +6 ", text, re.M), text


def the_speed_of_a_run_is_the_same_number_everywhere(cwd):
    flags = [*NOISE, *SMALL, "--progress", "lines", "--epochs", "2", "--limit-eval-batches", "2", "--output", "run"]
    run(*flags, "--max-steps", "9", cwd=cwd)
    said = run(*flags, "--resume", "auto", cwd=cwd).stderr  # the steps before the resume count, too
    speed = re.search(r"^epoch 2: .* on 8 of 48 \| [0-9:]+, ([0-9.]+) img/s$", said, re.M).group(1)
    inspect = subprocess.run([os.path.join(TOOLS, "inspect"), "run"], cwd=cwd, capture_output=True, text=True, timeout=60).stdout
    assert f"  images/s     {speed}\n" in inspect and re.search(r"  val top-1 %  [0-9.]+ on 8 of 48 samples\n", inspect), (speed, inspect)
    subprocess.run([os.path.join(SOURCE, "tools", "report"), "run"], cwd=cwd, check=True, capture_output=True, timeout=60)
    with open(os.path.join(cwd, "run", "report.html")) as f:
        assert f"<td>speed<td>{speed} images/s<" in f.read(), speed
    steps = [r for r in records(cwd, "run") if r["event"] == "step"]
    mean = sum(r["images_per_second"] * r["seconds"] for r in steps) / sum(r["seconds"] for r in steps)
    assert len(steps) == 24 and abs(mean - float(speed)) <= 0.51, (mean, speed)


def colours_are_for_terminals(cwd):
    import pty
    for env, coloured in ({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False):
        ours, theirs = pty.openpty()
        command = [PROGRAM, *NOISE, *SMALL, "--progress", "auto", "--max-steps", "2", "--eval-every", "0"]
        with subprocess.Popen(command, cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm", **env}) as p:
            os.close(theirs)
            said = b""
            try:
                while part := os.read(ours, 65536):
                    said += part
            except OSError:  # the program has ended
                pass
        os.close(ours)
        assert p.returncode == OK and (b"\033[36m" in said) == coloured and b"epoch 1" in said, (env, said)
    assert "\033" not in run(*NOISE, *SMALL, "--progress", "auto", "--max-steps", "2", cwd=cwd).stderr


def aliases_short_epochs_and_closed_pipes_are_handled(cwd):
    config = run(*NOISE, "--model", "resnet18", "--num-workers", "2", "--opt", "adamw", "--smoothing", "0.2", "--gradient-accumulation-steps", "3",
                 "--print-config", cwd=cwd).stdout
    for line in "arch: resnet18", "workers: 2", "optim: adamw", "label-smoothing: 0.2", "grad-accum: 3":
        assert f"\n{line}\n" in config, line
    fails(*NOISE, *SMALL, "--limit-train-batches", "1", "--grad-accum", "2", cwd=cwd, code=USAGE,
          says="--limit-train-batches 1: an update takes --grad-accum 2 of them")
    piped = subprocess.run(f"'{PROGRAM}' --help | head -1", shell=True, cwd=cwd, capture_output=True, text=True, timeout=60)
    assert not piped.stderr and piped.stdout, piped


ROWS = [common_aliases_of_options_are_accepted, the_speed_of_a_run_is_the_same_number_everywhere, colours_are_for_terminals, aliases_short_epochs_and_closed_pipes_are_handled, a_multistep_schedule_needs_milestones,
        flags_without_a_meaning_are_refused, unusable_files_are_refused,
        settings_that_others_leave_unread_are_rejected, what_begins_after_the_run_is_rejected,
        state_memory_limits_the_state_to_adams,
        errors_in_a_config_are_reported_even_if_overridden,
        a_different_class_count_suggests_reset_head, a_backbone_without_head_is_fine_tuned, counts_converted_to_floats_are_ignored,
        a_folder_means_its_weights, fine_tuning_keeps_the_defaults_of_other_flags, flags_that_contradict_the_weights_are_rejected,
        a_resume_with_different_state_names_the_flag, prefixes_of_wrappers_are_removed,
        other_groups_are_named, frozen_batch_norms_do_not_change,
        help_explains_parameter_group_factors, help_lists_common_options_and_the_rest_by_topic,
        removed_options_are_rejected_with_a_replacement, choices_for_small_images_are_reported,
        the_table_of_blocks_is_shown_on_demand, a_profile_creates_its_folder,
        a_resume_with_a_different_batch_size_names_the_old_one, inspect_summarizes_a_run_folder,
        statistics_of_a_run_and_of_its_checkpoint_agree]

sys.exit(run_rows(ROWS, "lather-usage-", *sys.argv[2:3]))
