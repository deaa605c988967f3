"""Lets only people with the password reach the dashboard, if it was started with one.

This ASGI middleware is in front of all routes: pages, media and the websocket. A login gets a random token, which is
valid until logout or the end of the server. The browser keeps it in a cookie that scripts cannot read.
"""

import hmac
import secrets
import time
from urllib.parse import parse_qs, quote

from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

DELAY = 1.0  # seconds after a wrong password in which nobody can log in
MOST_BYTES = 4096  # of a login form
LOGOUT = "/logout"
# A link on another site opens this page even after a login, because that request has no SameSite cookie: then reload.
PAGE = """<!doctype html><meta name="viewport" content="width=device-width"><title>auditor</title>
<style>body {{font: 16px sans-serif; max-width: 20rem; margin: 20vh auto}} input, button {{font: inherit}}</style>
<form method="post"><label>Password <input type="password" name="password" autofocus></label> <button>Log in</button>
<p role="alert">{message}</p></form><script>fetch(location.href).then(page => page.ok && location.reload())</script>"""


class PasswordMiddleware:
    """Answers requests without a valid token by the login page."""

    def __init__(self, app: ASGIApp, password: str) -> None:
        self.app, self.key = app, secrets.token_bytes(32)
        self.password = self._digest(password)
        self.tokens: set[bytes] = set()  # digests, so that the time of a lookup says nothing about a token
        self.next_login = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        cookie = f"auditor-login-{scope['server'][1]}"  # the dashboards of a machine share its cookies
        token = self._digest(HTTPConnection(scope).cookies.get(cookie, ""))

        async def receive_until_logout() -> Message:
            message = await receive()
            return message if token in self.tokens else {"type": "websocket.disconnect", "code": 1008}

        if token in self.tokens and scope["path"] != LOGOUT:
            await self.app(scope, receive if scope["type"] == "http" else receive_until_logout, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif token in self.tokens:
            self.tokens.discard(token)
            response = RedirectResponse("/", 303)
            response.delete_cookie(cookie, httponly=True, samesite="strict")
            await response(scope, receive, send)
        else:
            is_login = scope["method"] == "POST"
            answer = await self.log_in(Request(scope, receive), cookie) if is_login else show_login(401)
            await answer(scope, receive, send)

    async def log_in(self, request: Request, cookie: str) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                return show_login(413, "This is too long.")
        if time.monotonic() < self.next_login:
            return show_login(429, "Too many attempts. Wait a few seconds and try again.")
        [entry] = parse_qs(body.decode(errors="replace")).get("password", [""])[:1]
        if not hmac.compare_digest(self._digest(entry), self.password):
            self.next_login = time.monotonic() + DELAY
            return show_login(401, "That is not the password.")
        token = secrets.token_urlsafe(32)
        self.tokens.add(self._digest(token))
        path = "" if request.url.path == LOGOUT else quote(request.url.path.strip("/\\"))  # never another host
        response = RedirectResponse(f"/{path}?{request.url.query}".rstrip("?"), 303)
        response.set_cookie(cookie, token, httponly=True, samesite="strict")
        return response

    def _digest(self, value: str) -> bytes:
        return hmac.digest(self.key, value.encode(errors="replace"), "sha256")


def show_login(status: int, message: str = "") -> Response:
    return HTMLResponse(PAGE.format(message=message), status, {"Cache-Control": "no-store"})
