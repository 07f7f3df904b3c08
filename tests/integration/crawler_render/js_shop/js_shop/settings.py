"""A project of somebody else's that uses scrapy-playwright as its manual says, and more than it should."""

BOT_NAME = "js_shop"
SPIDER_MODULES = ["js_shop.spiders"]
DOWNLOAD_HANDLERS = {
    "http": "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler",
    "https": "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler",
}
USER_AGENT = "JsShop/1"
PLAYWRIGHT_CONTEXTS = {
    "english": {"locale": "en-GB"},
    "direct": {"proxy": {"server": "direct://"}, "service_workers": "allow"},
}
PLAYWRIGHT_LAUNCH_OPTIONS = {
    "executable_path": "/nowhere/chromium",
    "headless": False,
    "args": [
        "--no-proxy-server",
        "-no-proxy-server",
        "--proxy-bypass-list=*",
        "--window-size=900,700",
        "--remote-debugging-port=0",
    ],
}
PLAYWRIGHT_CDP_URL = "http://127.0.0.1:9222"
ROBOTSTXT_OBEY = False
