"""Files made to reach out, to claim what they do not hold, or to hang a reader: one line, and nothing read.

`SECRET` is a file beside the data with known numbers; where any of them came back, a file reached out.
"""

import contextlib
import io
import json
import os
import shutil
import struct
import zipfile

import h5py
import numpy as np
import pytest
from data.made_datasets import plain

from bcrl import BadInput, Dataset, load_dataset
from bcrl.cli import main
from bcrl.data.storage.folder import save
from bcrl.policies import load_policy

COUNT = 40
SECRET = np.full(COUNT, 4242.0)


@pytest.fixture(autouse=True)
def no_hang(monkeypatch, tmp_path):
    """A reader that waits for a FIFO is stopped by the alarm, and the test fails."""
    import signal

    def stop(*_):
        raise AssertionError("the reader hangs")

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


def secret(folder):
    path = folder / "secret.bin"
    path.write_bytes(SECRET.tobytes())
    np.save(folder / "x.npy", SECRET)
    np.save(folder / "rewards.npy", SECRET)
    return path


def arrays(**changes):
    names = {"terminated": "terminals", "truncated": "timeouts"}
    return {names.get(name, name): value for name, value in plain(COUNT, **changes).items()}


def hdf5(folder, write, leave_out="rewards"):
    """A D4RL file whose `leave_out` is made by `write`."""
    path = folder / "logs.hdf5"
    with h5py.File(path, "w") as file:
        for name, value in arrays().items():
            if name != leave_out:
                file[name] = value
        write(file)
    return path


def external_storage(folder):
    source = secret(folder)
    external = [(str(source), 0, h5py.h5f.UNLIMITED)]
    return hdf5(folder, lambda f: f.create_dataset("rewards", (COUNT,), "f8", external=external))


def missing_external_storage(folder):
    external = [(str(folder / "nowhere"), 0, h5py.h5f.UNLIMITED)]
    return hdf5(folder, lambda f: f.create_dataset("rewards", (COUNT,), "f8", external=external))


def other_file(folder):
    with h5py.File(folder / "other.hdf5", "w") as file:
        file["rewards"] = SECRET
    return folder / "other.hdf5"


def virtual(folder):
    layout = h5py.VirtualLayout((COUNT,), "f8")
    layout[:] = h5py.VirtualSource(str(other_file(folder)), "rewards", (COUNT,))
    return hdf5(folder, lambda f: f.create_virtual_dataset("rewards", layout))


def missing_virtual(folder):
    layout = h5py.VirtualLayout((COUNT,), "f8")
    layout[:] = h5py.VirtualSource(str(folder / "nowhere.hdf5"), "rewards", (COUNT,))
    return hdf5(folder, lambda f: f.create_virtual_dataset("rewards", layout))


def external_link(folder):
    other = str(other_file(folder))

    def write(file):
        file["rewards"] = h5py.ExternalLink(other, "rewards")

    return hdf5(folder, write)


def soft_link_over_external_link(folder):
    other = str(other_file(folder))

    def write(file):
        file["there"] = h5py.ExternalLink(other, "/")
        file["rewards"] = h5py.SoftLink("/there/rewards")

    return hdf5(folder, write)


def hdf5_claims_80_terabytes(folder):
    return hdf5(folder, lambda f: f.create_dataset("rewards", (10**13,), "f8", chunks=(1000,)))


def hdf5_never_written(folder):
    return hdf5(folder, lambda f: f.create_dataset("rewards", (COUNT,), "f8"))


def minari_folder(folder, change):
    """A Minari dataset whose data file was changed."""
    from bcrl.data.sources.minari import to_minari

    path = to_minari(Dataset.from_arrays(**plain(COUNT)), "made/trap-v0")
    with h5py.File(path / "main_data.hdf5", "r+") as file:
        change(file["episode_0"])
    return path


def minari_external_storage(folder):
    external = [(str(secret(folder)), 0, h5py.h5f.UNLIMITED)]

    def change(episode):
        count = len(episode["rewards"])
        del episode["rewards"]
        episode.create_dataset("rewards", (count,), "f8", external=external)

    return minari_folder(folder, change)


def minari_virtual(folder):
    other = str(other_file(folder))

    def change(episode):
        count = len(episode["rewards"])
        del episode["rewards"]
        layout = h5py.VirtualLayout((count,), "f8")
        layout[:] = h5py.VirtualSource(other, "rewards", (COUNT,))[:count]
        episode.create_virtual_dataset("rewards", layout)

    return minari_folder(folder, change)


def minari_external_link(folder):
    other = str(other_file(folder))

    def change(episode):
        del episode["rewards"]
        episode["rewards"] = h5py.ExternalLink(other, "rewards")

    return minari_folder(folder, change)


def minari_claims_80_terabytes(folder):
    def change(episode):
        del episode["rewards"]
        episode.create_dataset("rewards", (10**13,), "f8", chunks=(1000,))

    return minari_folder(folder, change)


def minari_fifo(folder):
    path = minari_folder(folder, lambda episode: None)
    (path / "main_data.hdf5").unlink()
    os.mkfifo(path / "main_data.hdf5")
    return path


def minari_linked_out(folder):
    path = minari_folder(folder, lambda episode: None)
    shutil.move(path / "main_data.hdf5", folder / "elsewhere.hdf5")
    (path / "main_data.hdf5").symlink_to(folder / "elsewhere.hdf5")
    return path


def minari_deep_metadata(folder):
    path = minari_folder(folder, lambda episode: None)
    (path / "metadata.json").write_text("[" * 100_000)
    return path


def minari_deep_space(folder):
    path = minari_folder(folder, lambda episode: None)
    metadata = json.loads((path / "metadata.json").read_text())
    metadata["observation_space"] = '{"type":"Dict","subspaces":' * 20_000
    (path / "metadata.json").write_text(json.dumps(metadata))
    return path


def minari_id_out_of_the_store(folder):
    path = minari_folder(folder, lambda episode: None)
    shutil.copytree(path.parent, folder / "outside")
    return "minari:../outside"


def own(folder, change):
    save(Dataset.from_arrays(**plain(COUNT)), folder / "data")
    change(folder / "data")
    return folder / "data"


def npy_claiming(count):
    """A small .npy file whose header says that it holds `count` numbers."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (count,)})
    return file.getvalue() + bytes(64)


def own_claims_80_terabytes(folder):
    return own(folder, lambda f: (f / "rewards.npy").write_bytes(npy_claiming(10**13)))


def own_claims_more_than_an_address(folder):
    return own(folder, lambda f: (f / "rewards.npy").write_bytes(npy_claiming(2**70)))


def own_claims_a_negative_size(folder):
    return own(folder, lambda f: (f / "rewards.npy").write_bytes(npy_claiming(-3)))


def own_deep_array_header(folder):
    text = b"(" * 9000
    content = np.lib.format.magic(1, 0) + struct.pack("<H", len(text)) + text
    return own(folder, lambda f: (f / "rewards.npy").write_bytes(content))


def replaced(name, by):
    def change(folder):
        (folder / name).unlink()
        by(folder / name)

    return change


def own_fifo(folder):
    return own(folder, replaced("rewards.npy", os.mkfifo))


def own_fifo_as_header(folder):
    return own(folder, replaced("dataset.json", os.mkfifo))


def own_device(folder):
    return own(folder, replaced("rewards.npy", lambda path: path.symlink_to("/dev/zero")))


def own_linked_out(folder):
    secret(folder)
    return own(folder, replaced("rewards.npy", lambda path: path.symlink_to(folder / "rewards.npy")))


def own_group_linked_out(folder):
    def change(data):
        shutil.move(data / "observations", folder / "observations")
        (data / "observations").symlink_to(folder / "observations")

    return own(folder, change)


def own_percent_encoded(folder):
    secret(folder)
    return own(folder, lambda f: np.save(f / "..%2Fx.npy", np.zeros(3)))


def own_deep_header(folder):
    return own(folder, lambda f: (f / "dataset.json").write_text("[" * 100_000))


def own_deep_progress(folder):
    def change(data):
        (data / "dataset.json").unlink()
        (data / "progress.json").write_text('{"a":' * 100_000)

    return own(folder, change)


def npz(folder, member):
    path = folder / "logs.npz"
    np.savez(path, **{name: value for name, value in plain(COUNT).items() if name != "rewards"})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("rewards.npy", member)
    return path


def npz_claims_80_terabytes(folder):
    return npz(folder, npy_claiming(10**13))


def npz_claims_a_little_more(folder):
    return npz(folder, npy_claiming(COUNT))


def npz_of_no_array(folder):
    return npz(folder, b"hello")


def npy_called_npz(folder):
    (folder / "logs.npz").write_bytes(npy_claiming(10**13))
    return folder / "logs.npz"


def npz_deep_header(folder):
    np.savez(folder / "logs.npz", bcrl_header=np.array("[" * 100_000))
    return folder / "logs.npz"


def fifo(name):
    def make(folder):
        os.mkfifo(folder / name)
        return folder / name

    make.__name__ = f"fifo called {name}"
    return make


def device(name):
    def make(folder):
        (folder / name).symlink_to("/dev/zero")
        return folder / name

    make.__name__ = f"device called {name}"
    return make


def drq(folder, by):
    (folder / "drq").mkdir()
    by(folder / "drq" / "t_0_5.npz")
    return folder / "drq"


def drq_fifo(folder):
    return drq(folder, os.mkfifo)


def drq_linked_out(folder):
    parts = {"observation": np.zeros((6, 3)), "action": np.zeros((6, 2)), "reward": np.zeros(6)}
    np.savez(folder / "secret.npz", **parts, discount=np.ones(6))
    return drq(folder, lambda path: path.symlink_to(folder / "secret.npz"))


def long_name(folder):
    return folder / ("x" * 400 + ".npz")


def nul_in_the_name(folder):
    return f"{folder}/a\0b.npz"


def nobodys_home(folder):
    return "~no-such-user-here/logs.npz"


CASES = [
    external_storage, missing_external_storage, virtual, missing_virtual, external_link,
    soft_link_over_external_link, hdf5_claims_80_terabytes, hdf5_never_written,
    minari_external_storage, minari_virtual, minari_external_link, minari_claims_80_terabytes, minari_fifo,
    minari_linked_out, minari_deep_metadata, minari_deep_space, minari_id_out_of_the_store,
    own_claims_80_terabytes, own_claims_more_than_an_address, own_claims_a_negative_size,
    own_deep_array_header, own_fifo, own_fifo_as_header, own_device, own_linked_out, own_group_linked_out,
    own_percent_encoded, own_deep_header, own_deep_progress,
    npz_claims_80_terabytes, npz_claims_a_little_more, npz_of_no_array, npy_called_npz, npz_deep_header,
    *[fifo(name) for name in ("a.npz", "a.hdf5", "a.csv", "a.parquet")],
    *[device(name) for name in ("a.npz", "a.hdf5", "a.csv", "a.parquet")],
    drq_fifo, drq_linked_out, long_name, nul_in_the_name, nobodys_home,
]  # fmt: skip


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_refused_in_one_line(make, tmp_path, capsys):
    place = make(tmp_path)
    with pytest.raises(BadInput) as caught:
        load_dataset(place)
    told = str(caught.value)
    assert "\n" not in told and len(told) < 1000 and "4242" not in told
    assert main(["doctor", str(place)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.strip().splitlines()) == 1 and "Traceback" not in err


@pytest.mark.parametrize("kind", ["onnx", "safetensors", "zip", "pt2"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_policies_are_plain_files(kind, make, tmp_path):
    make(tmp_path / f"policy.{kind}")
    with pytest.raises(BadInput, match="plain file"):
        load_policy(tmp_path / f"policy.{kind}", trust=True)


def test_statistics_and_results_are_plain_files(tmp_path, capsys):
    os.mkfifo(tmp_path / "a")
    with pytest.raises(BadInput, match="plain file"):
        load_policy(tmp_path / "p.onnx", stats=tmp_path / "a", trust=True)
    assert main(["report", str(tmp_path / "a")]) == 2
    assert "plain file" in capsys.readouterr().err


def test_columns_are_read_from_a_plain_file_of_flat_json(tmp_path, capsys):
    np.savez(tmp_path / "logs.npz", **plain())
    os.mkfifo(tmp_path / "columns.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "latin.json").write_bytes(b'{"rewards": "\xe9"}')
    for columns in (tmp_path / "columns.json", tmp_path / "deep.json", tmp_path / "latin.json", "x" * 5000,
                    '{"a":' * 100_000, '{"rewards": ["rewards"]}', '{"rewards": 3}'):  # fmt: skip
        assert main(["doctor", str(tmp_path / "logs.npz"), "--columns", str(columns)]) == 2
        out, err = capsys.readouterr()
        assert out == "" and len(err.strip().splitlines()) == 1


def test_links_inside_a_folder_are_followed(tmp_path):
    def change(folder):
        (folder / "rewards.npy").rename(folder / "kept.bin")
        (folder / "rewards.npy").symlink_to("kept.bin")

    assert len(load_dataset(own(tmp_path, change))) == 36


def test_a_named_file_or_folder_may_be_a_link(tmp_path):
    np.savez(tmp_path / "real.npz", **plain())
    (tmp_path / "logs.npz").symlink_to("real.npz")
    own(tmp_path, lambda folder: None)
    (tmp_path / "link").symlink_to("data")
    assert len(load_dataset(tmp_path / "logs.npz")) == len(load_dataset(tmp_path / "link")) == 36


def test_soft_links_inside_an_hdf5_file_are_no_reason_to_refuse_it(tmp_path):
    def write(file):
        file["rewards"] = np.zeros(COUNT)
        file["again"] = h5py.SoftLink("/rewards")

    assert len(load_dataset(hdf5(tmp_path, write))) > 0


TABLE = "episode,observation_0,action,reward,terminated\n0,1.0,0,1.0,0\n0,2.0,1,1.0,1\n"
TABLES = {
    "Latin-1 header": (TABLE.replace("reward", "r\xe9ward").encode("latin-1"), "UTF-8"),
    "Latin-1 label": (TABLE.replace("\n0,", "\nn\xe9,").encode("latin-1"), "UTF-8"),
    "UTF-16": (TABLE.encode("utf-16"), "cannot be read as a table"),
    "the same column twice": (TABLE.replace("observation_0", "reward").encode(), "twice"),
    "twice, mapped": (TABLE.replace("terminated", "reward").encode(), "twice"),
    "a NUL": (TABLE.replace("2.0", "2\0").encode(), "t.csv"),
}


@pytest.mark.parametrize("name", TABLES)
def test_odd_tables_give_one_clear_line(name, tmp_path, capsys):
    content, word = TABLES[name]
    (tmp_path / "t.csv").write_bytes(content)
    assert main(["doctor", str(tmp_path / "t.csv")]) == 2
    out, err = capsys.readouterr()
    assert len(err.strip().splitlines()) == 1 and word in err and out == ""


@pytest.mark.parametrize(
    "method", ["LSPE(BellmanComplete(steps=2))", "FQE(steps=20)", "LSPE(RandomFeatures(dim=9))"]
)
def test_a_table_of_two_rows_gives_one_line_or_an_answer(method, tmp_path):
    from bcrl import evaluate

    (tmp_path / "t.csv").write_text(TABLE)
    data = load_dataset(tmp_path / "t.csv")
    with contextlib.suppress(BadInput):
        estimate = evaluate(data, lambda x: np.zeros(len(x), int), discount=0.9, method=method)
        assert estimate.verdict != "trust"
