import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.clauses import clauses


@pytest.mark.parametrize(
    ("request_text", "expected"),
    [
        ("Book a table for two", ["Book a table for two"]),
        (
            "Find a flight to Oslo. Book the cheapest one!  Will it rain there?",
            ["Find a flight to Oslo", "Book the cheapest one", "Will it rain there?"],
        ),
        (
            "Search the train and then buy two tickets",
            ["Search the train", "buy two tickets"],
        ),
        (
            "First, list my files, then delete the oldest; finally, tell my boss",
            ["First, list my files", "delete the oldest", "tell my boss"],
        ),
        (
            "Cancel my order, and also send me a refund, but leave the voucher as it is.",
            ["Cancel my order", "send me a refund", "leave the voucher as it is."],
        ),
        (
            "Please do:\n1. check my balance\n2) pay the rent\n- print a receipt",
            ["Please do:", "check my balance", "pay the rent", "print a receipt"],
        ),
        (
            "I want (1) a hotel in Rome (2) a car for a week",
            ["I want a hotel in Rome", "a car for a week"],
        ),
        (
            "帮我查一下明天的天气，然后发邮件给小王。最后设置一个闹钟",
            ["帮我查一下明天的天气", "发邮件给小王", "设置一个闹钟"],
        ),
        ("请查询航班；并且预订酒店！", ["请查询航班", "预订酒店"]),
        (
            'Write "Milk. Bread. And then, sugar" into my notes. Read them to me',
            ['Write "Milk. Bread. And then, sugar" into my notes', "Read them to me"],
        ),
        (
            "Meet Mr. Li at No. 328, Nanjing Road at 4.30 p.m. on version 2.1 of the plan",
            ["Meet Mr. Li at No. 328, Nanjing Road at 4.30 p.m. on version 2.1 of the plan"],
        ),
        (
            "Sell 1,000 shares next Friday, the red and the blue ones",
            ["Sell 1,000 shares next Friday, the red and the blue ones"],
        ),
        ("Hi. Where is my parcel 4711", ["Hi Where is my parcel 4711"]),
        ("Where is my parcel 4711? Thanks.", ["Where is my parcel 4711 Thanks."]),
        ("ok", ["ok"]),
        ("", [""]),
    ],
)
def test_a_request_is_cut_where_its_clauses_end(request_text, expected):
    assert clauses(request_text) == expected


@given(st.text(alphabet='ab A.,;!?。，\n"1) then and', max_size=80))
def test_no_word_is_lost_but_connectives_and_list_numbers(text):
    found = clauses(text)
    assert found
    kept = [letter for clause in found for letter in clause if letter in "bA"]
    assert kept == [letter for letter in text if letter in "bA"]
