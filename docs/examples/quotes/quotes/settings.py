SPIDER_MODULES = ["quotes.spiders"]
DOWNLOAD_DELAY = 0.25
