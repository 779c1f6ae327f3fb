// Answers the page's questions one after the other, on a thread of its own.
"use strict";

let networks = [];

const ANSWERS = {
  /** Unpack the networks of the page; says which bytes are damaged before anything is computed with them. */
  load({ text }) {
    const given = JSON.parse(text);
    networks = given.map(({ name, network, checksum: expected }) => {
      const letters = new TextEncoder().encode(JSON.stringify(network));
      if (checksum(letters) !== expected) throw new Error(`the data of ${name} have changed`);
      return unpackNetwork(network);
    });
    return given.map(({ name, bytes, network }, i) => {
      const coded = networks[i].steps.filter((step) => step.coded), told = inWords(network.steps.filter((step) => step.bits));
      return { name, bytes, told, layers: coded.map(({ name, shape }) => ({ name, shape })) };
    });
  },

  /** Class scores of an image, the milliseconds they took, and the codes of one layer with their checksum. */
  run({ network, pixels, layer }) {
    const started = performance.now(), { steps } = networks[network];
    let seen = {};
    const sums = runNetwork(networks[network], pixels, (step, codes) => {
      if (step.name === layer) seen = { codes, checksum: checksumOf(step, codes) };
    });
    const { factor } = steps.at(-1);
    const scores = Array.from(sums, (sum, c) => Math.fround(Math.fround(sum) * factor[c]));
    return { scores, milliseconds: performance.now() - started, ...seen };
  },

  /** A checksum of each layer's codes, and the sums of the last layer: for the tests, which compare them with Python's. */
  trace({ network, pixels }) {
    const seen = {};
    runNetwork(networks[network], pixels, (step, codes) => {
      seen[step.name] = step.coded ? checksumOf(step, codes) : Array.from(codes);
    });
    return seen;
  },
};

/** How many weights these layers have, and of how many bits. */
function inWords(layers) {
  const weights = layers.reduce((sum, { weightShape }) => sum + weightShape.reduce((a, b) => a * b), 0);
  const [least, most] = [Math.min, Math.max].map((of) => of(...layers.map(({ bits }) => bits)));
  return `${(weights / 1e6).toFixed(2)} million weights of ${least === most ? "" : `${least} to `}${most} bits`;
}

/** A checksum of a layer's codes in Python's order, channel by channel. */
function checksumOf(step, codes) {
  const [channels, height, width] = step.shape, places = height * width;
  return checksum(codes, (i) => (i % channels) * places + Math.floor(i / channels));
}

onmessage = ({ data: { id, kind, ...question } }) => {
  try {
    postMessage({ id, answer: ANSWERS[kind](question) });
  } catch (error) {
    postMessage({ id, problem: error.message });
  }
};
