ANSWERS = {
    "fill_up": {
        "right": [
            ("W1.new_zeros(", "torch.randn("),  # nobody reads these channels
            "pad, more = torch.nn.functional.pad, -len(W1) % multiple\n"
            "return pad(W1, [0] * 7 + [more]), pad(b1, [0, more]), pad(W2, [0] * 5 + [more])",
        ],
        "wrong": [
            ("-len(W1) % multiple", "multiple - len(W1) % multiple"),
            ("-len(W1) % multiple", "0"),
            ("-len(W1) % multiple", "-len(W1) % 8"),
            ("[W1, rows]", "[rows, W1]"),
            ("[W2, columns]", "[columns, W2]"),
            (
                *("[W1, rows]", "[rows, W1]", "[W2, columns]", "[columns, W2]"),
                *("[b1, b1.new_zeros(more)]", "[b1.new_zeros(more), b1]"),
            ),
            ("[W2, columns], 1)", "[W2, columns])"),
            ("torch.cat([W2, columns], 1)", "torch.cat([W2, W2.new_zeros(more, len(W1), 1, 1)])"),
            ("b1.new_zeros(", "torch.ones(", "W2.new_zeros(", "torch.ones("),
            "return W1, b1, W2",
        ],
    },
    "keep_blocks": {
        "right": [
            "n = len(importance); k = n - int(n * ratio)\n"
            "while k % multiple and k < n: k += 1\n"
            "return sorted(importance.topk(k).indices.tolist())",
            (".sort().values", ".sort().values.tolist()"),
        ],
        "wrong": [
            ("descending=True", "descending=False"),
            (".sort().values", ""),
            ("min(size, ", "min(size - multiple, "),
            ("-(-least // multiple)", "(least // multiple)"),
            ("-(-least // multiple) * multiple", "least"),
            ("size - int(size * ratio)", "int(size * ratio)"),
            ("-(-least // multiple)", "(least // multiple + 1)"),
        ],
    },
}

TRIALS = {
    "fill_up": [
        (
            "already|multiple|0 where|none",
            "more = multiple - len(W1) % multiple\n"
            "return (F.pad(W1, [0] * 7 + [more]), F.pad(b1, [0, more]), "
            "F.pad(W2, [0] * 5 + [more]))",
        ),
        (
            "behind|end|after|front|order",
            "more = -len(W1) % multiple\n"
            "return (F.pad(W1, [0] * 6 + [more, 0]), F.pad(b1, [more, 0]),\n"
            "        F.pad(W2, [0] * 5 + [more]))",
        ),
        (
            "column|W2|axis|second",
            "more = -len(W1) % multiple\n"
            "return F.pad(W1, [0] * 7 + [more]), F.pad(b1, [0, more]), W2",
        ),
        (
            "axis 1",
            "more = -len(W1) % multiple\n"
            "W1 = torch.cat([W1, torch.zeros(more, *W1.shape[1:])])\n"
            "b1 = torch.cat([b1, torch.zeros(more)])\n"
            "return W1, b1, torch.cat([W2, torch.zeros(more, *W2.shape[1:])])",
        ),
        ("beside.*axis 1", ("[W2, columns], 1)", "[W2, columns])")),
    ],
    "keep_blocks": [
        ("up|down", ("-(-least // multiple) * multiple", "least // multiple * multiple")),
        ("sort|order|ascending", ("[:count].sort().values", "[:count]")),
        ("most|least important|largest|descending", ("descending=True", "descending=False")),
        ("remov|keep|ratio|share", ("size - int(size * ratio)", "int(size * ratio)")),
        ("multiple", ("min(size, -(-least // multiple) * multiple)", "least")),
    ],
}
