"""The toolbox, through its MCP server over stdio as any client sees it."""

import contextlib
import csv
import hashlib
import io
import itertools
import json
import shutil
import socket
import subprocess
import sys
import time
import wave
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from mcp import Client, StdioServerParameters, stdio_client
from PIL import Image, ImageChops

from models.fields import read_returns, read_takes
from tasks import catalogue
from tasks.tool_servers import list_source
from tasks.toolbox.samples import make_samples

ROOT = Path(__file__).resolve().parents[2]


class Refused(Exception):
    """The server answered with a tool error."""


class Served:
    """A server's tools as calls that wait for their result."""

    def __init__(self, portal, client, folder):
        self.portal, self.client, self.folder = portal, client, folder

    def __call__(self, name, /, **arguments):
        result = self.portal.call(self.client.call_tool, name, arguments)
        told = " ".join(part.text for part in result.content)
        if result.is_error:
            raise Refused(told)
        assert json.loads(told) == result.structured_content
        (value,) = result.structured_content.values()
        return value

    def image(self, path):
        with Image.open(self.folder / path) as picture:
            picture.load()
        return picture

    def rows(self, path):
        return list(csv.reader(io.StringIO((self.folder / path).read_text())))

    def sound(self, path):
        with wave.open(str(self.folder / path)) as file:
            return file.getframerate(), file.readframes(file.getnframes())


@contextlib.contextmanager
def serve(folder, slow_s=0.0):
    arguments = ["-m", "tasks.toolbox", "--sandbox", str(folder), "--slow-s", str(slow_s)]
    server = StdioServerParameters(command=sys.executable, args=arguments, cwd=ROOT)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(stdio_client(server))) as client,
    ):
        yield Served(portal, client, folder)


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    make_samples(folder)
    return folder


@pytest.fixture(scope="module")
def box(samples, tmp_path_factory):
    """A served sandbox that the tests of this module share."""
    folder = tmp_path_factory.mktemp("sandbox")
    shutil.copytree(samples, folder, dirs_exist_ok=True)
    with serve(folder) as served:
        yield served


@pytest.fixture
def fresh(samples, tmp_path):
    """A sandbox of one test's own, not yet served."""
    folder = tmp_path / "box"
    shutil.copytree(samples, folder)
    return folder


# --- texts ----------------------------------------------------------------------------------------


def test_documents_are_read_and_written(box):
    text = box("read_document", document="letter.txt")
    assert text == (box.folder / "letter.txt").read_text()
    for name in ("a copy", "a copy.txt"):
        path = box("write_document", text=text, name=name)
        assert path == "made/a copy.txt"
    assert box("read_document", document=path) == text


def test_another_text_does_not_take_a_name_that_is_taken(box):
    path = box("write_document", text="first", name="taken")
    with pytest.raises(Refused, match=r"another made/taken\.txt already; choose another name"):
        box("write_document", text="second", name="taken")
    assert (box.folder / path).read_text() == "first"


def test_words_are_counted(box):
    assert box("count_words", text="one two\nthree-four  five") == "4"
    assert box("count_words", text="") == "0"


def test_a_summary_holds_the_sentences_of_frequent_words_in_their_order(box):
    text = "A title\n\nThe quay is old. Cats sleep well. The old quay needs steel. Rain fell."
    told = box("summarize_text", text=text)
    assert told == "The quay is old. The old quay needs steel."
    assert box("summarize_text", text=text, sentences=50).startswith(
        "A title The quay is old. Cats"
    )


def test_lines_with_a_phrase_are_found_in_any_case(box):
    minutes = box("read_document", document="minutes.txt")
    found = box("find_lines", text=minutes, wanted="DECIDED").splitlines()
    assert len(found) == 4
    assert found[0] == "It was decided to keep the yearly fee at 35 euros."
    assert box("find_lines", text=minutes, wanted="zebra") == ""


def test_whole_words_are_replaced_by_what_is_said_literally(box):
    text = "a cat, a catalogue, the cat."
    assert box("replace_words", text=text, old="cat", new=r"\1dog") == (
        r"a \1dog, a catalogue, the \1dog."
    )


def test_keywords_are_frequent_words_that_say_something(box):
    text = "The ship and the sea. The ship, the harbour and the sea; the ship."
    assert box("extract_keywords", text=text, number=2) == "ship, sea"


def test_every_first_translation_of_a_text_fails_for_the_moment(fresh):
    with serve(fresh) as served:
        for text in ("The white house", "Good morning"):
            with pytest.raises(Refused, match="temporarily unavailable"):
                served("translate_words", text=text)
        assert served("translate_words", text="The white house") == "El blanco casa"
    with serve(fresh) as served:  # another process knows what was asked for
        assert served("translate_words", text="Good morning") == "Bueno mañana"
        with pytest.raises(Refused, match="temporarily unavailable"):
            served("translate_words", text="Good morning, zebra")
        assert served("translate_words", text="Good morning, zebra") == "Bueno mañana, zebra"


# --- tables ---------------------------------------------------------------------------------------


def test_rows_are_filtered_and_sorted_by_number(box):
    kept = box("filter_rows", table="sales.csv", column="region", value="north")
    assert len(box.rows(kept)) == 1 + 6
    ordered = box.rows(box("sort_rows", table=kept, column="units", descending=True))
    assert [row[3] for row in ordered] == ["units", "34", "29", "22", "18", "10", "7"]
    empty = box("filter_rows", table="sales.csv", column="region", value="Centre")
    assert box.rows(empty) == [["month", "region", "product", "units", "price"]]


def test_words_are_sorted_by_alphabet_and_empty_cells_come_last(box):
    (box.folder / "odd.csv").write_text("a,b\nbeta,1\n,2\nAlpha,3\n10,4\n")
    rows = box.rows(box("sort_rows", table="odd.csv", column="a"))
    assert [row[1] for row in rows[1:]] == ["4", "3", "1", "2"]


@pytest.mark.parametrize(
    ("how", "answer"),
    [("sum", "535"), ("mean", "22.2916666666667"), ("min", "7"), ("max", "44"), ("count", "24")],
)
def test_a_column_is_summed_up_in_one_number(box, how, answer):
    assert box("summarize_column", table="sales.csv", column="units", how=how) == answer


def test_tables_are_joined_where_a_column_agrees(box):
    rows = box.rows(box("join_tables", left="staff.csv", right="cities.csv", column="city"))
    assert rows[0] == ["name", "team", "city", "salary", "country", "population"]
    assert rows[1] == ["Ada", "Sales", "Porto", "41200", "Portugal", "231800"]
    assert len(rows) == 1 + 12
    twice = box.rows(box("join_tables", left="shelf.csv", right="shelf.csv", column="product"))
    assert twice[0] == ["product", "shelf", "stock", "shelf_right", "stock_right"]


def test_a_table_is_written_out_with_aligned_columns(box):
    assert box("table_to_text", table="shelf.csv") == (
        "product  shelf  stock\nlamp     A3     120\nchair    C1     64\ndesk     D2     31"
    )


def test_a_chart_has_a_bar_a_row_as_long_as_its_number(box):
    path = box("draw_chart", table="shelf.csv", labels="product", values="stock")
    picture = box.image(path).convert("RGB")
    counts = [0, 0, 0]
    for x, third in ((50, 0), (98, 1), (146, 2)):
        column = [picture.getpixel((x, y)) for y in range(picture.height)]
        counts[third] = column.count((58, 110, 165))
    assert counts[0] > 200
    assert counts[1] / counts[0] == pytest.approx(64 / 120, abs=0.03)
    assert counts[2] / counts[0] == pytest.approx(31 / 120, abs=0.03)


def test_a_table_that_is_none_is_refused_with_its_place(box):
    (box.folder / "gap.csv").write_text("a,b\n1,2\n3\n")
    (box.folder / "twice.csv").write_text("a,a\n1,2\n")
    with pytest.raises(Refused, match=r"Expected 2 cells in line 3 of gap\.csv, got 1"):
        box("table_to_text", table="gap.csv")
    with pytest.raises(Refused, match="different name for each column"):
        box("table_to_text", table="twice.csv")
    with pytest.raises(Refused, match=r"no column 'prize'; its columns are month, region"):
        box("sort_rows", table="sales.csv", column="prize")
    with pytest.raises(Refused, match=r"Expected numbers in the column 'region' .* got 'North'"):
        box("summarize_column", table="sales.csv", column="region", how="sum")
    with pytest.raises(Refused, match="how"):
        box("summarize_column", table="sales.csv", column="units", how="median")


# --- pictures -------------------------------------------------------------------------------------


def test_pictures_are_scaled_and_turned_counter_clockwise(box):
    assert box.image(box("resize_image", image="beach.png", width=64, height=40)).size == (64, 40)
    turned = box.image(box("rotate_image", image="beach.png", degrees=90))
    upright = box.image("beach.png").transpose(Image.Transpose.ROTATE_90)
    assert turned.size == (200, 320)
    assert ImageChops.difference(turned, upright).getbbox() is None
    assert box.image(box("rotate_image", image="poster.png", degrees=-45)).width > 400


def test_a_gray_picture_has_no_colour(box):
    picture = box.image(box("gray_image", image="portrait.jpg"))
    assert (picture.mode, picture.size) == ("L", (200, 300))


def test_a_text_is_written_at_the_foot_of_a_picture(box):
    before = box.image("forest.png")
    after = box.image(box("write_on_image", image="forest.png", text="Deep wood"))
    left, top, right, bottom = ImageChops.difference(before, after).getbbox()
    assert left > 0 < 240 - right
    assert 180 < top < bottom < 240
    with pytest.raises(Refused, match=r"does not fit into forest\.png"):
        box("write_on_image", image="forest.png", text="word " * 390)


def test_two_pictures_stand_side_by_side(box):
    picture = box.image(box("join_images", left="beach.png", right="forest.png"))
    assert picture.size == (320 + 240, 240)
    right = picture.crop((320, 0, 560, 240))
    assert ImageChops.difference(right, box.image("forest.png")).getbbox() is None


@pytest.mark.parametrize(
    ("image", "told"),
    [
        ("beach.png", "320 by 200 pixels, bright (69%), and mainly blue."),
        ("forest.png", "240 by 240 pixels, of medium brightness (53%), and mainly green."),
        ("portrait.jpg", "mainly brown."),
        ("poster.png", "mainly red."),
    ],
)
def test_a_picture_is_described(box, image, told):
    assert told in box("describe_image", image=image)


def test_what_is_no_picture_or_too_large_is_refused(box):
    (box.folder / "fake.png").write_bytes(b"GIF89a and more")
    (box.folder / "torn.png").write_bytes((box.folder / "poster.png").read_bytes()[:5000])
    Image.new("1", (5000, 4000)).save(box.folder / "vast.png")
    with pytest.raises(Refused, match=r"Expected an image file .*got 'letter\.txt'"):
        box("gray_image", image="letter.txt")
    for name in ("fake.png", "torn.png"):
        with pytest.raises(Refused, match=f"Expected a PNG or JPEG picture in {name}, got"):
            box("gray_image", image=name)
    with pytest.raises(Refused, match=r"vast\.png has 5000 by 4000 pixels; at most 16,000,000"):
        box("describe_image", image="vast.png")
    with pytest.raises(Refused, match="less than or equal to 4000"):
        box("resize_image", image="beach.png", width=4001, height=1)


# --- recordings -----------------------------------------------------------------------------------


def test_a_tone_has_its_pitch_and_length(box):
    rate, frames = box.sound(box("make_tone", frequency=440, seconds=0.5))
    samples = memoryview(frames).cast("h")
    assert (rate, len(samples)) == (16_000, 8_000)
    rising = sum(1 for a, b in itertools.pairwise(samples) if a <= 0 < b)
    assert rising == pytest.approx(220, abs=1)


def test_recordings_are_cut_and_joined(box):
    whole = box.sound("bell.wav")[1]
    part = box("trim_audio", audio="bell.wav", start=0.5, end=1)
    assert box.sound(part)[1] == whole[16_000:32_000]
    joined = box("join_audio", first=part, second="bell.wav")
    assert box.sound(joined)[1] == whole[16_000:32_000] + whole
    for start, end in ((1.5, 2.5), (1, 1), (2, 1)):
        with pytest.raises(Refused, match=r"within the 2\.00 seconds of bell\.wav"):
            box("trim_audio", audio="bell.wav", start=start, end=end)


def test_recordings_of_two_kinds_are_not_joined(box):
    with wave.open(str(box.folder / "stereo.wav"), "wb") as file:
        file.setparams((2, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(8000))
    with pytest.raises(Refused, match=r"same kind, got 16000 Hz with 1 .* 8000 Hz with 2"):
        box("join_audio", first="bell.wav", second="stereo.wav")
    assert box("describe_audio", audio="stereo.wav") == (
        "The recording lasts 0.25 seconds, is silent and has a sample rate of 8000 Hz."
    )
    (box.folder / "fake.wav").write_bytes(b"RIFF")
    with pytest.raises(Refused, match=r"Expected a WAV recording in fake\.wav"):
        box("describe_audio", audio="fake.wav")


def test_a_recording_is_described_and_its_loudness_drawn(box):
    tone = box("make_tone", frequency=1000, seconds=2)
    assert box("describe_audio", audio=tone) == (
        "The recording lasts 2.00 seconds, has a loudness of -9.1 dB and has a sample rate of "
        "16000 Hz."
    )
    picture = box.image(box("draw_waveform", audio="bell.wav"))
    heights = [
        sum(picture.getpixel((x, y)) == (58, 110, 165) for y in range(picture.height))
        for x in (5, 150, 590)
    ]
    assert heights == sorted(heights, reverse=True)
    assert heights[0] > 3 * heights[2]


# --- files, and what lies outside -----------------------------------------------------------------


def test_a_checksum_takes_its_time(fresh):
    with serve(fresh, slow_s=0.7) as served:
        started = time.monotonic()
        digest = served("checksum_file", file="sales.csv")
        assert time.monotonic() - started >= 0.7
    assert digest == hashlib.sha256((fresh / "sales.csv").read_bytes()).hexdigest()


def test_a_file_is_deleted_once(box):
    path = box("write_document", text="away with it", name="short-lived")
    assert box("delete_file", file=path) == "Deleted made/short-lived.txt."
    assert not (box.folder / path).exists()
    with pytest.raises(Refused, match="There is no file"):
        box("delete_file", file=path)
    with pytest.raises(Refused, match="There is no file 'made'"):
        box("delete_file", file="made")


def test_no_path_leads_out_of_the_sandbox(fresh):
    outside = fresh.parent / "secret.txt"
    outside.write_text("secret")
    (fresh / "link.txt").symlink_to(outside)
    (fresh / "folder").symlink_to(fresh.parent)
    (fresh / "loop.txt").symlink_to(fresh / "loop.txt")
    (fresh / ".toolbox").mkdir()
    (fresh / ".toolbox" / "state.txt").write_text("hidden")
    (fresh / "peek.txt").symlink_to(fresh / ".toolbox" / "state.txt")
    paths = [
        "../secret.txt", str(outside), "made/../../secret.txt", "link.txt", "folder/secret.txt",
        "folder/box/letter.txt/../../../secret.txt", "loop.txt", ".toolbox/state.txt", "peek.txt",
        "./letter.txt", "..\\secret.txt", "letter.txt\0", "\nletter.txt", "", "/", "..", "~/x.txt",
        "x" * 5000 + ".txt", "file:///etc/passwd",
    ]  # fmt: skip
    with serve(fresh) as served:
        for path in paths:
            for tool, field in (
                ("read_document", "document"),
                ("checksum_file", "file"),
                ("delete_file", "file"),
            ):
                with pytest.raises(Refused, match=r"inside the sandbox|no file|a document file"):
                    served(tool, **{field: path})
        for name in ("../x", "a/b", ".x", "", "/x", "x\0", "x" * 90):
            with pytest.raises(Refused, match="Expected a name"):
                served("write_document", text="x", name=name)
        (fresh / "made").symlink_to(fresh.parent)
        with pytest.raises(Refused, match="inside the sandbox"):
            served("write_document", text="x", name="x")
    assert outside.read_text() == "secret"
    assert not (fresh.parent / "x.txt").exists()


def test_inputs_beyond_the_limits_are_refused(box):
    with pytest.raises(Refused, match="at most 200000 characters"):
        box("count_words", text="x" * 200_001)
    with pytest.raises(Refused, match=r"would have 50,000,000 characters"):
        box("replace_words", text="a " * 50_000, old="a", new="b" * 999)
    (box.folder / "wide.csv").write_text("k,a,b,c,d\n" + "1,2,3,4,5\n" * 2_000)
    with pytest.raises(Refused, match=r"4,000,000 rows of 9 cells"):
        box("join_tables", left="wide.csv", right="wide.csv", column="k")
    with pytest.raises(Refused, match="Expected 1 to 40 numbers"):
        box("draw_chart", table="wide.csv", labels="k", values="a")
    (box.folder / "long.txt").write_bytes(b"x" * 20_000_001)
    with pytest.raises(Refused, match=r"long\.txt has 20,000,001 bytes"):
        box("read_document", document="long.txt")


def test_equal_inputs_give_equal_files_in_any_sandbox(samples, box, tmp_path):
    again = tmp_path / "again"
    again.mkdir()
    make_samples(again)
    assert {p.name: p.read_bytes() for p in samples.iterdir()} == {
        p.name: p.read_bytes() for p in again.iterdir()
    }
    calls = (
        ("filter_rows", {"table": "sales.csv", "column": "product", "value": "desk"}),
        ("draw_chart", {"table": "cities.csv", "labels": "city", "values": "population"}),
        ("write_on_image", {"image": "beach.png", "text": "Sea"}),
        ("rotate_image", {"image": "portrait.jpg", "degrees": 17}),
        ("make_tone", {"frequency": 523.25, "seconds": 0.3}),
        ("draw_waveform", {"audio": "rain.wav"}),
    )
    with serve(again) as served:
        for name, arguments in calls:
            path = served(name, **arguments)
            assert path == box(name, **arguments) == served(name, **arguments)
            assert (again / path).read_bytes() == (box.folder / path).read_bytes()
    assert len(list((again / "made").iterdir())) == len(calls)


def test_the_sample_files_are_what_they_are_said_to_be(samples):
    names = (
        "beach.png", "bell.wav", "cities.csv", "forest.png", "letter.txt", "minutes.txt",
        "portrait.jpg", "poster.png", "rain.wav", "recipe.txt", "report.txt", "sales.csv",
        "shelf.csv", "speech.wav", "staff.csv", "whistle.wav",
    )  # fmt: skip
    assert sorted(p.name for p in samples.iterdir()) == list(names)
    lines = {p.name: len(p.read_text().splitlines()) for p in samples.glob("*.[ct][sx][vt]")}
    assert lines == {
        "letter.txt": 12, "minutes.txt": 20, "recipe.txt": 15, "report.txt": 11, "sales.csv": 25,
        "staff.csv": 13, "cities.csv": 9, "shelf.csv": 4,
    }  # fmt: skip
    seconds = {}
    for path in samples.glob("*.wav"):
        with wave.open(str(path)) as file:
            assert (file.getframerate(), file.getnchannels()) == (16_000, 1)
            seconds[path.stem] = file.getnframes() / 16_000
    assert seconds == {"bell": 2, "rain": 4, "speech": 3, "whistle": 1}


# --- what planners see ----------------------------------------------------------------------------


def test_the_catalogue_has_every_tool_with_its_own_types(settings, fresh):
    source = f"mcp:{sys.executable} -m tasks.toolbox --sandbox {fresh}"
    result = catalogue.sync(settings, source)
    assert (result["namespace"], len(result["added"])) == ("toolbox", 27)
    tools = {tool.name: tool for tool in list_source(source).tools}

    def told(name):
        tool = tools[name]
        takes = read_takes(json.dumps(tool.parameters), "[]")
        returns = read_returns(json.dumps(tool.output_types))
        return (
            {field.name: (field.types, field.is_required) for field in takes},
            [(field.name, field.types) for field in returns],
        )

    assert told("write_on_image") == (
        {"image": (("image",), True), "text": (("text",), True)},
        [("image", ("image",))],
    )
    assert told("join_tables") == (
        {"left": (("table",), True), "right": (("table",), True), "column": ((), True)},
        [("table", ("table",))],
    )
    assert told("write_document")[1] == [("document", ("document",))]
    assert told("trim_audio") == (
        {"audio": (("audio",), True), "start": ((), True), "end": ((), True)},
        [("audio", ("audio",))],
    )
    assert told("checksum_file") == ({"file": ((), True)}, [("checksum", ("checksum",))])
    assert told("summarize_text")[0]["sentences"] == ((), False)
    assert told("describe_audio")[1] == [("answer", ("answer",))]
    for tool in tools.values():
        assert tool.description.endswith(".")
        assert all(parameter["description"] for parameter in tool.parameters)


def test_annotations_say_what_a_call_does(box):
    tools = box.portal.call(box.client.list_tools).tools
    told = {
        tool.name: (
            tool.annotations.read_only_hint,
            tool.annotations.idempotent_hint,
            tool.annotations.destructive_hint,
        )
        for tool in tools
    }
    assert [name for name, (_, _, destroys) in told.items() if destroys] == ["delete_file"]
    assert told["delete_file"] == (False, False, True)
    assert told["describe_image"] == told["checksum_file"] == (True, True, False)
    assert told["gray_image"] == told["write_document"] == (False, True, False)


def test_a_folder_that_is_not_there_ends_in_one_sentence(tmp_path):
    command = [sys.executable, "-m", "tasks.toolbox", "--sandbox", str(tmp_path / "nowhere")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Expected the sandbox's folder" in done.stderr.splitlines()[-1]


def test_samples_go_into_an_empty_folder_only(tmp_path):
    folder = tmp_path / "work"
    command = [sys.executable, "-m", "tasks.toolbox", "--sandbox", str(folder), "--samples"]
    assert subprocess.run(command, cwd=ROOT).returncode == 0
    assert (folder / "sales.csv").exists()
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 2
    assert "expected an empty folder" in again.stderr.splitlines()[-1]


@pytest.mark.slow
def test_the_toolbox_is_served_over_http_too(settings, fresh):
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "tasks.toolbox", "--sandbox", str(fresh), "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        assert len(catalogue.sync(settings, f"http://127.0.0.1:{port}/mcp")["added"]) == 27
    finally:
        process.terminate()
        process.wait()
