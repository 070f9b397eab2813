"""`rampmeter checkpoints`: what stands under a root, whether it is whole, and what is done about it by hand.

Needs no torch. Everything may run beside a live job and beside itself: what is committed is read only, what is removed
goes through `removal`, what is adopted appears by one rename.
"""
