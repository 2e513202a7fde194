"""A cell is stale when a number changes, not when a class gets a new name or another shape."""

from dataclasses import dataclass, field, fields, make_dataclass

import pytest

from bcrl.methods import parse_method
from bcrl_bench.experiments.grid import state_of
from bcrl_bench.experiments.identity import options_of, same_settings
from bcrl_bench.experiments.profile import load_profile
from bcrl_bench.experiments.records import Records

Flat = make_dataclass(
    "Flat", [("steps", int, 100), ("lr", float, 0.1), ("hidden", int, 256), ("conv_layers", int, 4)]
)


@dataclass(frozen=True)
class Head:
    hidden: int = 64


@dataclass(frozen=True)
class Pixels:
    conv_layers: int = 4


@dataclass(frozen=True)
class Grouped:
    steps: int = 100
    lr: float = 0.1
    head: Head = Head(256)
    pixels: Pixels = field(default_factory=Pixels)


def same(made, wanted, texts=("M()", "M()"), pixels=None):
    settings = [
        {
            "discount": 0.9,
            "pixels": pixels,
            "method": text,
            "options": options_of(method, pixels=pixels is not None),
        }
        for method, text in zip((made, wanted), texts, strict=True)
    ]
    return same_settings(*settings)


def test_names_of_classes_do_not_count():
    renamed = make_dataclass("Renamed", [(f.name, f.type, f.default) for f in fields(Flat)])
    assert options_of(Flat(), pixels=True) == options_of(renamed(), pixels=True)
    assert same(Flat(lr=0.5), renamed(lr=0.5), texts=("Flat(lr=0.5)", "Renamed(lr=0.5)"))
    assert options_of(Flat(steps=7), pixels=True)["chosen"] == ["steps=7"]
    assert options_of(Grouped(head=Head(7)), pixels=True)["chosen"] == ["head.hidden=7"]


def test_a_number_that_moves_to_another_part_is_another_setting():
    one, other = (
        parse_method(f"ModelBased({part}(hidden=64))") for part in ("one_step=OneStep", "dreamer=Dreamer")
    )
    assert not same(one, other) and not same(one, other, texts=("M()", "N()"))


@pytest.mark.parametrize("texts", [("M()", "M()"), ("M()", "N()")])
def test_a_changed_number_counts_wherever_it_stands(texts):
    assert not same(Flat(), Flat(lr=0.2), texts)
    assert not same(Grouped(), Grouped(head=Head(128)), texts)
    moved = make_dataclass("Flat", [("steps", int, 100), ("lr", float, 0.2), ("hidden", int, 256)])
    assert not same(Flat(), moved(), texts)  # another default is another number
    assert same(Flat(lr=1.0), Flat(lr=1), texts)


def test_options_that_came_or_went_must_stand_at_their_default():
    fewer = make_dataclass("Flat", [("steps", int, 100), ("lr", float, 0.1)])
    assert same(Flat(), fewer()) and same(fewer(), Flat())
    assert not same(Flat(hidden=8), fewer()) and not same(fewer(), Flat(hidden=8))
    assert not same(Flat(), fewer(), texts=("Flat()", "Fewer()"))  # it may be another method


def test_the_image_encoder_counts_only_where_frames_are_seen():
    for method in (Flat, lambda conv_layers=4: Grouped(pixels=Pixels(conv_layers))):
        assert same(method(), method(conv_layers=5), pixels=None)
        assert not same(method(), method(conv_layers=5), pixels=64)


def test_the_profiles_numbers_count_too():
    made = {"discount": 0.9, "method": "M()", "options": options_of(Flat(), pixels=False)}
    assert not same_settings(made, made | {"discount": 0.8})


@pytest.mark.parametrize("text", ["LSPE(CURL())", "DoublyRobust(q=FQE(steps=8_000), bandwidth=0.1)"])
def test_options_of_our_methods(text):
    options = options_of(parse_method(text), pixels=True)
    assert all(option.partition("=")[1] for option in options["chosen"] + options["default"])
    assert options["chosen"] == ([] if "CURL" in text else ["bandwidth=0.1", "q.steps=8000"])


@pytest.mark.parametrize(
    ("name", "form", "done"),
    [("states", {}, 600), ("rivals", {}, 72), ("paper", {"dry": True}, 7), ("paper", {"small": True}, 26)],
)
def test_the_shipped_cells_are_not_stale(name, form, done, request):
    """When this fails, a change of a recipe has made recorded numbers another method's."""
    profile = load_profile(name, **form)
    state = state_of(
        profile, Records(request.config.rootpath / "results" / profile.name), profile.experiments()
    )
    assert not state.stale and len(state.done) == done
