"""What requests speak of: files and their types, quotes, what they refer back to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.mentions import FileTypes, files_in, phrase_of, quoted_in, refers_back

TYPES = FileTypes(
    ["image", "image.mask", "image.edge", "video", "audio", "table", "text", "document", "url"],
    {"image.edge": ["A line drawing (.edg)"], "table": ["Rows of records, .csv or .rec"]},
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Blur cat.png.", [("cat.png", "image")]),
        ("Blur cat.png and photos/summer/dog.jpg!", [
            ("cat.png", "image"), ("photos/summer/dog.jpg", "image")
        ]),
        ("x.png,y.PNG; (z.gif)?", [("x.png", "image"), ("y.PNG", "image"), ("z.gif", "image")]),
        ("../up/x.csv and /abs/y.mp4 and ./z.wav and ~/w.wav", [
            ("../up/x.csv", "table"), ("/abs/y.mp4", "video"), ("./z.wav", "audio"),
            ("~/w.wav", "audio"),
        ]),
        ("the edges of 'x.png' and “y.png”", [("x.png", "image"), ("y.png", "image")]),
        ("data.csv's rows", [("data.csv", "table")]),
        ("report.final.v2.pdf", [("report.final.v2.pdf", "document")]),
        ("2024_q1.xlsx has 3.5 million rows", [("2024_q1.xlsx", "table")]),
        ("hear talk.mp3, song.flac, voice.m4a", [
            ("talk.mp3", "audio"), ("song.flac", "audio"), ("voice.m4a", "audio")
        ]),
        ("draw x.edg and count x.rec", [("x.edg", "image.edge"), ("x.rec", "table")]),
        ("unpack all.tar.gz", [("all.tar.gz", "")]),
        ("see https://a.org/x.png, or http://b.c/d?e=f.", [
            ("https://a.org/x.png", "url"), ("http://b.c/d?e=f", "url")
        ]),
        ("write to me@mail.com, e.g. at 3.15 p.m. on v1.2", []),
        ("Mr.Smith of acme.com said nothing", []),
        ("", []),
    ],
)  # fmt: skip
def test_files_are_found_with_the_type_of_their_extension(text, found):
    mentions = files_in(text, TYPES)
    assert [(m.value, m.type) for m in mentions] == found
    assert [text[m.start : m.end] for m in mentions] == [value for value, _ in found]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("the edge map x.png", "image.edge"),
        ("a mask named x.png", "image.mask"),
        ("use cat_mask.png", "image.mask"),
        ("the mask file 'x.png'", "image.mask"),
        ("remove the mask. Then blur x.png", "image"),
        ("the text in x.png", "image"),
        ("the video x.png", "image"),
        ("unmask x.png", "image"),
    ],
)
def test_a_type_beside_a_file_narrows_its_type(text, kind):
    assert [m.type for m in files_in(text, TYPES)] == [kind]


def test_a_type_that_the_catalogue_has_not_is_left_open():
    assert [m.type for m in files_in("x.png", FileTypes(["sound"], {}))] == [""]
    assert [m.type for m in files_in("x.wav", FileTypes(["sound"], {}))] == ["sound"]
    assert FileTypes([], {}).of("png") == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('say "hello there"', ["hello there"]),
        ("say 'don't stop' now", ["don't stop"]),
        ("say ‘don’t stop’ now", ["don’t stop"]),
        ("“one” and 'two' and \"three\"", ["one", "two", "three"]),
        ("it's Ann's dog's bone", []),
        ("the boys' toys and the girls' toys", []),
        ("write 'a hat' on 'x.png'", ["a hat"]),
        ('an "unclosed quote', []),
        ('""', []),
    ],
)
def test_quotes_are_found_and_apostrophes_are_not(text, found):
    assert [m.value for m in quoted_in(text)] == found


@pytest.mark.parametrize("text", ["blur it", "Do the same", "with the resulting video", "Use both"])
def test_pronouns_refer_back(text):
    assert refers_back(text)


@pytest.mark.parametrize("text", ["iterate over x.csv", "draw a cat", "a bit of italics", ""])
def test_other_words_do_not(text):
    assert not refers_back(text)


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("Remove the red umbrella from cat.png", "red umbrella"),
        ("please draw a big old house on the hill", "big old house"),
        ("what is it?", ""),
        ("", ""),
    ],
)
def test_a_phrase_is_the_longest_run_of_words_that_say_something(text, phrase):
    assert phrase_of(text, ["cat.png"], {"remove", "draw"}) == phrase


@given(st.text(max_size=80))
def test_no_text_breaks_it_and_places_are_right(text):
    for mention in files_in(text, TYPES):
        assert text[mention.start : mention.end] == mention.value
    for mention in quoted_in(text):
        assert mention.value in text[mention.start : mention.end]
    phrase_of(text)
    refers_back(text)
