// A question that is asked before the page answers it. Its data come from the notebook's output
// application/vnd.flashlearn.predict+json, which tools/book/pages.py puts into the page:
//
//   {"question": "...", "choices": [{"text": "...", "right": true}, {"text": "...", "believes": "what a reader who takes it believes"}]}

import { el } from "./dom.js";

export function questions() {
  document.querySelectorAll("section.predict").forEach(ask);
}

function ask(section, number) {
  const { question, choices } = JSON.parse(section.querySelector("script").textContent);
  const answer = el("p", { role: "status" });
  const options = choices.map((choice, place) => {
    const input = el("input", { type: "radio", name: `predict-${number}`, value: place });
    return el("label", { class: "option" }, input, ` ${choice.text}`);
  });
  const form = el("form", {}, el("fieldset", {}, el("legend", {}, question), ...options), el("button", { type: "submit" }, "That is my prediction"), answer);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const taken = form.querySelector("input:checked");
    answer.textContent = taken ? told(choices, choices[taken.value]) : "Choose one first: a guess is enough.";
    form.classList.toggle("answered", Boolean(taken));
  });
  section.replaceChildren(form);
}

function told(choices, choice) {
  if (choice.right) return "Yes.";
  const right = choices.find((each) => each.right).text;
  return `${choice.believes ? `That is what one believes who thinks that ${choice.believes}. ` : ""}It is: ${right}`;
}
