"""Costs with heavy tails: linear dynamics, the cost of a step multiplied by a Pareto draw of index 2.2 and
mean 1, whose third moment is infinite. Exact, for the draw does not move the mean.
"""

from functools import partial

from bcrl_bench.proving.family import Family
from bcrl_bench.proving.linear_quadratic import linear_quadratic

FAMILY = Family(
    name="heavy_tails", make=partial(linear_quadratic, tail=2.2, size=3, inputs=1),
    files=("../linear_quadratic.py",),
    length=40, noise=0.08, loud=0.5,
    discounts=(0.9, 0.95, 0.98), horizons=(None, 20), worlds=10,
    longest=500,
)  # fmt: skip
