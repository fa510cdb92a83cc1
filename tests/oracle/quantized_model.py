"""The formats of quantized optimizer state in NumPy, from their description in docs/adr/0046 and
src/optim/quantized_formats.h: bytes as the library must have them, and the f32 numbers they stand for."""
import numpy as np

MOMENT, POSITIVE, MATRIX, SYMMETRIC, CHOLESKY = range(5)
F32, BF16, INT8, INT4 = range(4)
f32 = np.float32


def bf16(x):
    """Upper halves of f32, rounded to nearest even."""
    x = np.asarray(x, f32).reshape(-1)
    bits = x.view(np.uint32).astype(np.int64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), (bits >> 16 | 0x40).astype(np.uint16), rounded)


def wide(halves):
    return (halves.astype(np.uint32) << 16).view(f32)


def tree(parts):
    """Levels of seven decades; the decade that ends at 10^(i-6) has parts * 2^i of them."""
    levels = [0.0]
    for i in range(7):
        n = parts << i
        levels += [10.0 ** (i - 6) * (0.1 + 0.9 * k / n) for k in range(1, n + 1)]
    return np.array(levels)


def levels_of(kind, dtype):
    if dtype == INT4:
        return np.arange(8) ** 2 / 49.0
    if kind in (MOMENT, POSITIVE):
        return tree(2 if kind == POSITIVE else 1)
    return np.arange(128) / 127.0


def codes_of(x, s, kind, dtype):
    """Signed codes of one block with the scale s."""
    if not s > 0:
        return np.zeros(len(x), int)
    levels = levels_of(kind, dtype)
    if dtype == INT8 and kind not in (MOMENT, POSITIVE):
        return np.clip(np.rint(f32(x / s) * f32(127)), -127, 127).astype(int)
    middles = ((levels[:-1] + levels[1:]) / 2).astype(f32)
    size = np.searchsorted(middles, np.abs(x) / s, side="left")  # a tie goes to the lower level
    if kind == POSITIVE:
        return np.where((x > 0) & (size == 0), 1, size)
    return np.where(x < 0, -size, size)


def encode(x, kind, dtype):
    """Bytes of consecutive elements: all scales, then all codes."""
    x = np.asarray(x, f32)
    if dtype == F32:
        return x.tobytes()
    if dtype == BF16:
        return bf16(x).tobytes()
    moments = kind in (MOMENT, POSITIVE)
    block = 128 if moments else 64
    scales, out = b"", b""
    for i in range(0, len(x), block):
        part = x[i:i + block]
        s = f32(np.max(np.abs(part))) if np.all(np.isfinite(part)) else f32(np.nan)
        s = f32(0) if s < f32(2.0 ** -100) else s
        scales += s.tobytes() if moments else bf16(s).tobytes()
        s = s if moments else wide(bf16(s))[0]
        code = codes_of(part, s, kind, dtype)
        if dtype == INT8:
            out += (code & 255).astype(np.uint8).tobytes()
        else:
            nibbles = np.append(code & 15, np.zeros(len(code) % 2, int))
            out += (nibbles[0::2] | nibbles[1::2] << 4).astype(np.uint8).tobytes()
    return scales + out


def decode(memory, count, kind, dtype):
    if dtype == F32:
        return np.frombuffer(memory, f32, count)
    if dtype == BF16:
        return wide(np.frombuffer(memory, np.uint16, count))
    moments = kind in (MOMENT, POSITIVE)
    block = 128 if moments else 64
    blocks = -(-count // block)
    scale = np.frombuffer(memory, f32, blocks) if moments else wide(np.frombuffer(memory, np.uint16, blocks))
    code = np.frombuffer(memory, np.uint8, offset=blocks * (4 if moments else 2)).astype(int)
    if dtype == INT4:
        code = np.stack([code & 15, code >> 4], 1).reshape(-1)
        code = np.where(code > 7, code - 16, code)
    elif kind != POSITIVE:
        code = np.where(code > 127, code - 256, code)
    code = code[:count]
    value = levels_of(kind, dtype).astype(f32)[np.abs(code)] * np.repeat(scale, block)[:count]
    return np.where(code < 0, -value, value).astype(f32)


def size(count, kind, dtype):
    return len(encode(np.zeros(count, f32), kind, dtype))


def store(arrays, kind, dtype):
    """Memory after the arrays were stored one after the other, and the array that it decodes to."""
    if kind not in (SYMMETRIC, CHOLESKY):
        memory = encode(arrays[-1].reshape(-1), kind, dtype)
        return memory, decode(memory, arrays[-1].size, kind, dtype)
    n = len(arrays[0])
    below, feeds = np.tril_indices(n, -1), kind == CHOLESKY and dtype == INT4
    error = np.zeros(n * (n - 1) // 2, f32)
    for x in arrays:
        target = x[below] + error if feeds else x[below]
        codes = encode(target, kind, dtype)
        back = decode(codes, len(target), kind, dtype)
        coded = encode(target - back, kind, dtype) if feeds else b""
        error = decode(coded, len(target), kind, dtype) if feeds else error
    out = np.diag(np.diag(arrays[-1])).astype(f32)
    out[below] = back
    out.T[below] = back if kind == SYMMETRIC else error
    return np.diag(arrays[-1]).astype(f32).tobytes() + codes + coded, out.reshape(-1)
