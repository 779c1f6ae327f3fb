// A ruler with few marks. Above, what the code of each x stands for: a staircase, with the marks of
// the ruler at its left; below, the error. One x is followed through both.
function figure(fig, { scale, zero, bits, x }) {
  const n = fig.slider("Bits", { min: 2, max: 4, step: 1, value: bits });
  const s = fig.slider("Scale", { min: 0.1, max: 2, step: 0.1, value: scale }, (v) => v.toFixed(1));
  const z = fig.slider("Zero point", { min: 0, max: 15, step: 1, value: zero });
  const at = fig.slider("x", { min: -3, max: 4, step: 0.05, value: x }, minus);
  const code = (v) => clamp(roundEven(v / s.value) + z.value, 0, 2 ** n.value - 1);
  const real = (q) => s.value * (q - z.value);
  let place;
  fig.pointer((pressed) => (at.value = clamp(place(pressed), -3, 4)));

  fig.draw = (width, svg) => {
    const last = 2 ** n.value - 1;
    z.input.max = last;
    z.value = Math.min(z.value, last);
    const [left, right] = [64, width - 14];
    const across = linear([-3, 4], [left, right]);
    place = linear([left, right], [-3, 4]);
    const up = linear([-4, 5], [250, 26]); // a value lies at most half a step beyond what is drawn
    const down = linear([-2, 2], [368, 292]);

    const codes = Array.from({ length: last + 1 }, (_, q) => q);
    const marks = codes.filter((q) => real(q) >= -4 && real(q) <= 5);
    const ruler = marks.map((q) => `M${left - 30} ${up(real(q))}h18`).join("");
    add(svg, "path", { d: `M${left - 30} ${up(-4)}V${up(5)}`, stroke: "var(--rule)" });
    add(svg, "path", { d: ruler, stroke: "var(--accent)", "stroke-width": 2 });
    if (up(0) - up(s.value) > 13)
      for (const q of marks) {
        const text = { x: left - 36, y: up(real(q)) + 4.5, "text-anchor": "end" };
        add(svg, "text", { ...text, style: "fill: var(--accent)" }, q);
      }
    add(svg, "text", { x: 0, y: 12, class: "muted" }, "codes, and the values they stand for");
    add(svg, "text", { x: 0, y: down(2) - 8, class: "muted" }, "error");

    const diagonal = `M${across(-3)} ${up(-3)}L${across(4)} ${up(4)}`;
    add(svg, "path", { d: diagonal, stroke: "var(--muted)", "stroke-dasharray": "5 4" });
    add(svg, "path", { d: `M${left} ${down(0)}H${right}`, stroke: "var(--rule)" });
    const itself = { x: right, y: up(4) - 8, "text-anchor": "end", class: "muted" };
    add(svg, "text", itself, "x itself");
    // From each edge to the next the code is the same, and so is its value.
    const edges = codes.slice(1).map((q) => real(q - 0.5));
    const ends = [-3, ...edges.filter((v) => v > -3 && v < 4), 4];
    let stairs = "";
    let errors = "";
    ends.slice(1).forEach((to, i) => {
      const from = ends[i];
      const value = real(code((from + to) / 2));
      stairs += `${i ? "L" : "M"}${across(from)} ${up(value)}H${across(to)}`;
      const [first, end] = [Math.max(from, value - 2.2), Math.min(to, value + 2.2)]; // in sight
      if (first < end)
        errors +=
          `M${across(first)} ${down(value - first)}L${across(end)} ${down(value - end)}`;
    });
    const drawn = { fill: "none", "stroke-width": 2.5 };
    add(svg, "path", { d: stairs, stroke: "var(--accent)", ...drawn });
    add(svg, "path", { d: errors, stroke: "var(--bad)", ...drawn });

    const [value, error] = [real(code(at.value)), real(code(at.value)) - at.value];
    const [px, py] = [across(at.value), up(value)];
    const path = `M${px} ${down(-2)}V${py}H${left - 12}`;
    add(svg, "path", { d: path, fill: "none", stroke: "var(--ink)", "stroke-dasharray": "2 3" });
    add(svg, "circle", { cx: px, cy: py, r: 6, fill: "var(--ink)" });
    if (Math.abs(error) <= 2.2)
      add(svg, "circle", { cx: px, cy: down(error), r: 6, fill: "var(--ink)" });
    axis(svg, down(-2) + 6, across, [-3, -2, -1, 0, 1, 2, 3, 4], "x", (v) => minus(v, 0));

    const half = s.value / 2;
    const told =
      Math.abs(error) > half + 1e-9
        ? "It lies beyond the last mark, where the error has no limit."
        : `Between the marks an error is at most half a step, ${half.toFixed(2)}.`;
    fig.say(
      `x = ${minus(at.value)} gets code ${code(at.value)}, which stands for ${minus(value)}:` +
        ` the error is ${minus(error)}. ${told}`,
      { x: at.value, code: code(at.value), value, error, low: real(0), high: real(last) },
    );
    return down(-2) + 48;
  };
}
