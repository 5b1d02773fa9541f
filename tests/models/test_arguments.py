import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.arguments import Memory, is_address, match_type, parts_of, resolve_arguments
from models.errors import MissingResource
from models.fields import Field, read_returns, read_takes
from models.toolset import Resource, Signature
from models.types import Argument, Plan

IMAGE = Field("image", ("image",), "value", True)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


def memory(*resources):
    return Memory.of_request(Resource(value, type) for value, type in resources)


def resolve(takes, *arguments, known=(), results=None, returns=()):
    """Arguments of the last step, after one step for every result."""
    results = results or {}
    signatures = {f"t/{i}": Signature((), tuple(returns)) for i in results}
    signatures["t/last"] = Signature(tuple(takes), ())
    tools = (*(f"t/{i}" for i in results), "t/last")
    plan = Plan(tools, (), 0.0, "", (*(() for _ in results), arguments))
    return resolve_arguments(plan, len(results), signatures, results, memory(*known))


def changes(resolution):
    return [(c.parameter, c.was, c.now) for c in resolution.corrections]


def test_a_plain_value_stays_as_it_is():
    got = resolve(
        [Field("width", (), "value", True), IMAGE],
        Argument("width", "integer", 3),
        Argument("image", "image", "a.png"),
        known=[("a.png", "image")],
    )
    assert got == ({"width": 3, "image": "a.png"}, ())


@pytest.mark.parametrize(
    ("field", "wanted", "result", "expected"),
    [
        ("name", (), {"image": "a.png", "name": "beach"}, "beach"),
        ("", ("image",), {"image": "a.png", "name": "beach"}, "a.png"),
        ("", (), {"only": 7}, 7),
        ("", (), {"image": "a.png", "x": "beach"}, "beach"),
        ("", (), {"image": "a.png", "name": "beach"}, {"image": "a.png", "name": "beach"}),
        ("", ("image",), "a.png", "a.png"),
        ("anything", (), [1, 2], [1, 2]),
    ],
    ids=["named", "typed", "only", "same name", "all", "no object", "no object, named"],
)
def test_a_step_gives_the_named_part_or_the_fitting_one(field, wanted, result, expected):
    returns = [Field("image", ("image",), "value"), Field("name", (), "value")]
    argument = Argument("x", "", None, 0, field)
    known = result.get("only") if isinstance(result, dict) else None
    returns = [] if known or isinstance(result, list) or "x" in result else returns
    got = resolve([Field("x", wanted, "value")], argument, results={0: result}, returns=returns)
    assert got.arguments == {"x": expected}


def test_a_part_that_is_not_there_is_replaced_and_told():
    argument = Argument("image", "image", None, 0, "picture")
    got = resolve(
        [IMAGE],
        argument,
        results={0: {"text": "a"}},
        known=[("a.png", "image"), ("b.wav", "audio")],
    )
    assert changes(got) == [("image", None, "a.png")]
    assert "step 0 gave no 'picture', but 'text'" in got.corrections[0].reason
    with pytest.raises(MissingResource, match="gave no 'picture'"):
        resolve([IMAGE], argument, results={0: {"text": "a"}})


def test_an_unknown_file_becomes_the_newest_of_the_type():
    got = resolve(
        [IMAGE],
        Argument("image", "image", "guess.png"),
        known=[("a.png", "image"), ("b.png", "image"), ("c.wav", "audio")],
    )
    assert changes(got) == [("image", "guess.png", "b.png")]
    assert got.corrections[0].reason == "no such resource is known"


def test_a_file_of_another_type_is_replaced():
    known = [("a.png", "image"), ("c.wav", "audio")]
    got = resolve([IMAGE], Argument("image", "image", "c.wav"), known=known)
    assert changes(got) == [("image", "c.wav", "a.png")]
    assert got.corrections[0].reason == "it is known as audio"


def test_the_exact_type_wins_over_a_newer_relative():
    known = [("m.png", "image.mask"), ("n.png", "mask")]
    want = Field("mask", ("image.mask",), "value", True)
    assert resolve([want], known=known).arguments == {"mask": "m.png"}
    assert resolve([want], known=known[1:]).arguments == {"mask": "n.png"}


def test_two_open_arguments_get_two_resources():
    takes = [Field("left", ("image",), "value", True), Field("right", ("image",), "value", True)]
    known = [("a.png", "image"), ("b.png", "image")]
    got = resolve(takes, Argument("left"), Argument("right", "", "b.png"), known=known)
    assert got.arguments == {"left": "a.png", "right": "b.png"}
    got = resolve(takes, known=known[:1])
    assert got.arguments == {"left": "a.png", "right": "a.png"}


@pytest.mark.parametrize(
    ("is_required", "is_listed", "is_filled"),
    [(True, False, True), (True, True, True), (None, True, True), (None, False, False),
     (False, True, False), (False, False, False)],
)  # fmt: skip
def test_only_required_arguments_are_filled(is_required, is_listed, is_filled):
    arguments = [Argument("image", "image")] if is_listed else []
    got = resolve(
        [Field("image", ("image",), "value", is_required)], *arguments, known=[("a.png", "image")]
    )
    assert got.arguments == ({"image": "a.png"} if is_filled else {})
    assert len(got.corrections) == is_filled


def test_text_is_never_corrected():
    text = Field("text", ("text",), "value", True)
    known = [("Dear Sir or Madam", "text"), ("a.png", "image"), ("42 words", "answer")]
    for value in ("Hello", "unknown.txt", "42 words", ""):
        assert resolve([text], Argument("text", "text", value), known=known) == (
            {"text": value},
            (),
        )
    assert resolve([text], Argument("text", "text", "a.txt")) == ({"text": "a.txt"}, ())


def test_a_file_where_text_is_wanted_becomes_the_text():
    text = Field("text", ("text",), "value", True)
    argument = Argument("text", "text", "letter.txt")
    known = [("letter.txt", "document"), ("Dear Sir or Madam", "text")]
    assert changes(resolve([text], argument, known=known)) == [
        ("text", "letter.txt", "Dear Sir or Madam")
    ]


def test_json_types_are_left_to_the_planner():
    field = Field("file", (), "value", True)
    argument = Argument("file", "string", "b.wav")
    assert resolve([field], argument, known=[("a.png", "image")]).arguments == {"file": "b.wav"}


def test_a_missing_resource_says_what_was_wanted_what_is_known_and_what_to_do():
    with pytest.raises(MissingResource) as caught:
        resolve([IMAGE], Argument("image", "image", "c.wav"), known=[("c.wav", "audio")])
    assert str(caught.value) == (
        "missing resource: expected image for parameter 'image' of step 0 (t/last), got \"c.wav\", "
        'but it is known as audio; known: "c.wav" (audio). Name one in the request, or add a step '
        "that returns one."
    )


def test_a_parameter_of_a_json_type_is_not_invented():
    with pytest.raises(MissingResource, match="the plan has to give it"):
        resolve([Field("column", (), "value", True)], known=[("a.csv", "table")])


def test_arrays_are_corrected_item_by_item():
    takes = read_takes('[{"name": "images", "type": "list[image]", "required": true}]', "")
    known = [("a.png", "image"), ("b.png", "image")]
    got = resolve(takes, Argument("images", "list[image]", ["a.png", "x.png"]), known=known)
    assert got.arguments == {"images": ["a.png", "b.png"]}
    got = resolve(takes, Argument("images", "list[image]", "a.png"), known=known)
    assert changes(got) == [("images", "a.png", ["a.png"])]
    assert resolve(takes, known=known).arguments == {"images": ["b.png"]}


def test_results_become_resources_by_declared_part():
    known = Memory()
    known.add_result({"image": "a.png", "size": 3}, read_returns('["image:image"]'), "1.0.0")
    known.add_result({"x": 1, "y": None}, (), "1.0.1")
    known.add_result("b.png", read_returns('["image"]'), "1.0.2")
    known.add_result({"images": ["c.png", "d.png"]}, read_returns('["images:image[]"]'), "1.0.3")
    known.add_result({"anything": "e.png"}, read_returns('["image"]'), "1.0.4")
    assert [(r.value, r.types, r.origins) for r in known.resources] == [
        ("a.png", ("image",), ("1.0.0",)),
        (1, (), ("1.0.1",)),
        ("b.png", ("image",), ("1.0.2",)),
        ("c.png", ("image",), ("1.0.3",)),
        ("d.png", ("image",), ("1.0.3",)),
        ("e.png", ("image",), ("1.0.4",)),
    ]


def test_the_same_value_again_is_the_newest_and_keeps_all_its_origins():
    known = memory(("a.png", "image"), ("b.png", "image"))
    known.add("a.png", ("picture",), "1.0.0")
    assert [r.value for r in known.resources] == ["b.png", "a.png"]
    assert known.resources[-1].origins == ("request", "1.0.0")
    assert known.resources[-1].types == ("image", "picture")


@given(st.lists(VALUES, max_size=8))
def test_recency_is_the_order_of_last_mention(values):
    known = Memory()
    for i, value in enumerate(values):
        known.add(value, (), str(i))
    got = [int(r.origins[-1]) for r in known.resources]
    assert got == sorted(got)
    assert sorted(int(o) for r in known.resources for o in r.origins) == list(range(len(values)))


@given(VALUES)
def test_a_copy_does_not_change_the_original(value):
    known = memory(("a.png", "image"))
    known.copy().add(value, ("image",), "1.0.0")
    assert [(r.value, r.origins) for r in known.resources] == [("a.png", ("request",))]


@pytest.mark.parametrize(
    ("known", "wanted", "rank"),
    [("image", "Image", 0), ("image.mask", "mask", 1), ("mask", "image.mask", 1),
     ("image.mask", "image", 2), ("image", "image.mask", None), ("image.mask", "video.mask", None),
     ("imagery", "image", None)],
)  # fmt: skip
def test_types_match_exactly_then_without_their_first_part(known, wanted, rank):
    assert match_type(known, wanted) == rank


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a.png", True), ("made/gray-1f3a.png", True), ("my photo.png", True), ("https://x/y", True),
     ("Hello", False), ("Yes. No", False), ("3.14", False), ("", False), (3, False),
     ("one two three four five six seven.txt", False), ("a\nb.png", False)],
)  # fmt: skip
def test_addresses_are_told_from_text(value, expected):
    assert is_address(value) is expected


def test_a_declared_part_that_is_lacking_is_no_part():
    assert parts_of({"other": 1}, read_returns('["image:image"]')) == ()
