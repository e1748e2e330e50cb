"""The server of the page: a small ASGI application on 127.0.0.1, which only answers and never writes.

Other hosts cannot connect. Another site cannot read the answers, because no header allows that. Another site cannot use
a name of its own for this address (DNS rebinding), because only local names are served. No text of a study becomes
code. The page sets texts as text, and the policy of the page allows the two scripts of this server alone.
"""

import asyncio
import json
import socket
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import uvicorn
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import override

from loopscale.analysis.report.templates import asset, plotly_script, template_environment
from loopscale.core.palette import FIFTHS, NAMES_OF_FIFTHS, PALETTE
from loopscale.errors import UsageError
from loopscale.live.board import Board

ADDRESS = "127.0.0.1"
HOSTS = (ADDRESS, "localhost")
"""Names in the Host header. A tunnel of ssh keeps these names, with a port of its own."""
MOST_CONNECTIONS = 100
LAST_SECONDS = 3
"""Longest wait for browsers at the end."""
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The report has its scripts inside, and may connect to nothing."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
ReportSource = dict[str, Any]
"""The place of the records, as the process that writes a report reads them."""


def bind(port: int | None = None) -> socket.socket:
    """A socket on the port, or on a free port. Raises UsageError."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((ADDRESS, port or 0))
        listening.listen(MOST_CONNECTIONS)
    except OSError as problem:
        listening.close()
        reason = (problem.strerror or str(problem)).lower()
        raise UsageError(
            f"cannot listen on {ADDRESS}:{port} ({reason}); give another --port, or none for a free port"
        ) from problem
    return listening


def url_of(listening: socket.socket) -> str:
    return f"http://{ADDRESS}:{listening.getsockname()[1]}/"


def make_app(board: Board, report_source: Callable[[], ReportSource]) -> Starlette:
    """The application. `report_source` names the records for the report of the results so far."""
    reports = asyncio.Lock()  # one report at a time

    async def page(request: Request) -> Response:
        return HTMLResponse(live_page(), headers={"Content-Security-Policy": PAGE_POLICY})

    async def script(request: Request) -> Response:
        return Response(asset("live.js"), media_type="text/javascript")

    async def plotly(request: Request) -> Response:
        # The bundle does not depend on the study, and another study may later use the port.
        keep = {"Cache-Control": "private, max-age=3600"}
        return Response(plotly_script(), media_type="text/javascript", headers=keep)

    async def events(request: Request) -> Response:
        return StreamingResponse(board.events(), media_type="text/event-stream")

    async def report(request: Request) -> Response:
        async with reports:
            status, text = await _written_report(report_source())
        if status:
            return PlainTextResponse(text, status_code=503)
        return HTMLResponse(text, headers={"Content-Security-Policy": REPORT_POLICY})

    answers = {"/": page, "/live.js": script, "/plotly.js": plotly, "/events": events, "/report": report}
    return Starlette(
        routes=[Route(path, answer, methods=["GET"]) for path, answer in answers.items()],
        middleware=[
            Middleware(_WithHeaders),
            Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False),
        ],
    )


@cache
def live_page() -> str:
    """The page, which has no state: a script fills it with the events."""
    constants = {"palette": PALETTE, "fifths": FIFTHS, "names of fifths": NAMES_OF_FIFTHS}
    text = Markup(json.dumps(constants).replace("<", "\\u003c"))
    return template_environment().get_template("live.html.j2").render(figures=(), constants=text)


class PageServer(uvicorn.Server):
    """Serves the application on an open socket until the board is closed, or until a signal."""

    def __init__(self, app: Starlette, board: Board) -> None:
        self.board = board
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_graceful_shutdown=LAST_SECONDS,
            )
        )

    @override
    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self.board.closed

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.board.close()  # otherwise the open streams would delay the end
        await super().shutdown(sockets)


class _WithHeaders:
    """Adds the headers of safety to every answer. Live answers are not stored."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                added = {"Cache-Control": "no-store"} | HEADERS
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.lower().encode(), value.encode())
                        for name, value in added.items()
                        if name.lower().encode() not in known
                    ),
                ]
            await send(message)

        await self.app(scope, receive, send_with_headers)


async def _written_report(source: ReportSource) -> tuple[int, str]:
    """The report of the results so far, by a process of its own: exit code, and page or reason.

    The process needs figures and statistics, which need much memory, and gives it back at its end.
    """
    command = [sys.executable, "-P", "-m", "loopscale.live.report_process"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        page, problem = await process.communicate(json.dumps(source).encode())
    except BaseException:  # the browser or the server has gone
        process.kill()
        raise
    text = page if not process.returncode else problem
    return process.returncode or 0, text.decode(errors="replace")
