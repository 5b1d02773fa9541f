import math

import pytest
import torch

from models.lexicon import Lexicon, words

TEXTS = ("get weather: forecast of a city", "book hotel: a room in a city", "天气: 天气预报")
NAMES = ("get_weather", "book_hotel", "天气")


def test_words_are_split_lowered_and_cut():
    assert words("get_userName, HTTP2: a reservation") == ["get", "user", "name", "http2", "reserv"]
    assert words("天气预报 x") == ["天气", "气预", "预报"]
    assert words("好 -- !") == ["好"]
    assert words("") == []


def test_a_tool_called_by_its_name_is_found():
    match = Lexicon(TEXTS, NAMES)(["please BOOK a Hotel", "the weather", "天气怎么样"])
    assert match.likeness.argmax(dim=1).tolist() == [1, 0, 2]
    assert match.named[0].tolist() == pytest.approx([0.0, 1.0, 0.0])
    assert 0.0 < match.named[1, 0] < 1.0
    assert match.named[2, 2] == pytest.approx(1.0)


def test_a_rare_word_tells_more_than_a_common_one():
    match = Lexicon(TEXTS, NAMES)(["city", "city room", "city forecast"])
    assert match.likeness[0, 0] > 0
    assert match.likeness[1].argmax() == 1
    assert match.likeness[2].argmax() == 0
    assert match.named.tolist() == [[0.0] * 3] * 3


def test_shared_words_stand_where_the_request_says_them():
    match = Lexicon(TEXTS, NAMES)(["hotel then see the weather", "weather then see the hotel"])
    assert match.position[0].tolist() == pytest.approx([1.0, 0.0, 0.0])
    assert match.position[1].tolist() == pytest.approx([0.0, 1.0, 0.0])
    twice = Lexicon(TEXTS, NAMES)(["hotel or some hotel"]).position[0, 1]
    assert twice == pytest.approx(0.5)


def slow_likeness(texts, names, request):
    """Cosine of weighted words, written out."""
    read = [words(text) for text in texts]
    rareness = {
        word: math.log(1 + len(texts) / sum(word in one for one in read))
        for one in read
        for word in one
    }
    said = {word for word in words(request) if word in rareness}
    out = []
    for text, name in zip(read, names, strict=True):
        weights = {
            word: rareness[word]
            * (text.count(word) / (text.count(word) + 1.2) + (word in words(name)))
            for word in set(text)
        }
        dot = sum(rareness[word] * weights.get(word, 0.0) for word in said)
        norm = math.hypot(*weights.values()) * math.hypot(*(rareness[word] for word in said))
        out.append(dot / norm if norm else 0.0)
    return out


def test_likeness_equals_the_slow_obvious_version():
    requests = ["a city in the city room", "weather forecast", "book book weather", "预报", "x"]
    match = Lexicon(TEXTS, NAMES)(requests)
    for row, request in enumerate(requests):
        expected = slow_likeness(TEXTS, NAMES, request)
        assert match.likeness[row].tolist() == pytest.approx(expected, abs=1e-6)
        assert 0.0 <= match.likeness[row].min() <= match.likeness[row].max() <= 1.0 + 1e-6


def test_a_batch_reads_as_each_request_alone_and_tool_order_never_matters():
    requests = ["weather in the city", "", "hotel 天气", "nothing known"]
    together = Lexicon(TEXTS, NAMES)(requests)
    other = Lexicon(TEXTS[::-1], NAMES[::-1])(requests)
    for row, request in enumerate(requests):
        alone = Lexicon(TEXTS, NAMES)([request])
        for whole, one, turned in zip(together, alone, other, strict=True):
            assert torch.allclose(whole[row], one[0])
            assert torch.allclose(whole[row], turned[row].flip(0))


@pytest.mark.parametrize("request_", ["", "!?", "unheard words"])
def test_a_request_that_shares_no_word_says_nothing(request_):
    for part in Lexicon(TEXTS, NAMES)([request_]):
        assert part.tolist() == [[0.0, 0.0, 0.0]]


def test_tools_without_words_and_no_requests():
    match = Lexicon(("--", ""), ("", "-"))(["some words"])
    assert match.likeness.tolist() == [[0.0, 0.0]]
    assert Lexicon(TEXTS, NAMES)([]).named.shape == (0, 3)
    assert repr(Lexicon(("one two",), ("one",))) == "Lexicon(1 tools, 2 words)"
