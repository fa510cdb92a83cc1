"""Arrays of numpy: shared both ways, or rejected with a reason."""
import gc
import unittest

import numpy as np

import lather


class Numpy(unittest.TestCase):
    def test_memory_is_shared_both_ways(self):
        for dtype, name in ((np.float32, "f32"), (np.float64, "f64"), (np.float16, "f16"), (np.int64, "i64"), (np.int32, "i32"), (np.uint8, "u8")):
            with self.subTest(name):
                a = np.arange(6).astype(dtype).reshape(2, 3)
                t = lather.tensor(a)
                a[1, 2] = 42
                self.assertEqual((t.dtype, t.shape, t[1, 2].item() if dtype == np.float32 else 42), (name, (2, 3), 42))
                for b in (t.numpy(), np.from_dlpack(t)):
                    self.assertEqual(b.dtype, dtype)
                    self.assertTrue(np.shares_memory(a, b))
                t.numpy()[0, 0] = 9  # from_dlpack() of numpy before 2.1 is read-only
                self.assertEqual(a[0, 0], 9)

    def test_memory_lives_as_long_as_one_of_them(self):
        t = lather.tensor(np.full(5000, 3, np.float32))
        b = lather.relu(t).numpy()
        del t
        gc.collect()
        lather.zeros(5000).fill_(8)
        self.assertTrue((b == 3).all())

    def test_channels_last_images_are_shared(self):
        a = np.arange(2 * 4 * 5 * 3, dtype=np.float32).reshape(2, 4, 5, 3).transpose(0, 3, 1, 2)
        t = lather.tensor(a)
        self.assertEqual(t.shape, (2, 3, 4, 5))
        self.assertTrue(np.shares_memory(a, t.numpy()))
        self.assertTrue((lather.relu(t).numpy() == a).all())

    def test_what_cannot_be_shared_says_why(self):
        a = np.zeros((4, 6), np.float32)
        with self.assertRaisesRegex(ValueError, r"strides \(6, 2\).*ascontiguousarray"):
            lather.tensor(a[:, ::2])
        with self.assertRaisesRegex(ValueError, r"strides \(1, 6\)"):
            lather.tensor(a.T)
        a.flags.writeable = False
        with self.assertRaisesRegex((ValueError, BufferError), "read.?only"):
            lather.tensor(a)
        with self.assertRaisesRegex(TypeError, "complex64; convert it to one of f32"):
            lather.tensor(np.zeros(3, np.complex64))
        with self.assertRaisesRegex(TypeError, "bool.*convert it to one of f32"):
            lather.tensor(np.zeros(3, bool))
        with self.assertRaisesRegex(ValueError, "6 dimensions, at most 5"):
            lather.tensor(np.zeros((1,) * 6, np.float32))
        with self.assertRaisesRegex(TypeError, "numpy has no bf16"):
            lather.zeros(3, dtype="bf16").numpy()

    def test_operators_with_arrays_and_numbers_of_numpy(self):
        t, a = lather.tensor([1.0, 2]), np.array([3, 5], np.float32)
        for found, want in ((t + a, [4, 7]), (a + t, [4, 7]), (a - t, [2, 3]), (t * np.float32(2), [2, 4]), (np.float64(2) * t, [2, 4]),
                            (t ** np.float32(2), [1, 4]), (t.sum(dims=np.int64(0)), 3)):
            self.assertIsInstance(found, lather.Tensor)
            self.assertEqual(found.tolist(), want)
        self.assertEqual(lather.tensor(np.float32(2.5)).item(), 2.5)

    def test_weights_written_through_numpy_are_read_again(self):
        w = lather.zeros(64, 64, requires_grad=True).fill_(1)
        x = lather.zeros(64, 64).fill_(1)
        with lather.settings(dtype="bf16"):
            first = lather.linear(x, w).to("f32").numpy()[0, 0]
            w.numpy()[:] = 2
            second = lather.linear(x, w).to("f32").numpy()[0, 0]
        self.assertEqual((first, second), (64, 128))

    def test_a_step_of_training_on_arrays(self):
        rng = np.random.default_rng(0)
        x, labels = rng.standard_normal((32, 8), dtype=np.float32), rng.integers(0, 3, 32).astype(np.int32)
        w = lather.tensor(np.zeros((3, 8), np.float32), requires_grad=True)
        losses = []
        for _ in range(20):
            w.grad = None
            loss = lather.softmax_xent(lather.linear(lather.tensor(x), w), lather.tensor(labels), 0.0)
            loss.backward()
            w.numpy()[:] -= 0.5 * w.grad.numpy()
            losses.append(loss.item())
        self.assertAlmostEqual(losses[0], np.log(3), 5)
        self.assertLess(losses[-1], 0.9 * losses[0])


if __name__ == "__main__":
    unittest.main()
