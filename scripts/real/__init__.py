"""Checks on hardware that a user names: `scripts/real-power-cut` and `scripts/real-disk`.

A power cut has two sides. The *target* has the disk; the *controller* is another computer that
switches the target's supply.

    target      connects, mounts, judges what the cut left, then writes and reports each sync
    session     one connection of it; `volume` mounts, `judge` compares, `writer` writes
    controller  keeps what was reported, cuts at random moments, writes the results
    lines       what the two say to each other
    history     what is written: a seed determines it, so only numbers are reported

`acknowledged` and `results` are the controller's two files. `disk` and `machine` name what was
tested. `measure` is `scripts/real-disk`.
"""
