"""The script with which both clients follow a job, and the folder in which npm's has its package."""

from __future__ import annotations

from pathlib import Path

import npm

#: Follows a job until the client says by itself that it is over; `report` is called once then.
FOLLOW = """
function follow(EventSource, url, report) {
  const heard = {ids: [], ends: [], opened: 0, states: []};
  const source = new EventSource(url);
  source.onopen = () => { heard.opened += 1; };
  source.addEventListener('log', event => heard.ids.push(event.lastEventId));
  source.addEventListener('end', event => heard.ends.push([event.lastEventId, JSON.parse(event.data).status]));
  source.onerror = () => {
    heard.states.push(source.readyState);
    if (source.readyState === 2) report(heard);
  };
}
"""
PAGE = f"<!doctype html><title>follow</title><script>{FOLLOW}</script>"
NODE = f"""
import {{ EventSource }} from 'eventsource';
{FOLLOW}
follow(EventSource, process.argv[2], heard => console.log(JSON.stringify(heard)));
"""
#: The last one that runs on Node.js 18.
NPM_PACKAGE = "eventsource@3.0.7"


def node_project(folder: Path) -> Path:
    """`folder` with the script and the npm package."""
    (folder / "follow.mjs").write_text(NODE)
    return npm.install(NPM_PACKAGE, folder)
