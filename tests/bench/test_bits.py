"""What a simulation feeds on is added up in one order: every sum against its definition, in exact
arithmetic.
"""

from fractions import Fraction

import numpy as np
import pytest

from bcrl_bench.bits import FirstLayer, same_quaternions


def fused(a, b, c):
    """a b + c of float32 numbers, rounded once."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    near = np.float32(float(exact))
    around = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    return min(around, key=lambda one: abs(Fraction(float(one)) - exact))


@pytest.mark.parametrize("width", [5, 8, 17, 67, 78])
def test_the_last_columns_are_added_as_written(width):
    rng = np.random.default_rng(width)
    weight, state = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, width), width))
    found = FirstLayer(weight)(state)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, weight.astype(np.float64) @ state, rtol=1e-5, atol=1e-5)
    even = width // 4 * 4
    for row, number in zip(weight, found, strict=True):
        if width < 8:
            total = row[0] * state[0]
            for k in range(1, width):
                total = total + row[k] * state[k]
            assert number == total
            continue
        body = np.ascontiguousarray(weight[:, :even]).dot(state[:even])[
            np.flatnonzero((weight == row).all(1))[0]
        ]
        (a, x), rest = (row[even:], state[even:]), width - even
        if rest == 1:
            assert number == fused(a[0], x[0], body)
        elif rest:
            more = fused(a[0], x[0], a[1] * x[1])
            assert number == body + (more if rest == 2 else fused(a[2], x[2], more))


def test_quaternions_have_one_length_and_other_norms_are_numpys():
    rng = np.random.default_rng(0)
    usual = np.linalg.norm
    with same_quaternions():
        for _ in range(200):
            x = rng.standard_normal(4)
            total = Fraction(0)
            for number in x.tolist():
                total = Fraction(float(total + Fraction(number) ** 2))
            assert np.linalg.norm(x) == np.sqrt(float(total))
            assert np.linalg.norm(x) == pytest.approx(usual(x), rel=1e-15)
        y = rng.standard_normal((3, 4))
        assert np.linalg.norm(y) == usual(y)
        assert (np.linalg.norm(y, axis=1) == usual(y, axis=1)).all()
    assert np.linalg.norm is usual
