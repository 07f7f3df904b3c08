"""Serve the demo site on loopback and print its URL."""

from __future__ import annotations

import argparse

from crawler.demo_site.server import DemoServer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m crawler.demo_site", description="Serve the demo site.")
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes any free one")
    server = DemoServer(parser.parse_args().port)
    print(server.url, flush=True)  # noqa: T201 - the caller waits for this line
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()


if __name__ == "__main__":
    main()
