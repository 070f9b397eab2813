"""Looks before a save whether it can be made at all: what would fail is not attempted, and the job is told why."""
