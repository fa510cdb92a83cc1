"""The formats of quantized optimizer state in NumPy, from their description in docs/adr/0046 and
src/optim/low_precision/quantized_formats.h: bytes as the library must have them, and the f32 numbers that they encode."""
import numpy as np

MOMENT, POSITIVE, MATRIX, SYMMETRIC, CHOLESKY = range(5)
F32, BF16, INT8, INT4 = range(4)
f32 = np.float32


def philox(key, step, counter):
    """Philox4x32-10 (Salmon et al. 2011) of many counters: [count, 4] words of 32 bits."""
    mask, w = np.uint64(0xFFFFFFFF), np.uint64(32)
    c = [counter & mask, counter >> w] + [np.full_like(counter, n) for n in (step & 0xFFFFFFFF, step >> 32)]
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [p1 >> w ^ c[1] ^ np.uint64(k0), p1 & mask, p0 >> w ^ c[3] ^ np.uint64(k1), p0 & mask]
        k0, k1 = k0 + 0x9E3779B9 & 0xFFFFFFFF, k1 + 0xBB67AE85 & 0xFFFFFFFF
    return np.stack(c, 1).astype(np.uint32)


def draws(rounding, block, size):
    """16 bits for each element of a block of `size`, then 8 times for its scale; rounding: (key, step)."""
    calls = size // 8 + 1
    words = philox(*rounding, np.arange(block * calls, (block + 1) * calls, dtype=np.uint64))
    return words.view(np.uint16).reshape(-1).astype(np.int64)


def bf16(x, drawn=None):
    """Upper halves of f32, rounded to nearest even, or up by 16 drawn bits."""
    x = np.asarray(x, f32).reshape(-1)
    bits = x.view(np.uint32).astype(np.int64)
    up = 0x7FFF + (bits >> 16 & 1) if drawn is None else drawn[:len(x)]
    rounded = ((bits + up) >> 16).astype(np.uint16)
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


def codes_by_draw(x, s, kind, dtype, drawn):
    """As codes_of(), rounded up where the fraction towards the next level exceeds the draw."""
    levels, most = levels_of(kind, dtype), np.max(np.abs(x))
    a = np.abs(x) / s
    threshold = ((drawn[:len(x)] >> 4) + f32(0.5)).astype(f32) * f32(2.0 ** -12)
    if dtype == INT8 and kind not in (MOMENT, POSITIVE):
        a = np.minimum(a * f32(127), f32(127))
        size = np.floor(a).astype(int)
        size = size + (a - size.astype(f32) > threshold)
    else:
        below = np.searchsorted(levels.astype(f32), a, side="right") - 1
        per_gap = np.append((1 / np.diff(levels)).astype(f32), f32(0))
        size = below + ((a - levels.astype(f32)[below]) * per_gap[below] > threshold)
    size = np.where(np.abs(x) == most, len(levels) - 1, size)
    if kind == POSITIVE:
        size = np.where((x > 0) & (size == 0), 1, size)
    return np.where(x < 0, -size, size)


def codes_of(x, s, kind, dtype, drawn):
    """Signed codes of one block with the scale s."""
    if not s > 0:
        return np.zeros(len(x), int)
    if drawn is not None:
        return codes_by_draw(x, s, kind, dtype, drawn)
    levels = levels_of(kind, dtype)
    if dtype == INT8 and kind not in (MOMENT, POSITIVE):
        return np.clip(np.rint(f32(x / s) * f32(127)), -127, 127).astype(int)
    middles = ((levels[:-1] + levels[1:]) / 2).astype(f32)
    size = np.searchsorted(middles, np.abs(x) / s, side="left")  # a tie goes to the lower level
    if kind == POSITIVE:
        return np.where((x > 0) & (size == 0), 1, size)
    return np.where(x < 0, -size, size)


def encode(x, kind, dtype, rounding=None):
    """Bytes of consecutive elements: all scales, then all codes. rounding: (key, step); None: to nearest."""
    x = np.asarray(x, f32)
    if dtype == F32:
        return x.tobytes()
    moments = kind in (MOMENT, POSITIVE)
    block = 128 if moments else 64
    scales, out = b"", b""
    for i in range(0, len(x), block):
        part = x[i:i + block]
        drawn = draws(rounding, i // block, block) if rounding else None
        if dtype == BF16:
            out += bf16(part, drawn).tobytes()
            continue
        s = f32(np.max(np.abs(part))) if np.all(np.isfinite(part)) else f32(np.nan)
        s = f32(0) if s < f32(2.0 ** -100) else s
        narrow = bf16(s, None if drawn is None else drawn[block:])
        scales += s.tobytes() if moments else narrow.tobytes()
        s = s if moments else wide(narrow)[0]
        code = codes_of(part, s, kind, dtype, drawn)
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


def store(arrays, kind, dtype, key=None):
    """Memory after the arrays were stored one after the other, in steps from 1 with draws of that key, and the
    array that it decodes to."""
    step = lambda t: None if key is None else (key, t)
    if kind not in (SYMMETRIC, CHOLESKY):
        memory = encode(arrays[-1].reshape(-1), kind, dtype, step(len(arrays)))
        return memory, decode(memory, arrays[-1].size, kind, dtype)
    n = len(arrays[0])
    below, errors = np.tril_indices(n, -1), kind == CHOLESKY and dtype in (INT8, INT4)
    x, t = arrays[-1][below], len(arrays)
    codes = encode(x, kind, dtype, None if errors else step(t))
    back = decode(codes, len(x), kind, dtype)
    coded = encode(x - back, kind, INT4, step(t)) if errors else b""
    error = decode(coded, len(x), kind, INT4) if errors else np.zeros_like(x)
    out = np.diag(np.diag(arrays[-1])).astype(f32)
    out[below] = back
    out.T[below] = back if kind == SYMMETRIC else error
    return np.diag(arrays[-1]).astype(f32).tobytes() + codes + coded, out.reshape(-1)
