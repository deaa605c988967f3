// The editor of a card's caption: its text, its sentences to drop, other captions of the medium to use instead.
// review_cards.js creates it; both are one script. Captions are set as text, never as HTML.

class CaptionEditor {
  constructor(item, longest, { save, cancel }) {
    Object.assign(this, { id: item.id, save, area: createElement("textarea"), texts: createElement("div", "texts") });
    this.area.value = item.edit?.text ?? item.caption;
    this.area.maxLength = Math.max(longest, this.area.value.length);
    this.area.setAttribute("aria-label", "Caption");
    this.area.onkeydown = (event) => {
      if (event.isComposing) return;
      if (event.key === "Escape") cancel();
      else if (event.key === "Enter") save(this.text);
      else return;
      event.preventDefault();
    };
    const buttons = createElement("div", "buttons");
    for (const [label, act] of [["save", () => save(this.text)], ["cancel", cancel]]) {
      const button = createElement("button", label, label);
      button.onclick = act;
      buttons.append(button);
    }
    this.element = createElement("div", "editor");
    this.element.append(this.area, buttons, createElement("div", "help", "Enter saves · Esc cancels"), this.texts);
    this.refresh(item);
  }

  get text() {
    return this.area.value.split(/\s*\n\s*/).join(" ").trim();
  }

  // Other captions arrive later than the card. The text area stays as it is, because somebody may be typing.
  refresh(item) {
    const sentences = item.sentences ?? [];
    const choices = (item.choices ?? []).filter(({ text }) => text !== (item.edit?.text ?? item.caption));
    this.texts.replaceChildren(
      ...sentences.map((sentence, place) => this.createText(sentence, "drop", sentences.toSpliced(place, 1).join(""))),
      ...choices.map(({ name, text }) => this.createText(`${name}: ${text}`, "use", text)),
    );
  }

  createText(line, verb, text) {
    const row = createElement("div", "text");
    const button = createElement("button", verb, verb);
    button.onclick = () => {
      this.area.value = text.trim();
      this.area.focus();
    };
    row.append(button, createElement("span", "", line));
    return row;
  }
}
