"""Tools for pictures: PNG and JPEG files in, PNG files out."""

import colorsys
import io
from collections import Counter
from typing import Annotated

from PIL import Image, ImageOps, ImageStat, UnidentifiedImageError
from pydantic import Field

from tasks.errors import ToolRefused
from tasks.toolbox import drawing
from tasks.toolbox.sandbox import Sandbox
from tasks.toolbox.types import AnswerResult, ImageFile, ImageResult, Text

MAX_PIXELS = 16_000_000
"""Pixels of one picture."""
MAX_SIDE = 4000
"""Pixels of a side that can be asked for."""
MAX_WRITTEN = 2000
"""Characters written into a picture."""

_HUES = (
    (15, "red"), (42, "orange"), (68, "yellow"), (160, "green"), (195, "turquoise"), (255, "blue"),
    (290, "purple"), (340, "pink"), (361, "red"),
)  # fmt: skip
"""Where each colour ends on the wheel, in degrees."""


def resize_image(
    box: Sandbox,
    image: Annotated[ImageFile, Field(description="The picture to scale.")],
    width: Annotated[int, Field(description="New width in pixels.", ge=1, le=MAX_SIDE)],
    height: Annotated[int, Field(description="New height in pixels.", ge=1, le=MAX_SIDE)],
) -> ImageResult:
    """Scale a picture to a given width and height."""
    picture = _read(box, image).resize((width, height), Image.Resampling.LANCZOS)
    return _kept(box, "resize", picture)


def rotate_image(
    box: Sandbox,
    image: Annotated[ImageFile, Field(description="The picture to turn.")],
    degrees: Annotated[int, Field(description="Angle in degrees, counter-clockwise.")],
) -> ImageResult:
    """Turn a picture counter-clockwise; the result is large enough to hold it."""
    picture = _read(box, image).rotate(
        degrees % 360, Image.Resampling.BICUBIC, expand=True, fillcolor="white"
    )
    return _kept(box, "rotate", picture)


def gray_image(
    box: Sandbox,
    image: Annotated[ImageFile, Field(description="The picture to take the colours from.")],
) -> ImageResult:
    """Turn a picture into black and white."""
    return _kept(box, "gray", _read(box, image).convert("L"))


def write_on_image(
    box: Sandbox,
    image: Annotated[ImageFile, Field(description="The picture to write on.")],
    text: Annotated[Text, Field(description="What to write.")],
) -> ImageResult:
    """Write a text into a picture, at its foot."""
    if not text.strip() or len(text) > MAX_WRITTEN:
        raise ToolRefused(
            f"Expected a text of 1 to {MAX_WRITTEN} characters to write, got {len(text)}."
        )
    picture = _read(box, image)
    if not drawing.write(picture, text.strip()):
        raise ToolRefused(
            f"The text of {len(text)} characters does not fit into {image}, which is "
            f"{picture.width} by {picture.height} pixels; shorten it or enlarge the picture."
        )
    return _kept(box, "write", picture)


def join_images(
    box: Sandbox,
    left: Annotated[ImageFile, Field(description="The picture on the left.")],
    right: Annotated[ImageFile, Field(description="The picture on the right.")],
) -> ImageResult:
    """Put two pictures side by side into one."""
    one, other = _read(box, left), _read(box, right)
    size = (one.width + other.width, max(one.height, other.height))
    _check_size(f"{left} beside {right}", size)
    picture = Image.new("RGB", size, "white")
    picture.paste(one, (0, 0))
    picture.paste(other, (one.width, 0))
    return _kept(box, "join", picture)


def describe_image(
    box: Sandbox,
    image: Annotated[ImageFile, Field(description="The picture to describe.")],
) -> AnswerResult:
    """Describe a picture in a sentence: its size, brightness and main colour."""
    picture = _read(box, image)
    brightness = ImageStat.Stat(picture.convert("L")).mean[0] / 255
    word = (
        "dark" if brightness < 1 / 3 else "bright" if brightness > 2 / 3 else "of medium brightness"
    )
    small = picture.resize((64, 64), Image.Resampling.BOX).tobytes()
    colours = Counter(_colour(*small[i : i + 3]) for i in range(0, len(small), 3))
    return {
        "answer": f"The picture is {picture.width} by {picture.height} pixels, {word} "
        f"({brightness:.0%}), and mainly {colours.most_common(1)[0][0]}."
    }


def _read(box: Sandbox, path: str) -> Image.Image:
    """A picture in RGB, upright, on white where it is transparent."""
    content = io.BytesIO(box.read(path, "image"))
    try:
        with Image.open(content, formats=("PNG", "JPEG")) as opened:
            _check_size(path, opened.size)
            picture = ImageOps.exif_transpose(opened)
            if picture.has_transparency_data:
                picture = picture.convert("RGBA")
                paper = Image.new("RGBA", picture.size, "white")
                picture = Image.alpha_composite(paper, picture)
            return picture.convert("RGB")
    except (
        UnidentifiedImageError,
        Image.DecompressionBombError,
        OSError,
        SyntaxError,
        ValueError,
    ) as error:
        told = (
            str(error).splitlines()[0][:100]
            if not isinstance(error, UnidentifiedImageError)
            else ""
        )
        raise ToolRefused(
            f"Expected a PNG or JPEG picture in {path}, got {told or 'something else'}."
        ) from None


def _check_size(name: str, size: tuple[int, int]) -> None:
    if size[0] * size[1] > MAX_PIXELS:
        raise ToolRefused(
            f"{name} has {size[0]} by {size[1]} pixels; at most {MAX_PIXELS:,} are handled."
        )


def _kept(box: Sandbox, label: str, picture: Image.Image) -> ImageResult:
    return {"image": box.keep(label, ".png", drawing.png_bytes(picture))}


def _colour(red: int, green: int, blue: int) -> str:
    """The name of a colour."""
    hue, saturation, value = colorsys.rgb_to_hsv(red / 255, green / 255, blue / 255)
    if value < 0.2:
        return "black"
    if saturation < 0.15:
        return "white" if value > 0.85 else "gray"
    name = next(name for end, name in _HUES if hue * 360 < end)
    return "brown" if name == "orange" and value < 0.65 else name
