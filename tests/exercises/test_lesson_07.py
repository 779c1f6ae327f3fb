from tests.exercises.trying import solution_of, try_answers


def test_measure_again():
    try_answers(
        "measure_again",
        "batches",
        right=[
            "m = torch.stack([b.mean((0, 2, 3)) for b in batches]).mean(0); "
            "return m, torch.stack([b.var((0, 2, 3)) for b in batches]).mean(0)",
            "flat = [b.transpose(0, 1).flatten(1) for b in batches]; n = len(flat); "
            "return sum(f.mean(1) for f in flat) / n, sum(f.var(1) for f in flat) / n",
            solution_of("07", "measure_again"),
        ],
        wrong=[
            "b = batches[-1]; return b.mean((0, 2, 3)), b.var((0, 2, 3), correction=0)",
            "x = torch.cat(batches) + 0.01; return x.mean((0, 2, 3)), x.var((0, 2, 3))",
            "return sum(b.mean((0, 2, 3)) for b in batches), sum(b.var((0, 2, 3)) for b in batches) + 1",
            "n = len(batches); return sum(b.mean() for b in batches) / n, sum(b.var() for b in batches) / n",
            "n = len(batches); return sum(b.mean((0, 2, 3)) for b in batches) / n, "
            "sum(b.std((0, 2, 3)) for b in batches) / n",
            "n = len(batches); return sum(b.mean((1, 2, 3)) for b in batches) / n, "
            "sum(b.var((1, 2, 3)) for b in batches) / n",
        ],
    )


def test_distillation_loss():
    try_answers(
        "distillation_loss",
        "student, teacher, temperature",
        right=[
            "p = (teacher / temperature).softmax(1); q = (student / temperature).softmax(1); "
            "return temperature**2 * (p * (p / q).log()).sum(1).mean()",
            "t = temperature; return t * t * F.kl_div(F.log_softmax(student / t, 1), F.softmax(teacher / t, 1), "
            "reduction='batchmean')",
            solution_of("07", "distillation_loss"),
        ],
        wrong=[
            "p = (teacher / temperature).softmax(1); q = (student / temperature).softmax(1); "
            "return (p * (p / q).log()).sum(1).mean()",
            "p = (teacher / temperature).softmax(1); q = (student / temperature).softmax(1); "
            "return temperature**2 * (q * (q / p).log()).sum(1).mean()",
            "p = (teacher * temperature).softmax(1); q = (student * temperature).softmax(1); "
            "return temperature**2 * (p * (p / q).log()).sum(1).mean()",
            "p = teacher.softmax(1); q = student.softmax(1); return temperature**2 * (p * (p / q).log()).sum(1).mean()",
            "p = (teacher / temperature).softmax(1); q = (student / temperature).softmax(1); "
            "return temperature**2 * (p * (p / q).log()).mean()",
            "return ((student - teacher) ** 2).mean()",
            "p = (teacher / temperature).softmax(1); q = (student / temperature).softmax(1); "
            "return -temperature**2 * (p * q.log()).sum(1).mean()",
        ],
    )


def test_train_with_teacher():
    body = """
student.train()
teacher.eval()
optimizer = torch.optim.SGD(student.parameters(), lr=rate, momentum=0.9)
for step, (x, labels) in enumerate(batches):
    for group in optimizer.param_groups:
        group["lr"] = rate * (1 - step / len(batches))
    with torch.no_grad():
        wanted = teacher(x)
    scores = student(x)
    soft = distillation_loss(scores, wanted, 4.0)
    loss = share * soft + (1 - share) * F.cross_entropy(scores, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
return student.eval()"""
    try_answers(
        "train_with_teacher",
        "student, teacher, batches, rate, share",
        right=[
            body,
            body.replace("    optimizer.zero_grad()\n", "").replace(
                "optimizer.step()", "optimizer.step(); student.zero_grad()"
            ),
            solution_of("07", "train_with_teacher"),
        ],
        wrong=[
            body.replace("student.train()", "pass"),
            body.replace("teacher.eval()", "teacher.train()"),
            body.replace("    optimizer.zero_grad()\n", ""),
            body.replace("share * soft + (1 - share)", "(1 - share) * soft + share"),
            body.replace("4.0)", "1.0)"),
            body.replace("1 - step / len(batches)", "1"),
            body.replace("1 - step / len(batches)", "1 - (step + 1) / len(batches)"),
            body.replace(", momentum=0.9", ""),
            body.replace("return student.eval()", "return student"),
            body.replace("distillation_loss(scores, wanted, 4.0)", "distillation_loss(wanted, scores, 4.0)"),
            body.replace("return student.eval()", "return teacher"),
        ],
    )
