"""Defaults and violations of LimitRanges: pure functions for admission, controllers and the CLI."""
