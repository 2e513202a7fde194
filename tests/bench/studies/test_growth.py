"""The study of growth: its settings, what it counts as memory, its table."""

import mmap
import time
from types import SimpleNamespace

import numpy as np
import pytest

from bcrl.data.storage.folder import open_folder
from bcrl_bench.studies import growth
from bcrl_bench.studies.growth import PLAIN, answer, figure, setting_of, table, with_memory, write_log


@pytest.mark.parametrize("actions", [0, 3])
def test_a_log_of_the_size_that_was_asked_for_is_answered(actions, tmp_path):
    asked = {"rows": 1_000, "features": 8, "columns": 5, "policies": 2, "actions": actions}
    setting = SimpleNamespace(**asked)
    write_log(setting, tmp_path / "log")
    data = open_folder(tmp_path / "log")
    assert len(data) == 1_000 and data.observations["observation"].shape[1] == 5
    assert data.num_actions == (3 if actions else None)
    found = answer(setting, tmp_path / "log")
    assert found["core_seconds"] > 0.0 and 50 < found["megabytes"] < 5_000


def test_an_axis_changes_one_thing():
    for axis, sizes in growth.SIZES.items():
        changed = vars(setting_of(axis, sizes[-1]))
        others = {"rows"} if axis == "columns" else set()
        assert {name for name, value in PLAIN.items() if changed[name] != value} == {axis} | others


def test_memory_is_what_no_file_backs(tmp_path):
    size = 80_000_000
    path = tmp_path / "array.npy"
    np.save(path, np.ones(size, dtype=np.uint8))

    def hold(pages):
        total = int(pages.sum())
        time.sleep(1.0)  # long enough to be seen on a busy machine
        return total

    def fresh():  # straight from the system: an allocator may have room left from before
        with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:
            pages.write(b"1" * size)
            return hold(np.array([1]))

    before = growth.anonymous()
    assert with_memory(fresh)[1] - before > 60
    before = growth.anonymous()
    assert with_memory(lambda: hold(np.load(path, mmap_mode="r")))[1] - before < 20


def test_table_and_figure_come_from_rows_alone(tmp_path):
    rows = [
        {"axis": axis, "size": size, "core_seconds": 2.0 * size, "megabytes": 100}
        for axis, sizes in growth.SIZES.items()
        for size in reversed(sizes)
    ]
    text = table(rows)
    assert "| rows | 10,000 | 20000 |  | 100 |" in text
    assert "| rows | 100,000 | 200000 | 10.0 at 10 | 100 |" in text
    figure(rows, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 1_000
