"""The laptop stack: finds or brings the stores, starts the platform's processes and keeps them running."""
