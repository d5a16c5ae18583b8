"""The animated PNG: one frame in memory at a time, and a file that shows what Pillow's would from all of them."""

import io
import os
import subprocess
import sys
import textwrap
import time
import weakref

import numpy as np
import pytest
import torch
from PIL import Image, PngImagePlugin

import flashlearn as fl
from flashlearn.show.draw import draw_row
from flashlearn.show.film import Film, animated, nearest, packed
from flashlearn.show.film import frames as unpacked
from flashlearn.show.frame import as_runs, paint, png


def frames(count, size=(70, 40), still_for=1, colours=200):
    """Pictures with a square that moves on every `still_for` frames, over more colours than a palette has."""
    width, height = size
    ground = np.linspace(0, 255, width * height).reshape(height, width).astype(np.uint8)
    ground = np.stack([ground - ground % (256 // colours), ground // 2, np.full_like(ground, 40)], -1)
    for number in range(count):
        at = number // still_for
        picture = ground.copy()
        picture[5:15, at : at + 10] = (200, 10 * (at % 20), 0)
        yield Image.fromarray(picture)


def of_pillow(film, delays, still):
    """The same animation, by Pillow's own writer, from all frames at once."""
    palette = film.palette()
    clear = len(palette)
    pixels = [nearest(frame, palette) for frame in film]
    changes = [np.where(before == now, clear, now) for before, now in zip(pixels, pixels[1:], strict=False)]
    pictures = []
    for numbers in (pixels[still], pixels[0], *changes):
        pictures.append(Image.fromarray(numbers.astype(np.uint8), "P"))
        pictures[-1].putpalette([*palette.flatten().tolist(), 0, 0, 255])
    stream = io.BytesIO()
    pictures[0].save(
        stream,
        "png",
        save_all=True,
        default_image=True,
        append_images=pictures[1:],
        loop=0,
        transparency=clear,
        duration=delays,
        optimize=True,
        blend=PngImagePlugin.Blend.OP_OVER,
    )
    return stream.getvalue()


@pytest.mark.parametrize("colours", [2, 200])
@pytest.mark.parametrize("still", [-1, 0, 2])
@pytest.mark.parametrize("delays", [(1200,), (700, 1400, 2100), (1234, 1234, 1234, 2468, 3702)])
def test_the_file_shows_what_that_of_pillow_shows(delays, still, colours):
    """The same still, frames and times."""
    film = Film(frames(len(delays), colours=colours))
    still = min(still, len(delays) - 1)
    ours, theirs = animated(film, delays, still), of_pillow(film, list(delays), still)
    one, other = (Image.open(io.BytesIO(file)) for file in (ours, theirs))
    assert one.n_frames == other.n_frames == len(delays) + 1
    for number in range(one.n_frames):
        one.seek(number)
        other.seek(number)
        assert np.array_equal(one.convert("RGB"), other.convert("RGB"))
        assert one.info.get("duration") == other.info.get("duration")


def test_frames_come_back_as_they_were_painted():
    """Few colours are shown exactly, and each frame in its time; one that changes nothing is a frame too."""
    few = [Image.fromarray(np.asarray(frame) // 128 * 100) for frame in frames(8, still_for=4, colours=2)]
    delays = [1200, 700, 2400, 65, 1, 1200, 60_000, 3600]
    file = animated(Film(few), delays, still=5)
    decoded = Image.open(io.BytesIO(file))
    assert decoded.n_frames == 9 and np.array_equal(decoded.convert("RGB"), few[5])
    for number, (picture, delay) in enumerate(zip(few, delays, strict=True)):
        decoded.seek(number + 1)  # the still has no time
        assert np.array_equal(decoded.convert("RGB"), picture) and decoded.info["duration"] == delay
    assert all(np.array_equal(*pair) for pair in zip(unpacked(file), few, strict=True))
    one = io.BytesIO()
    few[0].save(one, "png")
    assert [np.array_equal(only, few[0]) for only in unpacked(one.getvalue())] == [True]


def test_a_film_has_a_delay_for_every_frame():
    with pytest.raises(ValueError, match="zip"):
        animated(Film(frames(3)), [100, 100])


def test_a_film_is_packed_without_loss():
    painted = list(frames(3))
    film = Film(iter(painted))
    assert len(film) == 3 and film.size == (70, 40)
    assert all(np.array_equal(one, frame) for one, frame in zip(film, painted, strict=True))


def test_a_frame_is_packed_in_less_time_than_pillow_takes_and_not_much_larger():
    """Three quarters of it at most; measured 0.45, and 4 % smaller."""
    runs = as_runs(fl.online_softmax_steps(torch.linspace(-1, 2, 12)))
    frame = paint(runs, 12, draw_row, (12.8, 5.0))
    assert Image.open(io.BytesIO(packed(frame))).tobytes() == frame.tobytes()

    def least(pack):
        times = []
        for _ in range(5):
            start = time.process_time()
            pack(frame)
            times.append(time.process_time() - start)
        return min(times)

    assert least(packed) < 0.75 * least(png)
    assert len(packed(frame)) < 1.3 * len(png(frame))


@pytest.mark.parametrize("size", [(1, 1), (7, 3), (300, 1)])
def test_a_frame_of_any_size_is_packed(size):
    pixels = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), np.uint8)
    opened = Image.open(io.BytesIO(packed(Image.fromarray(pixels))))
    assert opened.mode == "RGB" and np.array_equal(np.asarray(opened), pixels)


def test_one_painted_frame_is_kept_at_a_time():
    pictures, most = [], [0]

    def watch(picture):
        pictures.append(weakref.ref(picture))
        most.append(sum(ref() is not None for ref in pictures))
        return picture

    class Watched(Film):
        def __getitem__(self, number):
            return watch(super().__getitem__(number))

    film = Watched(map(watch, frames(8)))
    assert max(most) <= 2  # the one that was packed, and the one that was painted next
    animated(film, [1000] * 8)
    assert max(most) <= 2 and len(pictures) > 16


@pytest.mark.slow
def test_three_hundred_frames_take_less_than_300_mb():
    """Of the memory of a process, beyond what it takes with one frame. Kept all at once, a hundred take 250 MB."""
    program = """
        import resource
        from flashlearn import Step
        from flashlearn.show import play

        def draw(ax, step):
            ax.set_axis_off()
            ax.plot(step.number, step.number, "o")

        def peak(count):
            play([Step(sentence=f"Step {n}") for n in range(count)], draw, alt="dots")
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        before = peak(1)
        print(peak(300) - before)
        """
    every = {**os.environ, "FLASHLEARN_ALL_FRAMES": "1", "FLASHLEARN_REDUCED_MOTION": ""}
    python = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(python, capture_output=True, text=True, check=True, env=every, encoding="utf-8")
    kilobytes = int(done.stdout) / (1024 if sys.platform == "darwin" else 1)
    assert kilobytes < 300_000
