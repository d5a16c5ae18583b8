// Mounts the questions of one cell in a notebook; anywidget calls `render` for every view of a Quiz of quiz.py.
// A choice goes to the kernel, which notes it, and only then sends the answer: before, it is not in the page.

const PATIENCE = 1500; // ms until an answer that does not come is spoken of

export default {
  initialize: ({ model }) => saved(model),
  render({ model, el }) {
    const timers = [];
    const questions = model.get("questions");
    const forms = questions.map((question) => new Question(question, (chosen) => choose(question.name, chosen)));
    const place = document.createElement("div");
    place.className = "flashlearn-quiz";
    place.append(...forms.map((form) => form.node));
    el.replaceChildren(place);

    function choose(name, chosen) {
      const form = forms[questions.findIndex((question) => question.name === name)];
      timers.push(setTimeout(() => form.answered || form.say("The kernel is busy or gone: the answer comes once it has noted your choice."), PATIENCE));
      model.send({ question: name, chosen });
    }

    function show() {
      const answers = model.get("answers");
      questions.forEach(({ name }, at) => answers[name] && forms[at].show(answers[name].chosen, answers[name]));
    }

    const release = keepKeys(place);
    model.on("change:answers", show);
    show();
    return () => {
      release();
      timers.forEach(clearTimeout);
      model.off("change:answers", show);
    };
  },
};
