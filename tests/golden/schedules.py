#!/usr/bin/env python3
"""Learning rates of torch.optim.lr_scheduler, transformers and timm.

    PYTHON_WITH_TORCH tests/golden/schedules.py > tests/golden/schedules.txt

A line is a schedule's name and the rates of its first updates. tests/optim/test_schedule.c has the settings.
"""
import torch
from timm.scheduler import CosineLRScheduler
from torch.optim import lr_scheduler as s
from transformers import get_wsd_schedule

UPDATES, LR = 44, 0.8


def rates(make):
    optim = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=LR)
    scheduler = make(optim)
    for update in range(UPDATES):
        yield optim.param_groups[0]["lr"]
        optim.step()
        scheduler.step_update(update + 1) if isinstance(scheduler, CosineLRScheduler) else scheduler.step()


def after_warmup(optim, later):
    return s.SequentialLR(optim, [s.LinearLR(optim, 0.125, 1, 8), later], [8])


MAKERS = {
    "linear_warmup": lambda o: after_warmup(o, s.LinearLR(o, 1, 0.125, 32)),
    "cosine_warmup": lambda o: after_warmup(o, s.CosineAnnealingLR(o, 36, 0.1)),
    "poly": lambda o: s.PolynomialLR(o, 40, 3),
    "wsd_linear": lambda o: get_wsd_schedule(o, 8, 10, 44, decay_type="linear", min_lr_ratio=0.125),
    "wsd_cosine": lambda o: get_wsd_schedule(o, 8, 10, 44, decay_type="cosine"),
    "wsd_sqrt": lambda o: get_wsd_schedule(o, 0, 40, 40, decay_type="1-sqrt", min_lr_ratio=0.125),
    "one_cycle": lambda o: s.OneCycleLR(o, LR, UPDATES, cycle_momentum=False),
    "one_cycle_steep": lambda o: s.OneCycleLR(o, LR, UPDATES, None, None, 0.7, "cos", False, div_factor=4, final_div_factor=2),
    "restarts": lambda o: s.CosineAnnealingWarmRestarts(o, 5, 2, eta_min=0.1),
    "restarts_warmup": lambda o: after_warmup(o, s.CosineAnnealingWarmRestarts(o, 12)),
    "restarts_decay": lambda o: CosineLRScheduler(o, 8, 0.05, 1.5, 0.5, 9, t_in_epochs=False),
}

print("# Rates of the first updates. Maker: tests/golden/schedules.py, with torch", torch.__version__.split("+")[0])
for name, make in MAKERS.items():
    print(name, *(f"{rate:.15g}" for rate in rates(make)))
