"""Linear dynamics and quadratic cost, four state dimensions and two actions; exact."""

from bcrl_bench.proving.family import Family
from bcrl_bench.proving.linear_quadratic import linear_quadratic

FAMILY = Family(
    name="lqr", make=linear_quadratic, files=("../linear_quadratic.py",),
    length=50, noise=0.1, loud=0.5,
    discounts=(0.9, 0.97, 0.99, 0.999, 1.0), horizons=(None, 25), worlds=10,
    longest=1_000,
)  # fmt: skip
