from __future__ import annotations

import io
import json
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from unit.gateway.cli.conftest import Answer, Run, StandIn

NONE_DECLARED = (
    "no requirements found (no lock, requirements.txt, pyproject.toml, Pipfile or setup.py): it runs with the nodes' "
    "packages\n"
)


PIPFILE_LOCK = """{
"_meta": {"requires": {"python_version": "3.12"}},
"default": {
    "colour": {"hashes": ["sha256:aa"], "index": "pypi", "markers": "os_name != 'nt'", "version": "==1.0"},
    "tool": {"git": "https://example.com/tool.git", "ref": "abc"}
},
"develop": {"toolbox": {"version": "==2.0"}}
}"""
POETRYS = """
[tool.poetry.dependencies]
python = "~3.11"
a = "^1.2"
b = {version = "^0.3", extras = ["x"]}
c = "*"
d = "1.5"
e = ">=1,<3"
f = {git = "https://x.com/f", tag = "v1"}
"""
PIPFILE = """
[packages]
a = "*"
b = {version = "==1.0", markers = "os_name != 'nt'"}

[dev-packages]
c = "*"

[requires]
python_version = "3.8"
"""
POETRY = """
[tool.poetry.dependencies]
python = "^3.8"
Paint = {version = "^2", extras = ["net"]}

[tool.poetry.dev-dependencies]
toolbox = "*"
"""
POETRY_1_LOCK = """
[[package]]
name = "colour"
version = "1.0"
category = "main"
optional = false

[[package]]
name = "iocp"
version = "3.0"
category = "main"
optional = false

[[package]]
name = "paint"
version = "2.0"
category = "main"
optional = false

[package.dependencies]
colour = ">=1"
iocp = {version = "*", markers = "sys_platform == \\"win32\\""}
socks = {version = "*", optional = true, markers = "extra == \\"net\\""}
unused = {version = "*", optional = true, markers = "extra == \\"other\\""}

[package.extras]
net = ["socks (>=4)"]
other = ["unused"]

[[package]]
name = "socks"
version = "4.0"
category = "main"
optional = true

[[package]]
name = "toolbox"
version = "2.0"
category = "dev"
optional = false

[[package]]
name = "unused"
version = "2.0"
category = "main"
optional = true

[metadata]
lock-version = "1.1"
python-versions = "^3.8"

[metadata.files]
colour = [{file = "colour.whl", hash = "sha256:aa"}]
"""
POETRY_LOCK = """
[[package]]
name = "colour"
version = "1.0"
optional = false
groups = ["main"]
markers = 'os_name != "nt"'
files = [{file = "colour.whl", hash = "sha256:aa"}, {file = "colour.tar.gz", hash = "sha256:bb"}]

[[package]]
name = "tool"
version = "2.0"
optional = false
groups = ["main", "dev"]
files = []

[package.source]
type = "git"
url = "https://example.com/tool.git"
reference = "main"
resolved_reference = "abc"

[[package]]
name = "toolbox"
version = "2.0"
optional = false
groups = ["dev"]
files = []

[metadata]
lock-version = "2.1"
python-versions = "^3.11"
"""
PYPROJECT = """
[project]
name = "shop"
version = "1"
requires-python = ">=3.11"
dependencies = ["colour"]

[dependency-groups]
dev = ["toolbox"]
"""
LOCK = f"""
version = 1
requires-python = ">=3.11"

[[package]]
name = "colour"
version = "1.0"
source = {{ registry = "https://pypi.org/simple" }}
wheels = [{{ url = "https://example.com/colour-1.0-py3-none-any.whl", hash = "sha256:{"0" * 64}" }}]

[[package]]
name = "shop"
version = "1"
source = {{ virtual = "." }}
dependencies = [{{ name = "colour" }}]

[package.dev-dependencies]
dev = [{{ name = "toolbox" }}]

[package.metadata]
requires-dist = [{{ name = "colour" }}]

[package.metadata.requires-dev]
dev = [{{ name = "toolbox" }}]

[[package]]
name = "toolbox"
version = "1.0"
source = {{ registry = "https://pypi.org/simple" }}
wheels = [{{ url = "https://example.com/toolbox-1.0-py3-none-any.whl", hash = "sha256:{"1" * 64}" }}]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UV_OFFLINE", "1")
    folder = tmp_path / "code"
    (folder / "shop").mkdir(parents=True)
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    for name in ("__init__", "settings"):
        (folder / "shop" / f"{name}.py").touch()
    return folder


def node(name: str, message: str | None = None) -> dict[str, Any]:
    accepted = message is None
    return {"node": name, "accepted": accepted, "spiders": 2 if accepted else 0, "message": message}


def test_a_project_is_built_sent_and_each_nodes_answer_told(gateway: StandIn, run: Run, project: Path) -> None:
    answer = {"project": "shop", "version": "1.4", "spiders": 2, "nodes": [node("n1"), node("n2")]}
    gateway.says("POST /projects/shop/versions", Answer(200, answer))
    done = run("deploy", str(project), "--version", "1.4")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "✓ n1: 2 spiders\n✓ n2: 2 spiders\nshop 1.4: 2 spiders\n"
    request = gateway.asked("/projects/shop/versions")[0]
    assert request.query == "version=1.4&wait=50"
    with zipfile.ZipFile(io.BytesIO(request.body)) as egg:
        assert egg.read("EGG-INFO/entry_points.txt") == b"[scrapy]\nsettings = shop.settings\n"


def test_an_egg_is_only_made_if_that_is_all_that_is_wanted(run: Run, project: Path, tmp_path: Path) -> None:
    (project / "requirements.txt").write_text("colour==1.0\n")
    done = run("deploy", str(project), "--version", "1.4", "--build", str(tmp_path / "new/place"), "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert (made["project"], made["version"]) == ("shop", "1.4")
    assert (Path(made["egg"]), zipfile.is_zipfile(made["egg"])) == (tmp_path / "new/place/project.egg", True)
    assert "colour==1.0" in Path(made["requirements"]).read_text()


def test_an_egg_is_not_made_of_an_egg(run: Run, project: Path, tmp_path: Path) -> None:
    egg = tmp_path / "shop.egg"
    egg.write_bytes(b"PK")
    done = run("deploy", str(egg), "--version", "1.4", "--build", str(tmp_path / "place"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "--build: it makes an egg of a folder" in done.stderr
    assert not (tmp_path / "place").exists()


def test_what_nodes_warn_of_is_told_once(gateway: StandIn, run: Run, project: Path) -> None:
    answer = {"project": "shop", "version": "1.4", "spiders": 2, "nodes": [node("n1"), node("n2"), node("n3")]}
    gateway.says("POST /projects/shop/versions", Answer(200, answer))
    ready = {"state": "ready", "message": None, "packages": [], "log": ""}
    warned = [{**ready, "node": name, "warnings": ["not declared, and added: six"]} for name in ("n1", "n2")]
    # the last is of an older release
    gateway.says(
        "GET /projects/shop/versions/1.4/dependencies", Answer(200, {"nodes": [*warned, {**ready, "node": "n3"}]})
    )
    done = run("deploy", str(project), "--version", "1.4", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, answer)
    assert done.stderr == f"{NONE_DECLARED}not declared, and added: six\n"


def test_a_refusal_tells_what_each_node_said(gateway: StandIn, run: Run, project: Path) -> None:
    detail = {"field": "egg", "nodes": [node("n1"), node("n2", "No module named 'pandas'")]}
    error = {"code": "node_error", "message": "deployed on 1 of 2 nodes: No module named 'pandas'", "detail": detail}
    gateway.says("POST /projects/store/versions", Answer(502, {"error": error, "request_id": "1"}))
    done = run("deploy", str(project), "--project", "store")
    assert done.returncode == 1
    assert done.stdout == "✓ n1: 2 spiders\n"
    assert done.stderr == f"{NONE_DECLARED}✗ n2: No module named 'pandas'\nerror: deployed on 1 of 2 nodes\n"


def test_what_all_nodes_say_is_told_once(gateway: StandIn, run: Run, project: Path) -> None:
    why = "egg: it cannot be imported: No module named 'pandas' (shop/spiders.py, line 2)"
    detail = {"field": "egg", "nodes": [node("n1", why), node("n2", why)]}
    error = {"code": "invalid_request", "message": why, "detail": detail}
    gateway.says("POST /projects/shop/versions", Answer(422, {"error": error, "request_id": "1"}))
    done = run("deploy", str(project))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{NONE_DECLARED}error: {why}\n")


def test_a_script_reads_each_nodes_reason_though_the_egg_is_refused(
    gateway: StandIn, run: Run, project: Path
) -> None:
    nodes = [{**node("n1", "No module named 'pandas'"), "reason": "not_importable"}]
    detail = {"field": "egg", "nodes": nodes}
    error = {"code": "invalid_request", "message": "egg: No module named 'pandas'", "detail": detail}
    gateway.says("POST /projects/shop/versions", Answer(422, {"error": error, "request_id": "1"}))
    done = run("deploy", str(project), "--json")
    assert (done.returncode, json.loads(done.stdout)) == (2, {"nodes": nodes})


GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


def git(folder: Path, *words: str) -> None:
    by = ("-c", "user.name=me", "-c", "user.email=me@example.com", "-c", "tag.gpgsign=false")
    subprocess.run(["git", *by, *words], cwd=folder, check=True, capture_output=True, env={**os.environ, **GIT})


def test_the_version_is_that_of_the_source_if_scrapy_cfg_says_so(gateway: StandIn, run: Run, project: Path) -> None:
    (project / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n\n[deploy:live]\nversion = GIT\n")
    gateway.says(
        "POST /projects/shop/versions", *[Answer(200, {"project": "shop", "spiders": 1, "nodes": [node("n1")]})] * 4
    )
    git(project, "init", "--initial-branch", "feature/shoes")
    git(project, "add", ".")
    for message in ("one", "two"):
        git(project, "commit", "--allow-empty", "--message", message)
    assert run("deploy", str(project)).returncode == 0
    git(project, "tag", "--annotate", "v1.4", "--message", "1.4")
    assert run("deploy", str(project)).returncode == 0
    assert run("deploy", str(project), "--version", "7").returncode == 0
    queries = [request.query.partition("&")[0] for request in gateway.asked("/projects/shop/versions")]
    assert queries == ["version=r2-feature_shoes", "version=v1.4-feature_shoes", "version=7"]


def test_a_version_of_a_source_that_is_in_no_repository_is_refused(gateway: StandIn, run: Run, project: Path) -> None:
    done = run("deploy", str(project), "--version", "GIT", GIT_CEILING_DIRECTORIES=str(project.parent))
    assert done.returncode == 2
    assert done.stderr.startswith("error: version: git rev-parse --abbrev-ref HEAD: fatal: not a git repository")
    assert not gateway.requests


def test_a_version_is_deleted_and_told_where_it_still_is(gateway: StandIn, run: Run) -> None:
    nodes = [
        {"node": "n1", "removed": True, "message": None},
        {"node": "n2", "removed": False, "message": "it is dead; removed when it is back"},
    ]
    answer = {"project": "my shop", "version": "1.4", "nodes": nodes}
    gateway.says("DELETE /projects/my%20shop/versions/1.4", Answer(200, answer))
    done = run("undeploy", "my shop", "1.4")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "✓ n1: removed\nmy shop 1.4: deleted\n"
    assert done.stderr == "✗ n2: it is dead; removed when it is back\n"


def test_a_folder_that_is_no_project_is_refused_before_anything_is_sent(gateway: StandIn, run: Run) -> None:
    done = run("deploy")
    assert done.returncode == 2
    assert "it has no scrapy.cfg" in done.stderr
    assert not gateway.requests


def sent_with(gateway: StandIn, run: Run, project: Path, *options: str) -> bytes:
    """What was sent, when all was well."""
    gateway.says(
        "POST /projects/shop/versions", Answer(200, {"project": "shop", "spiders": 1, "nodes": [node("n1")]})
    )
    done = run("deploy", str(project), *options)
    assert done.returncode == 0, done.stderr
    return gateway.asked("/projects/shop/versions")[-1].body


def test_what_the_project_depends_on_is_sent_unless_it_is_not_to_be(
    gateway: StandIn, run: Run, project: Path, tmp_path: Path
) -> None:
    (project / "requirements.txt").write_text("top==1\n")
    assert b"top==1\n" in sent_with(gateway, run, project)
    (project / "scrapinghub.yml").write_text("requirements:\n  file: for-cloud.txt\n")
    (project / "for-cloud.txt").write_text("cloud==1\n")
    assert b"cloud==1\n" in sent_with(gateway, run, project)
    (tmp_path / "other.txt").write_text("other==1\n")
    assert b"other==1\n" in sent_with(gateway, run, project, "--requirements", str(tmp_path / "other.txt"))
    assert b"==1" not in sent_with(gateway, run, project, "--no-requirements")


def test_a_lock_of_uv_is_sent_as_requirements_without_what_is_for_development(
    gateway: StandIn, run: Run, project: Path
) -> None:
    (project / "pyproject.toml").write_text(PYPROJECT)
    (project / "uv.lock").write_text(LOCK)
    body = sent_with(gateway, run, project)
    assert b"colour==1.0 \\\n    --hash=sha256:" in body
    assert b"toolbox" not in body
    assert b"-e ." not in body
    # the node looks at it: its Python is the one that counts
    for name in ("pyproject.toml", "uv.lock"):
        (project / name).write_text((project / name).read_text().replace(">=3.11", ">=3.99"))
    assert b"# requires-python: >=3.99\n" in sent_with(gateway, run, project)


def test_a_lock_of_poetry_or_pipenv_is_sent_as_requirements(gateway: StandIn, run: Run, project: Path) -> None:
    (project / "Pipfile.lock").write_text(PIPFILE_LOCK)
    body = sent_with(gateway, run, project)
    # Pipenv itself only warns of another Python
    assert b"# python: 3.12\ncolour==1.0 ; os_name != 'nt' --hash=sha256:aa\n" in body
    assert b"tool @ git+https://example.com/tool.git@abc\n" in body
    assert b"toolbox" not in body
    (project / "poetry.lock").write_text(POETRY_LOCK)
    body = sent_with(gateway, run, project)
    assert b'# requires-python: <4,>=3.11\ncolour==1.0 ; os_name != "nt" --hash=sha256:aa --hash=sha256:bb\n' in body
    assert b"tool @ git+https://example.com/tool.git@abc\n" in body
    assert b"toolbox" not in body


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('groups = ["main"]', "", "is of Poetry 1, which needs its pyproject.toml"),
        ('type = "git"', 'type = "directory"', "tool comes from a folder or file that is not here"),
        ("[[package]]", "[package", "cannot be read"),
    ],
)
def test_a_lock_that_is_no_use_to_a_node_is_refused(
    *, gateway: StandIn, run: Run, project: Path, old: str, new: str, why: str
) -> None:
    (project / "poetry.lock").write_text(POETRY_LOCK.replace(old, new))
    done = run("deploy", str(project))
    assert (done.returncode, why in done.stderr) == (2, True)
    assert not gateway.requests


def test_a_lock_of_poetry_1_is_followed_from_the_projects_own_dependencies(
    gateway: StandIn, run: Run, project: Path
) -> None:
    (project / "poetry.lock").write_text(POETRY_1_LOCK)
    (project / "pyproject.toml").write_text(POETRY)
    body = sent_with(gateway, run, project)
    lines = [
        b"# requires-python: <4,>=3.8",
        b"colour==1.0 --hash=sha256:aa",
        b'iocp==3.0 ; (sys_platform == "win32")',
        b"paint==2.0",
        b"socks==4.0",
    ]
    assert b"\r\n\r\n" + b"\n".join(lines) + b"\n\r\n" in body


@pytest.mark.parametrize(
    ("file", "text", "lines"),
    [
        ("pyproject.toml", PYPROJECT, "# requires-python: >=3.11\ncolour\n"),
        ("pyproject.toml", POETRYS,
         "# requires-python: <3.12,>=3.11\na<2,>=1.2\nb[x]<0.4,>=0.3\nc\nd==1.5\ne<3,>=1\nf @ git+https://x.com/f@v1\n"),
        ("Pipfile", PIPFILE, "# python: 3.8\na\nb==1.0 ; os_name != 'nt'\n"),
        ("setup.cfg", "[options]\npython_requires = >=3.8\ninstall_requires =\n  a>=1\n  b\n",
         "# requires-python: >=3.8\na>=1\nb\n"),
        ("setup.py", "NEEDS = ['a>=1', 'b']\nsetuptools.setup(install_requires=NEEDS)\n", "a>=1\nb\n"),
    ],
)  # fmt: skip
def test_what_is_declared_and_not_locked_is_sent(
    *, gateway: StandIn, run: Run, project: Path, file: str, text: str, lines: str
) -> None:
    (project / file).write_text(text)
    assert f"\r\n\r\n{lines}\r\n".encode() in sent_with(gateway, run, project)


def test_what_is_declared_above_the_project_is_sent_as_far_as_its_repository_goes(
    gateway: StandIn, run: Run, project: Path
) -> None:
    inner = project / "crawlers"
    inner.mkdir()
    (project / "shop").rename(inner / "shop")
    (project / "scrapy.cfg").rename(inner / "scrapy.cfg")
    (project.parent / "requirements.txt").write_text("stranger==1\n")
    (project / "requirements.txt").write_text("-r more/base.txt\n-e .\nours==1\nbuilt @ file:///croot/built\n")
    (project / "more").mkdir()
    (project / "more/base.txt").write_bytes("base==1\r\n".encode("utf-16"))
    (project / ".python-version").write_text("3.12.8\n")
    assert b"\r\n\r\n# python: 3.12.8\nbase==1\nours==1\nbuilt\n\r\n" in sent_with(gateway, run, inner)
    (project / "requirements.txt").unlink()
    (project / ".git").mkdir()
    assert b"stranger" not in sent_with(gateway, run, inner)


def test_a_day_is_asked_for_or_is_that_of_its_stack(gateway: StandIn, run: Run, project: Path) -> None:
    stack = "requirements:\n  file: requirements.txt\nstacks:\n  default: scrapy:2.11-20241022\n"
    (project / "scrapinghub.yml").write_text(stack)
    (project / "requirements.txt").write_text("top\n")
    assert b"# stack: scrapy:2.11-20241022\ntop\n" in sent_with(gateway, run, project)
    body = sent_with(gateway, run, project, "--as-of", "2025-02-03")
    assert b"# exclude-newer: 2025-02-03\ntop\n" in body
    assert b"stack" not in body
    old = run("deploy", str(project), "--as-of", "2019-07-19")
    assert "there was no Scrapy on 2019-07-19 that a node can run: as of 2023-09-18" in old.stderr
    assert b"# exclude-newer: 2023-09-18\n" in gateway.asked("/projects/shop/versions")[-1].body
    done = run("deploy", str(project), "--as-of", "yesterday")
    assert (done.returncode, done.stderr) == (2, "error: --as-of: 'yesterday' is no date like 2024-10-22\n")


def test_it_waits_until_everything_is_installed_and_tells_what_the_installer_says(
    gateway: StandIn, run: Run, project: Path
) -> None:
    url = "/projects/shop/versions/1.4/dependencies"
    installing = {"project": "shop", "version": "1.4", "nodes": [], "dependencies_url": url}
    done = {"project": "shop", "version": "1.4", "spiders": 2, "nodes": [node("n1")]}
    error = {"code": "invalid_request", "message": "egg: the requirements cannot be met", "detail": None}
    gateway.says(
        "POST /projects/shop/versions", Answer(202, installing), Answer(200, done),
        Answer(202, installing), Answer(422, {"error": error, "request_id": "1"}),
    )  # fmt: skip
    building = {"node": "n1", "state": "building", "message": None, "packages": [], "log": "resolving\nunpacking\n"}
    ready = Answer(200, {"nodes": [{**building, "state": "ready"}]})
    gateway.says(f"GET {url}", *[Answer(200, {"nodes": [building]})] * 4, ready)
    told = run("deploy", str(project), "--version", "1.4")
    assert (told.returncode, told.stdout) == (0, "✓ n1: 2 spiders\nshop 1.4: 2 spiders\n")
    assert told.stderr == f"{NONE_DECLARED}n1: unpacking\n"
    refused = run("deploy", str(project), "--version", "1.4")
    assert (refused.returncode, refused.stderr) == (2, f"{NONE_DECLARED}error: egg: the requirements cannot be met\n")


def test_an_egg_whose_installation_takes_some_time_is_sent_once_and_its_installers_are_heard(
    gateway: StandIn, run: Run, project: Path
) -> None:
    url = "/projects/shop/versions/1.4/dependencies"
    done = {"project": "shop", "version": "1.4", "spiders": 2, "nodes": [node("n1")]}
    building = {"node": "n1", "state": "building", "message": None, "packages": [], "log": "resolving\nunpacking\n"}
    gateway.says("POST /projects/shop/versions", Answer(200, done, after=url))
    gateway.says(f"GET {url}", Answer(200, {"nodes": [building]}))
    told = run("deploy", str(project), "--version", "1.4")
    assert (told.returncode, told.stderr) == (0, f"{NONE_DECLARED}n1: unpacking\n")
    assert len(gateway.asked("/projects/shop/versions")) == 1


@pytest.mark.parametrize("line", ["Scrapy==2.5.1  # of 2021", "scrapy==2.5.1 --hash=sha256:00"])
def test_a_scrapy_that_no_node_can_run_is_told(gateway: StandIn, run: Run, project: Path, line: str) -> None:
    (project / "requirements.txt").write_text(f"top==1\n{line}\n")
    answer = {"project": "shop", "version": "1.4", "spiders": 2, "nodes": [node("n1")]}
    gateway.says("POST /projects/shop/versions", Answer(200, answer))
    told = run("deploy", str(project))
    assert "it asks for Scrapy ==2.5.1, which no node can run: it gets 2.11" in told.stderr
    assert told.returncode == 0


def test_the_settings_are_those_that_scrapys_own_commands_would_take(
    gateway: StandIn, run: Run, project: Path
) -> None:
    (project / "shop" / "lab.py").write_text("")
    (project / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\nlab = shop.lab\n")
    answer = {"project": "shop", "version": "1.4", "spiders": 2, "nodes": [node("n1")]}
    gateway.says("POST /projects/shop/versions", Answer(200, answer))
    for options, environment in (((), {}), (("--settings", "lab"), {}), ((), {"SCRAPY_PROJECT": "lab"})):
        assert run("deploy", str(project), *options, **environment).returncode == 0
    eggs = [zipfile.ZipFile(io.BytesIO(request.body)) for request in gateway.asked("/projects/shop/versions")]
    chosen = [egg.read("EGG-INFO/entry_points.txt").decode().split()[-1] for egg in eggs]
    assert chosen == ["shop.settings", "shop.lab", "shop.lab"]


def test_requirements_that_cannot_be_read_are_said_before_anything_is_sent(
    gateway: StandIn, run: Run, project: Path
) -> None:
    (project / "scrapinghub.yml").write_text("requirements:\n  file: nowhere.txt\n")
    done = run("deploy", str(project))
    assert done.returncode == 2
    assert "in nowhere.txt, which is not there" in done.stderr
    assert "--no-requirements" in done.stderr
    assert not gateway.requests
    (project / "requirements.txt").write_text("top==1\n")
    assert b"top==1\n" in sent_with(gateway, run, project)
