// Cards to mark: one large card with the next ones already loaded, or a grid in which many are marked at once.
// The caption of a large card can be edited (caption_editor.js).
// A key press shows the next card at once. Decisions go to Python in order and stay here until it acknowledges them.
// Captions and keys of the corpus are set as text, never as HTML.

const KEYS = { g: "good", b: "bad", u: "unsure" };
const instances = new WeakMap();

function createElement(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined && text !== null) element.textContent = text;
  return element;
}

class ReviewCards {
  constructor(component) {
    this.root = createElement("div", "review-cards");
    this.root.tabIndex = -1;
    component.parentElement.appendChild(this.root);
    this.nonce = Math.random().toString(36).slice(2);
    this.sequence = 0;
    this.latencies = [];
    this.keyListener = (event) => this.handleKey(event);
    window.addEventListener("keydown", this.keyListener);
  }

  // Takes the data of a new run of the page; the card on the screen stays.
  update(component) {
    this.component = component;
    const data = component.data;
    if (this.token !== data.token) this.restart(data);
    this.data = data;
    const acknowledged = data.acknowledged[this.nonce] ?? 0;
    this.outbox = this.outbox.filter((decision) => decision.n > acknowledged);
    const missing = data.items.filter((item) => item.loaded && !this.items.has(item.id));
    for (const item of data.items) if (!missing.includes(item)) this.addItem(item);
    this.draw();
    if (missing.length) this.sendState(); // a new page in an old session: Python believes that another page's pictures are here
  }

  addItem(item) {
    const previous = this.items.get(item.id);
    if (!previous) this.order.push(item.id);
    const mark = this.marks.has(item.id) ? this.marks.get(item.id) : item.mark;
    this.items.set(item.id, { ...previous, ...item, mark, view: previous?.view });
    this.preload(item.id);
  }

  restart(data) {
    Object.assign(this, { token: data.token, order: [], items: new Map(), marks: new Map(), selected: new Set(), outbox: [] });
    Object.assign(this, { position: 0, history: [], anchor: null, drawnIds: "", editor: null });
  }

  // Creates and decodes the picture of a card before it is needed.
  preload(id) {
    const item = this.items.get(id);
    if (item.view) return;
    if (item.problem) {
      item.view = createElement("div", "absent", item.problem);
    } else {
      item.view = createElement(item.video ? "video" : "img");
      if (item.video) Object.assign(item.view, { muted: true, loop: true, autoplay: true, playsInline: true, controls: true });
      else item.view.alt = "";
      item.view.src = item.src;
      if (!item.video) item.view.decode().catch(() => {});
    }
  }

  sendDecision(ids, mark, text) {
    this.outbox.push({ n: ++this.sequence, ids, mark, ...(text === undefined ? {} : { text }) });
    this.sendState();
  }

  // Sends the decisions that are not acknowledged yet, and the ids of the pictures that are here.
  sendState() {
    const loaded = [...this.items.keys()].slice(-100);
    this.component.setStateValue("decisions", { nonce: this.nonce, list: this.outbox, loaded });
  }

  handleKey(event) {
    const target = event.composedPath()[0];
    if (event.ctrlKey || event.metaKey || event.altKey || !this.root.isConnected) return;
    if (target instanceof HTMLElement && (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable)) return;
    const key = event.key.toLowerCase();
    let handled = true;
    if (KEYS[key]) this.decide(KEYS[key], event.timeStamp);
    else if (key === "z") this.undo();
    else if (this.data.grid && key === "a") this.selectAll();
    else if (this.data.grid && key === "escape") this.select([]);
    else if (!this.data.grid && (key === "n" || key === "arrowright")) this.skip();
    else if (!this.data.grid && key === "e") this.startEdit();
    else handled = false;
    if (handled) event.preventDefault();
  }

  decide(mark, startTime) {
    const ids = this.data.grid ? [...this.selected] : this.order.slice(this.position, this.position + 1);
    if (!ids.length) return;
    this.history.push({ ids, marks: ids.map((id) => this.items.get(id).mark ?? null), position: this.position });
    for (const id of ids) this.setMark(id, mark);
    if (this.data.grid) this.selected.clear();
    else this.position += 1;
    this.draw();
    this.sendDecision(ids, mark);
    this.measureLatency(startTime);
  }

  setMark(id, mark) {
    this.marks.set(id, mark);
    this.items.get(id).mark = mark;
  }

  startEdit() {
    const item = this.items.get(this.order[this.position]);
    if (!item?.caption) return;
    const actions = { save: (text) => this.saveEdit(item, text), cancel: () => this.stopEdit() };
    this.editor = new CaptionEditor(item, this.data.longest, actions);
    this.draw();
    this.editor.area.focus();
  }

  stopEdit() {
    this.editor = null;
    this.draw();
  }

  saveEdit(item, text) {
    if (text && text !== (item.edit?.text ?? item.caption)) {
      this.history.push({ ids: [item.id], edit: item.edit, position: this.position });
      this.items.get(item.id).edit = { text, by: "you" };
      this.sendDecision([item.id], "edit", text);
    }
    this.stopEdit();
  }

  undo() {
    const last = this.history.pop();
    if (!last) return;
    if ("edit" in last) this.items.get(last.ids[0]).edit = last.edit;
    else last.ids.forEach((id, index) => this.setMark(id, last.marks[index]));
    this.position = last.position;
    if (this.data.grid) this.selected = new Set(last.ids);
    this.draw();
    this.sendDecision(last.ids, "undo");
  }

  skip() {
    const id = this.order[this.position];
    if (id === undefined) return;
    this.history.push({ ids: [], marks: [], position: this.position });
    this.position += 1;
    this.draw();
    this.sendDecision([id], "skip");
  }

  select(ids) {
    this.selected = new Set(ids);
    this.draw();
  }

  selectAll() {
    this.select(this.selected.size === this.data.items.length ? [] : this.data.items.map((item) => item.id));
  }

  // Handles a click on a card of the grid; Shift selects all cards from the last click to this one.
  handleClick(id, event) {
    const ids = this.data.items.map((item) => item.id);
    if (event.shiftKey && this.anchor !== null && ids.includes(this.anchor)) {
      const [from, to] = [ids.indexOf(this.anchor), ids.indexOf(id)].sort((a, b) => a - b);
      ids.slice(from, to + 1).forEach((selectedId) => this.selected.add(selectedId));
    } else if (!this.selected.delete(id)) {
      this.selected.add(id);
    }
    this.anchor = id;
    this.draw();
  }

  // Milliseconds from the key press until the next picture is on the screen; tests/bench/review_speed.py reads them.
  async measureLatency(startTime) {
    const picture = this.root.querySelector(".stage img");
    if (picture) await picture.decode().catch(() => {});
    requestAnimationFrame(() => setTimeout(() => {
      this.latencies.push(performance.now() - startTime);
      this.root.dataset.latencies = this.latencies.slice(-500).map((ms) => ms.toFixed(1)).join(" ");
    }));
  }

  draw() {
    if (this.data.grid) this.drawGrid();
    else this.drawSingle();
    this.root.dataset.waiting = this.outbox.length;
  }

  drawSingle() {
    const item = this.items.get(this.order[this.position]);
    if (this.editor?.id !== item?.id) this.editor = null;
    if (this.editor && this.root.contains(this.editor.element)) return this.editor.refresh(item);
    const stage = createElement("div", "stage");
    if (item) {
      stage.append(item.view);
      stage.dataset.id = item.id;
      if (item.video) item.view.play?.().catch(() => {});
    } else {
      const message = this.data.remaining > 0 ? "Loading …" : "You have marked every row of this queue.";
      stage.append(createElement("div", "absent", message));
    }
    const side = createElement("div", "side");
    side.append(createElement("div", "caption", item ? item.caption || "(no caption)" : ""));
    if (this.editor) side.append(this.editor.element);
    else if (item?.edit) side.append(createElement("div", "edited", `Edited by ${item.edit.by}: ${item.edit.text}`));
    side.append(createElement("div", "line", item ? item.line : ""));
    side.append(this.createButtons(["good", "bad", "unsure"], Boolean(item)));
    side.append(createElement("div", "help", "g good · b bad · u unsure · e edit · → later · z undo"));
    side.append(this.createProgress());
    for (const part of item?.details ?? []) {
      side.append(createElement("div", "part", part.title));
      for (const line of part.lines) side.append(createElement("div", "evidence", line));
    }
    if (item && !item.details && this.data.explain) this.askForDetails(item.id);
    const layout = createElement("div", "single");
    layout.append(stage, side);
    this.root.replaceChildren(layout);
  }

  // Asks for the evidence of a card that stays on the screen: whoever decides at once does not wait for it.
  askForDetails(id) {
    clearTimeout(this.patience);
    this.patience = setTimeout(() => {
      if (this.order[this.position] === id) this.component.setTriggerValue("focus", id);
    }, 250);
  }

  createProgress() {
    const { decided, total } = this.data;
    const newMarks = [...this.marks.entries()].filter(([id, mark]) => mark && !decided.includes(id)).length;
    const count = Math.min(total, decided.length + newMarks);
    const track = createElement("div", "progress");
    const bar = createElement("div", "bar");
    bar.style.width = `${total ? (100 * count) / total : 0}%`;
    track.append(bar);
    const progress = createElement("div");
    progress.append(track, createElement("div", "line", `${count} of ${total} marked`));
    return progress;
  }

  createButtons(marks, enabled) {
    const row = createElement("div", "buttons");
    for (const mark of marks) {
      const button = createElement("button", mark, mark);
      button.disabled = !enabled;
      button.onclick = (event) => this.decide(mark, event.timeStamp);
      row.append(button);
    }
    if (!this.data.grid) {
      const edit = createElement("button", "edit", "edit");
      edit.disabled = !this.items.get(this.order[this.position])?.caption;
      edit.onclick = () => this.startEdit();
      row.append(edit);
    }
    const undo = createElement("button", "", "undo");
    undo.disabled = !this.history.length;
    undo.onclick = () => this.undo();
    row.append(undo);
    return row;
  }

  drawGrid() {
    const toolbar = createElement("div", "tools");
    toolbar.append(this.createButtons(["good", "bad", "unsure"], this.selected.size > 0));
    const all = createElement("button", "", "select all");
    all.onclick = () => this.selectAll();
    toolbar.firstChild.append(all);
    const count = this.selected.size;
    const help = count ? `${count} selected · g b u to mark them` : "click cards to select them · a select all · z undo";
    toolbar.append(createElement("div", "help", help));
    const items = this.data.items.map((item) => this.items.get(item.id)).filter(Boolean);
    const ids = items.map((item) => item.id).join(" ");
    if (ids !== this.drawnIds || !this.grid) {
      this.grid = createElement("div", items.some((item) => item.heading) ? "groups" : "grid");
      let group = this.grid;
      for (const item of items) {
        if (item.heading) {
          group = createElement("div", "group");
          group.append(createElement("div", "heading", item.heading));
          this.grid.append(group);
        }
        group.append(this.createCard(item));
      }
      this.drawnIds = ids;
    }
    for (const card of this.grid.querySelectorAll(".card")) {
      const item = this.items.get(card.dataset.id);
      card.classList.toggle("selected", this.selected.has(item.id));
      card.dataset.mark = item.mark || "";
      card.querySelector(".mark").textContent = item.mark || "";
    }
    this.root.replaceChildren(toolbar, this.grid);
  }

  createCard(item) {
    const card = createElement("div", "card");
    card.dataset.id = item.id;
    card.title = item.caption || "";
    card.append(item.view, createElement("div", "mark"), createElement("div", "words", item.caption || "(no caption)"));
    if (item.captions > 1) card.append(createElement("div", "several", `${item.captions} captions`));
    const foot = createElement("div", "foot");
    foot.append(createElement("span", "line", item.line));
    for (const [name, label, sign] of [["like", "more like this", "≈"], ["open", "open", "↗"]]) {
      if (name === "like" && !item.encoded) continue;
      const button = createElement("button", name, sign);
      button.title = label;
      button.setAttribute("aria-label", label);
      button.onclick = (event) => {
        event.stopPropagation();
        this.component.setTriggerValue(name, item.id);
      };
      foot.append(button);
    }
    card.append(foot);
    card.onclick = (event) => this.handleClick(item.id, event);
    return card;
  }

  remove() {
    window.removeEventListener("keydown", this.keyListener);
    this.root.remove();
  }
}

export default function (component) {
  let cards = instances.get(component.parentElement);
  if (!cards) {
    cards = new ReviewCards(component);
    instances.set(component.parentElement, cards);
  }
  cards.update(component);
  return () => {
    cards.remove();
    instances.delete(component.parentElement);
  };
}
