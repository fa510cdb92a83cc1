#!/usr/bin/env python3
"""One rank of PyTorch's DistributedDataParallel over gloo, on the CPU in f32: steps of a torchvision network on random
images, or only the exchange. tools/bench_slow_links.py starts it; by hand:

    tools/netbed run --each -- PYTHON tools/bench_ddp_peer.py --arch resnet18 --hook powersgd:2

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who this is. Rank 0 prints one JSON object: the seconds of each step
behind the first --warm ones. --hook powersgd:R is PyTorch's powerSGD_hook with error feedback and warm start, which
it uses from the third step on. --exchange N: all_reduce of N floats, and no network."""
import argparse
import json
import time

# The hook begins collectives from gloo's threads and waits in them: with several buckets in flight over gloo it hangs or
# mixes them up (seen with torch 2.15).
ONE_BUCKET_MIB = 1 << 14


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--arch", default="resnet18")
    p.add_argument("--image-size", type=int, default=32)
    p.add_argument("--classes", type=int, default=100)
    p.add_argument("--batch-size", type=int, default=4, help="per rank")
    p.add_argument("--steps", type=int, default=5, help="measured")
    p.add_argument("--warm", type=int, default=4, help="steps before those")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--hook", default="none", help="none, or powersgd:R with its rank R")
    p.add_argument("--exchange", type=int, default=0, metavar="N")
    return p.parse_args()


def exchange(torch, a):
    """A function that does one all-reduce."""
    gradients = torch.randn(a.exchange)

    def step():
        torch.distributed.all_reduce(gradients)
        gradients.div_(torch.distributed.get_world_size())
        torch.distributed.barrier()
    return step


def training(torch, a):
    """A function that does one step."""
    import torchvision
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    torch.manual_seed(0)
    model = torchvision.models.get_model(a.arch, num_classes=a.classes).to(memory_format=torch.channels_last)
    one_bucket = {"bucket_cap_mb": ONE_BUCKET_MIB} if a.hook != "none" else {}
    model = torch.nn.parallel.DistributedDataParallel(model, **one_bucket)
    if a.hook != "none":
        kind, rank = a.hook.split(":")
        assert kind == "powersgd", a.hook
        state = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=int(rank), start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    torch.manual_seed(1 + torch.distributed.get_rank())
    images = torch.randn(a.batch_size, 3, a.image_size, a.image_size).to(memory_format=torch.channels_last)
    labels = torch.randint(0, a.classes, (a.batch_size,))
    optim = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)
    loss_of = torch.nn.CrossEntropyLoss(label_smoothing=0.1)

    def step():
        optim.zero_grad(set_to_none=True)
        loss = loss_of(model(images), labels)
        loss.backward()
        optim.step()
        loss.item()
    return step


def main():
    a = parse()
    import torch
    import torch.distributed  # noqa: F401

    torch.set_num_threads(a.threads)
    torch.distributed.init_process_group("gloo")
    step = exchange(torch, a) if a.exchange else training(torch, a)
    seconds = []
    for i in range(a.warm + a.steps):
        torch.distributed.barrier()
        begin = time.perf_counter()
        step()
        if i >= a.warm:
            seconds.append(time.perf_counter() - begin)
    if not torch.distributed.get_rank():
        print(json.dumps({"peer": "pytorch " + torch.__version__, "hook": a.hook, "arch": a.arch, "seconds": seconds}), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
