#!/usr/bin/env python3
"""The configurations on which optim_replay is compared with the model in this folder.

    matrix.py [--long]        prints them, one JSON object a line

FIRST_ORDER and SINGLE vary one option at a time. SINGLE's rows are (config, the same without the option), so that a test
can see that the option does something. grid() varies one option at a time under each timing, pairs() holds every pair of
values of AXES.
"""
import argparse, itertools, json, math, random
import numpy as np

SHORT_SHAPES = {"v": (7,), "m": (5, 6), "tall": (9, 4), "conv": (6, 3, 3, 3), "five": (2, 3, 2, 1, 3), "one": (1,),
                "scalar": (), "wide": (3, 17)}
LONG_SHAPES = dict(SHORT_SHAPES, stem=(16, 3, 3, 3), big=(70, 65), cube=(4, 5, 3))
SHORT_STEPS, LONG_STEPS = 14, 24
FULL = 12       # every factor of blocks of at most 8 has full rank after this number of steps, with a gradient missing now and then


def shampoo(**keys):
    return dict({"optim": "shampoo", "lr": 0.05, "epsilon": 1e-6, "beta2": 0.99, "max_preconditioner_dim": 8}, **keys)


def late(**keys):
    """Bases and cutoffs are well defined only where factors have full rank."""
    return shampoo(precondition_frequency=FULL, **keys)


def soon(**keys):
    """Bases of matrices of at least a few rows are well defined after fewer steps; several refreshes follow."""
    return shampoo(precondition_frequency=2, start_preconditioning_step=6, diagonal_vectors=True, **keys)


FIRST_ORDER = {
    "sgd": {"optim": "sgd", "lr": 0.1},
    "sgd momentum": {"optim": "sgd", "lr": 0.1, "momentum": 0.9},
    "sgd nesterov decay": {"optim": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05},
    "sgd dampening": {"optim": "sgd", "lr": 0.1, "momentum": 0.9, "dampening": 0.5},
    "sgd dampening and nesterov": {"optim": "sgd", "lr": 0.1, "momentum": 0.8, "dampening": 0.1, "nesterov": True},
    "adagrad": {"optim": "adagrad", "lr": 0.1},
    "adagrad decay": {"optim": "adagrad", "lr": 0.1, "epsilon": 1e-6, "weight_decay": 0.1},
    "adam": {"optim": "adam", "lr": 0.01},
    "adam decay, other betas": {"optim": "adam", "lr": 0.01, "beta1": 0.5, "beta2": 0.9, "weight_decay": 0.1},
    "adamw": {"optim": "adamw", "lr": 0.01, "weight_decay": 0.1},
    "adamw under a schedule": {"optim": "adamw", "lr": 0.01, "weight_decay": 0.1, "lr_schedule": "ramp"},
    "lion": {"optim": "lion", "lr": 0.01},
    "lion decay, other betas, schedule": {"optim": "lion", "lr": 0.02, "beta1": 0.5, "beta2": 0.8, "weight_decay": 0.5, "lr_schedule": "ramp"},
    "lion, cautious": {"optim": "lion", "lr": 0.02, "weight_decay": 0.5, "cautious_mask": True, "cautious_weight_decay": True},
    "lion, cautious mask": {"optim": "lion", "lr": 0.02, "weight_decay": 0.5, "cautious_mask": True},
    "prodigy": {"optim": "prodigy", "lr": 1.0, "d0": 1e-3, "d_coef": 30.0},
    "prodigy, decay, schedule": {"optim": "prodigy", "lr": 1.0, "d0": 0.02, "d_coef": 20.0, "beta1": 0.8, "beta2": 0.9, "epsilon": 0.1,
                                 "weight_decay": 0.5, "lr_schedule": "ramp"},
    "prodigy, masked, tail": {"optim": "prodigy", "lr": 1.0, "d0": 0.01, "d_coef": 10.0, "weight_decay": 0.5, "cautious_mask": True, "iterate_averaging": "tail"},
    "adafactor": {"optim": "adafactor", "lr": 0.05},
    "adafactor, the relative step's limit": {"optim": "adafactor", "lr": 1.0, "rms_epsilon": 2.0, "weight_decay": 0.1, "beta2_decay": -0.5},
    "adafactor, floors, clip, schedule": {"optim": "adafactor", "lr": 0.05, "epsilon": 0.7, "update_clip": 1.5, "lr_schedule": "ramp"},
    "adafactor, cautious": {"optim": "adafactor", "lr": 0.05, "weight_decay": 0.5, "cautious_mask": True, "cautious_weight_decay": True},
    "muon": {"optim": "muon", "lr": 0.02},
    "muon, one iteration, no look-ahead": {"optim": "muon", "lr": 0.02, "newton_schulz_iterations": 1, "nesterov": False},
    "muon, long updates, decay, schedule": {"optim": "muon", "lr": 0.01, "muon_scale": "match_rms_adamw", "weight_decay": 0.1,
                                            "momentum": 0.9, "lr_schedule": "ramp"},
    "muon, some by adamw": {"optim": "muon", "lr": 0.02, "adamw_params": "^(m|1|c.*)$", "adamw_lr_scale": 0.1, "beta1": 0.8,
                            "beta2": 0.99, "epsilon": 1e-6, "weight_decay": 0.05},
    "normuon": {"optim": "muon", "lr": 0.02, "muon_second_moment": "outputs", "muon_scale": "match_rms_adamw", "weight_decay": 0.1},
    "normuon, length of the update": {"optim": "muon", "lr": 0.02, "muon_second_moment": "outputs", "beta2": 0.9, "epsilon": 1e-4},
    "adamuon": {"optim": "muon", "lr": 0.02, "muon_second_moment": "elements", "muon_scale": "match_rms_adamw", "nesterov": False},
    "adamuon, length of the update, some by adamw": {"optim": "muon", "lr": 0.02, "muon_second_moment": "elements", "beta2": 0.99,
                                                     "adamw_params": "^(m|1)$", "orthogonalization": "svd"},
    "muon, joined parts": {"optim": "muon", "lr": 0.02, "weight_decay": 0.1, "split": ["^(m|tall|1)$:-1:2", "^(conv|2)$:0:2"]},
    "normuon, joined parts along inputs and a window": {"optim": "muon", "lr": 0.02, "muon_second_moment": "outputs", "split":
                                                        ["^(m|tall|1)$:-1:2", "^(conv|2)$:2:3", "^(five|3)$:0:2"]},
    "normuon, joined parts along outputs": {"optim": "muon", "lr": 0.02, "muon_second_moment": "outputs", "muon_scale": "match_rms_adamw",
                                            "split": ["^(conv|five|[23])$:0:2", "qkv"]},
    "adamuon, joined parts": {"optim": "muon", "lr": 0.02, "muon_second_moment": "elements", "split": ["^(m|tall|1)$:1:2", "^(conv|2)$:0:2"]},
    "lars": {"optim": "lars", "lr": 1.0, "weight_decay": 1e-3},
    "lars without decay is sgd": {"optim": "lars", "lr": 0.1, "momentum": 0.9},
    "lars momentum nesterov decay": {"optim": "lars", "lr": 2.0, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05,
                                     "trust_coefficient": 0.01},
    "lars dampening, schedule": {"optim": "lars", "lr": 2.0, "momentum": 0.9, "dampening": 0.25, "weight_decay": 0.1,
                                 "trust_coefficient": 0.02, "epsilon": 0.5, "lr_schedule": "ramp"},
    "lars clipped": {"optim": "lars", "lr": 0.1, "momentum": 0.5, "weight_decay": 0.1, "trust_coefficient": 0.1, "trust_clip": True,
                     "lr_schedule": "ramp"},
    "lars always": {"optim": "lars", "lr": 2.0, "momentum": 0.9, "trust_coefficient": 0.01, "always_adapt": True},
    "lamb": {"optim": "lamb", "lr": 0.01},
    "lamb without decay": {"optim": "lamb", "lr": 0.01, "weight_decay": 0.0},
    "lamb always, other betas": {"optim": "lamb", "lr": 0.01, "beta1": 0.5, "beta2": 0.9, "weight_decay": 0.0, "always_adapt": True},
    "lamb, sums, no correction": {"optim": "lamb", "lr": 0.01, "weight_decay": 0.1, "bias_correction": False, "grad_averaging": False,
                                  "epsilon": 1e-3},
    "lamb clipped, schedule": {"optim": "lamb", "lr": 0.02, "weight_decay": 0.05, "trust_clip": True, "lr_schedule": "ramp"},
    "muon, no name means adamw": {"optim": "muon", "lr": 0.02, "adamw_params": None},
    "muon, other coefficients": {"optim": "muon", "lr": 0.02, "newton_schulz_coefficients": [3.0, -3.2, 1.2]},
    "muon, polar express": {"optim": "muon", "lr": 0.02, "orthogonalization": "polar_express", "newton_schulz_iterations": 9},
    "muon, svd": {"optim": "muon", "lr": 0.02, "orthogonalization": "svd"},
    "sgd, schedule-free": {"optim": "sgd", "lr": 0.1, "weight_decay": 0.1, "iterate_averaging": "schedule-free"},
    "adamw, schedule-free, warm-up": {"optim": "adamw", "lr": 0.01, "beta1": 0.0, "weight_decay": 0.1, "iterate_averaging": "schedule-free",
                                      "train_interp_coeff": 0.9, "lr_schedule": "ramp"},
    "sgd, schedule-free, decay of y": {"optim": "sgd", "lr": 0.1, "weight_decay": 0.1, "iterate_averaging": "schedule-free", "decay_of_y": True},
    "adamw, schedule-free, decay of y": {"optim": "adamw", "lr": 0.01, "beta1": 0.0, "weight_decay": 0.1, "decay_of_y": True,
                                         "iterate_averaging": "schedule-free", "train_interp_coeff": 0.9, "lr_schedule": "ramp"},
    "adam, primal": {"optim": "adam", "lr": 0.01, "iterate_averaging": "primal"},
    "muon, primal, other coefficients": {"optim": "muon", "lr": 0.02, "weight_decay": 0.1, "iterate_averaging": "primal",
                                         "train_interp_coeff": 0.5, "eval_interp_coeff": 0.99},
    "adamw, tail": {"optim": "adamw", "lr": 0.01, "weight_decay": 0.1, "iterate_averaging": "tail", "tail_start": 6, "lr_schedule": "ramp"},
    "muon, tail of all": {"optim": "muon", "lr": 0.02, "weight_decay": 0.1, "iterate_averaging": "tail"},
    "sgd, ema-nesterov": {"optim": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.1, "iterate_averaging": "ema-nesterov", "lookahead": 2.0,
                          "lookahead_decay": 0.5},
    "muon, ema-nesterov in a window": {"optim": "muon", "lr": 0.02, "weight_decay": 0.1, "iterate_averaging": "ema-nesterov", "lookahead_decay": 0.9,
                                       "lookahead_start": 3, "lookahead_end": 10, "lr_schedule": "ramp"},
    "sgd, cautious mask": {"optim": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "cautious_mask": True},
    "adamw, cautious mask": {"optim": "adamw", "lr": 0.01, "weight_decay": 0.1, "cautious_mask": True},
    "adamw, cautious decay, schedule": {"optim": "adamw", "lr": 0.05, "weight_decay": 0.5, "cautious_weight_decay": True, "lr_schedule": "ramp"},
    "adagrad, cautious": {"optim": "adagrad", "lr": 0.1, "weight_decay": 0.5, "cautious_mask": True, "cautious_weight_decay": True},
    "adam, cautious": {"optim": "adam", "lr": 0.1, "weight_decay": 0.5, "cautious_mask": True, "cautious_weight_decay": True},
    "muon, cautious": {"optim": "muon", "lr": 0.05, "weight_decay": 0.5, "cautious_mask": True, "cautious_weight_decay": True,
                       "adamw_params": "^(m|1|c.*)$", "adamw_lr_scale": 0.3},
    "muon, cautious mask, primal": {"optim": "muon", "lr": 0.05, "weight_decay": 0.5, "cautious_mask": True, "iterate_averaging": "primal",
                                    "adamw_params": "^(m|1|c.*)$", "adamw_lr_scale": 0.3},
    "lars, cautious decay": {"optim": "lars", "lr": 1.0, "weight_decay": 0.1, "momentum": 0.9, "cautious_weight_decay": True},
    "lamb, cautious": {"optim": "lamb", "lr": 0.01, "weight_decay": 0.5, "cautious_mask": True, "cautious_weight_decay": True},
    "adamw, hyperball": {"optim": "adamw", "lr": 0.02, "hyperball": True, "lr_schedule": "ramp"},
    "sgd, hyperball, cautious mask, primal": {"optim": "sgd", "lr": 0.02, "momentum": 0.9, "hyperball": True, "cautious_mask": True,
                                              "iterate_averaging": "primal"},
    "muon, hyperball, ema-nesterov": {"optim": "muon", "lr": 0.02, "hyperball": True, "iterate_averaging": "ema-nesterov",
                                      "adamw_params": "^(m|1|c.*)$", "adamw_lr_scale": 0.3},
    "shampoo, hyperball": shampoo(hyperball=True, grafting="adam"),
    "lamb, schedule-free, powers": {"optim": "lamb", "lr": 0.01, "iterate_averaging": "schedule-free", "eval_coeff_lr_power": 1.0,
                                    "lr_schedule": "ramp"},
}
SINGLE = {
    "sum of gradients": (shampoo(beta2=1.0), shampoo()),
    "spectral": (shampoo(preconditioner="spectral", target_dimensionality=2, max_preconditioner_dim=64),
                 shampoo(target_dimensionality=2, max_preconditioner_dim=64)),
    "spectral, polar express, original scale, grafted": (
        shampoo(preconditioner="spectral", orthogonalization="polar_express", spectral_scale="original", target_dimensionality=2,
                newton_schulz_iterations=6, momentum=0.9, weight_decay=0.1),
        shampoo(preconditioner="spectral", orthogonalization="polar_express", target_dimensionality=2, newton_schulz_iterations=6,
                momentum=0.9, weight_decay=0.1)),
    "spectral, svd, three dimensions": (
        shampoo(preconditioner="spectral", orthogonalization="svd", spectral_scale="match_rms_adamw", target_dimensionality=3,
                max_preconditioner_dim=64, beta1=0.0),
        shampoo(preconditioner="spectral", orthogonalization="svd", target_dimensionality=3, max_preconditioner_dim=64, beta1=0.0)),
    "spectral, svd, times the nuclear norm": (
        shampoo(preconditioner="spectral", orthogonalization="svd", scale_by_nuclear_norm=True, target_dimensionality=2, lr=0.002),
        shampoo(preconditioner="spectral", orthogonalization="svd", target_dimensionality=2, lr=0.002)),
    "spectral, other coefficients, small blocks, adam grafting": (
        shampoo(preconditioner="spectral", newton_schulz_coefficients=[3.0, -3.2, 1.2], grafting="adam", target_dimensionality=2,
                max_preconditioner_dim=4),
        shampoo(preconditioner="spectral", grafting="adam", target_dimensionality=2, max_preconditioner_dim=4)),
    "sign": (shampoo(preconditioner="sign", lr=0.01), shampoo(lr=0.01)),
    "sign, length of the gradient": (shampoo(preconditioner="sign", sign_scale="l1", lr=0.01, beta1=0.0, weight_decay=0.1),
                                     shampoo(preconditioner="sign", lr=0.01, beta1=0.0, weight_decay=0.1)),
    "schedule-free": (shampoo(iterate_averaging="schedule-free", beta1=0.0, weight_decay=0.1),
                      shampoo(iterate_averaging="schedule-free", train_interp_coeff=0.79, beta1=0.0, weight_decay=0.1)),
    "primal averaging": (shampoo(iterate_averaging="primal", grafting="adam", precondition_frequency=3, refresh="staggered"),
                         shampoo(iterate_averaging="primal", eval_interp_coeff=0.89, grafting="adam", precondition_frequency=3,
                                 refresh="staggered")),
    "primal averaging, all of x": (shampoo(iterate_averaging="primal", train_interp_coeff=1.0, eval_interp_coeff=0.5),
                                   shampoo(iterate_averaging="primal", eval_interp_coeff=0.5)),
    "cautious mask": (shampoo(weight_decay=0.1, cautious_mask=True, grafting="adam"), shampoo(weight_decay=0.1, grafting="adam")),
    "cautious decay": (shampoo(weight_decay=0.1, cautious_weight_decay=True, momentum=0.9), shampoo(weight_decay=0.1, momentum=0.9)),
    "cautious, eigenvalue-corrected": (
        late(preconditioner="eigenvalue_corrected", weight_decay=0.1, cautious_mask=True, cautious_weight_decay=True),
        late(preconditioner="eigenvalue_corrected", weight_decay=0.1, cautious_weight_decay=True)),
    "defaults but epsilon": ({"optim": "shampoo", "lr": 0.01, "epsilon": 1e-6}, shampoo(lr=0.01)),
    "defaults, epsilon 1e-12": ({"optim": "shampoo", "lr": 0.01}, shampoo(lr=0.01)),
    "roots every 3 steps": (shampoo(precondition_frequency=3), shampoo()),
    "first roots at step 5, then every 3": (shampoo(precondition_frequency=3, start_preconditioning_step=5, grafting="adam"),
                                            shampoo(precondition_frequency=3, grafting="adam")),
    "no grafting before a late start": (shampoo(precondition_frequency=2, start_preconditioning_step=6),
                                        shampoo(precondition_frequency=2)),
    "never a root": (shampoo(start_preconditioning_step=math.inf), shampoo()),
    "sgd grafting": (shampoo(grafting="sgd"), shampoo()),
    "adagrad grafting": (shampoo(grafting="adagrad"), shampoo()),
    "rmsprop grafting": (shampoo(grafting="rmsprop"), shampoo()),
    "adam grafting": (shampoo(grafting="adam"), shampoo()),
    "rmsprop grafting without bias correction": (shampoo(grafting="rmsprop", use_bias_correction=False),
                                                 shampoo(grafting="rmsprop")),
    "adam grafting, steps of each parameter": (shampoo(grafting="adam", per_param_steps=True), shampoo(grafting="adam")),
    "eigenvalue corrected, diagonals, steps of each parameter": (
        shampoo(preconditioner="eigenvalue_corrected", diagonal_vectors=True, beta2=0.9, per_param_steps=True),
        shampoo(preconditioner="eigenvalue_corrected", diagonal_vectors=True, beta2=0.9)),
    "adam grafting, own beta2": (shampoo(grafting="adam", grafting_beta2=0.95), shampoo(grafting="adam")),
    "adam grafting, own epsilon": (shampoo(grafting="adam", grafting_epsilon=1e-3), shampoo(grafting="adam")),
    "adam grafting, squares with weight 1": (shampoo(grafting="adam", grafting_drop_weighting=True), shampoo(grafting="adam")),
    "rmsprop grafting, squares with weight 1": (shampoo(grafting="rmsprop", grafting_drop_weighting=True), shampoo(grafting="rmsprop")),
    "no filter": (shampoo(beta1=0.0), shampoo()),
    "another filter": (shampoo(beta1=0.5), shampoo()),
    "look-ahead filter": (shampoo(beta3=0.81), shampoo()),
    "heavy ball": (shampoo(grafting="adagrad", momentum=0.9), shampoo(grafting="adagrad")),
    "nesterov": (shampoo(grafting="sgd", momentum=0.9, nesterov=True), shampoo(grafting="sgd", momentum=0.9)),
    "dampening 0.5": (shampoo(momentum=0.9, dampening=0.5), shampoo(momentum=0.9)),
    "dampening 0.9, nesterov": (shampoo(momentum=0.9, dampening=0.9, nesterov=True), shampoo(momentum=0.9, nesterov=True)),
    "decay: l2": (shampoo(weight_decay=0.1, weight_decay_type="l2", grafting="adam"), shampoo(grafting="adam")),
    "decay: decoupled": (shampoo(weight_decay=0.1, grafting="sgd", momentum=0.9), shampoo(grafting="sgd", momentum=0.9)),
    "decay: corrected, schedule": (shampoo(weight_decay=0.1, weight_decay_type="corrected", lr_schedule="ramp"),
                                   shampoo(weight_decay=0.1, lr_schedule="ramp")),
    "decay: independent, schedule": (shampoo(weight_decay=0.01, weight_decay_type="independent", lr_schedule="ramp"),
                                     shampoo(weight_decay=0.01, lr_schedule="ramp")),
    "drop weighting": (shampoo(drop_weighting=True, beta2=0.9), shampoo(beta2=0.9)),
    "exponent by order": (shampoo(inverse_exponent={"2": 0.5}), shampoo()),
    "exponent 0 for vectors": (shampoo(inverse_exponent={"1": {"0": 0}}), shampoo()),
    "one side only": (shampoo(inverse_exponent={"2": {"0": 0.5, "1": 0}}), shampoo()),
    "exponents by dimension": (shampoo(inverse_exponent={"3": {"0": 0, "1": 0.25}}, merge_order="forward",
                                       max_preconditioner_dim=9),
                               shampoo(merge_order="forward", max_preconditioner_dim=9)),
    "epsilon after": (shampoo(epsilon_rule="after", epsilon=1e-3), shampoo(epsilon=1e-4)),
    "relative epsilon": (shampoo(epsilon_rule="relative", epsilon=1e-4), shampoo(epsilon=1e-4)),
    "pseudo-inverse of a sum": (shampoo(epsilon_rule="pseudo_inverse", epsilon=0.0, rank_rtol=1e-3, beta2=1.0),
                                shampoo(beta2=1.0)),
    "pseudo-inverse, relative cut by size": (late(epsilon_rule="pseudo_inverse", epsilon=0.0, rank_rtol=None), shampoo()),
    "pseudo-inverse, absolute cut": (shampoo(epsilon_rule="pseudo_inverse", epsilon=1e-6, rank_atol=0.5), shampoo()),
    "pseudo-inverse of diagonals, relative and absolute cut": (
        late(epsilon_rule="pseudo_inverse", epsilon=0.0, rank_rtol=0.2, rank_atol=0.1, diagonal_vectors=True, diagonal="^(m|1)$"),
        late(epsilon_rule="pseudo_inverse", epsilon=0.0, rank_atol=1e-4, diagonal_vectors=True, diagonal="^(m|1)$")),
    "pseudo-inverse, eigenvalue-corrected": (
        late(epsilon_rule="pseudo_inverse", epsilon=0.0, rank_rtol=0.3, preconditioner="eigenvalue_corrected", diagonal_vectors=True),
        late(preconditioner="eigenvalue_corrected", diagonal_vectors=True)),
    "pseudo-inverse, eigenvalue-corrected, exponent 0.4, absolute cut": (
        late(epsilon_rule="pseudo_inverse", epsilon=0.0, rank_atol=0.05, preconditioner="eigenvalue_corrected", inverse_exponent={"2": 0.4}),
        late(preconditioner="eigenvalue_corrected", epsilon=1e-3, inverse_exponent={"2": 0.4})),
    "factors every 2 steps": (shampoo(factor_frequency=2, precondition_frequency=3), shampoo(precondition_frequency=3)),
    "factors every 3 steps, staggered, grafted": (shampoo(factor_frequency=3, precondition_frequency=4, refresh="staggered", grafting="adam"),
                                                  shampoo(precondition_frequency=4, refresh="staggered", grafting="adam")),
    "factors every 2 steps, corrected": (late(factor_frequency=2, preconditioner="eigenvalue_corrected"), late(preconditioner="eigenvalue_corrected")),
    "trace scaling": (shampoo(trace_scaling=0.5), shampoo()),
    "trace scaling 1": (shampoo(trace_scaling=1.0), shampoo(trace_scaling=0.5)),
    "trace scaling of diagonals": (shampoo(trace_scaling=0.5, diagonal_vectors=True, epsilon_rule="relative", diagonal="^(m|1)$"),
                                   shampoo(diagonal_vectors=True, epsilon_rule="relative", diagonal="^(m|1)$")),
    "merge forward": (shampoo(merge_order="forward", max_preconditioner_dim=12), shampoo(max_preconditioner_dim=12)),
    "merge to three dimensions": (shampoo(target_dimensionality=3, max_preconditioner_dim=64), shampoo(max_preconditioner_dim=64)),
    "no merging": (shampoo(target_dimensionality=math.inf, max_preconditioner_dim=64), shampoo(max_preconditioner_dim=64)),
    "blocks of 2": (shampoo(max_preconditioner_dim=2, grafting="adam"), shampoo(grafting="adam")),
    "blocks of 1": (shampoo(max_preconditioner_dim=1), shampoo()),
    "one block each": (shampoo(max_preconditioner_dim=math.inf, grafting="adagrad"), shampoo(grafting="adagrad")),
    "eigendecomposed": (shampoo(preconditioner="eigendecomposed", precondition_frequency=2), shampoo()),
    "eigenvalue-corrected": (late(preconditioner="eigenvalue_corrected"), late()),
    "eigenvalue-corrected, exponent 0.4": (late(preconditioner="eigenvalue_corrected", inverse_exponent={"2": 0.4}, beta2=1.0),
                                           late(preconditioner="eigenvalue_corrected", beta2=1.0)),
    "eigenvalue-corrected, exponent 0": (late(preconditioner="eigenvalue_corrected", inverse_exponent={"2": 0}, epsilon=1e-3),
                                         late(preconditioner="eigenvalue_corrected", epsilon=1e-3)),
    "eigenvalue-corrected, some bases kept": (late(preconditioner="eigenvalue_corrected",
                                                   ignored_basis_change_dims={"2": [0], "4": [1, 2, 3]}),
                                              late(preconditioner="eigenvalue_corrected")),
    "eigenvalue-corrected, grafted": (late(preconditioner="eigenvalue_corrected", grafting="adam"),
                                      late(preconditioner="eigenvalue_corrected")),
    "eigenvalue-corrected, no merging": (late(preconditioner="eigenvalue_corrected", target_dimensionality=math.inf), late()),
    "eigenvalue-corrected, diagonal vectors": (late(preconditioner="eigenvalue_corrected", diagonal_vectors=True, beta1=0.95,
                                                    beta2=0.95), late(preconditioner="eigenvalue_corrected", beta1=0.95, beta2=0.95)),
    "kl": (shampoo(preconditioner="kl", precondition_frequency=2), shampoo(precondition_frequency=2)),
    "kl, exponent 1/2": (shampoo(preconditioner="kl", inverse_exponent={"2": 0.5, "1": 0.5}, beta2=0.9, epsilon=1e-4),
                         shampoo(inverse_exponent={"2": 0.5, "1": 0.5}, beta2=0.9, epsilon=1e-4)),
    "kl, eigendecomposed": (shampoo(preconditioner="kl_eigendecomposed", precondition_frequency=2), shampoo(precondition_frequency=2)),
    "staggered refreshes": (shampoo(precondition_frequency=4, refresh="staggered"), shampoo(precondition_frequency=4)),
    "staggered refreshes of many blocks": (shampoo(precondition_frequency=3, refresh="staggered", max_preconditioner_dim=2,
                                                   start_preconditioning_step=4, grafting="sgd"),
                                           shampoo(precondition_frequency=3, max_preconditioner_dim=2,
                                                   start_preconditioning_step=4, grafting="sgd")),
    "more phases than blocks": (shampoo(precondition_frequency=12, start_preconditioning_step=12, refresh="staggered",
                                        max_preconditioner_dim=64), shampoo(precondition_frequency=12, max_preconditioner_dim=64)),
    "asynchronous refreshes": (shampoo(precondition_frequency=3, refresh="async"), shampoo(precondition_frequency=3)),
    "asynchronous, kl, late start": (shampoo(precondition_frequency=3, start_preconditioning_step=4, refresh="async",
                                             preconditioner="kl", grafting="adam"),
                                     shampoo(precondition_frequency=3, start_preconditioning_step=4, preconditioner="kl",
                                             grafting="adam")),
    "diagonal vectors": (shampoo(diagonal_vectors=True), shampoo()),
    "diagonal vectors, late roots, grafted": (shampoo(diagonal_vectors=True, precondition_frequency=3, grafting="adam"),
                                              shampoo(precondition_frequency=3, grafting="adam")),
    "diagonal vectors, relative epsilon": (shampoo(diagonal_vectors=True, epsilon_rule="relative", epsilon=1e-3),
                                           shampoo(diagonal_vectors=True, epsilon=1e-3)),
    "diagonal vectors, exponent 1/4": (shampoo(diagonal_vectors=True, inverse_exponent={"1": 0.25}), shampoo(diagonal_vectors=True)),
    "joined parts along the first dimension": (shampoo(split=["^(conv|five|[23])$:0:2"], grafting="adam"), shampoo(grafting="adam")),
    "joined parts along the last dimension": (shampoo(split=["^(m|tall|1)$:-1:2", "^(five|3)$:-1:3"], precondition_frequency=3,
                                                      refresh="staggered", momentum=0.9),
                                              shampoo(precondition_frequency=3, refresh="staggered", momentum=0.9)),
    "the last of two splits, of a vector too": (shampoo(split=["^(conv|2)$:1:3", "^(v|0)$:0:7", "^(conv|2)$:0:2"]),
                                                shampoo(split=["^(conv|2)$:1:3"])),
    "eigenvalue-corrected parts": (late(preconditioner="eigenvalue_corrected", split=["^(m|1)$:1:3", "qkv"]),
                                   late(preconditioner="eigenvalue_corrected")),
    "tables by rows": (shampoo(one_sided="^(m|tall|conv|v|one|[012])$", grafting="adam"), shampoo(grafting="adam")),
    "tables by rows, exponent 1/4": (shampoo(one_sided="^(m|tall|conv|[012])$", inverse_exponent={"2": 0.25}),
                                     shampoo(one_sided="^(m|tall|conv|[012])$")),
    "eigenvalue-corrected tables by rows": (late(preconditioner="eigenvalue_corrected", one_sided="^(m|tall|[12])$"),
                                            late(preconditioner="eigenvalue_corrected")),
    "kl, tables by rows": (shampoo(preconditioner="kl", one_sided="^(m|tall|[12])$", precondition_frequency=2),
                           shampoo(preconditioner="kl", precondition_frequency=2)),
    "soap-muon": (soon(preconditioner="eigenvalue_corrected", orthogonalize=True, target_dimensionality=2),
                  soon(preconditioner="eigenvalue_corrected", target_dimensionality=2)),
    "soap-muon, original scale, diagonals, decay": (
        soon(preconditioner="eigenvalue_corrected", orthogonalize=True, spectral_scale="original", orthogonalization="polar_express",
             newton_schulz_iterations=6, diagonal="^(m|[12])$", weight_decay=0.1, momentum=0.9),
        soon(preconditioner="eigenvalue_corrected", orthogonalize=True, orthogonalization="polar_express", newton_schulz_iterations=6,
             diagonal="^(m|[12])$", weight_decay=0.1, momentum=0.9)),
    "kl-soap-muon, svd, long updates": (
        soon(preconditioner="kl_eigenvalue_corrected", orthogonalize=True, orthogonalization="svd", spectral_scale="match_rms_adamw"),
        soon(preconditioner="eigenvalue_corrected", orthogonalize=True, orthogonalization="svd", spectral_scale="match_rms_adamw")),
    "soap-muon, svd, times the nuclear norm": (
        soon(preconditioner="eigenvalue_corrected", orthogonalize=True, orthogonalization="svd", scale_by_nuclear_norm=True, lr=0.002),
        soon(preconditioner="eigenvalue_corrected", orthogonalize=True, orthogonalization="svd", lr=0.002)),
    "kl-soap": (soon(preconditioner="kl_eigenvalue_corrected"), soon(preconditioner="eigenvalue_corrected")),
    "kl-soap, parts, relative epsilon, grafted": (
        soon(preconditioner="kl_eigenvalue_corrected", epsilon_rule="relative", epsilon=1e-3, grafting="adam", split=["^(m|tall|1)$:-1:2"]),
        soon(preconditioner="kl_eigenvalue_corrected", epsilon_rule="relative", epsilon=1e-3, grafting="adam")),
    "kl-soap, own exponent, tables by rows, steps of each parameter": (
        soon(preconditioner="kl_eigenvalue_corrected", inverse_exponent={"2": 0.4}, one_sided="^(m|tall|[12])$", per_param_steps=True),
        soon(preconditioner="kl_eigenvalue_corrected", one_sided="^(m|tall|[12])$", per_param_steps=True)),
    "kl-soap, async": (soon(preconditioner="kl_eigenvalue_corrected", refresh="async"), soon(preconditioner="kl_eigenvalue_corrected")),
    "diagonals": (shampoo(diagonal="^(m|conv|v|[012])$", one_sided="^(m|tall|1)$", grafting="sgd"),
                  shampoo(one_sided="^(m|tall|1)$", grafting="sgd")),
    "diagonals, relative epsilon": (shampoo(diagonal="^(m|conv|[12])$", epsilon_rule="relative", epsilon=1e-2),
                                    shampoo(diagonal="^(m|conv|[12])$", epsilon=1e-2)),
    "diagonals, exponent 1/4": (shampoo(diagonal="^(m|conv|[12])$", inverse_exponent={"1": 0.25}),
                                shampoo(diagonal="^(m|conv|[12])$")),
    "eigenvalue-corrected diagonals": (late(preconditioner="eigenvalue_corrected", diagonal="^(m|conv|[12])$"),
                                       late(preconditioner="eigenvalue_corrected")),
    "long dimensions whole": (shampoo(large_dims="whole", max_preconditioner_dim=5), shampoo(max_preconditioner_dim=5)),
    "all dimensions whole": (shampoo(large_dims="whole", max_preconditioner_dim=3, grafting="adam"),
                             shampoo(max_preconditioner_dim=3, grafting="adam")),
    "eigenvalue-corrected, long dimensions whole": (late(preconditioner="eigenvalue_corrected", large_dims="whole",
                                                         max_preconditioner_dim=5),
                                                    late(preconditioner="eigenvalue_corrected", max_preconditioner_dim=5)),
}

# Values that are combined pairwise; the first of each is the base's. "decay" and others stand for several keys.
AXES = {
    "beta2": [{}, {"beta2": 1.0}, {"beta2": 0.95, "drop_weighting": True}],
    "timing": [{}, {"precondition_frequency": 3}, {"precondition_frequency": 3, "start_preconditioning_step": 7},
               {"start_preconditioning_step": 6}],
    "grafting": [{}, {"grafting": "sgd"}, {"grafting": "adagrad"}, {"grafting": "rmsprop"},
                 {"grafting": "adam", "grafting_beta2": 0.9, "grafting_epsilon": 1e-8}],
    "filter": [{}, {"beta1": 0.0}, {"beta3": 0.81}],
    "momentum": [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "dampening": 0.5, "nesterov": True}],
    "decay": [{}, {"weight_decay": 0.05}, {"weight_decay": 0.05, "weight_decay_type": "l2"},
              {"weight_decay": 0.05, "weight_decay_type": "corrected", "lr_schedule": "ramp"},
              {"weight_decay": 0.05, "weight_decay_type": "independent", "lr_schedule": "ramp"}],
    "exponent": [{}, {"inverse_exponent": {"2": 0.5, "1": 0.5}}, {"inverse_exponent": {"3": {"0": 0, "1": 0.25}, "1": {"0": 0}}}],
    "damping": [{}, {"epsilon_rule": "after"}, {"epsilon_rule": "relative", "epsilon": 1e-5}],
    "trace": [{}, {"trace_scaling": 0.5}],
    "kind": [{}, {"preconditioner": "eigendecomposed"}, {"preconditioner": "kl"}, {"preconditioner": "kl_eigendecomposed"}],
    "shape": [{"max_preconditioner_dim": 32}, {}, {"merge_order": "forward", "max_preconditioner_dim": 32},
              {"target_dimensionality": 2, "max_preconditioner_dim": 32}],
    "bias": [{}, {"use_bias_correction": False}],
    "vectors": [{}, {"diagonal_vectors": True}],
    "split": [{}, {"split": ["^(m|tall)$:-1:2", "^(conv|five)$:0:2"]}],
    "rows": [{}, {"one_sided": "^(m|tall|big)$", "diagonal": "^conv$"}],
    "large": [{}, {"large_dims": "whole"}],
}
# The same with bases, whose first refresh waits for full rank.
LATE_AXES = {
    "beta2": [{"beta2": 0.95}, {"beta2": 1.0}],
    "kind": [{"preconditioner": "eigenvalue_corrected"}, {"epsilon_rule": "pseudo_inverse", "epsilon": 0.0, "rank_rtol": None}],
    "grafting": [{}, {"grafting": "sgd"}, {"grafting": "rmsprop"}],
    "filter": [{}, {"beta1": 0.0}, {"beta3": 0.81}],
    "momentum": [{}, {"momentum": 0.9, "nesterov": True}],
    "decay": [{}, {"weight_decay": 0.05}, {"weight_decay": 0.05, "weight_decay_type": "l2"}],
    "exponent": [{}, {"inverse_exponent": {"2": 0.4, "1": 0.5}}],
    "bias": [{}, {"use_bias_correction": False}],
}


# One at a time on each timing of the reference's own test matrix.
EACH = {"plain": {}, "adam": {"grafting": "adam"}, "sgd nesterov": {"grafting": "sgd", "momentum": 0.9, "nesterov": True},
        "look-ahead": {"beta3": 0.81}, "l2": {"weight_decay": 0.1, "weight_decay_type": "l2"}, "after": {"epsilon_rule": "after"},
        "trace": {"trace_scaling": 0.5}, "exponent": {"inverse_exponent": {"2": 0.5}},
        "eigendecomposed": {"preconditioner": "eigendecomposed"}, "kl": {"preconditioner": "kl"}}


def grid():
    """{name: config}: beta2 x frequency x start, one option at a time, blocks of 32."""
    return {f"beta2 {beta2}, every {f}, from {start}: {name}": shampoo(beta2=beta2, precondition_frequency=f,
                                                                       start_preconditioning_step=start,
                                                                       max_preconditioner_dim=32, **keys)
            for beta2 in (1.0, 0.99) for f in (1, 3) for start in (-1, 6) for name, keys in EACH.items()}


def cover(axes, seed):
    """Configurations that hold every pair: greedily, the best of some random candidates each time."""
    rng, names = random.Random(seed), list(axes)
    missing = {(x, i, y, j) for x, y in itertools.combinations(names, 2) for i in range(len(axes[x]))
               for j in range(len(axes[y]))}

    def held(choice):
        return {(x, choice[x], y, choice[y]) for x, y in itertools.combinations(names, 2)} & missing

    def candidate():
        x, i, y, j = rng.choice(sorted(missing))
        choice = {n: rng.randrange(len(axes[n])) for n in names}
        choice.update({x: i, y: j})
        return choice

    while missing:
        best = max((candidate() for _ in range(60)), key=lambda c: len(held(c)))
        missing -= held(best)
        yield best


def pairs():
    """{name: config}; the same each time."""
    out = {}
    for axes, make, seed in ((AXES, shampoo, 1), (LATE_AXES, late, 2)):
        for choice in cover(axes, seed):
            keys = {k: v for n, i in choice.items() for k, v in axes[n][i].items()}
            name = ("late " if make is late else "") + " ".join(f"{n}{i}" for n, i in choice.items() if i)
            out[name or "base"] = make(**keys)
    return out


def trace(seed, shapes, steps):
    """Returns parameters and gradients; some are missing."""
    rng, tensors = np.random.default_rng(seed), {}
    for name, shape in shapes.items():
        tensors["param." + name] = np.asarray(rng.standard_normal(shape))
    for t in range(1, steps + 1):
        for i, (name, shape) in enumerate(shapes.items()):
            g = np.asarray(rng.standard_normal(shape))
            if not (t % 5 == 0 and i % 3 == t // 5 % 3) and not (t == 1 and name == "tall"):
                tensors[f"grad.{t}.{name}"] = g
    return tensors


def resolved(config, steps):
    """Returns the config with a schedule of that many steps."""
    out = dict(config)
    if out.get("lr_schedule") == "ramp":
        out["lr_schedule"] = [out["lr"] * min(1.0, t / 4) * (1 - t / (2 * steps)) for t in range(1, steps + 1)]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="with grid() and pairs()")
    args = parser.parse_args()
    rows = {**FIRST_ORDER, **{n: c for n, (c, _) in SINGLE.items()}, **({**grid(), **pairs()} if args.long else {})}
    for config in rows.values():
        print(json.dumps(config))


if __name__ == "__main__":
    main()
