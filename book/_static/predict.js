// Questions that are asked before the page answers them. Their data come from the notebook's output
// application/vnd.flashlearn.predict+json, which tools/book/pages.py puts into the page:
//
//   {"questions": [{"name": "03.merge", "question": "...", "why": "...",
//                   "choices": [{"text": "...", "right": true}, {"text": "...", "believes": "what a reader who takes it believes"}]}]}

import { el } from "./dom.js";

let asked = 0; // for names of their own

export function questions() {
  document.querySelectorAll("section.predict").forEach((section) => {
    const script = section.querySelector("script");
    if (script) section.replaceChildren(...JSON.parse(script.textContent).questions.map(ask));
  });
}

function ask({ question, choices, why }) {
  const name = `predict-${asked++}`;
  const answer = el("p", { role: "status" });
  const options = choices.map((choice, place) => {
    const input = el("input", { type: "radio", name, value: place });
    return el("label", { class: "option" }, input, ` ${choice.text}`);
  });
  const fields = el("fieldset", {}, el("legend", {}, question), ...options);
  const form = el("form", {}, fields, el("button", { type: "submit" }, "That is my prediction"), answer);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const taken = form.querySelector("input:checked");
    answer.textContent = taken ? told(choices, choices[taken.value], why) : "Choose one first: a guess is enough.";
    form.classList.toggle("answered", Boolean(taken));
  });
  return form;
}

function told(choices, choice, why) {
  if (choice.right) return `Yes. ${why}`;
  const right = choices.find((each) => each.right).text;
  return `That is what one believes who thinks that ${choice.believes}. It is: ${right}. ${why}`;
}
