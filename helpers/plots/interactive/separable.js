// What one output number costs: an ordinary convolution multiplies every pixel of the window in
// every channel, a rectangle; a separable one only the rectangle's two edges.
function figure(fig, { channels, kernel, size }) {
  const depth = fig.slider("Channels", { min: 8, max: 384, step: 8, value: channels });
  const window = fig.slider(
    "Window",
    { min: 1, max: 7, step: 2, value: kernel },
    (k) => `${k} × ${k}`,
  );
  const side = fig.slider("Image", { min: 4, max: 64, step: 4, value: size }, (s) => `${s} × ${s}`);

  const left = 84;

  fig.draw = (width, svg) => {
    const c = depth.value;
    const area = window.value ** 2;
    const places = side.value ** 2 * c; // numbers of the output
    const full = { weights: area * c * c, macs: area * c * places };
    const split = { weights: area * c + c * c, macs: (area + c) * places };
    const cell = Math.min((width - left - 4) / c, 120 / area);
    const [wide, tall, top] = [c * cell, area * cell, 30];
    add(svg, "rect", { x: left, y: top, width: wide, height: tall, fill: "var(--fill)" });
    const edge = { x: left, y: top, fill: "var(--accent)" };
    add(svg, "rect", { ...edge, width: Math.max(cell, 1), height: tall });
    add(svg, "rect", { ...edge, width: wide, height: Math.max(cell, 1) });
    const blue = { style: "fill: var(--accent)" };
    add(svg, "text", { x: left, y: 18, ...blue }, `pointwise: ${c} channels`);
    const middle = { x: left - 10, "text-anchor": "end", ...blue };
    const height = top + Math.max(tall / 2, 12);
    add(svg, "text", { ...middle, y: height - 4 }, "depthwise:");
    add(svg, "text", { ...middle, y: height + 13 }, `${area} pixels`);
    const room = wide > 150 && tall > 44; // else the name stands below
    const place = room
      ? { x: left + wide / 2, y: top + tall / 2 + 5, "text-anchor": "middle" }
      : { x: left, y: top + tall + 18 };
    add(svg, "text", place, `ordinary: ${area} × ${c}`);
    const below = top + 150;
    row(svg, width, below, "ordinary", full, full);
    row(svg, width, below + 44, "separable", split, full);
    const ratio = full.macs / split.macs;
    fig.say(
      `For one output number, ordinary needs the whole area, ${area} × ${c} =` +
        ` ${grouped(area * c)} multiply-adds; separable the two blue edges, ${area} + ${c} = ${grouped(area + c)}:` +
        ` ${ratio >= 1 ? `${ratio.toFixed(1)} times fewer` : "a few more"}, whatever the image.`,
      {
        full: full.macs,
        split: split.macs,
        fullWeights: full.weights,
        splitWeights: split.weights,
      },
    );
    return below + 84;
  };

  function row(svg, width, y, name, cost, most) {
    const length = (width - left) * (cost.macs / most.macs);
    const fill = cost === most ? "var(--fill)" : "var(--accent)";
    const shown = Math.min(length, width - left);
    add(svg, "text", { x: left - 10, y: y + 13, "text-anchor": "end" }, name);
    add(svg, "rect", { x: left, y, width: shown, height: 16, rx: 3, fill });
    const millions = (cost.macs / 1e6).toLocaleString("en-GB", { maximumFractionDigits: 2 });
    const told = `${millions} M multiply-adds, ${grouped(cost.weights)} weights`;
    add(svg, "text", { x: left, y: y + 32, class: "muted" }, told);
  }
}
