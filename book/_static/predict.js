// Questions that are asked before the page answers them. Their data come from the notebook's output
// application/vnd.flashlearn.predict+json, which tools/book/pages.py puts into the page:
//
//   {"questions": [{"name": "03.merge", "question": "...", "why": "...",
//                   "choices": [{"text": "...", "right": true}, {"text": "...", "believes": "the belief behind it"}]}]}
//
// A choice is kept until the tab is closed, and noted before the answer shows.

import { Question } from "./question.js";

export function questions() {
  document.querySelectorAll("section.predict").forEach((section) => {
    const script = section.querySelector("script");
    if (script) section.replaceChildren(...JSON.parse(script.textContent).questions.map(formOf));
  });
}

function formOf({ name, question, choices, why }) {
  const texts = choices.map(({ text }) => text);
  const answer = { right: choices.findIndex(({ right }) => right), believes: choices.map(({ believes }) => believes ?? ""), why };
  const form = new Question({ question, choices: texts }, (chosen) => {
    keep(name, texts[chosen]);
    form.show(chosen, answer);
  });
  const earlier = texts.indexOf(kept(name));
  if (earlier >= 0) form.show(earlier, answer);
  return form.node;
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
