// A sum times a multiplier, shifted to the right: where does it land? Three rules, and the mean
// error that each of them leaves over many sums. Whole numbers only, as the kernels compute.
function figure(fig, { multiplier, shift, reach }) {
  const [m, t] = [BigInt(multiplier), BigInt(shift)];
  const total = fig.slider("Sum", { min: -reach, max: reach, step: 1, value: 4 }, (x) =>
    minus(x, 0),
  );
  const next = fig.button("Next exact half", () => {
    const sums = Array.from({ length: 2 * reach + 1 }, (_, i) => total.value + 1 + i);
    const found = sums.find((s) => s <= reach && half(s));
    total.value = found ?? Array.from({ length: reach }, (_, i) => i - reach).find(half);
  });
  next.style.flex = "none";
  const power = [...String(shift)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");
  const exact = (s) => (s * multiplier) / 2 ** shift;
  const half = (s) => Math.abs(exact(s) % 1) === 0.5;
  const halfway = 1n << (t - 1n);
  const RULES = {
    "shift alone": (s) => (s * m) >> t,
    "half up": (s) => (s * m + halfway) >> t,
    "half to even": (s) => (s * m + halfway - 1n + (((s * m) >> t) & 1n)) >> t,
  };
  const sums = Array.from({ length: 2 * reach + 1 }, (_, i) => i - reach);
  const rounded = (rule, s) => Number(RULES[rule](BigInt(s)));
  const bias = Object.fromEntries(
    Object.keys(RULES).map((rule) => [
      rule,
      sum(sums.map((s) => rounded(rule, s) - exact(s))) / sums.length,
    ]),
  );

  fig.draw = (width, svg) => {
    const value = exact(total.value);
    const below = Math.floor(value);
    const narrow = width < 520;
    const left = narrow ? 16 : 120;
    const right = width - (narrow ? 20 : 150);
    const across = linear([below - 1, below + 2], [left, right]);
    const rowHeight = narrow ? 74 : 58;
    const rowAt = (row) => 30 + rowHeight * row + (narrow ? 46 : 34);
    const bottom = 40 + rowHeight * 3;
    for (let whole = below - 1; whole <= below + 2; whole += 1) {
      const x = across(whole);
      const ticks = [0, 1, 2].map((row) => `M${x} ${rowAt(row) - 12}v24`).join("");
      add(svg, "path", { d: ticks, stroke: "var(--rule)", "stroke-width": 2 });
      const text = { x, y: 18, "text-anchor": "middle", style: "font-weight: 600" };
      add(svg, "text", text, minus(whole, 0));
    }
    add(svg, "path", {
      d: `M${across(value)} 30V${bottom}`,
      stroke: "var(--ink)",
      "stroke-dasharray": "4 4",
    });
    Object.keys(RULES).forEach((rule, i) => {
      const y = rowAt(i);
      const goal = rounded(rule, total.value);
      const [from, to] = [across(value), across(goal)];
      const mine = rule === "half to even";
      const colour = mine ? "var(--accent)" : "var(--muted)";
      add(svg, "path", { d: `M${from} ${y}H${to}`, stroke: colour, "stroke-width": 3 });
      add(svg, "circle", { cx: from, cy: y, r: 5, fill: "var(--ink)" });
      add(svg, "circle", { cx: to, cy: y, r: 9, fill: colour });
      const name = narrow ? { x: left, y: y - 20 } : { x: 0, y: y + 5 };
      add(
        svg,
        "text",
        { ...name, style: mine ? "fill: var(--accent); font-weight: 600" : "" },
        rule,
      );
      const told = { x: width, y: narrow ? y - 20 : y + 5, "text-anchor": "end", class: "muted" };
      add(svg, "text", told, `mean error ${minus(bias[rule], 3)}`);
    });
    const results = Object.keys(RULES).map((rule) => rounded(rule, total.value));
    const told = half(total.value)
      ? `, exactly between ${minus(below, 0)} and ${minus(below + 1, 0)}.` +
        ` To the even one: ${minus(results[2], 0)}.`
      : `. The nearest is ${minus(results[2], 0)}.`;
    fig.say(
      `Sum times factor: ${minus(total.value, 0)} · ${multiplier} / 2${power} =` +
        ` ${minus(value, 3)}${told} Over all sums from ${minus(-reach, 0)} to ${reach} only` +
        " half to even has a mean error of 0.",
      { value, down: results[0], up: results[1], even: results[2], bias: Object.values(bias) },
    );
    return bottom + 8;
  };
}
