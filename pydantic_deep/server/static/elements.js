// Elements from plain values. Text is always text: nothing that a model or a person says is ever read as HTML.

export function element(tag, attributes = {}, ...children) {
  const made = tag === 'svg' || svgTags.has(tag)
    ? document.createElementNS('http://www.w3.org/2000/svg', tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const svgTags = new Set(['path', 'circle']);

export const byId = (id) => document.getElementById(id);

// Ask with a form: fields are {name: {label, value, rows}}; returns their values, or null if it was left.
export function ask(question, fields = {}, answer = 'OK') {
  const dialog = byId('asked');
  const form = dialog.querySelector('form');
  const inputs = Object.entries(fields).map(([name, { label, value = '', rows, type = 'text' }]) => {
    const input = rows
      ? element('textarea', { name, rows, required: true })
      : element('input', { name, type, required: true, autocomplete: 'off' });
    input.value = value;
    return element('label', {}, label, input);
  });
  form.replaceChildren(
    element('div', {}, ...[question].flat()),
    ...inputs,
    element('div', { class: 'acts' },
      element('button', { type: 'submit', value: 'yes' }, answer),
      element('button', { value: 'no', formnovalidate: true }, 'Cancel')),
  );
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      resolve(dialog.returnValue === 'yes' ? Object.fromEntries(new FormData(form)) : null);
    }, { once: true });
  });
}
