"""The language model that decomposes, scores and sums up: an endpoint, or the local model.

An endpoint is whatever speaks OpenAI's chat completions. It is asked for JSON by schema, and where
it knows no schemas, for any JSON. The key goes into a header and nowhere else.
"""

import email.utils
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx

from models.answers import Complete, Message, Schema
from tasks.addresses import is_loopback, shown
from tasks.errors import ChatFailed, WrongUsage
from tasks.settings import Settings, resolve_device

TIMEOUT_S = 120.0
"""Seconds that an endpoint may take for one answer."""

TRIES = 5
"""Requests at most for one answer, where errors may pass."""

LONGEST_WAIT_S = 60.0
"""An endpoint that asks for a longer wait is not asked again."""

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_REFUSALS = frozenset({400, 422, 501})
_FIRST_WAIT_S, _MAX_WAIT_S = 0.5, 30.0


def chat_of(settings: Settings) -> Complete:
    """The chat completion of the settings.

    Raises:
        WrongUsage: An endpoint without a model, or a key that no header can carry.
    """
    if settings.chat_url:
        return endpoint_of(settings)
    from models.json_decoding import local_chat
    from tasks.llm import shared_llm

    return local_chat(shared_llm(settings, resolve_device(settings.device)))


def endpoint_of(settings: Settings, sleep: Callable[[float], object] = time.sleep) -> "Endpoint":
    """The endpoint of the settings.

    Args:
        settings: With ``chat_url``.
        sleep: Waits for so many seconds.

    Raises:
        WrongUsage: No model is named, or the key is none that a header can carry.
    """
    if not settings.chat_model:
        raise WrongUsage(
            f"expected the name of a model for {settings.chat_url}, got none; set "
            "TOOLATLAS_CHAT_MODEL."
        )
    key = (settings.chat_key or "").strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise WrongUsage(
            f"expected a key of printable ASCII characters in the environment variable "
            f"{settings.chat_key_variable}, got another text; set it anew."
        )
    client = httpx.Client(
        timeout=httpx.Timeout(TIMEOUT_S, connect=min(10.0, TIMEOUT_S)),
        headers={"Authorization": f"Bearer {key}"} if key else {},
        trust_env=not is_loopback(settings.chat_url),
    )
    return Endpoint(
        url=f"{settings.chat_url.rstrip('/')}/chat/completions",
        model=settings.chat_model,
        key_variable=settings.chat_key_variable,
        client=client,
        sleep=sleep,
        _key=key,
    )


class _Form(NamedTuple):
    """How a question is put."""

    has_schema: bool
    has_temperature: bool


_FORMS = (_Form(True, True), _Form(True, False), _Form(False, True), _Form(False, False))


@dataclass(eq=False)
class Endpoint:
    """An OpenAI-compatible endpoint; may be called from several threads.

    Attributes:
        url: Where questions go.
        model: Its name there.
        key_variable: The environment variable of the key, for messages.
        client: With the key in its headers.
        sleep: Waits for so many seconds.
    """

    url: str
    model: str
    key_variable: str
    client: httpx.Client
    sleep: Callable[[float], object] = time.sleep
    _key: str = field(default="", repr=False)
    _form: _Form = field(default=_FORMS[0], repr=False)

    def __call__(self, messages: Sequence[Message], schema: Schema) -> str:
        """What the model answers.

        What the endpoint refuses to know (schemas, a temperature) is left out from then on.

        Raises:
            ChatFailed: There was no answer.
        """
        first, speaks_of_temperature = self._form, False
        for form in _FORMS[_FORMS.index(first) :]:
            if form is first or form.has_temperature or speaks_of_temperature:
                response = self._post(self._body(messages, schema, form))
                if response.is_success:
                    text = self._content(response)
                    self._form = form
                    return text
                if response.status_code not in _REFUSALS:
                    break
                speaks_of_temperature |= "temperature" in response.text.casefold()
        raise self._failed(response)

    def _body(self, messages: Sequence[Message], schema: Schema, form: _Form) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "messages": list(messages)}
        if form.has_temperature:
            body["temperature"] = 0
        if form.has_schema:
            shape = {"name": "answer", "strict": True, "schema": schema}
            return {**body, "response_format": {"type": "json_schema", "json_schema": shape}}
        told = f"Answer with nothing but JSON of this schema:\n{json.dumps(schema)}"
        body["messages"] = _with_instruction(messages, told)
        return {**body, "response_format": {"type": "json_object"}}

    def _post(self, body: dict[str, Any]) -> httpx.Response:
        """The endpoint's response; asked again after a growing wait where errors may pass."""
        wait_s = _FIRST_WAIT_S
        for left in range(TRIES - 1, -1, -1):
            asked_s: float | None = None
            try:
                response = self.client.post(self.url, json=body)
            except httpx.TransportError as error:
                if not left:
                    raise ChatFailed(
                        f"expected an answer from {shown(self.url)}, got {type(error).__name__} "
                        f"{TRIES} times; check the setting chat_url and that the server runs."
                    ) from None  # its text may hold what was sent
            else:
                if response.status_code not in _PASSING:
                    return response
                asked_s = _retry_after(response)
                if not left or (asked_s or 0.0) > LONGEST_WAIT_S:
                    raise self._failed(response)
            self.sleep(min(wait_s, _MAX_WAIT_S) if asked_s is None else asked_s)
            wait_s *= 2
        raise AssertionError("the last try returns or raises")

    def _content(self, response: httpx.Response) -> str:
        """The text of the first choice, or the model's refusal."""
        try:
            message = response.json()["choices"][0]["message"]
            text = message.get("content") or message.get("refusal") or ""
        except (ValueError, LookupError, TypeError, AttributeError):
            raise self._failed(response) from None
        if not isinstance(text, str):
            raise self._failed(response)
        return text

    def _failed(self, response: httpx.Response) -> ChatFailed:
        """The error of a response that is no answer."""
        hint = "check the settings chat_url and chat_model"
        if response.status_code in (401, 403):
            hint = f"check the key in the environment variable {self.key_variable}"
        elif response.status_code in _PASSING:
            hint = "try again later"
        return ChatFailed(
            f"expected an answer of {self.model!r} from {shown(self.url)}, got status "
            f"{response.status_code}: {self._said(response)}; {hint}."
        )

    def _said(self, response: httpx.Response) -> str:
        """What the endpoint says went wrong, without the key, which some repeat."""
        text = response.text
        try:
            error = response.json()["error"]
            text = str(error["message"] if isinstance(error, dict) else error)
        except (ValueError, LookupError, TypeError):
            pass
        if self._key:
            text = text.replace(self._key, "[key]")
        text = " ".join(text.split()) or "nothing"
        return text if len(text) <= 300 else f"{text[:299]}…"


def _with_instruction(messages: Sequence[Message], told: str) -> list[Message]:
    """The conversation with one more sentence in its system turn."""
    first, *rest = messages
    if first["role"] == "system":
        return [{**first, "content": f"{first['content']}\n\n{told}"}, *rest]
    return [{"role": "system", "content": told}, *messages]


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds that a response asks to wait, given as such or as a date."""
    text = response.headers.get("retry-after", "").strip()
    if not text:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        until = email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError):
        return None
    return max(0.0, until - time.time())
