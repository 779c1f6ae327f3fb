MADE = "    optimizer = torch.optim.SGD(student.parameters(), lr=rate, momentum=0.9)\n"
ANEW = (MADE, "", "        for group in", "    " + MADE + "        for group in")

ANSWERS = {
    "recalibrated_statistics": {
        "right": [
            "m = torch.stack([b.mean((0, 2, 3)) for b in batches]).mean(0); "
            "return m, torch.stack([b.var((0, 2, 3)) for b in batches]).mean(0)",
            "norm = torch.nn.BatchNorm2d(3, momentum=None)\n"
            "for b in batches:\n"
            "    norm(b)\n"
            "return norm.running_mean, norm.running_var",
            "m, v = torch.zeros(3), torch.zeros(3)\n"
            "for b in batches:\n"
            "    m += b.mean((0, 2, 3)) / len(batches)\n"
            "    v += b.var((0, 2, 3)) / len(batches)\n"
            "return m, v",
        ],
        "wrong": [
            ("/ n", "/ 1"),
            ("((0, 2, 3))", "()"),
            (".var(", ".std("),
            ("(0, 2, 3)", "(1, 2, 3)"),
            "b = batches[-1]; return b.mean((0, 2, 3)), b.var((0, 2, 3), correction=0)",
            "x = torch.cat(batches) + 0.01; return x.mean((0, 2, 3)), x.var((0, 2, 3))",
            "x = torch.cat(batches); return x.mean((0, 2, 3)), x.var((0, 2, 3))",
        ],
        "base": "n = len(batches); return sum(b.mean((0, 2, 3)) for b in batches) / n, "
        "sum(b.var((0, 2, 3)) for b in batches) / n",
    },
    "distillation_loss": {
        "right": [
            "t = temperature; return t * t * F.kl_div(F.log_softmax(student / t, 1), "
            "F.softmax(teacher / t, 1), reduction='batchmean')",
        ],
        "wrong": [
            ("temperature**2 * ", ""),
            ("p * (p / q)", "q * (q / p)"),
            (" / temperature", " * temperature"),
            (" / temperature", ""),
            (".sum(1)", ""),
            ("temperature**2 * (p * (p / q)", "-temperature**2 * (p * q"),
            "return ((student - teacher) ** 2).mean()",
            (".sum(1).mean()", ".sum(1).mean().item()"),
            "student /= temperature\n"
            "p, q = (teacher / temperature).softmax(1), student.softmax(1)\n"
            "return temperature**2 * (p * (p / q).log()).sum(1).mean()",
            (".sum(1).mean()", ".sum(1).mean().detach()"),
        ],
        "base": "p = (teacher / temperature).softmax(1); q = (student / temperature).softmax(1); "
        "return temperature**2 * (p * (p / q).log()).sum(1).mean()",
    },
    "train_with_teacher": {
        "right": [
            (
                "        optimizer.zero_grad()\n",
                "",
                "optimizer.step()",
                "optimizer.step(); student.zero_grad()",
            ),
            ("    optimizer.zero_grad()\n", "    student.zero_grad()\n"),
        ],
        "wrong": [
            ("student.train()", "pass"),
            ("enumerate(batches)", "enumerate(list(batches))"),
            ("teacher.eval()", "teacher.train()"),
            ("        optimizer.zero_grad()\n", ""),
            ("= share *", "= (1 - share) *", "+ (1 - share)", "+ share"),
            ("4.0)", "1.0)"),
            ("1 - step / len(batches)", "1"),
            ("1 - step / len(batches)", "1 - (step + 1) / len(batches)"),
            (", momentum=0.9", ""),
            ANEW,
            ("return student.eval()", "return student"),
            ("distillation_loss(scores, wanted, 4.0)", "distillation_loss(wanted, scores, 4.0)"),
            ("with torch.no_grad():", "if True:"),
            ("return student.eval()", "return teacher"),
            ("return student.eval()", "student.eval()"),
            ("    student.train()", "    import copy; student = copy.deepcopy(student).train()"),
            (
                "(x, labels) in enumerate(batches):",
                "_ in enumerate(batches):\n        x, labels = batches[step]",
            ),
        ],
    },
}

TRIALS = {
    "recalibrated_statistics": [
        (
            "standard deviation|variance",
            "m = [b.mean((0, 2, 3)) for b in batches]; s = [b.std((0, 2, 3)) for b in batches]\n"
            "return sum(m) / len(m), sum(s) / len(s)",
        ),
        ("n - 1", ("batch.var((0, 2, 3))", "batch.var((0, 2, 3), correction=0)")),
        (
            "axis|axes|channel|image",
            "return (torch.stack([b.mean((2, 3)).sum(0) for b in batches]).mean(0),\n"
            "        torch.stack([b.var((0, 2, 3)) for b in batches]).mean(0))",
        ),
        (
            "last|every|all|average",
            "for b in batches:\n    m, v = b.mean((0, 2, 3)), b.var((0, 2, 3))\nreturn m, v",
        ),
        (
            "average|divide|number|mean",
            (
                "return sum(b.mean((0, 2, 3)) for b in batches), "
                "sum(b.var((0, 2, 3)) for b in batches)"
            ),
        ),
        (
            "each batch.*average",
            "x = torch.stack(batches)\nreturn x.mean((0, 1, 3, 4)), x.var((0, 1, 3, 4))",
        ),
    ],
    "distillation_loss": [
        (
            r"T squared|square|temperature\*\*2",
            "q = (student / temperature).log_softmax(1)\n"
            "return F.kl_div(q, (teacher / temperature).softmax(1), reduction='batchmean')",
        ),
        ("teacher|exchange|swap|direction|other way", ("p * (p / q).log()", "q * (q / p).log()")),
        (
            "temperature|soft",
            "p, q = teacher.softmax(1), student.softmax(1)\n"
            "return temperature**2 * (p * (p / q).log()).sum(1).mean()",
        ),
        (
            "sum|class|mean|average",
            ("(p * (p / q).log()).sum(1).mean()", "(p * (p / q).log()).mean()"),
        ),
        (
            "sum|image|mean|average",
            ("(p * (p / q).log()).sum(1).mean()", "(p * (p / q).log()).sum()"),
        ),
    ],
    "train_with_teacher": [
        ("train", ("    student.train()\n", "    student.eval()\n")),
        ("teacher.*(eval|mode)", ("    teacher.eval()\n", "    teacher.train()\n")),
        ("zero_grad|gradient", ("        optimizer.zero_grad()\n", "")),
        (
            "first|step|rate|falls",
            ("rate * (1 - step / len(batches))", "rate * (1 - (step + 1) / len(batches))"),
        ),
        (
            "shares the wrong way",
            (
                "share * distillation_loss(scores, wanted, 4.0) + (1 - share)",
                "(1 - share) * distillation_loss(scores, wanted, 4.0) + share",
            ),
        ),
        ("eval", ("return student.eval()", "return student")),
        ("rate|falls", ("rate * (1 - step / len(batches))", "rate")),
        ("optimizer.*(once|before the loop)", ANEW),
        ("momentum", (", momentum=0.9", "")),
    ],
}
