// What a notebook is saved with. A view of a widget is an error on the page once its kernel is gone. So what is saved
// has no views, but the words that the kernel sent along to store in their place. The live widgets stay on the page.

const VIEW = "application/vnd.jupyter.widget-view+json";

// Called for every model, whether it is in sight or not. JupyterLab and Notebook 7 save what `toJSON` of the notebook
// returns; other programs have no `context`, and store widgets in their own way.
function saved(model) {
  const notebook = model.widget_manager?.context?.model;
  if (!notebook || notebook.toJSON.withoutViews) return;
  const whole = notebook.toJSON;
  notebook.toJSON = () => withoutViews(whole.call(notebook));
  notebook.toJSON.withoutViews = true;
}

function withoutViews(content) {
  const cells = content.cells.map((cell) => (cell.outputs ? { ...cell, outputs: cell.outputs.flatMap(stored) } : cell));
  return { ...content, cells };
}

// An output without its view, and after it the words; an output that was a view alone is gone. Widgets that are not
// ours brought no words: they stay as they are.
function stored(output) {
  const words = output.data?.[VIEW]?.stored;
  if (words === undefined) return [output];
  const { [VIEW]: _view, ...data } = output.data;
  const { [VIEW]: _how, ...metadata } = output.metadata;
  const kept = Object.keys(data).length ? [{ ...output, data, metadata }] : [];
  const told = { output_type: "display_data", data: { "text/html": words }, metadata: {} };
  return words ? [...kept, told] : kept;
}
