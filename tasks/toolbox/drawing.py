"""What is drawn rather than read: charts, waveforms, letters."""

import io
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

WAVEFORM_SIZE = (600, 160)

_BAR, _INK, _PAPER = (58, 110, 165), (40, 40, 40), (255, 255, 255)
_BAR_STEP, _PLOT_HEIGHT, _MARGIN = 48, 240, 30
_MAX_LABEL = 20

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def font(size: float) -> Font:
    """The font that comes with Pillow."""
    return ImageFont.load_default(size)


def png_bytes(picture: Image.Image) -> bytes:
    """A picture as the bytes of a PNG file."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def chart(title: str, bars: Sequence[tuple[str, float]]) -> Image.Image:
    """Upright bars with their numbers, over their names written upwards."""
    letters = font(12)
    names = [_shortened(name) for name, _ in bars]
    foot = int(max(letters.getlength(name) for name in names)) + _MARGIN
    width = 2 * _MARGIN + _BAR_STEP * len(bars)
    picture = Image.new("RGB", (max(width, 240), 2 * _MARGIN + _PLOT_HEIGHT + foot), _PAPER)
    draw = ImageDraw.Draw(picture)
    draw.text((_MARGIN, 6), _shortened(title), _INK, font(16))
    top, bottom = max(0.0, *(v for _, v in bars)), min(0.0, *(v for _, v in bars))
    scale = _PLOT_HEIGHT / ((top - bottom) or 1.0)
    zero = 2 * _MARGIN + top * scale
    floor = 2 * _MARGIN + _PLOT_HEIGHT
    for i, (name, (_, value)) in enumerate(zip(names, bars, strict=True)):
        left = _MARGIN + i * _BAR_STEP + 6
        high, low = sorted((zero - value * scale, zero))
        draw.rectangle((left, high, left + _BAR_STEP - 12, low), _BAR)
        draw.text((left, high - 15), f"{value:.6g}", _INK, letters)
        upright = _written(name, letters).rotate(90, expand=True)
        picture.paste(upright, (left + _BAR_STEP // 2 - 14, floor + 6))
    draw.line((_MARGIN, zero, width - _MARGIN, zero), _INK)
    return picture


def waveform(levels: Sequence[float]) -> Image.Image:
    """A mirrored column a level; levels are 0 to 1, and the loudest fills the picture."""
    width, height = WAVEFORM_SIZE
    picture = Image.new("RGB", WAVEFORM_SIZE, _PAPER)
    draw = ImageDraw.Draw(picture)
    middle, largest = height // 2, max(levels) or 1.0
    draw.line((0, middle, width, middle), _INK)
    for x, level in enumerate(levels):
        reach = round((middle - 4) * level / largest)
        draw.line((x, middle - reach, x, middle + reach), _BAR)
    return picture


def write(picture: Image.Image, text: str) -> bool:
    """Write a text at the foot of a picture, in the largest letters that fit; False if none do."""
    width, height = picture.width - 16, picture.height - 16
    draw = ImageDraw.Draw(picture)
    for size in range(min(96, max(8, height // 8)), 7, -1):
        letters = font(size)
        lines = _wrapped(text, letters, width)
        line_height = round(size * 1.25)
        if lines is not None and line_height * len(lines) <= height:
            y = picture.height - 8 - line_height * len(lines)
            for line in lines:
                x = (picture.width - letters.getlength(line)) / 2
                draw.text((x, y), line, "white", letters, stroke_width=2, stroke_fill="black")
                y += line_height
            return True
    return False


def _wrapped(text: str, letters: Font, width: int) -> list[str] | None:
    """Lines of whole words no wider than that; None where a word is wider."""
    lines: list[str] = []
    for paragraph in text.splitlines():
        line = ""
        for word in paragraph.split():
            longer = f"{line} {word}" if line else word
            if letters.getlength(longer) <= width:
                line = longer
            elif letters.getlength(word) <= width:
                lines.append(line)
                line = word
            else:
                return None
        lines.append(line)
    return lines


def _written(text: str, letters: Font) -> Image.Image:
    picture = Image.new("RGB", (int(letters.getlength(text)) + 2, 18), _PAPER)
    ImageDraw.Draw(picture).text((0, 0), text, _INK, letters)
    return picture


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_LABEL else text[: _MAX_LABEL - 1].rstrip() + "…"
