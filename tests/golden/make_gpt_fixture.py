#!/usr/bin/env python3
"""Makes gpt_fixture.safetensors: results of PyTorch and HuggingFace's transformers for a tiny GPT-2.

Needs both; only used to regenerate the file:
    python3 tests/golden/make_gpt_fixture.py tests/golden/gpt_fixture.safetensors

The model is GPT2LMHeadModel with two blocks of width 8 and two heads, for 11 ids and at most 9 tokens, without dropout.
tests/golden/fixture.py describes the file; names are those of the state dict without "transformer."."""
import sys

import torch
import transformers
from fixture import save_runs
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

WIDTH, IDS, BATCH, LENGTH, POSITIONS, STEPS = 8, 11, 3, 7, 9, 5
SMOOTHING = 0.1
OPTIMS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.05),
}


class Gpt(nn.Module):
    """GPT2LMHeadModel as a function from ids to logits."""

    def __init__(self):
        super().__init__()
        config = GPT2Config(vocab_size=IDS, n_positions=POSITIONS, n_embd=WIDTH, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0,
                            attn_pdrop=0, attn_implementation="eager", use_cache=False, bos_token_id=0, eos_token_id=0)
        whole = GPT2LMHeadModel(config)
        self.net, self.head = whole.transformer, [whole.lm_head]  # in a list, so that the shared weight is not registered twice
        assert whole.lm_head.weight is whole.transformer.wte.weight

    def forward(self, ids):
        return nn.functional.linear(self.net(ids).last_hidden_state, self.net.wte.weight)

    def state_dict(self):
        return self.net.state_dict()

    def load_state_dict(self, state):
        self.net.load_state_dict(state)

    def named_parameters(self, *_args, **_flags):
        return self.net.named_parameters()


def initial_state():
    torch.manual_seed(5)
    model = Gpt()
    with torch.no_grad():
        for p in model.parameters():  # not 0 and 1, which would hide errors
            p.add_(0.2 * torch.randn_like(p))
    return {k: v.clone() for k, v in model.state_dict().items()}


def main(path):
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(7)
    ids = torch.randint(0, IDS, (BATCH, LENGTH + 1), generator=g, dtype=torch.int32)
    save_runs(path, Gpt, initial_state(), OPTIMS, ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), STEPS, SMOOTHING,
              {"maker": "tests/golden/make_gpt_fixture.py", "torch": torch.__version__, "transformers": transformers.__version__})


if __name__ == "__main__":
    main(sys.argv[1])
