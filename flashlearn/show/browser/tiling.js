// The tiling explorer of the book and of the deck: the runs that tools/book/runs.py recorded, loaded one setting at a time.

import { make } from "./player.js";
import { explore } from "./recorded.js";
import { CONTROLS, GRID, START } from "./grid.js";

const waiting = new Map();
const base = () => document.documentElement.dataset.content_root ?? "./";

// `more` takes the place of what is said here: in the deck the address is the deck's.
export function tilingExplorer(place, more = {}) {
  const start = { ...START, ...said(place.dataset.start) }; // what the notebook's cell says
  return explore(place, {
    controls: CONTROLS,
    start,
    near: onGrid,
    load: runOf,
    say,
    own: !("embedded" in place.dataset), // in a chapter the address is the chapter's
    link: (state) => new URL(`${base()}explorers/tiling.html#${new URLSearchParams(state)}`, location.href).href,
    ...more,
  });
}

function said(start) {
  const texts = Object.fromEntries(new URLSearchParams(start));
  return Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, name === "mask" ? text : Number(text)]));
}

// Blocks that were not recorded for this N and D become the nearest that were.
function onGrid(wanted) {
  const nearest = (values, value) => values.reduce((best, each) => (Math.abs(each - value) < Math.abs(best - value) ? each : best));
  const D = nearest(Object.keys(GRID).map(Number), wanted.D);
  const N = nearest(Object.keys(GRID[D]).map(Number), wanted.N);
  const far = ([q, k]) => Math.abs(q - wanted.block_q) + Math.abs(k - wanted.block_k);
  const [block_q, block_k] = GRID[D][N].reduce((best, each) => (far(each) < far(best) ? each : best));
  return { ...wanted, D, N, block_q, block_k };
}

function say({ text, need }, { block_q, block_k, sram }) {
  const fits = need > sram ? "they do not fit. Make a block smaller or the SRAM larger." : "they fit.";
  return { text: `${block_q} × ${block_k} blocks need ${need} of ${sram} elements: ${fits} ${text}`, need, room: sram };
}

// A recorded setting, by a script: browsers load no data from a folder.
async function runOf({ N, D, block_q, block_k, mask }) {
  const name = [N, D, block_q, block_k, mask.replace(/\W+/g, "_")].join("-");
  if (!waiting.has(name)) waiting.set(name, fetched(name));
  return waiting.get(name);
}

function fetched(name) {
  window.flashlearnRuns ??= new Map();
  return new Promise((resolve, reject) => {
    const script = make("script", { src: `${base()}_static/runs/${name}.js` });
    script.addEventListener("load", () => resolve(inflated(window.flashlearnRuns.get(name))));
    script.addEventListener("error", () => reject(new Error(`expected a recorded run at ${script.src}, got none`)));
    document.head.append(script);
  });
}

// JSON out of gzip out of base64.
async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}
