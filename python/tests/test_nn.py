"""Modules: names, training, weights on disk, PyTorch's values."""
import os
import tempfile
import unittest

try:  # before lather, whose CUDA module may load an older NCCL
    import torch
except ImportError:
    torch = None

import lather
from lather import nn


class Net(nn.Module):
    def __init__(self):
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), lather.relu, lather.flatten)
        self.heads = [nn.Linear(8 * 36, 10)]
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.heads[0](self.drop(self.body(x)))


def batch(seed, count=16):
    x, labels = lather.zeros(count, 3, 6, 6), [(seed + i) % 10 for i in range(count)]
    values = [[[[((seed + 1) * 7919 * (n * 108 + c * 36 + h * 6 + w + 1)) % 1009 / 504.5 - 1 + 0.3 * (labels[n] == h + w) for w in range(6)] for h in range(6)]
               for c in range(3)] for n in range(count)]
    return x.copy_(lather.tensor(values)), lather.tensor(labels, dtype="i32")


def train(net, steps):
    optimizer = lather.optim.AdamW(net.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        x, labels = batch(step % 4)
        net.zero_grad()
        loss = lather.softmax_xent(net(x), labels, smoothing=0.0)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class Modules(unittest.TestCase):
    def test_names_are_those_of_attributes(self):
        names = ["body.0.weight", "body.1.weight", "body.1.bias", "heads.0.weight", "heads.0.bias"]
        self.assertEqual([name for name, _ in Net().named_parameters()], names)
        self.assertEqual(set(Net().state_dict()), {*names, "body.1.running_mean", "body.1.running_var"})

    def test_a_shared_parameter_is_one(self):
        net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        net.steps[1].weight = net.steps[0].weight
        self.assertEqual((len(net.parameters()), len(list(net.named_parameters()))), (3, 4))

    def test_frozen_parameters_are_saved(self):
        net, names = Net(), list(Net().state_dict())
        for _, value in net.body.named_parameters():
            value.requires_grad_(False)
        self.assertEqual(len(net.parameters()), 2)
        self.assertEqual(list(net.state_dict()), names)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "w.safetensors")
            net.save(path)
            Net().load(path)
            net.load(path)

    def test_attributes_that_were_replaced_or_deleted(self):
        net = nn.BatchNorm2d(2)
        net.weight.requires_grad_(False)
        net.weight = lather.zeros(2)  # remains a frozen parameter
        del net.bias, net.running_mean
        net.bias, net.running_mean = lather.zeros(2), lather.zeros(2)
        self.assertEqual(list(net.state_dict()), ["weight", "running_var"])
        net.bias = lather.zeros(2, requires_grad=True)
        self.assertEqual(set(net.state_dict()), {"weight", "bias", "running_var"})
        net.bias = None
        self.assertEqual(set(net.state_dict()), {"weight", "running_var"})

    def test_the_loss_falls_and_a_seed_repeats_it(self):
        losses = []
        for _ in range(2):
            lather.manual_seed(5)
            losses.append(train(Net(), 40))
        self.assertEqual(*losses)
        self.assertLess(losses[0][-1], 0.5 * losses[0][0])
        lather.manual_seed(6)
        self.assertNotEqual(train(Net(), 1), losses[0][:1])

    def test_evaluation_drops_nothing_and_uses_running_statistics(self):
        net = Net()
        train(net, 4)
        x, _ = batch(0)
        with lather.no_grad():
            whole = net.eval()(x).tolist()
            part = net(lather.slice(x, 0, 0, 4)).tolist()
        for a, b in zip(sum(whole[:4], []), sum(part, [])):
            self.assertAlmostEqual(a, b, places=5)
        before = net.state_dict()["body.1.running_mean"].tolist()
        lather.softmax_xent(net(x), batch(0)[1], smoothing=0.0).backward()
        self.assertEqual(net.state_dict()["body.1.running_mean"].tolist(), before)
        lather.softmax_xent(net.train()(x), batch(0)[1], smoothing=0.0).backward()
        self.assertNotEqual(net.state_dict()["body.1.running_mean"].tolist(), before)

    def test_weights_are_written_and_read(self):
        net, other = Net(), Net()
        train(net, 2)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "net.safetensors")
            net.save(path)
            other.load(path)
            x, _ = batch(3)
            with lather.no_grad():
                self.assertEqual(net.eval()(x).tolist(), other.eval()(x).tolist())
            with self.assertRaisesRegex(lather.Error, "0.weight"):
                nn.Sequential(nn.Linear(2, 2)).load(path)

    def test_other_names_and_shapes_change_nothing(self):
        net = nn.Sequential(nn.Linear(2, 3))
        before = net.steps[0].weight.tolist()
        with self.assertRaisesRegex(KeyError, "missing 0.bias; unknown 0.scale"):
            net.load_state_dict({"0.weight": lather.zeros(3, 2), "0.scale": lather.zeros(3)})
        with self.assertRaisesRegex(ValueError, r"0.bias has shape \(3,\), the given one \(2,\)"):
            net.load_state_dict({"0.weight": lather.zeros(3, 2), "0.bias": lather.zeros(2)})
        self.assertEqual(net.steps[0].weight.tolist(), before)

    def test_embedding_and_layer_norm(self):
        net = nn.Sequential(nn.Embedding(7, 4), nn.LayerNorm(4), nn.Linear(4, 7))
        y = net(lather.tensor([[1, 2, 6]], dtype="i32"))
        self.assertEqual(y.shape, (1, 3, 7))
        lather.sum(y).backward()
        grad = net.steps[0].weight.grad.tolist()
        self.assertEqual([any(row) for row in grad], [False, True, True, False, False, False, True])

    def test_bad_arguments(self):
        with self.assertRaisesRegex(ValueError, "3 inputs and 8 outputs are not divisible by 2 groups"):
            nn.Conv2d(3, 8, 3, groups=2)
        with self.assertRaisesRegex(ValueError, r"p is 1.0, not within \[0,1\)"):
            nn.Dropout(1.0)
        with self.assertRaisesRegex(NotImplementedError, "Module has no forward"):
            nn.Module()(1)


class Torch(unittest.TestCase):
    def test_the_same_weights_give_the_same_values(self):
        if torch is None:
            self.skipTest("no torch")
        theirs = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, stride=2, padding=(1, 0)), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
                                     torch.nn.Linear(48, 10)).eval()
        ours = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=(1, 0)), nn.BatchNorm2d(8), lather.relu, lather.flatten, nn.Linear(48, 10)).eval()
        ours.load_state_dict({k: v for k, v in theirs.state_dict().items() if "num_batches" not in k})
        x = torch.randn(5, 3, 6, 6)
        with lather.no_grad():
            y = torch.from_dlpack(ours(lather.tensor(x)))
        self.assertLess((y - theirs(x)).abs().max().item(), 1e-5)


if __name__ == "__main__":
    unittest.main()
