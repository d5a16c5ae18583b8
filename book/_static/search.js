// Searching the sections of the book: the chapter of that name first, then headings, then text.
//
// _static/sections.js: flashlearnSections([[page, anchor, title, heading, text], ...]), a script since browsers load no JSON from a folder.

import { el } from "./dom.js";

const MOST = 40;
const plain = (text) => text.toLowerCase().normalize("NFKD").replace(/[\u0300-\u036f]/g, "");
const escaped = (word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

export function search() {
  const list = document.getElementById("results");
  if (!list) return;
  const asked = (new URLSearchParams(location.search).get("q") ?? "").trim();
  document.querySelector("header input").value = asked;
  window.flashlearnSections = (sections) => asked && show(list, sections, asked);
}

function show(list, sections, asked) {
  const words = plain(asked).split(/\s+/);
  const found = sections
    .map((section) => ({ section, score: score(section, plain(asked), words) }))
    .filter((each) => each.score)
    .sort((one, other) => other.score - one.score);
  const number = found.length > MOST ? `more than ${MOST} sections` : found.length === 1 ? "one section" : `${found.length} sections`;
  document.getElementById("found").textContent = found.length ? `${number} with “${asked}”` : `Nothing with “${asked}”.`;
  list.replaceChildren(...found.slice(0, MOST).map((each) => entry(each.section, words)));
}

// Every word must stand in a section. The whole phrase counts most, then where it stands.
export function score([, anchor, title, heading, text], phrase, words) {
  const [name, head, body] = [title, heading, text].map(plain);
  if (!words.every((word) => head.includes(word) || body.includes(word) || (!anchor && name.includes(word)))) return 0;
  const inside = (where) => (where === phrase ? 4 : where.startsWith(phrase) ? 3 : where.includes(phrase) ? 2 : words.every((word) => where.includes(word)) ? 1 : 0);
  const often = words.reduce((sum, word) => sum + Math.min(body.split(word).length - 1, 9), 0) / words.length;
  return 1000 * (anchor ? 0 : inside(name)) + 100 * inside(head) + (body.includes(phrase) ? 20 : 0) + often + 1;
}

function entry([page, anchor, title, heading, text], words) {
  const found = new URLSearchParams({ found: words.join(" ") }); // the page unfolds what has these words
  const link = el("a", { href: anchor ? `${page}?${found}#${anchor}` : page }, anchor ? `${title} › ${heading}` : title);
  return el("li", {}, link, el("p", {}, ...marked(around(text, words), words)));
}

// Some 200 letters around the first word that was asked for.
function around(text, words) {
  const at = plain(text).search(new RegExp(words.map(escaped).join("|")));
  const start = Math.max(text.lastIndexOf(" ", Math.max(at - 60, 0)), 0);
  return `${start ? "…" : ""}${text.slice(start, start + 200)}…`;
}

function marked(text, words) {
  const parts = text.split(new RegExp(`(${words.map(escaped).join("|")})`, "i"));
  return parts.map((part, at) => (at % 2 ? el("mark", {}, part) : part));
}
