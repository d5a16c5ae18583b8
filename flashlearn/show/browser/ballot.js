// A question that is asked before its answer is shown: radio buttons, one choice, and then what it means. No framework.
// It runs in a notebook (hall.js mounts it) and in the book; styles are in ballot.css.
//
//   import { Ballot } from "./ballot.js";
//   const ballot = new Ballot({ question, choices: ["...", ...] }, (place) => ...);   // called once, with the choice made
//   ballot.node                        what to put on the page
//   ballot.show(place, answer)         lock the choice and tell; answer = {right, believes: ["...", ...], why, trouble}, `right` a place
//   ballot.say(text)                   a line below, which screen readers speak: "The kernel is busy."
//
// The choice cannot be changed once it is made, and the answer need not be here before it.

let made = 0; // for names of their own
const OWN = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", " ", "Enter"]; // keys that radio buttons and buttons use

export class Ballot {
  constructor({ question, choices }, choose) {
    const name = `flashlearn-ballot-${made++}`;
    this.choices = choices;
    this.inputs = choices.map((_, value) => element("input", { type: "radio", name, value }));
    this.labels = choices.map((text, place) => element("label", {}, this.inputs[place], element("span", {}, text)));
    this.button = element("button", { type: "submit" }, "That is my prediction");
    this.status = element("p", { role: "status", "aria-live": "polite" });
    const fields = element("fieldset", {}, element("legend", {}, question), ...this.labels);
    this.node = element("form", { class: "flashlearn-ballot" }, fields, this.button, this.status);
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
  lock(place) {
    this.made = place;
    this.inputs.forEach((input, each) => (input.checked = each === place));
    for (const control of [...this.inputs, this.button]) control.setAttribute("aria-disabled", "true");
    this.labels[place].classList.add("chosen");
  }

  show(place, { right, believes, why, trouble = "" }) {
    this.lock(place);
    if (this.told) return;
    this.told = true;
    this.node.classList.add("told");
    this.button.textContent = "Your prediction is made";
    this.labels[right].append(element("b", {}, " ✓ right"));
    this.labels[right].classList.add("right");
    if (place !== right) this.labels[place].append(element("b", {}, " ✗ your choice"));
    const verdict = place === right ? "Right." : `No. That is what one believes who thinks that ${closed(believes[place])} Right is: ${closed(this.choices[right])}`;
    this.say([verdict, why, trouble].join(" ").trim());
  }

  say(text) {
    this.status.textContent = text;
  }
}

// Keys of a notebook's own shortcuts, which would take the arrows from the radio buttons, do not come to it. Its
// shortcuts listen on the document, so this listens on the window; what the browser does with a key, it still does.
export function keepKeys(place) {
  const keep = (event) => {
    if (place.contains(event.target) && event.target.matches("input, button") && OWN.includes(event.key) && !event.ctrlKey && !event.altKey && !event.metaKey && !event.shiftKey) {
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
