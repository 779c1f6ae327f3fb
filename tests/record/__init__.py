"""The record: what must not change while the code is rearranged, written down before, compared afterwards.

logits.json   the logits of every shipped checkpoint in every mode; of the float ones also folded, fused, ...
groups.json   the channel groups of our network and of all of torchvision's, as one digest for each network
folds.json    which nodes fold into which layer in each network of the passes' zoo, and why a batch norm declines
networks.json how many nodes of each of torchvision's networks fold, and how many batch norms are left
marks.json    what each student of `grade demo` gets for each item

    python -m pytest tests/record                      compare; -m "not slow" for the fast part (half a minute)
    python -m tests.record logits folds                write these files anew (all of them when none is named)
    python -m tests.record --dump FOLDER               the channel groups in full, to diff two versions; renews nothing

The commit that renews a file says in its message why the behaviour changed. "It did not agree" is no reason.

Logits are compared bit for bit where the file has a hash from a processor like this one under the same torch; integer
arithmetic is the same everywhere; else the rounded numbers have to agree. Renewing adds the hashes of this machine.
"""
