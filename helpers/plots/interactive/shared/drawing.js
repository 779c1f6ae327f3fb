// Elements, scales and numbers. A figure is a function (fig, data) that makes controls and sets
// fig.draw(width, svg), which returns the height; each change of a control draws it again.
const SVG = "http://www.w3.org/2000/svg";

/** A new element inside its parent, as SVG where the parent is. */
function add(parent, tag, attributes = {}, text = "") {
  const drawn = tag === "svg" || parent.namespaceURI === SVG;
  const made = drawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(text);
  parent.append(made);
  return made;
}

const linear =
  ([a, b], [from, to]) =>
  (x) =>
    from + ((x - a) / (b - a)) * (to - from);
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const sum = (values) => values.reduce((total, value) => total + value, 0);
/** With so many decimals, and a minus sign as long as a plus. */
const minus = (x, decimals = 2) =>
  x
    .toFixed(decimals)
    .replace(/^-(?=.*[1-9])/, "−")
    .replace(/^-/, "");
const grouped = (x) => Math.round(x).toLocaleString("en-GB");
/** Halves to the even neighbour, as Python and the int8 kernels round. */
function roundEven(x) {
  const below = Math.floor(x);
  if (x - below !== 0.5) return Math.round(x);
  return below % 2 === 0 ? below : below + 1;
}

/** A horizontal axis with its marks and a name. */
function axis(svg, y, scale, marks, name, shown = String) {
  const [first, last] = [scale(marks[0]), scale(marks.at(-1))];
  add(svg, "path", { d: `M${first} ${y}H${last}`, stroke: "var(--rule)" });
  for (const mark of marks) {
    const place = { x: scale(mark), y: y + 17, "text-anchor": "middle", class: "muted" };
    add(svg, "path", { d: `M${place.x} ${y}v4`, stroke: "var(--rule)" });
    add(svg, "text", place, shown(mark));
  }
  if (name) add(svg, "text", { x: last, y: y + 35, "text-anchor": "end", class: "muted" }, name);
}
