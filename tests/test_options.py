"""A method refuses an option that it would not heed: in Python and as text, when it is made, in one line."""

import dataclasses
from importlib import import_module

import numpy as np
import pytest

import bcrl
from bcrl.errors import BadInput
from bcrl.methods import _CLASSES, parse_method
from bcrl.networks import Head, Pixels
from bcrl.options import Checked

REFUSED = [
    ("LSPE(solver='x')", "solver"),
    ("LSPE(split='x')", "split"),
    ("LSPE(radius=-1)", "radius"),
    ("LSPE(radius=2.0)", "radius"),
    ("LSPE(solver='ball')", "radius"),
    ("LSPE(repeats=2)", "repeats"),
    ("LSPE(ridge=-1.0)", "ridge"),
    ("LSPE(ridge='1')", "ridge"),
    ("LSPE(fallback='ball')", "fallback"),
    ("Anchored(folds=1)", "folds"),
    ("Anchored(trace=2.0)", "trace"),
    ("Anchored(ridge=0.0)", "ridge"),
    ("LSPE(3)", "representation"),
    ("LSPE(FQE())", "representation"),
    ("LSPE(RandomFeatures(dim=0))", "dim"),
    ("LSPE(RandomFeatures(dim=True))", "dim"),
    ("LSPE(RandomFeatures(dim=2.5))", "dim"),
    ("LSPE(RandomFeatures(widths=()))", "widths"),
    ("LSPE(RandomFeatures(widths=(0.0,)))", "widths"),
    ("LSPE(RandomFeatures(pixels=Head()))", "pixels"),
    ("LSPE(BellmanComplete(held_out=1.0))", "held_out"),
    ("LSPE(BellmanComplete(reads=3))", "reads"),
    ("LSPE(BellmanComplete(head=Head(hidden=0)))", "hidden"),
    ("LSPE(BellmanComplete(pixels=Pixels(strides=(0,))))", "strides"),
    ("LSPE(BellmanComplete(metric='x'))", "metric"),
    ("LSPE(CURL(tau=2.0))", "tau"),
    ("LSPE(SPR(jumps=0))", "jumps"),
    ("FQE(hidden=64)", "hidden"),
    ("FQE(hidden=(64, 0))", "hidden"),
    ("FQE(steps=0)", "steps"),
    ("FQE(steps='9')", "steps"),
    ("FQE(lr=-1e-3)", "lr"),
    ("FQE(lr=1e999)", "lr"),
    ("FQE(loss='x')", "loss"),
    ("FQE(members=0)", "members"),
    ("FQE(standardise=1)", "standardise"),
    ("FQE(flat=3)", "flat"),
    ("FQE.d3rlpy(discrete='x')", "discrete"),
    ("FQE.dope(steps='x')", "steps"),
    ("BestDICE(num_samples=0)", "num_samples"),
    ("BestDICE(average=1.0)", "average"),
    ("ImportanceSampling(kind='x')", "kind"),
    ("ImportanceSampling(clip=(1.0,))", "clip"),
    ("ImportanceSampling(clip=(2.0, -6.0))", "clip"),
    ("ImportanceSampling(behaviour=FQE())", "behaviour"),
    ("DoublyRobust(q=RandomFeatures())", "q"),
    ("ModelBased(dynamics='x')", "dynamics"),
    ("ModelBased(num_rollouts=0)", "num_rollouts"),
    ("ModelBased(one_step=OneStep(steps=0))", "steps"),
    ("ModelBased(dreamer=Dreamer(length=1))", "length"),
    ("FQE(steps=10, steps=20)", "every option once"),
    ("FQE(**{'steps': 1})", "every option once"),
    ("FQE(readout='weird')", "no option 'readout'"),
    ("FQE(target='x')", "no option 'target'"),
    ("BestDICE(output='x')", "no option 'output'"),
    ("FQE(" * 400 + ")" * 400, "Cannot read"),
    ("FQE(steps=" + "-" * 4000 + "1)", "Cannot read"),
    ("FQE(steps=" + "9" * 5000 + ")", "Cannot read"),
    ("FQE(steps=\0)", "Cannot read"),
    ("FQE(steps={[]: 1})", "no plain value"),
]


@pytest.mark.parametrize(("text", "told"), REFUSED, ids=[text[:60] for text, _ in REFUSED])
def test_an_option_without_effect_is_refused_in_one_line(text, told):
    with pytest.raises(BadInput, match=told) as refused:
        parse_method(text)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 600


@pytest.mark.parametrize(
    "make",
    [
        lambda: bcrl.LSPE(solver="x"),
        lambda: bcrl.LSPE(3),
        lambda: bcrl.FQE(hidden=64),
        lambda: bcrl.FQE(steps=0),
        lambda: bcrl.RandomFeatures(dim=0),
        lambda: bcrl.BestDICE(num_samples=0),
        lambda: dataclasses.replace(bcrl.FQE(), members=0),
        lambda: bcrl.GivenFeatures(3),
    ],
)
def test_python_refuses_what_text_refuses(make):
    with pytest.raises(BadInput):
        make()


def test_the_message_says_what_was_got_and_what_is_expected():
    with pytest.raises(BadInput) as refused:
        bcrl.LSPE(solver="cholesy")
    assert str(refused.value) == (
        "LSPE: solver='cholesy'; expected one of 'cholesky', 'pinv', 'pinv32', 'ball'. "
        "Did you mean 'cholesky'?"
    )
    with pytest.raises(BadInput) as refused:
        bcrl.FQE(steps=0)
    assert str(refused.value) == "FQE: steps=0; expected a whole number, at least 1, or None."


def test_numbers_of_numpy_and_lists_are_taken_as_pythons_own():
    method = bcrl.FQE(hidden=[np.int64(8), 8], lr=np.float32(0.5), steps=np.int64(7))
    assert method == bcrl.FQE(hidden=(8, 8), lr=0.5, steps=7)
    assert all(type(width) is int for width in method.hidden) and type(method.steps) is int
    assert parse_method(repr(method)) == method


@pytest.mark.parametrize("name", sorted(_CLASSES))
def test_every_part_of_a_method_checks_its_options(name):
    kind = getattr(import_module(_CLASSES[name]), name)
    assert issubclass(kind, Checked)
    for field in dataclasses.fields(kind):
        with pytest.raises(BadInput, match=field.name):
            kind(**{field.name: object()})


def test_own_methods_of_others_can_be_checked_too():
    @dataclasses.dataclass(frozen=True)
    class Mine(Checked):
        eyes: Pixels | None = None

    assert Mine(eyes=Pixels()).eyes == Pixels()
    with pytest.raises(BadInput, match=r"Mine: eyes=Head\(\); expected Pixels\(\.\.\.\) or None\."):
        Mine(eyes=Head())
