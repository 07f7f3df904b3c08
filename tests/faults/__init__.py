"""A package, so that its platform is stopped once these tests are over."""
