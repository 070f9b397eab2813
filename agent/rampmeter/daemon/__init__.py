"""A save written by a process beside training: thousands of small tensors then cost training no interpreter time.

`arena` the memory with the snapshot, `parcel` what is handed over; `flow` and `tidings` the two cells; `hired` the
process as training sees it, `guardian` who watches over it, `following` how it goes along with a save; `serving` and
`flushing` run inside of it. Of a job of many ranks `circle` is the group of the writers, `relay` what they hear of
the meeting of the ranks, which stays with training.

Not torch's own checkpoint daemon: that one needs an initialised process group, runs a broadcast on the training thread,
imports the training script once more, takes a descriptor and a piece of /dev/shm for each tensor, and waits for ever.
"""
