"""A file is there whole or not at all."""

import multiprocessing

import pytest

from bcrl.writing import atomic_write


def test_readers_see_the_old_file_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    with atomic_write(path) as file:
        file.write(b"old")
    with atomic_write(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new" and list(path.parent.iterdir()) == [path]


def write_badly(path):
    with atomic_write(path) as file:
        file.write(b"half")
        raise RuntimeError("no more")


def test_an_error_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "file.txt"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="no more"):
        write_badly(path)
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def write_often(path, letter, times):
    for _ in range(times):
        with atomic_write(path) as file:
            file.write(letter * 100_000)


def test_two_writers_of_one_file_do_not_mix(tmp_path):
    path = tmp_path / "file.txt"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_often, args=(path, letter, 30)) for letter in (b"a", b"b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert path.read_bytes() in (b"a" * 100_000, b"b" * 100_000) and list(tmp_path.iterdir()) == [path]
