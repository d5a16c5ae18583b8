// A question that is asked before its answer is shown: radio buttons, one choice, and then what it means. No framework.
// It runs in a notebook (quiz.js mounts it) and in the book; styles are in question.css.
//
//   import { Question } from "./question.js";
//   const question = new Question({ question: "...", choices: ["...", ...] }, (chosen) => ...);   // called once, with the choice made
//   question.node                      what to put on the page
//   question.show(chosen, answer)       lock the choice and explain; answer = {right, believes: ["...", ...], why, trouble}, `right` a number
//   question.say(text)                 a line below, which screen readers speak: "The kernel is busy."
//
// The choice cannot be changed once it is made, and the answer need not be here before it.

let made = 0; // for names of their own
const OWN = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", " ", "Enter"]; // keys that radio buttons and buttons use

export class Question {
  constructor({ question, choices }, choose) {
    const name = `flashlearn-question-${made++}`;
    this.choices = choices;
    this.inputs = choices.map((_, value) => element("input", { type: "radio", name, value }));
    this.labels = choices.map((text, n) => element("label", {}, this.inputs[n], element("span", {}, text)));
    this.button = element("button", { type: "submit" }, "That is my prediction");
    this.status = element("p", { role: "status", "aria-live": "polite" });
    const fields = element("fieldset", {}, element("legend", {}, question), ...this.labels);
    this.node = element("form", { class: "flashlearn-question" }, fields, this.button, this.status);
    this.node.addEventListener("submit", (event) => this.submitted(event, choose));
    this.node.addEventListener("click", (event) => this.made !== undefined && event.target.type === "radio" && event.preventDefault());
  }

  submitted(event, choose) {
    event.preventDefault();
    if (this.made !== undefined) return;
    const taken = this.inputs.findIndex((input) => input.checked);
    if (taken < 0) return this.say("Choose one first: a guess is enough.");
    this.lock(taken);
    choose(taken);
  }

  // What has the focus keeps it: nothing is disabled, but a choice cannot be taken back.
  lock(chosen) {
    this.made = chosen;
    this.inputs.forEach((input, each) => (input.checked = each === chosen));
    for (const control of [...this.inputs, this.button]) control.setAttribute("aria-disabled", "true");
    this.labels[chosen].classList.add("chosen");
  }

  show(chosen, { right, believes, why, trouble = "" }) {
    this.lock(chosen);
    if (this.answered) return;
    this.answered = true;
    this.node.classList.add("answered");
    this.button.textContent = "Your prediction is made";
    this.labels[right].append(element("b", {}, " ✓ right"));
    this.labels[right].classList.add("right");
    if (chosen !== right) this.labels[chosen].append(element("b", {}, " ✗ your choice"));
    const verdict = chosen === right ? "Right." : `Not quite. You may be thinking that ${closed(believes[chosen])} The answer: ${closed(this.choices[right])}`;
    this.say([verdict, why, trouble].join(" ").trim());
  }

  say(text) {
    this.status.textContent = text;
  }
}

// Keys of a notebook's own shortcuts, which would take the arrows from the radio buttons, do not come to it. Its
// shortcuts listen on the document, so this listens on the window; what the browser does with a key, it still does.
export function keepKeys(element) {
  const keep = (event) => {
    if (element.contains(event.target) && event.target.matches("input, button") && OWN.includes(event.key) && !event.ctrlKey && !event.altKey && !event.metaKey && !event.shiftKey) {
      event.stopImmediatePropagation();
    }
  };
  addEventListener("keydown", keep, { capture: true });
  return () => removeEventListener("keydown", keep, { capture: true });
}

function closed(text) {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

function element(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
