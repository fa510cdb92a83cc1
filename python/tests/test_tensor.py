"""Tensors, operations and gradients, without numpy."""
import array
import copy
import gc
import inspect
import pickle
import threading
import unittest

import lather
import lather.optim
from lather._rule import is_option


def used():
    gc.collect()
    return lather.device().memory()["used"]


class Arrays(unittest.TestCase):
    def test_lists_have_their_shape_and_values(self):
        t = lather.tensor([[1.5, 2], [3, 4], [5, 6]])
        self.assertEqual((t.shape, t.dtype, t.tolist()), ((3, 2), "f32", [[1.5, 2], [3, 4], [5, 6]]))
        self.assertEqual((lather.tensor([1, 2]).dtype, lather.tensor(2.5).item(), lather.tensor(7).shape), ("i64", 2.5, ()))
        with self.assertRaisesRegex(ValueError, r"rows of a nested list differ in shape: \(1,\), \(2,\)"):
            lather.tensor([[1], [2, 3]])

    def test_a_buffer_is_shared(self):
        numbers = array.array("d", [1, 2, 3])
        t = lather.tensor(numbers)
        numbers[1] = -5
        self.assertEqual((t.dtype, t.tolist()), ("f64", [1, -5, 3]))
        t.fill_(9)
        self.assertEqual(list(numbers), [9, 9, 9])
        copied = lather.tensor(numbers, copy=True)
        numbers[0] = 0
        self.assertEqual(copied.tolist(), [9, 9, 9])

    def test_a_read_only_buffer_is_an_error_or_a_copy(self):
        with self.assertRaisesRegex(ValueError, "read-only.*copy=True"):
            lather.tensor(b"ab")
        self.assertEqual(lather.tensor(b"ab", copy=True).tolist(), [97, 98])

    def test_dtypes_convert_on_demand(self):
        t = lather.tensor([1, 2, 3], dtype="f32")
        self.assertEqual((t.dtype, t.to("bf16").dtype, t.to("bf16").tolist()), ("f32", "bf16", [1, 2, 3]))
        with self.assertRaisesRegex(TypeError, "no dtype 'float'; there are f32"):
            lather.tensor([1], dtype="float")
        with self.assertRaisesRegex(TypeError, "f64, not f32, and copy=False"):
            lather.tensor(array.array("d", [1]), dtype="f32", copy=False)

    def test_copies_have_their_own_memory(self):
        t = lather.tensor([1.0, 2], requires_grad=True)
        c = copy.deepcopy(t)
        t.fill_(0)
        self.assertEqual((c.tolist(), c.requires_grad), ([1, 2], True))
        for function in (copy.copy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, "not pickled"):
                function(t)

    def test_indices_and_operators(self):
        t = lather.tensor([[1.0, 2, 3], [4, 5, 6]])
        self.assertEqual((t[1].tolist(), t[:, 2].tolist(), t[-1, 0:2].tolist()), ([4, 5, 6], [3, 6], [4, 5]))
        self.assertEqual(t.T.tolist(), [[1, 4], [2, 5], [3, 6]])
        self.assertEqual(((t @ t.T).tolist(), (1 - t[0]).tolist()), ([[14, 32], [32, 77]], [0, -1, -2]))
        self.assertEqual(((t[0] ** 2 / 2 + 1).tolist(), (-t[0]).tolist()), ([1.5, 3, 5.5], [-1, -2, -3]))
        with self.assertRaisesRegex(IndexError, "index 2 of dimension 0"):
            t[2]


class Operations(unittest.TestCase):
    def test_each_operation_of_the_headers_is_there(self):
        self.assertGreaterEqual(len(lather.ops.__all__), 85)
        self.assertEqual(str(inspect.signature(lather.attention)),
                         "(q, k=None, v=None, *, heads=0, kv_heads=0, causal=False, scale=0.0, lower_right=False)")
        self.assertEqual(str(inspect.signature(lather.mse_loss)), "(x, target, reduction='mean')")
        self.assertIn("2-D cross-correlation", lather.conv2d.__doc__)

    def test_arguments_of_all_kinds(self):
        x = lather.tensor([[1.0, 5, 3], [4, 2, 6]])
        self.assertEqual(x.sum(dims=-1).tolist(), [9, 12])
        self.assertEqual(x.sum(dims=(0, 1), keep=True).tolist(), [[21]])
        values, indices = x.topk(2)
        self.assertEqual((values.tolist(), indices.tolist()), ([[5, 3], [6, 4]], [[1, 2], [2, 0]]))
        self.assertEqual(lather.concat([x, x], 0).shape, (4, 3))
        self.assertEqual(x.reshape((3, 2)).permute([1, 0]).tolist(), [[1, 3, 2], [5, 4, 6]])
        self.assertEqual(x.log_softmax(-1).shape, (2, 3))
        with self.assertRaisesRegex(ValueError, "reduction: 'median' is not one of mean, sum, none"):
            lather.mse_loss(x, x, "median")
        with self.assertRaises(TypeError):
            lather.conv2d(x)
        for kind, text, call in ((IndexError, "dimension 2 of a tensor of 2", lambda: x.sum(dims=2)), (IndexError, "dimension -3", lambda: x.cumsum(-3)),
                                 (ValueError, "order has 1 numbers, the tensor 2", lambda: x.permute([1])),
                                 (ValueError, "triplet has 2 tensors, want 3", lambda: lather.triplet_margin_loss([x, x], 1.0)),
                                 (ValueError, "shape has 6 dimensions", lambda: x.reshape((1, 1, 1, 1, 2, 3)))):
            with self.subTest(text), self.assertRaisesRegex(kind, text):
                call()

    def test_a_scalar_is_an_operand(self):
        s = lather.tensor([1.0, 2]).sum()
        self.assertEqual(((s * s).item(), bool(s), bool(s - 3)), (9, True, False))
        with self.assertRaisesRegex(ValueError, "neither true nor false"):
            bool(lather.zeros(2))

    def test_values_of_no_sense_are_errors(self):
        for text, call in (("2.5 is no i64", lambda: lather.tensor([1, 2]) * 2.5), ("str is no array", lambda: lather.tensor("abc")),
                           ("NoneType is no array", lambda: lather.tensor([1, None])), ("got no tensor", lambda: lather.relu(None))):
            with self.subTest(text), self.assertRaisesRegex(TypeError, text):
                call()
        self.assertEqual((lather.tensor([1, 2]) * 2.0).tolist(), [2, 4])

    def test_failures_have_the_librarys_message(self):
        with self.assertRaisesRegex(lather.ArgumentError, r"\[2,3\]") as caught:
            lather.matmul(lather.zeros(2, 3), lather.zeros(2, 3))
        self.assertEqual(caught.exception.status, "LT_E_SHAPE")
        with self.assertRaises(lather.ArgumentError):
            lather.add(lather.zeros(2), None)
        self.assertEqual(lather.relu(lather.tensor([-1.0, 2])).tolist(), [0, 2])  # the next call works

    def test_a_result_may_outlive_its_inputs(self):
        x = lather.tensor(array.array("f", range(6)))
        y = x.reshape((2, 3)).permute([1, 0])
        del x
        gc.collect()
        lather.zeros(1000).fill_(7)
        self.assertEqual(y.tolist(), [[0, 3], [1, 4], [2, 5]])


def numerical(function, x, h=1e-5):
    """Central differences of a scalar function of an f64 tensor."""
    gradient = []
    for i in range(x.numel()):
        values = []
        for sign in (1, -1):
            moved = array.array("d", x.reshape((x.numel(),)).tolist())
            moved[i] += sign * h
            values.append(function(lather.tensor(moved, device=x.device).reshape(x.shape)).item())
        gradient.append((values[0] - values[1]) / (2 * h))
    return gradient


class Gradients(unittest.TestCase):
    def test_backward_equals_central_differences(self):
        exact = lather.device("ref", f64=True)
        x = lather.tensor(array.array("d", [0.3, -0.7, 1.1, 0.9, -0.2, 0.5]), device=exact).reshape((2, 3)).detach()
        w = lather.tensor(array.array("d", [0.5, -1, 0.25, 2, 1, -0.5]), device=exact).reshape((2, 3)).detach()
        rows = {"linear, gelu": lambda t: lather.linear(t, w).gelu().sum(), "softmax": lambda t: (t.softmax() * w).sum(),
                "norm": lambda t: (lather.layernorm(t, eps=1e-5) * w).sum(), "twice": lambda t: (t * t + t).mean(),
                "slice": lambda t: (t[:, 1] ** 2).sum(), "variance": lambda t: t.var(1.0)}
        for name, function in rows.items():
            with self.subTest(name):
                leaf = x.detach().requires_grad_()
                function(leaf).backward()
                found = leaf.grad.reshape((6,)).tolist()
                for have, want in zip(found, numerical(function, x)):
                    self.assertLess(abs(have - want), 1e-8)
        wrong = x.detach().requires_grad_()
        (wrong * wrong).sum().backward()
        self.assertGreater(abs(wrong.grad.tolist()[0][0] - numerical(lambda t: (t * t * 1.01).sum(), x)[0]), 1e-3)  # the check can fail

    def test_gradients_add_up_until_they_are_reset(self):
        w = lather.tensor([2.0, 3], requires_grad=True)
        self.assertIsNone(w.grad)
        for _ in range(2):
            (w * w).sum().backward()
        held = w.grad
        self.assertEqual(held.tolist(), [8, 12])
        w.grad = None
        self.assertIsNone(w.grad)
        w.sum().backward()
        self.assertEqual((w.grad.tolist(), held.tolist()), ([1, 1], [8, 12]))

    def test_values_that_python_holds_survive_backward(self):
        w = lather.tensor([2.0, 3], requires_grad=True)
        y = w * 3
        (y * y).sum().backward()
        self.assertEqual(y.tolist(), [6, 9])
        with self.assertRaisesRegex(RuntimeError, "earlier pass"):
            y * w
        self.assertEqual((y.detach() * w.detach()).tolist(), [12, 27])

    def test_misuse_is_named(self):
        w = lather.tensor([2.0, 3], requires_grad=True)
        with self.assertRaisesRegex(ValueError, r"needs a scalar, got shape \(2,\)"):
            (w * 2).backward()
        with self.assertRaisesRegex(RuntimeError, "nothing before it requires a gradient"):
            lather.tensor(1.0).backward()
        with lather.no_grad(), self.assertRaises(RuntimeError):
            w.sum().backward()
        with self.assertRaisesRegex(TypeError, "needs dtype f32.*got i64"):
            lather.tensor([1, 2], requires_grad=True)
        loss = w.sum()
        loss.backward()
        with self.assertRaisesRegex(RuntimeError, "has ended: backward.. ran in it"):
            loss.backward()
        self.assertFalse(lather.argmax(w * 2).requires_grad)

    def test_a_pass_may_leave_its_settings(self):
        w = lather.tensor([2.0, 3], requires_grad=True)
        with lather.settings(recompute="cheap"):
            y = w * w
        y.sum().backward()
        self.assertEqual(w.grad.tolist(), [4, 6])
        a = w * w
        with lather.settings(train=False), self.assertRaisesRegex(RuntimeError, "another pass is open"):
            b = w * 2
            lather.add(b, a)
        with self.assertRaisesRegex(TypeError, "no setting 'dype'; there are attempt"), lather.settings(dype="bf16"):
            pass

    def test_a_failure_ends_its_pass(self):
        w = lather.zeros(2, 3, requires_grad=True)
        y = w * 2
        with self.assertRaises(lather.ArgumentError):
            lather.matmul(y, w)
        with self.assertRaisesRegex(RuntimeError, "an operation of it failed"):
            y * w
        (w * 2).sum().backward()
        self.assertEqual(w.grad.tolist()[0], [2, 2, 2])

    def test_threads_have_separate_passes(self):
        w, found = lather.tensor([1.0, 2], requires_grad=True), []

        def work(factor):
            v = lather.tensor([1.0, 2], requires_grad=True)
            for _ in range(20):
                v.grad = None
                (v * v * factor).sum().backward()
            found.append((factor, v.grad.tolist()))
        threads = [threading.Thread(target=work, args=(k,)) for k in (1.0, 2.0, 3.0)]
        y = w * 5
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        y.sum().backward()
        self.assertEqual(w.grad.tolist(), [5, 5])
        self.assertEqual(sorted(found), [(k, [2 * k, 4 * k]) for k in (1.0, 2.0, 3.0)])

    def test_seeds_and_dtypes_are_checked(self):
        with self.assertRaises(TypeError):
            lather.manual_seed("a")
        with self.assertRaisesRegex(ValueError, "no dtype 'fp8'; there are f32"):
            with lather.settings(dtype="fp8"):
                pass

    def test_weights_changed_by_others_are_read_again(self):
        numbers = array.array("f", [1] * 4096)
        shared = lather.tensor(numbers)
        x, w = lather.zeros(64, 64).fill_(1), shared.reshape((64, 64))
        own = lather.zeros(64, 64, requires_grad=True).fill_(1)
        for weights, change in ((w, lambda: memoryview(numbers).cast("B").__setitem__(slice(0, 1024), bytes(1024))),
                                (own, lambda: own.copy_(lather.zeros(64, 64)))):
            with lather.settings(dtype="bf16"):
                before = lather.linear(x, weights).tolist()[0][0]
                change()
                after = lather.linear(x, weights).tolist()[0][0]
            self.assertEqual((before, after), (64, 0))

    def test_dropout_differs_in_each_pass_and_repeats_by_seed(self):
        w = lather.zeros(1000, requires_grad=True).fill_(1)

        def masks():
            lather.manual_seed(3)
            found = []
            for _ in range(2):
                y = w.dropout(0.5)
                y.sum().backward()
                found.append(y.tolist())
            return found
        first, second = masks(), masks()
        self.assertEqual(first, second)
        self.assertNotEqual(first[0], first[1])
        with lather.settings(train=False):
            self.assertEqual(w.dropout(0.5).tolist(), [1] * 1000)


class Memory(unittest.TestCase):
    def test_nothing_is_left(self):
        x, before = lather.zeros(64, 64).fill_(0.5), None
        for i in range(30):
            w = lather.zeros(64, 64, requires_grad=True).fill_(0.1)
            loss = lather.linear(x, w).gelu().mean()
            if i % 3:
                loss.backward()
            with lather.no_grad():
                lather.softmax(lather.linear(x, w))
            with self.assertRaises(lather.ArgumentError):
                lather.matmul(x, lather.zeros(3, 3))
            del loss, w
            before = used() if i == 2 else before
        self.assertEqual(used(), before)

    def test_live_tensors_are_counted(self):
        before = used()
        kept = [lather.zeros(1024) for _ in range(3)]
        self.assertEqual(used() - before, 3 * 4096)
        kept.clear()
        self.assertEqual(used(), before)

    def test_evaluation_in_a_loop_needs_constant_memory(self):
        w, x = lather.zeros(64, 64, requires_grad=True), lather.zeros(64, 64)
        sizes = []
        with lather.no_grad():
            for _ in range(8):
                x = lather.linear(x, w).relu()
                sizes.append(used())
        self.assertEqual(len(set(sizes[2:])), 1)


class Optimizers(unittest.TestCase):
    def train(self, optimizer, w, steps):
        target = lather.tensor([[1.0, -2], [3, 0.5], [0, 1]])
        for _ in range(steps):
            optimizer.zero_grad()
            loss = lather.mse_loss(w, target)
            loss.backward()
            self.assertTrue(optimizer.step())
        return loss.item()

    def test_each_row_of_the_table_trains(self):
        for name in lather.optim.names():
            with self.subTest(name):
                w = lather.zeros(3, 2, requires_grad=True).fill_(0.1)
                optimizer = getattr(lather.optim, name.capitalize())([w], **lather.optim.preset(name))
                first = self.train(optimizer, w, 1)
                self.assertLess(self.train(optimizer, w, 20), first)
                self.assertIn(name, type(optimizer).__doc__)

    def test_a_loaded_state_continues_with_the_same_bits(self):
        for name in lather.optim.names():
            with self.subTest(name):
                settings = lather.optim.preset(name)
                a, b = (lather.zeros(3, 2, requires_grad=True).fill_(0.1) for _ in range(2))
                first = lather.optim.Optimizer(name, [a], **settings)
                self.train(first, a, 7)
                second = lather.optim.Optimizer(name, [b], **settings)
                second.load_state_dict(first.state_dict())
                b.copy_(a)
                self.train(first, a, 9)
                self.train(second, b, 9)
                self.assertEqual(a.tolist(), b.tolist())

    def test_bad_options_are_named(self):
        w = lather.zeros(3, requires_grad=True)
        with self.assertRaisesRegex(lather.ArgumentError, "no key 'beta'; the nearest is 'beta1'"):
            lather.optim.Adam([w], lr=0.1, beta=0.9)
        with self.assertRaisesRegex(lather.ArgumentError, "beta1"):
            lather.optim.Adam([w], lr=0.1, betas=(1.5, 0.9))
        with self.assertRaisesRegex(AttributeError, "optimizers are sgd"):
            lather.optim.Adamm
        with self.assertRaisesRegex(TypeError, "parameter 1 is not a tensor made with requires_grad"):
            lather.optim.Adam([w, lather.zeros(2)], lr=0.1)
        with self.assertRaisesRegex(ValueError, "no preset 'papr'; it has"):
            lather.optim.preset("shampoo", "papr")

    def test_keys_that_all_optimizers_have_are_options(self):
        for key in ("beta1", "cautious_mask", "iterate_averaging", "lookahead"):
            self.assertTrue(is_option("adamw", key), key)
        for key in ("max_lr", "swa_lr", "momentum"):
            self.assertFalse(is_option("adamw", key), key)

    def test_a_step_with_nan_changes_nothing(self):
        w = lather.tensor([1.0, 2], requires_grad=True)
        optimizer = lather.optim.SGD([w], lr=0.1)
        w.grad = [float("nan"), 1.0]
        self.assertFalse(optimizer.step())
        self.assertEqual(w.tolist(), [1, 2])


if __name__ == "__main__":
    unittest.main()
