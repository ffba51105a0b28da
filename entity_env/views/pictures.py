"""Shapes as pixels, using Pillow: stills, GIF, WebP and MP4."""

from __future__ import annotations

import base64
import io
import math
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from entity_env.errors import MissingExtraError, UsageError
from entity_env.lazy_imports import np
from entity_env.processes import kill_group, start_group
from entity_env.views.drawing import Drawing
from entity_env.views.scene import BASELINE, Point, Shape, rgba, turned
from entity_env.views.seen import SeenObservation

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image, ImageDraw

_PIXELS: Final = 480
"""Maximum length of the longer side, by default."""
_CELL_PIXELS: Final = 28
"""Maximum pixels per unit of the game, by default."""
_SMOOTHING: Final = 4
_MAX_CACHED: Final = 4096
_GIF_COLORS: Final = 128
_SAMPLES: Final = 8
"""The colors of a GIF are chosen from at least this many pictures (if it has them), below twice as
many."""

Box = tuple[int, int, int, int]


class Painter:
    """Draws shapes as images of one size.

    Args:
        size: width and height, in units of the game.
        ground: shapes below all others.
        smooth: antialiased; False = with few colors, except for text.
        pixels: width and height of the images, with a margin if the aspect ratio differs; None =
            from the size, at most 480.

    Raises:
        MissingExtraError: Pillow is not installed.
    """

    def __init__(
        self,
        size: Point,
        ground: Sequence[Shape] = (),
        *,
        smooth: bool = True,
        pixels: tuple[int, int] | None = None,
    ) -> None:
        try:
            from PIL import Image
        except ImportError as error:
            raise MissingExtraError("pillow", "pictures", "a picture in pixels") from error
        width, height = size
        if pixels is None:
            self.scale = min(_CELL_PIXELS, _PIXELS / max(size))
            pixels = (max(round(width * self.scale), 1), max(round(height * self.scale), 1))
        else:
            self.scale = min(pixels[0] / width, pixels[1] / height)
        self.pixels = pixels
        self._left = (pixels[0] - width * self.scale) / 2
        self._top = (pixels[1] - height * self.scale) / 2
        self._samples = _SMOOTHING if smooth else 1
        self._layers: dict[Shape, list[tuple[Image.Image, Point, str]]] = {}
        self._ground = Image.new("RGB", pixels, "white")
        self._paint(self._ground, ground)

    def image(self, shapes: Sequence[Shape]) -> Image.Image:
        image = self._ground.copy()
        self._paint(image, shapes)
        return image

    def _paint(self, image: Image.Image, shapes: Sequence[Shape]) -> None:
        for shape in shapes:
            layers = self._layers.get(shape)
            if layers is None:
                if len(self._layers) >= _MAX_CACHED:
                    self._layers.clear()
                layers = self._layers[shape] = list(self._layers_of(shape))
            for layer, corner, color in layers:
                at = (int(corner[0]), int(corner[1]))
                if color:
                    box = (*at, at[0] + layer.width, at[1] + layer.height)
                    image.paste(rgba(color)[:3], box, layer)
                else:
                    image.paste(layer, at, layer)

    def _layers_of(self, shape: Shape) -> Iterator[tuple[Image.Image, Point, str]]:
        """Masks with position and color; for an image, the image with position and "" as color."""
        if shape.kind == "image":
            yield from self._pasted(shape)
            return
        if shape.kind == "text":
            yield from self._text(shape)
            return
        box = self._box(shape)
        if box is None:
            return
        for color, is_stroke in ((shape.fill, False), (shape.stroke, True)):
            if color:
                yield self._mask(shape, box, rgba(color)[3], is_stroke), box[:2], color

    def _mask(self, shape: Shape, box: Box, alpha: int, is_stroke: bool) -> Image.Image:
        from PIL import Image, ImageDraw

        samples = self._samples
        size = ((box[2] - box[0]) * samples, (box[3] - box[1]) * samples)
        mask = Image.new("L", size)
        draw = ImageDraw.Draw(mask)
        scale = self.scale * samples
        offset = ((self._left - box[0]) * samples, (self._top - box[1]) * samples)
        width = max(round(shape.width * scale), 1)
        points = [(offset[0] + x * scale, offset[1] + y * scale) for x, y in corners_of(shape)]
        if shape.kind == "circle" or (shape.kind == "rect" and not shape.rotate):
            _draw_in_box(draw, shape, points, scale, width if is_stroke else 0, alpha)
        elif is_stroke:
            closed = points if shape.kind == "line" else [*points, *points[:2]]
            draw.line(closed, alpha, width, joint="curve")
        else:
            draw.polygon(points, alpha)
        return mask.reduce(samples) if samples > 1 else mask

    def _box(self, shape: Shape) -> Box | None:
        """The pixels that a shape may cover; None if outside."""
        xs, ys = zip(*corners_of(shape), strict=True)
        margin = shape.width / 2 * self.scale + 1
        left, right = (self._left + x * self.scale for x in (min(xs), max(xs)))
        top, bottom = (self._top + y * self.scale for y in (min(ys), max(ys)))
        box = (
            max(math.floor(left - margin), 0),
            max(math.floor(top - margin), 0),
            min(math.ceil(right + margin), self.pixels[0]),
            min(math.ceil(bottom + margin), self.pixels[1]),
        )
        return box if box[0] < box[2] and box[1] < box[3] else None

    def _text(self, shape: Shape) -> Iterator[tuple[Image.Image, Point, str]]:
        from PIL import Image, ImageDraw, ImageFont

        size = shape.size[0] * self.scale
        if size < 1 or not shape.text or not shape.fill:
            return
        font = ImageFont.load_default(min(size, max(self.pixels)))
        half = math.ceil(font.getlength(shape.text)) + 2
        half = min(half, 2 * max(self.pixels))
        mask = Image.new("L", (2 * half, math.ceil(2 * size) + 2))
        draw = ImageDraw.Draw(mask)
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[shape.anchor]
        place = (half, mask.height / 2 + BASELINE * size)
        draw.text(place, shape.text, rgba(shape.fill)[3], font=font, anchor=anchor)
        if shape.rotate:
            mask = mask.rotate(-shape.rotate, Image.Resampling.BILINEAR, expand=True)
        yield mask, self._corner(shape, mask), shape.fill

    def _pasted(self, shape: Shape) -> Iterator[tuple[Image.Image, Point, str]]:
        from PIL import Image

        width, height = (min(round(each * self.scale), 4096) for each in shape.size)
        if width < 1 or height < 1:
            return
        content = base64.b64decode(shape.text.partition(",")[2])
        try:
            with Image.open(io.BytesIO(content), formats=("PNG", "JPEG", "GIF", "WEBP")) as opened:
                image = opened.convert("RGBA").resize((width, height))
        except (OSError, Image.DecompressionBombError) as error:
            raise UsageError(f"an image of the look cannot be read: {error}") from error
        if shape.rotate:
            image = image.rotate(-shape.rotate, Image.Resampling.BILINEAR, expand=True)
        yield image, self._corner(shape, image), ""

    def _corner(self, shape: Shape, image: Image.Image) -> Point:
        x, y = shape.center
        return (
            round(self._left + x * self.scale - image.width / 2),
            round(self._top + y * self.scale - image.height / 2),
        )


def draw_array(
    drawing: Drawing, seen: SeenObservation, pixels: tuple[int, int] = (480, 480)
) -> NDArray[np.uint8]:
    """The picture of one observation, `(height, width, 3)` uint8, a new array.

    Args:
        drawing: grows to fit the observation.
        pixels: width and height, with a margin if the aspect ratio differs.

    Raises:
        MissingExtraError: Pillow is not installed.
    """
    drawing.include(seen)
    painter = _painter(drawing.size, tuple(drawing.ground().shapes), pixels)
    return np.array(painter.image(drawing.draw(seen).shapes))


@lru_cache(maxsize=4)
def _painter(size: Point, ground: tuple[Shape, ...], pixels: tuple[int, int]) -> Painter:
    return Painter(size, ground, pixels=pixels)


def write_film(
    file: Path,
    painter: Painter,
    shapes_of: Callable[[int], Sequence[Shape]],
    num_pictures: int,
    frame_s: float,
    end_s: float,
) -> None:
    """Writes a `.gif`, `.webp` or `.mp4`; draws each picture when it is written.

    Args:
        file: replaced if it exists.
        shapes_of: the shapes of a picture, by index.
        num_pictures: 1 or more.
        frame_s: seconds per picture.
        end_s: additional seconds for the last picture.

    Raises:
        UsageError: `.mp4`, and ffmpeg is not on the path or fails.
    """

    def image_of(index: int) -> Image.Image:
        return painter.image(shapes_of(index))

    if file.suffix == ".mp4":
        repeated = [*range(num_pictures), *[num_pictures - 1] * round(end_s / frame_s)]
        _write_mp4(file, map(image_of, repeated), painter.pixels, 1 / frame_s)
        return
    # Both formats store quantized durations: steps of 10 ms in a GIF.
    durations = [round(100 * frame_s) * 10] * num_pictures
    durations[-1] += round(1000 * end_s)
    if file.suffix == ".gif":
        film = _film(_with_palette(image_of, num_pictures), num_pictures)
        film.save(file, save_all=True, duration=durations, loop=0, optimize=True)
    else:
        film = _film(image_of, num_pictures)
        film.save(file, save_all=True, duration=durations, loop=0, lossless=True, method=4)


def _film(image_of: Callable[[int], Image.Image], num_pictures: int) -> Image.Image:
    """An image with several frames, each drawn when reached."""
    from PIL import Image

    class Film(Image.Image):
        n_frames = num_pictures

        def seek(self, frame: int) -> None:
            if frame >= num_pictures:
                raise EOFError
            self.im = image_of(frame).im

    first = image_of(0)
    film = Film()
    film._mode, film._size, film.palette = (
        first.mode,
        first.size,
        first.palette,
    )  # like `Image.new`
    film.im = first.im
    return film


def _with_palette(
    image_of: Callable[[int], Image.Image], num_pictures: int
) -> Callable[[int], Image.Image]:
    from PIL import Image

    step = max(num_pictures // _SAMPLES, 1)
    samples = [np.asarray(image_of(i)) for i in range(0, num_pictures, step)]
    palette = Image.fromarray(np.concatenate(samples)).quantize(
        _GIF_COLORS, dither=Image.Dither.NONE
    )
    return lambda index: image_of(index).quantize(palette=palette, dither=Image.Dither.NONE)


def _write_mp4(
    file: Path, images: Iterable[Image.Image], pixels: tuple[int, int], fps: float
) -> None:
    ffmpeg = shutil.which("ffmpeg")
    if ffmpeg is None:
        raise UsageError(
            ".mp4 needs the program ffmpeg, which is not on the path: install it, or write a .gif "
            "or .webp"
        )
    command = [ffmpeg, "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", f"{pixels[0]}x{pixels[1]}", "-r", f"{fps:.3f}", "-i", "-", "-an"]
    even = "pad=ceil(iw/2)*2:ceil(ih/2)*2"  # required by most players
    command += ["-vf", even, "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(file)]
    with (
        tempfile.TemporaryFile() as errors,  # a pipe that is not read may fill up
        start_group(command, stdin=subprocess.PIPE, stderr=errors) as process,
    ):
        try:
            if process.stdin is not None:
                with process.stdin:
                    for image in images:
                        process.stdin.write(image.tobytes())
            process.wait()
        except BrokenPipeError:  # its error message follows
            process.wait()
        finally:
            kill_group(process)
        errors.seek(0)
        words = errors.read().decode(errors="replace").strip()
    if process.returncode:
        raise UsageError(f"ffmpeg failed: {words}")


def corners_of(shape: Shape) -> list[Point]:
    """The outline as points, in units of the game.

    For a circle or an upright rectangle, the corners (upper left, lower right) of its bounding box.
    """
    (x, y), size = shape.center, shape.size
    if shape.kind == "circle":
        size = (2 * size[0], 2 * size[0])
    if shape.kind == "circle" or (shape.kind == "rect" and not shape.rotate):
        half_width, half_height = size[0] / 2, size[1] / 2
        return [(x - half_width, y - half_height), (x + half_width, y + half_height)]
    points = list(shape.points)
    if shape.kind == "rect":
        dx, dy, radius = size[0] / 2 - shape.radius, size[1] / 2 - shape.radius, shape.radius
        points = []
        for i in range(36):  # a quarter circle around each inner corner
            angle = math.radians(10 * i + 10 * (i // 9) / 9)
            right, down = (1 if i // 9 in (0, 3) else -1), (1 if i // 9 in (0, 1) else -1)
            corner = (x + right * dx, y + down * dy)
            points.append(
                (corner[0] + radius * math.cos(angle), corner[1] + radius * math.sin(angle))
            )
    return [turned(point, (x, y), shape.rotate) for point in points]


def _draw_in_box(
    draw: ImageDraw.ImageDraw,
    shape: Shape,
    box: Sequence[Point],
    scale: float,
    width: int,
    alpha: int,
) -> None:
    """Draws a circle or upright rectangle; with a width, only its stroke."""
    (left, top), (right, bottom) = box
    more = width / 2
    left, top = round(left - more), round(top - more)
    right, bottom = max(round(right + more) - 1, left), max(round(bottom + more) - 1, top)
    fill, outline = (None, alpha) if width else (alpha, None)
    if shape.kind == "circle":
        draw.ellipse((left, top, right, bottom), fill, outline, width)
    else:
        radius = shape.radius * scale + (more if shape.radius else 0)
        draw.rounded_rectangle((left, top, right, bottom), radius, fill, outline, width)
