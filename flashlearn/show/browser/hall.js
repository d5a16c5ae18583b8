// Mounts the questions of one cell in a notebook; anywidget calls `render` for every view of a Hall of hall.py.
// A choice goes to the kernel, which notes it, and only then sends the answer: before, it is not in the page.

const PATIENCE = 1500; // ms until an answer that does not come is spoken of

export default {
  initialize: ({ model }) => saved(model),
  render({ model, el }) {
    const timers = [];
    const questions = model.get("questions");
    const ballots = questions.map((asked) => new Ballot(asked, (place) => choose(asked.name, place)));
    const place = document.createElement("div");
    place.className = "flashlearn-hall";
    place.append(...ballots.map((ballot) => ballot.node));
    el.replaceChildren(place);

    function choose(name, chosen) {
      const ballot = ballots[questions.findIndex((asked) => asked.name === name)];
      timers.push(setTimeout(() => ballot.told || ballot.say("The kernel is busy or gone: the answer comes once it has noted your choice."), PATIENCE));
      model.send({ question: name, chosen });
    }

    function tell() {
      const told = model.get("told");
      questions.forEach(({ name }, at) => told[name] && ballots[at].show(told[name].chosen, told[name]));
    }

    const letGo = keepKeys(place);
    model.on("change:told", tell);
    tell();
    return () => {
      letGo();
      timers.forEach(clearTimeout);
      model.off("change:told", tell);
    };
  },
};
