#!/usr/bin/env python3
"""Language models on the trainer: tests/models/bigram.c and models/gpt support everything that an image model does.

    language.py TRAIN_BIGRAM|TRAIN_GPT MPIRUN|none [ROW]
"""
import json
import math
import os
import re
import struct
import subprocess
import sys

from trainer import (ERROR, NAME, PROGRAM, SOURCE, TOOLS, USAGE, checkpoint, digest, epochs_of, fails, full, metadata_of, read_header,
                     read_safetensors, run, run_ranks, run_rows, same, steps_of, write_header, write_safetensors)

LAUNCHER = sys.argv[2]
IS_GPT = NAME == "train_gpt"
MODEL = ["--layers", "2", "--width", "16", "--heads", "2", "--positions", "64"] if IS_GPT else []
QUIET = [*MODEL, "--batch-size", "8", "--threads", "1", "--workers", "1", "--progress", "off", "--deterministic", "--optim", "adamw",
         "--lr", "0.01", "--seq-len", "16"]
WEIGHTS = os.path.join("made", "model.safetensors")
LINE = re.compile(r"perplexity ([\d.]+), loss ([\d.]+), accuracy ([\d.]+) % over (\d+) tokens\n")
WORDS = "the quick brown fox jumps over the lazy dog. "
CHARACTERS = len(set(WORDS)) + 1  # ids of the tokenizer char on them: one for others


def text(cwd, name="text.txt", count=2500, words=WORDS):
    with open(os.path.join(cwd, name), "w") as f:
        f.write((words * (count // len(words) + 1))[:count])
    return ["--data", name]


def made(cwd, *flags, data=None):
    run(*(data or text(cwd)), *QUIET, "--max-steps", "6", "--output", "made", *flags, cwd=cwd)


def evaluated(cwd, *flags, data=("--data", "text.txt")):
    """Returns perplexity, loss, accuracy and the number of tokens."""
    out = run("--eval", "--weights", WEIGHTS, *data, "--threads", "1", *flags, cwd=cwd).stdout
    return tuple(float(x) for x in LINE.fullmatch(out).groups())


def weights(cwd, folder, dtype="F32"):
    tensors = read_safetensors(os.path.join(cwd, folder, "model.safetensors"))
    return {name: struct.unpack(f"<{len(data) // 4}f", data) for name, (kind, _, data) in tensors.items() if kind == dtype}


def distance(a, b):
    return max(abs(x - y) for name in a for x, y in zip(a[name], b[name]))


def evaluation_equals_that_of_training(cwd):
    made(cwd)
    last = epochs_of(cwd, "made")[-1]
    perplexity, loss, accuracy, _ = evaluated(cwd)
    assert abs(last["val_perplexity"] - perplexity) < 1e-3 and abs(last["val_loss"] - loss) < 1e-4, (last, perplexity, loss)
    assert abs(last["val_accuracy"] - accuracy) < 1e-2 and abs(math.exp(loss) - perplexity) < 1e-2, (last, accuracy)


def the_perplexity_decreases(cwd):
    made(cwd, "--epochs", "12", "--max-steps", "0")
    epochs = epochs_of(cwd, "made")
    # 257 ids; in this text the next character is nearly certain except after 'e', 'o', 'r', 'u', 'h' and spaces.
    assert epochs[0]["val_perplexity"] > (15 if IS_GPT else 50) and epochs[-1]["val_perplexity"] < 6, [e["val_perplexity"] for e in epochs]
    assert epochs[-1]["train_accuracy"] > 60, epochs[-1]


def throughput_is_in_tokens(cwd):
    made(cwd)
    for step in steps_of(cwd, "made"):
        assert abs(step["tokens_per_second"] * step["seconds"] - 8 * 16) < 1e-6 and "images_per_second" not in step, step
    with open(checkpoint(cwd, "made", 6, "state.json")) as f:
        state = json.load(f)
    assert (state["unit"], state["sequences"], state["classes"]) == ("sequences", 48, 257), state


def every_token_counts_once_in_an_evaluation(cwd):
    """The loss of a bigram model does not depend on sequence boundaries; the last sequence is padded."""
    made(cwd)
    found = {length: evaluated(cwd, "--seq-len", str(length)) for length in (1, 7, 16, 64)}
    found["batches of 3"] = evaluated(cwd, "--eval-batch-size", "3")
    for perplexity, loss, accuracy, tokens in found.values():
        assert abs(loss - found[1][1]) < 2e-5 and abs(perplexity - found[1][0]) < 4e-3 and (accuracy, tokens) == found[1][2:], found


def a_resumed_run_is_bitwise_identical(cwd):
    flags = [*text(cwd), *QUIET, "--optim", "shampoo", "--precondition-frequency", "3", "--ema-decay", "0.9", "--epochs", "3"]
    run(*flags, "--max-steps", "24", "--keep", "0", "--output", "whole", cwd=cwd)
    for steps in ("4", "21", "24"):
        run(*flags, "--max-steps", steps, "--keep", "0", "--output", "parts", "--resume", "auto", cwd=cwd)
    same(cwd, "whole", "parts", 24)
    assert digest(os.path.join(cwd, "whole", "model.safetensors")) == digest(os.path.join(cwd, "parts", "model.safetensors"))
    assert digest(checkpoint(cwd, "whole", 24)) != digest(checkpoint(cwd, "parts", 21)), "the last steps changed nothing"


def the_number_of_threads_changes_no_bit(cwd):
    flags = [*text(cwd), *QUIET, "--max-steps", "5"]
    for threads in ("1", "3"):
        run(*flags, "--device", "ref", "--threads", threads, "--workers", threads, "--output", threads, cwd=cwd)
    same(cwd, "1", "3", 5)


def micro_batches_equal_one_batch(cwd):
    flags = [*text(cwd), *QUIET, "--max-steps", "5", "--optim", "sgd", "--lr", "0.5"]
    run(*flags, "--batch-size", "8", "--output", "one", cwd=cwd)
    run(*flags, "--batch-size", "2", "--grad-accum", "4", "--output", "parts", cwd=cwd)
    run(*flags, "--batch-size", "8", "--seed", "1", "--output", "other", cwd=cwd)
    one, parts, other = (weights(cwd, folder) for folder in ("one", "parts", "other"))
    assert distance(one, parts) < 1e-6 < distance(one, other), distance(one, parts)


def two_ranks_equal_one(cwd):
    flags = [*text(cwd), *QUIET, "--max-steps", "9", "--optim", "sgd", "--lr", "0.5"]
    run_ranks(LAUNCHER, 2, *flags, "--batch-size", "4", "--output", "two", cwd=cwd)
    run(*flags, "--batch-size", "8", "--output", "one", cwd=cwd)
    run(*flags, "--batch-size", "4", "--output", "half", cwd=cwd)
    one, two, half = (weights(cwd, folder) for folder in ("one", "two", "half"))
    assert distance(one, two) < 1e-6 < distance(one, half), distance(one, two)
    a, b = (epochs_of(cwd, folder)[-1] for folder in ("one", "two"))
    assert a["val_accuracy"] == b["val_accuracy"] and abs(a["val_loss"] - b["val_loss"]) < 1e-6, (a, b)


def weights_contain_their_vocabulary(cwd):
    made(cwd, "--tokenizer", "char")
    found = metadata_of(os.path.join(cwd, WEIGHTS))
    assert found["tokenizer"].startswith("char:") and found["sequence_length"] == "16", found
    assert found["classes"] == found["vocabulary_size"] == str(len(set(WORDS)) + 1) and len(found["vocabulary_hash"]) == 16, found
    assert found["width"] == "16" and (not IS_GPT or (found["layers"], found["heads"]) == ("2", "2")), found


def evaluation_uses_the_tokenizer_of_the_weights(cwd):
    made(cwd, "--tokenizer", "char")
    assert evaluated(cwd, data=text(cwd, "other.txt", 300, "over the dog the lazy fox "))[3] > 20
    text(cwd, "strange.txt", 300, "ZEBRA ")
    fails("--eval", "--weights", WEIGHTS, "--data", "strange.txt", cwd=cwd, says="strange.txt")


def a_different_vocabulary_is_rejected(cwd):
    made(cwd, "--tokenizer", "char")
    for flags in (["--eval"], ["--max-steps", "1", *QUIET], ["--max-steps", "1", *QUIET, "--width", "16"]):
        said = run(*flags, "--weights", WEIGHTS, "--data", "text.txt", "--tokenizer", "byte", cwd=cwd, code=ERROR).stderr
        assert "byte" in said and "char" in said and WEIGHTS in said and "text.txt" in said, said


def a_resume_with_a_different_vocabulary_is_rejected(cwd):
    made(cwd)
    run("--data", "text.txt", *QUIET, "--tokenizer", "char", "--max-steps", "8", "--output", "made", "--resume", "auto", cwd=cwd, code=ERROR)


def a_model_may_have_more_ids_than_the_tokenizer(cwd):
    made(cwd, "--vocab-size", "300")
    found = metadata_of(os.path.join(cwd, WEIGHTS))
    assert (found["classes"], found["vocabulary_size"]) == ("300", "257"), found
    assert evaluated(cwd)[3] > 200
    fails("--data", "text.txt", *QUIET, "--vocab-size", "200", cwd=cwd, code=USAGE, says="--vocab-size 200: the tokenizer byte has 257 ids")


def weights_without_a_tokenizer_need_one_that_fits(cwd):
    for tokenizer, size, other, others, more in (("char", CHARACTERS, "byte", 257, ""),
                                                 ("byte", 257, "char", CHARACTERS, "; if it belongs to the weights, set --vocab-size to the larger")):
        made(cwd, "--tokenizer", tokenizer, "--overwrite")
        header, data = read_header(os.path.join(cwd, WEIGHTS))
        known = {key: value for key, value in header["__metadata__"].items() if key != "tokenizer" and not key.startswith("vocabulary")}
        write_header(os.path.join(cwd, f"{tokenizer}.safetensors"), dict(header, __metadata__=known), data)
        said = run("--eval", "--weights", f"{tokenizer}.safetensors", "--data", "text.txt", "--tokenizer", other, cwd=cwd, code=ERROR).stderr
        assert f"{tokenizer}.safetensors: the model has {size} ids, but the tokenizer {other}" in said and f" of text.txt has {others}{more}" in said, said
    for words, code, says in (([], USAGE, "its metadata have no tokenizer; set --tokenizer"),
                              (["--tokenizer", "byte"], ERROR, f"the model has {CHARACTERS} ids, but the tokenizer byte has 257")):
        if IS_GPT:
            p = subprocess.run([PROGRAM, "sample", "--weights", "char.safetensors", *words], cwd=cwd, capture_output=True, text=True, timeout=60)
            assert p.returncode == code and f"char.safetensors: {says}" in p.stderr, (words, p.returncode, p.stderr)


def a_sequence_longer_than_the_positions_is_rejected(cwd):
    fails(*text(cwd), *QUIET, "--seq-len", "65", cwd=cwd, code=USAGE, says="--seq-len 65: the model has 64 positions")
    made(cwd, "--positions", "16")
    fails("--eval", "--weights", WEIGHTS, "--data", "text.txt", "--seq-len", "17", cwd=cwd, code=USAGE, says="the model has 16 positions")


def invalid_metadata_is_rejected(cwd):
    made(cwd)
    header, data = read_header(os.path.join(cwd, WEIGHTS))
    rows = [("sequence_length", "-1", "sequence_length"), ("sequence_length", "99999999999999999999", "sequence_length"),
            ("sequence_length", "", "sequence_length"), ("vocabulary_hash", "no hash", "vocabulary_hash"),
            ("vocabulary_size", "1e3", "vocabulary_size"), ("vocabulary_hash", "1", "hash 0000000000000001")]
    rows += [] if IS_GPT else [("classes", "0", "classes")]  # GPT's are known from a shape
    for key, value, word in rows:
        changed = dict(header, __metadata__=dict(header["__metadata__"], **{key: value}))
        write_header(os.path.join(cwd, "changed.safetensors"), changed, data)
        fails("--eval", "--weights", "changed.safetensors", "--data", "text.txt", cwd=cwd, says=word)


def the_sequence_length_comes_from_the_weights(cwd):
    made(cwd, "--seq-len", "32")
    said = run("--eval", "--weights", WEIGHTS, "--data", "text.txt", cwd=cwd).stderr
    assert "sequences of 32 tokens" in said, said


def batch_norm_flags_are_rejected(cwd):
    model = "gpt of 2 blocks of width 16, 2 heads" if IS_GPT else "bigram"
    flags = [*text(cwd), *QUIET]
    fails(*flags, "--sync-bn", cwd=cwd, code=USAGE, says=f"--sync-bn: the model, {model}, has no batch norm")
    fails(*flags, "--dist-bn", "reduce", cwd=cwd, code=USAGE, says=f"--dist-bn: the model, {model}, has no batch norm")


def no_layer_is_reset(cwd):
    made(cwd)
    fails("--data", "text.txt", *QUIET, "--max-steps", "1", "--weights", WEIGHTS, "--reset-head", cwd=cwd,
          says=f"--reset-head: {'gpt' if IS_GPT else 'bigram'} models have no last layer of that kind")


def a_target_ends_the_run(cwd):
    target = "2" if IS_GPT else "30"
    made(cwd, "--epochs", "12", "--max-steps", "0", "--target-perplexity", target)
    epochs = epochs_of(cwd, "made")
    assert len(epochs) < 12 and epochs[-1]["val_perplexity"] <= float(target) < epochs[-2]["val_perplexity"], epochs
    fails(*text(cwd), *QUIET, "--max-steps", "1", "--target-perplexity", target, "--eval-every", "-1", cwd=cwd, code=USAGE,
          says="--target-perplexity: needs evaluations during the run, but --eval-every is -1")


def the_best_checkpoint_has_the_lowest_perplexity(cwd):
    made(cwd, "--epochs", "3", "--max-steps", "0", "--keep", "0")
    lowest = min(epochs_of(cwd, "made"), key=lambda e: e["val_perplexity"])
    with open(os.path.join(cwd, "made", "checkpoints", "best", "state.json")) as f:
        assert json.load(f)["step"] == lowest["step"]


def reports_are_in_tokens(cwd):
    made(cwd, "--epochs", "2", "--max-steps", "0")
    last = epochs_of(cwd, "made")[-1]["val_perplexity"]
    subprocess.run([os.path.join(TOOLS, "report"), "made"], cwd=cwd, check=True, timeout=60, stdout=subprocess.DEVNULL)
    with open(os.path.join(cwd, "made", "report.html")) as f:
        page = f.read()
    assert " tokens/s" in page and "images" not in page and f"{last:.4g}</span><br>perplexity in evaluation" in page, page
    p = subprocess.run([os.path.join(TOOLS, "inspect"), "made"], cwd=cwd, check=True, timeout=60, capture_output=True, text=True)
    assert "tokens/s" in p.stdout and f"perplexity   {last:.6g}" in p.stdout and "images" not in p.stdout, p.stdout


def the_help_mentions_no_images(cwd):
    said = run("--help", "all", cwd=cwd).stdout
    options = said[said.index("Data:"):]
    assert "--seq-len N" in said and "sequences per rank and micro-batch" in said, said
    for word in ("image", "top1", "num-classes", "augment ", "crop"):
        assert word not in options, word
    fails("--max-steps", "1", cwd=cwd, code=USAGE, says="--data: missing; give a token file, a text file")


def too_little_text_is_reported(cwd):
    fails(*text(cwd, count=100), *QUIET, cwd=cwd, code=USAGE, says="sequences to train on")
    fails("--data", "nothing.txt", *QUIET, cwd=cwd, says="nothing.txt")
    fails(*text(cwd), *QUIET, "--val-fraction", "0", cwd=cwd, code=USAGE, says="--val-fraction")


def sampled(cwd, *flags):
    return run("sample", "--weights", WEIGHTS, "--threads", "1", *flags, cwd=cwd).stdout


def sampling_with_a_cache_equals_sampling_without(cwd):
    """Holds up to the number of positions; beyond it, a cached text continues from its second half."""
    made(cwd, "--epochs", "4", "--max-steps", "0", "--lr", "0.03")
    for flags in (["--temperature", "0"], ["--temperature", "1", "--seed", "3"], ["--top-k", "5"], ["--top-p", "0.8"]):
        a, b = (sampled(cwd, "--tokens", "50", "--prompt", "the qu", *flags, *how) for how in ([], ["--no-cache"]))
        assert a == b and a.startswith("the qu") and len(a) > 30, (flags, a, b)
    assert sampled(cwd, "--tokens", "50", "--top-p", "0", "--temperature", "1") == sampled(cwd, "--tokens", "50", "--temperature", "0")
    one, other = (sampled(cwd, "--tokens", "50", "--temperature", "1", "--seed", seed) for seed in "12")
    assert one != other, "two seeds give the same text"


def a_sample_may_be_longer_than_the_positions(cwd):
    made(cwd, "--tokenizer", "char", "--epochs", "4", "--max-steps", "0", "--lr", "0.03")
    several = sampled(cwd, "--tokens", "150", "--count", "2", "--temperature", "1").split("---\n")
    assert len(several) == 2 and several[0] != several[1] and min(len(s) for s in several) > 100, several
    assert sampled(cwd, "--tokens", "150", "--temperature", "1") == several[0], "a text depends on the other samples"


def several_prompts_are_sampled_together(cwd):
    """Each text is that which its prompt alone gives, whatever the lengths of the other prompts."""
    made(cwd, "--tokenizer", "char", "--epochs", "4", "--max-steps", "0", "--lr", "0.03")
    prompts = ["the qu", "o", "the lazy dog jumps"]
    for flags in (["--temperature", "0"], ["--no-cache", "--top-k", "5", "--temperature", "0"], ["--temperature", "0", "--tokens", "70"]):
        flags = ["--tokens", "30", *flags]
        alone = [sampled(cwd, *flags, "--prompt", prompt) for prompt in prompts]
        together = sampled(cwd, *flags, *(word for prompt in prompts for word in ("--prompt", prompt)))
        assert together.split("---\n") == alone and all(text.startswith(p) for text, p in zip(alone, prompts)), (flags, together, alone)
    flags = ["--tokens", "30", "--temperature", "1", "--prompt", "the", "--prompt", "o", "--count", "3"]
    sizes = [sampled(cwd, *flags, "--batch-size", size) for size in ("1", "4", "16")]
    assert len(set(sizes)) == 1 and len(set(sizes[0].split("---\n"))) == 6, sizes
    for flags, all_tokens in (["--no-end-of-text"], True), ([], False):  # nearly uniform ids
        random = [PROGRAM, "sample", "--weights", WEIGHTS, "--tokens", "300", "--temperature", "50", "--speed", "--count", "4", *flags]
        said = subprocess.run(random, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True, timeout=60).stderr
        assert ("1200 tokens, " in said) == all_tokens, (flags, said)
    p = subprocess.run([PROGRAM, "sample", "--weights", WEIGHTS, "--batch-size", "0"], cwd=cwd, capture_output=True, text=True, timeout=60)
    assert p.returncode == USAGE and "--batch-size: 0 is not in 1..65536" in p.stderr, p
    p = subprocess.run([PROGRAM, "sample", "--weights", WEIGHTS, "--prompt", "a", "--prompt", "the ü"], cwd=cwd, capture_output=True, text=True, timeout=60)
    assert p.returncode == ERROR and "--prompt" in p.stderr and not p.stdout, p  # no text before all prompts are known
    p = subprocess.run(f"'{PROGRAM}' sample --weights {WEIGHTS} --tokens 1000000 --no-end-of-text | head -c 20", shell=True, cwd=cwd, capture_output=True, timeout=60)
    assert len(p.stdout) == 20 and b"output" not in p.stderr, p  # ends with its reader


def sampling_reports_missing_arguments(cwd):
    p = subprocess.run([PROGRAM, "sample"], cwd=cwd, capture_output=True, text=True, timeout=60)
    assert p.returncode == USAGE and "--weights: missing" in p.stderr, p.stderr
    made(cwd, "--tokenizer", "char")
    p = subprocess.run([PROGRAM, "sample", "--weights", WEIGHTS, "--tokenizer", "byte"], cwd=cwd, capture_output=True, text=True, timeout=60)
    assert p.returncode == ERROR and WEIGHTS in p.stderr and "byte" in p.stderr and not p.stdout, p.stderr


def huggingface_weights_are_loaded(cwd):
    """Names with prefix "transformer.", masks, and a last layer that equals the embeddings; others are rejected."""
    made(cwd)
    tensors = read_safetensors(os.path.join(cwd, WEIGHTS))
    said = metadata_of(os.path.join(cwd, WEIGHTS))
    longer = {f"transformer.{name}": entry for name, entry in tensors.items()}
    longer["transformer.h.0.attn.bias"] = ("F32", [1, 1, 2, 2], struct.pack("<4f", 1, 0, 1, 1))
    longer["lm_head.weight"] = tensors["wte.weight"]
    want = evaluated(cwd)
    write_safetensors(os.path.join(cwd, WEIGHTS), longer, said)
    assert evaluated(cwd) == want
    kind, shape, data = tensors["wte.weight"]
    longer["lm_head.weight"] = (kind, shape, data[:-1] + bytes([data[-1] ^ 1]))
    write_safetensors(os.path.join(cwd, WEIGHTS), longer, said)
    fails("--eval", "--weights", WEIGHTS, "--data", "text.txt", cwd=cwd, says="'lm_head.weight' differs from 'wte.weight'")


def bare(cwd, config=None):
    """Saves the weights like HuggingFace: without metadata, with a config.json next to them."""
    os.makedirs(os.path.join(cwd, "hf"), exist_ok=True)
    write_safetensors(os.path.join(cwd, "hf", "model.safetensors"), read_safetensors(os.path.join(cwd, WEIGHTS)))
    if config is not None:
        with open(os.path.join(cwd, "hf", "config.json"), "w") as f:
            json.dump({"model_type": "gpt2", "n_layer": 2, "n_embd": 16, "n_inner": None, **config}, f)


def nanogpts_layout_is_read(cwd):
    """Matrices are [out,in] there; biases may be missing, which are then zeros."""
    made(cwd, "--lr", "0.1", "--epochs", "3", "--max-steps", "0")
    plain = read_safetensors(os.path.join(cwd, WEIGHTS))
    data = ["--data", "text.txt", "--threads", "1", "--seq-len", "16", "--heads", "2"]

    def loss(tensors):
        write_safetensors(os.path.join(cwd, "w.safetensors"), tensors)
        return LINE.fullmatch(run("--eval", "--weights", "w.safetensors", *data, cwd=cwd).stdout).group(2)

    def turned(tensors):
        made = {}
        for name, (dtype, shape, data) in tensors.items():
            if ".c_" in name and len(shape) == 2:
                rows, columns = shape
                data = b"".join(data[4 * (i * columns + j):][:4] for j in range(columns) for i in range(rows))
                shape = [columns, rows]
            made["_orig_mod.transformer." + name] = dtype, shape, data
        return made
    assert loss(turned(plain)) == loss(plain)
    zeros = {k: (dtype, shape, bytes(len(data)) if k.endswith(".bias") else data) for k, (dtype, shape, data) in plain.items()}
    assert loss(turned({k: v for k, v in plain.items() if not k.endswith(".bias")})) == loss(zeros) != loss(plain)


def heads_come_from_a_flag_metadata_or_config_json(cwd):
    made(cwd, "--lr", "0.1", "--epochs", "3", "--max-steps", "0")
    data = ["--data", "text.txt", "--threads", "1", "--seq-len", "16"]

    def loss(path, *flags):
        p = run("--eval", "--weights", path, *data, *flags, cwd=cwd)
        return LINE.fullmatch(p.stdout).group(2), p.stderr

    want, said = loss(WEIGHTS)
    assert "16, 2 heads" in said and "warn" not in said, said
    bare(cwd)
    fails("--eval", "--weights", "hf", *data, cwd=cwd, code=USAGE, says="hf: its heads is unknown: not in its metadata")
    assert loss("hf", "--heads", "1")[0] != want
    found, said = loss("hf", "--heads", "2")
    assert found == want and "warn" not in said, (found, want, said)
    flags = ["--prompt", "the qu", "--tokens", "20", "--temperature", "0", "--tokenizer", "byte", "--threads", "1"]
    texts = [run("sample", "--weights", *which, *flags, cwd=cwd).stdout for which in ([WEIGHTS], ["hf", "--heads", "2"])]
    assert texts[0] == texts[1], texts
    run(*data, "--weights", "hf", "--heads", "2", "--activation", "gelu", "--batch-size", "8", "--max-steps", "1", "--optim", "adamw",
        "--progress", "off", "--output", "fine", cwd=cwd)  # the other sizes come from the file
    found = metadata_of(os.path.join(cwd, "fine", "model.safetensors"))
    assert [found[key] for key in ("activation", "heads", "layers", "positions")] == ["gelu", "2", "2", "64"], found
    bare(cwd, {"n_head": 2, "activation_function": "gelu"})
    fails("--eval", "--weights", "hf", *data, "--activation", "gelu-tanh", cwd=cwd, code=USAGE, says="hf has gelu, by its config.json")
    bare(cwd, {"n_head": 2, "activation_function": "gelu_new"})
    for path in ("hf", "hf/model.safetensors"):
        found, said = loss(path)
        assert found == want and "warn" not in said, (found, want, said)


def flags_that_contradict_the_weights_are_rejected(cwd):
    made(cwd)
    flags = ["--eval", "--data", "text.txt", "--threads", "1", "--weights"]
    for flag, value, says in (("layers", "7", "has 2, by its tensors"), ("heads", "4", "has 2, by its metadata"),
                              ("activation", "gelu", "has gelu-tanh, by its metadata"), ("positions", "9", "has 64, by its tensors")):
        fails(*flags, WEIGHTS, f"--{flag}", value, cwd=cwd, code=USAGE, says=f"--{flag} {value}: {WEIGHTS} {says}")
    fails(*flags, WEIGHTS, "--arch", "gpt2", cwd=cwd, code=USAGE, says=f"--arch gpt2: {WEIGHTS} holds another model, gpt of 2 blocks")
    fails(*flags, WEIGHTS, "--vocab-size", "300", cwd=cwd, code=USAGE, says=f"--vocab-size 300: {WEIGHTS} has 257")
    fails(*flags[1:], WEIGHTS, "--layers", "7", "--max-steps", "1", cwd=cwd, code=USAGE, says="--layers 7")
    run(*flags, WEIGHTS, "--layers", "2", "--heads", "2", "--width", "16", "--arch", "gpt2", cwd=cwd)  # matching flags
    for config, says in (({"n_head": 2, "n_layer": 3}, "'n_layer' is 3, by the tensors 2"), ({"vocab_size": 9}, "'vocab_size' is 9"),
                         ({"scale_attn_by_inverse_layer_idx": True}, "'scale_attn_by_inverse_layer_idx' true is not supported; supported: false"),
                         ({"activation_function": "relu"}, "'activation_function' relu is not supported"),
                         ({"layer_norm_epsilon": 1e-6}, "'layer_norm_epsilon' 1e-06 is not supported; supported: 1e-05"),
                         ({"tie_word_embeddings": False}, "'tie_word_embeddings' false")):
        bare(cwd, config)
        fails(*flags, "hf", cwd=cwd, says=f"hf/config.json: {says}")
    bare(cwd, {"n_head": 2})
    fails(*flags, "hf", "--heads", "4", cwd=cwd, code=USAGE, says="--heads 4: hf has 2, by its config.json")


def masks_of_any_dtype_are_ignored(cwd):
    made(cwd)
    want, said, tensors = evaluated(cwd), metadata_of(os.path.join(cwd, WEIGHTS)), read_safetensors(os.path.join(cwd, WEIGHTS))
    for kind, size in (("BOOL", 1), ("I8", 1), ("I16", 2), ("F8_E4M3", 1), ("C64", 8)):
        write_safetensors(os.path.join(cwd, WEIGHTS), {**tensors, "h.0.attn.bias": (kind, [1, 1, 2, 2], bytes(4 * size))}, said)
        assert evaluated(cwd) == want, kind
    write_safetensors(os.path.join(cwd, WEIGHTS), {**tensors, "ln_f.weight": ("BOOL", [16], bytes(16))}, said)
    fails("--eval", "--weights", WEIGHTS, "--data", "text.txt", cwd=cwd, says="'ln_f.weight' is BOOL, but the model needs f32")


def a_prompt_may_have_no_start_token(cwd):
    made(cwd, "--tokenizer", "char", "--epochs", "4", "--max-steps", "0", "--lr", "0.1")
    flags = ["--tokens", "30", "--temperature", "1", "--prompt"]
    on, usual, off = (sampled(cwd, *flags, "t", *more) for more in (["--bos", "on"], [], ["--bos", "off"]))
    assert on == usual != off, (on, usual, off)
    assert sampled(cwd, *flags, "", "--bos", "off") == sampled(cwd, *flags, ""), "an empty prompt does not begin a document"


def heads_must_divide_the_width(cwd):
    fails(*text(cwd), *QUIET, "--heads", "3", cwd=cwd, code=USAGE, says="gpt: 3 heads do not divide the width, 16")
    fails(*text(cwd), *QUIET, "--kv-heads", "3", cwd=cwd, code=USAGE, says="3 heads of keys and values do not divide the 2")


def llama_variants_train_and_resume(cwd):
    forms = ["--norm", "rmsnorm", "--activation", "swiglu", "--position", "rotary", "--kv-heads", "1", "--dropout", "0.1"]
    flags = [*text(cwd), *QUIET, *forms, "--tokenizer", "char", "--epochs", "2"]
    run(*flags, "--max-steps", "12", "--output", "whole", "--keep", "0", cwd=cwd)
    for steps in ("5", "12"):
        run(*flags, "--max-steps", steps, "--output", "made", "--resume", "auto", "--keep", "0", cwd=cwd)
    same(cwd, "whole", "made", 12)
    assert evaluated(cwd)[0] < 200 and len(sampled(cwd, "--tokens", "40", "--temperature", "1")) > 10


def steps_that_overflow_are_skipped(cwd):
    """At the initial scale of 2^16, the gradient of a single target's logit overflows f16."""
    flags = [*text(cwd), *QUIET, "--device", "ref", "--amp", "f16", "--batch-size", "1", "--seq-len", "1", "--keep", "0",
             "--limit-eval-batches", "4", "--epochs", "1"]
    run(*flags, "--max-steps", "8", "--output", "whole", cwd=cwd)
    steps, before = steps_of(cwd, "whole"), 65536
    for step in steps:
        assert step["loss_scale"] == (before / 2 if step.get("skipped") else before), steps
        before = step["loss_scale"]
    assert steps[0].get("skipped") and not all(step.get("skipped") for step in steps), steps
    for count in ("1", "3", "8"):
        run(*flags, "--max-steps", count, "--output", "parts", "--resume", "auto", cwd=cwd)
    same(cwd, "whole", "parts", 8)


def a_program_adds_a_command(cwd):
    made(cwd)
    p = run("ids", "--weights", WEIGHTS, "--text", "fox", cwd=cwd)
    assert p.stdout == "102\n111\n120\n", p.stdout
    p = subprocess.run([PROGRAM, "ids", "--weights", WEIGHTS, "--text", "fox", "--tokenizer", "char:fox"], cwd=cwd,
                       capture_output=True, text=True, timeout=60)
    assert p.returncode == ERROR and WEIGHTS in p.stderr and "char:fox" in p.stderr and not p.stdout, p.stderr


def every_recipe_loads(cwd):
    names = sorted(n[:-5] for n in os.listdir(os.path.join(SOURCE, "models", "gpt", "recipes")))
    assert names == ["gpt2-124m", "shakespeare-char"], names
    for name in names:
        config = run("--recipe", name, *text(cwd), "--lr", "0.5", "--print-config", cwd=cwd).stdout.splitlines()
        assert "lr: 0.5" in config and "optim: adamw" in config and "clip-grad: 1" in config, config
    fails("--recipe", "vit-b16-torchvision", *text(cwd), cwd=cwd, code=USAGE, says="unknown recipe 'vit-b16-torchvision'")


COMMON = [evaluation_equals_that_of_training, the_perplexity_decreases, throughput_is_in_tokens,
        a_resumed_run_is_bitwise_identical, the_number_of_threads_changes_no_bit, micro_batches_equal_one_batch, two_ranks_equal_one,
        weights_contain_their_vocabulary, evaluation_uses_the_tokenizer_of_the_weights, a_different_vocabulary_is_rejected,
        a_resume_with_a_different_vocabulary_is_rejected, weights_without_a_tokenizer_need_one_that_fits, a_model_may_have_more_ids_than_the_tokenizer, a_sequence_longer_than_the_positions_is_rejected,
        invalid_metadata_is_rejected, the_sequence_length_comes_from_the_weights, batch_norm_flags_are_rejected, no_layer_is_reset,
        a_target_ends_the_run, the_best_checkpoint_has_the_lowest_perplexity, reports_are_in_tokens,
        the_help_mentions_no_images, too_little_text_is_reported]
BIGRAM = [every_token_counts_once_in_an_evaluation, a_program_adds_a_command]
GPT = [sampling_with_a_cache_equals_sampling_without, a_sample_may_be_longer_than_the_positions, several_prompts_are_sampled_together, sampling_reports_missing_arguments,
       huggingface_weights_are_loaded, nanogpts_layout_is_read, heads_come_from_a_flag_metadata_or_config_json, flags_that_contradict_the_weights_are_rejected,
       masks_of_any_dtype_are_ignored, a_prompt_may_have_no_start_token, heads_must_divide_the_width, llama_variants_train_and_resume, steps_that_overflow_are_skipped,
       every_recipe_loads]
# Rows for both models; the other common rows test only code of the trainer and the task.
BOTH = [evaluation_equals_that_of_training, the_perplexity_decreases, a_resumed_run_is_bitwise_identical, micro_batches_equal_one_batch, weights_contain_their_vocabulary,
        a_sequence_longer_than_the_positions_is_rejected, invalid_metadata_is_rejected, batch_norm_flags_are_rejected, the_help_mentions_no_images]
if IS_GPT:
    COMMON = [row if row in BOTH or row is two_ranks_equal_one else full(row) for row in COMMON]
else:
    full(two_ranks_equal_one)
ROWS = COMMON + (GPT if IS_GPT else BIGRAM)

sys.exit(run_rows(ROWS, "lather-language-", *sys.argv[3:4]))
