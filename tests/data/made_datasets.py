"""Datasets that hypothesis makes: every kind of observation, action and optional column."""

import numpy as np
from hypothesis import strategies as st

from bcrl import Dataset
from bcrl.data.storage.folder import named_arrays

KEYS = st.sampled_from(["pixels", "state", "a/b", "ünï %", "camera.left", "..", "observation"])


@st.composite
def datasets(draw, labels=True, frames=True):
    """A dataset of up to five episodes of up to six steps."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    single = draw(st.booleans())
    keys = ["observation"] if single else draw(st.lists(KEYS, min_size=1, max_size=3, unique=True))
    kinds = {
        key: draw(st.sampled_from(["f4", "f8", "i8", "frames"] if frames else ["f4", "f8"])) for key in keys
    }
    discrete, log_prob = draw(st.booleans()), draw(st.booleans())
    cluster = draw(st.sampled_from(["none", "numbers", "text"])) if labels else "none"
    behaviour = draw(st.booleans()) if labels else False
    cohort = draw(st.booleans()) if labels else False
    action_type = draw(st.sampled_from(["f4", "f8"]))
    episodes = []
    for number, length in enumerate(lengths):
        episode = {
            "observations": {key: rows(generator, kinds[key], length + 1) for key in keys},
            "actions": generator.integers(0, 4, length)
            if discrete
            else generator.normal(size=(length, 2)).astype(action_type),
            "rewards": generator.normal(size=length) * 10.0 ** generator.integers(-300, 300),
            "terminated": bool(generator.integers(2)),
        }
        if single:
            episode["observations"] = episode["observations"]["observation"]
        if log_prob:
            episode["log_prob"] = -generator.exponential(size=length)
        if behaviour:
            episode["behaviour"] = f"version {number % 3}"
        if cohort:
            episode["cohort"] = f"ward {number % 2}"
        if cluster != "none":
            episode["cluster"] = number // 2 if cluster == "numbers" else f"patient {number // 2} ü"
        episodes.append(episode)
    return Dataset.from_episodes(episodes, stack=draw(st.integers(1, 3)), num_actions=5 if discrete else None)


def rows(generator, kind, count):
    if kind == "frames":
        return generator.integers(0, 256, (count, 5, 4, 3), dtype=np.uint8)
    if kind == "i8":
        return generator.integers(-(2**62), 2**62, (count, 2))
    return generator.normal(size=(count, 3)).astype(kind)


def assert_same(one: Dataset, other: Dataset):
    """Equal to the bit, types included, and in the order of the keys."""
    ours, theirs = named_arrays(one), named_arrays(other)
    assert list(ours) == list(theirs)
    for name, array in ours.items():
        assert array.dtype == theirs[name].dtype, name
        assert array.shape == theirs[name].shape, name
        assert np.asarray(array).tobytes() == np.asarray(theirs[name]).tobytes(), name
    for name in ("stack", "ordered", "single", "num_actions"):
        assert getattr(one, name) == getattr(other, name), name


def plain(count=40, seed=0, **changes):
    """Arrays that `Dataset.from_arrays` accepts, four episodes, with changes."""
    generator = np.random.default_rng(seed)
    ends = np.zeros(count, dtype=bool)
    ends[count // 4 - 1 :: count // 4] = True
    arrays = {
        "observations": generator.normal(size=(count, 3)),
        "actions": generator.uniform(-1, 1, (count, 2)),
        "rewards": generator.normal(size=count),
        "terminated": np.zeros(count, dtype=bool),
        "truncated": ends,
    }
    return arrays | changes
