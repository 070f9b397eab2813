"""A small world on a manual clock: training jobs, a storage and time, around the real ledger, pacer and lease clock.

It finds faults of control loops that no single decision shows. Decides nothing itself: what is measured here is what
the coordinator's `model` and the agent's `core` do.
"""
