// Questions that are asked before the page answers them. Their data come from the notebook's output
// application/vnd.flashlearn.predict+json, which tools/book/pages.py puts into the page:
//
//   {"questions": [{"name": "03.merge", "question": "...", "why": "...",
//                   "choices": [{"text": "...", "right": true}, {"text": "...", "believes": "the belief behind it"}]}]}
//
// A choice is kept until the tab is closed, and noted before the answer shows. What a reader explains in a sentence is kept
// nowhere: application/vnd.flashlearn.sentence+json is {"name": "03.why", "text": "...", "model": "...", "points": ["...", ...]}.

import { el } from "./dom.js";
import { predicted } from "./folds.js";
import { Question } from "./question.js";

export function questions() {
  document.querySelectorAll("section.predict").forEach((section) => {
    const script = section.querySelector("script");
    if (script) section.replaceChildren(...JSON.parse(script.textContent).questions.map(formOf));
  });
  document.querySelectorAll("section.sentence").forEach((section) => {
    const script = section.querySelector("script");
    if (script) section.replaceChildren(sentence(JSON.parse(script.textContent)));
  });
}

function formOf({ name, question, choices, why }) {
  const texts = choices.map(({ text }) => text);
  const answer = { right: choices.findIndex(({ right }) => right), believes: choices.map(({ believes }) => believes ?? ""), why };
  const form = new Question({ question, choices: texts }, (chosen) => {
    keep(name, texts[chosen]);
    form.show(chosen, answer);
    predicted(name);
  });
  const earlier = texts.indexOf(kept(name));
  if (earlier >= 0) {
    form.show(earlier, answer);
    predicted(name);
  }
  return form.node;
}

const WORDS = 5; // fewer say nothing

// The reader's sentence, then ours next to it, and what to look for.
function sentence({ text, model, points }) {
  const mine = el("textarea", { rows: 2 });
  const status = el("p", { role: "status" });
  const ours = el("details", {}, el("summary", {}, "Our sentence"), el("p", {}, model), el("p", {}, "Does yours say"), el("ul", {}, ...points.map((point) => el("li", {}, point))));
  const form = el("form", { class: "flashlearn-question" }, el("label", {}, el("b", {}, text), mine), el("button", { type: "submit" }, "Compare"), status, ours);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ours.open = mine.value.trim().split(/\s+/).length >= WORDS;
    status.textContent = ours.open ? "Compare yours with ours, below." : `Write a sentence first, of at least ${WORDS} words.`;
  });
  return form;
}

// A browser may keep nothing for a page; then the choice is this page's alone.
function keep(name, text) {
  try {
    sessionStorage.setItem(`flashlearn ${name}`, text);
  } catch {}
}

function kept(name) {
  try {
    return sessionStorage.getItem(`flashlearn ${name}`);
  } catch {
    return null;
  }
}
