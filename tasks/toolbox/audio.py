"""Tools for recordings: WAV files of 16-bit samples."""

import io
import math
import operator
import wave
from array import array
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from tasks.errors import ToolRefused
from tasks.toolbox import drawing
from tasks.toolbox.sandbox import Sandbox
from tasks.toolbox.types import AnswerResult, AudioFile, AudioResult, ImageResult

RATE = 16_000
"""Samples a second of what is made here."""
MAX_SAMPLES = 10_000_000
_LOUDEST = 32_767
_FADE_S = 0.01


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording in memory.

    Attributes:
        rate: Frames a second.
        channels: Samples a frame.
        samples: 16-bit, frame by frame.
    """

    rate: int
    channels: int
    samples: "array[int]"

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return len(self.samples) / self.channels / self.rate


def make_tone(
    box: Sandbox,
    frequency: Annotated[float, Field(description="Pitch in hertz.", ge=20, le=7900)],
    seconds: Annotated[float, Field(description="Length in seconds.", ge=0.01, le=60)],
) -> AudioResult:
    """Make a recording of a pure tone of a given pitch and length."""
    count = round(seconds * RATE)
    fade = min(round(_FADE_S * RATE), count // 2)
    step = 2 * math.pi * frequency / RATE
    samples = array(
        "h",
        (
            round(
                0.5 * _LOUDEST * min(1.0, (i + 1) / fade, (count - i) / fade) * math.sin(step * i)
            )
            for i in range(count)
        ),
    )
    return {"audio": box.keep("tone", ".wav", wav_bytes(Recording(RATE, 1, samples)))}


def trim_audio(
    box: Sandbox,
    audio: Annotated[AudioFile, Field(description="The recording to cut.")],
    start: Annotated[float, Field(description="Where the part begins, in seconds.", ge=0)],
    end: Annotated[float, Field(description="Where the part ends, in seconds.", gt=0)],
) -> AudioResult:
    """Cut a part out of a recording and keep only that part."""
    found = _read(box, audio)
    first, last = round(start * found.rate), round(end * found.rate)
    if not first < last <= len(found.samples) // found.channels:
        raise ToolRefused(
            f"Expected a start before the end, and both within the {found.seconds:.2f} seconds of "
            f"{audio}, got {start:g} to {end:g}."
        )
    samples = found.samples[first * found.channels : last * found.channels]
    cut = Recording(found.rate, found.channels, samples)
    return {"audio": box.keep("trim", ".wav", wav_bytes(cut))}


def join_audio(
    box: Sandbox,
    first: Annotated[AudioFile, Field(description="The recording that comes first.")],
    second: Annotated[AudioFile, Field(description="The recording that follows.")],
) -> AudioResult:
    """Put two recordings one after the other into one."""
    one, other = _read(box, first), _read(box, second)
    if (one.rate, one.channels) != (other.rate, other.channels):
        raise ToolRefused(
            f"Expected two recordings of the same kind, got {one.rate} Hz with {one.channels} "
            f"channel(s) and {other.rate} Hz with {other.channels}."
        )
    _check_length(f"{first} with {second}", len(one.samples) + len(other.samples))
    joined = Recording(one.rate, one.channels, one.samples + other.samples)
    return {"audio": box.keep("join", ".wav", wav_bytes(joined))}


def draw_waveform(
    box: Sandbox,
    audio: Annotated[AudioFile, Field(description="The recording to draw.")],
) -> ImageResult:
    """Draw the loudness of a recording over time as a picture."""
    samples = _read(box, audio).samples
    width = drawing.WAVEFORM_SIZE[0]
    edges = [len(samples) * i // width for i in range(width + 1)]
    levels = [_level(samples[edges[i] : edges[i + 1]]) for i in range(width)]
    return {"image": box.keep("waveform", ".png", drawing.png_bytes(drawing.waveform(levels)))}


def describe_audio(
    box: Sandbox,
    audio: Annotated[AudioFile, Field(description="The recording to describe.")],
) -> AnswerResult:
    """Describe a recording in a sentence: its length, loudness and sample rate."""
    found = _read(box, audio)
    level = _level(found.samples)
    loudness = f"has a loudness of {20 * math.log10(level):.1f} dB" if level else "is silent"
    return {
        "answer": f"The recording lasts {found.seconds:.2f} seconds, {loudness} and has a sample "
        f"rate of {found.rate} Hz."
    }


def wav_bytes(recording: Recording) -> bytes:
    """A recording as the bytes of a WAV file."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(recording.channels)
        file.setsampwidth(2)
        file.setframerate(recording.rate)
        file.writeframes(recording.samples.tobytes())
    return buffer.getvalue()


def _read(box: Sandbox, path: str) -> Recording:
    content = box.read(path, "audio")
    try:
        with wave.open(io.BytesIO(content)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            frames = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise ToolRefused(f"Expected a WAV recording in {path}, got: {error}.") from None
    if width != 2 or rate <= 0:
        raise ToolRefused(f"Expected samples of 16 bits in {path}, got {8 * width} bits.")
    samples = array("h", frames[: len(frames) // (2 * channels) * 2 * channels])
    if not samples:
        raise ToolRefused(f"The recording {path} is empty.")
    _check_length(path, len(samples))
    return Recording(rate, channels, samples)


def _check_length(name: str, count: int) -> None:
    if count > MAX_SAMPLES:
        raise ToolRefused(f"{name} has {count:,} samples; at most {MAX_SAMPLES:,} are handled.")


def _level(samples: "array[int]") -> float:
    """The root mean square, 0 to 1."""
    if not samples:
        return 0.0
    return math.sqrt(sum(map(operator.mul, samples, samples)) / len(samples)) / _LOUDEST
