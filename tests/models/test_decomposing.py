"""Requests cut into tasks: orders, questions, statements, and what belongs together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.decomposing import asks, tasks_of, verbs_of
from models.mentions import FileTypes

TYPES = FileTypes(["image", "table", "text", "audio"], {})
VERBS = verbs_of(["Counts the rows of a table.", "Sharpen an image."])


def cut(request):
    return [task.text for task in tasks_of(request, TYPES, VERBS)]


def test_verbs_are_the_first_words_of_descriptions_and_common_orders():
    assert {"counts", "count", "sharpen", "blur", "translate"} <= VERBS
    assert verbs_of(["", "3D models"]) == verbs_of([])


@pytest.mark.parametrize(
    ("request_text", "tasks"),
    [
        ("Blur cat.png", ["Blur cat.png"]),
        ("Blur cat.png and save it as x.png.", ["Blur cat.png", "save it as x.png."]),
        ("Blur x.png, crop it and sharpen the result", [
            "Blur x.png", "crop it", "sharpen the result"
        ]),
        ("Read a.txt, then translate it into French.", ["Read a.txt", "translate it into French."]),
        ("Blur x.png\nCrop y.png", ["Blur x.png", "Crop y.png"]),
        ("Merge the pictures of cats and dogs in x.png and y.png", [
            "Merge the pictures of cats and dogs in x.png and y.png"
        ]),
        ("Count the rows and columns of t.csv", ["Count the rows and columns of t.csv"]),
        ("Draw a woman and a man", ["Draw a woman and a man"]),
        ("I have a picture x.png. Blur it.", ["I have a picture x.png Blur it."]),
        ("Here is x.png. It is too dark. Sharpen it.", [
            "Here is x.png It is too dark Sharpen it."
        ]),
        ("Blur x.png. My boss asked for it.", ["Blur x.png My boss asked for it."]),
        ("Blur x.png. Thanks!", ["Blur x.png Thanks!"]),
        ("Hi there. Blur x.png", ["Hi there Blur x.png"]),
        ("What is in x.png? Draw it.", ["What is in x.png", "Draw it."]),
        ("Can you blur x.png and tell me who is on it?", [
            "Can you blur x.png", "tell me who is on it?"
        ]),
        ("Translate \"Stop. And go home.\" into French", [
            "Translate \"Stop. And go home.\" into French"
        ]),
        ("the weather in Oslo", ["the weather in Oslo"]),
        ("", []),
    ],
)  # fmt: skip
def test_a_request_is_cut_before_each_order_and_question(request_text, tasks):
    assert cut(request_text) == tasks


def test_a_task_knows_its_files_and_whether_it_refers_back():
    first, second = tasks_of("Blur x.png and y.png, then count what is on them", TYPES, VERBS)
    assert [f.value for f in first.files] == ["x.png", "y.png"]
    assert not first.refers_back
    assert (second.files, second.refers_back) == ((), True)


@pytest.mark.parametrize(
    "text",
    [
        "What is in x.png?",
        "tell me how many rows there are",
        "could you tell me how many rows there are",
        "please check if it rains",
        "is there a dog?",
        "I wonder who that is",
        "Will it rain tomorrow?",
        "can dogs fly?",
        "does it have a header",
    ],
)
def test_a_question_asks(text):
    assert asks(text)


@pytest.mark.parametrize(
    "text",
    [
        "Can you draw a cat?",
        "Would you please blur it?",
        "Could I have a picture of a cat?",
        "Would it be possible for you to draw a cat?",
        "How about blurring x.png?",
        "do the same for y.png",
        "Do it again",
        "Draw the island where it is",
        "I want to blur x.png",
        "",
    ],
)
def test_an_order_put_as_a_question_does_not(text):
    assert not asks(text)


@given(st.text(alphabet="ab .,?!\"'\nand then blur it x.png", max_size=120))
def test_no_text_breaks_it_and_no_file_is_lost(text):
    tasks = tasks_of(text, TYPES, VERBS)
    assert all(task.text.strip() for task in tasks)
    assert (not tasks) == (not text.strip()) or not text.strip(" .,?!\"'\n")
