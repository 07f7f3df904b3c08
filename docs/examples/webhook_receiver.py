# /// script
# dependencies = ["httpx2"]
# ///
"""Is called when a crawl has ended, and saves its items as CSV.

uv run webhook_receiver.py --port 8090 --secret s3cret results/

Ask for crawls with `"webhook_url": "http://<this host>:8090/s3cret"`. The address is a secret, and only the job's id
is taken from a call: everything else comes from the platform. So it need not verify who calls.
"""

import argparse
import hmac
import json
import os
import queue
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2

URL = os.environ.get("DISCOVERYBOT_URL", "http://127.0.0.1:8001")
KEY = os.environ.get("DISCOVERYBOT_KEY")
#: A body is a few hundred bytes.
MAX_BODY = 64 << 10


class Receiver(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], secret: str) -> None:
        super().__init__(address, Handler)
        self.path = f"/{secret}".encode()
        self.ended: queue.Queue[str] = queue.Queue()


class Handler(BaseHTTPRequestHandler):
    server: Receiver
    timeout = 10

    def do_POST(self) -> None:
        """Answers at once and leaves the work to another thread: a call is repeated if it takes ten seconds."""
        length = int(self.headers.get("Content-Length", 0))
        if not hmac.compare_digest(self.path.encode(), self.server.path) or length > MAX_BODY:
            self.send_error(404)
            return
        job_id = json.loads(self.rfile.read(length))["job_id"]
        if not re.fullmatch("[0-9a-f]{32}", job_id):
            self.send_error(422)
            return
        self.server.ended.put(job_id)
        self.send_response(204)
        self.end_headers()


def save(client: httpx2.Client, job_id: str, folder: Path) -> None:
    """A call may be repeated, so nothing is done for a job that was saved before."""
    file = folder / f"{job_id}.csv"
    if file.exists():
        return
    part = file.with_suffix(".part")
    with (
        client.stream("GET", f"/jobs/{job_id}/items", params={"format": "csv"}) as answer,
        part.open("wb") as out,
    ):
        answer.raise_for_status()
        for chunk in answer.iter_bytes():
            out.write(chunk)
    part.rename(file)
    print(f"saved {file}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--secret", required=True)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    headers = {"Authorization": f"Bearer {KEY}"} if KEY else {}
    with (
        Receiver((options.host, options.port), options.secret) as receiver,
        httpx2.Client(base_url=URL, headers=headers, timeout=60) as client,
    ):
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        print(f"listening on port {receiver.server_port}", flush=True)
        while True:
            job_id = receiver.ended.get()
            try:
                save(client, job_id, options.folder)
            except httpx2.HTTPError as error:
                print(f"{job_id} could not be saved: {error!r}", flush=True)


if __name__ == "__main__":
    main()
