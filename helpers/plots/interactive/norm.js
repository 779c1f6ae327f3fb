// BatchNorm moves and stretches a histogram: y with mean mu and deviation sigma becomes
// a y + c. The line in the middle takes each y, below, to its z, at the left; mu goes to beta.
function figure(fig, { y, eps }) {
  const mean = sum(y) / y.length;
  const deviation = Math.sqrt(sum(y.map((value) => (value - mean) ** 2)) / y.length);
  const shown = (x) => minus(x, 1);
  const nearest = (x) => (Math.round(x * 10) / 10).toFixed(1);
  const gamma = fig.slider("gamma", { min: -3, max: 3, step: 0.1, value: 1 }, shown);
  const beta = fig.slider("beta", { min: -3, max: 3, step: 0.1, value: 0 }, shown);
  const mu = fig.slider("mu", { min: -4, max: 4, step: 0.1, value: nearest(mean) }, shown);
  const sigma = fig.slider(
    "sigma",
    { min: 0.2, max: 4, step: 0.1, value: nearest(deviation) },
    shown,
  );
  const relu = fig.toggle("ReLU after it");

  fig.draw = (width, svg) => {
    const a = gamma.value / Math.sqrt(sigma.value ** 2 + eps);
    const c = beta.value - a * mu.value;
    const cut = (value) => (relu.value ? Math.max(value, 0) : value);
    const z = y.map((value) => cut(a * value + c));
    const side = Math.min(width - 100, 300);
    const left = Math.max(90, (width - side) / 2);
    const across = linear([-6, 6], [left, left + side]);
    const up = linear([-6, 6], [side + 20, 20]);
    add(svg, "rect", { x: left, y: 20, width: side, height: side, fill: "var(--soft)", rx: 4 });
    add(svg, "path", {
      d: `M${left} ${up(0)}h${side}M${across(0)} 20v${side}`,
      stroke: "var(--rule)",
    });
    const ends = line(a, c, cut).map(([from, to]) => `${across(from)} ${up(to)}`);
    const look = {
      stroke: "var(--accent)",
      "stroke-width": 3,
      fill: "none",
      "stroke-linejoin": "round",
    };
    add(svg, "path", { d: `M${ends.join("L")}`, ...look });
    const base = side + 90;
    const middle = { x: across(mu.value), y: up(cut(beta.value)) };
    const dashed = { stroke: "var(--muted)", "stroke-dasharray": "4 4", fill: "none" };
    bars(svg, y, (from, to, tall) => ({
      x: across(from),
      width: across(to) - across(from) - 0.5,
      y: base - 60 * tall,
      height: 60 * tall,
      fill: "var(--fill)",
    }));
    bars(svg, z, (from, to, tall) => ({
      x: left - 8 - 80 * tall,
      width: 80 * tall,
      y: up(to),
      height: up(from) - up(to) - 0.5,
      fill: "var(--accent)",
    }));
    axis(svg, base, across, [-6, -4, -2, 0, 2, 4, 6], "before: y", (v) => minus(v, 0));
    add(svg, "text", { x: left - 8, y: 12, "text-anchor": "end", class: "muted" }, "after: z");
    for (const value of [-4, 4]) {
      add(svg, "text", { x: left + 6, y: up(value) + 4, class: "muted" }, minus(value, 0));
    }
    add(svg, "path", { d: `M${middle.x} ${base}V${middle.y}H${left}`, ...dashed });
    add(svg, "circle", { cx: middle.x, cy: middle.y, r: 5, fill: "var(--accent)" });
    add(svg, "text", { x: middle.x + 6, y: side + 14 }, "mu");
    const kept = cut(beta.value) === beta.value; // a ReLU may move it to 0
    if (kept) add(svg, "text", { x: left + 30, y: middle.y - 6 }, "beta");
    const found = sum(z) / z.length;
    const spread = Math.sqrt(sum(z.map((value) => (value - found) ** 2)) / z.length);
    const sign = c < 0 ? "−" : "+";
    const of = relu.value ? "after ReLU" : "of z";
    fig.say(
      `BatchNorm is one multiplication and one addition: z = ${minus(a)} · y ${sign}` +
        ` ${Math.abs(c).toFixed(2)}. The mean ${of} is ${minus(found)},` +
        ` the standard deviation ${spread.toFixed(2)}.`,
      { a, c, mean: found, deviation: spread },
    );
    return base + 40;
  };

  /** The line inside the square, with a corner where a ReLU cuts. */
  function line(a, c, cut) {
    const steps = Array.from({ length: 241 }, (_, i) => -6 + i / 20);
    return steps.map((x) => [x, cut(a * x + c)]).filter(([, z]) => Math.abs(z) <= 6);
  }

  function bars(svg, values, place) {
    const bins = new Array(60).fill(0);
    for (const value of values) {
      const bin = Math.floor((value + 6) * 5);
      if (bin >= 0 && bin < 60) bins[bin] += 1;
    }
    const most = Math.max(...bins, values.length / 12);
    bins.forEach((count, i) => add(svg, "rect", place(i / 5 - 6, (i + 1) / 5 - 6, count / most)));
  }
}
