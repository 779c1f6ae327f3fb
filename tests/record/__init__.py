"""The record: what must not change while the code is rearranged, written down before and compared
afterwards.

logits.json    of every shipped checkpoint in every mode; of the float ones also folded and fused
groups.json    the channel groups of our network and of all of torchvision's, a digest for each
network
folds.json     what folds into which layer in each network of the passes' zoo, and why a batch norm
declines
networks.json  how many nodes of each of torchvision's networks fold by each route, and how many
batch norms are left
marks.json     what each student of `grade demo` gets for each item

    python -m pytest tests/record               compare; -m "not slow" for the fast part, -k logits
    for a part
    python -m tests.record logits folds         write these files anew; without a name all of them

The commit that renews a file says in its message why the behaviour changed; "the test was red" is
no reason.

Logits are compared bit for bit where the file has a hash from a processor like this one under the
same torch, integer arithmetic everywhere; elsewhere the rounded numbers have to agree. Renewing
adds the hashes of the machine it runs on.
"""
