"""PyTorch: tensors shared by DLPack, and optimizers in place of torch.optim's."""
import copy
import gc
import io
import os
import subprocess
import sys
import unittest

import torch

import lather
import lather.optim
import lather.torch

COMPARE = os.path.join(os.path.dirname(lather.__file__), "..", "..", "tools", "compare_torch.py")
torch.set_num_threads(1)


def model(dtype=torch.float32):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10)).to(dtype)


def train(net, optimizer, steps, first=0, scheduler=None):
    for i in range(first, first + steps):
        rng = torch.Generator().manual_seed(i)
        dtype = next(net.parameters()).dtype
        x, y = torch.randn(16, 3, 8, 8, generator=rng, dtype=dtype), torch.randint(0, 10, (16,), generator=rng)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        if scheduler:
            scheduler.step()
    return [p.detach().clone() for p in net.parameters()]


def by_random_gradients(params, optimizer, seeds):
    for seed in seeds:
        rng = torch.Generator().manual_seed(seed)
        for p in params:
            p.grad = torch.randn(p.shape, generator=rng)
        optimizer.step()
    return [p.detach().clone() for p in params]


def as_distributed_shampoo(state):
    """Empty tensors in the layout of that optimizer's state of a parameter."""
    found = {"step": torch.tensor(0)}
    lists = {"factor": "factor_matrices", "root": "inv_factor_matrices", "basis": "factor_matrices_eigenvectors"}
    for name, value in state.items():
        kind, *dim, block = name.split(".")
        block = found.setdefault(f"block_{block}", {"shampoo": {}})
        if kind in lists:
            n = value.shape[0]
            block["shampoo"].setdefault(lists[kind], {})[int(dim[0])] = value * 0 if kind == "basis" else torch.zeros(n * (n + 1) // 2)
        else:
            part, key = {"m": (block, "filtered_grad"), "graft": (block, "adagrad"), "corrected": (block["shampoo"], "corrected_eigenvalues")}[kind]
            part[key] = value * 0
    return found


def largest_difference(a, b):
    return max((p - q).abs().max().item() for p, q in zip(a, b))


class Arrays(unittest.TestCase):
    def test_memory_is_shared_both_ways(self):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8):
            with self.subTest(dtype):
                a = torch.arange(6).reshape(2, 3).to(dtype)
                t = lather.from_dlpack(a)
                b = torch.from_dlpack(t)
                a[1, 2] = 42
                self.assertEqual((b.dtype, b[1, 2].item(), b.data_ptr()), (dtype, 42, a.data_ptr()))
                del a, t
                gc.collect()
                self.assertEqual(b[1, 2].item(), 42)

    def test_an_unused_capsule_frees_its_tensor(self):
        gc.collect()
        before = lather.device().memory()["used"]
        for version in (None, (1, 0)):
            lather.zeros(100).__dlpack__(max_version=version)
        torch.from_dlpack(lather.zeros(100))
        gc.collect()
        self.assertEqual(lather.device().memory()["used"], before)

    def test_tensors_may_outlive_the_interpreter(self):
        code = """if True:
            import torch, lather, numpy
            a, b = torch.from_dlpack(lather.zeros(100)), numpy.from_dlpack(lather.zeros(3))
            class Circle: pass
            c = Circle()
            c.own, c.t, c.unused = c, torch.from_dlpack(lather.zeros(5)), lather.zeros(3).__dlpack__()
            torch.kept, numpy.kept, unused = a, b, lather.zeros(3).__dlpack__()"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_what_cannot_be_shared_says_why(self):
        with self.assertRaisesRegex(ValueError, r"use \.detach\(\)"):
            lather.tensor(torch.zeros(2, requires_grad=True))
        with self.assertRaisesRegex(ValueError, r"strides \(1, 2\)"):
            lather.tensor(torch.zeros(3, 2).T)
        with self.assertRaisesRegex((TypeError, BufferError), "complex|bool"):
            lather.tensor(torch.zeros(2, dtype=torch.complex64))
        with self.assertRaises((ValueError, BufferError, TypeError, RuntimeError, NotImplementedError)):
            lather.tensor(torch.zeros(2, device="meta"))

    def test_gradients_equal_pytorchs(self):
        x, w = torch.randn(4, 3, 9, 9), torch.randn(5, 3, 3, 3, requires_grad=True)
        (torch.nn.functional.gelu(torch.conv2d(x, w, stride=2, padding=1)) ** 2).mean().backward()
        v = lather.tensor(w.detach(), requires_grad=True)
        (lather.conv2d(lather.tensor(x), v, stride_h=2, stride_w=2, pad_h=1, pad_w=1).gelu() ** 2).mean().backward()
        self.assertTrue(torch.allclose(torch.from_dlpack(v.grad), w.grad, rtol=1e-4, atol=1e-6))


F = torch.nn.functional
UNARY = ["relu", "exp", "sqrt", "sigmoid", "tanh", "silu", "abs", "gelu", ("ln", torch.log), ("softmax", lambda x: x.softmax(-1)),
         ("softplus", lambda x: F.softplus(x, 2.0, 20.0), 2.0, 20.0), ("leaky_relu", lambda x: F.leaky_relu(x, 0.1), 0.1),
         ("clamp", lambda x: x.clamp(0.3, 0.8), 0.3, 0.8), ("pow", lambda x: x ** 1.5, 1.5), ("cumsum", lambda x: x.cumsum(-1), -1),
         ("log_softmax", lambda x: x.log_softmax(0), 0), ("slice", lambda x: x[:, 1:3], 1, 1, 2), ("var", torch.var, 1.0),
         ("reshape", lambda x: x.reshape(4, 3), (4, 3)), ("permute", lambda x: x.T, (1, 0)), ("flatten", lambda x: x.flatten(1))]
BINARY = [("add", torch.add), ("mul", torch.mul), ("sub", torch.sub), ("div", torch.div),
          ("maximum", torch.maximum), ("pow_tensor", torch.pow),
          ("matmul", lambda a, b: a @ b.T, {"transpose_b": True}), ("linear", F.linear), ("mse_loss", F.mse_loss),
          ("l1_loss", lambda a, b: F.l1_loss(a, b, reduction="sum"), {"reduction": "sum"}),
          ("concat", lambda a, b: torch.cat([a, b], 1), None)]


class Operations(unittest.TestCase):
    """Values and gradients of samples of all kinds of arguments, against PyTorch's."""

    def compare(self, ours, theirs, arrays):
        leaves = [a.clone().requires_grad_() for a in arrays]
        want = theirs(*leaves)
        weight = torch.rand(want.shape, generator=torch.Generator().manual_seed(1))
        (want * weight).sum().backward()
        tensors = [lather.tensor(a.clone(), requires_grad=True) for a in arrays]
        found = ours(*tensors)
        (found * lather.tensor(weight)).sum().backward()
        torch.testing.assert_close(torch.from_dlpack(found), want.detach(), rtol=2e-5, atol=2e-6)
        for t, leaf in zip(tensors, leaves):
            torch.testing.assert_close(torch.from_dlpack(t.grad), leaf.grad, rtol=1e-4, atol=1e-5)

    def test_unary(self):
        x = torch.rand(3, 4, generator=torch.Generator().manual_seed(0)) + 0.1
        for row in UNARY:
            name, theirs, *arguments = row if isinstance(row, tuple) else (row, getattr(F, row, None) or getattr(torch, row))
            with self.subTest(name):
                self.compare(lambda t, n=name, a=arguments: getattr(lather, n)(t, *a), theirs, [x])

    def test_binary(self):
        rng = torch.Generator().manual_seed(0)
        a, b = torch.rand(3, 4, generator=rng) + 0.1, torch.rand(3, 4, generator=rng) + 0.1
        for name, theirs, *settings in BINARY:
            with self.subTest(name):
                if settings == [None]:
                    self.compare(lambda s, t: lather.concat([s, t], 1), theirs, [a, b])
                else:
                    self.compare(lambda s, t, n=name, k=settings: getattr(lather, n)(s, t, **(k[0] if k else {})), theirs, [a, b])

    def test_images_and_attention(self):
        rng = torch.Generator().manual_seed(0)
        x, w, b = torch.rand(2, 4, 7, 7, generator=rng), torch.rand(6, 2, 3, 3, generator=rng), torch.rand(6, generator=rng)
        self.compare(lambda x, w, b: lather.conv2d(x, w, b, stride_h=2, stride_w=2, pad_h=1, pad_w=1, groups=2),
                     lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1, groups=2), [x, w, b])
        self.compare(lambda x: lather.maxpool2d(x, kernel_h=3, kernel_w=3, stride_h=2, stride_w=2), lambda x: F.max_pool2d(x, 3, 2), [x])
        self.compare(lambda x, g, b: lather.group_norm(x, g, b, groups=2, eps=1e-5), lambda x, g, b: F.group_norm(x, 2, g, b),
                     [x, b[:4].clone(), b[2:].clone()])
        q = torch.rand(2, 5, 8, generator=rng)

        def attention(q):
            heads = q.reshape(2, 5, 2, 4).transpose(1, 2)
            return F.scaled_dot_product_attention(heads, heads, heads, is_causal=True).transpose(1, 2).reshape(2, 5, 8)
        self.compare(lambda q: lather.attention(q, q, q, heads=2, causal=True), attention, [q])

    def test_a_wrong_gradient_is_found(self):
        with self.assertRaises(AssertionError):
            self.compare(lambda x: lather.relu(x), lambda x: F.relu(x) + 0.001 * x.detach(), [torch.rand(3, 4)])


class Optimizers(unittest.TestCase):
    def test_updates_are_pytorchs(self):
        rows = [(torch.optim.SGD, "SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}),
                (torch.optim.Adam, "Adam", {"lr": 1e-3, "betas": (0.8, 0.99), "eps": 1e-7, "weight_decay": 1e-2}),
                (torch.optim.AdamW, "AdamW", {"lr": 1e-3, "weight_decay": 0.1}),
                (torch.optim.AdamW, "AdamW", {"amsgrad": False, "fused": None}), (torch.optim.Adagrad, "AdaGrad", {"lr": 0.01})]
        for dtype, bound in ((torch.float32, 1e-6), (torch.float64, 1e-14)):
            for theirs, ours, settings in rows:
                with self.subTest(f"{ours} {dtype}"):
                    a, b = model(dtype), model(dtype)
                    p = train(a, theirs(a.parameters(), **settings), 10)
                    q = train(b, getattr(lather.torch, ours)(b.parameters(), **settings), 10)
                    self.assertLess(largest_difference(p, q), bound)
                    self.assertGreater(largest_difference(p, model(dtype).parameters()), 1e-3)

    @unittest.skipUnless(os.path.exists(COMPARE), "not in a source tree")
    def test_the_comparison_has_a_row_for_each(self):
        done = subprocess.run([sys.executable, COMPARE, "--layers", "1", "--rounds", "1"], capture_output=True, text=True, check=True)
        rows = [line.split(" | ") for line in done.stdout.splitlines()[2:]]
        self.assertEqual([row[0] for row in rows], ["| AdamW, torch.optim", "| AdamW, torch.optim fused", "| SGD with momentum, torch.optim",
                                                   "| Muon, torch.optim, in bf16; ours in f32", "| Muon, torch.optim, both in bf16"])
        for row in rows:
            self.assertLess(float(row[4].rstrip(" |")), 1e-3 if "Muon" in row[0] else 1e-6)

    def test_channels_last_and_missing_gradients(self):
        a, b = (model().to(memory_format=torch.channels_last) for _ in range(2))
        for net in (a, b):
            net[3].bias.requires_grad_(False)
        p = train(a, torch.optim.AdamW(a.parameters(), lr=1e-3), 5)
        q = train(b, lather.torch.AdamW(b.parameters(), lr=1e-3), 5)
        self.assertLess(largest_difference(p, q), 1e-6)

    def test_a_saved_state_continues_with_the_same_bits(self):
        for name in lather.optim.names():
            with self.subTest(name):
                settings = dict(lather.optim.preset(name), lr=1e-2)
                a = model()
                one = lather.torch.Optimizer(name, a.parameters(), **settings)
                train(a, one, 4)
                file = io.BytesIO()
                torch.save({"model": a.state_dict(), "optim": one.state_dict()}, file)
                file.seek(0)
                saved = torch.load(file, weights_only=True)
                b = model()
                two = lather.torch.Optimizer(name, b.parameters(), **dict(settings, lr=0.5))
                b.load_state_dict(saved["model"])
                two.load_state_dict(saved["optim"])
                self.assertEqual(two.param_groups[0]["lr"], 1e-2)
                self.assertEqual(largest_difference(train(a, one, 4, first=4), train(b, two, 4, first=4)), 0)

    def test_a_state_saved_under_a_scheduler_is_continued(self):
        schedules = [("max_lr", lambda o, **more: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20, cycle_momentum=False, **more)),
                     ("swa_lr", lambda o, **more: torch.optim.swa_utils.SWALR(o, 0.05, **more))]
        for key, schedule in schedules:
            with self.subTest(key):
                a, b = model(), model()
                one = lather.torch.AdamW(a.parameters(), lr=1e-2, cautious_mask=True)
                along = schedule(one)
                train(a, one, 4, scheduler=along)
                saved = copy.deepcopy(one.state_dict())
                self.assertIn(key, saved["param_groups"][0])
                two = lather.torch.AdamW(b.parameters(), lr=1)
                two.load_state_dict(saved)
                b.load_state_dict(a.state_dict())
                again = schedule(two, last_epoch=4)
                again.load_state_dict(along.state_dict())
                two.load_state_dict(saved)  # with the scheduler's keys here too; its constructor changed lr
                self.assertEqual(largest_difference(train(a, one, 4, first=4, scheduler=along), train(b, two, 4, first=4, scheduler=again)), 0)
                self.assertIs(two.param_groups[0]["cautious_mask"], True)
                with self.assertRaisesRegex(lather.ArgumentError, f"adamw has no key '{key}'"):
                    lather.torch.AdamW(b.parameters(), **{"lr": 1, key: 0.1})
                with self.assertRaisesRegex(lather.ArgumentError, f"adamw has no key '{key}'"):
                    two.add_param_group({"params": [torch.zeros(2, requires_grad=True)], key: 0.1})

    def test_the_state_of_pytorchs_class_is_continued(self):
        rows = [(torch.optim.SGD, "SGD", {"lr": 0.01, "momentum": 0.9, "dampening": 0.1}), (torch.optim.AdamW, "AdamW", {"lr": 3e-3, "eps": 1e-6}),
                (torch.optim.Adam, "Adam", {"betas": (0.8, 0.9)}), (torch.optim.Adagrad, "AdaGrad", {})]
        for theirs, ours, settings in rows:
            with self.subTest(ours):
                a, b = model(), model()
                one = theirs(a.parameters(), **settings)
                train(a, one, 5)
                two = getattr(lather.torch, ours)(b.parameters(), lr=9)
                two.load_state_dict(one.state_dict())
                b.load_state_dict(a.state_dict())
                self.assertLess(largest_difference(train(a, one, 5, first=5), train(b, two, 5, first=5)), 1e-6)
        with self.assertRaisesRegex(ValueError, "has momentum_buffer, which is not that of a muon with m"):
            w = torch.randn(4, 4, requires_grad=True)
            w.grad = torch.ones(4, 4)
            other = torch.optim.Muon([w])
            other.step()
            lather.torch.Muon([w]).load_state_dict(other.state_dict())

    def test_pytorchs_class_goes_on_with_the_state(self):
        rows = [("SGD", torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "nesterov": True}), ("AdamW", torch.optim.AdamW, {"lr": 3e-3, "eps": 1e-6}),
                ("Adam", torch.optim.Adam, {"betas": (0.8, 0.9), "weight_decay": 0.1}), ("AdaGrad", torch.optim.Adagrad, {})]
        for ours, theirs, settings in rows:
            with self.subTest(ours):
                a, b = model(), model()
                one = getattr(lather.torch, ours)(a.parameters(), **settings)
                train(a, one, 5)
                two = theirs(b.parameters(), lr=9)
                two.load_state_dict(one.pytorch_state_dict())
                b.load_state_dict(a.state_dict())
                self.assertEqual(two.param_groups[0]["lr"], one.param_groups[0]["lr"])
                self.assertLess(largest_difference(train(a, one, 5, first=5), train(b, two, 5, first=5)), 1e-6)
        with self.assertRaisesRegex(TypeError, "no form of the state of shampoo, only of sgd, adam, adamw, adagrad"):
            lather.torch.Shampoo(model().parameters(), lr=1).pytorch_state_dict()

    def test_the_state_of_distributed_shampoo_is_continued(self):
        common = {"lr": 0.01, "max_preconditioner_dim": 64, "precondition_frequency": 3}
        for more in ({"grafting": "adam"}, {"preconditioner": "eigenvalue_corrected"}):
            with self.subTest(more):
                a, b = model(), model()
                one = lather.torch.Shampoo(a.parameters(), **common, **more)
                train(a, one, 4)
                template = {"state": {i: as_distributed_shampoo(s) for i, s in one.state_dict()["state"].items()},
                            "param_groups": [{"lr": 0.01, "params": [0, 1, 2, 3]}]}
                saved = one.distributed_shampoo_state_dict(template)
                self.assertEqual(int(saved["state"][0]["step"]), 4)
                two = lather.torch.Shampoo(b.parameters(), **{**common, "lr": 9}, **more)
                two.load_state_dict(saved)
                b.load_state_dict(a.state_dict())
                self.assertEqual(largest_difference(train(a, one, 5, first=4), train(b, two, 5, first=4)), 0)
        with self.assertRaisesRegex(ValueError, "parameter 0 has basis.0.0.* and lacks .*root.0.0.*: their settings differ"):
            lather.torch.Shampoo(model().parameters(), **common).load_state_dict(saved)
        saved["state"][0]["block_0"]["momentum"] = torch.zeros(1)
        with self.assertRaisesRegex(ValueError, "has momentum, which has no counterpart"):
            two.load_state_dict(saved)

    def test_a_load_that_fails_changes_nothing(self):
        a, b = model(), model()
        one, other = lather.torch.Shampoo(a.parameters(), lr=0.01), lather.torch.AdamW(b.parameters(), lr=0.3)
        same = model()
        two = lather.torch.Shampoo(same.parameters(), lr=0.01)
        for net, optimizer in ((a, one), (b, other), (same, two)):
            train(net, optimizer, 3)
        for saved, says in ((other.state_dict(), "is that of adamw, this optimizer is shampoo"), (torch.optim.Adam(b.parameters()).state_dict(), "")):
            with self.assertRaisesRegex(Exception, says):
                saved["state"] = saved["state"] or {0: {"exp_avg": torch.zeros(2), "exp_avg_sq": torch.zeros(2), "step": torch.tensor(1.)}}
                one.load_state_dict(saved)
        self.assertEqual(one.param_groups[0]["lr"], 0.01)
        self.assertEqual(largest_difference(train(a, one, 3, first=3), train(same, two, 3, first=3)), 0)
        one.param_groups[0]["betas"] = (0.5, 0.6)
        with self.assertRaisesRegex(ValueError, "betas of group 0 was set after"):
            one.step()
        for lr in (-1, "0.1", float("nan")):
            with self.assertRaisesRegex(ValueError, "lr of adamw is"):
                lather.torch.AdamW(a.parameters(), lr=lr)
        with self.assertRaisesRegex(TypeError, "adamw is not shampoo"):
            other.distributed_shampoo_state_dict({"state": {}})

    def test_distributed_shampoo_itself_continues(self):
        try:
            import distributed_shampoo as ds
        except ImportError:
            self.skipTest("no distributed_shampoo (github.com/facebookresearch/optimizers)")
        common = {"lr": 0.01, "betas": (0.9, 0.999), "epsilon": 1e-6, "max_preconditioner_dim": 8, "precondition_frequency": 3, "start_preconditioning_step": 3}
        for ours, theirs in (({"grafting": "adam", "grafting_beta2": 0.999, "grafting_epsilon": 1e-8}, {"grafting_config": ds.AdamPreconditionerConfig(beta2=0.999, epsilon=1e-8)}),
                             ({"preconditioner": "eigenvalue_corrected"}, {"preconditioner_config": ds.DefaultEigenvalueCorrectedShampooConfig})):
            with self.subTest(ours):
                a, b, c = ([torch.randn(*s, generator=torch.Generator().manual_seed(0)).requires_grad_() for s in ((12, 6), (5,), (4, 3, 3, 3))]
                           for _ in range(3))
                one = ds.DistributedShampoo(a, **common, **theirs)
                by_random_gradients(a, one, range(7))
                two, three = lather.torch.Shampoo(b, **common, **ours), ds.DistributedShampoo(c, **common, **theirs)
                two.load_state_dict(one.state_dict())
                three.load_state_dict(two.distributed_shampoo_state_dict(three.state_dict()))
                with torch.no_grad():
                    for p, q, r in zip(a, b, c):
                        q.copy_(p)
                        r.copy_(p)
                want = by_random_gradients(a, one, range(7, 12))
                self.assertLess(largest_difference(want, by_random_gradients(b, two, range(7, 12))), 1e-5)
                self.assertEqual(largest_difference(want, by_random_gradients(c, three, range(7, 12))), 0)

    def test_groups_and_schedules(self):
        def groups(net):
            return [{"params": net[0].parameters(), "weight_decay": 0.5, "betas": (0.5, 0.9)}, {"params": net[3].parameters(), "lr": 0.1}]
        a, b = model(), model()
        one = torch.optim.AdamW(groups(a), lr=1e-3, weight_decay=0)
        two = lather.torch.AdamW(groups(b), lr=1e-3, weight_decay=0)
        p = train(a, one, 8, scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(one, 8))
        q = train(b, two, 8, scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(two, 8))
        self.assertLess(largest_difference(p, q), 1e-5)
        one.param_groups[0]["weight_decay"] = two.param_groups[0]["weight_decay"] = 0.1
        one.param_groups[0]["lr"] = two.param_groups[0]["lr"] = 1e-2
        self.assertLess(largest_difference(train(a, one, 3), train(b, two, 3)), 1e-5)
        two.param_groups[0]["beta1"] = 0.1
        with self.assertRaisesRegex(ValueError, "beta1 of group 0 was changed from 0.5 to 0.1"):
            two.step()

    def test_replaced_memory_is_followed(self):
        a, b = model(), model()
        one, two = torch.optim.SGD(a.parameters(), lr=0.1), lather.torch.SGD(b.parameters(), lr=0.1)
        for net, optimizer in ((a, one), (b, two)):
            train(net, optimizer, 2)
            for p in net.parameters():
                p.data = p.data.clone()
            train(net, optimizer, 2)
        self.assertLess(largest_difference(a.parameters(), b.parameters()), 1e-6)

    def test_autograd_notices_the_update(self):
        w = torch.ones(3, requires_grad=True)
        optimizer = lather.torch.SGD([w], lr=0.1)
        loss = (w * w).sum()
        w.grad = torch.ones(3)
        optimizer.step()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_muon_in_bf16_is_pytorchs(self):
        shapes, rng = [(64, 48), (100, 70), (48, 64)], torch.Generator().manual_seed(0)
        start = [torch.randn(*s, generator=rng) for s in shapes]
        a, b = ([p.clone().requires_grad_() for p in start] for _ in range(2))
        one, two = torch.optim.Muon(a, lr=0.01), lather.torch.Muon(b, lr=0.01, bf16_orthogonalization=True)
        for _ in range(5):
            for p, q in zip(a, b):
                p.grad = torch.randn(p.shape, generator=rng)
                q.grad = p.grad.clone()
            one.step()
            two.step()
        update = max((p - q).abs().max().item() for p, q in zip(a, start))
        self.assertLess(largest_difference(a, b), 0.02 * update)

    def test_parameters_by_name_choose_muons_rule(self):
        net = model()
        optimizer = lather.torch.Muon(net.named_parameters(), lr=0.01)
        train(net, optimizer, 2)
        state = optimizer.state_dict()
        self.assertIn("updates.0.weight", state["param_groups"][0]["numbers"])
        self.assertEqual(sorted(state["state"][1]), ["m", "v"])  # a bias: AdamW

    def test_no_memory_is_left(self):
        def once():
            net = model()
            optimizer = lather.torch.Shampoo(net.parameters(), lr=0.01)
            train(net, optimizer, 2)
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        sizes = []
        for _ in range(3):
            once()
            gc.collect()
            sizes.append(lather.device("cpu").memory()["used"])
        self.assertEqual(len(set(sizes[1:])), 1)

    def test_misuse_is_named(self):
        w = torch.zeros(3, requires_grad=True)
        rows = [(TypeError, "torch.bfloat16; parameters must be float32", lambda: lather.torch.SGD([w.detach().bfloat16().requires_grad_()], lr=1)),
                (ValueError, "strides", lambda: lather.torch.SGD([torch.zeros(3, 2).T.requires_grad_()], lr=1)),
                (ValueError, "is on meta; these optimizers update CPU tensors", lambda: lather.torch.SGD([torch.zeros(2, device="meta")], lr=1)),
                (lather.ArgumentError, "no key 'amsgrad'", lambda: lather.torch.AdamW([w], lr=1, amsgrad=True)),
                (TypeError, "shampoo needs lr", lambda: lather.torch.Shampoo([w])),
                (TypeError, "PyTorch's eps of muon is another constant", lambda: lather.torch.Muon([w], eps=1e-3)),
                (ValueError, r"groups of \[1, 1\] parameters, this optimizer has \[1\]", lambda: lather.torch.SGD([w], lr=1).load_state_dict(
                    lather.torch.SGD([{"params": [w]}, {"params": [torch.zeros(1)]}], lr=1).state_dict())),
                (AttributeError, "has no Shampo; its optimizers are", lambda: lather.torch.Shampo),
                (TypeError, "not copied or pickled", lambda: copy.deepcopy(lather.torch.SGD([w], lr=1)))]
        for kind, text, call in rows:
            with self.subTest(text), self.assertRaisesRegex(kind, text):
                call()


if __name__ == "__main__":
    unittest.main()
