// Facets: the values of columns with their counts. A click adds or removes a value. All text is set as text, never as HTML.

const SHOWN = 6; // values of a facet before "more"

function createElement(tag, className, text) {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text ?? "";
  return element;
}

export default function ({ parentElement, data, setTriggerValue }) {
  let root = parentElement.querySelector(".facets");
  if (!root) {
    root = createElement("div", "facets");
    Object.assign(root, { open: new Map(), all: new Set() });
    parentElement.appendChild(root);
  }
  const drawFacet = (facet) => {
    const box = createElement("details", "facet");
    box.dataset.name = facet.name;
    box.open = root.open.get(facet.name) ?? facet.open;
    box.ontoggle = () => root.open.set(facet.name, box.open);
    box.append(createElement("summary", "", facet.label));
    const most = Math.max(...facet.values.map((value) => value.rows), 1);
    const drawValue = (value) => {
      const button = createElement("button", facet.chosen.includes(value.value) ? "value chosen" : "value");
      button.setAttribute("aria-pressed", facet.chosen.includes(value.value));
      button.title = value.label;
      button.style.setProperty("--share", `${(100 * value.rows) / most}%`);
      button.append(createElement("span", "label", value.label), createElement("span", "count", value.rows.toLocaleString("en")));
      button.onclick = () => setTriggerValue("clicked", { facet: facet.name, value: value.value });
      return button;
    };
    const isShown = (value, place) => root.all.has(facet.name) || place < SHOWN || facet.chosen.includes(value.value);
    const shown = facet.values.filter(isShown);
    box.append(...shown.map(drawValue));
    if (shown.length < facet.values.length) {
      const more = createElement("button", "more", `${facet.values.length - shown.length} more`);
      more.onclick = () => {
        root.all.add(facet.name);
        box.replaceWith(drawFacet(facet));
      };
      box.append(more);
    }
    return box;
  };
  root.replaceChildren(...data.facets.map(drawFacet));
}
