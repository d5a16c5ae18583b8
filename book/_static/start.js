// What runs when a page of the book is there.

import { bytesExplorer } from "./bytes.js";
import { folds } from "./folds.js";
import { tilingExplorer } from "./tiling.js";
import { questions } from "./predict.js";
import { runs } from "./runs.js";
import { search } from "./search.js";

const EXPLORERS = { bytes: bytesExplorer, tiling: tilingExplorer };

export function start() {
  window.flashlearnBook = { folds, runs, questions }; // for pages that put more of them in later
  colours();
  menus();
  search();
  folds();
  runs();
  questions();
  for (const place of document.querySelectorAll("[data-explorer]")) EXPLORERS[place.dataset.explorer](place);
  reachable();
  new ResizeObserver(reachable).observe(document.querySelector("main")); // explorers come later, and change their size
}

// Light or dark as the reader's system has it, until the reader chooses. The page's head sets it first, before anything is drawn.
function colours() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = (theme) => (document.documentElement.dataset.theme = theme);
  let chosen = stored();
  dark.addEventListener("change", () => chosen ?? set(dark.matches ? "dark" : "light"));
  document.querySelector("button.theme").addEventListener("click", () => {
    chosen = set(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    try {
      localStorage.setItem("flashlearn theme", chosen);
    } catch {}
  });
}

function stored() {
  try {
    return localStorage.getItem("flashlearn theme");
  } catch {
    return null;
  }
}

// One menu at a time; Escape, a click beside it or on a link in it closes it.
function menus() {
  const all = [...document.querySelectorAll("header .menu")];
  const close = (but) => all.filter((menu) => menu !== but).forEach((menu) => (menu.open = false));
  addEventListener("click", (event) => close(event.target.closest("a") ? null : event.target.closest(".menu, header form")));
  addEventListener("keydown", (event) => event.key === "Escape" && close());
}

// What scrolls by itself can be reached, and scrolled, from the keyboard.
function reachable() {
  for (const box of document.querySelectorAll("article pre, .table-wrapper, .scroll, .formula, .picture, .flashlearn-stage")) {
    const scrolls = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
    if (scrolls) box.setAttribute("tabindex", 0);
    else box.removeAttribute("tabindex");
  }
}

if (document.readyState === "loading") addEventListener("DOMContentLoaded", start);
else start();
