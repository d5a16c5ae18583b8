// One step of attention by tiles as a picture: matrices in HBM where multiplication puts them, tiles on chip, bytes so far.
// It is SVG text in a data URI, so that the player shows it like any other frame; it is drawn as wide as it is shown.

import { grouped } from "./dom.js";

const COLOURS = { Q: "#0072B2", K: "#E69F00", V: "#009E73", S: "#CC79A7", O: "#D55E00", acc: "#D55E00", m_i: "#56B4E9", l_i: "#56B4E9", lse: "#56B4E9" };
const ORDER = ["Q", "K", "S", "V", "acc", "O", "m_i", "l_i"]; // S = Q K^T, then S and V make acc or O
const SHORT = { m_i: "m", l_i: "ℓ", lse: "lse" };
const [HBM_TOP, GAP] = [92, 18];

// How it is drawn where there is so much room: {panel: its width in pixels, stacked: whether one is above the other}.
export function lookFor(room) {
  return room < 720 ? { panel: Math.max(340, Math.min(room, 480)), stacked: true } : { panel: Math.min((room - 20) / 2, 620), stacked: false };
}

// Size in pixels: two panels side by side, or one above the other.
export function tilingSize(setting, look) {
  const one = panelHeight(setting, look);
  return look.stacked ? [look.panel, 2 * one] : [2 * look.panel + 20, one];
}

const gap = ({ panel }) => (panel < 450 ? 10 : 24); // between matrices
const cell = ({ N, D }, look) => Math.floor(Math.min(24, (look.panel - 12 - 3 * gap(look)) / (N + 3 * D), 300 / (N + D)));
const hbmHeight = (setting, look) => 64 + (setting.N + setting.D) * cell(setting, look);
const chipHeight = ({ blockQ, blockK, D }) => 82 + 14 * Math.max(blockQ, blockK, Math.min(D, 4));
const panelHeight = (setting, look) => HBM_TOP + hbmHeight(setting, look) + chipHeight(setting) + GAP + 8;

export function tilingPicture(runs, step, setting, look) {
  const [width, height] = tilingSize(setting, look);
  const one = panelHeight(setting, look);
  const panels = runs.map((run, place) => {
    const [x, y] = look.stacked ? [0, place * one] : [place * (look.panel + 20), 0];
    return `<g transform="translate(${x},${y})">${panel(run, step, setting, look)}</g>`;
  });
  const font = "font-family='system-ui, sans-serif'";
  const picture = `<svg xmlns='http://www.w3.org/2000/svg' width='${width}' height='${height}' viewBox='0 0 ${width} ${height}' ${font}>${STYLE}<rect width='100%' height='100%' fill='#fff'/>${panels.join("")}</svg>`;
  return `data:image/svg+xml,${encodeURIComponent(picture)}`;
}

// Tiles that were read now travel from HBM to their place on chip, unless the reader has asked for less motion.
const STYLE = `<defs><pattern id='hidden' width='7' height='7' patternUnits='userSpaceOnUse' patternTransform='rotate(45)'><rect width='7' height='7' fill='#e4e4e4'/><line y2='7' stroke='#8a8a8a' stroke-width='2'/></pattern></defs><style>@keyframes come{from{transform:translate(var(--x),var(--y));opacity:.6}}@media(prefers-reduced-motion:no-preference){.read{animation:come .45s ease-out}}</style>`;

const rect = (x, y, width, height, look) => `<rect x='${x}' y='${y}' width='${width}' height='${height}' ${look}/>`;
// A style and no attributes: what comes later takes the place of what came before.
const text = (x, y, words, look = "") => `<text x='${x}' y='${y}' style='font-size:15px;fill:#1a1a1a;${look}'>${words}</text>`;

function panel(run, step, setting, look) {
  const at = Math.min(step, run.steps.length - 1);
  const width = look.panel;
  const places = placesOf(setting, look);
  const chipTop = HBM_TOP + hbmHeight(setting, look) + GAP;
  const now = run.steps[at];
  return [
    text(4, 20, run.title, "font-weight:700;font-size:17px"),
    traffic(run, at, width),
    rect(1, HBM_TOP, width - 2, hbmHeight(setting, look), "fill='#f2f2f2' stroke='#5a5a5a' stroke-width='2'"),
    text(8, HBM_TOP + 20, "HBM", "font-weight:700;fill:#5a5a5a"),
    matrices(run, at, setting, places),
    rect(1, chipTop, width - 2, chipHeight(setting), "fill='#fff6d6' stroke='#8a6508' stroke-width='2'"),
    text(8, chipTop + 20, "SRAM", "font-weight:700;fill:#6b4e00"),
    chip(now, chipTop, width, places, setting),
  ].join("");
}

function traffic(run, at, width) {
  const [read, written] = run.steps[at].b;
  const all = run.steps.at(-1).b[0] + run.steps.at(-1).b[1];
  const long = (count) => ((width - 8) * count) / all;
  return [
    text(4, 44, `read ${grouped(read)} B, written ${grouped(written)} B, of ${grouped(all)}`, "font-size:14px"),
    rect(4, 54, width - 8, 14, "fill='#fff' stroke='#5a5a5a'"),
    rect(4, 54, long(read), 14, "fill='#56b4e9' stroke='#1a1a1a'"),
    rect(4 + long(read), 54, long(written), 14, "fill='#d55e00' stroke='#1a1a1a'"),
  ].join("");
}

// Q left of S, K^T above it, V and O at the right.
function placesOf({ N, D }, look) {
  const side = cell({ N, D }, look);
  const between = gap(look);
  const [long, short] = [N * side, D * side];
  const left = (look.panel - long - 3 * short - 3 * between) / 2;
  const [above, top] = [HBM_TOP + 28, HBM_TOP + 28 + short + 22];
  const S = left + short + between;
  const V = S + long + between;
  return {
    side,
    Q: { x: left, y: top, w: short, h: long },
    K: { x: S, y: above, w: long, h: short },
    S: { x: S, y: top, w: long, h: long },
    V: { x: V, y: top, w: short, h: long },
    O: { x: V + short + between, y: top, w: short, h: long },
  };
}

// The rectangle of a tile within its matrix; K stands on its side.
function within(places, [name, from, to, left, right]) {
  const { x, y, w, h } = places[name];
  const side = places.side;
  if (name === "K") return { x: x + from * side, y, w: (to - from) * side, h };
  if (name === "S") return { x: x + left * side, y: y + from * side, w: (right - left) * side, h: (to - from) * side };
  return { x, y: y + from * side, w, h: (to - from) * side };
}

function matrices(run, at, setting, places) {
  const now = run.steps[at];
  const box = ({ x, y, w, h }, look) => rect(x, y, w, h, look);
  const parts = [];
  for (const name of ["Q", "K", "V", "S", "O"]) parts.push(box(places[name], "fill='#fff'"));
  for (const step of run.steps.slice(0, at + 1)) {
    for (const tile of step.c) if (tile[0] === "S") parts.push(box(within(places, tile), "fill='#CC79A7' fill-opacity='.32'"));
    for (const tile of step.w) if (tile[0] === "O") parts.push(box(within(places, tile), "fill='#f3cfb6'"));
  }
  parts.push(...unseen(setting, places));
  for (const tile of [...now.r, ...now.w, ...now.c]) {
    if (places[tile[0]]) parts.push(box(within(places, tile), `fill='${COLOURS[tile[0]]}' stroke='#1a1a1a' stroke-width='2'`));
  }
  for (const name of ["Q", "K", "V", "S", "O"]) {
    parts.push(...lines(places, name), box(places[name], "fill='none' stroke='#5a5a5a' stroke-width='1.5'"));
    const middle = places[name].x + places[name].w / 2;
    const arrow = (now.r.some((tile) => tile[0] === name) ? " ↓" : "") + (now.w.some((tile) => tile[0] === name) ? " ↑" : "");
    const label = { K: "Kᵀ", S: "" }[name] ?? name;
    if (label) parts.push(text(middle, places[name].y - 6, label + arrow, "text-anchor:middle;font-weight:700"));
  }
  return parts.join("");
}

// Keys that a query does not see, row by row: those before its first and those from its last on.
function unseen({ N, seen }, { S, side }) {
  const hidden = (row, from, to) => (from < to ? [rect(S.x + from * side, S.y + row * side, (to - from) * side, side, "fill='url(#hidden)'")] : []);
  return seen.flatMap(([first, end], row) => [...hidden(row, 0, first), ...hidden(row, end, N)]);
}

function lines(places, name) {
  const { x, y, w, h } = places[name];
  const side = places.side;
  const across = Array.from({ length: Math.round(h / side) - 1 }, (_, at) => `M${x},${y + (at + 1) * side}h${w}`);
  const down = Array.from({ length: Math.round(w / side) - 1 }, (_, at) => `M${x + (at + 1) * side},${y}v${h}`);
  return [`<path d='${[...across, ...down].join("")}' stroke='#d5d5d5' fill='none'/>`];
}

// What sits on chip, in the order in which it is multiplied, each with its rows.
function chip(now, top, width, places, { D }) {
  const tiles = ORDER.map((name) => now.c.find((tile) => tile[0] === name)).filter(Boolean);
  if (!tiles.length) return text(width / 2, top + 50, "nothing on chip", "text-anchor:middle;fill:#5a5a5a");
  const sizes = tiles.map(([name, from, to, left, right]) => {
    const cols = name === "S" ? right - left : SHORT[name] ? 1 : D;
    return { name, rows: to - from, cols, from, to };
  });
  const columns = sizes.reduce((sum, { cols }) => sum + cols, 0);
  const step = Math.min(22, (width - 24 - 14 * (sizes.length - 1) - 10) / columns);
  const apart = Math.max(10, Math.min(40, (width - 24 - columns * step) / sizes.length));
  let x = Math.max(10, (width - columns * step - apart * (sizes.length - 1)) / 2);
  return sizes
    .map((size, place) => {
      const read = now.r.find((tile) => tile[0] === size.name);
      const from = read && places[size.name] && within(places, read);
      const y = top + 48;
      const look = from ? `class='read' style='--x:${Math.round(from.x - x)}px;--y:${Math.round(from.y - y)}px'` : "";
      const [w, h] = [size.cols * step, size.rows * 14];
      const drawn = `<g ${look}>${rect(x, y, w, h, `fill='${COLOURS[size.name]}' stroke='#1a1a1a' stroke-width='2'`)}</g>`;
      const label = SHORT[size.name] ?? size.name;
      const mark = text(x + w / 2, y - 6, label, "text-anchor:middle;font-weight:700;font-size:14px");
      const count = size.cols > 1 && w > 30 ? text(x + w / 2, y + h + 18, `${size.rows} × ${size.cols}`, "text-anchor:middle;font-size:12.5px") : "";
      x += w + apart;
      return drawn + mark + count;
    })
    .join("");
}
