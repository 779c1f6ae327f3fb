ONE_BY_ONE = """
W1, b1, W2 = W1.clone(), b1.clone(), W2.clone()
for i in range(len(W1)):
    a, b = W1[i].abs().max(), W2[:, i].abs().max()
    if a * b > 0:
        k = (a / b) ** 0.5
        W1[i] /= k
        b1[i] /= k
        W2[:, i] *= k
return W1, b1, W2
"""
ADAROUND = """
low = torch.floor(W / scale)
v = torch.logit((W / scale - low + 0.1) / 1.2).requires_grad_()
nearest = (x @ (scale * torch.round(W / scale) - W).T).square().mean()
optimizer = torch.optim.Adam([v], lr=0.05)
for step in range(300):
    h = (1.2 * torch.sigmoid(v) - 0.1).clamp(0, 1)
    loss = (x @ (scale * (low + h) - W).T).square().mean() / nearest
    if step > 60:
        beta = 20 - 18 * step / 300
        loss = loss + 0.01 * (1 - (2 * h - 1).abs() ** beta).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
return (scale * (low + (v > 0))).detach()
"""
SOLVED = """
codes, seen = torch.round(W / scale), x.T @ x
for _ in range(3):
    for j in range(W.shape[1]):
        wrong = scale * codes - W
        wrong[:, j] = 0
        best = W[:, j] - (wrong @ seen[j]) / seen[j, j]
        low = torch.floor(W[:, j] / scale[:, 0])
        codes[:, j] = torch.round(best / scale[:, 0]).clamp(low, low + 1)
return scale * codes
"""
OWN_SLOPE = """
class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q):
        return torch.round(q)

    @staticmethod
    def backward(ctx, slope):
        return slope


def fake_quantize(x, scale, zero_point, first, last):
    codes = Round.apply(x / scale) + zero_point
    return (torch.clamp(codes, first, last) - zero_point) * scale
"""

ANSWERS = {
    "equalize": {
        "right": [
            ONE_BY_ONE,
            ("torch.sqrt(rows / columns)", "(rows * columns).sqrt() / columns"),
        ],
        "wrong": [
            ("b1 / k", "b1"),
            ("W2 * k", "W2 / k"),
            ("torch.sqrt(rows / columns)", "rows / columns"),
            ("(rows > 0) & (columns > 0)", "rows > -1"),
            ("W2.abs().amax((0, 2, 3))", "W2.amax((0, 2, 3)).clamp(min=1e-6)"),
            ("W1.abs()", "W1.square()"),
            ("torch.sqrt(rows / columns)", "torch.sqrt(columns / rows)"),
            "return W1, b1, W2",
            ("b1 / k", "b1.div_(k)"),
            ONE_BY_ONE.replace("W1, b1, W2 = W1.clone(), b1.clone(), W2.clone()", ""),
        ],
    },
    "learn_rounding": {
        "right": [ADAROUND, SOLVED, ("range(3)", "range(2)")],
        "wrong": [
            "return scale * torch.round(W / scale)",
            "return scale * torch.floor(W / scale)",
            "return W",
            "low = torch.floor(W / scale); return scale * (low + torch.bernoulli(W / scale - low))",
            ("return scale * codes", "return codes"),
            ("errors[1] < errors[0]", "errors[1] > errors[0]"),
            (".mean(0)", ".mean()"),
            ("low[:, j] + 1)", "low[:, j] + 2)", "(errors[1]", "2 * (errors[1]"),
            "own = W.abs().amax(1, keepdim=True) / 3\nreturn own * torch.round(W / own)",
            ADAROUND.replace("low + (v > 0)", "low + h"),
            ADAROUND.replace("    optimizer.step()\n", ""),
            "s = torch.linalg.lstsq(x, x @ W.T).solution.T; return scale * torch.round(s / scale)",
            (
                "return scale * torch.round(W / scale - (W / scale - "
                "torch.round(W / scale)).mean(1, keepdim=True))"
            ),
        ],
    },
    "fake_quantize": {
        "right": [
            OWN_SLOPE,
            "q = x / scale\nq = q + (torch.round(q) - q).detach()\n"
            "return scale * ((q + zero_point).clamp(first, last) - zero_point)",
        ],
        "wrong": [
            ("(hard - soft).detach()", "(hard - soft)"),
            ("(hard - soft).detach()", "0"),
            (".clamp(first, last)", ""),
            ("scale * (", "1 * ("),
            (" + zero_point", " - zero_point"),
            ("soft = (x / scale + zero_point).clamp(first, last)", "soft = x / scale + zero_point"),
            "y = scale * ((torch.round(x / scale) + zero_point).clamp(first, last) - zero_point)\n"
            "return x + (y - x).detach()",
            "q = x / scale + zero_point\nq = q + (torch.round(q) - q).detach()\n"
            "return scale * (q.clamp(first + 1, last) - zero_point)",
            "return torch.round(x / scale) * scale",
        ],
    },
}

TRIALS = {
    "equalize": [
        ("b1|bias", ("b1 / k, ", "b1, ")),
        ("root|sqrt", ("torch.sqrt(rows / columns)", "rows / columns")),
        (
            r"\b0\b|zero|dead",
            (
                "torch.where((rows > 0) & (columns > 0), torch.sqrt(rows / columns), 1)",
                "torch.sqrt(rows / columns)",
            ),
        ),
        ("multipl|W2|opposite|undo", ("W2 * k[:, None, None]", "W2 / k[:, None, None]")),
        ("absolute|abs|negative|sign", ("W2.abs().amax", "W2.amax")),
        (
            "other way|upside|swap|invert|r1 / r2|larger",
            ("torch.sqrt(rows / columns)", "torch.sqrt(columns / rows)"),
        ),
    ],
    "learn_rounding": [
        ("nearest|output", "return scale * torch.round(W / scale)"),
        ("codes.*scale", ("return scale * codes", "return codes")),
        ("codes.*scale", ("return scale * codes", "return codes", "range(3)", "range(5)")),
        ("row|sample", (".mean(0)", ".mean()")),
        ("error|smaller|better", ("errors[1] < errors[0]", "errors[1] > errors[0]")),
    ],
    "fake_quantize": [
        (
            "slope|gradient|backward|detach",
            (
                "return scale * ((torch.round(x / scale) + zero_point).clamp(first, last) - "
                "zero_point)"
            ),
        ),
        (
            "clamp|outside|range",
            "y = scale * ((torch.round(x / scale) + zero_point).clamp(first, last) - zero_point)\n"
            "return x + (y - x).detach()",
        ),
        (
            "zero.point",
            "hard = (torch.round(x / scale) + zero_point).clamp(first, last)\n"
            "soft = (x / scale + zero_point).clamp(first, last)\n"
            "return scale * (soft + (hard - soft).detach())",
        ),
        (
            "round|value",
            "return scale * ((x / scale + zero_point).clamp(first, last) - zero_point)",
        ),
        (
            "clamp|range|first",
            "q = x / scale + zero_point\n"
            "q = q + (torch.round(q) - q).detach()\n"
            "return scale * (q - zero_point)",
        ),
    ],
}
