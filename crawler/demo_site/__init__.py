"""A small site about a lighthouse, with everything wrong that an audit should find. `python -m crawler.demo_site`."""
