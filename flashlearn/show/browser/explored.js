// Mounts an explorer in a notebook: every setting is a trait of an Explorer of explorers/explorer.py, which records a run for it.

export default {
  initialize: ({ model }) => saved(model),
  render({ model, el }) {
    const view = new ExplorerView(model, el);
    return () => view.close();
  },
};

class ExplorerView extends View {
  constructor(model, element) {
    const link = () => model.get("call");
    link.label = "Copy the call";
    const explorer = new Explorer(element, model.get("controls"), {
      act: (name, value) => this.change(name, value),
      press: (name) => this.say({ press: name }),
      link,
    });
    super(model, explorer.stage);
    this.explorer = explorer;
    explorer.player = this.player;
    this.followed = [...explorer.controls.keys(), "chosen", "hidden"].map((name) => `change:${name}`);
    this.put = () => explorer.set(Object.fromEntries([...explorer.controls.keys()].map((name) => [name, model.get(name)])), model.get("chosen"), model.get("hidden"));
    this.tell = () => explorer.say(model.get("said"));
    for (const kind of this.followed) model.on(kind, this.put);
    model.on("change:said", this.tell);
    this.put();
    this.tell();
  }

  renew() {
    super.renew();
    this.explorer.fit();
  }

  change(name, value) {
    this.model.set(name, value);
    this.send(() => this.model.save_changes());
  }

  close() {
    for (const kind of this.followed) this.model.off(kind, this.put);
    this.model.off("change:said", this.tell);
    super.close();
    this.explorer.close();
  }
}
