"""Requests planned over a small catalogue: chains, files one by one, results spoken of."""

import zlib

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from models.lexicon import words
from models.solving import Suits
from models.subtasks import Subtask
from models.tog import failure_rates, make_tog_planner
from models.toolset import Resource
from models.types import Argument, Plan
from tests.models.typed_tools import frame, tool

CATALOGUE = frame(
    tool("blur_image", ["image:image # The picture", "radius:integer? # Radius in pixels"],
         ["image:image"], description="Blur an image."),
    tool("caption_image", ["image:image"], ["text:text"],
         description="Describe what is in an image."),
    tool("count_words", ["text:text"], ["words:integer"],
         description="Count the words of a text."),
    tool("join_images", ["left:image", "right:image"], ["image:image"],
         description="Join two images side by side."),
    tool("old_blur", ["image:image"], ["image:image"], description="Blur an image.",
         status="deprecated"),
    tool("read_document", ["document:document # The text file, .txt"], ["text:text"],
         description="Read the text of a document."),
    tool("resize_image", ["image:image", "width:integer # In pixels", "height:integer # In pixels"],
         ["image:image"], description="Resize an image."),
    tool("speak_text", ["text:text"], ["audio:audio"], description="Speak a text aloud."),
    tool("translate_text", ["text:text", "language:string"], ["text:text"],
         description="Translate a text into another language."),
)  # fmt: skip


def embed(texts):
    """A text is the sum of its words, each drawn once and for all."""
    rows = [torch.zeros(64) for _ in texts]
    for row, text in zip(rows, texts, strict=True):
        for word in words(text):
            row += torch.randn(
                64, generator=torch.Generator().manual_seed(zlib.crc32(word.encode()))
            )
    return normalize(torch.stack(rows) if rows else torch.zeros(0, 64), dim=1)


def planner(nodes=CATALOGUE, **options):
    rows = nodes.select("key", "name", "description").iter_rows()
    return make_tog_planner(nodes, {k: f"{n}. {d}" for k, n, d in rows}, embed, **options)


TOG = planner()


def told(plan):
    """(tool, {parameter: value or #step}) by step, open ones left out."""
    return [
        (
            key.split("/", 1)[1],
            {a.name: a.value if a.step is None else f"#{a.step}" for a in arguments if a.is_filled},
        )
        for key, arguments in zip(plan.tools, plan.arguments, strict=True)
    ]


def asked(request, **options):
    plans = TOG.plan_one(request, **options)
    return told(plans[0]) if plans else None


@pytest.mark.parametrize(
    ("request_text", "steps"),
    [
        ("Blur cat.png", [("blur_image", {"image": "cat.png"})]),
        ("Blur cat.png with a radius of 5 pixels", [
            ("blur_image", {"image": "cat.png", "radius": 5})
        ]),
        ("Resize the image cat.png to 200 by 100", [
            ("resize_image", {"image": "cat.png", "width": 200, "height": 100})
        ]),
        ("Count the words of letter.txt", [
            ("read_document", {"document": "letter.txt"}), ("count_words", {"text": "#0"})
        ]),
        ("Speak the text of letter.txt aloud", [
            ("read_document", {"document": "letter.txt"}), ("speak_text", {"text": "#0"})
        ]),
        ("Translate \"good morning\" into French", [
            ("translate_text", {"text": "good morning", "language": "French"})
        ]),
    ],
)  # fmt: skip
def test_one_task_takes_the_tools_that_its_file_needs(request_text, steps):
    assert asked(request_text) == steps


def test_files_of_one_type_go_one_by_one():
    assert asked("Blur cat.png and dog.png") == [
        ("blur_image", {"image": "cat.png"}),
        ("blur_image", {"image": "dog.png"}),
    ]


def test_files_go_together_where_a_tool_that_suits_takes_them_all():
    assert asked("Join the images cat.png and dog.png side by side") == [
        ("join_images", {"left": "cat.png", "right": "dog.png"})
    ]


def test_a_result_that_is_spoken_of_goes_into_the_next_task():
    (plan,) = TOG.plan_one("Blur the image cat.png, then resize it to 20 by 10.")
    assert told(plan) == [
        ("blur_image", {"image": "cat.png"}),
        ("resize_image", {"image": "#0", "width": 20, "height": 10}),
    ]
    assert plan.links == ((0, 1),)


def test_tasks_that_do_not_speak_of_each_other_are_not_linked():
    (plan,) = TOG.plan_one("Blur cat.png. Resize the image dog.png to 20 by 10.")
    assert [tool for tool, _ in told(plan)] == ["blur_image", "resize_image"]
    assert plan.links == ()


def test_what_is_known_besides_the_request_is_used_where_it_is_spoken_of():
    assert asked("Blur the picture") is None or "image" not in asked("Blur the picture")[0][1]
    known = [Resource("cat.png", "image")]
    assert asked("Blur it", resources=known) == [("blur_image", {"image": "cat.png"})]


def test_a_tool_that_is_not_active_is_never_planned():
    plans = TOG.plan_one("Blur cat.png", top=20)
    assert all("t/old_blur" not in plan.tools for plan in plans)


def test_plans_come_best_first_and_differ():
    plans = TOG.plan_one("Blur cat.png", top=5)
    assert 1 < len(plans) <= 5
    assert [p.score for p in plans] == sorted((p.score for p in plans), reverse=True)
    assert len({(p.tools, p.arguments) for p in plans}) == len(plans)
    assert {p.planner for p in plans} == {"tog"}
    assert TOG.plan(["Blur cat.png"], top=5) == [plans]


@pytest.mark.parametrize("request_text", ["", "?", "xyzzy", "Play song.mp3", "天气怎么样"])
def test_a_request_that_nothing_fits_gets_a_plan_or_none(request_text):
    for plan in TOG.plan_one(request_text, top=3):
        assert set(plan.tools) <= set(TOG.graph.keys)


@settings(max_examples=25, deadline=None)
@given(st.text(alphabet="ab .,?!\"'\nand then blur it to 20 x.png in letter.txt", max_size=80))
def test_no_request_breaks_it_and_plans_fit_together(request_text):
    for plan in TOG.plan_one(request_text, top=2):
        assert len(plan.arguments) == len(plan.tools)
        for at, step in enumerate(plan.arguments):
            known = {f.name for f in TOG.graph.signatures[plan.tools[at]].takes}
            assert {a.name for a in step} <= known
            assert all(a.step is None or (a.step < at and (a.step, at) in plan.links) for a in step)


def test_without_tools_there_is_no_plan():
    empty = planner(frame())
    assert empty.plan(["Blur cat.png"], top=3) == [[]]
    assert not empty.searches(["t"])


def test_a_catalogue_is_searched_where_results_fill_parameters_or_edges_are_likely():
    assert TOG.searches(["t"])
    assert not TOG.searches(["u"])
    plain = frame(tool("a", ["x:string"]), tool("b", ["y:string"]))
    assert not planner(plain).searches(["t"])
    assert planner(plain, edges={("t/a", "t/b"): 0.9}).searches(["t"])


def test_a_likely_edge_brings_the_tool_that_comes_before():
    nodes = frame(
        tool("log_in", description="Log in."),
        tool("list_mails", description="List the mails."),
        tool("get_weather", description="Weather of a city."),
    )
    alone, led = planner(nodes), planner(nodes, edges={("t/log_in", "t/list_mails"): 0.9})
    assert alone.plan_one("List the mails")[0].tools == ("t/list_mails",)
    (plan,) = led.plan_one("List the mails")
    assert (plan.tools, plan.links) == (("t/log_in", "t/list_mails"), ((0, 1),))


def bare(*tools, links=()):
    return Plan(tuple(f"t/{name}" for name in tools), links, 0.0, "gtool")


def test_a_plan_without_arguments_gets_them_from_its_steps_and_the_request():
    plan = bare("read_document", "translate_text", "speak_text", links=((0, 1), (1, 2)))
    filled = TOG.fill(plan, "Translate letter.txt into French and speak it")
    assert told(filled) == [
        ("read_document", {"document": "letter.txt"}),
        ("translate_text", {"text": "#0", "language": "French"}),
        ("speak_text", {"text": "#1"}),
    ]
    assert (filled.tools, filled.links, filled.planner) == (plan.tools, plan.links, "gtool")


def test_files_of_a_plan_are_used_once_before_one_is_used_twice():
    filled = TOG.fill(bare("caption_image", "caption_image"), "Describe a.png and b.png")
    assert [step[0].value for step in filled.arguments] == ["a.png", "b.png"]
    again = TOG.fill(bare("caption_image", "caption_image"), "Describe a.png")
    assert [step[0].value for step in again.arguments] == ["a.png", "a.png"]


def test_the_nearest_linked_step_feeds_a_step():
    plan = bare("blur_image", "resize_image", "caption_image", links=((0, 2),))
    filled = TOG.fill(plan, "do it with a.png")
    assert filled.arguments[2] == (Argument("image", "image", step=0),)


def test_what_no_word_gives_stays_open():
    filled = TOG.fill(bare("blur_image", "speak_text"), "please")
    assert told(filled) == [("blur_image", {}), ("speak_text", {})]


def test_what_is_known_fills_a_plan_too():
    filled = TOG.fill(bare("blur_image"), "blur it", [Resource("cat.png", "image")])
    assert told(filled) == [("blur_image", {"image": "cat.png"})]


def test_a_task_that_nothing_serves_is_named():
    only_blur = planner(CATALOGUE.filter(CATALOGUE["name"] == "blur_image"))
    taken = only_blur.decompose("Blur the garden")
    assert taken.unsolved == ["Blur the garden"]
    assert only_blur.plans_of(taken) == []
    assert TOG.decompose("Blur cat.png").unsolved == []


def test_another_decomposer_and_scorer_take_the_place_of_rules_and_texts():
    def decompose(request, resources):
        assert [r.value for r in resources] == ["cat.png"]
        return [Subtask(0, request, tuple(resources), ("image",))]

    def score(graph):
        def suits(subtasks):
            scores = np.array([5.0 if "resize" in key else 1.0 for key in graph.keys])
            return [Suits(scores, scores[None, :]) for _ in subtasks]

        return suits

    chosen = planner(scorer=score, decomposer=lambda graph: decompose)
    (plan,) = chosen.plan_one("Do something to cat.png")
    assert plan.tools == ("t/resize_image",)


def test_a_tool_that_nearly_always_fails_gives_way():
    counted = CATALOGUE.with_columns(
        pl.when(pl.col("name") == "blur_image").then(98).otherwise(0).alias("num_failed"),
        pl.lit(0).alias("num_ok"),
        pl.lit(0).alias("num_unrecorded"),
    )
    rates = failure_rates(counted, ["t/blur_image", "t/speak_text", "t/gone"])
    assert rates.tolist() == [0.98, 0.0, 0.0]
    assert TOG.plan_one("Blur cat.png")[0].tools == ("t/blur_image",)
    assert planner(counted).plan_one("Blur cat.png")[0].tools != ("t/blur_image",)
