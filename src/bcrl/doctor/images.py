"""What the doctor finds in images: how they are stored, and whether the camera was on."""

from collections.abc import Iterator

import numpy as np

from bcrl.data.dataset import Array, is_pixels
from bcrl.doctor.findings import Finding

_SAMPLE = 256


def examine_images(key: str, value: Array, stack: int) -> Iterator[Finding]:
    """Findings about one key; a few hundred frames are looked at."""
    name, height, width, channels = f"observations[{key!r}]", *(*value.shape[1:], 1, 1)[:3]
    if value.dtype.kind == "f" and value.ndim in (3, 4) and min(height, width) >= 8:
        what = (
            f"{name} looks like images stored as {value.dtype}: {value.dtype.itemsize} times the memory of "
            "uint8."
        )
        yield Finding(
            "warning", what, "every row", "Store frames as uint8, height x width x channels, 0 to 255."
        )
        return
    if not is_pixels(value):
        return
    if height in (1, 3, 4, 9, 12) and channels >= 8:
        what = f"{name} has shape {value.shape[1:]}: channels come first."
        yield Finding(
            "warning", what, "every row", "Store height x width x channels: np.moveaxis(frames, 1, -1)."
        )
    if stack == 1 and channels <= 3:
        what = f"{name} holds single frames and stack is 1: nothing shows how fast things move."
        yield Finding("note", what, "every row", "Pass stack=3 unless one frame shows the whole state.")
    rows = np.linspace(0, len(value) - 1, min(_SAMPLE, len(value))).astype(np.int64)
    frames = np.asarray(value[rows]).reshape(len(rows), -1)
    blank = (frames == frames[:, :1]).all(axis=1)
    if blank.any():
        what = f"{blank.mean():.0%} of the sampled frames of {name} have one colour only."
        yield Finding(
            "warning", what, f"row {rows[np.argmax(blank)]}", "Look at these frames: was the camera on?"
        )
    elif len(rows) > 1 and (frames == frames[0]).all():
        yield Finding(
            "warning", f"All sampled frames of {name} are equal.", "every row", "Was the camera on?"
        )
