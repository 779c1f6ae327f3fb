from tests.exercises.trying import solution_of, try_answers


def test_weakest_channels():
    try_answers(
        "weakest_channels",
        "W, count",
        right=[
            "return W.abs().sum((1, 2, 3)).argsort()[:count]",
            "return W.flatten(1).norm(p=1, dim=1).topk(count, largest=False).indices.tolist()",
            solution_of("06", "weakest_channels"),
        ],
        wrong=[
            "return W.abs().sum((1, 2, 3)).argsort(descending=True)[:count]",
            "return W.sum((1, 2, 3)).argsort()[:count]",
            "return W.abs().amax((1, 2, 3)).argsort()[:count]",
            "return W.abs().sum((0, 2, 3)).argsort()[:count]",
            "return W.abs().sum((1, 2, 3)).argsort()[: count + 1]",
            "return list(range(count))",
        ],
    )


def test_prune_block():
    arguments = "W1, gamma, beta, mu, variance, W2, W3, keep"
    norm = "'gamma': gamma[keep], 'beta': beta[keep], 'mu': mu[keep], 'variance': variance[keep], "
    try_answers(
        "prune_block",
        arguments,
        right=[
            "return {'W1': W1[keep], " + norm + "'W2': W2[keep], 'W3': W3[:, keep]}",
            "return {'W1': W1.index_select(0, keep), "
            + norm
            + "'W2': W2[keep].clone(), 'W3': W3.index_select(1, keep)}",
            solution_of("06", "prune_block"),
        ],
        wrong=[
            "return {'W1': W1[keep], " + norm + "'W2': W2[keep], 'W3': W3[:, : len(keep)]}",
            "return {'W1': W1[keep], " + norm + "'W2': W2[: len(keep)], 'W3': W3[:, keep]}",
            "return {'W1': W1[: len(keep)], " + norm + "'W2': W2[keep], 'W3': W3[:, keep]}",
            "n = len(keep); return {'W1': W1[keep], 'gamma': gamma[:n], 'beta': beta[:n], 'mu': mu[:n], "
            "'variance': variance[:n], 'W2': W2[keep], 'W3': W3[:, keep]}",
            "return {'W1': W1[keep], " + norm + "'W2': W2[keep], 'W3': W3}",
            "return {'W1': W1, 'gamma': gamma, 'beta': beta, 'mu': mu, 'variance': variance, 'W2': W2, 'W3': W3}",
            "m = torch.zeros(len(W1)).double(); m[keep] = 1; return {'W1': W1, 'gamma': gamma, 'beta': beta, 'mu': mu, "
            "'variance': variance, 'W2': W2, 'W3': W3 * m[:, None, None]}",
        ],
    )
