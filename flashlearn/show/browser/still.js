// A still picture in a notebook, with its alternative text, which a plain image in an output has no place for.
export default {
  initialize: ({ model }) => saved(model),
  render({ model, el }) {
    const image = Object.assign(document.createElement("img"), { alt: model.get("alt"), width: model.get("width") });
    image.style.cssText = "display: block; max-width: 100%; height: auto";
    const place = document.createElement("div");
    place.className = "flashlearn-picture";
    place.append(image);
    el.replaceChildren(place);
    const show = () => {
      URL.revokeObjectURL(image.src);
      image.src = URL.createObjectURL(new Blob([model.get("png")], { type: "image/png" }));
    };
    show();
    model.on("change:png", show);
    return () => {
      model.off("change:png", show);
      URL.revokeObjectURL(image.src);
    };
  },
};
