// What a page folds: answers until their questions are answered, and deeper sections until somebody wants them. Without
// scripts, and in print, nothing is folded.
//
//   <div class="answer" data-questions="03.wrong 03.correction">...</div>         tools/book/chapter.py marks both
//   <section><h2>...</h2><div class="deeper"></div>...</section>
//
// A link into a fold opens it, and so does a search whose words are in it.

import { el } from "./dom.js";

const answered = new Set();

export function folds() {
  for (const place of document.querySelectorAll("div.answer")) {
    const button = el("summary", {}, el("span", { class: "collapsed" }, "Show without predicting"), el("span", { class: "expanded" }, "Fold the answer"));
    const fold = el("details", { class: "answer", "data-questions": place.dataset.questions }, button, ...place.childNodes);
    place.replaceWith(fold);
    if (done(fold)) shown(fold);
  }
  for (const mark of document.querySelectorAll("div.deeper")) {
    const section = mark.parentElement;
    const heading = section.querySelector(":scope > :is(h2, h3, h4)");
    const rest = [...section.childNodes].filter((node) => node !== mark && node !== heading);
    heading.querySelector(".headerlink")?.remove(); // no link within a button
    section.replaceChildren(el("details", { class: "deeper" }, el("summary", {}, heading), ...rest));
  }
  addEventListener("hashchange", unfold);
  unfold();
}

// What a question asked is predicted: answers to it alone unfold, and those to several questions once all are predicted.
export function predicted(name) {
  answered.add(name);
  for (const fold of document.querySelectorAll("details.answer")) if (done(fold)) shown(fold);
}

const done = (fold) => fold.dataset.questions.split(" ").every((name) => answered.has(name));

function shown(fold) {
  fold.open = true;
  fold.classList.add("predicted");
}

function unfold() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  for (const own of target.querySelectorAll(":scope > details.deeper")) own.open = true;
  const words = new URLSearchParams(location.search).get("found")?.split(" ") ?? [];
  for (const fold of target.querySelectorAll("details:is(.answer, .deeper)")) {
    const text = fold.textContent.toLowerCase();
    if (words.length && words.every((word) => text.includes(word))) fold.open = true;
  }
  target.scrollIntoView();
}
