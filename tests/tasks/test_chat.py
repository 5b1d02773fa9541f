"""The endpoint of a language model, played by a real HTTP server on this machine."""

import contextlib
import email.utils
import json
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pydantic import ValidationError

from models.answers import ask_json
from models.errors import UnusableAnswer
from models.llm_thoughts import LlmScorer
from models.subtasks import Subtask
from tasks import chat
from tasks.chat import chat_of, endpoint_of
from tasks.errors import ChatFailed, WrongUsage
from tasks.settings import Settings, faults

KEY = "sk-very-secret-0123456789"
ASK = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "Well?"}]
SCHEMA = {
    "type": "object",
    "properties": {"score": {"enum": [1, 2, 3]}},
    "required": ["score"],
    "additionalProperties": False,
}


def said(text):
    """A response that holds an answer."""
    return 200, {}, {"choices": [{"message": {"role": "assistant", "content": text}}]}


def refused(status, message, **headers):
    return status, headers, {"error": {"message": message}}


class Server(ThreadingHTTPServer):
    """Answers with what it was told to, in turn, or by a function of the request."""

    daemon_threads = True

    def __init__(self, *replies, by=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies, self.by, self.asked, self.lock = list(replies), by, [], threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.server.asked.append((self.path, headers, body))
            reply = self.server.by(body) if self.server.by else self.server.replies.pop(0)
        if reply == "hang up":
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if reply == "sleep":
            time.sleep(1.0)
            reply = said("too late")
        status, headers, content = reply
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        with contextlib.suppress(OSError):  # who waits no longer has hung up
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(raw))}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(raw)

    def log_message(self, *_):
        pass


@pytest.fixture
def serve(settings, monkeypatch):
    """Starts a server and gives it, its endpoint, and the waits in between."""
    servers = []
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def start(*replies, by=None):
        server = Server(*replies, by=by)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        changed = settings.model_copy(update={"chat_url": server.url, "chat_model": "m-1"})
        waits = []
        return server, endpoint_of(changed, sleep=waits.append), waits

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_question_is_put_as_the_endpoint_expects_it(serve):
    server, endpoint, waits = serve(said('{"score": 2}'))
    assert endpoint(ASK, SCHEMA) == '{"score": 2}'
    ((path, headers, body),) = server.asked
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert body == {
        "model": "m-1",
        "messages": ASK,
        "temperature": 0,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA},
        },
    }
    assert waits == []


def test_invalid_json_once_is_sent_back_and_the_next_answer_taken(serve):
    server, endpoint, _ = serve(said("I say 2"), said('{"score": 2}'))
    assert ask_json(endpoint, ASK, SCHEMA) == {"score": 2}
    again = server.asked[1][2]["messages"]
    assert again[:2] == ASK
    assert again[2]["content"] == "I say 2"
    assert "It is not JSON" in again[3]["content"]


def test_invalid_json_three_times_is_an_error(serve):
    server, endpoint, _ = serve(said("one"), said("two"), said("three"), said('{"score": 1}'))
    with pytest.raises(UnusableAnswer, match="got 'three' as the last of 3 answers"):
        ask_json(endpoint, ASK, SCHEMA)
    assert len(server.asked) == 3


def test_a_busy_endpoint_is_asked_again_after_growing_waits(serve):
    server, endpoint, waits = serve(
        refused(429, "slow down"), refused(503, "overloaded"), "hang up", said("{}")
    )
    assert endpoint(ASK, SCHEMA) == "{}"
    assert waits == [0.5, 1.0, 2.0]
    assert len(server.asked) == 4


def test_the_wait_that_an_endpoint_asks_for_is_kept(serve):
    soon = email.utils.formatdate(time.time() + 20, usegmt=True)
    _, endpoint, waits = serve(
        refused(429, "x", retry_after="7"),
        refused(429, "x", retry_after=soon),
        refused(429, "x", retry_after="whenever"),
        said("{}"),
    )
    endpoint(ASK, SCHEMA)
    assert waits[0] == 7.0
    assert 17 < waits[1] <= 20
    assert waits[2] == 2.0


def test_an_endpoint_that_asks_for_too_long_a_wait_is_given_up(serve):
    server, endpoint, waits = serve(refused(429, "come back tomorrow", retry_after="86400"))
    with pytest.raises(ChatFailed, match="status 429: come back tomorrow; try again later"):
        endpoint(ASK, SCHEMA)
    assert waits == []
    assert len(server.asked) == 1


def test_an_endpoint_that_stays_busy_is_an_error_after_the_last_try(serve):
    server, endpoint, waits = serve(by=lambda _: refused(500, "broken"))
    with pytest.raises(ChatFailed, match=r"'m-1' from .*/v1/chat/completions, got status 500"):
        endpoint(ASK, SCHEMA)
    assert len(server.asked) == chat.TRIES == len(waits) + 1


def test_a_time_out_is_asked_again_and_then_an_error(serve, monkeypatch):
    monkeypatch.setattr(chat, "TIMEOUT_S", 0.05)
    server, endpoint, _ = serve(by=lambda _: "sleep")
    with pytest.raises(ChatFailed, match="got ReadTimeout 5 times; check the setting chat_url"):
        endpoint(ASK, SCHEMA)
    assert len(server.asked) == chat.TRIES


def test_a_server_that_is_not_there_is_an_error(settings):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        changed = settings.model_copy(update={"chat_url": url, "chat_model": "m"})
        with pytest.raises(ChatFailed, match="got ConnectError 5 times"):
            endpoint_of(changed, sleep=lambda _: None)(ASK, SCHEMA)


def test_an_endpoint_without_schemas_is_asked_for_any_json_from_then_on(serve):
    def by(body):
        if body["response_format"]["type"] == "json_schema":
            return refused(400, "unknown response_format")
        return said('{"score": 3}')

    server, endpoint, waits = serve(by=by)
    assert endpoint(ASK, SCHEMA) == '{"score": 3}'
    assert endpoint(ASK[1:], SCHEMA) == '{"score": 3}'
    kinds = [body["response_format"]["type"] for _, _, body in server.asked]
    assert kinds == ["json_schema", "json_object", "json_object"]
    system, user = server.asked[1][2]["messages"]
    assert system["content"].startswith("Judge.\n\n")
    assert json.dumps(SCHEMA) in system["content"]
    assert user == ASK[1]
    assert [m["role"] for m in server.asked[2][2]["messages"]] == ["system", "user"]
    assert waits == []


def test_a_refusal_of_both_forms_is_an_error_and_nothing_is_learnt_from_it(serve):
    server, endpoint, _ = serve(
        refused(422, "no such model"), refused(422, "no such model"), said('{"score": 1}')
    )
    with pytest.raises(ChatFailed, match="status 422: no such model; check the settings chat_url"):
        endpoint(ASK, SCHEMA)
    assert endpoint(ASK, SCHEMA) == '{"score": 1}'
    assert server.asked[2][2]["response_format"]["type"] == "json_schema"


def test_a_model_that_takes_no_temperature_keeps_its_schema(serve):
    def by(body):
        if "temperature" in body:
            return refused(400, "Unsupported value: 'temperature' does not support 0")
        return said("{}")

    server, endpoint, _ = serve(by=by)
    endpoint(ASK, SCHEMA)
    endpoint(ASK, SCHEMA)
    assert len(server.asked) == 3
    assert server.asked[2][2]["response_format"]["type"] == "json_schema"


def test_a_refusal_that_repeats_the_question_does_not_cost_the_temperature(serve):
    def by(body):
        if body["response_format"]["type"] == "json_schema":
            return refused(422, f"cannot read {json.dumps(body)}")
        return said("{}")

    server, endpoint, _ = serve(by=by)
    endpoint(ASK, SCHEMA)
    assert server.asked[-1][2]["temperature"] == 0


@pytest.mark.parametrize(
    "content",
    [b"<html>", b"{}", b'{"choices": []}', b'{"choices": [{"message": {"content": [1]}}]}'],
)
def test_a_response_that_is_no_completion_is_an_error(serve, content):
    _, endpoint, _ = serve((200, {}, content))
    with pytest.raises(ChatFailed, match="expected an answer of 'm-1'"):
        endpoint(ASK, SCHEMA)


def test_a_refusal_of_the_model_is_its_answer(serve):
    reply = {"choices": [{"message": {"content": None, "refusal": "I will not."}}]}
    _, endpoint, _ = serve((200, {}, reply))
    assert endpoint(ASK, SCHEMA) == "I will not."


@pytest.mark.parametrize("status", [401, 400, 500])
def test_the_key_is_in_no_error_and_no_log(serve, caplog, status):
    with caplog.at_level(logging.DEBUG):
        _, endpoint, _ = serve(
            by=lambda _: refused(status, f"bad key {KEY}, that is 'Bearer {KEY}'")
        )
        with pytest.raises(ChatFailed) as caught:
            endpoint(ASK, SCHEMA)
    assert KEY not in str(caught.value)
    assert "[key]" in str(caught.value)
    assert KEY not in caplog.text
    assert KEY not in repr(endpoint)
    if status == 401:
        assert "environment variable OPENAI_API_KEY" in str(caught.value)


def test_an_endpoint_that_points_elsewhere_is_not_followed(serve):
    elsewhere, _, _ = serve(said("{}"))
    _, endpoint, _ = serve((307, {"location": f"{elsewhere.url}/chat/completions"}, {}))
    with pytest.raises(ChatFailed, match="status 307"):
        endpoint(ASK, SCHEMA)
    assert elsewhere.asked == []


def test_the_key_comes_from_the_variable_that_the_setting_names(serve, monkeypatch):
    server, _, _ = serve(said("{}"), said("{}"))
    monkeypatch.setenv("OTHER_KEY", "other")
    made = Settings(chat_url=server.url, chat_model="m", chat_key_variable="OTHER_KEY")
    endpoint_of(made)(ASK, SCHEMA)
    assert server.asked[0][1]["authorization"] == "Bearer other"
    monkeypatch.delenv("OTHER_KEY")
    endpoint_of(made)(ASK, SCHEMA)
    assert "authorization" not in server.asked[1][1]
    assert "other" not in repr(made)


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(settings, monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    made = settings.model_copy(update={"chat_url": "http://127.0.0.1:1/v1", "chat_model": "m"})
    with pytest.raises(WrongUsage, match="environment variable OPENAI_API_KEY") as caught:
        chat_of(made)
    assert key not in str(caught.value)


def test_an_endpoint_without_a_model_is_refused(settings):
    made = settings.model_copy(update={"chat_url": "http://127.0.0.1:1/v1"})
    with pytest.raises(WrongUsage, match="set TOOLATLAS_CHAT_MODEL"):
        chat_of(made)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("http://llm.example/v1", "expected https"),
        ("http://127.0.0.1.llm.example/v1", "expected https"),
        ("https://me:secret@llm.example/v1", "without name, password"),
        ("https://llm.example/v1?key=secret", "without name, password"),
        ("llm.example/v1", "such as https://llm.example/v1"),
        ("ftp://llm.example/v1", "such as https://llm.example/v1"),
    ],
)
def test_an_address_that_is_not_safe_is_refused_and_no_secret_shown(home, url, complaint):
    with pytest.raises(ValidationError, match=complaint) as caught:
        Settings(chat_url=url)
    assert "secret" not in "".join(faults(caught.value))


@pytest.mark.parametrize("url", ["http://localhost:8000/v1", "http://[::1]:1/v1", "https://a.b/v1"])
def test_a_safe_address_is_taken(home, url):
    assert Settings(chat_url=url).chat_url == url


def test_scores_are_asked_for_in_parallel(serve):
    """Eight questions wait for each other, so they have to be under way together."""
    barrier = threading.Barrier(8, timeout=10)
    server, endpoint, _ = serve()

    def post(handler):
        handler.rfile.read(int(handler.headers["content-length"]))
        barrier.wait()
        raw = json.dumps(said('{"thought": "", "score": 4}')[2]).encode()
        handler.send_response(200)
        handler.send_header("content-length", str(len(raw)))
        handler.end_headers()
        handler.wfile.write(raw)

    server.RequestHandlerClass = type("Together", (Handler,), {"do_POST": post})
    scorer = LlmScorer(endpoint, [f"a/{i}" for i in range(16)], ["x"] * 16, parallel=8)
    (suits,) = scorer([Subtask(0, "do it", (), ())])
    assert suits.tools.tolist() == [4.0] * 16


def test_without_an_endpoint_the_local_model_answers(settings, tmp_path):
    from tests.factories import tiny_llm

    llm = tiny_llm()
    folder = tmp_path / "tiny"
    llm.model.save_pretrained(folder)
    llm.tokenizer.save_pretrained(folder)
    complete = chat_of(settings.model_copy(update={"llm": str(folder), "device": "cpu"}))
    assert ask_json(complete, ASK, SCHEMA)["score"] in (1, 2, 3)


def test_one_endpoint_serves_several_threads(serve):
    _, endpoint, _ = serve(by=lambda body: said(body["messages"][-1]["content"]))
    with ThreadPoolExecutor(8) as pool:
        questions = [f"question {n}" for n in range(40)]
        found = list(
            pool.map(lambda q: endpoint([{"role": "user", "content": q}], SCHEMA), questions)
        )
    assert found == questions
