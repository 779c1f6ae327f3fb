// All networks, accuracy over size. Which is the best network within a budget of bytes? Its
// error bar says how sure that is. Networks with `yours` are the reader's, in a colour of their
// own; one more dot can be added by hand.
function figure(fig, { networks }) {
  const sizes = networks.map((one) => one.bytes);
  const [least, most] = [Math.min(...sizes) / 1.4, Math.max(...sizes) * 1.3];
  const MB = (bytes) => `${(bytes / 1e6).toPrecision(3)} MB`;
  const bytesAt = (x) => least * (most / least) ** (x / 200);
  const budget = fig.slider("Budget", { min: 0, max: 200, step: 1, value: 110 }, (x) =>
    MB(bytesAt(x)),
  );
  const which = fig.slider("Look at", { min: 0, max: networks.length, step: 1, value: 0 }, (i) =>
    i ? `${i} of ${networks.length}` : "the best",
  );
  const own = ["Your size in MB", "Your accuracy in %"].map((name) => fig.number(name));

  let points = [];
  let hovered = false;
  fig.pointer((x, y) => {
    const far = points.map((point) => (point.x - x) ** 2 + (point.y - y) ** 2);
    const nearest = far.indexOf(Math.min(...far));
    const near = far[nearest] < 400;
    if (near) which.value = nearest + 1;
    else if (hovered) which.value = 0; // what the slider chose stays
    hovered = near;
  }, true);

  fig.draw = (width, svg) => {
    const limit = bytesAt(budget.value);
    const affordable = networks.filter((one) => one.bytes <= limit);
    const best = affordable.reduce((a, b) => (b.accuracy > (a?.accuracy ?? 0) ? b : a), null);
    const chosen = which.value ? networks[which.value - 1] : best;
    const [left, right, top, bottom] = [48, width - 14, 24, 330];
    const mine = { bytes: own[0].value * 1e6, accuracy: own[1].value / 100 };
    const shown = mine.bytes > 0 && mine.accuracy > 0 ? mine : null;
    const lows = [...networks.map((one) => one.low), ...(shown ? [shown.accuracy] : [])];
    const floor = Math.floor(Math.min(...lows) * 100 - 0.2) / 100;
    const up = linear([floor, Math.max(...networks.map((one) => one.high)) + 0.002], [bottom, top]);
    const across = (bytes) =>
      linear([Math.log(least), Math.log(most)], [left, right])(Math.log(bytes));
    add(svg, "rect", {
      x: left,
      y: top,
      width: across(limit) - left,
      height: bottom - top,
      fill: "var(--soft)",
    });
    const far = across(limit) > width - 80;
    add(
      svg,
      "text",
      {
        x: across(limit) + (far ? -6 : 6),
        y: top + 14,
        class: "muted",
        "text-anchor": far ? "end" : "start",
      },
      "budget",
    );
    add(svg, "path", { d: `M${across(limit)} ${top}V${bottom}`, stroke: "var(--muted)" });
    add(svg, "text", { x: 0, y: 12, class: "muted" }, "accuracy in %");
    const stride = (0.97 - floor) / 0.01 > 12 ? 0.05 : 0.01;
    for (let share = Math.ceil(floor / stride) * stride; up(share) >= top; share += stride) {
      add(
        svg,
        "text",
        { x: left - 8, y: up(share) + 4, "text-anchor": "end", class: "muted" },
        String(Math.round(100 * share)),
      );
    }
    points = networks.map((one) => ({ x: across(one.bytes), y: up(one.accuracy) }));
    networks.forEach((one, i) => {
      const lit = one === chosen;
      const inside = one.bytes <= limit;
      const usual = one.yours ? "var(--bad)" : "var(--muted)";
      const colour = lit ? "var(--accent)" : usual;
      const fill = lit || inside ? colour : "none"; // hollow: over the budget
      const bar = `M${points[i].x} ${up(one.low)}V${up(one.high)}`;
      add(svg, "path", { d: bar, stroke: colour, "stroke-width": lit ? 2.5 : 1 });
      const place = { cx: points[i].x, cy: points[i].y, r: lit ? 8 : 4.5 };
      add(svg, "circle", { ...place, fill, stroke: colour });
    });
    if (chosen) {
      const at = { x: across(chosen.bytes), y: up(chosen.low) + 18 };
      const side = at.x > width - 150 ? "end" : at.x < 150 ? "start" : "middle";
      const halo = "font-weight: 600; paint-order: stroke; stroke: var(--soft); stroke-width: 5px";
      add(svg, "text", { ...at, "text-anchor": side, style: halo }, chosen.name);
    }
    if (shown) {
      const [x, y] = [across(clamp(shown.bytes, least, most)), up(shown.accuracy)];
      add(svg, "path", {
        d: `M${x - 9} ${y}h18M${x} ${y - 9}v18`,
        stroke: "var(--bad)",
        "stroke-width": 3,
      });
      add(svg, "text", { x: x + 12, y: y + 4, style: "fill: var(--bad)" }, "yours");
    }
    const marks = [0.05, 0.1, 0.3, 1, 3, 10].filter((mb) => mb * 1e6 > least && mb * 1e6 < most);
    axis(svg, bottom, (mb) => across(mb * 1e6), marks, "size of the file in MB");
    const percent = (share) => `${(100 * share).toFixed(2)} %`;
    const told = chosen
      ? `${chosen.name}: ${MB(chosen.bytes)}, ${percent(chosen.accuracy)}` +
        ` (${percent(chosen.low)} to ${percent(chosen.high)}).`
      : "No network is that small.";
    const equal = best
      ? affordable.filter((one) => one.high >= best.low && one.bytes < best.bytes)
      : [];
    const smaller = equal.length
      ? ` ${equal.length} smaller ${equal.length > 1 ? "ones have" : "one has"}` +
        " an error bar that overlaps with that of the best."
      : "";
    fig.say(told + (shown ? judged(shown) : chosen === best ? smaller : ""), {
      best: best?.name,
      bytes: limit,
      shown: chosen?.name,
      equal: equal.length,
    });
    return bottom + 40;
  };

  /** Is one of the networks smaller and better than the reader's own? */
  function judged(mine) {
    const better = networks
      .filter((one) => one.bytes <= mine.bytes && one.accuracy >= mine.accuracy)
      .sort((a, b) => b.accuracy - a.accuracy);
    if (!better.length) return " Yours: no other is at once as small and as accurate.";
    return ` Yours: ${better[0].name} is no larger and at least as accurate.`;
  }
}
