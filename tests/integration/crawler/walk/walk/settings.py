"""A project that knows nothing of the platform."""

BOT_NAME = "walk"
SPIDER_MODULES = ["walk.spiders", "walk.failing"]
ROBOTSTXT_OBEY = False
RETRY_TIMES = 3
ITEM_PIPELINES = {"walk.spiders.SlowPipeline": 100}
