#!/usr/bin/env python3
"""Parameters of transformers, and their blocks with Shampoo's preset "transformer"; needs numpy.

    transformer_blocks.py vit_s_16|gpt2 > MODEL_blocks.txt

Names and shapes are torchvision's VisionTransformer and GPT-2's (Dosovitskiy et al. 2021; Touvron et al. 2021 for the width of
S; Radford et al. 2019). "param NAME SHAPE", then its blocks in order, "blocks COUNT SHAPE FACTORS", computed by the model in
tests/oracle: FACTORS are the dimensions with a factor matrix, "-" if there are none, or "diagonal".
"""
import datetime, os, sys
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "oracle"))
import optim_model as model

TABLES = r"embedding|(^|[.])(wte|wpe|pos_embed)([.]|$)"


def vit(width, heads, layers, patch, side, classes):
    yield "class_token", (1, 1, width)
    yield "conv_proj.weight", (width, 3, patch, patch)
    yield "conv_proj.bias", (width,)
    yield "encoder.pos_embedding", (1, (side // patch) ** 2 + 1, width)
    for i in range(layers):
        at = f"encoder.layers.encoder_layer_{i}."
        for name, shape in (("ln_1.weight", (width,)), ("ln_1.bias", (width,)),
                            ("self_attention.in_proj_weight", (3 * width, width)), ("self_attention.in_proj_bias", (3 * width,)),
                            ("self_attention.out_proj.weight", (width, width)), ("self_attention.out_proj.bias", (width,)),
                            ("ln_2.weight", (width,)), ("ln_2.bias", (width,)), ("mlp.0.weight", (4 * width, width)),
                            ("mlp.0.bias", (4 * width,)), ("mlp.3.weight", (width, 4 * width)), ("mlp.3.bias", (width,))):
            yield at + name, shape
    yield "encoder.ln.weight", (width,)
    yield "encoder.ln.bias", (width,)
    yield "heads.head.weight", (classes, width)
    yield "heads.head.bias", (classes,)


def gpt2(width, layers, words, positions):
    yield "wte.weight", (words, width)
    yield "wpe.weight", (positions, width)
    for i in range(layers):
        for name, shape in (("ln_1.weight", (width,)), ("ln_1.bias", (width,)), ("attn.c_attn.weight", (width, 3 * width)),
                            ("attn.c_attn.bias", (3 * width,)), ("attn.c_proj.weight", (width, width)), ("attn.c_proj.bias", (width,)),
                            ("ln_2.weight", (width,)), ("ln_2.bias", (width,)), ("mlp.c_fc.weight", (width, 4 * width)),
                            ("mlp.c_fc.bias", (4 * width,)), ("mlp.c_proj.weight", (4 * width, width)), ("mlp.c_proj.bias", (width,))):
            yield f"h.{i}.{name}", shape
    yield "ln_f.weight", (width,)
    yield "ln_f.bias", (width,)


MODELS = {"vit_s_16": (vit(384, 6, 12, 16, 224, 1000), 22050664, 152), "gpt2": (gpt2(768, 12, 50257, 1024), 124439808, 148)}


def blocks(rules, name, shape):
    """Returns (shape, factors) of each block."""
    whole_param = np.zeros(shape, dtype=np.int8)
    for place in rules.places(name, whole_param):
        views, whole = rules.cut(whole_param[place], rules.kept(name))
        for v in views:
            factors = "".join(str(k) for k in range(v.ndim) if k not in whole)
            yield v.shape, "diagonal" if v.ndim == 1 else factors or "-"


def main():
    shapes, elements, count = MODELS[sys.argv[1]]
    shapes = list(shapes)
    assert len(shapes) == count and sum(int(np.prod(s)) for _, s in shapes) == elements
    rules = model.Shampoo([], 0.001, [], diagonal_vectors=True, target_dimensionality=2, split=["qkv"], one_sided=TABLES)
    text = lambda shape: "x".join(str(n) for n in shape)
    print(f"# Parameters of {sys.argv[1]}, and what Shampoo's preset transformer makes of them.")
    print(f"# Maker: tests/golden/transformer_blocks.py, {datetime.date.today()}")
    for name, shape in shapes:
        print("param", name, text(shape))
        run = []
        for b in list(blocks(rules, name, shape)) + [None]:
            if run and b != run[0]:
                print("blocks", len(run), text(run[0][0]), run[0][1])
                run = []
            run.append(b)


main()
