"""Modules that an egg imports and that are missing: advice about them, and the distributions that a lenient node may
add (`ADDABLE`).
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from importlib.util import find_spec

from crawler.node.projects import UnpackedEgg
from gateway.contract.requirements import ELSEWHERE

#: Modules whose distribution has another name (in the name of a distribution, `-` and `_` are the same).
_DISTRIBUTIONS = {
    "Crypto": "pycryptodome",
    "Cryptodome": "pycryptodomex",
    "MySQLdb": "mysqlclient",
    "OpenSSL": "pyOpenSSL",
    "PIL": "Pillow",
    "allauth": "django-allauth",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "bson": "pymongo",
    "camelot": "camelot-py",
    "cassandra": "cassandra-driver",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "dynamic_scraper": "django-dynamic-scraper",
    "environ": "django-environ",
    "factory": "factory-boy",
    "fitz": "PyMuPDF",
    "git": "GitPython",
    "googleapiclient": "google-api-python-client",
    "gridfs": "pymongo",
    "jwt": "PyJWT",
    "kafka": "kafka-python",
    "magic": "python-magic",
    "mysql": "mysql-connector-python",
    "newspaper": "newspaper3k",
    "pdfminer": "pdfminer.six",
    "pkg_resources": "setuptools<81",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "pymysql": "PyMySQL",
    "readability": "readability-lxml",
    "rest_framework": "djangorestframework",
    "rotating_proxies": "scrapy-rotating-proxies",
    "scrapfly": "scrapfly-sdk",
    "scrapyd_api": "python-scrapyd-api",
    "seleniumwire": "selenium-wire",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "snowflake": "snowflake-connector-python",
    "socks": "PySocks",
    "tabula": "tabula-py",
    "telegram": "python-telegram-bot",
    "twocaptcha": "2captcha-python",
    "websocket": "websocket-client",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}
#: Well-known distributions that have the name of their module: the most frequent imports of Scrapy projects, and what
#: Scrapy Cloud's images have.
_OF_THE_SAME_NAME = frozenset(
    {
        *("aiofiles", "aiohttp", "arrow", "autopager", "bleach", "boto", "boto3", "botocore", "cachetools"),
        *("celery", "certifi", "chardet", "chompjs", "click", "cloudscraper", "colorama", "crochet"),
        *("cryptography", "curl_cffi", "dateparser", "django", "elasticsearch", "emoji", "extruct"),
        *("fake_useragent", "faker", "feedparser", "flask", "formasaurus", "furl", "fuzzywuzzy", "geopandas"),
        *("geopy", "gerapy_pyppeteer", "gerapy_selenium", "googletrans", "gspread", "happybase", "hjson"),
        *("html2text", "html5lib", "httpx", "hubstorage", "ijson", "jinja2", "js2xml", "jsonlines"),
        *("jsonpath_ng", "jsonschema", "klein", "langdetect", "loguru", "markdown", "matplotlib", "mongoengine"),
        *("motor", "msgpack"),
        *("nameparser", "networkx", "nltk", "numpy", "openpyxl", "oracledb", "pandas", "paramiko", "pdfplumber"),
        *("peewee", "phonenumbers", "pika", "playwright", "price_parser", "psutil", "psycopg", "pycountry"),
        *("pydantic", "pymongo", "pyodbc", "pypdf", "PyPDF2", "pyppeteer", "pyquery", "pysolr", "pytesseract"),
        *("pytz", "rapidfuzz", "redis", "regex", "requests", "requests_html", "scipy", "scrapeops_scrapy"),
        *("scrapeops_scrapy_proxy_sdk", "scrapingbee", "scrapinghub", "scrapy_crawlera", "scrapy_deltafetch"),
        *("scrapy_djangoitem", "scrapy_fake_useragent", "scrapy_playwright", "scrapy_poet", "scrapy_proxies"),
        *("scrapy_redis", "scrapy_scrapingbee", "scrapy_selenium", "scrapy_splash", "scrapy_user_agents"),
        *("scrapy_zyte_api", "scrapy_zyte_smartproxy", "scrapyd", "selenium", "sentry_sdk", "shapely"),
        *("simplejson", "six", "spacy", "spidermon", "sqlalchemy", "stem", "structlog", "tabulate", "tenacity"),
        *("textblob", "toml", "tqdm", "trafilatura", "tweepy", "ujson", "undetected_chromedriver", "unidecode"),
        *("urllib3", "usaddress", "validators", "web_poet", "webdriver_manager", "websockets", "xlrd"),
        *("xlsxwriter", "xlwt", "xmltodict", "zeep", "zyte_api", "zyte_common_items", "zyte_spider_templates"),
    }
)
#: Distribution by module. Any other name is a guess: somebody may have uploaded another package under a module's
#: name.
_WELL_KNOWN = {**{module: module.replace("_", "-") for module in _OF_THE_SAME_NAME}, **_DISTRIBUTIONS}
#: All that a node may add to a project's declared requirements.
ADDABLE = frozenset(_WELL_KNOWN.values())
#: What a node may add in the place of a distribution that cannot be built there: it has the same interface
#: (`crawler.node.former_names` finds its module by the other name).
INSTEAD = {"mysqlclient": "PyMySQL"}
#: Namespace packages, which many distributions share.
_NAMESPACES = frozenset({"azure", "google", "zope"})
#: Modules of Python 2 that Python 3 does not have.
OF_PYTHON_2 = frozenset(
    {"ConfigParser", "HTMLParser", "Queue", "StringIO", "cPickle", "httplib", "urllib2", "urlparse"}
)


def advice_on_missing(missing: str, egg: UnpackedEgg) -> str:
    """What to do about `missing`, the first part of a module's name, which is neither in the egg nor installed."""
    if missing in OF_PYTHON_2:
        return f". {missing} was a module of Python 2, for which the project is written: crawls need Python 3"
    if (place := _elsewhere(egg).get(missing)) is not None:
        return f". It is the project's own ({place}) and not in the egg: have git track it, beside scrapy.cfg"
    if place := inside(missing, egg):
        return f". It is the project's own: import it as {place}"
    return (
        f". Add {distribution_of(missing)} to the project's requirements (requirements.txt, pyproject.toml …), which "
        "`discoverybot deploy` sends, or put it into the egg (scrapyd-deploy --include-dependencies); if it is a "
        "file of the project's own, have git track it, beside scrapy.cfg"
        f"{_also_missing(missing, egg)}"
    )


def undeclared(missing: str, egg: UnpackedEgg) -> str | None:
    """The well-known distribution that surely has `missing`; `None` for any other module, and for the egg's own."""
    is_own = missing in _elsewhere(egg) or inside(missing, egg) is not None
    return None if is_own else _WELL_KNOWN.get(missing)


def distribution_of(module: str) -> str:
    """The name of the package that probably has the module, guessed from the module's name."""
    if module in _NAMESPACES:
        return f"the distribution of {module}.…"
    return _WELL_KNOWN.get(module, module)


def _elsewhere(egg: UnpackedEgg) -> dict[str, str]:
    """Modules of the project that are missing in the egg although they are in its source, with their paths."""
    with suppress(OSError, UnicodeDecodeError):
        lines = (egg.path / ELSEWHERE).read_text("utf-8").splitlines()
        return dict(line.partition(" ")[::2] for line in lines)
    return {}


def inside(module: str, egg: UnpackedEgg) -> str | None:
    """The module's full name in the egg if it is inside a package there."""
    found = [*egg.path.glob(f"*/**/{module}.py"), *egg.path.glob(f"*/**/{module}/__init__.py")]
    names = (".".join(path.relative_to(egg.path).with_suffix("").parts) for path in sorted(found))
    return next((name.removesuffix(".__init__") for name in names), None)


#: `import a.b` and `from a.b import c` without indentation: an import in a `try` or in a function may be optional.
_IMPORT = re.compile(rb"^(?:import|from) +([A-Za-z]\w*)(?=[\w.]*(?: +import\b| +as\b| *[,#\r]| *$))", re.MULTILINE)
#: How many modules are named in a message.
_NAMED = 8


def _also_missing(missing: str, egg: UnpackedEgg) -> str:
    """The other modules that the project imports and the node lacks, so that the user learns of all at once."""
    imported = {name.decode() for path in egg.path.rglob("*.py") for name in _IMPORT.findall(path.read_bytes())}
    there = {missing, *egg.packages, *sys.stdlib_module_names, *_elsewhere(egg), *OF_PYTHON_2}
    names = sorted(name for name in imported - there if find_spec(name) is None and not inside(name, egg))
    more = f" and {len(names) - _NAMED} others" if len(names) > _NAMED else ""
    named = ", ".join(map(distribution_of, names[:_NAMED]))
    are = "is" if len(names) == 1 else "are"
    return f". It also imports {named}{more}, which {are} missing, too" if names else ""
