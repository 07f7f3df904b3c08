"""What goes over the wire: requests are strict, answers are models, times are UTC with a `Z`."""
