// Mounts the player in a notebook; anywidget calls `render` for every view of a Player of player.py.

export default {
  initialize: ({ model }) => saved(model),
  render({ model, el }) {
    const view = new View(model, el);
    return () => view.close();
  },
};
