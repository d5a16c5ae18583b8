"""The animated PNG: one frame in memory at a time, and the file that Pillow would write from all of them."""

import io
import subprocess
import sys
import textwrap
import weakref

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from flashlearn.show.film import Film, animated, nearest


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


def of_pillow(film, seconds, still):
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
        duration=[round(1000 * seconds)] * (len(film) - 1) + [round(3000 * seconds)],
        optimize=True,
        blend=PngImagePlugin.Blend.OP_OVER,
    )
    return stream.getvalue()


@pytest.mark.parametrize("colours", [2, 200])
@pytest.mark.parametrize("still", [-1, 0, 2])
@pytest.mark.parametrize(("count", "still_for", "seconds"), [(1, 1, 1.2), (3, 1, 0.7), (5, 1, 1.234), (12, 4, 1.2)])
def test_the_file_is_that_of_pillow(count, still_for, seconds, still, colours):
    film = Film(frames(count, still_for=still_for, colours=colours))
    still = min(still, count - 1)
    assert animated(film, seconds, still) == of_pillow(film, seconds, still)


def test_frames_come_back_as_they_were_painted():
    """Few colours are shown exactly, and each frame in its time; of frames that change nothing the first stands long."""
    few = [Image.fromarray(np.asarray(frame) // 128 * 100) for frame in frames(8, still_for=4, colours=2)]
    decoded = Image.open(io.BytesIO(animated(Film(few), 1.2)))
    shown = []
    for number in range(decoded.n_frames):
        decoded.seek(number)
        shown.append((np.asarray(decoded.convert("RGB")), decoded.info.get("duration")))
    assert [time for _, time in shown[1:]] == [1200, 3600, 1200, 2400 + 3600]  # the still has no time
    for (picture, _), want in zip(shown, (few[7], few[0], few[3], few[4], few[7]), strict=True):
        assert np.array_equal(picture, want)


def test_a_film_is_packed_without_loss():
    painted = list(frames(3))
    film = Film(iter(painted))
    assert len(film) == 3 and film.size == (70, 40)
    assert all(np.array_equal(packed, frame) for packed, frame in zip(film, painted, strict=True))


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
    animated(film, 1.0)
    assert max(most) <= 2 and len(pictures) > 16


@pytest.mark.slow
def test_three_hundred_frames_take_less_than_300_mb():
    """Of the memory of a process, beyond what it takes with one frame. Kept all at once, they took 1.9 GB."""
    program = """
        import resource
        from flashlearn import Step
        from flashlearn.show import animate

        def draw(ax, step):
            ax.set_axis_off()
            ax.scatter(range(step.number + 1), range(step.number + 1))

        def peak(count):
            animate([Step(sentence=f"Step {n}") for n in range(count)], draw, alt="dots")
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        before = peak(1)
        print(peak(300) - before)
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    kilobytes = int(done.stdout) / (1024 if sys.platform == "darwin" else 1)
    assert kilobytes < 300_000
