// The page: pictures in, answers out. All computing happens in the worker.
"use strict";

const SIDE = 32, MAPS_SHOWN = 64;
const $ = (id) => document.getElementById(id);
const state = { networks: [], classes: [], pixels: null };

/** Put a question to the worker; resolves with its answer. Answers come in the order of the questions. */
const ask = (() => {
  const waiting = new Map();
  let worker, asked = 0;
  return (question) => new Promise((resolve, reject) => {
    if (!worker) {
      worker = new Worker(URL.createObjectURL(new Blob([$("interpreter").textContent], { type: "text/javascript" })));
      worker.onmessage = ({ data: { id, answer, problem } }) => {
        const { resolve, reject } = waiting.get(id);
        waiting.delete(id);
        if (problem === undefined) resolve(answer);
        else reject(new Error(problem));
      };
    }
    waiting.set(++asked, { resolve, reject });
    worker.postMessage({ id: asked, ...question });
  });
})();

document.addEventListener("DOMContentLoaded", () => start().catch((error) => say(
  `These networks cannot be read: ${error.message}. Make the page again with “python -m course demo”.`)));

async function start() {
  say("Unpacking the networks …");
  const images = JSON.parse($("images").textContent);
  state.classes = images.classes;
  state.networks = await ask({ kind: "load", text: $("data").textContent });
  const bytes = Uint8Array.from(atob(images.pixels), (letter) => letter.charCodeAt(0));
  const pictures = images.labels.map((label, i) => ({ label, pixels: bytes.slice(i * 3072, (i + 1) * 3072) }));
  if (pictures.some(({ pixels }) => pixels.length !== 3072)) throw new Error("some pictures are missing");
  buildNetworks();
  buildPictures(pictures);
  listenForPhotos();
  document.querySelector("main").hidden = false;
  say("");
  await choose(pictures[0].pixels, state.classes[pictures[0].label], $("pictures").firstChild);
  await scoreAll(pictures);
}

function say(text) {
  $("status").textContent = text;
}

function make(tag, text = "", attributes = {}) {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(2)} MB`;

function buildNetworks() {
  state.networks.forEach((network, n) => {
    const card = make("article", "", { class: "network", "aria-live": "polite" });
    card.append(make("h3", network.name), make("p", megabytes(network.bytes), { class: "small" }), make("ol"));
    $("networks").append(card);
    $("network").append(make("option", network.name, { value: n }));
    const row = make("tr");
    row.append(make("th", network.name, { scope: "row" }), make("td", megabytes(network.bytes)), make("td"), make("td"));
    $("scores").append(row);
  });
  $("network").onchange = () => { listLayers(); showMaps(); };
  $("layer").onchange = showMaps;
  listLayers();
}

function listLayers() {
  const { layers } = state.networks[$("network").value];
  $("layer").replaceChildren(...layers.map(({ name, shape }) => make("option", `${name} (${shape.join(" × ")})`, { value: name })));
}

function buildPictures(pictures) {
  for (const { pixels, label } of pictures) {
    const button = make("button", "", { type: "button", "aria-pressed": "false", "aria-label": state.classes[label] });
    const canvas = make("canvas", "", { width: SIDE, height: SIDE });
    drawPixels(canvas, pixels);
    button.append(canvas);
    button.onclick = () => choose(pixels, state.classes[label], button);
    $("pictures").append(button);
  }
}

function drawPixels(canvas, pixels) {
  const image = new ImageData(SIDE, SIDE);
  for (let i = 0; i < image.data.length; i++) image.data[i] = i % 4 === 3 ? 255 : pixels[(i >> 2) * 3 + (i % 4)];
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** Show a picture and what each network says of it; `truth` is the label of a test picture. */
async function choose(pixels, truth, button) {
  state.pixels = pixels;
  for (const other of $("pictures").children) other.setAttribute("aria-pressed", other === button);
  drawPixels($("picture"), pixels);
  $("picture").setAttribute("aria-label", truth ? `Test picture: ${truth}` : "Your photo at 32 by 32 pixels");
  $("truth").textContent = truth ? `A test picture of the class “${truth}”.` : "Your photo, as the networks see it.";
  for (let n = 0; n < state.networks.length && state.pixels === pixels; n++) {
    showAnswer(n, await ask({ kind: "run", network: n, pixels }));
  }
  await showMaps();
}

function showAnswer(n, { scores, milliseconds }) {
  const card = $("networks").children[n], best = Math.max(...scores);
  const shares = scores.map((score) => Math.exp(score - best)), total = shares.reduce((a, b) => a + b);
  card.querySelector("p").textContent = `${megabytes(state.networks[n].bytes)}, ${milliseconds.toFixed(0)} ms`;
  card.querySelector("ol").replaceChildren(...shares.map((share, c) => {
    const line = make("li", "", scores[c] === best ? { class: "first" } : {});
    const room = make("span", "", { "aria-hidden": "true" }), bar = make("div", "", { class: "bar" });
    bar.style.width = `${(100 * share) / total}%`;
    room.append(bar);
    line.append(make("span", state.classes[c]), room, make("span", `${((100 * share) / total).toFixed(1)} %`));
    return line;
  }));
}

/** The codes of the chosen layer as grey squares, one per channel. */
async function showMaps() {
  const network = Number($("network").value), name = $("layer").value;
  const [channels, height, width] = state.networks[network].layers.find((layer) => layer.name === name).shape;
  const { codes, checksum } = await ask({ kind: "run", network, pixels: state.pixels, layer: name });
  const shown = Math.min(channels, MAPS_SHOWN), across = Math.min(shown, 16), zoom = Math.max(1, Math.floor(72 / width));
  const canvas = $("maps"), step = width * zoom + 2;
  canvas.width = across * step;
  canvas.height = Math.ceil(shown / across) * (height * zoom + 2);
  const image = new ImageData(canvas.width, canvas.height);
  for (let c = 0; c < shown; c++) {
    const left = (c % across) * step, top = Math.floor(c / across) * (height * zoom + 2);
    for (let y = 0; y < height * zoom; y++) {
      for (let x = 0; x < width * zoom; x++) {
        const code = codes[(Math.floor(y / zoom) * width + Math.floor(x / zoom)) * channels + c];
        const at = 4 * ((top + y) * canvas.width + left + x);
        image.data[at] = image.data[at + 1] = image.data[at + 2] = code;
        image.data[at + 3] = 255;
      }
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  const text = `${shown} of ${channels} channels of ${name}: codes 0 (black) to 255 (white), ${height} by ${width} each. Checksum: ${checksum}.`;
  canvas.setAttribute("aria-label", text);
  $("mapsText").textContent = text;
}

async function scoreAll(pictures) {
  for (let n = 0; n < state.networks.length; n++) {
    const [, , right, time] = $("scores").children[n].children;
    let count = 0;
    const times = [];
    for (const [i, { pixels, label }] of pictures.entries()) {
      const { scores, milliseconds } = await ask({ kind: "run", network: n, pixels });
      count += scores.indexOf(Math.max(...scores)) === label;
      times.push(milliseconds);
      right.textContent = i + 1 < pictures.length ? `${count} of the first ${i + 1}` : `${count}`;
    }
    time.textContent = `${times.sort((a, b) => a - b)[times.length >> 1].toFixed(0)} ms`;
  }
  document.body.dataset.scored = "yes";
}

function listenForPhotos() {
  $("file").onchange = ({ target }) => takePhoto(target.files[0]);
  document.addEventListener("paste", ({ clipboardData }) => clipboardData.files.length && takePhoto(clipboardData.files[0]));
  document.addEventListener("dragover", (event) => { event.preventDefault(); $("drop").classList.add("over"); });
  document.addEventListener("dragleave", () => $("drop").classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    $("drop").classList.remove("over");
    takePhoto(event.dataTransfer.files[0]);
  });
}

/** The middle square of a photo at 32 by 32 pixels. */
async function takePhoto(file) {
  if (!file) return;
  let photo;
  try {
    photo = await createImageBitmap(file);
  } catch {
    say(`${file.name} is no picture that this browser can read. PNG, JPEG and WebP work.`);
    return;
  }
  say("");
  const side = Math.min(photo.width, photo.height), canvas = make("canvas", "", { width: SIDE, height: SIDE });
  const context = canvas.getContext("2d");
  context.fillStyle = "white";
  context.fillRect(0, 0, SIDE, SIDE);
  context.imageSmoothingQuality = "high";
  context.drawImage(photo, (photo.width - side) / 2, (photo.height - side) / 2, side, side, 0, 0, SIDE, SIDE);
  const { data } = context.getImageData(0, 0, SIDE, SIDE);
  await choose(Uint8Array.from({ length: 3072 }, (_, i) => data[Math.floor(i / 3) * 4 + (i % 3)]), "", null);
}
