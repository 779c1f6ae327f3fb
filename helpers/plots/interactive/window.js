// A window over a small image. The pointer, or the slider, moves it; stride and padding say where
// it can stand, and so how large the output is. Each output number is the sum of nine products.
function figure(fig, { image, weights, bias }) {
  const size = image.length;
  const kernel = weights.length;
  const stride = fig.slider("Stride", { min: 1, max: 3, step: 1, value: 1 });
  const padding = fig.slider("Padding", { min: 0, max: 2, step: 1, value: 0 });
  const place = fig.slider("Window", { min: 0, max: 24, step: 1, value: 5 }, (x) => `no. ${x + 1}`);
  const side = () => Math.floor((size + 2 * padding.value - kernel) / stride.value) + 1;
  const pixel = (row, column) => image[row]?.[column] ?? 0;

  function products(row, column) {
    return weights.flatMap((line, u) =>
      line.map((weight, v) => {
        const under = pixel(
          row * stride.value - padding.value + u,
          column * stride.value - padding.value + v,
        );
        return weight * under;
      }),
    );
  }
  const output = (row, column) => bias + sum(products(row, column));

  /** The sum as it is written, without the products that are 0. */
  function written(row, column) {
    const terms = products(row, column).filter(Boolean);
    if (bias) terms.push(bias);
    const signed = terms.map((term, i) => `${term < 0 ? "−" : "+"} ${Math.abs(term)}`);
    const result = minus(output(row, column), 0);
    if (terms.length < 2) return result;
    const sums = signed.join(" ").replace(/^\+ /, "").replace(/^− /, "−");
    return `${sums} = ${result}`.replaceAll(" ", "\u00a0"); // stays on one line
  }

  const shade = (value) => (value > 0 ? "var(--tint)" : "var(--soft)");
  let corner = { x: 0, y: 0, cell: 1 };
  fig.pointer((x, y) => {
    const at = (distance) => Math.round((distance / corner.cell - kernel / 2) / stride.value);
    const inside = (position) => clamp(position, 0, side() - 1);
    place.value = inside(at(y - corner.y)) * side() + inside(at(x - corner.x));
  });

  fig.draw = (width, svg) => {
    const places = side();
    place.input.max = places ** 2 - 1;
    place.value = Math.min(place.input.valueAsNumber, places ** 2 - 1);
    const row = Math.floor(place.value / places);
    const column = place.value % places;
    const padded = size + 2 * padding.value;
    const narrow = width < 520;
    const cell = narrow ? Math.min(30, width / 13) : (width - 60) / 23;
    const start = 26;
    corner = { x: 0, y: start, cell };
    add(
      svg,
      "text",
      { x: 0, y: 14, class: "muted" },
      `input, ${size} × ${size}` +
        (padding.value ? `, and zeros around it: ${padded} × ${padded}` : ""),
    );
    for (let i = 0; i < padded; i += 1)
      for (let j = 0; j < padded; j += 1) {
        const real = image[i - padding.value]?.[j - padding.value] !== undefined;
        const value = pixel(i - padding.value, j - padding.value);
        number(svg, j * cell, start + i * cell, cell, value, real ? shade(value) : "none", real);
      }
    const step = stride.value * cell;
    const box = {
      width: kernel * cell,
      height: kernel * cell,
      rx: 4,
      fill: "none",
      "stroke-width": 3,
    };
    const frame = { ...box, stroke: "var(--accent)", x: column * step, y: start + row * step };
    add(svg, "rect", frame);
    const left = narrow ? 0 : 14 * cell + 60;
    const top = narrow ? start + padded * cell + 34 : start;
    const beside = narrow ? 9.6 * cell : 11 * cell + 30;
    add(svg, "text", { x: beside, y: top - 12, class: "muted" }, "weights");
    weights.forEach((line, i) =>
      line.forEach((value, j) =>
        number(svg, beside + j * cell, top + i * cell, cell, value, shade(0), true),
      ),
    );
    add(svg, "text", { x: left, y: top - 12, class: "muted" }, `output, ${places} × ${places}`);
    let total = 0; // of all outputs, each times its place: for tests
    for (let i = 0; i < places; i += 1)
      for (let j = 0; j < places; j += 1) {
        const value = output(i, j);
        total += value * (i * places + j);
        number(svg, left + j * cell, top + i * cell, cell, value, shade(value), true);
      }
    const marked = { ...box, width: cell, height: cell, stroke: "var(--accent)" };
    add(svg, "rect", { ...marked, x: left + column * cell, y: top + row * cell });
    const lost = (padded - kernel) % stride.value;
    const unseen = lost > padding.value ? "pixels" : "zeros";
    const rest = lost ? `; the last ${unseen} are never seen` : "";
    const sentence =
      `${places} positions along each side${rest}.` +
      ` Here pixels times weights add up to ${written(row, column)}.`;
    fig.say(sentence, { size: places, row, column, output: output(row, column), total });
    return Math.max(start + padded * cell, top + Math.max(places, kernel) * cell) + 4;
  };

  function number(svg, x, y, cell, value, fill, solid) {
    const look = { fill, stroke: "var(--rule)", "stroke-dasharray": solid ? "none" : "3 3" };
    add(svg, "rect", { x: x + 1, y: y + 1, width: cell - 2, height: cell - 2, rx: 3, ...look });
    const middle = { x: x + cell / 2, y: y + cell / 2 + 4.5, "text-anchor": "middle" };
    add(svg, "text", { ...middle, class: solid ? "" : "muted" }, minus(value, 0));
  }
}
