"""The bodies and parameters of the API: requests are strict, answers are models, times are UTC with a `Z`."""
