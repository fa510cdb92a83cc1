#!/usr/bin/env python3
"""Makes bpe/: a small byte-level vocabulary, and unusual texts encoded with it by Hugging Face's tokenizers.

Needs Hugging Face's tokenizers; only used to regenerate the files:
    python3 tests/golden/make_bpe_fixture.py tests/golden/bpe

    vocab.json, merges.txt    the vocabulary in the format of GPT-2's files
    whole/tokenizer.json      the same in one file, in the newer format
    cases.txt                 texts and their ids, a line each: the text as JSON, a tab, ids

The vocabulary is trained on this project's documentation and the sentences below. The texts are those, lines of
the documentation, and random ones of characters that Unicode 15.1 has, of all the kinds that GPT-2's pattern of
words tells apart. Python's unicodedata says which these are, so a Python of that version (3.13) runs this.
"""
import json
import pathlib
import random
import sys
import unicodedata

import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SIZE = 700
END = "<|endoftext|>"
SENTENCES = [
    "It's what we've got, and they'll say I'd not; we're here, I'm there, it'S NOT, 's 't 're",
    "  two spaces,   three,\n\nlines\r\n\ttabs \t mixed  \n  end  ",
    "na\u00efve caf\u00e9, Stra\u00dfe, \u0395\u03bb\u03bb\u03ac\u03b4\u03b1, \u041c\u043e\u0441\u043a\u0432\u0430 2024",
    "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3002\u4e2d\u6587\uff0c\ud55c\uad6d\uc5b4 \u0627\u0644\u0639\u0631\u0628\u064a\u0629"
    " \u05e2\u05d1\u05e8\u05d9\u05ea \u0939\u093f\u0928\u094d\u0926\u0940",
    "x\u00b2 + \u00bd = \u2167, \u0664\u0662 \u0967\u0968 1234567890 3.14e-10",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea e\u0301 \u200b\ufeff",
    "\u00a0no\u00a0break\u2003em\u3000ideographic\u2028line\u2029paragraph\u0085next\u1680ogham",
    "\x01\x02\x1b[0m \x1c\x1d\x1e\x1f\x7f\x80",
    "<|endoftext|> is text here",
    "a" * 300 + " " + "ab" * 200 + "!" * 77,
    " ", "\n", "'", "''s", " 's", "a 's", "'lla", "\u2019s", "   a", "a   ", " \n a", "0a0", "a0 a-0",
]
KINDS = {"letter": "L", "number": "N", "mark": "M", "other": "PSC", "space": "Z"}


def characters():
    """Returns characters by kind; those below U+0800 ten times, as they are more frequent in texts."""
    found = {kind: [] for kind in KINDS}
    for code in range(1, 0x110000):
        category = unicodedata.category(chr(code))
        if category in ("Cs", "Cn", "Co"):
            continue
        for kind, initials in KINDS.items():
            if category[0] in initials:
                found[kind] += [chr(code)] * (10 if code < 0x800 else 1)
    found["space"] += list(" \n\t\r\x0b\x0c\x85") * 20
    found["other"] += list("'") * 300
    return found


def random_texts(count, rng):
    kinds = characters()
    for _ in range(count):
        text = ""
        for _ in range(rng.randrange(1, 30)):
            text += "".join(rng.choices(kinds[rng.choice(list(kinds))], k=rng.randrange(1, 4)))
        yield text


def main(folder):
    assert unicodedata.unidata_version == "15.1.0", unicodedata.unidata_version
    folder = pathlib.Path(folder)
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=SIZE, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=[END], show_progress=False)
    english = (root / "docs/ARCHITECTURE.md").read_text()
    tokenizer.train_from_iterator([english] + SENTENCES, trainer)
    (folder / "whole").mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "whole/tokenizer.json"), pretty=False)
    tokenizer.model.save(str(folder))
    # In a text the special token is ordinary text, so encode with a tokenizer without it.
    plain = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    plain.pre_tokenizer = tokenizer.pre_tokenizer
    with open(folder / "cases.txt", "w", encoding="ascii") as out:
        print(f"# texts and their ids by tokenizers {tokenizers.__version__}; make_bpe_fixture.py, 2026-11-22",
              file=out)
        for text in SENTENCES + english.split("\n")[:100] + list(random_texts(300, random.Random(1))):
            ids = plain.encode(text, add_special_tokens=False).ids
            print(json.dumps(text), " ".join(map(str, ids)), sep="\t", file=out)


if __name__ == "__main__":
    main(*sys.argv[1:])
