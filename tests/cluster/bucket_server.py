"""moto's S3 server, whose disk is full while a file exists: python bucket_server.py PORT FILE.

Then every object that is sent gets the answer of MinIO on a full disk: 507, XMinioStorageFull.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
from werkzeug.wrappers import Request, Response

FULL = "<Error><Code>XMinioStorageFull</Code><Message>The storage has no free space.</Message></Error>"


class Bucket:
    """The WSGI application."""

    def __init__(self, full: Path) -> None:
        self.full, self.inner = full, DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        if request.method in ("PUT", "POST") and request.content_length and self.full.exists():
            request.get_data()  # the client sends the whole object before it reads the answer
            return Response(FULL, 507, mimetype="application/xml")(environ, start_response)
        return self.inner(environ, start_response)


if __name__ == "__main__":
    run_simple("0.0.0.0", int(sys.argv[1]), Bucket(Path(sys.argv[2])), threaded=True)
