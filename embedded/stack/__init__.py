"""The laptop stack: finds the stores or starts its own, starts the platform's processes and keeps them running."""
