"""Operations of an OpenAPI document as tools, called with httpx."""

import base64
import contextlib
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from models.errors import ToolFailed
from tasks.addresses import is_loopback, shown
from tasks.backends import (
    Backend,
    Background,
    Hints,
    seconds,
    shortened,
    timed_out,
    tool_name,
    unknown,
)
from tasks.errors import SourceFailed
from tasks.settings import read_secret
from tasks.tool_servers import fetch_document, parse_document
from warehouse.errors import UnreadableInput
from warehouse.readers.openapi import (
    Operation,
    fields_of_body,
    inputs_of,
    is_document,
    media_of,
    operations_of,
    resolved,
    tool_of,
)

MAX_BYTES = 16 << 20
"""Of an answer."""
MAX_REDIRECTS = 5
_SAFE = ("get", "head", "options", "trace", "query")
_BUSY = (408, 429, 502, 503, 504)
_HEADER = re.compile(r"[\t\x20-\x7e]*")
_SIGN = "toolatlas.sign"
_CLOSE_S = 2.0
_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"

Sign = Callable[[httpx.URL, httpx.Headers], httpx.URL]
"""Puts a secret into the headers of a request, or into the address, which it returns."""


class OpenApiTools(Backend):
    """The operations of one document; it is read at the first use.

    Secrets come from the environment at the time of the call, go to the document's own server only,
    and are added behind everything that logs. Redirects are followed on the same host only.

    What HTTP says of its methods stands for hints: GET, HEAD, OPTIONS, TRACE and QUERY only read,
    PUT and DELETE may be repeated, DELETE destroys. Of PUT, POST and PATCH nothing is known that
    would tell whether they destroy.

    Args:
        namespace: Of the tools in the catalogue.
        document: The document, its file, or its address.
        base_url: Where the API is, if not where the document says.
        secrets: Names of environment variables by name of a security scheme of the document;
            basic authentication takes ``user:password``.
        open_timeout_s: Seconds that fetching the document may take.
    """

    def __init__(
        self,
        namespace: str,
        document: Mapping[str, Any] | Path | str,
        *,
        base_url: str | None = None,
        secrets: Mapping[str, str] | None = None,
        open_timeout_s: float = 60.0,
    ) -> None:
        self.namespace = namespace
        self._source = document
        self._base_url = base_url
        self._variables = dict(secrets or {})
        self._open_timeout_s = open_timeout_s
        self._loop = Background()
        self._lock = threading.Lock()
        self._api: _Api | None = None
        self._client: httpx.AsyncClient | None = None

    def hints(self, key: str) -> Hints:
        """What the method of the operation says.

        Raises:
            ToolFailed: There is no such operation, or no document.
        """
        method = self._find(key)[1].operation.method.lower()
        if method in _SAFE:
            return Hints(read_only=True, idempotent=True)
        return Hints(
            idempotent=True if method in ("put", "delete") else None,
            destructive=True if method == "delete" else None,
        )

    def call(self, key: str, arguments: Mapping[str, Any], timeout_s: float) -> Any:
        """As ``models.toolset.Toolset.call``."""
        api, endpoint = self._find(key)
        sent = _Sent()
        request = _request(endpoint, key, arguments, sent)
        signs, sent.secrets = self._signs(api, endpoint, key)
        request.extensions[_SIGN] = signs
        try:
            answer = self._loop.run(timeout_s, self._send, key, request, sent)
        except TimeoutError as error:
            if not sent.is_out:
                raise ToolFailed(
                    f"expected a connection to {shown(str(request.url))} for {key} within "
                    f"{timeout_s:g} s, got none: it was not called.",
                    is_transient=True,
                    has_run=False,
                ) from error
            raise timed_out(key, timeout_s) from error
        if answer.status >= 300:
            raise self._refused(key, endpoint, request, answer, sent.secrets)
        return _value(answer)

    def close(self) -> None:
        """Drop calls and connections."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(ToolFailed, TimeoutError):
                self._loop.run(_CLOSE_S, client.aclose)
        self._loop.close()

    # --- the document -----------------------------------------------------------------------------

    def _find(self, key: str) -> "tuple[_Api, _Endpoint]":
        name = tool_name(key, self.namespace)
        with self._lock:
            if self._api is None:
                self._api = self._read()
        endpoint = self._api.endpoints.get(name)
        if endpoint is None:
            raise unknown(key, self._api.endpoints)
        return self._api, endpoint

    def _read(self) -> "_Api":
        """Read the document.

        Raises:
            ToolFailed: There is none, or it does not say where its API is.
        """
        source = self._source
        is_address = isinstance(source, str) and source.startswith(("http://", "https://"))
        try:
            if isinstance(source, Mapping):
                document: Any = dict(source)
            elif is_address:
                text = fetch_document(str(source), self._open_timeout_s, must=True)
                document = parse_document(text or b"", shown(str(source)))
            else:
                path = Path(str(source)).expanduser()
                document = parse_document(path.read_bytes(), str(path))
        except (SourceFailed, UnreadableInput, OSError) as error:
            raise ToolFailed(
                f"expected the API document of {self.namespace}: {error}",
                is_transient=isinstance(error, SourceFailed),
                has_run=False,
            ) from error
        if not is_document(document):
            raise ToolFailed(
                f"expected an OpenAPI document for {self.namespace}, got something else.",
                has_run=False,
            )
        api = _read_api(document, self._base_url, str(source) if is_address else None)
        for name in self._variables:
            if name not in api.schemes:
                known = ", ".join(sorted(api.schemes)) or "none"
                raise ToolFailed(
                    f"expected a security scheme of the API {self.namespace} in the setting "
                    f"execute_secrets, got {name}; it has: {known}.",
                    has_run=False,
                )
        return api

    # --- secrets ----------------------------------------------------------------------------------

    def _signs(
        self, api: "_Api", endpoint: "_Endpoint", key: str
    ) -> tuple[list[Sign], tuple[str, ...]]:
        """What adds the secrets that an operation asks for, and what must not be shown."""
        signs: list[Sign] = []
        hidden: list[str] = []
        if _origin(httpx.URL(endpoint.base)) != _origin(httpx.URL(api.base)):
            return signs, ()
        for name in self._chosen(endpoint):
            variable = self._variables[name]
            value = read_secret(variable)
            if not value or not _HEADER.fullmatch(value):
                got = "one with characters that no header takes" if value else "none"
                raise ToolFailed(
                    f"expected a value in the environment variable {variable}, which the setting "
                    f"execute_secrets names for {self.namespace}/{name}, got {got}: {key} was not "
                    "called.",
                    has_run=False,
                )
            sign, shapes = _sign(name, api.schemes[name], value)
            signs.append(sign)
            hidden += [value, quote(value, safe=""), *shapes]
        return signs, tuple(hidden)

    def _chosen(self, endpoint: "_Endpoint") -> list[str]:
        """The schemes of the first alternative for which there are secrets.

        All secrets where the document does not say which operations ask for them.
        """
        if endpoint.security is None:
            return list(self._variables)
        for alternative in endpoint.security:
            if alternative and all(name in self._variables for name in alternative):
                return alternative
        return []

    # --- calls ------------------------------------------------------------------------------------

    async def _send(self, key: str, request: httpx.Request, sent: "_Sent") -> "_Answer":
        if self._client is None:
            self._client = httpx.AsyncClient(
                transport=_Signing(httpx.AsyncHTTPTransport(proxy=_proxy(request.url))),
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                timeout=None,
                trust_env=False,
            )
        place = shown(str(request.url))
        try:
            for _ in range(MAX_REDIRECTS + 1):
                response = await self._client.send(request, stream=True)
                try:
                    following = response.next_request
                    if following is None:
                        return await _read_answer(key, response)
                finally:
                    await response.aclose()
                if not _stays(request.url, following.url):
                    raise ToolFailed(
                        f"expected a result of {key} from {place}, got a redirection to "
                        f"{shown(str(following.url))}, which is not followed: set the address of "
                        "the API if it has moved.",
                        has_run=False if response.status_code in (307, 308) else None,
                    )
                request = following
        except httpx.HTTPError as error:
            said = shortened(str(error), sent.secrets) or "no words"
            raise ToolFailed(
                f"expected a result of {key} from {place}, got {type(error).__name__}: {said}.",
                is_transient=isinstance(error, httpx.TransportError)
                and not isinstance(error, (httpx.UnsupportedProtocol, httpx.LocalProtocolError)),
                has_run=None if sent.is_out else False,
            ) from error
        raise ToolFailed(
            f"expected a result of {key} from {place}, got more than {MAX_REDIRECTS} redirections."
        )

    def _refused(
        self,
        key: str,
        endpoint: "_Endpoint",
        request: httpx.Request,
        answer: "_Answer",
        secrets: Sequence[str],
    ) -> ToolFailed:
        """The error of a call that was answered with another status than success."""
        status = answer.status
        said = shortened(_message(answer), secrets).rstrip(".")
        text = f"expected a result of {key}, got HTTP status {status} from "
        text += shown(str(request.url)) + (f": {said}." if said else ".")
        if status in (401, 403) and endpoint.security and not request.extensions[_SIGN]:
            name = next((one[0] for one in endpoint.security if one), "")
            text += (
                f" It asks for {name}: name the environment variable that holds it in the setting "
                f"execute_secrets, as {self.namespace}/{name}."
            )
        is_rejected = 400 <= status < 500 and status != 408
        return ToolFailed(
            text,
            is_transient=status in _BUSY,
            has_run=False if is_rejected else None,
            retry_after_s=_retry_after(answer.retry_after),
        )


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """An operation, ready to be called.

    Attributes:
        declared: Its parameters as the document has them, by name and place.
        takes: Its parameters as the catalogue has them, with ``in``.
        media: Media type of its body.
        is_whole: Whether the parameter ``body`` is the body, and not a field of it.
        base: Address of its server.
        security: Names of security schemes, one list an alternative; None where nothing is said.
    """

    operation: Operation
    declared: dict[tuple[str, str], dict[str, Any]]
    takes: tuple[dict[str, Any], ...]
    media: str
    is_whole: bool
    base: str
    security: list[list[str]] | None


@dataclass(frozen=True, slots=True)
class _Api:
    base: str
    endpoints: dict[str, _Endpoint]
    schemes: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    kind: str
    body: bytes
    retry_after: str | None


@dataclass(slots=True)
class _Sent:
    """Whether any of a request has left, and what it must not show."""

    is_out: bool = False
    secrets: tuple[str, ...] = ()

    async def trace(self, event: str, _: Any) -> None:
        """Listen to httpcore."""
        if event.endswith("send_request_headers.started"):
            self.is_out = True


# --- reading --------------------------------------------------------------------------------------


def _read_api(document: dict[str, Any], base_url: str | None, address: str | None) -> _Api:
    """Everything that calls need of a document."""
    base = base_url or _server(document, document, address)
    if base is None:
        raise ToolFailed(
            "expected the address of an API in its document (servers, or host), got none: set it "
            "behind the document in the setting execute_servers.",
            has_run=False,
        )
    _check_address(base)
    components = document.get("components")
    schemes = components.get("securitySchemes") if isinstance(components, dict) else None
    schemes = schemes or document.get("securityDefinitions")
    found = {
        str(name): resolved(document, scheme, {})
        for name, scheme in (schemes.items() if isinstance(schemes, dict) else ())
    }
    endpoints: dict[str, _Endpoint] = {}
    for operation in operations_of(document, {}):
        item = resolved(document, document["paths"][operation.path], {})
        own = base_url or next(
            (url for part in (operation.value, item) if (url := _server(part, part, base))), base
        )
        declared, bodies = inputs_of(document, operation, {})
        security = operation.value.get("security", document.get("security"))
        endpoints[operation.name] = _Endpoint(
            operation=operation,
            declared=declared,
            takes=tool_of(document, operation, {}).parameters,
            media=_media(document, operation),
            is_whole=bool(bodies) and not any(fields_of_body(document, s) for s, _ in bodies),
            base=own,
            security=[list(map(str, one)) for one in security if isinstance(one, dict)]
            if isinstance(security, list)
            else None,
        )
    return _Api(base, endpoints, {k: v for k, v in found.items() if isinstance(v, dict)})


def _check_address(address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ToolFailed(
            f"expected an http or https address of an API, got {shown(address)!r}.", has_run=False
        )
    if "@" in parts.netloc:
        raise ToolFailed(
            f"expected no name or password in the address of the API at {shown(address)}: name "
            "environment variables in the setting execute_secrets instead.",
            has_run=False,
        )


def _server(holder: dict[str, Any], root: dict[str, Any], address: str | None) -> str | None:
    """The first server that a part of a document names, as an absolute address."""
    servers = holder.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else None
    if isinstance(first, dict) and isinstance(first.get("url"), str):
        variables = first.get("variables")
        url = first["url"]
        for name, value in variables.items() if isinstance(variables, dict) else ():
            default = value.get("default") if isinstance(value, dict) else None
            url = url.replace(f"{{{name}}}", str(default))
    elif "swagger" in root and (isinstance(root.get("host"), str) or address):
        schemes = root.get("schemes")
        own = urlsplit(address or "")
        offered = schemes if isinstance(schemes, list) and schemes else [own.scheme or "https"]
        scheme = "https" if "https" in offered else offered[0]
        url = f"{scheme}://{root.get('host') or own.netloc}{root.get('basePath') or ''}"
    elif "openapi" in root and address:
        url = "/"
    else:
        return None
    if "://" in url:
        return str(url)
    return urljoin(address, url) if address else None


def _media(document: dict[str, Any], operation: Operation) -> str:
    body = resolved(document, operation.value.get("requestBody"), {})
    if isinstance(body, dict):
        return media_of(body)[0] or "application/json"
    consumes = operation.value.get("consumes", document.get("consumes"))
    kinds = [str(kind) for kind in consumes] if isinstance(consumes, list) else []
    if not kinds:
        return ""
    return next((kind for kind in kinds if "json" in kind), kinds[0])


# --- requests -------------------------------------------------------------------------------------


def _request(
    endpoint: _Endpoint, key: str, arguments: Mapping[str, Any], sent: _Sent
) -> httpx.Request:
    """The request of a call, without secrets.

    Raises:
        ToolFailed: The arguments are not those of the operation.
    """
    names = {parameter["name"] for parameter in endpoint.takes}
    strangers = sorted(set(arguments) - names)
    missing = [
        one["name"]
        for one in endpoint.takes
        if one["required"] and (one["name"] not in arguments or _is_missing(one, arguments))
    ]
    if strangers or missing:
        wrong = [f"{name} is unknown" for name in strangers]
        wrong += [f"{name} is missing" for name in dict.fromkeys(missing)]
        takes = ", ".join(sorted(names)) or "none"
        raise ToolFailed(
            f"expected arguments of {key} ({takes}), got others: {'; '.join(wrong)}. It was not "
            "called.",
            has_run=False,
        )
    path = endpoint.operation.path
    query: list[tuple[str, str]] = []
    headers: list[tuple[str, str]] = [("Accept", "application/json, */*;q=0.5")]
    cookies: list[tuple[str, str]] = []
    form: list[tuple[str, str]] = []
    fields: dict[str, Any] = {}
    for parameter in endpoint.takes:
        name, place = parameter["name"], parameter["in"]
        if name not in arguments:
            continue
        value = arguments[name]
        if place == "body":
            fields[name] = value
            continue
        if value is None:
            continue
        declared = endpoint.declared[name, place]
        if place == "path":
            path = path.replace(f"{{{name}}}", _segment(key, name, _simple(declared, value)))
        elif place == "query":
            query += _pairs(declared, name, value)
        elif place == "header":
            text = _simple(declared, value)
            if not _HEADER.fullmatch(text):
                raise _wrong(key, name, "text that a header takes")
            headers.append((name, text))
        elif place == "cookie":
            cookies += _pairs(declared, name, value)
        elif declared.get("type") == "file":
            raise _wrong(key, name, "no file, since files are not supported")
        else:
            form += _pairs(declared, name, value)
    if cookies:
        headers.append(("Cookie", _cookies(cookies)))
    must = any(one["required"] and one["in"] == "body" for one in endpoint.takes)
    body, kind = _body(endpoint, key, fields, form, must=must)
    if kind:
        headers.append(("Content-Type", kind))
    if "{" in path:
        raise ToolFailed(
            f"expected a parameter for each name in the path {path} of {key}, which its document "
            "does not declare. It was not called.",
            has_run=False,
        )
    url = httpx.URL(endpoint.base.rstrip("/") + path)
    return httpx.Request(
        endpoint.operation.method.upper(),
        url.copy_merge_params(tuple(query)) if query else url,
        headers=headers,
        extensions={"trace": sent.trace},
        **body,
    )


def _is_missing(parameter: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    return parameter["in"] != "body" and arguments[parameter["name"]] is None


def _wrong(key: str, name: str, expected: str) -> ToolFailed:
    return ToolFailed(
        f"expected {expected} for the argument {name} of {key}, got something else. It was not "
        "called.",
        has_run=False,
    )


def _body(
    endpoint: _Endpoint,
    key: str,
    fields: dict[str, Any],
    form: list[tuple[str, str]],
    *,
    must: bool,
) -> tuple[dict[str, Any], str]:
    """The arguments of ``httpx.Request`` that make the body, and its type."""
    media = endpoint.media.partition(";")[0].strip().lower()
    if form:
        pairs, is_multipart = form, media == _MULTIPART
    elif not fields and not must:
        return {}, ""
    elif media in (_FORM, _MULTIPART):
        pairs = [pair for name, value in fields.items() for pair in _pairs({}, name, value)]
        is_multipart = media == _MULTIPART
    else:
        value = fields.get("body") if endpoint.is_whole else fields
        if media in ("", "*/*", "application/*") or "json" in media or not isinstance(value, str):
            if media and "json" not in media and "*" not in media:
                raise _wrong(key, "body", f"text, since it goes out as {media},")
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
            kind = endpoint.media if "json" in media else "application/json"
        else:
            text, kind = value, endpoint.media
        return {"content": text.encode()}, kind
    if is_multipart:
        return {"files": [(name, (None, text.encode())) for name, text in pairs]}, ""
    return {"content": str(httpx.QueryParams(tuple(pairs))).encode()}, _FORM


def _segment(key: str, name: str, text: str) -> str:
    """A value in a path: one that would lead to another path is refused."""
    if text in ("", ".", ".."):
        raise _wrong(key, name, "a value that stays inside the path")
    return quote(text, safe="")


def _cookies(pairs: Sequence[tuple[str, str]]) -> str:
    return "; ".join(f"{name}={quote(text, safe='')}" for name, text in pairs)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _simple(parameter: Mapping[str, Any], value: Any) -> str:
    """A value of a path or a header."""
    if "content" in parameter:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        joint = "=" if parameter.get("explode") is True else ","
        return ",".join(f"{name}{joint}{_text(part)}" for name, part in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    return _text(value)


_JOINTS = {
    "csv": ",", "ssv": " ", "tsv": "\t", "pipes": "|",
    "form": ",", "spaceDelimited": " ", "pipeDelimited": "|",
}  # fmt: skip


def _pairs(parameter: Mapping[str, Any], name: str, value: Any) -> list[tuple[str, str]]:
    """A value of a query, a cookie or a form, as OpenAPI 3 or Swagger 2.0 writes it."""
    if "content" in parameter:
        return [(name, json.dumps(value, ensure_ascii=False))]
    is_swagger = "type" in parameter and "schema" not in parameter
    style = parameter.get("collectionFormat", "csv") if is_swagger else parameter.get("style")
    style = style or "form"
    explode = style == "multi" or (not is_swagger and parameter.get("explode", style == "form"))
    joint = _JOINTS.get(str(style), ",")
    if isinstance(value, Mapping):
        if style == "deepObject":
            return [(f"{name}[{key}]", _text(part)) for key, part in value.items()]
        if explode:
            return [(str(key), _text(part)) for key, part in value.items()]
        return [(name, joint.join(f"{k}{joint}{_text(v)}" for k, v in value.items()))]
    if isinstance(value, (list, tuple)):
        if explode:
            return [(name, _text(part)) for part in value]
        return [(name, joint.join(map(_text, value)))]
    return [(name, _text(value))]


# --- secrets --------------------------------------------------------------------------------------


def _sign(name: str, scheme: Mapping[str, Any], value: str) -> tuple[Sign, tuple[str, ...]]:
    """What adds a secret to a request, and the other shapes that it takes there."""
    kind, place = scheme.get("type"), scheme.get("in")
    label = str(scheme.get("name", ""))
    if kind == "apiKey" and place == "query":
        return lambda url, _: url.copy_set_param(label, value), ()
    if kind == "apiKey" and place == "cookie":

        def bake(url: httpx.URL, headers: httpx.Headers) -> httpx.URL:
            own = _cookies([(label, value)])
            headers["Cookie"] = f"{headers['Cookie']}; {own}" if "Cookie" in headers else own
            return url

        return bake, ()
    if kind == "apiKey" and place == "header":
        text = value
    elif kind == "basic" or (kind == "http" and str(scheme.get("scheme")).lower() == "basic"):
        encoded = base64.b64encode(value.encode()).decode()
        label, text = "Authorization", f"Basic {encoded}"
    elif kind == "http" and str(scheme.get("scheme")).lower() != "bearer":
        label, text = "Authorization", f"{scheme.get('scheme')} {value}"
    elif kind in ("http", "oauth2", "openIdConnect"):
        label, text = "Authorization", f"Bearer {value}"
    else:
        raise ToolFailed(
            f"expected a key, basic or bearer authentication for {name}, got {kind}, which is not "
            "supported.",
            has_run=False,
        )

    def write(url: httpx.URL, headers: httpx.Headers) -> httpx.URL:
        headers[label] = text
        return url

    return write, (text.rpartition(" ")[2], *value.split(":", 1)[1:])


class _Signing(httpx.AsyncBaseTransport):
    """Adds secrets behind the client, so that neither its log nor its errors hold them."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a signed copy."""
        signs: Sequence[Sign] = request.extensions.get(_SIGN, ())
        url, headers = request.url, request.headers.copy()
        for sign in signs:
            url = sign(url, headers)
        rest = {key: value for key, value in request.extensions.items() if key != _SIGN}
        signed = httpx.Request(
            request.method, url, headers=headers, stream=request.stream, extensions=rest
        )
        return await self._inner.handle_async_request(signed)

    async def aclose(self) -> None:
        """Close connections."""
        await self._inner.aclose()


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _stays(old: httpx.URL, new: httpx.URL) -> bool:
    """Whether a redirection stays on its host; from http to https it may go there."""
    if _origin(old) == _origin(new):
        return True
    is_upgrade = (old.scheme, new.scheme) == ("http", "https")
    return is_upgrade and old.host == new.host and old.port is None and new.port is None


def _proxy(url: httpx.URL) -> str | None:
    """The proxy that the environment names for an address."""
    if is_loopback(str(url)) or proxy_bypass(url.host):
        return None
    proxies = getproxies()
    return proxies.get(url.scheme) or proxies.get("all")


# --- answers --------------------------------------------------------------------------------------


async def _read_answer(key: str, response: httpx.Response) -> _Answer:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MAX_BYTES:
            raise ToolFailed(
                f"expected a result of {key} of at most {MAX_BYTES >> 20} MiB, got more.",
                has_run=True if response.is_success else None,
            )
    kind = response.headers.get("content-type", "").lower()
    retry_after = response.headers.get("retry-after")
    return _Answer(response.status_code, kind, bytes(body), retry_after)


def _value(answer: _Answer) -> Any:
    """A result as a JSON value: text where it is no JSON, an object with ``data`` where no text."""
    if not answer.body:
        return None
    media = answer.kind.partition(";")[0].strip()
    if "json" in media or not media:
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            return answer.body.decode("utf-8", "replace")
    if media.startswith("text/") or media.endswith(("/xml", "+xml", "/yaml", "/javascript")):
        return answer.body.decode("utf-8", "replace")
    data = base64.b64encode(answer.body).decode()
    return {"type": "blob", "mimeType": media, "data": data}


def _message(answer: _Answer) -> str:
    """A server's own words about an error."""
    if "html" in answer.kind:
        return ""
    text = answer.body[:4096].decode("utf-8", "replace")
    value = _value(answer) if "json" in answer.kind else None
    for _ in range(2):
        if not isinstance(value, dict):
            break
        value = next(
            (value[k] for k in ("message", "error", "detail", "title") if value.get(k)), text
        )
    return value if isinstance(value, str) else text


def _retry_after(text: str | None) -> float | None:
    """Seconds that a server asks to wait, which it says in seconds or as a time."""
    if text is None:
        return None
    wait_s = seconds(text)
    if wait_s is None:
        try:
            until = parsedate_to_datetime(text)
        except ValueError:
            return None
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        wait_s = max(0.0, (until - datetime.now(UTC)).total_seconds())
    return wait_s
