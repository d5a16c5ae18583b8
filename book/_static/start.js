// What runs when a page of the book is there.

import { bytesExplorer } from "./bytes.js";
import { tilingExplorer } from "./tiling.js";
import { figures } from "./figures.js";
import { questions } from "./predict.js";

const EXPLORERS = { bytes: bytesExplorer, tiling: tilingExplorer };

export function start() {
  window.flashlearnBook = { figures, questions }; // for pages that put more of them in later
  figures();
  questions();
  for (const place of document.querySelectorAll("[data-explorer]")) EXPLORERS[place.dataset.explorer](place);
  reachable();
  addEventListener("resize", reachable);
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
