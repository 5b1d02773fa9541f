"""Arguments from the words of a task: numbers, choices, yes or no, passages; nothing invented."""

import polars as pl
import pytest

from models.filling import Contract, Parameter, fill_step, options_of, read_contracts
from models.types import Argument
from tests.models.typed_tools import frame, tool


def parameter(name, kind="string", description="", is_required=True):
    return Parameter(name, kind, description, is_required)


def filled(text, *parameters, description="", bound=(), others=()):
    """Parameter to value, of those that are filled."""
    open_ = [Argument(p.name, "") for p in parameters if p.name not in dict(bound)]
    arguments = [*(Argument(name, "image", value) for name, value in bound), *open_]
    found = fill_step(Contract(description, parameters), arguments, text, others)
    return {a.name: a.value for a in found if a.is_filled and a.name not in dict(bound)}


SIZE = (
    parameter("width", "integer", "Width in pixels"),
    parameter("height", "integer", "Height in pixels"),
)
SPAN = (
    parameter("start", "number", "Begin, in seconds"),
    parameter("end", "number", "End, in seconds"),
)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("scale it to 200 by 100", (200, 100)),
        ("scale it to 200x100 pixels", (200, 100)),
        ("scale it to 200 by 100 pixels", (200, 100)),
        ("scale it to 1920×1080", (1920, 1080)),
        ("give it a height of 100 and a width of 200", (200, 100)),
        ("make it 100 high and 200 px wide", (200, 100)),
        ("make it 1,200 pixels by 800 pixels", (1200, 800)),
    ],
)
def test_numbers_go_where_the_words_beside_them_say_else_in_order(text, values):
    assert filled(text, *SIZE) == dict(zip(("width", "height"), values, strict=True))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("keep from 3s to 10s", (3, 10)),
        ("keep from second 2.5 to second 4", (2.5, 4)),
        ("keep from 0:30 to 1:15", (30, 75)),
        ("keep from 1:00:00 to 1:00:05", (3600, 3605)),
        ("keep seconds 5-10", (5, 10)),
    ],
)
def test_times_are_seconds(text, values):
    assert filled(text, *SPAN) == dict(zip(("start", "end"), values, strict=True))


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("turn by -90 degrees", "integer", -90),
        ("turn by 45°", "integer", 45),
        ("make it 1.5x faster", "number", 1.5),
        ("set it to .5", "number", 0.5),
        ("by 50%", "number", 50),
        ("the first ten rows", "integer", 10),
        ("half of it", "number", 0.5),
        ("half of it", "integer", None),
        ("in 2024.", "integer", 2024),
        ("open report2.txt", "integer", None),
        ("open 2024.csv", "integer", None),
        ("the SHA-256 of it", "integer", None),
        ("open 800x600.png", "integer", None),
        ("a dog", "integer", None),
        ("write \"top 5 of all\"", "integer", None),
        ("write \"7\"", "integer", 7),
        ("take 3", "integer|null", 3),
        ("take 3", "array", None),
    ],
)  # fmt: skip
def test_a_number_is_read_as_it_is_said_or_not_at_all(text, kind, value):
    assert filled(text, parameter("n", kind)).get("n") == value


def test_the_number_of_another_step_is_not_taken():
    other = Contract("", (parameter("degrees", "integer", "Angle"),))
    assert filled("turn it by 90 degrees and scale it", SIZE[0], others=[other]) == {}
    assert filled("turn it by 90 degrees, width 20", SIZE[0], others=[other]) == {"width": 20}


def test_an_optional_number_is_filled_only_where_it_is_spoken_of():
    optional = parameter("quality", "integer", "", is_required=False)
    assert filled("save it 3 times", optional) == {}
    assert filled("save it in quality 80", optional) == {"quality": 80}


def test_what_stays_open_is_kept_where_it_is_required_and_left_out_where_not():
    asked = Contract("", (parameter("n", "integer"), parameter("m", "integer", "", False)))
    found = fill_step(asked, [Argument("n", ""), Argument("m", "")], "nothing")
    assert found == (Argument("n", ""),)


def test_what_is_filled_stays_as_it_is():
    bound = Argument("n", "integer", 1)
    made = Argument("image", "image", step=0)
    asked = Contract("", (parameter("n", "integer"), parameter("image", "image")))
    assert fill_step(asked, [bound, made], "take 3") == (bound, made)


HOW = parameter("how", "string", "One of sum, mean, min, max or count")


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("the total of all prices", "sum"),
        ("the average price by country", "mean"),
        ("the cheapest one", "min"),
        ("which has the highest price", "max"),
        ("how many rows", "count"),
        ("counting rows", "count"),
        ("the mean price", "mean"),
        ("the price of a laptop", None),
        ("almost all minutes of a summary", None),
        ("the price", None),
    ],
)
def test_a_choice_is_named_or_said_in_other_words(text, choice):
    assert filled(text, HOW).get("how") == choice


@pytest.mark.parametrize(
    ("description", "options"),
    [
        ("one of sum, mean or max", ("sum", "mean", "max")),
        ("either 'asc' or 'desc'", ("asc", "desc")),
        ("Format of the file (png, jpg or webp)", ("png", "jpg", "webp")),
        ("Speed: slow/fast", ("slow", "fast")),
        ("Path (or url) of a file", ()),
        ("The name of a column", ()),
        ("", ()),
    ],
)
def test_choices_are_read_from_a_description(description, options):
    assert options_of(parameter("how", description=description)) == options
    stated = parameter("how", f"enum[{', '.join(options)}]")
    assert options_of(stated) == options


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("flip it horizontally", True),
        ("don't flip it horizontally", False),
        ("flip it", None),
    ],
)
def test_yes_or_no_is_what_the_words_say(text, value):
    assert filled(text, parameter("horizontal", "boolean")).get("horizontal") is value


def test_an_order_of_rows_is_said_in_many_ways():
    falling = parameter("descending", "boolean", "", is_required=False)
    for text in ("sort by price, highest first", "sort descending by price", "from high to low"):
        assert filled(text, falling) == {"descending": True}
    assert filled("sort by price", falling) == {}


def test_quotes_fill_text_in_order():
    words = (parameter("old"), parameter("new"))
    assert filled("replace 'a cat' with \"the dog\"", *words) == {"old": "a cat", "new": "the dog"}


def test_a_passage_beside_the_name_of_a_parameter_fills_it():
    send = (parameter("to"), parameter("subject"))
    text = "send it to Ann with subject Lunch"
    assert filled(text, *send, description="Sends a mail.") == {"to": "Ann", "subject": "Lunch"}
    column = parameter("column")
    assert filled("show column age", column, description="Shows a column.") == {"column": "age"}
    assert filled("sort by the age column", column, description="Sorts.") == {"column": "age"}


def test_what_the_task_is_about_fills_a_text_that_nothing_else_does():
    what = parameter("what")
    text = "remove the red umbrella from cat.png"
    found = filled(text, what, description="Removes things.", bound=[("image", "cat.png")])
    assert found == {"what": "red umbrella"}
    assert filled("remove it", what, description="Removes things.") == {}


def test_a_text_is_no_second_argument_of_the_same_step():
    words = (parameter("text"), parameter("language"))
    text = "translate 'good day' to us in Greek"
    found = filled(text, *words, description="Translate.", bound=[("text", "good day")])
    assert found == {"language": "Greek"}


def test_a_file_of_another_step_is_no_passage():
    language = parameter("language")
    text = "translate notes/letter.txt from https://a.org/b.c into Greek"
    assert filled(text, language, description="Translate.") == {"language": "Greek"}


def test_contracts_are_read_with_their_parameters():
    nodes = frame(tool("a", ["image:image # What to blur", "n:integer?"], description="Blurs."))
    assert read_contracts(nodes) == {
        "t/a": Contract(
            "Blurs.",
            (
                Parameter("image", "image", "What to blur", True),
                Parameter("n", "integer", "", False),
            ),
        )
    }


@pytest.mark.parametrize("text", ["", "{", "3", '[3, {"type": "x"}, {"name": 4}]'])
def test_parameters_that_are_none_are_passed_over(text):
    nodes = frame(tool("a")).with_columns(pl.lit(text, pl.String).alias("parameters"))
    assert read_contracts(nodes) == {"t/a": Contract("", ())}
