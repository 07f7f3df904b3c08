"""A package, so that its stack is stopped once these tests are over."""
