"""As `scrapy startproject` writes it, more or less."""

BOT_NAME = "plain"
SPIDER_MODULES = ["plain.spiders"]
NEWSPIDER_MODULE = "plain.spiders"
ROBOTSTXT_OBEY = True
CONCURRENT_REQUESTS_PER_DOMAIN = 1
DEPTH_LIMIT = 1
FEED_EXPORT_ENCODING = "utf-8"
