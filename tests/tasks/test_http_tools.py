"""Operations of OpenAPI documents, called on a real HTTP server that notes what it gets."""

import base64
import email.utils
import http.server
import json
import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qsl, urlsplit

import pytest

from models.errors import ToolFailed
from models.toolset import Traits
from tasks import http_tools
from tasks.http_tools import OpenApiTools
from tasks.tool_servers import list_source

SECRET = "s3cret/value-4711"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status=200, body=b"{}", kind="application/json", **headers):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def act(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        seen = {
            "method": self.command,
            "path": parts.path,
            "query": parse_qsl(parts.query),
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": body.decode(),
        }
        self.server.seen.append(seen)
        last = parts.path.rsplit("/", 1)[-1]
        if parts.path.startswith("/v1/status/"):
            self.answer(int(last), b'{"message": "no such thing"}', Retry_After="7")
        elif last == "later":
            until = email.utils.formatdate(time.time() + 60, usegmt=True)
            self.answer(429, Retry_After=until)
        elif last == "slow":
            time.sleep(1)
            self.answer()
        elif last == "drip":
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            for _ in range(100):
                try:
                    self.wfile.write(b"x")
                    self.wfile.flush()
                except OSError:
                    return
                time.sleep(0.1)
        elif last == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"half")
            self.close_connection = True
        elif last == "huge":
            self.answer(200, b"x" * (2 << 20), "text/plain")
        elif last == "text":
            self.answer(200, "wörter".encode(), "text/plain; charset=utf-8")
        elif last == "image":
            self.answer(200, b"png", "image/png")
        elif last == "empty":
            self.answer(204, b"")
        elif last == "echo_secret":
            said = f"bad key: {self.headers.get('X-Key')} {self.headers.get('Authorization')}"
            self.answer(403, said.encode(), "text/plain", Set_Cookie="session=1")
        elif last == "moved":
            self.answer(307, b"", Location="/v1/pets/7")
        elif last == "away":
            self.answer(307, b"", Location=f"{self.server.elsewhere}/v1/pets/7")
        elif last == "circle":
            self.answer(302, b"", Location=parts.path)
        else:
            self.answer(200, json.dumps(seen).encode())

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = act


def server():
    found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.seen = []
    threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
    return found


@pytest.fixture
def site():
    here, there = server(), server()
    here.elsewhere = f"http://127.0.0.1:{there.server_port}"
    here.there = there
    yield here
    for one in (here, there):
        one.shutdown()
        one.server_close()


def get(*parameters, **more):
    return {"get": {"parameters": list(parameters), "responses": {}, **more}}


def parameter(name, place, schema=None, **more):
    required = {"required": True} if place == "path" else {}
    return {"name": name, "in": place, "schema": schema or {"type": "string"}, **required, **more}


LIST = {"type": "array", "items": {"type": "string"}}
PET = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "id": {"type": "integer", "readOnly": True},
        "name": {"type": "string"},
        "tags": LIST,
    },
}


def json_body(schema, **more):
    return {"content": {"application/json": {"schema": schema}}, **more}


def document(site, **paths):
    plain = ("slow", "drip", "cut", "huge", "text", "image", "empty", "moved", "away", "circle")
    return {
        "openapi": "3.0.3",
        "info": {"title": "Pets", "version": "1"},
        "servers": [
            {
                "url": f"http://127.0.0.1:{site.server_port}/{{stage}}",
                "variables": {"stage": {"default": "v1"}},
            }
        ],
        "paths": {
            "/pets/{id}": {
                "parameters": [parameter("id", "path")],
                "get": {
                    "operationId": "getPet",
                    "parameters": [
                        parameter("limit", "query", {"type": "integer"}),
                        parameter("tags", "query", LIST),
                        parameter("kinds", "query", LIST, explode=False),
                        parameter("filter", "query", {"type": "object"}, style="deepObject"),
                        parameter("X-Trace", "header"),
                        parameter("theme", "cookie"),
                    ],
                    "responses": {},
                },
                "put": {"requestBody": json_body(PET, required=True), "responses": {}},
                "delete": {"operationId": "deletePet", "responses": {}},
                "patch": {"operationId": "patchPet", "responses": {}},
            },
            "/pets": {
                "post": {
                    "operationId": "addPet",
                    "requestBody": json_body({"$ref": "#/components/schemas/Pet"}, required=True),
                    "responses": {},
                }
            },
            "/names": {
                "post": {"requestBody": json_body(LIST, required=True), "responses": {}},
            },
            "/form": {
                "post": {
                    "requestBody": {
                        "content": {"application/x-www-form-urlencoded": {"schema": PET}}
                    },
                    "responses": {},
                }
            },
            "/status/{code}": {
                "get": {"parameters": [parameter("code", "path")], "responses": {}},
                "post": {"parameters": [parameter("code", "path")], "responses": {}},
            },
            "/later": get(),
            "/echo_secret": get(security=[{"key": []}]),
            **{f"/{name}": get(operationId=name) for name in plain},
            **paths,
        },
        "components": {
            "schemas": {"Pet": PET},
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
                "query_key": {"type": "apiKey", "in": "query", "name": "api_key"},
                "cookie_key": {"type": "apiKey", "in": "cookie", "name": "sid"},
                "basic": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
    }


@pytest.fixture
def tools(site):
    with OpenApiTools("pets", document(site)) as opened:
        yield opened


def fault(tools, name, timeout_s=10, **arguments):
    with pytest.raises(ToolFailed) as caught:
        tools.call(f"pets/{name}", arguments, timeout_s)
    return caught.value


def test_arguments_go_where_the_document_says(tools):
    given = {
        "id": "a/b ü",
        "limit": 3,
        "tags": ["x", "y&z"],
        "kinds": ["k", "l"],
        "filter": {"age": 2},
        "X-Trace": "t1",
        "theme": "dark;",
    }
    seen = tools.call("pets/getPet", given, 10)
    assert seen["path"] == "/v1/pets/a%2Fb%20%C3%BC"
    assert seen["query"] == [
        ["limit", "3"],
        ["tags", "x"],
        ["tags", "y&z"],
        ["kinds", "k,l"],
        ["filter[age]", "2"],
    ]
    assert seen["headers"]["x-trace"] == "t1"
    assert seen["headers"]["cookie"] == "theme=dark%3B"
    assert seen["body"] == ""


def test_bodies_are_objects_of_their_fields_or_the_whole(tools):
    pet = {"name": "Rex", "tags": ["good"]}
    seen = tools.call("pets/put_pets_id", {"id": "7", **pet}, 10)
    assert (seen["method"], seen["path"], json.loads(seen["body"])) == ("PUT", "/v1/pets/7", pet)
    assert seen["headers"]["content-type"] == "application/json"
    assert json.loads(tools.call("pets/addPet", pet, 10)["body"]) == pet
    assert json.loads(tools.call("pets/post_names", {"body": ["a"]}, 10)["body"]) == ["a"]
    seen = tools.call("pets/post_form", {"name": "a b", "tags": ["x", "y"]}, 10)
    assert seen["body"] == "name=a+b&tags=x&tags=y"
    assert seen["headers"]["content-type"] == "application/x-www-form-urlencoded"


def test_swagger_2_is_called_as_it_says(site):
    swagger = {
        "swagger": "2.0",
        "host": f"127.0.0.1:{site.server_port}",
        "schemes": ["http"],
        "basePath": "/old",
        "paths": {
            "/pets": {
                "get": {
                    "parameters": [
                        {"name": "a", "in": "query", "type": "array", "items": {"type": "string"}},
                        {
                            "name": "b",
                            "in": "query",
                            "type": "array",
                            "items": {"type": "string"},
                            "collectionFormat": "multi",
                        },
                    ]
                },
                "post": {
                    "consumes": ["application/x-www-form-urlencoded"],
                    "parameters": [{"name": "name", "in": "formData", "type": "string"}],
                },
            }
        },
    }
    with OpenApiTools("pets", swagger) as tools:
        seen = tools.call("pets/get_pets", {"a": ["1", "2"], "b": ["3", "4"]}, 10)
        assert seen["path"] == "/old/pets"
        assert seen["query"] == [["a", "1,2"], ["b", "3"], ["b", "4"]]
        assert tools.call("pets/post_pets", {"name": "x"}, 10)["body"] == "name=x"


def test_names_are_those_of_the_catalogue(tools, site, tmp_path):
    path = tmp_path / "api.json"
    path.write_text(json.dumps(document(site)))
    for name in (tool.name for tool in list_source(str(path)).tools):
        tools.hints(f"pets/{name}")
    with OpenApiTools("pets", path) as read:
        assert read.call("pets/text", {}, 10) == "wörter"
    error = fault(tools, "nothing")
    assert (error.has_run, error.is_transient) == (False, False)


def test_traits_are_those_of_the_method(tools):
    assert tools.traits("pets/getPet") == Traits(True, True, False)
    assert tools.traits("pets/put_pets_id") == Traits(False, True, True)
    assert tools.traits("pets/deletePet") == Traits(False, True, True)
    assert tools.traits("pets/addPet") == tools.traits("pets/patchPet") == Traits()
    names = ("getPet", "deletePet", "put_pets_id", "addPet")
    said = [tools.hints(f"pets/{name}").is_destructive for name in names]
    assert said == [False, True, None, None]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("getPet", {}, "id is missing"),
        ("getPet", {"id": None}, "id is missing"),
        ("getPet", {"id": "1", "colour": "red"}, "colour is unknown"),
        ("getPet", {"id": ".."}, "stays inside the path"),
        ("deletePet", {"id": ""}, "stays inside the path"),
        ("getPet", {"id": "1", "X-Trace": "a\r\nHost: b"}, "header takes"),
        ("addPet", {"tags": []}, "name is missing"),
    ],
)
def test_wrong_arguments_are_not_sent(tools, site, name, arguments, message):
    error = fault(tools, name, **arguments)
    assert message in str(error)
    assert (error.has_run, error.is_transient) == (False, False)
    assert site.seen == []


def test_answers_become_json_values(tools):
    assert tools.call("pets/text", {}, 10) == "wörter"
    data = base64.b64encode(b"png").decode()
    assert tools.call("pets/image", {}, 10) == {
        "type": "blob",
        "mimeType": "image/png",
        "data": data,
    }
    assert tools.call("pets/empty", {}, 10) is None


@pytest.mark.parametrize(
    ("status", "is_transient", "has_run"),
    [
        (400, False, False),
        (404, False, False),
        (429, True, False),
        (500, False, None),
        (502, True, None),
        (503, True, None),
        (504, True, None),
    ],
)
def test_a_status_says_whether_to_try_again(tools, status, is_transient, has_run):
    error = fault(tools, "post_status_code", code=str(status))
    assert (error.is_transient, error.has_run, error.retry_after_s) == (is_transient, has_run, 7)
    assert f"HTTP status {status}" in str(error)
    assert "no such thing" in str(error)


def test_a_server_may_ask_to_wait_until_a_time(tools):
    assert 50 < fault(tools, "get_later").retry_after_s <= 60


def test_nobody_there_has_run_nothing():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
        spec = {"openapi": "3.0.0", "paths": {"/a": get()}}
        with OpenApiTools("pets", spec, base_url=f"http://127.0.0.1:{port}") as tools:
            error = fault(tools, "get_a")
    assert (error.is_transient, error.has_run) == (True, False)


@pytest.mark.parametrize("name", ["slow", "drip"])
def test_a_call_ends_in_time_also_where_the_answer_comes_in_drops(tools, name):
    started = time.monotonic()
    error = fault(tools, name, timeout_s=0.5)
    assert time.monotonic() - started < 0.9
    assert (error.is_transient, error.has_run) == (True, None)


def test_a_connection_that_breaks_may_have_run(tools):
    error = fault(tools, "cut")
    assert (error.is_transient, error.has_run) == (True, None)


def test_an_answer_has_a_limit(tools, monkeypatch):
    monkeypatch.setattr(http_tools, "MAX_BYTES", 1 << 20)
    error = fault(tools, "huge")
    assert "at most 1 MiB" in str(error)
    assert (error.is_transient, error.has_run) == (False, True)


def test_four_slow_calls_at_once_take_the_time_of_one(tools):
    started = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: tools.call("pets/slow", {}, 10), range(4)))
    assert time.monotonic() - started < 1.8


# --- secrets and redirections ---------------------------------------------------------------------


def with_secret(site, monkeypatch, scheme, value=SECRET, **more):
    monkeypatch.setenv("PETS_SECRET", value)
    spec = document(site, **more)
    spec["security"] = [{"other": []}, {scheme: []}]
    return OpenApiTools("pets", spec, secrets={scheme: "PETS_SECRET"})


@pytest.mark.parametrize(
    ("scheme", "value", "name", "expected"),
    [
        ("key", SECRET, "x-key", SECRET),
        ("token", SECRET, "authorization", f"Bearer {SECRET}"),
        ("basic", "me:pw", "authorization", f"Basic {base64.b64encode(b'me:pw').decode()}"),
        ("cookie_key", "abc", "cookie", "theme=dark; sid=abc"),
    ],
)
def test_secrets_come_from_the_environment(site, monkeypatch, scheme, value, name, expected):
    with with_secret(site, monkeypatch, scheme, value) as tools:
        seen = tools.call("pets/getPet", {"id": "1", "theme": "dark"}, 10)
    assert seen["headers"][name] == expected


def test_a_secret_in_the_query_is_sent_and_neither_logged_nor_told(site, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    with with_secret(site, monkeypatch, "query_key") as tools:
        tools.call("pets/getPet", {"id": "1", "limit": 2}, 10)
        assert ("api_key", SECRET) in site.seen[-1]["query"]
        error = fault(tools, "get_status_code", code="500")
        assert ("api_key", SECRET) in site.seen[-1]["query"]
        cut = fault(tools, "cut")
    for text in (str(error), repr(error.__cause__), str(cut), repr(cut.__cause__), caplog.text):
        assert SECRET not in text
        assert "s3cret%2F" not in text
    assert "HTTP Request: GET" in caplog.text


@pytest.mark.parametrize("scheme", ["key", "basic"])
def test_a_secret_that_a_server_repeats_is_not_in_the_error(site, monkeypatch, scheme):
    value = "somebody:4711-word" if scheme == "basic" else SECRET
    asks = {"/echo_secret": get(security=[{scheme: []}])}
    with with_secret(site, monkeypatch, scheme, value, **asks) as tools:
        error = fault(tools, "get_echo_secret")
    assert "[redacted]" in str(error)
    assert value not in str(error)
    assert base64.b64encode(value.encode()).decode() not in str(error)


def test_cookies_of_a_server_are_not_kept(site, monkeypatch):
    with with_secret(site, monkeypatch, "key") as tools:
        fault(tools, "get_echo_secret")
        tools.call("pets/getPet", {"id": "1"}, 10)
    assert "cookie" not in site.seen[-1]["headers"]


def test_a_variable_that_is_not_set_is_named_and_nothing_is_sent(site, monkeypatch):
    with with_secret(site, monkeypatch, "key") as tools:
        monkeypatch.delenv("PETS_SECRET")
        error = fault(tools, "getPet", id="1")
        assert "PETS_SECRET" in str(error)
        monkeypatch.setenv("PETS_SECRET", "käse-word")
        assert "käse-word" not in str(fault(tools, "getPet", id="1"))
    assert (error.has_run, site.seen) == (False, [])
    with OpenApiTools("pets", document(site), secrets={"nokey": "X"}) as tools:
        assert "basic, cookie_key, key, query_key, token" in str(fault(tools, "text"))


def test_a_server_that_asks_for_a_secret_leads_to_the_setting(tools):
    assert "execute_secrets, as pets/key" in str(fault(tools, "get_echo_secret"))


def test_a_redirection_on_the_same_host_is_followed_with_the_secret(site, monkeypatch):
    with with_secret(site, monkeypatch, "key") as tools:
        seen = tools.call("pets/moved", {}, 10)
    assert seen["path"] == "/v1/pets/7"
    assert seen["headers"]["x-key"] == SECRET


def test_a_redirection_to_another_host_is_not_followed(site, monkeypatch):
    with with_secret(site, monkeypatch, "key") as tools:
        error = fault(tools, "away")
        assert "not followed" in str(error)
        assert (error.is_transient, error.has_run) == (False, False)
        assert "redirections" in str(fault(tools, "circle"))
    assert site.there.seen == []


def test_another_server_of_the_document_gets_no_secret(site, monkeypatch):
    other = get(operationId="other", servers=[{"url": f"{site.elsewhere}/x"}])
    with with_secret(site, monkeypatch, "key", **{"/other": other}) as tools:
        seen = tools.call("pets/other", {}, 10)
    assert seen["path"] == "/x/other"
    assert "x-key" not in seen["headers"]


@pytest.mark.parametrize(
    ("base_url", "message"),
    [
        (None, "the address of an API"),
        ("ftp://127.0.0.1/", "http or https"),
        ("file:///etc/passwd", "http or https"),
        ("http://me:word4711@127.0.0.1/", "no name or password"),
    ],
)
def test_only_http_addresses_without_passwords_are_called(base_url, message):
    spec = {"openapi": "3.0.0", "paths": {"/a": get()}}
    with OpenApiTools("pets", spec, base_url=base_url) as tools:
        error = fault(tools, "get_a")
        assert tools.traits("pets/get_a") == Traits()
    assert message in str(error)
    assert "word4711" not in str(error)
    assert error.has_run is False


def test_a_document_behind_an_address_names_servers_relative_to_it(site, monkeypatch):
    spec = {"openapi": "3.0.0", "servers": [{"url": "/v2"}], "paths": {"/a": get()}}

    class Document(Handler):
        def act(self):
            if self.path == "/specs/api.json":
                self.answer(200, json.dumps(spec).encode())
            else:
                super().act()

        do_GET = act

    monkeypatch.setattr(site, "RequestHandlerClass", Document)
    with OpenApiTools("pets", f"http://127.0.0.1:{site.server_port}/specs/api.json") as tools:
        assert tools.call("pets/get_a", {}, 10)["path"] == "/v2/a"
    with OpenApiTools("pets", f"http://127.0.0.1:{site.server_port}/v1/status/404") as tools:
        assert fault(tools, "get_a").has_run is False
